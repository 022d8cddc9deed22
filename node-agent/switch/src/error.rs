//! What can go wrong, by what the caller can do about it.

use std::{io, path::PathBuf};

use crate::layout::Layout;

/// Source of an error of the BPF library.
pub(crate) type Source = Box<dyn std::error::Error + Send + Sync>;

/// An error of the switch.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Maps and links can be pinned on a BPF file system only.
    #[error("{} is not on a BPF file system", dir.display())]
    NotBpffs {
        /// The directory asked for.
        dir: PathBuf,
    },
    /// A newer agent has left maps that this one cannot drive; nothing was touched.
    #[error("the switch was set up by a newer agent: layout {found}, this one has {own}")]
    NewerLayout {
        /// The newest layout there.
        found: Layout,
        /// This agent's.
        own: Layout,
    },
    /// A map has no place for another entry.
    #[error("map {map} is full: it takes {limit} entries")]
    Full {
        /// The map's name.
        map: &'static str,
        /// Its size.
        limit: u32,
    },
    /// The interface is not there (any more).
    #[error("there is no interface {ifindex}")]
    NoDevice {
        /// Its index.
        ifindex: u32,
    },
    /// The kernel refused a map operation.
    #[error("map {map}")]
    Map {
        /// The map's name.
        map: &'static str,
        /// Why.
        #[source]
        source: Source,
    },
    /// The kernel refused to load, attach or query a program.
    #[error("{action} {what}")]
    Program {
        /// What was being done.
        action: &'static str,
        /// To what.
        what: String,
        /// Why.
        #[source]
        source: Source,
    },
    /// A file operation failed.
    #[error("{action} {}", path.display())]
    File {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }

    pub(crate) fn program<E: Into<Source>>(
        action: &'static str,
        what: impl Into<String>,
    ) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| Self::Program { action, what, source: source.into() }
    }
}
