//! A node: a namespace with uplinks, an agent, and what a runtime does there.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::Value;

use crate::{
    Netns, Pod,
    agent::{Agent, Start},
    cni::Runtime,
    config, host,
    site::Site,
    underlay::Host,
    wait_for, wait_until,
};

/// An agent is ready long before; a slow machine gets time.
const READY: Duration = Duration::from_secs(30);

/// A node.
#[derive(Debug)]
pub struct Node {
    /// 1..; also its node number in SIDs.
    pub number: u8,
    /// `node-a`, …
    pub name: String,
    /// Its namespace.
    pub netns: Netns,
    /// Its uplinks' names.
    pub uplinks: Vec<String>,
    /// Its address on the first uplink.
    pub address: Ipv6Addr,
    /// Its IPv4 address on the first uplink.
    pub address4: Ipv4Addr,
    /// Everything on disk.
    pub folder: PathBuf,
    prefix: String,
    agent: Mutex<Option<Agent>>,
    boot_id: Mutex<Option<String>>,
}

impl Node {
    /// Writes the configuration and mounts a bpffs; starts nothing.
    #[track_caller]
    pub(crate) fn new(host: Host, config: &Value, site: &Site) -> Self {
        let name = config::node_name(host.number);
        let node = Self {
            folder: site.folder().join(&name),
            prefix: host.netns.name().to_owned(),
            number: host.number,
            name,
            netns: host.netns,
            uplinks: host.uplinks,
            address: host.address,
            address4: host.address4,
            agent: Mutex::default(),
            boot_id: Mutex::default(),
        };
        for folder in ["bpf", "net.d", "run", "state"] {
            fs::create_dir_all(node.folder.join(folder)).expect("make the node's folders");
        }
        node.mount_bpf();
        node.write_config(config);
        node
    }

    /// Starts the agent and waits until it is ready.
    ///
    /// # Panics
    /// It runs already, or does not become ready.
    #[track_caller]
    pub fn start_agent(&self) {
        self.spawn_agent();
        self.wait_ready();
    }

    /// Starts the agent without waiting.
    #[track_caller]
    pub fn spawn_agent(&self) {
        self.spawn_agent_binary(host::agent_binary());
    }

    /// Starts another build of the agent without waiting.
    ///
    /// # Panics
    /// One runs already.
    #[track_caller]
    pub fn spawn_agent_binary(&self, binary: PathBuf) {
        let mut agent = self.agent();
        assert!(agent.is_none(), "{}: the agent runs already", self.name);
        let boot_id = self.boot_id.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Start { binary, netns: &self.netns, folder: &self.folder, boot_id: boot_id.as_deref() };
        *agent = Some(Agent::start(&start));
    }

    /// Waits until the agent is ready: `/readyz` says so, and the conflist is there.
    ///
    /// # Panics
    /// It ends, or is not ready in time.
    #[track_caller]
    pub fn wait_ready(&self) {
        let what = format!("{}: the agent gets ready", self.name);
        wait_until(&what, READY, || {
            if let Some(status) = self.agent().as_mut().expect("an agent was started").exit_status() {
                panic!("{}: the agent ended with {status}\n{}", self.name, self.log());
            }
            self.conflist_path().exists() && self.http("/readyz").is_some_and(|(status, _)| status == 200)
        });
    }

    /// `kill -9`.
    ///
    /// # Panics
    /// No agent runs.
    #[track_caller]
    pub fn kill_agent(&self) {
        self.agent().take().expect("an agent runs").kill();
    }

    /// SIGTERM and wait.
    ///
    /// # Panics
    /// No agent runs, or it does not end well.
    #[track_caller]
    pub fn stop_agent(&self) {
        self.agent().take().expect("an agent runs").stop();
    }

    /// The running agent.
    pub fn agent(&self) -> MutexGuard<'_, Option<Agent>> {
        self.agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the machine loses when it restarts: processes, links of ours, BPF state, the boot id. Files stay.
    /// Pods have to be dropped before (or after: their namespaces are no longer connected).
    #[track_caller]
    pub fn reboot(&self) {
        if let Some(agent) = self.agent().take() {
            agent.kill();
        }
        umount2(&self.folder.join("bpf"), MntFlags::MNT_DETACH).expect("unmount the node's bpffs");
        self.mount_bpf();
        for link in self.netns.links().iter().filter(|link| link.starts_with("hw")) {
            // Removing one end of a pair takes the other with it.
            let _gone = self.netns.output(&format!("ip link del {link}"));
        }
        self.netns.run("nft flush ruleset");
        fs::remove_dir_all(self.folder.join("run")).expect("empty the run folder");
        fs::create_dir_all(self.folder.join("run")).expect("make the run folder");
        let id = format!("{:08x}-0000-4000-8000-{:012x}", std::process::id(), fresh());
        *self.boot_id.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
    }

