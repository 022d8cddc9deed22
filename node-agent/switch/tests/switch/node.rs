//! A node: its namespace, its switch, and what the agent would have set up around it.

use std::{
    fs,
    net::{Ipv4Addr, Ipv6Addr},
    path::PathBuf,
};

use agent_switch::{Counters, Program, Switch, Table};
use bpf_common::{
    counters::{DropReason, Event},
    maps::{
        self, DSCP_COPY, ENDPOINT_GATEWAY, Endpoint, FDB_PEER, FdbEntry, FdbKey, FloodEndpoint,
        NETWORK_EXISTS, NETWORK_FLOOD, Network, NextHop, Prefix6, Settings,
    },
    names::MAX_NEXT_HOPS,
};

use crate::{
    packets::Mac,
    pod::Pod,
    tap::Tap,
    world::{Namespace, unique, wait_for},
};

/// MTU of pods on an underlay of 1500 bytes.
pub const MTU: u32 = 1446;
/// The one network.
pub const NETWORK: u16 = 1;
const STORM_RATE: u32 = 1000;
/// Connections that a node remembers on behalf of its pods.
pub const CONNECTIONS: u32 = 1024;

/// The SID block.
pub fn block() -> u32 {
    u32::from_ne_bytes([0x5f, 0, 0, 0xaa])
}

/// An address in the locator of a node: function and low half.
pub fn in_locator(node: u16, function: u16, low: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x5f00, 0xaa, node, function, 0, 0, 0, low)
}

/// IPv4 address of host `host` on `node`.
pub fn address4(node: u16, host: u16) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, node as u8, host as u8)
}

/// IPv6 address of host `host` on `node`.
pub fn address6(node: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd10, 0, 0, node, 0, 0, 0, host)
}

/// MAC of host `host` on `node`.
pub fn mac(node: u16, host: u16) -> Mac {
    let [a, b, c, d] = address4(node, host).octets();
    [0x0a, 0x58, a, b, c, d]
}

/// Link-local address of host `host` on `node`.
pub fn link_local(node: u16, host: u16) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac(node, host).map(u16::from);
    Ipv6Addr::new(0xfe80, 0, 0, 0, (a ^ 2) << 8 | b, c << 8 | 0xff, 0xfe00 | d, e << 8 | f)
}

pub fn key_mac(mac: Mac) -> maps::Mac {
    [0, 2, 4].map(|i| u16::from_ne_bytes([mac[i], mac[i + 1]]))
}

pub fn key4(ip: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(ip.octets())
}

pub fn key6(ip: Ipv6Addr) -> maps::Ip6 {
    let octets = ip.octets();
    std::array::from_fn(|i| u32::from_ne_bytes(octets[4 * i..4 * i + 4].try_into().unwrap()))
}

/// A place on a BPF file system, taken down when dropped.
pub struct BpfDir(pub PathBuf);

