//! A cluster without IPv4: MACs follow from node and host number.

use std::net::Ipv6Addr;

use agent_switch::Table as _;
use bpf_common::{
    counters::DropReason,
    maps::{Endpoint, FDB_PEER, FdbEntry, FdbKey, Prefix6},
};

use crate::{
    node::{NETWORK, Node, address6, key_mac, key6},
    packets::{IP6, Mac, UDP, discovery, ethernet, icmp6, ip6, link_layer, solicited_node, udp},
    pod::Pod,
    root::need_root,
    wire::{UNICAST, Wire},
};

fn mac(node: u16, host: u16) -> Mac {
    let [[a, b], [c, d]] = [node, host].map(u16::to_be_bytes);
    [0x0a, 0x59, a, b, c, d]
}

/// A node whose prefixes have no IPv4 side, with pod 10 and a peer.
fn node() -> (Node, Wire, Pod) {
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let pod = node.add_pod(10);
    for peer in 1..=3 {
        let net = ipnet::Ipv6Net::new(address6(peer, 0), 112).unwrap();
        node.switch.prefixes6().set((NETWORK, net), Prefix6 { node: peer.into(), base4: 0 }).unwrap();
    }
    for net in node.switch.prefixes4().list().unwrap().into_keys() {
        node.switch.prefixes4().remove(net).unwrap();
    }
    let mut peer = node.switch.nodes().list().unwrap()[&2];
    (peer.base4, peer.mask4) = (0, 0);
    node.switch.nodes().set(2, peer).unwrap();
    let own = key_mac(mac(1, 10));
    let endpoint = Endpoint { network: NETWORK, mac: own, ip6: key6(address6(1, 10)), ..Endpoint::default() };
    node.switch.endpoints().set(pod.ifindex, endpoint).unwrap();
    let entry = FdbEntry { ifindex: pod.ifindex, flags: FDB_PEER, services: 0 };
    node.switch.fdb().set(FdbKey { network: NETWORK, mac: own }, entry).unwrap();
    (node, wire, pod)
}

fn packet(from: (u16, u16), to: (u16, u16)) -> Vec<u8> {
    let packet = ip6(address6(from.0, from.1), address6(to.0, to.1), UDP, &udp((1, 2), b"hello"));
    ethernet(mac(to.0, to.1), mac(from.0, from.1), IP6, &packet)
}

#[test]
fn macs_follow_from_node_and_host() {
    need_root!();
    let (node, wire, pod) = node();
    let target: Ipv6Addr = address6(2, 0x1234);
    let (group, group_mac) = solicited_node(target);
    let message = discovery(135, 0, target, &link_layer(1, mac(1, 10)));
    pod.tap.send(&ethernet(group_mac, mac(1, 10), IP6, &icmp6(address6(1, 10), group, &message)));
    let message = discovery(136, 0x6000_0000, target, &link_layer(2, mac(2, 0x1234)));
    let answer = ethernet(mac(1, 10), mac(2, 0x1234), IP6, &icmp6(target, address6(1, 10), &message));
    pod.tap.expect("the answer", |frame| frame == answer);
    pod.tap.send(&packet((1, 10), (2, 10)));
    assert_eq!(wire.expect("the frame", UNICAST)[54..], packet((1, 10), (2, 10)));
    wire.tap.send(&wire.sent_by_peer(UNICAST, &packet((2, 10), (1, 10))));
    pod.tap.expect("the reply", |frame| frame == packet((2, 10), (1, 10)));
    for (what, wanted, frame) in [
        ("another node's pod", DropReason::InnerSource, packet((3, 10), (1, 10))),
        ("nobody here", DropReason::NoSuchEndpoint, packet((2, 10), (1, 11))),
    ] {
        let frame = wire.sent_by_peer(UNICAST, &frame);
        assert_eq!(node.drop_by(what, || wire.tap.send(&frame)), wanted, "{what}");
    }
    let reason = node.drop_by("nobody here", || pod.tap.send(&packet((1, 10), (1, 11))));
    assert_eq!(reason, DropReason::NoSuchEndpoint);
}
