//! Names of maps, and limits, that both sides use.

/// Layout of everything in [`crate::maps`]: (major, minor). The directory of the pins is called `<major>-<minor>`: a BPF
/// file system takes no dots.
///
/// Minor grows when a map is added or a spare field gets a meaning that an older agent can ignore; major when
/// an older agent could not drive the maps.
pub const LAYOUT: (u32, u32) = as_built(1, 1);

/// A version, (major, minor), of something that outlives an agent, as this build has it.
///
/// Tests of up- and downgrades need two releases: an agent built with `HEADWAY_TEST_RELEASE` set to `minor` or
/// `major` takes itself for the next one.
#[must_use]
pub const fn as_built(major: u32, minor: u32) -> (u32, u32) {
    let Some(release) = option_env!("HEADWAY_TEST_RELEASE") else { return (major, minor) };
    match release.as_bytes() {
        b"minor" => (major, minor + 1),
        b"major" => (major + 1, 0),
        _ => panic!("HEADWAY_TEST_RELEASE is neither minor nor major"),
    }
}

/// `SETTINGS`: array of one [`crate::maps::Settings`].
pub const SETTINGS: &str = "SETTINGS";
/// `NETWORKS`: array of [`crate::maps::Network`] by network number.
pub const NETWORKS: &str = "NETWORKS";
/// `ENDPOINTS`: hash, ifindex of the switch-side link -> [`crate::maps::Endpoint`].
pub const ENDPOINTS: &str = "ENDPOINTS";
/// `FDB`: hash, [`crate::maps::FdbKey`] -> [`crate::maps::FdbEntry`], local endpoints only.
pub const FDB: &str = "FDB";
/// `PREFIXES4`: longest-prefix match, [network, IPv4 address] -> node number, own podCIDR included.
pub const PREFIXES4: &str = "PREFIXES4";
/// `PREFIXES6`: longest-prefix match, [network, IPv6 address] -> [`crate::maps::Prefix6`], own podCIDR included.
///
/// The prefixes are those of derived addresses, which differ in the low 16 bits only: the first 112 bits of each podCIDR.
pub const PREFIXES6: &str = "PREFIXES6";
/// `NODES`: hash, node number -> [`crate::maps::Node`], peers only.
pub const NODES: &str = "NODES";
/// `FLOOD_ENDPOINTS`: array, slot -> [`crate::maps::FloodEndpoint`]; an ifindex of 0 is a hole.
pub const FLOOD_ENDPOINTS: &str = "FLOOD_ENDPOINTS";
/// `FLOOD_NODES`: array of node numbers, the first [`crate::maps::Network::flood_nodes`] are valid.
pub const FLOOD_NODES: &str = "FLOOD_NODES";
/// `BUCKETS`: hash, ifindex -> [`crate::maps::Bucket`], the storm limit of an endpoint.
pub const BUCKETS: &str = "BUCKETS";
/// `PATH_MTUS`: LRU hash, node number -> [`crate::maps::PathMtu`], learned from packet-too-big messages.
pub const PATH_MTUS: &str = "PATH_MTUS";
/// `INFRA_BUCKET`: array of one [`crate::maps::Bucket`] for ICMPv6 to the infrastructure address.
pub const INFRA_BUCKET: &str = "INFRA_BUCKET";
/// `CONNECTIONS`: LRU hash, [`crate::maps::FlowKey`] -> [`crate::maps::Flow`], TCP connections that the node routes on behalf of
/// local pods and that have not ended.
pub const CONNECTIONS: &str = "CONNECTIONS";
/// `FLOWS`: the same for all other flows, and for connections that have ended. Apart from the former because these come and go
/// quickly, and would push out connections that are idle.
pub const FLOWS: &str = "FLOWS";
/// `DROPS`: per-CPU array of packet counts by [`crate::counters::DropReason`].
pub const DROPS: &str = "DROPS";
/// `EVENTS`: per-CPU array of packet counts by [`crate::counters::Event`].
pub const EVENTS: &str = "EVENTS";

/// Local endpoints of a node, the gateway included (slot 0). Slots are `0..MAX_ENDPOINTS`.
pub const MAX_ENDPOINTS: u32 = 1024;
/// Peers of a node.
pub const MAX_NODES: u32 = 8192;
/// Pod prefixes in each family.
pub const MAX_PREFIXES: u32 = 8192;
/// Peers that a flooded frame can be copied to.
pub const MAX_FLOOD_NODES: u32 = 256;
/// Size of `CONNECTIONS` where the loader is not told another.
pub const DEFAULT_CONNECTIONS: u32 = 65_536;
/// So many connections share a place in `FLOWS`.
pub const CONNECTIONS_A_FLOW: u32 = 4;
/// Next hops of one route to a peer.
pub const MAX_NEXT_HOPS: usize = 4;
/// Networks are numbered `1..MAX_NETWORKS`.
pub const MAX_NETWORKS: u32 = 2048;