    fn mount_bpf(&self) {
        let nothing: Option<&str> = None;
        let mounted = mount(Some("bpf"), &self.folder.join("bpf"), Some("bpf"), MsFlags::empty(), nothing);
        mounted.expect("mount the node's bpffs");
    }

    /// The configuration, as written last.
    ///
    /// # Panics
    /// It cannot be read.
    #[must_use]
    pub fn config(&self) -> Value {
        let text = fs::read(self.folder.join("node.yaml")).expect("read node.yaml");
        serde_json::from_slice(&text).expect("the harness writes JSON")
    }

    /// Replaces the configuration (the agent notices by itself).
    ///
    /// # Panics
    /// It cannot be written.
    pub fn write_config(&self, config: &Value) {
        self.write_config_text(&format!("{config:#}\n"));
    }

    /// Replaces the configuration by any text.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn write_config_text(&self, text: &str) {
        let new = self.folder.join("node.yaml.new");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, self.folder.join("node.yaml")))
            .expect("write node.yaml");
    }

    /// The agent's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.join("run/agent.sock")
    }

    /// Where the agent writes the network configuration.
    #[must_use]
    pub fn conflist_path(&self) -> PathBuf {
        self.folder.join("net.d/10-headway.conflist")
    }

    /// The network configuration list.
    ///
    /// # Panics
    /// It is not there, or no JSON.
    #[must_use]
    #[track_caller]
    pub fn conflist(&self) -> Value {
        let text = fs::read(self.conflist_path()).expect("read the conflist");
        serde_json::from_slice(&text).expect("the conflist is JSON")
    }

    /// Names of files below a folder of the state, e.g. `endpoints`; empty if it is not there.
    #[must_use]
    pub fn state_files(&self, below: &str) -> Vec<String> {
        let entries = fs::read_dir(self.folder.join("state").join(below)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// What the agent has printed so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("agent.log")).unwrap_or_default()
    }

    /// Shows the end of the log, for a failed test.
    pub fn print_log(&self) {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        eprintln!("----- {}: last lines of the agent's log", self.name);
        for line in &lines[lines.len().saturating_sub(60)..] {
            eprintln!("{line:.300}");
        }
    }

    /// A runtime on this node.
    #[must_use]
    pub fn runtime(&self) -> Runtime<'_> {
        Runtime::new(&self.netns, self.conflist_path())
    }

    /// A runtime on this node with another network configuration list.
    #[must_use]
    pub fn runtime_with(&self, conflist: PathBuf) -> Runtime<'_> {
        Runtime::new(&self.netns, conflist)
    }

    /// Attaches a pod with `eth0`, as a runtime would.
    ///
    /// # Panics
    /// The plugin fails.
    #[must_use]
    #[track_caller]
    pub fn add_pod(&self, name: &str) -> Pod<'_> {
        let pod = Pod::new(self.runtime(), &self.pod_netns_name(name), name);
        pod.attach()
    }

    /// A namespace for a pod that is not attached yet.
    #[must_use]
    #[track_caller]
    pub fn unattached_pod(&self, name: &str) -> Pod<'_> {
        Pod::new(self.runtime(), &self.pod_netns_name(name), name)
    }

    /// The node's addresses on the segment (`hw0`), IPv4 first; the infrastructure address is none of them.
    ///
    /// # Panics
    /// The gateway link gets no address in time.
    #[must_use]
    #[track_caller]
    pub fn gateway_addresses(&self) -> Vec<IpAddr> {
        wait_for("hw0 has addresses", READY, || {
            let mut addresses = addresses_of(&self.netns, "hw0");
            addresses.retain(|address| *address != config::infrastructure_address(self.number));
            (!addresses.is_empty()).then_some(addresses)
        })
    }

    fn pod_netns_name(&self, pod: &str) -> String {
        format!("{}-{pod}", self.prefix)
    }
}

/// Global addresses of a link, IPv4 first; none if it is not there.
#[must_use]
#[track_caller]
pub fn addresses_of(netns: &Netns, link: &str) -> Vec<IpAddr> {
    if !netns.links().iter().any(|name| name == link) {
        return Vec::new();
    }
    let shown = netns.ip_json(&format!("addr show dev {link} scope global"));
    let mut addresses: Vec<IpAddr> = shown
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|link| link["addr_info"].as_array().cloned().unwrap_or_default())
        .filter_map(|info| info["local"].as_str()?.parse().ok())
        .collect();
    addresses.sort();
    addresses
}

fn fresh() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}
