//! What the CNI plugin and the node agent say to each other: one JSON line each way on a unix socket.
//!
//! ```text
//! plugin                                     agent
//!   Reserve{key, netns, pod} ------------>     takes an address, stores the lease
//!   <----------- Assignment{nonce, link, addresses, routes, headroom}
//!   (builds the veth pair in the pod's namespace)
//!   Activate{key, nonce, ifindex} ------->     the switch learns the endpoint
//!   <----------------------------- Done        once frames flow
//! ```
//! Each exchange is a connection of its own. Reserve and Activate may come twice: a plugin whose agent dies
//! before it answers asks the next one again. The agent being away is an expected answer ([`ClientError::Away`]):
//! DEL then goes through the [`pending`] folder.

pub mod client;
pub mod line;
pub mod mac;
pub mod message;
pub mod names;
pub mod pending;

pub use client::{Client, ClientError};
pub use mac::MacAddress;
pub use message::{
    Activate, Assignment, AttachmentKey, Check, ErrorKind, Gc, HeadroomOutcome, Pod, Readiness, Refusal,
    Release, Reply, Request, Reserve, Response, Route, Verb, Version,
};
