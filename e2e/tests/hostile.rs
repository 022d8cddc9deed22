//! What must not pass is dropped, and counted under the right reason.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use e2e::{
    Cluster, Node, PacketSocket, Pod, Shared, config,
    frame::{self, Mac},
    root_or_skip, wait_until,
};

static CLUSTER: Shared = Shared::new(|| Cluster::builder().nodes(3).start());

/// A pod that misbehaves on the first node, and who must not hear of it on the second.
struct Scene<'a> {
    near: &'a Node,
    far: &'a Node,
    pod: Pod<'a>,
    victim: Pod<'a>,
}

impl<'a> Scene<'a> {
    fn new(cluster: &'a Cluster, name: &str) -> Self {
        let (near, far) = (cluster.a(), cluster.b());
        Self { near, far, pod: near.add_pod(name), victim: far.add_pod(name) }
    }

    /// A UDP packet to the victim, as Ethernet frame from `mac` and `source`.
    fn packet(&self, mac: Mac, source: IpAddr) -> Vec<u8> {
        let (to, kind) = match source {
            IpAddr::V4(_) => (IpAddr::from(self.victim.ip4()), frame::IPV4),
            IpAddr::V6(_) => (self.victim.ip6().into(), frame::IPV6),
        };
        frame::ethernet(self.victim.mac(), mac, kind, &frame::udp(source, to, (4000, 9), b"hostile"))
    }

    fn ipv6(&self, packet: &[u8]) -> Vec<u8> {
        frame::ethernet(self.victim.mac(), self.pod.mac(), frame::IPV6, packet)
    }

    /// The pod sends these; each is dropped on its node for `reason`, and the victim hears nothing.
    #[track_caller]
    fn pod_drops(&self, reason: &str, frames: &[Vec<u8>]) {
        let before = self.near.drops();
        let (sender, listening) = (self.pod.socket(), self.victim.socket());
        frames.iter().for_each(|frame| sender.send(frame));
        self.near.wait_dropped(&before, reason, frames.len() as u64);
        let heard = listening.find(Duration::ZERO, |got| frames.iter().any(|sent| sent[14..] == got[14..]));
        assert_eq!(heard, None, "{reason}: it reached the victim");
    }

    /// Somebody on the underlay sends these outer packets to the second node; each is dropped there for `reason`.
    #[track_caller]
    fn underlay_drops(&self, cluster: &Cluster, reason: &str, packets: &[Vec<u8>]) {
        let before = self.far.drops();
        let listening = self.victim.socket();
        send_on_underlay(cluster, self.far, packets);
        self.far.wait_dropped(&before, reason, packets.len() as u64);
        let heard = listening.find(Duration::ZERO, |got| frame::ether_type(got) == frame::EXPERIMENTAL);
        assert_eq!(heard, None, "{reason}: it reached the victim");
    }

    /// What the pod would send to the victim, and nobody minds.
    fn innocent(&self) -> Vec<u8> {
        frame::ethernet(self.victim.mac(), self.pod.mac(), frame::EXPERIMENTAL, &frame::pattern(60))
    }
}

/// Sends from the fabric, as a host on the link would.
fn send_on_underlay(cluster: &Cluster, to: &Node, packets: &[Vec<u8>]) {
    let socket = PacketSocket::open(&cluster.underlay.fabric, "br0");
    let (from, to) = (cluster.underlay.fabric.mac("br0"), to.netns.mac("eth0"));
    packets.iter().for_each(|packet| socket.send(&frame::ethernet(to, from, frame::IPV6, packet)));
}

/// An outer packet in the standard form from the first node's locator to the second node.
fn carried(inner: &[u8]) -> Vec<u8> {
    frame::ipv6(config::infrastructure_address(1), config::sid(2, 0), frame::ETHERNET, inner)
}

#[test]
fn the_hand_made_outer_packet_is_taken_when_nothing_is_wrong_with_it() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let scene = Scene::new(&cluster, "ok");
    let listening = scene.victim.socket();
    send_on_underlay(&cluster, scene.far, &[carried(&scene.innocent())]);
    let got = listening
        .expect("the inner frame", Duration::from_secs(2), |f| frame::ether_type(f) == frame::EXPERIMENTAL);
    assert_eq!(got, scene.innocent());
}

