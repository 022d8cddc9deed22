//! TCP between namespaces: every byte is compared, a stall is a failure.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd,
    thread,
    time::{Duration, Instant},
};

use crate::{Netns, frame};

/// Nothing arrives for so long: the connection is dead (a black hole, not a slow machine).
const STALL: Duration = Duration::from_secs(20);
/// Compared in pieces of this size; not a multiple of a segment or page.
const PATTERN: usize = 262_139;
const WRITE: usize = 131_072;

/// How much to send.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// As much as goes in this time.
    For(Duration),
    /// Writes of `size` bytes with a pause after each.
    Paced {
        /// Bytes of a write.
        size: usize,
        /// Number of writes.
        writes: u32,
        /// Pause.
        pause: Duration,
    },
}

/// How it went.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Bytes that arrived, all as sent.
    pub bytes: u64,
    /// From the first write to the last byte's arrival.
    pub seconds: f64,
    /// Segments that the sender sent again.
    pub retransmits: u32,
    /// Packets that reached the receiver out of order.
    pub out_of_order: u32,
    /// Path MTU that the sender used at the end, bytes.
    pub path_mtu: u32,
}

impl Transfer {
    /// Megabits a second.
    #[must_use]
    pub fn megabits(&self) -> f64 {
        self.bytes as f64 * 8e-6 / self.seconds
    }
}

/// Sends from one namespace to an address in another over a fresh connection.
///
/// # Panics
/// No connection, a stall, or a byte that differs.
#[must_use]
#[track_caller]
pub fn transfer(from: &Netns, to: &Netns, address: IpAddr, amount: Amount) -> Transfer {
    transfer_via(from, to, address, address, amount)
}

/// Like [`transfer`], with the client connecting to another address, which is translated on the way.
///
/// # Panics
/// Like [`transfer`].
#[must_use]
#[track_caller]
pub fn transfer_via(from: &Netns, to: &Netns, address: IpAddr, dialled: IpAddr, amount: Amount) -> Transfer {
    let (client, server) = connect(from, to, address, dialled);
    run(client, server, amount)
}

/// Sends from one end of a connection to the other, and ends it.
///
/// # Panics
/// A stall, or a byte that differs.
#[must_use]
#[track_caller]
pub fn run(client: TcpStream, server: TcpStream, amount: Amount) -> Transfer {
    let writing = thread::spawn(move || {
        let start = Instant::now();
        send(&client, amount);
        (start, client)
    });
    let (bytes, end, out_of_order) = receive(server);
    let (start, client) = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Transfer {
        bytes,
        seconds: (end - start).as_secs_f64(),
        retransmits: info(&client, INFO_TOTAL_RETRANS),
        out_of_order,
        path_mtu: info(&client, INFO_PMTU),
    }
}

/// A connection from one namespace to a listener in another, made by dialling an address that may be translated
/// on the way: the client's end and the server's.
///
/// # Panics
/// It is not established within ten seconds.
#[must_use]
#[track_caller]
pub fn connect(from: &Netns, to: &Netns, address: IpAddr, dialled: IpAddr) -> (TcpStream, TcpStream) {
    let listener = to.enter(|| TcpListener::bind(SocketAddr::new(address, 0)));
    let listener = listener.unwrap_or_else(|error| panic!("listen at {address} in {}: {error}", to.name()));
    let port = listener.local_addr().expect("a listener has an address").port();
    let target = SocketAddr::new(dialled, port);
    let client = from.enter(|| TcpStream::connect_timeout(&target, Duration::from_secs(10)));
    let client = client.unwrap_or_else(|error| panic!("connect from {} to {target}: {error}", from.name()));
    let (server, _) = listener.accept().expect("accept the connection");
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(STALL)).expect("set a timeout");
        stream.set_write_timeout(Some(STALL)).expect("set a timeout");
    }
    (client, server)
}

/// A few lines from `first` to `second` and back, which both ends wait for.
///
/// # Panics
/// A stall, or a byte that differs.
#[track_caller]
pub fn talk(first: &mut TcpStream, second: &mut TcpStream) {
    for round in 0..3_u8 {
        let mut heard = [0; 1000];
        first.write_all(&[round; 1000]).expect("say something");
        second.read_exact(&mut heard).expect("hear it");
        second.write_all(&heard).expect("say it again");
        first.read_exact(&mut heard).expect("hear it again");
        assert_eq!(heard, [round; 1000]);
    }
}

fn send(mut stream: &TcpStream, amount: Amount) {
    let pattern = frame::pattern(PATTERN);
    let (size, until, pause) = match amount {
        Amount::Bytes(_) | Amount::For(_) => (WRITE, None, None),
        Amount::Paced { size, writes, pause } => (size, Some(u64::from(writes) * size as u64), Some(pause)),
    };
    let (limit, end) = match amount {
        Amount::Bytes(bytes) => (bytes, None),
        Amount::For(time) => (u64::MAX, Some(Instant::now() + time)),
        Amount::Paced { .. } => (until.unwrap_or_default(), None),
    };
    let mut sent = 0;
    while sent < limit && end.is_none_or(|end| Instant::now() < end) {
        let at = (sent % PATTERN as u64) as usize;
        let piece = size.min(PATTERN - at).min(usize::try_from(limit - sent).unwrap_or(usize::MAX));
        let piece = &pattern[at..at + piece];
        stream.write_all(piece).unwrap_or_else(|error| panic!("stalled after {sent} bytes sent: {error}"));
        sent += piece.len() as u64;
        pause.into_iter().for_each(thread::sleep);
    }
    stream.shutdown(std::net::Shutdown::Write).expect("end the sending direction");
}

fn receive(mut stream: TcpStream) -> (u64, Instant, u32) {
    let pattern = frame::pattern(PATTERN);
    let mut buffer = vec![0; WRITE];
    let mut received = 0_u64;
    loop {
        let at = (received % PATTERN as u64) as usize;
        let room = buffer.len().min(PATTERN - at);
        let count = stream.read(&mut buffer[..room]);
        let count = count.unwrap_or_else(|error| panic!("stalled after {received} bytes received: {error}"));
        if count == 0 {
            return (received, Instant::now(), info(&stream, INFO_RCV_OOOPACK));
        }
        assert!(buffer[..count] == pattern[at..at + count], "a byte differs after {received}");
        received += count as u64;
    }
}

// Offsets in struct tcp_info (include/uapi/linux/tcp.h), which only ever grows at its end.
const INFO_PMTU: usize = 60;
const INFO_TOTAL_RETRANS: usize = 100;
const INFO_RCV_OOOPACK: usize = 224;

fn info(stream: &TcpStream, offset: usize) -> u32 {
    let mut bytes = [0_u8; 512];
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    assert!(done == 0 && length as usize >= offset + 4, "TCP_INFO: {}", std::io::Error::last_os_error());
    u32::from_ne_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}
