//! What outlives the agent of its cluster, so that it can begin while no API server answers.
//!
//! ```text
//! <state>/cluster.json    the cluster's UID, this Node, the number that was chosen for it
//! <state>/locators.json   all Locators
//! ```

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use agent_core::{
    cluster::{Chosen, View},
    identity::NodeObject,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tracing::warn;

use crate::replace_file::replace_file;

/// Names of the files.
pub const FILES: [&str; 2] = ["cluster.json", "locators.json"];
/// Locators are written down this long after one has changed, for each of them: a change of one among 5,000 does not rewrite
/// them all at once.
const PAUSE_A_LOCATOR: Duration = Duration::from_millis(10);
/// See [`PAUSE_A_LOCATOR`].
const LEAST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Small {
    uid: Option<String>,
    node: Option<NodeObject>,
    chosen: Option<Chosen>,
}

/// The files.
pub struct Memory {
    folder: PathBuf,
    small: Small,
    /// When changed Locators have to be on disk.
    due: Option<Instant>,
}

impl Memory {
    /// Reads what is there; gives what was last known of the cluster too. What cannot be read, such as a file cut short by a
    /// crash of the machine, is not there.
    #[must_use]
    pub fn open(folder: &Path) -> (Self, View) {
        let [small, claims] = FILES.map(|name| folder.join(name));
        let small: Small = read(&small).unwrap_or_default();
        let view = View { uid: small.uid.clone(), node: small.node.clone(), claims: read(&claims) };
        (Self { small, folder: folder.to_owned(), due: None }, view)
    }

    /// The number that was chosen, and for which Node.
    #[must_use]
    pub fn chosen(&self) -> Option<&Chosen> {
        self.small.chosen.as_ref()
    }

    /// When [`Self::flush`] has something to do.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Writes down what is known now, except for Locators.
    pub fn remember(&mut self, view: &View, chosen: Chosen) {
        let small = Small { uid: view.uid.clone(), node: view.node.clone(), chosen: Some(chosen) };
        if small != self.small {
            self.small = small;
            self.write(FILES[0], &self.small);
        }
    }

    /// Takes note that one of `count` Locators has changed: they are written down later, with others that change meanwhile.
    pub fn locators_changed(&mut self, count: usize, now: Instant) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.due.get_or_insert(now + LEAST_PAUSE.max(PAUSE_A_LOCATOR.saturating_mul(count)));
    }

    /// Writes down changed Locators.
    pub fn flush(&mut self, view: &View) {
        if self.due.take().is_some() {
            self.write(FILES[1], &view.claims);
        }
    }

    fn write(&self, name: &str, value: &impl Serialize) {
        let path = self.folder.join(name);
        let written =
            serde_json::to_vec(value).map_err(io::Error::from).and_then(|text| replace_file(&path, &text));
        if let Err(error) = written {
            warn!(%error, file = %path.display(), "what is known of the cluster is not written down");
        }
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        bytes => bytes,
    };
    let read = bytes.map_err(|error| error.to_string());
    match read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|error| error.to_string())) {
        Ok(value) => Some(value),
        Err(error) => {
            warn!(error, file = %path.display(), "not understood");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_core::{addr::NodeNumber, membership::Claim};

    use super::*;

    fn chosen() -> Chosen {
        Chosen { uid: "n".into(), number: NodeNumber::new(7).unwrap() }
    }

    fn view(claims: usize) -> View {
        let claims = (0..claims).map(|i| (format!("node-{i}"), Claim::default())).collect();
        View { uid: Some("u".into()), node: Some(NodeObject::default()), claims: Some(claims) }
    }

    #[test]
    fn what_was_remembered_is_known_to_the_next_agent() {
        let folder = tempfile::tempdir().unwrap();
        let (mut memory, before) = Memory::open(folder.path());
        assert_eq!((before, memory.chosen()), (View::default(), None));
        memory.remember(&view(3), chosen());
        memory.locators_changed(3, Instant::now());
        memory.flush(&view(3));
        let (next, before) = Memory::open(folder.path());
        assert_eq!((before, next.chosen()), (view(3), Some(&chosen())));
    }

    #[test]
    fn many_changes_are_written_together_and_no_change_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let (mut memory, _) = Memory::open(folder.path());
        let now = Instant::now();
        memory.flush(&view(1));
        assert!(!folder.path().join(FILES[1]).exists());
        memory.locators_changed(5000, now);
        let due = memory.due().unwrap();
        assert!(due > now + Duration::from_secs(20), "5,000 of them wait longer");
        memory.locators_changed(5000, now + Duration::from_secs(9));
        assert_eq!(memory.due(), Some(due), "the first change is not put off by others");
    }

    #[test]
    fn a_file_cut_short_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILES[0]), "{\"uid\":").unwrap();
        assert_eq!(Memory::open(folder.path()).1, View::default());
    }
}
