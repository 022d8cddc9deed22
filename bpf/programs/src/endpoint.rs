//! Switches what an endpoint sends. The order of the questions is part of the design.

use aya_ebpf::bindings::tcx_action_base::{TCX_DROP, TCX_NEXT};
use bpf_common::{
    counters::DropReason,
    maps::{ENDPOINT_GATEWAY, Endpoint, Settings},
};

use crate::{
    allowed::{self, Icmp6, NEIGHBOUR_SOLICITATION},
    arp,
    count::UNDECIDED,
    deliver::deliver,
    encap::{self, Sender},
    flood,
    frame::{ARP, Frame},
    maps, nd, neighbour,
    packet::{Packet, Verdict},
    services,
};

/// Switches the frame.
#[inline(always)]
pub fn switch(packet: Packet) -> Verdict {
    let ifindex = packet.ifindex();
    let (Some(endpoint), Some(settings)) = (maps::endpoint(ifindex), maps::settings()) else {
        return Ok(TCX_NEXT);
    };
    let mut frame = Frame::read(packet, 0)?;
    let Some(message) = allowed::check(packet, &frame, endpoint, settings) else { return Ok(TCX_DROP) };
    let answered = answer(packet, &frame, message, endpoint, settings);
    if answered != UNDECIDED {
        return Ok(answered);
    }
    let network = u32::from(endpoint.network);
    if !frame.is_to_group() {
        let sender = sender(endpoint);
        if sender == Sender::Gateway {
            services::remember(packet, &mut frame, network, settings);
        } else {
            services::goes_straight(packet, &frame, endpoint);
        }
        if let Some(entry) = maps::local(network, frame.destination) {
            if sender == Sender::Pod && services::is_answer(packet, &frame, entry) {
                return services::to_gateway(packet, network, settings);
            }
            return Ok(deliver(packet, entry, frame.is_ip() && frame.tags == 0));
        }
        let node = neighbour::node_by_mac(network, &frame.destination);
        if node == settings.node {
            return Err(DropReason::NoSuchEndpoint);
        }
        if node != 0 {
            return encap::to_peer(packet, &frame, network, node, sender);
        }
    }
    Ok(flood::from_endpoint(packet, &frame, message, network))
}

/// Questions that the switch answers itself. In a VLAN it knows no addresses.
#[inline(always)]
fn answer(packet: Packet, frame: &Frame, message: Icmp6, endpoint: &Endpoint, settings: &Settings) -> i32 {
    if frame.vlan {
        return UNDECIDED;
    }
    if frame.protocol == ARP {
        return arp::answer(packet, frame, endpoint, settings);
    }
    if message.kind() == NEIGHBOUR_SOLICITATION {
        return nd::answer(packet, frame, message, endpoint, settings);
    }
    UNDECIDED
}

#[inline(always)]
fn sender(endpoint: &Endpoint) -> Sender {
    if endpoint.flags & ENDPOINT_GATEWAY != 0 { Sender::Gateway } else { Sender::Pod }
}
