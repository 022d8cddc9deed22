//! What a test needs to begin: root, and its turn.

use std::fs::File;

/// Whether the test can run. Says so if not; with `HEADWAY_REQUIRE_ROOT=1` that is a failure.
pub fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        let required = std::env::var("HEADWAY_REQUIRE_ROOT").is_ok_and(|value| value == "1");
        assert!(!required, "HEADWAY_REQUIRE_ROOT=1, but this is not root");
        println!("skipped: network namespaces and BPF need root");
    }
    root
}

/// Who may run at the same time. The queue behind veth links is one a CPU for the whole machine
/// (net.core.netdev_max_backlog): a test that fills it loses the frames of others.
pub enum Turn {
    /// With others that send a few frames.
    Together,
    /// By itself: it sends as much as it can, or must not lose a single frame.
    Alone,
}

impl Turn {
    /// Waits for the turn, which ends when the file is closed. Test processes share it.
    pub fn wait(&self) -> File {
        let file = File::create(std::env::temp_dir().join("headway-switch-tests.lock")).unwrap();
        match self {
            Self::Together => file.lock_shared().unwrap(),
            Self::Alone => file.lock().unwrap(),
        }
        file
    }
}

/// Returns from a test that needs root and does not have it; else waits for its turn.
macro_rules! need_root {
    () => {
        crate::root::need_root!(Together);
    };
    ($turn:ident) => {
        if !crate::root::is_root() {
            return;
        }
        let _turn = crate::root::Turn::$turn.wait();
    };
}
pub(crate) use need_root;
