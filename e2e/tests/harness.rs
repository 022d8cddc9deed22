//! The harness itself, against the kernel alone: what it cannot see, no other test sees.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use e2e::{
    Capture, PacketSocket,
    capture::Frames,
    frame,
    packet_socket::{Direction, Seen},
    root_or_skip,
    site::Site,
    stream::Stream,
    tcp::{self, Amount},
    tcx::Counter,
    udp,
    underlay::{Fabric, Plan, Underlay},
    vxlan::Vxlan,
};

fn underlay(site: &Site, fabric: Fabric) -> Underlay {
    let plan = Plan {
        fabric,
        mtus: vec![1500; 2],
        uplinks: 2,
        checksum_offload: false,
        prefixes: vec!["5f00:1:1::/48".to_owned(), "5f00:1:2::/48".to_owned()],
        block: "5f00:1::/32".to_owned(),
    };
    Underlay::build(site, &plan)
}

#[test]
fn hosts_reach_each_other_over_both_fabrics() {
    root_or_skip!();
    for fabric in [Fabric::Bridge, Fabric::Router] {
        let site = Site::new();
        let underlay = underlay(&site, fabric);
        let [a, b] = [0, 1].map(|i| &underlay.hosts[i]);
        for address in [IpAddr::from(b.address), b.address4.into()] {
            udp::echo(
                (&a.netns, if address.is_ipv4() { a.address4.into() } else { a.address.into() }),
                (&b.netns, address),
                [1, 1400],
            );
            let transfer = tcp::transfer(&a.netns, &b.netns, address, Amount::Bytes(4 << 20));
            assert_eq!(transfer.bytes, 4 << 20);
        }
    }
}

#[test]
fn uplinks_cut_super_packets_and_complete_checksums() {
    root_or_skip!();
    let site = Site::new();
    let underlay = underlay(&site, Fabric::Bridge);
    let [a, b] = [0, 1].map(|i| &underlay.hosts[i]);
    let capture = Capture::start(&underlay.fabric, "h1u0");
    let _transfer = tcp::transfer(&a.netns, &b.netns, b.address.into(), Amount::Bytes(4 << 20));
    udp::super_packet((&a.netns, a.address4.into()), (&b.netns, b.address4.into()), 1400, 20);
    let frames = capture.stop();
    assert!(frames.count(Direction::In, |frame| frame.len() == 1514) > 2000, "full-size frames pass");
    assert!(frames.longest() <= 1514, "a super-packet passed an uplink: {} bytes", frames.longest());
    let bad = frames
        .decode("tcp.checksum.status != 1 || udp.checksum.status != 1", &["frame.number", "_ws.col.Info"]);
    assert!(bad.is_empty(), "checksums are wrong on the wire: {bad:?}");
}

#[test]
fn vxlan_carries_traffic_to_compare_with() {
    root_or_skip!();
    let vxlan = Vxlan::start(1500, false);
    let (a, b) = vxlan.pods();
    for v6 in [false, true] {
        let transfer = tcp::transfer(a, b, vxlan.address(v6), Amount::For(Duration::from_millis(500)));
        assert!(transfer.megabits() > 100.0, "{transfer:?}");
        assert_eq!(transfer.path_mtu, 1430);
    }
}

#[test]
fn raw_frames_arrive_as_sent_with_their_tags() {
    root_or_skip!();
    let site = Site::new();
    let underlay = underlay(&site, Fabric::Bridge);
    let [a, b] = [0, 1].map(|i| &underlay.hosts[i].netns);
    let (sender, receiver) = (PacketSocket::open(a, "eth0"), PacketSocket::open(b, "eth0"));
    let plain = frame::ethernet(b.mac("eth0"), a.mac("eth0"), frame::EXPERIMENTAL, &frame::pattern(50));
    let once = frame::tagged(&plain, frame::VLAN, 0x2005);
    let twice = frame::tagged(&once, frame::QINQ, 9);
    for sent in [plain, once, twice] {
        sender.send(&sent);
        let got = receiver
            .expect("test frame", Duration::from_secs(2), |f| frame::ether_type(f) == frame::EXPERIMENTAL);
        assert_eq!(got, sent);
    }
}

#[test]
fn a_stream_counts_what_an_interruption_costs() {
    root_or_skip!();
    let site = Site::new();
    let underlay = underlay(&site, Fabric::Bridge);
    let [a, b] = [0, 1].map(|i| &underlay.hosts[i]);
    let stream = Stream::start((&a.netns, a.address4.into()), (&b.netns, b.address4.into()), 1000);
    e2e::wait_until("100 datagrams are sent", Duration::from_secs(5), || stream.sent() > 100);
    underlay.fabric.run("ip link set h2u0 down");
    let before = stream.sent();
    e2e::wait_until("100 more are sent", Duration::from_secs(5), || stream.sent() > before + 100);
    underlay.fabric.run("ip link set h2u0 up");
    let report = stream.stop();
    assert!(report.lost() >= 100 && report.received >= 100, "{report:?}");
}

