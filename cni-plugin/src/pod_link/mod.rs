//! EFFECT: the veth pair between a pod and its node.
//!
//! ```text
//!  node                                        pod
//!  hw0123456789ab  group, MAC, MTU, headroom == eth0  MAC, MTU, headroom, addresses, routes
//! ```

mod configure;
mod create;
mod inspect;
mod view;

use std::io;

use agent_api::{AttachmentKey, names};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{LinkAttribute, LinkMessage},
};
use nix::errno::Errno;

use crate::{
    cni::{Error, Kind},
    netlink::Netlink,
    netns::NetnsError,
};

pub use create::build;
pub use inspect::{PodInterface, inspect};
pub use view::LinkView;

/// Why a link is not there, or not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The pod has an interface of this name, which nobody touched.
    #[error("the pod already has an interface {0}")]
    PodInterfaceExists(String),
    /// The node has a link of this name, which nobody touched.
    #[error("the node already has a link {0}, of an earlier ADD that was not followed by DEL")]
    HostLinkExists(String),
    /// One of the ends was in the way and is gone already.
    #[error("another ADD for the same interface was under way and has taken {0} away again")]
    WasThere(String),
    /// The namespace cannot be used.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The kernel refused.
    #[error("{doing}: {source}")]
    Kernel {
        /// What was being done to what.
        doing: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl From<LinkError> for Error {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::PodInterfaceExists(_) | LinkError::HostLinkExists(_) | LinkError::WasThere(_) => {
                Self::new(Kind::Exists, error.to_string())
            }
            LinkError::Netns(error) => error.into(),
            LinkError::Kernel { .. } => {
                Self::new(Kind::Kernel, "the pod's link cannot be set up").because(&error)
            }
        }
    }
}

/// Puts what was being done in front of the kernel's error.
fn doing<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> LinkError {
    let doing = what.into();
    move |source| LinkError::Kernel { doing, source: source.into() }
}

/// Takes away the link of an attachment, if it is there and ours: both ends and all that hangs on them. Says so if
/// there is a link of that name that is not ours.
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn remove(key: &AttachmentKey) -> Result<Option<String>, LinkError> {
    let name = names::host_ifname(key);
    let mut node = Netlink::open().map_err(doing("opening a netlink socket"))?;
    let Some(link) = find(&mut node, &name)? else { return Ok(None) };
    if link.group != names::LINK_GROUP {
        return Ok(Some(format!("the link {name} has group {:#x}: it is not ours and stays", link.group)));
    }
    match node.request(RouteNetlinkMessage::DelLink(by_index(link.index)), 0) {
        Err(error) if !is(&error, Errno::ENODEV) => Err(doing(format!("deleting the link {name}"))(error)),
        _ => Ok(None), // the pod's namespace may have ended meanwhile, and its link with it
    }
}

/// The link of this name in the socket's namespace.
fn find(netlink: &mut Netlink, name: &str) -> Result<Option<LinkView>, LinkError> {
    let what = || format!("looking at the link {name}");
    match netlink.request(RouteNetlinkMessage::GetLink(by_name(name)), 0) {
        Ok(payloads) => Ok(payloads.first().and_then(|payload| LinkView::parse(payload))),
        Err(error) if is(&error, Errno::ENODEV) => Ok(None),
        Err(error) => Err(doing(what())(error)),
    }
}

fn by_name(name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message
}

fn by_index(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno as i32)
}
