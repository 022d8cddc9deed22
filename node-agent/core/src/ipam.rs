//! Which host number, slot and assignment an attachment gets: a function of the world.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use agent_api::{Assignment, ErrorKind, MacAddress, Refusal, Reserve, Route, names};
use bpf_common::names::MAX_ENDPOINTS;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::{
    desired,
    lease::{Lease, Origin, State, Timestamp},
    world::World,
};

/// Host number of the gateway.
pub const GATEWAY: u16 = 1;
const DEFAULT4: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0));
const DEFAULT6: IpNet = IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0));

/// The lease that an ADD gets. `nonce` must be new.
///
/// # Errors
/// [`ErrorKind::Exists`] for an attachment that has a lease, [`ErrorKind::NotFound`] for another network's,
/// [`ErrorKind::Exhausted`] if the pool or the limit on endpoints is used up.
pub fn reserve(world: &World, request: &Reserve, nonce: String, now: Timestamp) -> Result<Lease, Refusal> {
    let wanted = &request.key.network;
    let ours = &world.config.network.name;
    if wanted != ours {
        return Err(refuse(
            ErrorKind::NotFound,
            format!("network {wanted:?} is not served here; {ours:?} is"),
        ));
    }
    if let Some(reason) = world.own_rejected() {
        return Err(refuse(ErrorKind::TryAgain, reason.to_owned()));
    }
    // A reservation without activation is of an ADD that died, or of this one, whose answer an agent that died took
    // with it: the new one takes its place.
    let earlier = world.leases.get(&request.key);
    if earlier.is_some_and(|lease| matches!(lease.state, State::Active { .. })) {
        return Err(refuse(ErrorKind::Exists, format!("{} is attached already", request.key)));
    }
    let earlier = earlier.filter(|lease| !lease.is_foreign(Origin::from(&world.config.node)));
    Ok(Lease {
        key: request.key.clone(),
        host: earlier.map_or_else(|| free_host(world), |lease| Ok(lease.host))?,
        origin: Some(Origin::from(&world.config.node)),
        slot: earlier.map_or_else(|| free_slot(world), |lease| Ok(lease.slot))?,
        nonce,
        boot: world.boot.clone(),
        netns: request.netns.clone(),
        netns_inode: request.netns_inode,
        pod: request.pod.clone(),
        mtu: desired::inner_mtu(world),
        state: State::Reserved { at: now },
    })
}

/// What the plugin has to build for a lease.
///
/// # Errors
/// [`ErrorKind::TryAgain`] while the uplinks are not there, because the MTU follows from theirs.
pub fn assignment(world: &World, lease: &Lease) -> Result<Assignment, Refusal> {
    let node = &world.config.node;
    let mtu = lease.mtu.or_else(|| desired::inner_mtu(world)).ok_or_else(|| {
        refuse(ErrorKind::TryAgain, format!("none of the uplinks {:?} is there", node.uplinks))
    })?;
    let cluster = world.config.cluster;
    let lengths = [cluster.v4.map(|net| net.prefix_len()), cluster.v6.map(|net| net.prefix_len())];
    let addresses = node.pods.addresses(lease.host).map(|ip| {
        let length = lengths[usize::from(ip.is_ipv6())].unwrap_or(if ip.is_ipv6() { 128 } else { 32 });
        IpNet::new_assert(ip, length)
    });
    let routes = node
        .pods
        .addresses(GATEWAY)
        .map(|gateway| Route { destination: if gateway.is_ipv6() { DEFAULT6 } else { DEFAULT4 }, gateway });
    let mac = node.pods.mac(node.number, lease.host);
    Ok(Assignment {
        nonce: lease.nonce.clone(),
        host_ifname: names::host_ifname(&lease.key),
        host_mac: desired::switch_side_mac(mac),
        mac,
        mtu,
        addresses: addresses.collect(),
        routes: routes.collect(),
        headroom: desired::headroom(world),
        headroom_attribute: world.facts.headroom_attribute,
    })
}

/// A host number never used before, else the one freed longest ago: so that no address comes back while neighbour
/// caches still know its last owner, as long as the pool has any other. One of which nothing is known, but whose link is
/// there, is in use: its lease could not be read. So is one whose address a foreign pod has, of a time when the node had
/// another number or another prefix in the other family.
fn free_host(world: &World) -> Result<u16, Refusal> {
    let node = &world.config.node;
    let pods = node.pods;
    let links = world.facts.links.iter().filter(|(name, _)| names::is_host_ifname(name));
    let linked: BTreeSet<MacAddress> = links.map(|(_, link)| link.mac).collect();
    let foreign = world.leases.foreign().filter_map(|lease| Some((lease.origin?.pods, lease.host)));
    let elsewhere: BTreeSet<IpAddr> = foreign.flat_map(|(pods, host)| pods.addresses(host)).collect();
    let free = |host: u16| !pods.addresses(host).any(|address| elsewhere.contains(&address));
    let fresh = (GATEWAY + 1..=pods.last_host())
        .filter(|&host| world.leases.at(host).is_none() && world.leases.freed_at(host).is_none())
        .filter(|&host| free(host))
        .find(|&host| !linked.contains(&desired::switch_side_mac(pods.mac(node.number, host))));
    let oldest = || {
        world
            .leases
            .freed()
            .filter(|(host, _)| *host <= pods.last_host() && free(*host))
            .min_by_key(|(_, at)| *at)
    };
    fresh.or_else(|| oldest().map(|(host, _)| host)).ok_or_else(|| {
        let pool =
            pods.v4.map(IpNet::V4).or(pods.v6.map(IpNet::V6)).map_or_else(String::new, |net| net.to_string());
        refuse(
            ErrorKind::Exhausted,
            format!("the pool {pool} is exhausted: all {} addresses are in use", world.leases.count()),
        )
    })
}

/// The lowest free place in the flooding list; place 0 is the gateway's.
fn free_slot(world: &World) -> Result<u32, Refusal> {
    let limit = world.config.limits.endpoints;
    let used: BTreeSet<u32> = world.leases.iter().map(|lease| lease.slot).collect();
    (1..MAX_ENDPOINTS).take(limit as usize).find(|slot| !used.contains(slot)).ok_or_else(|| {
        refuse(ErrorKind::Exhausted, format!("limits.endpoints: this node has {limit} pods, its limit"))
    })
}

fn refuse(kind: ErrorKind, message: String) -> Refusal {
    Refusal { kind, message }
}
