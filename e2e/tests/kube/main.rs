//! headway as the network plugin of a real Kubernetes cluster, with its kubelets, containerd and kube-proxy.
//!
//! `make e2e-kube` starts the rig and runs this; with `KUBECONFIG` what needs no rig runs against that cluster.

mod dns;
mod node_ports;
mod objects;
mod outside;
mod pods;
mod segment;
mod services;
mod webhook;
