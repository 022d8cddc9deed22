//! What endpoints must not send is dropped, and counted under its reason.

use std::net::{Ipv4Addr, Ipv6Addr};

use bpf_common::counters::{DropReason, Event};

use crate::{
    node::{Node, address4, address6, in_locator, link_local, mac},
    packets::{
        ARP, Arp, BROADCAST, ICMP6, IP4, IP6, Ip6, MADE_UP, Mac, UDP, discovery, ethernet, icmp6, ip4, ip6,
        link_layer, tagged, udp,
    },
    pod::Pod,
    root::need_root,
    wire::{FLOOD, UNICAST, Wire},
};

const ALL_NODES: (&str, Mac) = ("ff02::1", [0x33, 0x33, 0, 0, 0, 1]);
const ADVERTISEMENT: u8 = 136;
const SOLICITATION: u8 = 135;

/// An IPv6 packet to a pod elsewhere whose headers after the fixed one are given.
fn extended(next_header: u8, rest: &[u8]) -> Vec<u8> {
    ip6(address6(1, 10), address6(2, 10), next_header, rest)
}

fn to_all_nodes(source: Ipv6Addr, message: &[u8]) -> Vec<u8> {
    icmp6(source, ALL_NODES.0.parse().unwrap(), message)
}

/// A destination options header (8 bytes) before `next`.
fn options(next: u8) -> Vec<u8> {
    vec![next, 0, 1, 4, 0, 0, 0, 0]
}

fn routing(next: u8) -> Vec<u8> {
    let mut header = vec![next, 2, 4, 0, 0, 0, 0, 0];
    header.extend(in_locator(2, 0xe004, 0).octets());
    header
}

fn spoofed_ip() -> Vec<(&'static str, DropReason, Vec<u8>)> {
    use DropReason::{SegmentRouting, SidDestination, SourceIp};
    let (own4, own6) = (address4(1, 10), address6(1, 10));
    let (to4, to6) = (address4(2, 10), address6(2, 10));
    let data = udp((1, 2), b"x");
    let sid = in_locator(2, 0xe004, 0);
    vec![
        ("another's IPv4 source", SourceIp, ip4(address4(1, 11), to4, UDP, &data)),
        ("0.0.0.0 though it has an address", SourceIp, ip4(Ipv4Addr::UNSPECIFIED, to4, UDP, &data)),
        ("another's IPv6 source", SourceIp, ip6(address6(1, 11), to6, UDP, &data)),
        ("another's link-local source", SourceIp, ip6(link_local(1, 11), to6, UDP, &data)),
        ("to a SID", SidDestination, ip6(own6, sid, UDP, &data)),
        ("to an infrastructure address", SidDestination, ip6(own6, in_locator(2, 0, 1), UDP, &data)),
        ("a routing header", SegmentRouting, extended(43, &[routing(UDP), data.clone()].concat())),
        (
            "a routing header behind options",
            SegmentRouting,
            extended(0, &[options(60), options(43), routing(UDP), data.clone()].concat()),
        ),
        (
            "a routing header behind those of HIP and Shim6",
            SegmentRouting,
            extended(139, &[options(140), options(43), routing(UDP), data.clone()].concat()),
        ),
        (
            "a routing header in a first fragment",
            SegmentRouting,
            extended(44, &[vec![43, 0, 0, 1, 0, 0, 0, 9], routing(UDP), data.clone()].concat()),
        ),
        ("headers without end", DropReason::Malformed, extended(60, &options(60).repeat(9))),
        ("headers cut short", DropReason::Malformed, extended(60, &[60])),
        ("half an IPv6 header", DropReason::Malformed, ip6(own6, to6, UDP, &[])[..30].to_vec()),
        ("half an IPv4 header", DropReason::Malformed, ip4(own4, to4, UDP, &[])[..13].to_vec()),
    ]
}

