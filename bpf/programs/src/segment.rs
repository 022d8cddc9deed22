//! The way of super-packets: through the segmenter, for the kernel can neither segment nor merge next header 143.
//!
//! ```text
//! endpoint program --redirect--> hws0 ==(no segmentation offload: cut in software)==> hws1 --> segment program
//! ```
//! What the far end has to know travels in the packet's mark, which veth keeps within a namespace.
//!
//! The detour takes longer than the direct way, because hws1 receives from a queue. A small packet behind a super-packet of its
//! flow would overtake its segments, so it takes the detour too while they may still be under way.

use bpf_common::{
    counters::{DropReason, Event},
    names::SEGMENTED_SLOTS,
};

use crate::{
    bucket,
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

/// How long segments may wait in the queue, nanoseconds: a thousand packets (net.core.netdev_max_backlog) take far
/// less.
const UNDER_WAY: u64 = 50_000_000;

/// Whether a frame has to take the detour: a super-packet, or what would overtake one of its flow. Flows are told apart by as
/// many bits of their label as `SEGMENTED` has slots; one that shares a slot takes the detour needlessly.
#[inline(always)]
pub fn is_due(packet: Packet, label: u32) -> bool {
    let Some(last) = maps::segmented(label % SEGMENTED_SLOTS) else { return false };
    // SAFETY: a value of a map, alive until the program ends. It is read and written as a whole.
    let last = unsafe { &mut *last };
    if packet.gso_size() != 0 {
        *last = bucket::now();
        return true;
    }
    if *last == 0 {
        return false;
    }
    let under_way = bucket::now().saturating_sub(*last) < UNDER_WAY;
    if !under_way {
        *last = 0;
    }
    under_way
}

/// Sends a unicast frame through the segmenter.
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
