//! Keeps what the API server has of this node as the agent wants it.
//!
//! ```text
//! agent ---- Published ----> Publisher ---> Locator, HeadwayNode, Node (condition, taint), Events
//! watches -- Own ----------/     \
//! agent <--- Publishing ----------'
//! ```
//! Only what differs is written, and only objects of this node. Each kind of write is repeated by itself, so that one that
//! is refused does not hold up the others.

mod locator;
mod node;
mod retry;
mod status;
#[cfg(test)]
mod tests;

use std::{
    future::Future,
    sync::{Arc, mpsc::Sender},
    time::Duration,
};

use agent_core::published::Published;
use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use kube::{Client, ResourceExt, api::PatchParams};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tracing::{debug, info, warn};

use self::{locator::LocatorWriter, node::NodeWriter, status::StatusWriter};
use super::{events::Events, own::Own};
use crate::{agent::Input, clock, status::Publishing};

/// Who has written a field, in the eyes of the API server.
pub const FIELD_MANAGER: &str = "headway-agent";
/// An answer comes within this, or not at all.
const DEADLINE: Duration = Duration::from_secs(10);

/// Writes to the API server, by object and outcome.
pub type Counters = Family<WriteLabel, Counter>;

/// What a write was about and what became of it: `done` or `failed`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WriteLabel {
    object: &'static str,
    result: &'static str,
}

/// Where the publisher's knowledge comes from.
#[derive(Debug)]
pub struct Sources {
    /// What the agent wants said.
    pub wanted: watch::Receiver<Option<Arc<Published>>>,
    /// What the API server has, as the watches tell.
    pub own: watch::Receiver<Own>,
}

/// Publishes until the agent is gone. `name`: of the Node.
pub async fn run(client: Client, name: String, sources: Sources, agent: Sender<Input>, counters: Counters) {
    let Sources { mut wanted, mut own } = sources;
    let mut publisher = Publisher {
        locator: LocatorWriter::new(&client),
        status: StatusWriter::new(&client),
        node: NodeWriter::new(&client),
        events: Events::new(client, &name),
        writes: Writes { name, counters },
        begin: Instant::now(),
    };
    let mut told = None;
    loop {
        let (now_wanted, now_own) = (wanted.borrow_and_update().clone(), own.borrow_and_update().clone());
        let next = match (&now_wanted, &now_own.node) {
            (Some(wanted), Some(node)) => publisher.pass(wanted, node, &now_own).await,
            _ => None,
        };
        let publishing = publisher.publishing(&now_own);
        if told.as_ref() != Some(&publishing) {
            if agent.send(Input::Publishing(publishing.clone())).is_err() {
                return;
            }
            told = Some(publishing);
        }
        let pause = async {
            match next {
                Some(next) => sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            changed = own.changed() => if changed.is_err() { return },
            () = pause => {}
        }
    }
}

struct Publisher {
    locator: LocatorWriter,
    status: StatusWriter,
    node: NodeWriter,
    events: Events,
    writes: Writes,
    begin: Instant,
}

impl Publisher {
    /// Writes what is due; gives when something will be due if nothing changes.
    async fn pass(&mut self, wanted: &Published, node: &Node, own: &Own) -> Option<Instant> {
        let uid = node.uid().unwrap_or_default();
        let status = self.status.step(&self.writes, &wanted.status, &uid).await;
        if let Some(found) = self.status.found() {
            self.events.recall(&wanted.status, &found);
        }
        let nexts = [
            status,
            self.locator.step(&self.writes, wanted, node, own).await,
            self.node.step(&self.writes, wanted, node).await,
            self.report(wanted, node).await,
        ];
        nexts.into_iter().flatten().min()
    }

    async fn report(&mut self, wanted: &Published, node: &Node) -> Option<Instant> {
        let now = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        let next = self.events.report(&self.writes, &wanted.status, node, now).await?;
        Some(self.begin + Duration::from_millis(next))
    }

    /// How publishing goes.
    fn publishing(&self, own: &Own) -> Publishing {
        let failures =
            [self.locator.failure(), self.status.failure()].into_iter().chain(self.node.failures());
        Publishing {
            locator_written: own.locator.as_ref().is_some_and(Option::is_some),
            status_written: self.status.is_written(),
            failures: failures.flatten().collect(),
        }
    }
}

/// What all writers need.
pub(super) struct Writes {
    /// Name of the Node, and of our objects.
    name: String,
    counters: Counters,
}

impl Writes {
    /// Does a write: counted, with a deadline, its error in words.
    pub(super) async fn attempt<T>(
        &self,
        object: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Failure> {
        let outcome = ask(request).await;
        let result = if outcome.is_ok() { "done" } else { "failed" };
        self.counters.get_or_create(&WriteLabel { object, result }).inc();
        if outcome.is_ok() {
            debug!(object, "written");
        }
        outcome
    }
}

/// Why a request came to nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// The object, or its kind, is not there.
    NotFound(String),
    /// Anything else.
    Other(String),
}

impl Failure {
    pub(super) fn sentence(self) -> String {
        match self {
            Self::NotFound(sentence) | Self::Other(sentence) => sentence,
        }
    }
}

/// Asks something of the API server.
pub(super) async fn ask<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
    match timeout(DEADLINE, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.is_not_found() => Err(Failure::NotFound(status.message)),
        Ok(Err(kube::Error::Api(status))) => {
            Err(Failure::Other(format!("{} ({})", status.message, status.code)))
        }
        Ok(Err(error)) => Err(Failure::Other(error.to_string())),
        Err(_) => Err(Failure::Other(format!("no answer within {} s", DEADLINE.as_secs()))),
    }
}

/// Server-side apply: the fields that we name are ours, whoever wrote them before.
fn apply() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER).force()
}

/// A time as objects carry it: to the second.
fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Spreads what many nodes would do at the same time. Without a random number all of it happens at once.
fn chance() -> u64 {
    clock::random().unwrap_or(0)
}

/// Notes how a write went, in the log once for each failure.
fn note(retry: &mut retry::Retry, what: &'static str, outcome: Result<(), Failure>) {
    let had_failed = retry.failure.is_some();
    let outcome = outcome.map_err(|failure| format!("{what}: {}", failure.sentence()));
    match (&outcome, had_failed) {
        (Ok(()), true) => info!(what, "written after all"),
        (Ok(()), false) => {}
        (Err(error), _) if retry.failure.as_ref() != Some(error) => {
            warn!(error, "not written, will be tried again");
        }
        (Err(_), _) => {}
    }
    retry.note(outcome, Instant::now(), chance());
}
