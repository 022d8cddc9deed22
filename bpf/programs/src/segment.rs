//! The way of super-packets: through the segmenter, for the kernel can neither segment nor merge next header 143.
//!
//! ```text
//! endpoint program --redirect--> hws0 ==(no segmentation offload: cut in software)==> hws1 --> segment program
//! ```
//! What the far end has to know travels in the packet's mark, which veth keeps within a namespace.
//!
//! Only super-packets take the detour. A rule that kept a flow on it for 50 ms after its last super-packet, so that no
//! small packet overtakes, was measured beside this one: no difference in reordering, for one more look-up a packet.

use bpf_common::counters::{DropReason, Event};

use crate::{
    count::count,
    encap::{self, Sender},
    flood,
    frame::Frame,
    maps, neighbour,
    packet::{Packet, Verdict, redirect},
};

const NETWORK: u32 = 0xffff;
/// The local copies have been made; the peers' are missing.
const FLOOD: u32 = 1 << 16;

/// Sends a unicast super-packet through the segmenter.
#[inline(always)]
pub fn hand_over(packet: Packet, network: u32) -> Verdict {
    through(packet, network)
}

/// Sends a super-packet that is to be flooded to the peers through the segmenter.
#[inline(always)]
pub fn hand_over_flood(packet: Packet, network: u32) -> Verdict {
    through(packet, network | FLOOD)
}

#[inline(always)]
fn through(packet: Packet, mark: u32) -> Verdict {
    let settings = maps::settings().ok_or(DropReason::Segmenter)?;
    packet.set_mark(mark);
    count(Event::Segmented);
    Ok(redirect(settings.segmenter_ifindex))
}

/// Sends what comes out of the segmenter to the peers.
#[inline(always)]
pub fn send(packet: Packet) -> Verdict {
    let (number, is_flood) = (packet.mark() & NETWORK, packet.mark() & FLOOD != 0);
    let network = maps::network(number).ok_or(DropReason::Segmenter)?;
    if packet.gso_size() != 0 {
        return Err(DropReason::Segmenter);
    }
    let frame = Frame::read(packet, 0)?;
    if is_flood {
        return flood::to_peers(packet, &frame, number, network);
    }
    let node = neighbour::node_by_mac(number, &frame.destination);
    if node == 0 {
        return Err(DropReason::UnknownUnicast);
    }
    encap::to_peer(packet, &frame, number, node, Sender::Segmenter)
}
