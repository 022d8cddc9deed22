//! Pods and their kubelets: probes, clean removal.

use std::collections::BTreeSet;

use e2e::{
    cluster_or_skip, host,
    kube::{PATIENCE, Protocol, Server},
    rig_or_skip, wait_until,
};

#[test]
fn pods_reach_each_other_directly_in_every_family() {
    let kube = cluster_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("direct");
    let pods =
        [("near", 0), ("beside", 0), ("far", 1)].map(|(name, node)| Server::new(name, &nodes[node].name));
    space.serve(&pods);
    for (from, to) in pods.iter().flat_map(|from| pods.iter().map(move |to| (from, to))) {
        for address in space.addresses(&to.name) {
            for (protocol, port) in [(Protocol::Http, 8080), (Protocol::Udp, 8081)] {
                let answers = space.answers(from, (protocol, address, port), "hostname");
                assert_eq!(
                    answers,
                    BTreeSet::from([to.name.clone()]),
                    "{} to {address} {protocol:?}",
                    from.name
                );
            }
        }
    }
}

#[test]
fn a_probe_that_fails_takes_the_pod_out_and_one_that_succeeds_brings_it_back() {
    let kube = cluster_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("probes");
    let server = Server::new("server", &nodes[1].name);
    let mut manifest = server.manifest(space.name());
    manifest["spec"]["containers"][0]["readinessProbe"] =
        serde_json::json!({"tcpSocket": {"port": 9000}, "periodSeconds": 1, "failureThreshold": 1});
    kube.apply(&[manifest]);
    let ready = || {
        let pod = kube.get(&["-n", space.name(), "pod", "server"]);
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    wait_until("the container runs", PATIENCE, || space.try_exec("server", "true").is_ok());
    assert!(!ready(), "nothing listens on port 9000 yet");
    let listen =
        "socat TCP6-LISTEN:9000,fork,reuseaddr,ipv6only=0 /dev/null > /dev/null 2>&1 & echo $! > /tmp/pid";
    space.exec("server", listen);
    wait_until("the kubelet's probe arrives", PATIENCE, ready);
    space.exec("server", "kill $(cat /tmp/pid)");
    wait_until("the kubelet's probe is refused", PATIENCE, || !ready());
}

#[test]
fn pods_that_are_deleted_leave_nothing_on_their_node() {
    let kube = rig_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("remove");
    let pods: Vec<Server> =
        (0..5).map(|index| Server::new(&format!("pod-{index}"), &nodes[0].name)).collect();
    space.serve(&pods);
    let known = |address: &str| {
        let status = format!("{} status -o json", host::agent_binary().display());
        kube.shell_inside(&nodes[0].name, &status).contains(&format!("\"{address}\""))
    };
    let addresses: Vec<String> = pods.iter().map(|pod| space.addresses(&pod.name)[0].to_string()).collect();
    assert!(addresses.iter().all(|address| known(address)), "{addresses:?}");
    kube.kubectl(&["-n", space.name(), "delete", "pods", "--all", "--wait=true"]);
    for address in &addresses {
        wait_until(&format!("{address} is released"), PATIENCE, || !known(address));
    }
}
