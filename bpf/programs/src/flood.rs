//! Broadcast, unknown unicast and multicast: copies to the network's local endpoints, and one to each peer.

use aya_ebpf::bindings::tcx_action_base::TCX_DROP;
use bpf_common::{
    counters::{DropReason, Event},
    maps::{NETWORK_FLOOD, NETWORK_FLOOD_UNKNOWN, Network},
    names::{MAX_ENDPOINTS, MAX_FLOOD_NODES},
    sid::{Behaviour, Sid},
};

use crate::{
    allowed::{Icmp6, ROUTER_SOLICITATION},
    bucket,
    count::{count, dropped, verdict},
    encap::{is_resolved, leave, make_room, next_hop, write_outer},
    flow,
    frame::{Frame, IP4},
    maps,
    packet::{__sk_buff, Packet, Verdict},
    path_mtu, segment,
};

const IGMP: u8 = 2;
/// Multicast listener queries and reports (RFC 2710, RFC 3810): types 130 to 132, and 143.
const LISTENER_QUERY: u32 = 130;
const LISTENER_DONE: u32 = 132;
const LISTENER_REPORT_2: u32 = 143;

/// Floods a frame of the endpoint on whose link it arrived.
#[inline(never)]
pub fn from_endpoint(packet: Packet, frame: &Frame, message: Icmp6, number: u32) -> i32 {
    verdict(try_from_endpoint(packet, frame, message, number))
}

#[inline(always)]
fn try_from_endpoint(packet: Packet, frame: &Frame, message: Icmp6, number: u32) -> Verdict {
    let network = maps::network(number).ok_or(DropReason::FloodingOff)?;
    permitted(frame, network)?;
    let from = packet.ifindex();
    let bucket = maps::bucket(from).ok_or(DropReason::StormLimit)?;
    if !bucket::take(bucket, network.storm_rate) {
        return Err(DropReason::StormLimit);
    }
    let chatter = packet.forget(u32::from(is_chatter(packet, frame, message))) != 0;
    to_endpoints(packet, number, network.flood_endpoints, from);
    if chatter {
        count(Event::Chatter);
        return Ok(TCX_DROP);
    }
    to_peers(packet, frame, number, network)
}

/// Floods a frame from a peer. It goes to local endpoints only: never from an uplink to an uplink.
#[inline(always)]
pub fn from_peer(packet: Packet, frame: &Frame, number: u32) -> Verdict {
    let network = maps::network(number).ok_or(DropReason::UnknownSid)?;
    permitted(frame, network)?;
    to_endpoints(packet, number, network.flood_endpoints, 0);
    Ok(TCX_DROP)
}

#[inline(always)]
fn permitted(frame: &Frame, network: &Network) -> Result<(), DropReason> {
    if frame.is_to_group() {
        if network.flags & NETWORK_FLOOD == 0 {
            return Err(DropReason::FloodingOff);
        }
    } else if network.flags & NETWORK_FLOOD_UNKNOWN == 0 {
        return Err(DropReason::UnknownUnicast);
    }
    Ok(())
}

/// What nobody on other nodes needs: there is no router to solicit behind a peer, and nothing snoops on group
/// membership.
#[inline(always)]
fn is_chatter(packet: Packet, frame: &Frame, message: Icmp6) -> bool {
    match message.kind() {
        ROUTER_SOLICITATION | LISTENER_QUERY..=LISTENER_DONE | LISTENER_REPORT_2 => true,
        _ if frame.vlan || frame.protocol != IP4 => false,
        _ => matches!(packet.get(frame.network() + 9), Ok(IGMP)),
    }
}

/// Copies to all endpoints of the network but `except`, which is an interface index.
#[inline(never)]
fn to_endpoints(packet: Packet, network: u32, slots: u32, except: u32) -> u32 {
    packet.disown();
    for slot in 0..MAX_ENDPOINTS {
        if slot >= slots {
            break;
        }
        headway_copy_to_endpoint(packet.0, slot, network, except);
    }
    0
}

