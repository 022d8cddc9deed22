//! An agent of which the API server says who its node is, fact by fact.

use std::{collections::BTreeMap, sync::mpsc, thread};

use agent_core::{
    addr::{NodeNumber, SidBlock},
    cluster::Fact,
    dataplane::Link,
    identity::NodeObject,
    membership::{Claim, Claims},
};

use super::*;
use crate::{cluster::Cluster, waiting};

const UID: &str = "0b6bd1c6-32e0-4e1f-a5ff-8b2e4c1f6a10";

impl Place {
    fn cluster_file(&self) -> PathBuf {
        let file = self.folder.path().join("cluster.yaml");
        let text = format!(
            "clusterCIDRs: [10.1.0.0/16]\ncni: {{confDir: {}}}\npaths: {{socket: {}, state: {}, bpf: /bpf}}\n",
            self.path("net.d"),
            self.path("agent.sock"),
            self.path("state"),
        );
        fs::write(&file, text).unwrap();
        file
    }

    /// A node that has just started to ask, `since` ago.
    fn cluster(&self, since: Duration) -> Cluster {
        let config = config::load_cluster(&self.cluster_file()).unwrap();
        let state = config.paths.state.clone();
        fs::create_dir_all(&state).unwrap();
        Cluster::new("node-a".into(), config, &state, Instant::now().checked_sub(since).unwrap())
    }

    fn links(&self) -> BTreeMap<String, Link> {
        let mut links = self.kernel.state().links.clone();
        links.get_mut(UPLINK).unwrap().addresses =
            vec!["192.0.2.1".parse().unwrap(), "fe80::1".parse().unwrap()];
        links
    }

    /// An agent whose node knows these facts.
    fn begun(&self, mut cluster: Cluster, facts: Vec<Fact>) -> Agent {
        let (inputs, received) = mpsc::channel();
        facts.into_iter().for_each(|fact| inputs.send(Input::Cluster(fact)).unwrap());
        let begun = waiting::run(&received, &mut cluster, &self.cluster_file(), &Feeds::default(), || {
            Ok(self.links())
        });
        let (config, standing) = begun.unwrap();
        let beside = cluster.beside(&standing);
        Agent::start(Parts {
            config_file: self.cluster_file(),
            config,
            cluster: Some((cluster, beside)),
            boot: self.boot.into(),
            store: Store::open(Path::new(&self.path("state"))).unwrap(),
            reconciler: Reconciler::new(Box::new(self.kernel.clone())),
            feeds: Feeds::default(),
        })
        .unwrap()
    }
}

fn node(pod_cidr: &str) -> Fact {
    Fact::Node(Box::new(NodeObject {
        name: "node-a".into(),
        uid: "node-uid".into(),
        pod_cidrs: vec![pod_cidr.into()],
        number_annotation: None,
        internal_ips: vec!["192.0.2.1".parse().unwrap()],
    }))
}

fn claim(number: u32, created: i64) -> Claim {
    let locator = SidBlock::of_cluster(UID).locator(NodeNumber::new(number).unwrap());
    Claim {
        created,
        owner: "another-uid".into(),
        number,
        locator: locator.to_string(),
        pod_cidrs: vec![format!("10.1.{}.0/24", number - 1)],
        addresses: vec!["fe80::2".into()],
        mtu: 1500,
    }
}

fn known() -> Vec<Fact> {
    vec![Fact::Uid(UID.into()), Fact::Locators(Claims::new()), node("10.1.4.0/29")]
}

/// Hands facts over and lets the agent take what follows.
fn tell(agent: &mut Agent, facts: Vec<Fact>) {
    facts.into_iter().for_each(|fact| agent.take(Input::Cluster(fact)));
    let soon = |agent: &Agent| {
        agent.next_settling().filter(|next| *next < Instant::now() + Duration::from_millis(500))
    };
    while let Some(next) = soon(agent) {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        agent.settle();
    }
}

fn condition(agent: &mut Agent, kind: &str) -> (bool, String) {
    let one = agent.report().conditions.into_iter().find(|one| one.kind == kind).unwrap();
    (one.holds, one.message)
}

