//! Other nodes, as this one has to know them.

use std::{collections::BTreeMap, net::Ipv6Addr};

use crate::{
    addr::{NodeNumber, PodCidrs},
    world::Event,
};

/// Another node.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Its pod prefixes, of the same families as ours.
    pub pods: PodCidrs,
    /// Its addresses on the underlay, the preferred one first. A link-local one is on the link of one of our uplinks.
    pub addresses: Vec<Ipv6Addr>,
    /// MTU of its uplinks in bytes, if it says so.
    pub mtu: Option<u32>,
}

/// The events that lead from one set of peers to another. Those who leave come first: what they had may be another's now.
pub fn changes<'a>(
    before: &'a BTreeMap<NodeNumber, Peer>,
    after: &'a BTreeMap<NodeNumber, Peer>,
) -> impl Iterator<Item = Event> + 'a {
    let left =
        before.keys().filter(|number| !after.contains_key(number)).map(|number| Event::PeerLeft(*number));
    let known = after.iter().filter(|(number, peer)| before.get(number) != Some(peer));
    left.chain(known.map(|(number, peer)| Event::PeerKnown(*number, Box::new(peer.clone()))))
}
