//! What pods send out of the cluster, and what the nodes themselves reach.

use std::{collections::BTreeSet, net::IpAddr};

use e2e::{
    kube::{HTTP, Protocol, Server, in_url},
    rig_or_skip,
};

#[test]
fn traffic_out_of_the_cluster_comes_from_the_nodes_address() {
    let kube = rig_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("egress");
    let client = Server::new("client", &nodes[1].name);
    space.serve(std::slice::from_ref(&client));
    // A server on the control plane's host, which is outside of the cluster's networks.
    let arguments = ["agnhost", "netexec", "--http-port=18090", "--udp-port=18091"];
    let mut server = kube
        .inside("cp", &arguments)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("start the server outside");
    let outside =
        kube.shell_inside("cp", "ip -o addr show br0 scope global | awk '{print $4}' | cut -d/ -f1");
    let check = || {
        let families =
            |address: &IpAddr| nodes[1].addresses.iter().any(|ip| ip.is_ipv4() == address.is_ipv4());
        for address in outside.lines().filter_map(|line| line.parse().ok()).filter(families) {
            for (protocol, port) in [(Protocol::Http, 18_090), (Protocol::Udp, 18_091)] {
                let seen = space.answers(&client, (protocol, address, port), "clientip");
                let seen: BTreeSet<IpAddr> = seen
                    .iter()
                    .map(|text| text.parse::<std::net::SocketAddr>().expect("address and port").ip())
                    .collect();
                let own = nodes[1].addresses.iter().copied().filter(|ip| ip.is_ipv4() == address.is_ipv4());
                assert_eq!(seen, own.collect(), "{address} {protocol:?}");
            }
        }
    };
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
    let _gone = server.kill();
    let _status = server.wait();
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn nodes_reach_every_pod_and_pods_see_them_on_the_segment() {
    let kube = rig_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("nodes");
    space.serve(&[Server::new("one", &nodes[0].name), Server::new("two", &nodes[1].name)]);
    for node in &nodes {
        for address in ["one", "two"].iter().flat_map(|pod| space.addresses(pod)) {
            kube.shell_inside(&node.name, &format!("ping -c 3 -i 0.05 -W 2 {address}"));
            let url = format!("http://{}:{HTTP}/clientip", in_url(address));
            let seen = kube.shell_inside(&node.name, &format!("curl -gsS -m 5 {url}"));
            let seen = seen.parse::<std::net::SocketAddr>().expect("address and port").ip();
            let inside =
                kube.shell_inside(&node.name, "ip -o addr show hw0 | awk '{print $4}' | cut -d/ -f1");
            assert!(
                inside.lines().any(|own| own.parse() == Ok(seen)),
                "{}: {seen} is not of {inside}",
                node.name
            );
        }
    }
}
