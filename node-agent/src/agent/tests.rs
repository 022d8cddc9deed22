use std::{fs, path::Path};

use agent_api::{
    Activate, AttachmentKey, ErrorKind, Gc, HeadroomOutcome, Pod, Readiness, Release, Reserve, names,
};
use agent_core::{dataplane::Program, desired::desired, lease::State};

use super::*;
use crate::{config, dataplane::fake::Fake};

mod kubernetes;

const UPLINK: &str = "eth0";

/// A folder for an agent, and agents in it one after the other.
struct Place {
    folder: tempfile::TempDir,
    kernel: Fake,
    boot: &'static str,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), kernel: Fake::with_uplink(UPLINK), boot: "this-boot" }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn config(&self, more: &str) -> String {
        format!(
            "
node: {{name: node-a, number: 1, podCIDRs: [10.1.1.0/29], uplinks: [{UPLINK}]}}
sidBlock: 5f00:1::/32
clusterCIDRs: [10.1.0.0/16]
peers: [{{name: node-b, number: 2, podCIDRs: [10.1.2.0/24], address: 'fc00::2'}}]
cni: {{confDir: {}}}
paths: {{socket: {}, state: {}, bpf: /bpf}}
{more}",
            self.path("net.d"),
            self.path("agent.sock"),
            self.path("state"),
        )
    }

    fn agent(&self) -> Agent {
        self.start(&self.config("")).unwrap()
    }

    fn start(&self, config: &str) -> Result<Agent, StoreError> {
        let file = self.folder.path().join("node.yaml");
        fs::write(&file, config).unwrap();
        Agent::start(Parts {
            config: config::load(&file).unwrap(),
            config_file: file,
            cluster: None,
            boot: self.boot.into(),
            store: Store::open(Path::new(&self.path("state"))).unwrap(),
            reconciler: Reconciler::new(Box::new(self.kernel.clone())),
            feeds: Feeds::default(),
        })
    }

    /// Nothing is left to do, in the agent's eyes and in the kernel's.
    fn assert_settled(&self, agent: &Agent) {
        let state = self.kernel.state();
        let wanted = desired(&agent.world);
        assert_eq!(state.plane, wanted);
        assert_eq!(*agent.reconciler.actual(), wanted);
        assert_eq!(agent.reconciler.failures().collect::<Vec<_>>(), Vec::<&str>::new());
    }
}

fn key(container: &str) -> AttachmentKey {
    AttachmentKey { network: "headway".into(), container: container.into(), ifname: "eth0".into() }
}

fn reserve(container: &str) -> Verb {
    let netns = format!("/run/netns/{container}").into();
    Verb::Reserve(Reserve { key: key(container), netns, netns_inode: 7, pod: Pod::default() })
}

/// Both halves of ADD; gives the nonce.
fn add(place: &Place, agent: &mut Agent, container: &str, ifindex: u32) -> Result<String, Refusal> {
    let Reply::Assigned(assignment) = agent.serve(reserve(container))? else { panic!("no assignment") };
    place.kernel.build_pod_link(&key(container), ifindex);
    activate(agent, container, &assignment.nonce, ifindex)?;
    Ok(assignment.nonce)
}

fn activate(agent: &mut Agent, container: &str, nonce: &str, host_ifindex: u32) -> Result<Reply, Refusal> {
    let headroom = HeadroomOutcome::Unsupported;
    agent.serve(Verb::Activate(Activate { key: key(container), nonce: nonce.into(), host_ifindex, headroom }))
}

fn release(place: &Place, agent: &mut Agent, container: &str) {
    place.kernel.state().plane.pod_links.remove(&names::host_ifname(&key(container)));
    let reply = agent.serve(Verb::Release(Release { key: key(container), nonce: None }));
    assert_eq!(reply, Ok(Reply::Done));
}

/// What DEL leaves when it cannot reach the agent.
fn leave_word(place: &Place, container: &str) -> PathBuf {
    let folder = Path::new(&place.path("state")).join("pending");
    pending::leave(&folder, Release { key: key(container), nonce: None }).unwrap();
    folder
}

/// Waits until the clock of pending files, which goes in steps, has moved on.
fn next_moment() {
    let before = clock::now();
    while pending::Moment::now().unwrap().at <= before {
        std::thread::yield_now();
    }
}

#[test]
fn a_pod_comes_and_goes() {
    let place = Place::new();
    let mut agent = place.agent();
    place.assert_settled(&agent);
    add(&place, &mut agent, "c", 40).unwrap();
    assert!(place.kernel.state().plane.endpoints.contains_key(&40));
    place.assert_settled(&agent);
    release(&place, &mut agent, "c");
    place.assert_settled(&agent);
    assert_eq!(agent.world.leases.count(), 0);
}

