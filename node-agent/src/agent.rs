//! The one owner of the world: takes what happens, one thing after the other, and keeps the kernel up with it.

mod conditions;
mod feeds;
mod membership;
mod reload;
mod requests;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use agent_api::{
    Refusal, Reply, Verb, names,
    pending::{self, Pending},
};
use agent_core::{
    cluster::{Fact, InCluster},
    desired,
    lease::{Lease, Origin, Timestamp},
    world::{Event, World},
};
pub use feeds::Feeds;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::{
    clock,
    cluster::Cluster,
    config::NodeConfig,
    metrics::Metrics,
    netlink::Change,
    reconcile::{Look, Reconciler},
    status::{self, Publishing},
    store::{Store, StoreError},
};

/// Everything is looked at this often, unless that takes long.
const TICK: Duration = Duration::from_secs(5);
/// Looking at everything takes at most one part in this many of the time: with thousands of peers it is done less often.
const TICK_SHARE: u32 = 50;
/// After a notification of the kernel others follow at once; they are answered together.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Notifications, however many, make the agent look around for at most one part in this many of its time.
const IDLE_SHARE: u32 = 10;
/// Passes in a row after which the rest waits for the next tick. Three are enough to build everything from nothing.
const PASSES: usize = 5;

/// Something that happened outside.
pub enum Input {
    /// A request on the socket.
    Request(Verb, oneshot::Sender<Result<Reply, Refusal>>),
    /// Links, addresses, routes or neighbours have changed.
    Surroundings(BTreeSet<Change>),
    /// The API server has said something.
    Cluster(Fact),
    /// The configuration file may have changed.
    Reload,
    /// Somebody wants the metrics.
    Metrics(oneshot::Sender<String>),
    /// Somebody wants to know whether the agent can be used; what stands in the way, if it cannot.
    Ready(oneshot::Sender<Result<(), String>>),
    /// Somebody has found out something that the world has to know.
    Event(Event),
    /// How publishing to Kubernetes goes.
    Publishing(Publishing),
    /// The end. Everything stays as it is.
    Stop,
}

/// What an agent is made of.
pub struct Parts {
    /// Where its configuration comes from.
    pub config_file: PathBuf,
    /// What it was at the start.
    pub config: NodeConfig,
    /// The Kubernetes cluster, with what is known of it beside the peers; nothing without one.
    pub cluster: Option<(Cluster, InCluster)>,
    /// The boot we are in.
    pub boot: String,
    /// Its memory.
    pub store: Store,
    /// The kernel.
    pub reconciler: Reconciler,
    /// Who listens.
    pub feeds: Feeds,
}

/// The agent.
pub struct Agent {
    config_file: PathBuf,
    config: NodeConfig,
    cluster: Option<Cluster>,
    world: World,
    store: Store,
    reconciler: Reconciler,
    metrics: Metrics,
    feeds: Feeds,
    /// How publishing to Kubernetes goes, once it has begun.
    publishing: Option<Publishing>,
    /// When a sign of life is due.
    next_alive: Instant,
    /// When everything has to be looked at next.
    next_tick: Instant,
    /// When the surroundings have to be looked at before that.
    next_look: Option<Instant>,
    /// How long the last look with its passes took.
    last_took: Duration,
    /// Conditions that did not hold after it.
    unmet: BTreeSet<&'static str>,
    /// Why the configuration file was not taken, if it was not.
    rejected_config: Option<String>,
}

impl Agent {
    /// Remembers what earlier agents wrote down, and does the first passes.
    ///
    /// # Errors
    /// If the memory cannot be read, or says that pods here have other addresses than the configuration gives them.
    pub fn start(parts: Parts) -> Result<Self, StoreError> {
        let (events, unreadable) = parts.store.load(&parts.boot, clock::now())?;
        let mut world =
            World::new(parts.config.configuration.clone(), parts.config.peers.clone(), parts.boot);
        let cluster = parts.cluster.map(|(cluster, beside)| {
            world.apply(Event::Cluster(Box::new(beside)));
            cluster
        });
        for error in unreadable {
            warn!(error, "lease not understood");
        }
        for event in events {
            world.apply(event);
        }
        let mut agent = Self {
            config_file: parts.config_file,
            config: parts.config,
            cluster,
            world,
            store: parts.store,
            reconciler: parts.reconciler,
            metrics: Metrics::new(&parts.feeds),
            feeds: parts.feeds,
            publishing: None,
            next_alive: Instant::now(),
            next_tick: Instant::now(),
            next_look: None,
            last_took: Duration::ZERO,
            unmet: BTreeSet::new(),
            rejected_config: None,
        };
        agent.keep_origin()?;
        agent.touch_alive();
        agent.resync(Look::Everywhere);
        Ok(agent)
    }

