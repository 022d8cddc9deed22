//! Who this node is in a Kubernetes cluster: a function of its Node object, of what it was before, and of its links.

use std::{collections::BTreeMap, net::IpAddr};

use agent_api::MacAddress;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{
    addr::{NodeNumber, PodCidrs},
    dataplane::Link,
};

/// Annotation of a Node by which its operator chooses the node number.
pub const NUMBER_ANNOTATION: &str = "headway.dev/node-number";

/// Why the node cannot begin yet. It waits, and goes on by itself once that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// One word, as reasons of conditions are: `NoPodCIDR`.
    pub reason: &'static str,
    /// A sentence that says what to do.
    pub message: String,
}

impl Waiting {
    /// With a reason and a sentence.
    #[must_use]
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// What the Node object says, as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeObject {
    /// Its name.
    pub name: String,
    /// Its UID: another one is another node.
    pub uid: String,
    /// `spec.podCIDRs`.
    pub pod_cidrs: Vec<String>,
    /// The value of [`NUMBER_ANNOTATION`].
    pub number_annotation: Option<String>,
    /// `status.addresses` of type InternalIP.
    pub internal_ips: Vec<IpAddr>,
}

/// The cluster's pod prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterPrefixes {
    /// Both families.
    pub both: PodCidrs,
    /// The one that is named first: node numbers follow from it.
    pub first: IpNet,
}

/// The node's pod prefixes.
///
/// # Errors
/// [`Waiting`] if the Node has none, or none that pods could have addresses of.
pub fn pods(node: &NodeObject, cluster: ClusterPrefixes) -> Result<PodCidrs, Waiting> {
    let name = &node.name;
    if node.pod_cidrs.is_empty() {
        return Err(Waiting::new(
            "NoPodCIDR",
            format!(
                "Node {name} has no spec.podCIDRs: run kube-controller-manager with --allocate-node-cidrs=true and \
                 --cluster-cidr, or set them by hand"
            ),
        ));
    }
    let outside = |why: String| {
        Waiting::new(
            "PodCIDROutsideCluster",
            format!(
                "spec.podCIDRs {:?} of Node {name}: {why}; clusterCIDRs of headway must be those that the Nodes' are taken \
                 from (--cluster-cidr of kube-controller-manager)",
                node.pod_cidrs
            ),
        )
    };
    let prefixes: Result<Vec<IpNet>, _> = node.pod_cidrs.iter().map(|text| text.parse()).collect();
    let prefixes = prefixes.map_err(|error| outside(format!("{error}")))?;
    let pods = PodCidrs::of_node(&prefixes).map_err(|error| outside(error.to_string()))?;
    pods.within(cluster.both).map_err(|problems| outside(problems.join(", ")))?;
    Ok(pods)
}

/// The node's number: what its Locator says, else the annotation, else what is remembered, else 1 + the index of its prefix
/// in the cluster's. So a number that is in use changes only when somebody deletes the Locator.
///
/// # Errors
/// [`Waiting`] if the annotation is no number, or the index is too large for one.
pub fn number(
    node: &NodeObject,
    in_locator: Option<NodeNumber>,
    remembered: Option<NodeNumber>,
    pods: PodCidrs,
    cluster: ClusterPrefixes,
) -> Result<NodeNumber, Waiting> {
    if let Some(number) = in_locator {
        return Ok(number);
    }
    if let Some(text) = &node.number_annotation {
        let number = text
            .trim()
            .parse()
            .map_err(|_| text.clone())
            .and_then(|number: u32| NodeNumber::new(number).map_err(|_| text.clone()));
        return number.map_err(|text| {
            Waiting::new(
                "NodeNumberInvalid",
                format!(
                    "annotation {NUMBER_ANNOTATION} of Node {} is {text:?}: a number from 1 to {} is right",
                    node.name,
                    NodeNumber::MAX
                ),
            )
        });
    }
    remembered.map_or_else(|| derived(&node.name, pods, cluster.first), Ok)
}

fn derived(name: &str, pods: PodCidrs, cluster: IpNet) -> Result<NodeNumber, Waiting> {
    let (base, net, bits) = match (cluster, pods) {
        (IpNet::V4(cluster), PodCidrs { v4: Some(net), .. }) => {
            let base = u128::from(cluster.network().to_bits());
            (base, (u128::from(net.network().to_bits()), net.prefix_len()), 32)
        }
        (IpNet::V6(cluster), PodCidrs { v6: Some(net), .. }) => {
            (cluster.network().to_bits(), (net.network().to_bits(), net.prefix_len()), 128)
        }
        // `pods` checks that both have the same families.
        _ => {
            return Err(Waiting::new(
                "PodCIDROutsideCluster",
                format!("Node {name} has no prefix in {cluster}"),
            ));
        }
    };
    let index = net.0.saturating_sub(base).checked_shr(bits - u32::from(net.1)).unwrap_or(0);
    let number = u32::try_from(index).ok().and_then(|index| NodeNumber::new(index.saturating_add(1)).ok());
    number.ok_or_else(|| {
        Waiting::new(
            "NodeNumberOutOfRange",
            format!(
                "prefix number {index} of {cluster} gives Node {name} no node number, of which there are {}: annotate it with \
                 {NUMBER_ANNOTATION}=<a free one>",
                NodeNumber::MAX
            ),
        )
    })
}

/// The node's uplinks: the links that have its internal addresses. They must be there, have a MAC, and speak IPv6; a
/// link-local address is enough.
///
/// # Errors
/// [`Waiting`] if there is none.
pub fn uplinks(node: &NodeObject, links: &BTreeMap<String, Link>) -> Result<Vec<String>, Waiting> {
    let (name, ips) = (&node.name, &node.internal_ips);
    if ips.is_empty() {
        return Err(Waiting::new(
            "NoInternalIP",
            format!("Node {name} has no InternalIP yet: kubelet reports it"),
        ));
    }
    let holds = |link: &&Link| link.addresses.iter().any(|address| ips.contains(address));
    let named = |(name, _): (&String, &Link)| name.clone();
    let found: Vec<(&String, &Link)> = links.iter().filter(|(_, link)| holds(link)).collect();
    let usable =
        |link: &Link| link.mac != MacAddress::default() && link.addresses.iter().any(IpAddr::is_ipv6);
    let uplinks: Vec<String> = found.iter().copied().filter(|(_, link)| usable(link)).map(named).collect();
    if !uplinks.is_empty() {
        return Ok(uplinks);
    }
    let what = if found.is_empty() {
        "no interface here has one of them: set node.uplinks, or have kubelet report an address of this node"
            .to_owned()
    } else {
        let names: Vec<String> = found.iter().copied().map(named).collect();
        format!(
            "{} has no IPv6 address or no MAC address: the underlay is IPv6; link-local addresses are enough where the nodes \
             share a link (net.ipv6.conf.*.disable_ipv6=0), or set node.uplinks",
            names.join(", ")
        )
    };
    Err(Waiting::new("NoUplink", format!("InternalIPs {ips:?} of Node {name}: {what}")))
}
