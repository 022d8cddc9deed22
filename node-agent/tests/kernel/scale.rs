//! What an agent with many peers does, on the real kernel: all nodes on one underlay, none of them there.

use std::{
    fmt::Write as _,
    fs,
    time::{Duration, Instant},
};

use agent_core::{dataplane::Step, desired, world::Event};
use node_agent::reconcile::Look;

use crate::{
    node::Node,
    scratch::{Scratch, require_root},
};

/// A node with this many peers. Every other one is a neighbour, the rest is behind a router.
fn node(scratch: &Scratch, peers: u32) -> Node {
    scratch.text("ip -6 route replace fc99::/64 via fc00::ffff:1 dev eth0");
    let mut list = String::from("peers:\n");
    for number in 2..2 + peers {
        let (high, low) = (number >> 8, number & 0xff);
        let network = if number % 2 == 0 { "fc00" } else { "fc99" };
        writeln!(
            list,
            "- {{name: n{number}, number: {number}, podCIDRs: [10.{high}.{low}.0/24, 'fd10:0:0:{number:x}::/64'], \
             address: '{network}::{number:x}'}}"
        )
        .unwrap();
    }
    let config = scratch.config();
    let (before, rest) = config.split_once("peers:").unwrap();
    let after = rest.split_once("cni:").unwrap().1;
    let before = before.replace("10.1.1.0/24", "10.0.1.0/24").replace("10.1.0.0/16", "10.0.0.0/8");
    Node::with(&format!("{before}{list}cni:{after}"))
}

/// Netlink requests of one observation.
fn requests(node: &mut Node, look: Look) -> u64 {
    let before = node.reconciler.measure().unwrap().netlink_requests;
    let facts = node.reconciler.observe(&node.world, look).unwrap();
    node.world.apply(Event::Observed(Box::new(facts)));
    let measuring = 1;
    node.reconciler.measure().unwrap().netlink_requests - before - measuring
}

#[test]
fn an_observation_asks_the_kernel_no_more_with_many_peers_than_with_few() {
    require_root!();
    let asked = [2, 200].map(|peers| {
        let mut asked = [0, 0];
        Scratch::run("requests", |scratch| {
            let mut node = node(scratch, peers);
            node.assert_settles();
            let ways =
                |number| desired::ways(&node.world, agent_core::addr::NodeNumber::new(number).unwrap());
            assert_eq!(ways(2)[0].gateway.to_string(), "fc00::2");
            assert_eq!(ways(3)[0].gateway.to_string(), "fc00::ffff:1");
            asked = [Look::Around, Look::Everywhere].map(|look| requests(&mut node, look));
        });
        asked
    });
    assert!(asked[0][0] > 0);
    assert_eq!(asked[0], asked[1]);
}

#[test]
fn where_rules_send_look_ups_elsewhere_the_kernel_is_asked_for_each() {
    require_root!();
    Scratch::run("rules", |scratch| {
        let mut node = node(scratch, 4);
        node.assert_settles();
        // A table of somebody's own, for one destination.
        scratch.text("ip -6 route add default via fc00::aaaa dev eth0 table 77");
        scratch.text("ip -6 rule add to 5f00:1:3::/48 table 77 priority 100");
        node.settle();
        let three = agent_core::addr::NodeNumber::new(3).unwrap();
        let ways = |node: &Node| desired::ways(&node.world, three)[0].gateway.to_string();
        assert_eq!(ways(&node), "fc00::aaaa");
        // Rules that none of our look-ups meets change nothing.
        scratch.text("ip -6 rule del priority 100");
        scratch.text("ip -6 rule add from fc00::1 table 77 priority 100");
        scratch.text("ip -6 rule add fwmark 7 table 77 priority 101");
        node.settle();
        assert_eq!(ways(&node), "fc00::ffff:1");
    });
}

/// The fastest of a few times.
fn fastest(mut work: impl FnMut()) -> Duration {
    let time = |()| {
        let begin = Instant::now();
        work();
        begin.elapsed()
    };
    [(); 7].map(time).into_iter().min().unwrap()
}

fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "measures: cargo test --release -p node-agent --test scale -- --ignored --nocapture"]
fn times_by_number_of_peers() {
    require_root!();
    println!(
        "peers | all from nothing | look around | look everywhere | whole pass | pass for an ADD | one peer more | MiB"
    );
    for peers in [100, 1000, 5000] {
        let before = memory();
        Scratch::run("times", |scratch| {
            let mut node = node(scratch, peers);
            let begin = Instant::now();
            node.assert_settles();
            let built = begin.elapsed();
            let around = fastest(|| drop(node.reconciler.observe(&node.world, Look::Around).unwrap()));
            let everywhere =
                fastest(|| drop(node.reconciler.observe(&node.world, Look::Everywhere).unwrap()));
            let pass = fastest(|| assert_eq!(node.reconciler.pass(&node.world), 0));
            let add = fastest(|| assert_eq!(node.reconciler.pass_attachments(&node.world), 0));
            let first = *node.reconciler.actual().nodes.first_key_value().unwrap().0;
            let change = fastest(|| {
                let key = agent_core::dataplane::Key::Node(first);
                node.reconciler.take(Step::Remove(key)).unwrap();
                let facts = node.reconciler.observe(&node.world, Look::Around).unwrap();
                node.world.apply(Event::Observed(Box::new(facts)));
                assert_eq!(node.reconciler.pass(&node.world), 1);
            });
            let memory = (memory() - before) / 1024;
            println!(
                "{peers} | {built:?} | {around:?} | {everywhere:?} | {pass:?} | {add:?} | {change:?} | {memory}"
            );
        });
    }
}
