//! What a test leaves on the machine carries its process id, so that it can be found and removed, also later.
//!
//! A site is `hwt-<pid>-<n>`: a folder of that name in the temporary directory and network namespaces whose
//! names begin with it. [`remove`] takes all of it away; drop, process exit and the next run's sweep use it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use nix::{
    mount::{MntFlags, umount2},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const PREFIX: &str = "hwt-";
static NEXT: AtomicU32 = AtomicU32::new(0);
static PREPARED: Once = Once::new();
static LIVE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A name for everything that one cluster makes.
#[derive(Debug)]
pub struct Site {
    id: String,
}

impl Site {
    /// A fresh one. The first of a process removes what dead processes have left.
    ///
    /// # Panics
    /// Its folder cannot be made.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it makes a folder: not a value to have by default")]
    pub fn new() -> Self {
        PREPARED.call_once(|| {
            sweep();
            // SAFETY: the function takes and returns nothing and stays for the life of the process.
            unsafe { libc::atexit(remove_live) };
        });
        let id = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        LIVE.lock().unwrap_or_else(PoisonError::into_inner).push(id.clone());
        fs::create_dir_all(folder(&id)).expect("make the folder of the site");
        Self { id }
    }

    /// A name for a network namespace.
    #[must_use]
    pub fn name(&self, of: &str) -> String {
        format!("{}-{of}", self.id)
    }

    /// The folder for files.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        folder(&self.id)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        LIVE.lock().unwrap_or_else(PoisonError::into_inner).retain(|id| *id != self.id);
        remove(&self.id);
    }
}

fn folder(id: &str) -> PathBuf {
    env::temp_dir().join(id)
}

/// Statics are never dropped, so shared clusters are removed when the process exits.
extern "C" fn remove_live() {
    let live = std::mem::take(&mut *LIVE.lock().unwrap_or_else(PoisonError::into_inner));
    live.iter().for_each(|id| remove(id));
}

/// Removes the sites of processes that are no more.
fn sweep() {
    let mut dead: Vec<String> = entries(&env::temp_dir()).filter(|name| owner_is_dead(name)).collect();
    dead.extend(namespaces().filter(|name| owner_is_dead(name)).filter_map(|name| site_of(&name)));
    dead.sort();
    dead.dedup();
    dead.iter().for_each(|id| remove(id));
}

/// `hwt-<pid>-<n>` of a name that begins so.
fn site_of(name: &str) -> Option<String> {
    let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '-');
    let (pid, n) = (parts.next()?.parse::<u32>().ok()?, parts.next()?.parse::<u32>().ok()?);
    Some(format!("{PREFIX}{pid}-{n}"))
}

fn owner_is_dead(name: &str) -> bool {
    let pid = site_of(name).and_then(|site| site[PREFIX.len()..].split('-').next()?.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

/// Removes a site: agents, namespaces, mounts, files. What is gone already is fine.
fn remove(id: &str) {
    for node in entries(&folder(id)) {
        kill_agent(&folder(id), &node);
    }
    let ours = format!("{id}-");
    for name in namespaces().filter(|name| name.starts_with(&ours)) {
        let _gone = Command::new("ip").args(["netns", "del", &name]).stderr(Stdio::null()).status();
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let below = format!("{}/", folder(id).display());
    for target in mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|t| t.starts_with(&below)) {
        let _gone = umount2(target, MntFlags::MNT_DETACH);
    }
    let _gone = fs::remove_dir_all(folder(id));
}

/// Kills the agent that a node's pid file names, if that process is still the one.
fn kill_agent(site: &Path, node: &str) {
    let pid =
        fs::read_to_string(site.join(node).join("agent.pid")).ok().and_then(|text| text.trim().parse().ok());
    let Some(pid) = pid else { return };
    let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if String::from_utf8_lossy(&command_line).contains(&*site.to_string_lossy()) {
        let _gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

fn namespaces() -> impl Iterator<Item = String> {
    entries(Path::new("/run/netns"))
}

fn entries(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().into_string().ok())
}
