//! The maps, pinned by the names that `bpf_common::names` gives them.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray, lpm_trie::Key},
};
use bpf_common::{
    counters::{DropReason, Event},
    maps::{
        Bucket, Endpoint, FdbEntry, FdbKey, FloodEndpoint, Ip6, Mac, NETWORK_EXISTS, Network, Node, PathMtu,
        Prefix6, Settings,
    },
    names::{MAX_ENDPOINTS, MAX_FLOOD_NODES, MAX_NETWORKS, MAX_NODES, MAX_PREFIXES},
};

#[map]
static SETTINGS: Array<Settings> = Array::pinned(1, 0);
#[map]
static NETWORKS: Array<Network> = Array::pinned(MAX_NETWORKS, 0);
#[map]
static ENDPOINTS: HashMap<u32, Endpoint> = HashMap::pinned(MAX_ENDPOINTS, 0);
#[map]
static FDB: HashMap<FdbKey, FdbEntry> = HashMap::pinned(MAX_ENDPOINTS, 0);
#[map]
static PREFIXES4: LpmTrie<[u32; 2], u32> = LpmTrie::pinned(MAX_PREFIXES, 0);
#[map]
static PREFIXES6: LpmTrie<[u32; 5], Prefix6> = LpmTrie::pinned(MAX_PREFIXES, 0);
#[map]
static NODES: HashMap<u32, Node> = HashMap::pinned(MAX_NODES, 0);
#[map]
static FLOOD_ENDPOINTS: Array<FloodEndpoint> = Array::pinned(MAX_ENDPOINTS, 0);
#[map]
static FLOOD_NODES: Array<u32> = Array::pinned(MAX_FLOOD_NODES, 0);
#[map]
static BUCKETS: HashMap<u32, Bucket> = HashMap::pinned(MAX_ENDPOINTS, 0);
#[map]
static PATH_MTUS: LruHashMap<u32, PathMtu> = LruHashMap::pinned(MAX_NODES, 0);
#[map]
static INFRA_BUCKET: Array<Bucket> = Array::pinned(1, 0);
#[map]
static DROPS: PerCpuArray<u64> = PerCpuArray::pinned(DropReason::ALL.len() as u32, 0);
#[map]
static EVENTS: PerCpuArray<u64> = PerCpuArray::pinned(Event::ALL.len() as u32, 0);

/// The settings; None until the agent has written them (node numbers start at 1).
#[inline(always)]
pub fn settings() -> Option<&'static Settings> {
    SETTINGS.get(0).filter(|settings| settings.node != 0)
}

/// The network with that number, if it exists.
#[inline(always)]
pub fn network(number: u32) -> Option<&'static Network> {
    NETWORKS.get(number).filter(|network| network.flags & NETWORK_EXISTS != 0)
}

/// The endpoint whose switch-side link is `ifindex`.
#[inline(always)]
pub fn endpoint(ifindex: u32) -> Option<&'static Endpoint> {
    // SAFETY: entries are replaced as a whole and freed after an RCU grace period; a torn read of an entry that is
    // being reused shows one frame the state before or after it.
    unsafe { ENDPOINTS.get(ifindex) }
}

/// Where the local endpoint with `mac` is.
#[inline(always)]
pub fn local(network: u32, mac: Mac) -> Option<&'static FdbEntry> {
    // SAFETY: as for `endpoint`.
    unsafe { FDB.get(FdbKey { network: network as u16, mac }) }
}

/// The number of the node in whose pod prefix `ip` lies; 0: none.
#[inline(always)]
pub fn prefix4(network: u32, ip: u32) -> u32 {
    PREFIXES4.get(Key::new(64, [network, ip])).map_or(0, |node| *node)
}

/// The pod prefix in which `ip` lies.
#[inline(always)]
pub fn prefix6(network: u32, ip: &Ip6) -> Option<Prefix6> {
    PREFIXES6.get(Key::new(160, [network, ip[0], ip[1], ip[2], ip[3]])).copied()
}

/// A peer by its node number.
#[inline(always)]
pub fn node(number: u32) -> Option<&'static Node> {
    // SAFETY: as for `endpoint`.
    unsafe { NODES.get(number) }
}

/// The slot of the flooding list; None beyond its end.
#[inline(always)]
pub fn flood_endpoint(slot: u32) -> Option<&'static FloodEndpoint> {
    FLOOD_ENDPOINTS.get(slot)
}

/// The number of the `index`-th peer to flood to; None beyond the end.
#[inline(always)]
pub fn flood_node(index: u32) -> Option<u32> {
    FLOOD_NODES.get(index).copied()
}

/// The storm bucket of an endpoint.
#[inline(always)]
pub fn bucket(ifindex: u32) -> Option<*mut Bucket> {
    BUCKETS.get_ptr_mut(ifindex)
}

/// The bucket for ICMPv6 to the infrastructure address.
#[inline(always)]
pub fn infra_bucket() -> Option<*mut Bucket> {
    INFRA_BUCKET.get_ptr_mut(0)
}

/// The path MTU learned for a peer.
#[inline(always)]
pub fn path_mtu(node: u32) -> Option<&'static PathMtu> {
    // SAFETY: as for `endpoint`.
    unsafe { PATH_MTUS.get(node) }
}

/// Remembers a path MTU; whether there was memory for it.
#[inline(always)]
pub fn set_path_mtu(node: u32, path_mtu: PathMtu) -> bool {
    PATH_MTUS.insert(node, path_mtu, 0).is_ok()
}

/// The counter of a drop reason.
#[inline(always)]
pub fn drops(reason: DropReason) -> Option<*mut u64> {
    DROPS.get_ptr_mut(reason as u32)
}

/// The counter of an event.
#[inline(always)]
pub fn events(event: Event) -> Option<*mut u64> {
    EVENTS.get_ptr_mut(event as u32)
}
