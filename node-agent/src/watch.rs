//! What wakes the agent: the kernel's notifications, the configuration file.

use std::{
    io,
    path::{Path, PathBuf},
    sync::mpsc::Sender,
    thread,
    time::Duration,
};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tracing::warn;

use crate::{
    agent::Input,
    netlink::{Change, Notifications},
};

/// A broken watch is set up anew after this long; the agent looks around by itself meanwhile.
const RETRY: Duration = Duration::from_secs(5);

/// Tells the agent of every change of links, addresses, routes and neighbours.
///
/// # Errors
/// If the kernel gives no socket.
pub fn surroundings(agent: Sender<Input>) -> io::Result<()> {
    let mut notifications = Notifications::open()?;
    thread::Builder::new().name("notifications".into()).spawn(move || {
        loop {
            let changes = notifications.wait().unwrap_or_else(|error| {
                warn!(%error, "notification not received");
                thread::sleep(RETRY);
                [Change::Other].into()
            });
            if agent.send(Input::Surroundings(changes)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// Tells the agent when its configuration file may have changed. The folder is watched, because editors and
/// Kubernetes replace the file, or a link on the way to it.
///
/// # Errors
/// If the kernel gives no watch.
pub fn config_file(file: &Path, agent: Sender<Input>) -> io::Result<()> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC)?;
    let changes = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CREATE;
    inotify.add_watch(&folder, changes)?;
    let name = file.file_name().map(ToOwned::to_owned);
    thread::Builder::new().name("config watch".into()).spawn(move || {
        loop {
            match inotify.read_events() {
                // Kubernetes turns a link named `..data`, whatever the file's name is.
                Ok(events)
                    if events
                        .iter()
                        .any(|event| event.name == name || is_link_turn(event.name.as_deref())) =>
                {
                    if agent.send(Input::Reload).is_err() {
                        return;
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    warn!(%error, "configuration file not watched");
                    thread::sleep(RETRY);
                }
            }
        }
    })?;
    Ok(())
}

fn is_link_turn(name: Option<&std::ffi::OsStr>) -> bool {
    name.is_some_and(|name| name == "..data")
}
