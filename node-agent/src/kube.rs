//! What the agent and a Kubernetes API server say to each other.

pub mod crds;
pub mod objects;
