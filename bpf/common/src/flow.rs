//! The flow label of the outer header: one function of the inner headers, the same in every program.

/// Flow label (1..=0xf_ffff) of a flow whose identifying header words are given.
///
/// Words are mixed in order, so a caller must pass the same words for the same flow: for protocols with ports the
/// addresses, the protocol and the ports, for other IP and for fragments the addresses and the protocol, for anything else both
/// MACs (RFC 6437 section 3; 0 would mean "no label").
#[inline(always)]
#[must_use]
pub fn flow_label(words: &[u32]) -> u32 {
    let mut hash = 0x9e37_79b9_u32;
    let mut i = 0;
    while i < words.len() {
        hash = (hash ^ words[i]).wrapping_mul(0x85eb_ca6b);
        hash ^= hash >> 15;
        i += 1;
    }
    let label = hash >> 12;
    if label == 0 { 1 } else { label }
}

#[cfg(test)]
mod tests {
    use super::flow_label;

    #[test]
    fn is_never_zero_and_fits_twenty_bits() {
        for i in 0..200_000_u32 {
            let label = flow_label(&[i, !i, 6]);
            assert!((1..=0xf_ffff).contains(&label));
        }
    }

    #[test]
    fn spreads_flows_that_differ_in_one_port() {
        let labels: std::collections::BTreeSet<u32> =
            (0..1000).map(|port| flow_label(&[0x0a01_010a, 0x0a01_020a, 6, port << 16 | 80])).collect();
        assert!(labels.len() > 990, "{} labels for 1000 flows", labels.len());
    }
}
