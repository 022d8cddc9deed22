//! What arrives on an uplink: carried on if all is right, dropped by reason if not, left alone if it is not ours.

use bpf_common::counters::{DropReason, Event};

use crate::{
    node::{Node, address4, address6, in_locator, mac},
    packets::{BROADCAST, ICMP6, IP4, IP6, Ip6, MADE_UP, UDP, ethernet, icmp6, ip4, ip6, tagged, udp},
    root::need_root,
    tap::Tap,
    wire::{FLOOD, UNICAST, Wire},
    world::wait_for,
};

/// A frame of a pod on node 2 to pod 10 on node 1.
fn inner() -> Vec<u8> {
    let packet = ip4(address4(2, 10), address4(1, 10), UDP, &udp((1, 2), b"hello"));
    ethernet(mac(1, 10), mac(2, 10), IP4, &packet)
}

fn from(source: [u8; 6]) -> Vec<u8> {
    let mut frame = inner();
    frame[6..12].copy_from_slice(&source);
    frame
}

/// Frames with something wrong in the outer header, and with what.
fn wrong_outside(wire: &Wire) -> Vec<(&'static str, DropReason, Vec<u8>)> {
    use DropReason::{Malformed, OuterHeader, OuterSource, Truncated, UnknownSid};
    let with = |change: &dyn Fn(&mut Ip6)| {
        let mut header = wire.header(UNICAST);
        change(&mut header);
        wire.outer(&header, &inner())
    };
    let source = |address| with(&move |header: &mut Ip6| header.source = address);
    let to = |function, low| with(&move |header: &mut Ip6| header.destination = in_locator(1, function, low));
    let mut short = wire.sent_by_peer(UNICAST, &inner());
    short.truncate(short.len() - 1);
    let segments =
        [&[143, 2, 4, 0, 0, 0, 0, 0], in_locator(1, UNICAST, 0).octets().as_slice(), &inner()].concat();
    vec![
        ("behaviour 2", UnknownSid, to(0xe006, 0)),
        ("network 2", UnknownSid, to(0xe008, 0)),
        ("network 0", UnknownSid, to(0xe000, 0)),
        ("no function", UnknownSid, to(0, 0)),
        ("function and low bits", UnknownSid, to(UNICAST, 1)),
        ("low bits without function", UnknownSid, to(0, 2)),
        ("a source outside the block", OuterSource, source("2001:db8::1".parse().unwrap())),
        ("a SID as source", OuterSource, source(in_locator(2, UNICAST, 0))),
        ("this node as source", OuterSource, source(in_locator(1, 0, 1))),
        ("an unknown node as source", OuterSource, source(in_locator(9, 0, 1))),
        ("another host of the locator", OuterSource, source(in_locator(2, 0, 2))),
        ("IPv4 inside", OuterHeader, with(&|header| header.next_header = 4)),
        ("options", OuterHeader, with(&|header| header.next_header = 60)),
        ("a routing header", OuterHeader, {
            let mut header = wire.header(UNICAST);
            header.next_header = 43;
            wire.outer(&header, &segments)
        }),
        ("a byte missing", Truncated, short),
        ("less than an Ethernet header", Malformed, wire.sent_by_peer(UNICAST, &inner()[..13])),
        ("nothing inside", Malformed, wire.sent_by_peer(UNICAST, &[])),
    ]
}

