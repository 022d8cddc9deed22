//! One cluster for all tests of a file.

use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{Cluster, Node};

/// A cluster that the first test which needs it builds, removed when the process exits.
pub struct Shared {
    build: fn() -> Cluster,
    cluster: OnceLock<Cluster>,
    turn: RwLock<()>,
}

/// The use of a shared cluster; prints the agents' logs if the test fails.
pub struct Use<'a, G> {
    cluster: &'a Cluster,
    _turn: G,
}

impl Shared {
    /// For a static.
    #[must_use]
    pub const fn new(build: fn() -> Cluster) -> Self {
        Self { build, cluster: OnceLock::new(), turn: RwLock::new(()) }
    }

    /// For tests that do not mind what others do at the same time.
    #[must_use]
    pub fn beside_others(&self) -> Use<'_, RwLockReadGuard<'_, ()>> {
        // A failed test says nothing about the next one's turn: poisoning is no obstacle.
        let turn = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        Use { cluster: self.cluster.get_or_init(self.build), _turn: turn }
    }

    /// For tests that count, or change the cluster for a while.
    #[must_use]
    pub fn alone(&self) -> Use<'_, RwLockWriteGuard<'_, ()>> {
        let turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
        Use { cluster: self.cluster.get_or_init(self.build), _turn: turn }
    }
}

impl<'a, G> std::ops::Deref for Use<'a, G> {
    type Target = &'a Cluster;

    fn deref(&self) -> &&'a Cluster {
        &self.cluster
    }
}

impl<G> Drop for Use<'_, G> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.cluster.nodes().iter().for_each(Node::print_log);
        }
    }
}
