//! What a test needs from the machine: without it the test is skipped in words, in CI it fails.

use std::{env, path::PathBuf};

/// Is this process root? If not the test has to return; with `HEADWAY_REQUIRE_ROOT=1` it fails instead.
///
/// # Panics
/// Not root, and `HEADWAY_REQUIRE_ROOT` is set.
#[must_use]
#[track_caller]
pub fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        skip("it needs root (network namespaces)", env::var_os("HEADWAY_REQUIRE_ROOT").is_some());
    }
    root
}

/// Returns from the test, in words, when it is not run by root.
#[macro_export]
macro_rules! root_or_skip {
    () => {
        if !$crate::skip::is_root() {
            return;
        }
    };
}

/// A program by name from PATH or `target/tools`; `None` (said in words, a failure in CI) if it is nowhere.
///
/// # Panics
/// It is nowhere, and this is CI.
#[must_use]
#[track_caller]
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let tools = crate::host::target_dirs().into_iter().map(|dir| dir.join("tools"));
    let found = tools.chain(env::split_paths(&path)).map(|dir| dir.join(name)).find(|file| file.is_file());
    if found.is_none() {
        skip(&format!("{name} is not installed (make setup)"), in_ci());
    }
    found
}

/// The User Mode Linux image named by `HEADWAY_TEST_KERNEL`, and the `run.sh` beside it.
///
/// # Panics
/// The variable names an image that is not there, or has no `run.sh` beside it.
#[must_use]
pub fn test_kernel() -> Option<(PathBuf, PathBuf)> {
    let Some(image) = env::var_os("HEADWAY_TEST_KERNEL").map(PathBuf::from) else {
        skip("HEADWAY_TEST_KERNEL names no kernel with tx_extra_headroom", false);
        return None;
    };
    let runner = image.with_file_name("run.sh");
    assert!(
        image.is_file() && runner.is_file(),
        "HEADWAY_TEST_KERNEL: {} or its run.sh is missing",
        image.display()
    );
    Some((image, runner))
}

/// Are the long matrices wanted (`make full`)?
#[must_use]
pub fn full() -> bool {
    env::var_os("HEADWAY_FULL").is_some()
}

fn in_ci() -> bool {
    env::var_os("HEADWAY_CI").is_some() || env::var_os("CI").is_some()
}

#[track_caller]
fn skip(why: &str, fail: bool) {
    assert!(!fail, "cannot run: {why}");
    eprintln!("SKIPPED at {}: {why}", std::panic::Location::caller());
}