/// Frames with something wrong inside, and with what.
fn wrong_inside() -> Vec<(&'static str, DropReason, Vec<u8>)> {
    use DropReason::{InnerSource, Malformed, Nested, TooManyTags};
    let nested = ip6(address6(2, 10), in_locator(2, UNICAST, 0), UDP, &udp((1, 2), b"x"));
    let to = |protocol, packet: &[u8]| ethernet(mac(1, 10), mac(2, 10), protocol, packet);
    let tags = |tags: &[(u16, u16)]| tagged(mac(1, 10), mac(2, 10), tags, IP6, &nested);
    vec![
        ("another node's pod", InnerSource, from(mac(3, 10))),
        ("a pod of this node", InnerSource, from(mac(1, 11))),
        ("a foreign MAC", InnerSource, from([2, 0, 0, 0, 0, 1])),
        ("a group as source", InnerSource, from(BROADCAST)),
        ("another node of an IPv6 cluster", InnerSource, from([0x0a, 0x59, 0, 3, 0, 10])),
        ("to the block", Nested, to(IP6, &nested)),
        ("to the block behind a priority tag", Nested, tags(&[(0x8100, 0xe000)])),
        ("three tags", TooManyTags, tags(&[(0x88a8, 1), (0x8100, 2), (0x8100, 3)])),
        ("half an IPv6 header", Malformed, to(IP6, &nested[..20])),
        ("half a tag", Malformed, to(0x8100, &[1])),
    ]
}

#[test]
fn wrong_packets_are_dropped_by_reason() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let pod = node.add_pod(10);
    for (what, wanted, frame) in wrong_outside(&wire) {
        assert_eq!(node.drop_by(what, || wire.tap.send(&frame)), wanted, "{what}");
    }
    for (what, wanted, inner) in wrong_inside() {
        for function in [UNICAST, FLOOD] {
            let frame = wire.sent_by_peer(function, &inner);
            assert_eq!(node.drop_by(what, || wire.tap.send(&frame)), wanted, "{what}");
        }
    }
    assert_eq!(pod.tap.drain(), Vec::<Vec<u8>>::new());
}

#[test]
fn right_packets_are_switched() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let (pod, other) = (node.add_pod(10), node.add_pod(11));
    // By destination; Ethernet padding behind the outer packet goes.
    let padded = [wire.sent_by_peer(UNICAST, &inner()), vec![0; 9]].concat();
    for frame in [wire.sent_by_peer(UNICAST, &inner()), wire.sent_by_peer(FLOOD, &inner()), padded] {
        wire.tap.send(&frame);
        pod.tap.expect("the inner frame", |arrived| arrived == inner());
    }
    // In a VLAN addresses mean what they mean there.
    let nested = ip6(address6(2, 10), in_locator(2, UNICAST, 0), UDP, &udp((1, 2), b"x"));
    let vlan = tagged(mac(1, 10), mac(2, 10), &[(0x8100, 5)], IP6, &nested);
    wire.tap.send(&wire.sent_by_peer(UNICAST, &vlan));
    pod.tap.expect("a frame in a VLAN", |arrived| arrived == vlan);
    // As small as can be.
    let empty = ethernet(mac(1, 10), mac(2, 10), MADE_UP, &[]);
    wire.tap.send(&wire.sent_by_peer(UNICAST, &empty));
    pod.tap.expect("a frame without payload", |arrived| arrived == empty);
    let to_gateway = ethernet(mac(1, 1), mac(2, 10), IP4, &inner()[14..]);
    wire.tap.send(&wire.sent_by_peer(UNICAST, &to_gateway));
    node.gateway.expect("a frame to the node", |arrived| arrived == to_gateway);
    let to_all = ethernet(BROADCAST, mac(2, 10), MADE_UP, &[4; 46]);
    wire.tap.send(&wire.sent_by_peer(FLOOD, &to_all));
    for tap in [&pod.tap, &other.tap, &node.gateway] {
        tap.expect("a flooded frame", |arrived| arrived == to_all);
    }
    // Never from an uplink to an uplink.
    assert_eq!(wire.tap.drain(), Vec::<Vec<u8>>::new());
    assert_eq!(other.tap.drain(), Vec::<Vec<u8>>::new());
    assert_eq!(node.events(Event::Decapsulated), 7);
}

