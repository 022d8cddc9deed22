//! Builds clusters.

use serde_json::Value;

use crate::{
    Node, config,
    site::Site,
    underlay::{Fabric, Plan, Underlay},
};

/// Address families of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
    /// Both.
    Dual,
}

impl Families {
    /// Of a thing for IPv4 and one for IPv6 those that apply.
    #[must_use]
    pub fn pick<T>(self, v4: T, v6: T) -> Vec<T> {
        match self {
            Self::V4 => vec![v4],
            Self::V6 => vec![v6],
            Self::Dual => vec![v4, v6],
        }
    }
}

type Edit = Box<dyn Fn(u8, &mut Value)>;

/// Describes a cluster; [`start`](Self::start) makes it.
#[must_use]
pub struct Builder {
    nodes: u8,
    families: Families,
    fabric: Fabric,
    uplinks: u8,
    mtu: u32,
    node_mtus: Vec<(u8, u32)>,
    checksum_offload: bool,
    edits: Vec<Edit>,
}

impl Builder {
    /// Number of nodes (default 2).
    pub fn nodes(mut self, nodes: u8) -> Self {
        self.nodes = nodes;
        self
    }

    /// Address families of pods (default both).
    pub fn families(mut self, families: Families) -> Self {
        self.families = families;
        self
    }

    /// Nodes reach each other through a router, instead of on one link.
    pub fn routed(mut self) -> Self {
        self.fabric = Fabric::Router;
        self
    }

    /// Uplinks of each node (default 1).
    pub fn uplinks(mut self, uplinks: u8) -> Self {
        self.uplinks = uplinks;
        self
    }

    /// MTU of all uplinks, bytes (default 1500).
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = mtu;
        self
    }

    /// MTU of one node's uplinks.
    pub fn node_mtu(mut self, node: u8, mtu: u32) -> Self {
        self.node_mtus.push((node, mtu));
        self
    }

    /// Uplinks pass uncomputed checksums on, as plain veth does (default: they are computed and verified).
    pub fn checksum_offload(mut self) -> Self {
        self.checksum_offload = true;
        self
    }

    /// Edits every node's configuration before its agent starts: gets the node's number (1..) and the file.
    pub fn config(mut self, edit: impl Fn(u8, &mut Value) + 'static) -> Self {
        self.edits.push(Box::new(edit));
        self
    }

    /// Builds the underlay, starts an agent on each node and waits until all are ready.
    ///
    /// # Panics
    /// Something refuses; the agents' logs are printed.
    #[must_use]
    #[track_caller]
    pub fn start(self) -> Cluster {
        let cluster = self.prepare();
        cluster.nodes.iter().for_each(Node::spawn_agent);
        cluster.nodes.iter().for_each(Node::wait_ready);
        cluster
    }

    /// Builds everything but starts no agent.
    ///
    /// # Panics
    /// The kernel refuses something.
    #[must_use]
    #[track_caller]
    pub fn prepare(self) -> Cluster {
        let site = Site::new();
        let mut mtus = vec![self.mtu; self.nodes.into()];
        for (node, mtu) in &self.node_mtus {
            mtus[usize::from(*node) - 1] = *mtu;
        }
        let plan = Plan {
            fabric: self.fabric,
            mtus,
            uplinks: self.uplinks,
            checksum_offload: self.checksum_offload,
            prefixes: (1..=self.nodes).map(config::locator).collect(),
            block: config::SID_BLOCK.to_owned(),
        };
        let mut underlay = Underlay::build(&site, &plan);
        let folder = site.folder();
        let mut configs: Vec<Value> = Vec::new();
        for host in &underlay.hosts {
            let folder = folder.join(config::node_name(host.number));
            let mut config = config::of_node(host, &underlay.hosts, self.families, &folder);
            self.edits.iter().for_each(|edit| edit(host.number, &mut config));
            configs.push(config);
        }
        let hosts = std::mem::take(&mut underlay.hosts);
        let nodes =
            hosts.into_iter().zip(configs).map(|(host, config)| Node::new(host, &config, &site)).collect();
        Cluster { nodes, underlay, families: self.families, site }
    }
}

/// Nodes with agents on an underlay.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order: nodes stop their agents before the namespaces and files go.
    nodes: Vec<Node>,
    /// The network between them (its hosts have become the nodes).
    pub underlay: Underlay,
    /// Address families of pods.
    pub families: Families,
    /// Names and files.
    pub site: Site,
}

impl Cluster {
    /// Two dual-stack nodes on one link with MTU 1500, unless told otherwise.
    pub fn builder() -> Builder {
        Builder {
            nodes: 2,
            families: Families::Dual,
            fabric: Fabric::Bridge,
            uplinks: 1,
            mtu: 1500,
            node_mtus: Vec::new(),
            checksum_offload: false,
            edits: Vec::new(),
        }
    }

    /// A node by its number, 1 = `node-a`.
    ///
    /// # Panics
    /// There is no such node.
    #[must_use]
    #[track_caller]
    pub fn node(&self, number: u8) -> &Node {
        self.nodes.get(usize::from(number) - 1).unwrap_or_else(|| panic!("the cluster has no node {number}"))
    }

    /// The first node.
    #[must_use]
    pub fn a(&self) -> &Node {
        self.node(1)
    }

    /// The second node.
    ///
    /// # Panics
    /// There is only one.
    #[must_use]
    pub fn b(&self) -> &Node {
        self.node(2)
    }

    /// All nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.nodes.iter().for_each(Node::print_log);
        }
    }
}
