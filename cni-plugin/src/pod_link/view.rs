//! A link as RTM_GETLINK shows it.

use std::collections::BTreeMap;

use agent_api::MacAddress;
use netlink_packet_core::NlasIterator;

/// Numbers of include/uapi/linux/if_link.h. Attributes are read one by one: a kernel with an attribute at a number
/// where netlink-packet-route knows another would make it refuse the message as a whole.
const IFLA_ADDRESS: u16 = 1;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_GROUP: u16 = 27;
/// Length of `struct ifinfomsg`.
const HEADER: usize = 16;
const IFF_UP: u32 = 1;

/// What is looked at in a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkView {
    /// Interface index.
    pub index: u32,
    /// Whether it is up.
    pub up: bool,
    /// MAC address.
    pub mac: MacAddress,
    /// Bytes.
    pub mtu: u32,
    /// Interface group.
    pub group: u32,
    /// Interface index of the other end, in its namespace.
    pub peer_index: u32,
    /// All attributes of four bytes by number, these included.
    pub attributes: BTreeMap<u16, u32>,
}

impl LinkView {
    /// Reads the payload of an RTM_NEWLINK message; nothing if it is malformed.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut view = Self {
            index: word(payload.get(4..8)?)?,
            up: word(payload.get(8..12)?)? & IFF_UP != 0,
            ..Self::default()
        };
        for attribute in NlasIterator::new(payload.get(HEADER..)?) {
            let attribute = attribute.ok()?;
            match (attribute.kind(), attribute.value()) {
                (IFLA_ADDRESS, value) => view.mac = MacAddress(value.try_into().ok()?),
                (kind, value) => {
                    if let Some(number) = word(value) {
                        view.attributes.insert(kind, number);
                    }
                }
            }
        }
        let number = |kind| view.attributes.get(&kind).copied().unwrap_or_default();
        (view.mtu, view.group, view.peer_index) = (number(IFLA_MTU), number(IFLA_GROUP), number(IFLA_LINK));
        Some(view)
    }
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{DefaultNla, Emitable};
    use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_link_is_read_with_attributes_that_nobody_knows() {
        let mut message = LinkMessage::default();
        message.header.index = 7;
        message.header.flags = LinkFlags::Up;
        message.attributes = vec![
            LinkAttribute::Address(vec![2, 0, 0, 0, 0, 9]),
            LinkAttribute::Mtu(1446),
            LinkAttribute::Link(12),
            LinkAttribute::Group(0x6877),
            LinkAttribute::Other(DefaultNla::new(67, 64u32.to_ne_bytes().to_vec())),
        ];
        let mut payload = vec![0; message.buffer_len()];
        message.emit(&mut payload);
        let view = LinkView::parse(&payload).unwrap();
        assert_eq!((view.index, view.up, view.mtu, view.group, view.peer_index), (7, true, 1446, 0x6877, 12));
        assert_eq!(view.mac, MacAddress([2, 0, 0, 0, 0, 9]));
        assert_eq!(view.attributes.get(&67), Some(&64));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = LinkView::parse(&bytes);
        }
    }
}
