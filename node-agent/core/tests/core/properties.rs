//! Properties of the core that hold in any world.

use std::collections::{BTreeMap, BTreeSet};

use crate::worlds::{attach, facts, fresh, number, pods, request, world};
use agent_core::{
    dataplane::{Program, Step, plan, plan_attachments},
    desired::{self, desired},
    ipam,
    lease::State,
    peer,
    world::{Event, World},
};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_to_do_where_all_is_as_desired(world in world()) {
        prop_assert_eq!(plan(&desired(&world), &desired(&world)), vec![]);
    }

    #[test]
    fn the_plan_leads_to_what_is_desired(before in world(), after in world()) {
        let (mut state, goal) = (desired(&before), desired(&after));
        for step in plan(&state, &goal) {
            state.apply(step);
        }
        prop_assert_eq!(state, goal);
    }

    #[test]
    fn a_plan_cut_short_anywhere_is_completed_by_the_next(before in world(), after in world(), cut in 0_usize..400) {
        let (mut state, goal) = (desired(&before), desired(&after));
        for step in plan(&state, &goal).into_iter().take(cut) {
            state.apply(step);
        }
        for step in plan(&state, &goal) {
            state.apply(step);
        }
        prop_assert_eq!(state, goal);
    }

    #[test]
    fn nothing_is_taken_away_before_its_replacement_stands(before in world(), after in world()) {
        let steps = plan(&desired(&before), &desired(&after));
        let first_removal = steps.iter().position(|step| matches!(step, Step::Remove(_))).unwrap_or(steps.len());
        prop_assert!(steps[first_removal..].iter().all(|step| matches!(step, Step::Remove(_))));
    }

    #[test]
    fn when_pods_come_and_go_the_plan_for_attachments_is_the_whole_plan(before in world(), other in world()) {
        let mut after = before.clone();
        after.leases = other.leases;
        let (mut state, goal) = (desired(&before), desired(&after));
        prop_assert_eq!(plan_attachments(&state, &desired::attachments(&after)), plan(&state, &goal));
        for step in plan_attachments(&state, &desired::attachments(&after)) {
            state.apply(step);
        }
        prop_assert_eq!(state, goal);
    }

    #[test]
    fn leases_and_facts_may_come_in_any_order(world in world()) {
        let mut other = World::new(world.config.clone(), world.peers.clone(), world.boot.clone());
        other.announced = world.announced;
        other.apply(Event::Observed(Box::new(world.facts.clone())));
        let mut leases: Vec<_> = world.leases.iter().cloned().collect();
        leases.reverse();
        for lease in leases {
            other.apply(Event::Leased(Box::new(lease)));
        }
        prop_assert_eq!(desired(&other), desired(&world));
    }

    #[test]
    fn peers_may_come_and_go_one_at_a_time(before in world(), after in world()) {
        let mut world = before.clone();
        for event in peer::changes(&before.peers, &after.peers) {
            world.apply(event);
        }
        prop_assert_eq!(&world.peers, &after.peers);
        prop_assert_eq!(peer::changes(&world.peers, &after.peers).count(), 0);
    }

    #[test]
    fn every_attached_pod_is_switched_and_no_other(world in world()) {
        let plane = desired(&world);
        prop_assume!(desired::inner_mtu(&world).is_some());
        let active: BTreeSet<u32> = world.leases.iter()
            .filter(|lease| world.stale_reason(lease, 0).is_none())
            .filter_map(|lease| match lease.state { State::Active { ifindex, .. } => Some(ifindex), State::Reserved { .. } => None })
            .collect();
        let gateway = world.facts.links.get(desired::GATEWAY_PEER).map(|link| link.ifindex);
        let expected: BTreeSet<u32> = active.into_iter().chain(gateway).collect();
        let endpoints: BTreeSet<u32> = plane.endpoints.keys().copied().collect();
        let reached: BTreeSet<u32> = plane.fdb.values().map(|entry| entry.ifindex).collect();
        let flooded: BTreeSet<u32> = plane.flood_endpoints.values().map(|entry| entry.ifindex).collect();
        let attached: BTreeSet<u32> = plane.attachments.keys().filter(|(program, _)| *program == Program::Endpoint).map(|(_, index)| *index).collect();
        prop_assert_eq!(&endpoints, &expected);
        prop_assert_eq!(&reached, &expected);
        prop_assert_eq!(&flooded, &expected);
        prop_assert_eq!(&attached, &expected);
    }

    #[test]
    fn no_two_attachments_share_an_address_a_place_or_a_mac(world in world()) {
        let hosts: BTreeSet<u16> = world.leases.iter().map(|lease| lease.host).collect();
        let slots: BTreeSet<u32> = world.leases.iter().map(|lease| lease.slot).collect();
        prop_assert_eq!(hosts.len(), world.leases.count());
        prop_assert_eq!(slots.len(), world.leases.count());
        prop_assert!(!hosts.contains(&ipam::GATEWAY) && !slots.contains(&0));
    }

    #[test]
    fn the_address_freed_longest_ago_comes_first(frees in prop::collection::vec(2_u16..=254, 1..400)) {
        let mut world = fresh(1, &[2], true, true);
        attach(&mut world, 253, 0, |_| true);
        prop_assert!(ipam::reserve(&world, &request("late"), "n".into(), 0).unwrap_err().message.contains("10.0.1.0/24"));
        let mut freed = BTreeMap::new();
        for (at, host) in (1_u64..).zip(&frees) {
            if !freed.contains_key(host) {
                world.apply(Event::Freed { host: *host, at });
                freed.insert(*host, at);
            }
        }
        let mut order: Vec<u16> = freed.keys().copied().collect();
        order.sort_by_key(|host| freed[host]);
        for (i, host) in order.into_iter().enumerate() {
            let lease = ipam::reserve(&world, &request(&format!("new{i}")), "n".into(), 1000).unwrap();
            prop_assert_eq!(lease.host, host);
            world.apply(Event::Leased(Box::new(lease)));
        }
    }
}

