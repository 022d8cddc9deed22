//! The IPv6 network between nodes: namespaces with NIC-like uplinks, joined by a bridge or a router.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Netns, netns::succeed, site::Site};

/// How nodes are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fabric {
    /// All on one link: peers are on-link.
    Bridge,
    /// Each on a link of its own: the next hop is a router.
    Router,
}

/// What to build.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How nodes are joined.
    pub fabric: Fabric,
    /// MTU of each host's uplinks, bytes; as many as there are hosts.
    pub mtus: Vec<u32>,
    /// Uplinks of each host.
    pub uplinks: u8,
    /// May checksums stay uncomputed on the wire (as veth allows)? If not, who sends computes them in software
    /// and who receives verifies them.
    pub checksum_offload: bool,
    /// In a routed fabric: routes that let the router and the hosts reach these prefixes, one a host.
    pub prefixes: Vec<String>,
    /// In a routed fabric: what hosts reach through the router beside the links.
    pub block: String,
}

/// A host on the underlay.
#[derive(Debug)]
pub struct Host {
    /// 1..
    pub number: u8,
    /// Its namespace.
    pub netns: Netns,
    /// `eth0`, `eth1`, …
    pub uplinks: Vec<String>,
    /// Its address on `eth0`.
    pub address: Ipv6Addr,
    /// Its IPv4 address on `eth0`.
    pub address4: Ipv4Addr,
}

/// The network.
#[derive(Debug)]
pub struct Underlay {
    /// The bridge or the router; also stands for "the outside".
    pub fabric: Netns,
    /// The hosts, in order.
    pub hosts: Vec<Host>,
}

impl Underlay {
    /// Builds it.
    ///
    /// # Panics
    /// The kernel refuses something.
    #[must_use]
    #[track_caller]
    pub fn build(site: &Site, plan: &Plan) -> Self {
        let fabric = Netns::create(&site.name("net"));
        fabric.sysctl("net/ipv6/conf/default/accept_dad", "0");
        fabric.sysctl("net/ipv6/conf/all/forwarding", "1");
        fabric.sysctl("net/ipv4/ip_forward", "1");
        if plan.fabric == Fabric::Bridge {
            let mtu = plan.mtus.iter().max().copied().unwrap_or(1500);
            for uplink in 0..plan.uplinks {
                let (four, six) = (outside4(uplink), outside(uplink));
                fabric.ip(&format!(
                    "link add br{uplink} type bridge mcast_snooping 0\nlink set br{uplink} mtu {mtu} up\n\
                     addr add {four}/24 dev br{uplink}\naddr add {six}/64 dev br{uplink} nodad"
                ));
            }
        }
        let hosts =
            (1..).zip(&plan.mtus).map(|(number, mtu)| host(site, plan, &fabric, number, *mtu)).collect();
        Self { fabric, hosts }
    }

    /// The address of the outside that a host reaches (on its own link or by the bridge), IPv6.
    #[must_use]
    pub fn outside(&self) -> IpAddr {
        outside(0).into()
    }

    /// The same, IPv4.
    #[must_use]
    pub fn outside4(&self) -> IpAddr {
        outside4(0).into()
    }

    /// Sets the MTU of the fabric's link towards a host, so that only the middle of the way gets narrower.
    #[track_caller]
    pub fn narrow(&self, host: u8, mtu: u32) {
        self.fabric.run(&format!("ip link set {} mtu {mtu}", port(host, 0)));
    }
}

/// The fabric's link towards a host.
#[must_use]
pub fn port(host: u8, uplink: u8) -> String {
    format!("h{host}u{uplink}")
}

fn outside(uplink: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfc00, uplink.into(), 0, 0, 0, 0, 0, 0xff)
}

fn outside4(uplink: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 10 + uplink, 254)
}

fn host(site: &Site, plan: &Plan, fabric: &Netns, number: u8, mtu: u32) -> Host {
    let letter = char::from(b'a' + number - 1);
    let netns = Netns::create(&site.name(&letter.to_string()));
    let uplinks: Vec<String> = (0..plan.uplinks).map(|uplink| format!("eth{uplink}")).collect();
    for uplink in 0..plan.uplinks {
        link(fabric, &netns, plan, (number, uplink), mtu);
    }
    let routed = plan.fabric == Fabric::Router;
    if routed {
        routes(fabric, &netns, plan, number);
    } else {
        let (four, six) = (outside4(0), outside(0));
        netns.ip(&format!("route add default via {four}\nroute add ::/0 via {six}"));
    }
    let address = if routed { routed_address(number, 0, 2) } else { bridged_address(number, 0) };
    let address4 = if routed { routed_address4(number, 0, 2) } else { Ipv4Addr::new(192, 168, 10, number) };
    Host { number, netns, uplinks, address, address4 }
}

