//! Waiting on conditions with a deadline.

use std::time::{Duration, Instant};

/// Pause between two looks at a condition. Short against everything that is waited for.
const PAUSE: Duration = Duration::from_millis(10);

/// Looks at `probe` until it gives a value.
///
/// # Panics
/// After `deadline`, with `what`.
#[track_caller]
pub fn wait_for<T>(what: &str, deadline: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(start.elapsed() < deadline, "waited {deadline:?} in vain: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Looks at `condition` until it holds.
///
/// # Panics
/// After `deadline`, with `what`.
#[track_caller]
pub fn wait_until(what: &str, deadline: Duration, mut condition: impl FnMut() -> bool) {
    wait_for(what, deadline, || condition().then_some(()));
}
