use std::process::Command;

use agent_api::{ErrorKind, Gc, Reply, Verb};
use serde_json::{Value, json};

use crate::{
    agent::{Agent, refuse},
    rig::{Ended, binary, finish, start},
};

fn gc(directory: &tempfile::TempDir, members: &Value) -> Ended {
    let mut config =
        json!({"cniVersion": "1.1.0", "name": "headway", "agentSocket": directory.path().join("agent.sock")});
    config.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let mut command = Command::new(binary());
    command.env_clear().env("CNI_COMMAND", "GC");
    finish(start(command, &config.to_string()))
}

#[test]
fn the_agent_hears_what_the_runtime_still_has() {
    let directory = tempfile::tempdir().unwrap();
    let agent = Agent::start(&directory.path().join("agent.sock"), |_| Some(Ok(Reply::Done)));
    let list = json!([{"containerID": "c2", "ifname": "eth0"}, {"containerID": "c1", "ifname": "net1"}]);
    gc(&directory, &json!({"cni.dev/valid-attachments": list, "cni.dev/attachments": list})).silent_success();
    gc(&directory, &json!({"cni.dev/valid-attachments": []})).silent_success();
    let verb = |keep| Verb::Gc(Gc { network: "headway".into(), keep });
    let both = vec![("c1".to_owned(), "net1".to_owned()), ("c2".to_owned(), "eth0".to_owned())];
    assert_eq!(agent.asked(), [verb(both), verb(vec![])]);
}

#[test]
fn no_list_is_not_an_empty_list() {
    let directory = tempfile::tempdir().unwrap();
    let agent = Agent::start(&directory.path().join("agent.sock"), |_| Some(Ok(Reply::Done)));
    assert_eq!(gc(&directory, &json!({})).failure().0, 7);
    assert_eq!(gc(&directory, &json!({"cni.dev/valid-attachments": null})).failure().0, 7);
    assert_eq!(gc(&directory, &json!({"cni.dev/valid-attachments": [{"ifname": "eth0"}]})).failure().0, 6);
    assert!(agent.asked().is_empty());
}

#[test]
fn what_the_agent_could_not_do_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let _agent =
        Agent::start(&directory.path().join("agent.sock"), |_| refuse(ErrorKind::Internal, "c7: EBUSY"));
    let (code, said) = gc(&directory, &json!({"cni.dev/attachments": []})).failure();
    assert_eq!(code, 100);
    assert!(said.contains("c7: EBUSY"), "{said}");
}
