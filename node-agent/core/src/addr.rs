//! Addresses of the segment: SIDs, locators and derived MACs are pure functions of a few numbers.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use agent_api::MacAddress;
use bpf_common::{mac, sid};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// Why a value is not an address of the segment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddrError {
    /// Node numbers have 16 bits; 0 ends a container and 0xE000.. are functions (RFC 9800 F3216 layout).
    #[error("{0} is not a node number: 1 to {max} is right", max = NodeNumber::MAX)]
    NodeNumber(u32),
    /// Networks have 11 bits.
    #[error("{0} is not a network number: 1 to 2047 is right")]
    NetworkNumber(u32),
    /// A SID block is a /32.
    #[error("{0} is not a SID block: an IPv6 prefix of length 32 is right, such as 5f00:1::/32")]
    SidBlock(IpNet),
}

/// Number of a node, `1..=0xDFFF`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct NodeNumber(u16);

impl NodeNumber {
    /// The largest.
    pub const MAX: u32 = 0xdfff;

    /// Checks the range.
    ///
    /// # Errors
    /// [`AddrError::NodeNumber`].
    pub fn new(number: u32) -> Result<Self, AddrError> {
        match u16::try_from(number) {
            Ok(n) if n != 0 && number <= Self::MAX => Ok(Self(n)),
            _ => Err(AddrError::NodeNumber(number)),
        }
    }

    /// As a plain number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u32> for NodeNumber {
    type Error = AddrError;

    fn try_from(number: u32) -> Result<Self, AddrError> {
        Self::new(number)
    }
}

impl From<NodeNumber> for u32 {
    fn from(number: NodeNumber) -> Self {
        number.0.into()
    }
}

impl fmt::Display for NodeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a network (L2 segment), `1..=2047`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct NetworkNumber(u16);

impl NetworkNumber {
    /// Checks the range.
    ///
    /// # Errors
    /// [`AddrError::NetworkNumber`].
    pub fn new(number: u32) -> Result<Self, AddrError> {
        match u16::try_from(number) {
            Ok(n) if n != 0 && number < bpf_common::names::MAX_NETWORKS => Ok(Self(n)),
            _ => Err(AddrError::NetworkNumber(number)),
        }
    }

    /// As a plain number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u32> for NetworkNumber {
    type Error = AddrError;

    fn try_from(number: u32) -> Result<Self, AddrError> {
        Self::new(number)
    }
}

impl From<NetworkNumber> for u32 {
    fn from(number: NetworkNumber) -> Self {
        number.0.into()
    }
}

/// The cluster's SID block, a /32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SidBlock(u32);

impl SidBlock {
    /// Checks the length and takes the first 32 bits.
    ///
    /// # Errors
    /// [`AddrError::SidBlock`].
    pub fn new(prefix: IpNet) -> Result<Self, AddrError> {
        match prefix {
            IpNet::V6(net) if net.prefix_len() == 32 => Ok(Self(leading(net.network()))),
            _ => Err(AddrError::SidBlock(prefix)),
        }
    }

    /// Its 32 bits, host byte order.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// As a prefix.
    #[must_use]
    pub fn prefix(self) -> Ipv6Net {
        prefix6(u128::from(self.0) << 96, 32)
    }

    /// The locator of a node in it.
    #[must_use]
    pub const fn locator(self, node: NodeNumber) -> Locator {
        Locator { block: self, node }
    }
}

/// A node's /48 in the SID block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Locator {
    block: SidBlock,
    node: NodeNumber,
}

impl Locator {
    /// As a prefix.
    #[must_use]
    pub fn prefix(self) -> Ipv6Net {
        prefix6(self.bits(), 48)
    }

    /// `<locator>::1`, the node's outer source and infrastructure address.
    #[must_use]
    pub fn infrastructure(self) -> Ipv6Addr {
        let pieces = sid::infrastructure(self.block.0.to_be(), self.node.into());
        Ipv6Addr::from_bits(
            pieces.iter().fold(0, |bits, piece| bits << 32 | u128::from(u32::from_be(*piece))),
        )
    }

    fn bits(self) -> u128 {
        u128::from(self.block.0) << 96 | u128::from(self.node.0) << 80
    }
}

impl fmt::Display for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.prefix().fmt(f)
    }
}

/// The pod prefixes of one node, at least one family. `h = 1` is its gateway, pods begin at 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodCidrs {
    /// IPv4.
    pub v4: Option<Ipv4Net>,
    /// IPv6, a /48 to /112.
    pub v6: Option<Ipv6Net>,
}

impl PodCidrs {
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

fn leading(address: Ipv6Addr) -> u32 {
    let [a, b, c, d, ..] = address.octets();
    u32::from_be_bytes([a, b, c, d])
}

fn prefix6(bits: u128, length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::from(bits), length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locator() -> Locator {
        SidBlock::new("5f00:1::/32".parse().unwrap()).unwrap().locator(NodeNumber::new(2).unwrap())
    }

    #[test]
    fn locators_follow_from_the_numbers() {
        assert_eq!(locator().prefix().to_string(), "5f00:1:2::/48");
        assert_eq!(locator().infrastructure().to_string(), "5f00:1:2::1");
    }

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

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert!(NodeNumber::new(0).is_err() && NodeNumber::new(0xe000).is_err());
        assert!(NodeNumber::new(1).is_ok() && NodeNumber::new(0xdfff).is_ok());
        assert!(NetworkNumber::new(0).is_err() && NetworkNumber::new(2048).is_err());
        assert!(SidBlock::new("5f00::/48".parse().unwrap()).is_err());
    }
}
