//! Ordinary traffic of pods' own stacks, with all their offloads: across nodes, to the node, and tunnelled.

use agent_switch::Table as _;
use bpf_common::{
    counters::{DropReason, Event},
    maps::NextHop,
};

use crate::{
    node::{Node, address4, address6, link_local},
    packets::{MADE_UP, ethernet},
    pod::Pod,
    root::need_root,
    stream::{MEGABYTE, pattern, transfer},
    wire::nodes,
    world::wait_for,
};

fn ping(from: &Pod, to: &str, size: usize) {
    let size = size.to_string();
    from.namespace.run("ping", &["-q", "-c", "3", "-i", "0.01", "-W", "2", "-M", "do", "-s", &size, to]);
}

fn no_drops(nodes: &[&Node]) {
    for node in nodes {
        let lost: Vec<_> = node.counters().drops.into_iter().filter(|(_, count)| *count != 0).collect();
        assert_eq!(lost, [], "node {}", node.number);
    }
}

#[test]
fn pods_reach_each_other_by_address() {
    need_root!();
    let [mut one, mut two] = nodes();
    let pods = [one.add_pod(10), one.add_pod(11), two.add_pod(10)];
    pods.iter().for_each(Pod::wake);
    pods.iter().for_each(settle);
    for other in &pods[1..] {
        for size in [0, 56, 1446 - 28] {
            ping(&pods[0], &address4(other.node, other.host).to_string(), size);
        }
        for size in [0, 56, 1446 - 48] {
            ping(&pods[0], &address6(other.node, other.host).to_string(), size);
        }
        ping(&pods[0], &format!("{}%eth0", link_local(other.node, other.host)), 56);
    }
    assert_eq!(two.events(Event::ArpAnswered), 1, "the answer needs one question of its own");
    no_drops(&[&one, &two]);
}

/// Waits for the end of duplicate address detection.
fn settle(pod: &Pod) {
    wait_for("link-local addresses", || {
        pod.namespace.run("ip", &["-6", "addr", "show", "dev", "eth0", "tentative"]).is_empty().then_some(())
    });
}

#[test]
fn the_node_is_an_endpoint_like_any_other() {
    need_root!();
    let [mut one, mut two] = nodes();
    let pods = [one.add_pod(10), two.add_pod(10)];
    pods.iter().for_each(Pod::wake);
    for node in [&one, &two] {
        let (ip4, ip6) = (address4(node.number, 1), address6(node.number, 1));
        node.namespace.sysctl(&[("ipv6/conf/hw0/disable_ipv6", "0")]);
        node.namespace
            .ip(&format!("link set hw0 arp on\naddr add {ip4}/16 dev hw0\naddr add {ip6}/48 dev hw0 nodad"));
    }
    for pod in &pods {
        for node in [1, 2] {
            ping(pod, &address4(node, 1).to_string(), 1446 - 28);
            ping(pod, &address6(node, 1).to_string(), 1446 - 48);
        }
    }
    one.namespace.run("ping", &["-q", "-c", "2", "-i", "0.01", "-W", "2", &address4(2, 10).to_string()]);
    one.namespace.run("ping", &["-q", "-c", "2", "-i", "0.01", "-W", "2", &address6(2, 1).to_string()]);
    no_drops(&[&one, &two]);
}

#[test]
fn the_kernel_resolves_a_next_hop_that_is_not_known() {
    need_root!();
    let [mut one, mut two] = nodes();
    let pods = [one.add_pod(10), two.add_pod(10)];
    pods.iter().for_each(Pod::wake);
    let mut peer = one.switch.nodes().list().unwrap()[&2];
    peer.next_hops[0] = NextHop { destination: [0; 3], ..peer.next_hops[0] };
    one.switch.nodes().set(2, peer).unwrap();
    ping(&pods[0], &address4(2, 10).to_string(), 56);
    ping(&pods[0], &address6(2, 10).to_string(), 56);
    assert!(one.events(Event::Resolving) >= 6);
    let frame = ethernet(pods[1].mac(), pods[0].mac(), MADE_UP, &[0; 46]);
    assert_eq!(one.drop_by("not IP", || pods[0].tap.send(&frame)), DropReason::NoNextHop);
}

/// Makes a tunnel device in both pods; false if the kernel has no such devices.
fn tunnel(pods: &[Pod; 2], kind: &str, mtu: &str) -> bool {
    for (pod, other) in [(&pods[0], &pods[1]), (&pods[1], &pods[0])] {
        let ends = [address4(pod.node, pod.host), address4(other.node, other.host)].map(|ip| ip.to_string());
        let mut link = vec!["link", "add", "t0", "mtu", mtu, "type"];
        link.extend(kind.split(' '));
        link.extend(["local", &ends[0], "remote", &ends[1]]);
        let output = pod.namespace.command("ip", &link).output().unwrap();
        if String::from_utf8_lossy(&output.stderr).contains("Unknown device type") {
            println!("skipped: this kernel has no {kind}");
            return false;
        }
        assert!(output.status.success(), "{kind}: {output:?}");
        pod.namespace.ip(&format!("addr add 172.16.0.{}/24 dev t0\nlink set t0 up", pod.node));
    }
    true
}

#[test]
fn tunnels_of_pods_are_carried() {
    need_root!(Alone);
    let [mut one, mut two] = nodes();
    let pods = [one.add_pod(10), two.add_pod(10)];
    pods.iter().for_each(Pod::wake);
    for (kind, mtu) in
        [("vxlan id 7 dstport 4789", "1396"), ("ipip", "1426"), ("gretap", "1408"), ("gre", "1422")]
    {
        if !tunnel(&pods, kind, mtu) {
            continue;
        }
        let before = one.events(Event::Segmented);
        transfer(
            &pods[0].namespace,
            &pods[1].namespace,
            "172.16.0.2".parse().unwrap(),
            &pattern(4 * MEGABYTE),
        );
        assert!(one.events(Event::Segmented) > before, "{kind}");
        for pod in &pods {
            pod.namespace.ip("link del t0");
        }
    }
    no_drops(&[&one, &two]);
}
