//! The objects of `headway.dev/v1alpha1`, as the API server stores them.
//!
//! Fields are plain strings and numbers, not the core's checked types: an object that a later release has written, or that
//! slipped through an older schema, has to be readable so that it can be refused by itself and not with all others.

pub mod convert;
mod locator;
mod node;

pub use locator::{Locator, LocatorSpec};
pub use node::{HeadroomStatus, HeadwayNode, HeadwayNodeFields, HeadwayNodeStatus, PeersStatus};

/// API group of the objects.
pub const GROUP: &str = "headway.dev";
/// Their version.
pub const VERSION: &str = "v1alpha1";
