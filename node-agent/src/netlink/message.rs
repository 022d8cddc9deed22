//! The netlink message format: include/uapi/linux/netlink.h of the kernel.

use nix::errno::Errno;
use rtnetlink::packet_core::{NLM_F_ACK_TLVS, NLM_F_DUMP_INTR, NetlinkHeader, NlasIterator};

use super::NetlinkError;

const HEADER: usize = 16;
const ALIGNMENT: usize = 4;
const NOOP: u16 = 1;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const OVERRUN: u16 = 4;
/// `NLMSGERR_ATTR_MSG`: the kernel's words.
const ATTRIBUTE_WORDS: u16 = 1;

/// A message from the kernel.
pub(super) struct Message<'a> {
    /// Of the request that it answers.
    pub sequence: u32,
    /// What it says.
    pub outcome: Outcome<'a>,
}

/// What a message says.
pub(super) enum Outcome<'a> {
    /// The request failed.
    Failed(NetlinkError),
    /// That was all.
    Finished,
    /// A part of the answer.
    Reply {
        /// Its type.
        kind: u16,
        /// Its payload.
        payload: &'a [u8],
        /// The table did not change while it was dumped.
        consistent: bool,
    },
}

/// A request as the kernel takes it.
pub(super) fn request(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let length = HEADER + payload.len();
    let mut bytes = Vec::with_capacity(length.next_multiple_of(ALIGNMENT));
    // A request of ours is a few kilobytes at most.
    bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(length.next_multiple_of(ALIGNMENT), 0);
    bytes
}

/// A header of this type, which is all that the parser of a payload looks at.
pub(super) fn typed(kind: u16) -> NetlinkHeader {
    let mut header = NetlinkHeader::default();
    header.message_type = kind;
    header
}

/// The messages in what was received at once.
pub(super) fn split(mut bytes: &[u8]) -> impl Iterator<Item = Result<Message<'_>, String>> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<HEADER>()?;
        let length = word(header, 0) as usize;
        let Some(payload) = bytes.get(HEADER..length) else {
            bytes = &[];
            return Some(Err(format!("a message claims {length} bytes")));
        };
        bytes = bytes.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some(Ok(Message { sequence: word(header, 8), outcome: outcome(header, payload) }))
    })
}

fn outcome<'a>(header: &[u8; HEADER], payload: &'a [u8]) -> Outcome<'a> {
    let kind = u16::from_ne_bytes([header[4], header[5]]);
    let flags = u16::from_ne_bytes([header[6], header[7]]);
    let consistent = flags & NLM_F_DUMP_INTR == 0;
    match kind {
        ERROR | DONE => finished(kind, flags, payload, consistent),
        OVERRUN => Outcome::Failed(NetlinkError { errno: Errno::ENOBUFS, detail: String::new() }),
        NOOP => Outcome::Reply { kind, payload: &[], consistent },
        _ => Outcome::Reply { kind, payload, consistent },
    }
}

/// An acknowledgement, an error, or the end of a dump.
fn finished<'a>(kind: u16, flags: u16, payload: &[u8], consistent: bool) -> Outcome<'a> {
    let code = payload.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
    if code != 0 {
        // Behind the code an error quotes the request's header, the end of a dump does not.
        let quoted = if kind == ERROR { HEADER } else { 0 };
        let said = payload.get(4 + quoted..).filter(|_| flags & NLM_F_ACK_TLVS != 0);
        let detail = said.map(words).unwrap_or_default();
        return Outcome::Failed(NetlinkError { errno: Errno::from_raw(code.saturating_neg()), detail });
    }
    if consistent {
        Outcome::Finished
    } else {
        Outcome::Failed(NetlinkError { errno: Errno::EINTR, detail: "dump interrupted".into() })
    }
}

fn words(attributes: &[u8]) -> String {
    NlasIterator::new(attributes)
        .flatten()
        .find(|attribute| attribute.kind() == ATTRIBUTE_WORDS)
        .map(|attribute| String::from_utf8_lossy(attribute.value()).trim_end_matches('\0').to_owned())
        .unwrap_or_default()
}

fn word(header: &[u8; HEADER], at: usize) -> u32 {
    u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_error_carries_the_kernels_words() {
        let mut payload = (-17_i32).to_ne_bytes().to_vec();
        payload.extend([0; HEADER]);
        payload.extend([10, 0, 1, 0]);
        payload.extend(b"there\0\0\0");
        let bytes = request(ERROR, NLM_F_ACK_TLVS, 7, &payload);
        let message = split(&bytes).next().unwrap().unwrap();
        assert_eq!(message.sequence, 7);
        let Outcome::Failed(error) = message.outcome else { panic!("no error") };
        assert_eq!((error.errno, error.detail.as_str()), (Errno::EEXIST, "there"));
    }

    #[test]
    fn an_inconsistent_end_is_no_success() {
        let bytes = request(DONE, NLM_F_DUMP_INTR, 7, &0_i32.to_ne_bytes());
        let message = split(&bytes).next().unwrap().unwrap();
        assert!(matches!(message.outcome, Outcome::Failed(error) if error.errno == Errno::EINTR));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for message in split(&bytes).flatten() {
                if let Outcome::Failed(error) = message.outcome {
                    let _ = error.to_string();
                }
            }
        }
    }
}