fn forged_discovery(pod: &Pod) -> Vec<(&'static str, DropReason, Vec<u8>)> {
    use DropReason::{NdTarget, Redirect, RouterAdvertisement};
    let own = address6(1, 10);
    let (mine, others) = (link_layer(2, pod.mac()), link_layer(2, mac(1, 11)));
    let advertise = |target, options: &[u8]| discovery(ADVERTISEMENT, 0x2000_0000, target, options);
    let nonce = [14, 1, 0, 0, 0, 0, 0, 0];
    let hidden = |message: &[u8]| {
        let whole = to_all_nodes(own, message);
        extended(60, &[options(ICMP6), whole[40..].to_vec()].concat())
    };
    vec![
        ("another's NA target", NdTarget, to_all_nodes(own, &advertise(address6(1, 11), &mine))),
        ("another's link-local NA target", NdTarget, to_all_nodes(own, &advertise(link_local(1, 11), &mine))),
        ("an NA with another's MAC", NdTarget, to_all_nodes(own, &advertise(own, &others))),
        (
            "an NA with another's MAC in the second option",
            NdTarget,
            to_all_nodes(own, &advertise(own, &[nonce.as_slice(), &others].concat())),
        ),
        (
            "an NA with an empty option",
            NdTarget,
            to_all_nodes(own, &advertise(own, &[2, 0, 1, 2, 3, 4, 5, 6])),
        ),
        ("an NA with half an option", NdTarget, to_all_nodes(own, &advertise(own, &[2, 1, 0]))),
        ("an NA with options without end", NdTarget, to_all_nodes(own, &advertise(own, &nonce.repeat(9)))),
        ("an NA behind options", NdTarget, hidden(&advertise(address6(1, 11), &mine))),
        (
            "an NS with another's MAC",
            NdTarget,
            to_all_nodes(own, &discovery(SOLICITATION, 0, address6(2, 1), &link_layer(1, mac(1, 11)))),
        ),
        (
            "an RS with another's MAC",
            NdTarget,
            to_all_nodes(own, &[&[133, 0, 0, 0, 0, 0, 0, 0], link_layer(1, mac(1, 11)).as_slice()].concat()),
        ),
        ("a router advertisement", RouterAdvertisement, to_all_nodes(own, &[134, 0, 0, 0, 64, 0, 0, 0])),
        ("one behind options", RouterAdvertisement, hidden(&[134, 0, 0, 0, 64, 0, 0, 0])),
        ("a redirect", Redirect, to_all_nodes(own, &discovery(137, 0, address6(1, 11), &[0; 16]))),
    ]
}

#[test]
fn forged_packets_are_dropped_whatever_tag_hides_them() {
    need_root!();
    let mut node = Node::new(1);
    let _wire = Wire::new(&mut node, 2);
    let (pod, other) = (node.add_pod(10), node.add_pod(11));
    let priority = [(0x8100, 0xa000), (0x8100, 0)];
    for (what, wanted, packet) in [spoofed_ip(), forged_discovery(&pod)].concat() {
        let protocol = if packet[0] >> 4 == 4 { IP4 } else { IP6 };
        for tags in [&priority[..0], &priority[..1], &priority] {
            // Neither broadcast nor a peer's nor a neighbour's MAC makes a difference.
            for to in [BROADCAST, mac(2, 10), mac(1, 11)] {
                let frame = tagged(to, pod.mac(), tags, protocol, &packet);
                let reason = node.drop_by(what, || pod.tap.send(&frame));
                assert_eq!(reason, wanted, "{what} behind {} tags to {to:02x?}", tags.len());
            }
        }
    }
    assert_eq!(other.tap.drain(), Vec::<Vec<u8>>::new());
}

