//! Whatever comes in, the plugin gives one JSON document and the right code, and makes nothing.

use std::collections::BTreeMap;

use e2e::{
    Cluster, Node, Shared,
    cni::{Attachment, Invocation},
    host, root_or_skip,
};
use serde_json::{Value, json};

static CLUSTER: Shared = Shared::new(|| Cluster::builder().nodes(1).start());

type Environment = BTreeMap<&'static str, String>;

/// Runs the plugin with an edited environment and any input; nothing may come of it.
fn run(node: &Node, verb: &str, edit: impl Fn(&mut Environment), input: &[u8]) -> Invocation {
    let pod = node.unattached_pod("malformed");
    let runtime = node.runtime();
    let mut environment = runtime.environment(verb, Some(&pod.attachment));
    edit(&mut environment);
    let links = node.netns.links();
    let invocation = runtime.invoke(&host::plugin_binary(), &environment, input);
    assert_eq!(node.netns.links(), links, "a link was made");
    assert_eq!(pod.netns.links(), ["lo"], "a link was made in the pod");
    invocation
}

/// The error code, from the one document on stdout.
#[track_caller]
fn code(invocation: &Invocation) -> u64 {
    let document = invocation.document();
    assert!(!invocation.success, "{invocation:?}");
    assert!(document["msg"].as_str().is_some_and(|message| !message.is_empty()), "{invocation:?}");
    document["code"].as_u64().unwrap_or_else(|| panic!("no code: {invocation:?}"))
}

/// The plugin's configuration as a runtime gives it, edited.
fn input(node: &Node, edit: impl Fn(&mut Value)) -> Vec<u8> {
    let mut config = node.runtime().chain().remove(0);
    edit(&mut config);
    config.to_string().into_bytes()
}

#[test]
fn every_missing_variable_is_named() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let node = cluster.a();
    let good = input(node, |_| {});
    for (verb, needed) in [
        ("ADD", &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"][..]),
        ("CHECK", &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"]),
        ("DEL", &["CNI_CONTAINERID", "CNI_IFNAME"]),
    ] {
        for variable in needed {
            let invocation = run(node, verb, |environment| drop(environment.remove(variable)), &good);
            assert_eq!(code(&invocation), 4, "{verb} without {variable}");
            assert!(invocation.stdout.contains(variable), "{invocation:?}");
        }
        let bare = |environment: &mut Environment| {
            environment.retain(|key, _| *key == "CNI_COMMAND");
        };
        let invocation = run(node, verb, bare, &good);
        assert_eq!(code(&invocation), 4);
        assert!(
            needed.iter().all(|variable| invocation.stdout.contains(variable)),
            "all at once: {invocation:?}"
        );
    }
}

#[test]
fn hostile_names_are_refused() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let node = cluster.a();
    let good = input(node, |_| {});
    let long = "x".repeat(70_000);
    for (variable, values) in [
        ("CNI_IFNAME", &["", ".", "..", "a/b", "a:b", "a b", "sixteen-letters-", "a\tb", &long][..]),
        ("CNI_CONTAINERID", &["", "../../etc", "a b", "-a", "\u{fc}", ";reboot"]),
        ("CNI_NETNS", &["/does/not/exist", "/etc/passwd", "/"]),
        ("CNI_COMMAND", &["NONSENSE", "add", "ADD ", &long]),
    ] {
        for value in values {
            let set = |environment: &mut Environment| {
                environment.insert(variable, (*value).to_owned());
            };
            let code = code(&run(node, "ADD", set, &good));
            assert!(matches!(code, 4 | 8 | 5 | 3), "{variable}={value:.20}: code {code}");
        }
    }
}

#[test]
fn malformed_input_is_refused() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let node = cluster.a();
    let deep = "[".repeat(100_000);
    let texts: [&[u8]; 8] =
        [b"", b"{", b"null", b"[]", b"\"text\"", b"{}x", &[0xff, 0xfe, 0], deep.as_bytes()];
    for text in texts {
        let code = code(&run(node, "ADD", |_| {}, text));
        assert!(
            matches!(code, 6 | 7),
            "{:?}: code {code}",
            String::from_utf8_lossy(&text[..text.len().min(20)])
        );
    }
    type Edit = (&'static str, fn(&mut Value), &'static [u64]);
    let edits: [Edit; 8] = [
        ("no name", |config| drop(config.as_object_mut().map(|object| object.remove("name"))), &[7]),
        ("a name with a slash", |config| config["name"] = json!("a/b"), &[7]),
        ("a number as name", |config| config["name"] = json!(7), &[6, 7]),
        ("an unknown version", |config| config["cniVersion"] = json!("9.9.9"), &[1]),
        ("a list as version", |config| config["cniVersion"] = json!([]), &[6, 1]),
        ("no version", |config| drop(config.as_object_mut().map(|object| object.remove("cniVersion"))), &[1]),
        ("a number as socket", |config| config["agentSocket"] = json!(7), &[6, 7]),
        (
            "not first in the chain",
            |config| config["prevResult"] = json!({"cniVersion": "1.1.0", "ips": []}),
            &[7],
        ),
    ];
    for (what, edit, codes) in edits {
        let code = code(&run(node, "ADD", |_| {}, &input(node, edit)));
        assert!(codes.contains(&code), "{what}: code {code}");
    }
    let huge = input(node, |config| config["padding"] = json!("x".repeat(3 << 20)));
    let invocation = run(node, "VERSION", |_| {}, &huge);
    assert!(invocation.success, "{invocation:?}");
}

