//! One agent a node. A second one would take the pods of the first for garbage, and the first those of the second.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// Why the node is not this agent's.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody has it.
    #[error("another agent runs on this node: it holds {}", .0.display())]
    Taken(PathBuf),
    /// The folder cannot be made, opened or locked.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// Takes the state folder, which is made if it is not there, for as long as the answer lives. The kernel lets go of it
/// when the process ends, however it ends.
///
/// # Errors
/// [`LockError`].
pub fn take(state: &Path) -> Result<File, LockError> {
    let at = |source| LockError::Io { path: state.to_owned(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(state).map_err(at)?;
    let folder = File::open(state).map_err(at)?;
    match folder.try_lock() {
        Ok(()) => Ok(folder),
        Err(TryLockError::WouldBlock) => Err(LockError::Taken(state.to_owned())),
        Err(TryLockError::Error(source)) => Err(at(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_the_folder_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("made/state");
        let first = take(&state).unwrap();
        assert!(matches!(take(&state), Err(LockError::Taken(_))));
        drop(first);
        assert!(take(&state).is_ok());
    }
}
