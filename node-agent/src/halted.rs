//! An agent that must not touch what a newer one has left: traffic goes on, pods can neither come nor be released.

use std::sync::mpsc::Receiver;

use agent_api::{ErrorKind, Readiness, Refusal, Reply, Verb};
use serde_json::json;

use crate::agent::Input;

/// Answers with the reason until it is stopped.
pub fn run(inputs: &Receiver<Input>, reason: &str) {
    while let Ok(input) = inputs.recv() {
        // Whoever asked may have gone away meanwhile.
        match input {
            Input::Request(verb, reply) => drop(reply.send(answer(&verb, reason))),
            Input::Ready(reply) => drop(reply.send(Err(reason.to_owned()))),
            Input::Metrics(reply) => drop(reply.send("# EOF\n".into())),
            Input::Surroundings(_)
            | Input::Cluster(_)
            | Input::Reload
            | Input::Event(_)
            | Input::Publishing(_) => {}
            Input::Stop => return,
        }
    }
}

fn answer(verb: &Verb, reason: &str) -> Result<Reply, Refusal> {
    match verb {
        Verb::Status => Ok(Reply::Readiness(Readiness::NotReady(reason.to_owned()))),
        Verb::Report => Ok(Reply::Report(json!({ "ready": false, "halted": reason }))),
        _ => Err(Refusal { kind: ErrorKind::Version, message: reason.to_owned() }),
    }
}
