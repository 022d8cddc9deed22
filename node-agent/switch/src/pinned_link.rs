//! Takes pinned links down at once.

use std::{
    ffi::CString,
    fs, io,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

use crate::{error::Error, syscall::bpf};

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
    let mut get = ObjectGet { path: path.as_ptr() as u64, descriptor: 0, flags: 0 };
    // SAFETY: the path outlives the call.
    let fd = unsafe { bpf(OBJ_GET, &mut get)? };
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn detach(link: &OwnedFd) -> io::Result<()> {
    // SAFETY: no pointers inside.
    unsafe { bpf(LINK_DETACH, &mut link.as_raw_fd())? };
    Ok(())
}
