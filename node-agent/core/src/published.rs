//! What Kubernetes is told of this node, and how soon.

use std::{collections::BTreeMap, net::Ipv6Addr};

use crate::{
    addr::{Locator, NodeNumber, PodCidrs},
    conditions::{Condition, condition, conditions},
    desired,
    lease::{State, Timestamp},
    probes::Outcome,
    world::World,
};

/// What is to be said.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// What peers have to know; `None` while something of it is not known here.
    pub locator: Option<OwnLocator>,
    /// What people want to know.
    pub status: Status,
    /// The node's network can be used: for the Node's condition `NetworkUnavailable`.
    pub network_available: bool,
    /// Pods can come: the start-up taint can go.
    pub ready: bool,
}

/// Who this node is on the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number.
    pub number: NodeNumber,
    /// Its locator.
    pub locator: Locator,
    /// Its pod prefixes.
    pub pods: PodCidrs,
}

/// What peers have to know to reach this node's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnLocator {
    /// Who this node is.
    pub identity: Identity,
    /// Its addresses on the underlay, those that reach far first.
    pub underlay: Vec<Ipv6Addr>,
    /// Smallest MTU of its uplinks, bytes.
    pub mtu: u32,
}

/// What people want to know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Who the node is; `None` until it has a number.
    pub identity: Option<Identity>,
    /// Names of its uplinks.
    pub uplinks: Vec<String>,
    /// MTU of pods, bytes.
    pub mtu: Option<u32>,
    /// Headroom asked for, bytes.
    pub headroom: u32,
    /// The kernel has the attribute for it.
    pub headroom_supported: bool,
    /// Statements, `Ready` first.
    pub conditions: Vec<Condition>,
    /// Figures that change without anything being wrong.
    pub figures: Figures,
}

/// Figures that change with every pod and every node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Pods on the segment.
    pub endpoints: usize,
    /// Nodes known.
    pub known: usize,
    /// Of those, with a way to them.
    pub routed: usize,
    /// Of those, probed at present.
    pub probed: usize,
    /// Of those, answering.
    pub reachable: usize,
}

/// Makes it all. `ready`: pods can come; if not, why.
#[must_use]
pub fn published(world: &World, ready: Result<(), String>) -> Published {
    let is_ready = ready.is_ok();
    let alone = world.peers.is_empty();
    Published {
        // A claim that does not hold is not repeated.
        locator: own_locator(world).filter(|_| world.own_rejected().is_none()),
        status: status(world, ready),
        network_available: is_ready && (alone || world.probes.first_answer_settled),
        ready: is_ready,
    }
}

/// What is said while the node is not part of the segment yet. `reason`: one word for programs; `message`: what to do.
#[must_use]
pub fn waiting(reason: &'static str, message: &str) -> Published {
    let ready = condition("Ready", reason, Some(message.to_owned()));
    Published {
        locator: None,
        status: Status { conditions: vec![ready], ..Status::default() },
        network_available: false,
        ready: false,
    }
}

fn own_locator(world: &World) -> Option<OwnLocator> {
    // An uplink without address says nothing, but its MTU bounds what arrives.
    let mtu = desired::uplinks(world).map(|(_, link)| link.mtu).min()?;
    let mut underlay: Vec<Ipv6Addr> = desired::uplinks(world)
        .flat_map(|(_, link)| &link.addresses)
        .filter_map(|address| match address {
            std::net::IpAddr::V6(address) => Some(*address),
            std::net::IpAddr::V4(_) => None,
        })
        .filter(|address| !world.config.sid_block.prefix().contains(address))
        .collect();
    underlay.sort_by_key(|address| (address.is_unicast_link_local(), *address));
    underlay.dedup();
    underlay.truncate(MAX_UNDERLAY_ADDRESSES);
    (!underlay.is_empty()).then_some(OwnLocator { identity: identity(world), underlay, mtu })
}

fn identity(world: &World) -> Identity {
    let node = &world.config.node;
    Identity { number: node.number, locator: world.config.locator(), pods: node.pods }
}

/// As many as the object takes.
const MAX_UNDERLAY_ADDRESSES: usize = 8;

fn status(world: &World, ready: Result<(), String>) -> Status {
    let first = condition("Ready", "NotReady", ready.err());
    Status {
        identity: Some(identity(world)),
        uplinks: world.config.node.uplinks.clone(),
        mtu: desired::inner_mtu(world),
        headroom: desired::headroom(world),
        headroom_supported: world.facts.headroom_attribute.is_some(),
        conditions: [first].into_iter().chain(conditions(world)).collect(),
        figures: figures(world),
    }
}

