//! Flows that the node's own stack routes on behalf of a local pod, as it does for Services.
//!
//! ```text
//! client --(ClusterIP, by the gateway)--> node: DNAT --(hw0, source: the client's address)--> backend   remembered here
//! client <------------------------------- backend     the answer, straight over the same segment: stopped here,
//! client <-- node: DNAT undone <--(hw0)-- as if the backend had sent it to the gateway
//! ```
//! Whom the node has sent to on behalf of an endpoint is noted with it, in 64 bits, so that other traffic pays for a test of one bit.
//!
//! The client's latest packet decides: one that it sends straight to the backend, with the same ports, makes the flow an ordinary
//! one again. Fragments do not all show their ports, so they go with any flow of the same protocol between the two: to the node,
//! which passes on what it has nothing to undo in.

use bpf_common::{
    counters::{DropReason, Event},
    mac,
    maps::{Endpoint, FLOW_BACKEND_ENDED, FLOW_CLIENT_ENDED, FdbEntry, Flow, FlowKey, Ip6, Mac, Settings},
};

use crate::{
    count::count,
    extension::{ICMP, ICMP6, TCP, has_ports},
    frame::{Frame, IP4, same_mac},
    maps,
    neighbour::{self, Neighbour},
    packet::{Packet, Verdict, redirect},
    tuple::{ACK, FIN, RST, SYN, Tuple},
};

const ERROR_HEADER: usize = 8;

/// Remembers the flow of a frame that the node's stack sends, if its source is a pod of this node, and lets the frame come
/// from that pod's own MAC, as if it had not been through the node.
#[inline(always)]
pub fn remember(packet: Packet, frame: &mut Frame, network: u32, settings: &Settings) {
    if frame.is_ip()
        && !frame.vlan
        && let Some(client) = client(packet, frame, network, settings)
    {
        remember_for(packet, frame, network, &client);
    }
}

/// The pod of this node that has the frame's source address.
#[inline(always)]
fn client(packet: Packet, frame: &Frame, network: u32, settings: &Settings) -> Option<Mac> {
    let neighbour: Neighbour = if frame.protocol == IP4 {
        neighbour::by_ip4(network, packet.get(frame.network() + 12).ok()?)?
    } else {
        neighbour::by_ip6(network, &packet.get::<Ip6>(frame.network() + 8).ok()?)?
    };
    let pod = neighbour.node == settings.node && !same_mac(&neighbour.mac, &settings.gateway_mac);
    if pod { Some(neighbour.mac) } else { None }
}

#[inline(never)]
fn remember_for(packet: Packet, frame: &mut Frame, network: u32, client: &Mac) -> u32 {
    let Some(entry) = maps::local(network, *client) else { return 0 };
    let Some(tuple) = Tuple::read(packet, frame.network(), frame.protocol) else { return 0 };
    let key = FlowKey {
        backend: tuple.destination,
        client: entry.ifindex,
        client_port: tuple.source_port,
        backend_port: tuple.destination_port,
        protocol: tuple.protocol,
    };
    if tuple.protocol == TCP && !tuple.fragment {
        remember_connection(&key, tuple.tcp_flags(packet));
    } else {
        if remember_flow(&key) {
            count(Event::ServiceFlow);
        }
        remember_flow(&fragments(&key));
    }
    let bit = mac::bit(&frame.destination);
    if entry.services & bit == 0 {
        maps::add_service(network, *client, bit);
    }
    frame.source = *client;
    u32::from(packet.put(6, *client).is_ok())
}

#[inline(always)]
fn remember_connection(key: &FlowKey, flags: u32) {
    if note_end(key, flags, FLOW_CLIENT_ENDED) {
        return;
    }
    let begins = flags & SYN != 0;
    // The last words of a connection that has ended do not make it a live one.
    if !begins && (flags & RST != 0 || maps::has_flow(key)) {
        return;
    }
    if !begins {
        count(Event::ServiceFlowLost);
    }
    if maps::set_connection(key, &Flow::default()) {
        count(Event::ServiceFlow);
    }
    remember_flow(&fragments(key));
}

/// Whether the flow is a new one.
#[inline(always)]
fn remember_flow(key: &FlowKey) -> bool {
    !maps::has_flow(key) && maps::set_flow(key, &Flow::default())
}

/// All fragments between the two.
#[inline(always)]
fn fragments(key: &FlowKey) -> FlowKey {
    FlowKey { client_port: 0, backend_port: 0, ..*key }
}

/// Whether the connection is a live one. The segment may end its direction of it: when both are at an end, the connection goes
/// where it can be forgotten sooner.
#[inline(always)]
fn note_end(key: &FlowKey, flags: u32, side: u32) -> bool {
    let Some(flow) = maps::connection(key) else { return false };
    let ended = match flags & (SYN | FIN | RST) {
        0 => return true,
        FIN => side,
        // It begins, after another with the same ports of which one end was never seen.
        flags if flags & SYN != 0 => 0,
        _ => FLOW_CLIENT_ENDED | FLOW_BACKEND_ENDED,
    };
    // SAFETY: a value of a map, alive until the program ends.
    let flow = unsafe { &mut *flow };
    flow.flags = if ended == 0 { 0 } else { flow.flags | ended };
    if flow.flags == FLOW_CLIENT_ENDED | FLOW_BACKEND_ENDED
        && maps::set_flow(key, &Flow { flags: flow.flags })
    {
        maps::remove_connection(key);
    }
    true
}

