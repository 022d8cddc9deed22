//! ADD: reserve, build, activate; or nothing at all.

use std::path::Path;

use agent_api::{Activate, Assignment, AttachmentKey, Release, Reserve, Verb};

use super::{Outcome, key};
use crate::{
    agent::Agent,
    cni::{Addition, Args, Attachment, CniResult, Config, Error, Invocation, Kind},
    netns::Netns,
    pod_link,
};

pub fn add(
    invocation: &Invocation,
    attachment: &Attachment,
    netns: &Path,
    config: &Config,
) -> Result<Outcome, Error> {
    let args = Args::parse(&invocation.args)?;
    config.refuse_what_is_not_done(&args)?;
    let netns = Netns::open(netns, invocation.own_netns_allowed)?;
    let key = key(attachment, config);
    let agent = Agent::new(config);
    let reserve = Reserve {
        key: key.clone(),
        netns: netns.path().to_owned(),
        netns_inode: netns.inode(),
        pod: args.pod,
    };
    let assignment = agent.assignment(&Verb::Reserve(reserve))?;

    let mut made = false;
    if let Err(error) = realise(&agent, &key, &netns, &assignment, &mut made) {
        return Err(undo(&agent, key, assignment, made, error));
    }
    let sandbox = netns.path().to_string_lossy();
    let addition =
        Addition { assignment: &assignment, ifname: &attachment.ifname, sandbox: &sandbox, dns: &config.dns };
    let result = CniResult::from(addition).in_version(config.version);
    let document = serde_json::to_value(result);
    let document =
        document.map_err(|error| Error::new(Kind::Io, "the result cannot be written").because(&error))?;
    Ok(Outcome { document: Some(document), ..Outcome::default() })
}

/// From an assignment to a pod whose frames flow.
fn realise(
    agent: &Agent<'_>,
    key: &AttachmentKey,
    netns: &Netns,
    assignment: &Assignment,
    made: &mut bool,
) -> Result<(), Error> {
    let built = pod_link::build(netns, &key.ifname, assignment, made)?;
    agent.done(&Verb::Activate(Activate {
        key: key.clone(),
        nonce: assignment.nonce.clone(),
        host_ifindex: built.host_ifindex,
        headroom: built.headroom,
    }))
}

/// Takes away what this ADD made and releases what it reserved, that and nothing else.
fn undo(agent: &Agent<'_>, key: AttachmentKey, assignment: Assignment, made: bool, error: Error) -> Error {
    let removed = if made { pod_link::remove(&key) } else { Ok(None) };
    let mut faults: Vec<String> = match removed {
        Ok(warning) => warning.into_iter().collect(),
        Err(error) => vec![error.to_string()],
    };
    faults.extend(agent.release(Release { key, nonce: Some(assignment.nonce) }));
    faults.iter().fold(error, Error::because)
}
