//! What leaves one pod reaches the other byte for byte, on the same node and across nodes.

use bpf_common::counters::Event;

use crate::{
    node::{Node, address4, address6, mac},
    packets::{BROADCAST, IP4, IP6, MADE_UP, Mac, UDP, ethernet, ip4, ip6, tagged, udp},
    pod::Pod,
    root::need_root,
    tap::Tap,
    wire::nodes,
};

const TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;

/// Frames from `from` to `to`, and what each is.
fn unicast(from: (u16, u16), to: (u16, u16)) -> Vec<(&'static str, Vec<u8>)> {
    let (source, destination) = (mac(from.0, from.1), mac(to.0, to.1));
    let packet4 = |len: usize| {
        ip4(address4(from.0, from.1), address4(to.0, to.1), UDP, &udp((1000, 2000), &vec![7; len]))
    };
    let packet6 = |len: usize| {
        ip6(address6(from.0, from.1), address6(to.0, to.1), UDP, &udp((1000, 2000), &vec![7; len]))
    };
    let plain = |protocol, payload: &[u8]| ethernet(destination, source, protocol, payload);
    let tags =
        |tags: &[(u16, u16)], protocol, payload: &[u8]| tagged(destination, source, tags, protocol, payload);
    vec![
        ("IPv4", plain(IP4, &packet4(100))),
        ("IPv4 without payload", plain(IP4, &packet4(0))),
        ("IPv4 of full size", plain(IP4, &packet4(1446 - 28))),
        ("IPv6", plain(IP6, &packet6(100))),
        ("IPv6 of full size", plain(IP6, &packet6(1446 - 48))),
        ("802.1Q", tags(&[(TAG, 7)], IP4, &packet4(100))),
        ("802.1Q of full size", tags(&[(TAG, 7)], IP6, &packet6(1442 - 48))),
        ("a priority tag", tags(&[(TAG, 0xa000)], IP4, &packet4(50))),
        ("QinQ", tags(&[(SERVICE_TAG, 100), (TAG, 7)], IP4, &packet4(100))),
        ("two 802.1Q tags", tags(&[(TAG, 7), (TAG, 8)], IP6, &packet6(10))),
        ("a tagged made-up EtherType", tags(&[(TAG, 9)], MADE_UP, &[3; 46])),
        ("a made-up EtherType", plain(MADE_UP, &[1; 200])),
        ("one byte of payload", plain(MADE_UP, &[9])),
        ("14 bytes of payload", plain(MADE_UP, &[2; 14])),
        ("a made-up EtherType of full size", plain(MADE_UP, &[5; 1446])),
        ("LLC", plain(40, &[&[0x42, 0x42, 3], [0xee; 37].as_slice()].concat())),
    ]
}

fn to_many(source: Mac) -> Vec<(&'static str, Vec<u8>)> {
    let multicast = [0x01, 0, 0x5e, 0, 0, 0xfb];
    let multicast6 = [0x33, 0x33, 0, 0, 0, 0xfb];
    let mdns4 = ip4(address4(1, 10), "224.0.0.251".parse().unwrap(), UDP, &udp((5353, 5353), b"who"));
    let mdns6 = ip6(address6(1, 10), "ff02::fb".parse().unwrap(), UDP, &udp((5353, 5353), b"who"));
    vec![
        ("broadcast", ethernet(BROADCAST, source, MADE_UP, &[1; 60])),
        ("tagged broadcast", tagged(BROADCAST, source, &[(TAG, 7)], MADE_UP, &[1; 60])),
        ("IPv4 multicast", ethernet(multicast, source, IP4, &mdns4)),
        ("IPv6 multicast", ethernet(multicast6, source, IP6, &mdns6)),
        (
            "spanning tree",
            ethernet([1, 0x80, 0xc2, 0, 0, 0], source, 38, &[[0x42, 0x42, 3], [0; 3]].concat()),
        ),
    ]
}

fn carries(what: &str, frame: &[u8], from: &Pod, to: &[&Tap]) {
    from.tap.send(frame);
    for tap in to {
        let arrived = tap.expect(what, |arrived| arrived == frame);
        assert_eq!(arrived, frame, "{what}");
    }
}

/// Everything that is to arrive has: nothing came twice.
fn nothing_else(taps: &[&Tap]) {
    for tap in taps {
        assert_eq!(tap.drain(), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn frames_reach_a_pod_on_the_same_node_unchanged() {
    need_root!();
    let mut node = Node::new(1);
    let (a, b) = (node.add_pod(10), node.add_pod(11));
    for (what, frame) in unicast((1, 10), (1, 11)) {
        carries(what, &frame, &a, &[&b.tap]);
    }
    for (what, frame) in to_many(a.mac()) {
        carries(what, &frame, &a, &[&b.tap, &node.gateway]);
    }
    nothing_else(&[&a.tap, &b.tap, &node.gateway]);
    assert_eq!(node.counters().drops.values().sum::<u64>(), 0, "{:?}", node.counters());
}

#[test]
fn frames_reach_a_pod_on_another_node_unchanged() {
    need_root!();
    let [mut one, mut two] = nodes();
    let (a, b, c) = (one.add_pod(10), two.add_pod(10), two.add_pod(11));
    for (what, frame) in unicast((1, 10), (2, 10)) {
        carries(what, &frame, &a, &[&b.tap]);
    }
    for (what, frame) in to_many(a.mac()) {
        carries(what, &frame, &a, &[&b.tap, &c.tap, &one.gateway, &two.gateway]);
    }
    nothing_else(&[&a.tap, &b.tap, &c.tap, &one.gateway, &two.gateway]);
    for node in [&one, &two] {
        assert_eq!(node.counters().drops.values().sum::<u64>(), 0, "{:?}", node.counters());
    }
    let sent = (unicast((1, 10), (2, 10)).len() + to_many(a.mac()).len()) as u64;
    assert_eq!(two.events(Event::Decapsulated), sent);
}
