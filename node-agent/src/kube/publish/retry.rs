//! When something that failed is tried again.

use std::time::Duration;

use tokio::time::Instant;

/// The first repetition comes after about this long, each further one after twice the time.
const FIRST: Duration = Duration::from_secs(1);
/// No repetition waits longer than about this.
const LONGEST: Duration = Duration::from_secs(60);

/// Failures in a row of one kind of write.
#[derive(Debug, Default)]
pub(super) struct Retry {
    failures: u32,
    not_before: Option<Instant>,
    /// The last failure, in words, while there is one.
    pub(super) failure: Option<String>,
}

impl Retry {
    /// Is it time?
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|time| time <= now)
    }

    /// When it will be time, if it is not.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.not_before
    }

    /// Takes an outcome in; gives whether it is a new failure. `chance`: any number, to spread the repetitions of many nodes.
    pub(super) fn note(&mut self, outcome: Result<(), String>, now: Instant, chance: u64) -> bool {
        let Err(failure) = outcome else {
            *self = Self::default();
            return false;
        };
        let wait = FIRST.saturating_mul(1 << self.failures.min(10)).min(LONGEST);
        // Between half and one and a half times as long.
        let wait = wait / 2 + wait.mul_f64((chance % 1000) as f64 / 1000.0);
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + wait);
        let new = self.failure.as_ref() != Some(&failure);
        self.failure = Some(failure);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_come_ever_later_up_to_a_bound_and_success_forgets() {
        let now = Instant::now();
        let mut retry = Retry::default();
        assert!(retry.is_due(now));
        let mut waits = Vec::new();
        for round in 0..12 {
            assert_eq!(retry.note(Err("no".into()), now, 500), round == 0);
            waits.push(retry.due_at().unwrap() - now);
        }
        assert_eq!(waits[..3], [1, 2, 4].map(Duration::from_secs));
        assert_eq!(waits[11], LONGEST);
        assert!(!retry.is_due(now) && retry.is_due(now + LONGEST));
        retry.note(Ok(()), now, 0);
        assert!(retry.is_due(now) && retry.failure.is_none());
    }

    #[test]
    fn nodes_that_failed_together_do_not_come_back_together() {
        let now = Instant::now();
        let wait = |chance| {
            let mut retry = Retry::default();
            retry.note(Err("no".into()), now, chance);
            retry.due_at().unwrap() - now
        };
        assert!(wait(0) >= FIRST / 2 && wait(999) <= FIRST * 3 / 2 && wait(0) < wait(999));
    }
}
