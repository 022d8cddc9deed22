//! Finds a number by its name in the kernel's own type information.
//!
//! `IFLA_TX_EXTRA_HEADROOM` is in no released kernel, its number differs between trees, and a kernel ignores
//! attributes that it does not know without an error: a number from a header file may mean something else. BTF
//! (`/sys/kernel/btf/vmlinux`, about 6 MB) says what the running kernel means by the name.
//! The format: Documentation/bpf/btf.rst and include/uapi/linux/btf.h of the kernel.

/// Why a file is not BTF that can be searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// It does not begin with the magic number, in this machine's byte order.
    #[error("the file does not begin as BTF does")]
    NotBtf,
    /// It ends before what its header or a type says.
    #[error("the file ends early, at byte {0}")]
    Truncated(usize),
    /// It holds a kind of type, with this number, whose length is not known.
    #[error("a type is of the unknown kind {0}")]
    UnknownKind(u32),
}

const MAGIC: u16 = 0xeb9f;
/// Length of `struct btf_type`: name_off, info, size or type; 4 bytes each.
const TYPE_LENGTH: usize = 12;

/// The value of `wanted` in an enumeration that also holds `companion`, or nothing if no enumeration has both.
///
/// The companion keeps a name that means something else elsewhere in the kernel from being taken for this one.
///
/// # Errors
/// [`BtfError`] if `btf` is not well-formed as far as it was read.
pub fn enumerator(btf: &[u8], companion: &str, wanted: &str) -> Result<Option<u32>, BtfError> {
    let (types, strings) = sections(btf)?;
    let is = |name: u32, text: &str| string(strings, name) == Some(text.as_bytes());
    let mut at = 0;
    while at < types.len() {
        let info = word(types, at + 4)?;
        let (kind, members) = ((info >> 24) & 0x1f, (info & 0xffff) as usize);
        let start = at + TYPE_LENGTH;
        let end = start + trailing_length(kind, members)?;
        let body = types.get(start..end).ok_or(BtfError::Truncated(types.len()))?;
        if kind == KIND_ENUM {
            let mut value = None;
            let mut accompanied = false;
            for member in body.chunks_exact(ENUM_MEMBER_LENGTH) {
                let name = word(member, 0)?;
                accompanied |= is(name, companion);
                if is(name, wanted) {
                    value = Some(word(member, 4)?);
                }
            }
            if accompanied && value.is_some() {
                return Ok(value);
            }
        }
        at = end;
    }
    Ok(None)
}

const KIND_ENUM: u32 = 6;
/// Length of `struct btf_enum`: name_off, val.
const ENUM_MEMBER_LENGTH: usize = 8;

/// Bytes that follow `struct btf_type` in a type of this kind.
fn trailing_length(kind: u32, members: usize) -> Result<usize, BtfError> {
    Ok(match kind {
        // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG
        2 | 7..=12 | 16 | 18 => 0,
        // INT, VAR, DECL_TAG
        1 | 14 | 17 => 4,
        // ARRAY
        3 => 12,
        // ENUM, FUNC_PROTO
        KIND_ENUM | 13 => members * 8,
        // STRUCT, UNION, DATASEC, ENUM64
        4 | 5 | 15 | 19 => members * 12,
        _ => return Err(BtfError::UnknownKind(kind)),
    })
}

/// The type section and the string section, where `struct btf_header` says they are.
fn sections(btf: &[u8]) -> Result<(&[u8], &[u8]), BtfError> {
    let magic = btf.first_chunk().ok_or(BtfError::NotBtf)?;
    if u16::from_ne_bytes(*magic) != MAGIC {
        return Err(BtfError::NotBtf);
    }
    let header_length = word(btf, 4)? as usize;
    let section = |offset_at, length_at| {
        let start = header_length.saturating_add(word(btf, offset_at)? as usize);
        let end = start.saturating_add(word(btf, length_at)? as usize);
        btf.get(start..end).ok_or(BtfError::Truncated(btf.len()))
    };
    Ok((section(8, 12)?, section(16, 20)?))
}

