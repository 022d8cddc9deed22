//! Routes: ours are set, ways to other addresses are looked up.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
};

use agent_core::{
    dataplane::{Hop, RouteKey, RouteTarget},
    routing::NextHop,
};
use ipnet::Ipv6Net;
use nix::errno::Errno;
use rtnetlink::{
    RouteMessageBuilder, RouteNextHopBuilder,
    packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE},
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        route::{
            RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteNextHop,
            RouteNextHopFlags, RouteProtocol, RouteScope, RouteType,
        },
    },
};

use super::{Doing, StepError};
use crate::netlink::{Answer, NetlinkError, Route};

/// Marks routes and neighbour entries as ours (`rtm_protocol`). Free in iproute2's rt_protos.
pub const PROTOCOL: u8 = 118;

/// All IPv6 routes in the main table.
pub(super) fn main_table(route: &mut Route) -> Answer<Vec<RouteMessage>> {
    let mut request = RouteMessage::default();
    request.header.address_family = AddressFamily::Inet6;
    request.header.table = RouteHeader::RT_TABLE_MAIN;
    let replies = route.dump(&RouteNetlinkMessage::GetRoute(request))?;
    let messages = replies.into_iter().filter_map(|reply| match reply {
        RouteNetlinkMessage::NewRoute(message) => Some(message),
        _ => None,
    });
    // The kernel's filter is a favour, which an old one does not do.
    let in_table = |message: &RouteMessage| {
        message.header.table == RouteHeader::RT_TABLE_MAIN
            && !message.header.flags.contains(RouteFlags::Cloned)
    };
    Ok(messages.filter(in_table).collect())
}

/// Those of a table that are ours.
pub(super) fn ours(table: &[RouteMessage]) -> BTreeMap<RouteKey, RouteTarget> {
    let ours = table.iter().filter(|message| message.header.protocol == RouteProtocol::Other(PROTOCOL));
    ours.filter_map(|message| Some((key(message)?, target(message)))).collect()
}

/// Destination and metric.
pub(super) fn key(message: &RouteMessage) -> Option<RouteKey> {
    let (mut destination, mut metric) = (Ipv6Addr::UNSPECIFIED, 0);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet6(ip)) => destination = *ip,
            RouteAttribute::Priority(value) => metric = *value,
            _ => {}
        }
    }
    let destination = Ipv6Net::new(destination, message.header.destination_prefix_length).ok()?;
    Some(RouteKey { destination, metric })
}

fn target(message: &RouteMessage) -> RouteTarget {
    match message.header.kind {
        RouteType::Unreachable => RouteTarget::Unreachable,
        // A route without gateway is none of ours any more; no next hop is like no other value.
        _ => RouteTarget::Via(hops(message, None)),
    }
}

/// Next hops of a route that can be used; of one without gateway, `on_link` itself is the neighbour.
fn hops(message: &RouteMessage, on_link: Option<Ipv6Addr>) -> Vec<Hop> {
    let hop = |hop: NextHop| Some(Hop { ifindex: hop.ifindex, gateway: hop.gateway.or(on_link)? });
    next_hops(message).into_iter().filter_map(hop).collect()
}

/// Next hops of a route that can be used.
pub(super) fn next_hops(message: &RouteMessage) -> Vec<NextHop> {
    let single = next_hop_of(&message.attributes, None);
    let several = message.attributes.iter().filter_map(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops),
        _ => None,
    });
    let usable =
        |hop: &&RouteNextHop| !hop.flags.intersects(RouteNextHopFlags::Dead | RouteNextHopFlags::Linkdown);
    let several = several
        .flatten()
        .filter(usable)
        .filter_map(|part| next_hop_of(&part.attributes, Some(part.interface_index)));
    let hops: BTreeSet<NextHop> = single.into_iter().chain(several).collect();
    hops.into_iter().collect()
}

