//! Kernel settings that the segment needs.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    dataplane::{Hop, Sysctl},
    desired::{self, GATEWAY_LINK, GATEWAY_PEER, SEGMENTER_LINK, SEGMENTER_PEER},
    world::World,
};

/// Neighbour tables are one per machine, so these live in the initial network namespace only.
const THRESHOLDS: [&str; 3] = ["gc_thresh1", "gc_thresh2", "gc_thresh3"];
/// Neighbour entries to allow for at least.
const MIN_NEIGHBOURS: usize = 16_384;
/// Milliseconds between two probes of a managed neighbour unless told otherwise (`interval_probe_time_ms`).
const KERNEL_PROBE_INTERVAL: usize = 5000;
/// Probes a second on an uplink that are few enough.
const PROBES_A_SECOND: usize = 100;
/// Neighbour entries of one pod to allow for, in each family.
const NEIGHBOURS_A_POD: usize = 256;

/// The settings to hold. Settings that depend on what they are now (never lower, change 1 to 2) read it from the facts.
#[must_use]
pub fn desired(world: &World) -> BTreeMap<Sysctl, String> {
    let mut settings = BTreeMap::new();
    let mut set = |path: String, value: &str| settings.insert(path, value.to_owned());
    set("net/ipv4/ip_forward".into(), "1");
    // A forwarding node ignores router advertisements unless told to take them all the same
    // (Documentation/networking/ip-sysctl.rst, accept_ra); without this a SLAAC node loses its default route. The kernel
    // drops routes from advertisements in the moment in which it begins to forward, so one has to follow the other.
    let uplinks = &world.config.node.uplinks;
    for uplink in uplinks {
        if matches!(current(world, &accept_ra(uplink)), Some("1" | "2")) {
            set(accept_ra(uplink), "2");
        }
    }
    if uplinks.iter().all(|uplink| current(world, &accept_ra(uplink)) != Some("1")) {
        set("net/ipv6/conf/all/forwarding".into(), "1");
    }
    for (uplink, interval) in probe_intervals(world) {
        set(format!("net/ipv6/neigh/{uplink}/interval_probe_time_ms"), &interval.to_string());
    }
    if world.facts.links.contains_key(GATEWAY_LINK) {
        // Effective are the larger of `all` and the device's rp_filter, and `all` or the device's send_redirects.
        set(format!("net/ipv4/conf/{GATEWAY_LINK}/rp_filter"), "2");
        set(format!("net/ipv4/conf/{GATEWAY_LINK}/send_redirects"), "0");
        set("net/ipv4/conf/all/send_redirects".into(), "0");
        set(format!("net/ipv6/conf/{GATEWAY_LINK}/accept_ra"), "0");
        set(format!("net/ipv6/conf/{GATEWAY_LINK}/accept_redirects"), "0");
        set(format!("net/ipv4/conf/{GATEWAY_LINK}/accept_redirects"), "0");
    }
    for silent in [GATEWAY_PEER, SEGMENTER_LINK, SEGMENTER_PEER] {
        if world.facts.links.contains_key(silent) {
            set(format!("net/ipv6/conf/{silent}/disable_ipv6"), "1");
        }
    }
    for (path, value) in thresholds(world) {
        set(path, &value.to_string());
    }
    settings
}

/// The settings whose present value [`desired()`] wants to know.
#[must_use]
pub fn of_interest(world: &World) -> BTreeSet<Sysctl> {
    let thresholds = families().flat_map(|family| THRESHOLDS.map(|name| threshold(family, name)));
    world.config.node.uplinks.iter().map(|uplink| accept_ra(uplink)).chain(thresholds).collect()
}

/// Milliseconds between two probes of all managed neighbours on an uplink, where the kernel's own value would make too
/// many of them: it probes all at once (`neigh_managed_work`, net/core/neighbour.c).
fn probe_intervals(world: &World) -> Vec<(&str, usize)> {
    let hops: BTreeSet<Hop> = world.peers.keys().flat_map(|peer| desired::ways(world, *peer)).collect();
    let uplinks = desired::uplinks(world).map(|(name, link)| {
        let managed = hops.iter().filter(|hop| hop.ifindex == link.ifindex).count();
        // In steps, so that not every peer changes a setting.
        (name.as_str(), (1000 * managed).div_ceil(PROBES_A_SECOND).next_power_of_two())
    });
    uplinks.filter(|(_, interval)| *interval > KERNEL_PROBE_INTERVAL).collect()
}

/// Does the machine's initial namespace show its neighbour table bounds, so that they can be set?
#[must_use]
pub fn thresholds_known(world: &World) -> bool {
    families().all(|family| THRESHOLDS.iter().all(|name| current(world, &threshold(family, name)).is_some()))
}

/// Neighbour table bounds, never lower than they are: the hard bound, half of it where collection becomes eager, a quarter below which
/// nothing is collected (net/core/neighbour.c, `neigh_forced_gc`).
fn thresholds(world: &World) -> Vec<(Sysctl, u64)> {
    let wanted = (NEIGHBOURS_A_POD * world.leases.count() + 2 * world.peers.len()).max(MIN_NEIGHBOURS);
    // In steps, so that not every pod changes a setting.
    let hard = wanted.next_power_of_two() as u64;
    let mut settings = Vec::new();
    for family in families() {
        for (name, value) in THRESHOLDS.into_iter().zip([hard / 4, hard / 2, hard]) {
            let path = threshold(family, name);
            let now = current(world, &path).and_then(|value| value.parse::<u64>().ok());
            settings.extend(now.map(|now| (path, value.max(now))));
        }
    }
    settings
}

fn families() -> impl Iterator<Item = &'static str> {
    ["ipv4", "ipv6"].into_iter()
}

fn threshold(family: &str, name: &str) -> Sysctl {
    format!("net/{family}/neigh/default/{name}")
}

fn accept_ra(link: &str) -> Sysctl {
    format!("net/ipv6/conf/{link}/accept_ra")
}

fn current<'a>(world: &'a World, path: &str) -> Option<&'a str> {
    world.facts.sysctls.get(path).map(String::as_str)
}
