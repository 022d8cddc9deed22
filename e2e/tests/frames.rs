//! What leaves one pod is what reaches the other, byte for byte, and what is on the wire in between is SRv6 as the
//! RFCs have it.

use std::{net::IpAddr, time::Duration};

use e2e::{
    Capture, Cluster, Pod, Shared, config,
    frame::{self, Mac},
    packet_socket::Direction,
    root_or_skip, udp,
};

static CLUSTER: Shared = Shared::new(|| Cluster::builder().nodes(3).start());
const PATIENCE: Duration = Duration::from_secs(2);

/// Frames of every kind from one MAC to another, with what they are.
fn kinds(from: Mac, to: Mac, mtu: usize) -> Vec<(&'static str, Vec<u8>)> {
    let plain = |size: usize| frame::ethernet(to, from, frame::EXPERIMENTAL, &frame::pattern(size));
    // An 802.3 length frame with LLC (spanning tree's SAP 0x42).
    let llc = frame::ethernet(to, from, 38, &[&[0x42, 0x42, 3][..], &frame::pattern(43)].concat());
    vec![
        ("made-up EtherType", plain(200)),
        ("payload of 14 bytes", plain(14)),
        ("payload of 1 byte", plain(1)),
        ("padded to 60 bytes", plain(46)),
        ("largest", plain(mtu)),
        ("LLC", llc),
        ("802.1Q", frame::tagged(&plain(100), frame::VLAN, 0x6005)),
        ("802.1Q, short", frame::tagged(&plain(14), frame::VLAN, 7)),
        ("802.1Q, largest", frame::tagged(&plain(mtu - 4), frame::VLAN, 7)),
        ("802.1Q, priority tag", frame::tagged(&plain(100), frame::VLAN, 0xa000)),
        ("802.1ad", frame::tagged(&plain(100), frame::QINQ, 9)),
        ("QinQ", frame::tagged(&frame::tagged(&plain(100), frame::VLAN, 5), frame::QINQ, 9)),
        ("802.1Q twice", frame::tagged(&frame::tagged(&plain(100), frame::VLAN, 5), frame::VLAN, 9)),
    ]
}

fn arrive_unchanged(from: &Pod, receivers: &[&Pod], destination: Mac) {
    let sender = from.socket();
    for (kind, sent) in kinds(from.mac(), destination, from.mtu()) {
        let sockets: Vec<_> = receivers.iter().map(|pod| pod.socket()).collect();
        sender.send(&sent);
        for socket in sockets {
            let got = socket
                .expect(kind, PATIENCE, |frame| frame.get(6..12) == Some(&sent[6..12]) && !is_ip(frame));
            assert_eq!(got, sent, "{kind}");
        }
    }
}

fn is_ip(bytes: &[u8]) -> bool {
    matches!(frame::ether_type(bytes), frame::IPV4 | frame::IPV6 | frame::ARP)
}

#[test]
fn unicast_frames_arrive_unchanged_on_another_node_and_on_the_same() {
    root_or_skip!();
    let cluster = CLUSTER.beside_others();
    let (near, beside, far) =
        (cluster.a().add_pod("u1"), cluster.a().add_pod("u2"), cluster.b().add_pod("u3"));
    arrive_unchanged(&near, &[&far], far.mac());
    arrive_unchanged(&near, &[&beside], beside.mac());
}

#[test]
fn broadcast_and_multicast_frames_arrive_unchanged_everywhere() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let (near, beside) = (cluster.a().add_pod("m1"), cluster.a().add_pod("m2"));
    let (far, further) = (cluster.b().add_pod("m3"), cluster.node(3).add_pod("m4"));
    // The bridge group address: what a pod's own spanning tree would send.
    for destination in
        [frame::BROADCAST, [0x01, 0x80, 0xc2, 0, 0, 0], [0x01, 0, 0x5e, 1, 2, 3], [0x33, 0x33, 0, 0, 1, 2]]
    {
        arrive_unchanged(&near, &[&beside, &far, &further], destination);
    }
}

#[test]
fn ip_packets_of_all_sizes_arrive_unchanged() {
    root_or_skip!();
    let cluster = CLUSTER.beside_others();
    let (near, far) = (cluster.a().add_pod("i1"), cluster.b().add_pod("i2"));
    let sender = near.socket();
    for (from, to) in near.addresses().into_iter().zip(far.addresses()) {
        let headers = if to.is_ipv4() { 28 } else { 48 };
        for size in [0, 1, 17, 18, 19, 512, near.mtu() - headers] {
            let packet = frame::udp(from, to, (4000, 9), &frame::pattern(size));
            let kind = if to.is_ipv4() { frame::IPV4 } else { frame::IPV6 };
            let sent = frame::ethernet(far.mac(), near.mac(), kind, &packet);
            let socket = far.socket();
            sender.send(&sent);
            let got =
                socket.expect("the packet", PATIENCE, |f| f[6..12] == sent[6..12] && f[14..] == sent[14..]);
            assert_eq!(got, sent, "{size} bytes to {to}");
        }
    }
}

