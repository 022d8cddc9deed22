//! The machine's initial network namespace, where the agent does not run in it.

use std::{fs::File, io, os::unix::process::parent_id, thread};

use nix::sched::{CloneFlags, setns};

/// Runs `act` in the initial network namespace, on a thread of its own that ends with it.
///
/// # Errors
/// Those of entering the namespace, and those of `act`.
pub(super) fn within<T: Send>(act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let entered = scope.spawn(|| {
            setns(namespace()?, CloneFlags::CLONE_NEWNET)?;
            act()
        });
        entered.join().unwrap_or_else(|_| Err(io::Error::other("the thread in it has panicked")))
    })
}

/// The namespace of the first process; where that one may not be looked at, of the process that has started this one in
/// another namespace.
fn namespace() -> io::Result<File> {
    File::open("/proc/1/ns/net").or_else(|_| File::open(format!("/proc/{}/ns/net", parent_id())))
}
