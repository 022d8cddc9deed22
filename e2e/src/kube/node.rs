//! A node as the API server has it.

use std::net::IpAddr;

use serde_json::Value;

/// A Ready node.
#[derive(Clone, Debug)]
pub struct KubeNode {
    /// Its name.
    pub name: String,
    /// Its InternalIPs.
    pub addresses: Vec<IpAddr>,
    /// Where its pods' addresses come from, as text.
    pub pod_cidrs: Vec<String>,
}

impl KubeNode {
    /// Reads a Node object; `None` if it is not Ready, or takes no pods.
    pub(super) fn read(node: &Value) -> Option<Self> {
        let all = |list: &Value| list.as_array().cloned().unwrap_or_default();
        let taken = all(&node["spec"]["taints"]).iter().any(|taint| taint["effect"] != "PreferNoSchedule");
        let ready = all(&node["status"]["conditions"])
            .iter()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        let internal: Vec<Value> = all(&node["status"]["addresses"])
            .into_iter()
            .filter(|address| address["type"] == "InternalIP")
            .collect();
        let pod_cidrs = all(&node["spec"]["podCIDRs"]);
        (ready && !taken).then(|| Self {
            name: node["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            addresses: super::addresses(&Value::Array(internal), "address"),
            pod_cidrs: pod_cidrs.iter().filter_map(|cidr| Some(cidr.as_str()?.to_owned())).collect(),
        })
    }
}
