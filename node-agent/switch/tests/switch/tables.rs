//! The maps as tables, their limits and their layouts.

use std::fs;

use agent_switch::{Error, Layout, Switch, Table, remove_all};
use bpf_common::{
    maps::{Endpoint, FdbEntry, FdbKey, FloodEndpoint, Network, Node, Prefix6, Settings},
    names::{MAX_ENDPOINTS, MAX_FLOOD_NODES, MAX_NETWORKS, MAX_NODES, MAX_PREFIXES},
};
use ipnet::{Ipv4Net, Ipv6Net};

use crate::{
    node::{BpfDir, CONNECTIONS},
    root::need_root,
    world::run,
};

/// Puts two entries in, replaces one, takes them out again.
fn keeps<K: Ord + Copy + std::fmt::Debug, V: PartialEq + Copy + std::fmt::Debug>(
    table: &mut impl Table<Key = K, Value = V>,
    keys: [K; 2],
    values: [V; 2],
) {
    assert_eq!(table.list().unwrap().into_iter().collect::<Vec<_>>(), []);
    for (key, value) in keys.into_iter().zip(values) {
        table.set(key, value).unwrap();
    }
    assert_eq!(
        table.list().unwrap().into_iter().collect::<Vec<_>>(),
        [(keys[0], values[0]), (keys[1], values[1])]
    );
    table.set(keys[1], values[0]).unwrap();
    assert_eq!(table.list().unwrap()[&keys[1]], values[0]);
    table.remove(keys[0]).unwrap();
    table.remove(keys[0]).unwrap();
    assert_eq!(table.list().unwrap().into_keys().collect::<Vec<_>>(), [keys[1]]);
    table.remove(keys[1]).unwrap();
}

fn full<T>(result: Result<T, Error>, name: &str, size: u32) {
    match result {
        Err(Error::Full { map, limit }) => assert_eq!((map, limit), (name, size)),
        Err(other) => panic!("{name}: {other}"),
        Ok(_) => panic!("{name} takes more than {size}"),
    }
}

fn mac(octet: u16) -> FdbKey {
    FdbKey { network: 1, mac: [0, 0, octet] }
}

#[test]
fn tables_give_back_what_was_put_in() {
    need_root!();
    let dir = BpfDir::new();
    let mut switch = Switch::open(&dir.0, CONNECTIONS).unwrap();
    let net4 = ["10.1.0.0/24", "10.1.128.0/17"].map(|net| (7, net.parse::<Ipv4Net>().unwrap()));
    let net6 = ["fd00::/64", "fd00:1:2:3::/112"].map(|net| (7, net.parse::<Ipv6Net>().unwrap()));
    let endpoint = |ip4| Endpoint { ip4, ..Endpoint::default() };
    keeps(switch.networks(), [1, 2047], [3, 4].map(|flags| Network { flags, ..Network::default() }));
    keeps(switch.endpoints(), [5, 6], [endpoint(8), endpoint(9)]);
    keeps(switch.fdb(), [mac(1), mac(2)], [3, 4].map(|ifindex| FdbEntry { ifindex, flags: 1, services: 0 }));
    keeps(switch.prefixes4(), net4, [1, 2]);
    keeps(switch.prefixes6(), net6, [3, 4].map(|node| Prefix6 { node, base4: 0 }));
    keeps(switch.nodes(), [1, 9], [3, 4].map(|mtu| Node { mtu, ..Node::default() }));
    keeps(switch.flood_endpoints(), [0, 1023], [3, 4].map(|ifindex| FloodEndpoint { ifindex, network: 1 }));
    keeps(switch.flood_nodes(), [0, 255], [3, 4]);
    let settings = Settings { node: 7, ..Settings::default() };
    switch.settings().set(0, settings).unwrap();
    // Everything is found again by the next one.
    switch.fdb().set(mac(3), FdbEntry { ifindex: 9, ..FdbEntry::default() }).unwrap();
    drop(switch);
    let mut switch = Switch::open(&dir.0, CONNECTIONS).unwrap();
    assert_eq!(switch.settings().list().unwrap().into_values().collect::<Vec<_>>(), [settings]);
    assert_eq!(switch.fdb().list().unwrap().len(), 1);
    assert!(switch.path_mtus().unwrap().is_empty());
    assert!(switch.counters().unwrap().drops.values().all(|count| *count == 0));
}

