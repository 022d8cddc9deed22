//! Frames made by hand.

use std::net::{Ipv4Addr, Ipv6Addr};

pub type Mac = [u8; 6];

pub const BROADCAST: Mac = [0xff; 6];
pub const IP4: u16 = 0x0800;
pub const IP6: u16 = 0x86dd;
pub const ARP: u16 = 0x0806;
pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMP6: u8 = 58;
/// An EtherType that nobody uses (IEEE 802 local experimental).
pub const MADE_UP: u16 = 0x88b5;

pub fn ethernet(destination: Mac, source: Mac, protocol: u16, payload: &[u8]) -> Vec<u8> {
    tagged(destination, source, &[], protocol, payload)
}

/// Tags are (EtherType, TCI), outermost first.
pub fn tagged(destination: Mac, source: Mac, tags: &[(u16, u16)], protocol: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [destination, source].concat();
    for (kind, control) in tags {
        frame.extend(kind.to_be_bytes());
        frame.extend(control.to_be_bytes());
    }
    frame.extend(protocol.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The Internet checksum.
pub fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// An IPv4 header as tests change it.
pub struct Ip4 {
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    pub protocol: u8,
    pub class: u8,
    /// Flags and fragment offset.
    pub fragment: u16,
}

impl Ip4 {
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let mut header = vec![0x45, self.class];
        header.extend((20 + payload.len() as u16).to_be_bytes());
        header.extend([0, 1]);
        header.extend(self.fragment.to_be_bytes());
        header.extend([64, self.protocol, 0, 0]);
        header.extend(self.source.octets());
        header.extend(self.destination.octets());
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        [&header, payload].concat()
    }
}

pub fn ip4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    Ip4 { source, destination, protocol, class: 0, fragment: 0x4000 }.packet(payload)
}

/// An IPv6 header as tests change it.
pub struct Ip6 {
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub next_header: u8,
    pub class: u8,
    pub hop_limit: u8,
}

impl Ip6 {
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let mut packet = (6 << 28 | u32::from(self.class) << 20).to_be_bytes().to_vec();
        packet.extend((payload.len() as u16).to_be_bytes());
        packet.extend([self.next_header, self.hop_limit]);
        packet.extend(self.source.octets());
        packet.extend(self.destination.octets());
        packet.extend(payload);
        packet
    }
}

pub fn ip6(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    Ip6 { source, destination, next_header, class: 0, hop_limit: 255 }.packet(payload)
}

pub fn udp(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut packet = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    packet.extend((8 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// A TCP segment without payload and checksum.
pub fn tcp(ports: (u16, u16), flags: u8) -> Vec<u8> {
    let ports = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    [ports.as_slice(), &[0, 0, 0, 1, 0, 0, 0, 1, 5 << 4, flags, 0, 100, 0, 0, 0, 0]].concat()
}

/// An ICMPv6 packet with its checksum.
pub fn icmp6(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    let sum = icmp6_checksum(source, destination, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    ip6(source, destination, ICMP6, &message)
}

/// The checksum of an ICMPv6 message; 0 if it holds the right one already.
pub fn icmp6_checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    let mut pseudo = [source.octets(), destination.octets()].concat();
    pseudo.extend((message.len() as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, ICMP6]);
    pseudo.extend(message);
    checksum(&pseudo)
}

pub struct Arp {
    pub operation: u16,
    pub sender_mac: Mac,
    pub sender: Ipv4Addr,
    pub target_mac: Mac,
    pub target: Ipv4Addr,
}

impl Arp {
    pub fn packet(&self) -> Vec<u8> {
        let mut packet = vec![0, 1, 8, 0, 6, 4];
        packet.extend(self.operation.to_be_bytes());
        packet.extend(self.sender_mac);
        packet.extend(self.sender.octets());
        packet.extend(self.target_mac);
        packet.extend(self.target.octets());
        packet
    }
}

/// A neighbour discovery message: type, the word behind the checksum, target, options.
pub fn discovery(kind: u8, flags: u32, target: Ipv6Addr, options: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend(flags.to_be_bytes());
    message.extend(target.octets());
    message.extend(options);
    message
}

/// A link-layer address option: 1 is the source's, 2 the target's.
pub fn link_layer(kind: u8, mac: Mac) -> Vec<u8> {
    [&[kind, 1], mac.as_slice()].concat()
}

/// The group to which solicitations for `target` go, and its MAC.
pub fn solicited_node(target: Ipv6Addr) -> (Ipv6Addr, Mac) {
    let [.., a, b, c] = target.octets();
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
    (group, [0x33, 0x33, 0xff, a, b, c])
}
