//! The node is an endpoint of the segment: host, outside and pods reach each other, and others on the uplink are
//! left alone.

use std::{net::IpAddr, time::Duration};

use e2e::{
    Capture, Cluster, Netns, Shared,
    packet_socket::Direction,
    pod::ping,
    root_or_skip,
    tcp::{self, Amount},
    tcx::Counter,
    wait_until,
};

static CLUSTER: Shared = Shared::new(|| Cluster::builder().start());
const PATIENCE: Duration = Duration::from_secs(5);
const SOME: Amount = Amount::Bytes(2 << 20);

fn assert_pings(from: &Netns, to: IpAddr, options: &str) {
    let output = ping(from, to, options);
    assert!(
        output.status.success(),
        "{}: ping {options} {to}: {}",
        from.name(),
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn host_and_its_pods_reach_each_other() {
    root_or_skip!();
    let cluster = CLUSTER.beside_others();
    let (node, pod) = (cluster.a(), cluster.a().add_pod("h1"));
    for (pod_address, gateway) in pod.addresses().into_iter().zip(node.gateway_addresses()) {
        assert_pings(&node.netns, pod_address, "-c 2 -i 0.01");
        pod.assert_pings(gateway);
        assert_eq!(tcp::transfer(&node.netns, &pod.netns, pod_address, SOME).bytes, 2 << 20);
        assert_eq!(tcp::transfer(&pod.netns, &node.netns, gateway, SOME).bytes, 2 << 20);
    }
    // kubelet probes come from wherever the host's routing says, also from its underlay address.
    assert_pings(&node.netns, pod.ip4().into(), &format!("-I {}", node.address4));
    assert_pings(&node.netns, pod.ip6().into(), &format!("-I {}", node.address));
}

#[test]
fn hosts_and_pods_of_different_nodes_reach_each_other() {
    root_or_skip!();
    let cluster = CLUSTER.beside_others();
    let (host, pod) = (cluster.a(), cluster.b().add_pod("r1"));
    for (pod_address, gateway) in pod.addresses().into_iter().zip(host.gateway_addresses()) {
        assert_pings(&host.netns, pod_address, "-c 2 -i 0.01");
        pod.assert_pings(gateway);
        assert_eq!(tcp::transfer(&host.netns, &pod.netns, pod_address, SOME).bytes, 2 << 20);
        assert_eq!(tcp::transfer(&pod.netns, &host.netns, gateway, SOME).bytes, 2 << 20);
    }
    // Bound to the node's own address: masqueraded, or the answer would go back by another way.
    assert_pings(&host.netns, pod.ip4().into(), &format!("-I {}", host.address4));
    assert_pings(&host.netns, pod.ip6().into(), &format!("-I {}", host.address));
    // To the other node's underlay address.
    assert_pings(&pod.netns, host.address4.into(), "");
    assert_pings(&pod.netns, host.address.into(), "");
}

#[test]
fn pods_reach_the_outside_behind_the_nodes_address() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let (node, pod) = (cluster.a(), cluster.a().add_pod("o1"));
    let outside = &cluster.underlay.fabric;
    let capture = Capture::start(outside, "h1u0");
    for to in [cluster.underlay.outside4(), cluster.underlay.outside()] {
        assert_pings(&pod.netns, to, "");
        assert_eq!(tcp::transfer(&pod.netns, outside, to, SOME).bytes, 2 << 20);
    }
    let frames = capture.stop().only(Direction::In);
    let sources = frames
        .decode("(tcp.flags.syn == 1 && tcp.flags.ack == 0) || icmp.type == 8", &["ip.src", "ipv6.src"]);
    assert!(!sources.is_empty());
    let own = [node.address4.to_string(), node.address.to_string()];
    assert!(sources.iter().all(|row| row.iter().any(|source| own.contains(source))), "{sources:?}");
}

#[test]
fn a_client_off_the_segment_reaches_pods_by_a_plain_route() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let (node, pod) = (cluster.a(), cluster.a().add_pod("c1"));
    let outside = &cluster.underlay.fabric;
    outside.ip(&format!(
        "route add 10.1.1.0/24 via {}\nroute add fd10:0:0:1::/64 via {}",
        node.address4, node.address
    ));
    for to in pod.addresses() {
        assert_pings(outside, to, "");
        assert_eq!(tcp::transfer(outside, &pod.netns, to, SOME).bytes, 2 << 20);
    }
    outside.ip("route del 10.1.1.0/24\nroute del fd10:0:0:1::/64");
}

#[test]
fn other_programs_on_the_uplink_keep_seeing_their_traffic() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let node = cluster.a();
    let counters = [
        Counter::at_tcx(&node.netns, "eth0"),
        Counter::at_clsact(&node.netns, "eth0", &node.folder.join("bpf")),
    ];
    // The underlay's own traffic is not ours to swallow.
    assert_pings(&node.netns, cluster.b().address4.into(), "-c 5 -i 0.01");
    assert_pings(&node.netns, cluster.b().address.into(), "-c 5 -i 0.01");
    for counter in &counters {
        wait_until("the program behind ours counts", PATIENCE, || counter.packets() >= 10);
    }
    let pods = [cluster.a().add_pod("p1"), cluster.b().add_pod("p2")];
    pods[0].assert_pings(pods[1].ip4());
    node.netns.run("tc qdisc del dev eth0 clsact");
    pods[0].assert_pings(pods[1].ip6());
}

#[test]
fn sids_go_nowhere_without_the_program() {
    root_or_skip!();
    let cluster = CLUSTER.beside_others();
    let routes = cluster.a().netns.run("ip -6 route show type unreachable");
    assert!(routes.contains("5f00:1:1::/48") && routes.contains("5f00:1::/32"), "{routes}");
}

