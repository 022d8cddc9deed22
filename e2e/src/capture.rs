//! Capturing what passes a link, for counting and for tshark, the independent decoder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    Netns, PacketSocket,
    netns::succeed,
    packet_socket::{Direction, Seen},
};

/// How often a capture looks whether it has to end.
const TICK: Duration = Duration::from_millis(20);

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<Vec<Seen>>>,
}

impl Capture {
    /// Starts one; everything that passes the link from now on is seen, in both directions.
    ///
    /// # Panics
    /// The kernel refuses.
    #[must_use]
    #[track_caller]
    pub fn start(netns: &Netns, link: &str) -> Self {
        let socket = PacketSocket::open(netns, link);
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let reader = thread::spawn(move || {
            let mut frames = Vec::new();
            // After the word to stop, what is queued already still counts.
            loop {
                let last = told.load(Ordering::Relaxed);
                while let Some(seen) = socket.next(if last { Duration::ZERO } else { TICK }) {
                    frames.push(seen);
                }
                if last {
                    assert_eq!(socket.lost(), 0, "the capture has lost frames");
                    return frames;
                }
            }
        });
        Self { stop, reader: Some(reader) }
    }

    /// Ends it and gives the frames.
    ///
    /// # Panics
    /// Frames were lost.
    #[must_use]
    pub fn stop(mut self) -> Frames {
        self.stop.store(true, Ordering::Relaxed);
        let reader = self.reader.take().expect("a running capture has a reader");
        Frames(reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            // Before the link goes away under it. Nobody wants its frames, or to hear that some are missing.
            let _frames = reader.join();
        }
    }
}

/// Captured frames, in order.
#[derive(Clone, Debug, Default)]
pub struct Frames(pub Vec<Seen>);

impl Frames {
    /// The frames of one direction alone.
    #[must_use]
    pub fn only(&self, direction: Direction) -> Self {
        Self(self.0.iter().filter(|seen| seen.direction == direction).cloned().collect())
    }

    /// Frames of one direction.
    pub fn going(&self, direction: Direction) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |seen| seen.direction == direction).map(|seen| seen.bytes.as_slice())
    }

    /// How many frames of one direction `wanted` accepts.
    #[must_use]
    pub fn count(&self, direction: Direction, wanted: impl Fn(&[u8]) -> bool) -> usize {
        self.going(direction).filter(|frame| wanted(frame)).count()
    }

    /// The longest frame, bytes without FCS.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.0.iter().map(|seen| seen.bytes.len()).max().unwrap_or_default()
    }

    /// Writes a pcap file (<https://www.tcpdump.org/manpages/pcap-savefile.5.html>), times left out.
    ///
    /// # Panics
    /// The file cannot be written.
    pub fn save(&self, path: &Path) {
        let mut file: Vec<u8> = Vec::new();
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        file.extend(words(&[0xa1b2_c3d4, u32::from_ne_bytes([2, 0, 4, 0]), 0, 0, 262_144, 1]));
        for (index, seen) in (0..).zip(&self.0) {
            let length = u32::try_from(seen.bytes.len()).expect("a frame's length fits");
            file.extend(words(&[0, index, length, length]));
            file.extend(&seen.bytes);
        }
        fs::write(path, file).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// What tshark says to `fields`, one row a frame that `filter` accepts. Checksums are verified.
    ///
    /// # Panics
    /// tshark is not there, or refuses the fields.
    #[must_use]
    #[track_caller]
    pub fn decode(&self, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
        let mut arguments = vec!["-T", "fields", "-E", "separator=|", "-E", "occurrence=a", "-Y", filter];
        fields.iter().for_each(|field| arguments.extend(["-e", field]));
        let rows = self.tshark(&arguments);
        rows.lines().map(|row| row.split('|').map(str::to_owned).collect()).collect()
    }

    /// Runs tshark over the frames and gives its output.
    ///
    /// # Panics
    /// tshark is not there, or fails.
    #[must_use]
    #[track_caller]
    pub fn tshark(&self, arguments: &[&str]) -> String {
        let file = Scratch::new();
        self.save(&file.0);
        let mut command = Command::new("tshark");
        let verify = ["ip", "tcp", "udp"].map(|protocol| format!("{protocol}.check_checksum:TRUE"));
        command.arg("-n").arg("-r").arg(&file.0);
        command.args(verify.iter().flat_map(|option| ["-o", option]));
        let output = succeed(command.args(arguments), None);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// A capture file, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("hwt-{}-{}.pcap", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.0);
    }
}
