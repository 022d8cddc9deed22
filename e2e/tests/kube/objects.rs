//! What headway tells Kubernetes about its nodes, when it was installed by its chart.

use e2e::{cluster_or_skip, kube::PATIENCE, wait_until};
use serde_json::Value;

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

#[test]
fn every_node_has_its_objects_and_says_that_all_is_well() {
    let kube = cluster_or_skip!();
    if !kube.kubectl(&["get", "crds", "-o", "name"]).contains("locators.headway.dev") {
        eprintln!("SKIPPED: headway runs here without its Kubernetes side");
        return;
    }
    let nodes = kube.nodes();
    for node in &nodes {
        let ready = || {
            let object = kube.get(&["headwaynode", &node.name]);
            let peers = &object["status"]["peers"];
            let all = peers["known"].as_u64() == u64::try_from(nodes.len() - 1).ok();
            let reached = ["routed", "reachable"].iter().all(|field| peers[field] == peers["known"]);
            all && reached && condition(&object, "Ready").is_some_and(|ready| ready["status"] == "True")
        };
        wait_until(&format!("{} is Ready and reaches its peers", node.name), PATIENCE, ready);
        let locator = kube.get(&["locator", &node.name]);
        let own = kube.get(&["node", &node.name]);
        assert_eq!(locator["spec"]["podCIDRs"], own["spec"]["podCIDRs"], "{}", node.name);
        assert_eq!(locator["metadata"]["ownerReferences"][0]["uid"], own["metadata"]["uid"], "{}", node.name);
        let network = condition(&own, "NetworkUnavailable");
        let network = network.unwrap_or_else(|| panic!("{}: no NetworkUnavailable", node.name));
        assert_eq!((&network["status"], &network["reason"]), (&"False".into(), &"HeadwayIsUp".into()));
    }
}
