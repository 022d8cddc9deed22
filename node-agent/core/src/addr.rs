//! Addresses of the segment: SIDs, locators and derived MACs are pure functions of a few numbers.

mod pods;

use std::{fmt, net::Ipv6Addr};

use bpf_common::sid;
use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};

pub use pods::{POD_LENGTHS4, POD_LENGTHS6, PodCidrs};

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
    /// A list of pod prefixes that no node can have.
    #[error("{0}")]
    PodCidrs(String),
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

    /// The block of a Kubernetes cluster that has none configured: 5f00 and 16 bits of a hash of the UID of the namespace
    /// kube-system, which names the cluster. Two clusters have different ones, most likely.
    #[must_use]
    pub fn of_cluster(uid: &str) -> Self {
        // FNV-1a, folded to 16 bits.
        let hash = uid.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let folded = [hash, hash >> 16, hash >> 32, hash >> 48].into_iter().fold(0, |a, b| a ^ b) & 0xffff;
        // 5f00:0::/32 would be the first that anybody picks by hand.
        Self(0x5f00 << 16 | u32::try_from(folded).unwrap_or(0).max(1))
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
    fn a_cluster_without_a_configured_block_gets_one_of_its_own() {
        let block = |uid: &str| SidBlock::of_cluster(uid).prefix().to_string();
        let one = block("0b6bd1c6-32e0-4e1f-a5ff-8b2e4c1f6a10");
        assert_eq!(one, block("0b6bd1c6-32e0-4e1f-a5ff-8b2e4c1f6a10"), "on every node the same");
        assert_ne!(one, block("0b6bd1c6-32e0-4e1f-a5ff-8b2e4c1f6a11"));
        // Of an earlier release: it must never change.
        assert_eq!(block("x"), "5f00:cb2a::/32");
        assert!(SidBlock::new(one.parse().unwrap()).is_ok());
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert!(NodeNumber::new(0).is_err() && NodeNumber::new(0xe000).is_err());
        assert!(NodeNumber::new(1).is_ok() && NodeNumber::new(0xdfff).is_ok());
        assert!(NetworkNumber::new(0).is_err() && NetworkNumber::new(2048).is_err());
        assert!(SidBlock::new("5f00::/48".parse().unwrap()).is_err());
    }
}
