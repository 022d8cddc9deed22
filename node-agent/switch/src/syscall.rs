//! bpf(2), for the commands that the library does not have or does more than is wanted.

use std::{io, os::fd::RawFd};

/// Calls bpf(2), gives what it answers.
///
/// # Safety
/// Pointers in the attributes are valid.
pub(crate) unsafe fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<RawFd> {
    // SAFETY: the attributes are valid for their size, and nobody else looks at them; for the rest the caller answers.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    RawFd::try_from(result).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)
}
