//! What follows from what the API server says, and from what is remembered of it.

#![expect(clippy::unwrap_used, reason = "a test fixture that cannot be built should panic")]

use std::collections::BTreeMap;

use agent_core::{
    addr::PodCidrs,
    cluster::{Chosen, Fact, Given, Standing, View, standing},
    dataplane::Link,
    identity::{ClusterPrefixes, NodeObject, Waiting},
    membership::{Claim, Claims},
};

use crate::worlds::{link, number};

fn links() -> BTreeMap<String, Link> {
    let addresses = vec!["192.0.2.1".parse().unwrap(), "fe80::1".parse().unwrap()];
    let link = Link { addresses, ..link(2, 1500) };
    BTreeMap::from([("eth0".to_owned(), link)])
}

fn given(chosen: Option<&Chosen>) -> Given<'_> {
    let first = "10.1.0.0/16".parse().unwrap();
    let both = PodCidrs { v4: Some(first), v6: None };
    let prefixes = ClusterPrefixes { both, first: first.into() };
    Given { name: "a", prefixes, sid_block: None, uplinks: None, uplinks_before: None, chosen }
}

fn node(uid: &str, pod_cidr: &str) -> Fact {
    Fact::Node(Box::new(NodeObject {
        name: "a".into(),
        uid: uid.into(),
        pod_cidrs: vec![pod_cidr.into()],
        number_annotation: None,
        internal_ips: vec!["192.0.2.1".parse().unwrap()],
    }))
}

fn claim(number: u32, owner: &str, view: &View) -> Claim {
    let block = agent_core::addr::SidBlock::of_cluster(view.uid.as_ref().unwrap()).prefix().to_string();
    Claim {
        created: 1,
        owner: owner.into(),
        number,
        locator: block.replace("::/32", &format!(":{number:x}::/48")),
        pod_cidrs: vec![format!("10.1.{}.0/24", number - 1)],
        addresses: vec!["fe80::9".into()],
        mtu: 1500,
    }
}

fn view(facts: Vec<Fact>) -> View {
    let mut view = View::default();
    for fact in facts {
        assert!(view.apply(fact.clone()) && !view.apply(fact), "a fact changes something once");
    }
    view
}

fn whole(uid: &str, pod_cidr: &str) -> View {
    view(vec![Fact::Uid("u".into()), node(uid, pod_cidr), Fact::Locators(Claims::new())])
}

fn numbered(standing: Result<Standing, Waiting>) -> u16 {
    standing.unwrap().node.number.get()
}

#[test]
fn nothing_begins_before_all_is_known_and_the_order_does_not_matter() {
    let facts = [Fact::Uid("u".into()), node("n", "10.1.4.0/24"), Fact::Locators(Claims::new())];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut view = View::default();
        for (known, index) in order.into_iter().enumerate() {
            assert!(standing(&view, given(None), &links()).is_err(), "{known} facts");
            view.apply(facts[index].clone());
        }
        let standing = standing(&view, given(None), &links()).unwrap();
        assert_eq!((standing.node.number.get(), standing.node.uplinks), (5, vec!["eth0".to_owned()]));
    }
    let waiting = standing(&whole("n", "10.1.4.0/24"), given(None), &BTreeMap::new()).unwrap_err();
    assert_eq!(waiting.reason, "NoUplink");
}

#[test]
fn what_the_api_server_has_not_said_is_recalled_and_what_it_says_comes_first() {
    let earlier = whole("n", "10.1.4.0/24");
    let mut view = View::default();
    view.recall(&earlier);
    assert_eq!(view, earlier);
    let mut view = self::view(vec![node("n", "10.1.5.0/24")]);
    view.recall(&earlier);
    assert_eq!(numbered(standing(&view, given(None), &links())), 6);
    assert_eq!(view.uid, earlier.uid);
}

#[test]
fn a_number_belongs_to_one_node_and_not_to_its_name() {
    let chosen = Chosen { uid: "n".into(), number: number(9) };
    assert_eq!(numbered(standing(&whole("n", "10.1.4.0/24"), given(Some(&chosen)), &links())), 9);
    assert_eq!(numbered(standing(&whole("another", "10.1.4.0/24"), given(Some(&chosen)), &links())), 5);
    let mut view = whole("n", "10.1.4.0/24");
    view.apply(Fact::Locator("a".into(), Box::new(claim(7, "n", &view))));
    assert_eq!(numbered(standing(&view, given(Some(&chosen)), &links())), 7);
    view.apply(Fact::Locator("a".into(), Box::new(claim(7, "an earlier one", &view))));
    assert_eq!(numbered(standing(&view, given(Some(&chosen)), &links())), 9);
}

#[test]
fn the_locators_of_others_make_peers_until_they_are_gone() {
    let mut view = whole("n", "10.1.4.0/24");
    view.apply(Fact::Locator("b".into(), Box::new(claim(3, "m", &view))));
    let members = standing(&view, given(None), &links()).unwrap().members;
    assert_eq!(members.peers[&number(3)].name, "b");
    assert!(view.apply(Fact::LocatorGone("b".into())) && !view.apply(Fact::LocatorGone("b".into())));
    assert_eq!(standing(&view, given(None), &links()).unwrap().members.peers.len(), 0);
}

#[test]
fn uplinks_stay_while_the_nodes_addresses_are_on_no_link() {
    let before = ["eth0".to_owned()];
    let given = Given { uplinks_before: Some(&before), ..given(None) };
    let standing = standing(&whole("n", "10.1.4.0/24"), given, &BTreeMap::new()).unwrap();
    assert_eq!(standing.node.uplinks, before);
}
