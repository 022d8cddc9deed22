//! Frames written and read by hand.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A MAC address.
pub type Mac = [u8; 6];
/// All stations.
pub const BROADCAST: Mac = [0xff; 6];

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// EtherType of ARP.
pub const ARP: u16 = 0x0806;
/// TPID of 802.1Q.
pub const VLAN: u16 = 0x8100;
/// TPID of 802.1ad.
pub const QINQ: u16 = 0x88a8;
/// A local experimental EtherType (IEEE 802).
pub const EXPERIMENTAL: u16 = 0x88b5;
/// Next header 143: Ethernet (RFC 8986 section 10.1).
pub const ETHERNET: u8 = 143;

/// Reads `aa:bb:cc:dd:ee:ff`.
///
/// # Panics
/// It is none.
#[must_use]
#[track_caller]
pub fn parse_mac(text: &str) -> Mac {
    let octets: Vec<u8> = text.split(':').filter_map(|part| u8::from_str_radix(part, 16).ok()).collect();
    octets.try_into().unwrap_or_else(|_| panic!("{text:?} is no MAC address"))
}

/// Multicast MAC of an IPv6 group (RFC 2464 section 7).
#[must_use]
pub fn multicast_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

/// Solicited-node group of an address (RFC 4291 section 2.7.1).
#[must_use]
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// Link-local address of a MAC (EUI-64, RFC 4291 appendix A).
#[must_use]
pub fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// An Ethernet frame; `kind` is the EtherType or the 802.3 length.
#[must_use]
pub fn ethernet(destination: Mac, source: Mac, kind: u16, payload: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &kind.to_be_bytes(), payload].concat()
}

/// The frame with a VLAN tag put in front of the others.
#[must_use]
pub fn tagged(frame: &[u8], tpid: u16, tci: u16) -> Vec<u8> {
    [&frame[..12], &tpid.to_be_bytes(), &tci.to_be_bytes(), &frame[12..]].concat()
}

/// An IPv4 packet with DF.
#[must_use]
pub fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let [length_high, length_low] = length(20 + payload.len());
    let mut header =
        [0x45, 0, length_high, length_low, 0, 0, 0x40, 0, 64, protocol, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[12..16].copy_from_slice(&source.octets());
    header[16..].copy_from_slice(&destination.octets());
    let sum = checksum(&[&header]).to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    [&header[..], payload].concat()
}

/// An IPv6 packet with hop limit 64.
#[must_use]
pub fn ipv6(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    ipv6_hops(source, destination, next_header, 64, payload)
}

/// An IPv6 packet.
#[must_use]
pub fn ipv6_hops(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    next_header: u8,
    hops: u8,
    payload: &[u8],
) -> Vec<u8> {
    let [length_high, length_low] = length(payload.len());
    let fixed = [0x60, 0, 0, 0, length_high, length_low, next_header, hops];
    [&fixed[..], &source.octets(), &destination.octets(), payload].concat()
}

/// A UDP datagram in an IP packet; both addresses are of one family.
///
/// # Panics
/// They are not.
#[must_use]
#[track_caller]
pub fn udp(source: IpAddr, destination: IpAddr, (from, to): (u16, u16), data: &[u8]) -> Vec<u8> {
    let size = length(8 + data.len());
    let mut datagram = [&from.to_be_bytes()[..], &to.to_be_bytes(), &size, &[0, 0], data].concat();
    let sum = transport_checksum(source, destination, 17, &datagram).to_be_bytes();
    datagram[6..8].copy_from_slice(&sum);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => ipv4(source, destination, 17, &datagram),
        (IpAddr::V6(source), IpAddr::V6(destination)) => ipv6(source, destination, 17, &datagram),
        _ => panic!("{source} and {destination} are of two families"),
    }
}

/// An ICMPv6 message in an IPv6 packet with hop limit 255; its checksum is filled in.
#[must_use]
pub fn icmpv6(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    message[2..4].fill(0);
    let sum = transport_checksum(source.into(), destination.into(), 58, &message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    ipv6_hops(source, destination, 58, 255, &message)
}

/// A neighbour solicitation (type 135) or advertisement (136) with a link-layer option, as ICMPv6 message.
#[must_use]
pub fn neighbour(kind: u8, flags: u8, target: Ipv6Addr, link_layer: Option<Mac>) -> Vec<u8> {
    let mut message = [&[kind, 0, 0, 0, flags, 0, 0, 0][..], &target.octets()].concat();
    if let Some(mac) = link_layer {
        message.extend([if kind == 135 { 1 } else { 2 }, 1]);
        message.extend(mac);
    }
    message
}

/// An ARP packet for Ethernet and IPv4 (RFC 826); operation 1: request, 2: reply.
#[must_use]
pub fn arp(operation: u8, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Vec<u8> {
    let fixed = [0, 1, 8, 0, 6, 4, 0, operation];
    [&fixed[..], &sender.0, &sender.1.octets(), &target.0, &target.1.octets()].concat()
}

/// EtherType of a frame, behind its VLAN tags; 0 if it is too short.
#[must_use]
pub fn ether_type(frame: &[u8]) -> u16 {
    let mut at = 12;
    loop {
        match frame.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]])) {
            Some(VLAN | QINQ) => at += 4,
            Some(kind) => return kind,
            None => return 0,
        }
    }
}

/// The inner frame of an untagged SRv6 frame in the standard form; `None` if it is none.
#[must_use]
pub fn inner(frame: &[u8]) -> Option<&[u8]> {
    let ours =
        ether_type(frame) == IPV6 && frame.get(20) == Some(&ETHERNET) && frame[38..42] == [0x5f, 0, 0, 1];
    ours.then(|| &frame[54..])
}

/// Is it ARP or neighbour discovery (ICMPv6 135, 136) without extension headers?
#[must_use]
pub fn is_resolution(frame: &[u8]) -> bool {
    match ether_type(frame) {
        ARP => true,
        IPV6 => frame.get(20) == Some(&58) && matches!(frame.get(54), Some(135 | 136)),
        _ => false,
    }
}

/// Bytes that differ from place to place, so that a shift or a swap shows.
#[must_use]
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 11) as u8).collect()
}

/// Internet checksum of the parts (RFC 1071); every part but the last has an even length.
#[must_use]
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum = words.fold(0_u32, |sum, word| {
        sum + u32::from(u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or_default()]))
    });
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) as u16 + (folded >> 16) as u16)
}

fn transport_checksum(source: IpAddr, destination: IpAddr, protocol: u8, segment: &[u8]) -> u16 {
    let addresses = [source, destination].map(|address| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    });
    let [high, low] = length(segment.len());
    let sum = checksum(&[&addresses[0], &addresses[1], &[high, low, 0, protocol], segment]);
    // 0 would mean "none" for UDP (RFC 768).
    if sum == 0 { 0xffff } else { sum }
}

fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).expect("the length fits 16 bits").to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_of_a_known_header_is_right() {
        let header =
            [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(checksum(&[&header]), 0xb861);
    }

    #[test]
    fn tags_go_in_front_and_are_looked_behind() {
        let plain = ethernet(BROADCAST, [2; 6], ARP, &[]);
        let twice = tagged(&tagged(&plain, VLAN, 7), QINQ, 8);
        assert_eq!(twice[12..20], [0x88, 0xa8, 0, 8, 0x81, 0, 0, 7]);
        assert_eq!(ether_type(&twice), ARP);
    }

    #[test]
    fn link_local_flips_the_universal_bit() {
        assert_eq!(link_local([0x0a, 0x58, 10, 1, 1, 5]).to_string(), "fe80::858:aff:fe01:105");
    }
}
