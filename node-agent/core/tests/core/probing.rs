//! Probes of peers over time: who is asked when, and what answers and silence come to mean.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use agent_core::probes::{INTERVAL, MAX_PROBED, Outcome, Outcomes, Probe, Prober, Target};

use crate::worlds::{number, pods};

const MTU: u32 = 1446;

fn targets(numbers: impl IntoIterator<Item = u16>) -> Vec<Target> {
    let target = |node| Target {
        number: number(node),
        gateways: pods(node, true, true).addresses(1).collect(),
        mtu: MTU,
    };
    numbers.into_iter().map(target).collect()
}

fn prober(numbers: impl IntoIterator<Item = u16>) -> Prober {
    let mut prober = Prober::default();
    prober.update(&targets(numbers), 0);
    prober
}

fn outcome(outcomes: &Outcomes, node: u16) -> Outcome {
    outcomes.peers[&number(node)]
}

/// Lets time pass second by second; `answers` says which probes come back.
fn pass(
    prober: &mut Prober,
    seconds: std::ops::Range<u64>,
    answers: impl Fn(&Probe) -> bool,
) -> Vec<(u64, Probe)> {
    let mut sent = Vec::new();
    for second in seconds {
        for probe in prober.due(second * 1000) {
            sent.push((second, probe));
            if answers(&probe) {
                assert!(prober.answered(probe.to, probe.sequence, probe.size, second * 1000 + 1));
            }
        }
    }
    sent
}

#[test]
fn peers_that_answer_are_asked_in_both_families_once_an_interval() {
    let mut prober = prober([2]);
    let sent = pass(&mut prober, 0..60, |_| true);
    let mut by_address: BTreeMap<IpAddr, Vec<u64>> = BTreeMap::new();
    for (second, probe) in sent {
        assert_eq!(probe.size, MTU);
        by_address.entry(probe.to).or_default().push(second);
    }
    assert_eq!(by_address.len(), 2);
    assert!(by_address.values().all(|seconds| *seconds == [0, 10, 20, 30, 40, 50]), "{by_address:?}");
    assert_eq!(outcome(&prober.outcomes(60_000), 2), Outcome::Answers);
}

#[test]
fn a_peer_falls_silent_after_three_misses_and_is_heard_again_at_once() {
    let mut prober = prober([2]);
    pass(&mut prober, 0..11, |_| true);
    pass(&mut prober, 11..49, |_| false);
    // Unanswered since second 20.
    assert_eq!(outcome(&prober.outcomes(49_000), 2), Outcome::Answers);
    assert_eq!(outcome(&prober.outcomes(20_000 + 3 * INTERVAL), 2), Outcome::Silent);
    pass(&mut prober, 49..61, |_| true);
    assert_eq!(outcome(&prober.outcomes(61_000), 2), Outcome::Answers);
}

#[test]
fn one_silent_family_makes_the_peer_silent() {
    let mut prober = prober([2, 3]);
    let deaf: IpAddr = pods(3, true, true).ip6(1).unwrap().into();
    pass(&mut prober, 0..40, |probe| probe.to != deaf);
    let outcomes = prober.outcomes(40_000);
    assert_eq!((outcome(&outcomes, 2), outcome(&outcomes, 3)), (Outcome::Answers, Outcome::Silent));
}

#[test]
fn an_underlay_that_is_too_narrow_is_told_from_one_that_leads_nowhere() {
    let mut prober = prober([2]);
    pass(&mut prober, 0..45, |probe| probe.size < MTU);
    assert_eq!(outcome(&prober.outcomes(45_000), 2), Outcome::OnlySmall);
    assert!(!prober.outcomes(45_000).first_answer_settled);
}

#[test]
fn a_new_peer_is_asked_each_second_until_it_answers() {
    let mut prober = prober([2]);
    let sent = pass(&mut prober, 0..5, |_| false);
    assert_eq!(sent.iter().filter(|(_, probe)| probe.size == MTU).count(), 5 * 2);
    assert_eq!(outcome(&prober.outcomes(5_000), 2), Outcome::Waiting);
    // Later no more often than any other.
    let sent = pass(&mut prober, 40..60, |_| false);
    assert_eq!(sent.iter().filter(|(_, probe)| probe.size == MTU).count(), 2 * 2);
}

#[test]
fn the_first_answer_settles_it_and_so_does_a_minute_without() {
    let mut answered = prober([2, 3]);
    let first = answered.due(0)[0];
    assert!(!answered.outcomes(0).first_answer_settled);
    answered.answered(first.to, first.sequence, first.size, 1);
    assert!(answered.outcomes(1).first_answer_settled);
    let mut waiting = prober([2]);
    pass(&mut waiting, 0..59, |_| false);
    assert!(!waiting.outcomes(59_000).first_answer_settled);
    assert!(waiting.outcomes(60_000).first_answer_settled);
}

#[test]
fn only_an_answer_to_a_probe_of_ours_counts() {
    let mut prober = prober([2, 3]);
    let probes = prober.due(0);
    let [one, other] = [probes[0], probes[1]];
    assert!(!prober.answered(other.to, one.sequence, one.size, 1), "another peer's");
    assert!(!prober.answered(one.to, one.sequence.wrapping_add(100), one.size, 1), "never sent");
    assert!(!prober.answered("192.0.2.1".parse().unwrap(), one.sequence, one.size, 1), "a stranger's");
    assert!(prober.answered(one.to, one.sequence, one.size, 1));
    assert!(!prober.answered(one.to, one.sequence, one.size, 2), "twice");
}

#[test]
fn what_is_known_of_a_peer_outlives_changes_of_others() {
    let mut prober = prober([2]);
    pass(&mut prober, 0..40, |_| false);
    prober.update(&targets([2, 3]), 40_000);
    assert_eq!(outcome(&prober.outcomes(40_000), 2), Outcome::Silent);
    prober.update(&targets([3]), 41_000);
    assert!(!prober.outcomes(41_000).peers.contains_key(&number(2)));
}

#[test]
fn of_many_peers_a_sample_is_asked_that_comes_round_to_all() {
    let all: Vec<u16> = (2..402).collect();
    let mut prober = prober(all.iter().copied());
    let mut asked = BTreeSet::new();
    for second in 0..2400 {
        for probe in prober.due(second * 1000) {
            asked.insert(probe.to);
            prober.answered(probe.to, probe.sequence, probe.size, second * 1000 + 1);
        }
        assert_eq!(prober.outcomes(second * 1000 + 1).peers.len(), MAX_PROBED);
    }
    assert_eq!(asked.len(), all.len() * 2);
}

#[test]
fn a_silent_peer_stays_in_the_sample_and_does_not_seem_to_recover() {
    let mut prober = prober(2..402);
    let deaf: Vec<IpAddr> = pods(2, true, true).addresses(1).collect();
    pass(&mut prober, 0..900, |probe| !deaf.contains(&probe.to));
    assert_eq!(outcome(&prober.outcomes(900_000), 2), Outcome::Silent);
    // Even if all are silent the sample goes on to change.
    let mut lonely = self::prober(2..402);
    let first: BTreeSet<_> = lonely.outcomes(0).peers.into_keys().collect();
    pass(&mut lonely, 0..900, |_| false);
    let later: BTreeSet<_> = lonely.outcomes(900_000).peers.into_keys().collect();
    assert!(later.len() == MAX_PROBED && !later.is_subset(&first));
}
