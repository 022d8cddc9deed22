//! Addresses in use, addresses just freed, and what is written of them to disk.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use agent_api::{AttachmentKey, HeadroomOutcome, Pod};
use serde::{Deserialize, Serialize};

use crate::{
    addr::{NodeNumber, PodCidrs},
    config::LocalNode,
};

/// Milliseconds since the boot, on a clock that nobody can set.
pub type Timestamp = u64;

/// The kernel's `boot_id`: leases of an earlier boot have no pods any more.
pub type BootId = String;

/// What the addresses and MACs of a node's pods follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// The node's number.
    pub number: NodeNumber,
    /// The node's pod prefixes.
    #[serde(rename = "podCidrs")]
    pub pods: PodCidrs,
}

impl From<&LocalNode> for Origin {
    fn from(node: &LocalNode) -> Self {
        Self { number: node.number, pods: node.pods }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes: Vec<String> = self.pods.prefixes().map(|net| net.to_string()).collect();
        write!(f, "node.number {} and node.podCIDRs [{}]", self.number, prefixes.join(", "))
    }
}

/// An attachment and its address. The file form is this struct as JSON; fields may be added, with a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// Whose it is.
    pub key: AttachmentKey,
    /// Host number in both pod prefixes.
    pub host: u16,
    /// What its addresses follow from; leases of agents before minor 2 do not say.
    #[serde(default)]
    pub origin: Option<Origin>,
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

impl Lease {
    /// Its addresses are not those of a node that is `own`, or its MAC is not: that follows from the node's number only where
    /// there is no IPv4.
    #[must_use]
    pub fn is_foreign(&self, own: Origin) -> bool {
        let other = |origin: Origin| {
            origin.pods != own.pods || (own.pods.v4.is_none() && origin.number != own.number)
        };
        self.origin.is_some_and(other)
    }
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
    /// Those whose addresses follow from what the node was before, by nonce.
    foreign: BTreeMap<String, Lease>,
    /// Host numbers that were in use before.
    freed: BTreeMap<u16, Timestamp>,
}

impl Leases {
    /// All with addresses of this node, by host number.
    pub fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.by_host.values()
    }

    /// Those with addresses that are this node's no more: what the node was has changed while they were here.
    pub fn foreign(&self) -> impl Iterator<Item = &Lease> {
        self.foreign.values()
    }

    /// How many with addresses of this node there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.by_host.len()
    }

    /// The lease of an attachment.
    #[must_use]
    pub fn get(&self, key: &AttachmentKey) -> Option<&Lease> {
        self.iter().chain(self.foreign()).find(|lease| lease.key == *key)
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

    /// Puts a lease in whose addresses are this node's no more.
    pub fn insert_foreign(&mut self, lease: Lease) {
        self.foreign.insert(lease.nonce.clone(), lease);
    }

    /// Forgets a lease whose addresses are this node's no more.
    pub fn free_foreign(&mut self, nonce: &str) {
        self.foreign.remove(nonce);
    }

    /// Tells leases of this node from others, the node having become another.
    pub fn sort_out(&mut self, own: Origin) {
        let (by_host, foreign) = (std::mem::take(&mut self.by_host), std::mem::take(&mut self.foreign));
        for lease in by_host.into_values().chain(foreign.into_values()) {
            if lease.is_foreign(own) {
                self.foreign.insert(lease.nonce.clone(), lease);
            } else {
                self.by_host.insert(lease.host, lease);
            }
        }
    }

    /// Frees a host number.
    pub fn free(&mut self, host: u16, at: Timestamp) {
        self.by_host.remove(&host);
        self.freed.insert(host, at);
    }
}
