//! The configuration file of a node's agent. JSON is YAML, so a test edits a JSON value.

use std::{net::Ipv6Addr, path::Path};

use serde_json::{Value, json};

use crate::{Families, underlay::Host};

/// The SID block of all test clusters.
pub const SID_BLOCK: &str = "5f00:1::/32";

/// A node's locator.
#[must_use]
pub fn locator(node: u8) -> String {
    format!("5f00:1:{node:x}::/48")
}

/// A node's outer source and infrastructure address.
#[must_use]
pub fn infrastructure_address(node: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x5f00, 1, node.into(), 0, 0, 0, 0, 1)
}

/// SID of a node (design: function = 0xE000 + 4 * network + behaviour), network 1. Behaviour 0: End.DT2U,
/// 1: End.DT2M.
#[must_use]
pub fn sid(node: u8, behaviour: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x5f00, 1, node.into(), 0xe004 + behaviour, 0, 0, 0, 0)
}

/// A node's pod prefixes.
#[must_use]
pub fn pod_prefixes(families: Families, node: u8) -> Vec<String> {
    families.pick(format!("10.1.{node}.0/24"), format!("fd10:0:0:{node:x}::/64"))
}

/// The configuration of one node among `hosts`, all of its paths below `folder`.
#[must_use]
pub fn of_node(node: &Host, hosts: &[Host], families: Families, folder: &Path) -> Value {
    let peer = |host: &Host| {
        json!({
            "name": node_name(host.number), "number": host.number,
            "podCIDRs": pod_prefixes(families, host.number), "address": host.address.to_string(),
        })
    };
    let peers: Vec<Value> = hosts.iter().filter(|host| host.number != node.number).map(peer).collect();
    json!({
        "node": {
            "name": node_name(node.number), "number": node.number,
            "podCIDRs": pod_prefixes(families, node.number), "uplinks": node.uplinks,
        },
        "sidBlock": SID_BLOCK,
        "clusterCIDRs": families.pick("10.1.0.0/16".to_owned(), "fd10::/48".to_owned()),
        "peers": peers,
        "cni": {"confDir": folder.join("net.d")},
        "paths": {"socket": folder.join("run/agent.sock"), "state": folder.join("state"), "bpf": folder.join("bpf")},
        "http": "127.0.0.1:9476",
    })
}

/// `node-a`, `node-b`, …
#[must_use]
pub fn node_name(number: u8) -> String {
    format!("node-{}", char::from(b'a' + number - 1))
}
