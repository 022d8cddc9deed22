//! The agent of a node: thin shells around `agent-core`.
pub mod config;
pub mod netlink;
pub mod replace_file;
pub mod store;
