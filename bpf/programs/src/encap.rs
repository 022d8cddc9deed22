//! Sends a frame to a peer inside SRv6 (H.Encaps.L2.Red, RFC 8986 section 5.4).
//!
//! ```text
//! outer Ethernet | outer IPv6: <locator>::1 -> SID, next header 143 | Ethernet | [tags] | payload
//! <------------------------ OUTER = 54 --------------------------->
//! ```

use aya_ebpf::{
    bindings::BPF_F_ADJ_ROOM_ENCAP_L3_IPV6, bpf_f_adj_room_encap_l2, helpers::generated::bpf_redirect_neigh,
};
use bpf_common::{
    counters::{DropReason, Event},
    maps::{Ip6, Mac, NextHop, Node, Settings},
    names::MAX_NEXT_HOPS,
    sid::{Behaviour, Sid, infrastructure},
};

use crate::{
    count::{count, verdict},
    flow,
    frame::{ETHERNET, Frame, IP4, IP6, IP6_HEADER, TAG, same_mac},
    maps,
    packet::{Packet, Verdict, redirect},
    path_mtu, segment, too_big,
};

/// Outer Ethernet and IPv6 headers.
pub const OUTER: usize = ETHERNET + IP6_HEADER;
/// An Ethernet frame inside IPv6 (RFC 8986 section 9.1).
pub const NEXT_HEADER_ETHERNET: u8 = 143;
const HOP_LIMIT: u8 = 64;

/// Who sends.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Sender {
    /// A pod.
    Pod,
    /// The node's own stack.
    Gateway,
    /// The segmenter: everything has been asked and answered.
    Segmenter,
}

/// Sends a unicast frame to peer `number`.
#[inline(always)]
pub fn to_peer(packet: Packet, frame: &Frame, network: u32, number: u32, sender: Sender) -> Verdict {
    let node = maps::node(number).ok_or(DropReason::NoNextHop)?;
    let limit = path_mtu::exceeded(packet, frame, number, node);
    if limit != 0 {
        return Ok(too_big::answer(packet, frame, limit, sender));
    }
    if packet.gso_size() != 0 {
        return segment::hand_over(packet, network);
    }
    Ok(send(packet, frame, node, network << 16 | number))
}

/// Encapsulates and sends. `target` is network and node number.
#[inline(never)]
fn send(packet: Packet, frame: &Frame, node: &Node, target: u32) -> i32 {
    let sid = Sid { node: target & 0xffff, network: target >> 16, behaviour: Behaviour::Unicast };
    verdict(try_send(packet, frame, node, sid))
}

#[inline(always)]
fn try_send(packet: Packet, frame: &Frame, node: &Node, sid: Sid) -> Verdict {
    let settings = maps::settings().ok_or(DropReason::NoNextHop)?;
    let first_word = packet.forget(flow::first_word(packet, frame, settings)?);
    let hop = next_hop(node, first_word)?;
    let known = packet.forget(u32::from(make_room(packet, frame)?)) != 0;
    write_outer(packet, sid, first_word, hop, settings)?;
    count(Event::Encapsulated);
    leave(packet, hop, known)
}

/// The way of a flow to the peer.
#[inline(always)]
pub fn next_hop(node: &Node, first_word: u32) -> Result<&NextHop, DropReason> {
    if node.next_hop_count == 0 {
        return Err(DropReason::NoNextHop);
    }
    let chosen = flow::label(first_word) % node.next_hop_count;
    node.next_hops.get(chosen as usize % MAX_NEXT_HOPS).ok_or(DropReason::NoNextHop)
}

/// Makes room for the outer header and moves the inner one into its place, tags that the kernel has lifted out
/// included: left there they would come to sit on the outer frame. Whether the kernel knows the packet as IPv6 now.
#[inline(always)]
pub fn make_room(packet: Packet, frame: &Frame) -> Result<bool, DropReason> {
    let mut tags = [[0_u16; 2]; 2];
    let mut lifted = 0;
    for tag in &mut tags {
        let Some(outermost) = packet.lifted_tag() else { break };
        *tag = outermost;
        packet.pop_tag()?;
        lifted += TAG;
    }
    packet.pull(ETHERNET)?;
    let protocol: u16 = packet.get(12)?;
    let known = grow(packet, protocol, lifted)?;
    packet.put::<[Mac; 2]>(OUTER, [frame.destination, frame.source])?;
    if lifted >= TAG {
        packet.put(OUTER + 12, tags[0])?;
    }
    if lifted >= 2 * TAG {
        packet.put(OUTER + 12 + TAG, tags[1])?;
    }
    packet.put(OUTER + 12 + lifted, protocol)?;
    Ok(known)
}

/// Grows by the outer header and `lifted` bytes of tags.
///
/// For IP the kernel is told where the inner headers are, which keeps checksums that are still to be computed right. It
/// refuses other frames (ENOTSUPP) and packets that are tunnelled already (EALREADY); those get plain bytes in front.
#[inline(always)]
fn grow(packet: Packet, protocol: u16, lifted: usize) -> Result<bool, DropReason> {
    let len = (OUTER + lifted) as u32;
    if protocol == IP4 || protocol == IP6 {
        let flags =
            u64::from(BPF_F_ADJ_ROOM_ENCAP_L3_IPV6) | bpf_f_adj_room_encap_l2((ETHERNET + lifted) as u64);
        if packet.adjust_room(len as i32, flags).is_ok() {
            return Ok(true);
        }
    }
    packet.change_head(len)?;
    Ok(false)
}

/// Writes the outer header into the room that `make_room` has made.
#[inline(always)]
pub fn write_outer(
    packet: Packet,
    sid: Sid,
    first_word: u32,
    hop: &NextHop,
    settings: &Settings,
) -> Result<(), DropReason> {
    let payload = packet.len() - OUTER as u32;
    let start = packet.at::<[u8; OUTER]>(0)?;
    let next_header = u16::from_ne_bytes([NEXT_HEADER_ETHERNET, HOP_LIMIT]);
    // SAFETY: `at` has checked all OUTER bytes, which the fields fill.
    unsafe {
        start.cast::<[Mac; 2]>().write([hop.destination, hop.source]);
        start.byte_add(12).cast::<u16>().write(IP6);
        start.byte_add(ETHERNET).cast::<u32>().write(first_word.to_be());
        start.byte_add(ETHERNET + 4).cast::<[u16; 2]>().write([(payload as u16).to_be(), next_header]);
        let addresses = [infrastructure(settings.block, settings.node), sid.address(settings.block)];
        start.byte_add(ETHERNET + 8).cast::<[Ip6; 2]>().write(addresses);
    }
    Ok(())
}

/// Sends the encapsulated frame on its way. Without a MAC for the next hop the kernel resolves it, if it knows the
/// packet well enough to write the Ethernet header.
#[inline(always)]
pub fn leave(packet: Packet, hop: &NextHop, known: bool) -> Verdict {
    packet.set_mark(0);
    if !is_resolved(hop) {
        if !known {
            return Err(DropReason::NoNextHop);
        }
        count(Event::Resolving);
        // SAFETY: without parameters the kernel looks the route up itself.
        return Ok(unsafe { bpf_redirect_neigh(hop.ifindex, core::ptr::null_mut(), 0, 0) as i32 });
    }
    Ok(redirect(hop.ifindex))
}

/// Whether the next hop's MAC is known.
#[inline(always)]
pub fn is_resolved(hop: &NextHop) -> bool {
    !same_mac(&hop.destination, &[0; 3])
}
