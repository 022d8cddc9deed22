//! Flows that the node routes on behalf of a pod: remembered, and their answers handed to the node.

use agent_switch::Table as _;
use bpf_common::counters::Event;

use crate::{
    node::{CONNECTIONS, Node, address4, address6, mac},
    packets::{
        ACK, FIN, ICMP, ICMP6, IP4, IP6, Ip4, Mac, RST, SYN, TCP, UDP, checksum, ethernet, icmp6, ip4, ip6,
        tagged, tcp, udp,
    },
    pod::Pod,
    root::need_root,
    wire::{OUTER, UNICAST, Wire},
};

/// (node, host) of the pod that uses Services.
const CLIENT: (u16, u16) = (1, 10);
/// A backend on another node and one on the client's own.
const BACKENDS: [(u16, u16); 2] = [(2, 10), (1, 11)];
const REMOTE: (u16, u16) = BACKENDS[0];
const PORT: u16 = 8080;
const MORE_FRAGMENTS: u16 = 0x2000;

/// Node 1 with a client and a backend, a peer, and everybody's view of it.
struct Scene {
    node: Node,
    wire: Wire,
    client: Pod,
    local: Pod,
}

type Place = (u16, u16);

fn place_mac((node, host): Place) -> Mac {
    mac(node, host)
}

/// A packet of the family that `protocol` (an EtherType) names.
fn packet(protocol: u16, from: Place, to: Place, upper: u8, payload: &[u8]) -> Vec<u8> {
    if protocol == IP4 {
        ip4(address4(from.0, from.1), address4(to.0, to.1), upper, payload)
    } else {
        ip6(address6(from.0, from.1), address6(to.0, to.1), upper, payload)
    }
}

/// A fragment of a UDP packet, `offset` in bytes; the first one shows the ports.
fn fragment(protocol: u16, from: Place, to: Place, ports: (u16, u16), offset: u16) -> Vec<u8> {
    let payload = if offset == 0 { udp(ports, &[7; 1232]) } else { vec![8; 100] };
    let more = if offset == 0 { MORE_FRAGMENTS } else { 0 };
    if protocol == IP4 {
        let (source, destination) = (address4(from.0, from.1), address4(to.0, to.1));
        return Ip4 { source, destination, protocol: UDP, class: 0, fragment: more | (offset / 8) }
            .packet(&payload);
    }
    let more = u16::from(offset == 0);
    let header = [&[UDP, 0], (offset | more).to_be_bytes().as_slice(), &[0, 0, 0, 9]].concat();
    packet(IP6, from, to, 44, &[header, payload].concat())
}

fn frame(from: Mac, to: Mac, protocol: u16, packet: &[u8]) -> Vec<u8> {
    ethernet(to, from, protocol, packet)
}

impl Scene {
    fn new() -> Self {
        let mut node = Node::new(1);
        let wire = Wire::new(&mut node, 2);
        let (client, local) = (node.add_pod(CLIENT.1), node.add_pod(11));
        Self { node, wire, client, local }
    }

    /// The node's stack sends a packet on behalf of the client, which arrives as if the client had sent it.
    fn routed(&self, backend: Place, protocol: u16, packet: &[u8]) {
        self.node.gateway.send(&frame(mac(1, 1), place_mac(backend), protocol, packet));
        let wanted = frame(place_mac(CLIENT), place_mac(backend), protocol, packet);
        if backend.0 == 1 {
            self.local.tap.expect("the client's packet at a local backend", |arrived| arrived == wanted);
        } else {
            let outer = self.wire.expect("the client's packet at a remote backend", UNICAST);
            assert_eq!(outer[OUTER..], wanted);
        }
    }

    fn answer(&self, backend: Place, protocol: u16, packet: &[u8]) -> Vec<u8> {
        let sent = frame(place_mac(backend), place_mac(CLIENT), protocol, packet);
        if backend.0 == 1 {
            self.local.tap.send(&sent);
        } else {
            self.wire.tap.send(&self.wire.sent_by_peer(UNICAST, &sent));
        }
        sent
    }