    /// Serves until it is stopped.
    pub fn run(mut self, inputs: &Receiver<Input>) {
        loop {
            let now = Instant::now();
            if self.next_alive <= now {
                self.touch_alive();
                continue;
            }
            if self.next_tick <= now {
                self.resync(Look::Everywhere);
                continue;
            }
            if self.next_look.is_some_and(|next| next <= now) {
                self.resync(Look::Around);
                continue;
            }
            if self.next_settling().is_some_and(|next| next <= now) {
                self.settle();
                continue;
            }
            let others = [Some(self.next_tick), self.next_look, self.next_settling()];
            let next = others.into_iter().flatten().fold(self.next_alive, Instant::min);
            let wait = next.saturating_duration_since(now);
            match inputs.recv_timeout(wait) {
                Ok(Input::Stop) | Err(RecvTimeoutError::Disconnected) => return self.end(),
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
            Input::Surroundings(changes) => {
                if self.next_look.is_none() && changes.iter().any(|change| self.concerns(change)) {
                    self.next_look = Some(Instant::now() + DEBOUNCE.max(self.last_took * IDLE_SHARE));
                }
            }
            Input::Cluster(fact) => self.hear(fact),
            Input::Reload => self.reload(),
            Input::Metrics(reply) => {
                match self.reconciler.measure() {
                    Ok(measured) => self.metrics.measured(&measured),
                    // The counts of last time stay: at zero they would look like a reset.
                    Err(error) => warn!(%error, "counters not read"),
                }
                self.metrics.known(&self.world, self.reconciler.failures().count());
                let _ = reply.send(self.metrics.encode());
            }
            Input::Ready(reply) => {
                let _ = reply.send(self.ready());
            }
            Input::Event(event) => {
                self.world.apply(event);
                self.log_conditions();
                self.feed();
            }
            Input::Publishing(publishing) => self.publishing = Some(publishing),
            Input::Stop => {}
        }
    }

    /// Does a change have to be looked at before the next tick? Links of pods change when pods come and go, of which the
    /// plugin tells; hosts and pods are neighbours of each other on the gateway link, which is the kernel's affair.
    fn concerns(&self, change: &Change) -> bool {
        match change {
            Change::Link(name) => !names::is_host_ifname(name),
            Change::Neighbour(ifindex) => {
                desired::uplinks(&self.world).any(|(_, link)| link.ifindex == *ifindex)
            }
            Change::Other => true,
        }
    }

    /// Observation and pass in turn, until nothing is left to do.
    fn resync(&mut self, look: Look) {
        let begin = Instant::now();
        self.next_look = None;
        if look == Look::Everywhere {
            self.consume_pending();
        }
        for _ in 0..PASSES {
            let Some(facts) = self.reconciler.observe(&self.world, look) else { break };
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
        self.log_conditions();
        self.feed();
        self.last_took = begin.elapsed();
        if look == Look::Everywhere {
            self.next_tick = begin + TICK.max(self.last_took * TICK_SHARE);
        }
        self.metrics.resynced(self.last_took);
    }

    fn end(mut self) {
        if let Some(cluster) = &mut self.cluster {
            cluster.flush();
        }
    }

    fn release_stale(&mut self) {
        for (lease, reason) in self.world.stale_leases(clock::now()) {
            info!(key = %lease.key, host = lease.host, reason, "lease released");
            self.free(&lease);
        }
    }

    /// Frees what a lease holds, in the world and on disk.
    fn free(&mut self, lease: &Lease) {
        let (host, at) = (lease.host, clock::now());
        let freed = if lease.is_foreign(Origin::from(&self.world.config.node)) {
            self.world.apply(Event::ForeignFreed(lease.nonce.clone()));
            self.store.foreign_freed(&lease.nonce)
        } else {
            self.world.apply(Event::Freed { host, at });
            self.store.freed(host, at, &self.world.boot)
        };
        if let Err(error) = freed {
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
                Ok(release) => self.release_older_than(release, self.left_at(&file)),
                Err(error) => warn!(error, file = %file.path.display(), "pending release not understood"),
            }
            if let Err(error) = file.remove() {
                warn!(%error, file = %file.path.display(), "pending release not removed");
            }
        }
    }

    /// When word was left. A plugin that does not say so yet has left it as long ago as the file is old.
    fn left_at(&self, file: &Pending) -> Timestamp {
        match &file.left {
            Some(left) if left.boot == self.world.boot => left.at,
            Some(_) => 0,
            None => {
                let modified = fs::metadata(&file.path).and_then(|it| it.modified());
                let age = modified.map(|modified| modified.elapsed().unwrap_or_default()).unwrap_or_default();
                clock::now().saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
            }
        }
    }

    /// What stands in the way of pods, if anything does.
    fn ready(&self) -> Result<(), String> {
        if let Some(reason) = self.world.own_rejected() {
            return Err(reason.to_owned());
        }
        let failures: Vec<&str> = self.reconciler.failures().collect();
        match (self.world.announced, failures.as_slice()) {
            (true, []) => Ok(()),
            (false, []) => Err("the first pass is not done".into()),
            (_, failures) => Err(failures.join("\n")),
        }
    }

    fn touch_alive(&mut self) {
        self.next_alive = Instant::now() + names::ALIVE_INTERVAL;
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
            publishing: self.publishing.clone(),
            ready: self.ready(),
        })
    }
}
