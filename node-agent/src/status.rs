//! The status document: what the agent says about its node to people and programs.

mod document;
mod table;

use std::collections::BTreeMap;

use agent_api::HeadroomOutcome;
use agent_core::{
    conditions::{Condition, conditions},
    config::Headroom,
    dataplane::{Dataplane, Program},
    desired,
    lease::{Lease, State},
    world::World,
};

pub use document::{Endpoint, HeadroomReport, NextHop, Node, Peer, Publishing, Report, Statement, Uplink};
pub use table::table;

use crate::dataplane::{Measurements, StepError};

/// What the document is made of.
pub struct Sources<'a> {
    /// All that is known.
    pub world: &'a World,
    /// The kernel's state.
    pub actual: &'a Dataplane,
    /// What is not as desired.
    pub failures: Vec<String>,
    /// What the kernel has counted.
    pub measurements: Result<Measurements, StepError>,
    /// Why the configuration file was not taken.
    pub rejected_config: Option<&'a str>,
    /// How publishing to Kubernetes goes, if there is Kubernetes.
    pub publishing: Option<Publishing>,
    /// Pods can come; if not, why.
    pub ready: Result<(), String>,
}

/// Makes the document.
#[must_use]
pub fn report(sources: &Sources<'_>) -> Report {
    let world = sources.world;
    let (measured, unmeasured) = match &sources.measurements {
        Ok(measured) => (measured.clone(), None),
        Err(error) => (Measurements::default(), Some(error.to_string())),
    };
    let drops = measured.counters.drops.iter().map(|(reason, count)| (reason.label().to_owned(), *count));
    let events = measured.counters.events.iter().map(|(event, count)| (event.label().to_owned(), *count));
    let tables = measured.neighbour_tables.iter().map(|(family, table)| ((*family).to_owned(), *table));
    Report {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: node(sources),
        ready: sources.ready.is_ok(),
        failures: sources.failures.iter().cloned().chain(unmeasured).collect(),
        conditions: statements(sources),
        headroom: headroom(world),
        endpoints: world
            .leases
            .iter()
            .chain(world.leases.foreign())
            .map(|lease| endpoint(world, lease))
            .collect(),
        peers: peers(world, sources.actual, &measured),
        drops: drops.collect(),
        events: events.collect(),
        segmenter_drops: measured.segmenter_drops,
        neighbour_tables: tables.collect(),
        publishing: sources.publishing.clone(),
    }
}

fn statements(sources: &Sources<'_>) -> Vec<Statement> {
    let accepted = Statement {
        kind: "ConfigurationAccepted".into(),
        holds: sources.rejected_config.is_none(),
        message: sources.rejected_config.unwrap_or_default().to_owned(),
    };
    let known = conditions(sources.world).into_iter();
    let known =
        known.map(|Condition { kind, holds, message, .. }| Statement { kind: kind.into(), holds, message });
    known.chain([accepted]).collect()
}

fn node(sources: &Sources<'_>) -> Node {
    let (world, node) = (sources.world, &sources.world.config.node);
    let v4 = node.pods.v4.map(|net| net.to_string());
    let v6 = node.pods.v6.map(|net| net.to_string());
    let uplinks = desired::uplinks(world).map(|(name, link)| Uplink {
        name: name.clone(),
        mtu: link.mtu,
        up: link.up,
        attached: sources.actual.attachments.contains_key(&(Program::Uplink, link.ifindex)),
        programs_ahead: world.facts.programs_ahead.get(name).cloned().unwrap_or_default(),
    });
    Node {
        name: node.name.clone(),
        number: node.number.get(),
        locator: world.config.locator().to_string(),
        pod_cidrs: v4.into_iter().chain(v6).collect(),
        datapath: "tc".into(),
        mtu: desired::inner_mtu(world),
        uplinks: uplinks.collect(),
    }
}

fn headroom(world: &World) -> HeadroomReport {
    let mut outcomes = BTreeMap::new();
    for lease in world.leases.iter() {
        let State::Active { headroom, .. } = &lease.state else { continue };
        *outcomes.entry(outcome(headroom).to_owned()).or_default() += 1;
    }
    let attribute = world.facts.headroom_attribute;
    let kernel = match (world.config.headroom, attribute) {
        (Headroom::Off, _) => "off",
        (_, Some(_)) => "supported",
        (_, None) => "unsupported",
    };
    HeadroomReport { asked: desired::headroom(world), kernel: kernel.into(), attribute, outcomes }
}

/// The outcome as one word.
fn outcome(outcome: &HeadroomOutcome) -> &'static str {
    match outcome {
        HeadroomOutcome::Off => "off",
        HeadroomOutcome::Applied(_) => "applied",
        HeadroomOutcome::Unsupported => "unsupported",
        HeadroomOutcome::Refused(_) => "refused",
    }
}

fn endpoint(world: &World, lease: &Lease) -> Endpoint {
    let origin = world.origin(lease);
    let pod = [lease.pod.namespace.as_str(), lease.pod.name.as_str()].join("/");
    let (ifindex, headroom) = match &lease.state {
        State::Reserved { .. } => (None, None),
        State::Active { ifindex, headroom, .. } => (Some(*ifindex), Some(headroom.clone())),
    };
    Endpoint {
        pod: if pod == "/" { String::new() } else { pod },
        addresses: origin.pods.addresses(lease.host).collect(),
        mac: origin.pods.mac(origin.number, lease.host),
        link: agent_api::names::host_ifname(&lease.key),
        key: lease.key.clone(),
        ifindex,
        headroom,
    }
}

fn peers(world: &World, actual: &Dataplane, measured: &Measurements) -> Vec<Peer> {
    let name = |ifindex: u32| {
        let uplink = desired::uplinks(world).find(|(_, link)| link.ifindex == ifindex);
        uplink.map_or_else(|| ifindex.to_string(), |(name, _)| name.clone())
    };
    let peers = world.peers.iter().map(|(&number, peer)| {
        let next_hops: Vec<NextHop> = desired::ways(world, number)
            .iter()
            .map(|hop| NextHop {
                uplink: name(hop.ifindex),
                gateway: hop.gateway.into(),
                mac: world.facts.neighbours.get(hop).copied(),
            })
            .collect();
        Peer {
            name: peer.name.clone(),
            number: number.get(),
            locator: world.config.sid_block.locator(number).to_string(),
            addresses: peer.addresses.clone(),
            mtu: actual.nodes.get(&number).map(|node| node.mtu),
            path_mtu: measured
                .path_mtus
                .get(&number.into())
                .map(|outer| outer.saturating_sub(desired::OVERHEAD)),
            reachable: next_hops.iter().any(|hop| hop.mac.is_some()),
            probe: world.probes.peers.get(&number).map(|outcome| outcome.label().to_owned()),
            next_hops,
        }
    });
    peers.collect()
}
