//! No black hole can hide: TCP and UDP keep up with bridge + VXLAN, measured in the same run.

use std::time::Duration;

use e2e::{
    Cluster, root_or_skip,
    tcp::{self, Amount},
    vxlan::Vxlan,
};

const ROUND: Duration = Duration::from_millis(700);
const ROUNDS: usize = 5;

#[test]
fn tcp_reaches_half_of_vxlan_at_least() {
    root_or_skip!();
    for mtu in [1500, 9000] {
        let cluster = Cluster::builder().mtu(mtu).start();
        let (near, far) = (cluster.a().add_pod("near"), cluster.b().add_pod("far"));
        let vxlan = Vxlan::start(mtu, false);
        let (vxlan_near, vxlan_far) = vxlan.pods();
        for (index, v6) in [(0, false), (1, true)] {
            // Interleaved, since the machine's speed changes while the test runs.
            let (mut ours, mut theirs): (Vec<f64>, Vec<f64>) = (0..ROUNDS)
                .map(|_| {
                    let address = far.addresses()[index];
                    let ours = tcp::transfer(&near.netns, &far.netns, address, Amount::For(ROUND));
                    let theirs = tcp::transfer(vxlan_near, vxlan_far, vxlan.address(v6), Amount::For(ROUND));
                    (ours.megabits(), theirs.megabits())
                })
                .unzip();
            let (ours, theirs) = (median(&mut ours), median(&mut theirs));
            eprintln!(
                "measured: TCP, MTU {mtu}, IPv6 {v6}: {ours:.0} Mbit/s, VXLAN {theirs:.0} Mbit/s: {:.2}x",
                ours / theirs
            );
            assert!(
                ours >= 0.5 * theirs,
                "MTU {mtu}, IPv6 {v6}: {ours:.0} Mbit/s beside {theirs:.0} of VXLAN"
            );
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
