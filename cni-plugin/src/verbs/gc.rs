//! GC: the agent, which knows what ADD is building, releases what the runtime no longer has.

use agent_api::{Gc, Verb};

use super::Outcome;
use crate::{
    agent::Agent,
    cni::{Config, Error, Kind},
};

pub fn gc(config: &Config) -> Result<Outcome, Error> {
    let keep = config.valid_attachments.clone().ok_or_else(|| {
        let message = "cni.dev/valid-attachments is missing: that is not the same as an empty list";
        Error::new(Kind::InvalidConfiguration, message)
    })?;
    Agent::new(config).collect(Verb::Gc(Gc { network: config.network.clone(), keep }))?;
    Ok(Outcome::default())
}
