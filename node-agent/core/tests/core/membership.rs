//! Which Locators make peers.

#![expect(clippy::unwrap_used, reason = "a test fixture that cannot be built should panic")]

use agent_core::{
    addr::{PodCidrs, SidBlock},
    membership::{Claim, Claims, Membership, Own, membership},
};
use proptest::prelude::*;

use crate::worlds::{number, pods};

fn block() -> SidBlock {
    SidBlock::new("5f00:1::/32".parse().unwrap()).unwrap()
}

fn cluster() -> PodCidrs {
    PodCidrs { v4: Some("10.0.0.0/8".parse().unwrap()), v6: Some("fd10::/48".parse().unwrap()) }
}

/// The claim of a node on a number, and on the prefixes that go with another.
fn claim(number: u16, prefixes: u16, created: i64) -> Claim {
    Claim {
        created,
        owner: String::new(),
        number: number.into(),
        locator: format!("5f00:1:{number:x}::/48"),
        pod_cidrs: pods(prefixes, true, true).prefixes().map(|net| net.to_string()).collect(),
        addresses: vec![format!("fc00::{number:x}"), "fe80::1".into()],
        mtu: 1500,
    }
}

fn own(number: u16) -> Own {
    Own { name: "own".into(), created: None, number: self::number(number), pods: pods(number, true, true) }
}

fn seen(own: &Own, claims: &[(&str, Claim)]) -> Membership {
    let claims: Claims = claims.iter().map(|(name, claim)| ((*name).to_owned(), claim.clone())).collect();
    let own = Own { created: claims.get(&own.name).map(|claim| claim.created), ..own.clone() };
    membership(&claims, &own, block(), cluster())
}

fn names(members: &Membership) -> Vec<&str> {
    members.peers.values().map(|peer| peer.name.as_str()).collect()
}

#[test]
fn other_nodes_are_peers_and_this_one_is_not() {
    let members = seen(&own(1), &[("own", claim(1, 1, 5)), ("b", claim(2, 2, 9)), ("c", claim(3, 3, 1))]);
    assert_eq!(names(&members), ["b", "c"]);
    assert_eq!((members.rejected.len(), members.own_rejected), (0, None));
    let peer = &members.peers[&number(2)];
    assert_eq!((peer.pods, peer.mtu), (pods(2, true, true), Some(1500)));
    assert_eq!(peer.addresses[1].to_string(), "fe80::1");
}

#[test]
fn of_two_with_one_number_the_earlier_is_taken_and_of_the_same_age_the_first_by_name() {
    for (b, c, taken) in [(5, 6, "b"), (6, 5, "c"), (5, 5, "b")] {
        let members = seen(&own(1), &[("b", claim(2, 2, b)), ("c", claim(2, 3, c))]);
        assert_eq!(names(&members), [taken]);
        let (rejected, reason) = members.rejected.first_key_value().unwrap();
        assert!(rejected != taken && reason.contains(&format!("Node {taken}'s")), "{reason}");
        assert!(reason.contains("headway.dev/node-number="), "{reason}");
    }
}

#[test]
fn prefixes_that_overlap_in_either_direction_belong_to_the_earlier() {
    for (earlier, later) in
        [("10.0.2.0/24", "10.0.2.128/25"), ("10.0.2.128/25", "10.0.2.0/24"), ("10.0.2.0/24", "10.0.2.0/24")]
    {
        let with = |number, net: &str, created| {
            let mut claim = claim(number, number, created);
            claim.pod_cidrs[0] = net.into();
            claim
        };
        let members = seen(&own(1), &[("b", with(2, earlier, 9)), ("a", with(3, later, 10))]);
        assert_eq!(names(&members), ["b"]);
        assert!(
            members.rejected["a"].contains(&format!("{later} overlaps {earlier}")),
            "{:?}",
            members.rejected
        );
    }
}

