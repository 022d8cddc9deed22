//! What the plugin asks for, verb by verb.

use agent_api::{
    Activate, Assignment, Check, ErrorKind, Gc, HeadroomOutcome, Readiness, Refusal, Release, Reply, Reserve,
    Verb, names,
};
use agent_core::{
    dataplane::{Attached, Dataplane, Entry, Program, Step},
    desired, ipam,
    lease::{Lease, Origin, State, Timestamp},
    world::Event,
};
use tracing::{debug, info};

use super::Agent;
use crate::{clock, store::StoreError};

impl Agent {
    /// Does what a request asks for.
    pub(super) fn serve(&mut self, verb: Verb) -> Result<Reply, Refusal> {
        debug!(?verb, "request");
        match verb {
            Verb::Reserve(request) => self.reserve(&request).map(Reply::Assigned),
            Verb::Activate(request) => self.activate(&request).map(|()| Reply::Done),
            Verb::Release(request) => {
                self.release_older_than(&request, Timestamp::MAX);
                self.reconciler.pass_attachments(&self.world);
                Ok(Reply::Done)
            }
            Verb::Check(request) => self.check(&request).map(Reply::Problems),
            Verb::Status => Ok(Reply::Readiness(self.readiness())),
            Verb::Gc(request) => {
                self.collect_garbage(&request);
                Ok(Reply::Done)
            }
            Verb::Report => {
                let report = serde_json::to_value(self.report());
                report.map(Reply::Report).map_err(|error| refuse(ErrorKind::Internal, error.to_string()))
            }
        }
    }

    fn reserve(&mut self, request: &Reserve) -> Result<Assignment, Refusal> {
        if !self.world.announced {
            return Err(refuse(ErrorKind::TryAgain, self.ready().err().unwrap_or_default()));
        }
        if self.world.leases.get(&request.key).is_some() {
            // Perhaps its DEL could not reach us in time and has left word.
            self.consume_pending();
        }
        let nonce = clock::nonce().map_err(|error| refuse(ErrorKind::Internal, error.to_string()))?;
        let lease = ipam::reserve(&self.world, request, nonce, clock::now())?;
        let assignment = ipam::assignment(&self.world, &lease)?;
        self.store.lease(&lease).map_err(not_stored)?;
        info!(key = %lease.key, host = lease.host, pod = lease.pod.name, "address reserved");
        self.world.apply(Event::Leased(Box::new(lease)));
        Ok(assignment)
    }

    fn activate(&mut self, request: &Activate) -> Result<(), Refusal> {
        let unknown = || refuse(ErrorKind::NotFound, format!("{} has no such reservation", request.key));
        let lease = self.world.leases.get(&request.key).ok_or_else(unknown)?;
        if lease.nonce != request.nonce {
            return Err(unknown());
        }
        let (mut lease, ifindex) = (lease.clone(), request.host_ifindex);
        lease.state = State::Active { at: clock::now(), ifindex, headroom: request.headroom.clone() };
        // The agent that reserved it did not write it down.
        lease.mtu = lease.mtu.or_else(|| desired::inner_mtu(&self.world));
        // First: a program must not come to sit on a link that is not the pod's.
        let name = names::host_ifname(&lease.key);
        if let Some(link) = desired::pod_link(&self.world, &lease, &name) {
            self.reconciler
                .take(Step::Set(Entry::PodLink(name.clone(), link)))
                .map_err(|error| refuse(ErrorKind::Invalid, error.to_string()))?;
        }
        self.store.lease(&lease).map_err(not_stored)?;
        let key = lease.key.clone();
        self.world.apply(Event::Leased(Box::new(lease)));
        self.reconciler.pass_attachments(&self.world);
        let missing = missing(&name, ifindex, self.reconciler.wanted(), self.reconciler.actual());
        if missing.is_empty() {
            info!(%key, ifindex, "endpoint attached");
            return Ok(());
        }
        let failures: Vec<&str> = self.reconciler.failures().collect();
        Err(refuse(ErrorKind::TryAgain, format!("{}: {}", missing.join(", "), failures.join("; "))))
    }

    /// Releases a lease that was made, or moved on, before a point in time. Without one nothing has to be done.
    pub(super) fn release_older_than(&mut self, request: &Release, limit: Timestamp) {
        let Some(lease) = self.world.leases.get(&request.key) else { return };
        let (State::Reserved { at } | State::Active { at, .. }) = lease.state;
        if at >= limit || request.nonce.as_ref().is_some_and(|nonce| *nonce != lease.nonce) {
            return;
        }
        let lease = lease.clone();
        info!(key = %request.key, host = lease.host, "endpoint released");
        self.free(&lease);
    }

