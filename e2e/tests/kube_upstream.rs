//! Upstream Kubernetes' own network tests. What is left out, and why: `docs/conformance.md`.

use std::process::Command;

use e2e::{kube::Kube, rig_or_skip, skip};

/// Runs upstream's tests that match, prints what failed, and gives how many (passed, failed).
fn upstream(kube: &Kube, focus: &str) -> (u32, u32) {
    let mut command = Command::new(kube.scripts().join("upstream.sh"));
    let output = command.arg(focus).output().unwrap_or_else(|error| panic!("upstream.sh: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let summary = text.lines().find(|line| line.contains(" Passed | ")).unwrap_or_else(|| {
        panic!("no summary for {focus}:\n{text}{}", String::from_utf8_lossy(&output.stderr))
    });
    let count = |word: &str| {
        let words: Vec<&str> = summary.split_whitespace().collect();
        let at = words.iter().position(|one| *one == word)?;
        words.get(at.checked_sub(1)?)?.parse().ok()
    };
    let counted = count("Passed").zip(count("Failed"));
    let (passed, failed) = counted.unwrap_or_else(|| panic!("{summary}"));
    if failed > 0 {
        text.lines().filter(|line| line.contains("[FAIL]")).for_each(|line| eprintln!("{line}"));
    }
    eprintln!("measured: upstream {focus}: {passed} passed, {failed} failed");
    (passed, failed)
}

#[test]
fn all_conformance_tests_of_the_network_pass() {
    let kube = rig_or_skip!();
    // Their number in the release that the rig builds: fewer would mean that some were not selected.
    assert_eq!(upstream(kube, r"\[sig-network\].*\[Conformance\]"), (47, 0));
}

#[test]
fn the_other_groups_pass() {
    let kube = rig_or_skip!();
    if !skip::full() {
        return;
    }
    for focus in [
        "IPv6DualStack",
        "HostPort",
        "Granular Checks",
        "NoSNAT",
        "externalTrafficPolicy",
        "Conntrack",
        "KubeProxy",
    ] {
        let (passed, failed) = upstream(kube, &format!(r"\[sig-network\].*{focus}"));
        assert!(passed > 0 && failed == 0, "{focus}: {passed} passed, {failed} failed");
    }
}
