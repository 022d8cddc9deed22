//! This node's place in its Kubernetes cluster: what the API server has said, what is remembered of it, what follows.

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use agent_core::{
    cluster::{Chosen, Fact, Given, InCluster, Standing, View, standing},
    dataplane::Link,
    identity::Waiting,
};
use tracing::{debug, info};

use crate::{
    config::{ClusterConfig, ConfigError, NodeConfig},
    kube::memory::Memory,
};

/// What the API server has not said this long after the start is taken from disk.
const RECALL: Duration = Duration::from_secs(5);
/// Facts that come within this time are answered together.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// This node's place in its cluster.
pub struct Cluster {
    name: String,
    config: ClusterConfig,
    view: View,
    /// What an earlier agent knew, until it is recalled.
    earlier: Option<View>,
    memory: Memory,
    recall_at: Instant,
    /// When what follows has to be looked at anew.
    settle_at: Option<Instant>,
    unreachable: Option<String>,
}

impl Cluster {
    /// Nothing was said yet; what is remembered lies in `state`.
    #[must_use]
    pub fn new(name: String, config: ClusterConfig, state: &Path, now: Instant) -> Self {
        let (memory, earlier) = Memory::open(state);
        Self {
            name,
            config,
            view: View::default(),
            earlier: Some(earlier),
            memory,
            recall_at: now + RECALL,
            settle_at: None,
            unreachable: None,
        }
    }

    /// Takes a fact in.
    pub fn take(&mut self, fact: Fact, now: Instant) {
        let locators = matches!(fact, Fact::Locators(_) | Fact::Locator(..) | Fact::LocatorGone(_));
        let changed = match fact {
            Fact::Reachable(state) => self.reachable(state.err()),
            fact => self.view.apply(fact),
        };
        if changed {
            self.settle_soon(now);
            if locators {
                self.memory.locators_changed(self.view.claims.as_ref().map_or(0, BTreeMap::len), now);
            }
        }
    }

    fn reachable(&mut self, failure: Option<String>) -> bool {
        // What a running agent says of it is its condition `ApiServerReachable`.
        debug!(?failure, "reachability of the API server");
        let changed = failure != self.unreachable;
        self.unreachable = failure;
        changed
    }

    /// Has what follows looked at anew.
    pub fn settle_soon(&mut self, now: Instant) {
        self.settle_at.get_or_insert(now + DEBOUNCE);
    }

    /// When [`Self::tick`] has something to do.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        let recall = self.earlier.as_ref().map(|_| self.recall_at);
        [recall, self.settle_at, self.memory.due()].into_iter().flatten().min()
    }

    /// Does what is due; gives whether what follows has to be looked at anew.
    pub fn tick(&mut self, now: Instant) -> bool {
        if self.recall_at <= now
            && let Some(earlier) = self.earlier.take()
        {
            let before = self.view.clone();
            self.view.recall(&earlier);
            if self.view != before {
                info!("what the API server has not said is taken from disk");
                self.settle_soon(now);
            }
        }
        if self.memory.due().is_some_and(|due| due <= now) {
            self.memory.flush(&self.view);
        }
        self.settle_at.take_if(|at| *at <= now).is_some()
    }

    /// Writes down what is not on disk yet.
    pub fn flush(&mut self) {
        self.memory.flush(&self.view);
    }

    /// Who this node is and who the others are, remembered from now on. `uplinks`: those of before.
    ///
    /// # Errors
    /// [`Waiting`] while something is missing, or while what this node claims is another's and no pods are here to be kept.
    pub fn standing(
        &mut self,
        links: &BTreeMap<String, Link>,
        uplinks: Option<&[String]>,
    ) -> Result<Standing, Waiting> {
        let given = Given {
            name: &self.name,
            prefixes: self.config.prefixes,
            sid_block: self.config.sid_block,
            uplinks: self.config.uplinks.as_deref(),
            uplinks_before: uplinks,
            chosen: self.memory.chosen(),
        };
        let standing = standing(&self.view, given, links).map_err(|waiting| self.explained(waiting))?;
        if standing.members.own_rejected.is_none() {
            let chosen = Chosen { uid: standing.uid.clone(), number: standing.node.number };
            self.memory.remember(&self.view, chosen);
        }
        Ok(standing)
    }

    /// What is missing may be so because the API server does not answer.
    fn explained(&self, waiting: Waiting) -> Waiting {
        match &self.unreachable {
            Some(reason) => Waiting { message: format!("{} ({reason})", waiting.message), ..waiting },
            None => waiting,
        }
    }

    /// The configuration that goes with a standing.
    ///
    /// # Errors
    /// [`ConfigError::Values`] if the file does not go with what the cluster says.
    pub fn configuration(&self, standing: &Standing) -> Result<NodeConfig, ConfigError> {
        let config = self.config.join(standing.node.clone(), standing.block)?;
        Ok(NodeConfig { peers: standing.members.peers.clone(), ..config })
    }

    /// The configuration file.
    #[must_use]
    pub fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// Takes another configuration file.
    ///
    /// # Errors
    /// A sentence if something in it cannot change while the agent runs.
    pub fn reconfigure(&mut self, config: ClusterConfig, now: Instant) -> Result<(), String> {
        let old = &self.config;
        let fixed = [
            ("paths", config.paths == old.paths),
            ("http", config.http == old.http),
            ("expediteAttach", config.expedite_attach == old.expedite_attach),
            ("cni.confDir and cni.confName", config.conflist == old.conflist),
        ];
        if let Some((field, _)) = fixed.into_iter().find(|(_, same)| !same) {
            return Err(format!("{field}: cannot change while the agent runs; restart it"));
        }
        if config != self.config {
            self.config = config;
            self.settle_soon(now);
        }
        Ok(())
    }

    /// What goes with a standing beside the peers.
    #[must_use]
    pub fn beside(&self, standing: &Standing) -> InCluster {
        InCluster {
            uid: standing.uid.clone(),
            rejected: standing.members.rejected.clone(),
            own_rejected: standing.members.own_rejected.clone(),
            unreachable: self.unreachable.clone(),
        }
    }
}