    /// What is not as it should be with an attachment, in sentences.
    fn check(&mut self, request: &Check) -> Result<Vec<String>, Refusal> {
        let Some(lease) = self.world.leases.get(&request.key).cloned() else {
            return Ok(vec![format!("{} is not attached", request.key)]);
        };
        let actual = self
            .reconciler
            .look(&self.world)
            .map_err(|error| refuse(ErrorKind::TryAgain, error.to_string()))?;
        let State::Active { ifindex, headroom, .. } = &lease.state else {
            return Ok(vec![format!("{} is reserved, not attached", request.key)]);
        };
        if lease.is_foreign(Origin::from(&self.world.config.node)) {
            return Ok(vec![format!(
                "{} has addresses that are this node's no more: delete the pod",
                request.key
            )]);
        }
        let expected = ipam::assignment(&self.world, &lease)?;
        let mut problems = Vec::new();
        let mut compare = |what: &str, seen: String, right: String| {
            if seen != right {
                problems.push(format!("{what} is {seen}, {right} would be right"));
            }
        };
        compare("the namespace's inode", request.netns_inode.to_string(), lease.netns_inode.to_string());
        compare("the host link's index", request.host_ifindex.to_string(), ifindex.to_string());
        compare("the MAC", request.mac.to_string(), expected.mac.to_string());
        compare("the MTU", request.mtu.to_string(), expected.mtu.to_string());
        if let (HeadroomOutcome::Applied(bytes), Some(number)) = (headroom, expected.headroom_attribute) {
            let seen = request.attributes.get(&number).copied().unwrap_or_default();
            compare("the headroom", seen.to_string(), bytes.to_string());
        }
        let absent = expected.addresses.iter().filter(|address| !request.addresses.contains(address));
        problems.extend(absent.map(|address| format!("address {address} is missing")));
        let name = names::host_ifname(&request.key);
        let wanted = desired::desired(&self.world);
        problems.extend(missing(&name, *ifindex, &wanted, &actual).iter().map(ToString::to_string));
        problems.extend(link_faults(&name, &wanted, &actual));
        // What was found is mended by the next observation.
        self.next_tick = std::time::Instant::now();
        Ok(problems)
    }

    /// Pods can come, as far as this node is concerned: an exhausted pool is an ADD's problem, not the node's.
    fn readiness(&self) -> Readiness {
        match self.ready() {
            Err(reason) if !self.world.announced => Readiness::NotReady(reason),
            _ => Readiness::Ready,
        }
    }

    /// Releases what the runtime no longer has. A reservation is an ADD on its way, of which it may not know yet.
    fn collect_garbage(&mut self, request: &Gc) {
        if request.network != self.world.config.network.name {
            return;
        }
        let kept = |lease: &Lease| {
            let (container, ifname) = (&lease.key.container, &lease.key.ifname);
            request.keep.iter().any(|(c, i)| c == container && i == ifname)
        };
        let leases = &self.world.leases;
        let active =
            leases.iter().chain(leases.foreign()).filter(|lease| matches!(lease.state, State::Active { .. }));
        let garbage: Vec<Lease> = active.filter(|lease| !kept(lease)).cloned().collect();
        for lease in &garbage {
            self.free(lease);
        }
        info!(released = garbage.len(), "garbage collected");
        self.reconciler.pass_attachments(&self.world);
    }
}

/// What an endpoint still lacks in the kernel to be part of the segment.
fn missing(name: &str, ifindex: u32, desired: &Dataplane, actual: &Dataplane) -> Vec<&'static str> {
    let endpoint = desired.endpoints.get(&ifindex);
    let in_fdb = |plane: &Dataplane| {
        let mut entries = plane.fdb.iter();
        entries.find(|(_, entry)| entry.ifindex == ifindex).map(|(key, entry)| (*key, *entry))
    };
    let attachment = (Program::Endpoint, ifindex);
    let link = |plane: &Dataplane| plane.pod_links.get(name).map(|link| link.ifindex);
    [
        ("the node does not have its link", link(actual) == Some(ifindex)),
        (
            "the switch does not know the endpoint",
            endpoint.is_some() && endpoint == actual.endpoints.get(&ifindex),
        ),
        ("no frame is switched to it", in_fdb(desired).is_some() && in_fdb(desired) == in_fdb(actual)),
        (
            "its frames do not enter the switch",
            actual.attachments.get(&attachment) == Some(&Attached::Current),
        ),
    ]
    .into_iter()
    .filter_map(|(problem, right)| (!right).then_some(problem))
    .collect()
}

/// What is wrong with the node's end of an endpoint's link, in sentences.
fn link_faults(name: &str, desired: &Dataplane, actual: &Dataplane) -> Vec<String> {
    let (Some(wanted), Some(seen)) = (desired.pod_links.get(name), actual.pod_links.get(name)) else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    if wanted.up != seen.up {
        faults.push(format!("{name} is down"));
    }
    let numbers = [("MTU", seen.mtu, wanted.mtu), ("headroom", seen.headroom, wanted.headroom)];
    let differing = numbers.into_iter().filter(|(_, seen, wanted)| seen != wanted);
    faults.extend(
        differing
            .map(|(what, seen, wanted)| format!("the {what} of {name} is {seen}, {wanted} would be right")),
    );
    faults
}

fn refuse(kind: ErrorKind, message: String) -> Refusal {
    Refusal { kind, message }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn not_stored(error: StoreError) -> Refusal {
    refuse(ErrorKind::Internal, error.to_string())
}
