mod scene;

use agent_core::{addr::PodCidrs, published::Figures};
use serde_json::json;

use self::scene::{HEADWAY_NODE, LOCATOR, NODE, Scene, TAINT, condition, node, published};
use super::*;

#[tokio::test(start_paused = true)]
async fn a_fresh_node_gets_all_that_is_ours_and_keeps_what_is_not() {
    let scene = Scene::new(published());
    scene.pass(3).await;
    let locator = scene.object(LOCATOR);
    assert_eq!(locator["spec"]["locator"], "5f00:1:1::/48");
    for object in [&locator, &scene.object(HEADWAY_NODE)] {
        let owner = &object["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Node"), &json!("uid-1")), "{object}");
    }
    let status = &scene.object(HEADWAY_NODE)["status"];
    assert_eq!((&status["nodeNumber"], &status["podCIDRs"]), (&json!(1), &json!(["10.1.1.0/24"])));
    assert_eq!(
        (&status["conditions"][0]["type"], &status["conditions"][0]["observedGeneration"]),
        (&json!("Ready"), &json!(1))
    );
    let node = scene.object(NODE);
    let conditions = node["status"]["conditions"].as_array().unwrap();
    let network = conditions.iter().find(|one| one["type"] == "NetworkUnavailable").unwrap();
    assert_eq!((&network["status"], &network["reason"]), (&json!("False"), &json!("HeadwayIsUp")));
    assert!(conditions.iter().any(|one| one["type"] == "Ready"));
    assert_eq!(scene.taints(), ["other"]);
    let publishing = scene.publishing();
    assert_eq!(publishing, Publishing { locator_written: true, status_written: true, failures: vec![] });
}