#[test]
fn full_tables_say_so() {
    need_root!();
    let dir = BpfDir::new();
    let mut switch = Switch::open(&dir.0, CONNECTIONS).unwrap();
    for i in 0..MAX_ENDPOINTS {
        switch.endpoints().set(i, Endpoint::default()).unwrap();
        switch.fdb().set(mac(i as u16), FdbEntry::default()).unwrap();
    }
    full(switch.endpoints().set(MAX_ENDPOINTS, Endpoint::default()), "BUCKETS", MAX_ENDPOINTS);
    full(switch.fdb().set(mac(u16::MAX), FdbEntry::default()), "FDB", MAX_ENDPOINTS);
    // An entry that goes makes place, its bucket too.
    switch.endpoints().remove(0).unwrap();
    switch.endpoints().set(MAX_ENDPOINTS, Endpoint::default()).unwrap();
    for i in 0..MAX_NODES {
        switch.nodes().set(i, Node::default()).unwrap();
    }
    full(switch.nodes().set(MAX_NODES, Node::default()), "NODES", MAX_NODES);
    let net4 = |i: u32| (1, Ipv4Net::new_assert((i << 8).into(), 24));
    for i in 0..MAX_PREFIXES {
        switch.prefixes4().set(net4(i), 1).unwrap();
    }
    full(switch.prefixes4().set(net4(MAX_PREFIXES), 1), "PREFIXES4", MAX_PREFIXES);
    full(switch.networks().set(MAX_NETWORKS, Network::default()), "NETWORKS", MAX_NETWORKS);
    full(switch.flood_nodes().set(MAX_FLOOD_NODES, 1), "FLOOD_NODES", MAX_FLOOD_NODES);
    full(
        switch.flood_endpoints().set(MAX_ENDPOINTS, FloodEndpoint::default()),
        "FLOOD_ENDPOINTS",
        MAX_ENDPOINTS,
    );
    assert_eq!(switch.prefixes4().list().unwrap().len(), MAX_PREFIXES as usize);
}

#[test]
fn older_layouts_are_retired_and_newer_ones_respected() {
    need_root!();
    let dir = BpfDir::new();
    let older = dir.0.join("0-9");
    let newer_minor = dir.0.join("1-999");
    for folder in [&older, &newer_minor] {
        fs::create_dir(folder).unwrap();
    }
    let map = older.join("SETTINGS");
    let create = ["type", "array", "key", "4", "value", "4", "entries", "1", "name", "old"];
    run("bpftool", &[&["map", "create", map.to_str().unwrap()], create.as_slice()].concat());
    let mut switch = Switch::open(&dir.0, CONNECTIONS).unwrap();
    let newest = Layout { major: 1, minor: 999 };
    assert_eq!(Layout::present(&dir.0).unwrap(), [Layout { major: 0, minor: 9 }, Layout::OWN, newest]);
    switch.retire_old_layouts().unwrap();
    assert_eq!(Layout::present(&dir.0).unwrap(), [Layout::OWN, newest]);
    fs::create_dir(dir.0.join("2-0")).unwrap();
    match Switch::open(&dir.0, CONNECTIONS) {
        Err(Error::NewerLayout { found, .. }) => assert_eq!(found, Layout { major: 2, minor: 0 }),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened beside a newer layout"),
    }
    remove_all(&dir.0).unwrap();
    assert_eq!(Layout::present(&dir.0).unwrap(), []);
}

#[test]
fn only_a_bpf_file_system_will_do() {
    need_root!();
    match Switch::open("/tmp".as_ref(), CONNECTIONS) {
        Err(Error::NotBpffs { dir }) => assert_eq!(dir, std::path::Path::new("/tmp")),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened on another file system"),
    }
    let dir = BpfDir::new();
    agent_switch::mount(&dir.0).unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert_eq!(mounts.matches(dir.0.to_str().unwrap()).count(), 1, "mounted once");
}
