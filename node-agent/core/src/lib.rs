//! What a node should look like, as a function of what it knows.
//!
//! ```text
//! Event -> World -> desired() -> Dataplane -> plan(actual, desired) -> Step, Step, ...
//! ```
//! No I/O, clock or randomness: what happens outside comes in as an [`world::Event`], what has to happen outside goes out
//! as [`dataplane::Step`]s.

pub mod addr;
pub mod btf;
pub mod cluster;
pub mod conditions;
pub mod config;
pub mod dataplane;
pub mod desired;
pub mod firewall;
pub mod identity;
pub mod ipam;
pub mod lease;
pub mod membership;
pub mod peer;
pub mod probes;
pub mod published;
pub mod routing;
pub mod sysctls;
pub mod world;
