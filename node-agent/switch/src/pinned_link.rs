//! Takes pinned links down at once.

use std::{
    ffi::CString,
    fs, io,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

use crate::error::Error;

// Commands of bpf(2), linux/bpf.h.
const OBJ_GET: libc::c_long = 7;
const LINK_DETACH: libc::c_long = 34;

/// The part of `union bpf_attr` for BPF_OBJ_GET.
#[repr(C)]
struct ObjectGet {
    path: u64,
    descriptor: u32,
    flags: u32,
}

/// Detaches the link that is pinned at `pin`, then removes the pin. That there is none is success.
///
/// Removing a link's last reference detaches it as well, but some time later; until then its program cannot be attached
/// again. The library does not have this command.
pub(crate) fn take_down(pin: &Path) -> Result<(), Error> {
    match open(pin) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        link => link.and_then(|link| detach(&link)).map_err(Error::file("detaching", pin))?,
    }
    match fs::remove_file(pin) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(Error::file("removing", pin)),
    }
}

fn open(pin: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(pin.as_os_str().as_bytes())?;
    let get = ObjectGet { path: path.as_ptr() as u64, descriptor: 0, flags: 0 };
    // SAFETY: the path outlives the call.
    let fd = unsafe { bpf(OBJ_GET, &get)? };
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn detach(link: &OwnedFd) -> io::Result<()> {
    // SAFETY: no pointers inside.
    unsafe { bpf(LINK_DETACH, &link.as_raw_fd())? };
    Ok(())
}

/// Calls bpf(2).
///
/// # Safety
/// Pointers in the attributes are valid.
unsafe fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<RawFd> {
    // SAFETY: the attributes are valid for their size; for the rest the caller answers.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attributes, size_of::<T>()) };
    RawFd::try_from(result).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)
}
