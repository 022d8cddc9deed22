//! The switch on a real kernel: frames go in at one end and are looked at where they come out.
//!
//! Each test makes namespaces of its own and drives [`agent_switch::Switch`] directly. `ip` and `ethtool` set things
//! up. Needs root; without it every test says so and passes, unless `HEADWAY_REQUIRE_ROOT=1`.
#![cfg(test)]

mod addresses;
mod allowed;
mod bytes;
mod congestion;
mod cost;
mod flooding;
mod foreign;
mod node;
mod offload;
mod packets;
mod pod;
mod received;
mod replacement;
mod root;
mod segmentation;
mod services;
mod stream;
mod tables;
mod tap;
mod too_big;
mod wire;
mod without_ip4;
mod world;
