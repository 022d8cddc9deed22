//! The BPF file system that holds pinned maps and links.

use std::{fs, io, path::Path};

use nix::{
    mount::MsFlags,
    sys::statfs::{BPF_FS_MAGIC, statfs},
};

use crate::error::Error;

/// What a mount of ours names as its source.
const SOURCE: &str = "headway";

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
    nix::mount::mount(Some(SOURCE), dir, Some("bpf"), flags, Some("mode=0700"))
        .map_err(|errno| Error::file("mounting a BPF file system on", dir)(errno.into()))
}

/// Takes away what [`mount`] has mounted on `dir`, if it has.
///
/// # Errors
/// If the mounts cannot be read, or the kernel refuses.
pub fn unmount(dir: &Path) -> Result<(), Error> {
    let mounts = Path::new("/proc/self/mountinfo");
    let text = fs::read_to_string(mounts).map_err(Error::file("reading", mounts))?;
    let Some(dir) = dir.to_str().filter(|dir| text.lines().any(|line| is_ours(line, dir))) else {
        return Ok(());
    };
    nix::mount::umount(dir).map_err(|errno| Error::file("unmounting", Path::new(dir))(errno.into()))
}

/// Whether a line of mountinfo is about a mount of ours on `dir` (Documentation/filesystems/proc.rst, section 3.5).
fn is_ours(line: &str, dir: &str) -> bool {
    let Some((mount, file_system)) = line.split_once(" - ") else { return false };
    mount.split(' ').nth(4) == Some(dir) && file_system.starts_with(&format!("bpf {SOURCE} "))
}

/// Whether `dir` is on a BPF file system.
pub(crate) fn is_bpffs(dir: &Path) -> Result<bool, Error> {
    let found = statfs(dir).map_err(|errno| Error::file("looking at", dir)(io::Error::from(errno)))?;
    Ok(found.filesystem_type() == BPF_FS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::is_ours;

    #[test]
    fn only_a_mount_of_ours_on_the_very_folder_counts() {
        let line = "36 35 0:33 / /run/x/bpf rw,nosuid shared:1 - bpf headway rw,mode=700";
        assert!(is_ours(line, "/run/x/bpf"));
        assert!(!is_ours(line, "/run/x"));
        assert!(!is_ours(&line.replace("bpf headway", "bpf bpf"), "/run/x/bpf"));
        assert!(!is_ours(&line.replace("bpf headway", "tmpfs headway"), "/run/x/bpf"));
        assert!(!is_ours("", "/run/x/bpf"));
    }
}
