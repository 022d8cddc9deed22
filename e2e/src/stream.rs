//! A steady stream of numbered datagrams, to see what an interruption costs.

use std::{
    net::{IpAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{Netns, packet_socket::set_option, udp};

/// What a stream has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Datagrams sent.
    pub sent: u64,
    /// Different datagrams that arrived.
    pub received: u64,
    /// Datagrams that arrived again.
    pub duplicates: u64,
}

impl Report {
    /// Datagrams that did not arrive.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.sent - self.received
    }
}

/// A running stream.
#[derive(Debug)]
pub struct Stream {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    sender: JoinHandle<()>,
    receiver: JoinHandle<(u64, u64)>,
}

impl Stream {
    /// Sends `rate` datagrams of 64 bytes a second until stopped.
    ///
    /// # Panics
    /// The kernel refuses the sockets.
    #[must_use]
    #[track_caller]
    pub fn start(from: (&Netns, IpAddr), to: (&Netns, IpAddr), rate: u32) -> Self {
        let server = udp::socket(to.0, to.1, None);
        server.set_read_timeout(Some(Duration::from_millis(300))).expect("set a timeout");
        set_option(&server, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20);
        let client = udp::socket(from.0, from.1, server.local_addr().ok());
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (told, counted) = (Arc::clone(&stop), Arc::clone(&sent));
        let sender = thread::spawn(move || send(&client, rate, &told, &counted));
        let told = Arc::clone(&stop);
        let receiver = thread::spawn(move || receive(&server, &told));
        Self { stop, sent, sender, receiver }
    }

    /// Datagrams sent so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Ends it, waits for what is on the way, and reports.
    ///
    /// # Panics
    /// A socket has failed on the way.
    #[must_use]
    pub fn stop(self) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        self.sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (received, duplicates) =
            self.receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Report { sent: self.sent.load(Ordering::Relaxed), received, duplicates }
    }
}

fn send(socket: &UdpSocket, rate: u32, stop: &AtomicBool, sent: &AtomicU64) {
    let start = Instant::now();
    let mut data = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        let number = sent.load(Ordering::Relaxed);
        let due = start + Duration::from_secs_f64(number as f64 / f64::from(rate));
        thread::sleep(due.saturating_duration_since(Instant::now()));
        data[..8].copy_from_slice(&number.to_be_bytes());
        socket.send(&data).unwrap_or_else(|error| panic!("datagram {number}: {error}"));
        sent.store(number + 1, Ordering::Relaxed);
    }
}

/// Counts until nothing comes any more after the word to stop.
fn receive(socket: &UdpSocket, stop: &AtomicBool) -> (u64, u64) {
    let mut seen = std::collections::HashSet::new();
    let mut duplicates = 0;
    let mut buffer = [0; 64];
    loop {
        let last = stop.load(Ordering::Relaxed);
        while socket.recv(&mut buffer).is_ok() {
            let number: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 7].map(|i| buffer[i]);
            duplicates += u64::from(!seen.insert(u64::from_be_bytes(number)));
        }
        if last {
            return (seen.len() as u64, duplicates);
        }
    }
}
