//! What this node's kernel should hold, as a function of the world.
//!
//! Facts that are still missing (a link without index, a peer without route) leave out what depends on them: the
//! pass after the next observation adds it.

mod attachments;
pub(crate) mod foreign;
mod peers;

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr},
};

use agent_api::MacAddress;
use bpf_common::{maps, names::MAX_FLOOD_NODES};
use ipnet::IpNet;

pub use attachments::{attachments, pod_link};
pub use peers::ways;

use crate::{
    addr::{NodeNumber, PodCidrs},
    config::{Flooding, Headroom},
    dataplane::{Dataplane, Link, LinkAddress, Pair},
    firewall,
    ipam::GATEWAY,
    sysctls,
    world::World,
};

/// The gateway link, on the node's side.
pub const GATEWAY_LINK: &str = "hw0";
/// The gateway link, on the switch's side.
pub const GATEWAY_PEER: &str = "hw0p";
/// The segmenter's sending end.
pub const SEGMENTER_LINK: &str = "hws0";
/// The segmenter's far end.
pub const SEGMENTER_PEER: &str = "hws1";

/// Bytes in front of a pod's IP packet on the underlay: outer IPv6 header and inner Ethernet header (RFC 8986
/// section 5.4, H.Encaps.L2.Red with one SID).
pub const OVERHEAD: u32 = 40 + 14;
/// Smallest MTU of an IPv6 link (RFC 8200 section 5).
pub const IPV6_MIN_MTU: u32 = 1280;
/// Metric that the kernel gives an IPv6 route without one (`IP6_RT_PRIO_USER`, include/uapi/linux/ipv6_route.h).
pub const DEFAULT_METRIC: u32 = 1024;
/// Metric of the routes that catch what no other route takes: the one that Documentation/networking/vrf.rst of the kernel
/// uses for that.
pub const LAST_RESORT: u32 = 4_278_198_272;
/// The kernel lays heads out in steps of this (`HH_DATA_MOD`, include/linux/netdevice.h).
const HEADROOM_STEP: u32 = 16;

/// What this node's kernel should hold.
#[must_use]
pub fn desired(world: &World) -> Dataplane {
    let mut plane = Dataplane {
        sysctls: sysctls::desired(world),
        firewall: firewall::desired(world),
        ..attachments(world)
    };
    if world.takes_part() {
        segment(world, &mut plane);
    }
    if world.announced {
        let (path, content) = &world.config.conflist;
        plane.files.insert(path.clone(), content.clone());
    }
    plane
}

/// This node's part of the segment.
fn segment(world: &World, plane: &mut Dataplane) {
    if let Some(mtu) = inner_mtu(world) {
        node_links(world, mtu, plane);
    }
    foreign::contact(world, plane);
    peers::underlay_routes(world, plane);
    peers::peers(world, plane);
}

/// Addresses whose route has to be looked up: of peers, for the routes to their locators, and in their locators, for
/// the ways that frames take.
#[must_use]
pub fn lookups(world: &World) -> BTreeSet<Ipv6Addr> {
    let locators = world.peers.keys().map(|&number| world.config.sid_block.locator(number).infrastructure());
    let addresses = world.peers.values().flat_map(|peer| peer.addresses.iter().copied());
    addresses.filter(|address| !address.is_unicast_link_local()).chain(locators).collect()
}

/// MTU of pods: the smallest of the uplinks' less the outer headers, or less if the operator says so. While the uplinks
/// are away it stays what it was, so that pods of this node keep each other. `None` before there ever was an uplink.
#[must_use]
pub fn inner_mtu(world: &World) -> Option<u32> {
    let smallest = uplinks(world).map(|(_, link)| link.mtu).min();
    let before = || world.facts.links.get(GATEWAY_LINK).map(|link| link.mtu);
    let widest = smallest.map(|mtu| mtu.saturating_sub(OVERHEAD)).or_else(before)?;
    Some(world.config.mtu.map_or(widest, |mtu| mtu.min(widest)))
}

/// `tx_extra_headroom` to ask for, bytes. One SID needs [`OVERHEAD`] in front of the pod's Ethernet header.
#[must_use]
pub fn headroom(world: &World) -> u32 {
    match world.config.headroom {
        Headroom::Auto => OVERHEAD.next_multiple_of(HEADROOM_STEP),
        Headroom::Fixed(bytes) => bytes,
        Headroom::Off => 0,
    }
}

