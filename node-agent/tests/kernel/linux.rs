//! The real kernel, in network namespaces of the tests' own; what stands there afterwards is read with `ip`, `nft` and `ethtool`.

use agent_api::{AttachmentKey, HeadroomOutcome, Pod, Reserve, names};
use agent_core::{addr::PodCidrs, desired, ipam, lease::State, world::Event};
use node_agent::{cleanup::cleanup, reconcile::Look};
use serde_json::Value;

use crate::{
    node::Node,
    scratch::{Scratch, require_root},
};

fn link(scratch: &Scratch, name: &str) -> Value {
    scratch.json(&format!("ip -j -d link show {name}"))[0].clone()
}

#[test]
fn everything_is_built_from_nothing() {
    require_root!();
    Scratch::run("built", |scratch| {
        Node::new(scratch).assert_settles();
        for name in ["hw0", "hw0p", "hws0", "hws1"] {
            let link = link(scratch, name);
            assert_eq!((&link["mtu"], &link["group"]), (&1446.into(), &"26743".into()), "{link}");
            assert!(link["flags"].as_array().unwrap().contains(&"UP".into()), "{link}");
        }
        assert_eq!(link(scratch, "hw0")["address"], "0a:58:0a:01:01:01");
        let addresses = scratch.json("ip -j addr show hw0");
        let infos = addresses[0]["addr_info"].as_array().unwrap();
        let of = |local: &str| {
            infos.iter().find(|info| info["local"] == local).unwrap_or_else(|| panic!("{local} in {infos:?}"))
        };
        assert_eq!(of("10.1.1.1")["prefixlen"], 16);
        assert_eq!(of("fd10:0:0:1::1")["prefixlen"], 48);
        assert_eq!(of("5f00:1:1::1")["deprecated"], true);
        let features = scratch.text("ethtool -k hws0");
        let on: Vec<&str> = features
            .lines()
            .map(str::trim)
            .filter(|line| line.contains("segmentation") && line.contains(": on"))
            .filter(|line| {
                !line.starts_with("generic-segmentation-offload") && !line.starts_with("tx-generic")
            })
            .collect();
        assert_eq!(on, Vec::<&str>::new());
        assert!(scratch.text("nft list tables").contains("table inet headway"));
    });
}

#[test]
fn routes_and_neighbours_carry_our_mark() {
    require_root!();
    Scratch::run("marked", |scratch| {
        Node::new(scratch).assert_settles();
        let route = &scratch.json("ip -j -6 route show 5f00:1:2::/48")[0];
        assert_eq!((&route["gateway"], &route["protocol"]), (&"fc00::2".into(), &"118".into()), "{route}");
        let ends = scratch.text("ip -6 route show type unreachable proto 118");
        assert!(ends.contains("5f00:1::/32") && ends.contains("5f00:1:1::/48"), "{ends}");
        let neighbours = scratch.text("ip -6 neigh show dev eth0 to fc00::2");
        assert!(
            neighbours.contains("managed extern_learn") && neighbours.contains("proto 118"),
            "{neighbours}"
        );
    });
}

#[test]
fn what_is_removed_by_hand_comes_back() {
    require_root!();
    Scratch::run("mended", |scratch| {
        let mut node = Node::new(scratch);
        node.assert_settles();
        for damage in [
            "ip link del hw0",
            "ip link set hw0 mtu 1400",
            "ip link set hw0p down",
            "ip link del hws1",
            "ethtool -K hws0 tso on",
            "ip addr del 10.1.1.1/16 dev hw0",
            "ip addr add 192.0.2.1/32 dev hw0",
            "ip -6 route del 5f00:1:2::/48",
            "ip -6 route del unreachable 5f00:1::/32",
            "ip -6 route add 5f00:1:9::/48 via fc00::2 proto 118",
            "ip neigh del fc00::2 dev eth0",
            "nft delete table inet headway",
            "nft add chain inet headway strange",
            "sysctl -qw net.ipv4.ip_forward=0",
        ] {
            scratch.text(damage);
            let seen = node.reconciler.observe(&node.world, Look::Everywhere).unwrap();
            node.world.apply(Event::Observed(Box::new(seen)));
            assert!(node.reconciler.pass(&node.world) > 0, "{damage}: nobody noticed");
            node.assert_settles();
        }
    });
}

