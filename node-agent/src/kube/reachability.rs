//! Whether the API server answers, said once when it ceases to and once when it does again.

use std::{collections::BTreeMap, future::pending, time::Duration};

use agent_core::cluster::Fact;
use kube::{Client, runtime::watcher};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep, timeout},
};

/// A small question is answered within this, or not at all.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// A failure of this length is one. Shorter ones, such as a new leader behind a load balancer, are nobody's affair.
const GRACE: Duration = Duration::from_secs(10);
/// So often an API server that does not answer is asked again.
const RETRY: Duration = Duration::from_secs(5);

/// How asking for something went.
pub(super) struct Heard {
    /// What was asked for.
    pub what: &'static str,
    /// What went wrong, if it did.
    pub failure: Option<Failure>,
}

/// Why something was not answered as wished.
pub(super) struct Failure {
    /// In words.
    pub message: String,
    /// The server has answered: what it refuses it goes on to refuse, however often it is asked for its version.
    pub refused: bool,
}

impl From<&kube::Error> for Failure {
    fn from(error: &kube::Error) -> Self {
        let refused = matches!(error, kube::Error::Api(status) if is_refusal(status.code));
        Self { message: error.to_string(), refused }
    }
}

impl From<&watcher::Error> for Failure {
    fn from(error: &watcher::Error) -> Self {
        match error {
            watcher::Error::InitialListFailed(inner)
            | watcher::Error::WatchStartFailed(inner)
            | watcher::Error::WatchFailed(inner) => Self::from(inner),
            watcher::Error::WatchError(status) => {
                Self { message: error.to_string(), refused: is_refusal(status.code) }
            }
            error => Self { message: error.to_string(), refused: true },
        }
    }
}

/// Does an HTTP status say that asking again gives the same? A server that is starting, ending or overloaded (429, 5xx)
/// only has no time now.
fn is_refusal(code: u16) -> bool {
    (400..500).contains(&code) && code != 429
}

/// Since when what fails, and why.
#[derive(Default)]
struct Failures {
    by_what: BTreeMap<&'static str, Failure>,
    since: Option<Instant>,
}

impl Failures {
    fn take(&mut self, heard: Heard, now: Instant) {
        match heard.failure {
            None => drop(self.by_what.remove(heard.what)),
            Some(failure) => drop(self.by_what.insert(heard.what, failure)),
        }
        self.since = (!self.by_what.is_empty()).then(|| self.since.unwrap_or(now));
    }

    /// The server has answered a question of ours.
    fn answered(&mut self) {
        self.by_what.retain(|_, failure| failure.refused);
        self.since = self.since.filter(|_| !self.by_what.is_empty());
    }

    /// A sentence, if failing has lasted.
    fn lasting(&self, now: Instant) -> Option<String> {
        self.since.filter(|since| now.duration_since(*since) >= GRACE)?;
        let said = self.by_what.iter().map(|(what, failure)| format!("{what}: {}", failure.message));
        Some(said.collect::<Vec<_>>().join("; "))
    }
}

/// Listens to how requests go. A watch that begins again says nothing until something happens, so a server that has failed
/// is asked for its version.
pub(super) async fn follow(client: Client, mut hearing: UnboundedReceiver<Heard>, send: impl Fn(Fact)) {
    let mut failures = Failures::default();
    let mut told = None;
    loop {
        let failing = failures.since.is_some();
        let ask = async { if failing { sleep(RETRY).await } else { pending().await } };
        tokio::select! {
            heard = hearing.recv() => match heard {
                Some(heard) => failures.take(heard, Instant::now()),
                None => return,
            },
            () = ask => {
                if matches!(timeout(PATIENCE, client.apiserver_version()).await, Ok(Ok(_))) {
                    failures.answered();
                }
            }
        }
        let now = failures.lasting(Instant::now());
        // Only whether it fails matters: the words differ from one attempt to the next.
        if failures.since.is_none() || now.is_some() {
            let state = now.is_some();
            if told.replace(state) != Some(state) {
                send(Fact::Reachable(now.map_or(Ok(()), Err)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn what_a_server_says_while_it_starts_is_over_once_it_answers() {
        for (code, lasts) in [(401, true), (403, true), (404, true), (429, false), (500, false), (503, false)]
        {
            let error =
                watcher::Error::WatchFailed(kube::Error::Api(Box::new(Status { code, ..Status::default() })));
            let mut failures = Failures::default();
            let begin = Instant::now();
            failures.take(Heard { what: "Locators", failure: Some(Failure::from(&error)) }, begin);
            assert!(failures.lasting(begin + GRACE).is_some(), "{code}");
            failures.answered();
            assert_eq!(failures.lasting(begin + GRACE).is_some(), lasts, "{code}");
        }
    }
}