/// Sends one copy to the endpoint in `slot`, if it is of the network.
///
/// A global function: the verifier checks it once, and not for each turn of the loop.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn headway_copy_to_endpoint(skb: *mut __sk_buff, slot: u32, network: u32, except: u32) -> u32 {
    let Some(endpoint) = maps::flood_endpoint(slot) else { return 0 };
    if endpoint.network != network || endpoint.ifindex == 0 || endpoint.ifindex == except {
        return 0;
    }
    if Packet(skb).copy_to(endpoint.ifindex) {
        count(Event::FloodedLocal);
    } else {
        dropped(DropReason::Room);
    }
    0
}

/// Copies to the peers that take flooded frames. The last copy is the frame itself.
#[inline(always)]
pub fn to_peers(packet: Packet, frame: &Frame, number: u32, network: &Network) -> Verdict {
    if network.flood_nodes == 0 {
        return Ok(TCX_DROP);
    }
    if packet.gso_size() != 0 {
        return segment::hand_over_flood(packet, number);
    }
    Ok(copy_to_peers(packet, frame, number, network.flood_nodes))
}

#[inline(never)]
fn copy_to_peers(packet: Packet, frame: &Frame, network: u32, peers: u32) -> i32 {
    verdict(try_copy_to_peers(packet, frame, network, peers))
}

#[inline(always)]
fn try_copy_to_peers(packet: Packet, frame: &Frame, network: u32, peers: u32) -> Verdict {
    let settings = maps::settings().ok_or(DropReason::NoNextHop)?;
    let size = packet.forget(path_mtu::size(packet, frame));
    let first_word = packet.forget(flow::first_word(packet, frame, settings)?);
    let how = packet.forget(u32::from(make_room(packet, frame)?));
    let last = peers - 1;
    packet.set_mark(0);
    for index in 0..MAX_FLOOD_NODES {
        if index >= last {
            break;
        }
        if let Some(node) = maps::flood_node(index) {
            headway_copy_to_peer(packet.0, network << 16 | node, size, first_word, how);
        }
    }
    let node = maps::flood_node(last).ok_or(DropReason::NoNextHop)?;
    Ok(headway_copy_to_peer(packet.0, network << 16 | node, size, first_word, how | LAST))
}

/// The kernel knows the packet as IPv6.
const KNOWN: u32 = 1;
/// No copies are wanted after this one.
const LAST: u32 = 2;

/// Sends one copy to a peer: the last one by the verdict, the others by a clone. `target` is network and node number.
///
/// A global function as well.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn headway_copy_to_peer(
    skb: *mut __sk_buff,
    target: u32,
    size: u32,
    first_word: u32,
    how: u32,
) -> i32 {
    let sid = Sid { node: target & 0xffff, network: target >> 16, behaviour: Behaviour::Flood };
    verdict(copy(Packet(skb), sid, size, first_word, how))
}

#[inline(always)]
fn copy(packet: Packet, sid: Sid, size: u32, first_word: u32, how: u32) -> Verdict {
    let settings = maps::settings().ok_or(DropReason::NoNextHop)?;
    let node = maps::node(sid.node).ok_or(DropReason::NoNextHop)?;
    if size > path_mtu::limit(sid.node, node, size) {
        return Err(DropReason::TooBig);
    }
    let hop = next_hop(node, first_word)?;
    write_outer(packet, sid, first_word, hop, settings)?;
    if how & LAST != 0 {
        count(Event::FloodedRemote);
        return leave(packet, hop, how & KNOWN != 0);
    }
    if !is_resolved(hop) {
        return Err(DropReason::NoNextHop);
    }
    if !packet.copy_to(hop.ifindex) {
        return Err(DropReason::Room);
    }
    count(Event::FloodedRemote);
    Ok(TCX_DROP)
}
