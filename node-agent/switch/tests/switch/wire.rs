//! The underlay: between two nodes, or between a node and the test itself.

use std::net::Ipv6Addr;

use crate::{
    node::{Node, in_locator},
    packets::{Ip6, Mac, ethernet},
    tap::Tap,
    world::Namespace,
};

/// Function of `End.DT2U` and `End.DT2M` in network 1.
pub const UNICAST: u16 = 0xe004;
/// See [`UNICAST`].
pub const FLOOD: u16 = 0xe005;
/// An Ethernet frame in IPv6.
pub const ETHERNET_IN_IP6: u8 = 143;
/// Outer Ethernet and IPv6 headers.
pub const OUTER: usize = 54;

/// A link from a node to a peer that the test plays.
pub struct Wire {
    /// The peer's end.
    pub tap: Tap,
    /// MAC of the node's end.
    pub near: Mac,
    /// MAC of the peer's end.
    pub far: Mac,
    /// Number of the node.
    pub node: u16,
    /// Number of the peer.
    pub peer: u16,
    _namespace: Namespace,
}

impl Wire {
    /// Connects `node` with peer `peer` by its link `ul0`.
    pub fn new(node: &mut Node, peer: u16) -> Self {
        let namespace = Namespace::new("wire");
        namespace.sysctl(&[("ipv6/conf/default/disable_ipv6", "1")]);
        node.namespace.ip(&format!(
            "link add ul0 mtu 1500 type veth peer name far netns {} mtu 1500\nlink set ul0 up",
            namespace.name
        ));
        node.namespace.run("ethtool", &["-K", "ul0", "tso", "off", "tx", "off", "gro", "on"]);
        namespace.ip("link set far up");
        let (near, far) = (node.namespace.mac("ul0"), namespace.mac("far"));
        node.add_peer(peer, "ul0", far);
        let tap = Tap::new(&namespace, "far");
        Self { tap, near, far, node: node.number, peer, _namespace: namespace }
    }

    /// A frame from the peer to a SID of the node.
    pub fn sent_by_peer(&self, function: u16, inner: &[u8]) -> Vec<u8> {
        self.outer(&self.header(function), inner)
    }

    /// The outer header of [`Wire::sent_by_peer`], to be changed.
    pub fn header(&self, function: u16) -> Ip6 {
        Ip6 {
            source: in_locator(self.peer, 0, 1),
            destination: in_locator(self.node, function, 0),
            next_header: ETHERNET_IN_IP6,
            class: 0,
            hop_limit: 64,
        }
    }

    pub fn outer(&self, header: &Ip6, inner: &[u8]) -> Vec<u8> {
        ethernet(self.near, self.far, crate::packets::IP6, &header.packet(inner))
    }

    /// The next frame that the node sends to a SID with `function` of any node; the whole frame.
    pub fn expect(&self, what: &str, function: u16) -> Vec<u8> {
        self.tap.expect(what, |frame| frame.len() > OUTER && function_of(frame) == function)
    }
}

/// The function in an outer destination.
pub fn function_of(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[44], frame[45]])
}

/// Source and destination of an outer header.
pub fn addresses(frame: &[u8]) -> (Ipv6Addr, Ipv6Addr) {
    let address = |at: usize| <[u8; 16]>::try_from(&frame[at..at + 16]).unwrap().into();
    (address(22), address(38))
}

/// Two nodes, number 1 and 2, on one link, with addresses for their own stacks.
pub fn nodes() -> [Node; 2] {
    let mut nodes = [1, 2].map(Node::new);
    let [a, b] = &nodes;
    a.namespace.ip(&format!(
        "link add ul0 mtu 1500 type veth peer name ul0 netns {} mtu 1500\nlink set ul0 up",
        b.namespace.name
    ));
    b.namespace.ip("link set ul0 up");
    let macs = [a, b].map(|node| node.namespace.mac("ul0"));
    for (node, other) in nodes.iter_mut().zip([1, 0]) {
        node.namespace.sysctl(&[
            ("ipv6/conf/ul0/accept_dad", "0"),
            ("ipv6/conf/ul0/disable_ipv6", "0"),
            ("ipv6/conf/lo/disable_ipv6", "0"),
        ]);
        let (number, peer) = (node.number, other as u16 + 1);
        node.namespace.ip(&format!(
            "addr add fc00::{number}/64 dev ul0 nodad\naddr add {}/128 dev lo nodad
             route add {}/48 via fc00::{peer}",
            in_locator(number, 0, 1),
            in_locator(peer, 0, 0)
        ));
        node.namespace.run("ethtool", &["-K", "ul0", "tso", "off", "tx", "off", "gro", "on"]);
        node.add_peer(peer, "ul0", macs[other]);
    }
    nodes
}