#[test]
fn many_pods_with_many_peers_do_not_overflow_the_neighbour_tables() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    // gc_thresh3 counts entries of all namespaces of the machine: what matters is that the agent has raised it.
    // 110 pods with 100 remote peers each in both families are 22,000 entries; made directly, as traffic would.
    let pods = if e2e::skip::full() { 110 } else { 24 };
    let pods: Vec<_> = (0..pods).map(|number| cluster.a().add_pod(&format!("n{number}"))).collect();
    for pod in &pods {
        let entries: Vec<String> = (0..100)
            .flat_map(|peer| {
                let mac = format!("0a:58:0a:01:02:{:02x}", 100 + peer);
                [
                    format!("neigh replace 10.1.2.{} lladdr {mac} nud reachable dev eth0", 100 + peer),
                    format!("neigh replace fd10:0:0:2::{:x} lladdr {mac} nud reachable dev eth0", 100 + peer),
                ]
            })
            .collect();
        pod.netns.ip(&entries.join("\n"));
    }
    let fresh = cluster.b().add_pod("fresh");
    for pod in pods.iter().take(3) {
        wait_until("a further neighbour finds room", PATIENCE, || {
            pod.pings(fresh.ip4()) && pod.pings(fresh.ip6())
        });
    }
}

#[test]
fn what_is_removed_by_hand_comes_back() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let (node, pods) = (cluster.a(), [cluster.a().add_pod("b1"), cluster.b().add_pod("b2")]);
    let locator = e2e::config::locator(2);
    for damage in [
        format!("ip -6 route del {locator}"),
        "ip link set hw0 down".to_owned(),
        "ip addr flush dev hw0 scope global".to_owned(),
        "nft flush ruleset".to_owned(),
        "ip link del hws0".to_owned(),
        "ip link del hw0".to_owned(),
    ] {
        let rules = node.netns.run("nft list ruleset").lines().count();
        node.netns.run(&damage);
        eprintln!("{damage}");
        wait_until(&format!("it is repaired: {damage}"), Duration::from_secs(15), || {
            let gateway = e2e::node::addresses_of(&node.netns, "hw0");
            node.netns.run(&format!("ip -6 route show {locator}")).contains("via")
                && gateway.len() == 3
                && node.netns.run("nft list ruleset").lines().count() >= rules
                && ping(&node.netns, pods[0].ip4().into(), "").status.success()
                && ping(&node.netns, pods[1].ip6().into(), "").status.success()
        });
        let bulk = tcp::transfer(&pods[0].netns, &pods[1].netns, pods[1].ip4().into(), SOME);
        assert_eq!(bulk.bytes, 2 << 20);
    }
}

#[test]
fn a_bad_configuration_changes_nothing_and_is_reported() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let (node, pods) = (cluster.a(), [cluster.a().add_pod("x1"), cluster.b().add_pod("x2")]);
    let good = node.config();
    let mut bad = good.clone();
    bad["node"]["number"] = 0xE000.into();
    let logged = node.log().len();
    node.write_config(&bad);
    wait_until("the agent complains about the field", PATIENCE, || node.log()[logged..].contains("number"));
    pods[0].assert_pings(pods[1].ip4());
    assert_eq!(node.http("/readyz").map(|(status, _)| status), Some(200));
    node.write_config(&good);
    let path = node.folder.join("bad.yaml");
    std::fs::write(&path, "node: {name: a}\nnonsense: 1\n").expect("write a file");
    let output = node.agent_command_line(&["check-config", "--config", &path.display().to_string()]).output();
    let output = output.expect("run the agent");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("nonsense"), "{output:?}");
}

#[test]
fn metrics_and_status_are_there() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let pod = cluster.a().add_pod("s1");
    let (status, metrics) = cluster.a().http("/metrics").expect("the agent serves metrics");
    assert_eq!(status, 200);
    assert!(metrics.contains("headway_") && metrics.contains("# HELP"), "{metrics}");
    assert_eq!(cluster.a().http("/livez").map(|(status, _)| status), Some(200));
    let text =
        cluster.a().agent_command(&["status", "--socket", &cluster.a().socket().display().to_string()]);
    assert!(text.contains("node-b"), "{text}");
    let report = cluster.a().status().to_string();
    assert!(report.contains(&pod.ip4().to_string()) && report.contains("node-b"), "{report}");
}

#[test]
fn cleanup_removes_what_is_ours_and_nothing_else() {
    root_or_skip!();
    let cluster = Cluster::builder().nodes(1).prepare();
    let node = cluster.a();
    node.netns.ip("link add other type veth peer name other2\nroute add 198.51.100.0/24 dev eth0");
    node.netns.run("nft add table ip other");
    let picture = || {
        let shown = [
            "ip -d link",
            "ip addr",
            "ip route show table all",
            "ip -6 route show table all",
            "ip rule",
            "nft list ruleset",
        ];
        // Subnet-router anycast comes with forwarding, which stays on: others may have come to need it.
        shown.map(|line| {
            let text = node.netns.run(line);
            text.lines().filter(|line| !line.starts_with("anycast")).map(str::to_owned).collect::<Vec<_>>()
        })
    };
    let before = picture();
    node.start_agent();
    let pod = node.add_pod("p");
    pod.abandon();
    node.stop_agent();
    node.agent_command(&["cleanup", "--config", &node.folder.join("node.yaml").display().to_string()]);
    for (before, after) in before.iter().zip(picture()) {
        assert_eq!(*before, after);
    }
    assert!(!node.conflist_path().exists());
    // The kernel itself puts two files called *.debug into a new bpffs.
    let bpf = node.folder.join("bpf").display().to_string();
    assert_eq!(node.netns.run(&format!("find {bpf} -mindepth 1 -not -name *.debug")), "");
}