fn figures(world: &World) -> Figures {
    let outcomes = &world.probes.peers;
    Figures {
        endpoints: world.leases.iter().filter(|lease| matches!(lease.state, State::Active { .. })).count(),
        known: world.peers.len(),
        routed: world.peers.keys().filter(|peer| !desired::ways(world, **peer).is_empty()).count(),
        probed: outcomes.len(),
        reachable: outcomes.values().filter(|outcome| **outcome == Outcome::Answers).count(),
    }
}

/// How soon a difference has to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// At once: something has begun or ceased to be right.
    Now,
    /// Once this long after the last write, milliseconds.
    After(u64),
}

/// Writes that no condition has turned for, at most one in this time, milliseconds.
const PAUSE: u64 = 10_000;
/// Figures are refreshed at most once in this time when only pods have come and gone, milliseconds: no pod costs a write.
const ENDPOINTS_PAUSE: u64 = 300_000;
/// Counts of peers change on all nodes at once when one comes: with this many milliseconds a peer between two refreshes, the
/// whole cluster writes ten a second, whatever its size.
const PAUSE_A_PEER: u64 = 100;

/// How soon `after` has to replace `before`; `None`: there is no difference.
#[must_use]
pub fn urgency(before: &Status, after: &Status) -> Option<Urgency> {
    if before == after {
        return None;
    }
    let turned = |status: &Status| -> Vec<(&'static str, bool)> {
        status.conditions.iter().map(|condition| (condition.kind, condition.holds)).collect()
    };
    if turned(before) != turned(after) {
        return Some(Urgency::Now);
    }
    let pause = peers_pause(after.figures.known);
    if (Status { figures: after.figures, conditions: after.conditions.clone(), ..before.clone() }) != *after {
        return Some(Urgency::After(PAUSE));
    }
    // Messages count peers too.
    let only_endpoints = before.conditions == after.conditions
        && Figures { endpoints: after.figures.endpoints, ..before.figures } == after.figures;
    Some(Urgency::After(if only_endpoints { ENDPOINTS_PAUSE } else { pause }))
}

fn peers_pause(known: usize) -> u64 {
    PAUSE.max(PAUSE_A_PEER * u64::try_from(known).unwrap_or(u64::MAX))
}

/// A problem that lasts this long is worth an Event, milliseconds: on their way up nodes lack this and that for a while.
const LASTING: Timestamp = 15_000;
/// The same problem is worth another Event after this long, milliseconds, if it was gone meanwhile.
const REPORT_AGAIN: Timestamp = 600_000;
/// Conditions that nobody has to act on.
const QUIET: [&str; 1] = ["HeadroomSupported"];

/// Decides which problems are worth an Event: each once.
#[derive(Debug, Default)]
pub struct Reporter {
    /// Problems at present, and since when.
    since: BTreeMap<&'static str, Timestamp>,
    /// When each was reported last.
    reported: BTreeMap<&'static str, Timestamp>,
}

impl Reporter {
    /// Takes what an earlier agent has published for reported: problems that last longer than an agent are no news. Those that
    /// are found again only after a while are reported if they last.
    /// `unmet`: did a condition of this type not hold then?
    pub fn recall(&mut self, status: &Status, unmet: impl Fn(&str) -> bool) {
        for condition in status.conditions.iter().filter(|one| unmet(one.kind)) {
            self.since.insert(condition.kind, 0);
            self.reported.insert(condition.kind, 0);
        }
    }

    /// Conditions to report now, and when to ask again if nothing changes.
    pub fn due<'a>(&mut self, status: &'a Status, now: Timestamp) -> (Vec<&'a Condition>, Option<Timestamp>) {
        let unmet = |kind: &str| status.conditions.iter().any(|one| one.kind == kind && !one.holds);
        let began = std::mem::take(&mut self.since);
        self.since = began.into_iter().filter(|(kind, _)| unmet(kind)).collect();
        let (mut due, mut next) = (Vec::new(), None);
        for condition in status.conditions.iter().filter(|one| !one.holds && !QUIET.contains(&one.kind)) {
            let since = *self.since.entry(condition.kind).or_insert(now);
            let at = match self.reported.get(condition.kind) {
                Some(&reported) if reported >= since => continue,
                Some(&reported) => (since + LASTING).max(reported + REPORT_AGAIN),
                None => since + LASTING,
            };
            if at <= now {
                self.reported.insert(condition.kind, now);
                due.push(condition);
            } else {
                next = Some(next.map_or(at, |next: Timestamp| next.min(at)));
            }
        }
        (due, next)
    }
}
