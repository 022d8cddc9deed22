//! The core, in worlds made up for it.

mod decisions;
mod properties;
mod worlds;
