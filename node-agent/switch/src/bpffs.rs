//! The BPF file system that holds pinned maps and links.

use std::{fs, io, path::Path};

use nix::{
    mount::MsFlags,
    sys::statfs::{BPF_FS_MAGIC, statfs},
};

use crate::error::Error;

/// Makes `dir` a place on a BPF file system: creates it and, unless it is on one already, mounts one there.
///
/// # Errors
/// If the directory cannot be made or the kernel refuses to mount.
pub fn mount(dir: &Path) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(Error::file("creating", dir))?;
    if is_bpffs(dir)? {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    nix::mount::mount(Some("bpf"), dir, Some("bpf"), flags, Some("mode=0700"))
        .map_err(|errno| Error::file("mounting a BPF file system on", dir)(errno.into()))
}

/// Whether `dir` is on a BPF file system.
pub(crate) fn is_bpffs(dir: &Path) -> Result<bool, Error> {
    let found = statfs(dir).map_err(|errno| Error::file("looking at", dir)(io::Error::from(errno)))?;
    Ok(found.filesystem_type() == BPF_FS_MAGIC)
}
