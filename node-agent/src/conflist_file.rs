//! The name of the CNI configuration, which an operator may change (`cni.confName`, the chart's `cni.confPriority`).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// Gives a configuration that an earlier agent wrote under another name in the same folder today's name. Container runtimes take the
/// first by name: two of them would be one too many, and a moment with none makes the node unable to delete pods.
/// Gives what was done about it.
///
/// # Errors
/// Those of reading the folder, renaming and removing.
pub fn take_over(conflist: &Path) -> io::Result<Vec<PathBuf>> {
    let folder = conflist.parent().unwrap_or(Path::new("/"));
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut former = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path != conflist && is_ours(&path) {
            former.push(path);
        }
    }
    former.sort();
    for path in &former {
        if conflist.exists() {
            fs::remove_file(path)?;
        } else {
            fs::rename(path, conflist)?;
        }
    }
    Ok(former)
}

/// Is it a list that begins with our plugin? Those of others, and files that are no lists, are none of our business.
fn is_ours(path: &Path) -> bool {
    let list = path.extension().is_some_and(|extension| extension == "conflist");
    let content = || -> Option<Value> { serde_json::from_slice(&fs::read(path).ok()?).ok() };
    list && content().is_some_and(|content| content["plugins"][0]["type"] == "headway")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = r#"{"name": "headway", "plugins": [{"type": "headway"}, {"type": "portmap"}]}"#;
    const THEIRS: &str = r#"{"name": "other", "plugins": [{"type": "bridge"}]}"#;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            fs::write(folder.path().join(name), content).unwrap();
        }
        folder
    }

    fn names(folder: &tempfile::TempDir) -> Vec<String> {
        let entries = fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_list_under_a_former_name_gets_todays() {
        let folder = folder(&[("10-headway.conflist", OURS), ("20-other.conflist", THEIRS)]);
        let taken = take_over(&folder.path().join("05-headway.conflist")).unwrap();
        assert_eq!(taken, [folder.path().join("10-headway.conflist")]);
        assert_eq!(names(&folder), ["05-headway.conflist", "20-other.conflist"]);
    }

    #[test]
    fn a_second_list_of_ours_goes() {
        let folder = folder(&[("05-headway.conflist", OURS), ("10-headway.conflist", OURS)]);
        take_over(&folder.path().join("05-headway.conflist")).unwrap();
        assert_eq!(names(&folder), ["05-headway.conflist"]);
    }

    #[test]
    fn what_others_have_written_stays() {
        let files = [
            ("00-multus.conf", r#"{"type": "multus"}"#),
            ("10-broken.conflist", "{"),
            ("10-headway.conflist", OURS),
            ("20-chained.conflist", r#"{"plugins": [{"type": "bridge"}, {"type": "headway"}]}"#),
        ];
        let folder = folder(&files);
        assert_eq!(take_over(&folder.path().join("10-headway.conflist")).unwrap(), Vec::<PathBuf>::new());
        assert_eq!(names(&folder), files.map(|(name, _)| name));
    }

    #[test]
    fn a_folder_that_is_not_there_holds_nothing() {
        assert_eq!(take_over(Path::new("/nonexistent/10-headway.conflist")).unwrap(), Vec::<PathBuf>::new());
    }
}
