//! Sets up the pod's end of its link.

use std::{
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

use agent_api::Assignment;
use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope},
    link::LinkFlags,
    route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType},
};
use nix::errno::Errno;

use super::{LinkError, LinkView, by_index, create::sysctl, doing, find};
use crate::netlink::Netlink;

/// How long the kernel may take to make an address local, and how often it is asked.
const LOCAL_WITHIN: Duration = Duration::from_secs(1);
const LOCAL_POLL: Duration = Duration::from_micros(200);

/// Raises the pod's end and gives it what the assignment says. Runs inside the pod's namespace.
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn configure(ifname: &str, assignment: &Assignment) -> Result<LinkView, LinkError> {
    let mut pod = Netlink::open().map_err(doing("opening a netlink socket in the pod"))?;
    let found = find(&mut pod, ifname)?;
    let view = found.ok_or_else(|| doing(format!("looking at {ifname} in the pod"))(Errno::ENODEV))?;
    if assignment.addresses.iter().any(|address| address.addr().is_ipv6()) {
        sysctl("ipv6", ifname, "disable_ipv6", "0")?;
    }
    // The segment has no routers but the node; link-local addresses are derivable from the MAC (EUI-64).
    sysctl("ipv6", ifname, "accept_ra", "0")?;
    sysctl("ipv6", ifname, "addr_gen_mode", "0")?;

    // The link-local address comes before the link is up, or the kernel makes it, and waits for duplicate detection.
    let addresses = addresses(assignment);
    let (mut requests, mut what) = (Vec::new(), Vec::new());
    for address in &addresses {
        let message = RouteNetlinkMessage::NewAddress(address_message(view.index, address));
        requests.push((message, NLM_F_CREATE | NLM_F_EXCL));
        what.push(format!("adding the address {address} to {ifname} in the pod"));
    }
    let mut up = by_index(view.index);
    (up.header.flags, up.header.change_mask) = (LinkFlags::Up, LinkFlags::Up);
    requests.push((RouteNetlinkMessage::SetLink(up), 0));
    what.push(format!("raising {ifname} in the pod"));
    for route in &assignment.routes {
        let message =
            RouteNetlinkMessage::NewRoute(route_message(view.index, &route.destination, route.gateway));
        requests.push((message, NLM_F_CREATE | NLM_F_EXCL));
        what.push(format!("adding the route {} via {} in the pod", route.destination, route.gateway));
    }
    let answers = pod.exchange(requests).map_err(doing("setting up the pod's interface"))?;
    for (answer, what) in answers.into_iter().zip(what) {
        answer.map_err(doing(what))?;
    }
    for address in addresses.iter().filter(|address| address.addr().is_ipv6()) {
        wait_until_local(&mut pod, view.index, address.addr())?;
    }
    Ok(view)
}

/// The addresses of the assignment, and the link-local one if any is IPv6.
fn addresses(assignment: &Assignment) -> Vec<IpNet> {
    let mut addresses = assignment.addresses.clone();
    if addresses.iter().any(|address| address.addr().is_ipv6()) {
        addresses.push(IpNet::new_assert(assignment.mac.link_local().into(), 64));
    }
    addresses
}

/// The kernel's work queue puts the local route of an IPv6 address in, also without duplicate detection
/// (net/ipv6/addrconf.c, `addrconf_dad_work`). Until then the pod would drop the answers to its first packets.
fn wait_until_local(pod: &mut Netlink, index: u32, address: IpAddr) -> Result<(), LinkError> {
    let what = || format!("waiting for the address {address} in the pod");
    let deadline = Instant::now() + LOCAL_WITHIN;
    loop {
        let mut lookup = RouteMessage::default();
        lookup.header.address_family = family(address);
        lookup.header.destination_prefix_length = 128;
        lookup.attributes = vec![RouteAttribute::Destination(address.into()), RouteAttribute::Oif(index)];
        let found = pod.exchange(vec![(RouteNetlinkMessage::GetRoute(lookup), 0)]).map_err(doing(what()))?;
        if found.iter().flatten().flatten().any(|route| is_local(route)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(doing(what())(Errno::ETIMEDOUT));
        }
        thread::sleep(LOCAL_POLL);
    }
}

/// Reads `rtm_type`, byte 7 of `struct rtmsg` (include/uapi/linux/rtnetlink.h).
fn is_local(route: &[u8]) -> bool {
    route.get(7) == Some(&u8::from(RouteType::Local))
}

fn address_message(index: u32, address: &IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address.addr());
    message.header.prefix_len = address.prefix_len();
    message.header.index = index;
    message.header.flags = AddressHeaderFlags::Nodad; // the agent gives each address out once
    if is_link_local(address.addr()) {
        message.header.scope = AddressScope::Link;
    }
    message.attributes = vec![
        AddressAttribute::Local(address.addr()),
        AddressAttribute::Address(address.addr()),
        AddressAttribute::Flags(AddressFlags::Nodad),
    ];
    if let IpNet::V4(v4) = address {
        message.attributes.push(AddressAttribute::Broadcast(v4.broadcast()));
    }
    message
}

fn route_message(index: u32, destination: &IpNet, gateway: IpAddr) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(gateway);
    message.header.destination_prefix_length = destination.prefix_len();
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Boot;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![
        RouteAttribute::Destination(RouteAddress::from(destination.network())),
        RouteAttribute::Gateway(RouteAddress::from(gateway)),
        RouteAttribute::Oif(index),
    ];
    message
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
