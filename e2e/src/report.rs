//! What a node's agent says about itself.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::Command,
    time::Duration,
};

use serde_json::Value;

use crate::{Node, host, netns, wait_until};

impl Node {
    /// `headway-agent ARGUMENTS` in the node's namespace.
    ///
    /// # Panics
    /// It fails.
    #[track_caller]
    pub fn agent_command(&self, arguments: &[&str]) -> String {
        let output = netns::succeed(&mut self.agent_command_line(arguments), None);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// `headway-agent ARGUMENTS`, not yet run.
    #[must_use]
    pub fn agent_command_line(&self, arguments: &[&str]) -> Command {
        let mut command = self.netns.command(host::agent_binary());
        command.args(arguments);
        command
    }

    /// `headway-agent status -o json`.
    ///
    /// # Panics
    /// The agent does not answer.
    #[must_use]
    #[track_caller]
    pub fn status(&self) -> Value {
        let socket = self.socket();
        let text = self.agent_command(&["status", "-o", "json", "--socket", &socket.to_string_lossy()]);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: status: {error}: {text}", self.name))
    }

    /// The attachments that the agent knows, as `container/ifname`, in order.
    ///
    /// # Panics
    /// The agent does not answer.
    #[must_use]
    #[track_caller]
    pub fn attachments(&self) -> Vec<String> {
        let status = self.status();
        let endpoints = status["endpoints"].as_array().unwrap_or_else(|| panic!("no endpoints in {status}"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let names =
            endpoints.iter().map(|one| format!("{}/{}", text(&one["container"]), text(&one["ifname"])));
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// Packets dropped so far by reason.
    ///
    /// # Panics
    /// The agent does not answer.
    #[must_use]
    #[track_caller]
    pub fn drops(&self) -> BTreeMap<String, u64> {
        counters(&self.status()["drops"])
    }

    /// What else happened to packets so far (`local`, `encapsulated`, …).
    ///
    /// # Panics
    /// The agent does not answer.
    #[must_use]
    #[track_caller]
    pub fn events(&self) -> BTreeMap<String, u64> {
        counters(&self.status()["events"])
    }

    /// Waits until at least `count` more packets than in `before` were dropped for `reason`.
    ///
    /// # Panics
    /// That does not happen.
    #[track_caller]
    pub fn wait_dropped(&self, before: &BTreeMap<String, u64>, reason: &str, count: u64) {
        let base =
            *before.get(reason).unwrap_or_else(|| panic!("the status knows no drop reason {reason:?}"));
        let what = format!("{}: {count} more drops for {reason} (before: {before:?})", self.name);
        wait_until(&what, Duration::from_secs(5), || self.drops()[reason] >= base + count);
    }

    /// Processor time that the running agent has used so far.
    ///
    /// # Panics
    /// No agent runs.
    #[must_use]
    pub fn agent_processor_time(&self) -> Duration {
        let pid = self.agent().as_ref().expect("an agent runs").pid();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the agent runs");
        // proc_pid_stat(5): utime and stime are fields 14 and 15, counted behind the parenthesised name.
        let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let ticks: u32 = fields.skip(11).take(2).filter_map(|field| field.parse::<u32>().ok()).sum();
        ticks * Duration::from_millis(10)
    }

    /// Entries of a map of the switch, as bpftool sees them.
    ///
    /// # Panics
    /// There is no such map.
    #[must_use]
    #[track_caller]
    pub fn map_entries(&self, map: &str) -> usize {
        let bpf = self.folder.join("bpf");
        let layouts =
            std::fs::read_dir(&bpf).expect("list the bpffs").flatten().map(|entry| entry.path().join(map));
        let pin =
            layouts.into_iter().find(|pin| pin.exists()).unwrap_or_else(|| panic!("{map} is not pinned"));
        let text = self.netns.run(&format!("bpftool -j map dump pinned {}", pin.display()));
        let entries: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{map}: {error}: {text}"));
        entries.as_array().map_or(0, Vec::len)
    }

    /// Network namespaces that the running agent holds open.
    ///
    /// # Panics
    /// No agent runs.
    #[must_use]
    pub fn namespaces_held_by_agent(&self) -> usize {
        let pid = self.agent().as_ref().expect("an agent runs").pid();
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the agent runs").flatten();
        let targets = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("net:[")).count()
    }

    /// GET from the agent's HTTP server: status and body; `None` if nobody answers.
    #[must_use]
    pub fn http(&self, path: &str) -> Option<(u16, String)> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 9476));
        let timeout = Duration::from_secs(2);
        let mut stream = self.netns.enter(|| TcpStream::connect_timeout(&address, timeout)).ok()?;
        stream.set_read_timeout(Some(timeout)).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let status = answer.split(' ').nth(1)?.parse().ok()?;
        Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
    }
}

fn counters(value: &Value) -> BTreeMap<String, u64> {
    let entries = value.as_object().unwrap_or_else(|| panic!("the status holds no counters: {value}"));
    entries.iter().map(|(name, count)| (name.clone(), count.as_u64().unwrap_or_default())).collect()
}
