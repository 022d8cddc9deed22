//! The real binary, started as a runtime starts it: in a network namespace that stands for the node, for pods that
//! are network namespaces, beside an agent that says what the test wants. `ip -j` is the witness.

#![expect(clippy::unwrap_used, reason = "a test panics where something is not as it should be")]

mod add;
mod agent;
mod check;
mod del;
mod gc;
mod headroom;
mod protocol;
mod rig;
mod status;
