use agent_api::{ErrorKind, Release, Verb, names};
use serde_json::{Value, json};

use crate::{
    agent::{Agent, agree, refuse},
    rig::{self, Rig, assignment, finish, ip, key, need_root, start},
};

#[test]
fn the_pod_is_as_the_agent_says_in_every_version() {
    need_root!();
    let rig = Rig::new();
    let host = names::host_ifname(&key());
    let agent = Agent::assigning(&rig.socket(), assignment());
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let ended = rig.run("ADD", &rig.config(version));
        assert!(ended.success, "{ended:?}");
        let result = ended.document();
        assert_eq!(result["cniVersion"], version);
        assert_eq!(result["interfaces"][0]["name"], host);
        assert_eq!(result["interfaces"][1]["sandbox"], rig.netns());
        assert_eq!(result["ips"][0]["interface"], 1);
        assert_eq!(result["ips"][0].get("version").is_some(), version < "1.0.0");
        look_at_the_pair(&rig, &host);
        rig.run("DEL", &rig.config(version)).silent_success();
        assert_eq!((rig.link(&rig.node, &host), rig.link(&rig.pod, "eth0")), (None, None));
    }
    assert_eq!(agent.verbs(), ["reserve", "activate", "release"].repeat(4));
}

fn look_at_the_pair(rig: &Rig, host: &str) {
    let (near, far) = (rig.link(&rig.node, host).unwrap(), rig.link(&rig.pod, "eth0").unwrap());
    assert_eq!((&near["mtu"], &far["mtu"]), (&json!(1446), &json!(1446)));
    assert_eq!(
        (&near["address"], &far["address"]),
        (&json!("0a:5a:00:00:00:05"), &json!("0a:58:0a:01:01:05"))
    );
    assert_eq!((&near["operstate"], &far["operstate"]), (&json!("UP"), &json!("UP")));
    assert_eq!(near["group"], names::LINK_GROUP.to_string());
    assert_eq!(rig.sysctl(&rig.node, &format!("{host}/disable_ipv6")), "1");
    assert_eq!(rig.sysctl(&rig.pod, "eth0/accept_ra"), "0");
    assert_eq!(rig.sysctl(&rig.pod, "eth0/addr_gen_mode"), "0");
    assert_eq!(rig.sysctl(&rig.pod, "all/forwarding"), "0");

    let shown = rig.show(&rig.pod, &["address", "show", "dev", "eth0"]);
    let addresses: Vec<&Value> = shown.iter().flat_map(|it| it["addr_info"].as_array().unwrap()).collect();
    let global: Vec<String> = addresses
        .iter()
        .filter(|it| it["scope"] == "global")
        .map(|it| format!("{}/{}", it["local"].as_str().unwrap(), it["prefixlen"]))
        .collect();
    assert_eq!(global, ["10.1.1.5/16", "fd10:0:0:1::5/48"]);
    assert_eq!(addresses.iter().find(|it| it["tentative"] == true), None, "an address waits for DAD");
    let link: Vec<&Value> =
        addresses.iter().filter(|it| it["scope"] == "link").map(|it| &it["local"]).collect();
    assert_eq!(link, ["fe80::858:aff:fe01:105"]);
    let local = rig.show(&rig.pod, &["-6", "route", "show", "table", "local", "type", "local"]);
    for address in ["fd10:0:0:1::5", "fe80::858:aff:fe01:105"] {
        assert!(local.iter().any(|route| route["dst"] == address), "{address} is not local yet: {local:?}");
    }
    for (family, gateway) in [("-4", "10.1.1.1"), ("-6", "fd10:0:0:1::1")] {
        let output = std::process::Command::new("ip")
            .args(["-n", &rig.pod, family, "-j", "route", "show", "default"])
            .output()
            .unwrap();
        let routes: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(routes[0]["gateway"], gateway);
        assert_eq!(routes[0]["dev"], "eth0");
    }
    assert!(
        rig.link(&rig.node, "lo").is_some_and(|lo| lo["operstate"] != "UP"),
        "lo of the node was touched"
    );
}

#[test]
fn the_agent_hears_who_the_pod_is_and_which_link_it_has() {
    need_root!();
    let rig = Rig::new();
    let agent = Agent::assigning(&rig.socket(), assignment());
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_UID=u1;FOO=bar";
    assert!(rig.run_with("ADD", &rig.config("1.1.0"), &[("CNI_ARGS", args)]).success);
    let asked = agent.asked();
    let [Verb::Reserve(reserve), Verb::Activate(activate)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((&reserve.key, reserve.pod.name.as_str(), reserve.pod.uid.as_str()), (&key(), "web-0", "u1"));
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(rig.netns()).unwrap());
    assert_eq!(reserve.netns_inode, inode);
    let link = rig.link(&rig.node, &names::host_ifname(&key())).unwrap();
    assert_eq!(json!(activate.host_ifindex), link["ifindex"]);
    assert_eq!(activate.nonce, "nonce1");
}

