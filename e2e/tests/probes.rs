//! Agents probe each other through the segment, at full size, and say who does not answer.

use std::time::Duration;

use e2e::{Cluster, Node, root_or_skip, wait_for, wait_until};

/// An agent takes three intervals of ten seconds to call a peer silent.
const SILENCE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(20);

/// The message of the condition `PeersReachable`; nothing while it holds.
fn unreachable(node: &Node) -> Option<String> {
    let status = node.status();
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut found = conditions.filter(|one| one["kind"] == "PeersReachable");
    let condition = found.next().unwrap_or_else(|| panic!("no condition PeersReachable: {status}"));
    (condition["holds"] == false).then(|| condition["message"].as_str().unwrap_or_default().to_owned())
}

fn metric(node: &Node, name: &str) -> Option<u64> {
    let (_, text) = node.http("/metrics")?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn wait_answering(node: &Node, peers: u64) {
    wait_until(&format!("{} hears {peers} peers", node.name), PATIENCE, || {
        metric(node, "headway_agent_peers_reachable ") == Some(peers)
    });
}

#[test]
fn a_peer_that_falls_silent_is_named_until_it_answers_again() {
    root_or_skip!();
    let cluster = Cluster::builder().nodes(3).start();
    let [a, b] = [cluster.a(), cluster.b()];
    wait_answering(a, 2);
    assert_eq!(unreachable(a), None);
    b.netns.run("nft add table inet deaf");
    b.netns.run("nft add chain inet deaf in { type filter hook input priority 0 ; }");
    b.netns.run("nft add rule inet deaf in icmpv6 type echo-request drop");
    let message = wait_for("the silent peer is named", SILENCE, || unreachable(a));
    assert!(message.contains("1 of 2 (node-b) do not answer"), "{message}");
    assert_eq!(metric(a, "headway_agent_peers_reachable "), Some(1));
    assert_eq!(unreachable(b), None, "it hears the others");
    let text = a.agent_command(&["status", "--socket", &a.socket().display().to_string()]);
    assert!(text.contains("PeersReachable") && text.contains("silent"), "{text}");
    b.netns.run("nft delete table inet deaf");
    wait_until("it is heard again", PATIENCE, || unreachable(a).is_none());
}

#[test]
fn an_underlay_that_is_narrower_than_it_says_is_found() {
    root_or_skip!();
    let cluster = Cluster::builder().start();
    let [a, b] = [cluster.a(), cluster.b()];
    wait_answering(a, 1);
    // Somewhere between the nodes, large frames are lost without a word.
    cluster.underlay.fabric.run("nft add table bridge narrow");
    cluster
        .underlay
        .fabric
        .run("nft add chain bridge narrow forward { type filter hook forward priority 0 ; }");
    cluster.underlay.fabric.run("nft add rule bridge narrow forward ip6 length > 1300 drop");
    for node in [a, b] {
        let message = wait_for("the narrow way is told", SILENCE, || unreachable(node));
        assert!(message.contains("answer small packets only"), "{message}");
    }
}
