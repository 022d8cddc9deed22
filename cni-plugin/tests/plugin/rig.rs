//! A node and a pod as network namespaces, and the plugin between them.

use std::{
    env, fs,
    io::Write,
    path::PathBuf,
    process::{self, Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use agent_api::{Assignment, AttachmentKey, MacAddress, Route, names};
use serde_json::{Value, json};

pub const CONTAINER: &str = "0123456789abcdef";
pub const IFNAME: &str = "eth0";

/// Ends the test early, in words, where it cannot be done; with `HEADWAY_REQUIRE_ROOT=1` that is a failure.
macro_rules! need_root {
    () => {
        if !crate::rig::is_root() {
            assert!(
                std::env::var_os("HEADWAY_REQUIRE_ROOT").is_none(),
                "HEADWAY_REQUIRE_ROOT is set and this is not root"
            );
            eprintln!("skipped: making network namespaces needs root");
            return;
        }
    };
}
pub(crate) use need_root;

pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0)
}

/// What the plugin left when it ended.
#[derive(Debug)]
pub struct Ended {
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The one document on stdout.
    pub fn document(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts a failure and gives its code, message and details.
    pub fn failure(&self) -> (u64, String) {
        assert!(!self.success, "{self:?}");
        let document = self.document();
        let text = |key: &str| document[key].as_str().unwrap_or_default().to_owned();
        (document["code"].as_u64().unwrap(), format!("{}: {}", text("msg"), text("details")))
    }

    /// Asserts a success without a document.
    pub fn silent_success(&self) {
        assert!(self.success && self.stdout.is_empty(), "{self:?}");
    }
}

/// Namespaces and files of one test.
pub struct Rig {
    pub node: String,
    pub pod: String,
    pub directory: tempfile::TempDir,
}

impl Rig {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let tag = format!("hwt{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let rig = Self {
            node: format!("{tag}-n"),
            pod: format!("{tag}-p"),
            directory: tempfile::tempdir().unwrap(),
        };
        for name in [&rig.node, &rig.pod] {
            ip(&["netns", "add", name]);
        }
        rig
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("agent.sock")
    }

    pub fn pending(&self) -> PathBuf {
        self.directory.path().join("pending")
    }

    pub fn netns(&self) -> String {
        format!("/run/netns/{}", self.pod)
    }

    pub fn config(&self, version: &str) -> Value {
        json!({"cniVersion": version, "name": "headway", "type": "headway",
            "agentSocket": self.socket(), "pendingDirectory": self.pending()})
    }

    /// The plugin with the usual variables, and these instead or besides (empty: unset).
    pub fn command(&self, verb: &str, variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.node)).arg(binary()).env_clear();
        command.envs([("CNI_COMMAND", verb), ("CNI_CONTAINERID", CONTAINER), ("CNI_IFNAME", IFNAME)]);
        command.env("CNI_NETNS", self.netns()).env("CNI_PATH", "/opt/cni/bin");
        command.env("PATH", env::var_os("PATH").unwrap_or_default());
        for (name, value) in variables {
            command.env(name, value);
        }
        command
    }

    pub fn run(&self, verb: &str, config: &Value) -> Ended {
        self.run_with(verb, config, &[])
    }

    pub fn run_with(&self, verb: &str, config: &Value, variables: &[(&str, &str)]) -> Ended {
        finish(start(self.command(verb, variables), &config.to_string()))
    }

    /// What `ip -j` shows, of the node's namespace or the pod's.
    pub fn show(&self, namespace: &str, what: &[&str]) -> Vec<Value> {
        let output = run_ip(&[&["-n", namespace, "-d", "-j"], what].concat());
        if !output.status.success() {
            return Vec::new();
        }
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// A link, if it is there.
    pub fn link(&self, namespace: &str, name: &str) -> Option<Value> {
        self.show(namespace, &["link", "show", "dev", name]).into_iter().next()
    }

    pub fn sysctl(&self, namespace: &str, key: &str) -> String {
        let path = format!("/proc/sys/net/ipv6/conf/{key}");
        let output = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{namespace}"))
            .args(["cat", &path])
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for name in [&self.pod, &self.node] {
            run_ip(&["netns", "del", name]);
        }
    }
}

pub fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_headway")
}

pub fn start(mut command: Command, stdin: &str) -> Child {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    // The plugin may end without reading.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child
}

pub fn finish(child: Child) -> Ended {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { success: status.success(), stdout: text(stdout), stderr: text(stderr) }
}

/// `ip` with these arguments, which has to succeed.
pub fn ip(arguments: &[&str]) {
    let output = run_ip(arguments);
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn run_ip(arguments: &[&str]) -> Output {
    Command::new("ip").args(arguments).output().unwrap()
}

pub fn key() -> AttachmentKey {
    AttachmentKey { network: "headway".into(), container: CONTAINER.into(), ifname: IFNAME.into() }
}

pub fn assignment() -> Assignment {
    let route = |destination: &str, gateway: &str| Route {
        destination: destination.parse().unwrap(),
        gateway: gateway.parse().unwrap(),
    };
    Assignment {
        nonce: "nonce1".into(),
        host_ifname: names::host_ifname(&key()),
        host_mac: MacAddress([0x0a, 0x5a, 0, 0, 0, 5]),
        mac: MacAddress([0x0a, 0x58, 10, 1, 1, 5]),
        mtu: 1446,
        addresses: vec!["10.1.1.5/16".parse().unwrap(), "fd10:0:0:1::5/48".parse().unwrap()],
        routes: vec![route("0.0.0.0/0", "10.1.1.1"), route("::/0", "fd10:0:0:1::1")],
        headroom: 64,
        headroom_attribute: None,
    }
}
