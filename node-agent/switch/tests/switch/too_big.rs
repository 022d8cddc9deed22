//! Packets that do not fit: who is told what, and what the switch learns from routers on the way.

use std::net::{Ipv4Addr, Ipv6Addr};

use agent_switch::Table as _;
use bpf_common::{
    counters::{DropReason, Event},
    maps::PathMtu,
};

use crate::{
    node::{Node, address4, address6, in_locator, mac},
    packets::{
        ICMP, ICMP6, IP4, IP6, Ip4, Ip6, MADE_UP, Mac, UDP, checksum, ethernet, icmp6, icmp6_checksum, ip6,
        tagged, udp,
    },
    root::need_root,
    tap::Tap,
    wire::{UNICAST, Wire},
    world::run,
};

const DONT_FRAGMENT: u16 = 0x4000;

fn packet4(source: Ipv4Addr, fragment: u16, len: usize) -> Vec<u8> {
    let header = Ip4 { source, destination: address4(2, 10), protocol: UDP, class: 0, fragment };
    header.packet(&udp((1, 2), &vec![5; len - 28]))
}

fn packet6(source: Ipv6Addr, len: usize) -> Vec<u8> {
    ip6(source, address6(2, 10), UDP, &udp((1, 2), &vec![5; len - 48]))
}

fn set_mtu(node: &mut Node, mtu: u32) {
    let mut peer = node.switch.nodes().list().unwrap()[&2];
    peer.mtu = mtu;
    node.switch.nodes().set(2, peer).unwrap();
}

/// What an answer must be: from whom, to whom, about what packet.
struct Answer<'a> {
    from: Mac,
    to: Mac,
    tags: &'a [(u16, u16)],
    packet: &'a [u8],
    mtu: u32,
}

impl Answer<'_> {
    /// Expects ICMP "fragmentation needed" from `teller`.
    fn expect4(&self, tap: &Tap, teller: Ipv4Addr) {
        let at = 14 + 4 * self.tags.len();
        let frame =
            tap.expect("fragmentation needed", |frame| frame.len() > at + 28 && frame[at + 9] == ICMP);
        let mut message = vec![3, 4, 0, 0, 0, 0];
        message.extend((self.mtu as u16).to_be_bytes());
        message.extend(&self.packet[..72]);
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let asker: [u8; 4] = self.packet[12..16].try_into().unwrap();
        let header = Ip4 { source: teller, destination: asker.into(), protocol: ICMP, class: 0, fragment: 0 };
        let mut wanted = header.packet(&message);
        wanted[4..6].copy_from_slice(&[0, 0]);
        wanted[10..12].copy_from_slice(&[0, 0]);
        let sum = checksum(&wanted[..20]);
        wanted[10..12].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(frame, tagged(self.to, self.from, self.tags, IP4, &wanted));
    }

    /// Expects ICMPv6 "packet too big" from `teller`.
    fn expect6(&self, tap: &Tap, teller: Ipv6Addr) {
        let at = 14 + 4 * self.tags.len();
        let frame = tap.expect("packet too big", |frame| frame.len() > at + 48 && frame[at + 6] == ICMP6);
        let mut message = vec![2, 0, 0, 0];
        message.extend(self.mtu.to_be_bytes());
        message.extend(&self.packet[..96]);
        let asker: [u8; 16] = self.packet[8..24].try_into().unwrap();
        let mut wanted = icmp6(teller, asker.into(), &message);
        assert_eq!(icmp6_checksum(teller, asker.into(), &frame[at + 40..]), 0);
        wanted[7] = 64;
        assert_eq!(frame, tagged(self.to, self.from, self.tags, IP6, &wanted));
    }
}