fn bridged_address(host: u8, uplink: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfc00, uplink.into(), 0, 0, 0, 0, 0, host.into())
}

fn routed_address(host: u8, uplink: u8, end: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfc00, uplink.into(), 1, host.into(), 0, 0, 0, end)
}

fn routed_address4(host: u8, uplink: u8, end: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 100 + 10 * uplink + host, end)
}

/// One uplink: a veth pair that behaves like a NIC and its cable.
fn link(fabric: &Netns, node: &Netns, plan: &Plan, (host, uplink): (u8, u8), mtu: u32) {
    let (eth, port) = (format!("eth{uplink}"), port(host, uplink));
    node.ip(&format!(
        "link add {eth} mtu {mtu} address 02:68:77:{uplink:02x}:{host:02x}:01 type veth \
         peer name {port} mtu {mtu} address 02:68:77:{uplink:02x}:{host:02x}:02 netns {}",
        fabric.name()
    ));
    nic_like(node, &eth, plan.checksum_offload);
    nic_like(fabric, &port, plan.checksum_offload);
    ethtool(node, &format!("-K {eth} gro on"));
    node.sysctl(&format!("net/ipv6/conf/{eth}/accept_dad"), "0");
    let (addresses, at_port) = match plan.fabric {
        Fabric::Bridge => {
            let (four, six) = (Ipv4Addr::new(192, 168, 10 + uplink, host), bridged_address(host, uplink));
            let addresses = format!("addr add {four}/24 dev {eth}\naddr add {six}/64 dev {eth} nodad");
            (addresses, format!("link set {port} master br{uplink}"))
        }
        Fabric::Router => {
            let [node4, port4] = [2, 1].map(|end| routed_address4(host, uplink, end));
            let [node6, port6] = [2, 1].map(|end| routed_address(host, uplink, end));
            let addresses = format!("addr add {node4}/24 dev {eth}\naddr add {node6}/64 dev {eth} nodad");
            (addresses, format!("addr add {port4}/24 dev {port}\naddr add {port6}/64 dev {port} nodad"))
        }
    };
    fabric.ip(&format!("{at_port}\nlink set {port} up"));
    node.ip(&format!("{addresses}\nlink set {eth} up"));
}

/// Routes through the router, over all uplinks of the host.
fn routes(fabric: &Netns, node: &Netns, plan: &Plan, host: u8) {
    let hops = |end: u16, name: &dyn Fn(u8) -> String| -> String {
        let hop = |uplink| format!(" nexthop via {} dev {}", routed_address(host, uplink, end), name(uplink));
        (0..plan.uplinks).map(hop).collect()
    };
    let up = hops(1, &|uplink| format!("eth{uplink}"));
    node.ip(&format!(
        "route add ::/0{up}\nroute add {}{up}\nroute add default via {}",
        plan.block,
        routed_address4(host, 0, 1)
    ));
    if let Some(prefix) = plan.prefixes.get(usize::from(host) - 1) {
        fabric.ip(&format!("route add {prefix}{}", hops(2, &|uplink| port(host, uplink))));
    }
}

/// veth passes super-packets whole, never computes checksums and hides offload bugs: make it cut and compute.
fn nic_like(netns: &Netns, link: &str, checksum_offload: bool) {
    let checksums = if checksum_offload { "" } else { "tx off" };
    ethtool(
        netns,
        &format!(
            "-K {link} {checksums} tso off tx-udp-segmentation off tx-udp_tnl-segmentation off \
             tx-udp_tnl-csum-segmentation off tx-gre-segmentation off tx-gre-csum-segmentation off \
             tx-ipxip4-segmentation off tx-ipxip6-segmentation off tx-sctp-segmentation off tx-gso-list off"
        ),
    );
}

fn ethtool(netns: &Netns, arguments: &str) {
    succeed(netns.command("ethtool").args(arguments.split_whitespace()), None);
}
