//! Metrics, all of them: `headway_<room>_<noun>_<unit>`.

use std::{sync::atomic::AtomicU64, time::Duration};

use agent_core::{conditions::conditions, desired, lease::State, probes::Outcome, world::World};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::{agent::Feeds, dataplane::Measurements};

/// Seconds that an observation with its passes may take.
const RESYNC_BUCKETS: [f64; 7] = [0.005, 0.01, 0.025, 0.1, 0.5, 2.0, 10.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabel {
    event: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FamilyLabel {
    family: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionLabel {
    condition: &'static str,
}

/// The agent's metrics.
pub struct Metrics {
    registry: Registry,
    drops: Family<ReasonLabel, Counter>,
    events: Family<EventLabel, Counter>,
    segmenter_drops: Counter,
    endpoints: Family<StateLabel, Gauge>,
    peers: Gauge,
    peers_routed: Gauge,
    peers_probed: Gauge,
    peers_reachable: Gauge,
    neighbours: Family<FamilyLabel, Gauge>,
    neighbours_limit: Family<FamilyLabel, Gauge>,
    conditions: Family<ConditionLabel, Gauge>,
    failed_steps: Gauge,
    netlink_requests: Counter,
    resync_seconds: Histogram,
}

impl Metrics {
    /// All at zero; probes and writes to Kubernetes are counted by whoever does them.
    #[must_use]
    pub fn new(feeds: &Feeds) -> Self {
        let metrics = Self {
            registry: Registry::default(),
            drops: Family::default(),
            events: Family::default(),
            segmenter_drops: Counter::default(),
            endpoints: Family::default(),
            peers: Gauge::default(),
            peers_routed: Gauge::default(),
            peers_probed: Gauge::default(),
            peers_reachable: Gauge::default(),
            neighbours: Family::default(),
            neighbours_limit: Family::default(),
            conditions: Family::default(),
            failed_steps: Gauge::default(),
            netlink_requests: Counter::default(),
            resync_seconds: Histogram::new(RESYNC_BUCKETS),
        };
        metrics.registered(feeds)
    }

    fn registered(mut self, feeds: &Feeds) -> Self {
        let mut registry = Registry::with_prefix("headway");
        registry.register("switch_dropped_packets", "Packets dropped, by reason", self.drops.clone());
        registry.register("switch_handled_packets", "What else happened to packets", self.events.clone());
        registry.register(
            "switch_segmenter_dropped_packets",
            "Packets lost on the way through the segmenter",
            self.segmenter_drops.clone(),
        );
        registry.register("agent_endpoints", "Attachments, by state", self.endpoints.clone());
        registry.register("agent_peers", "Other nodes known", self.peers.clone());
        registry.register("agent_peers_routed", "Peers to which a route leads", self.peers_routed.clone());
        registry.register(
            "agent_peers_probed",
            "Peers that are probed at present",
            self.peers_probed.clone(),
        );
        registry.register(
            "agent_peers_reachable",
            "Of those, peers that answer",
            self.peers_reachable.clone(),
        );
        registry.register(
            "agent_probes",
            "Probes of peers, by what has become of them",
            feeds.probes.clone(),
        );
        registry.register("kube_writes", "Writes to the API server, by object", feeds.writes.clone());
        registry.register(
            "agent_neighbour_entries",
            "Entries of the machine's neighbour table",
            self.neighbours.clone(),
        );
        registry.register(
            "agent_neighbour_entries_limit",
            "Entries that fit in the machine's neighbour table",
            self.neighbours_limit.clone(),
        );
        registry.register("agent_condition", "Whether a condition holds", self.conditions.clone());
        registry.register(
            "agent_failed_steps",
            "Steps towards the desired state that fail at present",
            self.failed_steps.clone(),
        );
        registry.register(
            "agent_netlink_requests",
            "Requests to the kernel by netlink",
            self.netlink_requests.clone(),
        );
        registry.register(
            "agent_resync_duration_seconds",
            "Time to look at the kernel and mend it",
            self.resync_seconds.clone(),
        );
        self.registry = registry;
        self
    }

    /// Notes an observation with its passes.
    pub fn resynced(&self, took: Duration) {
        self.resync_seconds.observe(took.as_secs_f64());
    }

    /// Takes over what the kernel has counted.
    pub fn measured(&self, measured: &Measurements) {
        for (reason, packets) in &measured.counters.drops {
            set(&self.drops.get_or_create(&ReasonLabel { reason: reason.label() }), *packets);
        }
        for (event, packets) in &measured.counters.events {
            set(&self.events.get_or_create(&EventLabel { event: event.label() }), *packets);
        }
        set(&self.segmenter_drops, measured.segmenter_drops);
        set(&self.netlink_requests, measured.netlink_requests);
        for (&family, table) in &measured.neighbour_tables {
            self.neighbours.get_or_create(&FamilyLabel { family }).set(table.entries.cast_signed());
            self.neighbours_limit.get_or_create(&FamilyLabel { family }).set(table.limit.cast_signed());
        }
    }

    /// Takes over what is known. `failures`: how many steps fail at present.
    pub fn known(&self, world: &World, failures: usize) {
        let active = world.leases.iter().filter(|lease| matches!(lease.state, State::Active { .. })).count();
        let states = [("active", active), ("reserved", world.leases.count() - active)];
        for (state, count) in states {
            self.endpoints.get_or_create(&StateLabel { state }).set(whole(count));
        }
        let peers = &world.peers;
        self.peers.set(whole(peers.len()));
        let routed = peers.keys().filter(|peer| !desired::ways(world, **peer).is_empty()).count();
        self.peers_routed.set(whole(routed));
        let probed = &world.probes.peers;
        self.peers_probed.set(whole(probed.len()));
        let answering = probed.values().filter(|outcome| **outcome == Outcome::Answers).count();
        self.peers_reachable.set(whole(answering));
        for condition in conditions(world) {
            let label = ConditionLabel { condition: condition.kind };
            self.conditions.get_or_create(&label).set(i64::from(condition.holds));
        }
        self.failed_steps.set(whole(failures));
    }

    /// All of them, in the OpenMetrics text format.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// The kernel's count is the count.
fn set(counter: &Counter<u64, AtomicU64>, value: u64) {
    counter.inner().store(value, std::sync::atomic::Ordering::Relaxed);
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
