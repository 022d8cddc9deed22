//! From the file as written to a configuration whose values are right; all that is wrong is said at once.

mod peers;
mod prefixes;

use std::{
    collections::BTreeMap,
    fmt::Display,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use agent_core::{
    addr::{NetworkNumber, NodeNumber, PodCidrs, SidBlock},
    config::{Configuration, Flooding, Headroom, Limits, LocalNode, Network},
    desired::IPV6_MIN_MTU,
    identity::ClusterPrefixes,
};
use bpf_common::names::{MAX_ENDPOINTS, MAX_FLOOD_NODES};
use ipnet::IpNet;

use super::{ClusterConfig, NodeConfig, Paths, Problem, conflist, duration, raw};

/// Longest path of a unix socket: `sun_path` without its final zero (unix(7)).
const SOCKET_PATH_MAX: usize = 107;
/// Longest interface name: `IFNAMSIZ` without its final zero.
const IFNAME_MAX: usize = 15;
/// Bounds of `limits.reservationTimeout`, milliseconds.
const RESERVATION_TIMEOUT: std::ops::RangeInclusive<u64> = 1_000..=3_600_000;

/// Checks the file of a node without Kubernetes.
pub(super) fn standalone(file: &raw::File) -> Result<NodeConfig, Vec<Problem>> {
    let mut problems = Problems::default();
    let rest = rest(file, &mut problems);
    let sid_block = present(file.sid_block.as_ref(), "sidBlock", &mut problems)
        .and_then(|text| sid_block(text, &mut problems));
    let node = node(&file.node, &mut problems);
    let peers = peers::peers(&file.peers, &mut problems);
    if let Some(block) = sid_block {
        peers::outside_block(&peers, block, &mut problems);
    }
    if let (Some(rest), Some(block)) = (&rest, sid_block) {
        prefixes::outside_block(rest.cluster.both, block, &mut problems);
    }
    if let (Some(rest), Some(node)) = (&rest, &node) {
        peers::together(node, &peers, rest.cluster.both, &mut problems);
    }
    let whole = || {
        let peers = peers.into_iter().map(|(_, number, peer)| (number, peer)).collect();
        Some(NodeConfig { peers, ..complete(file, rest?, node?, sid_block?) })
    };
    problems.unless_any(whole())
}

/// Checks the file of a node in Kubernetes, as far as it goes.
pub(super) fn cluster(file: raw::File) -> Result<ClusterConfig, Vec<Problem>> {
    let mut problems = Problems::default();
    let rest = rest(&file, &mut problems);
    let sid_block = file.sid_block.as_ref().and_then(|text| sid_block(text, &mut problems));
    let node = &file.node;
    let foreign = [
        ("node.name", node.name.is_some()),
        ("node.number", node.number.is_some()),
        ("node.podCIDRs", node.pod_cidrs.is_some()),
        ("peers", !file.peers.is_empty()),
    ];
    for (field, set) in foreign {
        problems.require(!set, field, || "comes from the API server: leave it out in Kubernetes".into());
    }
    let uplinks = node.uplinks.as_ref().map(|names| uplinks(names, &mut problems));
    if let (Some(rest), Some(block)) = (&rest, sid_block) {
        prefixes::outside_block(rest.cluster.both, block, &mut problems);
    }
    let whole = rest.map(|rest| ClusterConfig {
        prefixes: rest.cluster,
        sid_block,
        uplinks,
        paths: file.paths.clone(),
        conflist: rest.conflist.0,
        http: rest.http,
        expedite_attach: file.expedite_attach,
        file,
    });
    problems.unless_any(whole)
}

/// The same file, with what only the cluster knows.
pub(super) fn joined(file: &raw::File, node: LocalNode, block: SidBlock) -> Result<NodeConfig, Vec<Problem>> {
    let mut problems = Problems::default();
    let rest = rest(file, &mut problems);
    if let Some(rest) = &rest {
        prefixes::outside_block(rest.cluster.both, block, &mut problems);
        peers::within("spec.podCIDRs of the Node", node.pods, rest.cluster.both, &mut problems);
    }
    problems.unless_any(rest.map(|rest| complete(file, rest, node, block)))
}

/// Where an agent with this file keeps its things, and the path of the CNI configuration.
pub(super) fn places(file: &raw::File) -> Result<(Paths, PathBuf), Vec<Problem>> {
    let mut problems = Problems::default();
    paths(&file.paths, &mut problems);
    let (conflist, _) = cni(&file.cni, &file.network.name, &file.paths, &mut problems);
    problems.unless_any(Some((file.paths.clone(), conflist)))
}

/// All that does not depend on who the nodes are.
struct Rest {
    cluster: ClusterPrefixes,
    network: Network,
    limits: Limits,
    dscp: Option<u8>,
    headroom: Headroom,
    mtu: Option<u32>,
    non_masquerade: Vec<IpNet>,
    conflist: (PathBuf, String),
    http: Option<SocketAddr>,
}

/// Every part is looked at, whatever is wrong with the others.
fn rest(file: &raw::File, problems: &mut Problems) -> Option<Rest> {
    let cluster = prefixes::cluster(&file.cluster_cidrs, problems);
    let network = network(&file.network, problems);
    let limits = limits(&file.limits, problems);
    let dscp = dscp(&file.encapsulation.dscp, problems);
    let headroom = headroom(&file.headroom, problems);
    let mtu = mtu(&file.mtu, cluster.map(|cluster| cluster.both), problems);
    let non_masquerade =
        prefixes::list("masquerade.nonMasqueradeCIDRs", &file.masquerade.non_masquerade_cidrs, problems);
    paths(&file.paths, problems);
    let conflist = cni(&file.cni, &file.network.name, &file.paths, problems);
    let http = http(&file.http, problems);
    Some(Rest {
        cluster: cluster?,
        network: network?,
        limits: limits?,
        dscp,
        headroom,
        mtu,
        non_masquerade,
        conflist,
        http,
    })
}

fn complete(file: &raw::File, rest: Rest, node: LocalNode, sid_block: SidBlock) -> NodeConfig {
    let configuration = Configuration {
        node,
        sid_block,
        cluster: rest.cluster.both,
        underlay_routes: file.underlay_routes,
        network: rest.network,
        dscp: rest.dscp,
        headroom: rest.headroom,
        masquerade: file.masquerade.enabled,
        non_masquerade: rest.non_masquerade,
        mtu: rest.mtu,
        limits: rest.limits,
        conflist: rest.conflist,
    };
    NodeConfig {
        configuration,
        peers: BTreeMap::new(),
        paths: file.paths.clone(),
        http: rest.http,
        expedite_attach: file.expedite_attach,
    }
}

/// What was found wrong so far.
#[derive(Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, field: impl Display, message: impl Into<String>) {
        self.0.push(Problem { field: field.to_string(), message: message.into() });
    }

    /// The value, or nothing and a problem.
    fn take<T>(&mut self, field: impl Display, result: Result<T, impl Display>) -> Option<T> {
        result.map_err(|error| self.add(field, error.to_string())).ok()
    }

    /// What was checked, if nothing is wrong with it.
    fn unless_any<T>(self, whole: Option<T>) -> Result<T, Vec<Problem>> {
        match whole {
            Some(whole) if self.0.is_empty() => Ok(whole),
            _ => Err(self.0),
        }
    }

    /// Adds a problem unless something holds.
    fn require(&mut self, holds: bool, field: impl Display, message: impl FnOnce() -> String) {
        if !holds {
            self.add(field, message());
        }
    }
}

