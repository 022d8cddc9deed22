use agent_api::{AttachmentKey, Pod};
use agent_core::lease::State;

use super::*;

fn lease(host: u16) -> Lease {
    Lease {
        key: AttachmentKey { network: "n".into(), container: "c".into(), ifname: "eth0".into() },
        host,
        origin: None,
        slot: 1,
        nonce: "x".into(),
        boot: "b".into(),
        netns: "/run/netns/c".into(),
        netns_inode: 7,
        pod: Pod::default(),
        mtu: None,
        state: State::Reserved { at: 5 },
    }
}

#[test]
fn what_was_written_is_read_by_the_next_agent() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.lease(&lease(2)).unwrap();
    store.lease(&lease(3)).unwrap();
    store.freed(3, 9, "b").unwrap();
    let (mut events, unreadable) = Store::open(folder.path()).unwrap().load("b", 10).unwrap();
    events.sort_by_key(|event| matches!(event, Event::Freed { .. }));
    assert_eq!(events, [Event::Leased(Box::new(lease(2))), Event::Freed { host: 3, at: 9 }]);
    assert_eq!(unreadable, Vec::<String>::new());
}

#[test]
fn what_was_written_by_another_clock_was_before_everything() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let mut earlier = serde_json::to_value(lease(2)).unwrap();
    earlier["state"] =
        serde_json::json!({"active": {"at": 1_767_225_600_000_u64, "ifindex": 4, "headroom": "off"}});
    earlier.as_object_mut().unwrap().remove("mtu");
    let write = |host: u16, record: serde_json::Value| {
        fs::write(folder.path().join(format!("leases/{host}.json")), record.to_string()).unwrap();
    };
    write(2, serde_json::json!({"leased": earlier}));
    write(3, serde_json::json!({"freed": {"at": 1_767_225_600_000_u64}}));
    store.freed(4, 9, "an earlier boot").unwrap();
    let (events, unreadable) = store.load("b", 10).unwrap();
    assert_eq!((events.len(), unreadable), (3, vec![]));
    for event in events {
        let at = match event {
            Event::Leased(lease) => match lease.state {
                State::Active { at, .. } | State::Reserved { at } => at,
            },
            Event::Freed { at, .. } => at,
            other => panic!("{other:?}"),
        };
        assert_eq!(at, 0);
    }
}

#[test]
fn a_file_cut_short_is_named_and_hides_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.lease(&lease(2)).unwrap();
    fs::write(folder.path().join("leases/4.json"), "").unwrap();
    let (events, unreadable) = store.load("b", 10).unwrap();
    assert_eq!(events.len(), 1);
    assert!(unreadable[0].contains("leases/4.json"), "{unreadable:?}");
}

#[test]
fn state_of_a_newer_major_version_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("version"), "2.0\n").unwrap();
    assert!(matches!(Store::open(folder.path()), Err(StoreError::Newer { .. })));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_version_cut_short_says_nothing_and_one_that_is_right_is_not_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let version = folder.path().join("version");
    for nothing in ["", "\0\0\0\0"] {
        fs::write(&version, nothing).unwrap();
        Store::open(folder.path()).unwrap();
    }
    let written = fs::metadata(&version).unwrap().modified().unwrap();
    assert_eq!(fs::read_to_string(&version).unwrap(), format!("{VERSION}\n"));
    Store::open(folder.path()).unwrap();
    assert_eq!(fs::metadata(&version).unwrap().modified().unwrap(), written);
}

#[test]
fn state_of_an_older_or_a_newer_minor_version_is_used() {
    for version in ["0.9\n", "1.7\n"] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("version"), version).unwrap();
        assert!(Store::open(folder.path()).is_ok(), "{version}");
    }
}
