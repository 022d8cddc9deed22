//! The agent may die and change; traffic does not notice. A reboot leaks nothing.

use std::time::Duration;

use e2e::{
    Cluster, Node,
    host::agent_of_next_release,
    root_or_skip,
    stream::Stream,
    tcp::{self, Amount},
    wait_until,
};

const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn no_packet_is_lost_when_the_agent_is_killed_and_started_again() {
    root_or_skip!();
    let cluster = Cluster::builder().start();
    let (near, far) = (cluster.a().add_pod("near"), cluster.b().add_pod("far"));
    near.assert_pings(far.ip4());
    let there = Stream::start((&near.netns, near.ip4().into()), (&far.netns, far.ip4().into()), 1000);
    let back = Stream::start((&far.netns, far.ip6().into()), (&near.netns, near.ip6().into()), 1000);
    let paced = Amount::Paced { size: 30_000, writes: 1500, pause: Duration::from_millis(2) };
    let transfer = std::thread::scope(|scope| {
        let running = scope.spawn(|| tcp::transfer(&near.netns, &far.netns, far.ip4().into(), paced));
        for node in [cluster.a(), cluster.b(), cluster.a()] {
            restart(node, Node::kill_agent);
        }
        restart(cluster.b(), Node::stop_agent);
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    assert_eq!(transfer.bytes, 1500 * 30_000);
    for (way, stream) in [("there", there), ("back", back)] {
        let report = stream.stop();
        assert!(report.sent > 1000, "{way}: {report:?}");
        assert_eq!((report.lost(), report.duplicates), (0, 0), "{way}: {report:?}");
    }
    // Pods from before are still known, and new ones can come.
    near.check().expect("CHECK of a pod from before");
    assert!(cluster.a().add_pod("new").pings(far.ip4()));
}

fn restart(node: &Node, end: fn(&Node)) {
    end(node);
    node.start_agent();
}

#[test]
fn a_second_agent_on_the_node_ends_and_touches_nothing() {
    root_or_skip!();
    let cluster = Cluster::builder().nodes(1).start();
    let node = cluster.a();
    let pod = node.add_pod("p");
    let file = node.folder.join("node.yaml").display().to_string();
    for command in ["run", "cleanup"] {
        let second = node.agent_command_line(&[command, "--config", &file]).output().expect("run the agent");
        assert!(!second.status.success(), "{second:?}");
        assert!(String::from_utf8_lossy(&second.stderr).contains("another agent"), "{second:?}");
    }
    pod.check().expect("CHECK of the first agent's pod");
    assert!(node.add_pod("q").pings(pod.ip4()));
}

#[test]
fn traffic_goes_on_while_no_agent_runs() {
    root_or_skip!();
    let cluster = Cluster::builder().start();
    let (near, far) = (cluster.a().add_pod("near"), cluster.b().add_pod("far"));
    cluster.nodes().iter().for_each(Node::kill_agent);
    near.assert_pings(far.ip4());
    near.assert_pings(far.ip6());
    assert!(cluster.a().conflist_path().exists(), "the conflist stays, or DEL fails");
    cluster.nodes().iter().for_each(Node::start_agent);
    near.assert_pings(far.ip4());
}

#[test]
fn del_without_an_agent_succeeds_and_is_caught_up_with() {
    root_or_skip!();
    let cluster = Cluster::builder().nodes(1).start();
    let node = cluster.a();
    let (mut gone, stays) = (node.add_pod("gone"), node.add_pod("stays"));
    let (address, link) = (gone.ip4().to_string(), gone.host_link());
    node.kill_agent();
    gone.detach();
    gone.detach();
    assert!(!node.netns.links().contains(&link), "DEL itself removes the link");
    assert_eq!(node.state_files("pending").len(), 1, "word is left for the agent");
    node.start_agent();
    wait_until("the agent releases the address", PATIENCE, || {
        !node.status().to_string().contains(&format!("\"{address}"))
    });
    assert!(node.state_files("pending").is_empty());
    stays.check().expect("CHECK of the other pod");
}

#[test]
fn add_waits_for_the_agent() {
    root_or_skip!();
    let cluster = Cluster::builder().nodes(1).start();
    let node = cluster.a();
    node.kill_agent();
    let mut pod = node.unattached_pod("early");
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| pod.try_attach());
        node.start_agent();
        adding.join().expect("no panic").expect("ADD succeeds once the agent is there");
    });
    assert!(pod.pings(node.gateway_addresses()[0]));
}

#[test]
fn after_a_reboot_pods_get_addresses_and_nothing_is_leaked() {
    root_or_skip!();
    let small = |_: u8, config: &mut serde_json::Value| {
        // Thirteen pods at most: a leak of the old boot's ten would show at once.
        config["node"]["podCIDRs"] = serde_json::json!(["10.1.1.0/28", "fd10:0:0:1::/64"]);
    };
    let cluster = Cluster::builder().nodes(1).config(small).start();
    let node = cluster.a();
    let old: Vec<_> = (0..10).map(|number| node.add_pod(&format!("old{number}"))).collect();
    node.reboot();
    old.into_iter().for_each(e2e::Pod::abandon);
    node.start_agent();
    let new: Vec<_> = (0..10).map(|number| node.add_pod(&format!("new{number}"))).collect();
    new.iter().for_each(|pod| assert!(pod.pings(node.gateway_addresses()[0])));
    let endpoints =
        node.netns.links().iter().filter(|link| link.len() == 14 && link.starts_with("hw")).count();
    assert_eq!(endpoints, 10);
}

#[test]
fn after_a_newer_major_release_an_older_agent_adds_nothing_and_leaves_traffic_alone() {
    root_or_skip!();
    let cluster = Cluster::builder().start();
    let (near, far) = (cluster.a().add_pod("near"), cluster.b().add_pod("far"));
    cluster.a().stop_agent();
    cluster.a().spawn_agent_binary(agent_of_next_release("major"));
    cluster.a().wait_ready();
    near.assert_pings(far.ip4());
    cluster.a().stop_agent();
    cluster.a().spawn_agent();
    wait_until("the agent says so", PATIENCE, || cluster.a().log().to_lowercase().contains("newer"));
    near.assert_pings(far.ip4());
    let mut refused = cluster.a().unattached_pod("refused");
    assert!(refused.try_attach().is_err());
    near.assert_pings(far.ip6());
}

#[test]
fn an_upgrade_by_a_minor_release_and_back_keeps_pods_and_takes_new_ones() {
    root_or_skip!();
    let cluster = Cluster::builder().start();
    let (near, far) = (cluster.a().add_pod("near"), cluster.b().add_pod("far"));
    cluster.a().stop_agent();
    cluster.a().spawn_agent_binary(agent_of_next_release("minor"));
    cluster.a().wait_ready();
    let newer = cluster.a().add_pod("newer");
    wait_until("a pod of the newer agent reaches the others", PATIENCE, || newer.pings(far.ip6()));
    cluster.a().stop_agent();
    cluster.a().start_agent();
    near.assert_pings(far.ip4());
    newer.assert_pings(far.ip4());
    let older = cluster.a().add_pod("older");
    wait_until("a pod of the older agent reaches the others", PATIENCE, || older.pings(newer.ip6()));
}