#[test]
fn a_repeated_add_for_a_running_pod_leaves_it_alone() {
    need_root!();
    let rig = Rig::new();
    let host = names::host_ifname(&key());
    let agent = Agent::assigning(&rig.socket(), assignment());
    assert!(rig.run("ADD", &rig.config("1.1.0")).success);
    let before = (rig.link(&rig.node, &host), rig.show(&rig.pod, &["address", "show", "dev", "eth0"]));

    // An agent that has forgotten the pod: the kernel has not.
    let (code, said) = rig.run("ADD", &rig.config("1.1.0")).failure();
    assert_eq!(code, 101);
    assert!(said.contains("the pod already has an interface eth0"), "{said}");
    let undone = Verb::Release(Release { key: key(), nonce: Some("nonce1".into()) });
    assert_eq!(agent.asked().last(), Some(&undone));
    drop(agent);

    // An agent that knows it: the plugin has nothing to undo.
    let agent = Agent::start(&rig.socket(), |_| refuse(ErrorKind::Exists, "the attachment is active"));
    let (code, said) = rig.run("ADD", &rig.config("1.1.0")).failure();
    assert_eq!((code, agent.verbs()), (101, vec!["reserve"]));
    assert!(said.contains("the attachment is active"), "{said}");
    let after = (rig.link(&rig.node, &host), rig.show(&rig.pod, &["address", "show", "dev", "eth0"]));
    assert_eq!(before, after);
}

#[test]
fn a_link_left_on_the_node_is_named_and_stays() {
    need_root!();
    let rig = Rig::new();
    let host = names::host_ifname(&key());
    ip(&["-n", &rig.node, "link", "add", &host, "type", "veth", "peer", "name", "other"]);
    let _agent = Agent::assigning(&rig.socket(), assignment());
    let (code, said) = rig.run("ADD", &rig.config("1.1.0")).failure();
    assert_eq!(code, 101);
    assert!(said.contains(&host), "{said}");
    assert!(rig.link(&rig.node, &host).is_some());
    assert!(rig.link(&rig.pod, "eth0").is_none());
}

#[test]
fn an_add_that_fails_leaves_nothing() {
    need_root!();
    let rig = Rig::new();
    let host = names::host_ifname(&key());
    let gone = |rig: &Rig| assert_eq!((rig.link(&rig.node, &host), rig.link(&rig.pod, "eth0")), (None, None));

    let refusing = |verb: &Verb| match verb {
        Verb::Activate(_) => refuse(ErrorKind::Internal, "the map is full"),
        other => Some(Ok(agree(other, &assignment()))),
    };
    let agent = Agent::start(&rig.socket(), refusing);
    let (code, said) = rig.run("ADD", &rig.config("1.1.0")).failure();
    assert_eq!((code, agent.verbs()), (100, vec!["reserve", "activate", "release"]));
    assert!(said.contains("the map is full"), "{said}");
    gone(&rig);
    drop(agent);

    // The kernel does not take a route whose next hop is not on the link.
    let mut impossible = assignment();
    impossible.routes[0].gateway = "192.0.2.1".parse().unwrap();
    let agent = Agent::assigning(&rig.socket(), impossible);
    let (code, said) = rig.run("ADD", &rig.config("1.1.0")).failure();
    assert_eq!((code, agent.verbs()), (103, vec!["reserve", "release"]));
    assert!(said.contains("0.0.0.0/0 via 192.0.2.1"), "{said}");
    gone(&rig);
    drop(agent);

    // The agent goes away for good after the reservation: the undo waits in the pending folder.
    let socket = rig.socket();
    let vanishing = move |verb: &Verb| match verb {
        Verb::Activate(_) => {
            std::fs::remove_file(&socket).unwrap();
            refuse(ErrorKind::TryAgain, "going away")
        }
        other => Some(Ok(agree(other, &assignment()))),
    };
    let _agent = Agent::start(&rig.socket(), vanishing);
    assert_eq!(rig.run("ADD", &rig.config("1.1.0")).failure().0, 11);
    gone(&rig);
    let waiting = agent_api::pending::list(&rig.pending()).unwrap();
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].release, Ok(Release { key: key(), nonce: Some("nonce1".into()) }));
}

