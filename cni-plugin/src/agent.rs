//! The agent's answers, in the forms that the verbs expect.

use std::time::{Duration, Instant};

use agent_api::{Assignment, Client, ClientError, Readiness, Release, Reply, Verb, pending};

use crate::cni::{Config, Error, Kind};

/// How long ADD waits for an agent that is away (it may be just being replaced).
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the agent may think.
const ANSWER: Duration = Duration::from_secs(10);
/// The same for DEL, which has another way.
const RELEASE_ANSWER: Duration = Duration::from_secs(5);
/// The same for STATUS, which has one second in all.
const STATUS_ANSWER: Duration = Duration::from_millis(800);
/// The same for GC, which takes a look at everything.
const GC_ANSWER: Duration = Duration::from_secs(60);

/// The agent, from one verb's point of view.
pub struct Agent<'a> {
    client: Client,
    config: &'a Config,
    give_up: Instant,
}

impl<'a> Agent<'a> {
    /// The agent that the configuration names; waiting for it ends 30 s from now.
    pub fn new(config: &'a Config) -> Self {
        Self { client: Client::new(&config.agent_socket), config, give_up: Instant::now() + PATIENCE }
    }

    /// Reserve.
    pub fn assignment(&self, verb: &Verb) -> Result<Assignment, Error> {
        match self.patiently(verb)? {
            Reply::Assigned(assignment) => Ok(assignment),
            other => Err(unexpected(&other)),
        }
    }

    /// Activate.
    pub fn done(&self, verb: &Verb) -> Result<(), Error> {
        match self.patiently(verb)? {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// GC.
    pub fn collect(&self, verb: Verb) -> Result<(), Error> {
        match self.client.call(verb, GC_ANSWER)? {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Check: what is wrong.
    pub fn problems(&self, verb: Verb) -> Result<Vec<String>, Error> {
        match self.client.call(verb, ANSWER)? {
            Reply::Problems(problems) => Ok(problems),
            other => Err(unexpected(&other)),
        }
    }

    /// Status.
    pub fn readiness(&self) -> Result<Result<Readiness, Error>, ClientError> {
        Ok(match self.client.call(Verb::Status, STATUS_ANSWER)? {
            Reply::Readiness(readiness) => Ok(readiness),
            other => Err(unexpected(&other)),
        })
    }

    /// Release, which cannot fail: if the agent does not do it now, it finds word of it later; and if that cannot
    /// be left, its own search for garbage remains. Gives what went wrong, for the log.
    pub fn release(&self, release: Release) -> Vec<String> {
        let said = match self.client.call(Verb::Release(release.clone()), RELEASE_ANSWER) {
            Ok(Reply::Done) => return Vec::new(),
            Ok(other) => unexpected(&other).to_string(),
            Err(error) => error.to_string(),
        };
        let folder = &self.config.pending_directory;
        let left = match pending::leave(folder, release) {
            Ok(()) => format!("the release waits in {}", folder.display()),
            Err(error) => format!("the release cannot be left in {} either: {error}", folder.display()),
        };
        vec![said, left]
    }

    fn patiently(&self, verb: &Verb) -> Result<Reply, ClientError> {
        let patience = self.give_up.saturating_duration_since(Instant::now());
        self.client.call_patiently(verb, patience, ANSWER)
    }
}

fn unexpected(reply: &Reply) -> Error {
    let kind = match reply {
        Reply::Done => "done",
        Reply::Assigned(_) => "assigned",
        Reply::Problems(_) => "problems",
        Reply::Readiness(_) => "readiness",
        Reply::Report(_) => "report",
    };
    Error::new(Kind::Agent, "the node agent answers another question").because(&format!("reply {kind:?}"))
}
