//! Keys and values of the maps. Sizes are part of [`crate::names::LAYOUT`] and asserted at the end.

use crate::names::MAX_NEXT_HOPS;

/// A MAC address as three 16-bit pieces in network byte order.
pub type Mac = [u16; 3];
/// An IPv6 address as four 32-bit pieces in network byte order.
pub type Ip6 = [u32; 4];

/// What holds for the whole node.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The SID block: the first 32 bits of every SID, network byte order.
    pub block: u32,
    /// This node's number, host byte order.
    pub node: u32,
    /// Interface index of the segmenter's sending side.
    pub segmenter_ifindex: u32,
    /// IPv4 address of the gateway, 0 if the cluster has none.
    pub gateway4: u32,
    /// DSCP of the outer header (0..=63), or [`DSCP_COPY`].
    pub dscp: u32,
    /// IPv6 address of the gateway, zero if the cluster has none.
    pub gateway6: Ip6,
    /// MAC of the gateway (`hw0`).
    pub gateway_mac: Mac,
    /// Zero.
    pub pad: u16,
}
/// [`Settings::dscp`]: the outer header takes the inner packet's DSCP.
pub const DSCP_COPY: u32 = 64;

/// One L2 segment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Bit set of `NETWORK_*`; without [`NETWORK_EXISTS`] its SIDs are unknown.
    pub flags: u32,
    /// One more than the highest slot in use in `FLOOD_ENDPOINTS`.
    pub flood_endpoints: u32,
    /// Entries in `FLOOD_NODES`.
    pub flood_nodes: u32,
    /// BUM frames a second that an endpoint may send in the long run; a burst may be as large.
    pub storm_rate: u32,
}
/// The network exists.
pub const NETWORK_EXISTS: u32 = 1;
/// Broadcast and multicast frames are flooded to local endpoints, and to the peers in `FLOOD_NODES`.
pub const NETWORK_FLOOD: u32 = 2;
/// Unknown unicast is flooded as well.
pub const NETWORK_FLOOD_UNKNOWN: u32 = 4;

/// An attached endpoint, found by the interface on which its frames enter the switch.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Network number.
    pub network: u16,
    /// The endpoint's MAC.
    pub mac: Mac,
    /// Its IPv4 address or 0.
    pub ip4: u32,
    /// Bit set of `ENDPOINT_*`.
    pub flags: u32,
    /// Its IPv6 address or zero. Its link-local address is the EUI-64 of `mac`.
    pub ip6: Ip6,
    /// Whom the node has sent packets to on behalf of the endpoint: [`crate::mac::bit`] of each MAC. Set by the programs only.
    pub services: u64,
}
/// The endpoint is the node itself: it may send from any IP address.
pub const ENDPOINT_GATEWAY: u32 = 1;

/// Key of the forwarding database.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FdbKey {
    /// Network number.
    pub network: u16,
    /// MAC of a local endpoint.
    pub mac: Mac,
}

/// Where a local endpoint is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FdbEntry {
    /// The switch-side link of the endpoint: sending on it reaches the endpoint.
    pub ifindex: u32,
    /// Bit set of `FDB_*`.
    pub flags: u32,
    /// As [`Endpoint::services`]: what arrives from one of those may be an answer. Set by the programs only.
    pub services: u64,
}
/// The endpoint's link has its peer in another network namespace, so `bpf_redirect_peer` may be used.
pub const FDB_PEER: u32 = 1;

/// A flow between a local pod and another endpoint that the node's own stack routes on the pod's behalf.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    /// Address of the other endpoint; an IPv4 address as `::ffff:a.b.c.d`.
    pub backend: Ip6,
    /// Switch-side link of the pod.
    pub client: u32,
    /// The pod's port, network byte order. Both ports are 0 for the fragments between the two, which do not all show them, and
    /// for protocols without ports.
    pub client_port: u16,
    /// The other endpoint's port.
    pub backend_port: u16,
    /// IP protocol.
    pub protocol: u32,
}

/// What is known of a flow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Bit set of `FLOW_*`.
    pub flags: u32,
}
/// The pod has ended its direction of the TCP connection.
pub const FLOW_CLIENT_ENDED: u32 = 1;
/// The other endpoint has ended its direction.
pub const FLOW_BACKEND_ENDED: u32 = 2;

/// What an IPv6 pod prefix says.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix6 {
    /// Number of the node that owns the prefix.
    pub node: u32,
    /// The node's IPv4 podCIDR base (network byte order): the MAC of host `h` is `0a:58` + (base + h).
    /// 0 in a cluster without IPv4: the MAC is `0a:59` + node number + h.
    pub base4: u32,
}

/// One way to a peer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NextHop {
    /// The uplink.
    pub ifindex: u32,
    /// MAC of the uplink.
    pub source: Mac,
    /// MAC of the next hop; zero: not known yet, the kernel has to resolve it.
    pub destination: Mac,
}

/// A peer and how to reach it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The peer's IPv4 podCIDR: base and mask, network byte order; both 0 without IPv4.
    pub base4: u32,
    /// See `base4`.
    pub mask4: u32,
    /// Largest inner IP packet, in bytes, from both ends' link MTUs; a learned path MTU can lower it.
    pub mtu: u32,
    /// Valid entries of `next_hops`; 0: no route, frames are dropped and counted.
    pub next_hop_count: u32,
    /// One of them is chosen by the flow label.
    pub next_hops: [NextHop; MAX_NEXT_HOPS],
}

/// A local endpoint in the flooding list.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FloodEndpoint {
    /// The switch-side link, 0: free slot.
    pub ifindex: u32,
    /// Network number.
    pub network: u32,
}

/// A token bucket. Written by the programs only; the agent creates it zeroed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Time of the last refill, `bpf_ktime_get_ns`; 0: full.
    pub refilled: u64,
    /// Tokens left, in nanoseconds of refill time.
    pub tokens: u64,
}

/// A path MTU learned from a router on the way.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathMtu {
    /// When it stops to hold, `bpf_ktime_get_ns`.
    pub expires: u64,
    /// Largest outer IPv6 packet in bytes, at least 1280.
    pub mtu: u32,
    /// Zero.
    pub pad: u32,
}

const _: () = {
    assert!(size_of::<Settings>() == 44);
    assert!(size_of::<Network>() == 16);
    assert!(size_of::<Endpoint>() == 40);
    assert!(size_of::<FdbKey>() == 8);
    assert!(size_of::<FdbEntry>() == 16);
    assert!(size_of::<FlowKey>() == 28);
    assert!(size_of::<Flow>() == 4);
    assert!(size_of::<Prefix6>() == 8);
    assert!(size_of::<NextHop>() == 16);
    assert!(size_of::<Node>() == 16 + 16 * MAX_NEXT_HOPS);
    assert!(size_of::<FloodEndpoint>() == 8);
    assert!(size_of::<Bucket>() == 16);
    assert!(size_of::<PathMtu>() == 16);
};

#[cfg(feature = "user")]
mod user {
    use super::{
        Bucket, Endpoint, FdbEntry, FdbKey, FloodEndpoint, Network, Node, PathMtu, Prefix6, Settings,
    };

    macro_rules! pod {
        ($($t:ty),*) => {$(
            // SAFETY: repr(C) over integers, without implicit padding (sizes asserted above).
            unsafe impl aya::Pod for $t {}
        )*};
    }
    pod!(Bucket, Endpoint, FdbEntry, FdbKey, FloodEndpoint, Network, Node, PathMtu, Prefix6, Settings);
}
