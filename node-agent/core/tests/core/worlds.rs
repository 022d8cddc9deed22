//! Arbitrary worlds: a node with peers, leases and facts that may or may not go together.

#![expect(clippy::unwrap_used, reason = "a test fixture that cannot be built should panic")]

use std::collections::BTreeMap;

use agent_api::{AttachmentKey, HeadroomOutcome, MacAddress, Pod, Reserve, names::host_ifname};
use agent_core::{
    addr::{NetworkNumber, NodeNumber, PodCidrs, SidBlock},
    config::{Configuration, Flooding, Headroom, Limits, LocalNode, Network},
    dataplane::{Facts, Hop, Link},
    desired::{GATEWAY_LINK, GATEWAY_PEER, SEGMENTER_LINK, SEGMENTER_PEER},
    ipam,
    lease::State,
    peer::Peer,
    world::{Event, World},
};
use proptest::prelude::*;

pub const BOOT: &str = "this-boot";
pub const UPLINK: &str = "eth0";
const UPLINK_INDEX: u32 = 2;

pub fn number(number: u16) -> NodeNumber {
    NodeNumber::new(number.into()).unwrap()
}

pub fn pods(node: u16, v4: bool, v6: bool) -> PodCidrs {
    let [high, low] = node.to_be_bytes();
    PodCidrs {
        v4: v4.then(|| format!("10.{high}.{low}.0/24").parse().unwrap()),
        v6: (v6 || !v4).then(|| format!("fd10:0:0:{node:x}::/64").parse().unwrap()),
    }
}

/// Nodes of these numbers, as peers.
pub fn peers(numbers: &[u16], v4: bool, v6: bool) -> BTreeMap<NodeNumber, Peer> {
    let peer = |&number: &u16| {
        let addresses = vec![format!("fc00::{number:x}").parse().unwrap()];
        (
            self::number(number),
            Peer { name: format!("node-{number}"), pods: pods(number, v4, v6), addresses, mtu: None },
        )
    };
    numbers.iter().map(peer).collect()
}

/// A node that knows its peers and has seen nothing yet.
pub fn fresh(node: u16, others: &[u16], v4: bool, v6: bool) -> World {
    let mut peers = peers(others, v4, v6);
    peers.remove(&number(node));
    World::new(configuration(node, v4, v6), peers, BOOT.into())
}

fn configuration(node: u16, v4: bool, v6: bool) -> Configuration {
    let cluster = PodCidrs {
        v4: v4.then(|| "10.0.0.0/8".parse().unwrap()),
        v6: (v6 || !v4).then(|| "fd10::/48".parse().unwrap()),
    };
    Configuration {
        node: LocalNode {
            name: format!("node-{node}"),
            number: number(node),
            pods: pods(node, v4, v6),
            uplinks: vec![UPLINK.into()],
        },
        sid_block: SidBlock::new("5f00:1::/32".parse().unwrap()).unwrap(),
        cluster,
        underlay_routes: true,
        network: Network {
            name: "headway".into(),
            number: NetworkNumber::new(1).unwrap(),
            flooding: Flooding::Auto,
            flood_max_peers: 64,
            flood_unknown: false,
            storm_rate: 1000,
        },
        dscp: None,
        headroom: Headroom::Auto,
        masquerade: true,
        non_masquerade: vec![],
        mtu: None,
        limits: Limits { endpoints: 1023, reservation_timeout: 60_000 },
        conflist: ("/etc/cni/net.d/10-headway.conflist".into(), "{}".into()),
    }
}

pub fn request(container: &str) -> Reserve {
    Reserve {
        key: AttachmentKey { network: "headway".into(), container: container.into(), ifname: "eth0".into() },
        netns: format!("/run/netns/{container}").into(),
        netns_inode: 1,
        pod: Pod::default(),
    }
}

pub fn link(ifindex: u32, mtu: u32) -> Link {
    let mac = MacAddress([2, 0, 0, 0, 0, 1]);
    Link { ifindex, mac, mtu, enabled: true, up: true, headroom: 0, addresses: vec![] }
}

/// Attaches pods 0..count; activation and observation of their links as the flags say.
pub fn attach(world: &mut World, count: u32, at: u64, activated: impl Fn(u32) -> bool) {
    for i in 0..count {
        let Ok(mut lease) = ipam::reserve(world, &request(&format!("pod{i}")), format!("nonce{i}"), at)
        else {
            continue;
        };
        if activated(i) {
            lease.state = State::Active { at, ifindex: 100 + i, headroom: HeadroomOutcome::Unsupported };
        }
        world.apply(Event::Leased(Box::new(lease)));
    }
}

/// What is seen when the own links, the links of these pods and the ways to these peers are there.
pub fn facts(world: &World, at: u64, mtu: u32, pods_seen: impl Fn(u32) -> bool, resolved: bool) -> Facts {
    let mut links = BTreeMap::from([(UPLINK.to_owned(), link(UPLINK_INDEX, mtu))]);
    for (name, index) in [(GATEWAY_LINK, 10), (GATEWAY_PEER, 11), (SEGMENTER_LINK, 12), (SEGMENTER_PEER, 13)]
    {
        links.insert(name.into(), link(index, mtu - 54));
    }
    for i in (0..300).filter(|i| pods_seen(*i)) {
        links.insert(host_ifname(&request(&format!("pod{i}")).key), link(100 + i, mtu - 54));
    }
    let hop = |peer: &Peer| Hop { ifindex: UPLINK_INDEX, gateway: peer.addresses[0] };
    let mut facts = Facts { observed_at: at, links, ..Facts::default() };
    for (number, peer) in &world.peers {
        facts.routes_to.insert(peer.addresses[0], vec![hop(peer)]);
        facts.routes_to.insert(world.config.sid_block.locator(*number).infrastructure(), vec![hop(peer)]);
        if resolved {
            facts.neighbours.insert(hop(peer), MacAddress([2, 0, 0, 0, 1, 1]));
        }
    }
    facts
}

prop_compose! {
    /// Any world.
    pub fn world()(
        node in 1_u16..40,
        peers in prop::collection::btree_set(1_u16..400, 0..90),
        (v4, v6) in (any::<bool>(), any::<bool>()),
        pod_count in 0_u32..300,
        (active, seen) in (any::<u64>(), any::<u64>()),
        (observed_later, observed, resolved, announced) in (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        mtu in 1300_u32..9500,
        flooding in prop::sample::select(vec![Flooding::Auto, Flooding::On, Flooding::Off]),
    ) -> World {
        let peers: Vec<u16> = peers.into_iter().collect();
        let mut world = fresh(node, &peers, v4, v6);
        world.config.network.flooding = flooding;
        world.announced = announced;
        let bit = |mask: u64| move |i: u32| mask >> (i % 64) & 1 == 1;
        attach(&mut world, pod_count, 1000, bit(active));
        if observed {
            let at = if observed_later { 2000 } else { 500 };
            let facts = facts(&world, at, mtu, bit(seen), resolved);
            world.apply(Event::Observed(Box::new(facts)));
        }
        world
    }
}
