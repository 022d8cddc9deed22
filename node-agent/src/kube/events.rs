//! Events on the Node: problems, each once.

use agent_core::{
    conditions::Condition,
    lease::Timestamp,
    published::{Reporter, Status},
};
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::{
    Client, ResourceExt,
    runtime::events::{Event, EventType, Recorder, Reporter as Reporting},
};
use tracing::warn;

use super::{
    objects::{HeadwayNodeStatus, convert::clipped},
    publish::{FIELD_MANAGER, Writes},
};

pub(super) struct Events {
    recorder: Recorder,
    reporter: Reporter,
}

impl Events {
    /// Events by the agent of the node of that name.
    pub(super) fn new(client: Client, name: &str) -> Self {
        let reporting = Reporting { controller: FIELD_MANAGER.into(), instance: Some(name.to_owned()) };
        Self { recorder: Recorder::new(client, reporting), reporter: Reporter::default() }
    }

    /// Takes the problems that an earlier agent has published for reported.
    pub(super) fn recall(&mut self, status: &Status, published: &HeadwayNodeStatus) {
        self.reporter.recall(status, |kind| {
            published.conditions.iter().any(|one| one.type_ == kind && one.status == "False")
        });
    }

    /// Reports what is due; gives when to ask again if nothing changes. `now`: milliseconds since any beginning.
    pub(super) async fn report(
        &mut self,
        writes: &Writes,
        status: &Status,
        node: &Node,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let (problems, next) = self.reporter.due(status, now);
        for problem in problems {
            let reference = reference(node);
            let sent = writes.attempt("event", self.recorder.publish(&event(problem), &reference)).await;
            if let Err(failure) = sent {
                // The condition stays, so nothing is lost but the announcement.
                warn!(condition = problem.kind, error = failure.sentence(), "Event not sent");
            }
        }
        next
    }
}

fn event(problem: &Condition) -> Event {
    Event {
        type_: EventType::Warning,
        reason: problem.reason.to_owned(),
        note: Some(clipped(&problem.message)),
        action: problem.kind.to_owned(),
        secondary: None,
    }
}

/// `kubectl describe node` lists Events of the Node in the namespace `default`.
fn reference(node: &Node) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some(node.name_any()),
        uid: node.uid(),
        ..ObjectReference::default()
    }
}
