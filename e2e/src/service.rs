//! Services as kube-proxy translates them on a node: the same hooks, marks and conditions, for one backend each.
//!
//! The one liberty: a rule takes all ports and keeps the port, so that a backend can listen on any.

use std::{fmt::Write as _, net::IpAddr};

use crate::{Netns, Node, netns::succeed};

/// How kube-proxy talks to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `--proxy-mode=nftables`.
    Nftables,
    /// `--proxy-mode=iptables`.
    Iptables,
}

/// Where a Service is reached, and so whose traffic is masqueraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By a virtual address.
    ClusterIp,
    /// By a node's address, `externalTrafficPolicy: Cluster`: by any node, which masquerades.
    NodePort,
    /// By a node's address, `externalTrafficPolicy: Local`: by the backend's node, which keeps the client's address.
    NodePortLocal,
}

/// A Service with one backend.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// How it is reached.
    pub kind: Kind,
    /// Where: the virtual address, or the node's own.
    pub address: IpAddr,
    /// The pod behind it.
    pub backend: IpAddr,
}

/// The ports of Services: those on which listeners of the harness are.
const PORTS: (u16, u16) = (32_768, 60_999);
const MASQUERADE: &str = "0x4000";

/// The rules of a node, removed on drop.
#[derive(Debug)]
pub struct Rules<'a> {
    netns: &'a Netns,
    mode: Mode,
}

impl<'a> Rules<'a> {
    /// Makes the node translate `services`. `cluster` are the cluster CIDRs (`--detect-local-mode=ClusterCIDR`).
    ///
    /// # Panics
    /// The kernel refuses the rules.
    #[must_use]
    #[track_caller]
    pub fn install(node: &'a Node, mode: Mode, cluster: &[&str], services: &[Service]) -> Self {
        let rules = Self { netns: &node.netns, mode };
        for v4 in [true, false] {
            let Some(cluster) = cluster.iter().find(|net| net.contains('.') == v4) else { continue };
            let services: Vec<_> =
                services.iter().copied().filter(|service| service.address.is_ipv4() == v4).collect();
            match mode {
                Mode::Nftables => rules.feed("nft", &["-f", "-"], &nftables(v4, cluster, &services)),
                Mode::Iptables => {
                    let restore = if v4 { "iptables-restore" } else { "ip6tables-restore" };
                    rules.feed(restore, &["--noflush"], &iptables(cluster, &services));
                }
            }
        }
        rules
    }

    #[track_caller]
    fn feed(&self, program: &str, arguments: &[&str], script: &str) {
        succeed(self.netns.command(program).args(arguments), Some(script));
    }

    /// Packets that the node has dropped because its connection tracking took them for invalid.
    ///
    /// # Panics
    /// The rules are not there.
    #[must_use]
    #[track_caller]
    pub fn invalid(&self) -> u64 {
        let counters: Vec<u64> = match self.mode {
            Mode::Nftables => {
                let text = self.netns.run("nft list ruleset");
                let rules = text.lines().filter(|line| line.contains("ct state invalid"));
                rules
                    .filter_map(|line| line.split("packets ").nth(1)?.split(' ').next()?.parse().ok())
                    .collect()
            }
            Mode::Iptables => ["iptables", "ip6tables"]
                .iter()
                .flat_map(|tool| {
                    let text = self.netns.run(&format!("{tool} -vnxL KUBE-FORWARD"));
                    let rules = text.lines().filter(|line| line.contains("INVALID"));
                    rules.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect::<Vec<_>>()
                })
                .collect(),
        };
        assert_eq!(counters.len(), 2, "one rule a family");
        counters.iter().sum()
    }
}

impl Drop for Rules<'_> {
    fn drop(&mut self) {
        let lines: &[&str] = match self.mode {
            Mode::Nftables => &["nft delete table ip kube-proxy", "nft delete table ip6 kube-proxy"],
            Mode::Iptables => &[
                "iptables -t nat -F",
                "iptables -t nat -X",
                "iptables -F",
                "iptables -X",
                "ip6tables -t nat -F",
                "ip6tables -t nat -X",
                "ip6tables -F",
                "ip6tables -X",
            ],
        };
        for line in lines {
            // What is not there need not go.
            let _gone = self.netns.output(line);
        }
    }
}