#[test]
fn this_node_as_the_later_claimant_knows_it_and_as_the_earlier_turns_the_other_away() {
    let later = seen(&own(1), &[("b", claim(1, 2, 5)), ("own", claim(1, 1, 6))]);
    assert!(later.own_rejected.as_ref().unwrap().contains("Node b's"), "{later:?}");
    assert_eq!(names(&later), ["b"]);
    let earlier = seen(&own(1), &[("b", claim(1, 2, 6)), ("own", claim(1, 1, 5))]);
    assert_eq!((earlier.own_rejected.as_ref(), earlier.peers.len(), earlier.rejected.len()), (None, 0, 1));
    let unpublished = seen(&own(1), &[("b", claim(1, 2, 6))]);
    assert!(unpublished.own_rejected.is_some());
    let prefix = seen(&own(1), &[("b", claim(2, 1, 6))]);
    assert!(prefix.own_rejected.unwrap().contains("overlaps"));
}

#[test]
fn a_claim_that_is_wrong_by_itself_takes_nothing_from_others() {
    let wrong = |change: fn(&mut Claim)| {
        let mut wrong = claim(2, 2, 1);
        change(&mut wrong);
        let members = seen(&own(1), &[("bad", wrong), ("b", claim(2, 2, 9))]);
        assert_eq!(names(&members), ["b"]);
        members.rejected["bad"].clone()
    };
    let said = [
        wrong(|claim| claim.number = 0),
        wrong(|claim| claim.locator = "5f00:2:2::/48".into()),
        wrong(|claim| claim.pod_cidrs = vec!["192.168.2.0/24".into(), "fd10:0:0:2::/64".into()]),
        wrong(|claim| drop(claim.pod_cidrs.pop())),
        wrong(|claim| claim.pod_cidrs[0] = "10.0.2.1/24".into()),
        wrong(|claim| claim.pod_cidrs[0] = "ten".into()),
        wrong(|claim| claim.addresses[0] = "5f00:1:9::1".into()),
        wrong(|claim| claim.addresses[0] = "ff02::1".into()),
        wrong(|claim| claim.mtu = 1279),
    ];
    let words = [
        "57343",
        "sidBlock",
        "clusterCIDRs",
        "IPv6 none",
        "10.0.2.0/24 would be right",
        "not a prefix",
        "SID block",
        "no node's",
        "1280",
    ];
    for (reason, word) in said.iter().zip(words) {
        assert!(reason.contains(word), "{word} in {reason}");
    }
}

#[test]
fn the_later_claimant_takes_over_when_the_earlier_leaves() {
    let both = [("b", claim(2, 2, 5)), ("c", claim(2, 2, 6))];
    assert_eq!(names(&seen(&own(1), &both)), ["b"]);
    assert_eq!(names(&seen(&own(1), &both[1..])), ["c"]);
}

prop_compose! {
    fn claims()(drawn in prop::collection::vec((1_u16..12, 1_u16..12, 0_i64..4), 1..24)) -> Claims {
        (0..).zip(drawn).map(|(i, (number, prefixes, created)): (usize, _)| (format!("n{i}"), claim(number, prefixes, created))).collect()
    }
}

proptest! {
    #[test]
    fn all_nodes_agree_on_all_others(claims in claims()) {
        let mut taken: Option<Vec<String>> = None;
        for (name, claim) in &claims {
            let own = Own {
                name: name.clone(),
                created: Some(claim.created),
                number: number(claim.number.try_into().unwrap()),
                pods: PodCidrs::of_node(&claim.pod_cidrs.iter().map(|net| net.parse().unwrap()).collect::<Vec<_>>()).unwrap(),
            };
            let members = membership(&claims, &own, block(), cluster());
            prop_assert_eq!(members.rejected.len() + members.peers.len() + 1, claims.len());
            let mut all: Vec<String> = members.peers.values().map(|peer| peer.name.clone()).collect();
            all.extend(members.own_rejected.is_none().then(|| name.clone()));
            all.sort();
            prop_assert_eq!(taken.get_or_insert_with(|| all.clone()), &all);
        }
    }

    #[test]
    fn nobody_who_is_taken_shares_anything(claims in claims()) {
        let members = membership(&claims, &own(100), block(), cluster());
        let prefixes: std::collections::BTreeSet<_> = members.peers.values().map(|peer| peer.pods).collect();
        prop_assert_eq!(prefixes.len(), members.peers.len());
        for name in members.rejected.keys() {
            // Nobody is turned away without need.
            let claim = &claims[name];
            let rival = claims.iter().any(|(other, it)| (it.created, other) < (claim.created, name)
                && (it.number == claim.number || it.pod_cidrs == claim.pod_cidrs));
            prop_assert!(rival, "{name}");
        }
    }
}
