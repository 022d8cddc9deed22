//! Builds a pod's link.

use std::{fs, io, path::Path};

use agent_api::{Assignment, HeadroomOutcome, names};
use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
};
use nix::errno::Errno;

use super::{LinkError, LinkView, by_name, configure::configure, doing, find};
use crate::{
    netlink::{Answer, Netlink},
    netns::Netns,
};

/// What stands when all is built.
#[derive(Debug)]
pub struct Built {
    /// Interface index of the end on the node.
    pub host_ifindex: u32,
    /// What the kernel made of the headroom.
    pub headroom: HeadroomOutcome,
}

/// Builds the link as the agent wants it. `made` is set as soon as there is something to take away again.
///
/// # Errors
/// Any [`LinkError`]; nothing was made unless `made` says so.
pub fn build(
    netns: &Netns,
    ifname: &str,
    assignment: &Assignment,
    made: &mut bool,
) -> Result<Built, LinkError> {
    let mut node = Netlink::open().map_err(doing("opening a netlink socket"))?;
    let pair = Pair { netns, ifname, assignment };
    let refused = pair.create(&mut node, made)?;
    let host = raise_host(&mut node, &assignment.host_ifname)?;
    let pod = netns.run(|| configure(ifname, assignment))??;
    let headroom = refused.unwrap_or_else(|| headroom_outcome(assignment, &host, &pod));
    Ok(Built { host_ifindex: host.index, headroom })
}

struct Pair<'a> {
    netns: &'a Netns,
    ifname: &'a str,
    assignment: &'a Assignment,
}

impl Pair<'_> {
    /// Makes both ends with all that they can be born with. A kernel that knows the headroom attribute and refuses
    /// its value gets the pair without it: pods work, and the agent hears why.
    fn create(&self, node: &mut Netlink, made: &mut bool) -> Result<Option<HeadroomOutcome>, LinkError> {
        let headroom = self.assignment.headroom_attribute.filter(|_| self.assignment.headroom > 0);
        let refused = match self.request(node, headroom)? {
            Err(errno @ (Errno::ERANGE | Errno::EINVAL | Errno::EOPNOTSUPP)) if headroom.is_some() => {
                self.request(node, None)?.map_err(|second| self.explain(node, second))?;
                let asked = self.assignment.headroom;
                Some(HeadroomOutcome::Refused(format!("{asked} bytes: {}", io::Error::from(errno))))
            }
            Err(errno) => return Err(self.explain(node, errno)),
            Ok(_) => None,
        };
        *made = true;
        Ok(refused)
    }

    fn request(&self, node: &mut Netlink, headroom: Option<u16>) -> Result<Answer, LinkError> {
        let request = (RouteNetlinkMessage::NewLink(self.message(headroom)), NLM_F_CREATE | NLM_F_EXCL);
        let answers = node.exchange(vec![request]).map_err(doing("creating the veth pair"))?;
        Ok(answers.into_iter().next().unwrap_or(Err(Errno::EPROTO)))
    }

    /// The pair in one message, the pod's end born in the pod's namespace. MACs are given, or systemd makes new ones.
    fn message(&self, headroom: Option<u16>) -> LinkMessage {
        let Assignment { host_ifname, host_mac, mac, mtu, .. } = self.assignment;
        let headroom = headroom.map(|number| {
            LinkAttribute::Other(DefaultNla::new(number, self.assignment.headroom.to_ne_bytes().to_vec()))
        });
        let mut peer = by_name(self.ifname);
        peer.attributes.extend([
            LinkAttribute::Address(mac.0.to_vec()),
            LinkAttribute::Mtu(*mtu),
            LinkAttribute::NetNsFd(self.netns.raw_fd()),
        ]);
        peer.attributes.extend(headroom.clone());
        let mut host = by_name(host_ifname);
        host.attributes.extend([
            LinkAttribute::Group(names::LINK_GROUP),
            LinkAttribute::Address(host_mac.0.to_vec()),
            LinkAttribute::Mtu(*mtu),
        ]);
        host.attributes.extend(headroom);
        host.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        host
    }

    /// EEXIST does not say which end it means.
    fn explain(&self, node: &mut Netlink, errno: Errno) -> LinkError {
        let host = &self.assignment.host_ifname;
        if errno != Errno::EEXIST {
            return doing(format!("creating the veth pair {host} and {}", self.ifname))(errno);
        }
        let look = || find(&mut Netlink::open().map_err(doing("opening a netlink socket"))?, self.ifname);
        match self.netns.run(look) {
            Ok(Ok(Some(_))) => LinkError::PodInterfaceExists(self.ifname.to_owned()),
            _ => match find(node, host) {
                Ok(Some(_)) => LinkError::HostLinkExists(host.clone()),
                _ => LinkError::WasThere(host.clone()),
            },
        }
    }
}

