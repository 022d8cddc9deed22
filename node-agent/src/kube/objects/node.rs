//! `HeadwayNode`: what people want to know of a node.

#![expect(clippy::duplicated_attributes, reason = "every printer column has a type of its own")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A `HeadwayNode` says how a node is; there is nothing in it for anybody to ask for, so it has no spec.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "headway.dev",
    version = "v1alpha1",
    kind = "HeadwayNode",
    plural = "headwaynodes",
    shortname = "hwn",
    category = "headway",
    no_spec,
    status = "HeadwayNodeStatus",
    derive = "PartialEq",
    label("app.kubernetes.io/part-of", "headway"),
    doc = "How headway is on a node. Written by the agent of the node with the same name.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Pods can come"
    ),
    printcolumn(
        name = "Number",
        type_ = "integer",
        json_path = ".status.nodeNumber",
        description = "Number of the node"
    ),
    printcolumn(
        name = "Locator",
        type_ = "string",
        json_path = ".status.locator",
        description = "IPv6 prefix of the node's SIDs"
    ),
    printcolumn(
        name = "Datapath",
        type_ = "string",
        json_path = ".status.datapath",
        description = "How frames are encapsulated"
    ),
    printcolumn(
        name = "Endpoints",
        type_ = "integer",
        json_path = ".status.endpoints",
        description = "Pods on the segment, as of the last update"
    ),
    printcolumn(
        name = "Peers",
        type_ = "integer",
        json_path = ".status.peers.reachable",
        description = "Peers that answer probes"
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.agentVersion",
        description = "Version of the agent",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct HeadwayNodeFields {}

/// How a node is. Fields that a later release adds have to be optional: objects of this one are read by it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeadwayNodeStatus {
    /// Version of the agent.
    #[schemars(length(max = 64))]
    pub agent_version: String,
    /// Number of the node; absent until it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 1, max = 57343))]
    pub node_number: Option<u32>,
    /// IPv6 prefix of the node's SIDs; absent until it has a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 18))]
    pub locator: Option<String>,
    /// Prefixes of the node's pods.
    #[serde(rename = "podCIDRs")]
    #[schemars(length(max = 2), inner(length(max = 43)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pod_cidrs: Vec<String>,
    /// Names of the node's interfaces on the underlay.
    #[schemars(length(max = 16), inner(length(max = 15)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub uplinks: Vec<String>,
    /// How frames are encapsulated: `tc`.
    #[schemars(length(max = 16))]
    pub datapath: String,
    /// MTU of pods, bytes; absent until it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0, max = 65535))]
    pub mtu: Option<u32>,
    /// Headroom of pods' links.
    pub headroom: HeadroomStatus,
    /// Pods on the segment. Refreshed with the next other change, or within minutes: a pod that comes causes no write.
    #[schemars(with = "i32", range(min = 0))]
    pub endpoints: u32,
    /// Other nodes, in numbers.
    pub peers: PeersStatus,
    /// Statements about the node, `Ready` first.
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Headroom of pods' links.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeadroomStatus {
    /// Bytes that the agent asks for; 0: none.
    #[schemars(with = "i32", range(min = 0, max = 512))]
    pub wanted: u32,
    /// The running kernel has `tx_extra_headroom`.
    pub supported: bool,
}

/// Other nodes, in numbers.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeersStatus {
    /// Nodes that the agent knows of.
    #[schemars(with = "i32", range(min = 0))]
    pub known: u32,
    /// Of those: a route over an uplink leads to them.
    #[schemars(with = "i32", range(min = 0))]
    pub routed: u32,
    /// Peers that are probed; in large clusters a sample.
    #[schemars(with = "i32", range(min = 0))]
    pub probed: u32,
    /// Of those: they answer.
    #[schemars(with = "i32", range(min = 0))]
    pub reachable: u32,
}
