//! An agent whose node cannot begin yet: it has no prefix for pods, no uplink, or a number that is another's. Traffic of an
//! earlier agent goes on; pods wait. It goes on by itself.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use agent_api::{ErrorKind, Readiness, Refusal, Reply, Verb};
use agent_core::{cluster::Standing, dataplane::Link, identity::Waiting, published};
use serde_json::json;
use tracing::warn;

use crate::{
    agent::{Feeds, Input},
    cluster::Cluster,
    config::{self, NodeConfig},
    dataplane::StepError,
};

/// Nothing that is waited for goes unnoticed longer.
const TICK: Duration = Duration::from_secs(5);

/// Answers with the reason until the node can begin, or until it is stopped: then there is nothing to give.
pub fn run(
    inputs: &Receiver<Input>,
    cluster: &mut Cluster,
    config_file: &Path,
    feeds: &Feeds,
    mut links: impl FnMut() -> Result<BTreeMap<String, Link>, StepError>,
) -> Option<(NodeConfig, Standing)> {
    let mut waiting = Waiting::new("Starting", "the API server is being asked who this node is");
    loop {
        let now = Instant::now();
        let next = cluster.next().unwrap_or(now + TICK).min(now + TICK);
        match inputs.recv_timeout(next.saturating_duration_since(now)) {
            Ok(Input::Stop) | Err(RecvTimeoutError::Disconnected) => return None,
            Ok(input) => take(input, cluster, config_file, &waiting),
            Err(RecvTimeoutError::Timeout) => cluster.settle_soon(now),
        }
        if !cluster.tick(Instant::now()) {
            continue;
        }
        match begin(cluster, links()) {
            Ok(begun) => {
                return Some(begun);
            }
            Err(reason) if reason == waiting => {}
            Err(reason) => {
                warn!(reason = reason.reason, message = reason.message, "waiting");
                let published = published::waiting(reason.reason, &reason.message);
                feeds.published.send_replace(Some(Arc::new(published)));
                waiting = reason;
            }
        }
    }
}

fn begin(
    cluster: &mut Cluster,
    links: Result<BTreeMap<String, Link>, StepError>,
) -> Result<(NodeConfig, Standing), Waiting> {
    let links = links.map_err(|error| Waiting::new("KernelNotReadable", error.to_string()))?;
    let standing = cluster.standing(&links, None)?;
    if let Some(reason) = &standing.members.own_rejected {
        return Err(Waiting::new("TakenByAnother", reason));
    }
    let config = cluster
        .configuration(&standing)
        .map_err(|error| Waiting::new("ConfigurationRejected", error.to_string()))?;
    Ok((config, standing))
}

fn take(input: Input, cluster: &mut Cluster, config_file: &Path, waiting: &Waiting) {
    // Whoever asked may have gone away meanwhile.
    match input {
        Input::Cluster(fact) => cluster.take(fact, Instant::now()),
        Input::Request(verb, reply) => drop(reply.send(answer(&verb, waiting))),
        Input::Ready(reply) => drop(reply.send(Err(waiting.message.clone()))),
        Input::Metrics(reply) => drop(reply.send("# EOF\n".into())),
        Input::Surroundings(_) => cluster.settle_soon(Instant::now()),
        Input::Reload => {
            let loaded = config::load_cluster(config_file).map_err(|error| error.to_string());
            if let Err(error) = loaded.and_then(|config| cluster.reconfigure(config, Instant::now())) {
                warn!(error, file = %config_file.display(), "configuration not taken, the former one stays");
            }
        }
        // Nothing is probed yet, and how publishing goes shows in what is published.
        Input::Event(_) | Input::Publishing(_) | Input::Stop => {}
    }
}

fn answer(verb: &Verb, waiting: &Waiting) -> Result<Reply, Refusal> {
    let message = &waiting.message;
    match verb {
        Verb::Status => Ok(Reply::Readiness(Readiness::NotReady(message.clone()))),
        Verb::Report => {
            Ok(Reply::Report(json!({ "ready": false, "waiting": message, "reason": waiting.reason })))
        }
        // A release is left for later by whoever asks for it.
        _ => Err(Refusal { kind: ErrorKind::TryAgain, message: message.clone() }),
    }
}
