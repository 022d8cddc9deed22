//! Packets that do not fit on the way to a peer: the sender is told, as a router would tell it.

use bpf_common::{
    counters::{DropReason, Event},
    maps::{Ip6, Mac, Settings},
};

use crate::{
    count::{count, verdict},
    encap::Sender,
    extension::{ICMP, ICMP6, Upper},
    frame::{Frame, IP4, IP6, IP6_HEADER},
    maps,
    packet::{Packet, Verdict, checksum, partial_sum, redirect, word},
    path_mtu::{self, IP6_MINIMUM},
};

const IP4_HEADER: usize = 20;
/// An ICMP error's own header, in both families.
const ERROR_HEADER: usize = 8;
const DONT_FRAGMENT: u16 = 0x4000_u16.to_be();
const FRAGMENT_OFFSET: u16 = 0x1fff_u16.to_be();
const TTL: u32 = 64;

/// An error quotes the beginning of the packet, in pieces that are no longer than the way they move down: 3 * 24 bytes
/// for IPv4, the longest header and 8 bytes more (RFC 792); 2 * 48 bytes for IPv6, which leaves room for extension
/// headers.
const PIECES4: usize = 3;
const PIECE4: usize = 6;
const PIECES6: usize = 2;
const PIECE6: usize = 12;

/// Tells the sender of the frame that packets may have `mtu` bytes, in place of the frame; drops the frame if that is
/// not possible.
///
/// A pod is told by the gateway of its node. The node's own stack would take that for a martian, so there the
/// destination tells.
#[inline(always)]
pub fn answer(packet: Packet, frame: &Frame, mtu: u32, sender: Sender) -> i32 {
    match frame.protocol {
        IP4 if sender != Sender::Segmenter => answer4(packet, frame, mtu, sender),
        IP6 if sender != Sender::Segmenter => answer6(packet, frame, mtu, sender),
        _ => verdict(Err(DropReason::TooBig)),
    }
}

#[inline(never)]
fn answer4(packet: Packet, frame: &Frame, mtu: u32, sender: Sender) -> i32 {
    verdict(fragmentation_needed(packet, frame, mtu, sender == Sender::Gateway))
}

#[inline(never)]
fn answer6(packet: Packet, frame: &Frame, mtu: u32, sender: Sender) -> i32 {
    verdict(packet_too_big(packet, frame, mtu, sender == Sender::Gateway))
}

/// ICMP type 3 code 4 (RFC 1191), within the bounds of RFC 1122 section 3.2.2.
#[inline(always)]
fn fragmentation_needed(packet: Packet, frame: &Frame, mtu: u32, to_gateway: bool) -> Verdict {
    let settings = maps::settings().ok_or(DropReason::TooBig)?;
    let at = frame.network();
    let fragment: u16 = packet.get(at + 6)?;
    let [source, destination] = packet.get::<[u32; 2]>(at + 12)?;
    let unanswerable = fragment & DONT_FRAGMENT == 0 || fragment & FRAGMENT_OFFSET != 0;
    if unanswerable || !is_host4(source) || !is_host4(destination) || is_icmp_error(packet, frame)? {
        return Err(DropReason::TooBig);
    }
    let teller = if to_gateway || settings.gateway4 == 0 { destination } else { settings.gateway4 };
    let total = IP4_HEADER + ERROR_HEADER + 4 * PIECE4 * PIECES4;
    packet.change_tail((at + total) as u32)?;
    let sum = move_down::<PIECE4, PIECES4>(packet, at, IP4_HEADER + ERROR_HEADER)?;
    let mut error = [0x0304_0000_u32.to_be(), (mtu & 0xffff).to_be()];
    let sum = checksum(&mut error, sum);
    error[0] |= word(0, sum);
    packet.store(at + IP4_HEADER, &error, 0)?;
    let mut header =
        [(0x4500_0000 | total as u32).to_be(), 0, (TTL << 24 | ICMP << 16).to_be(), teller, source];
    let sum = checksum(&mut header, 0);
    header[2] |= word(0, sum);
    packet.store(at, &header, 0)?;
    send_back(packet, frame, to_gateway, settings)
}

