//! `Locator`: what other nodes have to know of a node.

#![expect(clippy::duplicated_attributes, reason = "every printer column has a type of its own")]

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// What other nodes have to know of a node to reach its pods.
///
/// One a node, with the node's name, owned by its Node object, written by the node's agent alone.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "headway.dev",
    version = "v1alpha1",
    kind = "Locator",
    plural = "locators",
    shortname = "loc",
    category = "headway",
    derive = "PartialEq",
    label("app.kubernetes.io/part-of", "headway"),
    doc = "What other nodes have to know of a node to reach its pods. Written by the agent of the node with the same name.",
    printcolumn(
        name = "Number",
        type_ = "integer",
        json_path = ".spec.nodeNumber",
        description = "Number of the node"
    ),
    printcolumn(
        name = "Locator",
        type_ = "string",
        json_path = ".spec.locator",
        description = "IPv6 prefix of the node's SIDs"
    ),
    printcolumn(
        name = "PodCIDRs",
        type_ = "string",
        json_path = ".spec.podCIDRs",
        description = "Prefixes of the node's pods"
    ),
    printcolumn(
        name = "Underlay",
        type_ = "string",
        json_path = ".spec.underlayAddresses",
        description = "Addresses of the node's uplinks",
        priority = 1
    ),
    printcolumn(
        name = "MTU",
        type_ = "integer",
        json_path = ".spec.mtu",
        description = "MTU of the node's uplinks, bytes",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
// Digit by digit, since the server takes what `format` gives for unbounded and refuses the rule for its cost.
#[x_kube(validation = Rule::new("['000' + self.locator.split(':')[2]].all(padded, \
        '0123456789abcdef'.indexOf(padded.charAt(padded.size() - 4)) * 4096 + \
        '0123456789abcdef'.indexOf(padded.charAt(padded.size() - 3)) * 256 + \
        '0123456789abcdef'.indexOf(padded.charAt(padded.size() - 2)) * 16 + \
        '0123456789abcdef'.indexOf(padded.charAt(padded.size() - 1)) == self.nodeNumber)")
    .message("locator must be the SID block followed by nodeNumber in hexadecimal, such as 5f00:1:2::/48 for number 2"))]
pub struct LocatorSpec {
    /// Number of the node, unique in the cluster. It is chosen once: peers, SIDs and pods' MACs follow from it.
    #[schemars(with = "i32", range(min = 1, max = 57343))]
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("nodeNumber is immutable: peers, SIDs and MACs of pods follow from it"))]
    pub node_number: u32,
    /// IPv6 prefix of the node's SIDs: the cluster's SID block and the number of the node.
    #[schemars(length(max = 18), pattern(r"^5f00:[0-9a-f]{1,4}:[1-9a-f][0-9a-f]{0,3}::/48$"))]
    pub locator: String,
    /// Prefixes of the node's pods, one a family, as in `spec.podCIDRs` of its Node.
    #[serde(rename = "podCIDRs")]
    #[schemars(length(min = 1, max = 2), inner(length(min = 1, max = 43)))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new("self.all(one, isCIDR(one) && cidr(one) == cidr(one).masked())")
            .message("podCIDRs must be prefixes without host bits, such as 10.1.2.0/24 or fd10:0:0:2::/64"),
        validation = Rule::new("!self.all(one, isCIDR(one)) || size(self) < 2 || cidr(self[0]).ip().family() != cidr(self[1]).ip().family()")
            .message("podCIDRs must be one prefix a family")
    )]
    pub pod_cidrs: Vec<String>,
    /// IPv6 addresses of the node's uplinks, global ones first. Peers on the same link route the locator by way of them.
    #[schemars(length(min = 1, max = 8), inner(length(min = 2, max = 39)))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new("self.all(one, isIP(one) && ip(one).family() == 6 && (ip(one).isGlobalUnicast() || ip(one).isLinkLocalUnicast()))")
            .message("underlayAddresses must be IPv6 unicast addresses, such as 2001:db8::1 or fe80::1")
    )]
    pub underlay_addresses: Vec<String>,
    /// Smallest MTU of the node's uplinks, bytes.
    #[schemars(with = "i32", range(min = 1280, max = 65535))]
    pub mtu: u32,
    /// What the node's switch understands beyond the standard encapsulation; unknown words mean nothing.
    #[serde(default)]
    #[schemars(
        length(max = 16),
        inner(length(min = 1, max = 32), pattern(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))
    )]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub capabilities: Vec<String>,
}
