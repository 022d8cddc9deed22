//! What the CNI specification says, as types. Pure: text and bytes in, values out.
//!
//! <https://www.cni.dev/docs/spec/> (1.1.0); section numbers in comments are of that document.

mod args;
mod config;
mod error;
mod invocation;
mod requests;
mod result;
mod version;

pub use args::Args;
pub use config::Config;
pub use error::{Error, Kind};
pub use invocation::{Attachment, Command, Invocation, Start};
pub use result::{Addition, CniResult, Dns, Interface};
pub use version::CniVersion;
