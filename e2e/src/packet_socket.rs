//! Raw frames on a link, byte for byte (packet(7)).

use std::{
    io, mem,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, send, socket};

use crate::Netns;

const LARGEST: usize = 70_000;

/// Which way a frame went past the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The link received it.
    In,
    /// The link sends it.
    Out,
}

/// A frame seen on a link, its VLAN tag in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which way.
    pub direction: Direction,
    /// From the destination MAC on, without FCS.
    pub bytes: Vec<u8>,
}

/// A raw socket that sees and sends every frame of a link.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    link: String,
}

impl PacketSocket {
    /// Opens it. Frames that come from now on wait in a large buffer.
    ///
    /// # Panics
    /// The kernel refuses.
    #[must_use]
    #[track_caller]
    pub fn open(netns: &Netns, link: &str) -> Self {
        let ifindex = netns.ifindex(link);
        // Bound to no protocol at first: nothing of other links may come before the bind.
        let fd = netns.enter(|| {
            socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None::<SockProtocol>)
        });
        let socket = Self { fd: fd.expect("open a packet socket"), link: format!("{} {link}", netns.name()) };
        socket.option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20);
        socket.option(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1);
        socket.bind(ifindex);
        socket
    }

    /// Sends a frame as it is.
    ///
    /// # Panics
    /// The kernel refuses it.
    #[track_caller]
    pub fn send(&self, frame: &[u8]) {
        self.try_send(frame)
            .unwrap_or_else(|error| panic!("{}: send {} bytes: {error}", self.link, frame.len()));
    }

    /// Sends a frame as it is.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn try_send(&self, frame: &[u8]) -> io::Result<()> {
        send(self.fd.as_raw_fd(), frame, MsgFlags::empty())?;
        Ok(())
    }

    /// The next frame, either way; `None` if none comes within `patience`.
    ///
    /// # Panics
    /// The socket fails, e.g. because the link is gone.
    #[must_use]
    #[track_caller]
    pub fn next(&self, patience: Duration) -> Option<Seen> {
        self.wait(patience).then(|| self.read())
    }

    /// The next received frame that `wanted` accepts.
    ///
    /// # Panics
    /// None comes within `patience`.
    #[must_use]
    #[track_caller]
    pub fn expect(&self, what: &str, patience: Duration, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        self.find(patience, wanted)
            .unwrap_or_else(|| panic!("{}: within {patience:?} came no {what}", self.link))
    }

    /// The next received frame that `wanted` accepts, if one comes within `patience`.
    #[must_use]
    #[track_caller]
    pub fn find(&self, patience: Duration, wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let end = Instant::now() + patience;
        loop {
            let seen = self.next(end.saturating_duration_since(Instant::now()))?;
            if seen.direction == Direction::In && wanted(&seen.bytes) {
                return Some(seen.bytes);
            }
        }
    }

    /// Frames that the kernel could not queue to this socket since the last call.
    ///
    /// # Panics
    /// The kernel does not say.
    #[must_use]
    pub fn lost(&self) -> u32 {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of_val(&statistics) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes of a plain integer struct.
        let done = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        assert_eq!(done, 0, "{}: {}", self.link, io::Error::last_os_error());
        statistics.tp_drops
    }

    fn wait(&self, patience: Duration) -> bool {
        let milliseconds = patience.as_millis().try_into().unwrap_or(libc::c_int::MAX);
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&raw mut poll, 1, milliseconds) == 1 }
    }

    fn read(&self) -> Seen {
        let mut bytes = vec![0_u8; LARGEST];
        let mut control = [0_u64; 16];
        // SAFETY: zero is a valid value for every field of these two.
        let (mut from, mut message): (libc::sockaddr_ll, libc::msghdr) =
            unsafe { (mem::zeroed(), mem::zeroed()) };
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of_val(&from) as libc::socklen_t;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        // SAFETY: every pointer in the message is to a live buffer of the length beside it.
        let length = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, 0) };
        let length = usize::try_from(length);
        bytes.truncate(
            length.unwrap_or_else(|_| panic!("{}: receive: {}", self.link, io::Error::last_os_error())),
        );
        // SAFETY: recvmsg has filled the message in.
        if let Some(tag) = unsafe { vlan_tag(&message) } {
            // The kernel takes the outermost tag out of the frame and reports it beside.
            bytes.splice(12..12, tag);
        }
        let out = from.sll_pkttype == libc::PACKET_OUTGOING;
        Seen { direction: if out { Direction::Out } else { Direction::In }, bytes }
    }

    fn bind(&self, ifindex: u32) {
        // SAFETY: zero is a valid value for every field of sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = ifindex.try_into().expect("an interface index fits");
        let length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: a sockaddr_ll of the length given.
        let done = unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), length) };
        assert_eq!(done, 0, "{}: bind: {}", self.link, io::Error::last_os_error());
    }

    fn option(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
        set_option(&self.fd, level, name, value);
    }
}

/// The VLAN tag that the kernel has taken out of the frame: TPID and TCI as on the wire.
///
/// # Safety
/// `message` must be as `recvmsg` has left it, its control buffer alive.
unsafe fn vlan_tag(message: &libc::msghdr) -> Option<[u8; 4]> {
    // SAFETY: the caller's promise; the macros stay inside the control buffer.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref()? };
    if header.cmsg_level != libc::SOL_PACKET || header.cmsg_type != libc::PACKET_AUXDATA {
        return None;
    }
    // SAFETY: a message of this type holds a tpacket_auxdata; its alignment is not promised.
    let data: libc::tpacket_auxdata =
        unsafe { libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned() };
    if data.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let ([a, b], [c, d]) = (data.tp_vlan_tpid.to_be_bytes(), data.tp_vlan_tci.to_be_bytes());
    Some([a, b, c, d])
}

/// `setsockopt` with an integer.
///
/// # Panics
/// The kernel refuses.
#[track_caller]
pub(crate) fn set_option(socket: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: an integer of the length given.
    let done =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length) };
    assert_eq!(done, 0, "setsockopt({level}, {name}, {value}): {}", io::Error::last_os_error());
}
