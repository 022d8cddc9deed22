//! Peers: the ways to them, and what the switch knows of them.

use std::net::Ipv6Addr;

use bpf_common::{maps, names::MAX_NEXT_HOPS};
use ipnet::Ipv6Net;

use super::{DEFAULT_METRIC, LAST_RESORT, OVERHEAD, flood_targets, ip4, mac, uplinks};
use crate::{
    addr::{NodeNumber, PodCidrs},
    dataplane::{Dataplane, Hop, RouteKey, RouteTarget},
    peer::Peer,
    world::World,
};

/// Ways to the peers' locators, and an end for what is in the block and leads nowhere.
pub(super) fn underlay_routes(world: &World, plane: &mut Dataplane) {
    let config = &world.config;
    for destination in [config.sid_block.prefix(), config.locator().prefix()] {
        plane.routes.insert(RouteKey { destination, metric: LAST_RESORT }, RouteTarget::Unreachable);
    }
    for (number, peer) in world.peers.iter().filter(|_| config.underlay_routes) {
        let Some(hops) = peer.addresses.iter().find_map(|address| towards(world, *address)) else { continue };
        let destination = config.sid_block.locator(*number).prefix();
        plane.routes.insert(RouteKey { destination, metric: DEFAULT_METRIC }, RouteTarget::Via(hops));
    }
}

/// Next hops towards an underlay address, over our uplinks. A link-local address does not say on which link it is: on
/// the one where it has answered, else on the first.
fn towards(world: &World, address: Ipv6Addr) -> Option<Vec<Hop>> {
    if address.is_unicast_link_local() {
        let mut hops = uplinks(world).map(|(_, link)| Hop { ifindex: link.ifindex, gateway: address });
        let first = hops.next()?;
        let answered = |hop: &Hop| world.facts.neighbours.contains_key(hop);
        let hop = if answered(&first) { first } else { hops.find(answered).unwrap_or(first) };
        return Some(vec![hop]);
    }
    world.facts.routes_to.get(&address).filter(|hops| on_uplinks(world, hops)).cloned()
}

/// Peers in the switch: their prefixes, and next hops with what is known of them.
pub(super) fn peers(world: &World, plane: &mut Dataplane) {
    let network = world.network().get();
    let node = &world.config.node;
    prefixes(plane, network, node.number, node.pods);
    for (&number, peer) in &world.peers {
        prefixes(plane, network, number, peer.pods);
        let hops = ways(world, number);
        plane.neighbours.extend(hops.iter().map(|hop| (*hop, ())));
        plane.nodes.insert(number, self::node(world, peer, &hops));
    }
    plane.flood_nodes.extend((0..).zip(flood_targets(world)));
}

fn prefixes(plane: &mut Dataplane, network: u16, number: NodeNumber, pods: PodCidrs) {
    if let Some(net) = pods.v4 {
        plane.prefixes4.insert((network, net), number);
    }
    if let Some(net) = pods.v6 {
        // Derived addresses differ in the host number only: what lies beyond its 16 bits is nobody's.
        let net = Ipv6Net::new_assert(net.network(), 112);
        plane.prefixes6.insert((network, net), maps::Prefix6 { node: number.into(), base4: ip4(pods, 0) });
    }
}

/// Next hops towards a peer's locator, over our uplinks, as the kernel's routes have it.
#[must_use]
pub fn ways(world: &World, peer: NodeNumber) -> Vec<Hop> {
    let target = world.config.sid_block.locator(peer).infrastructure();
    let hops = world.facts.routes_to.get(&target).filter(|hops| on_uplinks(world, hops));
    hops.into_iter().flatten().take(MAX_NEXT_HOPS).copied().collect()
}

fn on_uplinks(world: &World, hops: &[Hop]) -> bool {
    hops.iter().all(|hop| uplinks(world).any(|(_, link)| link.ifindex == hop.ifindex))
}

fn node(world: &World, peer: &Peer, hops: &[Hop]) -> maps::Node {
    let uplink = |hop: &Hop| uplinks(world).map(|(_, link)| link).find(|link| link.ifindex == hop.ifindex);
    let mut next_hops = [maps::NextHop::default(); MAX_NEXT_HOPS];
    let mut mtu = peer.mtu.unwrap_or(u32::MAX);
    for (place, hop) in next_hops.iter_mut().zip(hops) {
        let Some(link) = uplink(hop) else { continue };
        mtu = mtu.min(link.mtu);
        let resolved = world.facts.neighbours.get(hop).copied().unwrap_or_default();
        *place = maps::NextHop { ifindex: hop.ifindex, source: mac(link.mac), destination: mac(resolved) };
    }
    let net = peer.pods.v4;
    maps::Node {
        base4: ip4(peer.pods, 0),
        mask4: net.map_or(0, |net| u32::from_ne_bytes(net.netmask().octets())),
        mtu: mtu.saturating_sub(OVERHEAD),
        next_hop_count: u32::try_from(hops.len()).unwrap_or(0),
        next_hops,
    }
}
