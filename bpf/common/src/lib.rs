//! What the eBPF programs and the node agent must agree on: map layouts, names and limits.
//!
//! Addresses in maps are in network byte order, held in the widest integers that fit, because the programs
//! compare them as loaded from the packet: an IPv4 address is a `u32`, an IPv6 address `[u32; 4]`, a MAC
//! `[u16; 3]`, each made from its octets with `from_ne_bytes`.
#![cfg_attr(not(test), no_std)]

pub mod counters;
pub mod flow;
pub mod mac;
pub mod maps;
pub mod names;
pub mod program;
pub mod sid;