#[test]
fn tags_stay_inside_and_frames_within_the_mtu() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let (near, far) = (cluster.a().add_pod("t1"), cluster.b().add_pod("t2"));
    let capture = Capture::start(&cluster.underlay.fabric, "h1u0");
    arrive_unchanged(&near, &[&far], far.mac());
    let frames = capture.stop();
    assert_eq!(
        frames.count(Direction::In, |f| matches!(f[12..14], [0x81, 0] | [0x88, 0xa8])),
        0,
        "an outer frame is tagged"
    );
    assert!(frames.longest() <= 1514, "{} bytes on an uplink with MTU 1500", frames.longest());
    let tagged = frames.decode("(vlan || ieee8021ad) && ipv6.nxt == 143", &["frame.number"]);
    assert_eq!(tagged.len(), 7, "{tagged:?}");
}

#[test]
fn the_outer_packet_is_h_encaps_l2_red() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let (near, far) = (cluster.a().add_pod("o1"), cluster.b().add_pod("o2"));
    let capture = Capture::start(&cluster.b().netns, "eth0");
    let _ = near.pings(far.ip4()) && near.pings(far.ip6());
    near.socket().send(&frame::ethernet(
        frame::BROADCAST,
        near.mac(),
        frame::EXPERIMENTAL,
        &frame::pattern(60),
    ));
    let frames = capture.stop().only(Direction::In);
    let fields =
        ["ipv6.src", "ipv6.dst", "ipv6.nxt", "ipv6.hlim", "ipv6.flow", "ipv6.plen", "frame.len", "eth.dst"];
    let source = config::infrastructure_address(1).to_string();
    let sids = [0, 1].map(|behaviour| config::sid(2, behaviour).to_string());
    let rows = frames.decode("ipv6.nxt == 143", &fields);
    assert!(rows.len() >= 2, "{rows:?}");
    for row in rows {
        let text = |field: usize| row[field].split(',').next().unwrap_or_default();
        assert_eq!(text(0), source, "{row:?}");
        assert!(sids.iter().any(|sid| sid == text(1)), "{row:?}");
        assert_eq!((text(2), text(3)), ("143", "64"), "no SRH for one SID (RFC 8986 5.4): {row:?}");
        assert_ne!(outer(&row[4]), 0, "flow label: {row:?}");
        assert_eq!(outer(&row[5]) + 54, outer(&row[6]), "the payload is the inner frame: {row:?}");
    }
}

/// The first of tshark's values of a field, which is the outer header's; hexadecimal with `0x`.
fn outer(values: &str) -> u32 {
    let first = values.split(',').next().unwrap_or_default();
    let number = first.strip_prefix("0x").map_or_else(|| first.parse(), |hex| u32::from_str_radix(hex, 16));
    number.unwrap_or_else(|error| panic!("{first:?}: {error}"))
}

#[test]
fn one_flow_has_one_label_and_flows_differ() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let (near, far) = (cluster.a().add_pod("f1"), cluster.b().add_pod("f2"));
    let to = IpAddr::from(far.ip4());
    let server = udp::socket(&far.netns, to, None);
    let target = server.local_addr().expect("a bound socket has an address");
    let capture = Capture::start(&cluster.b().netns, "eth0");
    for _ in 0..20 {
        let client = udp::socket(&near.netns, near.ip4().into(), Some(target));
        // Alone and as a super-packet, which takes the way through the segmenter.
        (0..2).for_each(|_| drop(client.send(&[0; 100])));
        udp::send_super_packet(&client, &frame::pattern(4000), 1000);
    }
    for number in 0..20 * (2 + 4) {
        let received = server.recv(&mut [0; 2000]);
        received.unwrap_or_else(|error| panic!("datagram {number}: {error}"));
    }
    let frames = capture.stop().only(Direction::In);
    let rows = frames.decode("udp && ipv6.nxt == 143", &["udp.srcport", "ipv6.flow"]);
    let mut labels: std::collections::BTreeMap<String, Vec<String>> = std::collections::BTreeMap::new();
    for row in rows {
        labels.entry(row[0].clone()).or_default().push(row[1].clone());
    }
    assert_eq!(labels.len(), 20);
    for (port, seen) in &labels {
        assert!(seen.iter().all(|label| *label == seen[0]), "port {port}: {seen:?}");
    }
    let distinct: std::collections::BTreeSet<_> = labels.values().map(|seen| &seen[0]).collect();
    assert!(distinct.len() >= 18, "20 flows have {} labels", distinct.len());
}

#[test]
fn dscp_and_ecn_are_copied_to_the_outer_header() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let (near, far) = (cluster.a().add_pod("d1"), cluster.b().add_pod("d2"));
    let capture = Capture::start(&cluster.b().netns, "eth0");
    for to in far.addresses() {
        // DSCP 46 (expedited forwarding), ECT(0).
        let output = near.netns.output(&format!("ping -n -c 1 -W 1 -Q 0xba {to}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let frames = capture.stop().only(Direction::In);
    let rows = frames.decode("ipv6.nxt == 143 && (icmp.type == 8 || icmpv6.type == 128)", &["ipv6.tclass"]);
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| outer(&row[0]) == 0xba), "{rows:?}");
}
