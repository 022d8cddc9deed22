//! ARP requests for addresses whose MAC follows from them are answered on the spot.

use bpf_common::{
    counters::Event,
    maps::{Endpoint, Mac, Settings},
};

use crate::{
    count::{UNDECIDED, count, verdict},
    frame::Frame,
    neighbour,
    packet::{Packet, Verdict, redirect},
};

const REQUEST: u16 = 1_u16.to_be();
const REPLY: u16 = 2_u16.to_be();

/// Answers the ARP packet of `frame`, if it is a request that the switch can answer; else undecided.
///
/// Announcements and probes for the endpoint's own address are meant for the others.
#[inline(never)]
pub fn answer(packet: Packet, frame: &Frame, endpoint: &Endpoint, settings: &Settings) -> i32 {
    try_answer(packet, frame, endpoint, settings).map_or(UNDECIDED, verdict)
}

#[inline(always)]
fn try_answer(packet: Packet, frame: &Frame, endpoint: &Endpoint, settings: &Settings) -> Option<Verdict> {
    let request = Request::read(packet, frame.network())?;
    if request.target == request.sender || request.target == endpoint.ip4 {
        return None;
    }
    let network = u32::from(endpoint.network);
    let neighbour = neighbour::by_ip4(network, request.target)?;
    match neighbour::answered_for(&neighbour, network, request.sender == 0, settings) {
        Ok(true) => Some(request.reply(packet, frame, neighbour.mac)),
        Ok(false) => None,
        Err(reason) => Some(Err(reason)),
    }
}

struct Request {
    sender_mac: Mac,
    sender: u32,
    target: u32,
}

impl Request {
    #[inline(always)]
    fn read(packet: Packet, at: usize) -> Option<Self> {
        let words: [u16; 14] = packet.get(at).ok()?;
        if words[3] != REQUEST {
            return None;
        }
        let sender = packet.get(at + 14).ok()?;
        let target = packet.get(at + 24).ok()?;
        Some(Self { sender_mac: [words[4], words[5], words[6]], sender, target })
    }

    /// Turns the request in place into the reply of `mac`. A priority tag stays as it is.
    #[inline(always)]
    fn reply(&self, packet: Packet, frame: &Frame, mac: Mac) -> Verdict {
        let at = frame.network();
        packet.put(0, [frame.source, mac])?;
        packet.put(at + 6, [REPLY, mac[0], mac[1], mac[2]])?;
        packet.put(at + 14, self.target)?;
        packet.put(at + 18, self.sender_mac)?;
        packet.put(at + 24, self.sender)?;
        count(Event::ArpAnswered);
        Ok(redirect(packet.ifindex()))
    }
}
