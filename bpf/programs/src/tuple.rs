//! What identifies a flow in a packet: addresses, protocol and ports.

use bpf_common::maps::Ip6;

use crate::{
    extension::{TCP, Upper, has_ports},
    frame::{IP4, IP6, IP6_HEADER},
    packet::Packet,
};

const IS_FRAGMENT: u32 = 0x3fff;
const FRAGMENT_OFFSET: u32 = 0x1fff;
const MAPPED: u32 = 0xffff_u32.to_be();

/// TCP flags (RFC 9293 section 3.1).
pub const FIN: u32 = 0x01;
/// See [`FIN`].
pub const SYN: u32 = 0x02;
/// See [`FIN`].
pub const RST: u32 = 0x04;
/// See [`FIN`].
pub const ACK: u32 = 0x10;

/// The flow of a packet, or of one that an ICMP error quotes. `repr(C)`: see [`crate::packet::__sk_buff`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Tuple {
    /// Source address; an IPv4 address as `::ffff:a.b.c.d`.
    pub source: Ip6,
    /// Destination address, the same way.
    pub destination: Ip6,
    /// Source port, network byte order; 0 without ports.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// IP protocol.
    pub protocol: u32,
    /// Where its header begins.
    pub offset: u32,
    /// It is a fragment, with or without that header.
    pub fragment: bool,
}

impl Tuple {
    /// Reads the packet whose network header, of EtherType `protocol`, begins at `at`; None if it is no IP packet or too short.
    #[inline(always)]
    pub fn read(packet: Packet, at: usize, protocol: u16) -> Option<Self> {
        let mut tuple = Self {
            source: [0; 4],
            destination: [0; 4],
            source_port: 0,
            destination_port: 0,
            protocol: 0,
            offset: 0,
            fragment: false,
        };
        if read(packet, at as u32, u32::from(protocol), &mut tuple) == 0 { None } else { Some(tuple) }
    }

    /// The flags of a whole TCP segment; 0 for anything else.
    #[inline(always)]
    pub fn tcp_flags(&self, packet: Packet) -> u32 {
        let mut pieces = [0_u8; 2];
        if self.protocol == TCP && !self.fragment {
            // Too short for its flags it has none.
            let _ = packet.load(self.offset as usize + 12, &mut pieces);
        }
        u32::from(pieces[1])
    }
}

/// Fills `tuple`; 0 if that was not possible.
#[inline(never)]
fn read(packet: Packet, at: u32, protocol: u32, tuple: &mut Tuple) -> u32 {
    let read = match protocol as u16 {
        IP4 => read_ip4(packet, at, tuple),
        IP6 => read_ip6(packet, at, tuple),
        _ => None,
    };
    u32::from(read.is_some())
}

#[inline(always)]
fn read_ip4(packet: Packet, at: u32, tuple: &mut Tuple) -> Option<()> {
    let mut header = [0_u32; 5];
    packet.load(at as usize, &mut header).ok()?;
    let fragment = u32::from_be(header[1]);
    tuple.source = [0, 0, MAPPED, header[3]];
    tuple.destination = [0, 0, MAPPED, header[4]];
    tuple.protocol = u32::from_be(header[2]) >> 16 & 0xff;
    tuple.offset = packet.forget(at + (u32::from_be(header[0]) >> 24 & 0xf) * 4);
    tuple.fragment = fragment & IS_FRAGMENT != 0;
    read_ports(packet, tuple, fragment & FRAGMENT_OFFSET != 0)
}

#[inline(always)]
fn read_ip6(packet: Packet, at: u32, tuple: &mut Tuple) -> Option<()> {
    let mut header = [0_u32; 10];
    packet.load(at as usize, &mut header).ok()?;
    tuple.source = [header[2], header[3], header[4], header[5]];
    tuple.destination = [header[6], header[7], header[8], header[9]];
    let next = u32::from_be(header[1]) >> 8 & 0xff;
    let upper = Upper::behind(packet, at as usize + IP6_HEADER, next).ok()?;
    tuple.protocol = packet.forget(upper.protocol);
    tuple.offset = packet.forget(upper.offset as u32);
    tuple.fragment = packet.forget(u32::from(upper.fragment)) != 0;
    read_ports(packet, tuple, upper.later_fragment)
}

#[inline(always)]
fn read_ports(packet: Packet, tuple: &mut Tuple, later_fragment: bool) -> Option<()> {
    if later_fragment || !has_ports(tuple.protocol) {
        return Some(());
    }
    let mut ports = [0_u16; 2];
    packet.load(tuple.offset as usize, &mut ports).ok()?;
    [tuple.source_port, tuple.destination_port] = ports;
    Some(())
}
