//! Neighbours on uplinks: managed entries of ours, and the MACs of all.

use std::collections::{BTreeMap, BTreeSet};

use agent_api::MacAddress;
use agent_core::dataplane::Hop;
use nix::errno::Errno;
use rtnetlink::{
    packet_core::{NLM_F_CREATE, NLM_F_REPLACE},
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        neighbour::{
            NeighbourAddress, NeighbourAttribute, NeighbourExtFlags, NeighbourFlags, NeighbourMessage,
            NeighbourState,
        },
        route::{RouteProtocol, RouteType},
    },
};

use super::{Doing, StepError, routes::PROTOCOL};
use crate::netlink::{Answer, Route};

/// A neighbour entry as the kernel shows it.
pub(super) struct Seen {
    /// The neighbour.
    pub hop: Hop,
    /// Its MAC, while the kernel holds it for valid.
    pub mac: Option<MacAddress>,
    /// The entry is one of ours.
    pub ours: bool,
}

/// IPv6 neighbours on an interface.
pub(super) fn neighbours(route: &mut Route, ifindex: u32) -> Answer<Vec<Seen>> {
    dump(route, &[NeighbourAttribute::IfIndex(ifindex)])
}

/// Entries of ours on all interfaces.
pub(super) fn all_of_ours(route: &mut Route) -> Answer<Vec<Hop>> {
    Ok(dump(route, &[])?.into_iter().filter(|seen| seen.ours).map(|seen| seen.hop).collect())
}

fn dump(route: &mut Route, filter: &[NeighbourAttribute]) -> Answer<Vec<Seen>> {
    let mut request = NeighbourMessage::default();
    request.header.family = AddressFamily::Inet6;
    request.attributes.extend_from_slice(filter);
    let replies = route.dump(&RouteNetlinkMessage::GetNeighbour(request))?;
    let messages = replies.into_iter().filter_map(|reply| match reply {
        RouteNetlinkMessage::NewNeighbour(message) => Some(message),
        _ => None,
    });
    Ok(messages.filter_map(|message| seen(&message)).collect())
}

fn seen(message: &NeighbourMessage) -> Option<Seen> {
    let (mut gateway, mut mac, mut protocol) = (None, None, None);
    let mut managed = false;
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => gateway = Some(*ip),
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                mac = bytes.as_slice().try_into().ok().map(MacAddress);
            }
            NeighbourAttribute::Protocol(number) => protocol = Some(*number),
            NeighbourAttribute::ExtFlags(flags) => managed = flags.contains(NeighbourExtFlags::Managed),
            _ => {}
        }
    }
    let invalid = [NeighbourState::None, NeighbourState::Incomplete, NeighbourState::Failed];
    Some(Seen {
        hop: Hop { ifindex: message.header.ifindex, gateway: gateway? },
        mac: mac.filter(|_| !invalid.contains(&message.header.state)),
        ours: managed && protocol == Some(RouteProtocol::Other(PROTOCOL)),
    })
}

/// MACs by neighbour. One that is lost keeps its last MAC: the kernel goes on asking for it, and frames on their way
/// to a node that is back already are not lost.
pub(super) fn remember(last: &mut BTreeMap<Hop, MacAddress>, seen: &[Seen]) {
    let ours: BTreeSet<Hop> = seen.iter().filter(|seen| seen.ours).map(|seen| seen.hop).collect();
    last.retain(|hop, _| ours.contains(hop));
    last.extend(seen.iter().filter_map(|seen| Some((seen.hop, seen.mac?))));
}

/// Makes the kernel resolve a neighbour and keep it resolved (`NTF_EXT_MANAGED`), exempt from garbage collection.
pub(super) fn set(route: &mut Route, hop: &Hop) -> Result<(), StepError> {
    let mut message = message(hop);
    message.header.flags = NeighbourFlags::ExtLearned;
    message.attributes.push(NeighbourAttribute::ExtFlags(NeighbourExtFlags::Managed));
    message.attributes.push(NeighbourAttribute::Protocol(RouteProtocol::Other(PROTOCOL)));
    route
        .change(&RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
        .doing(format_args!("managing neighbour {} on interface {}", hop.gateway, hop.ifindex))
}

/// Removes the entry.
pub(super) fn remove(route: &mut Route, hop: &Hop) -> Result<(), StepError> {
    match route.change(&RouteNetlinkMessage::DelNeighbour(message(hop)), 0) {
        Err(error) if [Errno::ENOENT, Errno::ENODEV].contains(&error.errno) => Ok(()),
        result => {
            result.doing(format_args!("removing neighbour {} on interface {}", hop.gateway, hop.ifindex))
        }
    }
}

fn message(hop: &Hop) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Inet6;
    message.header.ifindex = hop.ifindex;
    message.header.state = NeighbourState::None;
    message.header.kind = RouteType::Unicast;
    message.attributes.push(NeighbourAttribute::Destination(NeighbourAddress::Inet6(hop.gateway)));
    message
}
