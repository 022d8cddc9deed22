//! How large a packet to a peer may be: both ends' links, or less if a router on the way has said so.

use bpf_common::{
    counters::{DropReason, Event},
    maps::{Ip6, Node, PathMtu, Settings},
    sid::{Sid, infrastructure},
};

use crate::{
    bucket,
    count::count,
    encap::{NEXT_HEADER_ETHERNET, OUTER},
    extension::TCP,
    frame::{Frame, IP6_HEADER, TAG, same_ip6},
    maps,
    packet::Packet,
};

/// Every IPv6 link carries that much (RFC 8200 section 5).
pub const IP6_MINIMUM: u32 = 1280;
const LIFETIME: u64 = 600 * 1_000_000_000; // RFC 8201 section 4
const UDP_HEADER: u32 = 8;
const PACKET_TOO_BIG: u8 = 2;

/// The largest inner packet for the peer, if the frame carries a larger one and tags are counted in; 0 if it fits.
#[inline(never)]
pub fn exceeded(packet: Packet, frame: &Frame, number: u32, node: &Node) -> u32 {
    let size = packet.forget(size(packet, frame));
    let limit = packet.forget(limit(number, node, size));
    // A limit of 0 would mean that everything fits.
    if size <= limit { 0 } else { limit.saturating_sub(tags(frame)).max(1) }
}

/// The largest inner packet for the peer, as far as it matters to one of `size` bytes.
#[inline(always)]
pub fn limit(number: u32, node: &Node, size: u32) -> u32 {
    // Below the minimum there is nothing to learn, so most packets are spared the look-up.
    if size + OUTER as u32 > IP6_MINIMUM
        && let Some(learned) = maps::path_mtu(number)
        && learned.expires > bucket::now()
    {
        return node.mtu.min(learned.mtu - OUTER as u32);
    }
    node.mtu
}

/// Bytes of the network packet, or of each segment of a super-packet from its real headers; and of the tags.
#[inline(always)]
pub fn size(packet: Packet, frame: &Frame) -> u32 {
    let whole = packet.len() - frame.network() as u32;
    if packet.gso_size() == 0 {
        return whole + tags(frame);
    }
    whole.min(segment(packet, frame).unwrap_or(whole)) + tags(frame)
}

#[inline(always)]
fn segment(packet: Packet, frame: &Frame) -> Result<u32, DropReason> {
    let (protocol, offset) = frame.upper(packet)?;
    let mut header = UDP_HEADER;
    if protocol == TCP {
        let mut data_offset = 0_u8;
        packet.load(offset + 12, &mut data_offset)?;
        header = u32::from(data_offset >> 4) * 4;
    }
    Ok((offset - frame.network()) as u32 + header + packet.gso_size())
}

#[inline(always)]
fn tags(frame: &Frame) -> u32 {
    frame.tags * TAG as u32
}

/// Learns from an ICMPv6 message to the infrastructure address, if it is a packet-too-big about a packet of ours.
/// A path MTU is only ever lowered, until it expires.
#[inline(always)]
pub fn learn(packet: Packet, settings: &Settings) -> Option<()> {
    const MESSAGE: usize = OUTER;
    const QUOTE: usize = MESSAGE + 8;
    packet.pull(QUOTE + IP6_HEADER).ok()?;
    let kind: u8 = packet.get(MESSAGE).ok()?;
    let mtu: u32 = packet.get(MESSAGE + 4).ok()?;
    let next_header: u8 = packet.get(QUOTE + 6).ok()?;
    let [source, destination] = packet.get::<[Ip6; 2]>(QUOTE + 8).ok()?;
    let ours = same_ip6(&source, &infrastructure(settings.block, settings.node));
    if kind != PACKET_TOO_BIG || next_header != NEXT_HEADER_ETHERNET || !ours {
        return None;
    }
    let number = Sid::parse(settings.block, &destination)?.node;
    let mtu = u32::from_be(mtu).max(IP6_MINIMUM);
    let node = maps::node(number)?;
    if mtu >= node.mtu + OUTER as u32 {
        return None;
    }
    let now = bucket::now();
    if let Some(known) = maps::path_mtu(number)
        && known.expires > now
        && known.mtu < mtu
    {
        return None;
    }
    if maps::set_path_mtu(number, &PathMtu { expires: now + LIFETIME, mtu, pad: 0 }) {
        count(Event::PathMtuLearned);
    }
    Some(())
}