    /// A backend's packet to the client reaches the node instead, changed in nothing but the destination MAC.
    #[track_caller]
    fn answered_through_node(&self, backend: Place, protocol: u16, packet: &[u8]) {
        let mut wanted = self.answer(backend, protocol, packet);
        wanted[..6].copy_from_slice(&mac(1, 1));
        self.node.gateway.expect("an answer for the node", |arrived| arrived == wanted);
        assert_eq!(self.client.tap.drain(), Vec::<Vec<u8>>::new());
    }

    /// A backend's packet reaches the client straight.
    #[track_caller]
    fn answered_straight(&self, backend: Place, protocol: u16, packet: &[u8]) {
        let wanted = self.answer(backend, protocol, packet);
        self.client.tap.expect("an answer for the client", |arrived| arrived == wanted);
        assert_eq!(self.node.gateway.drain(), Vec::<Vec<u8>>::new());
    }

    fn client_sends(&self, backend: Place, protocol: u16, packet: &[u8]) {
        self.client.tap.send(&frame(place_mac(CLIENT), place_mac(backend), protocol, packet));
        self.wire.expect("what the client sends itself", UNICAST);
    }
}

fn upper(kind: u8, ports: (u16, u16), flags: u8) -> Vec<u8> {
    if kind == TCP { tcp(ports, flags) } else { udp(ports, b"hello") }
}

#[test]
fn answers_to_what_the_node_routes_for_a_pod_go_to_the_node() {
    need_root!();
    let scene = Scene::new();
    for backend in BACKENDS {
        for protocol in [IP4, IP6] {
            for kind in [TCP, UDP] {
                let there = packet(protocol, CLIENT, backend, kind, &upper(kind, (4000, PORT), SYN));
                let back = |ports| packet(protocol, backend, CLIENT, kind, &upper(kind, ports, SYN | ACK));
                scene.answered_straight(backend, protocol, &back((PORT, 4000)));
                scene.routed(backend, protocol, &there);
                scene.answered_through_node(backend, protocol, &back((PORT, 4000)));
                scene.answered_through_node(backend, protocol, &back((PORT, 4000)));
                scene.answered_straight(backend, protocol, &back((PORT, 4001)));
                scene.answered_straight(backend, protocol, &back((PORT + 1, 4000)));
                let other = if kind == TCP { UDP } else { TCP };
                let other = packet(protocol, backend, CLIENT, other, &upper(other, (PORT, 4100), ACK));
                scene.answered_straight(backend, protocol, &other);
            }
        }
    }
    assert_eq!(scene.node.events(Event::ServiceAnswer), 16);
    assert_eq!(scene.node.events(Event::ServiceFlow), 8);
    assert_eq!(scene.node.events(Event::ServiceFlowLost), 0);
}

#[test]
fn only_flows_of_local_pods_are_remembered() {
    need_root!();
    let scene = Scene::new();
    let outside = "192.0.2.7".parse().unwrap();
    let foreign = ip4(outside, address4(2, 10), UDP, &udp((4000, PORT), b"x"));
    let nobody = packet(IP4, (1, 99), REMOTE, UDP, &udp((4000, PORT), b"x"));
    let own = packet(IP4, (1, 1), REMOTE, UDP, &udp((4000, PORT), b"x"));
    let remote = packet(IP4, (3, 10), REMOTE, UDP, &udp((4000, PORT), b"x"));
    let within_a_vlan = packet(IP4, CLIENT, REMOTE, UDP, &udp((4000, PORT), b"x"));
    for (tags, packet) in
        [(&[][..], foreign), (&[], nobody), (&[], own), (&[], remote), (&[(0x8100, 5)], within_a_vlan)]
    {
        let sent = tagged(mac(2, 10), mac(1, 1), tags, IP4, &packet);
        scene.node.gateway.send(&sent);
        assert_eq!(scene.wire.expect("the frame", UNICAST)[OUTER..], sent);
    }
    assert_eq!(scene.node.events(Event::ServiceFlow), 0);
    scene.answered_straight(REMOTE, IP4, &packet(IP4, REMOTE, CLIENT, UDP, &udp((PORT, 4000), b"x")));
}

