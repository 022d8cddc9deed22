//! Reads link attributes that iproute2 does not know.

use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

use crate::Netns;

// include/uapi/linux/rtnetlink.h
const RTM_GETLINK: u16 = 18;
const RTM_NEWLINK: u16 = 16;
const NLM_F_REQUEST: u16 = 1;
/// `nlmsghdr` and `ifinfomsg`.
const HEADERS: usize = 16 + 16;

/// Number of `IFLA_TX_EXTRA_HEADROOM` on this kernel, from its BTF as bpftool reads it; `None`: it has none.
///
/// # Panics
/// bpftool is not there.
#[must_use]
#[track_caller]
pub fn extra_headroom_attribute() -> Option<u16> {
    let mut command = std::process::Command::new("bpftool");
    command.args(["btf", "dump", "file", "/sys/kernel/btf/vmlinux", "format", "raw"]);
    let output = crate::netns::succeed(&mut command, None);
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.contains("'IFLA_TX_EXTRA_HEADROOM'"))?;
    line.split("val=").nth(1)?.trim().parse().ok()
}

/// A 32-bit attribute of a link; `None` if the kernel does not show it.
///
/// # Panics
/// There is no such link, or the kernel refuses to answer.
#[must_use]
#[track_caller]
pub fn link_u32(netns: &Netns, link: &str, attribute: u16) -> Option<u32> {
    let ifindex = netns.ifindex(link);
    let netlink = netns.enter(|| {
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)
    });
    let netlink = netlink.expect("open a netlink socket");
    let mut request = Vec::new();
    request.extend(u32::try_from(HEADERS).expect("a small number").to_ne_bytes());
    request.extend(RTM_GETLINK.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]);
    request.extend([0; 4]);
    request.extend(ifindex.to_ne_bytes());
    request.extend([0; 8]);
    send(netlink.as_raw_fd(), &request, MsgFlags::empty()).expect("ask for the link");
    let mut answer = vec![0; 65_536];
    let length = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::empty()).expect("hear of the link");
    answer.truncate(length);
    assert_eq!(
        u16::from_ne_bytes([answer[4], answer[5]]),
        RTM_NEWLINK,
        "{link}: the kernel refuses: {answer:?}"
    );
    find(&answer[HEADERS..], attribute)
}

fn find(mut attributes: &[u8], wanted: u16) -> Option<u32> {
    while let [a, b, c, d, value @ ..] = attributes {
        let (length, kind) = (usize::from(u16::from_ne_bytes([*a, *b])), u16::from_ne_bytes([*c, *d]));
        if kind == wanted {
            return Some(u32::from_ne_bytes(value.get(..4)?.try_into().ok()?));
        }
        attributes = attributes.get(length.next_multiple_of(4).max(4)..)?;
    }
    None
}
