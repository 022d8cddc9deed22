use agent_api::{Reply, Verb};
use serde_json::{Value, json};

use crate::{
    agent::{Agent, agree},
    rig::{Rig, assignment, ip, need_root},
};

/// A pod, and the configuration with which a runtime checks it.
fn attached(rig: &Rig, version: &str) -> Value {
    let ended = rig.run("ADD", &rig.config(version));
    assert!(ended.success, "{ended:?}");
    let mut config = rig.config(version);
    config["prevResult"] = ended.document();
    config
}

#[test]
fn a_pod_as_it_was_made_passes_in_every_version() {
    need_root!();
    for version in ["0.4.0", "1.0.0", "1.1.0"] {
        let rig = Rig::new();
        let agent = Agent::assigning(&rig.socket(), assignment());
        let config = attached(&rig, version);
        rig.run("CHECK", &config).silent_success();
        let asked = agent.asked();
        let Some(Verb::Check(check)) = asked.last() else { panic!("{asked:?}") };
        let wanted = assignment();
        assert_eq!((check.mac, check.mtu, &check.addresses), (wanted.mac, wanted.mtu, &wanted.addresses));
        let host = rig.link(&rig.node, &wanted.host_ifname).unwrap();
        assert_eq!(json!(check.host_ifindex), host["ifindex"]);
        assert_eq!(check.attributes.get(&4), Some(&wanted.mtu), "IFLA_MTU");
    }
}

#[test]
fn what_was_changed_in_the_pod_is_named() {
    need_root!();
    let rig = Rig::new();
    let _agent = Agent::assigning(&rig.socket(), assignment());
    let config = attached(&rig, "1.1.0");
    let changes: [(&[&str], &[&str], &str); 4] = [
        (
            &["link", "set", "eth0", "address", "02:00:00:00:00:09"],
            &["link", "set", "eth0", "address", "0a:58:0a:01:01:05"],
            "MAC 02:00:00:00:00:09 instead of 0a:58:0a:01:01:05",
        ),
        (
            &["link", "set", "eth0", "mtu", "1400"],
            &["link", "set", "eth0", "mtu", "1446"],
            "MTU 1400 instead of 1446",
        ),
        (
            &["address", "del", "fd10:0:0:1::5/48", "dev", "eth0"],
            &["address", "add", "fd10:0:0:1::5/48", "dev", "eth0", "nodad"],
            "does not have the address fd10:0:0:1::5/48",
        ),
        (
            &["route", "del", "default"],
            &["route", "add", "default", "via", "10.1.1.1"],
            "route 0.0.0.0/0 via 10.1.1.1",
        ),
    ];
    for (change, restore, named) in changes {
        ip(&[&["-n", rig.pod.as_str()], change].concat());
        let (code, said) = rig.run("CHECK", &config).failure();
        assert_eq!(code, 104);
        assert!(said.contains(named), "{said}");
        ip(&[&["-n", rig.pod.as_str()], restore].concat());
        rig.run("CHECK", &config).silent_success();
    }
    ip(&["-n", &rig.pod, "link", "del", "eth0"]);
    let (code, said) = rig.run("CHECK", &config).failure();
    assert_eq!(code, 104);
    assert!(said.contains("no interface eth0"), "{said}");
}

#[test]
fn what_later_plugins_added_is_none_of_our_business() {
    need_root!();
    let rig = Rig::new();
    let _agent = Agent::assigning(&rig.socket(), assignment());
    let mut config = attached(&rig, "1.1.0");
    ip(&["-n", &rig.pod, "address", "add", "192.0.2.5/24", "dev", "eth0"]);
    config["prevResult"]["interfaces"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "net1", "sandbox": rig.netns()}));
    config["prevResult"]["ips"]
        .as_array_mut()
        .unwrap()
        .push(json!({"address": "198.51.100.1/24", "interface": 2}));
    rig.run("CHECK", &config).silent_success();
}

#[test]
fn what_the_agent_finds_is_passed_on() {
    need_root!();
    let rig = Rig::new();
    let finding = |verb: &Verb| match verb {
        Verb::Check(_) => Some(Ok(Reply::Problems(vec!["the switch does not know the MAC".into()]))),
        other => Some(Ok(agree(other, &assignment()))),
    };
    let _agent = Agent::start(&rig.socket(), finding);
    let config = attached(&rig, "1.1.0");
    let (code, said) = rig.run("CHECK", &config).failure();
    assert_eq!(code, 104);
    assert!(said.contains("the switch does not know the MAC"), "{said}");
}

#[test]
fn check_needs_a_result_to_compare_with_and_an_agent() {
    need_root!();
    let rig = Rig::new();
    assert_eq!(rig.run("CHECK", &rig.config("1.1.0")).failure().0, 7);
    let agent = Agent::assigning(&rig.socket(), assignment());
    let config = attached(&rig, "1.1.0");
    drop(agent);
    assert_eq!(rig.run("CHECK", &config).failure().0, 11);
}
