//! EFFECT: a blocking rtnetlink socket that sends several requests at once.
//!
//! An ADD is a handful of requests. Those that do not need each other's answers go to the kernel in one datagram:
//! it works them off in order, so that the pod's address, say, is set when its route comes.

use std::io;

use netlink_packet_core::{
    DecodeError, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;

/// Longest datagram that the kernel sends: it sizes dumps by what the reader offers, up to this.
const DATAGRAM: usize = 32 << 10;
/// How often a dump that changes interrupt is begun again.
const DUMP_ATTEMPTS: usize = 10;

/// What the kernel says to one request: the payloads of its messages, or its error.
pub type Answer = Result<Vec<Vec<u8>>, Errno>;

/// A socket in the network namespace of the thread that opened it.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends the requests, each with flags of its own, and gives one answer for each in the same order.
    ///
    /// # Errors
    /// Those of the socket. What the kernel says to a request is in its answer.
    pub fn exchange(&mut self, requests: Vec<(RouteNetlinkMessage, u16)>) -> io::Result<Vec<Answer>> {
        let mut datagram = Vec::new();
        let first = self.sequence.wrapping_add(1);
        let count = requests.len();
        for (request, flags) in requests {
            self.sequence = self.sequence.wrapping_add(1);
            let mut header = NetlinkHeader::default();
            header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
            header.sequence_number = self.sequence;
            let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
            message.finalize();
            let start = datagram.len();
            datagram.resize(start + message.buffer_len().next_multiple_of(4), 0);
            message.serialize(&mut datagram[start..]);
        }
        self.socket.send(&datagram, 0)?;
        (0..count).map(|index| self.answer(first.wrapping_add(index as u32))).collect()
    }

    /// One request without payload in its answer.
    ///
    /// # Errors
    /// Those of the socket, and the kernel's.
    pub fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<Vec<u8>>> {
        let mut answers = self.exchange(vec![(message, flags)])?;
        Ok(answers.pop().unwrap_or(Err(Errno::EPROTO))?)
    }

    /// All objects of a kind, as they were at one moment.
    ///
    /// # Errors
    /// As [`Netlink::request`]; EINTR if changes interrupted every attempt.
    pub fn dump(&mut self, message: &RouteNetlinkMessage) -> io::Result<Vec<Vec<u8>>> {
        let mut attempts = DUMP_ATTEMPTS;
        loop {
            attempts -= 1;
            match self.request(message.clone(), NLM_F_DUMP) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted && attempts > 0 => {}
                result => return result,
            }
        }
    }

    /// Reads up to the end of the answer to the request with this number.
    fn answer(&mut self, sequence: u32) -> io::Result<Answer> {
        let mut payloads = Vec::new();
        let mut interrupted = false;
        loop {
            let datagram = self.receive()?;
            let mut rest = &datagram[..];
            while !rest.is_empty() {
                let message = NetlinkBuffer::new_checked(rest).map_err(|error| garbled(&error))?;
                rest = rest.get((message.length() as usize).next_multiple_of(4)..).unwrap_or_default();
                if message.sequence_number() != sequence {
                    continue;
                }
                interrupted |= message.flags() & NLM_F_DUMP_INTR != 0;
                match message.message_type() {
                    NLMSG_ERROR | NLMSG_DONE => {
                        let code = message.payload().first_chunk().copied().map_or(0, i32::from_ne_bytes);
                        return Ok(match code {
                            0 if interrupted => Err(Errno::EINTR),
                            0 => Ok(payloads),
                            code => Err(Errno::from_raw(code.saturating_neg())),
                        });
                    }
                    _ => payloads.push(message.payload().to_vec()),
                }
            }
        }
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let mut datagram = Vec::with_capacity(DATAGRAM);
            match self.socket.recv(&mut datagram, 0) {
                Ok(_) => return Ok(datagram),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn garbled(error: &DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