#[test]
fn spoofed_sources_are_dropped() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let scene = Scene::new(&cluster, "spoof");
    let (mac, other) = (scene.pod.mac(), [0x0a, 0x58, 10, 1, 3, 77]);
    scene.pod_drops(
        "source_mac",
        &[
            scene.packet(other, scene.pod.ip4().into()),
            scene.packet(scene.victim.mac(), scene.pod.ip6().into()),
        ],
    );
    let strangers: [IpAddr; 4] = [
        Ipv4Addr::new(10, 1, 3, 77).into(),
        Ipv4Addr::new(8, 8, 8, 8).into(),
        "fd10:0:0:3::4d".parse().expect("a literal address"),
        frame::link_local(other).into(),
    ];
    scene.pod_drops("source_ip", &strangers.map(|stranger| scene.packet(mac, stranger)));
}

#[test]
fn spoofed_arp_and_neighbour_advertisements_are_dropped() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let scene = Scene::new(&cluster, "arp");
    let (mac, ip4, victim) = (scene.pod.mac(), scene.pod.ip4(), (scene.victim.mac(), scene.victim.ip4()));
    let gateway = Ipv4Addr::new(10, 1, 1, 1);
    let frames = [
        frame::arp(2, (mac, gateway), victim),
        frame::arp(1, (mac, gateway), ([0; 6], gateway)),
        frame::arp(2, ([0x0a, 0x58, 10, 1, 1, 99], ip4), victim),
    ];
    scene
        .pod_drops("arp_sender", &frames.map(|arp| frame::ethernet(frame::BROADCAST, mac, frame::ARP, &arp)));
    let all_nodes: Ipv6Addr = "ff02::1".parse().expect("a literal address");
    let advertise = |target: Ipv6Addr, link_layer: Mac| {
        let message = frame::neighbour(136, 0x20, target, Some(link_layer));
        let packet = frame::icmpv6(scene.pod.ip6(), all_nodes, &message);
        frame::ethernet(frame::multicast_mac(all_nodes), mac, frame::IPV6, &packet)
    };
    let gateway: Ipv6Addr = "fd10:0:0:1::1".parse().expect("a literal address");
    scene.pod_drops(
        "nd_target",
        &[
            advertise(gateway, mac),
            advertise(scene.victim.ip6(), mac),
            advertise(scene.pod.ip6(), [0x0a, 0x58, 10, 1, 1, 99]),
        ],
    );
}

#[test]
fn router_advertisements_and_redirects_from_a_pod_are_dropped() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let scene = Scene::new(&cluster, "ra");
    let own = frame::link_local(scene.pod.mac());
    let all_nodes: Ipv6Addr = "ff02::1".parse().expect("a literal address");
    let advertisement = frame::icmpv6(own, all_nodes, &[134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
    let group = frame::multicast_mac(all_nodes);
    let to_all = frame::ethernet(group, scene.pod.mac(), frame::IPV6, &advertisement);
    let to_one = scene.ipv6(&frame::icmpv6(
        own,
        scene.victim.ip6(),
        &[134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0],
    ));
    scene.pod_drops("router_advertisement", &[to_all, to_one]);
    let target = scene.victim.ip6().octets();
    let redirect = [&[137, 0, 0, 0, 0, 0, 0, 0][..], &target, &target].concat();
    scene.pod_drops("redirect", &[scene.ipv6(&frame::icmpv6(own, scene.victim.ip6(), &redirect))]);
}

#[test]
fn a_pod_can_neither_address_a_sid_nor_route_by_segments() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let scene = Scene::new(&cluster, "sid");
    let source = scene.pod.ip6();
    let to_sid = |sid| scene.ipv6(&frame::ipv6(source, sid, frame::ETHERNET, &scene.innocent()));
    scene.pod_drops(
        "sid_destination",
        &[
            to_sid(config::sid(2, 0)),
            to_sid(config::sid(2, 1)),
            to_sid(config::sid(1, 0)),
            to_sid(config::infrastructure_address(2)),
        ],
    );
    // Segment routing header (RFC 8754): next header 59, 2 * 8 bytes, type 4, one segment left.
    let header = [&[59, 2, 4, 1, 0, 0, 0, 0][..], &config::sid(2, 0).octets()].concat();
    // Type 0 behind hop-by-hop and destination options is not overlooked.
    let hidden = [&[60, 0, 1, 4, 0, 0, 0, 0][..], &[43, 0, 1, 4, 0, 0, 0, 0], &header].concat();
    scene.pod_drops(
        "segment_routing",
        &[
            scene.ipv6(&frame::ipv6(source, scene.victim.ip6(), 43, &header)),
            scene.ipv6(&frame::ipv6(source, scene.victim.ip6(), 0, &hidden)),
        ],
    );
}

