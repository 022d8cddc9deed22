//! The node's Locator.

use std::time::Duration;

use agent_core::published::Published;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, Patch},
};
use tokio::time::Instant;

use super::{Failure, Writes, apply, note, retry::Retry};
use crate::kube::{
    objects::{
        Locator, LocatorSpec,
        convert::{locator_spec, owned_by_node},
    },
    own::Own,
};

pub(super) struct LocatorWriter {
    api: Api<Locator>,
    retry: Retry,
    /// What was written last, the version of the object that it was to replace, and when: until the watch shows what came of it,
    /// it is not written again.
    written: Option<(Replacement, Instant)>,
}

/// What is to be written, and the version of the object that it replaces.
type Replacement = (LocatorSpec, Option<String>);

/// A watch shows what was written within this, or it has shown more than that already.
const SHOWN: Duration = Duration::from_secs(30);

impl LocatorWriter {
    pub(super) fn new(client: &Client) -> Self {
        Self { api: Api::all(client.clone()), retry: Retry::default(), written: None }
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.retry.failure.clone()
    }

    /// Writes the Locator if the API server has another one or none.
    pub(super) async fn step(
        &mut self,
        writes: &Writes,
        wanted: &Published,
        node: &Node,
        own: &Own,
    ) -> Option<Instant> {
        let uid = &node.uid().unwrap_or_default();
        let mut wanted = locator_spec(wanted.locator.as_ref()?);
        // The admission policy compares the lists, whose order says which family comes first.
        let listed = node.spec.as_ref().and_then(|spec| spec.pod_cidrs.as_deref()).unwrap_or_default();
        wanted.pod_cidrs.sort_by_key(|prefix| listed.iter().position(|one| one == prefix));
        let seen = own.locator.as_ref()?.as_deref();
        let owned = |locator: &Locator| locator.owner_references().iter().any(|owner| owner.uid == *uid);
        if seen.is_some_and(|locator| locator.spec == wanted && owned(locator)) {
            self.retry = Retry::default();
            self.written = None;
            return None;
        }
        let now = Instant::now();
        if !self.retry.is_due(now) {
            return self.retry.due_at();
        }
        let replaced = (wanted, seen.and_then(ResourceExt::resource_version));
        if let Some((_, at)) =
            self.written.as_ref().filter(|(written, at)| *written == replaced && *at + SHOWN > now)
        {
            return Some(*at + SHOWN);
        }
        let outcome = match seen.filter(|locator| !owned(locator)) {
            // Its number cannot change, and it is about to go: the Node that it belonged to is gone.
            Some(_) => Err(Failure::Other("the one of an earlier Node of this name is still there".into())),
            None => self.write(writes, &replaced.0, uid).await,
        };
        self.written = outcome.is_ok().then_some((replaced, now));
        note(&mut self.retry, "Locator", outcome);
        self.retry.due_at()
    }

    async fn write(&self, writes: &Writes, spec: &LocatorSpec, uid: &str) -> Result<(), Failure> {
        let metadata = ObjectMeta {
            name: Some(writes.name.clone()),
            owner_references: Some(vec![owned_by_node(&writes.name, uid)]),
            ..ObjectMeta::default()
        };
        let locator = Locator { metadata, spec: spec.clone() };
        writes
            .attempt("locator", self.api.patch(&writes.name, &apply(), &Patch::Apply(&locator)))
            .await
            .map(drop)
    }
}
