//! The switch's maps and programs, as tables.

use std::fs;

use agent_core::{
    addr::NodeNumber,
    dataplane::{self, Dataplane, Entry, Key},
};
use agent_switch::{Error, Switch, Table};

/// How many connections the node tracks, which is as many as it can translate.
const CONNTRACK_MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
/// What the kernel allows on a machine with 4 GB of memory or more (net/netfilter/nf_conntrack_core.c).
const CONNTRACK_DEFAULT: u32 = 262_144;
/// A place for a connection takes about 100 bytes of kernel memory, used or not.
const CONNECTIONS: std::ops::RangeInclusive<u32> = 4096..=1 << 20;

/// How many connections a new switch should be able to remember: as many as the node tracks.
pub(super) fn connections() -> u32 {
    let tracked = fs::read_to_string(CONNTRACK_MAX).ok().and_then(|text| text.trim().parse().ok());
    tracked.unwrap_or(CONNTRACK_DEFAULT).clamp(*CONNECTIONS.start(), *CONNECTIONS.end())
}

/// Reads all maps and attachments into `plane`.
pub(super) fn observe(switch: &mut Switch, plane: &mut Dataplane) -> Result<(), Error> {
    plane.settings = switch.settings().list()?.into_values().map(|settings| ((), settings)).collect();
    plane.networks = switch.networks().list()?;
    plane.endpoints = switch.endpoints().list()?;
    plane.fdb = switch.fdb().list()?;
    plane.prefixes4 = numbered(switch.prefixes4().list()?);
    plane.prefixes6 = switch.prefixes6().list()?;
    let nodes = switch.nodes().list()?.into_iter();
    plane.nodes = nodes.filter_map(|(key, value)| Some((NodeNumber::new(key).ok()?, value))).collect();
    plane.flood_endpoints = switch.flood_endpoints().list()?;
    plane.flood_nodes = numbered(switch.flood_nodes().list()?);
    plane.attachments =
        switch.attachments()?.into_iter().map(|(key, state)| (key, attached(state))).collect();
    Ok(())
}

/// Takes all maps and attachments as they are known.
pub(super) fn trust(known: &Dataplane, plane: &mut Dataplane) {
    plane.settings.clone_from(&known.settings);
    plane.networks.clone_from(&known.networks);
    plane.endpoints.clone_from(&known.endpoints);
    plane.fdb.clone_from(&known.fdb);
    plane.prefixes4.clone_from(&known.prefixes4);
    plane.prefixes6.clone_from(&known.prefixes6);
    plane.nodes.clone_from(&known.nodes);
    plane.flood_endpoints.clone_from(&known.flood_endpoints);
    plane.flood_nodes.clone_from(&known.flood_nodes);
    plane.attachments.clone_from(&known.attachments);
}

/// Takes a step that is about the switch; `None` if it is not.
pub(super) fn set(switch: &mut Switch, entry: &Entry) -> Option<Result<(), Error>> {
    Some(match entry {
        Entry::Settings((), value) => switch.settings().set(0, *value),
        Entry::Network(key, value) => switch.networks().set(*key, *value),
        Entry::Endpoint(key, value) => switch.endpoints().set(*key, *value),
        Entry::Fdb(key, value) => switch.fdb().set(*key, *value),
        Entry::Prefix4(key, value) => switch.prefixes4().set(*key, (*value).into()),
        Entry::Prefix6(key, value) => switch.prefixes6().set(*key, *value),
        Entry::Node(key, value) => switch.nodes().set((*key).into(), *value),
        Entry::FloodEndpoint(key, value) => switch.flood_endpoints().set(*key, *value),
        Entry::FloodNode(key, value) => switch.flood_nodes().set(*key, (*value).into()),
        Entry::Attachment((program, ifindex), _) => switch.attach(*program, *ifindex),
        _ => return None,
    })
}

/// Takes a removal that is about the switch; `None` if it is not.
pub(super) fn remove(switch: &mut Switch, key: &Key) -> Option<Result<(), Error>> {
    Some(match key {
        Key::Settings(()) => switch.settings().remove(0),
        Key::Network(key) => switch.networks().remove(*key),
        Key::Endpoint(key) => switch.endpoints().remove(*key),
        Key::Fdb(key) => switch.fdb().remove(*key),
        Key::Prefix4(key) => switch.prefixes4().remove(*key),
        Key::Prefix6(key) => switch.prefixes6().remove(*key),
        Key::Node(key) => switch.nodes().remove((*key).into()),
        Key::FloodEndpoint(key) => switch.flood_endpoints().remove(*key),
        Key::FloodNode(key) => switch.flood_nodes().remove(*key),
        Key::Attachment((program, ifindex)) => switch.detach(*program, *ifindex),
        _ => return None,
    })
}

/// Values that are node numbers. What is none can only have been written by somebody else, and is overwritten.
fn numbered<K: Ord>(
    entries: impl IntoIterator<Item = (K, u32)>,
) -> std::collections::BTreeMap<K, NodeNumber> {
    entries.into_iter().filter_map(|(key, value)| Some((key, NodeNumber::new(value).ok()?))).collect()
}

fn attached(state: agent_switch::Attached) -> dataplane::Attached {
    match state {
        agent_switch::Attached::Current => dataplane::Attached::Current,
        agent_switch::Attached::Other | agent_switch::Attached::Gone => dataplane::Attached::Outdated,
    }
}
