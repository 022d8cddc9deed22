//! Makes the kernel match what the world wants: desired, plan, apply.

use std::collections::BTreeSet;

use agent_core::{
    dataplane::{Dataplane, Facts, Step, plan, plan_attachments},
    desired,
    world::World,
};
use tracing::{debug, info, warn};

use crate::dataplane::{Kernel, Measurements, StepError};

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// What changes by itself; the switch is as the last steps left it.
    Around,
    /// The switch as well: somebody may have had hands on it.
    Everywhere,
}

/// The kernel, and what is known of it.
pub struct Reconciler {
    kernel: Box<dyn Kernel>,
    /// The kernel's state as it was last seen, with all steps taken since.
    actual: Dataplane,
    /// What the last pass wanted.
    wanted: Dataplane,
    /// Steps that failed since the last observation. They are not tried again before the next one.
    failed: Vec<(Step, String)>,
    /// Why the last observation failed, if it did.
    blind: Option<String>,
    /// Failures that the log has already.
    logged: BTreeSet<String>,
}

impl Reconciler {
    /// Nothing is known yet: [`Self::observe`] comes first.
    #[must_use]
    pub fn new(kernel: Box<dyn Kernel>) -> Self {
        Self {
            kernel,
            actual: Dataplane::default(),
            wanted: Dataplane::default(),
            failed: Vec::new(),
            blind: None,
            logged: BTreeSet::new(),
        }
    }

    /// Looks at the kernel anew. Gives the facts, or nothing if it could not be looked at; see [`Self::failures`].
    pub fn observe(&mut self, world: &World, look: Look) -> Option<Facts> {
        let known = (look == Look::Around && self.blind.is_none()).then_some(&self.actual);
        match self.kernel.observe(world, known) {
            Ok((facts, actual)) => {
                self.actual = actual;
                self.failed.clear();
                self.blind = None;
                Some(facts)
            }
            Err(error) => {
                self.blind = Some(error.to_string());
                self.log();
                None
            }
        }
    }

    /// Looks at the kernel without taking what is seen for the base of the next pass.
    ///
    /// # Errors
    /// If it could not be looked at.
    pub fn look(&mut self, world: &World) -> Result<Dataplane, StepError> {
        self.kernel.observe(world, None).map(|(_, actual)| actual)
    }

    /// Takes the steps from the known state to the desired one; gives how many were tried.
    pub fn pass(&mut self, world: &World) -> usize {
        self.wanted = desired::desired(world);
        self.walk(plan(&self.actual, &self.wanted))
    }

    /// The same for what changes when pods come and go, and nothing else.
    pub fn pass_attachments(&mut self, world: &World) -> usize {
        self.wanted = desired::attachments(world);
        self.walk(plan_attachments(&self.actual, &self.wanted))
    }

    fn walk(&mut self, steps: Vec<Step>) -> usize {
        let mut tried = 0;
        // No step comes twice in one plan, so only those that failed before count.
        let failed_before = self.failed.len();
        for step in steps {
            if self.failed[..failed_before].iter().any(|(failed, _)| *failed == step) {
                continue;
            }
            tried += 1;
            match self.kernel.apply(&step) {
                Ok(()) => {
                    debug!(?step, "step taken");
                    self.actual.apply(step);
                }
                Err(error) => self.failed.push((step, error.to_string())),
            }
        }
        self.log();
        tried
    }

    /// Takes one step ahead of the next pass.
    ///
    /// # Errors
    /// If it was not taken.
    pub fn take(&mut self, step: Step) -> Result<(), StepError> {
        self.kernel.apply(&step)?;
        self.actual.apply(step);
        Ok(())
    }

    /// Everything is as desired: what earlier agents have left beside it can go.
    pub fn settled(&mut self) {
        if let Err(error) = self.kernel.settled() {
            warn!(%error, "what an earlier agent left was not removed");
        }
    }

    /// The kernel's state, as far as known.
    #[must_use]
    pub fn actual(&self) -> &Dataplane {
        &self.actual
    }

    /// What the last pass wanted the kernel's state to be, as far as it was about it.
    #[must_use]
    pub fn wanted(&self) -> &Dataplane {
        &self.wanted
    }

    /// What is not as desired, in sentences. Empty: the kernel does what the world wants.
    pub fn failures(&self) -> impl Iterator<Item = &str> {
        self.blind.iter().map(String::as_str).chain(self.failed.iter().map(|(_, error)| error.as_str()))
    }

    /// What the kernel has counted.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn measure(&mut self) -> Result<Measurements, StepError> {
        self.kernel.measure()
    }

    /// Each failure once when it comes and once when it goes.
    fn log(&mut self) {
        let now: BTreeSet<String> = self.failures().map(str::to_owned).collect();
        for error in now.difference(&self.logged) {
            warn!(%error, "step failed, will be tried again");
        }
        // Only an observation tells whether a failure is gone.
        if self.blind.is_none() {
            for error in self.logged.difference(&now) {
                info!(%error, "step no longer fails");
            }
            self.logged = now;
        } else {
            self.logged.extend(now);
        }
    }
}
