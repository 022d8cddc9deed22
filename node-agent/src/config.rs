//! The configuration file: read, checked as a whole, turned into what the agent works with.

mod check;
mod conflist;
mod duration;
mod raw;

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::{self, Read},
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use agent_core::{
    addr::{NodeNumber, SidBlock},
    config::{Configuration, LocalNode},
    identity::ClusterPrefixes,
    peer::Peer,
};
use nix::fcntl::OFlag;
use schemars::JsonSchema;
use serde::Deserialize;

/// A checked configuration file.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeConfig {
    /// What the node should be.
    pub configuration: Configuration,
    /// All other nodes.
    pub peers: BTreeMap<NodeNumber, Peer>,
    /// Where the agent keeps its things. Fixed while it runs.
    pub paths: Paths,
    /// Where metrics and probes are served; `None`: nowhere. Fixed while the agent runs.
    pub http: Option<SocketAddr>,
    /// The kernel may hurry while a program is attached. Fixed while the agent runs.
    pub expedite_attach: bool,
}

/// The configuration file of a node in Kubernetes, checked as far as it goes without the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterConfig {
    file: raw::File,
    /// The cluster's pod prefixes.
    pub prefixes: ClusterPrefixes,
    /// The cluster's SID block, if it is set.
    pub sid_block: Option<SidBlock>,
    /// The node's interfaces on the underlay, if they are set.
    pub uplinks: Option<Vec<String>>,
    /// See [`NodeConfig::paths`].
    pub paths: Paths,
    /// Path of the CNI configuration.
    pub conflist: PathBuf,
    /// See [`NodeConfig::http`].
    pub http: Option<SocketAddr>,
    /// See [`NodeConfig::expedite_attach`].
    pub expedite_attach: bool,
}

impl ClusterConfig {
    /// The whole, with what only the cluster knows; it has no peers yet.
    ///
    /// # Errors
    /// [`ConfigError::Values`] if one does not go with the other.
    pub fn join(&self, node: LocalNode, block: SidBlock) -> Result<NodeConfig, ConfigError> {
        check::joined(&self.file, node, block).map_err(ConfigError::Values)
    }
}

/// Where the agent keeps its things.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Paths {
    /// Socket for the CNI plugin and `headway-agent status`.
    pub socket: PathBuf,
    /// Folder for leases and what else outlives the agent.
    pub state: PathBuf,
    /// Folder for pinned eBPF objects. If it is not on a bpffs, one is mounted there.
    pub bpf: PathBuf,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            socket: agent_api::names::SOCKET.into(),
            state: "/var/lib/headway".into(),
            bpf: "/sys/fs/bpf/headway".into(),
        }
    }
}

impl Paths {
    /// Where the plugin leaves word while the agent is away.
    #[must_use]
    pub fn pending(&self) -> PathBuf {
        self.state.join("pending")
    }
}

/// Something wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field, such as `peers[2].podCIDRs[0]`.
    pub field: String,
    /// The value and what would be right.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Why a file is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not YAML of the right form: a syntax error, an unknown key, a value of the wrong type.
    #[error("not a configuration: {0}")]
    Form(String),
    /// These values are wrong, by themselves or with others: all of them.
    #[error("{}", lines(.0))]
    Values(Vec<Problem>),
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Reads and checks the file of a node without Kubernetes.
///
/// # Errors
/// Any [`ConfigError`].
pub fn load(path: &Path) -> Result<NodeConfig, ConfigError> {
    parse(&text(path)?)
}

/// Reads and checks the file of a node in Kubernetes.
///
/// # Errors
/// Any [`ConfigError`].
pub fn load_cluster(path: &Path) -> Result<ClusterConfig, ConfigError> {
    parse_cluster(&text(path)?)
}

/// Where an agent with this file keeps its things, and the path of the CNI configuration: with Kubernetes and without.
///
/// # Errors
/// Any [`ConfigError`].
pub fn places(path: &Path) -> Result<(Paths, PathBuf), ConfigError> {
    check::places(&form(&text(path)?)?).map_err(ConfigError::Values)
}

/// Checks the text of a file of a node without Kubernetes.
///
/// # Errors
/// [`ConfigError::Form`] or [`ConfigError::Values`].
pub fn parse(text: &str) -> Result<NodeConfig, ConfigError> {
    check::standalone(&form(text)?).map_err(ConfigError::Values)
}

/// Checks the text of a file of a node in Kubernetes.
///
/// # Errors
/// [`ConfigError::Form`] or [`ConfigError::Values`].
pub fn parse_cluster(text: &str) -> Result<ClusterConfig, ConfigError> {
    check::cluster(form(text)?).map_err(ConfigError::Values)
}

fn text(path: &Path) -> Result<String, ConfigError> {
    read(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })
}

/// The agent must not wait for a writer, should it be a pipe, or read a device for ever.
fn read(path: &Path) -> io::Result<String> {
    let mut file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map(|_| text)
}

fn form(text: &str) -> Result<raw::File, ConfigError> {
    // As YAML 1.2 has it: `off` is a word.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| ConfigError::Form(error.to_string()))
}

/// The JSON schema of the file.
#[must_use]
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(raw::File)
}

#[cfg(test)]
mod tests;
