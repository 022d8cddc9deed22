//! Pods whose addresses are this node's no more: their node has come back as another one, with them still on it.
//!
//! Their addresses may be another node's pods' by now, so they are taken off the segment. What remains is a link between the pod
//! and its node, with the former gateway's address at the node's end: the node's own probes and the pod's end work as before.

use std::net::IpAddr;

use agent_api::names;
use ipnet::IpNet;

use crate::{
    dataplane::{Dataplane, LinkAddress},
    ipam::GATEWAY,
    lease::{Lease, State},
    world::World,
};

/// Leases of such pods, in this boot.
pub(super) fn leases(world: &World) -> impl Iterator<Item = &Lease> {
    world.leases.foreign().filter(|lease| lease.boot == world.boot)
}

/// Names of their links, as far as they are there.
pub(crate) fn links(world: &World) -> impl Iterator<Item = (String, &Lease)> {
    let active = leases(world).filter(|lease| matches!(lease.state, State::Active { .. }));
    let named = active.map(|lease| (names::host_ifname(&lease.key), lease));
    named.filter(|(name, _)| world.facts.links.contains_key(name))
}

/// The node's ends of their links: the former gateway, and the pod as its only neighbour.
pub(super) fn contact(world: &World, plane: &mut Dataplane) {
    for (link, lease) in links(world) {
        let pods = world.origin(lease).pods;
        for (gateway, pod) in pods.addresses(GATEWAY).zip(pods.addresses(lease.host)) {
            let address = IpNet::new_assert(gateway, if gateway.is_ipv6() { 128 } else { 32 });
            if gateway.is_ipv6() {
                plane.sysctls.insert(format!("net/ipv6/conf/{link}/disable_ipv6"), "0".into());
            }
            plane.addresses.insert(LinkAddress { link: link.clone(), address, other_end: Some(pod) }, ());
        }
    }
}

/// The pods, for messages.
pub(crate) fn named(world: &World) -> Vec<String> {
    let name = |lease: &Lease| {
        let addresses: Vec<String> = world
            .origin(lease)
            .pods
            .addresses(lease.host)
            .map(|address: IpAddr| address.to_string())
            .collect();
        format!("{}/{} ({})", lease.pod.namespace, lease.pod.name, addresses.join(", "))
    };
    leases(world).map(name).collect()
}
