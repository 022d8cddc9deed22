//! The machine's initial network namespace, where the agent does not run in it.

use std::{fs::File, io, thread};

use nix::sched::{CloneFlags, setns};

/// The namespace of the first process.
const NAMESPACE: &str = "/proc/1/ns/net";

/// Runs `act` in the initial network namespace, on a thread of its own that ends with it.
///
/// # Errors
/// Those of entering the namespace, and those of `act`.
pub(super) fn within<T: Send>(act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let entered = scope.spawn(|| {
            setns(File::open(NAMESPACE)?, CloneFlags::CLONE_NEWNET)?;
            act()
        });
        entered.join().unwrap_or_else(|_| Err(io::Error::other("the thread in it has panicked")))
    })
}
