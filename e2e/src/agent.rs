//! A running `headway-agent`.

use std::{
    fs::{self, File},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, ExitStatus},
    time::Duration,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{Netns, wait_for};

/// How an agent is started.
#[derive(Debug)]
pub struct Start<'a> {
    /// The binary.
    pub binary: PathBuf,
    /// The node.
    pub netns: &'a Netns,
    /// Folder of the node: `node.yaml`, `agent.log`, `agent.pid`.
    pub folder: &'a Path,
    /// What the agent is to take for the boot id of the machine, if not the real one.
    pub boot_id: Option<&'a str>,
}

/// The process. Killed on drop.
#[derive(Debug)]
pub struct Agent {
    child: Child,
}

impl Agent {
    /// Starts it; its output is appended to `agent.log`.
    ///
    /// # Panics
    /// It cannot be started.
    #[must_use]
    #[track_caller]
    pub fn start(start: &Start<'_>) -> Self {
        let log = File::options().create(true).append(true).open(start.folder.join("agent.log"));
        let log = log.expect("open agent.log");
        let mut command = start.netns.command(&start.binary);
        command.arg("run").arg("--config").arg(start.folder.join("node.yaml"));
        command.args(["--log-format", "text", "--log-level", "info"]).env("NO_COLOR", "1");
        command.stdin(std::process::Stdio::null());
        command.stdout(log.try_clone().expect("share agent.log")).stderr(log).process_group(0);
        if let Some(boot_id) = start.boot_id {
            let file = start.folder.join("boot_id");
            fs::write(&file, format!("{boot_id}\n")).expect("write the boot id");
            // SAFETY: two kinds of system calls, no allocation that another thread's lock could block: the
            // path was made before the fork.
            unsafe {
                command.pre_exec(move || pretend_boot_id(&file).map_err(Into::into));
            }
        }
        let child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", start.binary.display()));
        fs::write(start.folder.join("agent.pid"), child.id().to_string()).expect("write agent.pid");
        Self { child }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `None` while it runs.
    ///
    /// # Panics
    /// The kernel does not say.
    #[must_use]
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("ask for the agent's exit status")
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// It is gone already.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().expect("a pid fits"));
        kill(pid, signal).expect("signal the agent");
    }

    /// Asks it to end and waits for that.
    ///
    /// # Panics
    /// It has not ended with status 0 within ten seconds.
    pub fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        let status = wait_for("the agent ends after SIGTERM", Duration::from_secs(10), || self.exit_status());
        assert!(status.success(), "the agent ended with {status}, signal {:?}", status.signal());
    }

    /// `kill -9`.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended by itself: then there is nothing to kill, and wait collects it.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Lets this process see another boot id, in a mount namespace of its own. The node's bpffs is mounted by the
/// harness before, so pins outlive the process all the same.
fn pretend_boot_id(file: &Path) -> nix::Result<()> {
    let nothing: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)?;
    mount(Some(file), "/proc/sys/kernel/random/boot_id", nothing, MsFlags::MS_BIND, nothing)
}
