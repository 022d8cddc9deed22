//! What is published of a world, and how soon.

#![expect(clippy::unwrap_used, reason = "a test fixture that cannot be built should panic")]

use agent_core::{
    probes::{Outcome, Outcomes, targets},
    published::{Figures, Published, Reporter, Status, Urgency, published, urgency, waiting},
    world::{Event, World},
};

use crate::worlds::{UPLINK, attach, facts, fresh, number};

fn world(peers: &[u16]) -> World {
    let mut world = fresh(1, peers, true, true);
    let mut facts = facts(&world, 1, 1500, |_| true, true);
    let uplink = facts.links.get_mut(UPLINK).unwrap();
    uplink.addresses =
        ["192.0.2.1", "fe80::1", "2001:db8::1", "5f00:1:1::1"].map(|it| it.parse().unwrap()).into();
    world.apply(Event::Observed(Box::new(facts)));
    world
}

fn probed(world: &mut World, outcomes: &[(u16, Outcome)], first_answer_settled: bool) {
    let peers = outcomes.iter().map(|(peer, outcome)| (number(*peer), *outcome)).collect();
    world.apply(Event::Probed(Box::new(Outcomes { peers, first_answer_settled })));
}

fn said(world: &World) -> Published {
    published(world, Ok(()))
}

fn condition<'a>(status: &'a Status, kind: &str) -> &'a agent_core::conditions::Condition {
    status.conditions.iter().find(|condition| condition.kind == kind).unwrap()
}

#[test]
fn peers_are_told_the_global_addresses_first_and_no_sid() {
    let locator = said(&world(&[2])).locator.unwrap();
    assert_eq!(locator.identity.locator.to_string(), "5f00:1:1::/48");
    assert_eq!(locator.mtu, 1500);
    let underlay: Vec<String> = locator.underlay.iter().map(ToString::to_string).collect();
    assert_eq!(underlay, ["2001:db8::1", "fe80::1"]);
}

#[test]
fn nothing_is_told_to_peers_before_the_uplinks_are_known() {
    let world = fresh(1, &[2], true, true);
    assert_eq!(said(&world).locator, None);
}

#[test]
fn the_network_is_available_with_the_first_answer_or_without_anybody_to_give_one() {
    let mut world = world(&[2, 3]);
    let available = |world: &World, ready: Result<(), String>| published(world, ready).network_available;
    assert!(!available(&world, Ok(())));
    probed(&mut world, &[(2, Outcome::Waiting), (3, Outcome::Answers)], true);
    assert!(available(&world, Ok(())));
    assert!(!available(&world, Err("no switch".into())), "the dataplane is not up");
    assert!(available(&self::world(&[]), Ok(())), "nobody is there to answer");
}

#[test]
fn ready_comes_first_and_says_why_not() {
    let status = published(&world(&[]), Err("no switch".into())).status;
    let first = &status.conditions[0];
    assert_eq!((first.kind, first.holds, first.message.as_str()), ("Ready", false, "no switch"));
    // Reasons are what metav1.Condition asks for.
    for condition in &status.conditions {
        assert!(
            condition.reason.len() > 2 && condition.reason.chars().all(|one| one.is_ascii_alphanumeric())
        );
    }
}

#[test]
fn a_node_without_a_number_says_what_it_waits_for() {
    let said = waiting("NoPodCIDR", "the Node has no podCIDRs");
    assert_eq!((said.locator, said.network_available, said.ready), (None, false, false));
    let ready = &said.status.conditions[0];
    assert_eq!((ready.kind, ready.holds, ready.reason), ("Ready", false, "NoPodCIDR"));
}

#[test]
fn silent_peers_are_named_and_told_from_those_behind_a_narrow_underlay() {
    let mut world = world(&[2, 3, 4]);
    probed(&mut world, &[(2, Outcome::Silent), (3, Outcome::OnlySmall), (4, Outcome::Answers)], true);
    let published = said(&world);
    let condition = condition(&published.status, "PeersReachable");
    assert!(!condition.holds);
    assert!(condition.message.contains("1 of 3 (node-2) do not answer"), "{}", condition.message);
    assert!(condition.message.contains("1 of 3 (node-3) answer small packets only"), "{}", condition.message);
    assert_eq!((published.status.figures.probed, published.status.figures.reachable), (3, 1));
}

#[test]
fn network_policies_are_spoken_of_only_when_there_are_some() {
    let mut world = world(&[]);
    let kinds = |world: &World| {
        said(world).status.conditions.iter().filter(|one| !one.holds).map(|one| one.kind).collect::<Vec<_>>()
    };
    let before = kinds(&world);
    world.apply(Event::NetworkPolicies(true));
    let after = kinds(&world);
    assert_eq!(
        after.iter().filter(|kind| !before.contains(kind)).collect::<Vec<_>>(),
        [&"NetworkPolicyEnforced"]
    );
}

