//! Pods come and go, things die in between, and nothing is left over.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use e2e::{Cluster, Node, Pod, root_or_skip, skip, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

/// Everything that attachments leave on a node.
#[derive(Debug, PartialEq)]
struct Left {
    links: usize,
    files: Vec<String>,
    endpoints: Vec<String>,
    map_entries: Vec<(&'static str, usize)>,
    namespaces_held: usize,
}

fn left(node: &Node) -> Left {
    let links = node.netns.links();
    Left {
        // Links on the node for pods: `hw` and twelve hex digits.
        links: links.iter().filter(|link| link.starts_with("hw") && link.len() == 14).count(),
        files: files_naming_attachments(node),
        endpoints: node.attachments(),
        map_entries: ["ENDPOINTS", "FDB", "BUCKETS"].map(|map| (map, node.map_entries(map))).to_vec(),
        namespaces_held: node.namespaces_held_by_agent(),
    }
}

/// Files below the state that hold a lease or a pending release.
fn files_naming_attachments(node: &Node) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![node.folder.join("state")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if fs::read_to_string(&path).unwrap_or_default().contains("\"container\"") {
                found.push(path.display().to_string());
            }
        }
    }
    found.sort();
    found
}

/// A small random source (xorshift): the kills have to come at odd moments, not be unpredictable.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[test]
fn add_and_del_with_random_kills_leave_nothing() {
    root_or_skip!();
    let cluster = Cluster::builder().nodes(1).start();
    let node = cluster.a();
    let keeper = node.add_pod("keeper");
    let before = left(node);
    let (started, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let cycles = if skip::full() { 3000 } else { 300 };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..20)
            .map(|worker| {
                let started = &started;
                scope.spawn(move || {
                    let mut random = Random(0x9e37_79b9 + worker);
                    while started.fetch_add(1, Ordering::Relaxed) < cycles {
                        cycle(node, worker, &mut random);
                    }
                })
            })
            .collect();
        let killer = scope.spawn(|| kill_agents(node, &done));
        for worker in workers {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        done.store(true, Ordering::Relaxed);
        killer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    wait_until("nothing is left over", PATIENCE, || left(node) == before);
    assert!(keeper.pings(node.gateway_addresses()[0]));
    keeper.check().expect("CHECK of a pod that lived through all of it");
}

/// ADD and DEL of one pod; the plugin may be killed on the way, as runtimes do at their deadline.
fn cycle(node: &Node, worker: u64, random: &mut Random) {
    let mut pod = node.unattached_pod(&format!("w{worker}"));
    let kill = random.below(4) == 0;
    if kill {
        let chain = pod.runtime.chain();
        let patience = Duration::from_micros(random.below(30_000));
        pod.runtime.kill_during("ADD", &chain[0], &pod.attachment, patience);
    } else if let Err(error) = pod.try_attach() {
        // The agent was killed while it served this ADD.
        assert!(matches!(error.code, 5 | 11 | 100..), "{error}");
    }
    pod.detach();
}

/// Kills and restarts the agent at odd moments.
fn kill_agents(node: &Node, done: &AtomicBool) {
    let mut random = Random(42);
    while !done.load(Ordering::Relaxed) {
        let end = Instant::now() + Duration::from_millis(500 + random.below(1500));
        while Instant::now() < end && !done.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
        node.kill_agent();
        node.start_agent();
    }
}

#[test]
fn twenty_pods_at_once_get_twenty_addresses() {
    root_or_skip!();
    let cluster = Cluster::builder().nodes(1).start();
    let node = cluster.a();
    let pods: Vec<Pod> = thread::scope(|scope| {
        let adding: Vec<_> =
            (0..20).map(|number| scope.spawn(move || node.add_pod(&format!("p{number}")))).collect();
        adding
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let addresses: std::collections::BTreeSet<_> = pods.iter().flat_map(Pod::addresses).collect();
    assert_eq!(addresses.len(), 40);
    pods.iter().for_each(|pod| assert!(pod.pings(pods[0].ip4())));
}

#[test]
fn a_pod_whose_namespace_vanishes_is_found_without_gc() {
    root_or_skip!();
    let cluster = Cluster::builder().nodes(1).start();
    let node = cluster.a();
    let before = left(node);
    node.add_pod("vanishes").abandon();
    wait_until("the agent finds it gone", PATIENCE, || left(node) == before);
}

#[test]
fn gc_keeps_to_its_network_and_its_list() {
    root_or_skip!();
    let cluster = Cluster::builder().nodes(1).start();
    let node = cluster.a();
    let (kept, dropped) = (node.add_pod("kept"), node.add_pod("dropped"));
    let runtime = node.runtime();
    runtime.gc(&[], Some("another-network")).expect("GC of another network");
    kept.check().expect("GC of another network touches nothing");
    dropped.check().expect("GC of another network touches nothing");
    runtime.gc(&[&kept.attachment], None).expect("GC");
    kept.check().expect("what is on the list stays");
    assert!(!node.netns.links().contains(&dropped.host_link()), "what is not on the list goes");
    assert!(kept.pings(node.gateway_addresses()[0]));
}

#[test]
fn a_repeated_add_fails_and_leaves_the_pod_alone() {
    root_or_skip!();
    let cluster = Cluster::builder().nodes(1).start();
    let node = cluster.a();
    let pod = node.add_pod("once");
    let before = (pod.netns.run("ip addr show dev eth0"), left(node));
    let again = node.runtime().add(&pod.attachment);
    assert!(again.is_err(), "{again:?}");
    assert_eq!((pod.netns.run("ip addr show dev eth0"), left(node)), before);
    assert!(pod.pings(node.gateway_addresses()[0]));
    pod.check().expect("CHECK");
}

#[test]
fn del_may_be_repeated_and_needs_nothing() {
    root_or_skip!();
    let cluster = Cluster::builder().nodes(1).start();
    let node = cluster.a();
    let before = left(node);
    let mut pod = node.add_pod("p");
    pod.detach();
    pod.detach();
    let mut without_namespace = node.add_pod("q");
    without_namespace.attachment.netns = std::path::PathBuf::new();
    without_namespace.attachment.result = serde_json::Value::Null;
    without_namespace.detach();
    let mut never = node.unattached_pod("r");
    never.attachment.netns = "/run/netns/there-is-none".into();
    never.detach();
    wait_until("nothing is left over", PATIENCE, || left(node) == before);
}

#[test]
fn an_exhausted_pool_is_an_error_in_words_and_recovers() {
    root_or_skip!();
    let small = |_: u8, config: &mut serde_json::Value| {
        config["node"]["podCIDRs"] = serde_json::json!(["10.1.1.0/29", "fd10:0:0:1::/64"]);
    };
    let cluster = Cluster::builder().nodes(1).config(small).start();
    let node = cluster.a();
    // .2 to .6: .0 is the network, .1 the gateway, .7 the broadcast address.
    let mut pods: Vec<Pod> = (0..5).map(|number| node.add_pod(&format!("p{number}"))).collect();
    let mut refused = node.unattached_pod("refused");
    let error = refused.try_attach().expect_err("the pool is empty");
    assert!(error.message.to_lowercase().contains("exhausted"), "{error}");
    node.runtime().status().expect("an exhausted pool is no reason to call the node NotReady");
    drop(pods.pop());
    refused.try_attach().expect("an address is free again");
}

#[test]
fn check_sees_what_is_broken() {
    root_or_skip!();
    let cluster = Cluster::builder().nodes(1).start();
    let node = cluster.a();
    type Damage = (&'static str, fn(&Pod));
    let damages: [Damage; 5] = [
        ("an address is gone", |pod| drop(pod.netns.run(&format!("ip addr del {}/16 dev eth0", pod.ip4())))),
        ("the default route is gone", |pod| drop(pod.netns.run("ip route del default"))),
        ("the MTU is another", |pod| drop(pod.netns.run("ip link set eth0 mtu 1300"))),
        ("the MAC is another", |pod| drop(pod.netns.run("ip link set eth0 address 02:00:00:00:00:09"))),
        ("the interface is gone", |pod| drop(pod.netns.run("ip link del eth0"))),
    ];
    for (what, damage) in damages {
        let pod = node.add_pod("p");
        pod.check().expect("CHECK of a sound pod");
        damage(&pod);
        let error = pod.check().expect_err(what);
        assert!(error.code >= 100 || error.code == 7 || error.code == 3, "{what}: {error}");
    }
}

#[test]
fn chained_plugins_work_behind_ours() {
    root_or_skip!();
    let chain = |_: u8, config: &mut serde_json::Value| {
        // What Debian 12's plugins know.
        config["cni"]["version"] = "1.0.0".into();
        config["cni"]["chain"] = serde_json::json!([
            {"type": "portmap", "capabilities": {"portMappings": true}},
            {"type": "tuning", "sysctl": {"net.ipv4.tcp_syn_retries": "3"}},
        ]);
    };
    let cluster = Cluster::builder().nodes(1).config(chain).start();
    let node = cluster.a();
    let mut pod = node.unattached_pod("web");
    pod.runtime.capabilities =
        serde_json::json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]});
    let pod = pod.attach();
    assert_eq!(pod.netns.read_sysctl("net/ipv4/tcp_syn_retries"), "3");
    // portmap 1.1 looks for its IPv4 rules in the IPv6 table and fails; who is before it has passed.
    if let Err(error) = pod.check() {
        assert!(error.message.starts_with("portmap"), "{error}");
    }
    let listener =
        pod.netns.enter(|| std::net::TcpListener::bind((pod.ip4(), 80))).expect("listen in the pod");
    let outside = &cluster.underlay.fabric;
    let target = std::net::SocketAddr::from((node.address4, 8080));
    let client = outside.enter(|| std::net::TcpStream::connect_timeout(&target, Duration::from_secs(3)));
    client.expect("the mapped port answers");
    drop(listener);
}
