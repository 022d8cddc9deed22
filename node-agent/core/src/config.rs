//! What the operator wants, checked: every value here is right by itself and with the others.

use std::path::PathBuf;

use ipnet::IpNet;

use crate::addr::{Locator, NetworkNumber, NodeNumber, PodCidrs, SidBlock};

/// The configuration of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// This node.
    pub node: LocalNode,
    /// The cluster's SID block.
    pub sid_block: SidBlock,
    /// The cluster's pod prefixes: they contain the pod prefixes of all nodes and are on-link for pods.
    pub cluster: PodCidrs,
    /// Install `<peer locator>/48` by way of the peer's underlay address; otherwise the fabric routes the locators.
    pub underlay_routes: bool,
    /// The pod network.
    pub network: Network,
    /// DSCP of outer headers, 0 to 63; `None` copies the inner packet's.
    pub dscp: Option<u8>,
    /// Headroom of pods' links and the gateway link.
    pub headroom: Headroom,
    /// Masquerade what pods send out of the cluster.
    pub masquerade: bool,
    /// Destinations outside the cluster that see pods' own addresses.
    pub non_masquerade: Vec<IpNet>,
    /// Inner MTU in bytes; `None`: what the uplinks allow.
    pub mtu: Option<u32>,
    /// Bounds.
    pub limits: Limits,
    /// The CNI configuration to write: path and content.
    pub conflist: (PathBuf, String),
}

impl Configuration {
    /// This node's locator.
    #[must_use]
    pub fn locator(&self) -> Locator {
        self.sid_block.locator(self.node.number)
    }
}

/// This node.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalNode {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: NodeNumber,
    /// Its pod prefixes.
    pub pods: PodCidrs,
    /// Names of its interfaces on the underlay, at least one.
    pub uplinks: Vec<String>,
}

/// The pod network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// The name in the CNI configuration.
    pub name: String,
    /// Its number.
    pub number: NetworkNumber,
    /// What happens to broadcast and multicast.
    pub flooding: Flooding,
    /// With flooding to peers `Auto`, the number of peers up to which it happens.
    pub flood_max_peers: u32,
    /// Flood frames to unknown unicast destinations too.
    pub flood_unknown: bool,
    /// Broadcast and multicast frames a second that one endpoint may send.
    pub storm_rate: u32,
}

/// What happens to broadcast and multicast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flooding {
    /// To local endpoints, and to peers while there are at most [`Network::flood_max_peers`].
    Auto,
    /// To local endpoints and all peers, [`bpf_common::names::MAX_FLOOD_NODES`] at most.
    On,
    /// Dropped.
    Off,
}

/// The wish for `tx_extra_headroom`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headroom {
    /// What the datapath needs.
    Auto,
    /// This many bytes, 1 to 512.
    Fixed(u32),
    /// Nothing is asked for.
    Off,
}

/// Bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pods on this node, at most [`bpf_common::names::MAX_ENDPOINTS`] less one for the gateway.
    pub endpoints: u32,
    /// How long an address that was reserved for an ADD waits for its activation, milliseconds.
    pub reservation_timeout: u64,
}
