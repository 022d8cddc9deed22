//! Takes a frame out of its outer header (End.DT2U and End.DT2M, RFC 8986 sections 4.11 and 4.12).

use aya_ebpf::bindings::{
    BPF_F_ADJ_ROOM_DECAP_L3_IPV4, BPF_F_ADJ_ROOM_DECAP_L3_IPV6, BPF_F_ADJ_ROOM_FIXED_GSO,
    BPF_F_ADJ_ROOM_NO_CSUM_RESET,
};
use bpf_common::counters::DropReason;

use crate::{
    encap::OUTER,
    frame::{ETHERNET, Frame, Header, IP4, IP6, IP6_HEADER},
    packet::Packet,
};

/// The kernel wants at least an IPv4 header to remain.
const LEAST: usize = 20;

/// Takes the outer header off. Whether the kernel knows the rest as what it is, an untagged IP packet.
///
/// The outer header has no checksum, so what is known about the inner one stays true (NO_CSUM_RESET).
#[inline(always)]
pub fn decapsulate(packet: Packet, frame: &mut Frame) -> Result<bool, DropReason> {
    let len = packet.len() as usize;
    let behind = len - OUTER - ETHERNET;
    let untagged = frame.tags == 0;
    let ip6 = untagged && frame.protocol == IP6 && behind >= IP6_HEADER;
    let ip4 = untagged && frame.protocol == IP4 && behind >= LEAST;
    if behind < LEAST {
        packet.change_tail((OUTER + ETHERNET + LEAST) as u32)?;
        packet.pull(OUTER + ETHERNET)?;
    }
    let header: Header = packet.get(OUTER)?;
    let family = if ip6 { BPF_F_ADJ_ROOM_DECAP_L3_IPV6 } else { BPF_F_ADJ_ROOM_DECAP_L3_IPV4 };
    let flags = family | BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET;
    packet.adjust_room(-(OUTER as i32), u64::from(flags))?;
    packet.put(0, header)?;
    if behind < LEAST {
        packet.change_tail((ETHERNET + behind) as u32)?;
    }
    frame.moved_up(OUTER);
    Ok(ip4 || ip6)
}