impl BpfDir {
    pub fn new() -> Self {
        let dir = std::env::temp_dir().join(unique("bpf"));
        agent_switch::mount(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for BpfDir {
    fn drop(&mut self) {
        let unmounted = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
        if let Err(error) = unmounted.map_err(std::io::Error::from).and_then(|()| fs::remove_dir(&self.0)) {
            eprintln!("removing {}: {error}", self.0.display());
        }
    }
}

/// A node with its gateway and its segmenter, knowing nodes 1 to 3 by their prefixes.
pub struct Node {
    pub switch: Switch,
    pub namespace: Namespace,
    pub number: u16,
    /// On hw0: the node's own stack.
    pub gateway: Tap,
    pub dir: BpfDir,
    slots: u32,
}

impl Node {
    pub fn new(number: u16) -> Self {
        let namespace = Namespace::new(&format!("n{number}"));
        namespace.sysctl(&[("ipv6/conf/default/disable_ipv6", "1")]);
        let hw0 = mac(number, 1).map(|octet| format!("{octet:02x}")).join(":");
        namespace.ip(&format!(
            "link add hw0 address {hw0} mtu {MTU} type veth peer name hw0p mtu {MTU}
             link add hws0 mtu {MTU} type veth peer name hws1 mtu {MTU}
             link set hw0p up\nlink set hw0 arp off\nlink set hw0 up\nlink set hws0 up\nlink set hws1 up"
        ));
        let features = [
            "tso",
            "tx-udp-segmentation",
            "tx-udp_tnl-segmentation",
            "tx-udp_tnl-csum-segmentation",
            "tx-gre-segmentation",
            "tx-gre-csum-segmentation",
            "tx-ipxip4-segmentation",
            "tx-ipxip6-segmentation",
            "tx-sctp-segmentation",
            "tx-gso-list",
            "tx-gso-partial",
        ];
        let off: Vec<_> = features.iter().flat_map(|feature| [*feature, "off"]).collect();
        namespace.run("ethtool", &[&["-K", "hws0"], off.as_slice()].concat());
        let dir = BpfDir::new();
        let switch = Switch::open(&dir.0, CONNECTIONS).unwrap();
        let gateway = Tap::new(&namespace, "hw0");
        let mut node = Self { switch, namespace, number, gateway, dir, slots: 0 };
        node.fill();
        node
    }

    fn fill(&mut self) {
        let number = self.number;
        let settings = Settings {
            block: block(),
            node: number.into(),
            segmenter_ifindex: self.namespace.ifindex("hws0"),
            gateway4: key4(address4(number, 1)),
            dscp: DSCP_COPY,
            gateway6: key6(address6(number, 1)),
            gateway_mac: key_mac(mac(number, 1)),
            pad: 0,
        };
        self.switch.settings().set(0, settings).unwrap();
        for peer in 1..=3 {
            let net4 = ipnet::Ipv4Net::new(address4(peer, 0), 24).unwrap();
            let net6 = ipnet::Ipv6Net::new(address6(peer, 0), 112).unwrap();
            let prefix6 = Prefix6 { node: peer.into(), base4: key4(address4(peer, 0)) };
            self.switch.prefixes4().set((NETWORK, net4), peer.into()).unwrap();
            self.switch.prefixes6().set((NETWORK, net6), prefix6).unwrap();
        }
        self.connect(self.namespace.ifindex("hw0p"), 1, ENDPOINT_GATEWAY, 0);
        let segment = self.namespace.ifindex("hws1");
        self.attach(Program::Segment, segment);
    }

    pub fn attach(&mut self, program: Program, ifindex: u32) {
        let switch = &mut self.switch;
        self.namespace.enter(|| switch.attach(program, ifindex)).unwrap();
    }

    /// Makes host `host` an endpoint on the switch-side link `ifindex`.
    pub fn connect(&mut self, ifindex: u32, host: u16, flags: u32, fdb_flags: u32) {
        let own = key_mac(mac(self.number, host));
        let endpoint = Endpoint {
            network: NETWORK,
            mac: own,
            ip4: key4(address4(self.number, host)),
            flags,
            ip6: key6(address6(self.number, host)),
            services: 0,
        };
        self.switch.endpoints().set(ifindex, endpoint).unwrap();
        let key = FdbKey { network: NETWORK, mac: own };
        self.switch.fdb().set(key, FdbEntry { ifindex, flags: fdb_flags, services: 0 }).unwrap();
        let slot = FloodEndpoint { ifindex, network: NETWORK.into() };
        self.switch.flood_endpoints().set(self.slots, slot).unwrap();
        self.slots += 1;
        self.set_network(|_| ());
        self.attach(Program::Endpoint, ifindex);
    }

    /// Changes the network's settings, which flood by default.
    pub fn set_network(&mut self, change: impl FnOnce(&mut Network)) {
        let slots = self.slots;
        let known = self.switch.networks().list().unwrap().remove(&NETWORK.into());
        let mut network = known.unwrap_or(Network {
            flags: NETWORK_EXISTS | NETWORK_FLOOD,
            flood_endpoints: 0,
            flood_nodes: 0,
            storm_rate: STORM_RATE,
        });
        network.flood_endpoints = slots;
        change(&mut network);
        self.switch.networks().set(NETWORK.into(), network).unwrap();
    }

    /// Makes node `number` a peer behind the uplink `link`, and floods to it.
    pub fn add_peer(&mut self, number: u16, link: &str, next_hop: Mac) {
        let hop = NextHop {
            ifindex: self.namespace.ifindex(link),
            source: key_mac(self.namespace.mac(link)),
            destination: key_mac(next_hop),
        };
        let mut next_hops = [NextHop::default(); MAX_NEXT_HOPS];
        next_hops[0] = hop;
        let node = maps::Node {
            base4: key4(address4(number, 0)),
            mask4: u32::from_ne_bytes([255, 255, 255, 0]),
            mtu: MTU,
            next_hop_count: 1,
            next_hops,
        };
        self.switch.nodes().set(number.into(), node).unwrap();
        let at = u32::try_from(self.switch.flood_nodes().list().unwrap().len()).unwrap();
        self.switch.flood_nodes().set(at, number.into()).unwrap();
        self.set_network(|network| network.flood_nodes = at + 1);
        self.attach(Program::Uplink, hop.ifindex);
    }

    /// Attaches a pod.
    pub fn add_pod(&mut self, host: u16) -> Pod {
        let pod = Pod::new(&self.namespace, self.number, host);
        self.connect(pod.ifindex, host, 0, FDB_PEER);
        pod
    }

    pub fn counters(&self) -> Counters {
        self.switch.counters().unwrap()
    }

    pub fn drops(&self, reason: DropReason) -> u64 {
        self.counters().drops[&reason]
    }

    pub fn events(&self, event: Event) -> u64 {
        self.counters().events[&event]
    }

    /// Does `work`, waits for a drop and tells its reason; panics if there are several.
    pub fn drop_by(&self, what: &str, work: impl FnOnce()) -> DropReason {
        let before = self.counters().drops;
        work();
        let after = wait_for(&format!("a drop: {what}"), || {
            Some(self.counters().drops).filter(|after| *after != before)
        });
        let changed: Vec<_> = after.into_iter().filter(|(reason, count)| before[reason] != *count).collect();
        assert_eq!(changed.len(), 1, "{what}: {changed:?}");
        let (reason, count) = changed[0];
        assert_eq!(count, before[&reason] + 1, "{what}: {reason:?}");
        reason
    }
}
