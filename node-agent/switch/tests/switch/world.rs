//! What the tests' machines are made of: namespaces, and commands in them.

use std::{
    fs::File,
    io::Write as _,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::sched::{CloneFlags, setns};

/// A name that no other test has, not even in another process.
pub fn unique(role: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("hwt{}-{}-{role}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A network namespace, removed when dropped.
pub struct Namespace {
    pub name: String,
    file: File,
}

impl Namespace {
    pub fn new(role: &str) -> Self {
        let name = unique(role);
        run("ip", &["netns", "add", &name]);
        let file = File::open(format!("/run/netns/{name}")).unwrap();
        let namespace = Self { name, file };
        namespace.ip("link set lo up");
        namespace
    }

    /// Runs `work` inside the namespace, on a thread that ends with it.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            setns(&self.file, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Runs `ip` with commands, one a line, inside the namespace.
    pub fn ip(&self, commands: &str) {
        let mut child = Command::new("ip")
            .args(["-n", &self.name, "-batch", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip -n {}: {errors}\n{commands}", self.name);
    }

    /// Sets kernel settings below `/proc/sys/net`.
    pub fn sysctl(&self, settings: &[(&str, &str)]) {
        self.enter(|| {
            for (path, value) in settings {
                std::fs::write(format!("/proc/sys/net/{path}"), value)
                    .unwrap_or_else(|error| panic!("{path}={value}: {error}"));
            }
        });
    }

    /// Interface index of a link in the namespace.
    pub fn ifindex(&self, link: &str) -> u32 {
        self.enter(|| nix::net::if_::if_nametoindex(link)).unwrap_or_else(|error| panic!("{link}: {error}"))
    }

    /// MAC of a link in the namespace.
    pub fn mac(&self, link: &str) -> [u8; 6] {
        let output =
            Command::new("ip").args(["-n", &self.name, "-br", "link", "show", link]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mac = text.split_whitespace().nth(2).unwrap();
        let mut octets = mac.split(':').map(|octet| u8::from_str_radix(octet, 16).unwrap());
        std::array::from_fn(|_| octets.next().unwrap())
    }

    /// A command that runs inside the namespace.
    pub fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]).args(args);
        command
    }

    /// Runs a command inside the namespace; its output.
    pub fn run(&self, program: &str, args: &[&str]) -> String {
        output(self.command(program, args))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = Command::new("ip").args(["netns", "del", &self.name]).status() {
            eprintln!("removing {}: {error}", self.name);
        }
    }
}

/// Runs a command; its output.
pub fn run(program: &str, args: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(args);
    output(command)
}

fn output(mut command: Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// How long a test waits for something that has to happen.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Waits until `condition` gives something.
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