#[test]
fn an_agent_that_is_just_being_replaced_is_waited_for() {
    need_root!();
    let rig = Rig::new();
    let child = start(rig.command("ADD", &[]), &rig.config("1.1.0").to_string());
    let first = Agent::start(&rig.socket(), |_| None); // dies over the first request
    while first.asked().is_empty() {
        std::thread::yield_now();
    }
    drop(first);
    let agent = Agent::assigning(&rig.socket(), assignment());
    let ended = finish(child);
    assert!(ended.success, "{ended:?}");
    assert_eq!(agent.verbs(), ["reserve", "activate"]);
}

#[test]
fn an_agent_that_stays_away_is_given_up_after_thirty_seconds() {
    need_root!();
    let rig = Rig::new();
    let begun = std::time::Instant::now();
    let (code, said) = rig.run("ADD", &rig.config("1.1.0")).failure();
    assert_eq!(code, 11, "{said}");
    assert!((29..40).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}

#[test]
fn what_is_asked_for_in_vain_is_refused_before_anything_happens() {
    need_root!();
    let rig = Rig::new();
    let agent = Agent::assigning(&rig.socket(), assignment());
    let with = |key: &str, value: Value| {
        let mut config = rig.config("1.1.0");
        config[key] = value;
        config
    };
    let (code, said) = rig.run("ADD", &with("runtimeConfig", json!({"mac": "02:00:00:00:00:01"}))).failure();
    assert_eq!(code, 2);
    assert!(said.contains("runtimeConfig.mac") && said.contains("02:00:00:00:00:01"), "{said}");
    assert_eq!(rig.run("ADD", &with("ipam", json!({"type": "host-local"}))).failure().0, 2);
    assert_eq!(rig.run_with("ADD", &rig.config("1.1.0"), &[("CNI_ARGS", "IP=10.0.0.1")]).failure().0, 2);
    assert_eq!(rig.run("ADD", &with("prevResult", json!({"ips": []}))).failure().0, 7);
    assert_eq!(agent.verbs(), Vec::<&str>::new());
}

#[test]
fn only_another_network_namespace_is_a_pod() {
    need_root!();
    let rig = Rig::new();
    let agent = Agent::assigning(&rig.socket(), assignment());
    let own = format!("/run/netns/{}", rig.node);
    let config = rig.config("1.1.0");
    let pipe = rig.socket().with_file_name("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let pipe = pipe.to_str().unwrap();
    for netns in [own.as_str(), "/nonexistent", "/etc/passwd", "/proc/1", pipe, "/proc/1/ns/uts"] {
        assert_eq!(rig.run_with("ADD", &config, &[("CNI_NETNS", netns)]).failure().0, 8, "{netns}");
    }
    assert_eq!(agent.verbs(), Vec::<&str>::new());
    let allowed = [("CNI_NETNS", own.as_str()), ("CNI_NETNS_OVERRIDE", "1")];
    let ended = rig.run_with("ADD", &config, &allowed);
    assert!(ended.success, "{ended:?}");
    assert!(rig.link(&rig.node, "eth0").is_some());
}

#[test]
fn two_adds_of_one_attachment_at_once_are_told_that_there_is_another() {
    need_root!();
    let rig = Rig::new();
    let config = rig.config("1.1.0").to_string();
    // Each one that gets so far takes its link away again: the other finds it, or only that it was there.
    let _agent = Agent::start(&rig.socket(), |verb| match verb {
        Verb::Activate(_) => refuse(ErrorKind::Internal, "no"),
        other => Some(Ok(agree(other, &assignment()))),
    });
    for round in 0..40 {
        let both = [(); 2].map(|()| start(rig.command("ADD", &[]), &config));
        for ended in both.map(finish) {
            let (code, said) = ended.failure();
            assert!([100, 101].contains(&code), "round {round}: {code} {said}");
        }
    }
}

#[test]
fn many_pods_at_once_do_not_disturb_each_other() {
    need_root!();
    let rigs: Vec<Rig> = (0..8).map(|_| Rig::new()).collect();
    let agents: Vec<Agent> = rigs.iter().map(|rig| Agent::assigning(&rig.socket(), assignment())).collect();
    let children: Vec<_> =
        rigs.iter().map(|rig| start(rig.command("ADD", &[]), &rig.config("1.1.0").to_string())).collect();
    for child in children {
        let ended = finish(child);
        assert!(ended.success, "{ended:?}");
    }
    assert!(rigs.iter().all(|rig| rig.link(&rig.pod, rig::IFNAME).is_some()));
    drop(agents);
}
