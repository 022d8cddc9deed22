//! A kernel in memory, for tests: its surroundings are set from outside, and it can be told to fail.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use agent_api::{MacAddress, names::host_ifname};
use agent_core::{
    dataplane::{Dataplane, Entry, Facts, Key, Link, PodLink, Step},
    world::World,
};

use super::{Doing, Kernel, Measurements, StepError};

/// The kernel; clones are the same one, so that a test keeps a hand on it.
#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<State>>);

/// What the kernel holds.
#[derive(Default)]
pub struct State {
    /// What is there of ours.
    pub plane: Dataplane,
    /// Links beside ours: the uplinks.
    pub links: BTreeMap<String, Link>,
    /// Steps taken.
    pub taken: Vec<Step>,
    /// How many steps are still taken, if not all: afterwards each one fails.
    pub budget: Option<usize>,
    /// Steps that fail, by what is in their debug form.
    pub refused: Option<&'static str>,
    /// Observations fail.
    pub blind: bool,
}

impl Fake {
    /// A kernel with one uplink.
    pub fn with_uplink(name: &str) -> Self {
        let fake = Self::default();
        let link = Link {
            ifindex: 2,
            mac: MacAddress([2, 0, 0, 0, 0, 2]),
            mtu: 1500,
            enabled: true,
            up: true,
            headroom: 0,
            addresses: vec![],
        };
        fake.state().links.insert(name.to_owned(), link);
        fake
    }

    /// A hand on it.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the plugin does between Reserve and Activate.
    pub fn build_pod_link(&self, key: &agent_api::AttachmentKey, ifindex: u32) {
        let mut state = self.state();
        state.plane.pod_links.insert(host_ifname(key), PodLink { ifindex, up: true, mtu: 1446, headroom: 0 });
    }
}

impl State {
    /// All links: those from outside, pairs of ours, pods'.
    fn links(&self) -> BTreeMap<String, Link> {
        let link = |ifindex, mtu| Link {
            ifindex,
            mac: MacAddress([2; 6]),
            mtu,
            enabled: true,
            up: true,
            headroom: 0,
            addresses: vec![],
        };
        let mut links = self.links.clone();
        for (index, (name, pair)) in (100..).step_by(2).zip(&self.plane.pairs) {
            links.insert(name.clone(), link(index, pair.mtu));
            links.insert(pair.peer.clone(), link(index + 1, pair.mtu));
        }
        let pods = self.plane.pod_links.iter();
        links.extend(pods.map(|(name, pod)| (name.clone(), link(pod.ifindex, 1446))));
        links
    }

    fn refuses(&mut self, step: &Step) -> Option<String> {
        if self.refused.is_some_and(|part| format!("{step:?}").contains(part)) {
            return Some("told to fail".into());
        }
        if let Some(budget) = &mut self.budget {
            if *budget == 0 {
                return Some("no step any more".into());
            }
            *budget -= 1;
        }
        match step {
            Step::Set(Entry::PodLink(name, link)) => {
                let there = self.plane.pod_links.get(name).is_some_and(|seen| seen.ifindex == link.ifindex);
                (!there).then(|| "there is no such link".into())
            }
            _ => None,
        }
    }
}

impl Kernel for Fake {
    fn observe(&mut self, world: &World, _: Option<&Dataplane>) -> Result<(Facts, Dataplane), StepError> {
        let state = self.state();
        if state.blind {
            return Err("told to fail").doing("looking");
        }
        let facts = Facts { observed_at: crate::clock::now(), links: state.links(), ..Facts::default() };
        let mut plane = state.plane.clone();
        if !world.announced {
            plane.files.clear();
        }
        Ok((facts, plane))
    }

    fn apply(&mut self, step: &Step) -> Result<(), StepError> {
        let mut state = self.state();
        if let Some(refusal) = state.refuses(step) {
            return Err(refusal).doing(format_args!("{step:?}"));
        }
        // A setting that is no longer wanted stays.
        if !matches!(step, Step::Remove(Key::Sysctl(_))) {
            state.plane.apply(step.clone());
        }
        state.taken.push(step.clone());
        Ok(())
    }

    fn measure(&mut self) -> Result<Measurements, StepError> {
        Ok(Measurements::default())
    }

    fn settled(&mut self) -> Result<(), StepError> {
        Ok(())
    }
}
