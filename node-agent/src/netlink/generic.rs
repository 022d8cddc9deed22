//! Generic netlink, as far as ethtool's features need it: Documentation/networking/ethtool-netlink.rst of the kernel.

use std::collections::BTreeSet;

use nix::errno::Errno;
use rtnetlink::{
    packet_core::{DefaultNla, Emitable, NLA_F_NESTED, NlasIterator},
    sys::protocols,
};

use super::{Answer, Connection, NetlinkError, malformed};

/// `struct genlmsghdr`.
const HEADER: usize = 4;
/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID`, `CTRL_ATTR_FAMILY_NAME`.
const CONTROL: (u16, u8, u16, u16) = (16, 3, 1, 2);
/// `ETHTOOL_MSG_FEATURES_GET`, `ETHTOOL_MSG_FEATURES_SET`.
const FEATURES: (u8, u8) = (11, 12);
/// `ETHTOOL_A_FEATURES_HEADER`, `_WANTED`, `_ACTIVE`.
const ATTRIBUTES: (u16, u16, u16) = (1, 3, 4);
/// `ETHTOOL_A_HEADER_DEV_INDEX`.
const DEVICE: u16 = 1;
/// `ETHTOOL_A_BITSET_BITS`, `ETHTOOL_A_BITSET_BITS_BIT`, `ETHTOOL_A_BITSET_BIT_NAME`, `ETHTOOL_A_BITSET_BIT_VALUE`.
const BITS: (u16, u16, u16, u16) = (3, 1, 2, 3);

/// A socket for the ethtool family.
pub struct Generic {
    connection: Connection,
    family: u16,
}

impl Generic {
    /// Opens a socket and finds the family.
    ///
    /// # Errors
    /// What the kernel says; `ENOENT` from one without ethtool netlink.
    pub fn open() -> Answer<Self> {
        let mut connection = Connection::open(protocols::NETLINK_GENERIC)?;
        let (control, get_family, id, name) = CONTROL;
        let request = command(get_family, &[DefaultNla::new(name, b"ethtool\0".to_vec())]);
        let replies = connection.exchange(control, 0, &request)?;
        let family = replies
            .iter()
            .filter_map(|(_, payload)| find(payload.get(HEADER..)?, id))
            .find_map(|value| value.first_chunk().map(|id| u16::from_ne_bytes(*id)));
        let family = family.ok_or_else(|| malformed("a family without a number".into()))?;
        Ok(Self { connection, family })
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.connection.requests
    }

    /// Names of the features that are active on a device.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn active_features(&mut self, ifindex: u32) -> Answer<BTreeSet<String>> {
        let request = command(FEATURES.0, &[device(ifindex)]);
        let replies = self.connection.exchange(self.family, 0, &request)?;
        let payload = replies.first().and_then(|(_, payload)| payload.get(HEADER..)).unwrap_or_default();
        let active = find(payload, ATTRIBUTES.2).and_then(|set| find(set, BITS.0)).unwrap_or_default();
        let names = NlasIterator::new(active).flatten().filter_map(|bit| find(bit.value(), BITS.2).map(text));
        Ok(names.collect())
    }

    /// Turns features off.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn disable_features(&mut self, ifindex: u32, names: &BTreeSet<String>) -> Answer<()> {
        let bit = |name: &String| {
            let name = DefaultNla::new(BITS.2, [name.as_bytes(), b"\0"].concat());
            nest(BITS.1, &[name])
        };
        let bits: Vec<DefaultNla> = names.iter().map(bit).collect();
        let wanted = nest(ATTRIBUTES.1, &[nest(BITS.0, &bits)]);
        let request = command(FEATURES.1, &[device(ifindex), wanted]);
        self.connection.exchange(self.family, 0, &request)?;
        // The kernel reports success also for features that stay on.
        let still: Vec<String> = self.active_features(ifindex)?.intersection(names).cloned().collect();
        if still.is_empty() {
            return Ok(());
        }
        Err(NetlinkError { errno: Errno::EOPNOTSUPP, detail: format!("{} stay on", still.join(", ")) })
    }
}

fn device(ifindex: u32) -> DefaultNla {
    nest(ATTRIBUTES.0, &[DefaultNla::new(DEVICE, ifindex.to_ne_bytes().to_vec())])
}

fn command(command: u8, attributes: &[DefaultNla]) -> Vec<u8> {
    let mut bytes = vec![command, 1, 0, 0];
    bytes.extend(emitted(attributes));
    bytes
}

fn nest(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
    DefaultNla::new(kind | NLA_F_NESTED, emitted(attributes))
}

fn emitted(attributes: &[DefaultNla]) -> Vec<u8> {
    let mut bytes = vec![0; attributes.buffer_len()];
    attributes.emit(&mut bytes);
    bytes
}

/// The value of the first attribute of a kind.
fn find(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut rest = attributes;
    while let Some(head) = rest.first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let value = rest.get(4..length)?;
        if u16::from_ne_bytes([head[2], head[3]]) & !NLA_F_NESTED == kind {
            return Some(value);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
    None
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).trim_end_matches('\0').to_owned()
}
