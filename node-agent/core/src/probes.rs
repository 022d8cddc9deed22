//! Probes of peers: which are due, and what their answers and their silence mean.
//!
//! ```text
//! targets -> Prober::update
//! clock ---> Prober::due -> Probe, Probe, ...  (the shell sends them)
//! answer --> Prober::answered
//!            Prober::outcomes -> Event::Probed -> World
//! ```
//! A probe is an ICMP echo of the largest packet that pods may send to the peer, from gateway to gateway: it goes through
//! the switch and the underlay in both directions. A peer that lets it go unanswered is sent a small one as well, which tells
//! an underlay that is too narrow from one that leads nowhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::{addr::NodeNumber, desired, ipam::GATEWAY, lease::Timestamp, world::World};

/// A peer is probed once in this time, milliseconds.
pub const INTERVAL: Timestamp = 10_000;
/// Three unanswered probes make a peer silent.
const PATIENCE: Timestamp = 3 * INTERVAL;
/// A peer that has never answered is probed this often at first: a new node waits for the first answer.
const EAGER_INTERVAL: Timestamp = 1_000;
/// Peers probed at a time; with more of them a sample, that changes every [`ROTATION`].
pub const MAX_PROBED: usize = 64;
/// Of the sample, peers that are kept because they do not answer. The rest goes on to change.
const MAX_KEPT: usize = 32;
/// A sample is probed for this long.
const ROTATION: Timestamp = 300_000;
/// After this long without any answer the first one is no longer waited for.
const FIRST_ANSWER: Timestamp = 60_000;
/// Bytes of a small probe: passes wherever IPv4 and IPv6 do.
const SMALL: u32 = 128;

/// A peer to be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its number.
    pub number: NodeNumber,
    /// Its gateway addresses, one a family that we have as well.
    pub gateways: Vec<IpAddr>,
    /// Largest packet of pods to it, bytes.
    pub mtu: u32,
}

/// What to probe, and from where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// Our own gateway addresses.
    pub sources: Vec<IpAddr>,
    /// All peers to which a way is known.
    pub peers: Vec<Target>,
}

/// A packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The gateway that is to answer.
    pub to: IpAddr,
    /// Its number among our probes: the answer carries it.
    pub sequence: u16,
    /// Bytes of the whole packet, IP header included.
    pub size: u32,
}

/// What is known of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not long enough probed to say.
    Waiting,
    /// It answers.
    Answers,
    /// It answers small packets only.
    OnlySmall,
    /// It does not answer.
    Silent,
}

impl Outcome {
    /// In words.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Answers => "answers",
            Self::OnlySmall => "only small packets",
            Self::Silent => "silent",
        }
    }
}

/// What the probes have told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Of the peers that are probed at present.
    pub peers: BTreeMap<NodeNumber, Outcome>,
    /// Some peer has answered, or has had its time to.
    pub first_answer_settled: bool,
}

/// What to probe in a world. Peers that no way leads to are a matter of routes.
#[must_use]
pub fn targets(world: &World) -> Targets {
    let own = world.config.node.pods;
    let Some(widest) = desired::inner_mtu(world) else { return Targets::default() };
    let target = |(&number, peer): (&NodeNumber, &crate::peer::Peer)| {
        let gateways = peer.pods.addresses(GATEWAY).filter(|gateway| match gateway {
            IpAddr::V4(_) => own.v4.is_some(),
            IpAddr::V6(_) => own.v6.is_some() && widest >= desired::IPV6_MIN_MTU,
        });
        let mtu = peer.mtu.map_or(widest, |mtu| widest.min(mtu.saturating_sub(desired::OVERHEAD)));
        Target { number, gateways: gateways.collect(), mtu }
    };
    let routed = world.peers.iter().filter(|(number, _)| !desired::ways(world, **number).is_empty());
    Targets { sources: own.addresses(GATEWAY).collect(), peers: routed.map(target).collect() }
}

/// Keeps track of probes.
#[derive(Debug, Default)]
pub struct Prober {
    peers: BTreeMap<NodeNumber, Target>,
    sample: BTreeSet<NodeNumber>,
    /// Where the next sample begins.
    cursor: Option<NodeNumber>,
    next_rotation: Timestamp,
    gateways: BTreeMap<IpAddr, Gateway>,
    sequence: u16,
    /// When there was something to probe for the first time.
    first_target: Option<Timestamp>,
    answered: bool,
}

/// One address that is probed.
#[derive(Debug)]
struct Gateway {
    number: NodeNumber,
    known_since: Timestamp,
    sent: Option<Timestamp>,
    /// Full-size probes are unanswered since then.
    unanswered_since: Option<Timestamp>,
    answered: bool,
    answered_small: Option<Timestamp>,
    /// Probes on their way, by their number: when they were sent, and their size.
    outstanding: BTreeMap<u16, (Timestamp, u32)>,
}

impl Prober {
    /// Takes over who can be probed. What is known of peers that stay is kept.
    pub fn update(&mut self, targets: &[Target], now: Timestamp) {
        self.peers = targets.iter().map(|target| (target.number, target.clone())).collect();
        if !self.peers.is_empty() && self.first_target.is_none() {
            self.first_target = Some(now);
            self.next_rotation = now + ROTATION;
        }
        self.sample.retain(|number| self.peers.contains_key(number));
        self.fill_sample();
        self.follow_sample(now);
    }