#[test]
fn frames_to_nobody_are_dropped() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let scene = Scene::new(&cluster, "nobody");
    let to = |mac| frame::ethernet(mac, scene.pod.mac(), frame::EXPERIMENTAL, &frame::pattern(60));
    scene.pod_drops("no_such_endpoint", &[to([0x0a, 0x58, 10, 1, 1, 250])]);
    scene.pod_drops("unknown_unicast", &[to([2, 0, 0, 0, 0, 7])]);
    let thrice =
        (0..3).fold(to(scene.victim.mac()), |inner, tag| frame::tagged(&inner, frame::VLAN, tag + 1));
    scene.pod_drops("too_many_tags", &[thrice]);
}

#[test]
fn a_broadcast_storm_is_bounded() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let scene = Scene::new(&cluster, "storm");
    let (before, sender, listening) = (scene.near.drops(), scene.pod.socket(), scene.victim.socket());
    let storm = frame::ethernet(frame::BROADCAST, scene.pod.mac(), frame::EXPERIMENTAL, &frame::pattern(60));
    let start = std::time::Instant::now();
    let sent = 20_000_u64;
    (0..sent).for_each(|_| sender.send(&storm));
    let seconds = start.elapsed().as_secs_f64();
    scene.near.wait_dropped(&before, "storm_limit", 1);
    let mut heard = 0_u64;
    while listening.find(Duration::from_millis(200), |got| *got == storm).is_some() {
        heard += 1;
    }
    // A burst of a second's worth, and the rate for as long as it took (1000 a second unless configured).
    let allowed = 1000.0 * (1.0 + seconds);
    assert!(heard > 0 && (heard as f64) < 1.1 * allowed + 10.0, "{heard} of {sent} in {seconds:.2} s passed");
    let dropped = scene.near.drops()["storm_limit"] - before["storm_limit"];
    // The pod's own router solicitations count as well.
    assert!((sent..sent + 20).contains(&(dropped + heard)), "{dropped} dropped, {heard} heard of {sent}");
    assert!(scene.pod.pings(scene.victim.ip4()), "unicast is not limited");
}

#[test]
fn outsiders_and_foreign_outer_sources_are_dropped() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let scene = Scene::new(&cluster, "outer");
    let inner = scene.innocent();
    let from = |source: Ipv6Addr| frame::ipv6(source, config::sid(2, 0), frame::ETHERNET, &inner);
    let parse = |text: &str| text.parse::<Ipv6Addr>().expect("a literal address");
    scene.underlay_drops(
        &cluster,
        "outer_source",
        &[
            from(parse("fc00::ff")),
            from(parse("5f00:2:1::1")),
            from(parse("5f00:1:1::2")),
            from(config::sid(1, 0)),
            from(config::infrastructure_address(2)),
        ],
    );
    // The inner source has to be a pod of the node that sent it.
    let third = frame::ethernet(
        scene.victim.mac(),
        [0x0a, 0x58, 10, 1, 3, 5],
        frame::EXPERIMENTAL,
        &frame::pattern(60),
    );
    let own = frame::ethernet(
        scene.victim.mac(),
        [0x0a, 0x58, 10, 1, 2, 5],
        frame::EXPERIMENTAL,
        &frame::pattern(60),
    );
    let group =
        frame::ethernet(scene.victim.mac(), frame::BROADCAST, frame::EXPERIMENTAL, &frame::pattern(60));
    scene.underlay_drops(&cluster, "inner_source", &[carried(&third), carried(&own), carried(&group)]);
}

