//! Address resolution stays on the node; discovery, multicast, tunnels and NAT work across nodes.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    time::Duration,
};

use e2e::{
    Capture, Cluster, Pod, Shared, frame,
    packet_socket::Direction,
    root_or_skip,
    tcp::{self, Amount},
    wait_for, wait_until,
};
use serde_json::json;

static CLUSTER: Shared = Shared::new(|| Cluster::builder().nodes(3).start());
static QUIET: Shared = Shared::new(|| {
    Cluster::builder().config(|_, config| config["network"] = json!({"flooding": {"mode": "off"}})).start()
});
const PATIENCE: Duration = Duration::from_secs(3);

/// Address resolution carried to a peer.
fn carried_resolution(frame: &[u8]) -> bool {
    frame::inner(frame).is_some_and(frame::is_resolution)
}

#[test]
fn resolution_for_pods_never_leaves_the_node() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let pods = [cluster.a().add_pod("r1"), cluster.a().add_pod("r2"), cluster.b().add_pod("r3")];
    for pod in &pods {
        let _ready = settled(pod, frame::link_local(pod.mac()));
    }
    let captures = [1, 2, 3].map(|node| Capture::start(&cluster.node(node).netns, "eth0"));
    for from in &pods {
        from.netns.run("ip neigh flush all");
        for to in pods.iter().filter(|to| to.attachment.container != from.attachment.container) {
            to.addresses().into_iter().for_each(|address| assert!(from.pings(address), "{address}"));
            assert!(
                from.netns
                    .output(&format!("ping -n -c 1 -W 1 {}%eth0", frame::link_local(to.mac())))
                    .status
                    .success()
            );
        }
    }
    // Nobody has these: in an own prefix, in a peer's prefix.
    for nobody in ["10.1.1.200", "fd10:0:0:1::c8"] {
        assert!(!pods[0].pings(nobody.parse::<IpAddr>().expect("a literal address")));
    }
    let frames = captures.map(Capture::stop);
    let carried = |frame: &[u8]| frame::inner(frame).is_some();
    assert!(frames[0].count(Direction::Out, carried) > 0, "nothing was carried at all");
    for node in frames {
        assert_eq!(node.count(Direction::Out, carried_resolution), 0, "ARP or ND was carried to a peer");
    }
}

#[test]
fn neighbour_tables_hold_the_derived_addresses() {
    root_or_skip!();
    let cluster = CLUSTER.beside_others();
    let (near, far) = (cluster.a().add_pod("n1"), cluster.b().add_pod("n2"));
    far.addresses().into_iter().for_each(|address| assert!(near.pings(address), "{address}"));
    for address in far.addresses() {
        let entries = near.netns.ip_json(&format!("neigh show to {address} dev eth0"));
        let mac = frame::parse_mac(entries[0]["lladdr"].as_str().expect("the entry has a MAC"));
        assert_eq!(mac, far.mac(), "{entries}");
        let [_, _, a, b, c, d] = mac;
        assert_eq!((mac[..2].to_vec(), Ipv4Addr::new(a, b, c, d)), (vec![0x0a, 0x58], far.ip4()));
    }
}

#[test]
fn duplicate_address_detection_finds_the_owner_on_any_node() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let owner = cluster.a().add_pod("d1");
    for (place, claimant) in
        [("the same node", cluster.a().add_pod("d2")), ("another node", cluster.b().add_pod("d3"))]
    {
        claimant.netns.run(&format!("ip addr add {}/128 dev eth0", owner.ip6()));
        let flags = settled(&claimant, owner.ip6());
        assert!(flags.contains("dadfailed"), "{place}: the claimant did not hear of the owner: {flags}");
        let free: Ipv6Addr = "fd10:0:0:9::99".parse().expect("a literal address");
        claimant.netns.run(&format!("ip addr add {free}/128 dev eth0"));
        let flags = settled(&claimant, free);
        assert!(!flags.contains("dadfailed"), "{place}: a free address was taken for a duplicate: {flags}");
    }
    assert!(cluster.b().add_pod("d4").pings(owner.ip6()), "the owner is not disturbed");
}