#[test]
fn adding_takes_no_step_that_is_not_about_the_pod() {
    let place = Place::new();
    let mut agent = place.agent();
    place.kernel.state().taken.clear();
    add(&place, &mut agent, "c", 40).unwrap();
    let taken = place.kernel.state().taken.len();
    // Endpoint, forwarding entry, place in the flooding list and its length, program; the link itself was there.
    assert!(taken <= 6, "{taken} steps: {:#?}", place.kernel.state().taken);
}

#[test]
fn a_failed_step_is_tried_again_and_told_meanwhile() {
    let place = Place::new();
    place.kernel.state().refused = Some("Firewall");
    let mut agent = place.agent();
    assert!(agent.ready().unwrap_err().contains("told to fail"));
    assert!(matches!(agent.serve(Verb::Status), Ok(Reply::Readiness(Readiness::NotReady(_)))));
    assert_eq!(agent.serve(reserve("c")).unwrap_err().kind, ErrorKind::TryAgain);
    place.kernel.state().refused = None;
    agent.resync(Look::Everywhere);
    assert_eq!(agent.ready(), Ok(()));
    place.assert_settled(&agent);
}

#[test]
fn an_endpoint_that_the_switch_does_not_take_is_not_activated() {
    let place = Place::new();
    let mut agent = place.agent();
    place.kernel.state().refused = Some("Fdb");
    let refusal = add(&place, &mut agent, "c", 40).unwrap_err();
    assert_eq!(refusal.kind, ErrorKind::TryAgain);
    assert!(refusal.message.contains("told to fail"), "{refusal}");
}

#[test]
fn an_activation_without_a_link_is_refused() {
    let place = Place::new();
    let mut agent = place.agent();
    let Ok(Reply::Assigned(assignment)) = agent.serve(reserve("c")) else { panic!("no assignment") };
    assert!(activate(&mut agent, "c", "another", 40).is_err());
    activate(&mut agent, "c", &assignment.nonce, 40).expect_err("there is no link 40");
    assert!(!place.kernel.state().plane.attachments.contains_key(&(Program::Endpoint, 40)));
}

#[test]
fn a_crash_between_any_two_steps_is_repaired_by_the_next_agent() {
    let all = {
        let place = Place::new();
        add(&place, &mut place.agent(), "c", 40).unwrap();
        place.kernel.state().taken.len()
    };
    for steps in 0..=all {
        let place = Place::new();
        place.kernel.state().budget = Some(steps);
        let mut dying = place.agent();
        let added = add(&place, &mut dying, "c", 40).is_ok();
        drop(dying);
        place.kernel.state().budget = None;
        let agent = place.agent();
        place.assert_settled(&agent);
        let active = agent.world.leases.iter().any(|lease| matches!(lease.state, State::Active { .. }));
        assert!(active || !added, "after {steps} steps");
    }
}

#[test]
fn a_restart_takes_no_step() {
    let place = Place::new();
    add(&place, &mut place.agent(), "c", 40).unwrap();
    place.kernel.state().taken.clear();
    let agent = place.agent();
    assert_eq!(place.kernel.state().taken, vec![]);
    place.assert_settled(&agent);
}

#[test]
fn leases_of_an_earlier_boot_are_released() {
    let mut place = Place::new();
    add(&place, &mut place.agent(), "c", 40).unwrap();
    place.kernel = Fake::with_uplink(UPLINK);
    place.boot = "next-boot";
    let agent = place.agent();
    assert_eq!(agent.world.leases.count(), 0);
    place.assert_settled(&agent);
}

#[test]
fn a_link_that_vanishes_takes_its_lease_with_it() {
    let place = Place::new();
    let mut agent = place.agent();
    add(&place, &mut agent, "c", 40).unwrap();
    place.kernel.state().plane.pod_links.clear();
    // An observation in the same millisecond as the activation does not count.
    while clock::now() <= agent.world.facts.observed_at + 1 {
        std::thread::yield_now();
    }
    agent.resync(Look::Everywhere);
    assert_eq!(agent.world.leases.count(), 0);
    place.assert_settled(&agent);
}

#[test]
fn a_link_without_a_lease_is_removed() {
    let place = Place::new();
    let mut agent = place.agent();
    place.kernel.build_pod_link(&key("stranger"), 41);
    agent.resync(Look::Everywhere);
    assert!(place.kernel.state().plane.pod_links.is_empty());
}

#[test]
fn nothing_is_changed_while_the_kernel_cannot_be_looked_at() {
    let place = Place::new();
    let mut agent = place.agent();
    add(&place, &mut agent, "c", 40).unwrap();
    let before = place.kernel.state().plane.clone();
    place.kernel.state().blind = true;
    agent.resync(Look::Everywhere);
    assert_eq!(place.kernel.state().plane, before);
    assert_eq!(agent.world.leases.count(), 1);
    assert!(agent.ready().is_err());
}

