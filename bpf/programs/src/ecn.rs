//! Congestion marks of the outer header reach the inner packet (RFC 6040 section 4.2).
//!
//! | inner \ outer | Not-ECT | ECT(0) | ECT(1) | CE   |
//! |---------------|---------|--------|--------|------|
//! | Not-ECT       | Not-ECT | Not-ECT| Not-ECT| drop |
//! | ECT(0)        | ECT(0)  | ECT(0) | ECT(1) | CE   |
//! | ECT(1)        | ECT(1)  | ECT(1) | ECT(1) | CE   |
//! | CE            | CE      | CE     | CE     | CE   |

use aya_ebpf::bindings::BPF_F_RECOMPUTE_CSUM;
use bpf_common::counters::DropReason;

use crate::{
    frame::{Frame, IP4, IP6},
    packet::Packet,
};

const NOT_ECT: u16 = 0;
const ECT_1: u16 = 1;
const ECT_0: u16 = 2;
const CE: u16 = 3;

/// Marks the inner packet of `frame` as the outer traffic class demands.
#[inline(always)]
pub fn propagate(packet: Packet, frame: &Frame, outer_class: u32) -> Result<(), DropReason> {
    let outer = outer_class as u16 & 3;
    if outer == NOT_ECT || outer == ECT_0 {
        return Ok(());
    }
    match frame.protocol {
        IP4 => ip4(packet, frame.network(), outer),
        IP6 => ip6(packet, frame.network(), outer),
        _ => combined(NOT_ECT, outer).map(|_| ()),
    }
}

#[inline(always)]
fn combined(inner: u16, outer: u16) -> Result<u16, DropReason> {
    match (inner, outer) {
        (NOT_ECT, CE) => Err(DropReason::Ecn),
        (ECT_0 | ECT_1, CE) => Ok(CE),
        (ECT_0, ECT_1) => Ok(ECT_1),
        _ => Ok(inner),
    }
}

#[inline(always)]
fn ip4(packet: Packet, at: usize, outer: u16) -> Result<(), DropReason> {
    let old = u16::from_be(packet.get(at)?);
    let new = old & !3 | combined(old & 3, outer)?;
    let sum = u16::from_be(packet.get(at + 10)?);
    // RFC 1624: HC' = ~(~HC + ~m + m').
    let sum = u32::from(!sum) + u32::from(!old) + u32::from(new);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet.put(at, new.to_be())?;
    packet.put(at + 10, sum.to_be())
}

/// Nothing in an IPv6 header balances the change, so a checksum over the packet, if the kernel has one, must follow.
#[inline(always)]
fn ip6(packet: Packet, at: usize, outer: u16) -> Result<(), DropReason> {
    let old = u16::from_be(packet.get(at)?);
    let new = old & !0x30 | combined(old >> 4 & 3, outer)? << 4;
    packet.store(at, &new.to_be(), u64::from(BPF_F_RECOMPUTE_CSUM))
}
