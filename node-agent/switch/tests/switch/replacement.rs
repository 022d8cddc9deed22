//! Programs in their links: replaced under traffic, found again, cleaned up.

use std::{
    fs,
    net::UdpSocket,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use agent_switch::{Attached, Error, Foreign, Layout, Program, Switch, Table};

use crate::{
    foreign,
    node::{CONNECTIONS, Node, address4, mac},
    packets::{IP4, MADE_UP, UDP, ethernet, ip4, udp},
    pod::Pod,
    root::need_root,
    wire::{Wire, nodes},
};

/// The other agent's view: a second switch on the same maps and links.
fn second(node: &Node) -> Switch {
    Switch::open(&node.dir.0, CONNECTIONS).unwrap()
}

#[test]
fn no_packet_is_lost_when_programs_are_replaced() {
    need_root!(Alone);
    let [mut one, mut two] = nodes();
    let pods = [one.add_pod(10), two.add_pod(10)];
    pods.iter().for_each(Pod::wake);
    let receiver = pods[1].namespace.enter(|| UdpSocket::bind((address4(2, 10), 5000))).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let sender = pods[0].namespace.enter(|| UdpSocket::bind((address4(1, 10), 0))).unwrap();
    sender.connect((address4(2, 10), 5000)).unwrap();
    let replaced = AtomicBool::new(false);
    thread::scope(|scope| {
        let stream = scope.spawn(|| {
            let mut sent = 0_u32;
            while !replaced.load(Ordering::Relaxed) || sent < 500 {
                sender.send(&sent.to_be_bytes()).unwrap();
                sent += 1;
                thread::sleep(Duration::from_millis(1));
            }
            sent
        });
        let arrivals = scope.spawn(|| {
            let mut received = 0;
            let mut number = [0; 4];
            while receiver.recv(&mut number).is_ok() {
                assert_eq!(u32::from_be_bytes(number), received);
                received += 1;
            }
            received
        });
        for _ in 0..5 {
            for node in [&one, &two] {
                let mut newer = second(node);
                let attached = newer_attachments(node, &mut newer);
                assert!(attached.values().all(|state| *state == Attached::Other), "{attached:?}");
                for (program, ifindex) in attached.into_keys() {
                    node.namespace.enter(|| newer.attach(program, ifindex)).unwrap();
                }
                let attached = newer_attachments(node, &mut newer);
                assert!(attached.values().all(|state| *state == Attached::Current), "{attached:?}");
            }
        }
        replaced.store(true, Ordering::Relaxed);
        assert_eq!(arrivals.join().unwrap(), stream.join().unwrap());
    });
}

fn newer_attachments(
    node: &Node,
    switch: &mut Switch,
) -> std::collections::BTreeMap<(Program, u32), Attached> {
    node.namespace.enter(|| switch.attachments()).unwrap()
}

#[test]
fn links_are_found_again_and_attached_once() {
    need_root!();
    let mut node = Node::new(1);
    let _wire = Wire::new(&mut node, 2);
    let pod = node.add_pod(10);
    let uplink = node.namespace.ifindex("ul0");
    let gateway = node.namespace.ifindex("hw0p");
    let segment = node.namespace.ifindex("hws1");
    let mut wanted: Vec<_> = [
        (Program::Endpoint, pod.ifindex),
        (Program::Endpoint, gateway),
        (Program::Uplink, uplink),
        (Program::Segment, segment),
    ]
    .map(|key| (key, Attached::Current))
    .into();
    wanted.sort_unstable_by_key(|(key, _)| *key);
    node.attach(Program::Uplink, uplink);
    let attached = |node: &mut Node| {
        let switch = &mut node.switch;
        node.namespace.enter(|| switch.attachments()).unwrap().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(attached(&mut node), wanted);
    node.switch.detach(Program::Uplink, uplink).unwrap();
    node.switch.detach(Program::Uplink, uplink).unwrap();
    wanted.retain(|((program, _), _)| *program != Program::Uplink);
    assert_eq!(attached(&mut node), wanted);
    agent_switch::remove_all(&node.dir.0).unwrap();
    // The kernel itself puts two files into the root: maps.debug and progs.debug.
    let left = fs::read_dir(&node.dir.0).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.filter(|name| !name.to_string_lossy().ends_with(".debug")).count(), 0);
    agent_switch::remove_all(&node.dir.0).unwrap();
}

#[test]
fn a_link_that_was_made_anew_is_attached_anew() {
    need_root!();
    let mut node = Node::new(1);
    let pod = node.add_pod(10);
    let state = |node: &mut Node| {
        let switch = &mut node.switch;
        node.namespace.enter(|| switch.attachments()).unwrap()[&(Program::Endpoint, pod.ifindex)]
    };
    node.namespace.ip("link del hw10");
    assert_eq!(state(&mut node), Attached::Gone);
    let switch = &mut node.switch;
    let missing = node.namespace.enter(|| switch.attach(Program::Endpoint, pod.ifindex));
    assert!(matches!(missing, Err(Error::NoDevice { ifindex }) if ifindex == pod.ifindex), "{missing:?}");
    node.namespace
        .ip(&format!("link add hw10 index {} type veth peer name far\nlink set hw10 up", pod.ifindex));
    assert_eq!(state(&mut node), Attached::Gone);
    node.attach(Program::Endpoint, pod.ifindex);
    assert_eq!(state(&mut node), Attached::Current);
}

#[test]
fn we_come_first_and_notice_who_came_before() {
    need_root!();
    let mut node = Node::new(1);
    let wire = Wire::new(&mut node, 2);
    let (pod, other) = (node.add_pod(10), node.add_pod(11));
    let uplink = node.namespace.ifindex("ul0");
    let ahead = |node: &Node| node.namespace.enter(|| node.switch.ahead_of_us(uplink)).unwrap();
    assert_eq!(ahead(&node), []);
    let _theirs = foreign::attach_ahead(&node.namespace, uplink);
    let found = ahead(&node);
    assert!(matches!(&found[..], [Foreign { name, .. }] if name == "foreign"), "{found:?}");
    // Attached anew, ours is first again.
    node.switch.detach(Program::Uplink, uplink).unwrap();
    assert_eq!(ahead(&node), found);
    node.attach(Program::Uplink, uplink);
    assert_eq!(ahead(&node), []);
    let loopback = node.namespace.ifindex("lo");
    assert_eq!(node.namespace.enter(|| node.switch.ahead_of_us(loopback)).unwrap(), []);
    let frame = ethernet(mac(1, 11), pod.mac(), MADE_UP, &[0; 46]);
    pod.tap.send(&frame);
    other.tap.expect("a frame", |arrived| arrived == frame);
    drop(wire);
}

fn copy<T: Table>(from: &impl Table<Key = T::Key, Value = T::Value>, to: &mut T) {
    for (key, value) in from.list().unwrap() {
        to.set(key, value).unwrap();
    }
}

#[test]
fn flows_that_the_node_routes_outlive_a_change_of_layout() {
    need_root!();
    let mut node = Node::new(1);
    let pods = [node.add_pod(10), node.add_pod(11)];
    let there = ip4(address4(1, 10), address4(1, 11), UDP, &udp((4000, 80), b"x"));
    node.gateway.send(&ethernet(mac(1, 11), mac(1, 1), IP4, &there));
    pods[1].tap.expect("the client's packet", |arrived| arrived[6..12] == mac(1, 10));
    // Let what is there be another release's.
    let folder = |layout: Layout| node.dir.0.join(format!("{}-{}", layout.major, layout.minor));
    let other = Layout { minor: Layout::OWN.minor + 1, ..Layout::OWN };
    fs::rename(folder(Layout::OWN), folder(other)).unwrap();
    let mut own = second(&node);
    let before = &mut node.switch;
    copy(before.settings(), own.settings());
    copy(before.networks(), own.networks());
    copy(before.prefixes4(), own.prefixes4());
    copy(before.endpoints(), own.endpoints());
    copy(before.fdb(), own.fdb());
    for (program, ifindex) in node.namespace.enter(|| own.attachments()).unwrap().into_keys() {
        node.namespace.enter(|| own.attach(program, ifindex)).unwrap();
    }
    let back = ip4(address4(1, 11), address4(1, 10), UDP, &udp((80, 4000), b"x"));
    pods[1].tap.send(&ethernet(mac(1, 10), mac(1, 11), IP4, &back));
    node.gateway.expect("the answer", |arrived| *arrived == ethernet(mac(1, 1), mac(1, 11), IP4, &back));
}