#[test]
fn a_pod_is_told_by_its_gateway() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let pod = node.add_pod(10);
    set_mtu(&mut node, 1300);
    let both = [(0x88a8, 3), (0x8100, 7)];
    for tags in [&both[..0], &both[1..], &both] {
        let limit = 1300 - 4 * tags.len();
        let answer = |packet| Answer { from: mac(1, 1), to: pod.mac(), tags, packet, mtu: limit as u32 };
        let fits4 = packet4(address4(1, 10), DONT_FRAGMENT, limit);
        let large4 = packet4(address4(1, 10), DONT_FRAGMENT, limit + 1);
        pod.tap.send(&tagged(mac(2, 10), pod.mac(), tags, IP4, &large4));
        answer(&large4).expect4(&pod.tap, address4(1, 1));
        let fits6 = packet6(address6(1, 10), limit);
        let large6 = packet6(address6(1, 10), limit + 1);
        pod.tap.send(&tagged(mac(2, 10), pod.mac(), tags, IP6, &large6));
        answer(&large6).expect6(&pod.tap, address6(1, 1));
        for (protocol, packet) in [(IP4, fits4), (IP6, fits6)] {
            let frame = tagged(mac(2, 10), pod.mac(), tags, protocol, &packet);
            pod.tap.send(&frame);
            assert_eq!(wire.expect("what fits", UNICAST)[54..], frame);
        }
    }
    assert_eq!(node.events(Event::TooBigSent), 6);
    assert_eq!(wire.tap.drain(), Vec::<Vec<u8>>::new());
}

#[test]
fn the_node_is_told_by_the_destination() {
    need_root!();
    let mut node = Node::new(1);
    let _wire = Wire::new(&mut node, 2);
    set_mtu(&mut node, 1300);
    let client = Ipv4Addr::new(192, 0, 2, 7);
    let packet = packet4(client, DONT_FRAGMENT, 1301);
    node.gateway.send(&ethernet(mac(2, 10), mac(1, 1), IP4, &packet));
    let answer = Answer { from: mac(2, 10), to: mac(1, 1), tags: &[], packet: &packet, mtu: 1300 };
    answer.expect4(&node.gateway, address4(2, 10));
    let packet = packet6("2001:db8::7".parse().unwrap(), 1301);
    node.gateway.send(&ethernet(mac(2, 10), mac(1, 1), IP6, &packet));
    let answer = Answer { from: mac(2, 10), to: mac(1, 1), tags: &[], packet: &packet, mtu: 1300 };
    answer.expect6(&node.gateway, address6(2, 10));
}

#[test]
fn who_cannot_be_told_loses_the_packet() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let pod = node.add_pod(10);
    set_mtu(&mut node, 1300);
    let own4 = address4(1, 10);
    let error4 = |kind| {
        let header = Ip4 {
            source: own4,
            destination: address4(2, 10),
            protocol: ICMP,
            class: 0,
            fragment: DONT_FRAGMENT,
        };
        header.packet(&[[kind, 0, 0, 0], [0; 4]].concat().repeat(170))
    };
    let error6 = icmp6(address6(1, 10), address6(2, 10), &[1, 0, 0, 0, 0, 0, 0, 0].repeat(170));
    let fragment = [[UDP, 0, 0, 9, 0, 0, 0, 1], [0; 8]].concat().repeat(85);
    let later6 = ip6(address6(1, 10), address6(2, 10), 44, &fragment);
    let unspecified = Ip6 {
        source: Ipv6Addr::UNSPECIFIED,
        destination: address6(2, 10),
        next_header: UDP,
        class: 0,
        hop_limit: 64,
    };
    for (what, protocol, packet) in [
        ("no DF", IP4, packet4(own4, 0, 1301)),
        ("a later fragment", IP4, packet4(own4, DONT_FRAGMENT | 5, 1301)),
        ("an ICMP error", IP4, error4(3)),
        ("an ICMP redirect", IP4, error4(5)),
        ("an ICMPv6 error", IP6, error6),
        ("a later IPv6 fragment", IP6, later6),
        ("no source", IP6, unspecified.packet(&[0; 1300])),
        ("not IP", MADE_UP, vec![0; 1301]),
    ] {
        let frame = ethernet(mac(2, 10), pod.mac(), protocol, &packet);
        assert_eq!(node.drop_by(what, || pod.tap.send(&frame)), DropReason::TooBig, "{what}");
    }
    // Stacks do not go below 1280 for IPv6: larger packets are answered with that, smaller ones are lost.
    set_mtu(&mut node, 1200);
    let frame = ethernet(mac(2, 10), pod.mac(), IP6, &packet6(address6(1, 10), 1280));
    assert_eq!(node.drop_by("IPv6 of 1280", || pod.tap.send(&frame)), DropReason::TooBig);
    let packet = packet6(address6(1, 10), 1281);
    pod.tap.send(&ethernet(mac(2, 10), pod.mac(), IP6, &packet));
    let answer = Answer { from: mac(1, 1), to: pod.mac(), tags: &[], packet: &packet, mtu: 1280 };
    answer.expect6(&pod.tap, address6(1, 1));
    // An echo request may be told about.
    pod.tap.send(&ethernet(mac(2, 10), pod.mac(), IP4, &error4(8)));
    let packet = error4(8);
    let answer = Answer { from: mac(1, 1), to: pod.mac(), tags: &[], packet: &packet, mtu: 1200 };
    answer.expect4(&pod.tap, address4(1, 1));
    assert_eq!(wire.tap.drain(), Vec::<Vec<u8>>::new());
}

