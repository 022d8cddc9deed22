//! Traffic class and flow label of the outer header, and congestion marks on their way back inside.

use agent_switch::Table as _;
use bpf_common::{counters::DropReason, maps::NextHop};

use crate::{
    node::{Node, address4, address6, key_mac, mac},
    packets::{IP4, IP6, Ip4, Ip6, MADE_UP, UDP, ethernet, ip4, tagged, udp},
    root::need_root,
    wire::{UNICAST, Wire},
};

const NOT_ECT: u8 = 0;
const ECT_1: u8 = 1;
const ECT_0: u8 = 2;
const CE: u8 = 3;

fn packet4(class: u8) -> Vec<u8> {
    let header =
        Ip4 { source: address4(2, 10), destination: address4(1, 10), protocol: UDP, class, fragment: 0x4000 };
    header.packet(&udp((1, 2), b"hello"))
}

fn packet6(class: u8) -> Vec<u8> {
    let header =
        Ip6 { source: address6(2, 10), destination: address6(1, 10), next_header: UDP, class, hop_limit: 64 };
    header.packet(&udp((1, 2), b"hello"))
}

#[test]
fn congestion_marks_reach_the_inner_packet() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let pod = node.add_pod(10);
    // RFC 6040 section 4.2: by inner mark, what comes out for each outer mark.
    let table = [
        (NOT_ECT, [Some(NOT_ECT), Some(NOT_ECT), Some(NOT_ECT), None]),
        (ECT_1, [Some(ECT_1), Some(ECT_1), Some(ECT_1), Some(CE)]),
        (ECT_0, [Some(ECT_0), Some(ECT_1), Some(ECT_0), Some(CE)]),
        (CE, [Some(CE), Some(CE), Some(CE), Some(CE)]),
    ];
    for (inner, row) in table {
        for (outer, result) in (0_u8..).zip(row) {
            for (protocol, packet) in [(IP4, packet4 as fn(u8) -> Vec<u8>), (IP6, packet6)] {
                for tags in [&[][..], &[(0x8100, 7)]] {
                    let frame = |class| tagged(mac(1, 10), mac(2, 10), tags, protocol, &packet(0xb8 | class));
                    let mut header = wire.header(UNICAST);
                    header.class = outer;
                    let sent = wire.outer(&header, &frame(inner));
                    let what = format!("{protocol:x} with {inner} inside and {outer} outside");
                    if let Some(result) = result {
                        wire.tap.send(&sent);
                        let wanted = frame(result);
                        pod.tap.expect(&what, |arrived| arrived == wanted);
                    } else {
                        assert_eq!(node.drop_by(&what, || wire.tap.send(&sent)), DropReason::Ecn, "{what}");
                    }
                }
            }
        }
    }
    let mut header = wire.header(UNICAST);
    header.class = CE;
    let sent = wire.outer(&header, &ethernet(mac(1, 10), mac(2, 10), MADE_UP, &[0; 46]));
    assert_eq!(node.drop_by("not IP", || wire.tap.send(&sent)), DropReason::Ecn);
}

/// Version, traffic class and flow label of the outer header of `frame`, sent to a pod on node 2.
fn first_word(node: &Node, wire: &Wire, pod: &crate::pod::Pod, frame: &[u8]) -> (u32, u32) {
    pod.tap.send(frame);
    let outer =
        wire.tap.expect("an encapsulated frame", |arrived| arrived.len() > 54 && arrived[54..] == *frame);
    let word = u32::from_be_bytes(outer[14..18].try_into().unwrap());
    assert_eq!(word >> 28, 6, "{}", node.number);
    (word >> 20 & 0xff, word & 0xf_ffff)
}

