//! The file as it is written. Its descriptions are those of the JSON schema.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Paths;

/// Configuration of a node's agent. In Kubernetes (`--node-name`) who the node and its peers are comes from the API server.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "headway-agent configuration")]
pub(super) struct File {
    /// This node. Needed without Kubernetes; with it, only `uplinks` may be set.
    #[serde(default)]
    pub node: Node,
    /// The cluster's SID block: a /32 in 5f00::/16 (RFC 9602), the same on all nodes. Needed without Kubernetes; with it, it
    /// follows from the UID of the namespace kube-system if it is not set.
    #[serde(default)]
    pub sid_block: Option<String>,
    /// The cluster's pod prefixes, one for each family. They contain the pod prefixes of all nodes and are on-link for pods. In
    /// Kubernetes node numbers follow from the first one.
    #[serde(rename = "clusterCIDRs")]
    #[schemars(length(min = 1, max = 2))]
    pub cluster_cidrs: Vec<String>,
    /// All other nodes. Only without Kubernetes.
    #[serde(default)]
    pub peers: Vec<Peer>,
    /// Install routes to the peers' locators, by way of their addresses. Turn it off where the fabric routes the locators.
    #[serde(default = "yes")]
    pub underlay_routes: bool,
    /// The pod network.
    #[serde(default)]
    pub network: Network,
    /// The outer header.
    #[serde(default)]
    pub encapsulation: Encapsulation,
    /// Headroom to ask the kernel for in front of packets (`tx_extra_headroom`) on pods' links.
    #[serde(default)]
    pub headroom: Headroom,
    /// Source address of what pods send out of the cluster.
    #[serde(default)]
    pub masquerade: Masquerade,
    /// MTU of pods.
    #[serde(default)]
    pub mtu: Mtu,
    /// Bounds.
    #[serde(default)]
    pub limits: Limits,
    /// The CNI configuration that the agent writes.
    #[serde(default)]
    pub cni: Cni,
    /// Where the agent keeps its things. Read at start only.
    #[serde(default)]
    pub paths: Paths,
    /// Address and port for /metrics, /livez and /readyz, or "off". Read at start only.
    #[serde(default = "default_http")]
    pub http: String,
    /// Have the kernel hurry (`/sys/kernel/rcu_expedited`, for the whole machine) for the millisecond in which a program is
    /// attached. Without it a pod takes about ten milliseconds longer, and pods wait for each other. Turn it off where isolated
    /// processors do real-time work. Read at start only.
    #[serde(default = "yes")]
    pub expedite_attach: bool,
}

fn yes() -> bool {
    true
}

fn default_http() -> String {
    "127.0.0.1:9476".into()
}

/// This node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Node {
    /// Its name. Only without Kubernetes.
    pub name: Option<String>,
    /// Its number, part of its locator: unique in the cluster, never changed. Only without Kubernetes.
    #[schemars(range(min = 1, max = 0xdfff))]
    pub number: Option<u32>,
    /// Its pod prefixes, at most one for each family. IPv6: /48 to /112. Only without Kubernetes.
    #[serde(rename = "podCIDRs")]
    #[schemars(length(min = 1, max = 2))]
    pub pod_cidrs: Option<Vec<String>>,
    /// Its interfaces on the underlay. In Kubernetes, those with the Node's InternalIPs if they are not set.
    #[schemars(length(min = 1))]
    pub uplinks: Option<Vec<String>>,
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Peer {
    /// Its name.
    pub name: String,
    /// Its number.
    #[schemars(range(min = 1, max = 0xdfff))]
    pub number: u32,
    /// Its pod prefixes, of the same families as this node's.
    #[serde(rename = "podCIDRs")]
    #[schemars(length(min = 1, max = 2))]
    pub pod_cidrs: Vec<String>,
    /// Its IPv6 address on the underlay.
    pub address: String,
    /// MTU of its uplinks in bytes, if it differs from this node's.
    #[schemars(range(min = 1280, max = 65535))]
    pub mtu: Option<u32>,
}