#[test]
fn destinations_that_nobody_has_are_dropped() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let unicast = |to| wire.sent_by_peer(UNICAST, &ethernet(to, mac(2, 10), MADE_UP, &[0; 46]));
    let flood = |to| wire.sent_by_peer(FLOOD, &ethernet(to, mac(2, 10), MADE_UP, &[0; 46]));
    let stranger = [2, 0, 0, 0, 0, 9];
    for (what, wanted, frame) in [
        ("nobody here", DropReason::NoSuchEndpoint, unicast(mac(1, 99))),
        ("nobody here, flooded", DropReason::NoSuchEndpoint, flood(mac(1, 99))),
        ("another node's pod", DropReason::UnknownUnicast, unicast(mac(3, 10))),
        ("an unknown MAC", DropReason::UnknownUnicast, unicast(stranger)),
        ("an unknown MAC, flooded", DropReason::UnknownUnicast, flood(stranger)),
        ("broadcast to the unicast SID", DropReason::UnknownUnicast, unicast(BROADCAST)),
    ] {
        assert_eq!(node.drop_by(what, || wire.tap.send(&frame)), wanted, "{what}");
    }
    node.set_network(|network| network.flags = bpf_common::maps::NETWORK_EXISTS);
    let reason = node.drop_by("broadcast while flooding is off", || wire.tap.send(&flood(BROADCAST)));
    assert_eq!(reason, DropReason::FloodingOff);
    node.set_network(|network| network.flags = 0);
    let reason = node.drop_by("a network that is gone", || wire.tap.send(&unicast(mac(1, 1))));
    assert_eq!(reason, DropReason::UnknownSid);
}

#[test]
fn what_is_not_ours_is_left_alone() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let stack = Tap::new(&node.namespace, "ul0");
    let before = node.counters();
    let mut elsewhere = wire.header(UNICAST);
    elsewhere.destination = in_locator(3, UNICAST, 0);
    let ours = wire.sent_by_peer(UNICAST, &inner());
    let mut to_other = ours.clone();
    to_other[..6].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
    let mut in_vlan = ours.clone();
    in_vlan.splice(12..12, [0x81, 0, 0, 5]);
    for (what, frame) in [
        ("another locator", wire.outer(&elsewhere, &inner())),
        ("another MAC", to_other),
        ("a tag", in_vlan),
        ("IPv4", ethernet(wire.near, wire.far, IP4, &inner()[14..])),
        ("a short frame", ethernet(wire.near, wire.far, IP6, &[0x60, 0, 0])),
    ] {
        wire.tap.send(&frame);
        stack.expect(what, |arrived| arrived == frame);
    }
    assert_eq!(node.counters(), before);
}

#[test]
fn the_infrastructure_address_takes_icmp6_only_and_not_too_much() {
    need_root!(Alone);
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    node.namespace.sysctl(&[("ipv6/conf/ul0/disable_ipv6", "0"), ("ipv6/conf/lo/disable_ipv6", "0")]);
    node.namespace.ip("addr add 5f00:aa:1::1/128 dev lo nodad\nroute add 5f00:aa:2::/48 dev ul0");
    let [a, b, c, d, e, f] = wire.far;
    node.namespace.ip(&format!(
        "neigh replace 5f00:aa:2::1 lladdr {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} dev ul0"
    ));
    let (peer, own) = (in_locator(2, 0, 1), in_locator(1, 0, 1));
    let echo = ethernet(wire.near, wire.far, IP6, &icmp6(peer, own, &[128, 0, 0, 0, 0, 1, 0, 1]));
    wire.tap.send(&echo);
    wire.tap.expect("an echo reply", |frame| frame.len() > 54 && frame[20] == ICMP6 && frame[54] == 129);
    for (what, next_header) in [("UDP", UDP), ("an Ethernet frame", 143), ("options", 60)] {
        let frame = ethernet(wire.near, wire.far, IP6, &ip6(peer, own, next_header, &udp((1, 2), b"x")));
        assert_eq!(node.drop_by(what, || wire.tap.send(&frame)), DropReason::InfraProtocol, "{what}");
    }
    wait_for("the limit", || {
        for _ in 0..500 {
            wire.tap.send(&echo);
        }
        (node.drops(DropReason::InfraRate) > 0).then_some(())
    });
}
