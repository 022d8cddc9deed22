//! Services by the nodes' addresses, asked from off the segment.

use std::{collections::BTreeSet, net::IpAddr};

use e2e::{
    kube::{HTTP, Kube, KubeNode, PATIENCE, Server, Space, in_url},
    rig_or_skip, wait_until,
};
use serde_json::json;

/// What the control plane's host, which is no node, gets from a URL ten times; `None` if one time fails.
fn fetch(kube: &Kube, url: &str) -> Option<BTreeSet<String>> {
    let script = format!("for i in 1 2 3 4 5 6 7 8 9 10; do curl -gsS -m 3 '{url}'; echo; done");
    let output = kube.inside("cp", &["bash", "-ec", &script]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.split_whitespace().map(str::to_owned).collect())
}

fn is_answered(kube: &Kube, url: &str) -> BTreeSet<String> {
    wait_until(&format!("{url} is answered"), PATIENCE, || fetch(kube, url).is_some());
    fetch(kube, url).unwrap_or_else(|| panic!("{url} is answered no more"))
}

/// Addresses of the control plane's host, as a backend may see them.
fn outside_addresses(kube: &Kube) -> BTreeSet<IpAddr> {
    let text = kube.shell_inside("cp", "ip -o addr show br0 | awk '{print $4}' | cut -d/ -f1");
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn two_servers<'a>(kube: &'a Kube, nodes: &[KubeNode], test: &str) -> Space<'a> {
    let space = kube.space(test);
    let pods = [("one", 0), ("two", 1)].map(|(name, node)| Server::new(name, &nodes[node].name));
    space.serve(&pods);
    space
}

#[test]
fn every_nodes_port_reaches_a_backend_on_any_node() {
    let kube = rig_or_skip!();
    let nodes = kube.nodes();
    let space = two_servers(kube, &nodes, "nodeport");
    let service = space.service("two", ("app", "two"), &json!({"type": "NodePort"}));
    let port = service.node_port.expect("a node port");
    for address in nodes.iter().flat_map(|node| node.addresses.iter().copied()) {
        let url = format!("http://{}:{port}/hostname", in_url(address));
        assert_eq!(is_answered(kube, &url), BTreeSet::from(["two".to_owned()]), "{url}");
    }
}

#[test]
fn a_local_traffic_policy_keeps_the_clients_address_and_other_nodes_do_not_answer() {
    let kube = rig_or_skip!();
    let nodes = kube.nodes();
    let space = two_servers(kube, &nodes, "local");
    let policy = json!({"type": "NodePort", "externalTrafficPolicy": "Local"});
    let port = space.service("two", ("app", "two"), &policy).node_port.expect("a node port");
    let outside = outside_addresses(kube);
    for &address in &nodes[1].addresses {
        let seen = is_answered(kube, &format!("http://{}:{port}/clientip", in_url(address)));
        let seen: Vec<IpAddr> =
            seen.iter().filter_map(|text| Some(text.parse::<std::net::SocketAddr>().ok()?.ip())).collect();
        assert!(
            !seen.is_empty() && seen.iter().all(|ip| outside.contains(ip)),
            "{seen:?}, not of {outside:?}"
        );
    }
    for &address in &nodes[0].addresses {
        let url = format!("http://{}:{port}/hostname", in_url(address));
        assert_eq!(fetch(kube, &url), None, "{url} has no backend");
    }
}

#[test]
fn pods_reach_node_ports_of_both_nodes() {
    let kube = rig_or_skip!();
    let nodes = kube.nodes();
    let space = two_servers(kube, &nodes, "podport");
    let client = Server::new("client", &nodes[0].name);
    space.serve(std::slice::from_ref(&client));
    let port =
        space.service("two", ("app", "two"), &json!({"type": "NodePort"})).node_port.expect("a node port");
    for address in nodes.iter().flat_map(|node| node.addresses.iter().copied()) {
        let answers = space.answers(&client, (e2e::kube::Protocol::Http, address, port), "hostname");
        assert_eq!(answers, BTreeSet::from(["two".to_owned()]), "{address}");
    }
}

#[test]
fn a_host_port_leads_to_its_pod_from_outside_and_from_other_pods() {
    let kube = rig_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("hostport");
    let far = Server::new("far", &nodes[1].name);
    space.serve(&[Server::new("near", &nodes[0].name).host_port(28_080), far.clone()]);
    for &address in &nodes[0].addresses {
        let url = format!("http://{}:28080/hostname", in_url(address));
        assert_eq!(is_answered(kube, &url), BTreeSet::from(["near".to_owned()]), "{url}");
        let answers = space.answers(&far, (e2e::kube::Protocol::Http, address, 28_080), "hostname");
        assert_eq!(answers, BTreeSet::from(["near".to_owned()]), "{address}");
    }
}

#[test]
fn machines_off_the_segment_reach_pods_by_a_route_to_their_node() {
    let kube = rig_or_skip!();
    let space = two_servers(kube, &kube.nodes(), "offsegment");
    for (pod, address) in ["one", "two"]
        .iter()
        .flat_map(|pod| space.addresses(pod).into_iter().map(move |address| (pod, address)))
    {
        let url = format!("http://{}:{HTTP}/hostname", in_url(address));
        assert_eq!(is_answered(kube, &url), BTreeSet::from([(*pod).to_owned()]), "{url}");
    }
    // The API server goes the same way to webhooks and aggregated APIs that run in pods.
    let path = format!("/api/v1/namespaces/{}/pods/two:{HTTP}/proxy/hostname", space.name());
    assert_eq!(kube.kubectl(&["get", "--raw", &path]), "two");
}
