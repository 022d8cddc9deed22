//! All that this node knows, and the events that change it.

use std::collections::BTreeMap;

use agent_api::names;

use crate::{
    addr::{NetworkNumber, NodeNumber},
    cluster::InCluster,
    config::Configuration,
    dataplane::{Facts, Link},
    desired::switch_side_mac,
    lease::{BootId, Lease, Leases, Origin, State, Timestamp},
    peer::Peer,
    probes::Outcomes,
};

/// All that this node knows.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    /// What the operator wants.
    pub config: Configuration,
    /// What is known of the Kubernetes cluster; nothing without one.
    pub cluster: Option<InCluster>,
    /// All other nodes.
    pub peers: BTreeMap<NodeNumber, Peer>,
    /// The boot we are in.
    pub boot: BootId,
    /// Attachments.
    pub leases: Leases,
    /// What was last seen of the node's surroundings.
    pub facts: Facts,
    /// What probes of peers have told.
    pub probes: Outcomes,
    /// A NetworkPolicy exists in the cluster, as far as is known.
    pub network_policies: bool,
    /// The CNI configuration was written once: it stays, whatever happens later.
    pub announced: bool,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The operator changed the configuration.
    Configured(Box<Configuration>),
    /// A node has joined, or what is known of it has changed.
    PeerKnown(NodeNumber, Box<Peer>),
    /// A node has left.
    PeerLeft(NodeNumber),
    /// What is known of the Kubernetes cluster beside the peers.
    Cluster(Box<InCluster>),
    /// A lease was made or moved on.
    Leased(Box<Lease>),
    /// A host number was freed.
    Freed {
        /// The host number.
        host: u16,
        /// When.
        at: Timestamp,
    },
    /// A lease whose addresses are this node's no more has ended; the ADD that made it is named by its nonce.
    ForeignFreed(String),
    /// The surroundings were looked at.
    Observed(Box<Facts>),
    /// Probes of peers have told something new.
    Probed(Box<Outcomes>),
    /// The cluster was asked whether it has any NetworkPolicy.
    NetworkPolicies(bool),
    /// The first full pass is done: pods can come.
    Announced,
}

impl World {
    /// What is known before anything has happened.
    #[must_use]
    pub fn new(config: Configuration, peers: BTreeMap<NodeNumber, Peer>, boot: BootId) -> Self {
        Self {
            config,
            cluster: None,
            peers,
            boot,
            leases: Leases::default(),
            facts: Facts::default(),
            probes: Outcomes::default(),
            network_policies: false,
            announced: false,
        }
    }

    /// Takes an event in.
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::Configured(config) => {
                self.config = *config;
                self.leases.sort_out(Origin::from(&self.config.node));
            }
            Event::Cluster(cluster) => self.cluster = Some(*cluster),
            Event::PeerKnown(number, peer) => drop(self.peers.insert(number, *peer)),
            Event::PeerLeft(number) => drop(self.peers.remove(&number)),
            Event::Leased(lease) if lease.is_foreign(Origin::from(&self.config.node)) => {
                self.leases.insert_foreign(*lease);
            }
            Event::Leased(lease) => self.leases.insert(*lease),
            Event::ForeignFreed(nonce) => self.leases.free_foreign(&nonce),
            Event::Freed { host, at } => self.leases.free(host, at),
            Event::Observed(facts) => self.facts = *facts,
            Event::Probed(outcomes) => self.probes = *outcomes,
            Event::NetworkPolicies(exist) => self.network_policies = exist,
            Event::Announced => self.announced = true,
        }
    }

    /// Why this node must not take part in the segment, if it must not: what it claims is another node's.
    #[must_use]
    pub fn own_rejected(&self) -> Option<&str> {
        self.cluster.as_ref()?.own_rejected.as_deref()
    }

    /// The node is part of the segment. One whose claim is another's is not, but pods that it has already are not cut off.
    #[must_use]
    pub fn takes_part(&self) -> bool {
        self.own_rejected().is_none() || self.leases.count() > 0
    }

    /// Number of the pod network.
    #[must_use]
    pub fn network(&self) -> NetworkNumber {
        self.config.network.number
    }

    /// What the addresses of a lease follow from.
    #[must_use]
    pub fn origin(&self, lease: &Lease) -> Origin {
        lease.origin.unwrap_or_else(|| Origin::from(&self.config.node))
    }

    /// The link of an active lease, if it is there, under whatever name: it may have been renamed by hand.
    #[must_use]
    pub fn pod_link(&self, lease: &Lease) -> Option<&Link> {
        let State::Active { ifindex, .. } = lease.state else { return None };
        let origin = self.origin(lease);
        let mac = switch_side_mac(origin.pods.mac(origin.number, lease.host));
        let named = self.facts.links.get(&names::host_ifname(&lease.key));
        let renamed = || self.facts.links.values().find(|link| link.ifindex == ifindex && link.mac == mac);
        named.filter(|link| link.ifindex == ifindex).or_else(renamed)
    }

    /// Leases that nothing stands behind any more, with the reason.
    #[must_use]
    pub fn stale_leases(&self, now: Timestamp) -> Vec<(Lease, &'static str)> {
        let stale = |lease: &Lease| Some((lease.clone(), self.stale_reason(lease, now)?));
        self.leases.iter().chain(self.leases.foreign()).filter_map(stale).collect()
    }

    /// Why nothing stands behind a lease any more: it is of an earlier boot, was never activated, or its link is gone.
    ///
    /// A link counts as gone only in an observation that began after the activation.
    #[must_use]
    pub fn stale_reason(&self, lease: &Lease, now: Timestamp) -> Option<&'static str> {
        match lease.state {
            _ if lease.boot != self.boot => Some("it is of an earlier boot"),
            State::Reserved { at } if now.saturating_sub(at) > self.config.limits.reservation_timeout => {
                Some("it was never activated")
            }
            State::Active { at, .. } if self.facts.observed_at > at && self.pod_link(lease).is_none() => {
                Some("its link is gone")
            }
            _ => None,
        }
    }
}