/// ICMPv6 type 2 (RFC 4443 section 3.2), within the bounds of its section 2.4.
#[inline(always)]
fn packet_too_big(packet: Packet, frame: &Frame, mtu: u32, to_gateway: bool) -> Verdict {
    let settings = maps::settings().ok_or(DropReason::TooBig)?;
    let at = frame.network();
    let [source, destination] = packet.get::<[Ip6; 2]>(at + 8)?;
    // Stacks ignore less than the minimum, and cannot send less.
    let small = path_mtu::size(packet, frame) <= IP6_MINIMUM;
    if small || !is_host6(&source) || !is_host6(&destination) || is_icmp6_error(packet, frame)? {
        return Err(DropReason::TooBig);
    }
    let teller = if to_gateway || settings.gateway6[0] == 0 { destination } else { settings.gateway6 };
    let len = ERROR_HEADER + 4 * PIECE6 * PIECES6;
    packet.change_tail((at + IP6_HEADER + len) as u32)?;
    let sum = move_down::<PIECE6, PIECES6>(packet, at, IP6_HEADER + ERROR_HEADER)?;
    let mut addresses = [teller, source];
    let sum = partial_sum(addresses.as_flattened_mut(), sum);
    // In the checksum the length and the next header count as words of their own (RFC 8200 section 8.1).
    let mut pseudo = [(len as u32).to_be(), ICMP6.to_be()];
    let sum = partial_sum(&mut pseudo, sum);
    let mut error = [0x0200_0000_u32.to_be(), mtu.max(IP6_MINIMUM).to_be()];
    let sum = checksum(&mut error, sum);
    error[0] |= word(0, sum);
    packet.store(at + IP6_HEADER, &error, 0)?;
    packet.store(at + 8, &addresses, 0)?;
    let start = [0x6000_0000_u32.to_be(), ((len as u32) << 16 | ICMP6 << 8 | TTL).to_be()];
    packet.store(at, &start, 0)?;
    send_back(packet, frame, to_gateway, settings)
}

/// Moves the beginning of the network packet `way` bytes down, last piece first; its sum.
#[inline(always)]
fn move_down<const PIECE: usize, const PIECES: usize>(
    packet: Packet,
    at: usize,
    way: usize,
) -> Result<u32, DropReason> {
    let mut sum = 0;
    for piece in (0..PIECES).rev() {
        let from = at + 4 * PIECE * piece;
        let mut words = [0_u32; PIECE];
        packet.load(from, &mut words)?;
        sum = partial_sum(&mut words, sum);
        packet.store(from + way, &words, 0)?;
    }
    Ok(sum)
}

#[inline(always)]
fn send_back(packet: Packet, frame: &Frame, to_gateway: bool, settings: &Settings) -> Verdict {
    // The node's own stack also sends for its pods, from their MACs.
    let (asker, teller): (Mac, Mac) = if to_gateway {
        (settings.gateway_mac, frame.destination)
    } else {
        (frame.source, settings.gateway_mac)
    };
    packet.pull(12)?;
    packet.put(0, [asker, teller])?;
    packet.disown();
    count(Event::TooBigSent);
    Ok(redirect(packet.ifindex()))
}

#[inline(always)]
fn is_host4(ip: u32) -> bool {
    let first = u32::from_be(ip) >> 24;
    first != 0 && first < 224
}

#[inline(always)]
fn is_host6(ip: &Ip6) -> bool {
    ip[0] & 0xff00_0000_u32.to_be() != 0xff00_0000_u32.to_be() && ip[0] | ip[1] | ip[2] | ip[3] != 0
}

#[inline(always)]
fn is_icmp_error(packet: Packet, frame: &Frame) -> Result<bool, DropReason> {
    let (protocol, offset) = frame.upper(packet)?;
    let mut kind = 0_u8;
    if protocol == ICMP {
        packet.load(offset, &mut kind)?;
    }
    Ok(matches!(kind, 3 | 4 | 5 | 11 | 12))
}

#[inline(always)]
fn is_icmp6_error(packet: Packet, frame: &Frame) -> Result<bool, DropReason> {
    let upper = Upper::find(packet, frame.network())?;
    if upper.later_fragment {
        return Ok(true);
    }
    let mut kind = u8::MAX;
    if upper.protocol == ICMP6 {
        packet.load(upper.offset, &mut kind)?;
    }
    Ok(kind < 128)
}
