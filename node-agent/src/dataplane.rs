//! What the kernel holds of ours: looked at, changed one step at a time.
//!
//! The agent sees the kernel through [`Kernel`] only; [`linux`] is the real one, `fake` one in memory for tests.

mod addresses;
mod expedite;
#[cfg(test)]
pub mod fake;
mod files;
mod initial_namespace;
pub mod interfaces;
pub mod leftovers;
mod links;
pub mod linux;
mod neighbour_tables;
mod neighbours;
mod nft;
mod pod_links;
mod routes;
mod switch;
pub mod sysctls;
mod ways;

use std::{collections::BTreeMap, fmt::Display};

use agent_core::{
    dataplane::{Dataplane, Facts, Step},
    world::World,
};
use agent_switch::Counters;
use serde::{Deserialize, Serialize};

/// The kernel of this node.
pub trait Kernel: Send {
    /// Looks at everything: the surroundings, and what is there of ours. With `known`, the switch, to which nothing happens
    /// by itself, is taken to be as known.
    ///
    /// # Errors
    /// If something cannot be looked at; nothing is known then.
    fn observe(&mut self, world: &World, known: Option<&Dataplane>) -> Result<(Facts, Dataplane), StepError>;

    /// Takes one step. May be repeated.
    ///
    /// # Errors
    /// If the step was not taken.
    fn apply(&mut self, step: &Step) -> Result<(), StepError>;

    /// What has been counted.
    ///
    /// # Errors
    /// If it cannot be read.
    fn measure(&mut self) -> Result<Measurements, StepError>;

    /// Everything is as it should be: what an earlier agent has left beside it can go.
    ///
    /// # Errors
    /// If it cannot be removed.
    fn settled(&mut self) -> Result<(), StepError>;
}

/// What the kernel has counted of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurements {
    /// Packets, by the switch.
    pub counters: Counters,
    /// Packets lost on the way through the segmenter.
    pub segmenter_drops: u64,
    /// Path MTUs towards peers that routers on the way have told and that still hold, by node number: largest outer
    /// packet, bytes.
    pub path_mtus: BTreeMap<u32, u32>,
    /// Requests to the kernel by netlink since the agent's start.
    pub netlink_requests: u64,
    /// Neighbour tables by family (`ipv4`, `ipv6`); none where the initial namespace cannot be seen.
    pub neighbour_tables: BTreeMap<&'static str, NeighbourTable>,
}

/// A neighbour table: there is one a family for the whole machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourTable {
    /// Entries in it, of all network namespaces.
    pub entries: u64,
    /// Entries that fit, `gc_thresh3`.
    pub limit: u64,
}

/// Why a step was not taken. The one thing to do about it is to try again later.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {}", chain(&**source))]
pub struct StepError {
    /// What was being done, to what.
    doing: String,
    /// What the kernel said.
    source: Source,
}

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Says what was being done when something failed.
trait Doing<T> {
    /// The same, with what was being done to what as the beginning of the error.
    fn doing(self, what: impl Display) -> Result<T, StepError>;
}

impl<T, E: Into<Source>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl Display) -> Result<T, StepError> {
        self.map_err(|source| StepError { doing: what.to_string(), source: source.into() })
    }
}

/// An error and what is behind it, in one sentence.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    shortened(&text)
}

/// Lines of an error at its beginning and at its end that are kept.
const KEPT_LINES: (usize, usize) = (2, 12);

/// The eBPF verifier explains itself in up to 100,000 lines, of which the last ones say what is wrong.
fn shortened(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (first, last) = KEPT_LINES;
    if lines.len() <= first + last {
        return text.to_owned();
    }
    let left_out = format!("[{} lines]", lines.len() - first - last);
    [&lines[..first], &[left_out.as_str()], &lines[lines.len() - last..]].concat().join("\n")
}