#[tokio::test(start_paused = true)]
async fn prefixes_are_in_the_order_of_the_node() {
    let mut dual = published();
    let pods = PodCidrs { v4: "10.1.1.0/24".parse().ok(), v6: "fd10:0:0:1::/64".parse().ok() };
    dual.locator.as_mut().unwrap().identity.pods = pods;
    for order in [["10.1.1.0/24", "fd10:0:0:1::/64"], ["fd10:0:0:1::/64", "10.1.1.0/24"]] {
        let scene = Scene::new(dual.clone());
        let mut node = node("uid-1");
        node["spec"]["podCIDRs"] = json!(order);
        scene.api.state().put(NODE, node);
        scene.pass(3).await;
        assert_eq!(scene.object(LOCATOR)["spec"]["podCIDRs"], json!(order));
        let before = scene.writes("");
        scene.pass(60).await;
        assert_eq!(scene.writes(""), before);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_there_is_not_written_again() {
    let scene = Scene::new(published());
    scene.pass(3).await;
    let before = scene.writes("");
    scene.pass(1500).await;
    assert_eq!(scene.writes(""), before);
    // Nor by the next agent.
    let next = Scene::new(published());
    next.api.state().objects = scene.api.state().objects.clone();
    next.pass(10).await;
    assert_eq!(next.writes(""), 0);
}

#[tokio::test(start_paused = true)]
async fn what_somebody_removes_comes_back() {
    let scene = Scene::new(published());
    scene.pass(3).await;
    scene.api.state().objects.remove(LOCATOR);
    scene.pass(3).await;
    assert_eq!(scene.object(LOCATOR)["spec"]["nodeNumber"], 1);
    scene.api.state().objects.remove(HEADWAY_NODE);
    scene.pass(700).await;
    assert_eq!(scene.object(HEADWAY_NODE)["status"]["nodeNumber"], 1);
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_and_go_cause_no_write() {
    let scene = Scene::new(published());
    scene.pass(3).await;
    let before = scene.writes("");
    for endpoints in 1..=200 {
        scene.want(|wanted| wanted.status.figures.endpoints = endpoints);
        scene.pass(1).await;
    }
    assert_eq!(scene.writes(""), before);
    scene.pass(200).await;
    assert_eq!(scene.writes(""), before + 1);
    assert_eq!(scene.object(HEADWAY_NODE)["status"]["endpoints"], 200);
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_turns_is_written_at_once_and_figures_with_it() {
    let scene = Scene::new(published());
    scene.pass(3).await;
    scene.want(|wanted| {
        wanted.status.figures = Figures { endpoints: 7, ..Figures::default() };
        wanted.status.conditions[1] = condition("PeersReachable", false);
    });
    scene.pass(1).await;
    let status = &scene.object(HEADWAY_NODE)["status"];
    assert_eq!((&status["conditions"][1]["status"], &status["endpoints"]), (&json!("False"), &json!(7)));
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_told_repeated_and_holds_nothing_else_up() {
    let scene = Scene::new(published());
    scene.api.state().refusals.insert("PATCH /apis/headway.dev/v1alpha1/locators".into(), 403);
    scene.pass(60).await;
    assert_eq!(scene.object(HEADWAY_NODE)["status"]["nodeNumber"], 1);
    assert_eq!(scene.taints(), ["other"]);
    let publishing = scene.publishing();
    assert!(!publishing.locator_written && publishing.failures.len() == 1, "{publishing:?}");
    assert!(
        publishing.failures[0].contains("Locator") && publishing.failures[0].contains("403"),
        "{publishing:?}"
    );
    let attempts = scene.writes("locators");
    assert!((3..=10).contains(&attempts), "{attempts} attempts in a minute");
    scene.api.state().refusals.clear();
    scene.pass(120).await;
    assert_eq!(scene.object(LOCATOR)["spec"]["nodeNumber"], 1);
    assert!(scene.publishing().failures.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_is_asked_again() {
    let scene = Scene::new(published());
    scene.api.state().refusals.insert(String::new(), 500);
    scene.pass(10).await;
    assert_eq!(scene.publishing().failures.len(), 4);
    scene.api.state().refusals.clear();
    scene.pass(60).await;
    assert_eq!(scene.taints(), ["other"]);
    assert_eq!(scene.object(LOCATOR)["spec"]["nodeNumber"], 1);
    assert_eq!(scene.object(HEADWAY_NODE)["status"]["nodeNumber"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_somebody_sets_meanwhile_is_not_lost() {
    let scene = Scene::new(Published { ready: false, ..published() });
    scene.pass(3).await;
    scene.show();
    let mut newer = scene.object(NODE);
    newer["spec"]["taints"].as_array_mut().unwrap().push(json!({"key": "third", "effect": "NoExecute"}));
    scene.api.state().put(NODE, newer);
    // The watch is late.
    scene.want(|wanted| wanted.ready = true);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(scene.taints(), ["other", TAINT, "third"]);
    scene.pass(10).await;
    assert_eq!(scene.taints(), ["other", "third"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_ready_keeps_its_taint_and_says_nothing_of_its_network() {
    let scene = Scene::new(Published { ready: false, network_available: false, ..published() });
    scene.pass(10).await;
    assert_eq!(scene.taints(), ["other", TAINT]);
    assert_eq!(scene.writes("/api/v1/nodes"), 0);
    assert_eq!(scene.object(LOCATOR)["spec"]["nodeNumber"], 1, "peers need it to answer");
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_another_looks_after_stays_his() {
    let scene = Scene::new(published());
    let mut node = node("uid-1");
    let route = json!({"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated"});
    node["status"]["conditions"] = json!([route]);
    scene.api.state().put(NODE, node);
    scene.pass(10).await;
    assert_eq!(scene.object(NODE)["status"]["conditions"], json!([route]));
    assert_eq!(scene.writes("nodes/node-a/status"), scene.writes("headwaynodes/node-a/status"));
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_node_of_the_name_left_is_replaced_once_it_is_gone() {
    let scene = Scene::new(published());
    scene.pass(3).await;
    scene.api.state().put(NODE, node("uid-2"));
    scene.pass(30).await;
    assert_eq!(scene.object(LOCATOR)["metadata"]["ownerReferences"][0]["uid"], "uid-1");
    assert_eq!(scene.writes("locators"), 1, "its number could not be changed");
    assert!(scene.publishing().failures.iter().any(|failure| failure.contains("earlier Node")));
    scene.api.state().objects.remove(LOCATOR);
    scene.pass(100).await;
    assert_eq!(scene.object(LOCATOR)["metadata"]["ownerReferences"][0]["uid"], "uid-2");
}

#[tokio::test(start_paused = true)]
async fn a_problem_becomes_one_event_on_the_node() {
    let scene = Scene::new(published());
    scene.want(|wanted| wanted.status.conditions[1] = condition("PeersReachable", false));
    scene.pass(400).await;
    let writes = scene.api.state().writes.clone();
    let events: Vec<_> =
        writes.iter().filter(|(what, _)| what.contains("/events")).map(|(_, body)| body).collect();
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!((&events[0]["type"], &events[0]["reason"]), (&json!("Warning"), &json!("Broken")));
    assert_eq!(events[0]["regarding"]["uid"], "uid-1");
    // The next agent finds the same problem, which is no news.
    let next = Scene::new(published());
    next.api.state().objects = scene.api.state().objects.clone();
    next.want(|wanted| wanted.status.conditions[1] = condition("PeersReachable", false));
    next.pass(400).await;
    assert_eq!(next.writes("/events"), 0);
}

#[tokio::test(start_paused = true)]
async fn what_failed_and_is_not_wanted_any_more_is_neither_told_nor_tried() {
    let scene = Scene::new(published());
    scene.api.state().refusals.insert("PATCH /api/v1/nodes".into(), 500);
    scene.pass(10).await;
    assert_eq!(scene.publishing().failures.len(), 2);
    scene.want(|wanted| (wanted.ready, wanted.network_available) = (false, false));
    scene.pass(1).await;
    let before = scene.writes("nodes");
    // If its time were waited for, which is past, this would not end.
    scene.pass(120).await;
    assert_eq!((scene.writes("nodes"), scene.publishing().failures), (before, vec![]));
}
