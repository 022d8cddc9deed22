//! The product's claim: with headroom asked for, encapsulation copies nothing.
//!
//! Needs a kernel with `IFLA_TX_EXTRA_HEADROOM` and a count of head reallocations: the User Mode Linux image that
//! `HEADWAY_TEST_KERNEL` names. The tests below start this very binary in it; `inside_*` are what runs there.

use std::{env, fs, process::Command};

use e2e::{Cluster, Pod, cluster::Builder, root_or_skip, skip, udp};
use serde_json::json;

const PACKETS: u64 = 2000;
/// Head reallocations by other traffic meanwhile (MLD, ND).
const AMBIENT: u64 = 6;

/// Runs an ignored test of this binary in the test kernel.
fn in_the_test_kernel(test: &str) {
    let Some((image, runner)) = skip::test_kernel() else { return };
    let own = env::current_exe().unwrap_or_else(|error| panic!("the path of this test: {error}"));
    let mut command = Command::new(runner);
    command.args(["-m", "2G", "-t", "300"]).arg(image).arg(own).args([
        "--ignored",
        "--exact",
        "--nocapture",
        test,
    ]);
    command.env("HEADWAY_AGENT", e2e::host::agent_binary()).env("HEADWAY_PLUGIN", e2e::host::plugin_binary());
    command.env("HEADWAY_REQUIRE_ROOT", "1");
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprintln!("{text}");
    assert!(output.status.success() && text.contains("1 passed"), "in the test kernel: {}", output.status);
}

fn with_headroom(value: serde_json::Value) -> Builder {
    Cluster::builder().config(move |_, config| config["headroom"] = value.clone())
}

fn reallocations() -> u64 {
    let counts = fs::read_to_string("/proc/sys/net/core/skb_realloc_counts");
    let counts = counts.unwrap_or_else(|error| panic!("this is not the test kernel: {error}"));
    counts
        .split_whitespace()
        .next()
        .and_then(|count| count.parse().ok())
        .unwrap_or_else(|| panic!("{counts:?}"))
}

/// Head reallocations while `PACKETS` datagrams go from one pod to another.
fn cost(from: &Pod, to: &Pod, index: usize) -> u64 {
    let (source, destination) = (from.addresses()[index], to.addresses()[index]);
    let server = udp::socket(&to.netns, destination, None);
    let client = udp::socket(&from.netns, source, server.local_addr().ok());
    let mut buffer = [0; 128];
    let mut send = |count: u64| {
        for number in 0..count {
            client.send(&[0; 64]).unwrap_or_else(|error| panic!("datagram {number}: {error}"));
            server.recv(&mut buffer).unwrap_or_else(|error| panic!("datagram {number}: {error}"));
        }
    };
    // Neighbours are resolved, and both ends have settled.
    send(10);
    let before = reallocations();
    send(PACKETS);
    reallocations() - before
}

#[test]
fn encapsulation_copies_every_packet_without_headroom_and_none_with_it() {
    root_or_skip!();
    in_the_test_kernel("inside_copies_are_counted");
}

#[test]
#[ignore = "runs in the test kernel"]
fn inside_copies_are_counted() {
    for (setting, least, most) in [("off", PACKETS, PACKETS + AMBIENT), ("auto", 0, AMBIENT)] {
        let cluster = with_headroom(json!(setting)).start();
        let (near, far) = (cluster.a().add_pod("near"), cluster.b().add_pod("far"));
        for index in [0, 1] {
            let copies = cost(&near, &far, index);
            eprintln!(
                "measured: headroom {setting}, {}: {copies} reallocations for {PACKETS} packets",
                near.addresses()[index]
            );
            assert!((least..=most).contains(&copies), "headroom {setting}: {copies}");
        }
    }
}

#[test]
fn the_attribute_is_set_on_both_ends_and_reported() {
    root_or_skip!();
    in_the_test_kernel("inside_the_attribute_is_read_back");
}

#[test]
#[ignore = "runs in the test kernel"]
fn inside_the_attribute_is_read_back() {
    let attribute =
        e2e::rtnetlink::extra_headroom_attribute().unwrap_or_else(|| panic!("this is not the test kernel"));
    for (setting, expected) in [(json!("off"), 0), (json!("auto"), 64), (json!(200), 200), (json!(512), 512)]
    {
        let cluster = with_headroom(setting.clone()).nodes(1).start();
        let (node, pod) = (cluster.a(), cluster.a().add_pod("p"));
        let ends = [(&node.netns, pod.host_link()), (&pod.netns, "eth0".to_owned())];
        for (netns, link) in ends {
            assert_eq!(
                e2e::rtnetlink::link_u32(netns, &link, attribute),
                Some(expected),
                "measured: headroom {setting}: {link}"
            );
        }
        let report = node.status().to_string().to_lowercase();
        assert_eq!(report.contains("\"applied\""), expected > 0, "measured: headroom {setting}: {report}");
        pod.check().unwrap_or_else(|error| panic!("measured: headroom {setting}: {error}"));
    }
}

#[test]
fn on_a_kernel_without_the_attribute_pods_work_and_it_is_said_once() {
    root_or_skip!();
    if e2e::rtnetlink::extra_headroom_attribute().is_some() {
        eprintln!("SKIPPED: this kernel has the attribute");
        return;
    }
    let cluster = with_headroom(json!("auto")).start();
    let pods = [cluster.a().add_pod("p1"), cluster.a().add_pod("p2"), cluster.b().add_pod("p3")];
    pods[0].assert_pings(pods[2].ip4());
    let said = cluster.a().log().matches("tx_extra_headroom").count();
    assert_eq!(said, 1, "{}", cluster.a().log());
    assert!(cluster.a().status().to_string().to_lowercase().contains("unsupported"));
}
