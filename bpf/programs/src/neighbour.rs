//! Who has an address: derived from the address itself, and the prefix tables.

use bpf_common::{
    counters::DropReason,
    mac,
    maps::{Ip6, Mac, Settings},
};

use crate::maps;

/// Whose address it is.
#[derive(Clone, Copy)]
pub struct Neighbour {
    /// Its MAC.
    pub mac: Mac,
    /// Its node's number; 0 if the MAC is not a derived one.
    pub node: u32,
}

/// The derived endpoint that has `ip`.
#[inline(always)]
pub fn by_ip4(network: u32, ip: u32) -> Option<Neighbour> {
    let node = maps::prefix4(network, ip);
    if node == 0 { None } else { Some(Neighbour { mac: mac::from_ip4(ip), node }) }
}

/// The endpoint that has `ip`, global or link-local.
#[inline(always)]
pub fn by_ip6(network: u32, ip: &Ip6) -> Option<Neighbour> {
    if let Some(mac) = mac::of_link_local(ip) {
        return Some(Neighbour { mac, node: node_by_mac(network, &mac) });
    }
    let prefix = maps::prefix6(network, ip)?;
    let host = u32::from_be(ip[3]) & 0xffff;
    if prefix.base4 == 0 {
        return Some(Neighbour { mac: mac::from_node(prefix.node, host as u16), node: prefix.node });
    }
    let ip4 = u32::from_be(prefix.base4).wrapping_add(host).to_be();
    // A host number beyond the node's IPv4 prefix would lead to another node.
    by_ip4(network, ip4).filter(|neighbour| neighbour.node == prefix.node)
}

/// The number of a derived MAC's node; 0 for other MACs.
#[inline(always)]
pub fn node_by_mac(network: u32, mac: &Mac) -> u32 {
    match mac::ip4_of(mac) {
        Some(ip) => maps::prefix4(network, ip),
        None => mac::node_of(mac).unwrap_or(0),
    }
}

/// Whether the switch answers in the neighbour's place.
///
/// For endpoints of this node only if they exist, since a question about them must never leave it. Probes for
/// duplicates (RFC 5227, RFC 4862 section 5.4) about others are the others' to answer.
#[inline(always)]
pub fn answered_for(
    neighbour: &Neighbour,
    network: u32,
    probe: bool,
    settings: &Settings,
) -> Result<bool, DropReason> {
    if maps::local(network, neighbour.mac).is_some() {
        return Ok(true);
    }
    if probe || neighbour.node == 0 {
        return Ok(false);
    }
    if neighbour.node == settings.node { Err(DropReason::NoSuchEndpoint) } else { Ok(true) }
}
