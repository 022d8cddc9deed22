//! Names: the cluster's DNS by its Service, headless Services.

use std::{collections::BTreeSet, net::IpAddr};

use e2e::{
    cluster_or_skip,
    kube::{PATIENCE, Server},
    wait_until,
};
use serde_json::json;

#[test]
fn pods_find_services_and_the_pods_of_headless_ones_by_name() {
    let kube = cluster_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("dns");
    let clients = [Server::new("near", &nodes[0].name), Server::new("far", &nodes[1].name)];
    let backends =
        [("one", 0), ("two", 1)].map(|(name, node)| Server::new(name, &nodes[node].name).group("two"));
    space.serve(&[&clients[..], &backends].concat());
    space.service("web", ("app", "one"), &json!({}));
    space.service("heads", ("group", "two"), &json!({"clusterIP": "None"}));
    let pods: BTreeSet<IpAddr> = ["one", "two"].iter().flat_map(|pod| space.addresses(pod)).collect();
    for client in &clients {
        let name = format!("heads.{}.svc.cluster.local", space.name());
        let query = format!("dig +short +time=2 +tries=1 {name} A {name} AAAA");
        let found = || -> BTreeSet<IpAddr> {
            let said = space.try_exec(&client.name, &query).unwrap_or_default();
            said.lines().filter_map(|line| line.trim().parse().ok()).collect()
        };
        wait_until(&format!("{} finds {pods:?} under {name}", client.name), PATIENCE, || found() == pods);
        let answer =
            space.exec(&client.name, "for i in 1 2 3 4 5; do curl -sS -m 5 http://web/hostname; echo; done");
        assert_eq!(answer.split_whitespace().collect::<Vec<_>>(), ["one"; 5], "{}", client.name);
    }
}