/// A pod's link as the plugin builds it, and its lease.
fn attach_a_pod(scratch: &Scratch, node: &mut Node) -> String {
    let key = AttachmentKey { network: "headway".into(), container: "c".into(), ifname: "eth0".into() };
    let name = names::host_ifname(&key);
    let pod = node.config.configuration.node.pods;
    let mac = desired::switch_side_mac(pod.mac(node.config.configuration.node.number, 2));
    scratch.text(&format!(
        "ip link add {name} mtu 1446 group 26743 address {mac} type veth peer name inpod mtu 1446"
    ));
    scratch.text(&format!("ip link set {name} up"));
    let ifindex = link(scratch, &name)["ifindex"].as_u64().unwrap().try_into().unwrap();
    let request = Reserve { key, netns: "/run/netns/c".into(), netns_inode: 7, pod: Pod::default() };
    let mut lease = ipam::reserve(&node.world, &request, "nonce".into(), 0).unwrap();
    lease.state = State::Active { at: 0, ifindex, headroom: HeadroomOutcome::Unsupported };
    node.world.apply(Event::Leased(Box::new(lease)));
    name
}

#[test]
fn a_pods_link_that_is_changed_by_hand_is_changed_back() {
    require_root!();
    Scratch::run("podlink", |scratch| {
        let mut node = Node::new(scratch);
        node.assert_settles();
        let name = attach_a_pod(scratch, &mut node);
        node.assert_settles();
        let before = link(scratch, &name);
        for damage in ["down", "mtu 1300", "name elsewhere", "name hwelsewhere"] {
            scratch.text(&format!("ip link set {name} {damage}"));
            let seen = node.reconciler.observe(&node.world, Look::Everywhere).unwrap();
            node.world.apply(Event::Observed(Box::new(seen)));
            assert_eq!(node.world.stale_leases(0), vec![], "{damage}");
            assert!(node.reconciler.pass(&node.world) > 0, "{damage}: nobody noticed");
            node.assert_settles();
            let after = link(scratch, &name);
            for what in ["ifindex", "mtu", "flags", "address"] {
                assert_eq!(after[what], before[what], "{damage}: {what}");
            }
        }
    });
}

/// A network namespace for a pod, gone when the test is.
struct PodSpace(String);

impl PodSpace {
    fn new(scratch: &Scratch) -> Self {
        let name = format!("headway-foreign-{}", std::process::id());
        scratch.text(&format!("ip netns add {name}"));
        Self(name)
    }
}

