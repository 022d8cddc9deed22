//! A test's own namespace: its pods and Services, and questions from one pod to another.

use std::{collections::BTreeSet, net::IpAddr};

use serde_json::{Value, json};

use super::{HTTP, Kube, PATIENCE, Server, UDP, addresses};
use crate::{Netns, wait_until};

/// Questions in a row that all have to be answered.
const TRIES: usize = 10;

/// How a pod asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// One TCP connection a question.
    Http,
    /// One socket, so one source port, a question.
    Udp,
}

/// A Service as the API server made it.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Its cluster addresses, one a family.
    pub addresses: Vec<IpAddr>,
    /// Node port of its HTTP port.
    pub node_port: Option<u16>,
}

/// A namespace, removed on drop.
#[derive(Debug)]
pub struct Space<'a> {
    kube: &'a Kube,
    name: String,
}

impl<'a> Space<'a> {
    #[track_caller]
    pub(super) fn create(kube: &'a Kube, name: &str) -> Self {
        kube.kubectl(&["create", "namespace", name]);
        Self { kube, name: name.to_owned() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes these pods and waits until all are Ready, which takes a kubelet's probe of each.
    ///
    /// # Panics
    /// One does not become Ready.
    #[track_caller]
    pub fn serve(&self, servers: &[Server]) {
        let manifests: Vec<Value> = servers.iter().map(|server| server.manifest(&self.name)).collect();
        self.kube.apply(&manifests);
        let pods: Vec<String> = servers.iter().map(|server| format!("pod/{}", server.name)).collect();
        let timeout = format!("--timeout={}s", PATIENCE.as_secs());
        let mut wait = vec!["-n", &self.name, "wait", "--for=condition=Ready", &timeout];
        wait.extend(pods.iter().map(String::as_str));
        if let Err(error) = self.kube.try_kubectl(&wait) {
            let events = self.kube.try_kubectl(&["-n", &self.name, "get", "pods,events", "-o", "wide"]);
            panic!("the pods did not become Ready: {error}\n{}", events.unwrap_or_else(|error| error));
        }
    }

    /// The pod's addresses, the first family's first.
    ///
    /// # Panics
    /// There is no such pod, or it has none.
    #[must_use]
    #[track_caller]
    pub fn addresses(&self, pod: &str) -> Vec<IpAddr> {
        let found = addresses(&self.kube.get(&["-n", &self.name, "pod", pod])["status"]["podIPs"], "ip");
        assert!(!found.is_empty(), "{pod} has no address");
        found
    }

    /// The pod's network namespace on a node of the rig.
    ///
    /// # Panics
    /// The cluster is not the rig's, or there is no such pod on that node.
    #[must_use]
    #[track_caller]
    pub fn netns(&self, pod: &str, node: &str) -> Netns {
        let find = format!(
            "crictl inspectp -o go-template --template '{{{{.info.pid}}}}' $(crictl pods -q --namespace {} --name {pod})",
            self.name
        );
        let pid = self.kube.shell_inside(node, &find);
        // That pid counts in the node's own PID namespace, whose /proc the node's first process sees.
        let path = format!("/proc/{}/root/proc/{}/ns/net", self.kube.init_pid(node), pid.trim());
        Netns::of_others(pod, &path)
    }

    /// A Service before the pods with this label, on port 80 (HTTP) and 81 (UDP); `more` goes into its spec.
    ///
    /// # Panics
    /// The API server refuses it.
    #[track_caller]
    pub fn service(&self, name: &str, selector: (&str, &str), more: &Value) -> Service {
        let mut spec = json!({
            "selector": {selector.0: selector.1},
            "ipFamilyPolicy": "PreferDualStack",
            "ports": [
                {"name": "http", "port": 80, "targetPort": HTTP},
                {"name": "udp", "port": 81, "targetPort": UDP, "protocol": "UDP"},
            ],
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let metadata = json!({"name": name, "namespace": self.name});
        self.kube
            .apply(&[json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})]);
        let made = self.kube.get(&["-n", &self.name, "service", name]);
        let node_port = made["spec"]["ports"][0]["nodePort"].as_u64();
        Service {
            name: name.to_owned(),
            addresses: addresses(&made["spec"]["clusterIPs"], ""),
            node_port: node_port.and_then(|port| port.try_into().ok()),
        }
    }

    /// What a command prints in a pod's container.
    ///
    /// # Errors
    /// It fails.
    pub fn try_exec(&self, pod: &str, script: &str) -> Result<String, String> {
        self.kube.try_kubectl(&["-n", &self.name, "exec", pod, "--", "sh", "-ec", script])
    }

    /// What a command prints in a pod's container.
    ///
    /// # Panics
    /// It fails.
    #[track_caller]
    pub fn exec(&self, pod: &str, script: &str) -> String {
        self.try_exec(pod, script).unwrap_or_else(|error| panic!("{pod}: {script}: {error}"))
    }

    /// A pod asks `question` `tries` times: the answers, and what failed.
    ///
    /// # Panics
    /// The pod itself does not answer.
    #[must_use]
    #[track_caller]
    pub fn ask(
        &self,
        from: &Server,
        (protocol, address, port): (Protocol, IpAddr, u16),
        question: &str,
        tries: usize,
    ) -> (Vec<String>, Vec<String>) {
        let protocol = if protocol == Protocol::Http { "http" } else { "udp" };
        let url = format!(
            "http://localhost:{}/dial?host={address}&port={port}&protocol={protocol}&request={question}&tries={tries}",
            from.http()
        );
        let text = self.exec(&from.name, &format!("curl -sS -m 120 '{url}'"));
        let said: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{url}: {error}: {text}"));
        let list = |name: &str| -> Vec<String> {
            let entries = said[name].as_array().into_iter().flatten();
            entries.filter_map(|entry| Some(entry.as_str()?.to_owned())).collect()
        };
        (list("responses"), list("errors"))
    }

    /// Waits until a pod's question is answered (kube-proxy takes a moment), then wants ten answers to ten questions:
    /// gives the different ones.
    ///
    /// # Panics
    /// That does not happen.
    #[track_caller]
    pub fn answers(&self, from: &Server, to: (Protocol, IpAddr, u16), question: &str) -> BTreeSet<String> {
        let what = format!("{} gets an answer from {to:?}", from.name);
        wait_until(&what, PATIENCE, || !self.ask(from, to, question, 1).0.is_empty());
        let (answers, errors) = self.ask(from, to, question, TRIES);
        assert!(errors.is_empty(), "{what}: {} of {TRIES} failed: {errors:?}", errors.len());
        answers.into_iter().collect()
    }
}

impl Drop for Space<'_> {
    fn drop(&mut self) {
        let removed = self.kube.try_kubectl(&["delete", "namespace", &self.name, "--wait=false"]);
        if let Err(error) = removed {
            eprintln!("namespace {}: {error}", self.name);
        }
    }
}
