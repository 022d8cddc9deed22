//! Writes a file so that readers see the old content or the new, never a part.

use std::{fs, io, path::Path};

/// Replaces `path` by a file with this content. Its folder must exist.
///
/// The data is not forced to the disk: after a crash of the machine the file may be the old one, or empty. All that
/// the agent writes is either made anew or void after a reboot.
///
/// # Errors
/// Those of writing and renaming; the temporary file is gone then.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let written = fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Removes a file; that it is gone already is success.
///
/// # Errors
/// Those of unlink(2).
pub fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
