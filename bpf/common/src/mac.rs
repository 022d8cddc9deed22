//! MAC addresses that follow from IP addresses, and back.
//!
//! ```text
//! 0a:58 + IPv4 address         derived endpoint of a cluster with IPv4
//! 0a:59 + node number + host   derived endpoint of a cluster without
//! ```

use crate::maps::{Ip6, Mac};

const WITH_IP4: u16 = 0x0a58_u16.to_be();
const WITHOUT_IP4: u16 = 0x0a59_u16.to_be();
const LINK_LOCAL: u32 = 0xfe80_0000_u32.to_be();

/// The MAC of the derived endpoint with IPv4 address `ip` (network byte order).
#[inline(always)]
#[must_use]
pub const fn from_ip4(ip: u32) -> Mac {
    let ip = u32::from_be(ip);
    [WITH_IP4, ((ip >> 16) as u16).to_be(), (ip as u16).to_be()]
}

/// The IPv4 address (network byte order) in the MAC of a derived endpoint.
#[inline(always)]
#[must_use]
pub const fn ip4_of(mac: &Mac) -> Option<u32> {
    if mac[0] != WITH_IP4 {
        return None;
    }
    Some(((u16::from_be(mac[1]) as u32) << 16 | u16::from_be(mac[2]) as u32).to_be())
}

/// The MAC of host `host` of node `node` in a cluster without IPv4.
#[inline(always)]
#[must_use]
pub const fn from_node(node: u32, host: u16) -> Mac {
    [WITHOUT_IP4, (node as u16).to_be(), host.to_be()]
}

/// The node number in the MAC of a derived endpoint of a cluster without IPv4.
#[inline(always)]
#[must_use]
pub const fn node_of(mac: &Mac) -> Option<u32> {
    if mac[0] == WITHOUT_IP4 { Some(u16::from_be(mac[1]) as u32) } else { None }
}

/// True for broadcast and multicast.
#[inline(always)]
#[must_use]
pub const fn is_group(mac: &Mac) -> bool {
    mac[0] & 0x0100_u16.to_be() != 0
}

/// One of 64 bits that stands for `mac`, and for others.
#[inline(always)]
#[must_use]
pub const fn bit(mac: &Mac) -> u64 {
    let low = (mac[1] as u32) << 16 | mac[2] as u32;
    1 << (low.wrapping_mul(0x9e37_79b1) >> 26)
}

/// The link-local address that `mac` makes (RFC 4291 appendix A).
#[inline(always)]
#[must_use]
pub const fn link_local(mac: &Mac) -> Ip6 {
    let (a, b, c) = (u16::from_be(mac[0]), u16::from_be(mac[1]), u16::from_be(mac[2]));
    let high = ((a ^ 0x0200) as u32) << 16 | (b & 0xff00) as u32 | 0xff;
    let low = 0xfe00_0000 | ((b & 0xff) as u32) << 16 | c as u32;
    [LINK_LOCAL, 0, high.to_be(), low.to_be()]
}

/// The MAC that made the link-local address `ip`; None if it is not link-local or was made otherwise.
#[inline(always)]
#[must_use]
pub const fn of_link_local(ip: &Ip6) -> Option<Mac> {
    let (high, low) = (u32::from_be(ip[2]), u32::from_be(ip[3]));
    if ip[0] != LINK_LOCAL || ip[1] != 0 || high & 0xff != 0xff || low >> 24 != 0xfe {
        return None;
    }
    let a = (high >> 16) as u16 ^ 0x0200;
    let b = (high & 0xff00) as u16 | (low >> 16) as u16 & 0xff;
    Some([a.to_be(), b.to_be(), (low as u16).to_be()])
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn mac(octets: [u8; 6]) -> Mac {
        core::array::from_fn(|i| u16::from_ne_bytes([octets[2 * i], octets[2 * i + 1]]))
    }

    #[test]
    fn ip4_is_carried_in_the_mac() {
        let ip = u32::from_ne_bytes(Ipv4Addr::new(10, 1, 2, 200).octets());
        assert_eq!(from_ip4(ip), mac([0x0a, 0x58, 10, 1, 2, 200]));
        assert_eq!(ip4_of(&from_ip4(ip)), Some(ip));
        assert_eq!(ip4_of(&from_node(1, 2)), None);
    }

    #[test]
    fn node_is_carried_in_the_mac() {
        assert_eq!(from_node(0x1234, 0x0506), mac([0x0a, 0x59, 0x12, 0x34, 5, 6]));
        assert_eq!(node_of(&from_node(0x1234, 7)), Some(0x1234));
        assert_eq!(node_of(&from_ip4(1)), None);
    }

    #[test]
    fn neighbouring_macs_have_different_bits() {
        let bits =
            |count: u32| (0..count).fold(0, |bits, host| bits | bit(&from_ip4((0x0a01_0100 + host).to_be())));
        assert_eq!(bits(1).count_ones(), 1);
        assert!(bits(16).count_ones() >= 12 && bits(256).count_ones() >= 60);
    }

    #[test]
    fn group_bit() {
        assert!(is_group(&mac([0xff; 6])) && is_group(&mac([1, 0, 0x5e, 0, 0, 1])));
        assert!(!is_group(&mac([0x0a, 0x59, 0xff, 0xff, 0xff, 0xff])));
    }

    #[test]
    fn link_local_is_eui64_both_ways() {
        let m = mac([0x0a, 0x58, 10, 1, 2, 200]);
        let octets = "fe80::858:aff:fe01:2c8".parse::<Ipv6Addr>().unwrap().octets();
        let ip: Ip6 =
            core::array::from_fn(|i| u32::from_ne_bytes(octets[4 * i..4 * i + 4].try_into().unwrap()));
        assert_eq!(link_local(&m), ip);
        assert_eq!(of_link_local(&ip), Some(m));
        assert_eq!(of_link_local(&[ip[0], 0, ip[2] ^ 1_u32.to_be(), ip[3]]), None);
        assert_eq!(of_link_local(&[0, 0, ip[2], ip[3]]), None);
    }
}
