//! The agent of a node: thin shells around `agent-core`.
//!
//! ```text
//! cni_server --+
//! http --------+--> Input --> agent (owns World) --> reconcile --> dataplane --> netlink, eBPF, nft, files
//! watch -------+                |
//!                              store
//! ```

pub mod agent;
pub mod cleanup;
pub mod clock;
pub mod cluster;
pub mod cni_server;
pub mod config;
pub mod conflist_file;
pub mod dataplane;
pub mod halted;
pub mod http;
pub mod kube;
pub mod lock;
pub mod metrics;
pub mod netlink;
pub mod plugin_file;
pub mod probes;
pub mod reconcile;
pub mod replace_file;
pub mod status;
pub mod store;
pub mod telemetry;
pub mod waiting;
pub mod watch;
