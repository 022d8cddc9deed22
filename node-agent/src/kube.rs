//! What the agent and a Kubernetes API server say to each other.

pub mod client;
pub mod crds;
pub mod events;
mod facts;
#[cfg(test)]
mod fake_api;
pub mod memory;
pub mod objects;
pub mod own;
pub mod policies;
pub mod publish;
mod reachability;
pub mod uninstall;
pub mod watch;
