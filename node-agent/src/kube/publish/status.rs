//! The node's `HeadwayNode`.

use std::time::Duration;

use agent_core::published::{Status, Urgency, urgency};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use kube::{Api, Client, Resource, ResourceExt, api::Patch};
use serde_json::json;
use tokio::time::Instant;

use super::{Failure, Writes, apply, ask, chance, note, retry::Retry, seconds};
use crate::kube::objects::{
    HeadwayNode, HeadwayNodeStatus,
    convert::{node_status, owned_by_node},
};

/// So often it is looked whether the object is still there: it is not watched.
const LOOK: Duration = Duration::from_secs(600);
/// When something turns on all nodes at once, such as when the API server is back, their writes are spread over this much time
/// for each node.
const SPREAD_A_PEER: Duration = Duration::from_millis(1);

pub(super) struct StatusWriter {
    api: Api<HeadwayNode>,
    retry: Retry,
    /// The object as it was last seen or written.
    known: Option<Known>,
    /// The status that an earlier agent has left.
    found: Option<HeadwayNodeStatus>,
    /// What was said last, and when.
    said: Option<(Status, Instant)>,
    /// When the present difference is to be written.
    due: Option<(Urgency, Instant)>,
}

/// What has to be known of the object.
struct Known {
    /// When it was looked at.
    at: Instant,
    /// It is there, and goes with the Node.
    in_place: bool,
    generation: Option<i64>,
    status: Option<HeadwayNodeStatus>,
}

impl StatusWriter {
    pub(super) fn new(client: &Client) -> Self {
        Self {
            api: Api::all(client.clone()),
            retry: Retry::default(),
            known: None,
            found: None,
            said: None,
            due: None,
        }
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.retry.failure.clone()
    }

    /// What was there before this agent has written anything; given once.
    pub(super) fn found(&mut self) -> Option<HeadwayNodeStatus> {
        self.found.take()
    }

    pub(super) fn is_written(&self) -> bool {
        self.said.is_some() && self.retry.failure.is_none()
    }

    /// Writes the status once it is due. `uid`: of the Node.
    pub(super) async fn step(&mut self, writes: &Writes, wanted: &Status, uid: &str) -> Option<Instant> {
        let now = Instant::now();
        if !self.retry.is_due(now) {
            return self.retry.due_at();
        }
        let outcome = self.renew(writes, wanted, uid, now).await;
        let failed = outcome.is_err();
        note(&mut self.retry, "HeadwayNode", outcome);
        if failed {
            self.known = None;
            return self.retry.due_at();
        }
        let look = self.known.as_ref().map(|known| known.at + LOOK);
        self.due.map(|(_, at)| at).into_iter().chain(look).min()
    }

    async fn renew(
        &mut self,
        writes: &Writes,
        wanted: &Status,
        uid: &str,
        now: Instant,
    ) -> Result<(), Failure> {
        if self.known.as_ref().is_none_or(|known| known.at + LOOK <= now) {
            self.look(writes, uid, now).await?;
        }
        self.due = self.due_at(wanted, now);
        if self.due.is_none_or(|(_, at)| at > now) {
            return Ok(());
        }
        let rendered = self.rendered(wanted);
        if self.known.as_ref().is_none_or(|known| !known.in_place || known.status.as_ref() != Some(&rendered))
        {
            self.write(writes, rendered, uid).await?;
        }
        self.said = Some((wanted.clone(), now));
        self.due = None;
        Ok(())
    }

    /// When the difference between what was said and what is wanted has to be written.
    fn due_at(&self, wanted: &Status, now: Instant) -> Option<(Urgency, Instant)> {
        let Some((said, at)) = &self.said else { return Some((Urgency::Now, now)) };
        let urgency = urgency(said, wanted)?;
        if let Some(due) = self.due.filter(|(before, _)| *before <= urgency) {
            return Some(due);
        }
        let peers = u32::try_from(wanted.figures.known).unwrap_or(u32::MAX);
        let spread = SPREAD_A_PEER.saturating_mul(peers).mul_f64((chance() % 1000) as f64 / 1000.0);
        let time = match urgency {
            Urgency::Now => now,
            Urgency::After(pause) => now.max(*at + Duration::from_millis(pause)),
        };
        Some((urgency, time + spread))
    }

    async fn look(&mut self, writes: &Writes, uid: &str, now: Instant) -> Result<(), Failure> {
        let object = ask(self.api.get_opt(&writes.name)).await?;
        let in_place = object
            .as_ref()
            .is_some_and(|object| object.owner_references().iter().any(|owner| owner.uid == uid));
        let status = object.as_ref().and_then(|object| object.status.clone());
        // Somebody has removed or changed it.
        if !in_place || self.known.as_ref().is_some_and(|known| known.status != status) {
            self.said = None;
        }
        if self.said.is_none() && in_place {
            self.found.clone_from(&status);
        }
        self.known = Some(Known {
            at: now,
            in_place,
            generation: object.as_ref().and_then(|object| object.meta().generation),
            status,
        });
        Ok(())
    }

    fn rendered(&self, wanted: &Status) -> HeadwayNodeStatus {
        let known = self.known.as_ref();
        let before: &[Condition] =
            known.and_then(|known| known.status.as_ref()).map_or(&[], |status| &status.conditions);
        node_status(wanted, before, known.and_then(|known| known.generation), seconds(Timestamp::now()))
    }

    async fn write(&mut self, writes: &Writes, status: HeadwayNodeStatus, uid: &str) -> Result<(), Failure> {
        let Some(known) = &mut self.known else { return Ok(()) };
        let of_type = json!({"apiVersion": HeadwayNode::api_version(&()), "kind": HeadwayNode::kind(&())});
        if !known.in_place {
            let mut object = of_type.clone();
            object["metadata"] =
                json!({"name": writes.name, "ownerReferences": [owned_by_node(&writes.name, uid)]});
            let patch = Patch::Apply(&object);
            let made = writes.attempt("headwaynode", self.api.patch(&writes.name, &apply(), &patch)).await?;
            known.in_place = true;
            known.generation = made.meta().generation;
        }
        let mut status = status;
        for condition in &mut status.conditions {
            condition.observed_generation = known.generation;
        }
        let mut object = of_type;
        object["status"] = json!(status);
        let patch = Patch::Apply(&object);
        writes.attempt("headwaynode", self.api.patch_status(&writes.name, &apply(), &patch)).await?;
        known.status = Some(status);
        Ok(())
    }
}
