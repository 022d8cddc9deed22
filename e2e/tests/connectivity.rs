//! Pods reach each other: same node, other nodes, every size, every offload, every kind of underlay.

use std::net::IpAddr;

use e2e::{
    Cluster, Families, Pod, root_or_skip, skip,
    tcp::{self, Amount},
    udp,
};

/// Enough for the window to open and for super-packets of the largest size.
const BULK: u64 = 8 << 20;

#[test]
fn dual_stack_pods_over_a_link_with_mtu_1500() {
    root_or_skip!();
    reach_each_other(&Cluster::builder().nodes(3).start());
}

#[test]
fn ipv4_pods_through_a_router_with_mtu_9000() {
    root_or_skip!();
    reach_each_other(&Cluster::builder().nodes(3).families(Families::V4).routed().mtu(9000).start());
}

#[test]
fn ipv6_pods_through_a_router_with_mtu_1500() {
    root_or_skip!();
    reach_each_other(&Cluster::builder().nodes(3).families(Families::V6).routed().start());
}

#[test]
fn dual_stack_pods_over_two_uplinks_through_routers() {
    root_or_skip!();
    reach_each_other(&Cluster::builder().routed().uplinks(2).start());
}

#[test]
fn dual_stack_pods_with_checksums_left_to_the_uplink() {
    root_or_skip!();
    reach_each_other(&Cluster::builder().checksum_offload().start());
}

#[test]
fn every_combination_of_family_mtu_and_fabric() {
    root_or_skip!();
    if !skip::full() {
        return;
    }
    for families in [Families::V4, Families::V6, Families::Dual] {
        for mtu in [1500, 9000] {
            for routed in [false, true] {
                eprintln!("{families:?}, MTU {mtu}, routed: {routed}");
                let builder = Cluster::builder().nodes(3).families(families).mtu(mtu);
                reach_each_other(&if routed { builder.routed() } else { builder }.start());
            }
        }
    }
}

/// Two pods on the first node, one on each other node.
fn reach_each_other(cluster: &Cluster) {
    let first = cluster.a().add_pod("one");
    let mut others = vec![cluster.a().add_pod("two")];
    others.extend(cluster.nodes()[1..].iter().map(|node| node.add_pod("far")));
    for other in &others {
        assert_eq!(first.addresses().len(), cluster.families.pick((), ()).len());
        for (mine, theirs) in first.addresses().into_iter().zip(other.addresses()) {
            first.assert_pings(theirs);
            other.assert_pings(mine);
            datagrams_of_every_size_arrive((&first, mine), (other, theirs));
            bulk_arrives((&first, mine), (other, theirs));
        }
    }
    let [_, .., last] = &others[..] else { panic!("the cluster has two nodes at least") };
    others[1].assert_pings(last.addresses()[0]);
}

fn datagrams_of_every_size_arrive(from: (&Pod, IpAddr), to: (&Pod, IpAddr)) {
    let headers = if to.1.is_ipv4() { 28 } else { 48 };
    udp::echo((&from.0.netns, from.1), (&to.0.netns, to.1), 0..=from.0.mtu() - headers);
    let segment = from.0.mtu() - headers;
    udp::super_packet((&from.0.netns, from.1), (&to.0.netns, to.1), segment, 60_000 / segment);
    udp::super_packet((&from.0.netns, from.1), (&to.0.netns, to.1), 500, 60);
}

fn bulk_arrives(from: (&Pod, IpAddr), to: (&Pod, IpAddr)) {
    for offload in ["on", "off"] {
        for pod in [from.0, to.0] {
            pod.netns.run(&format!("ethtool -K eth0 tso {offload}"));
        }
        let there = tcp::transfer(&from.0.netns, &to.0.netns, to.1, Amount::Bytes(BULK));
        let back = tcp::transfer(&to.0.netns, &from.0.netns, from.1, Amount::Bytes(BULK));
        assert_eq!((there.bytes, back.bytes), (BULK, BULK));
    }
    for pod in [from.0, to.0] {
        pod.netns.run("ethtool -K eth0 tso on");
    }
}
