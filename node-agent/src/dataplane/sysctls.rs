//! Kernel settings: read, written, and put back as they were by `cleanup`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use agent_core::dataplane::Sysctl;
use serde::{Deserialize, Serialize};

use super::{Doing, StepError, initial_namespace};
use crate::replace_file::replace_file;

/// Where the chart mounts the node's own settings: container runtimes have /proc/sys read-only.
const MOUNTED: &str = "/host/proc/sys";

fn file(path: &str) -> PathBuf {
    Path::new("/proc/sys").join(path)
}

fn read_here(path: &str) -> io::Result<String> {
    Ok(fs::read_to_string(file(path))?.trim().to_owned())
}

/// Present values. Settings that only the initial namespace has are read there; what cannot be read is left out.
pub(super) fn read(paths: &BTreeSet<Sysctl>) -> BTreeMap<Sysctl, String> {
    let (mut values, mut elsewhere) = (BTreeMap::new(), BTreeSet::new());
    for path in paths {
        match read_here(path) {
            Ok(value) => drop(values.insert(path.clone(), value)),
            Err(_) => drop(elsewhere.insert(path)),
        }
    }
    if elsewhere.iter().any(|path| is_global(path)) {
        let read_all = || {
            let globals = elsewhere.iter().filter(|path| is_global(path));
            Ok(globals.filter_map(|path| Some(((*path).clone(), read_here(path).ok()?))).collect::<Vec<_>>())
        };
        // Not to be entered means not to be read.
        values.extend(initial_namespace::within(read_all).unwrap_or_default());
    }
    values
}

/// Writes a value.
pub(super) fn write(path: &str, value: &str) -> io::Result<()> {
    match write_here(path, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_global(path) => {
            initial_namespace::within(|| write_here(path, value))
        }
        result => result,
    }
}

fn write_here(path: &str, value: &str) -> io::Result<()> {
    match fs::write(file(path), value) {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            fs::write(Path::new(MOUNTED).join(path), value)
        }
        result => result,
    }
}

/// Is it a setting that exists once for all network namespaces?
fn is_global(path: &str) -> bool {
    path.contains("/neigh/default/gc_")
}

/// What settings were before the agent changed them, as `<state>/sysctls.json` keeps it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Originals {
    /// The boot in which they were changed: a later one has its own.
    boot: String,
    values: BTreeMap<Sysctl, Original>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Original {
    before: String,
    ours: String,
}

impl Originals {
    /// Reads the file; of another boot, or unreadable, it says nothing.
    #[must_use]
    pub fn load(state: &Path, boot: &str) -> Self {
        let read =
            || -> Option<Self> { serde_json::from_slice(&fs::read(state.join("sysctls.json")).ok()?).ok() };
        let fresh = || Self { boot: boot.to_owned(), values: BTreeMap::new() };
        read().filter(|originals| originals.boot == boot).unwrap_or_else(fresh)
    }

    /// Changes a setting, having written down what it was.
    ///
    /// # Errors
    /// Those of reading and writing.
    pub(super) fn set(&mut self, state: &Path, path: &Sysctl, value: &str) -> Result<(), StepError> {
        let doing = format_args!("setting {path} to {value}");
        let before = read(&[path.clone()].into()).remove(path);
        let before = before.ok_or("it is not there").doing(doing)?;
        // The first pass of an agent does not know yet what another has set.
        if before == value {
            return Ok(());
        }
        let original = Original { before, ours: value.to_owned() };
        self.values.entry(path.clone()).or_insert(original).ours = value.to_owned();
        let content = serde_json::to_vec_pretty(self).doing(doing)?;
        replace_file(&state.join("sysctls.json"), &content).doing(doing)?;
        write(path, value).doing(doing)
    }

    /// Puts back what still has our value; gives the failures.
    #[must_use]
    pub fn restore(&self) -> Vec<StepError> {
        let present = read(&self.values.keys().cloned().collect());
        let ours = self.values.iter().filter(|(path, original)| present.get(*path) == Some(&original.ours));
        ours.filter_map(|(path, original)| {
            let doing = format_args!("setting {path} back to {}", original.before);
            write(path, &original.before).doing(doing).err()
        })
        .collect()
    }
}
