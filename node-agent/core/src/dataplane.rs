//! What the kernel holds of ours, as tables; and the steps that lead from one such state to another.
//!
//! Everything is a table of keys and values, so that "what is there", "what should be there" and the difference
//! between the two need one mechanism. Tables are listed in the order in which they are built up; they are taken
//! down in the reverse order.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    path::PathBuf,
};

use agent_api::MacAddress;
use bpf_common::maps;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

pub use bpf_common::program::Program;

use crate::addr::NodeNumber;

/// A kernel setting below `/proc/sys`, such as `net/ipv6/conf/all/forwarding`.
pub type Sysctl = String;

/// Two ends of a veth pair of the node's own: the gateway link or the segmenter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Name of the far end.
    pub peer: String,
    /// MAC of the near end.
    pub mac: MacAddress,
    /// MTU of both ends, bytes.
    pub mtu: u32,
    /// `tx_extra_headroom` of both ends, bytes; 0 also where the kernel does not have it.
    pub headroom: u32,
    /// The near end must not send super-packets: every segmentation offload is off.
    pub segments: bool,
}

/// What is kept of a pod's link on the node; the plugin has created it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLink {
    /// Interface index.
    pub ifindex: u32,
    /// Administratively up.
    pub up: bool,
    /// Bytes.
    pub mtu: u32,
    /// `tx_extra_headroom`, bytes; 0 also where the kernel does not have it.
    pub headroom: u32,
}

impl From<&Link> for PodLink {
    fn from(link: &Link) -> Self {
        Self { ifindex: link.ifindex, up: link.enabled, mtu: link.mtu, headroom: link.headroom }
    }
}

/// An address of one of our links.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkAddress {
    /// The link.
    pub link: String,
    /// Address with the length of its on-link prefix.
    pub address: IpNet,
    /// The one neighbour behind the link, where there is only one: then the prefix is the neighbour's.
    pub other_end: Option<IpAddr>,
}

/// A route of ours, in the main table with our protocol number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteKey {
    /// Destination.
    pub destination: Ipv6Net,
    /// Metric; never 0, for which the kernel takes 1024.
    pub metric: u32,
}

/// Where a route of ours leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    /// To these next hops.
    Via(Vec<Hop>),
    /// Nowhere, with an error.
    Unreachable,
}

/// A neighbour on an uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hop {
    /// The uplink.
    pub ifindex: u32,
    /// The neighbour's address.
    pub gateway: Ipv6Addr,
}

/// What runs where one of our programs should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// This build's program.
    Current,
    /// Another build's, or nothing any more because the interface is gone.
    Outdated,
}

/// What a table follows from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Configuration, surroundings and peers.
    Node,
    /// Attachments, beside all that. An ADD or DEL changes these tables only, so that it costs the same with 5,000 peers
    /// as with none.
    Attachments,
}

