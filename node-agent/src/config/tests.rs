use proptest::prelude::*;

use agent_core::addr::PodCidrs;

use super::*;

const EXAMPLE: &str = include_str!("../../../deploy/node.yaml");
const SCHEMA: &str = include_str!("../../../docs/config.schema.json");

const SMALL: &str = "
node: {name: node-a, number: 1, podCIDRs: [10.1.1.0/24, 'fd10:0:0:1::/64'], uplinks: [eth0]}
sidBlock: 5f00:1::/32
clusterCIDRs: [10.1.0.0/16, fd10::/48]
peers:
- {name: node-b, number: 2, podCIDRs: [10.1.2.0/24, 'fd10:0:0:2::/64'], address: fc00::2}
";

fn problems(text: &str) -> Vec<String> {
    match parse(text) {
        Err(ConfigError::Values(problems)) => problems.iter().map(ToString::to_string).collect(),
        other => panic!("values are wrong, and yet: {other:?}"),
    }
}

#[test]
fn the_documented_example_is_right() {
    let config = parse(EXAMPLE).unwrap();
    assert_eq!(config.peers.len(), 2);
}

#[test]
fn what_is_left_out_has_a_default() {
    let config = parse(SMALL).unwrap();
    assert_eq!(config.paths.pending(), Path::new("/var/lib/headway/pending"));
    assert_eq!(config.http, Some("127.0.0.1:9476".parse().unwrap()));
    assert_eq!(config.configuration.limits.reservation_timeout, 60_000);
    let (path, content) = config.configuration.conflist;
    assert_eq!(path, Path::new("/etc/cni/net.d/10-headway.conflist"));
    let conflist: serde_json::Value = serde_json::from_str(&content).unwrap();
    assert_eq!(conflist["plugins"][0]["agentSocket"], "/run/headway/agent.sock");
}

#[test]
fn chained_plugins_can_keep_the_cni_version_down() {
    let config = parse(&format!("{SMALL}\ncni: {{version: 0.4.0, chain: [{{type: tuning}}]}}\n")).unwrap();
    let conflist: serde_json::Value = serde_json::from_str(&config.configuration.conflist.1).unwrap();
    assert_eq!(conflist["cniVersion"], "0.4.0");
    assert_eq!(conflist["cniVersions"], serde_json::json!(["0.3.1", "0.4.0"]));
    assert_eq!(conflist["plugins"][1]["type"], "tuning");
}

#[test]
fn words_of_yaml_1_1_are_words() {
    let config =
        parse(&format!("{SMALL}\nheadroom: off\nhttp: off\nnetwork: {{flooding: {{mode: on}}}}\n")).unwrap();
    assert_eq!(config.http, None);
    assert_eq!(config.configuration.headroom, agent_core::config::Headroom::Off);
    assert_eq!(config.configuration.network.flooding, agent_core::config::Flooding::On);
}

#[test]
fn everything_wrong_is_said_at_once() {
    let text = "
node: {name: '', number: 0, podCIDRs: [10.1.1.7/24], uplinks: [eth0, eth0]}
sidBlock: 2001:db8::/32
clusterCIDRs: [10.1.0.0/16, 10.2.0.0/16]
peers:
- {name: node-b, number: 57344, podCIDRs: [fd10::/40], address: fe80::2, mtu: 100}
encapsulation: {dscp: 64}
headroom: 513
mtu: 12
limits: {endpoints: 5000, reservationTimeout: soon}
cni: {confDir: net.d, confName: headway.json, chain: [{kind: portmap}]}
paths: {state: var}
http: localhost
";
    let said = problems(text);
    for field in [
        "node.name",
        "node.number",
        "node.podCIDRs[0]",
        "node.uplinks[1]",
        "sidBlock",
        "clusterCIDRs[1]",
        "peers[0].number",
        "peers[0].podCIDRs",
        "peers[0].address",
        "peers[0].mtu",
        "encapsulation.dscp",
        "headroom",
        "mtu",
        "limits.endpoints",
        "limits.reservationTimeout",
        "cni.confDir",
        "cni.confName",
        "cni.chain[0].type",
        "paths.state",
        "http",
    ] {
        let about = said.iter().filter(|line| line.starts_with(&format!("{field}: "))).count();
        assert_eq!(about, 1, "{field} in {said:#?}");
    }
    assert_eq!(said.len(), 20, "{said:#?}");
}

#[test]
fn nodes_do_not_share_anything() {
    let more = "
- {name: node-a, number: 1, podCIDRs: [10.1.2.128/25, 'fd10:0:0:2::/64'], address: fc00::2}
- {name: node-d, number: 4, podCIDRs: [10.2.4.0/24], address: '5f00:1:4::1'}
";
    let said = problems(&format!("{}{}", SMALL.trim_end(), more));
    assert_eq!(
        said,
        [
            "peers[2].address: 5f00:1:4::1 lies in the SID block 5f00:1::/32",
            "peers[1].number: 1 is node's already",
            "peers[1].name: node-a is node's already",
            "peers[1].address: fc00::2 is peers[0]'s already",
            "peers[2].podCIDRs: IPv4 10.2.4.0/24 does not lie in the clusterCIDRs' 10.1.0.0/16: both or neither, \
             the one in the other, is right",
            "peers[2].podCIDRs: IPv6 none does not lie in the clusterCIDRs' fd10::/48: both or neither, \
             the one in the other, is right",
            "peers[1].podCIDRs: fd10:0:0:2::/64 is peers[0].podCIDRs's already",
            "peers[1].podCIDRs: 10.1.2.128/25 overlaps 10.1.2.0/24 of peers[0].podCIDRs",
        ]
    );
}

