use agent_api::{ErrorKind, Release, Verb, names, pending};
use serde_json::json;

use crate::{
    agent::{Agent, refuse},
    rig::{Rig, assignment, ip, key, need_root},
};

fn attached() -> Rig {
    let rig = Rig::new();
    let _agent = Agent::assigning(&rig.socket(), assignment());
    let ended = rig.run("ADD", &rig.config("1.1.0"));
    assert!(ended.success, "{ended:?}");
    rig
}

fn waiting(rig: &Rig) -> Vec<Result<Release, String>> {
    pending::list(&rig.pending()).unwrap().into_iter().map(|it| it.release).collect()
}

#[test]
fn del_without_an_agent_succeeds_and_leaves_word() {
    need_root!();
    let rig = attached();
    for _ in 0..2 {
        rig.run("DEL", &rig.config("1.1.0")).silent_success();
        assert!(rig.link(&rig.node, &names::host_ifname(&key())).is_none());
        assert!(rig.link(&rig.pod, "eth0").is_none());
        assert_eq!(waiting(&rig), [Ok(Release { key: key(), nonce: None })]);
    }
}

#[test]
fn del_with_an_agent_leaves_nothing() {
    need_root!();
    let rig = attached();
    let agent = Agent::assigning(&rig.socket(), assignment());
    rig.run("DEL", &rig.config("1.1.0")).silent_success();
    assert_eq!(agent.asked(), [Verb::Release(Release { key: key(), nonce: None })]);
    assert_eq!(waiting(&rig), []);
    assert!(rig.link(&rig.node, &names::host_ifname(&key())).is_none());
}

#[test]
fn del_of_what_is_not_there_succeeds() {
    need_root!();
    let rig = Rig::new();
    let agent = Agent::assigning(&rig.socket(), assignment());
    for netns in ["", "/nonexistent", "/etc/passwd"] {
        rig.run_with("DEL", &rig.config("0.3.1"), &[("CNI_NETNS", netns)]).silent_success();
    }
    assert_eq!(agent.verbs(), ["release"; 3]);
}

#[test]
fn del_removes_the_link_of_a_pod_whose_namespace_path_is_gone() {
    need_root!();
    let rig = attached();
    // The namespace lives on, as with a process in it; only the path is gone.
    let mut held = std::process::Command::new("nsenter")
        .args([&format!("--net={}", rig.netns()), "cat"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let entered =
        |pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "cat");
    while !entered(held.id()) {
        std::thread::yield_now();
    }
    ip(&["netns", "del", &rig.pod]);
    assert!(rig.link(&rig.node, &names::host_ifname(&key())).is_some());
    rig.run("DEL", &rig.config("1.1.0")).silent_success();
    assert!(rig.link(&rig.node, &names::host_ifname(&key())).is_none());
    held.kill().unwrap();
    held.wait().unwrap();
}

#[test]
fn del_cannot_be_stopped_by_what_add_would_refuse() {
    need_root!();
    let rig = attached();
    let mut config = rig.config("1.1.0");
    config["runtimeConfig"] = json!({"mac": "02:00:00:00:00:01"});
    config["prevResult"] = json!({"interfaces": 7});
    rig.run_with("DEL", &config, &[("CNI_ARGS", "nonsense")]).silent_success();
    assert!(rig.link(&rig.node, &names::host_ifname(&key())).is_none());
}

#[test]
fn an_agent_that_cannot_release_finds_word_of_it_later() {
    need_root!();
    let rig = attached();
    let _agent = Agent::start(&rig.socket(), |_| refuse(ErrorKind::TryAgain, "starting"));
    let ended = rig.run("DEL", &rig.config("1.1.0"));
    ended.silent_success();
    assert!(ended.stderr.contains("starting"), "{ended:?}");
    assert_eq!(waiting(&rig).len(), 1);
}

#[test]
fn a_link_of_that_name_that_is_not_ours_stays() {
    need_root!();
    let rig = Rig::new();
    let host = names::host_ifname(&key());
    ip(&["-n", &rig.node, "link", "add", &host, "type", "veth", "peer", "name", "other"]);
    let _agent = Agent::assigning(&rig.socket(), assignment());
    let ended = rig.run("DEL", &rig.config("1.1.0"));
    ended.silent_success();
    assert!(ended.stderr.contains("not ours"), "{ended:?}");
    assert!(rig.link(&rig.node, &host).is_some());
}

#[test]
fn del_succeeds_even_if_no_word_can_be_left() {
    need_root!();
    let rig = attached();
    let mut config = rig.config("1.1.0");
    config["pendingDirectory"] = json!("/proc/nonexistent");
    let ended = rig.run("DEL", &config);
    ended.silent_success();
    assert!(ended.stderr.contains("/proc/nonexistent"), "{ended:?}");
}
