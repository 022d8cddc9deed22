//! Broadcast, unknown unicast and multicast.

use agent_switch::Table as _;
use bpf_common::{
    counters::{DropReason, Event},
    maps::{FloodEndpoint, NETWORK_EXISTS, NETWORK_FLOOD, NETWORK_FLOOD_UNKNOWN},
};

use crate::{
    node::{Node, address4, in_locator, link_local, mac},
    packets::{BROADCAST, IP4, IP6, MADE_UP, ethernet, icmp6, ip4, ip6, link_layer},
    root::need_root,
    wire::{FLOOD, Wire, addresses},
    world::wait_for,
};

fn broadcast(octet: u8) -> Vec<u8> {
    ethernet(BROADCAST, mac(1, 10), MADE_UP, &[octet; 60])
}

#[test]
fn each_peer_and_each_endpoint_gets_one_copy() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    for peer in [3, 4, 5] {
        node.add_peer(peer, "ul0", wire.far);
    }
    let (pod, other) = (node.add_pod(10), node.add_pod(11));
    pod.tap.send(&broadcast(1));
    let mut peers: Vec<_> = (0..4)
        .map(|_| {
            let outer = wire.expect("a copy", FLOOD);
            assert_eq!(
                (&outer[..6], &outer[6..12], &outer[54..]),
                (&wire.far[..], &wire.near[..], &*broadcast(1))
            );
            assert_eq!(addresses(&outer).0, in_locator(1, 0, 1));
            addresses(&outer).1
        })
        .collect();
    peers.sort_unstable();
    assert_eq!(peers, [2, 3, 4, 5].map(|peer| in_locator(peer, FLOOD, 0)));
    for tap in [&other.tap, &node.gateway] {
        tap.expect("a copy", |frame| frame == broadcast(1));
        assert_eq!(tap.drain(), Vec::<Vec<u8>>::new());
    }
    assert_eq!((pod.tap.drain(), wire.tap.drain()), (vec![], vec![]));
    assert_eq!((node.events(Event::FloodedRemote), node.events(Event::FloodedLocal)), (4, 2));
}

#[test]
fn a_copy_that_cannot_be_made_is_counted_and_the_others_are_made() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let (pod, other) = (node.add_pod(10), node.add_pod(11));
    // A peer whose next hop is unknown, one without a way, one with a small MTU; then one more that works.
    node.add_peer(3, "ul0", [0; 6]);
    node.add_peer(4, "ul0", wire.far);
    node.add_peer(5, "ul0", wire.far);
    node.add_peer(6, "ul0", wire.far);
    let mut nodes = node.switch.nodes().list().unwrap();
    nodes.get_mut(&4).unwrap().next_hop_count = 0;
    nodes.get_mut(&5).unwrap().mtu = 50;
    for number in [4, 5] {
        node.switch.nodes().set(number, nodes[&number]).unwrap();
    }
    pod.tap.send(&broadcast(2));
    for peer in [2, 6] {
        assert_eq!(addresses(&wire.expect("a copy", FLOOD)).1, in_locator(peer, FLOOD, 0));
    }
    other.tap.expect("a copy", |frame| frame == broadcast(2));
    assert_eq!((node.drops(DropReason::NoNextHop), node.drops(DropReason::TooBig)), (2, 1));
    // Endpoints whose link is gone, of another network, and a hole.
    let gone = FloodEndpoint { ifindex: 9999, network: 1 };
    let foreign = FloodEndpoint { ifindex: other.ifindex, network: 2 };
    for (slot, endpoint) in [(3, gone), (4, foreign), (5, FloodEndpoint::default())] {
        node.switch.flood_endpoints().set(slot, endpoint).unwrap();
    }
    node.set_network(|network| network.flood_endpoints = 6);
    pod.tap.send(&broadcast(3));
    other.tap.expect("a copy", |frame| frame == broadcast(3));
    node.gateway.expect("a copy", |frame| frame == broadcast(3));
    wait_for("the count", || (node.drops(DropReason::Room) == 1).then_some(()));
    assert_eq!(other.tap.drain(), Vec::<Vec<u8>>::new());
}

