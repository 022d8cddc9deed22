//! ARP requests and neighbour solicitations: answered on the spot, or the owner's to answer.

use std::net::{Ipv4Addr, Ipv6Addr};

use bpf_common::counters::{DropReason, Event};

use crate::{
    node::{Node, address4, address6, link_local, mac},
    packets::{
        ARP, Arp, BROADCAST, IP6, Ip6, Mac, discovery, ethernet, icmp6, icmp6_checksum, link_layer,
        solicited_node, tagged,
    },
    pod::Pod,
    root::need_root,
    wire::{FLOOD, Wire, nodes},
    world::wait_for,
};

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOLICITED_OVERRIDE: u32 = 0x6000_0000;
const OVERRIDE: u32 = 0x2000_0000;

fn request(from: &Pod, sender: Ipv4Addr, target: Ipv4Addr, to: Mac) -> Vec<u8> {
    let arp = Arp { operation: 1, sender_mac: from.mac(), sender, target_mac: [0; 6], target };
    ethernet(to, from.mac(), ARP, &arp.packet())
}

fn reply(from: Mac, sender: Ipv4Addr, to: &Pod, target: Ipv4Addr) -> Vec<u8> {
    let arp = Arp { operation: 2, sender_mac: from, sender, target_mac: to.mac(), target };
    ethernet(to.mac(), from, ARP, &arp.packet())
}

/// A solicitation by `from` with source `asker` and these options.
fn solicitation(
    from: &Pod,
    asker: Ipv6Addr,
    target: Ipv6Addr,
    to: (Ipv6Addr, Mac),
    options: &[u8],
) -> Vec<u8> {
    let message = discovery(SOLICITATION, 0, target, options);
    ethernet(to.1, from.mac(), IP6, &icmp6(asker, to.0, &message))
}

fn advertisement(target: Ipv6Addr, owner: Mac, to: (Ipv6Addr, Mac), flags: u32) -> Vec<u8> {
    let message = discovery(ADVERTISEMENT, flags, target, &link_layer(2, owner));
    ethernet(to.1, owner, IP6, &icmp6(target, to.0, &message))
}

#[test]
fn arp_for_derived_addresses_is_answered_on_the_spot() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let (pod, other) = (node.add_pod(10), node.add_pod(11));
    let own = address4(1, 10);
    for (target, owner) in [
        (address4(2, 77), mac(2, 77)),
        (address4(1, 11), mac(1, 11)),
        (address4(1, 1), mac(1, 1)),
        (address4(3, 1), mac(3, 1)),
    ] {
        for to in [BROADCAST, owner] {
            pod.tap.send(&request(&pod, own, target, to));
            let wanted = reply(owner, target, &pod, own);
            pod.tap.expect(&format!("answer for {target}"), |frame| frame == wanted);
        }
    }
    // A priority tag comes back with the answer.
    let arp =
        Arp { operation: 1, sender_mac: pod.mac(), sender: own, target_mac: [0; 6], target: address4(2, 7) };
    pod.tap.send(&tagged(BROADCAST, pod.mac(), &[(0x8100, 0xe000)], ARP, &arp.packet()));
    let arp = Arp {
        operation: 2,
        sender_mac: mac(2, 7),
        sender: address4(2, 7),
        target_mac: pod.mac(),
        target: own,
    };
    let wanted = tagged(pod.mac(), mac(2, 7), &[(0x8100, 0xe000)], ARP, &arp.packet());
    pod.tap.expect("answer with a priority tag", |frame| frame == wanted);
    assert_eq!(node.events(Event::ArpAnswered), 9);
    assert_eq!((wire.tap.drain(), other.tap.drain()), (vec![], vec![]), "nobody else hears of it");
}

#[test]
fn arp_for_nobody_on_this_node_is_dropped() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let pod = node.add_pod(10);
    let reason = node.drop_by("ARP for nobody", || {
        pod.tap.send(&request(&pod, address4(1, 10), address4(1, 99), BROADCAST));
    });
    assert_eq!(reason, DropReason::NoSuchEndpoint);
    assert_eq!(wire.tap.drain(), Vec::<Vec<u8>>::new());
}

#[test]
fn announcements_and_foreign_questions_are_flooded() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let (pod, other) = (node.add_pod(10), node.add_pod(11));
    let own = address4(1, 10);
    let nobody = Ipv4Addr::UNSPECIFIED;
    for (what, frame) in [
        ("gratuitous ARP", request(&pod, own, own, BROADCAST)),
        ("probe for the own address", request(&pod, nobody, own, BROADCAST)),
        ("probe for an address elsewhere", request(&pod, nobody, address4(2, 10), BROADCAST)),
        ("probe for a free address", request(&pod, nobody, address4(1, 99), BROADCAST)),
        ("request outside the cluster", request(&pod, own, Ipv4Addr::new(192, 0, 2, 1), BROADCAST)),
    ] {
        pod.tap.send(&frame);
        other.tap.expect(what, |arrived| arrived == frame);
        let outer = wire.expect(what, FLOOD);
        assert_eq!(outer[54..], frame, "{what}");
    }
    // Of an existing endpoint here the switch knows.
    pod.tap.send(&request(&pod, nobody, address4(1, 11), BROADCAST));
    let wanted = reply(mac(1, 11), address4(1, 11), &pod, nobody);
    pod.tap.expect("answer to a probe", |frame| frame == wanted);
    assert_eq!(node.events(Event::ArpAnswered), 1);
}