#[test]
fn an_address_whose_lease_cannot_be_read_is_not_given_away_while_its_link_is_there() {
    let mut world = fresh(1, &[2], true, true);
    let mut seen = facts(&world, 1, 1500, |_| false, true);
    let pods = world.config.node.pods;
    let mac = desired::switch_side_mac(pods.mac(world.config.node.number, 2));
    let mut link = seen.links["eth0"].clone();
    (link.ifindex, link.mac) = (77, mac);
    seen.links.insert("hw0123456789ab".into(), link);
    world.apply(Event::Observed(Box::new(seen)));
    assert_eq!(ipam::reserve(&world, &request("a"), "n".into(), 5).unwrap().host, 3);
    let seen = facts(&world, 2, 1500, |_| false, true);
    world.apply(Event::Observed(Box::new(seen)));
    assert_eq!(ipam::reserve(&world, &request("a"), "n".into(), 5).unwrap().host, 2);
}

#[test]
fn a_lease_of_an_earlier_boot_is_stale_and_not_switched() {
    let mut world = fresh(1, &[2], true, true);
    attach(&mut world, 1, 1000, |_| true);
    world.boot = "next-boot".into();
    let seen = facts(&world, 500, 1500, |_| true, true);
    world.apply(Event::Observed(Box::new(seen)));
    assert_eq!(world.stale_leases(0).len(), 1);
    assert_eq!(desired(&world).endpoints.len(), 1, "only the gateway");
}

#[test]
fn a_link_that_is_gone_ends_its_lease_only_when_seen_after_the_activation() {
    let mut world = fresh(1, &[2], true, true);
    attach(&mut world, 1, 1000, |_| true);
    let before = facts(&world, 1000, 1500, |_| false, true);
    world.apply(Event::Observed(Box::new(before)));
    assert_eq!(world.stale_leases(9999), vec![]);
    let after = facts(&world, 1001, 1500, |_| false, true);
    world.apply(Event::Observed(Box::new(after)));
    assert_eq!(world.stale_leases(9999)[0].1, "its link is gone");
}

