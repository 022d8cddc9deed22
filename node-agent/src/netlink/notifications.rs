//! What the kernel says when links, addresses, routes or neighbours change.

use std::{collections::BTreeSet, io};

use nix::errno::Errno;
use rtnetlink::{
    packet_core::NetlinkDeserializable,
    packet_route::{RouteNetlinkMessage, link::LinkAttribute},
    sys::{Socket, SocketAddr, protocols},
};

use super::message::{self, Outcome};

/// `RTNLGRP_LINK`, `RTNLGRP_NEIGH`, `RTNLGRP_IPV4_IFADDR`, `RTNLGRP_IPV6_IFADDR`, `RTNLGRP_IPV6_ROUTE`
/// (include/uapi/linux/rtnetlink.h). Routes to peers are IPv6 routes.
const GROUPS: [u32; 5] = [1, 3, 5, 9, 11];

/// Something that has changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// A link, by name.
    Link(String),
    /// A neighbour, by its interface.
    Neighbour(u32),
    /// Something else, or notifications were lost.
    Other,
}

/// Notifications of the kernel, from now on.
pub struct Notifications {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Notifications {
    /// Begins to listen, in the present network namespace.
    ///
    /// # Errors
    /// Those of the socket calls.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(protocols::NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        Ok(Self { socket, buffer: Vec::with_capacity(64 << 10) })
    }

    /// Returns when something has changed.
    ///
    /// # Errors
    /// Those of recvmsg(2), save for lost notifications.
    pub fn wait(&mut self) -> io::Result<BTreeSet<Change>> {
        self.buffer.clear();
        match self.socket.recv(&mut self.buffer, 0) {
            Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => Ok([Change::Other].into()),
            Err(error) => Err(error),
            Ok(_) => Ok(message::split(&self.buffer).map(|message| change(message.ok())).collect()),
        }
    }
}

/// What a message is about. One that is not understood may be about anything.
fn change(message: Option<message::Message<'_>>) -> Change {
    let Some(Outcome::Reply { kind, payload, .. }) = message.map(|message| message.outcome) else {
        return Change::Other;
    };
    match RouteNetlinkMessage::deserialize(&message::typed(kind), payload) {
        Ok(RouteNetlinkMessage::NewNeighbour(message) | RouteNetlinkMessage::DelNeighbour(message)) => {
            Change::Neighbour(message.header.ifindex)
        }
        Ok(RouteNetlinkMessage::NewLink(message) | RouteNetlinkMessage::DelLink(message)) => {
            let name = message.attributes.into_iter().find_map(|attribute| match attribute {
                LinkAttribute::IfName(name) => Some(name),
                _ => None,
            });
            name.map_or(Change::Other, Change::Link)
        }
        _ => Change::Other,
    }
}
