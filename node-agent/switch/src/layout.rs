//! Versions of the maps' layout, and the directories in which each has its maps.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use bpf_common::names::LAYOUT;

use crate::error::Error;

/// A version of the layout. See [`bpf_common::names::LAYOUT`] for what major and minor mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Layout {
    /// Grows when an older agent could not drive the maps.
    pub major: u32,
    /// Grows with additions.
    pub minor: u32,
}

impl Layout {
    /// The layout of this build.
    pub const OWN: Self = Self { major: LAYOUT.0, minor: LAYOUT.1 };

    /// The layouts that have maps in `dir`, ascending.
    ///
    /// # Errors
    /// If the directory cannot be read; a missing one holds none.
    pub fn present(dir: &Path) -> Result<Vec<Self>, Error> {
        let entries = match fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(Error::file("reading", dir))?,
        };
        let mut layouts = Vec::new();
        for entry in entries {
            let name = entry.map_err(Error::file("reading", dir))?.file_name();
            layouts.extend(name.to_str().and_then(Self::of_folder));
        }
        layouts.sort_unstable();
        Ok(layouts)
    }

    /// The newest other layout in `dir` with this build's major version.
    pub(crate) fn sibling(dir: &Path) -> Result<Option<Self>, Error> {
        let others = Self::present(dir)?.into_iter().rev();
        Ok(others.into_iter().find(|layout| layout.major == Self::OWN.major && *layout != Self::OWN))
    }

    /// Where its maps are pinned. A BPF file system takes no dots in names.
    pub(crate) fn folder(self, dir: &Path) -> PathBuf {
        dir.join(format!("{}-{}", self.major, self.minor))
    }

    fn of_folder(name: &str) -> Option<Self> {
        let (major, minor) = name.split_once('-')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// Refuses to work beside maps that only a newer agent understands.
    pub(crate) fn check(dir: &Path) -> Result<(), Error> {
        match Self::present(dir)?.last() {
            Some(&found) if found.major > Self::OWN.major => {
                Err(Error::NewerLayout { found, own: Self::OWN })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;

    #[test]
    fn names_of_folders_parse_and_order_by_number() {
        let parse = |name: &str| Layout::of_folder(name);
        assert_eq!(parse("1-12"), Some(Layout { major: 1, minor: 12 }));
        assert!(parse("1-12") > parse("1-9"));
        assert!(parse("2-0") > parse("1-12"));
        for other in ["links", "1", "1-", "-1", "1-x", "1-2-3", "1.2", ""] {
            assert_eq!(parse(other), None, "{other}");
        }
        let own = Layout::OWN.folder("/".as_ref());
        assert_eq!(parse(own.file_name().unwrap().to_str().unwrap()), Some(Layout::OWN));
    }
}
