//! Addresses in use, addresses just freed, and what is written of them to disk.

use std::{collections::BTreeMap, path::PathBuf};

use agent_api::{AttachmentKey, HeadroomOutcome, Pod};
use serde::{Deserialize, Serialize};

/// Milliseconds since the boot, on a clock that nobody can set.
pub type Timestamp = u64;

/// The kernel's `boot_id`: leases of an earlier boot have no pods any more.
pub type BootId = String;

/// An attachment and its address. The file form is this struct as JSON; fields may be added, with a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// Whose it is.
    pub key: AttachmentKey,
    /// Host number in both pod prefixes.
    pub host: u16,
    /// Position in the flooding list.
    pub slot: u32,
    /// Names the ADD that made it.
    pub nonce: String,
    /// The boot in which it was made.
    pub boot: BootId,
    /// Path of the pod's network namespace.
    pub netns: PathBuf,
    /// Inode of that namespace.
    pub netns_inode: u64,
    /// The pod, as far as the runtime says.
    pub pod: Pod,
    /// MTU that its link was given, bytes; unknown of leases of agents before 0.2.
    #[serde(default)]
    pub mtu: Option<u32>,
    /// How far it has come.
    pub state: State,
}

/// How far a lease has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// The plugin is building the link.
    Reserved {
        /// Since when.
        at: Timestamp,
    },
    /// The pod is attached.
    Active {
        /// Since when.
        at: Timestamp,
        /// Interface index of its link on the node.
        ifindex: u32,
        /// What the kernel said to the headroom.
        headroom: HeadroomOutcome,
    },
}

/// All leases of the node, and when other host numbers were freed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leases {
    /// By host number.
    by_host: BTreeMap<u16, Lease>,
    /// Host numbers that were in use before.
    freed: BTreeMap<u16, Timestamp>,
}

impl Leases {
    /// All of them, by host number.
    pub fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.by_host.values()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.by_host.len()
    }

    /// The lease of an attachment.
    #[must_use]
    pub fn get(&self, key: &AttachmentKey) -> Option<&Lease> {
        self.iter().find(|lease| lease.key == *key)
    }

    /// The lease of a host number.
    #[must_use]
    pub fn at(&self, host: u16) -> Option<&Lease> {
        self.by_host.get(&host)
    }

    /// When a free host number was freed, if it was ever in use.
    #[must_use]
    pub fn freed_at(&self, host: u16) -> Option<Timestamp> {
        self.freed.get(&host).copied()
    }

    /// Host numbers freed and not in use again.
    pub fn freed(&self) -> impl Iterator<Item = (u16, Timestamp)> {
        self.freed.iter().map(|(&host, &at)| (host, at))
    }

    /// Puts a lease in, or a newer form of it.
    pub fn insert(&mut self, lease: Lease) {
        self.freed.remove(&lease.host);
        self.by_host.insert(lease.host, lease);
    }

    /// Frees a host number.
    pub fn free(&mut self, host: u16, at: Timestamp) {
        self.by_host.remove(&host);
        self.freed.insert(host, at);
    }
}
