//! A network namespace with an uplink, and a folder, for one test. The namespace lives as long as the thread in it.

use std::{path::Path, process::Command, thread};

use nix::{
    mount::{MntFlags, umount2},
    sched::{CloneFlags, unshare},
    unistd::Uid,
};
use serde_json::Value;

/// Leaves the test, in words, unless it runs as root; where `HEADWAY_REQUIRE_ROOT` is 1 that is a failure.
macro_rules! require_root {
    () => {
        if !$crate::scratch::is_root() {
            eprintln!("skipped: network namespaces need root");
            return;
        }
    };
}
pub(crate) use require_root;

pub(crate) fn is_root() -> bool {
    let root = Uid::effective().is_root();
    assert!(
        root || std::env::var_os("HEADWAY_REQUIRE_ROOT").is_none_or(|value| value != "1"),
        "root is required"
    );
    root
}

pub(crate) struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    /// Runs a test on a thread in a namespace of its own.
    pub(crate) fn run(name: &str, test: impl FnOnce(&Self) + Send) {
        let folder = tempfile::Builder::new().prefix(&format!("hwk-{name}-")).tempdir().unwrap();
        let scratch = Self { folder };
        let outcome = thread::scope(|scope| {
            let inside = || {
                unshare(CloneFlags::CLONE_NEWNET).unwrap();
                for command in [
                    "ip link set lo up",
                    "ip link add eth0 type veth peer name far",
                    "ip link set eth0 up",
                    "ip link set far up",
                    "ip addr add fc00::1/64 dev eth0 nodad",
                ] {
                    scratch.text(command);
                }
                test(&scratch);
            };
            scope.spawn(inside).join()
        });
        // Not mounted if the test did not get that far.
        let _ = umount2(&scratch.folder.path().join("bpf"), MntFlags::MNT_DETACH);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    }

    pub(crate) fn config(&self) -> String {
        let path = |name: &str| Path::join(self.folder.path(), name).display().to_string();
        format!(
            "
node: {{name: node-a, number: 1, podCIDRs: [10.1.1.0/24, 'fd10:0:0:1::/64'], uplinks: [eth0]}}
sidBlock: 5f00:1::/32
clusterCIDRs: [10.1.0.0/16, 'fd10::/48']
peers:
- {{name: node-b, number: 2, podCIDRs: [10.1.2.0/24, 'fd10:0:0:2::/64'], address: 'fc00::2'}}
- {{name: node-c, number: 3, podCIDRs: [10.1.3.0/24, 'fd10:0:0:3::/64'], address: 'fc99::3'}}
cni: {{confDir: {}}}
paths: {{socket: {}, state: {}, bpf: {}}}
",
            path("net.d"),
            path("agent.sock"),
            self.folder.path().display(),
            path("bpf"),
        )
    }

    /// What a command prints. It runs in this thread's namespace.
    #[track_caller]
    pub(crate) fn text(&self, command: &str) -> String {
        let words: Vec<&str> = command.split(' ').collect();
        let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    pub(crate) fn json(&self, command: &str) -> Value {
        serde_json::from_str(&self.text(command)).unwrap()
    }
}