/// What a pod sends to one with whom it has flows through the node: this one is none of those, or no longer.
#[inline(always)]
pub fn goes_straight(packet: Packet, frame: &Frame, endpoint: &Endpoint) {
    if endpoint.services & mac::bit(&frame.destination) != 0 && frame.is_ip() && !frame.vlan {
        forget(packet, frame);
    }
}

#[inline(never)]
fn forget(packet: Packet, frame: &Frame) -> u32 {
    let Some(tuple) = Tuple::read(packet, frame.network(), frame.protocol) else { return 0 };
    // A connection changes its way only when it begins.
    let later = tuple.protocol == TCP && tuple.tcp_flags(packet) & SYN == 0;
    if later || tuple.fragment || !has_ports(tuple.protocol) {
        return 0;
    }
    let key = FlowKey {
        backend: tuple.destination,
        client: packet.ifindex(),
        client_port: tuple.source_port,
        backend_port: tuple.destination_port,
        protocol: tuple.protocol,
    };
    if tuple.protocol == TCP {
        maps::remove_connection(&key);
    }
    maps::remove_flow(&key);
    1
}

/// Whether the frame is for a pod that the node has to see first: the answer to a flow that it routes for the pod, or an ICMP
/// error about one.
#[inline(always)]
pub fn is_answer(packet: Packet, frame: &Frame, entry: &FdbEntry) -> bool {
    entry.services != 0
        && frame.is_ip()
        && !frame.vlan
        && (entry.services & mac::bit(&frame.source) != 0 || is_icmp(packet, frame))
        && is_answer_to(packet, frame, entry.ifindex) != 0
}

/// Errors come from anybody on the way.
#[inline(always)]
fn is_icmp(packet: Packet, frame: &Frame) -> bool {
    let (at, icmp) = if frame.protocol == IP4 { (9, ICMP) } else { (6, ICMP6) };
    matches!(packet.get::<u8>(frame.network() + at), Ok(protocol) if u32::from(protocol) == icmp)
}

#[inline(never)]
fn is_answer_to(packet: Packet, frame: &Frame, client: u32) -> u32 {
    let Some(tuple) = Tuple::read(packet, frame.network(), frame.protocol) else { return 0 };
    if !tuple.fragment && is_error(packet, &tuple) {
        let quote = packet.forget(tuple.offset) as usize + ERROR_HEADER;
        return is_quote_of_known(packet, quote as u32, frame.protocol, client);
    }
    let mut key = FlowKey {
        backend: tuple.source,
        client,
        client_port: tuple.destination_port,
        backend_port: tuple.source_port,
        protocol: tuple.protocol,
    };
    if tuple.fragment {
        key = fragments(&key);
    } else if tuple.protocol == TCP {
        let flags = tuple.tcp_flags(packet);
        // What begins a connection answers none.
        if flags & (SYN | ACK) == SYN {
            return 0;
        }
        if note_end(&key, flags, FLOW_BACKEND_ENDED) {
            return 1;
        }
    }
    u32::from(maps::has_flow(&key))
}

/// ICMP errors of RFC 792, but for redirects and source quench; those of RFC 4443 section 2.1.
#[inline(always)]
fn is_error(packet: Packet, tuple: &Tuple) -> bool {
    let mut kind = 0_u8;
    if tuple.protocol != ICMP && tuple.protocol != ICMP6
        || packet.load(tuple.offset as usize, &mut kind).is_err()
    {
        return false;
    }
    match tuple.protocol {
        ICMP => matches!(kind, 3 | 11 | 12),
        _ => kind < 128,
    }
}

/// Whether an ICMP error quotes the packet of a flow that the node routes for the pod.
#[inline(never)]
fn is_quote_of_known(packet: Packet, at: u32, protocol: u16, client: u32) -> u32 {
    let Some(quoted) = Tuple::read(packet, at as usize, protocol) else { return 0 };
    let mut key = FlowKey {
        backend: quoted.destination,
        client,
        client_port: quoted.source_port,
        backend_port: quoted.destination_port,
        protocol: quoted.protocol,
    };
    if quoted.fragment {
        key = fragments(&key);
    }
    u32::from(maps::connection(&key).is_some() || maps::has_flow(&key))
}

/// Hands a frame for a pod to the node.
#[inline(always)]
pub fn to_gateway(packet: Packet, network: u32, settings: &Settings) -> Verdict {
    let gateway = maps::local(network, settings.gateway_mac).ok_or(DropReason::NoSuchEndpoint)?;
    packet.put(0, settings.gateway_mac)?;
    packet.disown();
    count(Event::ServiceAnswer);
    Ok(redirect(gateway.ifindex))
}
