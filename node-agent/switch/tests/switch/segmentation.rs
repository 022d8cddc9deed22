//! Super-packets: cut by the segmenter, never sent as they are.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
};

use agent_switch::Table as _;
use bpf_common::counters::{DropReason, Event};

use crate::{
    node::{Node, address4, address6, mac},
    packets::{IP4, UDP, ethernet, ip4, udp},
    pod::Pod,
    root::need_root,
    stream::{MEGABYTE, pattern, transfer},
    tap::Tap,
    wire::nodes,
    world::{Namespace, PATIENCE, wait_for},
};

/// Whether a frame on the underlay is larger than it may be there.
fn oversized(tap: &Tap) -> usize {
    tap.drain().iter().filter(|frame| frame.len() > 1514).count()
}

fn pods() -> ([Node; 2], [Pod; 2]) {
    let [mut one, mut two] = nodes();
    let pods = [one.add_pod(10), two.add_pod(10)];
    pods.iter().for_each(Pod::wake);
    ([one, two], pods)
}

#[test]
fn tcp_with_all_offloads_crosses_nodes() {
    need_root!(Alone);
    let ([one, two], [a, b]) = pods();
    let uplink = Tap::new(&two.namespace, "ul0");
    let data = pattern(8 * MEGABYTE);
    for to in [IpAddr::from(address4(2, 10)), address6(2, 10).into()] {
        transfer(&a.namespace, &b.namespace, to, &data);
    }
    for to in [IpAddr::from(address4(1, 10)), address6(1, 10).into()] {
        transfer(&b.namespace, &a.namespace, to, &data);
    }
    for node in [&one, &two] {
        assert!(node.events(Event::Segmented) > 100, "{:?}", node.counters());
        let lost: Vec<_> = node.counters().drops.into_iter().filter(|(_, count)| *count != 0).collect();
        assert_eq!(lost, []);
    }
    assert_eq!(oversized(&uplink), 0);
}

#[test]
fn tcp_recovers_where_packets_are_too_big() {
    need_root!(Alone);
    let ([mut one, two], [a, b]) = pods();
    let mut peer = one.switch.nodes().list().unwrap()[&2];
    let data = pattern(2 * MEGABYTE);
    // The first is less than the options of a TCP header away from what the pods' links take.
    for mtu in [1440, 1300] {
        peer.mtu = mtu;
        one.switch.nodes().set(2, peer).unwrap();
        let (answers, segmented) = (one.events(Event::TooBigSent), one.events(Event::Segmented));
        for to in [IpAddr::from(address4(2, 10)), address6(2, 10).into()] {
            transfer(&a.namespace, &b.namespace, to, &data);
        }
        let answers = one.events(Event::TooBigSent) - answers;
        assert!((2..50).contains(&answers), "{answers} packets were answered");
        assert!(one.events(Event::Segmented) > segmented + 50);
    }
    // All were answered before they were cut: their size was known from their real headers.
    assert_eq!(one.drops(DropReason::TooBig), 0);
    assert_eq!(two.drops(DropReason::Truncated), 0);
}

/// A socket that hands the kernel datagrams of `segment` bytes in one piece (UDP_SEGMENT, udp(7)).
fn segmenting_socket(from: &Namespace, address: IpAddr, segment: u32) -> UdpSocket {
    const UDP_SEGMENT: i32 = 103;
    let socket = from.enter(|| UdpSocket::bind((address, 0))).unwrap();
    let len = size_of_val(&segment) as libc::socklen_t;
    // SAFETY: `segment` is valid for `len` bytes.
    let status = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, UDP_SEGMENT, (&raw const segment).cast(), len)
    };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
    socket
}

fn listening(to: &Namespace, address: impl Into<IpAddr>) -> (UdpSocket, SocketAddr) {
    let address = address.into();
    let socket = to.enter(|| UdpSocket::bind((address, 5000))).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

#[test]
fn udp_segments_arrive_as_they_are() {
    need_root!(Alone);
    let ([one, two], [a, b]) = pods();
    let data = pattern(12_000);
    for (from, to) in [
        (IpAddr::from(address4(1, 10)), IpAddr::from(address4(2, 10))),
        (address6(1, 10).into(), address6(2, 10).into()),
    ] {
        let (receiver, target) = listening(&b.namespace, to);
        let sender = segmenting_socket(&a.namespace, from, 1200);
        sender.send_to(&data, target).unwrap();
        for wanted in data.chunks(1200) {
            let mut datagram = [0; 2000];
            let len = receiver.recv(&mut datagram).unwrap();
            assert!(datagram[..len] == *wanted, "a datagram to {to} has changed");
        }
    }
    assert_eq!(one.events(Event::Segmented), 2);
    assert_eq!(two.events(Event::Decapsulated), 20);
}

#[test]
fn flooded_super_packets_reach_everyone() {
    need_root!(Alone);
    let ([mut one, two], [a, b]) = pods();
    let c = one.add_pod(11);
    c.wake();
    let group = std::net::Ipv4Addr::new(239, 1, 2, 3);
    let receivers: Vec<_> = [(&b, address4(2, 10)), (&c, address4(1, 11))]
        .into_iter()
        .map(|(pod, own)| {
            let (socket, _) = listening(&pod.namespace, group);
            socket.join_multicast_v4(&group, &own).unwrap();
            socket
        })
        .collect();
    let sender = segmenting_socket(&a.namespace, address4(1, 10).into(), 1000);
    a.namespace.ip("route add 239.0.0.0/8 dev eth0");
    sender.set_multicast_ttl_v4(4).unwrap();
    let data = pattern(8000);
    let before = two.events(Event::Decapsulated);
    sender.send_to(&data, (group, 5000)).unwrap();
    for receiver in &receivers {
        for wanted in data.chunks(1000) {
            let mut datagram = [0; 2000];
            let len = receiver.recv(&mut datagram).unwrap();
            assert!(datagram[..len] == *wanted, "a datagram has changed");
        }
    }
    assert_eq!(one.events(Event::Segmented), 1);
    wait_for("eight copies", || (two.events(Event::Decapsulated) >= before + 8).then_some(()));
}

#[test]
fn tagged_super_packets_are_cut_as_well() {
    need_root!();
    let ([one, _two], [a, b]) = pods();
    let vlan = |pod: &Pod| {
        let link = ["link", "add", "link", "eth0", "name", "v5", "mtu", "1442", "type", "vlan", "id", "5"];
        pod.namespace.command("ip", &link).output().unwrap().status.success()
    };
    if !vlan(&a) || !vlan(&b) {
        println!("skipped: this kernel has no 802.1Q devices");
        return;
    }
    for (pod, own) in [(&a, "172.16.0.1"), (&b, "172.16.0.2")] {
        pod.namespace.ip(&format!("addr add {own}/24 dev v5\nlink set v5 up"));
    }
    transfer(&a.namespace, &b.namespace, "172.16.0.2".parse().unwrap(), &pattern(MEGABYTE));
    assert!(one.events(Event::Segmented) > 10);
}

#[test]
fn what_else_comes_out_of_the_segmenter_is_dropped() {
    need_root!();
    let node = Node::new(1);
    let segmenter = Tap::new(&node.namespace, "hws0");
    let packet = ip4(address4(1, 10), address4(2, 10), UDP, &udp((1, 2), b"x"));
    let frame = ethernet(mac(2, 10), mac(1, 10), IP4, &packet);
    let reason = node.drop_by("a frame without a mark", || segmenter.send(&frame));
    assert_eq!(reason, DropReason::Segmenter);
}