/// The entry of an address once duplicate address detection is through with it.
fn settled(pod: &Pod, address: Ipv6Addr) -> String {
    wait_for("duplicate address detection ends", Duration::from_secs(5), || {
        let text = pod.netns.run(&format!("ip -6 addr show dev eth0 to {address}"));
        (!text.contains("tentative") || text.contains("dadfailed")).then_some(text)
    })
}

#[test]
fn multicast_like_mdns_reaches_members_on_other_nodes() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let (near, far) = (cluster.a().add_pod("m1"), cluster.b().add_pod("m2"));
    let groups =
        [IpAddr::from([224, 0, 0, 251]), IpAddr::from(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb))];
    for group in groups {
        let (index_near, index_far) = (near.netns.ifindex("eth0"), far.netns.ifindex("eth0"));
        let member = far.netns.enter(|| -> std::io::Result<UdpSocket> {
            let any = if group.is_ipv4() {
                IpAddr::from(Ipv4Addr::UNSPECIFIED)
            } else {
                Ipv6Addr::UNSPECIFIED.into()
            };
            let socket = UdpSocket::bind((any, 5353))?;
            match group {
                IpAddr::V4(group) => socket.join_multicast_v4(&group, &far.ip4())?,
                IpAddr::V6(group) => socket.join_multicast_v6(&group, index_far)?,
            }
            socket.set_read_timeout(Some(PATIENCE))?;
            Ok(socket)
        });
        let member = member.expect("a member of the group");
        let source =
            if group.is_ipv4() { near.ip4().into() } else { IpAddr::from(frame::link_local(near.mac())) };
        let packet = frame::udp(source, group, (5353, 5353), b"who is there?");
        let (mac, kind) = match group {
            IpAddr::V4(_) => ([1, 0, 0x5e, 0, 0, 0xfb], frame::IPV4),
            IpAddr::V6(group) => (frame::multicast_mac(group), frame::IPV6),
        };
        assert!(index_near > 0);
        near.socket().send(&frame::ethernet(mac, near.mac(), kind, &packet));
        let mut buffer = [0; 64];
        let (size, from) = member.recv_from(&mut buffer).expect("the question arrives");
        assert_eq!((&buffer[..size], from.ip()), (&b"who is there?"[..], source));
    }
}

#[test]
fn a_flooded_frame_reaches_everyone_exactly_once() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let sender = cluster.a().add_pod("f1");
    let receivers = [
        cluster.a().add_pod("f2"),
        cluster.b().add_pod("f3"),
        cluster.b().add_pod("f4"),
        cluster.node(3).add_pod("f5"),
    ];
    let capture = Capture::start(&cluster.a().netns, "eth0");
    let sockets: Vec<_> = receivers.iter().map(Pod::socket).collect();
    let own = sender.socket();
    let sent = frame::ethernet(frame::BROADCAST, sender.mac(), frame::EXPERIMENTAL, &frame::pattern(77));
    own.send(&sent);
    for socket in &sockets {
        let got = socket.expect("broadcast", PATIENCE, |frame| *frame == sent);
        assert_eq!(got, sent);
    }
    // A second one behind it: when it has arrived, a copy of the first would have, too.
    let mark = frame::ethernet(frame::BROADCAST, sender.mac(), frame::EXPERIMENTAL, &frame::pattern(78));
    own.send(&mark);
    for socket in &sockets {
        let next = socket.expect("the frame behind", PATIENCE, |frame| *frame == sent || *frame == mark);
        assert_eq!(next, mark, "the broadcast came twice");
    }
    assert_eq!(
        own.find(Duration::from_millis(100), |frame| *frame == sent),
        None,
        "it came back to its sender"
    );
    let copies = capture.stop().count(Direction::Out, |frame| frame::inner(frame) == Some(&sent[..]));
    assert_eq!(copies, 2, "one copy a peer");
}