#[test]
fn word_left_in_the_pending_folder_is_heeded_once() {
    let place = Place::new();
    let mut agent = place.agent();
    add(&place, &mut agent, "c", 40).unwrap();
    drop(agent);
    place.kernel.state().plane.pod_links.clear();
    next_moment();
    let folder = leave_word(&place, "c");
    let agent = place.agent();
    assert_eq!(agent.world.leases.count(), 0);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn word_left_before_an_add_does_not_release_it() {
    let place = Place::new();
    let mut agent = place.agent();
    leave_word(&place, "c");
    add(&place, &mut agent, "c", 40).unwrap();
    agent.resync(Look::Everywhere);
    assert_eq!(agent.world.leases.count(), 1);
}

#[test]
fn garbage_is_what_the_runtime_does_not_name() {
    let place = Place::new();
    let mut agent = place.agent();
    add(&place, &mut agent, "kept", 40).unwrap();
    add(&place, &mut agent, "gone", 41).unwrap();
    agent.serve(reserve("coming")).unwrap();
    let keep = vec![("kept".to_owned(), "eth0".to_owned())];
    let foreign = Gc { network: "other".into(), keep: vec![] };
    agent.serve(Verb::Gc(foreign)).unwrap();
    assert_eq!(agent.world.leases.count(), 3);
    agent.serve(Verb::Gc(Gc { network: "headway".into(), keep })).unwrap();
    let mut left: Vec<&str> = agent.world.leases.iter().map(|lease| lease.key.container.as_str()).collect();
    left.sort_unstable();
    assert_eq!(left, ["coming", "kept"]);
}

#[test]
fn an_exhausted_pool_is_no_reason_to_call_the_node_unready() {
    let place = Place::new();
    let mut agent = place.agent();
    for index in 0..5 {
        add(&place, &mut agent, &format!("c{index}"), 40 + index).unwrap();
    }
    assert_eq!(agent.serve(reserve("one too many")).unwrap_err().kind, ErrorKind::Exhausted);
    assert_eq!(agent.serve(Verb::Status), Ok(Reply::Readiness(Readiness::Ready)));
}

#[test]
fn a_bad_configuration_changes_nothing_and_is_told() {
    let place = Place::new();
    let mut agent = place.agent();
    let before = agent.world.config.clone();
    let paths_moved = place.config("").replace("bpf: /bpf", "bpf: /elsewhere");
    let unhurried = place.config("expediteAttach: false");
    for bad in [place.config("mtu: 3"), paths_moved, unhurried, "{".into()] {
        fs::write(&agent.config_file, bad).unwrap();
        agent.reload();
        assert_eq!(agent.world.config, before);
        let accepted =
            agent.report().conditions.into_iter().find(|one| one.kind == "ConfigurationAccepted").unwrap();
        assert!(!accepted.holds && !accepted.message.is_empty());
    }
    fs::write(&agent.config_file, place.config("mtu: 1400")).unwrap();
    agent.reload();
    assert_eq!(agent.world.config.mtu, Some(1400));
    assert_eq!(place.kernel.state().plane.pairs["hw0"].mtu, 1400);
    place.assert_settled(&agent);
}

#[test]
fn pods_keep_the_prefix_that_they_have_addresses_of() {
    let place = Place::new();
    let mut agent = place.agent();
    add(&place, &mut agent, "c", 40).unwrap();
    fs::write(&agent.config_file, place.config("").replace("10.1.1.0/29", "10.1.3.0/24")).unwrap();
    agent.reload();
    assert!(agent.rejected_config.as_ref().unwrap().contains("node.podCIDRs"));
    release(&place, &mut agent, "c");
    agent.reload();
    assert_eq!(agent.rejected_config, None);
    place.assert_settled(&agent);
}

#[test]
fn pods_keep_their_prefix_across_a_restart_as_well() {
    let place = Place::new();
    let mut agent = place.agent();
    add(&place, &mut agent, "c", 40).unwrap();
    drop(agent);
    place.kernel.state().taken.clear();
    let moved = |config: String| config.replace("10.1.1.0/29", "10.1.3.0/24");
    let error = place.start(&moved(place.config(""))).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("1 pods") && error.contains("10.1.1.0/29") && error.contains("10.1.3.0/24"),
        "{error}"
    );
    assert_eq!(place.kernel.state().taken, vec![], "the kernel was touched");
    place.agent();
    // Its DEL came while no agent ran.
    place.kernel.state().plane.pod_links.clear();
    let agent = place.start(&moved(place.config(""))).unwrap();
    assert_eq!(agent.world.leases.count(), 0);
    place.assert_settled(&agent);
}
