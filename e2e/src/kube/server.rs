//! A pod that answers over HTTP and UDP, and asks others on demand (upstream's agnhost).

use serde_json::{Value, json};

/// The image that upstream's own tests use.
const IMAGE: &str = "registry.k8s.io/e2e-test-images/agnhost:2.66.1";
/// Port of its HTTP server.
pub const HTTP: u16 = 8080;
/// Port of its UDP server.
pub const UDP: u16 = 8081;
/// Bytes of its largest UDP reply (`envvar BIG`): more than any MTU, so that it comes in fragments.
pub const UDP_REPLY: usize = 4000;

/// What is asked of Kubernetes for one such pod.
#[derive(Clone, Debug)]
pub struct Server {
    /// The pod's name; also its label `app`.
    pub name: String,
    node: String,
    group: &'static str,
    host_network: bool,
    host_port: Option<u16>,
    ports: (u16, u16),
}

impl Server {
    /// On the node of that name.
    #[must_use]
    pub fn new(name: &str, node: &str) -> Self {
        let (name, node) = (name.to_owned(), node.to_owned());
        Self { name, node, group: "none", host_network: false, host_port: None, ports: (HTTP, UDP) }
    }

    /// With the label `group`, for Services with several backends.
    #[must_use]
    pub fn group(mut self, group: &'static str) -> Self {
        self.group = group;
        self
    }

    /// In the node's own network namespace, on ports of its own.
    #[must_use]
    pub fn host_network(mut self, http: u16, udp: u16) -> Self {
        (self.host_network, self.ports) = (true, (http, udp));
        self
    }

    /// Its HTTP port also on the node's addresses.
    #[must_use]
    pub fn host_port(mut self, port: u16) -> Self {
        self.host_port = Some(port);
        self
    }

    /// Its HTTP port.
    #[must_use]
    pub const fn http(&self) -> u16 {
        self.ports.0
    }

    /// The pod as the API server takes it.
    #[must_use]
    pub fn manifest(&self, namespace: &str) -> Value {
        let (http, udp) = self.ports;
        let mut port = json!({"name": "http", "containerPort": http});
        if let Some(host_port) = self.host_port {
            port["hostPort"] = host_port.into();
        }
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name, "namespace": namespace, "labels": {"app": self.name, "group": self.group},
            },
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": self.node},
                "hostNetwork": self.host_network,
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "server",
                    "image": IMAGE,
                    "args": ["netexec", format!("--http-port={http}"), format!("--udp-port={udp}")],
                    "env": [{"name": "BIG", "value": "b".repeat(UDP_REPLY)}],
                    "ports": [port],
                    "readinessProbe": {"httpGet": {"path": "/healthz", "port": http}, "periodSeconds": 1},
                }],
            },
        })
    }
}
