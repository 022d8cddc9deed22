//! What the harness uses of the machine: the built binaries.

use std::{env, path::PathBuf};

/// The agent: `HEADWAY_AGENT`, or the newest build.
///
/// # Panics
/// There is none.
#[must_use]
pub fn agent_binary() -> PathBuf {
    built("HEADWAY_AGENT", "headway-agent", &["release", "debug"])
}

/// The CNI plugin: `HEADWAY_PLUGIN`, or the newest build. The file is named `headway`.
///
/// # Panics
/// There is none.
#[must_use]
pub fn plugin_binary() -> PathBuf {
    built("HEADWAY_PLUGIN", "headway", &["plugin", "x86_64-unknown-linux-gnu/plugin", "release", "debug"])
}

/// An agent that takes itself for one of the next `minor` or `major` release.
///
/// # Panics
/// There is none.
#[must_use]
pub fn agent_of_next_release(step: &str) -> PathBuf {
    let name = format!("headway-agent-{step}");
    let found =
        target_dirs().into_iter().map(|dir| dir.join("releases").join(&name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is not built: run `make build-releases`"))
}

/// Folders in which cargo and the Makefile put what they build.
#[must_use]
pub fn target_dirs() -> Vec<PathBuf> {
    let default = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target"));
    env::var_os("CARGO_TARGET_DIR").map(PathBuf::from).into_iter().chain([default]).collect()
}

fn built(variable: &str, name: &str, profiles: &[&str]) -> PathBuf {
    if let Some(path) = env::var_os(variable) {
        return PathBuf::from(path);
    }
    let candidates =
        target_dirs().into_iter().flat_map(|dir| profiles.iter().map(move |p| dir.join(p).join(name)));
    candidates.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path))).max().map_or_else(
        || panic!("{name} is not built: run `make build`, or name it in {variable}"),
        |(_, path)| path,
    )
}