#[test]
fn forged_frames_are_dropped() {
    need_root!();
    let mut node = Node::new(1);
    let _wire = Wire::new(&mut node, 2);
    let pod = node.add_pod(10);
    let own = address4(1, 10);
    let arp = |sender_mac, sender| {
        let arp = Arp { operation: 2, sender_mac, sender, target_mac: [0; 6], target: address4(2, 10) };
        ethernet(BROADCAST, pod.mac(), ARP, &arp.packet())
    };
    let data = ip4(own, address4(2, 10), UDP, &udp((1, 2), b"x"));
    let three = [(0x88a8, 1), (0x8100, 2), (0x8100, 3)];
    let mut foreign = arp(pod.mac(), own);
    foreign[15] = 6;
    for (what, wanted, frame) in [
        ("another's MAC", DropReason::SourceMac, ethernet(mac(2, 10), mac(1, 11), IP4, &data)),
        (
            "another's MAC in a VLAN",
            DropReason::SourceMac,
            tagged(BROADCAST, mac(1, 11), &three[1..2], IP4, &data),
        ),
        ("ARP with another's MAC", DropReason::ArpSender, arp(mac(1, 11), own)),
        ("ARP with another's IP", DropReason::ArpSender, arp(pod.mac(), address4(1, 11))),
        ("ARP of another network type", DropReason::Malformed, foreign),
        ("half an ARP packet", DropReason::Malformed, ethernet(BROADCAST, pod.mac(), ARP, &[0; 20])),
        ("three tags", DropReason::TooManyTags, tagged(mac(2, 10), pod.mac(), &three, IP4, &data)),
        ("half a tag", DropReason::Malformed, tagged(mac(2, 10), pod.mac(), &three[..1], 0x8100, &[0; 3])),
    ] {
        assert_eq!(node.drop_by(what, || pod.tap.send(&frame)), wanted, "{what}");
    }
}

#[test]
fn what_is_the_pods_own_passes() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let pod = node.add_pod(10);
    let (own, peer) = (address6(1, 10), mac(2, 10));
    let message =
        |source| icmp6(source, address6(2, 10), &discovery(ADVERTISEMENT, 0, own, &link_layer(2, pod.mac())));
    let atomic = [vec![UDP, 0, 0, 0, 0, 0, 0, 9], udp((1, 2), b"x")].concat();
    let later = [vec![ICMP6, 0, 0, 8, 0, 0, 0, 9], vec![134; 16]].concat();
    for (what, packet) in [
        ("its own advertisement", message(own)),
        ("the same from its link-local address", message(link_local(1, 10))),
        ("options", extended(60, &[options(UDP), udp((1, 2), b"x")].concat())),
        (
            "an authentication header",
            extended(51, &[vec![UDP, 1, 0, 0], vec![0; 8], udp((1, 2), b"x")].concat()),
        ),
        ("an atomic fragment", extended(44, &atomic)),
        ("a later fragment", extended(44, &later)),
        ("no next header", extended(59, &[])),
        ("an unknown protocol", extended(253, &[1])),
        ("ICMPv6 echo", icmp6(own, address6(2, 10), &[128, 0, 0, 0, 0, 1, 0, 1])),
    ] {
        let frame = ethernet(peer, pod.mac(), IP6, &packet);
        pod.tap.send(&frame);
        assert_eq!(wire.expect(what, UNICAST)[54..], frame, "{what}");
    }
    // Within a VLAN addresses mean what they mean there.
    let frame = tagged(
        peer,
        pod.mac(),
        &[(0x8100, 5)],
        IP4,
        &ip4([172, 16, 0, 1].into(), [172, 16, 0, 2].into(), UDP, &[0; 8]),
    );
    pod.tap.send(&frame);
    assert_eq!(wire.expect("IPv4 in a VLAN", UNICAST)[54..], frame);
}

