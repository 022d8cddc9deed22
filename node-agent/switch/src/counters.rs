//! What the programs have counted.

use std::collections::BTreeMap;

use bpf_common::counters::{DropReason, Event};

/// Packets since the maps were made, summed over CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Dropped, by reason; every reason is there.
    pub drops: BTreeMap<DropReason, u64>,
    /// What else happened; every event is there.
    pub events: BTreeMap<Event, u64>,
}
