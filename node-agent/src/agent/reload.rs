//! The configuration file, read again while the agent runs.

use std::time::Instant;

use agent_core::{lease::Origin, peer, world::Event};
use tracing::{info, warn};

use super::Agent;
use crate::{
    config::{self, NodeConfig},
    reconcile::Look,
    store::StoreError,
};

impl Agent {
    /// Reads the configuration file again. A bad one changes nothing.
    pub(super) fn reload(&mut self) {
        if let Some(cluster) = &mut self.cluster {
            let loaded = config::load_cluster(&self.config_file).map_err(|error| error.to_string());
            match loaded.and_then(|config| cluster.reconfigure(config, Instant::now())) {
                // What follows from it, and whether it is taken, is seen when the cluster is settled.
                Ok(()) => cluster.settle_soon(Instant::now()),
                Err(error) => self.reject(error),
            }
            return;
        }
        let loaded = config::load(&self.config_file).map_err(|error| error.to_string());
        match loaded.and_then(|config| self.replaceable(config)).and_then(|config| self.remembered(config)) {
            Ok(config) if config == self.config => self.rejected_config = None,
            Ok(config) => {
                self.rejected_config = None;
                self.world.apply(Event::Configured(Box::new(config.configuration.clone())));
                for event in peer::changes(&self.config.peers, &config.peers) {
                    self.world.apply(event);
                }
                self.config = config;
                info!(file = %self.config_file.display(), "configuration changed");
                self.resync(Look::Everywhere);
            }
            Err(error) => self.reject(error),
        }
    }

    /// Goes on with the former configuration, and says why, once.
    pub(super) fn reject(&mut self, error: String) {
        if self.rejected_config.as_ref() != Some(&error) {
            warn!(error, file = %self.config_file.display(), "configuration not taken, the former one stays");
            self.rejected_config = Some(error);
        }
    }

    /// Some things cannot change under a running agent, or under running pods.
    pub(super) fn replaceable(&self, new: NodeConfig) -> Result<NodeConfig, String> {
        let old = &self.config;
        let fixed = [
            ("paths", new.paths == old.paths),
            ("http", new.http == old.http),
            ("expediteAttach", new.expedite_attach == old.expedite_attach),
            ("cni.confDir and cni.confName", new.configuration.conflist.0 == old.configuration.conflist.0),
        ];
        for (field, same) in fixed {
            if !same {
                return Err(format!("{field}: cannot change while the agent runs; restart it"));
            }
        }
        let (node, before) = (&new.configuration.node, &old.configuration.node);
        let pods = self.world.leases.count();
        if self.cluster.is_none() && pods > 0 && (node.pods != before.pods || node.number != before.number) {
            return Err(format!(
                "node.number, node.podCIDRs: {pods} pods have addresses that follow from them; move the pods away first"
            ));
        }
        Ok(new)
    }

    /// The next agent has to know what addresses followed from.
    pub(super) fn remembered(&self, new: NodeConfig) -> Result<NodeConfig, String> {
        let origin = Origin::from(&new.configuration.node);
        self.store.set_origin(&origin).map(|()| new).map_err(|error| error.to_string())
    }

    /// The same for what was changed while no agent ran: pods of an earlier one keep their addresses, or the switch would take
    /// them for strangers. A node in Kubernetes comes back as another one when its Node object was deleted; one without does not.
    pub(super) fn keep_origin(&mut self) -> Result<(), StoreError> {
        let now = Origin::from(&self.world.config.node);
        if let Some(before) = self.store.origin().filter(|before| *before != now) {
            // Pods that have gone meanwhile stand in nobody's way.
            if let Some(facts) = self.reconciler.observe(&self.world, Look::Everywhere) {
                self.world.apply(Event::Observed(Box::new(facts)));
                self.release_stale();
            }
            let pods = self.world.leases.count() + self.world.leases.foreign().count();
            if self.cluster.is_none() && pods > 0 {
                return Err(StoreError::Moved { pods, before, now });
            }
        }
        self.keep_foreign()?;
        self.store.set_origin(&now)
    }

    /// Writes down whose addresses are this node's no more, before their host numbers are given to others.
    pub(super) fn keep_foreign(&self) -> Result<(), StoreError> {
        for lease in self.world.leases.foreign() {
            self.store.set_foreign(lease)?;
        }
        Ok(())
    }
}
