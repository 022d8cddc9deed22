//! Receives what arrives on an uplink for this node's locator; everything else is not ours.

use aya_ebpf::bindings::tcx_action_base::TCX_NEXT;
use bpf_common::{
    counters::{DropReason, Event},
    mac,
    maps::{Ip6, Mac, Node, Settings},
    sid::{Behaviour, Sid, infrastructure, locator_node},
};

use crate::{
    bucket,
    count::count,
    decap::decapsulate,
    deliver::deliver,
    ecn,
    encap::{NEXT_HEADER_ETHERNET, OUTER},
    extension::ICMP6,
    flood,
    frame::{ETHERNET, Frame, IP6, same_ip6},
    maps, neighbour,
    packet::{Packet, Verdict},
    path_mtu, services,
};

/// ICMPv6 messages a second to the infrastructure address.
const INFRA_RATE: u32 = 1000;

/// The outer IPv6 header.
struct Outer {
    class: u32,
    payload: u32,
    next_header: u8,
    source: Ip6,
    destination: Ip6,
}

impl Outer {
    #[inline(always)]
    fn read(packet: Packet) -> Result<Self, DropReason> {
        packet.pull(OUTER)?;
        let first_word: u32 = packet.get(ETHERNET)?;
        let payload: u16 = packet.get(ETHERNET + 4)?;
        let next_header = packet.get(ETHERNET + 6)?;
        let [source, destination] = packet.get(ETHERNET + 8)?;
        Ok(Self {
            class: u32::from_be(first_word) >> 20 & 0xff,
            payload: u32::from(u16::from_be(payload)),
            next_header,
            source,
            destination,
        })
    }
}

/// Receives the packet.
#[inline(always)]
pub fn receive(packet: Packet) -> Verdict {
    if packet.protocol() != IP6 || packet.lifted_tag().is_some() || !packet.is_to_us() {
        return Ok(TCX_NEXT);
    }
    let (Some(settings), Ok(outer)) = (maps::settings(), Outer::read(packet)) else { return Ok(TCX_NEXT) };
    if locator_node(settings.block, &outer.destination) != Some(settings.node) {
        return Ok(TCX_NEXT);
    }
    if same_ip6(&outer.destination, &infrastructure(settings.block, settings.node)) {
        return to_infrastructure(packet, &outer, settings);
    }
    let sid = Sid::parse(settings.block, &outer.destination).ok_or(DropReason::UnknownSid)?;
    maps::network(sid.network).ok_or(DropReason::UnknownSid)?;
    let (number, node) = sender(&outer, settings)?;
    let mut frame = read_inner(packet, &outer)?;
    if !is_of(node, number, &frame.source) {
        return Err(DropReason::InnerSource);
    }
    if !frame.vlan && frame.protocol == IP6 && packet.get::<u32>(frame.network() + 24)? == settings.block {
        return Err(DropReason::Nested);
    }
    ecn::propagate(packet, &frame, outer.class)?;
    let plain_ip = decapsulate(packet, &mut frame)?;
    count(Event::Decapsulated);
    switch(packet, &frame, sid, plain_ip, settings)
}

/// ICMPv6 to `<locator>::1` goes on to this node's stack.
#[inline(always)]
fn to_infrastructure(packet: Packet, outer: &Outer, settings: &Settings) -> Verdict {
    if u32::from(outer.next_header) != ICMP6 {
        return Err(DropReason::InfraProtocol);
    }
    let bucket = maps::infra_bucket().ok_or(DropReason::InfraRate)?;
    if !bucket::take(bucket, INFRA_RATE) {
        return Err(DropReason::InfraRate);
    }
    path_mtu::learn(packet, settings);
    Ok(TCX_NEXT)
}

/// The peer that sent the packet: the source must be the infrastructure address of a node of the block that we know
/// (RFC 8754 section 5.1).
#[inline(always)]
fn sender(outer: &Outer, settings: &Settings) -> Result<(u32, &'static Node), DropReason> {
    let number = locator_node(settings.block, &outer.source).ok_or(DropReason::OuterSource)?;
    if number == settings.node || !same_ip6(&outer.source, &infrastructure(settings.block, number)) {
        return Err(DropReason::OuterSource);
    }
    Ok((number, maps::node(number).ok_or(DropReason::OuterSource)?))
}

#[inline(always)]
fn read_inner(packet: Packet, outer: &Outer) -> Result<Frame, DropReason> {
    if outer.next_header != NEXT_HEADER_ETHERNET {
        return Err(DropReason::OuterHeader);
    }
    let len = OUTER as u32 + outer.payload;
    if packet.len() < len {
        return Err(DropReason::Truncated);
    }
    if outer.payload < ETHERNET as u32 {
        return Err(DropReason::Malformed);
    }
    if packet.len() > len {
        packet.change_tail(len)?;
    }
    Frame::read(packet, OUTER)
}

/// Whether `mac` is a derived endpoint of the node.
#[inline(always)]
fn is_of(node: &Node, number: u32, mac: &Mac) -> bool {
    match mac::ip4_of(mac) {
        Some(ip) => node.mask4 != 0 && ip & node.mask4 == node.base4,
        None => mac::node_of(mac) == Some(number),
    }
}

#[inline(always)]
fn switch(packet: Packet, frame: &Frame, sid: Sid, plain_ip: bool, settings: &Settings) -> Verdict {
    if !frame.is_to_group() {
        if let Some(entry) = maps::local(sid.network, frame.destination) {
            if services::is_answer(packet, frame, entry) {
                return services::to_gateway(packet, sid.network, settings);
            }
            return Ok(deliver(packet, entry, plain_ip));
        }
        if neighbour::node_by_mac(sid.network, &frame.destination) == settings.node {
            return Err(DropReason::NoSuchEndpoint);
        }
    }
    match sid.behaviour {
        Behaviour::Unicast => Err(DropReason::UnknownUnicast),
        Behaviour::Flood => flood::from_peer(packet, frame, sid.network),
    }
}
