//! Hands a frame to a local endpoint.

use aya_ebpf::helpers::generated::bpf_redirect_peer;
use bpf_common::{
    counters::Event,
    maps::{FDB_PEER, FdbEntry},
};

use crate::{
    count::count,
    packet::{Packet, redirect},
};

/// Hands the frame over. `plain_ip` says that it is an untagged IP packet which the kernel knows as such: only those
/// may skip the link and appear at its far end directly, for nothing there looks at the Ethernet header again.
#[inline(always)]
pub fn deliver(packet: Packet, entry: &FdbEntry, plain_ip: bool) -> i32 {
    packet.disown();
    count(Event::Local);
    if plain_ip && entry.flags & FDB_PEER != 0 {
        // SAFETY: plain helper call.
        return unsafe { bpf_redirect_peer(entry.ifindex, 0) as i32 };
    }
    redirect(entry.ifindex)
}
