use std::{
    fs::{self, File},
    process::Command,
    time::{Duration, Instant, SystemTime},
};

use agent_api::{ErrorKind, Readiness, Reply, names};
use serde_json::json;

use crate::{
    agent::{Agent, refuse},
    rig::{Ended, binary, finish, start},
};

/// STATUS needs neither namespaces nor root.
fn status(directory: &tempfile::TempDir) -> Ended {
    let config =
        json!({"cniVersion": "1.1.0", "name": "headway", "agentSocket": directory.path().join("agent.sock")});
    let mut command = Command::new(binary());
    command.env_clear().env("CNI_COMMAND", "STATUS");
    let begun = Instant::now();
    let ended = finish(start(command, &config.to_string()));
    assert!(begun.elapsed() < Duration::from_secs(1), "STATUS took {:?}", begun.elapsed());
    ended
}

fn answering(readiness: Readiness) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("agent.sock");
    let _agent = Agent::start(&socket, move |_| Some(Ok(Reply::Readiness(readiness.clone()))));
    status(&directory)
}

/// Makes the file that the agent touches, last touched `ago`.
fn touch(directory: &tempfile::TempDir, ago: Duration) {
    let file = File::create(names::alive_file(&directory.path().join("agent.sock"))).unwrap();
    file.set_modified(SystemTime::now() - ago).unwrap();
}

#[test]
fn the_agent_decides_while_it_is_there() {
    answering(Readiness::Ready).silent_success();
    let (code, said) = answering(Readiness::NotReady("no uplink".into())).failure();
    assert_eq!(code, 50);
    assert!(said.contains("no uplink"), "{said}");
}

#[test]
fn an_agent_that_refuses_is_not_available() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("agent.sock");
    let _agent = Agent::start(&socket, |_| refuse(ErrorKind::Internal, "broken"));
    assert_eq!(status(&directory).failure().0, 50);
}

#[test]
fn a_short_absence_is_none_and_a_long_one_is_said() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(status(&directory).failure().0, 50, "there never was an agent");
    touch(&directory, Duration::from_secs(10));
    status(&directory).silent_success();
    touch(&directory, Duration::from_secs(31));
    assert_eq!(status(&directory).failure().0, 50);
    fs::remove_file(directory.path().join("alive")).unwrap();
    assert_eq!(status(&directory).failure().0, 50);
}

#[test]
fn an_agent_that_hangs_counts_as_away() {
    let directory = tempfile::tempdir().unwrap();
    // Listens and never accepts.
    let _listener = std::os::unix::net::UnixListener::bind(directory.path().join("agent.sock")).unwrap();
    touch(&directory, Duration::from_secs(1));
    status(&directory).silent_success();
    touch(&directory, Duration::from_secs(40));
    assert_eq!(status(&directory).failure().0, 50);
}