#[test]
fn a_pod_costs_no_write_of_its_own() {
    let mut world = world(&[2]);
    let before = said(&world).status;
    attach(&mut world, 5, 1, |_| true);
    let after = said(&world).status;
    assert_eq!(after.figures.endpoints, 5);
    assert_eq!(urgency(&before, &after), Some(Urgency::After(300_000)));
    assert_eq!(urgency(&after, &after), None);
}

#[test]
fn a_condition_that_turns_is_told_at_once_and_a_new_wording_later() {
    let mut world = world(&[2, 3]);
    probed(&mut world, &[(2, Outcome::Answers), (3, Outcome::Answers)], true);
    let well = said(&world).status;
    probed(&mut world, &[(2, Outcome::Silent), (3, Outcome::Answers)], true);
    let one_silent = said(&world).status;
    probed(&mut world, &[(2, Outcome::Silent), (3, Outcome::Silent)], true);
    let both_silent = said(&world).status;
    assert_eq!(urgency(&well, &one_silent), Some(Urgency::Now));
    assert_eq!(urgency(&one_silent, &both_silent), Some(Urgency::After(10_000)));
    assert_eq!(urgency(&both_silent, &well), Some(Urgency::Now));
}

#[test]
fn counts_of_peers_are_told_the_more_seldom_the_more_there_are() {
    let status = said(&world(&[2])).status;
    let with = |known: usize| Status { figures: Figures { known, ..status.figures }, ..status.clone() };
    assert_eq!(urgency(&status, &with(50)), Some(Urgency::After(10_000)));
    assert_eq!(urgency(&status, &with(5000)), Some(Urgency::After(500_000)));
}

#[test]
fn a_problem_that_lasts_is_reported_once_and_again_only_after_it_was_gone_for_long() {
    let mut world = world(&[2]);
    let mut reporter = Reporter::default();
    let mut due = |world: &World, at: u64| {
        let status = said(world).status;
        let (due, next) = reporter.due(&status, at);
        (
            due.iter().map(|one| one.kind).filter(|kind| *kind != "NeighbourTablesSized").collect::<Vec<_>>(),
            next,
        )
    };
    assert_eq!(due(&world, 0).0, Vec::<&str>::new());
    probed(&mut world, &[(2, Outcome::Silent)], true);
    assert_eq!(due(&world, 1_000).0, Vec::<&str>::new(), "it may be over at once");
    assert_eq!(due(&world, 15_500), (vec![], Some(16_000)));
    assert_eq!(due(&world, 16_000), (vec!["PeersReachable"], None));
    assert_eq!(due(&world, 999_000), (vec![], None));
    for (second, outcome) in [(1000, Outcome::Answers), (1001, Outcome::Silent)] {
        probed(&mut world, &[(2, outcome)], true);
        due(&world, second * 1000);
    }
    assert_eq!(due(&world, 1_020_000).0, ["PeersReachable"], "its last Event is long gone");
    for (second, outcome) in [(1030, Outcome::Answers), (1031, Outcome::Silent)] {
        probed(&mut world, &[(2, outcome)], true);
        due(&world, second * 1000);
    }
    assert_eq!(due(&world, 1_100_000), (vec![], Some(1_620_000)), "it comes and goes");
}

#[test]
fn what_an_earlier_agent_has_said_is_no_news() {
    let mut world = world(&[2]);
    probed(&mut world, &[(2, Outcome::Silent)], true);
    let status = said(&world).status;
    let mut reporter = Reporter::default();
    reporter.recall(&status, |kind| kind == "PeersReachable");
    reporter.due(&status, 5);
    let due = reporter.due(&status, 60_000).0;
    assert!(!due.is_empty() && due.iter().all(|one| one.kind != "PeersReachable"));
}

#[test]
fn what_nobody_has_to_act_on_is_no_event() {
    let world = world(&[]);
    let status = said(&world).status;
    assert!(status.conditions.iter().any(|one| one.kind == "HeadroomSupported" && !one.holds));
    let mut reporter = Reporter::default();
    reporter.due(&status, 0);
    assert!(reporter.due(&status, 20_000).0.iter().all(|one| one.kind != "HeadroomSupported"));
}

#[test]
fn peers_without_a_way_to_them_are_not_probed() {
    let mut world = world(&[2, 3]);
    let way = world.config.sid_block.locator(number(3)).infrastructure();
    world.facts.routes_to.remove(&way);
    let targets = targets(&world);
    assert_eq!(targets.peers.len(), 1);
    let target = &targets.peers[0];
    assert_eq!((target.number, target.mtu, target.gateways.len()), (number(2), 1446, 2));
    assert_eq!(targets.sources.len(), 2);
}

#[test]
fn a_peer_with_a_smaller_mtu_is_probed_with_that() {
    let mut world = world(&[2]);
    world.peers.get_mut(&number(2)).unwrap().mtu = Some(1400);
    assert_eq!(targets(&world).peers[0].mtu, 1346);
}
