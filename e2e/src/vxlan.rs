//! What headway is measured against: a bridge a node, joined by VXLAN over the same kind of IPv6 underlay.

use std::net::IpAddr;

use crate::{
    Netns,
    site::Site,
    underlay::{Fabric, Host, Plan, Underlay},
};

/// Outer IPv6, UDP, VXLAN and the inner Ethernet header.
const OVERHEAD: u32 = 40 + 8 + 8 + 14;

/// Two nodes with one pod each.
#[derive(Debug)]
pub struct Vxlan {
    pods: Vec<Netns>,
    _underlay: Underlay,
    _site: Site,
}

impl Vxlan {
    /// Builds it with plain `ip`.
    ///
    /// # Panics
    /// The kernel refuses something.
    #[must_use]
    #[track_caller]
    pub fn start(mtu: u32, checksum_offload: bool) -> Self {
        let site = Site::new();
        let plan = Plan {
            fabric: Fabric::Bridge,
            mtus: vec![mtu; 2],
            uplinks: 1,
            checksum_offload,
            prefixes: Vec::new(),
            block: String::new(),
        };
        let underlay = Underlay::build(&site, &plan);
        let pods =
            underlay.hosts.iter().map(|host| pod(&site, host, 3 - host.number, mtu - OVERHEAD)).collect();
        Self { pods, _underlay: underlay, _site: site }
    }

    /// The pod on the first node and the pod on the second.
    #[must_use]
    pub fn pods(&self) -> (&Netns, &Netns) {
        (&self.pods[0], &self.pods[1])
    }

    /// Address of the pod on the second node.
    #[must_use]
    pub fn address(&self, v6: bool) -> IpAddr {
        let text = if v6 { "fd20::2" } else { "10.2.0.2" };
        text.parse().expect("a literal address")
    }
}

fn pod(site: &Site, host: &Host, peer: u8, mtu: u32) -> Netns {
    let number = host.number;
    let pod = Netns::create(&site.name(&format!("pod{number}")));
    host.netns.ip(&format!(
        "link add vx0 mtu {mtu} type vxlan id 7 local {} remote fc00::{peer} dstport 4789 dev eth0\n\
         link add br0 mtu {mtu} type bridge mcast_snooping 0\n\
         link add p0 mtu {mtu} type veth peer name eth0 mtu {mtu} netns {}\n\
         link set vx0 master br0 up\nlink set p0 master br0 up\nlink set br0 up",
        host.address,
        pod.name()
    ));
    pod.ip(&format!(
        "addr add 10.2.0.{number}/24 dev eth0\naddr add fd20::{number}/64 dev eth0 nodad\nlink set eth0 up"
    ));
    pod
}
