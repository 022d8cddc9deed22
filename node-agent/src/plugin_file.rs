//! The CNI plugin's file on the node.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::replace_file::remove_file;

/// The file's name, which is the plugin's type in CNI configurations.
const NAME: &str = "headway";
/// While it is being written. Runtimes look for plugins by name, so that nobody starts this.
const TEMPORARY: &str = ".headway.tmp";

/// Why the plugin could not be put there or taken away.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}", path.display())]
pub struct PluginFileError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Puts a copy of `plugin` into `folder`, which is made if it is not there. Runtimes start the old one or the new one: a file
/// that runs cannot be written ("text file busy"), but its name can be given to another.
///
/// # Errors
/// [`PluginFileError`]; the old one is there as before then.
pub fn install(plugin: &Path, folder: &Path) -> Result<(), PluginFileError> {
    let at = |action, path: &Path| {
        let path = path.to_owned();
        move |source| PluginFileError { action, path, source }
    };
    fs::create_dir_all(folder).map_err(at("making", folder))?;
    let content = fs::read(plugin).map_err(at("reading", plugin))?;
    let (temporary, target) = (folder.join(TEMPORARY), folder.join(NAME));
    let written = fs::write(&temporary, content)
        .and_then(|()| fs::set_permissions(&temporary, fs::Permissions::from_mode(0o755)))
        // A crash of the machine must not leave a name without content: no pod could start until the next installation.
        .and_then(|()| fs::File::open(&temporary)?.sync_all())
        .map_err(at("writing", &temporary));
    let installed = written.and_then(|()| fs::rename(&temporary, &target).map_err(at("replacing", &target)));
    if installed.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    installed
}

/// Takes it away; that it is gone already is success.
///
/// # Errors
/// [`PluginFileError`].
pub fn remove(folder: &Path) -> Result<(), PluginFileError> {
    let path = folder.join(NAME);
    remove_file(&path).map_err(|source| PluginFileError { action: "removing", path, source })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_plugin_that_runs_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (plugin, bin) = (folder.path().join("plugin"), folder.path().join("made/bin"));
        fs::copy("/bin/cat", &plugin).unwrap();
        install(&plugin, &bin).unwrap();
        let mut running =
            Command::new(bin.join("headway")).stdin(std::process::Stdio::piped()).spawn().unwrap();
        fs::write(&plugin, "new").unwrap();
        install(&plugin, &bin).unwrap();
        drop(running.stdin.take());
        assert!(running.wait().unwrap().success());
        assert_eq!(fs::read_to_string(bin.join("headway")).unwrap(), "new");
        assert_eq!(fs::metadata(bin.join("headway")).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(&bin).unwrap().count(), 1, "nothing else is left there");
    }

    #[test]
    fn a_plugin_that_cannot_be_read_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("headway"), "old").unwrap();
        let error = install(&folder.path().join("absent"), folder.path()).unwrap_err();
        assert!(error.to_string().ends_with("absent"), "{error}");
        assert_eq!(fs::read_to_string(folder.path().join("headway")).unwrap(), "old");
    }

    #[test]
    fn it_is_removed_once_or_twice() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("headway"), "").unwrap();
        fs::write(folder.path().join("bridge"), "").unwrap();
        remove(folder.path()).unwrap();
        remove(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
