//! Too big is said, learned, and recovered from; super-packets keep their order.

use std::{net::IpAddr, time::Duration};

use e2e::{
    Cluster, Pod, root_or_skip,
    tcp::{self, Amount},
    wait_until,
};

/// Outer IPv6 header and inner Ethernet header.
const OVERHEAD: u32 = 54;
const PATIENCE: Duration = Duration::from_secs(10);
const BULK: Amount = Amount::Bytes(8 << 20);

/// Tells every node the MTU of its peers, as agents tell each other.
fn advertise(mtus: &'static [u32]) -> impl Fn(u8, &mut serde_json::Value) {
    move |_, config| {
        for peer in config["peers"].as_array_mut().into_iter().flatten() {
            let number = peer["number"].as_u64().and_then(|number| usize::try_from(number).ok());
            peer["mtu"] = number.map_or(serde_json::Value::Null, |number| mtus[number - 1].into());
        }
    }
}

/// The path MTU that the pod has learned towards an address, if it has.
fn learned(pod: &Pod, to: IpAddr) -> Option<u64> {
    let route = pod.netns.ip_json(&format!("route get {to}"));
    route[0]["metrics"].as_array()?.first()?["mtu"].as_u64()
}

fn sends_whole(pod: &Pod, to: IpAddr, packet: u32) -> bool {
    let data = packet - if to.is_ipv4() { 28 } else { 48 };
    pod.netns.output(&format!("ping -n -c 1 -W 1 -M do -s {data} {to}")).status.success()
}

#[test]
fn a_node_with_jumbo_frames_and_one_without_share_a_segment() {
    root_or_skip!();
    let cluster = Cluster::builder().mtu(9000).node_mtu(2, 1500).config(advertise(&[9000, 1500])).start();
    let (jumbo, plain) = (cluster.a().add_pod("jumbo"), cluster.b().add_pod("plain"));
    assert_eq!((jumbo.mtu(), plain.mtu()), (9000 - OVERHEAD as usize, 1500 - OVERHEAD as usize));
    for to in plain.addresses() {
        assert!(!sends_whole(&jumbo, to, 4000), "{to}: a packet larger than the peer takes cannot arrive");
        wait_until("the pod learns the peer's MTU", PATIENCE, || {
            learned(&jumbo, to) == Some((1500 - OVERHEAD).into())
        });
        assert!(sends_whole(&jumbo, to, 1500 - OVERHEAD));
        assert!(!sends_whole(&jumbo, to, 1500 - OVERHEAD + 1));
        let there = tcp::transfer(&jumbo.netns, &plain.netns, to, BULK);
        assert_eq!(there.path_mtu, 1500 - OVERHEAD);
    }
    for to in jumbo.addresses() {
        let back = tcp::transfer(&plain.netns, &jumbo.netns, to, BULK);
        assert!(back.megabits() > 20.0, "{back:?}");
    }
    let counted = cluster.a().events();
    assert!(counted["too_big_sent"] >= 2, "{counted:?}");
}

#[test]
fn a_narrow_link_behind_a_router_is_learned_and_tcp_recovers() {
    root_or_skip!();
    let cluster = Cluster::builder().routed().start();
    let (near, far) = (cluster.a().add_pod("near"), cluster.b().add_pod("far"));
    for to in far.addresses() {
        assert!(sends_whole(&near, to, 1500 - OVERHEAD));
    }
    cluster.underlay.narrow(cluster.b().number, 1400);
    for to in far.addresses() {
        let transfer = tcp::transfer(&near.netns, &far.netns, to, BULK);
        assert!(transfer.megabits() > 5.0, "{to}: {transfer:?}");
        wait_until("the pod learns the path MTU", PATIENCE, || {
            sends_whole(&near, to, 1400 - OVERHEAD) && learned(&near, to) == Some((1400 - OVERHEAD).into())
        });
    }
    let counted = cluster.a().events();
    assert!(counted["path_mtu_learned"] >= 1 && counted["too_big_sent"] >= 2, "{counted:?}");
}

#[test]
fn a_connection_survives_when_the_uplink_gets_narrower() {
    root_or_skip!();
    let cluster = Cluster::builder().start();
    let (near, far) = (cluster.a().add_pod("near"), cluster.b().add_pod("far"));
    for (to, mtu) in far.addresses().into_iter().zip([1450, 1420]) {
        let paced = Amount::Paced { size: 60_000, writes: 400, pause: Duration::from_millis(5) };
        let transfer = std::thread::scope(|scope| {
            let running = scope.spawn(|| tcp::transfer(&near.netns, &far.netns, to, paced));
            cluster.a().netns.run(&format!("ip link set eth0 mtu {mtu}"));
            running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        assert_eq!(transfer.bytes, 400 * 60_000);
        wait_until("the agent takes the uplink's MTU over", PATIENCE, || {
            !sends_whole(&near, to, 1500 - OVERHEAD) && sends_whole(&near, to, mtu - OVERHEAD)
        });
    }
}

#[test]
fn pods_get_the_mtu_that_the_uplink_leaves() {
    root_or_skip!();
    let cluster =
        Cluster::builder().nodes(1).mtu(9000).config(|_, config| config["mtu"] = 1300.into()).start();
    assert_eq!(cluster.a().add_pod("fixed").mtu(), 1300);
}

/// Out-of-order packets for each gigabyte.
fn disorder(from: &Pod, to: &Pod, amount: Amount, offload: &str) -> f64 {
    from.netns.run(&format!("ethtool -K eth0 tso {offload}"));
    let transfer = tcp::transfer(&from.netns, &to.netns, to.ip4().into(), amount);
    eprintln!("TSO {offload}: {transfer:?}");
    f64::from(transfer.out_of_order) * 1e9 / transfer.bytes as f64
}

#[test]
fn super_packets_and_small_ones_of_a_flow_keep_their_order() {
    root_or_skip!();
    let cluster = Cluster::builder().start();
    let (near, far) = (cluster.a().add_pod("near"), cluster.b().add_pod("far"));
    let paced = Amount::Paced { size: 20_000, writes: 300, pause: Duration::from_millis(2) };
    let saturating = Amount::For(Duration::from_secs(1));
    // A burst that overflows a queue makes disorder in either case: so interleaved medians, and for the
    // saturating stream a margin of 0.3 % of its packets.
    for (what, amount, margin) in
        [("20 kB writes with pauses", paced, 10.0), ("saturating", saturating, 2000.0)]
    {
        let (mut with, mut without): (Vec<f64>, Vec<f64>) = (0..5)
            .map(|_| (disorder(&near, &far, amount, "on"), disorder(&near, &far, amount, "off")))
            .unzip();
        let [with, without] = [&mut with, &mut without].map(|values| {
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        });
        eprintln!(
            "measured: {what}: {with:.0} packets a gigabyte out of order, {without:.0} with the pod's TSO off"
        );
        assert!(
            with <= without + margin,
            "{what}: {with} packets a gigabyte out of order, {without} without TSO"
        );
    }
}