/// A router's packet-too-big about a packet with these addresses and this next header.
fn from_router(wire: &Wire, mtu: u32, source: Ipv6Addr, destination: Ipv6Addr, next_header: u8) -> Vec<u8> {
    let mut message = vec![2, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend(ip6(source, destination, next_header, &[0; 100]));
    let router = "2001:db8::99".parse().unwrap();
    ethernet(wire.near, wire.far, IP6, &icmp6(router, in_locator(1, 0, 1), &message))
}

#[test]
fn path_mtus_are_learned_from_routers() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let pod = node.add_pod(10);
    let (own, sid) = (in_locator(1, 0, 1), in_locator(2, UNICAST, 0));
    let stack = Tap::new(&node.namespace, "ul0");
    let learned = |node: &Node| node.switch.path_mtus().unwrap().get(&2).map(|path| path.mtu);
    let hear = |frame: Vec<u8>| {
        wire.tap.send(&frame);
        stack.expect("the message, left to the stack", |arrived| arrived == frame);
        learned(&node)
    };
    for (what, frame) in [
        ("another's packet", from_router(&wire, 1300, in_locator(3, 0, 1), sid, 143)),
        ("to no SID", from_router(&wire, 1300, own, in_locator(2, 0, 1), 143)),
        ("to an unknown node", from_router(&wire, 1300, own, in_locator(9, UNICAST, 0), 143)),
        ("not an Ethernet frame", from_router(&wire, 1300, own, sid, 4)),
        ("nothing new", from_router(&wire, 1500, own, sid, 143)),
    ] {
        assert_eq!(hear(frame), None, "{what}");
    }
    for (told, held) in [(1400, 1400), (1450, 1400), (1354, 1354), (600, 1280), (1400, 1280)] {
        assert_eq!(hear(from_router(&wire, told, own, sid, 143)), Some(held), "told {told}");
    }
    let packet = packet4(address4(1, 10), DONT_FRAGMENT, 1280 - 54 + 1);
    pod.tap.send(&ethernet(mac(2, 10), pod.mac(), IP4, &packet));
    let answer = Answer { from: mac(1, 1), to: pod.mac(), tags: &[], packet: &packet, mtu: 1280 - 54 };
    answer.expect4(&pod.tap, address4(1, 1));
    assert_eq!(node.events(Event::PathMtuLearned), 3);
    // Long ago.
    expire(&node, PathMtu { expires: 1, mtu: 1280, pad: 0 });
    let frame = ethernet(mac(2, 10), pod.mac(), IP4, &packet);
    pod.tap.send(&frame);
    assert_eq!(wire.expect("what fits again", UNICAST)[54..], frame);
    wire.tap.send(&from_router(&wire, 1400, own, sid, 143));
    crate::world::wait_for("a new path MTU", || (learned(&node) == Some(1400)).then_some(()));
}

/// Writes the entry for node 2 with the kernel's own tool: the switch has no call for it.
fn expire(node: &Node, entry: PathMtu) {
    let map = node.dir.0.join(agent_switch::Layout::OWN.to_string().replace('.', "-")).join("PATH_MTUS");
    let mut arguments: Vec<String> =
        ["map", "update", "pinned", map.to_str().unwrap(), "key"].map(Into::into).into();
    let octets = |bytes: &[u8]| bytes.iter().map(ToString::to_string).collect::<Vec<_>>();
    arguments.extend(octets(&2_u32.to_ne_bytes()));
    arguments.push("value".into());
    arguments.extend(octets(&entry.expires.to_ne_bytes()));
    arguments.extend(octets(&entry.mtu.to_ne_bytes()));
    arguments.extend(octets(&entry.pad.to_ne_bytes()));
    run("bpftool", &arguments.iter().map(String::as_str).collect::<Vec<_>>());
}
