//! SIDs: a pure function between (locator, network, behaviour) and an IPv6 address.
//!
//! ```text
//!  0              32         48         64                                        128
//! +----------------+----------+----------+------------------------------------------+
//! |   SID block    |   node   | function |                    zero                  |
//! +----------------+----------+----------+------------------------------------------+
//!  <------ locator ---------->  0xe000 + 4 * network + behaviour
//! ```
//! The F3216 layout of RFC 9800; functions from 0xe000 on are local to a node there. The infrastructure address
//! `<locator>::1` has function 0 and is not a SID.

use crate::maps::Ip6;

/// What a node does with a frame that arrives for one of its SIDs (RFC 8986 sections 4.11 and 4.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Behaviour {
    /// `End.DT2U`: decapsulate and switch by the destination MAC.
    Unicast = 0,
    /// `End.DT2M`: decapsulate and flood to the local endpoints.
    Flood = 1,
}

/// What an address in the SID block stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sid {
    /// Node number.
    pub node: u32,
    /// Network number, 1..2048.
    pub network: u32,
    /// Behaviour.
    pub behaviour: Behaviour,
}

const FUNCTIONS: u32 = 0xe000;
const BEHAVIOUR_BITS: u32 = 2;

impl Sid {
    /// The SID as an address in `block`.
    #[inline(always)]
    #[must_use]
    pub const fn address(self, block: u32) -> Ip6 {
        let function = FUNCTIONS + (self.network << BEHAVIOUR_BITS) + self.behaviour as u32;
        [block, (self.node << 16 | function).to_be(), 0, 0]
    }

    /// The SID that `address` is; None if it is none of `block`.
    #[inline(always)]
    #[must_use]
    pub const fn parse(block: u32, address: &Ip6) -> Option<Self> {
        let node_function = u32::from_be(address[1]);
        let (node, function) = (node_function >> 16, node_function & 0xffff);
        if address[0] != block || address[2] | address[3] != 0 || function < FUNCTIONS {
            return None;
        }
        let (network, behaviour) = ((function - FUNCTIONS) >> BEHAVIOUR_BITS, function & 3);
        match behaviour {
            0 if network != 0 => Some(Self { node, network, behaviour: Behaviour::Unicast }),
            1 if network != 0 => Some(Self { node, network, behaviour: Behaviour::Flood }),
            _ => None,
        }
    }
}

/// The number of the node in whose locator `address` lies; None outside `block`.
#[inline(always)]
#[must_use]
pub const fn locator_node(block: u32, address: &Ip6) -> Option<u32> {
    if address[0] == block { Some(u32::from_be(address[1]) >> 16) } else { None }
}

/// `<locator>::1` of a node.
#[inline(always)]
#[must_use]
pub const fn infrastructure(block: u32, node: u32) -> Ip6 {
    [block, (node << 16).to_be(), 0, 1_u32.to_be()]
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn words(address: &str) -> Ip6 {
        let octets = address.parse::<Ipv6Addr>().unwrap().octets();
        core::array::from_fn(|i| u32::from_ne_bytes(octets[4 * i..4 * i + 4].try_into().unwrap()))
    }

    #[test]
    fn addresses_of_a_node() {
        let block = words("5f00:aa::")[0];
        let unicast = Sid { node: 0x102, network: 1, behaviour: Behaviour::Unicast };
        let flood = Sid { node: 0xdfff, network: 2047, behaviour: Behaviour::Flood };
        assert_eq!(unicast.address(block), words("5f00:aa:102:e004::"));
        assert_eq!(flood.address(block), words("5f00:aa:dfff:fffd::"));
        assert_eq!(infrastructure(block, 0x102), words("5f00:aa:102::1"));
    }

    #[test]
    fn only_sids_parse() {
        let block = words("5f00:aa::")[0];
        for sid in [
            Sid { node: 1, network: 1, behaviour: Behaviour::Unicast },
            Sid { node: 7, network: 2047, behaviour: Behaviour::Flood },
        ] {
            assert_eq!(Sid::parse(block, &sid.address(block)), Some(sid));
        }
        for other in [
            "5f00:ab:1:e004::",
            "5f00:aa:1:e004::1",
            "5f00:aa:1:e004:1::",
            "5f00:aa:1::1",
            "5f00:aa:1:dfff::",
            "5f00:aa:1:e000::",
            "5f00:aa:1:e001::",
            "5f00:aa:1:e006::",
            "5f00:aa:1:e007::",
        ] {
            assert_eq!(Sid::parse(block, &words(other)), None, "{other}");
        }
    }

    #[test]
    fn a_locator_is_recognised_by_block() {
        let block = words("5f00:aa::")[0];
        assert_eq!(locator_node(block, &words("5f00:aa:102::1")), Some(0x102));
        assert_eq!(locator_node(block, &words("5f00:ab:102::1")), None);
    }
}
