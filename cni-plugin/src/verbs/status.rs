//! STATUS: may pods be added?
//!
//! Any error makes containerd report the whole node NotReady, so an agent that is just being replaced is no reason
//! for one: ADD waits for it. The plugin keeps no state; the agent touches a file beside its socket every 5 s
//! ([`names::alive_file`]), and only when that is older than 30 s, or not there, the agent counts as gone.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use agent_api::{Readiness, names};

use super::Outcome;
use crate::{
    agent::Agent,
    cni::{Config, Error, Kind},
};

/// How long an agent may be away.
const GRACE: Duration = Duration::from_secs(30);

pub fn status(config: &Config) -> Result<Outcome, Error> {
    let unready = |reason: &dyn std::fmt::Display| {
        Error::new(Kind::NotAvailable, "no pods can be added").because(&reason)
    };
    match Agent::new(config).readiness() {
        Ok(Ok(Readiness::Ready)) => Ok(Outcome::default()),
        Ok(Ok(Readiness::NotReady(reason))) => Err(unready(&reason)),
        Ok(Err(error)) => Err(unready(&error)),
        Err(error) if was_alive(&names::alive_file(&config.agent_socket), SystemTime::now()) => {
            Ok(Outcome { warnings: vec![format!("{error}; it was there a moment ago")], document: None })
        }
        Err(error) => Err(unready(&error)),
    }
}

/// Whether the file was touched within the grace period before `now`. The clock may have been set meanwhile: a time
/// that lies ahead by more is no sign of life either.
fn was_alive(file: &Path, now: SystemTime) -> bool {
    let Ok(touched) = fs::metadata(file).and_then(|it| it.modified()) else { return false };
    let distance = now.duration_since(touched).unwrap_or_else(|ahead| ahead.duration());
    distance <= GRACE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alive_file_counts_for_thirty_seconds() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let touched = fs::metadata(file.path()).unwrap().modified().unwrap();
        let after = |seconds| touched + Duration::from_secs(seconds);
        assert!(was_alive(file.path(), after(0)));
        assert!(was_alive(file.path(), after(30)));
        assert!(!was_alive(file.path(), after(31)));
        assert!(was_alive(file.path(), touched - Duration::from_secs(30)));
        assert!(!was_alive(file.path(), touched - Duration::from_secs(31)));
        assert!(!was_alive(Path::new("/nonexistent/alive"), after(0)));
    }
}
