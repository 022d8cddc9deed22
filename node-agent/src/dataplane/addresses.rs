//! Addresses: all of the node's are seen, those of our links are set.

use std::net::IpAddr;

use agent_core::dataplane::LinkAddress;
use ipnet::IpNet;
use nix::errno::Errno;
use rtnetlink::{
    packet_core::{NLM_F_CREATE, NLM_F_REPLACE},
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope, CacheInfo},
    },
};

use crate::netlink::{Answer, Route};

/// `INFINITY_LIFE_TIME` (include/net/addrconf.h).
const FOR_EVER: u32 = u32::MAX;

/// An address as the kernel shows it.
pub(super) struct Seen {
    /// Interface index.
    pub ifindex: u32,
    /// With its prefix length.
    pub address: IpNet,
    /// The other end of a link with one neighbour.
    pub other_end: Option<IpAddr>,
    /// The kernel made it by itself.
    pub link_local: bool,
}

/// All addresses of the namespace.
pub(super) fn addresses(route: &mut Route) -> Answer<Vec<Seen>> {
    let replies = route.dump(&RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
    let messages = replies.into_iter().filter_map(|reply| match reply {
        RouteNetlinkMessage::NewAddress(message) => Some(message),
        _ => None,
    });
    Ok(messages.filter_map(|message| seen(&message)).collect())
}

fn seen(message: &AddressMessage) -> Option<Seen> {
    let (mut local, mut far) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            // The address itself; IFA_ADDRESS is the other end's on links with one neighbour.
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => far = Some(*ip),
            _ => {}
        }
    }
    let found = local.or(far)?;
    Some(Seen {
        other_end: far.filter(|far| *far != found),
        ifindex: message.header.index,
        address: IpNet::new(found, message.header.prefix_len).ok()?,
        link_local: message.header.scope == AddressScope::Link,
    })
}

/// Puts an address on a link.
pub(super) fn set(route: &mut Route, ifindex: u32, wanted: &LinkAddress) -> Answer<()> {
    let (address, mut message) = (wanted.address, message(ifindex, wanted));
    message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    if is_infrastructure(address) && wanted.other_end.is_none() {
        // Local, but never picked as a source of other traffic.
        let mut lifetimes = CacheInfo::default();
        lifetimes.ifa_preferred = 0;
        lifetimes.ifa_valid = FOR_EVER;
        message.attributes.push(AddressAttribute::CacheInfo(lifetimes));
    }
    route.change(&RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)
}

/// Takes an address off a link.
pub(super) fn remove(route: &mut Route, ifindex: u32, address: &LinkAddress) -> Answer<()> {
    match route.change(&RouteNetlinkMessage::DelAddress(message(ifindex, address)), 0) {
        Err(error) if [Errno::EADDRNOTAVAIL, Errno::ENODEV].contains(&error.errno) => Ok(()),
        result => result,
    }
}

/// Key of an address in the table, for one of ours.
pub(super) fn key(link: &str, seen: &Seen) -> Option<LinkAddress> {
    (!seen.link_local).then(|| LinkAddress {
        link: link.to_owned(),
        address: seen.address,
        other_end: seen.other_end,
    })
}

/// `<locator>::1` is the one address of ours that brings no on-link prefix.
fn is_infrastructure(address: IpNet) -> bool {
    matches!(address, IpNet::V6(net) if net.prefix_len() == 128)
}

fn message(ifindex: u32, wanted: &LinkAddress) -> AddressMessage {
    let (address, ip) = (wanted.address, wanted.address.addr());
    let mut message = AddressMessage::default();
    message.header.family = if ip.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.header.prefix_len = address.prefix_len();
    message.header.index = ifindex;
    message.attributes =
        vec![AddressAttribute::Local(ip), AddressAttribute::Address(wanted.other_end.unwrap_or(ip))];
    if let (IpNet::V4(net), None) = (address, wanted.other_end) {
        message.attributes.push(AddressAttribute::Broadcast(net.broadcast()));
    }
    message
}