/// The pod network.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Network {
    /// Name in the CNI configuration.
    pub name: String,
    /// Number, the same on all nodes.
    #[schemars(range(min = 1, max = 2047))]
    pub number: u32,
    /// What happens to broadcast and multicast.
    pub flooding: Flooding,
}

impl Default for Network {
    fn default() -> Self {
        Self { name: "headway".into(), number: 1, flooding: Flooding::default() }
    }
}

/// What happens to broadcast and multicast.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Flooding {
    /// auto: to local pods, and to peers while there are at most `maxPeers`; on: to peers always; off: nowhere.
    pub mode: FloodingMode,
    /// See `mode`.
    #[schemars(range(min = 0, max = 256))]
    pub max_peers: u32,
    /// Flood frames to unknown unicast destinations too.
    pub unknown_unicast: bool,
    /// Broadcast and multicast frames a second that one pod may send.
    #[schemars(range(min = 1))]
    pub storm_rate: u32,
}

impl Default for Flooding {
    fn default() -> Self {
        Self { mode: FloodingMode::Auto, max_peers: 64, unknown_unicast: false, storm_rate: 1000 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum FloodingMode {
    Auto,
    On,
    Off,
}

/// The outer header.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Encapsulation {
    /// DSCP of the outer header: copy it from the inner packet, or a fixed value.
    pub dscp: Dscp,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "`copy` or a number from 0 to 63 is right")]
pub(super) enum Dscp {
    Word(DscpWord),
    Fixed(#[schemars(range(min = 0, max = 63))] u32),
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum DscpWord {
    Copy,
}

impl Default for Dscp {
    fn default() -> Self {
        Self::Word(DscpWord::Copy)
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "`auto`, `off` or a number of bytes from 1 to 512 is right")]
pub(super) enum Headroom {
    Word(HeadroomWord),
    Fixed(#[schemars(range(min = 1, max = 512))] u32),
}

/// auto: what the datapath needs; off: nothing is asked for.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum HeadroomWord {
    Auto,
    Off,
}

impl Default for Headroom {
    fn default() -> Self {
        Self::Word(HeadroomWord::Auto)
    }
}

/// Source address of what pods send out of the cluster.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Masquerade {
    /// Replace it by the node's.
    pub enabled: bool,
    /// Destinations outside the cluster that see pods' own addresses all the same.
    #[serde(rename = "nonMasqueradeCIDRs")]
    pub non_masquerade_cidrs: Vec<String>,
}

impl Default for Masquerade {
    fn default() -> Self {
        Self { enabled: true, non_masquerade_cidrs: Vec::new() }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "`auto` or a number of bytes is right")]
pub(super) enum Mtu {
    Word(MtuWord),
    Fixed(#[schemars(range(min = 68, max = 65535))] u32),
}

/// auto: what the uplinks allow.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum MtuWord {
    Auto,
}

impl Default for Mtu {
    fn default() -> Self {
        Self::Word(MtuWord::Auto)
    }
}

/// Bounds.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Limits {
    /// Pods on this node.
    #[schemars(range(min = 1, max = 1023))]
    pub endpoints: u32,
    /// How long an address that was reserved for a pod waits for its activation, such as `60s`.
    pub reservation_timeout: String,
}

impl Default for Limits {
    fn default() -> Self {
        Self { endpoints: bpf_common::names::MAX_ENDPOINTS - 1, reservation_timeout: "60s".into() }
    }
}

/// The CNI configuration that the agent writes.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Cni {
    /// Folder of the container runtime's CNI configurations. Read at start only.
    pub conf_dir: PathBuf,
    /// Name of the file in it. Read at start only.
    pub conf_name: String,
    /// Highest version of the CNI specification to offer: 0.3.1, 0.4.0, 1.0.0 or 1.1.0. Chained plugins must know it.
    pub version: String,
    /// Configurations of the plugins that follow headway, each with its `type`.
    pub chain: Vec<serde_json::Map<String, serde_json::Value>>,
}

impl Default for Cni {
    fn default() -> Self {
        Self {
            conf_dir: "/etc/cni/net.d".into(),
            conf_name: "10-headway.conflist".into(),
            version: "1.1.0".into(),
            chain: Vec::new(),
        }
    }
}