#[test]
fn fragments_of_answers_go_to_the_node_as_well() {
    need_root!();
    let scene = Scene::new();
    for backend in BACKENDS {
        for protocol in [IP4, IP6] {
            let back = |offset| fragment(protocol, backend, CLIENT, (PORT, 4000), offset);
            scene.answered_straight(backend, protocol, &back(0));
            scene.answered_straight(backend, protocol, &back(1240));
            scene.routed(
                backend,
                protocol,
                &packet(protocol, CLIENT, backend, UDP, &upper(UDP, (4000, PORT), 0)),
            );
            scene.answered_through_node(backend, protocol, &back(0));
            scene.answered_through_node(backend, protocol, &back(1240));
        }
    }
}

#[test]
fn a_question_in_fragments_makes_the_flow_known() {
    need_root!();
    let scene = Scene::new();
    for protocol in [IP4, IP6] {
        for offset in [0, 1240] {
            scene.routed(REMOTE, protocol, &fragment(protocol, CLIENT, REMOTE, (4000, PORT), offset));
        }
        scene.answered_through_node(
            REMOTE,
            protocol,
            &packet(protocol, REMOTE, CLIENT, UDP, &upper(UDP, (PORT, 4000), 0)),
        );
    }
}

#[test]
fn errors_about_what_the_node_routes_go_to_the_node() {
    need_root!();
    let scene = Scene::new();
    for backend in BACKENDS {
        for (protocol, kind) in [(IP4, TCP), (IP4, UDP), (IP6, TCP), (IP6, UDP)] {
            let there = |port| packet(protocol, CLIENT, backend, kind, &upper(kind, (port, PORT), SYN));
            scene.routed(backend, protocol, &there(4000));
            scene.answered_through_node(backend, protocol, &error(protocol, backend, 1, &there(4000)));
            scene.answered_straight(backend, protocol, &error(protocol, backend, 1, &there(4001)));
        }
    }
    // A router on the way tells as well: here the gateway of the backend's node.
    let quoted = packet(IP4, CLIENT, REMOTE, UDP, &upper(UDP, (4000, PORT), 0));
    scene.answered_through_node((2, 1), IP4, &error(IP4, (2, 1), 1, &quoted));
    // What is asked for is no error, whatever it carries.
    scene.answered_straight(REMOTE, IP4, &error(IP4, REMOTE, 0, &quoted));
}

/// An ICMP message of type 3 or 1, "unreachable", if `kind` is 1; else an echo reply.
fn error(protocol: u16, from: Place, kind: u8, quoted: &[u8]) -> Vec<u8> {
    if protocol == IP6 {
        let kind = if kind == 1 { 1 } else { 129 };
        let message = [&[kind, 4, 0, 0, 0, 0, 0, 0], quoted].concat();
        return icmp6(address6(from.0, from.1), address6(CLIENT.0, CLIENT.1), &message);
    }
    let mut message = [&[kind * 3, 3, 0, 0, 0, 0, 0, 0], &quoted[..28]].concat();
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    packet(IP4, from, CLIENT, ICMP, &message)
}