#[test]
fn malformed_outer_packets_are_dropped() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let scene = Scene::new(&cluster, "malformed");
    let inner = scene.innocent();
    let source = config::infrastructure_address(1);
    let sid = config::sid(2, 0);
    let to = |sid: Ipv6Addr| frame::ipv6(source, sid, frame::ETHERNET, &inner);
    let (mut behaviour, mut argument, mut network) = (sid.segments(), sid.segments(), sid.segments());
    (behaviour[3], argument[7], network[3]) = (0xe007, 1, 0xe008);
    scene.underlay_drops(
        &cluster,
        "unknown_sid",
        &[behaviour, argument, network].map(|parts| to(parts.into())),
    );
    let mut short = carried(&inner);
    short.truncate(60);
    scene.underlay_drops(&cluster, "truncated", &[short]);
    scene.underlay_drops(&cluster, "malformed", &[carried(&inner[..13])]);
    let nested = frame::ethernet(scene.victim.mac(), scene.pod.mac(), frame::IPV6, &carried(&inner));
    scene.underlay_drops(&cluster, "nested", &[carried(&nested)]);
    // Destination options, a fragment header, plain IPv4 and UDP instead of the one inner frame.
    let options = [&[frame::ETHERNET, 0, 1, 4, 0, 0, 0, 0][..], &inner].concat();
    let fragment = [&[frame::ETHERNET, 0, 0, 1, 0, 0, 0, 9][..], &inner].concat();
    scene.underlay_drops(
        &cluster,
        "outer_header",
        &[
            frame::ipv6(source, sid, 60, &options),
            frame::ipv6(source, sid, 44, &fragment),
            frame::ipv6(source, sid, 4, &frame::ipv4(scene.pod.ip4(), scene.victim.ip4(), 17, &[0; 8])),
            frame::ipv6(source, sid, 17, &[0; 8]),
        ],
    );
}

#[test]
fn congestion_that_the_inner_packet_cannot_carry_drops_it() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let scene = Scene::new(&cluster, "ecn");
    let mut outer = carried(&scene.packet(scene.pod.mac(), scene.pod.ip4().into()));
    // Congestion experienced: the low two bits of the traffic class.
    outer[1] |= 0x30;
    scene.underlay_drops(&cluster, "ecn", &[outer]);
}

#[test]
fn the_infrastructure_address_takes_icmpv6_at_a_bounded_rate_only() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let scene = Scene::new(&cluster, "infra");
    let outside: Ipv6Addr = "fc00::ff".parse().expect("a literal address");
    let own = config::infrastructure_address(2);
    let datagram = frame::udp(outside.into(), own.into(), (1, 9), b"hello");
    scene.underlay_drops(
        &cluster,
        "infra_protocol",
        &[datagram, frame::ipv6(outside, own, frame::ETHERNET, &scene.innocent())],
    );
    let before = scene.far.drops();
    let echo = frame::icmpv6(outside, own, &[128, 0, 0, 0, 0, 1, 0, 1]);
    send_on_underlay(&cluster, scene.far, &vec![echo; 5000]);
    scene.far.wait_dropped(&before, "infra_rate", 1000);
}

#[test]
fn a_pod_without_a_switch_reaches_nobody() {
    root_or_skip!();
    let cluster = Cluster::builder().nodes(1).start();
    let node = cluster.a();
    let pod = node.add_pod("p");
    let (gateway, outside) = (node.gateway_addresses()[0], cluster.underlay.outside4());
    assert!(pod.pings(gateway));
    node.kill_agent();
    let ifindex = node.netns.ifindex(&pod.host_link());
    std::fs::remove_file(node.folder.join(format!("bpf/links/endpoint-{ifindex}")))
        .expect("detach the program");

    let IpAddr::V4(to) = outside else { panic!("{outside} is not IPv4") };
    let spoofed = frame::udp(Ipv4Addr::new(10, 1, 1, 77).into(), outside, (4000, 9), b"unswitched");
    let uplink = PacketSocket::open(&node.netns, &node.uplinks[0]);
    pod.socket().send(&frame::ethernet(node.netns.mac(&pod.host_link()), pod.mac(), frame::IPV4, &spoofed));
    wait_until("the node drops it", Duration::from_secs(5), || {
        let chain = node.netns.run("nft list chain inet headway prerouting");
        chain.lines().any(|line| line.contains("only through the switch") && !line.contains("packets 0 "))
    });
    while let Some(seen) = uplink.next(Duration::ZERO) {
        assert!(!seen.bytes.windows(4).any(|bytes| bytes == to.octets()), "{:x?}", seen.bytes);
    }
    // Nor does the node answer for the gateway, or the pod would remember the wrong MAC for long.
    pod.netns.run("ip neigh flush all");
    assert!(!pod.pings(gateway));
    node.start_agent();
    wait_until("the program is back", Duration::from_secs(5), || pod.pings(gateway));
}