/// The node's end comes up without IPv6: it must not solicit routers or report multicast groups into the segment. Nor
/// does it speak ARP: while no program is on it, the node would answer the pod in the gateway's place.
fn raise_host(node: &mut Netlink, name: &str) -> Result<LinkView, LinkError> {
    sysctl("ipv6", name, "disable_ipv6", "1")?;
    let mut up = by_name(name);
    let flags = LinkFlags::Up | LinkFlags::Noarp;
    (up.header.flags, up.header.change_mask) = (flags, flags);
    let requests =
        vec![(RouteNetlinkMessage::SetLink(up), 0), (RouteNetlinkMessage::GetLink(by_name(name)), 0)];
    let answers = node.exchange(requests).map_err(doing(format!("raising {name}")))?;
    let mut shown = Vec::new();
    for answer in answers {
        shown = answer.map_err(doing(format!("raising {name}")))?;
    }
    let view = shown.first().and_then(|payload| LinkView::parse(payload));
    view.ok_or_else(|| doing(format!("looking at the link {name}"))(Errno::EPROTO))
}

/// Writes `net.<family>.conf.<interface>.<key>`, if this kernel has the family at all.
pub fn sysctl(family: &str, interface: &str, key: &str, value: &str) -> Result<(), LinkError> {
    let path = Path::new("/proc/sys/net").join(family).join("conf").join(interface).join(key);
    match fs::write(&path, value) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(doing(format!("writing {value} to {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}

/// What both ends show of the headroom that was asked for.
fn headroom_outcome(assignment: &Assignment, host: &LinkView, pod: &LinkView) -> HeadroomOutcome {
    let asked = assignment.headroom;
    let Some(number) = assignment.headroom_attribute.filter(|_| asked > 0) else {
        return if asked > 0 { HeadroomOutcome::Unsupported } else { HeadroomOutcome::Off };
    };
    match (host.attributes.get(&number), pod.attributes.get(&number)) {
        (Some(host), Some(pod)) if (*host, *pod) == (asked, asked) => HeadroomOutcome::Applied(asked),
        (host, pod) => {
            let shown = |value: Option<&u32>| value.map_or("nothing".to_owned(), u32::to_string);
            let (host, pod) = (shown(host), shown(pod));
            HeadroomOutcome::Refused(format!(
                "asked for {asked}, the node's end shows {host}, the pod's {pod}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(
        headroom: u32,
        attribute: Option<u16>,
        host: Option<u32>,
        pod: Option<u32>,
    ) -> HeadroomOutcome {
        let view = |value: Option<u32>| LinkView {
            attributes: value.map(|value| (66, value)).into_iter().collect(),
            ..LinkView::default()
        };
        let assignment = Assignment {
            nonce: String::new(),
            host_ifname: String::new(),
            host_mac: Default::default(),
            mac: Default::default(),
            mtu: 0,
            addresses: Vec::new(),
            routes: Vec::new(),
            headroom,
            headroom_attribute: attribute,
        };
        headroom_outcome(&assignment, &view(host), &view(pod))
    }

    #[test]
    fn headroom_is_applied_only_if_both_ends_show_it() {
        assert_eq!(outcome(64, Some(66), Some(64), Some(64)), HeadroomOutcome::Applied(64));
        for (host, pod) in [(Some(64), Some(0)), (Some(0), Some(64)), (None, Some(64)), (None, None)] {
            let found = outcome(64, Some(66), host, pod);
            assert!(matches!(found, HeadroomOutcome::Refused(_)), "{found:?}");
        }
    }

    #[test]
    fn headroom_that_nobody_wants_is_off_and_a_kernel_without_it_is_said() {
        assert_eq!(outcome(0, Some(66), Some(0), Some(0)), HeadroomOutcome::Off);
        assert_eq!(outcome(0, None, None, None), HeadroomOutcome::Off);
        assert_eq!(outcome(64, None, Some(64), Some(64)), HeadroomOutcome::Unsupported);
    }
}