#[test]
fn a_reservation_waits_for_its_time_and_no_longer() {
    let mut world = fresh(1, &[2], true, true);
    attach(&mut world, 1, 1000, |_| false);
    assert_eq!(world.stale_leases(61_000), vec![]);
    assert_eq!(world.stale_leases(61_001)[0].1, "it was never activated");
}

#[test]
fn a_pod_gets_the_clusters_prefix_and_its_gateway() {
    let mut world = fresh(1, &[2], true, true);
    let seen = facts(&world, 1, 1500, |_| false, false);
    world.apply(Event::Observed(Box::new(seen)));
    let lease = ipam::reserve(&world, &request("a"), "n".into(), 5).unwrap();
    let assignment = ipam::assignment(&world, &lease).unwrap();
    let addresses: Vec<String> = assignment.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.0.1.2/8", "fd10:0:0:1::2/48"]);
    let routes: Vec<String> =
        assignment.routes.iter().map(|route| format!("{} {}", route.destination, route.gateway)).collect();
    assert_eq!(routes, ["0.0.0.0/0 10.0.1.1", "::/0 fd10:0:0:1::1"]);
    assert_eq!((assignment.mtu, assignment.headroom), (1446, 64));
    assert_eq!(assignment.mac.to_string(), "0a:58:0a:00:01:02");
}

#[test]
fn without_an_uplink_an_add_is_to_be_tried_again() {
    let world = fresh(1, &[2], true, true);
    let lease = ipam::reserve(&world, &request("a"), "n".into(), 5).unwrap();
    assert!(ipam::assignment(&world, &lease).unwrap_err().message.contains("eth0"));
}

#[test]
fn a_reservation_is_replaced_and_an_attachment_is_not() {
    let mut world = fresh(1, &[2], true, true);
    let mut lease = ipam::reserve(&world, &request("a"), "first".into(), 5).unwrap();
    world.apply(Event::Leased(Box::new(lease.clone())));
    let again = ipam::reserve(&world, &request("a"), "second".into(), 6).unwrap();
    assert_eq!((again.host, again.slot, again.nonce.as_str()), (lease.host, lease.slot, "second"));
    lease.state = State::Active { at: 7, ifindex: 9, headroom: agent_api::HeadroomOutcome::Off };
    world.apply(Event::Leased(Box::new(lease)));
    assert!(ipam::reserve(&world, &request("a"), "third".into(), 8).is_err());
}

#[test]
fn another_number_makes_pods_foreign_only_where_their_macs_follow_from_it() {
    for (v4, foreign) in [(true, 0), (false, 3)] {
        let mut world = fresh(1, &[2], v4, true);
        attach(&mut world, 3, 1000, |_| true);
        let mut other = world.config.clone();
        other.node.number = number(9);
        world.apply(Event::Configured(Box::new(other)));
        assert_eq!(
            (world.leases.foreign().count(), world.leases.count()),
            (foreign, 3 - foreign),
            "IPv4: {v4}"
        );
        // Their addresses are this node's as before: nobody else gets one.
        assert_eq!(ipam::reserve(&world, &request("new"), "n".into(), 5).unwrap().host, 5, "IPv4: {v4}");
    }
}

#[test]
fn pods_are_this_nodes_again_when_it_is_what_it_was() {
    let mut world = fresh(1, &[2], true, true);
    attach(&mut world, 3, 1000, |_| true);
    let (before, mut other) = (world.clone(), world.config.clone());
    other.node.pods = pods(7, true, true);
    world.apply(Event::Configured(Box::new(other)));
    assert_eq!((world.leases.foreign().count(), world.leases.count()), (3, 0));
    assert_eq!(ipam::reserve(&world, &request("new"), "n".into(), 5).unwrap().host, 2);
    world.apply(Event::Configured(Box::new(before.config.clone())));
    assert_eq!(world, before);
}