#[test]
fn dhcp_passes_while_there_is_no_address() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let pod = node.add_pod(10);
    use agent_switch::Table as _;
    let mut endpoint = node.switch.endpoints().list().unwrap()[&pod.ifindex];
    (endpoint.ip4, endpoint.ip6) = (0, [0; 4]);
    node.switch.endpoints().set(pod.ifindex, endpoint).unwrap();
    let discover = ip4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, UDP, &udp((68, 67), &[1; 300]));
    let frame = ethernet(BROADCAST, pod.mac(), IP4, &discover);
    pod.tap.send(&frame);
    assert_eq!(wire.expect("DHCP", FLOOD)[54..], frame);
    let named = ip4(address4(1, 10), Ipv4Addr::BROADCAST, UDP, &udp((68, 67), &[1; 300]));
    let reason =
        node.drop_by("an address not given", || pod.tap.send(&ethernet(BROADCAST, pod.mac(), IP4, &named)));
    assert_eq!(reason, DropReason::SourceIp);
}

#[test]
fn the_gateway_speaks_for_others_but_not_to_sids() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let own = mac(1, 1);
    let client: Ipv6Addr = "2001:db8::1".parse().unwrap();
    let forwarded = [
        (IP4, ip4([192, 0, 2, 1].into(), address4(2, 10), UDP, &udp((1, 2), b"x"))),
        (IP6, ip6(client, address6(2, 10), UDP, &udp((1, 2), b"x"))),
        (IP6, icmp6(client, address6(2, 10), &[134, 0, 0, 0, 64, 0, 0, 0])),
        (MADE_UP, vec![0; 30]),
    ];
    for (protocol, packet) in forwarded {
        let frame = ethernet(mac(2, 10), own, protocol, &packet);
        node.gateway.send(&frame);
        assert_eq!(wire.expect("what the node forwards", UNICAST)[54..], frame);
    }
    let redirect = icmp6(link_local(1, 1), address6(2, 10), &discovery(137, 0, address6(2, 11), &[0; 16]));
    let to_sid = ip6(client, in_locator(2, 0xe004, 0), UDP, &udp((1, 2), b"x"));
    for (what, wanted, source, packet) in [
        ("a redirect", DropReason::Redirect, own, &redirect),
        ("to a SID", DropReason::SidDestination, own, &to_sid),
        ("another's MAC", DropReason::SourceMac, mac(1, 11), &redirect),
    ] {
        let frame = ethernet(mac(2, 10), source, IP6, packet);
        assert_eq!(node.drop_by(what, || node.gateway.send(&frame)), wanted, "{what}");
    }
}

#[test]
fn unknown_destinations_are_dropped_by_reason() {
    need_root!();
    let mut node = Node::new(1);
    let _wire = Wire::new(&mut node, 2);
    let pod = node.add_pod(10);
    for (what, wanted, to) in [
        ("nobody here", DropReason::NoSuchEndpoint, mac(1, 99)),
        ("a node without a way", DropReason::NoNextHop, mac(3, 10)),
        ("an address outside the cluster", DropReason::UnknownUnicast, [0x0a, 0x58, 192, 0, 2, 1]),
        ("a MAC that is not derived", DropReason::UnknownUnicast, [2, 0, 0, 0, 0, 9]),
    ] {
        let frame = ethernet(to, pod.mac(), MADE_UP, &[0; 46]);
        assert_eq!(node.drop_by(what, || pod.tap.send(&frame)), wanted, "{what}");
    }
    assert_eq!(node.events(Event::Encapsulated), 0);
}

#[test]
fn a_frame_that_a_pod_sends_back_does_not_circle() {
    need_root!();
    let mut node = Node::new(1);
    let (a, b) = (node.add_pod(10), node.add_pod(11));
    let packet = Ip6 {
        source: address6(1, 10),
        destination: address6(1, 11),
        next_header: 59,
        class: 0,
        hop_limit: 9,
    };
    let frame = ethernet(b.mac(), a.mac(), IP6, &packet.packet(&[]));
    a.tap.send(&frame);
    let arrived = b.tap.expect("the frame", |arrived| arrived == frame);
    assert_eq!(node.drop_by("the frame sent back", || b.tap.send(&arrived)), DropReason::SourceMac);
}
