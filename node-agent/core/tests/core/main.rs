//! The core, in worlds made up for it.

mod decisions;
mod probing;
mod properties;
mod publishing;
mod worlds;
