//! The generation of the nftables ruleset: a number that grows with each change of any table.

use rtnetlink::{packet_core::NlasIterator, sys::protocols};

use super::{Answer, Connection, malformed};

/// `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETGEN` (include/uapi/linux/netfilter/nf_tables.h).
const GET_GENERATION: u16 = 10 << 8 | 16;
/// `struct nfgenmsg`: family unspecified, version 0, resource 0.
const HEADER: [u8; 4] = [0; 4];
/// `NFTA_GEN_ID`, big endian.
const GENERATION: u16 = 1;

/// The present generation. The same number twice means that no rule changed in between.
///
/// # Errors
/// What the kernel says; an error from a kernel without nftables.
pub fn ruleset_generation() -> Answer<u32> {
    let mut connection = Connection::open(protocols::NETLINK_NETFILTER)?;
    let replies = connection.exchange(GET_GENERATION, 0, &HEADER)?;
    let payload = replies.first().and_then(|(_, payload)| payload.get(HEADER.len()..)).unwrap_or_default();
    NlasIterator::new(payload)
        .flatten()
        .filter(|attribute| attribute.kind() == GENERATION)
        .find_map(|attribute| attribute.value().first_chunk().map(|value| u32::from_be_bytes(*value)))
        .ok_or_else(|| malformed("a ruleset without a generation".into()))
}
