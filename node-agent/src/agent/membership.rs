//! What the Kubernetes cluster says while the agent runs: who this node is, who the others are.

use std::time::Instant;

use agent_core::{
    cluster::{Fact, Standing},
    peer,
    world::Event,
};
use tracing::{info, warn};

use super::Agent;
use crate::{config::NodeConfig, reconcile::Look};

impl Agent {
    /// Takes a fact in; what follows is looked at with others that come with it.
    pub(super) fn hear(&mut self, fact: Fact) {
        if let Some(cluster) = &mut self.cluster {
            cluster.take(fact, Instant::now());
        }
    }

    /// When the cluster has to be looked after next.
    pub(super) fn next_settling(&self) -> Option<Instant> {
        self.cluster.as_ref()?.next()
    }

    /// Looks after the cluster, and takes what follows from it.
    pub(super) fn settle(&mut self) {
        let Some(cluster) = &mut self.cluster else { return };
        if !cluster.tick(Instant::now()) {
            return;
        }
        let uplinks = &self.world.config.node.uplinks;
        let joined =
            cluster.standing(&self.world.facts.links, Some(uplinks)).map_err(|waiting| waiting.message);
        let joined = joined.and_then(|standing| {
            let config = cluster.configuration(&standing).map_err(|error| error.to_string())?;
            Ok((config, standing))
        });
        match joined {
            Ok((config, standing)) => self.take_standing(config, &standing),
            Err(reason) => self.reject(reason),
        }
    }

    fn take_standing(&mut self, config: NodeConfig, standing: &Standing) {
        let Some(cluster) = &self.cluster else { return };
        let beside = cluster.beside(standing);
        let was = (self.config.configuration.node.clone(), self.config.peers.len());
        let events: Vec<Event> = peer::changes(&self.world.peers, &config.peers).collect();
        if config == self.config && self.world.cluster.as_ref() == Some(&beside) {
            self.rejected_config = None;
            return;
        }
        let config = match self.replaceable(config).and_then(|config| self.remembered(config)) {
            Ok(config) => config,
            Err(reason) => return self.reject(reason),
        };
        self.rejected_config = None;
        let changes = events.len();
        for event in events {
            self.world.apply(event);
        }
        self.world.apply(Event::Cluster(Box::new(beside)));
        self.world.apply(Event::Configured(Box::new(config.configuration.clone())));
        if let Err(error) = self.keep_foreign() {
            warn!(%error, "pods of the former prefix not written down as such");
        }
        if config.configuration.node != was.0 {
            let node = &config.configuration.node;
            info!(number = %node.number, pods = ?node.pods, uplinks = ?node.uplinks, "this node has changed");
        }
        info!(peers = config.peers.len(), changes, "cluster known anew");
        self.config = config;
        self.resync(Look::Around);
    }
}
