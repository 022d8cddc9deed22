//! A pod: a namespace behind a veth pair.

use crate::{
    node::{MTU, address4, address6, mac},
    packets::Mac,
    tap::Tap,
    world::Namespace,
};

/// A pod. Its stack keeps quiet until [`Pod::wake`].
pub struct Pod {
    pub namespace: Namespace,
    /// On eth0, seen from inside.
    pub tap: Tap,
    /// Interface index of the host end.
    pub ifindex: u32,
    pub node: u16,
    pub host: u16,
}

impl Pod {
    pub fn new(node: &Namespace, number: u16, host: u16) -> Self {
        let namespace = Namespace::new(&format!("p{number}.{host}"));
        namespace.sysctl(&[
            ("ipv6/conf/all/disable_ipv6", "1"),
            ("ipv6/conf/default/disable_ipv6", "1"),
            ("ipv6/conf/default/router_solicitations", "0"),
            ("ipv6/conf/default/addr_gen_mode", "0"),
        ]);
        let link = format!("hw{host}");
        let address = mac(number, host).map(|octet| format!("{octet:02x}")).join(":");
        node.ip(&format!(
            "link add {link} mtu {MTU} type veth peer name eth0 mtu {MTU} address {address} netns {}
             link set {link} up",
            namespace.name
        ));
        namespace.ip("link set eth0 arp off\nlink set eth0 up");
        let tap = Tap::new(&namespace, "eth0");
        let ifindex = node.ifindex(&link);
        Self { namespace, tap, ifindex, node: number, host }
    }

    /// Gives the pod's stack its addresses and routes. The whole cluster is on-link, as for real pods.
    pub fn wake(&self) {
        self.namespace.sysctl(&[
            ("ipv6/conf/all/disable_ipv6", "0"),
            ("ipv6/conf/eth0/disable_ipv6", "0"),
            ("ipv6/conf/eth0/accept_ra", "0"),
        ]);
        let (ip4, ip6) = (address4(self.node, self.host), address6(self.node, self.host));
        self.namespace.ip(&format!(
            "link set eth0 arp on\naddr add {ip4}/16 dev eth0\naddr add {ip6}/48 dev eth0 nodad"
        ));
    }

    pub fn mac(&self) -> Mac {
        mac(self.node, self.host)
    }
}
