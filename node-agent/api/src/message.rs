//! Requests and responses, versioned as a whole.

use std::{collections::BTreeMap, fmt, net::IpAddr, path::PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::MacAddress;

/// Version of the protocol. Minor grows with additions that the other side may ignore; an agent serves every
/// minor of its own major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Both sides must have the same.
    pub major: u32,
    /// Additive changes.
    pub minor: u32,
}

impl Version {
    /// What this build speaks.
    pub const CURRENT: Self = Self { major: 1, minor: 0 };
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// One request line. The version comes first so that it can be read whatever follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// What the sender speaks.
    pub version: Version,
    /// What it wants.
    pub verb: Verb,
}

/// What the plugin can ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// ADD, first half. Answer: [`Reply::Assigned`].
    Reserve(Reserve),
    /// ADD, second half. Answer: [`Reply::Done`] once the switch knows the endpoint.
    Activate(Activate),
    /// DEL, or undo of a failed ADD. Answer: [`Reply::Done`], also if nothing was there.
    Release(Release),
    /// CHECK. Answer: [`Reply::Problems`].
    Check(Check),
    /// STATUS. Answer: [`Reply::Readiness`].
    Status,
    /// GC. Answer: [`Reply::Done`].
    Gc(Gc),
    /// `headway-agent status`. Answer: [`Reply::Report`].
    Report,
}

/// One response line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// What the agent speaks.
    pub version: Version,
    /// What it says.
    pub result: Result<Reply, Refusal>,
}

/// What the agent can answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    /// It is done.
    Done,
    /// To [`Verb::Reserve`].
    Assigned(Assignment),
    /// To [`Verb::Check`]: what is wrong, in sentences; empty if nothing is.
    Problems(Vec<String>),
    /// To [`Verb::Status`].
    Readiness(Readiness),
    /// To [`Verb::Report`]: the agent's status document, whose form is the agent's own.
    Report(serde_json::Value),
}

/// Why the agent does not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What the caller can do about it.
    pub kind: ErrorKind,
    /// What is wrong, in a sentence that names the thing and its value.
    pub message: String,
}

/// Refusals by what the caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ErrorKind {
    /// The protocol versions do not go together.
    Version,
    /// The request is malformed or asks for something impossible.
    Invalid,
    /// Asked for something that this release does not do yet.
    Unsupported,
    /// The attachment exists already and is in use.
    Exists,
    /// No such attachment or reservation.
    NotFound,
    /// The address pool or another limit is exhausted.
    Exhausted,
    /// Later it may work: the agent is starting, or the kernel refused for now.
    TryAgain,
    /// The agent failed.
    Internal,
}

/// What identifies an attachment (CNI specification 1.1.0, section 2: container id and ifname, per network).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentKey {
    /// Network name of the CNI configuration.
    pub network: String,
    /// `CNI_CONTAINERID`.
    pub container: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
}

impl fmt::Display for AttachmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.network, self.container, self.ifname)
    }
}

/// The pod behind an attachment, as far as the runtime says (`CNI_ARGS` `K8S_POD_*`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// Namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// UID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// First half of ADD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reserve {
    /// The attachment.
    pub key: AttachmentKey,
    /// Path of the pod's network namespace.
    pub netns: PathBuf,
    /// Inode of that namespace: the path may come to mean another one.
    pub netns_inode: u64,
    /// The pod.
    #[serde(default)]
    pub pod: Pod,
}

/// What the plugin has to build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// Names this reservation: undo and activation work on it only.
    pub nonce: String,
    /// Name of the link on the node.
    pub host_ifname: String,
    /// Its MAC.
    pub host_mac: MacAddress,
    /// MAC of the pod's interface.
    pub mac: MacAddress,
    /// MTU of both ends, bytes.
    pub mtu: u32,
    /// Addresses of the pod's interface with the on-link prefix length of the cluster, at most one a family.
    pub addresses: Vec<IpNet>,
    /// The pod's routes beside the on-link ones.
    pub routes: Vec<Route>,
    /// `tx_extra_headroom` of both ends, bytes (0..=512); 0: leave it alone.
    pub headroom: u32,
    /// Number of `IFLA_TX_EXTRA_HEADROOM` in the running kernel (it differs between trees, so the agent looks it
    /// up in BTF once, at start); absent: this kernel has no such attribute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headroom_attribute: Option<u16>,
}

/// A route of the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// Destination.
    pub destination: IpNet,
    /// Next hop.
    pub gateway: IpAddr,
}

/// Second half of ADD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Activate {
    /// The attachment.
    pub key: AttachmentKey,
    /// From the assignment.
    pub nonce: String,
    /// Interface index of the link on the node.
    pub host_ifindex: u32,
    /// What the kernel said to the headroom.
    pub headroom: HeadroomOutcome,
}

/// What the kernel said to `tx_extra_headroom`, found by reading it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HeadroomOutcome {
    /// Nothing was asked for.
    Off,
    /// Both ends have the value.
    Applied(u32),
    /// The kernel does not know the attribute.
    Unsupported,
    /// The kernel knows the attribute and does not have the value: its error, or what was read back.
    Refused(String),
}

/// End of an attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// The attachment.
    pub key: AttachmentKey,
    /// With a nonce only that reservation is released (undo of a failed ADD), else whatever has the key (DEL).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
}

/// CHECK: the plugin has looked into the pod; the agent looks at the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// The attachment.
    pub key: AttachmentKey,
    /// Inode of the namespace in which the pod's interface was found.
    pub netns_inode: u64,
    /// Interface index of the pod's interface's peer, as the kernel shows it.
    pub host_ifindex: u32,
    /// MAC of the pod's interface.
    pub mac: MacAddress,
    /// MTU of the pod's interface, bytes.
    pub mtu: u32,
    /// Addresses of the pod's interface, link-local ones left out.
    pub addresses: Vec<IpNet>,
    /// All four-byte attributes of the pod's interface, by number, as RTM_GETLINK shows them. The agent knows which of
    /// them is `tx_extra_headroom`, if this kernel has it; the plugin would have to search BTF on each CHECK.
    #[serde(default)]
    pub attributes: BTreeMap<u16, u32>,
}

/// GC: what the runtime still has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gc {
    /// Only attachments of this network are looked at.
    pub network: String,
    /// (container id, ifname) of the attachments to keep.
    pub keep: Vec<(String, String)>,
}

/// Can this node take pods?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Readiness {
    /// Yes.
    Ready,
    /// No, for this reason.
    NotReady(String),
}