#[test]
fn nothing_is_flooded_while_flooding_is_off() {
    root_or_skip!();
    let cluster = QUIET.alone();
    let (near, beside, far) =
        (cluster.a().add_pod("q1"), cluster.a().add_pod("q2"), cluster.b().add_pod("q3"));
    near.assert_pings(far.ip4());
    near.assert_pings(far.ip6());
    let before = cluster.a().drops();
    let capture = Capture::start(&cluster.a().netns, "eth0");
    let listening = beside.socket();
    let socket = near.socket();
    let sent = frame::ethernet(frame::BROADCAST, near.mac(), frame::EXPERIMENTAL, &frame::pattern(77));
    socket.send(&sent);
    // Addresses that nobody can derive anything from.
    let request = frame::arp(1, (near.mac(), near.ip4()), ([0; 6], Ipv4Addr::new(10, 77, 0, 1)));
    socket.send(&frame::ethernet(frame::BROADCAST, near.mac(), frame::ARP, &request));
    let stranger: Ipv6Addr = "fd77::1".parse().expect("a literal address");
    let packet = frame::icmpv6(
        near.ip6(),
        frame::solicited_node(stranger),
        &frame::neighbour(135, 0, stranger, Some(near.mac())),
    );
    let group = frame::multicast_mac(frame::solicited_node(stranger));
    socket.send(&frame::ethernet(group, near.mac(), frame::IPV6, &packet));
    cluster.a().wait_dropped(&before, "flooding_off", 3);
    assert!(near.pings(far.ip4()));
    let carried = capture
        .stop()
        .count(Direction::Out, |frame| frame::inner(frame).is_some_and(|inner| inner[0] & 1 == 1));
    assert_eq!(carried, 0, "group frames were carried to the peer");
    assert_eq!(
        listening.find(Duration::ZERO, |frame| *frame == sent),
        None,
        "a frame was flooded on the node"
    );
}

#[test]
fn tunnels_inside_pods_carry_tcp_with_all_offloads() {
    root_or_skip!();
    let cluster = CLUSTER.beside_others();
    let (near, far) = (cluster.a().add_pod("t1"), cluster.b().add_pod("t2"));
    let kinds = ["vxlan id 9 dstport 4789", "gre", "ipip", "sit"];
    let mut worked = 0;
    for (number, kind) in (1..).zip(kinds) {
        if !near
            .netns
            .output(&format!("ip link add probe type {kind} local 192.0.2.1 remote 192.0.2.2"))
            .status
            .success()
        {
            eprintln!("this kernel has no {kind}");
            continue;
        }
        near.netns.run("ip link del probe");
        for (pod, peer, end) in [(&near, &far, 1), (&far, &near, 2)] {
            pod.netns.ip(&format!(
                "link add tun{number} type {kind} local {} remote {}\nlink set tun{number} up\n{}",
                pod.ip4(),
                peer.ip4(),
                if kind == "sit" {
                    format!("addr add fd99:{number}::{end}/64 dev tun{number} nodad")
                } else {
                    format!("addr add 172.31.{number}.{end}/24 dev tun{number}")
                }
            ));
        }
        let address = if kind == "sit" { format!("fd99:{number}::2") } else { format!("172.31.{number}.2") };
        let address: IpAddr = address.parse().expect("a made address");
        let transfer = tcp::transfer(&near.netns, &far.netns, address, Amount::Bytes(8 << 20));
        assert!(transfer.megabits() > 50.0, "{kind}: {transfer:?}");
        worked += 1;
    }
    assert!(worked > 0, "this kernel has no tunnels at all");
}

#[test]
fn a_pod_that_translates_addresses_forwards_to_a_third_node() {
    root_or_skip!();
    let cluster = CLUSTER.beside_others();
    let (client, middle, server) =
        (cluster.a().add_pod("c"), cluster.b().add_pod("nat"), cluster.node(3).add_pod("s"));
    middle.netns.sysctl("net/ipv4/ip_forward", "1");
    for rule in [
        "add table ip nat",
        "add chain ip nat pre { type nat hook prerouting priority dstnat ; }",
        "add chain ip nat post { type nat hook postrouting priority srcnat ; }",
        &format!("add rule ip nat pre ip daddr {} dnat to {}", middle.ip4(), server.ip4()),
        "add rule ip nat post masquerade",
    ] {
        middle.netns.run(&format!("nft {rule}"));
    }
    let transfer = tcp::transfer_via(
        &client.netns,
        &server.netns,
        server.ip4().into(),
        middle.ip4().into(),
        Amount::Bytes(8 << 20),
    );
    assert!(transfer.megabits() > 50.0, "{transfer:?}");
    wait_until("the direct way works beside", PATIENCE, || client.pings(server.ip4()));
}
