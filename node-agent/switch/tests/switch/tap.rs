//! Frames as they are on a link: sent and received by packet sockets.

use std::{
    ffi::c_int,
    fs::File,
    io,
    os::fd::{AsRawFd as _, FromRawFd as _},
    time::{Duration, Instant},
};

use crate::world::{Namespace, PATIENCE};

/// A packet socket on one link. It sees what arrives there, not what this end sends.
pub struct Tap {
    socket: File,
}

impl Tap {
    pub fn new(namespace: &Namespace, link: &str) -> Self {
        let ifindex = namespace.ifindex(link);
        namespace.enter(|| Self::open(ifindex)).unwrap()
    }

    fn open(ifindex: u32) -> io::Result<Self> {
        let all = c_int::from(0x0003_u16.to_be());
        // SAFETY: no pointers; the new descriptor is owned by nobody else.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, all);
            check(fd)?;
            File::from_raw_fd(fd)
        };
        // SAFETY: all zeros is a valid address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = all as u16;
        address.sll_ifindex = ifindex as i32;
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: `address` is valid for `len` bytes.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
        let tap = Self { socket };
        tap.option(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        tap.option(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        tap.option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20)?;
        Ok(tap)
    }

    fn option(&self, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
        let len = size_of_val(&value) as libc::socklen_t;
        // SAFETY: `value` is valid for `len` bytes.
        let status =
            unsafe { libc::setsockopt(self.socket.as_raw_fd(), level, name, (&raw const value).cast(), len) };
        check(status)
    }

    /// Sends a frame as it is.
    pub fn send(&self, frame: &[u8]) {
        // SAFETY: `frame` is valid for its length.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "send: {}", io::Error::last_os_error());
    }

    /// The next frame that `wanted` accepts; panics after a while.
    pub fn expect(&self, what: &str, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut others = Vec::new();
        let start = Instant::now();
        while let Some(left) = PATIENCE.checked_sub(start.elapsed()) {
            match self.receive(left) {
                Some(frame) if wanted(&frame) => return frame,
                Some(frame) => others.push(frame),
                None => break,
            }
        }
        panic!("no {what} arrived, but {} other frames: {:02x?}", others.len(), others.first());
    }

    /// Everything that has arrived by now.
    pub fn drain(&self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.receive(Duration::ZERO)).collect()
    }

    fn receive(&self, wait: Duration) -> Option<Vec<u8>> {
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        let ready = unsafe { libc::poll(&raw mut poll, 1, wait.as_millis() as c_int) };
        if ready == 1 { Some(self.read().unwrap()) } else { None }
    }

    /// Reads a frame, with the tag that the kernel has lifted out put back.
    fn read(&self) -> io::Result<Vec<u8>> {
        let mut frame = vec![0_u8; 70_000];
        let mut control = [0_u64; 16];
        let mut vector = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
        // SAFETY: all zeros is a valid address.
        let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        // SAFETY: all zeros is a valid header.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = (&raw mut from).cast();
        header.msg_namelen = size_of_val(&from) as libc::socklen_t;
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control);
        // SAFETY: the buffers that the header names live until the end of the function.
        let len = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, 0) };
        check(len as c_int)?;
        frame.truncate(len as usize);
        assert_eq!(
            u16::from_be(from.sll_protocol),
            protocol(&frame),
            "the kernel takes the frame for another one"
        );
        // SAFETY: the kernel has filled the header.
        if let Some(tag) = unsafe { lifted_tag(&header) } {
            frame.splice(12..12, tag);
        }
        Ok(frame)
    }
}

/// What the kernel should take an untagged frame for: its EtherType, or 802.2 if it has a length instead.
fn protocol(frame: &[u8]) -> u16 {
    let protocol = u16::from_be_bytes([frame[12], frame[13]]);
    if protocol < 1536 { libc::ETH_P_802_2 as u16 } else { protocol }
}

/// The tag in a message's auxiliary data.
///
/// # Safety
/// `header` was filled by `recvmsg`.
unsafe fn lifted_tag(header: &libc::msghdr) -> Option<[u8; 4]> {
    // SAFETY: the kernel's control message, long enough for its type, as its length says.
    let aux = unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        if message.is_null() || (*message).cmsg_type != libc::PACKET_AUXDATA {
            return None;
        }
        libc::CMSG_DATA(message).cast::<libc::tpacket_auxdata>().read_unaligned()
    };
    if aux.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let [a, b] = aux.tp_vlan_tpid.to_be_bytes();
    let [c, d] = aux.tp_vlan_tci.to_be_bytes();
    Some([a, b, c, d])
}

fn check(status: c_int) -> io::Result<()> {
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
