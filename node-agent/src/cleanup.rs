//! Removes what agents have left on the node, and nothing else. Works while no agent runs; may be repeated.

use std::{fs, io, path::Path};

use crate::{
    clock,
    config::Paths,
    dataplane::{leftovers, sysctls::Originals},
    kube::memory,
    replace_file::remove_file,
};

/// Removes everything, with the CNI configuration `conflist`; gives what could not be removed.
#[must_use]
pub fn cleanup(paths: &Paths, conflist: &Path) -> Vec<String> {
    let mut failures = leftovers::remove(&paths.bpf);
    failures.extend(agent_switch::unmount(&paths.bpf).err().map(|error| error.to_string()));
    match clock::boot() {
        Ok(boot) => {
            let restored = Originals::load(&paths.state, &boot).restore();
            failures.extend(restored.iter().map(ToString::to_string));
        }
        Err(error) => failures.push(format!("kernel settings are not put back without the boot id: {error}")),
    }
    let socket = &paths.socket;
    let files = [conflist, socket, &agent_api::names::alive_file(socket)];
    for file in files {
        note(&mut failures, file, remove_file(file));
    }
    let state = &paths.state;
    for folder in [state.join("leases"), paths.pending()] {
        note(&mut failures, &folder, removed(fs::remove_dir_all(&folder)));
    }
    let files = ["version", "node.json", "sysctls.json"].into_iter().chain(memory::FILES);
    for file in files.map(|name| state.join(name)) {
        note(&mut failures, &file, remove_file(&file));
    }
    failures
}

fn note(failures: &mut Vec<String>, path: &Path, result: io::Result<()>) {
    failures.extend(result.err().map(|error| format!("removing {}: {error}", path.display())));
}

fn removed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