#[test]
fn what_is_not_supported_yet_is_said() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let node = cluster.a();
    type Edit = (&'static str, fn(&mut Value));
    let edits: [Edit; 5] = [
        ("ipam", |config| config["ipam"] = json!({"type": "host-local"})),
        ("mac", |config| config["runtimeConfig"] = json!({"mac": "02:00:00:00:00:01"})),
        ("ips", |config| config["runtimeConfig"] = json!({"ips": ["10.1.1.77/16"]})),
        ("bandwidth", |config| config["runtimeConfig"] = json!({"bandwidth": {"ingressRate": 1000}})),
        ("deviceID", |config| config["runtimeConfig"] = json!({"deviceID": "0000:00:01.0"})),
    ];
    for (key, edit) in edits {
        let invocation = run(node, "ADD", |_| {}, &input(node, edit));
        assert_eq!(code(&invocation), 2, "{key}");
        let said = invocation.stdout.to_lowercase();
        assert!(said.contains(&key.to_lowercase()) && said.contains("support"), "{invocation:?}");
    }
    let asks = |environment: &mut Environment| {
        environment.insert("CNI_ARGS", "IgnoreUnknown=1;MAC=02:00:00:00:00:01".to_owned());
    };
    assert_eq!(code(&run(node, "ADD", asks, &input(node, |_| {}))), 2);
}

#[test]
fn the_nodes_own_namespace_is_refused() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let node = cluster.a();
    let own = |environment: &mut Environment| {
        environment.insert("CNI_NETNS", node.netns.path().display().to_string());
    };
    let code = code(&run(node, "ADD", own, &input(node, |_| {})));
    assert!(matches!(code, 4 | 5 | 7 | 8 | 100..), "{code}");
}

#[test]
fn without_a_command_the_plugin_introduces_itself() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let invocation = cluster.a().runtime().invoke(&host::plugin_binary(), &Environment::new(), b"");
    assert!(invocation.success && invocation.stdout.is_empty(), "{invocation:?}");
    assert!(invocation.stderr.contains("1.1.0"), "{invocation:?}");
}

#[test]
fn garbage_collection_without_a_list_is_an_error() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let node = cluster.a();
    let pod = node.add_pod("survives");
    let environment = node.runtime().environment("GC", None::<&Attachment>);
    let invocation = node.runtime().invoke(&host::plugin_binary(), &environment, &input(node, |_| {}));
    assert!(code(&invocation) > 0);
    assert!(pod.pings(node.gateway_addresses()[0]));
}

#[test]
fn the_agents_socket_survives_garbage() {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
        time::Duration,
    };
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let node = cluster.a();
    let huge = vec![b'x'; 4 << 20];
    let lines: [&[u8]; 6] = [
        b"\n",
        b"{}\n",
        b"\xff\xfe\n",
        b"{\"version\":{\"major\":999,\"minor\":0},\"verb\":\"status\"}\n",
        b"no newline",
        &huge,
    ];
    for line in lines {
        let mut stream = UnixStream::connect(node.socket()).expect("the agent listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set a timeout");
        // The agent may hang up on the flood before it has read all of it.
        let _cut = stream.write_all(line);
        let _closed = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _reset = stream.read_to_string(&mut answer);
        assert!(!answer.contains("\"Ok\""), "{answer}");
    }
    assert!(node.add_pod("after").pings(node.gateway_addresses()[0]));
}

#[test]
fn wrong_configurations_name_the_field() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let node = cluster.a();
    type Edit = (&'static str, fn(&mut Value));
    let edits: [Edit; 12] = [
        ("number", |config| config["node"]["number"] = json!(0)),
        ("number", |config| config["node"]["number"] = json!(0xE000)),
        ("podCIDRs", |config| config["node"]["podCIDRs"] = json!([])),
        ("podCIDRs", |config| config["node"]["podCIDRs"] = json!(["10.1.1.0/24", "10.1.2.0/24"])),
        ("podCIDRs", |config| config["node"]["podCIDRs"] = json!(["172.16.0.0/24", "fd10:0:0:1::/64"])),
        ("uplinks", |config| config["node"]["uplinks"] = json!([])),
        ("sidBlock", |config| config["sidBlock"] = json!("5f00:1::/48")),
        ("headroom", |config| config["headroom"] = json!(513)),
        ("dscp", |config| config["encapsulation"] = json!({"dscp": 64})),
        ("mtu", |config| config["mtu"] = json!("big")),
        ("nonsense", |config| config["nonsense"] = json!(1)),
        ("peers", |config| {
            let peer = json!({"name": "x", "number": 1, "podCIDRs": ["10.1.9.0/24", "fd10:0:0:9::/64"], "address": "fc00::9"});
            config["peers"] = json!([peer]);
        }),
    ];
    for (field, edit) in edits {
        let mut config = node.config();
        edit(&mut config);
        let file = node.folder.join(format!("{field}.yaml"));
        std::fs::write(&file, config.to_string()).expect("write a configuration");
        let output =
            node.agent_command_line(&["check-config", "--config", &file.display().to_string()]).output();
        let output = output.expect("run the agent");
        assert!(!output.status.success(), "{field}: accepted {config}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(field), "{field}: {output:?}");
    }
}
