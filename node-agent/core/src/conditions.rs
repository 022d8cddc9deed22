//! What is right and wrong with this node, in words that say what to do.

use serde::Serialize;

use crate::{
    config::Flooding,
    desired::{self, IPV6_MIN_MTU},
    probes::Outcome,
    sysctls,
    world::World,
};

/// A statement about the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about, such as `UplinksReady`.
    pub kind: &'static str,
    /// Is it so?
    pub holds: bool,
    /// Why it is so or not, in one word for programs, such as `NoRoute`.
    pub reason: &'static str,
    /// A sentence, empty if all is well.
    pub message: String,
}

/// The reason of conditions that hold.
const AS_EXPECTED: &str = "AsExpected";
/// Names that a message lists.
const NAMED: usize = 5;
/// Share of [`crate::config::Network::flood_max_peers`] from which on the limit is announced, percent.
const FLOOD_WARNING: usize = 80;

/// All statements about the node.
#[must_use]
pub fn conditions(world: &World) -> Vec<Condition> {
    let always = [
        uplinks_ready(world),
        mtu_sufficient(world),
        peers_routed(world),
        peers_reachable(world),
        claim_accepted(world),
        peers_accepted(world),
        api_server_reachable(world),
        no_foreign_pods(world),
        flooding_complete(world),
        headroom_supported(world),
        forwarding_allowed(world),
        first_on_uplinks(world),
        neighbour_tables_sized(world),
    ];
    always.into_iter().chain(network_policy_enforced(world)).collect()
}

/// `reason`: the word for the problem.
pub(crate) fn condition(kind: &'static str, reason: &'static str, problem: Option<String>) -> Condition {
    let reason = if problem.is_some() { reason } else { AS_EXPECTED };
    Condition { kind, holds: problem.is_none(), reason, message: problem.unwrap_or_default() }
}

fn uplinks_ready(world: &World) -> Condition {
    let missing: Vec<&String> = world.config.node.uplinks.iter().filter(|name| !ready(world, name)).collect();
    condition(
        "UplinksReady",
        "UplinkDown",
        (!missing.is_empty())
            .then(|| format!("uplinks {missing:?} are missing, down or without a MAC address")),
    )
}

fn ready(world: &World, name: &str) -> bool {
    desired::uplinks(world).any(|(found, link)| found == name && link.up)
}

fn mtu_sufficient(world: &World) -> Condition {
    let short =
        desired::inner_mtu(world).filter(|mtu| *mtu < IPV6_MIN_MTU && world.config.cluster.v6.is_some());
    let need = IPV6_MIN_MTU + desired::OVERHEAD;
    condition(
        "MtuSufficient",
        "MtuTooSmall",
        short.map(|mtu| {
            format!(
                "pods get an MTU of {mtu}, too small for IPv6: the uplinks need an MTU of at least {need}"
            )
        }),
    )
}

fn peers_routed(world: &World) -> Condition {
    let peers = &world.peers;
    let lost: Vec<&str> = peers
        .iter()
        .filter(|(number, _)| desired::ways(world, **number).is_empty())
        .map(|(_, peer)| peer.name.as_str())
        .collect();
    let named = some(&lost);
    condition(
        "PeersRouted",
        "NoRoute",
        (!lost.is_empty()).then(|| {
            format!("no route over an uplink leads to {} of {} peers: {named}", lost.len(), peers.len())
        }),
    )
}

fn peers_reachable(world: &World) -> Condition {
    let probed = &world.probes.peers;
    let named = |outcome: Outcome| {
        let such = probed.iter().filter(|(_, one)| **one == outcome);
        let names: Vec<&str> =
            such.filter_map(|(number, _)| Some(world.peers.get(number)?.name.as_str())).collect();
        (!names.is_empty()).then(|| format!("{} of {} ({})", names.len(), probed.len(), some(&names)))
    };
    let silent = named(Outcome::Silent)
        .map(|peers| format!("{peers} do not answer: are they up, does the underlay carry SIDs?"));
    let narrow = named(Outcome::OnlySmall).map(|peers| {
        format!("{peers} answer small packets only: the underlay's MTU is smaller than the uplinks'")
    });
    let problem = silent.into_iter().chain(narrow).collect::<Vec<_>>().join("; ");
    condition(
        "PeersReachable",
        "NoAnswer",
        (!problem.is_empty()).then(|| format!("of the probed peers {problem}")),
    )
}