#[test]
fn solicitations_for_derived_addresses_are_answered_on_the_spot() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let (pod, other) = (node.add_pod(10), node.add_pod(11));
    let nonce = [14, 1, 1, 2, 3, 4, 5, 6];
    let source = link_layer(1, pod.mac());
    for (target, owner) in [
        (address6(2, 77), mac(2, 77)),
        (address6(1, 11), mac(1, 11)),
        (address6(1, 1), mac(1, 1)),
        (link_local(2, 10), mac(2, 10)),
        (link_local(1, 11), mac(1, 11)),
    ] {
        for asker in [address6(1, 10), link_local(1, 10)] {
            for (to, options) in [
                (solicited_node(target), source.clone()),
                (solicited_node(target), [source.as_slice(), &nonce].concat()),
                ((target, owner), vec![]),
                ((target, owner), source.clone()),
            ] {
                pod.tap.send(&solicitation(&pod, asker, target, to, &options));
                let wanted = advertisement(target, owner, (asker, pod.mac()), SOLICITED_OVERRIDE);
                let answer = pod.tap.expect(&format!("answer for {target}"), |frame| frame == wanted);
                assert_eq!(icmp6_checksum(target, asker, &answer[54..]), 0);
            }
        }
    }
    assert_eq!(node.events(Event::NdAnswered), 40);
    assert_eq!((wire.tap.drain(), other.tap.drain()), (vec![], vec![]), "nobody else hears of it");
}

#[test]
fn solicitations_that_the_switch_cannot_answer() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let (pod, other) = (node.add_pod(10), node.add_pod(11));
    let source = link_layer(1, pod.mac());
    let asker = address6(1, 10);
    let solicit = |target: Ipv6Addr| solicitation(&pod, asker, target, solicited_node(target), &source);
    for target in [address6(1, 99), link_local(1, 99)] {
        let reason = node.drop_by("solicitation for nobody", || pod.tap.send(&solicit(target)));
        assert_eq!(reason, DropReason::NoSuchEndpoint, "{target}");
    }
    let odd: Ipv6Addr = "fd10:0:0:2::1:0:5".parse().unwrap();
    let beyond = address6(2, 0x105);
    let stranger: Ipv6Addr = "fe80::1234:56ff:fe78:9abc".parse().unwrap();
    let outside: Ipv6Addr = "2001:db8::1".parse().unwrap();
    for target in [odd, beyond, stranger, outside, address6(1, 10)] {
        let frame = solicit(target);
        pod.tap.send(&frame);
        other.tap.expect(&format!("solicitation for {target}"), |arrived| arrived == frame);
        wire.expect(&format!("solicitation for {target}"), FLOOD);
    }
    let message = discovery(SOLICITATION, 0, address6(2, 5), &source);
    let (group, group_mac) = solicited_node(address6(2, 5));
    let mut packet = icmp6(asker, group, &message);
    packet[7] = 254;
    pod.tap.send(&ethernet(group_mac, pod.mac(), IP6, &packet));
    wire.expect("solicitation that a router has passed on", FLOOD);
    assert_eq!(node.events(Event::NdAnswered), 0);
}

#[test]
fn duplicate_address_probes_are_answered_for_who_exists() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let (pod, _other) = (node.add_pod(10), node.add_pod(11));
    let nonce = [14, 1, 1, 2, 3, 4, 5, 6];
    let all_nodes = ("ff02::1".parse().unwrap(), [0x33, 0x33, 0, 0, 0, 1]);
    let probe =
        |target: Ipv6Addr| solicitation(&pod, Ipv6Addr::UNSPECIFIED, target, solicited_node(target), &nonce);
    for target in [address6(1, 11), link_local(1, 11), address6(1, 1)] {
        let owner = if target == address6(1, 1) { mac(1, 1) } else { mac(1, 11) };
        pod.tap.send(&probe(target));
        let wanted = advertisement(target, owner, all_nodes, OVERRIDE);
        let answer = pod.tap.expect(&format!("answer to a probe for {target}"), |frame| frame == wanted);
        assert_eq!(icmp6_checksum(target, all_nodes.0, &answer[54..]), 0);
    }
    for target in [address6(1, 10), address6(2, 10), address6(1, 99), link_local(1, 10)] {
        pod.tap.send(&probe(target));
        wire.expect(&format!("probe for {target}"), FLOOD);
    }
    assert_eq!(node.events(Event::NdAnswered), 3);
}

#[test]
fn a_duplicate_on_another_node_is_detected() {
    need_root!();
    let [mut one, mut two] = nodes();
    let (a, b) = (one.add_pod(10), two.add_pod(10));
    a.wake();
    b.wake();
    // Pod a takes the address of pod b; the switch lets it probe, and the answer of b comes back.
    a.namespace.ip(&format!("addr add {}/64 dev eth0", address6(2, 10)));
    wait_for("duplicate address detection", || {
        a.namespace.run("ip", &["-6", "addr", "show", "dev", "eth0"]).contains("dadfailed").then_some(())
    });
}

#[test]
fn in_a_vlan_the_switch_answers_nothing() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let pod = node.add_pod(10);
    let arp = Arp {
        operation: 1,
        sender_mac: pod.mac(),
        sender: Ipv4Addr::new(172, 16, 0, 1),
        target_mac: [0; 6],
        target: address4(2, 7),
    };
    let frame = tagged(BROADCAST, pod.mac(), &[(0x8100, 5)], ARP, &arp.packet());
    pod.tap.send(&frame);
    assert_eq!(wire.expect("ARP in a VLAN", FLOOD)[54..], frame);
    let header = Ip6 {
        source: "fd99::1".parse().unwrap(),
        destination: "ff02::1".parse().unwrap(),
        next_header: 59,
        class: 0,
        hop_limit: 1,
    };
    let frame = tagged([0x33, 0x33, 0, 0, 0, 1], pod.mac(), &[(0x8100, 5)], IP6, &header.packet(&[]));
    pod.tap.send(&frame);
    assert_eq!(wire.expect("IPv6 in a VLAN", FLOOD)[54..], frame);
}
