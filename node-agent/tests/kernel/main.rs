//! The real kernel, in network namespaces of the tests' own; what stands there afterwards is read with `ip`, `nft` and `ethtool`.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should panic")]

mod linux;
mod node;
mod scale;
mod scratch;