#[test]
fn the_node_is_told_what_is_too_big_for_the_backend() {
    need_root!();
    let mut scene = Scene::new();
    let mut peer = scene.node.switch.nodes().list().unwrap()[&2];
    peer.mtu = 1300;
    scene.node.switch.nodes().set(2, peer).unwrap();
    for (protocol, next) in [(IP4, ICMP), (IP6, ICMP6)] {
        let large = packet(protocol, CLIENT, REMOTE, UDP, &udp((4000, PORT), &[1; 1300]));
        scene.node.gateway.send(&frame(mac(1, 1), place_mac(REMOTE), protocol, &large));
        let told = scene.node.gateway.expect("an ICMP error", |arrived| {
            arrived[12..14] == protocol.to_be_bytes()
                && arrived[if protocol == IP4 { 23 } else { 20 }] == next
        });
        assert_eq!(told[..12], [mac(1, 1), mac(2, 10)].concat());
    }
    assert_eq!(scene.client.tap.drain(), Vec::<Vec<u8>>::new());
}

#[test]
fn what_a_pod_sends_straight_is_answered_straight() {
    need_root!();
    let scene = Scene::new();
    for protocol in [IP4, IP6] {
        for kind in [TCP, UDP] {
            let there = |flags| packet(protocol, CLIENT, REMOTE, kind, &upper(kind, (4000, PORT), flags));
            let back = |flags| packet(protocol, REMOTE, CLIENT, kind, &upper(kind, (PORT, 4000), flags));
            scene.routed(REMOTE, protocol, &there(SYN));
            if kind == TCP {
                // Only the beginning of a connection says that it is another one, and nobody answers with one.
                scene.client_sends(REMOTE, protocol, &there(ACK));
                scene.answered_through_node(REMOTE, protocol, &back(ACK));
                scene.answered_straight(REMOTE, protocol, &back(SYN));
            }
            scene.client_sends(REMOTE, protocol, &there(SYN));
            scene.answered_straight(REMOTE, protocol, &back(ACK));
            scene.routed(REMOTE, protocol, &there(SYN));
            scene.answered_through_node(REMOTE, protocol, &back(ACK));
        }
    }
}

/// Opens so many other connections through the node, with what else `flags` say.
fn others(scene: &Scene, kind: u8, flags: &[u8]) {
    for port in 0..4 * CONNECTIONS as u16 {
        for flags in flags {
            let there = packet(IP4, CLIENT, REMOTE, kind, &upper(kind, (10_000 + port, PORT), *flags));
            scene.routed(REMOTE, IP4, &there);
        }
    }
}

#[test]
fn an_idle_connection_is_remembered_while_others_come_and_go() {
    need_root!();
    let scene = Scene::new();
    scene.routed(REMOTE, IP4, &packet(IP4, CLIENT, REMOTE, TCP, &tcp((4000, PORT), SYN)));
    let back = packet(IP4, REMOTE, CLIENT, TCP, &tcp((PORT, 4000), ACK));
    others(&scene, UDP, &[0]);
    scene.answered_through_node(REMOTE, IP4, &back);
    others(&scene, TCP, &[SYN, RST]);
    scene.answered_through_node(REMOTE, IP4, &back);
    for port in 0..2 * CONNECTIONS as u16 {
        let ports = (10_000 + port, PORT);
        for flags in [SYN, ACK, FIN | ACK] {
            scene.routed(REMOTE, IP4, &packet(IP4, CLIENT, REMOTE, TCP, &tcp(ports, flags)));
        }
        let end = packet(IP4, REMOTE, CLIENT, TCP, &tcp((ports.1, ports.0), FIN | ACK));
        scene.answered_through_node(REMOTE, IP4, &end);
        // The last word finds its way after the end, and again if it was lost.
        scene.routed(REMOTE, IP4, &packet(IP4, CLIENT, REMOTE, TCP, &tcp(ports, ACK)));
        scene.answered_through_node(REMOTE, IP4, &end);
    }
    scene.answered_through_node(REMOTE, IP4, &back);
    assert_eq!(scene.node.events(Event::ServiceFlowLost), 0);
}

