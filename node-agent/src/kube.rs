//! What the agent and a Kubernetes API server say to each other.

pub mod crds;
pub mod events;
#[cfg(test)]
mod fake_api;
pub mod objects;
pub mod own;
pub mod policies;
pub mod publish;
pub mod uninstall;
