use agent_api::{HeadroomOutcome, Verb};

use crate::{
    agent::Agent,
    rig::{self, Rig, assignment, need_root},
};

/// What the agent hears of the headroom after an ADD that has to succeed.
fn outcome(bytes: u32, attribute: Option<u16>) -> HeadroomOutcome {
    let rig = Rig::new();
    let mut wanted = assignment();
    (wanted.headroom, wanted.headroom_attribute) = (bytes, attribute);
    let agent = Agent::assigning(&rig.socket(), wanted);
    let ended = rig.run("ADD", &rig.config("1.1.0"));
    assert!(ended.success, "{ended:?}");
    assert!(rig.link(&rig.pod, rig::IFNAME).is_some());
    let asked = agent.asked();
    let activate = asked.iter().find_map(|verb| match verb {
        Verb::Activate(activate) => Some(activate.headroom.clone()),
        _ => None,
    });
    activate.unwrap_or_else(|| panic!("no activate in {asked:?}"))
}

#[test]
fn headroom_is_reported_as_the_kernel_has_it() {
    need_root!();
    assert_eq!(outcome(64, None), HeadroomOutcome::Unsupported);
    assert_eq!(outcome(0, None), HeadroomOutcome::Off);
    // No kernel knows the number: it is ignored without an error, and the plugin notices.
    let ignored = outcome(64, Some(4000));
    assert!(matches!(&ignored, HeadroomOutcome::Refused(said) if said.contains("nothing")), "{ignored:?}");
}

/// The number of the attribute as bpftool reads the kernel's BTF.
fn headroom_attribute() -> Option<u16> {
    let arguments = ["btf", "dump", "file", "/sys/kernel/btf/vmlinux", "format", "raw"];
    let output = std::process::Command::new("bpftool").args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (_, after) = text.split_once("'IFLA_TX_EXTRA_HEADROOM' val=")?;
    after.lines().next()?.trim().parse().ok()
}

/// `HEADWAY_REQUIRE_HEADROOM=1` says that this is such a kernel.
#[test]
fn headroom_is_applied_to_both_ends_where_the_kernel_has_it() {
    need_root!();
    let Some(number) = headroom_attribute() else {
        assert!(std::env::var_os("HEADWAY_REQUIRE_HEADROOM").is_none(), "BTF has no IFLA_TX_EXTRA_HEADROOM");
        eprintln!("skipped: this kernel has no IFLA_TX_EXTRA_HEADROOM");
        return;
    };
    for bytes in [1, 64, 256, 512] {
        assert_eq!(outcome(bytes, Some(number)), HeadroomOutcome::Applied(bytes));
    }
    assert_eq!(outcome(0, Some(number)), HeadroomOutcome::Off);
    // Too much for the kernel: the pod works all the same, and the agent hears why.
    let refused = outcome(513, Some(number));
    assert!(matches!(&refused, HeadroomOutcome::Refused(said) if said.contains("513")), "{refused:?}");
    eprintln!("513 bytes: {refused:?}");
}
