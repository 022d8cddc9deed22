//! Who a node is in a Kubernetes cluster.

#![expect(clippy::unwrap_used, reason = "a test fixture that cannot be built should panic")]

use std::collections::BTreeMap;

use agent_api::MacAddress;
use agent_core::{
    addr::{NodeNumber, PodCidrs},
    dataplane::Link,
    identity::{self, ClusterPrefixes, NodeObject, Waiting},
};
use ipnet::IpNet;

use crate::worlds::{self, number};

fn cluster(prefixes: &[&str]) -> ClusterPrefixes {
    let nets: Vec<IpNet> = prefixes.iter().map(|net| net.parse().unwrap()).collect();
    let v4 = nets.iter().find_map(|net| if let IpNet::V4(net) = net { Some(*net) } else { None });
    let v6 = nets.iter().find_map(|net| if let IpNet::V6(net) = net { Some(*net) } else { None });
    ClusterPrefixes { both: PodCidrs { v4, v6 }, first: nets[0] }
}

fn node(pod_cidrs: &[&str]) -> NodeObject {
    NodeObject {
        name: "node-a".into(),
        uid: "u".into(),
        pod_cidrs: pod_cidrs.iter().map(ToString::to_string).collect(),
        ..NodeObject::default()
    }
}

fn numbered(node: &NodeObject, cluster: ClusterPrefixes) -> Result<u16, Waiting> {
    let pods = identity::pods(node, cluster)?;
    identity::number(node, None, None, pods, cluster).map(NodeNumber::get)
}

#[test]
fn the_number_is_the_position_of_the_nodes_prefix_in_the_clusters() {
    for (clusters, pods, right) in [
        (&["10.1.0.0/16"][..], &["10.1.0.0/24"][..], 1),
        (&["10.1.0.0/16"], &["10.1.255.0/24"], 256),
        (&["10.0.0.0/8"], &["10.3.1.64/26"], 3078),
        (&["fd10::/48"], &["fd10:0:0:1f::/64"], 32),
        (&["fd10::/108"], &["fd10::3:0/112"], 4),
        (&["10.1.0.0/16", "fd10::/48"], &["10.1.4.0/24", "fd10:0:0:9::/64"], 5),
        (&["fd10::/48", "10.1.0.0/16"], &["fd10:0:0:9::/64", "10.1.4.0/24"], 10),
        (&["10.1.0.0/16"], &["10.1.0.0/16"], 1),
    ] {
        assert_eq!(numbered(&node(pods), cluster(clusters)), Ok(right), "{pods:?} in {clusters:?}");
    }
}

#[test]
fn a_node_that_cannot_begin_says_why_and_what_to_do() {
    for (clusters, pods, reason, word) in [
        (&["10.1.0.0/16"][..], &[][..], "NoPodCIDR", "--allocate-node-cidrs"),
        (&["10.1.0.0/16"], &["10.2.0.0/24"], "PodCIDROutsideCluster", "10.1.0.0/16"),
        (&["10.1.0.0/16", "fd10::/48"], &["10.1.0.0/24"], "PodCIDROutsideCluster", "IPv6 none"),
        (&["10.1.0.0/16"], &["10.1.0.0/31"], "PodCIDROutsideCluster", "/30"),
        (&["10.1.0.0/16"], &["x"], "PodCIDROutsideCluster", "\"x\""),
        (&["fd10::/40"], &["fd10:0:1:ffff::/64"], "NodeNumberOutOfRange", "annotate"),
    ] {
        let waiting = numbered(&node(pods), cluster(clusters)).unwrap_err();
        assert_eq!(waiting.reason, reason);
        assert!(waiting.message.contains(word), "{}", waiting.message);
    }
}

#[test]
fn a_number_in_use_stays_and_an_operators_comes_before_the_derived_one() {
    let cluster = cluster(&["10.1.0.0/16"]);
    let mut node = node(&["10.1.4.0/24"]);
    let pods = identity::pods(&node, cluster).unwrap();
    let of = |node: &NodeObject, locator: Option<u16>, disk: Option<u16>| {
        identity::number(node, locator.map(number), disk.map(number), pods, cluster).map(NodeNumber::get)
    };
    assert_eq!(of(&node, None, None), Ok(5));
    assert_eq!(of(&node, None, Some(7)), Ok(7));
    node.number_annotation = Some("9".into());
    assert_eq!(of(&node, None, Some(7)), Ok(9));
    assert_eq!(of(&node, Some(8), Some(7)), Ok(8));
    for wrong in ["0", "57344", "nine", ""] {
        node.number_annotation = Some(wrong.into());
        let waiting = of(&node, None, None).unwrap_err();
        assert!(
            waiting.reason == "NodeNumberInvalid" && waiting.message.contains(&format!("{wrong:?}")),
            "{waiting:?}"
        );
    }
}

#[test]
fn uplinks_have_the_nodes_addresses_and_speak_ipv6() {
    let link = |ifindex, addresses: &[&str]| Link {
        addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
        ..worlds::link(ifindex, 1500)
    };
    let mut links = BTreeMap::from([
        ("eth0".to_owned(), link(2, &["192.0.2.1", "fe80::1"])),
        ("eth1".to_owned(), link(3, &["2001:db8::1", "fe80::2"])),
        ("eth2".to_owned(), link(4, &["192.0.2.9"])),
    ]);
    let with = |ips: &[&str]| NodeObject {
        internal_ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
        ..node(&[])
    };
    let uplinks = |ips: &[&str], links: &BTreeMap<String, Link>| identity::uplinks(&with(ips), links);
    assert_eq!(uplinks(&["192.0.2.1"], &links), Ok(vec!["eth0".to_owned()]));
    assert_eq!(
        uplinks(&["192.0.2.1", "2001:db8::1"], &links),
        Ok(vec!["eth0".to_owned(), "eth1".to_owned()])
    );
    for (ips, reason, word) in [
        (&[][..], "NoInternalIP", "kubelet"),
        (&["192.0.2.200"], "NoUplink", "no interface"),
        (&["192.0.2.9"], "NoUplink", "eth2 has no IPv6"),
    ] {
        let waiting = uplinks(ips, &links).unwrap_err();
        assert!(waiting.reason == reason && waiting.message.contains(word), "{waiting:?}");
    }
    links.get_mut("eth0").unwrap().mac = MacAddress::default();
    assert!(uplinks(&["192.0.2.1"], &links).is_err());
}
