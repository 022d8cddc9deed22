//! Attachments: what pods, and the node itself, have of the segment.

use agent_api::{HeadroomOutcome, MacAddress};
use bpf_common::maps;

use super::{GATEWAY_PEER, SEGMENTER_PEER, flood_targets, foreign, inner_mtu, ip4, ip6, mac, uplinks};
use crate::{
    config::Flooding,
    dataplane::{Attached, Dataplane, PodLink, Program},
    ipam::GATEWAY,
    lease::{Lease, State},
    world::World,
};

/// The part of [`super::desired`] that changes when pods come and go: [`crate::dataplane::plan_attachments`] is about
/// these tables. Takes as long as there are pods, however many peers there are.
#[must_use]
pub fn attachments(world: &World) -> Dataplane {
    let mut plane = Dataplane::default();
    if !world.takes_part() {
        return plane;
    }
    if inner_mtu(world).is_some() {
        node(world, &mut plane);
        pods(world, &mut plane);
    }
    network(world, &mut plane);
    plane
}

/// The programs on the node's own links, and the gateway as an endpoint.
fn node(world: &World, plane: &mut Dataplane) {
    for (_, link) in uplinks(world) {
        plane.attachments.insert((Program::Uplink, link.ifindex), Attached::Current);
    }
    if let Some(far) = world.facts.links.get(SEGMENTER_PEER) {
        plane.attachments.insert((Program::Segment, far.ifindex), Attached::Current);
    }
    if let Some(port) = world.facts.links.get(GATEWAY_PEER) {
        let node = &world.config.node;
        let mac = node.pods.mac(node.number, GATEWAY);
        connect(plane, port.ifindex, 0, endpoint(world, mac, GATEWAY, maps::ENDPOINT_GATEWAY), 0);
    }
}

/// Pods: the links of active leases become endpoints; links of reservations are left to their plugin. Links of pods whose
/// addresses are this node's no more stay, but lead to no switch.
fn pods(world: &World, plane: &mut Dataplane) {
    for lease in foreign::leases(world) {
        let name = agent_api::names::host_ifname(&lease.key);
        plane.pod_links.extend(pod_link(world, lease, &name).map(|link| (name, link)));
    }
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
