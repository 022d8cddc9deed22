//! What outlives the agent: leases, in files that a later agent, or an earlier, can read.
//!
//! ```text
//! <state>/version              1.2
//! <state>/node.json            what addresses follow from
//! <state>/leases/<host>.json   {"leased": {...}} or {"freed": {"at": ..., "boot": ...}}
//! <state>/foreign/<nonce>.json leases whose addresses are this node's no more
//! <state>/sysctls.json         see `sysctls`
//! <state>/pending/             see `agent_api::pending`
//! ```

#[cfg(test)]
mod tests;

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use agent_api::Version;
use agent_core::{
    lease::{BootId, Lease, Origin, State, Timestamp},
    world::Event,
};
use serde::{Deserialize, Serialize};

use crate::replace_file::{remove_file, replace_file};

/// Form of the files. Minor: fields were added that an older agent may ignore.
pub const VERSION: Version = {
    let (major, minor) = bpf_common::names::as_built(1, 2);
    Version { major, minor }
};

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A newer agent wrote it. Nothing in it was touched.
    #[error("{} holds state of version {found}, this agent knows {VERSION}: run the newer agent again, or `cleanup` with it", path.display())]
    Newer {
        /// Where.
        path: PathBuf,
        /// What is there.
        found: String,
    },
    /// There are pods with addresses that the configuration no longer gives them. Nothing was touched.
    #[error(
        "{pods} pods have addresses that follow from {before}, but {now} is configured: move the pods away first"
    )]
    Moved {
        /// How many.
        pods: usize,
        /// What was configured when they came.
        before: Origin,
        /// What is configured.
        now: Origin,
    },
    /// The file system.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// What is known of one host number.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Record {
    Leased(Box<Lease>),
    Freed {
        at: Timestamp,
        /// In which boot; agents before minor 1 did not say.
        #[serde(default)]
        boot: BootId,
    },
}