fn next_hop_of(attributes: &[RouteAttribute], interface: Option<u32>) -> Option<NextHop> {
    let (mut ifindex, mut gateway) = (interface, None);
    for attribute in attributes {
        match attribute {
            RouteAttribute::Oif(index) => ifindex = Some(*index),
            RouteAttribute::Gateway(RouteAddress::Inet6(ip)) => gateway = Some(*ip),
            _ => {}
        }
    }
    Some(NextHop { ifindex: ifindex?, gateway })
}

/// Next hops of the kernel's route to an address, all of them where there are several; none if it has no route.
///
/// # Errors
/// What the kernel says beside "no route".
pub(super) fn way(route: &mut Route, to: Ipv6Addr) -> Answer<Option<Vec<Hop>>> {
    let mut request = RouteMessage::default();
    request.header.address_family = AddressFamily::Inet6;
    request.header.destination_prefix_length = 128;
    request.header.flags = RouteFlags::FibMatch;
    request.attributes.push(RouteAttribute::Destination(RouteAddress::Inet6(to)));
    let found = match route.get(&RouteNetlinkMessage::GetRoute(request)) {
        Ok(RouteNetlinkMessage::NewRoute(message)) => message,
        Ok(_) => return Ok(None),
        Err(error) if no_route(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let hops = hops(&found, Some(to));
    Ok((found.header.kind == RouteType::Unicast && !hops.is_empty()).then_some(hops))
}

/// Errors by which routes of the types unreachable, prohibit and blackhole, and none at all, answer a look-up.
fn no_route(error: &NetlinkError) -> bool {
    [Errno::ENETUNREACH, Errno::EHOSTUNREACH, Errno::EACCES, Errno::EINVAL].contains(&error.errno)
}

/// Sets a route; `ours`: there is one of ours to replace. One of somebody else with the same destination and metric is left
/// alone.
pub(super) fn set(
    route: &mut Route,
    key: &RouteKey,
    target: &RouteTarget,
    ours: bool,
) -> Result<(), StepError> {
    let flags = if ours { NLM_F_CREATE | NLM_F_REPLACE } else { NLM_F_CREATE | NLM_F_EXCL };
    let doing = format_args!("setting route {} metric {}", key.destination, key.metric);
    match route.change(&RouteNetlinkMessage::NewRoute(message(key, target)), flags) {
        Err(error) if error.errno == Errno::EEXIST => Err("there is one of somebody else").doing(doing),
        result => result.doing(doing),
    }
}

/// Removes a route.
pub(super) fn remove(route: &mut Route, key: &RouteKey) -> Result<(), StepError> {
    let mut message = RouteMessageBuilder::<Ipv6Addr>::new()
        .destination_prefix(key.destination.addr(), key.destination.prefix_len())
        .priority(key.metric)
        .protocol(RouteProtocol::Other(PROTOCOL))
        .build();
    // Of whatever type.
    message.header.kind = RouteType::Unspec;
    message.header.scope = RouteScope::NoWhere;
    match route.change(&RouteNetlinkMessage::DelRoute(message), 0) {
        Err(error) if [Errno::ESRCH, Errno::ENOENT].contains(&error.errno) => Ok(()),
        result => result.doing(format_args!("removing route {}", key.destination)),
    }
}

fn message(key: &RouteKey, target: &RouteTarget) -> RouteMessage {
    let builder = RouteMessageBuilder::<Ipv6Addr>::new()
        .destination_prefix(key.destination.addr(), key.destination.prefix_len())
        .priority(key.metric)
        .protocol(RouteProtocol::Other(PROTOCOL));
    match target {
        RouteTarget::Unreachable => builder.kind(RouteType::Unreachable).build(),
        RouteTarget::Via(hops) => match hops.as_slice() {
            [hop] => builder.output_interface(hop.ifindex).gateway(hop.gateway).build(),
            hops => builder.multipath(hops.iter().map(next_hop).collect()).build(),
        },
    }
}

fn next_hop(hop: &Hop) -> RouteNextHop {
    let mut next_hop = RouteNextHopBuilder::new_ipv6().interface(hop.ifindex).build();
    next_hop.attributes.push(RouteAttribute::Gateway(RouteAddress::Inet6(hop.gateway)));
    next_hop
}
