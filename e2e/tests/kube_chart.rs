//! The chart's life on a real cluster: upgrade, rollback, uninstall and reinstall under traffic, cleanup.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use e2e::{
    kube::{Kube, PATIENCE, Server, Space},
    rig_or_skip, wait_until,
};

/// The file that makes a node take pods.
const CONFLIST: &str = "/etc/cni/net.d/*-headway.conflist";

fn project() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Runs it.
fn succeed(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output.stdout
}

/// `helm ARGUMENTS` at the rig's API server.
fn helm(kube: &Kube, arguments: &[&str]) -> Command {
    let script =
        r#". "$0/lib.sh"; innet cp env KUBECONFIG="$RUN/admin.conf" "$BIN/helm" -n kube-system "$@""#;
    let mut command = Command::new("bash");
    command.args(["-ec", script]).arg(kube.scripts()).args(arguments);
    command
}

/// Installs or upgrades a release with the values of the one that was there, and more.
fn deploy(kube: &Kube, release: &str, values: &Path, more: &[&str]) {
    let chart = project().join("charts/headway");
    let mut command = helm(kube, &["upgrade", "--install", release, "--wait", "--timeout", "2m"]);
    command.arg(chart).arg("--values").arg(values);
    for value in more {
        command.args(["--set", value]);
    }
    succeed(&mut command);
}

fn conflists(kube: &Kube, node: &str) -> Vec<String> {
    let listed = kube.shell_inside(node, &format!("ls {CONFLIST} 2> /dev/null || true"));
    listed.lines().map(ToOwned::to_owned).collect()
}

fn wait_conflists(kube: &Kube, nodes: &[String], wanted: &[&str]) {
    for node in nodes {
        wait_until(&format!("{node} has {wanted:?}"), PATIENCE, || conflists(kube, node) == wanted);
    }
}

/// Pings both addresses of `far` until it is told to end.
fn pings(kube: &Kube, space: &Space<'_>) -> Vec<Child> {
    let ping = |to| {
        let script = format!("ping -q -i 0.01 -W 1 {to}");
        let mut command =
            kube.kubectl_command(&["-n", space.name(), "exec", "near", "--", "sh", "-c", &script]);
        command.stdout(Stdio::piped()).spawn().unwrap_or_else(|error| panic!("{script}: {error}"))
    };
    space.addresses("far").into_iter().map(ping).collect()
}

fn assert_no_loss(kube: &Kube, space: &Space<'_>, pings: Vec<Child>) {
    kube.kubectl(&["-n", space.name(), "exec", "near", "--", "sh", "-c", "kill -INT $(pidof ping)"]);
    for child in pings {
        let output = child.wait_with_output().unwrap_or_else(|error| panic!("ping: {error}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(" 0% packet loss"), "{text}");
    }
}

#[test]
fn a_release_is_upgraded_rolled_back_taken_away_and_installed_again() {
    let kube = rig_or_skip!();
    if !helm(kube, &["status", "headway"]).output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: headway was not installed by its chart here");
        return;
    }
    let nodes: Vec<String> = kube.nodes().into_iter().map(|node| node.name).collect();
    let space = kube.space("chart");
    space.serve(&[Server::new("near", &nodes[0]), Server::new("far", &nodes[1])]);
    let values = std::env::temp_dir().join(format!("{}-values.json", space.name()));
    let given = succeed(&mut helm(kube, &["get", "values", "headway", "-o", "json"]));
    std::fs::write(&values, given).unwrap_or_else(|error| panic!("{}: {error}", values.display()));
    let usual = ["/etc/cni/net.d/10-headway.conflist"];

    let running = pings(kube, &space);
    deploy(kube, "headway", &values, &["cni.confPriority=5"]);
    wait_conflists(kube, &nodes, &["/etc/cni/net.d/05-headway.conflist"]);
    succeed(&mut helm(kube, &["rollback", "headway", "--wait", "--timeout", "2m"]));
    wait_conflists(kube, &nodes, &usual);
    kube.kubectl(&["-n", "kube-system", "delete", "daemonset", "headway"]);
    wait_conflists(kube, &nodes, &[]);
    deploy(kube, "headway", &values, &[]);
    wait_conflists(kube, &nodes, &usual);
    succeed(&mut helm(kube, &["uninstall", "headway"]));
    wait_conflists(kube, &nodes, &[]);
    assert!(kube.kubectl(&["get", "crds", "-o", "name"]).contains("locators.headway.dev"), "they stay");
    deploy(kube, "another", &values, &[]);
    wait_conflists(kube, &nodes, &usual);
    assert_no_loss(kube, &space, running);

    deploy(kube, "another", &values, &["cleanup.enabled=true"]);
    // Helm is content when all but one are there.
    kube.kubectl(&["-n", "kube-system", "rollout", "status", "daemonset/another-headway", "--timeout=90s"]);
    for node in &nodes {
        let left = "ls -d /etc/cni/net.d/*headway* /opt/cni/bin/headway /sys/fs/bpf/headway/* /var/lib/headway/* /run/headway/* \
                    2> /dev/null || true; ip -br link | grep ^hw || true; nft list tables | grep headway || true; \
                    ip -6 route show table all | grep ^5f00 || true";
        assert_eq!(kube.shell_inside(node, left), "", "left on {node}");
    }
    succeed(&mut helm(kube, &["uninstall", "another"]));
    kube.script("install.sh", &["helm"]);
    let _ = std::fs::remove_file(&values);
}