/// The state folder.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Opens the folder, or makes it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let store = Self { folder: folder.to_owned() };
        let version = folder.join("version");
        let found = match fs::read_to_string(&version) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            found => found.map_err(at(&version))?,
        };
        // Empty or full of zeros is what a crash of the machine makes of it (see `replace_file`), and says nothing.
        let says_nothing = found.trim_matches('\0').trim().is_empty();
        if !says_nothing && major(&found).is_none_or(|major| major > VERSION.major) {
            return Err(StoreError::Newer { path: folder.to_owned(), found: found.trim().to_owned() });
        }
        let leases = store.leases();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&leases).map_err(at(&leases))?;
        let own = format!("{VERSION}\n");
        // Where nothing has to be written, a full disk does not keep the agent away.
        if found != own {
            replace_file(&version, own.as_bytes()).map_err(at(&version))?;
        }
        Ok(store)
    }

    /// What was written down, as events. A file that is none of ours, or was cut short by a crash of the machine, is
    /// named in the second list and left alone. `boot` and `now`: the present ones. What is of an earlier boot, or of an
    /// agent before minor 1, which wrote wall-clock time, was before everything that is of this boot.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the folder cannot be read.
    pub fn load(&self, boot: &str, now: Timestamp) -> Result<(Vec<Event>, Vec<String>), StoreError> {
        let (mut events, mut unreadable) = (Vec::new(), Vec::new());
        let origin = self.origin();
        for path in json_files(&self.leases())? {
            match read(&path) {
                Ok(record) => events.push(event(record, origin, boot, now)),
                Err(error) => unreadable.push(format!("{}: {error}", path.display())),
            }
        }
        for path in json_files(&self.foreign())? {
            match read_foreign(&path) {
                Ok(lease) => {
                    events.push(event((lease.host, Record::Leased(Box::new(lease))), origin, boot, now));
                }
                Err(error) => unreadable.push(format!("{}: {error}", path.display())),
            }
        }
        Ok((events, unreadable))
    }

    /// What addresses followed from when that was last written down. What cannot be read is of an earlier boot, and
    /// so are the pods that had the addresses.
    #[must_use]
    pub fn origin(&self) -> Option<Origin> {
        serde_json::from_slice(&fs::read(self.folder.join("node.json")).ok()?).ok()
    }

    /// Writes down what addresses follow from, if that is not what is there.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn set_origin(&self, origin: &Origin) -> Result<(), StoreError> {
        if self.origin().as_ref() == Some(origin) {
            return Ok(());
        }
        replace(&self.folder.join("node.json"), origin)
    }

    /// Writes a lease down.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn lease(&self, lease: &Lease) -> Result<(), StoreError> {
        self.write(lease.host, &Record::Leased(Box::new(lease.clone())))
    }

    /// Writes down when a host number was freed.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn freed(&self, host: u16, at: Timestamp, boot: &str) -> Result<(), StoreError> {
        self.write(host, &Record::Freed { at, boot: boot.to_owned() })
    }

    /// Moves a lease to those whose addresses are this node's no more: its host number is another's from now on.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn set_foreign(&self, lease: &Lease) -> Result<(), StoreError> {
        let folder = self.foreign();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(at(&folder))?;
        replace(&folder.join(format!("{}.json", lease.nonce)), lease)?;
        let before = self.leases().join(format!("{}.json", lease.host));
        match read(&before) {
            Ok((_, Record::Leased(same))) if same.nonce == lease.nonce => {
                remove_file(&before).map_err(at(&before))
            }
            _ => Ok(()),
        }
    }

    /// Forgets a lease whose addresses are this node's no more.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn foreign_freed(&self, nonce: &str) -> Result<(), StoreError> {
        let file = self.foreign().join(format!("{nonce}.json"));
        remove_file(&file).map_err(at(&file))
    }

    fn foreign(&self) -> PathBuf {
        self.folder.join("foreign")
    }

    fn write(&self, host: u16, record: &Record) -> Result<(), StoreError> {
        replace(&self.leases().join(format!("{host}.json")), record)
    }

    fn leases(&self) -> PathBuf {
        self.folder.join("leases")
    }
}

/// Files of a folder that end in `.json`; none of one that is not there.
fn json_files(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(at(folder))?,
    };
    let paths: Result<Vec<PathBuf>, io::Error> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(at(folder))?;
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    Ok(paths)
}

fn read_foreign(path: &Path) -> Result<Lease, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

/// A record and the host number that it is about.
fn read(path: &Path) -> Result<(u16, Record), String> {
    let host = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u16>().ok());
    let host = host.ok_or("its name is not a host number")?;
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    match serde_json::from_slice(&bytes).map_err(|error| error.to_string())? {
        Record::Leased(lease) if lease.host != host => {
            Err(format!("it holds the lease of host number {}", lease.host))
        }
        record => Ok((host, record)),
    }
}

fn event((host, record): (u16, Record), origin: Option<Origin>, this_boot: &str, now: Timestamp) -> Event {
    match record {
        Record::Leased(mut lease) => {
            // Agents before minor 2 moved no pods to another origin.
            lease.origin = lease.origin.or(origin);
            let (State::Reserved { at } | State::Active { at, .. }) = &mut lease.state;
            *at = Some(*at).filter(|at| *at <= now).unwrap_or(0);
            Event::Leased(lease)
        }
        Record::Freed { at, boot } => Event::Freed { host, at: if boot == this_boot { at } else { 0 } },
    }
}

fn replace(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    let content = serde_json::to_vec(value).map_err(|error| at(path)(error.into()))?;
    replace_file(path, &content).map_err(at(path))
}

fn major(version: &str) -> Option<u32> {
    version.trim().split('.').next()?.parse().ok()
}

fn at(path: &Path) -> impl Fn(io::Error) -> StoreError + '_ {
    |source| StoreError::Io { path: path.to_owned(), source }
}
