//! The pending folder: releases that the plugin could not tell an agent that was away.
//!
//! The plugin [`leave`]s one file a release; the agent [`list`]s them before it serves ADD (and now and then
//! later: a DEL that timed out leaves word with an agent that runs), releases, and removes each file. Files are
//! not forced to the disk: what a crash of the machine could lose, the boot id in the agent's store makes up for.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process,
};

use serde::{Deserialize, Serialize};

use crate::{Release, Request, Verb, Version, line, names};

/// Ending of the files that count; a file being written has another.
const ENDING: &str = "json";

/// A point in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Moment {
    /// The kernel's boot id.
    pub boot: String,
    /// Milliseconds since that boot: wall-clock time may be set between a DEL and an ADD.
    pub at: u64,
}

impl Moment {
    /// The present one, rounded down to 10 ms, which is what the kernel shows.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn now() -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        let uptime = fs::read_to_string("/proc/uptime")?;
        // Seconds with two digits behind the point.
        let digits: String =
            uptime.split(' ').next().unwrap_or_default().chars().filter(char::is_ascii_digit).collect();
        let hundredths: u64 = digits.parse().map_err(io::Error::other)?;
        Ok(Self { boot, at: hundredths * 10 })
    }
}

/// What a file says. Older plugins do not say when it was left.
#[derive(Serialize, Deserialize)]
struct Word {
    #[serde(flatten)]
    request: Request,
    left: Option<Moment>,
}

/// A file of the pending folder.
#[derive(Debug)]
pub struct Pending {
    /// Where it is.
    pub path: PathBuf,
    /// When it was left, if it says so.
    pub left: Option<Moment>,
    /// What it asks for; or, for a file that nobody can act on, why not.
    pub release: Result<Release, String>,
}

impl Pending {
    /// Removes the file, as the last step of acting on it. One that is gone already is no error.
    ///
    /// # Errors
    /// Those of unlink(2).
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Leaves word of `release` in `folder`, which is made if it is not there. A later word of the same attachment
/// and nonce takes the place of an earlier one. Readers see the whole file or none.
///
/// # Errors
/// Those of making, writing and renaming the file.
pub fn leave(folder: &Path, release: Release) -> io::Result<()> {
    let path = folder.join(file_name(&release));
    let temporary = path.with_extension(format!("{}.tmp", process::id()));
    let request = Request { version: Version::CURRENT, verb: Verb::Release(release) };
    let word = Word { request, left: Moment::now().ok() };
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(&line::encode(&word)?))
        .and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// The files that wait in `folder`; none if there is no such folder. Files that are being written are left out.
///
/// # Errors
/// Those of reading the folder; a file that cannot be read is in the list, with the reason.
pub fn list(folder: &Path) -> io::Result<Vec<Pending>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == ENDING) {
            let read = read(&path);
            let left = read.as_ref().ok().and_then(|(_, left)| left.clone());
            found.push(Pending { release: read.map(|(release, _)| release), left, path });
        }
    }
    Ok(found)
}

/// The undo of a failed ADD and the DEL of the same attachment have files of their own.
fn file_name(release: &Release) -> String {
    let key = names::fingerprint(&release.key);
    match &release.nonce {
        None => format!("{key:016x}.{ENDING}"),
        Some(nonce) => {
            let nonce: String = nonce.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
            format!("{key:016x}-{nonce}.{ENDING}")
        }
    }
}

fn read(path: &Path) -> Result<(Release, Option<Moment>), String> {
    let mut bytes = Vec::new();
    let limit = line::MAX_LINE as u64;
    File::open(path)
        .and_then(|file| file.take(limit).read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    match line::decode_request(&bytes) {
        Ok(Request { verb: Verb::Release(release), .. }) => {
            let left = serde_json::from_slice(&bytes).map_or(None, |word: Word| word.left);
            Ok((release, left))
        }
        Ok(_) => Err("it asks for something other than a release".into()),
        Err(refusal) => Err(refusal.message),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::AttachmentKey;

    fn release(container: &str, nonce: Option<&str>) -> Release {
        let key =
            AttachmentKey { network: "headway".into(), container: container.into(), ifname: "eth0".into() };
        Release { key, nonce: nonce.map(Into::into) }
    }

    fn waiting(folder: &Path) -> Vec<Result<Release, String>> {
        list(folder).unwrap().into_iter().map(|pending| pending.release).collect()
    }

    #[test]
    fn no_folder_is_an_empty_list() {
        assert!(list(Path::new("/nonexistent/pending")).unwrap().is_empty());
    }

    #[test]
    fn what_is_left_is_listed_until_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("a/pending");
        leave(&folder, release("one", None)).unwrap();
        assert_eq!(waiting(&folder), [Ok(release("one", None))]);
        for pending in list(&folder).unwrap() {
            pending.remove().unwrap();
            pending.remove().unwrap();
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn word_says_when_it_was_left() {
        let directory = tempfile::tempdir().unwrap();
        let before = Moment::now().unwrap();
        leave(directory.path(), release("one", None)).unwrap();
        let left = list(directory.path()).unwrap().remove(0).left.unwrap();
        let after = Moment::now().unwrap();
        assert_eq!(left.boot, before.boot);
        assert!((before.at..=after.at).contains(&left.at), "{before:?} {left:?} {after:?}");
        // As older plugins leave it.
        let old = Request { version: Version::CURRENT, verb: Verb::Release(release("two", None)) };
        fs::write(directory.path().join("old.json"), line::encode(&old).unwrap()).unwrap();
        let found = list(directory.path()).unwrap();
        let old = found.iter().find(|pending| pending.path.ends_with("old.json")).unwrap();
        assert_eq!((&old.left, &old.release), (&None, &Ok(release("two", None))));
    }

    #[test]
    fn the_same_word_twice_is_one_file_and_an_undo_is_another() {
        let directory = tempfile::tempdir().unwrap();
        for nonce in [None, None, Some("../n1"), Some("n2")] {
            leave(directory.path(), release("one", nonce)).unwrap();
        }
        assert_eq!(waiting(directory.path()).len(), 3);
    }

    #[test]
    fn unfinished_and_foreign_files_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("x.1.tmp"), "{").unwrap();
        assert!(waiting(directory.path()).is_empty());
        fs::write(directory.path().join("y.json"), "{").unwrap();
        fs::create_dir(directory.path().join("z.json")).unwrap();
        assert!(waiting(directory.path()).iter().all(Result::is_err));
        assert_eq!(waiting(directory.path()).len(), 2);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error() {
        assert!(leave(Path::new("/proc/nonexistent/pending"), release("one", None)).is_err());
    }

    proptest! {
        #[test]
        fn any_key_comes_back(network in ".*", container in ".*", nonce in prop::option::of(".*")) {
            let directory = tempfile::tempdir().unwrap();
            let key = AttachmentKey { network, container, ifname: "eth0".into() };
            let left = Release { key, nonce };
            leave(directory.path(), left.clone()).unwrap();
            prop_assert_eq!(waiting(directory.path()), [Ok(left)]);
        }

        #[test]
        fn any_content_is_listed(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("a.json"), bytes).unwrap();
            prop_assert_eq!(waiting(directory.path()).len(), 1);
        }
    }
}
