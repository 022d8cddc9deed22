//! A publisher with an API server around it.

use std::sync::mpsc::{Receiver, channel};

use agent_core::{
    addr::{NodeNumber, PodCidrs, SidBlock},
    conditions::Condition,
    published::{Identity, OwnLocator, Status},
};
use serde_json::{Value, json};

use super::super::*;
use crate::kube::fake_api::FakeApi;

pub(super) const NODE: &str = "/api/v1/nodes/node-a";
pub(super) const LOCATOR: &str = "/apis/headway.dev/v1alpha1/locators/node-a";
pub(super) const HEADWAY_NODE: &str = "/apis/headway.dev/v1alpha1/headwaynodes/node-a";
pub(super) const TAINT: &str = "headway.dev/agent-not-ready";

/// A publisher and an API server; the watches are played by [`Scene::show`].
pub(super) struct Scene {
    pub(super) api: FakeApi,
    wanted: watch::Sender<Option<Arc<Published>>>,
    own: watch::Sender<Own>,
    told: Receiver<Input>,
}

impl Scene {
    /// A Node with the start-up taint and another one, published as `wanted` says.
    pub(super) fn new(wanted: Published) -> Self {
        let api = FakeApi::default();
        api.state().put(NODE, node("uid-1"));
        let (sender, told) = channel();
        let scene = Self {
            wanted: watch::Sender::new(Some(Arc::new(wanted))),
            own: watch::Sender::default(),
            told,
            api,
        };
        let sources = Sources { wanted: scene.wanted.subscribe(), own: scene.own.subscribe() };
        tokio::spawn(run(scene.api.client(), "node-a".into(), sources, sender, Counters::default()));
        scene
    }

    /// Lets the watches show what the API server has.
    pub(super) fn show(&self) {
        let server = self.api.state();
        let object = |path: &str| server.objects.get(path).cloned();
        let node = object(NODE).map(|node| Arc::new(serde_json::from_value(node).unwrap()));
        let locator = object(LOCATOR).map(|locator| Arc::new(serde_json::from_value(locator).unwrap()));
        self.own.send_replace(Own { node, locator: Some(locator) });
    }

    pub(super) fn want(&self, change: impl FnOnce(&mut Published)) {
        self.wanted.send_modify(|wanted| change(Arc::make_mut(wanted.as_mut().unwrap())));
    }

    /// Time passes, with watches that show what happens.
    pub(super) async fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            self.show();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    pub(super) fn object(&self, path: &str) -> Value {
        self.api.state().objects.get(path).cloned().unwrap_or_default()
    }

    pub(super) fn writes(&self, part: &str) -> usize {
        self.api.state().count(part)
    }

    pub(super) fn publishing(&self) -> Publishing {
        let told = self.told.try_iter().filter_map(|input| match input {
            Input::Publishing(publishing) => Some(publishing),
            _ => None,
        });
        told.last().expect("the agent was told something new")
    }

    pub(super) fn taints(&self) -> Vec<String> {
        let node = self.object(NODE);
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.iter().map(|taint| taint["key"].as_str().unwrap().to_owned()).collect()
    }
}

pub(super) fn node(uid: &str) -> Value {
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a", "uid": uid},
        "spec": {"taints": [taint("other"), taint(TAINT)]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

pub(super) fn condition(kind: &'static str, holds: bool) -> Condition {
    Condition { kind, holds, reason: if holds { "AsExpected" } else { "Broken" }, message: String::new() }
}

pub(super) fn published() -> Published {
    let number = NodeNumber::new(1).unwrap();
    let locator = SidBlock::new("5f00:1::/32".parse().unwrap()).unwrap().locator(number);
    let identity = Identity { number, locator, pods: PodCidrs { v4: "10.1.1.0/24".parse().ok(), v6: None } };
    Published {
        locator: Some(OwnLocator { identity, underlay: vec!["2001:db8::1".parse().unwrap()], mtu: 1500 }),
        status: Status {
            identity: Some(identity),
            conditions: vec![condition("Ready", true), condition("PeersReachable", true)],
            ..Status::default()
        },
        network_available: true,
        ready: true,
    }
}