fn nftables(v4: bool, cluster: &str, services: &[Service]) -> String {
    let ip = if v4 { "ip" } else { "ip6" };
    let ports = format!("{}-{}", PORTS.0, PORTS.1);
    let mut script = format!(
        "table {ip} kube-proxy {{\n\
         \tchain mark-for-masquerade {{ meta mark set meta mark or {MASQUERADE}\n}}\n\
         \tchain masquerading {{\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n\
         \t\tmeta mark & {MASQUERADE} == 0 return\n\t\tmeta mark set meta mark xor {MASQUERADE}\n\
         \t\tmasquerade fully-random\n\t}}\n\
         \tchain filter-forward {{\n\t\ttype filter hook forward priority filter; policy accept;\n\
         \t\tct state invalid counter drop\n\t}}\n"
    );
    let mut jumps = String::new();
    // Writing to a String cannot fail.
    for (number, service) in services.iter().enumerate() {
        let (address, backend) = (service.address, service.backend);
        let _ = write!(
            script,
            "\tchain endpoint-{number} {{\n\t\t{ip} saddr {backend} jump mark-for-masquerade\n\
             \t\tmeta l4proto {{ tcp, udp }} dnat to {backend}\n\t}}\n\tchain service-{number} {{\n{}\
             \t\tgoto endpoint-{number}\n\t}}\n",
            match service.kind {
                Kind::ClusterIp => format!("\t\t{ip} saddr != {cluster} jump mark-for-masquerade\n"),
                Kind::NodePort => "\t\tjump mark-for-masquerade\n".to_owned(),
                Kind::NodePortLocal => String::new(),
            }
        );
        let _ = writeln!(
            jumps,
            "\t\t{ip} daddr {address} meta l4proto {{ tcp, udp }} th dport {ports} goto service-{number}"
        );
    }
    for hook in ["prerouting priority dstnat", "output priority -100"] {
        let name = &hook[..3];
        let _ =
            write!(script, "\tchain nat-{name} {{\n\t\ttype nat hook {hook}; policy accept;\n{jumps}\t}}\n");
    }
    script + "}\n"
}

fn iptables(cluster: &str, services: &[Service]) -> String {
    let (mut chains, mut rules) = (String::new(), String::new());
    for (number, service) in services.iter().enumerate() {
        let (address, backend) = (service.address, service.backend);
        let _ = write!(chains, ":KUBE-SVC-{number} - [0:0]\n:KUBE-SEP-{number} - [0:0]\n");
        let mark = match service.kind {
            Kind::ClusterIp => format!("-A KUBE-SVC-{number} ! -s {cluster} -j KUBE-MARK-MASQ\n"),
            Kind::NodePort => format!("-A KUBE-SVC-{number} -j KUBE-MARK-MASQ\n"),
            Kind::NodePortLocal => String::new(),
        };
        let _ = write!(
            rules,
            "{mark}-A KUBE-SVC-{number} -j KUBE-SEP-{number}\n\
             -A KUBE-SEP-{number} -s {backend} -j KUBE-MARK-MASQ\n"
        );
        for protocol in ["tcp", "udp"] {
            let target = if backend.is_ipv4() { backend.to_string() } else { format!("[{backend}]") };
            let _ = write!(
                rules,
                "-A KUBE-SEP-{number} -p {protocol} -j DNAT --to-destination {target}\n\
                 -A KUBE-SERVICES -d {address} -p {protocol} -m {protocol} --dport {}:{} -j KUBE-SVC-{number}\n",
                PORTS.0, PORTS.1
            );
        }
    }
    format!(
        "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n:KUBE-POSTROUTING - [0:0]\n{chains}\
         -A PREROUTING -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\n-A POSTROUTING -j KUBE-POSTROUTING\n\
         -A KUBE-MARK-MASQ -j MARK --or-mark {MASQUERADE}\n\
         -A KUBE-POSTROUTING -m mark ! --mark {MASQUERADE}/{MASQUERADE} -j RETURN\n\
         -A KUBE-POSTROUTING -j MARK --xor-mark {MASQUERADE}\n\
         -A KUBE-POSTROUTING -j MASQUERADE --random-fully\n{rules}COMMIT\n\
         *filter\n:KUBE-FORWARD - [0:0]\n-A FORWARD -j KUBE-FORWARD\n\
         -A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n\
         -A KUBE-FORWARD -m mark --mark {MASQUERADE}/{MASQUERADE} -j ACCEPT\n\
         -A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\nCOMMIT\n"
    )
}