    /// The probes to send now. To be asked every second or so.
    pub fn due(&mut self, now: Timestamp) -> Vec<Probe> {
        if self.peers.len() > MAX_PROBED && now >= self.next_rotation {
            self.rotate(now);
        }
        let mut probes = Vec::new();
        for (&to, gateway) in &mut self.gateways {
            if !gateway.is_due(now) {
                continue;
            }
            let full = self.peers.get(&gateway.number).map_or(SMALL, |target| target.mtu);
            let doubtful = gateway.unanswered_since.is_some_and(|since| now - since >= INTERVAL);
            for size in [full].into_iter().chain(doubtful.then_some(SMALL)) {
                self.sequence = self.sequence.wrapping_add(1);
                gateway.outstanding.insert(self.sequence, (now, size));
                probes.push(Probe { to, sequence: self.sequence, size });
            }
            gateway.sent = Some(now);
            gateway.unanswered_since.get_or_insert(now);
            gateway.outstanding.retain(|_, (sent, _)| now - *sent <= INTERVAL);
        }
        probes
    }

    /// Takes an answer in; is it one to a probe of ours?
    pub fn answered(&mut self, from: IpAddr, sequence: u16, size: u32, now: Timestamp) -> bool {
        let Some(gateway) = self.gateways.get_mut(&from) else { return false };
        let Some((_, sent_size)) = gateway.outstanding.remove(&sequence) else { return false };
        if sent_size != size {
            return false;
        }
        let full = self.peers.get(&gateway.number).is_some_and(|target| size >= target.mtu);
        if full {
            gateway.answered = true;
            gateway.unanswered_since = None;
            self.answered = true;
        } else {
            gateway.answered_small = Some(now);
        }
        true
    }

    /// What the probes tell by now. Of a peer's addresses the worst counts.
    #[must_use]
    pub fn outcomes(&self, now: Timestamp) -> Outcomes {
        let mut peers = BTreeMap::new();
        for gateway in self.gateways.values() {
            let outcome = gateway.outcome(now);
            let worst = peers.entry(gateway.number).or_insert(outcome);
            if rank(outcome) > rank(*worst) {
                *worst = outcome;
            }
        }
        let waited = self.first_target.is_some_and(|since| now.saturating_sub(since) >= FIRST_ANSWER);
        Outcomes { peers, first_answer_settled: self.answered || waited }
    }

    /// The next sample: those that do not answer stay, the others make room for the next in order.
    fn rotate(&mut self, now: Timestamp) {
        self.next_rotation = now + ROTATION;
        let outcomes = self.outcomes(now).peers;
        let doubtful = |number: &NodeNumber| {
            outcomes
                .get(number)
                .is_some_and(|outcome| *outcome != Outcome::Answers && *outcome != Outcome::Waiting)
        };
        self.sample = self.sample.iter().copied().filter(doubtful).take(MAX_KEPT).collect();
        self.fill_sample();
        self.follow_sample(now);
    }

    fn fill_sample(&mut self) {
        let start = self.cursor;
        let after = self.peers.keys().copied().filter(|number| start.is_none_or(|start| *number > start));
        let before = self.peers.keys().copied().filter(|number| start.is_some_and(|start| *number <= start));
        for number in after.chain(before) {
            if self.sample.len() >= MAX_PROBED {
                break;
            }
            if self.sample.insert(number) {
                self.cursor = Some(number);
            }
        }
    }

    fn follow_sample(&mut self, now: Timestamp) {
        let wanted: BTreeMap<IpAddr, NodeNumber> = self
            .sample
            .iter()
            .filter_map(|number| self.peers.get(number))
            .flat_map(|target| target.gateways.iter().map(|gateway| (*gateway, target.number)))
            .collect();
        self.gateways.retain(|address, gateway| wanted.get(address) == Some(&gateway.number));
        for (address, number) in wanted {
            self.gateways.entry(address).or_insert_with(|| Gateway::new(number, now));
        }
    }
}

impl Gateway {
    fn new(number: NodeNumber, now: Timestamp) -> Self {
        Self {
            number,
            known_since: now,
            sent: None,
            unanswered_since: None,
            answered: false,
            answered_small: None,
            outstanding: BTreeMap::new(),
        }
    }

    fn is_due(&self, now: Timestamp) -> bool {
        let eager = !self.answered && now.saturating_sub(self.known_since) < PATIENCE;
        let interval = if eager { EAGER_INTERVAL } else { INTERVAL };
        self.sent.is_none_or(|sent| now.saturating_sub(sent) >= interval)
    }

    fn outcome(&self, now: Timestamp) -> Outcome {
        let long_ago = |since: Timestamp| now.saturating_sub(since) >= PATIENCE;
        match self.unanswered_since {
            Some(since) if long_ago(since) => match self.answered_small {
                Some(at) if !long_ago(at) => Outcome::OnlySmall,
                _ => Outcome::Silent,
            },
            _ if self.answered => Outcome::Answers,
            _ => Outcome::Waiting,
        }
    }
}

fn rank(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Answers => 0,
        Outcome::Waiting => 1,
        Outcome::OnlySmall => 2,
        Outcome::Silent => 3,
    }
}
