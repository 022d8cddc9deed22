//! Peers: each by itself, all of them together with this node.

use std::{
    collections::{BTreeMap, HashMap},
    net::Ipv6Addr,
};

use agent_core::{
    addr::{NodeNumber, PodCidrs, SidBlock},
    config::LocalNode,
    desired::IPV6_MIN_MTU,
    peer::Peer,
};
use bpf_common::names::MAX_NODES;
use ipnet::IpNet;

use super::{
    Problems, name,
    prefixes::{self, overlap},
    raw,
};

/// A peer that is right by itself, and its position in the file.
pub(super) type Placed = (usize, NodeNumber, Peer);

/// All that are right by themselves.
pub(super) fn peers(peers: &[raw::Peer], problems: &mut Problems) -> Vec<Placed> {
    problems.require(peers.len() < MAX_NODES as usize, "peers", || {
        format!("{} peers are too many: {} is the limit", peers.len(), MAX_NODES - 1)
    });
    peers.iter().enumerate().filter_map(|(index, peer)| checked(index, peer, problems)).collect()
}

fn checked(index: usize, peer: &raw::Peer, problems: &mut Problems) -> Option<Placed> {
    let field = |name: &str| format!("peers[{index}].{name}");
    name(field("name"), &peer.name, problems);
    let number = problems.take(field("number"), NodeNumber::new(peer.number));
    let pods = prefixes::pods(&field("podCIDRs"), &peer.pod_cidrs, problems);
    let address = problems.take(field("address"), address(&peer.address));
    if let Some(mtu) = peer.mtu {
        problems.require((IPV6_MIN_MTU..=65535).contains(&mtu), field("mtu"), || {
            format!("{mtu}: a number of bytes from {IPV6_MIN_MTU} to 65535 is right")
        });
    }
    let peer = Peer { name: peer.name.clone(), pods: pods?, addresses: vec![address?], mtu: peer.mtu };
    Some((index, number?, peer))
}

fn address(text: &str) -> Result<Ipv6Addr, String> {
    let wrong =
        |why: &str| format!("{text:?} {why}: an IPv6 address of the peer's uplink is right, such as fc00::2");
    let address: Ipv6Addr = text.parse().map_err(|_| wrong("is not an IPv6 address"))?;
    if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
        return Err(wrong("is no node's address"));
    }
    if address.is_unicast_link_local() {
        return Err(wrong("is link-local, which does not say on which link"));
    }
    Ok(address)
}

/// Underlay addresses are no SIDs.
pub(super) fn outside_block(peers: &[Placed], block: SidBlock, problems: &mut Problems) {
    let block = block.prefix();
    for (index, _, peer) in peers {
        for address in &peer.addresses {
            problems.require(!block.contains(address), format!("peers[{index}].address"), || {
                format!("{address} lies in the SID block {block}")
            });
        }
    }
}

/// No number, name, address or prefix is used twice, and all prefixes lie in the cluster's.
pub(super) fn together(node: &LocalNode, peers: &[Placed], cluster: PodCidrs, problems: &mut Problems) {
    within("node.podCIDRs", node.pods, cluster, problems);
    let mut numbers = HashMap::from([(node.number, "node".to_owned())]);
    let mut names = HashMap::from([(node.name.as_str(), "node".to_owned())]);
    let mut addresses: HashMap<Ipv6Addr, String> = HashMap::new();
    for (index, number, peer) in peers {
        let place = format!("peers[{index}]");
        within(&format!("{place}.podCIDRs"), peer.pods, cluster, problems);
        let mut unique = |field: &str, value: String, other: Option<String>| {
            if let Some(other) = other {
                problems.add(format!("{place}.{field}"), format!("{value} is {other}'s already"));
            }
        };
        unique("number", number.to_string(), numbers.insert(*number, place.clone()));
        unique("name", peer.name.clone(), names.insert(&peer.name, place.clone()));
        for address in &peer.addresses {
            unique("address", address.to_string(), addresses.insert(*address, place.clone()));
        }
    }
    disjoint(node, peers, problems);
}

pub(super) fn within(field: &str, pods: PodCidrs, cluster: PodCidrs, problems: &mut Problems) {
    for message in pods.within(cluster).err().into_iter().flatten() {
        problems.add(field, message);
    }
}

/// Sorted by their first address, prefixes overlap only with the one before.
fn disjoint(node: &LocalNode, peers: &[Placed], problems: &mut Problems) {
    let mut nets: BTreeMap<IpNet, String> = BTreeMap::new();
    let own = ("node.podCIDRs".to_owned(), node.pods);
    let others = peers.iter().map(|(index, _, peer)| (format!("peers[{index}].podCIDRs"), peer.pods));
    for (field, pods) in [own].into_iter().chain(others) {
        for net in pods.prefixes() {
            if let Some(other) = nets.insert(net, field.clone()) {
                problems.add(&field, format!("{net} is {other}'s already"));
            }
        }
    }
    let mut last: Option<(IpNet, String)> = None;
    for (net, field) in nets {
        match &last {
            Some((before, other)) if overlap(*before, net) => {
                problems.add(field, format!("{net} overlaps {before} of {other}"));
            }
            _ => last = Some((net, field)),
        }
    }
}
