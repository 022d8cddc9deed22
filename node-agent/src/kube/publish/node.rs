//! What the agent changes of its Node: the condition `NetworkUnavailable`, and the start-up taint.

use agent_core::published::Published;
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::Instant;
use tracing::info;

use super::{FIELD_MANAGER, Writes, note, retry::Retry, seconds};

/// Keeps pods away from a node whose agent has not been ready yet; whoever sets it chooses the effect.
pub const STARTUP_TAINT: &str = "headway.dev/agent-not-ready";
/// The condition that says whether a Node's network is there.
const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";
/// The reason by which the condition is known to be ours.
const OUR_REASON: &str = "HeadwayIsUp";

pub(super) struct NodeWriter {
    api: Api<Node>,
    network: Retry,
    taint: Retry,
    /// The version of the Node that was written over: until the watch shows the next one, it is not written again.
    network_written: Option<String>,
    taint_written: Option<String>,
    /// Somebody else's condition was left alone, and it was said.
    left_alone: bool,
}

impl NodeWriter {
    pub(super) fn new(client: &Client) -> Self {
        Self {
            api: Api::all(client.clone()),
            network: Retry::default(),
            taint: Retry::default(),
            network_written: None,
            taint_written: None,
            left_alone: false,
        }
    }

    pub(super) fn failures(&self) -> [Option<String>; 2] {
        [self.network.failure.clone(), self.taint.failure.clone()]
    }

    /// Says that the network is there and takes the taint away, when it is time.
    pub(super) async fn step(&mut self, writes: &Writes, wanted: &Published, node: &Node) -> Option<Instant> {
        // The taint's patch names the Node's version, which the other one changes.
        if wanted.ready {
            self.taint(writes, node).await;
        } else {
            self.taint = Retry::default();
        }
        if wanted.network_available {
            self.network(writes, node).await;
        } else {
            self.network = Retry::default();
        }
        // What is not wanted, or not ours, must not be waited for: its time would be past for ever.
        [self.network.due_at(), self.taint.due_at()].into_iter().flatten().min()
    }

    async fn network(&mut self, writes: &Writes, node: &Node) {
        match judged(node) {
            Judged::Right => self.network = Retry::default(),
            Judged::Foreign(reason) => {
                self.network = Retry::default();
                if !std::mem::replace(&mut self.left_alone, true) {
                    info!(reason, "the Node's condition NetworkUnavailable is another's and stays as it is");
                }
            }
            Judged::Ours
                if self.network.is_due(Instant::now()) && self.network_written != node.resource_version() =>
            {
                let condition = up(seconds(Timestamp::now()));
                let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
                let outcome =
                    writes.attempt("node", self.api.patch_status(&writes.name, &by_us(), &patch)).await;
                self.network_written = outcome.is_ok().then(|| node.resource_version()).flatten();
                note(&mut self.network, NETWORK_UNAVAILABLE, outcome.map(drop));
            }
            Judged::Ours => {}
        }
    }

    async fn taint(&mut self, writes: &Writes, node: &Node) {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        if !taints.iter().any(|taint| taint.key == STARTUP_TAINT) {
            self.taint = Retry::default();
            return;
        }
        if !self.taint.is_due(Instant::now()) || self.taint_written == node.resource_version() {
            return;
        }
        let rest: Vec<_> = taints.iter().filter(|taint| taint.key != STARTUP_TAINT).collect();
        // The list is replaced as a whole: with the version, so that no taint that somebody sets meanwhile is lost.
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": node.resource_version()},
            "spec": {"taints": rest},
        }));
        let outcome = writes.attempt("node", self.api.patch(&writes.name, &by_us(), &patch)).await;
        if outcome.is_ok() {
            info!(taint = STARTUP_TAINT, "taint removed");
        }
        self.taint_written = outcome.is_ok().then(|| node.resource_version()).flatten();
        note(&mut self.taint, STARTUP_TAINT, outcome.map(drop));
    }
}

/// How the Node's condition stands.
#[derive(Debug, PartialEq, Eq)]
enum Judged {
    /// It says that the network is there, by us.
    Right,
    /// It is not set, or by us in another form.
    Ours,
    /// Somebody else looks after it.
    Foreign(String),
}

fn judged(node: &Node) -> Judged {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    match conditions.iter().find(|one| one.type_ == NETWORK_UNAVAILABLE) {
        None => Judged::Ours,
        Some(one) if one.reason.as_deref() != Some(OUR_REASON) => {
            Judged::Foreign(one.reason.clone().unwrap_or_default())
        }
        Some(one) if one.status == "False" => Judged::Right,
        Some(_) => Judged::Ours,
    }
}

fn up(now: Timestamp) -> NodeCondition {
    NodeCondition {
        type_: NETWORK_UNAVAILABLE.into(),
        status: "False".into(),
        reason: Some(OUR_REASON.into()),
        message: Some("headway is running on this node".into()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

fn by_us() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() }
}
