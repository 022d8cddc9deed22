//! Files on the node that others read.

use std::{fs, io, path::Path};

use super::{Doing, StepError};
use crate::replace_file::{remove_file, replace_file};

/// The file's content; none if it is not there.
pub(super) fn read(path: &Path) -> Result<Option<String>, StepError> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some).doing(format_args!("reading {}", path.display())),
    }
}

/// Writes the file, and makes its folder if it is not there.
pub(super) fn set(path: &Path, content: &str) -> Result<(), StepError> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    folder
        .and_then(|()| replace_file(path, content.as_bytes()))
        .doing(format_args!("writing {}", path.display()))
}

/// Removes the file.
pub(super) fn remove(path: &Path) -> Result<(), StepError> {
    remove_file(path).doing(format_args!("removing {}", path.display()))
}