/// Nothing is said while there is no policy: nothing is missing then.
fn network_policy_enforced(world: &World) -> Option<Condition> {
    world.network_policies.then(|| {
        condition("NetworkPolicyEnforced", "NotImplemented", Some(
            "the cluster has NetworkPolicies, which headway does not enforce: traffic that they forbid passes".into(),
        ))
    })
}

/// The first few of many names.
fn some(names: &[&str]) -> String {
    let more = if names.len() > NAMED { ", ..." } else { "" };
    names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ") + more
}

fn claim_accepted(world: &World) -> Condition {
    condition("ClaimAccepted", "TakenByAnother", world.own_rejected().map(ToOwned::to_owned))
}

fn peers_accepted(world: &World) -> Condition {
    let rejected = world.cluster.iter().flat_map(|cluster| &cluster.rejected);
    let said: Vec<String> = rejected.map(|(name, reason)| format!("{name}: {reason}")).collect();
    let named = said.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    condition(
        "PeersAccepted",
        "LocatorsRejected",
        (!said.is_empty()).then(|| format!("{} Locators are not taken: {named}", said.len())),
    )
}

fn no_foreign_pods(world: &World) -> Condition {
    let pods = desired::foreign::named(world);
    let names: Vec<&str> = pods.iter().map(String::as_str).collect();
    condition(
        "NoForeignPods",
        "AddressesOfAnotherNode",
        (!pods.is_empty()).then(|| {
            format!(
                "{} pods have addresses that were this node's before it became another, and reach nobody but the node: delete \
                 them ({})",
                pods.len(),
                some(&names)
            )
        }),
    )
}

fn api_server_reachable(world: &World) -> Condition {
    let unreachable = world.cluster.as_ref().and_then(|cluster| cluster.unreachable.as_ref());
    condition(
        "ApiServerReachable",
        "Unreachable",
        unreachable.map(|reason| {
            format!("pods come and go and peers stay as they were last known; of other changes nothing is heard: {reason}")
        }),
    )
}

fn flooding_complete(world: &World) -> Condition {
    let (network, count) = (&world.config.network, world.peers.len());
    let limit = match network.flooding {
        Flooding::Off => return condition("FloodingComplete", "", None),
        Flooding::On => bpf_common::names::MAX_FLOOD_NODES,
        Flooding::Auto => network.flood_max_peers,
    };
    let problem = if count > limit as usize {
        Some(format!(
            "broadcast and multicast stay on this node: {count} peers are more than the limit of {limit}"
        ))
    } else if count * 100 > limit as usize * FLOOD_WARNING {
        Some(format!(
            "{count} peers come close to {limit}: beyond, broadcast and multicast stay on their node"
        ))
    } else {
        None
    };
    condition("FloodingComplete", "TooManyPeers", problem)
}

fn headroom_supported(world: &World) -> Condition {
    let asked = desired::headroom(world) > 0;
    condition("HeadroomSupported", "KernelWithoutAttribute", (asked && world.facts.headroom_attribute.is_none()).then(|| {
        "tx_extra_headroom is unsupported by this kernel: pods work, their packets are copied once on encapsulation".into()
    }))
}

fn forwarding_allowed(world: &World) -> Condition {
    let chains = &world.facts.forward_drops;
    condition("ForwardingAllowed", "ForwardPolicyDrops", (!chains.is_empty()).then(|| {
        format!("the forward policy of {} is drop: pods' traffic to and from outside the segment needs accept rules there for {}",
            chains.join(", "), desired::GATEWAY_LINK)
    }))
}

fn first_on_uplinks(world: &World) -> Condition {
    let ahead = &world.facts.programs_ahead;
    let list =
        ahead.iter().map(|(link, programs)| format!("{link}: {}", programs.join(", "))).collect::<Vec<_>>();
    condition(
        "FirstOnUplinks",
        "ProgramsAhead",
        (!ahead.is_empty())
            .then(|| format!("programs of others see segment traffic first: {}", list.join("; "))),
    )
}

fn neighbour_tables_sized(world: &World) -> Condition {
    condition(
        "NeighbourTablesSized",
"OutOfReach",
        (!sysctls::thresholds_known(world)).then(|| {
            "the bounds of the machine's neighbour tables cannot be reached from here: let the agent enter /proc/1/ns/net, or \
             raise net.ipv4.neigh.default.gc_thresh3 and net.ipv6.neigh.default.gc_thresh3 in the initial namespace"
                .into()
        }),
    )
}
