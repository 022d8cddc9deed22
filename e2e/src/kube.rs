//! A real Kubernetes cluster: the rig of `e2e/kube`, or the one that `KUBECONFIG` names.
//!
//! Start with [`cluster_or_skip!`](crate::cluster_or_skip) and [`Kube::space`].

mod node;
mod server;
mod space;

use std::{
    env,
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use serde_json::Value;

pub use node::KubeNode;
pub use server::{HTTP, Server, UDP, UDP_REPLY};
pub use space::{Protocol, Service, Space};

use crate::{netns, wait_for};

/// For what Kubernetes does by itself: a pod to Ready, kube-proxy's rules. The machine may be busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A cluster with headway as its network plugin.
#[derive(Debug)]
pub struct Kube {
    /// The folder with the rig's scripts, when the cluster is the rig's.
    scripts: Option<PathBuf>,
}

/// The cluster that `HEADWAY_RIG` (the folder with the scripts of a running rig) or `KUBECONFIG` names.
#[must_use]
pub fn cluster() -> Option<&'static Kube> {
    static CLUSTER: OnceLock<Option<Kube>> = OnceLock::new();
    CLUSTER
        .get_or_init(|| {
            let scripts = env::var_os("HEADWAY_RIG").map(PathBuf::from);
            (scripts.is_some() || env::var_os("KUBECONFIG").is_some()).then_some(Kube { scripts })
        })
        .as_ref()
}

/// The cluster; returns from the test, in words, when there is none.
#[macro_export]
macro_rules! cluster_or_skip {
    () => {
        match $crate::kube::cluster() {
            Some(cluster) => cluster,
            None => {
                eprintln!("SKIPPED: no Kubernetes cluster (make e2e-kube, or KUBECONFIG)");
                return;
            }
        }
    };
}

/// The cluster if it is the rig's; returns from the test, in words, when it is not.
#[macro_export]
macro_rules! rig_or_skip {
    () => {
        match $crate::kube::cluster() {
            Some(cluster) if cluster.is_rig() => cluster,
            _ => {
                eprintln!("SKIPPED: it needs the rig (make e2e-kube)");
                return;
            }
        }
    };
}

impl Kube {
    /// Is it the rig, whose nodes and control plane can be entered?
    #[must_use]
    pub const fn is_rig(&self) -> bool {
        self.scripts.is_some()
    }

    /// `kubectl ARGUMENTS`, not yet run.
    #[must_use]
    pub fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let program =
            self.scripts.as_ref().map_or_else(|| PathBuf::from("kubectl"), |folder| folder.join("kubectl"));
        let mut command = Command::new(program);
        command.args(arguments);
        command
    }

    /// What `kubectl ARGUMENTS` prints.
    ///
    /// # Panics
    /// It fails.
    #[track_caller]
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let output = netns::succeed(&mut self.kubectl_command(arguments), None);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// `kubectl ARGUMENTS`: what it prints, or what it says when it fails.
    ///
    /// # Errors
    /// It fails.
    pub fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.kubectl_command(arguments).output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            Ok(text)
        } else {
            Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr)))
        }
    }

    /// `kubectl get ARGUMENTS -o json`.
    ///
    /// # Panics
    /// It fails.
    #[must_use]
    #[track_caller]
    pub fn get(&self, arguments: &[&str]) -> Value {
        let text = self.kubectl(&[&["get", "-o", "json"], arguments].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
    }

    /// `kubectl apply` of these objects.
    ///
    /// # Panics
    /// The API server refuses one of them.
    #[track_caller]
    pub fn apply(&self, objects: &[Value]) {
        self.try_apply(objects).unwrap_or_else(|error| panic!("{error}"));
    }

    /// `kubectl apply` of these objects.
    ///
    /// # Errors
    /// The API server refuses one of them; what kubectl says.
    pub fn try_apply(&self, objects: &[Value]) -> Result<(), String> {
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
        let output = netns::output(&mut self.kubectl_command(&["apply", "-f", "-"]), Some(&list));
        let said = || String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said()) }
    }

    /// A namespace of its own for a test; goes when the value is dropped.
    #[must_use]
    #[track_caller]
    pub fn space(&self, test: &str) -> Space<'_> {
        Space::create(self, &format!("hw-{test}-{}", std::process::id()))
    }

    /// The nodes that are Ready and take pods, by name: two at least.
    ///
    /// # Panics
    /// There are fewer, and no more become Ready.
    #[must_use]
    #[track_caller]
    pub fn nodes(&self) -> Vec<KubeNode> {
        wait_for("two Ready nodes", PATIENCE, || {
            let list = self.get(&["nodes"]);
            let items = list["items"].as_array().into_iter().flatten();
            let mut nodes: Vec<KubeNode> = items.filter_map(KubeNode::read).collect();
            nodes.sort_by(|one, other| one.name.cmp(&other.name));
            (nodes.len() > 1).then_some(nodes)
        })
    }

    /// A program inside a member of the rig (`cp`: the control plane, which is off the segment; or a node).
    ///
    /// # Panics
    /// The cluster is not the rig's.
    #[must_use]
    #[track_caller]
    pub fn inside(&self, member: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.scripts().join("inside"));
        command.arg(member).args(arguments);
        command
    }

    /// What a shell script prints inside a member of the rig.
    ///
    /// # Panics
    /// It fails.
    #[track_caller]
    pub fn shell_inside(&self, member: &str, script: &str) -> String {
        let output = netns::succeed(&mut self.inside(member, &["bash", "-ec", script]), None);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a script of the rig.
    ///
    /// # Panics
    /// It fails, or the cluster is not the rig's.
    #[track_caller]
    pub fn script(&self, name: &str, arguments: &[&str]) {
        netns::succeed(Command::new(self.scripts().join(name)).args(arguments), None);
    }

    /// Process id of a rig member's first process.
    ///
    /// # Panics
    /// The cluster is not the rig's, or the member does not run.
    #[must_use]
    #[track_caller]
    pub fn init_pid(&self, member: &str) -> u32 {
        let mut command = Command::new("bash");
        command.args(["-ec", ". \"$0/lib.sh\"; initpid \"$1\""]).arg(self.scripts()).arg(member);
        let output = netns::succeed(&mut command, None);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.trim().parse().unwrap_or_else(|_| panic!("{member} does not run"))
    }

    /// The folder with the rig's scripts.
    ///
    /// # Panics
    /// The cluster is not the rig's.
    #[must_use]
    #[track_caller]
    pub fn scripts(&self) -> &Path {
        self.scripts.as_ref().unwrap_or_else(|| panic!("only the rig's members can be entered"))
    }
}

/// The address as it stands in a URL.
#[must_use]
pub fn in_url(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// The strings of a JSON array of addresses, or of objects with an address under `field`.
fn addresses(list: &Value, field: &str) -> Vec<IpAddr> {
    let entries = list.as_array().into_iter().flatten();
    let texts = entries.filter_map(|entry| entry.as_str().or_else(|| entry[field].as_str()));
    texts.filter_map(|text| text.parse().ok()).collect()
}