fn sid_block(text: &str, problems: &mut Problems) -> Option<SidBlock> {
    let field = "sidBlock";
    let net = prefixes::prefix(field, text, problems)?;
    let block = problems.take(field, SidBlock::new(net))?;
    problems.require(prefixes::SRV6.contains(&block.prefix()), field, || {
        format!("{text} is not in 5f00::/16, the space for SIDs (RFC 9602), such as 5f00:1::/32")
    });
    Some(block)
}

fn present<'a, T>(value: Option<&'a T>, field: &str, problems: &mut Problems) -> Option<&'a T> {
    problems.require(value.is_some(), field, || "is needed without Kubernetes".into());
    value
}

fn node(node: &raw::Node, problems: &mut Problems) -> Option<LocalNode> {
    let name = present(node.name.as_ref(), "node.name", problems);
    if let Some(name) = name {
        self::name("node.name", name, problems);
    }
    let number = present(node.number.as_ref(), "node.number", problems)
        .and_then(|number| problems.take("node.number", NodeNumber::new(*number)));
    let pods = present(node.pod_cidrs.as_ref(), "node.podCIDRs", problems)
        .and_then(|texts| prefixes::pods("node.podCIDRs", texts, problems));
    let uplinks =
        present(node.uplinks.as_ref(), "node.uplinks", problems).map(|names| uplinks(names, problems));
    Some(LocalNode { name: name?.clone(), number: number?, pods: pods?, uplinks: uplinks? })
}

