//! Services by their cluster address: every backend, protocol and family, from every kind of client.

use std::{collections::BTreeSet, net::IpAddr};

use e2e::{
    cluster_or_skip,
    kube::{Protocol, Server, Service, Space, UDP_REPLY},
};
use serde_json::json;

const BOTH: [Protocol; 2] = [Protocol::Http, Protocol::Udp];
/// Ports that Services of the tests have.
const fn port(protocol: Protocol) -> u16 {
    match protocol {
        Protocol::Http => 80,
        Protocol::Udp => 81,
    }
}

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|&name| name.to_owned()).collect()
}

/// Every protocol and family of the Service, answered by these pods and no others.
fn is_served_by(space: &Space<'_>, from: &Server, service: &Service, backends: &[&str]) {
    for (address, protocol) in service.addresses.iter().flat_map(|&ip| BOTH.map(|protocol| (ip, protocol))) {
        let answers = space.answers(from, (protocol, address, port(protocol)), "hostname");
        assert_eq!(answers, names(backends), "{} by {} ({address} {protocol:?})", service.name, from.name);
    }
}

#[test]
fn cluster_addresses_reach_local_and_remote_backends_and_the_client_itself() {
    let kube = cluster_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("backends");
    let near = Server::new("near", &nodes[0].name);
    let beside = Server::new("beside", &nodes[0].name);
    let far = Server::new("far", &nodes[1].name);
    space.serve(&[near.clone(), beside, far.clone()]);
    let services = ["near", "beside", "far"].map(|name| space.service(name, ("app", name), &json!({})));
    for service in &services {
        is_served_by(&space, &near, service, &[&service.name]);
    }
    is_served_by(&space, &far, &services[0], &["near"]);
}

#[test]
fn udp_replies_of_4_kb_come_through_a_service_whole() {
    let kube = cluster_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("large");
    let near = Server::new("near", &nodes[0].name);
    space.serve(&[near.clone(), Server::new("beside", &nodes[0].name), Server::new("far", &nodes[1].name)]);
    for name in ["beside", "far"] {
        for address in space.service(name, ("app", name), &json!({})).addresses {
            let answers = space.answers(&near, (Protocol::Udp, address, 81), "envvar%20BIG");
            // The client reads 2,048 bytes of the datagram; the kernel gives none of it before all fragments are there.
            let lengths: Vec<usize> = answers.iter().map(String::len).collect();
            assert_eq!(lengths, [UDP_REPLY.min(2048)], "{name} {address}");
        }
    }
}

#[test]
fn pods_in_the_nodes_network_use_services_and_serve_them() {
    let kube = cluster_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("hostnet");
    let host = Server::new("host", &nodes[0].name).host_network(18_080, 18_081);
    let far_host = Server::new("far-host", &nodes[1].name).host_network(18_082, 18_083);
    let (near, far) = (Server::new("near", &nodes[0].name), Server::new("far", &nodes[1].name));
    space.serve(&[host.clone(), far_host.clone(), near.clone(), far]);
    let ports = json!([{"name": "http", "port": 80, "targetPort": "http"}]);
    let served =
        space.service("served-by-host", ("app", "far-host"), &json!({"ports": ports, "type": "ClusterIP"}));
    for &address in &served.addresses {
        let answers = space.answers(&near, (Protocol::Http, address, 80), "hostname");
        assert_eq!(answers, names(&[&nodes[1].name]), "{address}");
    }
    for name in ["near", "far"] {
        is_served_by(&space, &host, &space.service(name, ("app", name), &json!({})), &[name]);
    }
    let direct = space.addresses("far-host");
    for address in direct {
        let answers = space.answers(&near, (Protocol::Http, address, far_host.http()), "hostname");
        assert_eq!(answers, names(&[&nodes[1].name]), "{address}");
    }
}

#[test]
fn a_client_sticks_to_one_backend_only_with_session_affinity() {
    let kube = cluster_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("affinity");
    let client = Server::new("client", &nodes[0].name);
    let backends =
        [("one", 0), ("two", 1)].map(|(name, node)| Server::new(name, &nodes[node].name).group("two"));
    space.serve(&[std::slice::from_ref(&client), &backends[..]].concat());
    let any = space.service("any", ("group", "two"), &json!({}));
    let sticky = space.service("sticky", ("group", "two"), &json!({"sessionAffinity": "ClientIP"}));
    for (&any, &sticky) in any.addresses.iter().zip(&sticky.addresses) {
        // Each of 40 connections chooses anew: all of them choosing one backend is a chance of 2^-39.
        space.answers(&client, (Protocol::Http, any, 80), "hostname");
        let (answers, errors) = space.ask(&client, (Protocol::Http, any, 80), "hostname", 40);
        assert!(errors.is_empty(), "{any}: {errors:?}");
        assert_eq!(answers.into_iter().collect::<BTreeSet<_>>(), names(&["one", "two"]), "{any}");
        assert_eq!(space.answers(&client, (Protocol::Http, sticky, 80), "hostname").len(), 1, "{sticky}");
    }
}

#[test]
fn backends_see_the_clients_own_address() {
    let kube = cluster_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("nosnat");
    let client = Server::new("client", &nodes[0].name);
    space.serve(&[client.clone(), Server::new("far", &nodes[1].name)]);
    let service = space.service("far", ("app", "far"), &json!({}));
    let own = space.addresses("client");
    for (address, port) in
        service.addresses.iter().zip([80; 2]).chain(space.addresses("far").iter().zip([8080; 2]))
    {
        let seen = space.answers(&client, (Protocol::Http, *address, port), "clientip");
        let seen: BTreeSet<IpAddr> = seen.iter().filter_map(|text| host_of(text)).collect();
        let mine = own.iter().copied().filter(|ip| ip.is_ipv4() == address.is_ipv4()).collect();
        assert_eq!(seen, mine, "asked {address}");
    }
}

/// The address in `ADDRESS:PORT`.
fn host_of(text: &str) -> Option<IpAddr> {
    text.parse::<std::net::SocketAddr>().ok().map(|address| address.ip())
}