#[test]
fn a_node_waits_with_a_reason_until_it_can_begin_and_then_takes_pods() {
    let place = Place::new();
    let mut cluster = place.cluster(Duration::ZERO);
    let (inputs, received) = mpsc::channel();
    let file = place.cluster_file();
    let links = place.links();
    let feeds = Feeds::default();
    let told = feeds.published.subscribe();
    let waiter = thread::spawn(move || {
        waiting::run(&received, &mut cluster, &file, &feeds, || Ok(links.clone())).is_some()
    });
    let ask = |verb: Verb| {
        let (reply, answer) = oneshot::channel();
        inputs.send(Input::Request(verb, reply)).unwrap();
        answer.blocking_recv().unwrap()
    };
    for fact in [Fact::Uid(UID.into()), Fact::Locators(Claims::new()), Fact::Node(Box::default())] {
        inputs.send(Input::Cluster(fact)).unwrap();
    }
    let says = |reply: Result<Reply, Refusal>| match reply {
        Ok(Reply::Readiness(Readiness::NotReady(reason))) => reason,
        other => panic!("ready: {other:?}"),
    };
    while !says(ask(Verb::Status)).contains("spec.podCIDRs") {
        thread::sleep(Duration::from_millis(5));
    }
    let refused = ask(reserve("c")).unwrap_err();
    assert!(refused.kind == ErrorKind::TryAgain && refused.message.contains("spec.podCIDRs"), "{refused:?}");
    let ready = told.borrow().as_ref().unwrap().status.conditions[0].clone();
    assert_eq!((ready.kind, ready.reason, ready.holds), ("Ready", "NoPodCIDR", false));
    inputs.send(Input::Cluster(node("10.1.4.0/29"))).unwrap();
    assert!(waiter.join().unwrap(), "it has begun");

    let mut agent = place.begun(place.cluster(Duration::ZERO), known());
    assert_eq!(agent.world.config.node.number.get(), 1 + 4 * 256 / 8);
    add(&place, &mut agent, "c", 40).unwrap();
    place.assert_settled(&agent);
}

#[test]
fn peers_come_change_and_go_with_their_locators() {
    let place = Place::new();
    let mut agent = place.begun(place.cluster(Duration::ZERO), known());
    let number = NodeNumber::new(3).unwrap();
    let entry = |place: &Place| place.kernel.state().plane.nodes.get(&number).copied();
    assert_eq!(entry(&place), None);
    tell(&mut agent, vec![Fact::Locator("node-c".into(), Box::new(claim(3, 5)))]);
    let before = entry(&place).unwrap();
    let changed = Claim { pod_cidrs: vec!["10.1.200.0/24".into()], ..claim(3, 5) };
    tell(&mut agent, vec![Fact::Locator("node-c".into(), Box::new(changed))]);
    assert_ne!(entry(&place).unwrap(), before);
    place.assert_settled(&agent);
    tell(&mut agent, vec![Fact::LocatorGone("node-c".into())]);
    assert_eq!(entry(&place), None);
    place.assert_settled(&agent);
}

#[test]
fn a_locator_that_is_not_taken_is_said_with_what_to_do() {
    let place = Place::new();
    let mut agent = place.begun(place.cluster(Duration::ZERO), known());
    let rival = Claim { pod_cidrs: vec!["10.1.9.0/24".into()], ..claim(3, 6) };
    tell(
        &mut agent,
        vec![
            Fact::Locator("node-c".into(), Box::new(claim(3, 5))),
            Fact::Locator("node-d".into(), Box::new(rival)),
        ],
    );
    let (holds, message) = condition(&mut agent, "PeersAccepted");
    assert!(!holds && message.contains("node-d") && message.contains("node-number="), "{message}");
    assert_eq!(agent.ready(), Ok(()));
    tell(&mut agent, vec![Fact::LocatorGone("node-c".into())]);
    assert!(condition(&mut agent, "PeersAccepted").0);
}

#[test]
fn the_later_claimant_takes_no_pods_until_the_earlier_has_gone() {
    let place = Place::new();
    let mut agent = place.begun(place.cluster(Duration::ZERO), known());
    let own = agent.world.config.node.number.get();
    let rival = Claim { pod_cidrs: vec!["10.1.9.0/24".into()], ..claim(own.into(), 5) };
    tell(&mut agent, vec![Fact::Locator("node-b".into(), Box::new(rival))]);
    assert!(agent.ready().unwrap_err().contains("Node node-b's"));
    assert_eq!(agent.serve(reserve("c")).unwrap_err().kind, ErrorKind::TryAgain);
    assert_eq!(place.kernel.state().plane.attachments.len(), 0);
    tell(&mut agent, vec![Fact::LocatorGone("node-b".into())]);
    assert_eq!(agent.ready(), Ok(()));
    add(&place, &mut agent, "c", 40).unwrap();
    place.assert_settled(&agent);
}

#[test]
fn without_an_api_server_a_node_begins_with_what_is_on_disk() {
    let place = Place::new();
    let mut facts = known();
    facts[1] = Fact::Locators([("node-c".to_owned(), claim(3, 5))].into());
    let mut agent = place.begun(place.cluster(Duration::ZERO), facts);
    add(&place, &mut agent, "c", 40).unwrap();
    let before = agent.world.clone();
    agent.end();

    let mut agent = place.begun(place.cluster(Duration::from_secs(60)), vec![]);
    assert_eq!((&agent.world.config, &agent.world.peers), (&before.config, &before.peers));
    assert_eq!(agent.world.leases, before.leases);
    tell(&mut agent, vec![Fact::Reachable(Err("connection refused".into()))]);
    let (holds, message) = condition(&mut agent, "ApiServerReachable");
    assert!(!holds && message.contains("connection refused"), "{message}");
    assert_eq!(agent.ready(), Ok(()));
    add(&place, &mut agent, "d", 41).unwrap();
    release(&place, &mut agent, "c");
    place.assert_settled(&agent);
    tell(&mut agent, vec![Fact::Reachable(Ok(())), Fact::Locators(Claims::new())]);
    assert!(condition(&mut agent, "ApiServerReachable").0);
    assert_eq!(agent.world.peers.len(), 0);
}

