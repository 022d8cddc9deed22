//! Single decisions of the core, each in the smallest world that shows it.

use crate::worlds::{UPLINK, attach, facts, fresh, number, peers, request};
use agent_api::ErrorKind;
use agent_core::{
    cluster::InCluster,
    conditions::conditions,
    config::Flooding,
    dataplane::{Facts, Hop, RouteKey, RouteTarget},
    desired::{DEFAULT_METRIC, LAST_RESORT, desired, lookups},
    firewall, ipam, sysctls,
    world::{Event, World},
};

fn world(peers: &[u16]) -> World {
    seen(peers, |_| {})
}

/// A world whose facts are changed before they are seen.
fn seen(peers: &[u16], change: impl Fn(&mut Facts)) -> World {
    let mut world = fresh(1, peers, true, true);
    let mut facts = facts(&world, 1, 1500, |_| true, true);
    change(&mut facts);
    world.apply(Event::Observed(Box::new(facts)));
    world
}

fn unmet(world: &World) -> Vec<(&'static str, String)> {
    conditions(world).into_iter().filter(|it| !it.holds).map(|it| (it.kind, it.message)).collect()
}

#[test]
fn a_peer_is_reached_by_the_smaller_mtu_of_both_ends() {
    let mut world = world(&[2, 3]);
    world.peers.get_mut(&number(3)).unwrap().mtu = Some(1400);
    let nodes = desired(&world).nodes;
    assert_eq!((nodes[&number(2)].mtu, nodes[&number(3)].mtu), (1446, 1346));
}

#[test]
fn a_next_hop_without_mac_is_left_to_the_kernel() {
    let world = seen(&[2], |facts| facts.neighbours.clear());
    let node = desired(&world).nodes[&number(2)];
    assert_eq!((node.next_hop_count, node.next_hops[0].destination), (1, [0; 3]));
    assert_eq!(node.next_hops[0].ifindex, world.facts.links[UPLINK].ifindex);
}

#[test]
fn a_way_that_leads_elsewhere_than_over_an_uplink_is_none() {
    let world = seen(&[2], |facts| {
        let astray = vec![Hop { ifindex: 99, gateway: "fc00::2".parse().unwrap() }];
        facts.routes_to.values_mut().for_each(|hops| hops.clone_from(&astray));
    });
    let plane = desired(&world);
    assert_eq!((plane.nodes[&number(2)].next_hop_count, plane.neighbours.len()), (0, 0));
    assert!(plane.routes.values().all(|target| *target == RouteTarget::Unreachable));
    assert_eq!(unmet(&world)[0].0, "PeersRouted");
}

#[test]
fn a_peer_is_reached_by_the_first_of_its_addresses_that_has_a_route_over_an_uplink() {
    let mut world = world(&[2]);
    let by = |world: &World| {
        let key = RouteKey { destination: "5f00:1:2::/48".parse().unwrap(), metric: DEFAULT_METRIC };
        desired(world).routes.get(&key).cloned()
    };
    let routed = by(&world);
    let peer = world.peers.get_mut(&number(2)).unwrap();
    peer.addresses.insert(0, "2001:db8::2".parse().unwrap());
    assert!(routed.is_some());
    assert_eq!(by(&world), routed);
}

#[test]
fn a_link_local_address_of_a_peer_is_on_the_uplink_where_it_has_answered() {
    let mut world = world(&[2]);
    let gateway = "fe80::2".parse().unwrap();
    world.peers.get_mut(&number(2)).unwrap().addresses = vec![gateway];
    let mut second = world.facts.links[UPLINK].clone();
    second.ifindex += 1;
    world.facts.links.insert("eth1".into(), second.clone());
    world.config.node.uplinks.push("eth1".into());
    let key = RouteKey { destination: "5f00:1:2::/48".parse().unwrap(), metric: DEFAULT_METRIC };
    let first = Hop { ifindex: world.facts.links[UPLINK].ifindex, gateway };
    assert_eq!(desired(&world).routes[&key], RouteTarget::Via(vec![first]));
    assert!(!lookups(&world).contains(&gateway));
    let answered = Hop { ifindex: second.ifindex, gateway };
    world.facts.neighbours.insert(answered, second.mac);
    assert_eq!(desired(&world).routes[&key], RouteTarget::Via(vec![answered]));
}

#[test]
fn what_is_in_the_block_and_nobodys_leads_nowhere() {
    let routes = desired(&world(&[2])).routes;
    for destination in ["5f00:1::/32", "5f00:1:1::/48"] {
        let key = RouteKey { destination: destination.parse().unwrap(), metric: LAST_RESORT };
        assert_eq!(routes[&key], RouteTarget::Unreachable);
    }
}

