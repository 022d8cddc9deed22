//! `make demo`: the product in about a minute, with the real binaries and real packets.
#![expect(clippy::print_stdout, reason = "the demo is there to be read")]

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use e2e::{
    Capture, Cluster, Node, Pod, config, frame,
    packet_socket::Direction,
    skip,
    tcp::{self, Amount, Transfer},
    vxlan::Vxlan,
};

fn main() {
    if !skip::is_root() {
        std::process::exit(1);
    }
    let start = Instant::now();
    title("Two nodes, one IPv6 link between them, an agent on each");
    let cluster = Cluster::builder().start();
    cluster.nodes().iter().for_each(introduce);

    title("Pods, attached by the CNI binary as a container runtime does it");
    let one = attach(cluster.a(), "one");
    let two = attach(cluster.b(), "two");

    title("From pod to pod, across the nodes");
    pings(&one, &two);
    broadcast(&one, &two);

    title("The packet on the wire, as tshark decodes it");
    decode(&cluster, &one, &two);

    title("TCP throughput, beside bridge + VXLAN over the same kind of IPv6 link");
    throughput(&one, &two);

    title("Headroom");
    headroom(cluster.a());

    title("What the agent on node-a says");
    let status =
        cluster.a().agent_command(&["status", "--socket", &cluster.a().socket().display().to_string()]);
    status.lines().for_each(|line| println!("  {line}"));

    drop((one, two));
    drop(cluster);
    println!("\nEverything is removed again. {:.0} s.", start.elapsed().as_secs_f64());
}

fn title(text: &str) {
    println!("\n\x1b[1m{text}\x1b[0m");
}

fn introduce(node: &Node) {
    let gateway: Vec<String> = node.gateway_addresses().iter().map(IpAddr::to_string).collect();
    println!(
        "  {}: underlay {}, locator {}, on the segment {}",
        node.name,
        node.address,
        config::locator(node.number),
        gateway.join(" and ")
    );
}

fn attach<'a>(node: &'a Node, name: &str) -> Pod<'a> {
    let pod = node.unattached_pod(name);
    let start = Instant::now();
    let pod = pod.attach();
    let took = start.elapsed();
    println!(
        "  pod {name} on {}: {} and {}, MAC {}, MTU {}; ADD took {took:.1?}",
        node.name,
        pod.ip4(),
        pod.ip6(),
        mac(pod.mac()),
        pod.mtu()
    );
    pod
}

fn pings(from: &Pod, to: &Pod) {
    for address in to.addresses() {
        let output = e2e::pod::ping(&from.netns, address, "-c 5 -i 0.1");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let summary =
            text.lines().filter(|line| line.contains("packets transmitted") || line.starts_with("rtt"));
        println!("  ping {address}: {}", summary.collect::<Vec<_>>().join("; "));
        assert!(output.status.success(), "{text}");
    }
}

fn broadcast(from: &Pod, to: &Pod) {
    let sent = frame::ethernet(frame::BROADCAST, from.mac(), frame::EXPERIMENTAL, &frame::pattern(100));
    let (sender, receiver) = (from.socket(), to.socket());
    sender.send(&sent);
    let patience = Duration::from_secs(2);
    let got = receiver.expect("the broadcast", patience, |f| frame::ether_type(f) == frame::EXPERIMENTAL);
    assert_eq!(got, sent);
    println!("  broadcast of {} bytes with an EtherType of nobody's: arrived, byte for byte", sent.len());
}

/// What is shown of the packet: tshark's field, which occurrence of it, and what it is.
const FIELDS: [(&str, usize, &str); 15] = [
    ("eth.src", 0, "outer Ethernet: node-a's uplink"),
    ("eth.dst", 0, "  the next hop, here node-b's uplink"),
    ("ipv6.src", 0, "outer IPv6: node-a's locator, ::1"),
    ("ipv6.dst", 0, "  SID: End.DT2U of network 1 on node-b (RFC 8986 4.11)"),
    ("ipv6.flow", 0, "  flow label, from the inner flow (RFC 6437)"),
    ("ipv6.tclass", 0, "  traffic class, from the inner packet"),
    ("ipv6.hlim", 0, "  hop limit"),
    ("ipv6.nxt", 0, "  next header 143: Ethernet; one SID needs no SRH (RFC 8986 5.4)"),
    ("ipv6.plen", 0, "  payload: the inner frame"),
    ("eth.src", 1, "inner Ethernet: pod one"),
    ("eth.dst", 1, "  pod two: its MAC follows from its address, nobody had to be asked"),
    ("ip.src", 0, "inner IPv4: pod one"),
    ("ip.dst", 0, "  pod two"),
    ("icmp.type", 0, "  echo request"),
    ("frame.len", 0, "bytes on the wire: the inner frame and 54 more"),
];

fn decode(cluster: &Cluster, from: &Pod, to: &Pod) {
    let capture = Capture::start(&cluster.b().netns, "eth0");
    assert!(from.pings(to.ip4()));
    let frames = capture.stop().only(Direction::In);
    let mut names: Vec<&str> = FIELDS.iter().map(|(field, ..)| *field).collect();
    names.sort_unstable();
    names.dedup();
    let rows = frames.decode("ipv6.nxt == 143 && icmp.type == 8", &names);
    let Some(row) = rows.first() else { panic!("no SRv6 packet was captured:\n{}", frames.tshark(&[])) };
    for (field, occurrence, meaning) in FIELDS {
        let values =
            names.iter().zip(row).find_map(|(name, values)| (*name == field).then_some(values.as_str()));
        let value = values.unwrap_or_default().split(',').nth(occurrence).unwrap_or_default();
        println!("  {field:<12} {value:<26} {meaning}");
    }
}

fn throughput(from: &Pod, to: &Pod) {
    let vxlan = Vxlan::start(1500, false);
    let (vxlan_from, vxlan_to) = vxlan.pods();
    for (family, v6) in [("IPv4", false), ("IPv6", true)] {
        let address = if v6 { to.ip6().into() } else { IpAddr::from(to.ip4()) };
        // Interleaved, and the better of each: the machine has other things to do as well.
        let round = Amount::For(Duration::from_secs(1));
        let (ours, theirs): (Vec<Transfer>, Vec<Transfer>) = (0..3)
            .map(|_| {
                let ours = tcp::transfer(&from.netns, &to.netns, address, round);
                (ours, tcp::transfer(vxlan_from, vxlan_to, vxlan.address(v6), round))
            })
            .unzip();
        let [ours, theirs] = [ours, theirs].map(|all| all.iter().map(Transfer::megabits).fold(0.0, f64::max));
        println!("  {family}: headway {ours:.0} Mbit/s, VXLAN {theirs:.0} Mbit/s ({:.2}x)", ours / theirs);
    }
    println!(
        "  (every byte compared; uplinks cut super-packets and compute checksums as a plain NIC has it done)"
    );
}

fn headroom(node: &Node) {
    let report = &node.status()["headroom"];
    println!("  asked for: {} bytes in front of every packet that a pod's link allocates", report["asked"]);
    println!("  the kernel's answer, read back from both ends of each pod's link: {}", report["outcomes"]);
    if report["attribute"].is_null() {
        println!(
            "  (IFLA_TX_EXTRA_HEADROOM is in no released kernel: without it a locally sent datagram costs a copy)"
        );
    }
}

fn mac(octets: [u8; 6]) -> String {
    octets.map(|octet| format!("{octet:02x}")).join(":")
}
