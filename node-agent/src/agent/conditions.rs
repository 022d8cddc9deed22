//! Conditions in the log: once when one ceases to hold, once when it holds again.

use agent_core::conditions::conditions;
use tracing::{info, warn};

use super::Agent;

impl Agent {
    /// Logs what has changed since the last time.
    pub(super) fn log_conditions(&mut self) {
        for condition in conditions(&self.world) {
            let kind = condition.kind;
            if condition.holds && self.unmet.remove(kind) {
                info!(condition = kind, "condition holds again");
            } else if !condition.holds && self.unmet.insert(kind) {
                warn!(condition = kind, reason = condition.message, "condition does not hold");
            }
        }
    }
}
