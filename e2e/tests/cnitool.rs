//! The reference runtime drives the plugin, with every version that the plugin speaks.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use e2e::{Cluster, Node, Pod, cni, host, root_or_skip, skip};
use serde_json::{Value, json};

/// Runs `cnitool VERB headway NETNS` on a node, with the conflist's version replaced if asked for.
fn cnitool(tool: &PathBuf, node: &Node, verb: &str, pod: &Pod, version: Option<&str>) -> Output {
    let folder = node.folder.join(format!("net.d-{}", version.unwrap_or("own")));
    fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut conflist = node.conflist();
    if let Some(version) = version {
        conflist["cniVersion"] = json!(version);
        conflist["cniVersions"] = json!([version]);
    }
    let file = folder.join("10-headway.conflist");
    fs::write(&file, conflist.to_string()).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let plugins = host::plugin_binary();
    let plugins = plugins.parent().unwrap_or(std::path::Path::new("/"));
    // libcni keeps results below /var/lib/cni, and its GC takes whatever is there for stale: a folder of our own.
    let results = node.folder.join("cni-results");
    fs::create_dir_all(&results).unwrap_or_else(|error| panic!("{}: {error}", results.display()));
    let script = "mkdir -p /var/lib/cni && mount --bind \"$1\" /var/lib/cni && shift && exec \"$@\"";
    let mut command: Command = node.netns.command("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(results).arg(tool);
    command.args([verb, "headway", &pod.netns.path().display().to_string()]);
    command
        .env("NETCONFPATH", &folder)
        .env("CNI_PATH", format!("{}:{}", plugins.display(), cni::REFERENCE_PLUGINS));
    command.output().unwrap_or_else(|error| panic!("{}: {error}", tool.display()))
}

#[track_caller]
fn succeeds(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

#[test]
fn cnitool_drives_every_verb() {
    root_or_skip!();
    let Some(tool) = skip::tool("cnitool") else { return };
    let cluster = Cluster::builder().nodes(1).start();
    let node = cluster.a();
    let pod = node.unattached_pod("p");
    let run = |verb| succeeds(&cnitool(&tool, node, verb, &pod, None));
    run("status");
    let result = run("add");
    assert_eq!(result["cniVersion"], "1.1.0");
    assert_eq!(result["ips"].as_array().map(Vec::len), Some(2));
    let address =
        result["ips"][0]["address"].as_str().and_then(|address| address.split('/').next()).map(str::to_owned);
    let output = node.netns.output(&format!("ping -n -c 1 -W 1 {}", address.unwrap_or_default()));
    assert!(output.status.success(), "{result}");
    run("check");
    run("del");
    run("del");
    // `cnitool gc` removes what it remembers by DEL and then asks for GC without a list, which must remove nothing.
    run("add");
    let (output, untold) = (cnitool(&tool, node, "gc", &pod, None), node.add_pod("untold"));
    assert_eq!(pod.netns.links(), ["lo"], "what cnitool remembers is gone");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("attachments"), "{said}");
    assert!(!cnitool(&tool, node, "gc", &pod, None).status.success());
    untold.check().unwrap_or_else(|error| panic!("GC without a list: {error}"));
}

#[test]
fn cnitool_works_with_older_versions() {
    root_or_skip!();
    let Some(tool) = skip::tool("cnitool") else { return };
    let cluster = Cluster::builder().nodes(1).start();
    let node = cluster.a();
    for version in ["0.3.1", "0.4.0", "1.0.0"] {
        let pod = node.unattached_pod("p");
        let run = |verb| cnitool(&tool, node, verb, &pod, Some(version));
        let result = succeeds(&run("add"));
        assert_eq!(result["cniVersion"], version);
        let family = &result["ips"][0]["version"];
        assert_eq!(family.is_string(), version.starts_with("0."), "ips[].version in {version}: {result}");
        assert!(result["interfaces"][0].get("mtu").is_none(), "mtu came with 1.1.0: {result}");
        if version != "0.3.1" {
            succeeds(&run("check"));
        }
        succeeds(&run("del"));
    }
}

#[test]
fn every_version_has_its_own_form_of_result_and_its_own_verbs() {
    root_or_skip!();
    let cluster = Cluster::builder().nodes(1).start();
    let node = cluster.a();
    for (version, check, status) in
        [("0.3.1", false, false), ("0.4.0", true, false), ("1.0.0", true, false), ("1.1.0", true, true)]
    {
        let mut pod = node.unattached_pod("p");
        pod.runtime.version = Some(version.to_owned());
        let mut pod = pod.attach();
        assert_eq!(pod.attachment.result["cniVersion"], version);
        assert_eq!(pod.check().err().map(|error| error.code), (!check).then_some(1), "CHECK in {version}");
        assert_eq!(
            pod.runtime.status().err().map(|error| error.code),
            (!status).then_some(1),
            "STATUS in {version}"
        );
        pod.detach();
    }
}
