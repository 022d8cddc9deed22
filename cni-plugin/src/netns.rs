//! EFFECT: a pod's network namespace: opened once, entered by scratch threads.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, RawFd},
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    thread,
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    sched::{CloneFlags, setns},
    sys::statfs::{FsType, fstatfs},
};

use crate::cni::{Error, Kind};

/// `NSFS_MAGIC` of include/uapi/linux/magic.h.
const NSFS_MAGIC: i64 = 0x6e73_6673;
const OWN: &str = "/proc/self/ns/net";

/// An open network namespace. The path may come to mean another one; this stays the same.
#[derive(Debug)]
pub struct Netns {
    file: File,
    path: PathBuf,
    inode: u64,
}

/// Why a namespace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// It cannot be opened.
    #[error("{}: {source}", path.display())]
    Open {
        /// `CNI_NETNS`
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It is a file of another sort.
    #[error("{} is not a namespace", .0.display())]
    NotANamespace(PathBuf),
    /// It is a namespace of another type.
    #[error("{} is not a network namespace", .0.display())]
    NotOfTheNetwork(PathBuf),
    /// It is the namespace in which the plugin runs.
    #[error("{} is the network namespace of the node", .0.display())]
    Own(PathBuf),
    /// It cannot be entered.
    #[error("{} cannot be entered: {source}", path.display())]
    Enter {
        /// `CNI_NETNS`
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl From<NetnsError> for Error {
    fn from(error: NetnsError) -> Self {
        Self::new(Kind::InvalidNetns, "CNI_NETNS cannot be used").because(&error)
    }
}

impl Netns {
    /// Opens the namespace at `path`, which may be our own only if `own_allowed`.
    ///
    /// # Errors
    /// Any [`NetnsError`].
    pub fn open(path: &Path, own_allowed: bool) -> Result<Self, NetnsError> {
        let failed = |source| NetnsError::Open { path: path.to_owned(), source };
        // Not to wait for a writer, should it be a pipe.
        let file =
            File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).map_err(failed)?;
        let system = fstatfs(&file).map_err(|errno| failed(errno.into()))?;
        if system.filesystem_type() != FsType(NSFS_MAGIC) {
            return Err(NetnsError::NotANamespace(path.to_owned()));
        }
        let (this, own) = (file.metadata().map_err(failed)?, fs::metadata(OWN).map_err(failed)?);
        if !own_allowed && (this.dev(), this.ino()) == (own.dev(), own.ino()) {
            return Err(NetnsError::Own(path.to_owned()));
        }
        let netns = Self { file, path: path.to_owned(), inode: this.ino() };
        // The kernel tells the types of namespaces apart when one is entered (setns(2), EINVAL).
        match netns.run(|| ()) {
            Err(NetnsError::Enter { path, source })
                if source.raw_os_error() == Some(Errno::EINVAL as i32) =>
            {
                Err(NetnsError::NotOfTheNetwork(path))
            }
            entered => entered.map(|()| netns),
        }
    }

    /// What tells it from another namespace at the same path.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Where it was found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For messages to the kernel.
    pub fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Does `work` inside, on a thread that ends with it: none of ours is ever in the wrong namespace. `/proc/sys/net`
    /// shows the namespace of the thread that looks.
    ///
    /// # Errors
    /// [`NetnsError::Enter`].
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        let entered = || {
            setns(self.file.as_fd(), CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        };
        let result = thread::scope(|scope| match thread::Builder::new().spawn_scoped(scope, entered) {
            Ok(handle) => handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(error) => Err(error),
        });
        result.map_err(|source| NetnsError::Enter { path: self.path.clone(), source })
    }
}
