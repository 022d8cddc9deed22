//! Pod prefixes of a node, and the addresses and MACs that follow from them.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
};

use agent_api::MacAddress;
use bpf_common::mac;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use super::{AddrError, NodeNumber};

/// Lengths of a node's IPv4 prefix: a gateway, a pod, the prefix's own address and its broadcast address have room.
pub const POD_LENGTHS4: RangeInclusive<u8> = 8..=30;
/// Lengths of a node's IPv6 prefix: the host number has at most 16 bits below it.
pub const POD_LENGTHS6: RangeInclusive<u8> = 48..=112;

/// The pod prefixes of one node, at least one family. `h = 1` is its gateway, pods begin at 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Vec<IpNet>", into = "Vec<IpNet>")]
pub struct PodCidrs {
    /// IPv4.
    pub v4: Option<Ipv4Net>,
    /// IPv6, a /48 to /112.
    pub v6: Option<Ipv6Net>,
}

impl PodCidrs {
    /// The prefixes of a node: at most one a family, without host bits, of a length that pods' addresses can be made of.
    ///
    /// # Errors
    /// [`AddrError::PodCidrs`].
    pub fn of_node(prefixes: &[IpNet]) -> Result<Self, AddrError> {
        let wrong = |message: String| Err(AddrError::PodCidrs(message));
        let mut pods = Self { v4: None, v6: None };
        for prefix in prefixes {
            let (second, lengths) = match *prefix {
                IpNet::V4(net) => (pods.v4.replace(net).is_some(), POD_LENGTHS4),
                IpNet::V6(net) => (pods.v6.replace(net).is_some(), POD_LENGTHS6),
            };
            if second {
                return wrong(format!("{prefix} is the second of its family: one is right"));
            }
            if !lengths.contains(&prefix.prefix_len()) {
                let (least, most) = (lengths.start(), lengths.end());
                return wrong(format!("{prefix}: a pod prefix of that family is a /{least} to /{most}"));
            }
            if prefix.trunc() != *prefix {
                return wrong(format!(
                    "{prefix} has bits set beyond its length: {} would be right",
                    prefix.trunc()
                ));
            }
        }
        if prefixes.is_empty() { wrong("at least one prefix is needed".into()) } else { Ok(pods) }
    }

    /// Checks that they lie in the cluster's, family by family.
    ///
    /// # Errors
    /// A sentence for each family in which they do not.
    pub fn within(self, cluster: Self) -> Result<(), Vec<String>> {
        let families = [
            ("IPv4", self.v4.map(IpNet::V4), cluster.v4.map(IpNet::V4)),
            ("IPv6", self.v6.map(IpNet::V6), cluster.v6.map(IpNet::V6)),
        ];
        let problem = |(family, pods, cluster): (&str, Option<IpNet>, Option<IpNet>)| {
            let right = match (pods, cluster) {
                (Some(pods), Some(cluster)) => cluster.contains(&pods),
                (None, None) => true,
                _ => false,
            };
            let shown = |net: Option<IpNet>| net.map_or_else(|| "none".into(), |net| net.to_string());
            (!right).then(|| {
                format!(
                    "{family} {} does not lie in the clusterCIDRs' {}: both or neither, the one in the other, is right",
                    shown(pods),
                    shown(cluster)
                )
            })
        };
        let problems: Vec<String> = families.into_iter().filter_map(problem).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// The prefixes, IPv4 first.
    pub fn prefixes(self) -> impl Iterator<Item = IpNet> {
        self.v4.map(IpNet::V4).into_iter().chain(self.v6.map(IpNet::V6))
    }

    /// The largest host number: the IPv4 prefix bounds it (without its broadcast address), and 16 bits of the
    /// IPv6-only MAC.
    #[must_use]
    pub fn last_host(self) -> u16 {
        let hosts = self.v4.map_or(u64::MAX, |net| (1_u64 << (32 - net.prefix_len())).saturating_sub(2));
        u16::try_from(hosts).unwrap_or(0xfffe).min(0xfffe)
    }

    /// The IPv4 address of a host number.
    #[must_use]
    pub fn ip4(self, host: u16) -> Option<Ipv4Addr> {
        Some(Ipv4Addr::from_bits(self.v4?.network().to_bits() + u32::from(host)))
    }

    /// The IPv6 address of a host number.
    #[must_use]
    pub fn ip6(self, host: u16) -> Option<Ipv6Addr> {
        Some(Ipv6Addr::from_bits(self.v6?.network().to_bits() + u128::from(host)))
    }

    /// Both addresses of a host number.
    pub fn addresses(self, host: u16) -> impl Iterator<Item = IpAddr> {
        self.ip4(host).map(IpAddr::V4).into_iter().chain(self.ip6(host).map(IpAddr::V6))
    }

    /// The MAC of a derived endpoint; see [`bpf_common::mac`].
    #[must_use]
    pub fn mac(self, node: NodeNumber, host: u16) -> MacAddress {
        let mac = match self.ip4(host) {
            Some(ip) => mac::from_ip4(ip.to_bits().to_be()),
            None => mac::from_node(node.into(), host),
        };
        let [[a, b], [c, d], [e, f]] = mac.map(u16::to_ne_bytes);
        MacAddress([a, b, c, d, e, f])
    }
}

impl TryFrom<Vec<IpNet>> for PodCidrs {
    type Error = AddrError;

    fn try_from(prefixes: Vec<IpNet>) -> Result<Self, AddrError> {
        Self::of_node(&prefixes)
    }
}

impl From<PodCidrs> for Vec<IpNet> {
    fn from(pods: PodCidrs) -> Self {
        pods.prefixes().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macs_follow_from_the_host_number() {
        let node = NodeNumber::new(0x102).unwrap();
        let both = PodCidrs {
            v4: Some("10.1.2.0/24".parse().unwrap()),
            v6: Some("fd10:0:0:2::/64".parse().unwrap()),
        };
        assert_eq!(both.mac(node, 9).to_string(), "0a:58:0a:01:02:09");
        assert_eq!(both.ip6(9).unwrap().to_string(), "fd10:0:0:2::9");
        assert_eq!(both.last_host(), 254);
        let six = PodCidrs { v4: None, ..both };
        assert_eq!(six.mac(node, 0x304).to_string(), "0a:59:01:02:03:04");
        assert_eq!(six.last_host(), 0xfffe);
    }
}
