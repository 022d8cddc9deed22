//! Waits until links, addresses, routes or neighbours change.

use std::io;

use nix::errno::Errno;
use rtnetlink::sys::{Socket, SocketAddr, protocols};

/// `RTNLGRP_LINK`, `RTNLGRP_NEIGH`, `RTNLGRP_IPV4_IFADDR`, `RTNLGRP_IPV6_IFADDR`, `RTNLGRP_IPV6_ROUTE`
/// (include/uapi/linux/rtnetlink.h). Routes to peers are IPv6 routes.
const GROUPS: [u32; 5] = [1, 3, 5, 9, 11];

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
    /// Those of recvmsg(2), save for lost notifications: whatever they were, something has changed.
    pub fn wait(&mut self) -> io::Result<()> {
        self.buffer.clear();
        match self.socket.recv(&mut self.buffer, 0) {
            Err(error) if error.raw_os_error() != Some(Errno::ENOBUFS as i32) => Err(error),
            _ => Ok(()),
        }
    }
}
