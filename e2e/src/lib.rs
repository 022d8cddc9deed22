//! A cluster in network namespaces, driven through the binaries that users get.
//!
//! ```text
//!   pod ns     pod ns            pod ns
//!     eth0       eth0              eth0       attached by `headway` (CNI), as a runtime would
//!      |          |                 |
//!   +--hw…-------hw…--+          +--hw…------+
//!   | node ns a       |          | node ns b |   `headway-agent run` in each
//!   +----- eth0 ------+          +--- eth0 --+   behaves like a NIC: cuts, completes checksums, merges
//!            |                         |
//!       +----+------ fabric ns --------+---+     a bridge, or a router; also "the outside"
//! ```
//! Start with [`Cluster::builder`]. Everything panics with context, waits on conditions, and is removed on drop
//! (or by the next run, if this one is killed).
#![expect(clippy::expect_used, reason = "a test harness: to panic with the context is how it reports")]

pub mod agent;
pub mod capture;
pub mod cluster;
pub mod cni;
pub mod config;
pub mod frame;
pub mod host;
pub mod kube;
pub mod netns;
pub mod node;
pub mod packet_socket;
pub mod pod;
pub mod report;
pub mod rtnetlink;
pub mod service;
pub mod shared;
pub mod site;
pub mod skip;
pub mod stream;
pub mod tcp;
pub mod tcx;
pub mod udp;
pub mod underlay;
pub mod vxlan;
pub mod wait;

pub use capture::Capture;
pub use cluster::{Cluster, Families};
pub use netns::Netns;
pub use node::Node;
pub use packet_socket::PacketSocket;
pub use pod::Pod;
pub use shared::Shared;
pub use wait::{wait_for, wait_until};
