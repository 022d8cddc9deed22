//! Which nodes are peers: a function of all Locators, the same on every node.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::{IpAddr, Ipv6Addr},
};

use bpf_common::names::MAX_NODES;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{
    addr::{NodeNumber, PodCidrs, SidBlock},
    desired::IPV6_MIN_MTU,
    identity::NUMBER_ANNOTATION,
    peer::Peer,
};

/// What a Locator says, as it was read. Nothing in it is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// When the object was created, seconds since the epoch.
    pub created: i64,
    /// UID of the Node that owns it.
    pub owner: String,
    /// Node number.
    pub number: u32,
    /// Prefix of the node's SIDs.
    pub locator: String,
    /// Prefixes of the node's pods.
    pub pod_cidrs: Vec<String>,
    /// Addresses of the node's uplinks.
    pub addresses: Vec<String>,
    /// MTU of the node's uplinks, bytes.
    pub mtu: u32,
}

/// All Locators, by node name.
pub type Claims = BTreeMap<String, Claim>;

/// This node, as it knows itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Its name.
    pub name: String,
    /// When its Locator was created, seconds since the epoch, if it has one.
    pub created: Option<i64>,
    /// Its number.
    pub number: NodeNumber,
    /// Its pod prefixes.
    pub pods: PodCidrs,
}

/// Who belongs to the segment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Membership {
    /// All other nodes.
    pub peers: BTreeMap<NodeNumber, Peer>,
    /// Locators of others that are not taken, by node name, with a sentence that says what to do.
    pub rejected: BTreeMap<String, String>,
    /// Why this node's own claim does not hold, if it does not.
    pub own_rejected: Option<String>,
}

/// Takes the claims one after the other, the earliest first (by creation, then by name): whoever asks for what another has
/// already is turned away. This node without a Locator comes last.
#[must_use]
pub fn membership(claims: &Claims, own: &Own, block: SidBlock, cluster: PodCidrs) -> Membership {
    let others = claims.iter().filter(|(name, _)| **name != own.name);
    let mut order: Vec<(i64, &str, Option<&Claim>)> =
        others.map(|(name, claim)| (claim.created, name.as_str(), Some(claim))).collect();
    order.push((own.created.unwrap_or(i64::MAX), &own.name, None));
    order.sort_unstable_by_key(|(created, name, _)| (*created, *name));

    let mut taken = Taken::default();
    let mut members = Membership::default();
    for (_, name, claim) in order {
        let Some(claim) = claim else {
            members.own_rejected = taken.admit(name, own.number, own.pods).err();
            continue;
        };
        let peer = checked(name, claim, block, cluster).and_then(|(number, peer)| {
            if members.peers.len() + 1 >= MAX_NODES as usize {
                return Err(format!("{MAX_NODES} nodes are the limit of a segment: remove nodes"));
            }
            taken.admit(name, number, peer.pods).map(|()| (number, peer))
        });
        match peer {
            Ok((number, peer)) => drop(members.peers.insert(number, peer)),
            Err(reason) => drop(members.rejected.insert(name.to_owned(), reason)),
        }
    }
    members
}

/// What earlier claims have taken.
#[derive(Default)]
struct Taken<'a> {
    numbers: BTreeMap<NodeNumber, &'a str>,
    /// By first address. They are disjoint.
    prefixes: BTreeMap<IpAddr, (IpNet, &'a str)>,
}

impl<'a> Taken<'a> {
    fn admit(&mut self, name: &'a str, number: NodeNumber, pods: PodCidrs) -> Result<(), String> {
        for prefix in pods.prefixes() {
            if let Some((other, holder)) = self.overlapping(prefix) {
                return Err(format!(
                    "its {prefix} overlaps {other}, which Node {holder} has had for longer: give Node {name} podCIDRs of its own"
                ));
            }
        }
        match self.numbers.entry(number) {
            Entry::Occupied(holder) => {
                let holder = holder.get();
                return Err(format!(
                    "node number {number} is Node {holder}'s, which has had it for longer: kubectl annotate node {name} \
                     {NUMBER_ANNOTATION}=<a free one>, then kubectl delete locator {name} --ignore-not-found"
                ));
            }
            Entry::Vacant(free) => drop(free.insert(name)),
        }
        self.prefixes.extend(pods.prefixes().map(|prefix| (prefix.network(), (prefix, name))));
        Ok(())
    }

    /// Prefixes are nested or disjoint: one that shares an address with `prefix` begins before it, being the last that does, or
    /// within.
    fn overlapping(&self, prefix: IpNet) -> Option<(IpNet, &'a str)> {
        let before = self.prefixes.range(..=prefix.network()).next_back();
        let within = self.prefixes.range(prefix.network()..=prefix.broadcast()).next();
        let shares = |(other, _): &(IpNet, &str)| other.contains(&prefix) || prefix.contains(other);
        before.into_iter().chain(within).map(|(_, held)| *held).find(shares)
    }
}

/// A claim that is right by itself.
fn checked(
    name: &str,
    claim: &Claim,
    block: SidBlock,
    cluster: PodCidrs,
) -> Result<(NodeNumber, Peer), String> {
    let number = NodeNumber::new(claim.number).map_err(|error| error.to_string())?;
    let locator = block.locator(number).to_string();
    if claim.locator != locator {
        return Err(format!(
            "its locator is {}, number {number} in the SID block {} makes it {locator}: have the same sidBlock on all nodes",
            claim.locator,
            block.prefix()
        ));
    }
    let prefixes: Result<Vec<IpNet>, String> = claim
        .pod_cidrs
        .iter()
        .map(|text| text.parse().map_err(|_| format!("{text:?} is not a prefix")))
        .collect();
    let pods = PodCidrs::of_node(&prefixes?).map_err(|error| error.to_string())?;
    pods.within(cluster).map_err(|problems| problems.join(", "))?;
    let addresses: Result<Vec<Ipv6Addr>, String> =
        claim.addresses.iter().map(|text| address(text, block)).collect();
    if !(IPV6_MIN_MTU..=65535).contains(&claim.mtu) {
        return Err(format!("its mtu is {}: {IPV6_MIN_MTU} to 65535 bytes are right", claim.mtu));
    }
    Ok((number, Peer { name: name.to_owned(), pods, addresses: addresses?, mtu: Some(claim.mtu) }))
}

fn address(text: &str, block: SidBlock) -> Result<Ipv6Addr, String> {
    let address: Ipv6Addr = text.parse().map_err(|_| format!("{text:?} is not an IPv6 address"))?;
    if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
        return Err(format!("{address} is no node's address"));
    }
    if block.prefix().contains(&address) {
        return Err(format!(
            "{address} lies in the SID block {}: underlay addresses lie elsewhere",
            block.prefix()
        ));
    }
    Ok(address)
}
