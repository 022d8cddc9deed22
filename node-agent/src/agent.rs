//! The one owner of the world: takes what happens, one thing after the other, and keeps the kernel up with it.

mod requests;
#[cfg(test)]
mod tests;

use std::{
    fs, io,
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use agent_api::{Refusal, Reply, Verb, names, pending};
use agent_core::world::{Event, World};
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::{
    clock,
    config::{self, NodeConfig},
    metrics::Metrics,
    reconcile::Reconciler,
    status,
    store::{Store, StoreError},
};

/// The surroundings are looked at at least this often.
const TICK: Duration = names::ALIVE_INTERVAL;
/// After a notification of the kernel others follow at once; they are answered together.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Passes in a row after which the rest waits for the next tick. Three are enough to build everything from nothing.
const PASSES: usize = 5;

/// Something that happened outside.
pub enum Input {
    /// A request on the socket.
    Request(Verb, oneshot::Sender<Result<Reply, Refusal>>),
    /// Links, addresses, routes or neighbours have changed.
    Surroundings,
    /// The configuration file may have changed.
    Reload,
    /// Somebody wants the metrics.
    Metrics(oneshot::Sender<String>),
    /// Somebody wants to know whether the agent can be used; what stands in the way, if it cannot.
    Ready(oneshot::Sender<Result<(), String>>),
    /// The end. Everything stays as it is.
    Stop,
}

/// What an agent is made of.
pub struct Parts {
    /// Where its configuration comes from.
    pub config_file: PathBuf,
    /// What it was at the start.
    pub config: NodeConfig,
    /// The boot we are in.
    pub boot: String,
    /// Its memory.
    pub store: Store,
    /// The kernel.
    pub reconciler: Reconciler,
}

/// The agent.
pub struct Agent {
    config_file: PathBuf,
    config: NodeConfig,
    world: World,
    store: Store,
    reconciler: Reconciler,
    metrics: Metrics,
    /// When the surroundings have to be looked at next.
    next_look: Instant,
    /// Why the configuration file was not taken, if it was not.
    rejected_config: Option<String>,
}

impl Agent {
    /// Remembers what earlier agents wrote down, and does the first passes.
    ///
    /// # Errors
    /// If the memory cannot be read.
    pub fn start(parts: Parts) -> Result<Self, StoreError> {
        let mut world = World::new(parts.config.configuration.clone(), parts.boot);
        let (events, unreadable) = parts.store.load()?;
        for error in unreadable {
            warn!(error, "lease not understood");
        }
        for event in events {
            world.apply(event);
        }
        let mut agent = Self {
            config_file: parts.config_file,
            config: parts.config,
            world,
            store: parts.store,
            reconciler: parts.reconciler,
            metrics: Metrics::new(),
            next_look: Instant::now(),
            rejected_config: None,
        };
        agent.touch_alive();
        agent.resync();
        Ok(agent)
    }

    /// Serves until it is stopped.
    pub fn run(mut self, inputs: &Receiver<Input>) {
        loop {
            let wait = self.next_look.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                self.touch_alive();
                self.resync();
                continue;
            }
            match inputs.recv_timeout(wait) {
                Ok(Input::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(input) => self.take(input),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Request(verb, reply) => {
                // The client may have gone away meanwhile.
                let _ = reply.send(self.serve(verb));
            }
            Input::Surroundings => self.next_look = self.next_look.min(Instant::now() + DEBOUNCE),
            Input::Reload => self.reload(),
            Input::Metrics(reply) => {
                let measurements = self.reconciler.measure().unwrap_or_default();
                self.metrics.update(&self.world, &self.reconciler, &measurements);
                let _ = reply.send(self.metrics.encode());
            }
            Input::Ready(reply) => {
                let _ = reply.send(self.ready());
            }
            Input::Stop => {}
        }
    }

    /// Observation and pass in turn, until nothing is left to do.
    fn resync(&mut self) {
        let begin = Instant::now();
        self.next_look = begin + TICK;
        self.consume_pending();
        for _ in 0..PASSES {
            let Some(facts) = self.reconciler.observe(&self.world) else { break };
            self.world.apply(Event::Observed(Box::new(facts)));
            self.release_stale();
            let steps = self.reconciler.pass(&self.world);
            let failed = self.reconciler.failures().next().is_some();
            if steps == 0 && !failed && !self.world.announced {
                self.reconciler.settled();
                self.world.apply(Event::Announced);
                info!(node = self.world.config.node.name, "ready for pods");
            } else if steps == 0 || failed {
                break;
            }
        }
        self.metrics.resynced(begin.elapsed(), self.reconciler.failures().count());
    }

    fn release_stale(&mut self) {
        for (key, host, reason) in self.world.stale_leases(clock::now()) {
            info!(%key, host, reason, "lease released");
            self.free(host);
        }
    }

    /// Frees a host number in the world and on disk.
    fn free(&mut self, host: u16) {
        let at = clock::now();
        self.world.apply(Event::Freed { host, at });
        if let Err(error) = self.store.freed(host, at) {
            // The next agent finds the lease, and that nothing stands behind it.
            warn!(%error, host, "release not written down");
        }
    }

    /// Releases what the plugin could not tell an agent that was away.
    fn consume_pending(&mut self) {
        let folder = self.config.paths.pending();
        let files = match pending::list(&folder) {
            Ok(files) => files,
            Err(error) => return warn!(%error, folder = %folder.display(), "pending releases not read"),
        };
        for file in files {
            match &file.release {
                // A lease made after the word was left is another ADD's.
                Ok(release) => self.release_older_than(release, left_at(&file.path)),
                Err(error) => warn!(error, file = %file.path.display(), "pending release not understood"),
            }
            if let Err(error) = file.remove() {
                warn!(%error, file = %file.path.display(), "pending release not removed");
            }
        }
    }

    /// Reads the configuration file again. A bad one changes nothing.
    fn reload(&mut self) {
        let loaded = config::load(&self.config_file).map_err(|error| error.to_string());
        match loaded.and_then(|config| self.replaceable(config)) {
            Ok(config) if config == self.config => self.rejected_config = None,
            Ok(config) => {
                self.rejected_config = None;
                self.world.apply(Event::Configured(Box::new(config.configuration.clone())));
                self.config = config;
                info!(file = %self.config_file.display(), "configuration changed");
                self.resync();
            }
            Err(error) if self.rejected_config.as_ref() == Some(&error) => {}
            Err(error) => {
                warn!(error, file = %self.config_file.display(), "configuration not taken, the former one stays");
                self.rejected_config = Some(error);
            }
        }
    }

    /// Some things cannot change under a running agent, or under running pods.
    fn replaceable(&self, new: NodeConfig) -> Result<NodeConfig, String> {
        let old = &self.config;
        let fixed = [
            ("paths", new.paths == old.paths),
            ("http", new.http == old.http),
            ("cni.confDir and cni.confName", new.configuration.conflist.0 == old.configuration.conflist.0),
        ];
        for (field, same) in fixed {
            if !same {
                return Err(format!("{field}: cannot change while the agent runs; restart it"));
            }
        }
        let (node, before) = (&new.configuration.node, &old.configuration.node);
        let pods = self.world.leases.count();
        if pods > 0 && (node.pods != before.pods || node.number != before.number) {
            return Err(format!(
                "node.number, node.podCIDRs: {pods} pods have addresses that follow from them; move the pods away first"
            ));
        }
        Ok(new)
    }

    /// What stands in the way of pods, if anything does.
    fn ready(&self) -> Result<(), String> {
        let failures: Vec<&str> = self.reconciler.failures().collect();
        match (self.world.announced, failures.as_slice()) {
            (true, []) => Ok(()),
            (false, []) => Err("the first pass is not done".into()),
            (_, failures) => Err(failures.join("\n")),
        }
    }

    fn touch_alive(&self) {
        let path = names::alive_file(&self.config.paths.socket);
        if let Err(error) = fs::write(&path, "") {
            warn!(%error, path = %path.display(), "sign of life not given");
        }
    }

    /// The status document.
    fn report(&mut self) -> status::Report {
        let measurements = self.reconciler.measure();
        status::report(&status::Sources {
            world: &self.world,
            actual: self.reconciler.actual(),
            failures: self.reconciler.failures().map(str::to_owned).collect(),
            measurements,
            rejected_config: self.rejected_config.as_deref(),
            ready: self.ready(),
        })
    }
}

/// When a pending file was left, milliseconds since the epoch.
fn left_at(path: &std::path::Path) -> u64 {
    let modified = || -> io::Result<u64> {
        let since = fs::metadata(path)?.modified()?.duration_since(std::time::UNIX_EPOCH);
        Ok(since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
    };
    modified().unwrap_or(u64::MAX)
}
