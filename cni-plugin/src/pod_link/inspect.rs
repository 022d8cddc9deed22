//! Looks at a pod's interface.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::Parseable;
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    route::{RouteAddress, RouteAttribute, RouteMessage, RouteType},
};

use super::{LinkError, LinkView, doing, find};
use crate::{netlink::Netlink, netns::Netns};

/// A pod's interface as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodInterface {
    /// The link.
    pub link: LinkView,
    /// Its addresses, link-local ones left out.
    pub addresses: Vec<IpNet>,
    /// The pod's unicast routes, in all tables and by all interfaces: (destination, next hop).
    pub routes: Vec<(IpNet, Option<IpAddr>)>,
}

/// The interface of that name in the pod; nothing if there is none.
///
/// # Errors
/// [`LinkError::Netns`], [`LinkError::Kernel`].
pub fn inspect(netns: &Netns, ifname: &str) -> Result<Option<PodInterface>, LinkError> {
    netns.run(|| {
        let mut pod = Netlink::open().map_err(doing("opening a netlink socket in the pod"))?;
        let Some(link) = find(&mut pod, ifname)? else { return Ok(None) };
        let addresses = pod.dump(&RouteNetlinkMessage::GetAddress(AddressMessage::default()));
        let addresses = addresses.map_err(doing("listing the pod's addresses"))?;
        let addresses = addresses.iter().filter_map(|payload| address(payload, link.index)).collect();
        let routes = pod.dump(&RouteNetlinkMessage::GetRoute(RouteMessage::default()));
        let routes = routes.map_err(doing("listing the pod's routes"))?;
        let routes = routes.iter().filter_map(|payload| route(payload)).collect();
        Ok(Some(PodInterface { link, addresses, routes }))
    })?
}

/// An address on the interface with that index. `IFA_LOCAL` is the address itself where there is a peer; IPv6 has
/// only `IFA_ADDRESS`.
fn address(payload: &[u8], index: u32) -> Option<IpNet> {
    let message = AddressMessage::parse(payload).ok().filter(|message| message.header.index == index)?;
    let mut found = None;
    for attribute in message.attributes {
        match attribute {
            AddressAttribute::Local(address) => found = Some(address),
            AddressAttribute::Address(address) => found = found.or(Some(address)),
            _ => {}
        }
    }
    let link_local = |address: &IpAddr| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let address = found.filter(|address| !link_local(address))?;
    IpNet::new(address, message.header.prefix_len).ok()
}

/// A unicast route. A default route has no `RTA_DST`.
fn route(payload: &[u8]) -> Option<(IpNet, Option<IpAddr>)> {
    let message =
        RouteMessage::parse(payload).ok().filter(|message| message.header.kind == RouteType::Unicast)?;
    let unspecified: IpAddr = match message.header.address_family {
        AddressFamily::Inet => std::net::Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let ip = |address| match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(v6)),
        _ => None,
    };
    let (mut destination, mut gateway) = (unspecified, None);
    for attribute in message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => destination = ip(address)?,
            RouteAttribute::Gateway(address) => gateway = ip(address),
            _ => {}
        }
    }
    Some((IpNet::new(destination, message.header.destination_prefix_length).ok()?, gateway))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = address(&bytes, 1);
            let _ = route(&bytes);
        }
    }
}
