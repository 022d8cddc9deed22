//! The maps, by the names that `bpf_common::names` gives them.
//!
//! Entries are replaced as a whole and freed after an RCU grace period. A program that reads one while it is being
//! reused may see the state before or after for one frame.

use aya_ebpf::bindings::{
    BPF_F_NO_PREALLOC,
    bpf_map_type::{
        BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_LPM_TRIE, BPF_MAP_TYPE_LRU_HASH,
        BPF_MAP_TYPE_PERCPU_ARRAY,
    },
};
use core::arch::asm;

use bpf_common::{
    counters::{DropReason, Event},
    maps::{
        Bucket, Endpoint, FdbEntry, FdbKey, FloodEndpoint, Flow, FlowKey, Ip6, Mac, NETWORK_EXISTS, Network,
        Node, PathMtu, Prefix6, Settings,
    },
    names::{
        CONNECTIONS_A_FLOW, DEFAULT_CONNECTIONS, MAX_ENDPOINTS, MAX_FLOOD_NODES, MAX_NETWORKS, MAX_NODES,
        MAX_PREFIXES,
    },
};

use crate::map::Map;

/// Declares the maps and how each is read.
macro_rules! maps {
    ($($name:ident: $kind:ident[$entries:expr, $flags:expr] $key:ty => $value:ty, $get:ident;)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(link_section = "maps")]
        static $name: Map = Map::new::<$key, $value>($kind, $entries, $flags);

        #[inline(always)]
        fn $get(key: &$key) -> Option<*mut $value> {
            // SAFETY: the types are those of the declaration.
            unsafe { $name.get(key) }
        }
    )*};
}

/// Key of a longest-prefix table: bits that count, network number, address.
type Prefix<const WORDS: usize> = [u32; WORDS];

maps! {
    SETTINGS: BPF_MAP_TYPE_ARRAY[1, 0] u32 => Settings, settings_at;
    NETWORKS: BPF_MAP_TYPE_ARRAY[MAX_NETWORKS, 0] u32 => Network, network_at;
    ENDPOINTS: BPF_MAP_TYPE_HASH[MAX_ENDPOINTS, 0] u32 => Endpoint, endpoint_at;
    FDB: BPF_MAP_TYPE_HASH[MAX_ENDPOINTS, 0] FdbKey => FdbEntry, fdb_at;
    PREFIXES4: BPF_MAP_TYPE_LPM_TRIE[MAX_PREFIXES, BPF_F_NO_PREALLOC] Prefix<3> => u32, prefix4_at;
    PREFIXES6: BPF_MAP_TYPE_LPM_TRIE[MAX_PREFIXES, BPF_F_NO_PREALLOC] Prefix<6> => Prefix6, prefix6_at;
    NODES: BPF_MAP_TYPE_HASH[MAX_NODES, 0] u32 => Node, node_at;
    FLOOD_ENDPOINTS: BPF_MAP_TYPE_ARRAY[MAX_ENDPOINTS, 0] u32 => FloodEndpoint, flood_endpoint_at;
    FLOOD_NODES: BPF_MAP_TYPE_ARRAY[MAX_FLOOD_NODES, 0] u32 => u32, flood_node_at;
    BUCKETS: BPF_MAP_TYPE_HASH[MAX_ENDPOINTS, 0] u32 => Bucket, bucket_at;
    PATH_MTUS: BPF_MAP_TYPE_LRU_HASH[MAX_NODES, 0] u32 => PathMtu, path_mtu_at;
    INFRA_BUCKET: BPF_MAP_TYPE_ARRAY[1, 0] u32 => Bucket, infra_bucket_at;
    CONNECTIONS: BPF_MAP_TYPE_LRU_HASH[DEFAULT_CONNECTIONS, 0] FlowKey => Flow, connection_at;
    FLOWS: BPF_MAP_TYPE_LRU_HASH[DEFAULT_CONNECTIONS / CONNECTIONS_A_FLOW, 0] FlowKey => Flow, flow_at;
    DROPS: BPF_MAP_TYPE_PERCPU_ARRAY[DropReason::ALL.len() as u32, 0] u32 => u64, drops_at;
    EVENTS: BPF_MAP_TYPE_PERCPU_ARRAY[Event::ALL.len() as u32, 0] u32 => u64, events_at;
}

/// Reads an entry in place.
#[inline(always)]
fn read<V>(entry: Option<*mut V>) -> Option<&'static V> {
    // SAFETY: map memory lives as long as the program runs; see the module for concurrent writes.
    entry.map(|entry| unsafe { &*entry })
}

/// The settings; None until the agent has written them (node numbers start at 1).
#[inline(always)]
pub fn settings() -> Option<&'static Settings> {
    read(settings_at(&0)).filter(|settings| settings.node != 0)
}

/// The network with that number, if it exists.
#[inline(always)]
pub fn network(number: u32) -> Option<&'static Network> {
    read(network_at(&number)).filter(|network| network.flags & NETWORK_EXISTS != 0)
}

