//! Pods of different nodes are on one layer-2 segment.

use std::time::Duration;

use e2e::{Netns, PacketSocket, frame, kube::Server, rig_or_skip};

const PATIENCE: Duration = Duration::from_secs(5);

fn arp_request(from: &Netns, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let mac = from.mac("eth0");
    let request = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &mac, &sender, &[0; 6], &target].concat();
    frame::ethernet(frame::BROADCAST, mac, frame::ARP, &request)
}

#[test]
fn frames_of_every_kind_reach_pods_of_other_nodes_unchanged() {
    let kube = rig_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("segment");
    space.serve(&[Server::new("near", &nodes[0].name), Server::new("far", &nodes[1].name)]);
    let near = space.netns("near", &nodes[0].name);
    let far = space.netns("far", &nodes[1].name);
    let (sender, receiver) = (PacketSocket::open(&near, "eth0"), PacketSocket::open(&far, "eth0"));
    let group = [0x01, 0x00, 0x5e, 1, 2, 3];
    for (kind, destination) in
        [("unicast", far.mac("eth0")), ("broadcast", frame::BROADCAST), ("multicast", group)]
    {
        let sent = frame::ethernet(destination, near.mac("eth0"), frame::EXPERIMENTAL, &frame::pattern(200));
        sender.send(&sent);
        assert_eq!(receiver.expect(kind, PATIENCE, |got| got == sent), sent, "{kind}");
    }
}

#[test]
fn address_resolution_works_across_nodes() {
    let kube = rig_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("arp");
    space.serve(&[Server::new("near", &nodes[0].name), Server::new("far", &nodes[1].name)]);
    let address = |pod: &str| {
        space.addresses(pod).into_iter().find_map(|ip| match ip {
            std::net::IpAddr::V4(ip) => Some(ip.octets()),
            std::net::IpAddr::V6(_) => None,
        })
    };
    let (Some(mine), Some(theirs)) = (address("near"), address("far")) else {
        eprintln!("SKIPPED: the cluster has no IPv4");
        return;
    };
    let near = space.netns("near", &nodes[0].name);
    let far = space.netns("far", &nodes[1].name);
    let socket = PacketSocket::open(&near, "eth0");
    socket.send(&arp_request(&near, mine, theirs));
    let reply = socket.expect("an ARP reply", PATIENCE, |got| {
        frame::ether_type(got) == frame::ARP
            && got.get(20..22) == Some(&[0, 2])
            && got.get(28..32) == Some(&theirs)
    });
    assert_eq!(reply[22..28], far.mac("eth0"), "the reply names the far pod's own MAC");
}

#[test]
fn packets_as_large_as_the_link_says_cross_unfragmented_and_larger_ones_are_refused() {
    let kube = rig_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("mtu");
    space.serve(&[Server::new("near", &nodes[0].name), Server::new("far", &nodes[1].name)]);
    let near = space.netns("near", &nodes[0].name);
    let link = near.ip_json("link show dev eth0");
    let mtu = link[0]["mtu"].as_u64().unwrap_or_else(|| panic!("no MTU in {link}"));
    for address in space.addresses("far") {
        let fits = mtu - if address.is_ipv4() { 28 } else { 48 };
        near.run(&format!("ping -c 3 -i 0.05 -W 2 -M do -s {fits} {address}"));
        let larger = near.output(&format!("ping -c 1 -W 1 -M do -s {} {address}", fits + 1));
        assert!(!larger.status.success(), "{} bytes cross to {address} in one piece", mtu + 1);
    }
}
