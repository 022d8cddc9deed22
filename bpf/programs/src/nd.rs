//! Neighbour solicitations (RFC 4861) for addresses whose MAC follows from them are answered on the spot.

use bpf_common::{
    counters::Event,
    maps::{Endpoint, Ip6, Mac, Settings},
};

use crate::{
    allowed::{Icmp6, NEIGHBOUR_ADVERTISEMENT, is_own},
    count::{UNDECIDED, count, verdict},
    extension::ICMP6,
    frame::{Frame, IP6_HEADER, same_ip6},
    neighbour,
    packet::{Packet, Verdict, checksum, redirect, word},
};

const ALL_NODES: Ip6 = [0xff02_0000_u32.to_be(), 0, 0, 1_u32.to_be()];
const ALL_NODES_MAC: Mac = [0x3333, 0, 1_u16.to_be()];
const SOLICITED: u32 = 0x4000_0000;
const OVERRIDE: u32 = 0x2000_0000;
/// Header, target and one link-layer option.
const ADVERTISEMENT: usize = 32;
const TARGET_LINK_LAYER: u16 = 0x0201_u16.to_be();
const HOP_LIMIT: u8 = 255;

/// Answers the message of `frame`, if it is a solicitation that the switch can answer; else undecided.
#[inline(never)]
pub fn answer(
    packet: Packet,
    frame: &Frame,
    message: Icmp6,
    endpoint: &Endpoint,
    settings: &Settings,
) -> i32 {
    try_answer(packet, frame, message, endpoint, settings).map_or(UNDECIDED, verdict)
}

#[inline(always)]
fn try_answer(
    packet: Packet,
    frame: &Frame,
    message: Icmp6,
    endpoint: &Endpoint,
    settings: &Settings,
) -> Option<Verdict> {
    let at = frame.network() + IP6_HEADER;
    // Behind extension headers it is not what a stack sends: let the owner see it.
    if message.offset() != at {
        return None;
    }
    let hop_limit: u8 = packet.get(frame.network() + 7).ok()?;
    let asker: Ip6 = packet.get(frame.network() + 8).ok()?;
    let mut target: Ip6 = [0; 4];
    packet.load(at + 8, &mut target).ok()?;
    if hop_limit != HOP_LIMIT || is_own(&target, endpoint) || same_ip6(&asker, &target) {
        return None;
    }
    let network = u32::from(endpoint.network);
    let neighbour = neighbour::by_ip6(network, &target)?;
    let probe = same_ip6(&asker, &[0; 4]);
    match neighbour::answered_for(&neighbour, network, probe, settings) {
        Ok(true) => Some(advertise(packet, frame, &target, &asker, &neighbour.mac)),
        Ok(false) => None,
        Err(reason) => Some(Err(reason)),
    }
}

/// Turns the solicitation in place into the advertisement of `mac` for `target`. The answer to a probe goes to all
/// nodes and is not a solicited one (RFC 4861 section 7.2.4).
#[inline(always)]
fn advertise(packet: Packet, frame: &Frame, target: &Ip6, asker: &Ip6, mac: &Mac) -> Verdict {
    let at = frame.network();
    let len = at + IP6_HEADER + ADVERTISEMENT;
    packet.change_tail(len as u32)?;
    packet.pull(len)?;
    let probe = same_ip6(asker, &[0; 4]);
    let (to, to_mac) = if probe { (ALL_NODES, ALL_NODES_MAC) } else { (*asker, frame.source) };
    let flags = if probe { OVERRIDE } else { SOLICITED | OVERRIDE };
    let option = [TARGET_LINK_LAYER, mac[0], mac[1], mac[2]];
    let mut sum = [
        target[0],
        target[1],
        target[2],
        target[3],
        to[0],
        to[1],
        to[2],
        to[3],
        (ADVERTISEMENT as u32).to_be(),
        ICMP6.to_be(),
        // The message, its checksum still zero.
        (NEIGHBOUR_ADVERTISEMENT << 24).to_be(),
        flags.to_be(),
        target[0],
        target[1],
        target[2],
        target[3],
        word(option[0], option[1]),
        word(option[2], option[3]),
    ];
    let checksum = checksum(&mut sum, 0);
    packet.put(0, [to_mac, *mac])?;
    packet.put(at + 4, [(ADVERTISEMENT as u16).to_be(), ((ICMP6 as u16) << 8 | HOP_LIMIT as u16).to_be()])?;
    packet.put(at + 8, [*target, to])?;
    let message = at + IP6_HEADER;
    packet.put(message, [(NEIGHBOUR_ADVERTISEMENT as u16) << 8, 0].map(u16::to_be))?;
    packet.put(message + 2, checksum)?;
    packet.put(message + 4, flags.to_be())?;
    packet.put(message + 8, *target)?;
    packet.put(message + 24, option)?;
    count(Event::NdAnswered);
    Ok(redirect(packet.ifindex()))
}
