//! DEL: the link goes first, then the agent hears of it, now or later. Succeeds if nothing is there.

use agent_api::Release;

use super::{Outcome, key};
use crate::{
    agent::Agent,
    cni::{Attachment, Config, Error},
    pod_link,
};

pub fn del(attachment: &Attachment, config: &Config) -> Result<Outcome, Error> {
    let key = key(attachment, config);
    let removed = pod_link::remove(&key);
    let mut warnings = Agent::new(config).release(Release { key, nonce: None });
    warnings.extend(removed?);
    Ok(Outcome { document: None, warnings })
}