#[test]
fn beyond_the_limit_flooding_stays_on_the_node_and_it_is_said() {
    let peers: Vec<u16> = (2..=66).collect();
    let mut world = world(&peers[..64]);
    assert_eq!(desired(&world).flood_nodes.len(), 64);
    assert!(
        unmet(&world).iter().any(|(kind, message)| *kind == "FloodingComplete" && message.contains("64"))
    );
    world.peers = self::peers(&peers, true, true);
    assert_eq!(desired(&world).flood_nodes.len(), 0);
    world.config.network.flooding = Flooding::On;
    assert_eq!(desired(&world).flood_nodes.len(), 65);
    world.config.network.flooding = Flooding::Off;
    assert_eq!(desired(&world).flood_nodes.len(), 0);
}

#[test]
fn the_conflist_is_written_once_ready_and_stays() {
    let mut world = world(&[2]);
    assert!(desired(&world).files.is_empty());
    world.apply(Event::Announced);
    world.apply(Event::Observed(Box::default()));
    assert_eq!(desired(&world).files.len(), 1, "all links are gone, the conflist is not");
}

#[test]
fn what_leaves_the_cluster_is_masqueraded_and_the_exceptions_are_not() {
    let mut world = world(&[2]);
    world.config.non_masquerade = vec!["192.168.0.0/16".parse().unwrap(), "10.1.0.0/16".parse().unwrap()];
    let script = &firewall::desired(&world)["inet headway"];
    assert!(script.contains("ip saddr 10.0.1.0/24 ip daddr != { 10.0.0.0/8, 192.168.0.0/16 }"), "{script}");
    assert!(script.contains("ip6 saddr fd10:0:0:1::/64 ip6 daddr != { fd10::/48 }"), "{script}");
    assert!(script.contains("ip6 daddr 5f00:1::/32 iifname != { \"lo\", \"eth0\" }"), "{script}");
    assert!(script.contains("iifgroup 26743 iifname != \"hw0\" counter drop"), "{script}");
    world.config.masquerade = false;
    assert!(!firewall::desired(&world)["inet headway"].contains("leave the cluster"));
}

#[test]
fn neighbour_tables_grow_with_pods_and_never_shrink() {
    let bound = "net/ipv4/neigh/default/gc_thresh3";
    let with = |value: &str| {
        let value = value.to_owned();
        seen(&[2], move |facts| {
            facts.sysctls.insert(bound.into(), value.clone());
        })
    };
    assert_eq!(sysctls::desired(&with("1024"))[bound], "16384");
    assert_eq!(sysctls::desired(&with("1000000"))[bound], "1000000");
    let mut many = with("1024");
    attach(&mut many, 200, 5, |_| true);
    assert_eq!(sysctls::desired(&many)[bound], "65536");
}

#[test]
fn an_uplink_that_takes_router_advertisements_goes_on_to_take_them() {
    let setting = format!("net/ipv6/conf/{UPLINK}/accept_ra");
    for (now, then) in [("0", None), ("1", Some("2")), ("2", Some("2"))] {
        let world = seen(&[2], |facts| {
            facts.sysctls.insert(setting.clone(), now.into());
        });
        assert_eq!(sysctls::desired(&world).get(&setting).map(String::as_str), then, "{now}");
    }
}

#[test]
fn an_underlay_too_narrow_for_ipv6_is_said_with_what_would_do() {
    let mut world = world(&[2]);
    let narrow = facts(&world, 2, 1300, |_| true, true);
    world.apply(Event::Observed(Box::new(narrow)));
    let (kind, message) = &unmet(&world)[0];
    assert!(*kind == "MtuSufficient" && message.contains("1334"), "{message}");
    let addresses: Vec<String> =
        desired(&world).addresses.keys().map(|key| key.address.to_string()).collect();
    assert_eq!(addresses, ["10.0.1.1/8"]);
}

#[test]
fn a_node_whose_claim_is_anothers_takes_no_part_and_no_pods() {
    let mut world = world(&[2]);
    world.announced = true;
    let reason = "node number 1 is Node node-2's".to_owned();
    let cluster = InCluster { own_rejected: Some(reason.clone()), ..InCluster::default() };
    world.apply(Event::Cluster(Box::new(cluster)));
    let plane = desired(&world);
    assert_eq!((plane.routes.len(), plane.attachments.len(), plane.nodes.len()), (0, 0, 0));
    assert_eq!(plane.files.len(), 1, "the conflist stays");
    let refused = ipam::reserve(&world, &request("a"), "n".into(), 5).unwrap_err();
    assert_eq!((refused.kind, &refused.message), (ErrorKind::TryAgain, &reason));
    assert!(unmet(&world).contains(&("ClaimAccepted", reason)));
    attach_before(&mut world);
    assert!(!desired(&world).attachments.is_empty(), "pods that are here already are not cut off");
}

/// A pod that came while the claim still held.
fn attach_before(world: &mut World) {
    let cluster = world.cluster.take();
    attach(world, 1, 5, |_| true);
    world.cluster = cluster;
}
