//! Loads, pins and drives the eBPF switch.
//!
//! ```text
//! DIR on bpffs/
//!   1-1/SETTINGS, 1-1/NETWORKS, ...   maps, by layout version
//!   links/endpoint-17, ...            tcx links, by program and interface index
//! ```
//! Maps and links outlive the process, so that a restart of the agent touches no traffic. A new agent opens the maps
//! of its own layout (or fills new ones), then replaces the program inside each link, which is atomic.
//!
//! Types of the aya crate stay inside.

mod attachment;
mod bpffs;
mod carried;
mod counters;
mod endpoints;
mod error;
mod layout;
mod pinned_link;
mod switch;
mod syscall;
mod table;
mod tcx_query;

pub use bpf_common::program::Program;

pub use crate::{
    attachment::{Attached, Foreign},
    bpffs::{mount, unmount},
    counters::Counters,
    error::Error,
    layout::Layout,
    switch::{Switch, remove_all},
    table::Table,
};
