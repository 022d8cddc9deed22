//! What the agent hears of an API server. The server is made up, scenario by scenario, but the client, its watches and
//! the connection between both are real.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

#[path = "api_server/server.rs"]
mod server;

use std::{
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use agent_core::{cluster::Fact, membership::Claims};
use node_agent::{
    agent::Input,
    kube::{
        own::{Own, OwnObjects},
        watch::follow,
    },
};
use serde_json::{Value, json};
use server::Server;
use tokio::sync::watch;

/// Everything is heard within this, on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);
const NODES: &str = "/api/v1/nodes";
const LOCATORS: &str = "/apis/headway.dev/v1alpha1/locators";

fn locator(name: &str, number: u32) -> Value {
    json!({
        "apiVersion": "headway.dev/v1alpha1", "kind": "Locator",
        "metadata": {
            "name": name, "resourceVersion": "5", "creationTimestamp": "2026-01-02T03:04:05Z",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": format!("{name}-uid")}],
        },
        "spec": {
            "nodeNumber": number, "locator": format!("5f00:1:{number:x}::/48"), "podCIDRs": [format!("10.1.{number}.0/24")],
            "underlayAddresses": ["fe80::1"], "mtu": 1500, "capabilities": [],
        },
    })
}

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": "node-uid", "resourceVersion": "5",
            "annotations": {"headway.dev/node-number": "7"},
        },
        "spec": {"podCIDR": "10.1.1.0/24", "podCIDRs": ["10.1.1.0/24"]},
        "status": {"addresses": [
            {"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "192.0.2.1"},
        ]},
    })
}

/// A server with one node and one Locator, and what an agent hears of it.
fn scene(change: impl FnOnce(&Server)) -> (Server, Receiver<Input>) {
    let server = Server::default();
    server.put(NODES, node("node-a"));
    server.put(LOCATORS, locator("node-b", 2));
    change(&server);
    let (inputs, received) = mpsc::channel();
    let running = server.clone();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = running.start().await;
            let (seen, _) = watch::channel(Own::default());
            follow(client, "node-a".into(), OwnObjects::new("node-a", seen), inputs).await;
        });
    });
    (server, received)
}

/// The next fact for which `wanted` has an answer; others are passed over.
fn hear<T>(received: &Receiver<Input>, wanted: impl Fn(Fact) -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        let input = received.recv_timeout(end.saturating_duration_since(Instant::now())).unwrap();
        let Input::Cluster(fact) = input else { panic!("an input of another kind") };
        if let Some(answer) = wanted(fact) {
            return answer;
        }
    }
}

fn list(fact: Fact) -> Option<Claims> {
    if let Fact::Locators(claims) = fact { Some(claims) } else { None }
}

#[test]
fn the_cluster_the_own_node_and_all_locators_are_heard_of() {
    let (server, received) = scene(|_| {});
    let (mut uid, mut own, mut claims) = (None, None, None);
    while uid.is_none() || own.is_none() || claims.is_none() {
        match hear(&received, Some) {
            Fact::Uid(one) => uid = Some(one),
            Fact::Node(one) => own = Some(one),
            Fact::Locators(all) => claims = Some(all),
            Fact::Reachable(Ok(())) => {}
            other => panic!("{other:?}"),
        }
    }
    let own = own.unwrap();
    assert_eq!(uid.unwrap(), "cluster-uid");
    assert_eq!((own.uid.as_str(), &own.pod_cidrs[..]), ("node-uid", &["10.1.1.0/24".to_owned()][..]));
    assert_eq!((own.number_annotation.as_deref(), own.internal_ips.len()), (Some("7"), 1));
    let claim = &claims.unwrap()["node-b"];
    assert_eq!((claim.number, claim.owner.as_str(), claim.created), (2, "node-b-uid", 1_767_323_045));
    let asked = server.asked();
    assert!(
        asked.iter().filter(|url| url.starts_with(NODES)).all(|url| url.contains("metadata.name%3Dnode-a")),
        "{asked:?}"
    );
    assert!(
        asked.iter().any(|url| url.starts_with(LOCATORS) && url.contains("sendInitialEvents=true")),
        "{asked:?}"
    );
}

#[test]
fn locators_that_come_and_go_are_heard_of_one_by_one() {
    let (server, received) = scene(|_| {});
    hear(&received, list);
    server.put(LOCATORS, locator("node-c", 3));
    let number = hear(&received, |fact| match fact {
        Fact::Locator(name, claim) if name == "node-c" => Some(claim.number),
        _ => None,
    });
    assert_eq!(number, 3);
    server.delete(LOCATORS, "node-b");
    let gone = hear(&received, |fact| if let Fact::LocatorGone(name) = fact { Some(name) } else { None });
    assert_eq!(gone, "node-b");
}

#[test]
fn a_server_without_streaming_lists_is_asked_for_pages() {
    let (server, received) = scene(Server::without_streaming_lists);
    assert_eq!(hear(&received, list).len(), 1);
    assert!(server.asked().iter().any(|url| url.starts_with(LOCATORS) && !url.contains("watch")));
}

#[test]
fn a_server_that_goes_and_comes_back_is_told_of_once_each_and_nothing_is_missed() {
    let (server, received) = scene(|_| {});
    hear(&received, list);
    server.fail(true);
    let state = |fact: Fact| if let Fact::Reachable(state) = fact { Some(state) } else { None };
    while hear(&received, state).is_ok() {}
    server.delete(LOCATORS, "node-b");
    server.put(LOCATORS, locator("node-c", 3));
    server.fail(false);
    assert_eq!(hear(&received, state), Ok(()));
    let end = Instant::now() + PATIENCE;
    let mut known: Claims = Claims::new();
    while !known.keys().eq(["node-c"]) {
        assert!(Instant::now() < end, "{known:?}");
        match hear(&received, Some) {
            Fact::Locators(all) => known = all,
            Fact::Locator(name, claim) => drop(known.insert(name, *claim)),
            Fact::LocatorGone(name) => drop(known.remove(&name)),
            Fact::Reachable(state) => panic!("said again: {state:?}"),
            Fact::Uid(_) | Fact::Node(_) => {}
        }
    }
}
