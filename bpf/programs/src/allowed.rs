//! The first question: may this endpoint send this frame?

use bpf_common::{
    counters::DropReason,
    mac,
    maps::{ENDPOINT_GATEWAY, Endpoint, Ip6, Settings},
};

use crate::{
    count::dropped,
    extension::{ICMP6, Upper},
    frame::{ARP, Frame, IP4, IP6, same_ip6, same_mac},
    packet::Packet,
};

/// ICMPv6 types.
pub const ROUTER_SOLICITATION: u32 = 133;
const ROUTER_ADVERTISEMENT: u32 = 134;
/// See [`ROUTER_SOLICITATION`].
pub const NEIGHBOUR_SOLICITATION: u32 = 135;
/// See [`ROUTER_SOLICITATION`].
pub const NEIGHBOUR_ADVERTISEMENT: u32 = 136;
const REDIRECT: u32 = 137;

const ARP_ETHERNET_IP4: [u16; 3] = [1_u16.to_be(), IP4, 0x0604_u16.to_be()];

/// The ICMPv6 message that a frame carries, in one register: its type in bits 0..8, where it begins above.
#[derive(Clone, Copy)]
pub struct Icmp6(u32);

impl Icmp6 {
    /// Type 0 is reserved.
    const NONE: Self = Self(0);
    /// The frame has been dropped.
    const DROPPED: Self = Self(u32::MAX);

    /// Its type; 0 if the frame carries no ICMPv6.
    #[inline(always)]
    pub fn kind(self) -> u32 {
        self.0 & 0xff
    }

    /// Where it begins.
    #[inline(always)]
    pub fn offset(self) -> usize {
        self.0 as usize >> 8 & 0xffff
    }
}

/// Checks a frame of `endpoint`; None if it was dropped.
///
/// Within a VLAN only the MAC is checked: what the addresses inside mean is that VLAN's own affair.
#[inline(always)]
pub fn check(packet: Packet, frame: &Frame, endpoint: &Endpoint, settings: &Settings) -> Option<Icmp6> {
    let message = Icmp6(checked(packet, frame, endpoint, settings));
    if message.0 == Icmp6::DROPPED.0 { None } else { Some(message) }
}

#[inline(never)]
fn checked(packet: Packet, frame: &Frame, endpoint: &Endpoint, settings: &Settings) -> u32 {
    match ask(packet, frame, endpoint, settings) {
        Ok(message) => packet.forget(message.0),
        Err(reason) => {
            dropped(reason);
            Icmp6::DROPPED.0
        }
    }
}

#[inline(always)]
fn ask(packet: Packet, frame: &Frame, endpoint: &Endpoint, settings: &Settings) -> Result<Icmp6, DropReason> {
    if !same_mac(&frame.source, &endpoint.mac) {
        return Err(DropReason::SourceMac);
    }
    match frame.protocol {
        _ if frame.vlan => Ok(Icmp6::NONE),
        IP4 => check_ip4(packet, frame, endpoint),
        IP6 => check_ip6(packet, frame, endpoint, settings),
        ARP => check_arp(packet, frame, endpoint),
        _ => Ok(Icmp6::NONE),
    }
}

#[inline(always)]
fn is_gateway(endpoint: &Endpoint) -> bool {
    endpoint.flags & ENDPOINT_GATEWAY != 0
}

/// An endpoint without an IPv4 address has 0.0.0.0, which is what DHCP clients send from.
#[inline(always)]
fn check_ip4(packet: Packet, frame: &Frame, endpoint: &Endpoint) -> Result<Icmp6, DropReason> {
    let source: u32 = packet.get(frame.network() + 12)?;
    if source == endpoint.ip4 || is_gateway(endpoint) { Ok(Icmp6::NONE) } else { Err(DropReason::SourceIp) }
}

