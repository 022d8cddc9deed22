//! From the file as written to a configuration whose values are right; all that is wrong is said at once.

mod peers;
mod prefixes;

use std::{fmt::Display, path::Path};

use agent_core::{
    addr::{NetworkNumber, NodeNumber, PodCidrs, SidBlock},
    config::{Configuration, Flooding, Headroom, Limits, LocalNode, Network},
    desired::IPV6_MIN_MTU,
};
use bpf_common::names::{MAX_ENDPOINTS, MAX_FLOOD_NODES};

use super::{NodeConfig, Paths, Problem, conflist, duration, raw};

/// Longest path of a unix socket: `sun_path` without its final zero (unix(7)).
const SOCKET_PATH_MAX: usize = 107;
/// Longest interface name: `IFNAMSIZ` without its final zero.
const IFNAME_MAX: usize = 15;
/// Bounds of `limits.reservationTimeout`, milliseconds.
const RESERVATION_TIMEOUT: std::ops::RangeInclusive<u64> = 1_000..=3_600_000;

/// Checks a whole file.
pub(super) fn check(file: &raw::File) -> Result<NodeConfig, Vec<Problem>> {
    let mut problems = Problems::default();
    let checked = checked(file, &mut problems);
    match checked {
        Some(config) if problems.0.is_empty() => Ok(config),
        _ => Err(problems.0),
    }
}

/// The configuration, as far as there is one: every part is looked at whatever is wrong with the others.
fn checked(file: &raw::File, problems: &mut Problems) -> Option<NodeConfig> {
    let sid_block = sid_block(&file.sid_block, problems);
    let cluster = prefixes::cluster(&file.cluster_cidrs, problems);
    let node = node(&file.node, problems);
    let peers = peers::peers(&file.peers, problems);
    if let (Some(cluster), Some(block)) = (cluster, sid_block) {
        prefixes::outside_block(cluster, block, problems);
        peers::outside_block(&peers, block, problems);
    }
    if let (Some(cluster), Some(node)) = (cluster, &node) {
        peers::together(node, &peers, cluster, problems);
    }
    let network = network(&file.network, problems);
    let limits = limits(&file.limits, problems);
    let dscp = dscp(&file.encapsulation.dscp, problems);
    let headroom = headroom(&file.headroom, problems);
    let mtu = mtu(&file.mtu, cluster, problems);
    let non_masquerade =
        prefixes::list("masquerade.nonMasqueradeCIDRs", &file.masquerade.non_masquerade_cidrs, problems);
    paths(&file.paths, problems);
    let conflist = cni(&file.cni, &file.network.name, &file.paths, problems);
    let http = http(&file.http, problems);
    let configuration = Configuration {
        node: node?,
        sid_block: sid_block?,
        cluster: cluster?,
        peers: peers.into_iter().map(|(_, number, peer)| (number, peer)).collect(),
        underlay_routes: file.underlay_routes,
        network: network?,
        dscp,
        headroom,
        masquerade: file.masquerade.enabled,
        non_masquerade,
        mtu,
        limits: limits?,
        conflist,
    };
    Some(NodeConfig { configuration, paths: file.paths.clone(), http, expedite_attach: file.expedite_attach })
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

fn node(node: &raw::Node, problems: &mut Problems) -> Option<LocalNode> {
    name("node.name", &node.name, problems);
    let number = problems.take("node.number", NodeNumber::new(node.number));
    let pods = prefixes::pods("node.podCIDRs", &node.pod_cidrs, problems);
    problems.require(!node.uplinks.is_empty(), "node.uplinks", || "at least one interface is needed".into());
    for (index, uplink) in node.uplinks.iter().enumerate() {
        let field = format!("node.uplinks[{index}]");
        let usable = (1..=IFNAME_MAX).contains(&uplink.len())
            && !uplink
                .contains(|c: char| c == '/' || c == ':' || c == '"' || c.is_whitespace() || c.is_control())
            && ![".", ".."].contains(&uplink.as_str());
        problems.require(usable, &field, || format!("{uplink:?} is not the name of an interface"));
        problems.require(!node.uplinks[..index].contains(uplink), &field, || {
            format!("{uplink:?} is named twice")
        });
    }
    Some(LocalNode { name: node.name.clone(), number: number?, pods: pods?, uplinks: node.uplinks.clone() })
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

fn cni(
    cni: &raw::Cni,
    network: &str,
    paths: &Paths,
    problems: &mut Problems,
) -> (std::path::PathBuf, String) {
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

fn http(text: &str, problems: &mut Problems) -> Option<std::net::SocketAddr> {
    if text == "off" {
        return None;
    }
    let message = format!("{text:?}: `off` or an address with a port is right, such as 127.0.0.1:9476");
    problems.take("http", text.parse().map_err(|_| message))
}