fn uplinks(names: &[String], problems: &mut Problems) -> Vec<String> {
    problems.require(!names.is_empty(), "node.uplinks", || "at least one interface is needed".into());
    for (index, uplink) in names.iter().enumerate() {
        let field = format!("node.uplinks[{index}]");
        let usable = (1..=IFNAME_MAX).contains(&uplink.len())
            && !uplink
                .contains(|c: char| c == '/' || c == ':' || c == '"' || c.is_whitespace() || c.is_control())
            && ![".", ".."].contains(&uplink.as_str());
        problems.require(usable, &field, || format!("{uplink:?} is not the name of an interface"));
        problems.require(!names[..index].contains(uplink), &field, || format!("{uplink:?} is named twice"));
    }
    names.to_vec()
}

fn name(field: impl Display, name: &str, problems: &mut Problems) {
    let usable = (1..=253).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    problems.require(usable, field, || {
        format!("{name:?} is not a name: 1 to 253 visible ASCII characters are right")
    });
}

fn network(network: &raw::Network, problems: &mut Problems) -> Option<Network> {
    // CNI specification 1.1.0, section 1: the network's name begins alphanumeric and may hold `.`, `_` and `-`.
    let mut bytes = network.name.bytes();
    let usable = bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    problems.require(usable, "network.name", || {
        format!(
            "{:?} is not a CNI network name: letters, digits, `.`, `_` and `-` are right, and one of the first two at the beginning",
            network.name
        )
    });
    let flooding = &network.flooding;
    problems.require(flooding.max_peers <= MAX_FLOOD_NODES, "network.flooding.maxPeers", || {
        format!("{} is too many: 0 to {MAX_FLOOD_NODES} is right", flooding.max_peers)
    });
    problems.require(flooding.storm_rate > 0, "network.flooding.stormRate", || {
        "0 would stop ARP between pods and others: at least 1 frame a second is right".into()
    });
    Some(Network {
        name: network.name.clone(),
        number: problems.take("network.number", NetworkNumber::new(network.number))?,
        flooding: match flooding.mode {
            raw::FloodingMode::Auto => Flooding::Auto,
            raw::FloodingMode::On => Flooding::On,
            raw::FloodingMode::Off => Flooding::Off,
        },
        flood_max_peers: flooding.max_peers,
        flood_unknown: flooding.unknown_unicast,
        storm_rate: flooding.storm_rate,
    })
}

fn limits(limits: &raw::Limits, problems: &mut Problems) -> Option<Limits> {
    let most = MAX_ENDPOINTS - 1;
    problems.require((1..=most).contains(&limits.endpoints), "limits.endpoints", || {
        format!("{}: 1 to {most} is right", limits.endpoints)
    });
    let text = &limits.reservation_timeout;
    let timeout = duration::milliseconds(text)
        .filter(|milliseconds| RESERVATION_TIMEOUT.contains(milliseconds))
        .ok_or_else(|| format!("{text:?}: a duration from 1s to 1h is right, such as 60s"));
    Some(Limits {
        endpoints: limits.endpoints,
        reservation_timeout: problems.take("limits.reservationTimeout", timeout)?,
    })
}

