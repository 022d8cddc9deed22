//! The core, in worlds made up for it.

mod cluster;
mod decisions;
mod identity;
mod membership;
mod probing;
mod properties;
mod publishing;
mod worlds;
