//! MAC addresses.

use std::{fmt, net::Ipv6Addr, str::FromStr};

use serde::{Deserialize, Serialize};

/// A MAC address, written as six hex pairs with colons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// The link-local address that it makes (EUI-64, RFC 4291 appendix A): the switch answers for it, so pods must not have
    /// another.
    #[must_use]
    pub const fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0;
        let interface = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
        Ipv6Addr::from_bits(0xfe80 << 112 | interface as u128)
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl From<MacAddress> for String {
    fn from(mac: MacAddress) -> Self {
        mac.to_string()
    }
}

impl FromStr for MacAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a MAC address: six hex pairs with colons are expected");
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        let is_pair = |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        for octet in &mut octets {
            let part = parts.next().filter(is_pair).ok_or_else(wrong)?;
            *octet = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(Self(octets)) }
    }
}

impl TryFrom<String> for MacAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_mac_address_is_six_hex_pairs() {
        assert_eq!("0A:58:0a:01:02:03".parse(), Ok(MacAddress([10, 0x58, 10, 1, 2, 3])));
        for wrong in
            ["", "0a:58:0a:01:02", "0a:58:0a:01:02:03:04", "0a:58:0a:01:02:+3", "a:58:0a:01:02:03", "0a-58"]
        {
            assert!(wrong.parse::<MacAddress>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_mac_address_survives_its_text(octets in any::<[u8; 6]>()) {
            prop_assert_eq!(MacAddress(octets).to_string().parse(), Ok(MacAddress(octets)));
        }

        #[test]
        fn any_text_is_a_mac_address_or_an_error(text in ".{0,20}") {
            if let Ok(mac) = text.parse::<MacAddress>() {
                prop_assert_eq!(mac.to_string(), text.to_lowercase());
            }
        }
    }
}
