//! Our nftables table, as a script for `nft -f`.

use std::{collections::BTreeMap, fmt::Write as _};

use agent_api::names::LINK_GROUP;
use ipnet::IpNet;

use crate::{
    desired::{GATEWAY_LINK, foreign},
    world::World,
};

/// Name of the table.
pub const TABLE: &str = "headway";

/// The tables to hold: `inet headway`. The script replaces whatever the table held, in one transaction.
#[must_use]
pub fn desired(world: &World) -> BTreeMap<String, String> {
    let mut script = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        script,
        "table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n{}{}}}\n",
        guard(world),
        postrouting(world)
    );
    BTreeMap::from([(format!("inet {TABLE}"), script)])
}

/// SIDs are reached over the uplinks only, where the switch takes them before any hook (RFC 8754 section 5.1). And what a
/// pod's link brings to the stack has passed no switch: its program is not there yet, or no more.
fn guard(world: &World) -> String {
    let foreign: Vec<String> = foreign::links(world).map(|(name, _)| format!("\"{name}\"")).collect();
    let (contact, fence) = if foreign.is_empty() { Default::default() } else { fence(&foreign.join(", ")) };
    let block = world.config.sid_block.prefix();
    let uplinks: Vec<String> = world.config.node.uplinks.iter().map(|name| format!("\"{name}\"")).collect();
    format!(
        "\tchain prerouting {{\n\t\ttype filter hook prerouting priority raw; policy accept;\n\
         \t\tip6 daddr {block} iifname != {{ \"lo\", {} }} counter drop comment \"SIDs only over uplinks\"\n\
         {contact}\t\tiifgroup {LINK_GROUP} iifname != \"{GATEWAY_LINK}\" counter drop comment \"pods only through the switch\"\n\t}}\n{fence}",
        uplinks.join(", ")
    )
}

/// Pods with addresses of an earlier prefix: they reach this node, and it them; nothing is forwarded.
fn fence(links: &str) -> (String, String) {
    let contact = format!(
        "\t\tiifname {{ {links} }} fib daddr type local accept comment \"earlier pods to their node\"\n"
    );
    let forward = "\tchain forward {\n\t\ttype filter hook forward priority filter; policy accept;\n";
    let drop =
        |hook: &str| format!("\t\t{hook} {{ {links} }} counter drop comment \"earlier pods are fenced\"\n");
    (contact, format!("{forward}{}{}\t}}\n", drop("iifname"), drop("oifname")))
}

/// What leaves the cluster takes the node's address; what the node sends to pods of other nodes from an address that is not
/// the segment's takes the gateway's, or the answer would go to that address's own way.
fn postrouting(world: &World) -> String {
    let config = &world.config;
    let own = [config.node.pods.v4.map(IpNet::V4), config.node.pods.v6.map(IpNet::V6)];
    let cluster = [config.cluster.v4.map(IpNet::V4), config.cluster.v6.map(IpNet::V6)];
    let mut rules = String::new();
    for (own, cluster) in own.into_iter().flatten().zip(cluster.into_iter().flatten()) {
        let family = if own.addr().is_ipv6() { "ip6" } else { "ip" };
        let _ = writeln!(
            rules,
            "\t\toifname \"{GATEWAY_LINK}\" {family} saddr != {cluster} {family} daddr {cluster} {family} daddr != {own} \
             counter masquerade comment \"foreign source to remote pods\""
        );
        if config.masquerade {
            let kept = outside(config.non_masquerade.iter(), cluster);
            let _ = writeln!(
                rules,
                "\t\toifname != \"{GATEWAY_LINK}\" {family} saddr {own} {family} daddr != {{ {kept} }} counter masquerade \
                 comment \"pods leave the cluster\""
            );
        }
    }
    format!(
        "\tchain postrouting {{\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n{rules}\t}}\n"
    )
}

/// The cluster and what else sees pods' own addresses, of the cluster prefix's family, overlaps merged.
fn outside<'a>(others: impl Iterator<Item = &'a IpNet>, cluster: IpNet) -> String {
    let same = others.filter(|net| net.addr().is_ipv6() == cluster.addr().is_ipv6()).copied();
    let nets: Vec<IpNet> = same.chain([cluster]).collect();
    let merged = IpNet::aggregate(&nets);
    merged.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
