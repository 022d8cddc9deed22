//! What this node's kernel should hold, as a function of the world.
//!
//! Facts that are still missing (a link without index, a peer without route) leave out what depends on them: the
//! pass after the next observation adds it.

mod peers;

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr},
};

use agent_api::{HeadroomOutcome, MacAddress};
use bpf_common::{maps, names::MAX_FLOOD_NODES};
use ipnet::IpNet;

pub use peers::ways;

use crate::{
    addr::{NodeNumber, PodCidrs},
    config::{Flooding, Headroom},
    dataplane::{Attached, Dataplane, Link, LinkAddress, Pair, PodLink, Program},
    firewall,
    ipam::GATEWAY,
    lease::{Lease, State},
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
        ..Dataplane::default()
    };
    if let Some(mtu) = inner_mtu(world) {
        node_links(world, mtu, &mut plane);
        pods(world, &mut plane);
    }
    peers::underlay_routes(world, &mut plane);
    peers::peers(world, &mut plane);
    network(world, &mut plane);
    if world.announced {
        let (path, content) = &world.config.conflist;
        plane.files.insert(path.clone(), content.clone());
    }
    plane
}

/// Addresses whose route has to be looked up: of peers, for the routes to their locators, and in their locators, for
/// the ways that frames take.
#[must_use]
pub fn lookups(world: &World) -> BTreeSet<Ipv6Addr> {
    let locator = |&number: &NodeNumber| world.config.sid_block.locator(number).infrastructure();
    world.config.peers.iter().flat_map(|(number, peer)| [peer.address, locator(number)]).collect()
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
        plane.addresses.insert(LinkAddress { link: GATEWAY_LINK.into(), address }, ());
    }
    for (_, link) in uplinks(world) {
        plane.attachments.insert((Program::Uplink, link.ifindex), Attached::Current);
    }
    if let Some(far) = world.facts.links.get(SEGMENTER_PEER) {
        plane.attachments.insert((Program::Segment, far.ifindex), Attached::Current);
    }
    if let Some(near) = world.facts.links.get(SEGMENTER_LINK) {
        plane.settings.insert((), settings(world, mac, near.ifindex));
    }
    if let Some(port) = world.facts.links.get(GATEWAY_PEER) {
        let endpoint = endpoint(world, mac, GATEWAY, maps::ENDPOINT_GATEWAY);
        connect(plane, port.ifindex, 0, endpoint, 0);
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

/// Pods: the links of active leases become endpoints; links of reservations are left to their plugin.
fn pods(world: &World, plane: &mut Dataplane) {
    let node = &world.config.node;
    for lease in world.leases.iter().filter(|lease| lease.boot == world.boot) {
        let name = agent_api::names::host_ifname(&lease.key);
        if let Some(link) = pod_link(world, lease, &name) {
            plane.pod_links.insert(name, link);
        }
        // An activated pod is switched at once; that its link is there the plugin has just said.
        let State::Active { ifindex, .. } = lease.state else { continue };
        if world.stale_reason(lease, 0).is_some() {
            continue;
        }
        let endpoint = endpoint(world, node.pods.mac(node.number, lease.host), lease.host, 0);
        connect(plane, ifindex, lease.slot, endpoint, maps::FDB_PEER);
    }
}

/// The node's end of a lease's link. While the plugin builds it, it is right as it is.
#[must_use]
pub fn pod_link(world: &World, lease: &Lease, name: &str) -> Option<PodLink> {
    let State::Active { ifindex, at, headroom } = &lease.state else {
        return world.facts.links.get(name).map(PodLink::from);
    };
    let seen = world.pod_link(lease);
    // Since the last observation the plugin has said that it is there.
    let there = seen.is_some() || *at >= world.facts.observed_at;
    there.then(|| PodLink {
        ifindex: *ifindex,
        up: true,
        mtu: lease.mtu.or_else(|| seen.map(|link| link.mtu)).unwrap_or_default(),
        headroom: if let HeadroomOutcome::Applied(bytes) = headroom { *bytes } else { 0 },
    })
}

/// Makes an endpoint part of the segment, on the switch-side link `ifindex`.
fn connect(plane: &mut Dataplane, ifindex: u32, slot: u32, endpoint: maps::Endpoint, fdb_flags: u32) {
    let (network, mac) = (endpoint.network, endpoint.mac);
    plane.endpoints.insert(ifindex, endpoint);
    plane
        .fdb
        .insert(maps::FdbKey { network, mac }, maps::FdbEntry { ifindex, flags: fdb_flags, services: 0 });
    plane.flood_endpoints.insert(slot, maps::FloodEndpoint { ifindex, network: network.into() });
    plane.attachments.insert((Program::Endpoint, ifindex), Attached::Current);
}

fn endpoint(world: &World, address: MacAddress, host: u16, flags: u32) -> maps::Endpoint {
    let pods = world.config.node.pods;
    maps::Endpoint {
        network: world.network().get(),
        mac: mac(address),
        ip4: ip4(pods, host),
        flags,
        ip6: ip6(pods, host),
        services: 0,
    }
}

/// The pod network and where its flooded frames go.
fn network(world: &World, plane: &mut Dataplane) {
    let network = &world.config.network;
    let targets = flood_targets(world);
    for (position, number) in (0_u32..).zip(&targets) {
        plane.flood_nodes.insert(position, *number);
    }
    let flood = if network.flooding == Flooding::Off { 0 } else { maps::NETWORK_FLOOD };
    let unknown = if network.flood_unknown { maps::NETWORK_FLOOD_UNKNOWN } else { 0 };
    let entry = maps::Network {
        flags: maps::NETWORK_EXISTS | flood | unknown,
        flood_endpoints: plane.flood_endpoints.last_key_value().map_or(0, |(slot, _)| slot + 1),
        flood_nodes: u32::try_from(targets.len()).unwrap_or(0),
        storm_rate: network.storm_rate,
    };
    plane.networks.insert(network.number.into(), entry);
}

/// Peers that get flooded frames: all, or none if there are more than the network allows.
#[must_use]
pub fn flood_targets(world: &World) -> Vec<NodeNumber> {
    let limit = match world.config.network.flooding {
        Flooding::Auto => world.config.network.flood_max_peers.min(MAX_FLOOD_NODES),
        Flooding::On => MAX_FLOOD_NODES,
        Flooding::Off => 0,
    };
    let peers = &world.config.peers;
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
