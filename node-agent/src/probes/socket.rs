//! A raw socket that sends echoes from one address and receives the answers to it.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, ipproto, recvfrom, sendto,
        socket_with,
        sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover},
    },
};

pub(super) struct Socket {
    /// Where echoes come from.
    pub(super) source: IpAddr,
    fd: OwnedFd,
}

impl Socket {
    /// Opens one; the address has to be there.
    pub(super) fn open(source: IpAddr) -> io::Result<Self> {
        let (family, protocol) = match source {
            IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
            IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(family, SocketType::RAW, flags, Some(protocol))?;
        // Never fragmented, whatever the kernel has learned of the way: whether full-size packets pass is the question.
        match source {
            IpAddr::V4(_) => set_ip_mtu_discover(&fd, Ipv4PathMtuDiscovery::PROBE)?,
            IpAddr::V6(_) => set_ipv6_mtu_discover(&fd, Ipv6PathMtuDiscovery::PROBE)?,
        }
        bind(&fd, &SocketAddr::new(source, 0))?;
        Ok(Self { source, fd })
    }

    /// Sends an echo.
    pub(super) fn send(&self, to: IpAddr, echo: &[u8]) -> io::Result<()> {
        sendto(&self.fd, echo, SendFlags::empty(), &SocketAddr::new(to, 0))?;
        Ok(())
    }

    /// A packet that is there, with who sent it; `None` if there is none.
    pub(super) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<(IpAddr, &'a [u8])>> {
        let (length, from) = match recvfrom(&self.fd, &mut *buffer, RecvFlags::empty()) {
            Ok((length, _, from)) => (length, from),
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let from = from.and_then(|from| SocketAddr::try_from(from).ok()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some((from.ip(), &buffer[..length])))
    }
}

/// Waits until a socket has a packet, at most this long.
pub(super) fn wait<'a>(sockets: impl Iterator<Item = &'a Socket>, longest: Duration) -> io::Result<()> {
    let mut fds: Vec<PollFd> = sockets.map(|socket| PollFd::new(&socket.fd, PollFlags::IN)).collect();
    let longest = Timespec::try_from(longest).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut fds, Some(&longest)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
