//! The verbs, a few lines each: what is asked of the agent, what of the kernel, in which order.

mod add;
mod check;
mod del;
mod gc;
mod status;

use agent_api::AttachmentKey;
use serde_json::Value;

use crate::cni::{Attachment, CniVersion, Command, Config, Error, Invocation};

/// How a verb ends well.
#[derive(Debug, Default)]
pub struct Outcome {
    /// For stdout.
    pub document: Option<Value>,
    /// For stderr.
    pub warnings: Vec<String>,
}

/// Does what the invocation asks for.
///
/// # Errors
/// What the runtime has to hear.
pub fn run(invocation: &Invocation, config: &Config) -> Result<Outcome, Error> {
    match &invocation.command {
        Command::Add(attachment, netns) => add::add(invocation, attachment, netns, config),
        Command::Del(attachment) => del::del(attachment, config),
        Command::Check(attachment, netns) => {
            config.require("CHECK", CniVersion::V0_4_0)?;
            check::check(invocation, attachment, netns, config)
        }
        Command::Gc => {
            config.require("GC", CniVersion::V1_1_0)?;
            gc::gc(config)
        }
        Command::Status => {
            config.require("STATUS", CniVersion::V1_1_0)?;
            status::status(config)
        }
    }
}

fn key(attachment: &Attachment, config: &Config) -> AttachmentKey {
    AttachmentKey {
        network: config.network.clone(),
        container: attachment.container.clone(),
        ifname: attachment.ifname.clone(),
    }
}