fn dscp(dscp: &raw::Dscp, problems: &mut Problems) -> Option<u8> {
    let raw::Dscp::Fixed(value) = *dscp else { return None };
    let checked = u8::try_from(value).ok().filter(|value| *value < 64);
    problems.take(
        "encapsulation.dscp",
        checked.ok_or_else(|| format!("{value}: `copy` or a number from 0 to 63 is right")),
    )
}

fn headroom(headroom: &raw::Headroom, problems: &mut Problems) -> Headroom {
    match *headroom {
        raw::Headroom::Word(raw::HeadroomWord::Auto) => Headroom::Auto,
        raw::Headroom::Word(raw::HeadroomWord::Off) => Headroom::Off,
        raw::Headroom::Fixed(bytes) => {
            problems.require((1..=512).contains(&bytes), "headroom", || {
                format!("{bytes}: `auto`, `off` or a number of bytes from 1 to 512 is right")
            });
            Headroom::Fixed(bytes)
        }
    }
}

fn mtu(mtu: &raw::Mtu, cluster: Option<PodCidrs>, problems: &mut Problems) -> Option<u32> {
    let raw::Mtu::Fixed(bytes) = *mtu else { return None };
    let six = cluster.is_some_and(|cluster| cluster.v6.is_some());
    // 68: RFC 791; a veth takes no less.
    let least = if six { IPV6_MIN_MTU } else { 68 };
    problems.require((least..=65535).contains(&bytes), "mtu", || {
        format!("{bytes}: `auto` or a number of bytes from {least} to 65535 is right")
    });
    Some(bytes)
}

fn paths(paths: &Paths, problems: &mut Problems) {
    for (field, path) in
        [("paths.socket", &paths.socket), ("paths.state", &paths.state), ("paths.bpf", &paths.bpf)]
    {
        absolute(field, path, problems);
    }
    let length = paths.socket.as_os_str().len();
    // It is bound under a temporary name, four bytes longer.
    problems.require(length + 4 <= SOCKET_PATH_MAX, "paths.socket", || {
        format!(
            "{}: a socket's path has at most {} bytes here, this one {length}",
            paths.socket.display(),
            SOCKET_PATH_MAX - 4
        )
    });
}

fn absolute(field: &str, path: &Path, problems: &mut Problems) {
    problems.require(path.is_absolute(), field, || {
        format!("{:?} is not an absolute path", path.display().to_string())
    });
}

fn cni(cni: &raw::Cni, network: &str, paths: &Paths, problems: &mut Problems) -> (PathBuf, String) {
    absolute("cni.confDir", &cni.conf_dir, problems);
    let name = &cni.conf_name;
    problems.require(name.ends_with(".conflist") && !name.contains('/'), "cni.confName", || {
        format!("{name:?}: the name of a file that ends in .conflist is right, such as 10-headway.conflist")
    });
    let known = conflist::VERSIONS.contains(&cni.version.as_str());
    problems.require(known, "cni.version", || {
        format!("{:?}: one of {} is right", cni.version, conflist::VERSIONS.join(", "))
    });
    for (index, plugin) in cni.chain.iter().enumerate() {
        let named =
            plugin.get("type").and_then(serde_json::Value::as_str).is_some_and(|kind| !kind.is_empty());
        problems.require(named, format!("cni.chain[{index}].type"), || {
            "the name of a CNI plugin is needed, such as portmap".into()
        });
    }
    (cni.conf_dir.join(name), conflist::content(network, &cni.version, paths, &cni.chain))
}

fn http(text: &str, problems: &mut Problems) -> Option<SocketAddr> {
    if text == "off" {
        return None;
    }
    let message = format!("{text:?}: `off` or an address with a port is right, such as 127.0.0.1:9476");
    problems.take("http", text.parse().map_err(|_| message))
}