impl Drop for PodSpace {
    fn drop(&mut self) {
        let _ = std::process::Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

#[test]
fn a_pod_of_an_earlier_prefix_and_its_node_reach_each_other_and_nobody_else() {
    require_root!();
    Scratch::run("foreign", |scratch| {
        let mut node = Node::new(scratch);
        node.assert_settles();
        let name = attach_a_pod(scratch, &mut node);
        node.assert_settles();
        let mut configuration = node.world.config.clone();
        configuration.node.pods =
            PodCidrs::of_node(&["10.1.7.0/24".parse().unwrap(), "fd10:0:0:7::/64".parse().unwrap()]).unwrap();
        node.world.apply(Event::Configured(Box::new(configuration)));
        node.assert_settles();
        let addresses = scratch.json(&format!("ip -j addr show dev {name} scope global"));
        let shown: Vec<(&str, &str)> = addresses[0]["addr_info"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| (it["local"].as_str().unwrap(), it["address"].as_str().unwrap()))
            .collect();
        assert_eq!(shown, [("10.1.1.1", "10.1.1.2"), ("fd10:0:0:1::1", "fd10:0:0:1::2")]);
        assert!(scratch.text("ip route get 10.1.1.2").contains(&name));
        // The pod's end stands for the pod, in a namespace of its own.
        let pod = PodSpace::new(scratch);
        scratch.text(&format!("ip link set inpod netns {}", pod.0));
        for command in [
            "ip link set inpod up",
            "ip addr add 10.1.1.2/16 dev inpod",
            "ip addr add fd10:0:0:1::2/48 dev inpod nodad",
            "ip route add default via 10.1.1.1",
        ] {
            scratch.text(&format!("ip netns exec {} {command}", pod.0));
        }
        for ping in ["ping -c1 -W5 10.1.1.2", "ping -c1 -W5 fd10:0:0:1::2"] {
            scratch.text(ping);
        }
        for ping in ["ping -c1 -W5 10.1.1.1", "ping -c1 -W5 fd10:0:0:1::1"] {
            scratch.text(&format!("ip netns exec {} {ping}", pod.0));
        }
    });
}

#[test]
fn the_next_agent_writes_no_setting_again() {
    require_root!();
    Scratch::run("settings", |scratch| {
        let mut node = Node::new(scratch);
        node.assert_settles();
        let file = node.config.paths.state.join("sysctls.json");
        let written = || std::fs::metadata(&file).unwrap().modified().unwrap();
        let before = written();
        Node::new(scratch).assert_settles();
        assert_eq!(written(), before);
    });
}

#[test]
fn the_switch_is_made_anew_when_its_file_system_is_unmounted() {
    require_root!();
    Scratch::run("unmounted", |scratch| {
        let mut node = Node::new(scratch);
        node.assert_settles();
        let before = node.reconciler.actual().clone();
        agent_switch::unmount(&node.config.paths.bpf).unwrap();
        node.assert_settles();
        assert_eq!(*node.reconciler.actual(), before);
        assert!(!before.attachments.is_empty());
    });
}

#[test]
fn what_is_not_ours_is_in_the_way_and_stays() {
    require_root!();
    Scratch::run("others", |scratch| {
        scratch.text("ip link add hw0 type veth peer name other");
        scratch.text("ip -6 route add unreachable 5f00:1::/32 metric 4278198272 proto static");
        let failures = Node::new(scratch).settle().join("\n");
        assert!(failures.contains("a link hw0 of somebody else"), "{failures}");
        assert!(failures.contains("5f00:1::/32") && failures.contains("somebody else"), "{failures}");
        assert_ne!(link(scratch, "hw0")["group"], "26743");
        let route = &scratch.json("ip -j -6 route show 5f00:1::/32 type unreachable")[0];
        assert_eq!(route["protocol"], "static", "{route}");
    });
}

#[test]
fn all_next_hops_of_a_route_are_seen() {
    require_root!();
    Scratch::run("hops", |scratch| {
        scratch.text("ip -6 route add fc99::/64 nexthop via fc00::8 dev eth0 nexthop via fc00::9 dev eth0");
        let mut node = Node::new(scratch);
        node.assert_settles();
        let ways = |number| desired::ways(&node.world, agent_core::addr::NodeNumber::new(number).unwrap());
        let gateways: Vec<String> = ways(3).iter().map(|hop| hop.gateway.to_string()).collect();
        assert_eq!(gateways, ["fc00::8", "fc00::9"]);
        assert_eq!(ways(2).len(), 1);
        // A route that leads nowhere is no way.
        scratch.text("ip -6 route replace unreachable fc99::/64");
        node.settle();
        assert_eq!(desired::ways(&node.world, agent_core::addr::NodeNumber::new(3).unwrap()), []);
    });
}

#[test]
fn cleanup_leaves_what_others_have_and_may_be_repeated() {
    require_root!();
    Scratch::run("cleaned", |scratch| {
        scratch.text("nft add table inet other");
        scratch.text("ip link add hwother type veth peer name hwthere");
        let picture = || {
            let all = [
                "ip -br link",
                "ip -6 route",
                "ip route",
                "nft list ruleset",
                "ip -6 neigh show nud permanent",
            ];
            all.map(|command| scratch.text(command)).join("\n")
        };
        let before = picture();
        let mut node = Node::new(scratch);
        node.assert_settles();
        assert_ne!(picture(), before);
        drop(node.reconciler);
        assert_eq!(cleanup(&node.config.paths, &node.config.configuration.conflist.0), Vec::<String>::new());
        assert_eq!(picture(), before);
        assert_eq!(cleanup(&node.config.paths, &node.config.configuration.conflist.0), Vec::<String>::new());
    });
}