#[test]
fn a_connection_that_was_forgotten_is_remembered_again_and_counted() {
    need_root!();
    let scene = Scene::new();
    let there = |flags| packet(IP4, CLIENT, REMOTE, TCP, &tcp((4000, PORT), flags));
    let back = packet(IP4, REMOTE, CLIENT, TCP, &tcp((PORT, 4000), ACK));
    scene.routed(REMOTE, IP4, &there(SYN));
    others(&scene, TCP, &[SYN]);
    scene.answered_straight(REMOTE, IP4, &back);
    assert_eq!(scene.node.events(Event::ServiceFlowLost), 0);
    scene.routed(REMOTE, IP4, &there(ACK));
    scene.answered_through_node(REMOTE, IP4, &back);
    assert_eq!(scene.node.events(Event::ServiceFlowLost), 1);
}

#[test]
fn a_connection_that_is_used_is_not_forgotten() {
    need_root!();
    let scene = Scene::new();
    let there = |port, flags| packet(IP4, CLIENT, REMOTE, TCP, &tcp((port, PORT), flags));
    scene.routed(REMOTE, IP4, &there(4000, SYN));
    scene.routed(REMOTE, IP4, &there(4001, SYN));
    for port in 0..4 * CONNECTIONS as u16 {
        scene.routed(REMOTE, IP4, &there(10_000 + port, SYN));
        if port % 64 == 0 {
            // One is kept by what its client sends, the other by what its backend sends.
            scene.routed(REMOTE, IP4, &there(4000, ACK));
            let back = packet(IP4, REMOTE, CLIENT, TCP, &tcp((PORT, 4001), ACK));
            scene.answered_through_node(REMOTE, IP4, &back);
        }
    }
    for port in [4000, 4001] {
        let back = packet(IP4, REMOTE, CLIENT, TCP, &tcp((PORT, port), ACK));
        scene.answered_through_node(REMOTE, IP4, &back);
    }
    assert_eq!(scene.node.events(Event::ServiceFlowLost), 0);
}

#[test]
fn what_the_programs_note_with_an_endpoint_is_theirs() {
    need_root!();
    let mut scene = Scene::new();
    let there = packet(IP4, CLIENT, REMOTE, UDP, &upper(UDP, (4000, PORT), 0));
    let back = packet(IP4, REMOTE, CLIENT, UDP, &upper(UDP, (PORT, 4000), 0));
    let (endpoints, fdb) = {
        let switch = &mut scene.node.switch;
        (switch.endpoints().list().unwrap(), switch.fdb().list().unwrap())
    };
    scene.routed(REMOTE, IP4, &there);
    let switch = &mut scene.node.switch;
    assert_eq!(switch.endpoints().list().unwrap(), endpoints);
    assert_eq!(switch.fdb().list().unwrap(), fdb);
    for (key, value) in endpoints {
        switch.endpoints().set(key, value).unwrap();
    }
    for (key, value) in fdb {
        switch.fdb().set(key, value).unwrap();
    }
    scene.answered_through_node(REMOTE, IP4, &back);
    scene.client_sends(REMOTE, IP4, &there);
    scene.answered_straight(REMOTE, IP4, &back);
}

#[test]
fn a_new_pod_with_the_address_of_an_old_one_does_not_inherit_its_flows() {
    need_root!();
    let mut scene = Scene::new();
    let there = |port| packet(IP4, CLIENT, REMOTE, UDP, &upper(UDP, (port, PORT), 0));
    let back = |port| packet(IP4, REMOTE, CLIENT, UDP, &upper(UDP, (PORT, port), 0));
    scene.routed(REMOTE, IP4, &there(4000));
    scene.node.namespace.ip("link del hw10");
    scene.client = scene.node.add_pod(CLIENT.1);
    scene.answered_straight(REMOTE, IP4, &back(4000));
    scene.routed(REMOTE, IP4, &there(4001));
    scene.answered_straight(REMOTE, IP4, &back(4000));
    scene.answered_through_node(REMOTE, IP4, &back(4001));
}
