//! One message as one line of JSON: how it is written, how it is read within bounds.

use std::io::{self, Read};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{ErrorKind, Refusal, Request, Response, Version};

/// Longest line that either side accepts, bytes without the newline. A GC of 5,000 attachments takes 0.5 MB.
pub const MAX_LINE: usize = 1 << 20;
/// Bytes to read at once: most lines fit.
pub const PIECE: usize = 4096;

/// The message as a line, with its newline.
///
/// # Errors
/// If the message has a form that JSON does not (none of ours has).
pub fn encode<T: Serialize>(message: &T) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// A line that comes in pieces.
#[derive(Debug, Default)]
pub struct Incoming(Vec<u8>);

impl Incoming {
    /// Takes what one read gave, nothing at the end of the stream; gives the line once it is complete. It ends at the
    /// first newline, or with the stream. What follows the newline is dropped: there is one line each way.
    ///
    /// # Errors
    /// `InvalidData` when the line is longer than [`MAX_LINE`]; `UnexpectedEof` when the stream ends before a single
    /// byte.
    pub fn take(&mut self, piece: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let end = piece.iter().position(|byte| *byte == b'\n');
        self.0.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
        if self.0.len() > MAX_LINE {
            let text = format!("a line of more than {MAX_LINE} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        if end.is_none() && !piece.is_empty() {
            return Ok(None);
        }
        if end.is_none() && self.0.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some(std::mem::take(&mut self.0)))
    }
}

/// Reads a line. Bytes behind its newline may be consumed too.
///
/// # Errors
/// Those of the reader, and of [`Incoming::take`].
pub fn read_line(mut reader: impl Read) -> io::Result<Vec<u8>> {
    let mut incoming = Incoming::default();
    let mut piece = [0; PIECE];
    loop {
        let count = match reader.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        };
        if let Some(line) = incoming.take(&piece[..count])? {
            return Ok(line);
        }
    }
}

/// The request in a line that a server received.
///
/// # Errors
/// The refusal to answer with: of kind `Version` if the sender speaks another major version, whatever else its
/// line holds; of kind `Invalid` if the line is not a request.
pub fn decode_request(line: &[u8]) -> Result<Request, Refusal> {
    decode(line)
}

/// The response in a line that a client received.
///
/// # Errors
/// As [`decode_request`].
pub fn decode_response(line: &[u8]) -> Result<Response, Refusal> {
    decode(line)
}

/// What every message of every major version has.
#[derive(Deserialize)]
struct Versioned {
    version: Version,
}

fn decode<T: DeserializeOwned>(line: &[u8]) -> Result<T, Refusal> {
    let refuse = |kind, message| Refusal { kind, message };
    let malformed = |error| refuse(ErrorKind::Invalid, format!("not a message of this protocol: {error}"));
    let Versioned { version } = serde_json::from_slice(line).map_err(malformed)?;
    if version.major != Version::CURRENT.major {
        let message = format!("the other side speaks version {version}, this side {}", Version::CURRENT);
        return Err(refuse(ErrorKind::Version, message));
    }
    serde_json::from_slice(line).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{AttachmentKey, Release, Verb};

    #[test]
    fn a_request_survives_the_way() {
        let key = AttachmentKey { network: "n".into(), container: "c\n".into(), ifname: "eth0".into() };
        let verb = Verb::Release(Release { key, nonce: Some("x".into()) });
        let request = Request { version: Version::CURRENT, verb };
        let line = encode(&request).unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(decode_request(&read_line(&line[..]).unwrap()), Ok(request));
    }

    #[test]
    fn another_major_version_is_told_apart_whatever_it_says() {
        let refusal = decode_request(br#"{"version":{"major":2,"minor":0},"tidings":[]}"#).unwrap_err();
        assert_eq!(refusal.kind, ErrorKind::Version);
    }

    #[test]
    fn a_newer_minor_version_with_an_addition_is_served() {
        let request =
            decode_request(br#"{"version":{"major":1,"minor":9},"verb":"status","new":1}"#).unwrap();
        assert_eq!(request.verb, Verb::Status);
    }

    #[test]
    fn a_line_without_newline_ends_with_the_stream() {
        assert_eq!(read_line(&b"abc"[..]).unwrap(), b"abc");
        assert_eq!(read_line(&b""[..]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn an_endless_line_is_refused() {
        let error = read_line(io::repeat(b'a')).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_refused_or_understood(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            let _ = decode_request(&bytes);
            let _ = decode_response(&bytes);
        }

        #[test]
        fn arbitrary_members_never_panic(version in any::<u32>(), text in ".*") {
            let text = serde_json::to_string(&text).unwrap();
            let line = format!(r#"{{"version":{{"major":{version},"minor":0}},"verb":{text}}}"#);
            let _ = decode_request(line.as_bytes());
        }
    }
}
