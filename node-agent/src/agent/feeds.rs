//! What the agent lets others know without being asked: whom to probe, what to publish.

use std::sync::Arc;

use agent_core::{
    probes::{Targets, targets},
    published::{Published, published},
};
use tokio::sync::watch;

use super::Agent;
use crate::{kube::publish, probes};

/// The agent's ends of what it tells.
#[derive(Debug, Default)]
pub struct Feeds {
    /// Whom to probe.
    pub targets: watch::Sender<Arc<Targets>>,
    /// What has become of probes, for the metrics.
    pub probes: probes::Counters,
    /// What Kubernetes is to be told.
    pub published: watch::Sender<Option<Arc<Published>>>,
    /// What has been written there, for the metrics.
    pub writes: publish::Counters,
}

impl Agent {
    /// Tells what has changed.
    pub(super) fn feed(&self) {
        renew(&self.feeds.targets, Arc::new(targets(&self.world)));
        let published = published(&self.world, self.ready());
        renew(&self.feeds.published, Some(Arc::new(published)));
    }
}

/// Wakes those who listen only if there is something new.
fn renew<T: PartialEq>(feed: &watch::Sender<T>, value: T) {
    feed.send_if_modified(|current| {
        let new = *current != value;
        if new {
            *current = value;
        }
        new
    });
}