#[test]
fn another_configuration_file_is_taken_as_far_as_the_cluster_goes_with_it() {
    let place = Place::new();
    let mut agent = place.begun(place.cluster(Duration::ZERO), known());
    let text = fs::read_to_string(&agent.config_file).unwrap();
    fs::write(&agent.config_file, format!("{text}mtu: 1400\n")).unwrap();
    agent.reload();
    tell(&mut agent, vec![]);
    assert_eq!((agent.world.config.mtu, &agent.rejected_config), (Some(1400), &None));
    for (bad, word) in [
        (text.replace("10.1.0.0/16", "10.9.0.0/16"), "10.9.0.0/16"),
        (text.replace("/bpf", "/elsewhere"), "paths"),
        (
            format!("{text}peers: [{{name: b, number: 2, podCIDRs: [10.1.2.0/24], address: 'fc00::2'}}]\n"),
            "peers",
        ),
    ] {
        fs::write(&agent.config_file, bad).unwrap();
        agent.reload();
        tell(&mut agent, vec![]);
        assert!(agent.rejected_config.as_ref().unwrap().contains(word), "{:?}", agent.rejected_config);
        assert_eq!(agent.world.config.mtu, Some(1400));
    }
}

/// The same node name, but another Node with another prefix.
fn reborn() -> Fact {
    let Fact::Node(mut node) = node("10.1.6.0/29") else { panic!("another fact") };
    node.uid = "another-uid".into();
    Fact::Node(node)
}

/// What is left to a pod of an earlier prefix, and what a new one gets.
fn assert_fenced(place: &Place, agent: &mut Agent) {
    place.assert_settled(agent);
    let plane = place.kernel.state().plane.clone();
    assert!(!plane.endpoints.contains_key(&40) && plane.fdb.values().all(|entry| entry.ifindex != 40));
    assert!(plane.attachments.keys().all(|(_, ifindex)| *ifindex != 40));
    let link = names::host_ifname(&key("c"));
    assert!(plane.pod_links.contains_key(&link), "its link stays");
    let contact: Vec<String> = plane
        .addresses
        .keys()
        .filter(|address| address.link == link)
        .map(|address| format!("{} peer {}", address.address, address.other_end.unwrap()))
        .collect();
    assert_eq!(contact, ["10.1.4.1/32 peer 10.1.4.2"]);
    assert!(
        plane.firewall["inet headway"].contains(&format!("{{ \"{link}\" }} fib daddr type local accept"))
    );
    assert!(plane.prefixes4.keys().all(|(_, net)| net.to_string() != "10.1.4.0/29"));
    let (holds, message) = condition(agent, "NoForeignPods");
    assert!(!holds && message.contains("10.1.4.2"), "{message}");
    assert_eq!(agent.ready(), Ok(()));
}

#[test]
fn pods_of_an_earlier_prefix_are_fenced_until_they_are_gone() {
    let place = Place::new();
    let mut agent = place.begun(place.cluster(Duration::ZERO), known());
    add(&place, &mut agent, "c", 40).unwrap();
    tell(&mut agent, vec![reborn()]);
    assert_fenced(&place, &mut agent);
    add(&place, &mut agent, "d", 41).unwrap();
    assert_eq!(agent.world.leases.get(&key("d")).unwrap().host, 2, "of the new prefix");
    assert_fenced(&place, &mut agent);
    assert_eq!(agent.serve(reserve("c")).unwrap_err().kind, ErrorKind::Exists);
    release(&place, &mut agent, "c");
    agent.resync(Look::Everywhere);
    place.assert_settled(&agent);
    assert!(condition(&mut agent, "NoForeignPods").0);
    assert_eq!(agent.world.leases.count(), 1);
}

#[test]
fn pods_of_an_earlier_prefix_are_known_to_the_next_agents() {
    let place = Place::new();
    let mut agent = place.begun(place.cluster(Duration::ZERO), known());
    add(&place, &mut agent, "c", 40).unwrap();
    agent.end();
    let facts = || vec![Fact::Uid(UID.into()), Fact::Locators(Claims::new()), reborn()];
    let mut agent = place.begun(place.cluster(Duration::ZERO), facts());
    assert_fenced(&place, &mut agent);
    add(&place, &mut agent, "d", 41).unwrap();
    agent.end();
    let mut agent = place.begun(place.cluster(Duration::ZERO), facts());
    assert_fenced(&place, &mut agent);
    assert_eq!(agent.world.leases.count(), 1);
    place.kernel.state().plane.pod_links.remove(&names::host_ifname(&key("c")));
    agent.resync(Look::Everywhere);
    agent.end();
    let agent = place.begun(place.cluster(Duration::ZERO), facts());
    assert_eq!((agent.world.leases.count(), agent.world.leases.foreign().count()), (1, 0));
}
