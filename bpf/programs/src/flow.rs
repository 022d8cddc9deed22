//! The flow that a frame belongs to: what routers may spread by, and its traffic class.

use bpf_common::{
    counters::DropReason,
    flow::flow_label,
    maps::{DSCP_COPY, Ip6, Settings},
};

use crate::{
    extension::has_ports,
    frame::{Frame, IP4, IP6, IP6_HEADER},
    packet::Packet,
};

const IS_FRAGMENT: u16 = 0x3fff_u16.to_be();
const VERSION_6: u32 = 6 << 28;

/// First word of the outer IPv6 header, host byte order: version, traffic class, flow label.
///
/// The DSCP is copied or fixed (RFC 2983), ECN copied (RFC 6040 section 4.1).
#[inline(always)]
pub fn first_word(packet: Packet, frame: &Frame, settings: &Settings) -> Result<u32, DropReason> {
    let (class, label) = match frame.protocol {
        IP4 => ip4(packet, frame.network())?,
        IP6 => ip6(packet, frame.network())?,
        _ => (0, other(frame)),
    };
    let mut dscp = class & 0xfc;
    if settings.dscp < DSCP_COPY {
        dscp = settings.dscp << 2;
    }
    Ok(VERSION_6 | dscp << 20 | (class & 3) << 20 | label)
}

/// The flow label in a first word.
#[inline(always)]
pub fn label(first_word: u32) -> u32 {
    first_word & 0xf_ffff
}

#[inline(always)]
fn ip4(packet: Packet, at: usize) -> Result<(u32, u32), DropReason> {
    let [version, class] = packet.get::<[u8; 2]>(at)?;
    let protocol = u32::from(packet.get::<u8>(at + 9)?);
    let [source, destination] = packet.get::<[u32; 2]>(at + 12)?;
    let whole = packet.get::<u16>(at + 6)? & IS_FRAGMENT == 0;
    let mut ports = 0;
    if whole && version == 0x45 && has_ports(protocol) {
        ports = packet.get::<u32>(at + 20).unwrap_or(0);
    }
    Ok((u32::from(class), flow_label(&[source, destination, protocol, ports])))
}

#[inline(always)]
fn ip6(packet: Packet, at: usize) -> Result<(u32, u32), DropReason> {
    let class = u32::from_be(packet.get::<u32>(at)?) >> 20 & 0xff;
    let protocol = u32::from(packet.get::<u8>(at + 6)?);
    let [s, d] = packet.get::<[Ip6; 2]>(at + 8)?;
    let mut ports = 0;
    if has_ports(protocol) {
        ports = packet.get::<u32>(at + IP6_HEADER).unwrap_or(0);
    }
    Ok((class, flow_label(&[s[0], s[1], s[2], s[3], d[0], d[1], d[2], d[3], protocol, ports])))
}

#[inline(always)]
fn other(frame: &Frame) -> u32 {
    let [a, b, c] = frame.destination.map(u32::from);
    let [d, e, f] = frame.source.map(u32::from);
    flow_label(&[a << 16 | b, c << 16 | d, e << 16 | f])
}