/// The endpoint whose switch-side link is `ifindex`.
#[inline(always)]
pub fn endpoint(ifindex: u32) -> Option<&'static Endpoint> {
    read(endpoint_at(&ifindex))
}

/// Where the local endpoint with `mac` is.
#[inline(always)]
pub fn local(network: u32, mac: Mac) -> Option<&'static FdbEntry> {
    read(fdb_at(&FdbKey { network: network as u16, mac }))
}

/// The number of the node in whose pod prefix `ip` lies; 0: none.
#[inline(always)]
pub fn prefix4(network: u32, ip: u32) -> u32 {
    read(prefix4_at(&[64, network, ip])).map_or(0, |node| *node)
}

/// The pod prefix in which `ip` lies.
#[inline(always)]
pub fn prefix6(network: u32, ip: &Ip6) -> Option<Prefix6> {
    read(prefix6_at(&[160, network, ip[0], ip[1], ip[2], ip[3]])).copied()
}

/// A peer by its node number.
#[inline(always)]
pub fn node(number: u32) -> Option<&'static Node> {
    read(node_at(&number))
}

/// A slot of the flooding list; None beyond its end.
#[inline(always)]
pub fn flood_endpoint(slot: u32) -> Option<&'static FloodEndpoint> {
    read(flood_endpoint_at(&slot))
}

/// The number of the `index`-th peer to flood to; None beyond the end.
#[inline(always)]
pub fn flood_node(index: u32) -> Option<u32> {
    read(flood_node_at(&index)).copied()
}

/// The storm bucket of an endpoint.
#[inline(always)]
pub fn bucket(ifindex: u32) -> Option<*mut Bucket> {
    bucket_at(&ifindex)
}

/// The bucket for ICMPv6 to the infrastructure address.
#[inline(always)]
pub fn infra_bucket() -> Option<*mut Bucket> {
    infra_bucket_at(&0)
}

/// The path MTU learned for a peer.
#[inline(always)]
pub fn path_mtu(node: u32) -> Option<&'static PathMtu> {
    read(path_mtu_at(&node))
}

/// Remembers a path MTU; whether there was memory for it.
#[inline(always)]
pub fn set_path_mtu(node: u32, path_mtu: &PathMtu) -> bool {
    // SAFETY: the types are those of the declaration.
    unsafe { PATH_MTUS.set(&node, path_mtu) }
}

/// Adds a bit to [`FdbEntry::services`] and [`Endpoint::services`] of a local endpoint.
#[inline(always)]
pub fn add_service(network: u32, mac: Mac, bit: u64) {
    let Some(entry) = fdb_at(&FdbKey { network: network as u16, mac }) else { return };
    // SAFETY: as in `read`. Nobody but the programs changes an entry in place.
    let ifindex = unsafe {
        add_bit(&raw mut (*entry).services, bit);
        (*entry).ifindex
    };
    if let Some(endpoint) = endpoint_at(&ifindex) {
        // SAFETY: the same.
        unsafe { add_bit(&raw mut (*endpoint).services, bit) };
    }
}

/// Atomic: CPUs add different bits. `AtomicU64` cannot do that on this target.
///
/// # Safety
/// `bits` points into a value of a map.
#[inline(always)]
unsafe fn add_bit(bits: *mut u64, bit: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("lock *(u64 *)({0} + 0) |= {1}", in(reg) bits, in(reg) bit, options(nostack)) }
}

/// A live TCP connection that the node routes for a pod. Looking keeps it from being the next to be forgotten.
#[inline(always)]
pub fn connection(key: &FlowKey) -> Option<*mut Flow> {
    connection_at(key)
}

/// Remembers a connection; whether there was memory for it.
#[inline(always)]
pub fn set_connection(key: &FlowKey, flow: &Flow) -> bool {
    // SAFETY: the types are those of the declaration.
    unsafe { CONNECTIONS.set(key, flow) }
}

/// Forgets a connection.
#[inline(always)]
pub fn remove_connection(key: &FlowKey) {
    // SAFETY: the type is that of the declaration.
    unsafe { CONNECTIONS.remove(key) };
}

/// Whether a flow that is no live connection is remembered. Looking keeps it from being the next to be forgotten.
#[inline(always)]
pub fn has_flow(key: &FlowKey) -> bool {
    flow_at(key).is_some()
}

/// Remembers a flow; whether there was memory for it.
#[inline(always)]
pub fn set_flow(key: &FlowKey, flow: &Flow) -> bool {
    // SAFETY: the types are those of the declaration.
    unsafe { FLOWS.set(key, flow) }
}

/// Forgets a flow.
#[inline(always)]
pub fn remove_flow(key: &FlowKey) {
    // SAFETY: the type is that of the declaration.
    unsafe { FLOWS.remove(key) };
}

/// The counter of a drop reason.
#[inline(always)]
pub fn drops(reason: DropReason) -> Option<*mut u64> {
    drops_at(&(reason as u32))
}

/// The counter of an event.
#[inline(always)]
pub fn events(event: Event) -> Option<*mut u64> {
    events_at(&(event as u32))
}
