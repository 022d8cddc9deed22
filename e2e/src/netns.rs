//! A named network namespace: commands and closures run inside it.

use std::{
    fs::{self, File},
    io::Write,
    os::{fd::AsRawFd, unix::process::CommandExt},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread,
};

use nix::sched::{CloneFlags, setns};

/// A network namespace below `/run/netns`, removed on drop; or somebody else's, which stays.
#[derive(Debug)]
pub struct Netns {
    name: String,
    handle: File,
    ours: bool,
}

impl Netns {
    /// Creates it; `lo` is up.
    ///
    /// # Panics
    /// The kernel or `ip` refuses.
    #[must_use]
    #[track_caller]
    pub fn create(name: &str) -> Self {
        let mut command = Command::new("ip");
        succeed(command.args(["netns", "add", name]), None);
        let handle = File::open(format!("/run/netns/{name}")).expect("open the new network namespace");
        let netns = Self { name: name.to_owned(), handle, ours: true };
        netns.ip("link set lo up");
        netns
    }

    /// One that somebody else made and removes; `name` is for messages.
    ///
    /// # Panics
    /// `path` is none.
    #[must_use]
    #[track_caller]
    pub fn of_others(name: &str, path: &str) -> Self {
        let handle = File::open(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self { name: name.to_owned(), handle, ours: false }
    }

    /// Its name, as `ip netns` shows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that stands for it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    /// A command that will run inside. Only its network namespace differs: mounts (bpffs) stay visible.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let fd = self.handle.as_raw_fd();
        let mut command = Command::new(program);
        // SAFETY: setns is one system call, async-signal-safe; the descriptor lives as long as this process's
        // copy of it, which the child inherits at fork.
        unsafe {
            command.pre_exec(move || {
                let fd = std::os::fd::BorrowedFd::borrow_raw(fd);
                setns(fd, CloneFlags::CLONE_NEWNET).map_err(Into::into)
            });
        }
        command
    }

    /// Runs a command line (split at spaces) and gives its output.
    ///
    /// # Panics
    /// The command fails.
    #[track_caller]
    pub fn run(&self, line: &str) -> String {
        let output = succeed(&mut self.split(line), None);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a command line (split at spaces), whatever its exit status.
    ///
    /// # Panics
    /// The command cannot be started.
    #[track_caller]
    #[must_use]
    pub fn output(&self, line: &str) -> Output {
        let output = self.split(line).stdin(Stdio::null()).output();
        output.unwrap_or_else(|error| panic!("[{}] {line}: {error}", self.name))
    }

    /// Runs `ip` with these lines as one batch.
    ///
    /// # Panics
    /// One of them fails.
    #[track_caller]
    pub fn ip(&self, lines: &str) {
        let mut command = self.command("ip");
        succeed(command.args(["-batch", "-"]), Some(lines));
    }

    /// What `ip -j` says to `line`.
    ///
    /// # Panics
    /// The command fails.
    #[track_caller]
    #[must_use]
    pub fn ip_json(&self, line: &str) -> serde_json::Value {
        let text = self.run(&format!("ip -d -j {line}"));
        // iproute2 prints nothing for an empty list of some kinds.
        let text = if text.trim().is_empty() { "[]" } else { &text };
        serde_json::from_str(text)
            .unwrap_or_else(|error| panic!("[{}] ip {line}: {error}: {text}", self.name))
    }

    /// Names of the links inside.
    #[must_use]
    #[track_caller]
    pub fn links(&self) -> Vec<String> {
        let links = self.ip_json("link show");
        let names = links.as_array().into_iter().flatten();
        names.filter_map(|link| Some(link["ifname"].as_str()?.to_owned())).collect()
    }

    /// Interface index of a link.
    ///
    /// # Panics
    /// There is no such link.
    #[must_use]
    #[track_caller]
    pub fn ifindex(&self, link: &str) -> u32 {
        let index = self.enter(|| nix::net::if_::if_nametoindex(link));
        index.unwrap_or_else(|error| panic!("[{}] {link}: {error}", self.name))
    }

    /// MAC of a link.
    ///
    /// # Panics
    /// There is no such link, or it has none.
    #[must_use]
    #[track_caller]
    pub fn mac(&self, link: &str) -> [u8; 6] {
        let links = self.ip_json(&format!("link show dev {link}"));
        crate::frame::parse_mac(links[0]["address"].as_str().expect("the link has a MAC"))
    }

    /// Sets a sysctl (`net/…`, with slashes).
    ///
    /// # Panics
    /// The kernel refuses.
    #[track_caller]
    pub fn sysctl(&self, key: &str, value: &str) {
        let written = self.enter(|| fs::write(format!("/proc/sys/{key}"), value));
        written.unwrap_or_else(|error| panic!("[{}] sysctl {key}={value}: {error}", self.name));
    }

    /// Reads a sysctl (`net/…`, with slashes).
    ///
    /// # Panics
    /// There is none of that name.
    #[must_use]
    #[track_caller]
    pub fn read_sysctl(&self, key: &str) -> String {
        let read = self.enter(|| fs::read_to_string(format!("/proc/sys/{key}")));
        read.unwrap_or_else(|error| panic!("[{}] sysctl {key}: {error}", self.name)).trim().to_owned()
    }

    /// Starts a command line that runs until the returned value is dropped.
    ///
    /// # Panics
    /// It cannot be started.
    #[must_use]
    #[track_caller]
    pub fn spawn(&self, line: &str) -> Background {
        let mut command = self.split(line);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("[{}] {line}: {error}", self.name));
        Background { child }
    }

    /// Runs a closure on a thread of its own inside. Sockets made there stay in this namespace.
    ///
    /// # Panics
    /// The closure panics, or the kernel refuses to enter.
    pub fn enter<T: Send>(&self, closure: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let entered = scope.spawn(|| {
                setns(&self.handle, CloneFlags::CLONE_NEWNET).expect("enter the network namespace");
                closure()
            });
            entered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn split(&self, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let mut command = self.command(words.next().expect("a command line has a program"));
        command.args(words);
        command
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        if !self.ours {
            return;
        }
        let removed = Command::new("ip").args(["netns", "del", &self.name]).stderr(Stdio::null()).status();
        if let Err(error) = removed {
            eprintln!("ip netns del {}: {error}", self.name);
        }
    }
}

/// A process that is killed on drop.
#[derive(Debug)]
pub struct Background {
    child: Child,
}

impl Background {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended by itself: then there is nothing to kill, and wait collects it.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Runs a command to its end, feeding it `input`.
///
/// # Panics
/// It fails; the message holds what it printed.
#[track_caller]
pub(crate) fn succeed(command: &mut Command, input: Option<&str>) -> Output {
    let output = output(command, input);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}{}",
        output.status,
        input.unwrap_or_default(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Runs a command to its end, feeding it `input`, whatever its exit status.
///
/// # Panics
/// It cannot be started.
#[track_caller]
pub(crate) fn output(command: &mut Command, input: Option<&str>) -> Output {
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin.write_all(input.as_bytes()).unwrap_or_else(|error| panic!("{command:?}: {error}"));
    }
    child.wait_with_output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}
