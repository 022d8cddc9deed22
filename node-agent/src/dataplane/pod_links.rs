//! Links of pods: the plugin has built them, what was changed by hand since is changed back.

use std::collections::BTreeMap;

use agent_api::names;
use agent_core::{dataplane::PodLink, lease::State, world::World};
use nix::errno::Errno;
use rtnetlink::packet_route::{
    RouteNetlinkMessage,
    link::{LinkAttribute, LinkMessage},
};

use super::{
    Doing, StepError,
    links::{self, Links, Seen},
};
use crate::netlink::{Answer, Route};

/// All links of ours that are no part of a pair. One that a lease has under another name is left out: it is neither
/// what is wanted nor a link that nobody has.
pub(super) fn pod_links(links: &Links, world: &World) -> BTreeMap<String, PodLink> {
    let leased = world.leases.iter().chain(world.leases.foreign()).filter_map(|lease| match lease.state {
        State::Active { ifindex, .. } => Some((ifindex, names::host_ifname(&lease.key))),
        State::Reserved { .. } => None,
    });
    let leased: BTreeMap<u32, String> = leased.collect();
    let renamed = |name: &str, ifindex| leased.get(&ifindex).is_some_and(|right| right != name);
    let pods = links
        .iter()
        .filter(|(name, seen)| seen.ours && !links::is_paired(name) && !renamed(name, seen.link.ifindex));
    pods.map(|(name, seen)| (name.clone(), PodLink::from(&seen.link))).collect()
}

/// Makes a link what it was when the plugin had built it. `headroom_attribute`: the kernel's number for it.
///
/// # Errors
/// Also if there is no link of ours with this index, or another one has the name: none is created here.
pub(super) fn set(
    route: &mut Route,
    name: &str,
    link: &PodLink,
    headroom_attribute: Option<u16>,
) -> Result<(), StepError> {
    let doing = format_args!("looking for link {name} with index {}", link.ifindex);
    let named = LinkAttribute::IfName(name.to_owned());
    let found = match get(route, 0, Some(named), headroom_attribute) {
        Err(error) if error.errno == Errno::ENODEV => {
            let (other, seen) = get(route, link.ifindex, None, headroom_attribute).doing(doing)?;
            if !seen.in_group || names::is_host_ifname(&other) {
                return Err(format!("that is {other}, another link")).doing(doing);
            }
            rename(route, link.ifindex, name).doing(format_args!("renaming {other} to {name}"))?;
            seen
        }
        found => found.doing(doing)?.1,
    };
    if found.link.ifindex != link.ifindex {
        return Err(format!("its index is {}", found.link.ifindex)).doing(doing);
    }
    if PodLink::from(&found.link) == *link {
        return Ok(());
    }
    let headroom = headroom_attribute.map(|number| links::headroom(number, link.headroom));
    links::mend(route, &found, found.link.mac, link.mtu, headroom.as_ref())
        .doing(format_args!("setting link {name}"))
}

fn get(
    route: &mut Route,
    ifindex: u32,
    name: Option<LinkAttribute>,
    headroom_attribute: Option<u16>,
) -> Answer<(String, Seen)> {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    message.attributes.extend(name);
    match route.get(&RouteNetlinkMessage::GetLink(message))? {
        RouteNetlinkMessage::NewLink(found) => Ok(links::seen(&found, headroom_attribute)),
        _ => Err(Errno::ENODEV.into()),
    }
}

fn rename(route: &mut Route, ifindex: u32, name: &str) -> Answer<()> {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    route.change(&RouteNetlinkMessage::SetLink(message), 0)
}