fn word(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(BtfError::Truncated(bytes.len()))?;
    Ok(u32::from_ne_bytes(*word))
}

/// The zero-terminated string at `offset`.
fn string(strings: &[u8], offset: u32) -> Option<&[u8]> {
    let from = strings.get(offset as usize..)?;
    from.split(|byte| *byte == 0).next()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// BTF with these types, each a sequence of words.
    fn btf(types: &[Vec<u32>], strings: &[u8]) -> Vec<u8> {
        let types: Vec<u8> = types.iter().flatten().flat_map(|word| word.to_ne_bytes()).collect();
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        let lengths = [types.len() as u32, strings.len() as u32];
        for word in [24, 0, lengths[0], lengths[0], lengths[1]] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        bytes.extend(types);
        bytes.extend(strings);
        bytes
    }

    fn enumeration(members: &[(u32, u32)]) -> Vec<u32> {
        let head = [0, (KIND_ENUM << 24) | members.len() as u32, 4];
        head.into_iter().chain(members.iter().flat_map(|(name, value)| [*name, *value])).collect()
    }

    const STRINGS: &[u8] = b"\0IFLA_MTU\0IFLA_NEW\0";
    const MTU: u32 = 1;
    const NEW: u32 = 10;

    #[test]
    fn an_enumerator_is_found_behind_types_of_every_kind() {
        let mut types: Vec<Vec<u32>> = Vec::new();
        for kind in (1..=19).filter(|kind| *kind != KIND_ENUM) {
            let mut words = vec![0, (kind << 24) | 3, 0];
            words.resize(3 + trailing_length(kind, 3).unwrap() / 4, 0);
            types.push(words);
        }
        types.push(enumeration(&[(MTU, 4), (NEW, 66)]));
        assert_eq!(enumerator(&btf(&types, STRINGS), "IFLA_MTU", "IFLA_NEW"), Ok(Some(66)));
    }

    #[test]
    fn the_name_in_another_enumeration_does_not_count() {
        let types = [enumeration(&[(MTU, 4)]), enumeration(&[(NEW, 66)])];
        assert_eq!(enumerator(&btf(&types, STRINGS), "IFLA_MTU", "IFLA_NEW"), Ok(None));
    }

    #[test]
    fn a_longer_name_is_another_name() {
        let types = [enumeration(&[(MTU, 4), (NEW, 66)])];
        assert_eq!(enumerator(&btf(&types, STRINGS), "IFLA_MTU", "IFLA_NE"), Ok(None));
    }

    #[test]
    fn what_is_not_btf_is_said_so() {
        assert_eq!(enumerator(b"", "a", "b"), Err(BtfError::NotBtf));
        assert_eq!(enumerator(b"\x7fELF", "a", "b"), Err(BtfError::NotBtf));
        assert_eq!(
            enumerator(&btf(&[vec![0, 31 << 24, 0]], STRINGS), "a", "b"),
            Err(BtfError::UnknownKind(31))
        );
    }

    #[test]
    fn every_cut_is_noticed() {
        let whole = btf(&[enumeration(&[(MTU, 4), (NEW, 66)])], STRINGS);
        for length in 0..whole.len() {
            assert!(enumerator(&whole[..length], "IFLA_MTU", "IFLA_NEW").is_err(), "{length}");
        }
    }

    #[test]
    fn the_running_kernel_has_the_mtu_attribute_at_4() {
        let Ok(kernel) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            eprintln!("skipped: this kernel shows no BTF");
            return;
        };
        assert_eq!(enumerator(&kernel, "IFLA_ADDRESS", "IFLA_MTU"), Ok(Some(4)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let mut whole = MAGIC.to_ne_bytes().to_vec();
            whole.extend(bytes);
            let _ = enumerator(&whole, "a", "b");
        }

        #[test]
        fn arbitrary_types_never_panic(words in prop::collection::vec(any::<u32>(), 0..64)) {
            let _ = enumerator(&btf(&[words], STRINGS), "IFLA_MTU", "IFLA_NEW");
        }
    }
}
