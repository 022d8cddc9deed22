//! A netlink socket on which one request after the other is answered.
//!
//! Blocking: the kernel has its answer ready when `send` returns, so there is nothing to wait for.

mod generic;
mod message;
mod netfilter;
mod notifications;

pub use generic::Generic;
pub use netfilter::ruleset_generation;
pub use notifications::{Change, Notifications};

use std::{fmt, io};

use nix::errno::Errno;
use rtnetlink::{
    packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkSerializable},
    packet_route::RouteNetlinkMessage,
    sys::{Socket, SocketAddr, protocols},
};

use message::{Message, Outcome};

/// How often an interrupted dump is begun anew.
const DUMP_ATTEMPTS: usize = 20;
/// The kernel fills at most this much for a dump (`NLMSG_GOODSIZE` and what the reader offers, net/netlink/af_netlink.c).
const BUFFER: usize = 64 << 10;

/// What the kernel said to a request, or that there was no answer.
#[derive(Debug, thiserror::Error)]
pub struct NetlinkError {
    /// The error number.
    pub errno: Errno,
    /// The kernel's words, where it has any.
    pub detail: String,
}

impl fmt::Display for NetlinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.errno.desc())?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, " ({})", self.detail) }
    }
}

impl From<io::Error> for NetlinkError {
    fn from(error: io::Error) -> Self {
        let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        Self { errno, detail: String::new() }
    }
}

impl From<Errno> for NetlinkError {
    fn from(errno: Errno) -> Self {
        Self { errno, detail: String::new() }
    }
}

/// A result whose error is the kernel's answer.
pub type Answer<T> = Result<T, NetlinkError>;

/// A socket of one netlink family.
struct Connection {
    socket: Socket,
    sequence: u32,
    requests: u64,
    buffer: Vec<u8>,
}

impl Connection {
    fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        Ok(Self { socket, sequence: 0, requests: 0, buffer: Vec::with_capacity(BUFFER) })
    }

    /// Sends one request and gives the payloads that come back, with their types.
    fn exchange(&mut self, kind: u16, flags: u16, payload: &[u8]) -> Answer<Vec<(u16, Vec<u8>)>> {
        self.sequence = self.sequence.wrapping_add(1);
        self.requests += 1;
        let request = message::request(kind, flags | NLM_F_REQUEST | NLM_F_ACK, self.sequence, payload);
        self.socket.send(&request, 0)?;
        let mut replies = Vec::new();
        let mut interrupted = false;
        loop {
            self.buffer.clear();
            self.socket.recv(&mut self.buffer, 0)?;
            for message in message::split(&self.buffer) {
                let Message { sequence, outcome } = message.map_err(malformed)?;
                if sequence != self.sequence {
                    continue;
                }
                match outcome {
                    Outcome::Failed(error) => return Err(error),
                    Outcome::Finished if interrupted => {
                        return Err(NetlinkError { errno: Errno::EINTR, detail: "dump interrupted".into() });
                    }
                    Outcome::Finished => return Ok(replies),
                    Outcome::Reply { kind, payload, consistent } => {
                        interrupted |= !consistent;
                        replies.push((kind, payload.to_vec()));
                    }
                }
            }
        }
    }

    /// A dump that nothing changed under.
    fn dump(&mut self, kind: u16, payload: &[u8]) -> Answer<Vec<(u16, Vec<u8>)>> {
        let mut attempts = 1;
        loop {
            match self.exchange(kind, NLM_F_DUMP, payload) {
                Err(error) if error.errno == Errno::EINTR && attempts < DUMP_ATTEMPTS => attempts += 1,
                result => return result,
            }
        }
    }
}

fn malformed(detail: String) -> NetlinkError {
    NetlinkError { errno: Errno::EBADMSG, detail }
}

/// A routing netlink socket, in the network namespace in which it was opened.
pub struct Route {
    connection: Connection,
}

impl Route {
    /// Opens one.
    ///
    /// # Errors
    /// Those of the socket calls.
    pub fn open() -> io::Result<Self> {
        let connection = Connection::open(protocols::NETLINK_ROUTE)?;
        // Dumps are filtered by the kernel, not by us.
        connection.socket.set_netlink_get_strict_chk(true)?;
        Ok(Self { connection })
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.connection.requests
    }

    /// Asks for a change.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn change(&mut self, message: &RouteNetlinkMessage, flags: u16) -> Answer<()> {
        self.connection.exchange(message.message_type(), flags, &bytes(message)).map(drop)
    }

    /// Asks for one thing.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn get(&mut self, message: &RouteNetlinkMessage) -> Answer<RouteNetlinkMessage> {
        let replies = self.connection.exchange(message.message_type(), 0, &bytes(message))?;
        let reply = replies.into_iter().next().ok_or_else(|| malformed("there is no reply".into()))?;
        parsed(reply)
    }

    /// Asks for all things of a kind.
    ///
    /// # Errors
    /// What the kernel says; `EINTR` if the table changed again and again during the dump.
    pub fn dump(&mut self, message: &RouteNetlinkMessage) -> Answer<Vec<RouteNetlinkMessage>> {
        let replies = self.connection.dump(message.message_type(), &bytes(message))?;
        replies.into_iter().map(parsed).collect()
    }
}

fn bytes(message: &RouteNetlinkMessage) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

fn parsed((kind, payload): (u16, Vec<u8>)) -> Answer<RouteNetlinkMessage> {
    RouteNetlinkMessage::deserialize(&message::typed(kind), &payload)
        .map_err(|error| malformed(error.to_string()))
}
