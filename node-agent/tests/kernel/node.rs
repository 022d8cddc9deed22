//! A node without the part of its agent that serves.

use agent_core::world::{Event, World};
use node_agent::{
    clock,
    config::{self, NodeConfig},
    dataplane::linux::Linux,
    reconcile::{Look, Reconciler},
};

use crate::scratch::Scratch;

/// An agent's decisions and its kernel, without the agent.
pub(crate) struct Node {
    pub(crate) config: NodeConfig,
    pub(crate) world: World,
    pub(crate) reconciler: Reconciler,
}

impl Node {
    pub(crate) fn new(scratch: &Scratch) -> Self {
        Self::with(&scratch.config())
    }

    /// With this configuration file.
    pub(crate) fn with(config: &str) -> Self {
        let config = config::parse(config).unwrap();
        let boot = clock::boot().unwrap();
        let linux = Linux::open(&config.paths, &boot, config.expedite_attach).unwrap();
        let world = World::new(config.configuration.clone(), config.peers.clone(), boot);
        Self { config, world, reconciler: Reconciler::new(Box::new(linux)) }
    }

    /// Looks and acts until nothing is left to do; gives what fails.
    pub(crate) fn settle(&mut self) -> Vec<String> {
        for _ in 0..6 {
            let facts =
                self.reconciler.observe(&self.world, Look::Everywhere).expect("the kernel can be looked at");
            self.world.apply(Event::Observed(Box::new(facts)));
            if self.reconciler.pass(&self.world) == 0 {
                break;
            }
        }
        self.reconciler.failures().map(str::to_owned).collect()
    }

    pub(crate) fn assert_settles(&mut self) {
        assert_eq!(self.settle(), Vec::<String>::new());
        assert_eq!(self.reconciler.pass(&self.world), 0, "the kernel does not come to rest");
    }
}
