//! The form of the status document.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
};

use agent_api::{AttachmentKey, HeadroomOutcome, MacAddress};
use serde::{Deserialize, Serialize};

use crate::dataplane::NeighbourTable;

/// The document.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Version of the agent.
    pub version: String,
    /// The node.
    pub node: Node,
    /// Pods can come.
    pub ready: bool,
    /// What is not as desired at present.
    pub failures: Vec<String>,
    /// Statements about the node.
    pub conditions: Vec<Statement>,
    /// Headroom: what is asked for, what came of it.
    pub headroom: HeadroomReport,
    /// Local attachments.
    pub endpoints: Vec<Endpoint>,
    /// Other nodes.
    pub peers: Vec<Peer>,
    /// Packets dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// What else happened to packets.
    pub events: BTreeMap<String, u64>,
    /// Packets lost on the way through the segmenter.
    pub segmenter_drops: u64,
    /// The machine's neighbour tables, by family.
    pub neighbour_tables: BTreeMap<String, NeighbourTable>,
    /// How publishing to Kubernetes goes; absent without Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publishing: Option<Publishing>,
}

/// How publishing to Kubernetes goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Publishing {
    /// The API server has this node's Locator: peers can know it.
    pub locator_written: bool,
    /// The API server has this node's HeadwayNode, up to date.
    pub status_written: bool,
    /// What could not be written; it is tried again.
    pub failures: Vec<String>,
}

/// The node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u16,
    /// Its locator.
    pub locator: String,
    /// Its pod prefixes.
    pub pod_cidrs: Vec<String>,
    /// How frames are encapsulated.
    pub datapath: String,
    /// MTU of pods, once known.
    pub mtu: Option<u32>,
    /// Uplinks that are there.
    pub uplinks: Vec<Uplink>,
}

/// An interface on the underlay.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Uplink {
    /// Its name.
    pub name: String,
    /// Its MTU, bytes.
    pub mtu: u32,
    /// It has carrier.
    pub up: bool,
    /// The switch takes its segment traffic.
    pub attached: bool,
    /// Programs of others that see its traffic first.
    pub programs_ahead: Vec<String>,
}

/// A condition.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Statement {
    /// What it is about.
    pub kind: String,
    /// Is it so?
    pub holds: bool,
    /// What to do about it.
    pub message: String,
}

/// Headroom.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeadroomReport {
    /// Bytes asked for; 0: nothing.
    pub asked: u32,
    /// What the running kernel says to it: `supported`, `unsupported`, or `off`.
    pub kernel: String,
    /// Number of `IFLA_TX_EXTRA_HEADROOM` in the running kernel.
    pub attribute: Option<u16>,
    /// Endpoints by outcome.
    pub outcomes: BTreeMap<String, usize>,
}

/// A local attachment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Container and interface.
    #[serde(flatten)]
    pub key: AttachmentKey,
    /// `namespace/name` of the pod, where the runtime says it.
    pub pod: String,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// MAC.
    pub mac: MacAddress,
    /// Its link on the node.
    pub link: String,
    /// Interface index of that link; absent while the plugin builds it.
    pub ifindex: Option<u32>,
    /// What the kernel said to the headroom; absent while the plugin builds the link.
    pub headroom: Option<HeadroomOutcome>,
}

/// Another node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u16,
    /// Its locator.
    pub locator: String,
    /// Its underlay addresses.
    pub addresses: Vec<Ipv6Addr>,
    /// Largest inner packet towards it, as far as link MTUs tell, bytes.
    pub mtu: Option<u32>,
    /// The same as a router on the way has told within the last ten minutes, bytes.
    #[serde(default)]
    pub path_mtu: Option<u32>,
    /// Ways to its locator.
    pub next_hops: Vec<NextHop>,
    /// A next hop is known and answers.
    pub reachable: bool,
    /// What probes through the segment say: `answers`, `only small packets`, `silent`; `waiting` at first; absent while the peer
    /// is not probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<String>,
}

/// A way to a peer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NextHop {
    /// The uplink.
    pub uplink: String,
    /// The neighbour.
    pub gateway: IpAddr,
    /// Its MAC, once known.
    pub mac: Option<MacAddress>,
}
