//! ICMP echoes as bytes (RFC 792, RFC 4443 section 4).

use std::net::IpAddr;

/// Header of an echo.
const ECHO: usize = 8;
/// What tells our echoes from those of others, behind the header.
const TOKEN: usize = 8;
/// An IPv4 header without options.
const IP4: usize = 20;
/// An IPv6 header.
const IP6: usize = 40;

/// What all echoes of one agent have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token(pub(super) [u8; TOKEN]);

/// An answer to one of our echoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Number of the echo.
    pub(super) sequence: u16,
    /// Bytes of the whole packet, IP header included.
    pub(super) size: u32,
}

impl Token {
    fn identifier(self) -> [u8; 2] {
        let [a, b, ..] = self.0;
        [a, b]
    }

    /// An echo to `to` that makes a packet of `size` bytes, as a raw socket takes it: without IP header.
    pub(super) fn request(self, to: IpAddr, sequence: u16, size: u32) -> Vec<u8> {
        let (kind, header) = match to {
            IpAddr::V4(_) => (8, IP4),
            IpAddr::V6(_) => (128, IP6),
        };
        let length = usize::try_from(size).unwrap_or(usize::MAX).saturating_sub(header).max(ECHO + TOKEN);
        let mut echo = vec![0; length];
        echo[0] = kind;
        echo[4..6].copy_from_slice(&self.identifier());
        echo[6..8].copy_from_slice(&sequence.to_be_bytes());
        echo[ECHO..ECHO + TOKEN].copy_from_slice(&self.0);
        if to.is_ipv4() {
            let sum = checksum(&echo);
            echo[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        // The kernel completes the checksum of ICMPv6 (RFC 3542 section 3.1).
        echo
    }

    /// Reads what a raw socket gives: with IP header for IPv4, without for IPv6. `None`: no answer to an echo of ours.
    pub(super) fn answer(self, ip6: bool, packet: &[u8]) -> Option<Answer> {
        let (kind, header, counted) = if ip6 { (129, 0, IP6) } else { (0, ip4_header(packet)?, 0) };
        let echo = packet.get(header..)?;
        let ours = *echo.first()? == kind
            && *echo.get(1)? == 0
            && echo.get(4..6)? == self.identifier()
            && echo.get(ECHO..ECHO + TOKEN)? == self.0;
        let [high, low] = echo.get(6..8)?.try_into().ok()?;
        let size = u32::try_from(packet.len() + counted).ok()?;
        ours.then_some(Answer { sequence: u16::from_be_bytes([high, low]), size })
    }
}

fn ip4_header(packet: &[u8]) -> Option<usize> {
    Some(usize::from(packet.first()? & 0x0f) * 4)
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        let [high, low] = [pair[0], pair.get(1).copied().unwrap_or(0)];
        u32::from(u16::from_be_bytes([high, low]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = Token(*b"headway1");
    const FOUR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const SIX: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);

    /// What a host makes of an echo, behind the IP header that its socket shows.
    fn answer_to(mut echo: Vec<u8>, kind: u8, header: &[u8]) -> Vec<u8> {
        echo[0] = kind;
        [header, &echo].concat()
    }

    #[test]
    fn an_answer_is_recognised_with_its_number_and_size() {
        let header = [&[0x45_u8][..], &[0; 19]].concat();
        let four = answer_to(TOKEN.request(FOUR, 0x1234, 1446), 0, &header);
        assert_eq!(TOKEN.answer(false, &four), Some(Answer { sequence: 0x1234, size: 1446 }));
        let six = answer_to(TOKEN.request(SIX, 7, 1446), 129, &[]);
        assert_eq!(TOKEN.answer(true, &six), Some(Answer { sequence: 7, size: 1446 }));
    }

    #[test]
    fn what_is_not_ours_is_not_taken_for_it() {
        let echo = TOKEN.request(SIX, 7, 100);
        assert_eq!(TOKEN.answer(true, &echo), None, "a request");
        assert_eq!(Token(*b"another1").answer(true, &answer_to(echo.clone(), 129, &[])), None);
        let answer = answer_to(echo, 129, &[]);
        for length in 0..16 {
            assert_eq!(TOKEN.answer(true, &answer[..length]), None);
            assert_eq!(TOKEN.answer(false, &answer[..length]), None);
        }
    }

    #[test]
    fn the_checksum_is_right() {
        let echo = TOKEN.request(FOUR, 99, 101);
        assert_eq!(checksum(&echo), 0);
        assert_eq!(echo.len(), 81);
    }
}