#[test]
fn the_network_decides_what_is_flooded() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let (pod, other) = (node.add_pod(10), node.add_pod(11));
    let unknown = ethernet([2, 0, 0, 0, 0, 9], pod.mac(), MADE_UP, &[0; 46]);
    assert_eq!(node.drop_by("unknown unicast", || pod.tap.send(&unknown)), DropReason::UnknownUnicast);
    node.set_network(|network| network.flags = NETWORK_EXISTS | NETWORK_FLOOD | NETWORK_FLOOD_UNKNOWN);
    pod.tap.send(&unknown);
    other.tap.expect("unknown unicast", |frame| frame == unknown);
    assert_eq!(wire.expect("unknown unicast", FLOOD)[54..], unknown);
    node.set_network(|network| network.flags = NETWORK_EXISTS);
    assert_eq!(node.drop_by("broadcast", || pod.tap.send(&broadcast(1))), DropReason::FloodingOff);
    node.set_network(|network| network.flags = NETWORK_FLOOD);
    assert_eq!(node.drop_by("no network", || pod.tap.send(&broadcast(1))), DropReason::FloodingOff);
    node.set_network(|network| {
        network.flags = NETWORK_EXISTS | NETWORK_FLOOD;
        network.flood_nodes = 0;
    });
    pod.tap.send(&broadcast(4));
    other.tap.expect("broadcast", |frame| frame == broadcast(4));
    assert_eq!(wire.tap.drain(), Vec::<Vec<u8>>::new());
}

#[test]
fn chatter_stays_on_the_node() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let (pod, other) = (node.add_pod(10), node.add_pod(11));
    let own = link_local(1, 10);
    let routers = "ff02::2".parse().unwrap();
    let snoopers = "ff02::16".parse().unwrap();
    let group = [0x33, 0x33, 0, 0, 0, 0x16];
    let solicitation =
        icmp6(own, routers, &[&[133, 0, 0, 0, 0, 0, 0, 0], link_layer(1, pod.mac()).as_slice()].concat());
    let report = {
        let message = icmp6(own, snoopers, &[143, 0, 0, 0, 0, 0, 0, 0]);
        let alert = [58, 0, 5, 2, 0, 0, 1, 0];
        ip6(own, snoopers, 0, &[&alert, &message[40..]].concat())
    };
    let igmp = ip4(address4(1, 10), "224.0.0.22".parse().unwrap(), 2, &[0x22, 0, 0, 0, 0, 0, 0, 0]);
    let frames = [
        ("a router solicitation", ethernet([0x33, 0x33, 0, 0, 0, 2], pod.mac(), IP6, &solicitation)),
        ("a listener report", ethernet(group, pod.mac(), IP6, &report)),
        ("IGMP", ethernet([1, 0, 0x5e, 0, 0, 0x16], pod.mac(), IP4, &igmp)),
    ];
    for (what, frame) in &frames {
        pod.tap.send(frame);
        other.tap.expect(what, |arrived| arrived == frame);
    }
    assert_eq!(node.events(Event::Chatter), 3);
    pod.tap.send(&broadcast(9));
    assert_eq!(wire.expect("what is no chatter", FLOOD)[54..], broadcast(9));
    assert_eq!(node.events(Event::FloodedRemote), 1);
}

#[test]
fn a_storm_is_bounded_and_spares_unicast() {
    need_root!(Alone);
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let (pod, other) = (node.add_pod(10), node.add_pod(11));
    node.set_network(|network| network.storm_rate = 20);
    for _ in 0..200 {
        pod.tap.send(&broadcast(1));
    }
    let unicast = ethernet(other.mac(), pod.mac(), MADE_UP, &[7; 46]);
    pod.tap.send(&unicast);
    other.tap.expect("unicast", |frame| frame == unicast);
    let flooded = node.events(Event::FloodedRemote);
    assert!((20..=40).contains(&flooded), "{flooded} of 200 passed a limit of 20 a second");
    assert_eq!(node.drops(DropReason::StormLimit), 200 - flooded);
    assert_eq!(wire.tap.drain().len() as u64, flooded);
    // Each endpoint has a limit of its own, the node too.
    other.tap.send(&ethernet(BROADCAST, other.mac(), MADE_UP, &[3; 46]));
    wire.expect("another's broadcast", FLOOD);
    for _ in 0..50 {
        node.gateway.send(&ethernet(BROADCAST, mac(1, 1), MADE_UP, &[3; 46]));
    }
    wait_for("the gateway's limit", || (node.drops(DropReason::StormLimit) > 200 - flooded).then_some(()));
    node.set_network(|network| network.storm_rate = 0);
    let reason = node.drop_by("no broadcast at all", || {
        other.tap.send(&ethernet(BROADCAST, other.mac(), MADE_UP, &[3; 46]));
    });
    assert_eq!(reason, DropReason::StormLimit);
}