#[test]
fn hand_made_packets_are_well_formed() {
    root_or_skip!();
    let site = Site::new();
    let underlay = underlay(&site, Fabric::Bridge);
    let [a, b] = [0, 1].map(|i| &underlay.hosts[i]);
    let capture = Capture::start(&b.netns, "eth0");
    let socket = PacketSocket::open(&a.netns, "eth0");
    let (from, to) = (a.netns.mac("eth0"), b.netns.mac("eth0"));
    let four: (IpAddr, IpAddr) = (Ipv4Addr::new(10, 1, 1, 2).into(), Ipv4Addr::new(10, 1, 2, 2).into());
    socket.send(&frame::ethernet(to, from, frame::IPV4, &frame::udp(four.0, four.1, (1, 9), b"four")));
    let six = (IpAddr::from(a.address), IpAddr::from(b.address));
    socket.send(&frame::ethernet(to, from, frame::IPV6, &frame::udp(six.0, six.1, (1, 9), b"sixth")));
    let solicitation = frame::neighbour(135, 0, b.address, Some(from));
    let packet = frame::icmpv6(a.address, frame::solicited_node(b.address), &solicitation);
    socket.send(&frame::ethernet(
        frame::multicast_mac(frame::solicited_node(b.address)),
        from,
        frame::IPV6,
        &packet,
    ));
    let request = frame::arp(1, (from, a.address4), ([0; 6], b.address4));
    socket.send(&frame::ethernet(frame::BROADCAST, from, frame::ARP, &request));
    // The kernel answers the last two only if they are right.
    let _reply = socket.expect("ARP reply", Duration::from_secs(2), |f| f[12..14] == [8, 6] && f[21] == 2);
    let frames = capture.stop().only(Direction::In);
    let good = frames.decode("udp.checksum.status == 1 && udp.dstport == 9", &["frame.number"]);
    assert_eq!(good.len(), 2, "{}", frames.tshark(&["-V"]));
    let solicited = frames.decode("icmpv6.type == 135 && icmpv6.checksum.status == 1", &["frame.number"]);
    assert!(!solicited.is_empty(), "{}", frames.tshark(&["-V"]));
    assert!(frames.decode("icmpv6.checksum.status == 0", &["frame.number"]).is_empty());
}

#[test]
fn a_foreign_tcx_program_counts_and_passes_on() {
    root_or_skip!();
    let site = Site::new();
    let underlay = underlay(&site, Fabric::Bridge);
    let [a, b] = [0, 1].map(|i| &underlay.hosts[i]);
    let (first, second) = (Counter::at_tcx(&b.netns, "eth0"), Counter::at_tcx(&b.netns, "eth0"));
    let output = e2e::pod::ping(&a.netns, b.address4.into(), "-c 5 -i 0.01");
    assert!(output.status.success());
    assert!(first.packets() >= 5 && second.packets() >= 5, "{} {}", first.packets(), second.packets());
}

#[test]
fn tshark_decodes_what_the_tests_ask_it_for() {
    let (from, to) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let packet =
        frame::udp(Ipv4Addr::new(10, 1, 1, 2).into(), Ipv4Addr::new(10, 1, 2, 2).into(), (7, 9), b"data");
    let plain = frame::ethernet(to, from, frame::IPV4, &packet);
    let inner = [plain.clone(), frame::tagged(&plain, frame::VLAN, 5), frame::tagged(&plain, frame::QINQ, 6)];
    let outer = inner.map(|inner| {
        let (source, sid) = (e2e::config::infrastructure_address(1), e2e::config::sid(2, 0));
        let mut packet = frame::ipv6(source, sid, frame::ETHERNET, &inner);
        packet[..4].copy_from_slice(&[0x6b, 0xa1, 0x23, 0x45]);
        Seen { direction: Direction::In, bytes: frame::ethernet(to, from, frame::IPV6, &packet) }
    });
    let frames = Frames(outer.to_vec());
    let fields = [
        "ipv6.src",
        "ipv6.dst",
        "ipv6.nxt",
        "ipv6.hlim",
        "ipv6.flow",
        "ipv6.tclass",
        "ipv6.plen",
        "udp.srcport",
    ];
    let rows = frames.decode("ipv6.nxt == 143", &fields);
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0][..4], ["5f00:1:1::1", "5f00:1:2:e004::", "143", "64"]);
    assert_eq!(rows[0][4..], ["0x012345", "0x000000ba", "46", "7"]);
    assert_eq!(frames.decode("(vlan || ieee8021ad) && ipv6.nxt == 143", &["frame.number"]).len(), 2);
}
