//! EFFECT: short waits while programs are attached.
//!
//! Attaching a tcx program waits for an RCU grace period under the lock that all network configuration of the machine needs
//! (kernel/bpf/tcx.c, `tcx_link_prog_attach`): about ten milliseconds, in which no other pod can be built. The kernel itself
//! expedites its waits under that lock (net/core/dev.c, `synchronize_net`), but not this one; `rcu_expedited` makes it.
//! The switch is the whole machine's, so it is turned for the one call only, and a marker tells the next agent if this one was killed
//! in between.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tracing::{info, warn};

/// Documentation/admin-guide/kernel-parameters.txt, `rcupdate.rcu_expedited`.
const SWITCH: &str = "/sys/kernel/rcu_expedited";

/// The kernel's switch.
pub(super) struct Expedite {
    switch: PathBuf,
    /// There while the switch is turned.
    marker: PathBuf,
}

impl Expedite {
    /// Turns the switch back if an agent was killed while it was turned. `folder` must not outlive a reboot.
    pub(super) fn new(folder: &Path) -> Self {
        Self::with_switch(Path::new(SWITCH), folder)
    }

    fn with_switch(switch: &Path, folder: &Path) -> Self {
        let expedite = Self { switch: switch.to_owned(), marker: folder.join("rcu-expedited") };
        if expedite.marker.exists() {
            info!("an agent was killed while it had the kernel hurry");
            expedite.turn_back();
        }
        expedite
    }

    /// Runs `attach` while the kernel hurries. Where the switch is out of reach, or turned by somebody else, everything
    /// works as it is.
    pub(super) fn during<T>(&self, attach: impl FnOnce() -> T) -> T {
        let turned = self.turn().unwrap_or(false);
        let result = attach();
        if turned {
            self.turn_back();
        }
        result
    }

    /// Whether the switch has been turned.
    fn turn(&self) -> io::Result<bool> {
        if fs::read_to_string(&self.switch)?.trim() != "0" {
            return Ok(false);
        }
        fs::write(&self.marker, "")?;
        let turned = fs::write(&self.switch, "1");
        if turned.is_err() {
            fs::remove_file(&self.marker)?;
        }
        turned.map(|()| true)
    }

    fn turn_back(&self) {
        let back = fs::write(&self.switch, "0").and_then(|()| fs::remove_file(&self.marker));
        if let Err(error) = back {
            warn!(%error, switch = %self.switch.display(), "the kernel goes on to hurry");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expedite(before: &str) -> (tempfile::TempDir, Expedite) {
        let folder = tempfile::tempdir().unwrap();
        let switch = folder.path().join("switch");
        fs::write(&switch, before).unwrap();
        let expedite = Expedite::with_switch(&switch, folder.path());
        (folder, expedite)
    }

    fn state(expedite: &Expedite) -> (String, bool) {
        (fs::read_to_string(&expedite.switch).unwrap(), expedite.marker.exists())
    }

    #[test]
    fn the_switch_is_turned_for_the_call_only() {
        let (_folder, expedite) = expedite("0\n");
        assert_eq!(expedite.during(|| state(&expedite)), ("1".into(), true));
        assert_eq!(state(&expedite), ("0".into(), false));
    }

    #[test]
    fn a_switch_that_others_have_turned_is_theirs() {
        let (_folder, expedite) = expedite("1\n");
        assert_eq!(expedite.during(|| state(&expedite)), ("1\n".into(), false));
        assert_eq!(state(&expedite), ("1\n".into(), false));
    }

    #[test]
    fn what_a_killed_agent_left_turned_is_turned_back() {
        let (folder, first) = expedite("1");
        fs::write(&first.marker, "").unwrap();
        let next = Expedite::with_switch(&first.switch, folder.path());
        assert_eq!(state(&next), ("0".into(), false));
    }

    #[test]
    fn without_the_switch_everything_works() {
        let folder = tempfile::tempdir().unwrap();
        let expedite = Expedite::with_switch(&folder.path().join("absent"), folder.path());
        assert_eq!(expedite.during(|| 7), 7);
    }
}
