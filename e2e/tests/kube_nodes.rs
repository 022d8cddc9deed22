//! Agents die, nodes restart and join, under real kubelets: traffic goes on, and what is broken mends in seconds.
//!
//! One test at a time: each changes the cluster.

use std::{
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use e2e::{
    kube::{Kube, PATIENCE, Protocol, Server, Space},
    rig_or_skip, wait_until,
};
use serde_json::json;

/// From the moment that a node is back (or its agent is) until its pods are reached.
const REPAIR: Duration = Duration::from_secs(5);

fn kill_agent(kube: &Kube, node: &str) {
    kube.shell_inside(node, "kill -KILL $(pidof headway-agent)");
    let answers = || kube.inside(node, &["curl", "-fsS", "-m", "1", "http://127.0.0.1:9476/readyz"]).output();
    let ready = || answers().is_ok_and(|output| output.status.success());
    wait_until(&format!("the agent of {node} is back"), PATIENCE, ready);
}

/// A pod pings an address a hundred times a second.
fn pings(kube: &Kube, space: &Space<'_>, from: &str, to: std::net::IpAddr, count: u32) -> Child {
    let script = format!("ping -q -i 0.01 -W 1 -c {count} {to}");
    let mut command = kube.kubectl_command(&["-n", space.name(), "exec", from, "--", "sh", "-c", &script]);
    command.stdout(Stdio::piped()).spawn().unwrap_or_else(|error| panic!("{from}: {script}: {error}"))
}

#[test]
fn agents_killed_under_traffic_lose_no_packet() {
    let kube = rig_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("kill");
    let near = Server::new("near", &nodes[0].name);
    space.serve(&[near.clone(), Server::new("far", &nodes[1].name)]);
    let service = space.service("far", ("app", "far"), &json!({}));
    let running: Vec<Child> =
        space.addresses("far").into_iter().map(|to| pings(kube, &space, "near", to, 1500)).collect();
    for node in nodes.iter().chain(&nodes).take(4) {
        kill_agent(kube, &node.name);
        for &address in &service.addresses {
            let (answers, errors) = space.ask(&near, (Protocol::Http, address, 80), "hostname", 20);
            assert!(errors.is_empty(), "{address}, agent of {} killed: {errors:?}", node.name);
            assert_eq!(answers.len(), 20);
        }
    }
    for child in running {
        let output = child.wait_with_output().expect("ping ends");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(" 0% packet loss"), "{text}");
    }
}

/// The API server, stopped until this is dropped.
struct Stopped<'a>(&'a Kube);

impl<'a> Stopped<'a> {
    fn new(kube: &'a Kube) -> Self {
        kube.shell_inside("cp", "kill -STOP $(pidof kube-apiserver)");
        Self(kube)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let continued = self.0.inside("cp", &["bash", "-c", "kill -CONT $(pidof kube-apiserver)"]).status();
        if let Err(error) = continued {
            eprintln!("the API server stays stopped: {error}");
        }
    }
}

#[test]
fn pods_come_and_go_and_traffic_flows_while_the_api_server_does_not_answer() {
    let kube = rig_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("apiless");
    space.serve(&[Server::new("near", &nodes[0].name), Server::new("far", &nodes[1].name)]);
    let near = space.netns("near", &nodes[0].name);
    let far = space.addresses("far");
    let stopped = Stopped::new(kube);
    // Once only: the kubelet waits longer before each further restart.
    kill_agent(kube, &nodes[1].name);
    for round in 0..3 {
        let config = format!(
            r#"{{"metadata": {{"name": "alone-{round}", "namespace": "alone", "uid": "alone-{round}"}}, "linux": {{}}}}"#
        );
        let run = format!("echo '{config}' > /run/alone.json; crictl runp /run/alone.json");
        let pod = kube.shell_inside(&nodes[1].name, &run).trim().to_owned();
        let find = format!("crictl inspectp -o go-template --template '{{{{.status.network.ip}}}}' {pod}");
        let address = kube.shell_inside(&nodes[1].name, &find).trim().to_owned();
        near.run(&format!("ping -c 3 -i 0.2 -W 2 {address}"));
        for other in &far {
            near.run(&format!("ping -c 3 -i 0.2 -W 2 {other}"));
        }
        kube.shell_inside(&nodes[1].name, &format!("crictl stopp {pod}; crictl rmp {pod}"));
        assert!(
            !near.output(&format!("ping -c 1 -W 1 {}", address.trim())).status.success(),
            "{address} is gone"
        );
    }
    drop(stopped);
    wait_until("the API server is back", PATIENCE, || kube.try_kubectl(&["get", "nodes"]).is_ok());
    assert_eq!(kube.nodes().len(), nodes.len(), "nodes are Ready again");
}

#[test]
fn a_node_that_restarts_with_an_empty_disk_is_reached_again() {
    let kube = rig_or_skip!();
    let nodes = kube.nodes();
    let (space, last) = (kube.space("reboot"), &nodes[nodes.len() - 1]);
    let near = Server::new("near", &nodes[0].name);
    space.serve(std::slice::from_ref(&near));
    kube.script("down.sh", &[&last.name]);
    kube.script("up.sh", &[&nodes.len().to_string()]);
    kube.script("install.sh", &[]);
    let back = Server::new("back", &last.name);
    space.serve(std::slice::from_ref(&back));
    is_reached(&space, &near, &back);
}

#[test]
fn a_node_that_joins_takes_part() {
    let kube = rig_or_skip!();
    let nodes = kube.nodes();
    let name = format!("node{}", nodes.len() + 1);
    let space = kube.space("join");
    let near = Server::new("near", &nodes[0].name);
    space.serve(std::slice::from_ref(&near));
    kube.script("up.sh", &[&(nodes.len() + 1).to_string()]);
    kube.script("install.sh", &[]);
    let new = Server::new("new", &name);
    space.serve(std::slice::from_ref(&new));
    is_reached(&space, &near, &new);
    drop(space);
    kube.script("down.sh", &[&name]);
    kube.kubectl(&["delete", "node", &name]);
    kube.script("install.sh", &[]);
}

/// Both ways, in all families, within the time for repairs.
fn is_reached(space: &Space<'_>, near: &Server, other: &Server) {
    let since = Instant::now();
    for (from, to) in [(near, other), (other, near)] {
        for address in space.addresses(&to.name) {
            let patience = PATIENCE.as_secs();
            let until = format!("until ping -c 1 -W 1 {address}; do :; done");
            space.exec(&from.name, &format!("timeout {patience} sh -c '{until}' > /dev/null"));
        }
    }
    let taken = since.elapsed();
    eprintln!("measured: {} is reached {} ms after its pod is Ready", other.name, taken.as_millis());
    assert!(taken < REPAIR, "it took {taken:?}");
}