#[inline(always)]
fn check_arp(packet: Packet, frame: &Frame, endpoint: &Endpoint) -> Result<Icmp6, DropReason> {
    let arp: [u16; 14] = packet.get(frame.network())?;
    if arp[0] != ARP_ETHERNET_IP4[0] || arp[1] != ARP_ETHERNET_IP4[1] || arp[2] != ARP_ETHERNET_IP4[2] {
        return Err(DropReason::Malformed);
    }
    let sender: u32 = packet.get(frame.network() + 14)?;
    let own = same_mac(&[arp[4], arp[5], arp[6]], &endpoint.mac) && (sender == endpoint.ip4 || sender == 0);
    if own || is_gateway(endpoint) { Ok(Icmp6::NONE) } else { Err(DropReason::ArpSender) }
}

#[inline(always)]
fn check_ip6(
    packet: Packet,
    frame: &Frame,
    endpoint: &Endpoint,
    settings: &Settings,
) -> Result<Icmp6, DropReason> {
    let [source, destination] = packet.get::<[Ip6; 2]>(frame.network() + 8)?;
    if destination[0] == settings.block {
        return Err(DropReason::SidDestination);
    }
    let gateway = is_gateway(endpoint);
    if !gateway && !is_unspecified(&source) && !is_own(&source, endpoint) {
        return Err(DropReason::SourceIp);
    }
    let upper = Upper::find(packet, frame.network())?;
    if upper.routed && !gateway {
        return Err(DropReason::SegmentRouting);
    }
    if upper.protocol != ICMP6 || upper.later_fragment {
        return Ok(Icmp6::NONE);
    }
    let mut kind = 0_u8;
    packet.load(upper.offset, &mut kind)?;
    let message = Icmp6(u32::from(kind) | (upper.offset as u32 & 0xffff) << 8);
    check_message(packet, message, endpoint, gateway)?;
    Ok(message)
}

#[inline(always)]
fn check_message(
    packet: Packet,
    message: Icmp6,
    endpoint: &Endpoint,
    gateway: bool,
) -> Result<(), DropReason> {
    match message.kind() {
        // The node's own stack sends them for packets that enter and leave by the gateway link; nobody may follow.
        REDIRECT => Err(DropReason::Redirect),
        _ if gateway => Ok(()),
        ROUTER_ADVERTISEMENT => Err(DropReason::RouterAdvertisement),
        ROUTER_SOLICITATION | NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT => {
            match claims_only_own(packet, endpoint, message.kind(), message.offset() as u32) {
                0 => Err(DropReason::NdTarget),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

#[inline(always)]
fn is_unspecified(ip: &Ip6) -> bool {
    same_ip6(ip, &[0; 4])
}

/// Whether `ip` is an address of the endpoint.
#[inline(always)]
pub fn is_own(ip: &Ip6, endpoint: &Endpoint) -> bool {
    !is_unspecified(ip) && (same_ip6(ip, &endpoint.ip6) || same_ip6(ip, &mac::link_local(&endpoint.mac)))
}

/// Whether a neighbour discovery message (RFC 4861 section 4) says nothing about others: an advertised target and any
/// link-layer address in its options must be the endpoint's. 1: so it is.
#[inline(never)]
fn claims_only_own(packet: Packet, endpoint: &Endpoint, kind: u32, offset: u32) -> u32 {
    let mut option = offset + 24;
    if kind == ROUTER_SOLICITATION {
        option = offset + 8;
    }
    if kind == NEIGHBOUR_ADVERTISEMENT {
        let mut target: Ip6 = [0; 4];
        if packet.load(offset as usize + 8, &mut target).is_err() || !is_own(&target, endpoint) {
            return 0;
        }
    }
    // Three options are in use together at most (RFC 3971, RFC 7527); more of them are not waved through unread.
    for _ in 0..5 {
        if option >= packet.len() {
            return 1;
        }
        let mut pieces = [0_u16; 4];
        if packet.load(option as usize, &mut pieces).is_err() {
            return 0;
        }
        let (kind, length) = (u16::from_be(pieces[0]) >> 8, u16::from_be(pieces[0]) & 0xff);
        let link_layer = kind == 1 || kind == 2;
        if length == 0 || link_layer && !same_mac(&[pieces[1], pieces[2], pieces[3]], &endpoint.mac) {
            return 0;
        }
        option += u32::from(length) * 8;
    }
    0
}