/// MAC of the node's end of an endpoint's link: the endpoint's with another first octet, locally administered too, so that
/// no frame for the endpoint is taken for one to the node.
#[must_use]
pub const fn switch_side_mac(endpoint: MacAddress) -> MacAddress {
    let [_, b, c, d, e, f] = endpoint.0;
    MacAddress([0x0e, b, c, d, e, f])
}

/// The configured uplinks that are there and have a MAC.
pub fn uplinks(world: &World) -> impl Iterator<Item = (&String, &Link)> {
    let names = world.config.node.uplinks.iter();
    names
        .filter_map(|name| world.facts.links.get_key_value(name))
        .filter(|(_, link)| link.mac != MacAddress::default())
}

/// The gateway link and the segmenter, and what hangs on them.
fn node_links(world: &World, mtu: u32, plane: &mut Dataplane) {
    let node = &world.config.node;
    let mac = node.pods.mac(node.number, GATEWAY);
    let headroom = if world.facts.headroom_attribute.is_some() { headroom(world) } else { 0 };
    let gateway = Pair { peer: GATEWAY_PEER.into(), mac, mtu, headroom, segments: false };
    let segmenter =
        Pair { peer: SEGMENTER_PEER.into(), mac: switch_side_mac(mac), mtu, headroom: 0, segments: true };
    plane.pairs.insert(GATEWAY_LINK.into(), gateway);
    plane.pairs.insert(SEGMENTER_LINK.into(), segmenter);
    for address in gateway_addresses(world, mtu) {
        plane.addresses.insert(LinkAddress { link: GATEWAY_LINK.into(), address, other_end: None }, ());
    }
    if let Some(near) = world.facts.links.get(SEGMENTER_LINK) {
        plane.settings.insert((), settings(world, mac, near.ifindex));
    }
}

/// `h = 1` with the cluster's prefix length, which puts the cluster on-link, and the infrastructure address.
fn gateway_addresses(world: &World, mtu: u32) -> Vec<IpNet> {
    let (pods, cluster) = (world.config.node.pods, world.config.cluster);
    let v4 = pods
        .ip4(GATEWAY)
        .zip(cluster.v4)
        .map(|(ip, net)| IpNet::new_assert(IpAddr::V4(ip), net.prefix_len()));
    let v6 = pods
        .ip6(GATEWAY)
        .zip(cluster.v6)
        .map(|(ip, net)| IpNet::new_assert(IpAddr::V6(ip), net.prefix_len()));
    let infrastructure = IpNet::new_assert(IpAddr::V6(world.config.locator().infrastructure()), 128);
    // Below the minimum the kernel takes IPv6 away from the link altogether.
    let six = [v6, Some(infrastructure)].into_iter().flatten().filter(|_| mtu >= IPV6_MIN_MTU);
    v4.into_iter().chain(six).collect()
}

fn settings(world: &World, gateway_mac: MacAddress, segmenter: u32) -> maps::Settings {
    let config = &world.config;
    maps::Settings {
        block: config.sid_block.bits().to_be(),
        node: config.node.number.into(),
        segmenter_ifindex: segmenter,
        gateway4: ip4(config.node.pods, GATEWAY),
        dscp: config.dscp.map_or(maps::DSCP_COPY, u32::from),
        gateway6: ip6(config.node.pods, GATEWAY),
        gateway_mac: mac(gateway_mac),
        pad: 0,
    }
}

/// Peers that get flooded frames: all, or none if there are more than the network allows.
#[must_use]
pub fn flood_targets(world: &World) -> Vec<NodeNumber> {
    let limit = match world.config.network.flooding {
        Flooding::Auto => world.config.network.flood_max_peers.min(MAX_FLOOD_NODES),
        Flooding::On => MAX_FLOOD_NODES,
        Flooding::Off => 0,
    };
    let peers = &world.peers;
    if peers.len() > limit as usize { Vec::new() } else { peers.keys().copied().collect() }
}

fn mac(address: MacAddress) -> maps::Mac {
    let [a, b, c, d, e, f] = address.0;
    [u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]), u16::from_ne_bytes([e, f])]
}

fn ip4(pods: PodCidrs, host: u16) -> u32 {
    pods.ip4(host).map_or(0, |ip| u32::from_ne_bytes(ip.octets()))
}

fn ip6(pods: PodCidrs, host: u16) -> maps::Ip6 {
    pods.ip6(host).map_or([0; 4], |ip| pieces(ip.octets()))
}

fn pieces(octets: [u8; 16]) -> maps::Ip6 {
    let piece = |at: usize| u32::from_ne_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]);
    [piece(0), piece(4), piece(8), piece(12)]
}