const CLUSTER: &str = "clusterCIDRs: [fd10::/48, 10.1.0.0/16]\n";

fn local_node() -> LocalNode {
    LocalNode {
        name: "node-a".into(),
        number: NodeNumber::new(4).unwrap(),
        pods: PodCidrs::of_node(&["10.1.3.0/24".parse().unwrap(), "fd10:0:0:3::/64".parse().unwrap()])
            .unwrap(),
        uplinks: vec!["eth0".into()],
    }
}

#[test]
fn in_kubernetes_the_cluster_says_who_the_nodes_are() {
    let file = parse_cluster(CLUSTER).unwrap();
    assert_eq!((file.sid_block, &file.uplinks), (None, &None));
    assert_eq!(file.prefixes.first.to_string(), "fd10::/48");
    let block = SidBlock::new("5f00:7::/32".parse().unwrap()).unwrap();
    let config = file.join(local_node(), block).unwrap();
    assert_eq!(config.configuration.locator().to_string(), "5f00:7:4::/48");
    assert_eq!((config.peers.len(), &config.paths), (0, &file.paths));
    assert_eq!(config.configuration.conflist.0, file.conflist);
    let set = parse_cluster(&format!("{CLUSTER}node: {{uplinks: [eth1]}}\nsidBlock: 5f00:9::/32\n")).unwrap();
    assert_eq!(set.uplinks, Some(vec!["eth1".to_owned()]));
    assert_eq!(set.sid_block.unwrap().prefix().to_string(), "5f00:9::/32");
}

#[test]
fn in_kubernetes_nothing_of_it_may_be_in_the_file() {
    let Err(ConfigError::Values(problems)) = parse_cluster(SMALL) else { panic!("it is wrong") };
    let fields: Vec<&str> = problems.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(fields, ["node.name", "node.number", "node.podCIDRs", "peers"]);
    let Err(ConfigError::Values(problems)) =
        parse_cluster("clusterCIDRs: []\nmtu: 3\nnode: {uplinks: ['']}\n")
    else {
        panic!("it is wrong")
    };
    assert_eq!(problems.len(), 3, "{problems:?}");
}

#[test]
fn what_the_cluster_says_has_to_go_with_the_file() {
    let file = parse_cluster("clusterCIDRs: [10.1.0.0/16]\n").unwrap();
    let block = SidBlock::new("5f00:7::/32".parse().unwrap()).unwrap();
    let error = file.join(local_node(), block).unwrap_err().to_string();
    assert!(error.contains("spec.podCIDRs") && error.contains("fd10:0:0:3::/64"), "{error}");
}

#[test]
fn without_kubernetes_the_file_has_to_say_it() {
    let said = problems("clusterCIDRs: [10.1.0.0/16]\n");
    let fields: Vec<&str> = said.iter().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(fields, ["sidBlock", "node.name", "node.number", "node.podCIDRs", "node.uplinks"]);
}

#[test]
fn an_unknown_key_is_an_error_that_names_it() {
    let error = parse(&format!("{SMALL}\nmut: 1400\n")).unwrap_err().to_string();
    assert!(error.contains("mut") && error.contains("mtu"), "{error}");
}

#[test]
fn a_wrong_type_is_an_error_that_says_what_is_right() {
    let error = parse(&format!("{SMALL}\nheadroom: much\n")).unwrap_err().to_string();
    assert!(error.contains("`auto`, `off` or a number of bytes from 1 to 512"), "{error}");
}

#[test]
fn the_committed_schema_is_the_present_one() {
    let present = format!("{:#}\n", schema().as_value());
    assert_eq!(SCHEMA, present, "write it anew: headway-agent schema > docs/config.schema.json");
}

proptest! {
    #[test]
    fn arbitrary_text_is_refused_or_understood(text in "(?s).{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn arbitrary_values_are_refused_or_understood(
        number in any::<u32>(),
        prefix in "[0-9a-f.:]{0,20}/[0-9]{0,3}",
        word in "[a-z0-9.:/-]{0,12}",
    ) {
        let text = SMALL.replace("number: 2", &format!("number: {number}")).replace("10.1.2.0/24", &format!("'{prefix}'"));
        let _ = parse(&format!("{text}\nmtu: {word}\nheadroom: {word}\nhttp: '{word}'\n"));
    }
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("node.yaml");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = load(&pipe).unwrap_err().to_string();
    assert!(error.contains("node.yaml") && error.contains("not a regular file"), "{error}");
}