macro_rules! tables {
    ($($(#[$doc:meta])* $table:ident $variant:ident in $scope:ident: $key:ty => $value:ty,)*) => {
        /// All that the kernel holds of ours, or should hold.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Dataplane {
            $($(#[$doc])* pub $table: BTreeMap<$key, $value>,)*
        }

        /// An entry to be there with this value, whether or not it exists.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Entry {
            $($(#[$doc])* $variant($key, $value),)*
        }

        /// An entry to be gone.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Key {
            $($(#[$doc])* $variant($key),)*
        }

        impl Dataplane {
            /// What becomes of this state by a step.
            pub fn apply(&mut self, step: Step) {
                match step {
                    $(Step::Set(Entry::$variant(key, value)) => { self.$table.insert(key, value); })*
                    $(Step::Remove(Key::$variant(key)) => { self.$table.remove(&key); })*
                }
            }
        }

        /// The steps that make `desired` of `actual`: first what is new or different, in the order of the tables,
        /// then what has to go, in the reverse order. Nothing is taken away before its replacement stands.
        #[must_use]
        pub fn plan(actual: &Dataplane, desired: &Dataplane) -> Vec<Step> {
            steps(actual, desired, &[Scope::Node, Scope::Attachments])
        }

        fn steps(actual: &Dataplane, desired: &Dataplane, scopes: &[Scope]) -> Vec<Step> {
            let mut steps = Vec::new();
            let mut removals = Vec::new();
            $(if scopes.contains(&Scope::$scope) {
                let (actual, desired) = (&actual.$table, &desired.$table);
                steps.extend(changed(actual, desired).map(|(key, value)| Step::Set(Entry::$variant(key, value))));
                removals.extend(gone(actual, desired).map(|key| Step::Remove(Key::$variant(key))));
            })*
            steps.extend(removals.into_iter().rev());
            steps
        }
    };
}

/// The steps of [`plan`] that are about attachments: `desired` is what [`crate::desired::attachments`] gives.
#[must_use]
pub fn plan_attachments(actual: &Dataplane, desired: &Dataplane) -> Vec<Step> {
    steps(actual, desired, &[Scope::Attachments])
}

fn changed<'a, K: Ord + Clone, V: PartialEq + Clone>(
    actual: &'a BTreeMap<K, V>,
    desired: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = (K, V)> + 'a {
    desired
        .iter()
        .filter(|(key, value)| actual.get(key) != Some(value))
        .map(|(key, value)| (key.clone(), value.clone()))
}

fn gone<'a, K: Ord + Clone, V>(
    actual: &'a BTreeMap<K, V>,
    desired: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = K> + 'a {
    actual.keys().filter(|key| !desired.contains_key(key)).cloned()
}

/// One change of the kernel's state. Every step may be repeated.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Create or replace.
    Set(Entry),
    /// Remove; that it is gone already is success.
    Remove(Key),
}

tables! {
    /// Veth pairs of the node's own, by the near end's name.
    pairs Pair in Node: String => Pair,
    /// Addresses of our links.
    addresses Address in Node: LinkAddress => (),
    /// Kernel settings. A removal restores nothing: see `cleanup`.
    sysctls Sysctl in Node: Sysctl => String,
    /// Routes.
    routes Route in Node: RouteKey => RouteTarget,
    /// Managed neighbour entries, which the kernel keeps resolved.
    neighbours Neighbour in Node: Hop => (),
    /// Our nftables tables, by family and name, as scripts for `nft -f`.
    firewall Firewall in Node: String => String,
    /// Links of pods. They are mended here, never created; those that belong to no lease are removed.
    pod_links PodLink in Attachments: String => PodLink,
    /// eBPF map: the node's settings.
    settings Settings in Node: () => maps::Settings,
    /// eBPF map: pod prefixes and their nodes, by network number and prefix.
    prefixes4 Prefix4 in Node: (u16, Ipv4Net) => NodeNumber,
    /// eBPF map: the same for IPv6.
    prefixes6 Prefix6 in Node: (u16, Ipv6Net) => maps::Prefix6,
    /// eBPF map: peers and the ways to them.
    nodes Node in Node: NodeNumber => maps::Node,
    /// eBPF map: peers that get flooded frames, by position.
    flood_nodes FloodNode in Node: u32 => NodeNumber,
    /// eBPF map: endpoints, by interface index.
    endpoints Endpoint in Attachments: u32 => maps::Endpoint,
    /// eBPF map: the forwarding database.
    fdb Fdb in Attachments: maps::FdbKey => maps::FdbEntry,
    /// eBPF map: local endpoints that get flooded frames, by slot.
    flood_endpoints FloodEndpoint in Attachments: u32 => maps::FloodEndpoint,
    /// eBPF map: networks, by number.
    networks Network in Attachments: u32 => maps::Network,
    /// Programs attached, by program and interface index.
    attachments Attachment in Attachments: (Program, u32) => Attached,
    /// Files on the node: the CNI configuration.
    files File in Node: PathBuf => String,
}

/// What the node's surroundings are: seen, not made by us.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// When the observation began, milliseconds since the boot.
    pub observed_at: u64,
    /// All links in the node's namespace, by name.
    pub links: BTreeMap<String, Link>,
    /// Next hops of the kernel's route to an address, for each address in [`crate::desired::lookups`] that has one.
    pub routes_to: BTreeMap<Ipv6Addr, Vec<Hop>>,
    /// MACs of neighbours on uplinks.
    pub neighbours: BTreeMap<Hop, MacAddress>,
    /// Current values of the settings in [`crate::sysctls::of_interest`].
    pub sysctls: BTreeMap<Sysctl, String>,
    /// The kernel's number for `IFLA_TX_EXTRA_HEADROOM`, if it has one.
    pub headroom_attribute: Option<u16>,
    /// Forward chains of others whose policy drops, such as `ip filter FORWARD`.
    pub forward_drops: Vec<String>,
    /// Programs of others that see our traffic first, by link.
    pub programs_ahead: BTreeMap<String, Vec<String>>,
}

/// A link of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Interface index.
    pub ifindex: u32,
    /// MAC; zero for links without one.
    pub mac: MacAddress,
    /// Bytes.
    pub mtu: u32,
    /// Administratively up.
    pub enabled: bool,
    /// Administratively up and with carrier.
    pub up: bool,
    /// `tx_extra_headroom`, bytes; 0 also where the kernel does not have it.
    pub headroom: u32,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}