#[test]
fn class_and_flow_label_follow_the_inner_packet() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let pod = node.add_pod(10);
    let (to4, to6) = (address4(2, 10), address6(2, 10));
    let frame4 = |class, ports, fragment| {
        let header = Ip4 { source: address4(1, 10), destination: to4, protocol: UDP, class, fragment };
        ethernet(mac(2, 10), pod.mac(), IP4, &header.packet(&udp(ports, b"hello")))
    };
    let frame6 = |class, ports| {
        let header =
            Ip6 { source: address6(1, 10), destination: to6, next_header: UDP, class, hop_limit: 64 };
        ethernet(mac(2, 10), pod.mac(), IP6, &header.packet(&udp(ports, b"hello")))
    };
    let look = |frame: &[u8]| first_word(&node, &wire, &pod, frame);
    for class in [0, 0xb8, 0xbb, 0xff] {
        assert_eq!(look(&frame4(class, (1, 2), 0)).0, u32::from(class));
        assert_eq!(look(&frame6(class, (1, 2))).0, u32::from(class));
    }
    let label = |frame: &[u8]| look(frame).1;
    let first = label(&frame4(0, (1, 2), 0));
    assert_ne!(first, 0);
    assert_eq!(label(&frame4(0x10, (1, 2), 0)), first, "the class is not part of the flow");
    assert_ne!(label(&frame4(0, (1, 3), 0)), first, "the ports are");
    let fragment = label(&frame4(0, (1, 2), 0x2000));
    assert_ne!(fragment, first, "a fragment has no ports");
    assert_eq!(label(&frame4(0, (9, 9), 5)), fragment, "all fragments are one flow");
    assert_ne!(label(&frame6(0, (1, 2))), label(&frame6(0, (2, 1))));
    let made_up = |to, octet| label(&ethernet(to, pod.mac(), MADE_UP, &[octet; 50]));
    assert_eq!(made_up(mac(2, 10), 1), made_up(mac(2, 10), 2));
    assert_ne!(made_up(mac(2, 10), 1), made_up(mac(2, 11), 1));
    let tagged = tagged(
        mac(2, 10),
        pod.mac(),
        &[(0x8100, 7)],
        IP4,
        &ip4(address4(1, 10), to4, UDP, &udp((1, 2), b"")),
    );
    assert_eq!(label(&tagged), first, "nor is the tag");
}

#[test]
fn a_fixed_class_takes_the_place_of_the_copied_one() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let pod = node.add_pod(10);
    let mut settings = node.switch.settings().list().unwrap()[&0];
    settings.dscp = 46;
    node.switch.settings().set(0, settings).unwrap();
    let header = Ip4 {
        source: address4(1, 10),
        destination: address4(2, 10),
        protocol: UDP,
        class: 0x20 | ECT_0,
        fragment: 0,
    };
    let frame = ethernet(mac(2, 10), pod.mac(), IP4, &header.packet(&udp((1, 2), b"x")));
    assert_eq!(first_word(&node, &wire, &pod, &frame).0, 46 << 2 | u32::from(ECT_0));
}

#[test]
fn flows_are_spread_over_next_hops() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let pod = node.add_pod(10);
    let routers = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]];
    let mut peer = node.switch.nodes().list().unwrap()[&2];
    for (place, router) in routers.into_iter().enumerate() {
        peer.next_hops[place] = NextHop { destination: key_mac(router), ..peer.next_hops[0] };
    }
    peer.next_hop_count = 3;
    node.switch.nodes().set(2, peer).unwrap();
    let way = |port| {
        let packet = ip4(address4(1, 10), address4(2, 10), UDP, &udp((port, 53), b"hello"));
        let frame = ethernet(mac(2, 10), pod.mac(), IP4, &packet);
        pod.tap.send(&frame);
        wire.tap.expect("an encapsulated frame", |arrived| arrived.len() > 54 && arrived[54..] == frame)[..6]
            .to_vec()
    };
    let ways: Vec<_> = (0..60).map(way).collect();
    for router in routers {
        let taken = ways.iter().filter(|way| way[..] == router).count();
        assert!(taken > 5, "{taken} of 60 flows go by {router:02x?}");
    }
    assert_eq!((0..60).map(way).collect::<Vec<_>>(), ways, "each flow keeps its way");
}
