//! IPv6 extension headers: what lies behind them.

use bpf_common::counters::DropReason;

use crate::{frame::IP6_HEADER, packet::Packet};

/// Next header numbers.
pub const TCP: u32 = 6;
/// See [`TCP`].
pub const UDP: u32 = 17;
/// See [`TCP`].
pub const ICMP: u32 = 1;
/// See [`TCP`].
pub const ICMP6: u32 = 58;
const SCTP: u32 = 132;
const HOP_BY_HOP: u32 = 0;
const ROUTING: u32 = 43;
const FRAGMENT: u32 = 44;
const AUTHENTICATION: u32 = 51;
const DESTINATION: u32 = 60;
const MOBILITY: u32 = 135;
const HOST_IDENTITY: u32 = 139;
const SHIM6: u32 = 140;

/// Headers that are walked. Whoever sends more has something to hide.
const MOST: u32 = 8;

/// Whether the upper layer begins with two ports.
#[inline(always)]
pub fn has_ports(protocol: u32) -> bool {
    matches!(protocol, TCP | UDP | SCTP)
}

/// The upper layer of an IPv6 packet.
#[derive(Clone, Copy)]
pub struct Upper {
    /// Next header number.
    pub protocol: u32,
    /// Where its header begins.
    pub offset: usize,
    /// There is a routing header before it.
    pub routed: bool,
    /// There is a fragment header before it.
    pub fragment: bool,
    /// It is a fragment without the upper layer's header.
    pub later_fragment: bool,
}

impl Upper {
    /// Finds the upper layer behind the IPv6 header at `network`.
    #[inline(always)]
    pub fn find(packet: Packet, network: usize) -> Result<Self, DropReason> {
        let next = u32::from(packet.get::<u8>(network + 6)?);
        Self::behind(packet, network + IP6_HEADER, next)
    }

    /// Finds the upper layer from `offset` on, where there is a header of type `next`.
    #[inline(always)]
    pub fn behind(packet: Packet, offset: usize, next: u32) -> Result<Self, DropReason> {
        if !is_extension(next) {
            return Ok(Self {
                protocol: next,
                offset,
                routed: false,
                fragment: false,
                later_fragment: false,
            });
        }
        let packed = walk(packet, offset as u32, next);
        if packed == UNREADABLE {
            return Err(DropReason::Malformed);
        }
        let packed = packed as u32;
        Ok(Self {
            protocol: packed & 0xff,
            offset: (packed >> 8 & 0xffff) as usize,
            routed: packed & ROUTED != 0,
            fragment: packed & FRAGMENTED != 0,
            later_fragment: packed & LATER != 0,
        })
    }
}

// A subprogram returns one register: protocol in bits 0..8, offset in bits 8..24, then these.
const ROUTED: u32 = 1 << 24;
const LATER: u32 = 1 << 25;
const FRAGMENTED: u32 = 1 << 26;
const UNREADABLE: u64 = u64::MAX;

#[inline(always)]
fn is_extension(next: u32) -> bool {
    matches!(
        next,
        HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION | MOBILITY | HOST_IDENTITY | SHIM6
    )
}

#[inline(never)]
fn walk(packet: Packet, mut offset: u32, mut next: u32) -> u64 {
    let mut flags = 0;
    for _ in 0..MOST {
        // The kinds of headers make many ways: they meet here.
        (offset, next, flags) = (packet.forget(offset), packet.forget(next), packet.forget(flags));
        let mut header = [0_u16; 2];
        if packet.load(offset as usize, &mut header).is_err() {
            return UNREADABLE;
        }
        let length = u32::from(u16::from_be(header[0]) & 0xff);
        let more = match next {
            FRAGMENT => 8,
            AUTHENTICATION => (length + 2) * 4,
            _ => (length + 1) * 8,
        };
        if next == FRAGMENT {
            flags |= FRAGMENTED;
            if u16::from_be(header[1]) & 0xfff8 != 0 {
                flags |= LATER;
            }
        }
        if next == ROUTING {
            flags |= ROUTED;
        }
        offset += more;
        next = u32::from(u16::from_be(header[0]) >> 8);
        if !is_extension(next) || flags & LATER != 0 {
            return u64::from(packet.forget(flags | (offset & 0xffff) << 8 | next));
        }
    }
    UNREADABLE
}
