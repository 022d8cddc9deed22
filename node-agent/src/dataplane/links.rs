//! Links: all of the node's are seen, pairs of ours are built, pods' links are removed.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use agent_api::{
    MacAddress,
    names::{LINK_GROUP, LINK_PREFIX},
};
use agent_core::{
    dataplane::{Link, Pair},
    desired::{GATEWAY_LINK, GATEWAY_PEER, SEGMENTER_LINK, SEGMENTER_PEER, switch_side_mac},
};
use nix::errno::Errno;
use rtnetlink::{
    packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL, Nla},
    packet_route::{
        RouteNetlinkMessage,
        link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    },
};

use super::{Doing, StepError, sysctls};
use crate::netlink::{Answer, Generic, Route};

/// Near and far ends of the pairs that this node can have.
const PAIRS: [(&str, &str); 2] = [(GATEWAY_LINK, GATEWAY_PEER), (SEGMENTER_LINK, SEGMENTER_PEER)];

/// A link as the kernel shows it.
pub(super) struct Seen {
    /// What the world wants to know of it; addresses are still missing.
    pub link: Link,
    /// It is one of ours.
    pub ours: bool,
    /// It was made by us, whatever it is called now.
    pub in_group: bool,
    /// Interface index of a veth's other end in the same namespace.
    peer: Option<u32>,
    /// Packets that it lost.
    dropped: u64,
}

/// All links of the namespace, by name.
pub(super) type Links = BTreeMap<String, Seen>;

/// Looks at all links. `headroom_attribute`: the kernel's number for it.
pub(super) fn links(route: &mut Route, headroom_attribute: Option<u16>) -> Answer<Links> {
    let replies = route.dump(&RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    let messages = replies.into_iter().filter_map(|reply| match reply {
        RouteNetlinkMessage::NewLink(message) => Some(message),
        _ => None,
    });
    Ok(messages.map(|message| seen(&message, headroom_attribute)).collect())
}

pub(super) fn seen(message: &LinkMessage, headroom_attribute: Option<u16>) -> (String, Seen) {
    let flags = message.header.flags;
    let mut name = String::new();
    let (mut group, mut foreign) = (0, false);
    let mut seen = Seen {
        link: Link {
            ifindex: message.header.index,
            mac: MacAddress::default(),
            mtu: 0,
            enabled: flags.contains(LinkFlags::Up),
            headroom: 0,
            up: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
            addresses: Vec::new(),
        },
        ours: false,
        in_group: false,
        peer: None,
        dropped: 0,
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name.clone_from(text),
            LinkAttribute::Address(bytes) => {
                seen.link.mac = bytes.as_slice().try_into().map(MacAddress).unwrap_or_default();
            }
            LinkAttribute::Mtu(mtu) => seen.link.mtu = *mtu,
            LinkAttribute::Group(number) => group = *number,
            LinkAttribute::Link(index) => seen.peer = Some(*index),
            LinkAttribute::LinkNetNsId(_) => foreign = true,
            LinkAttribute::Stats64(stats) => seen.dropped = stats.rx_dropped + stats.tx_dropped,
            other if headroom_attribute.is_some_and(|number| number == other.kind()) => {
                seen.link.headroom = number(other);
            }
            _ => {}
        }
    }
    seen.peer = seen.peer.filter(|_| !foreign);
    seen.in_group = group == LINK_GROUP;
    seen.ours = seen.in_group && name.starts_with(LINK_PREFIX);
    (name, seen)
}

/// The value of an attribute of four bytes, whatever the library takes it for.
fn number(attribute: &LinkAttribute) -> u32 {
    let mut value = vec![0; attribute.value_len()];
    attribute.emit_value(&mut value);
    value.first_chunk().map_or(0, |value| u32::from_ne_bytes(*value))
}

/// The pairs that are there, whole and up. Others are built anew, or mended, by being set.
pub(super) fn pairs(links: &Links, ethtool: &mut Generic) -> Answer<BTreeMap<String, Pair>> {
    let mut pairs = BTreeMap::new();
    for (near_name, far_name) in PAIRS {
        let (Some(near), Some(far)) = (links.get(near_name), links.get(far_name)) else { continue };
        let whole = near.peer == Some(far.link.ifindex) && near.ours && far.ours;
        if !whole || !near.link.enabled || !far.link.enabled {
            continue;
        }
        let segments = segmentation(&ethtool.active_features(near.link.ifindex)?).is_empty();
        let same = |near: u32, far: u32| if near == far { near } else { 0 };
        let pair = Pair {
            peer: far_name.into(),
            mac: near.link.mac,
            mtu: same(near.link.mtu, far.link.mtu),
            headroom: same(near.link.headroom, far.link.headroom),
            segments,
        };
        pairs.insert(near_name.into(), pair);
    }
    Ok(pairs)
}

/// Names of all links of ours.
pub(super) fn ours(links: &Links) -> impl Iterator<Item = &str> {
    links.iter().filter(|(_, seen)| seen.ours).map(|(name, _)| name.as_str())
}

/// Is it the name of an end of a pair?
pub(super) fn is_paired(name: &str) -> bool {
    PAIRS.iter().any(|(near, far)| [*near, *far].contains(&name))
}

/// Packets that the segmenter's ends have lost.
pub(super) fn segmenter_drops(links: &Links) -> u64 {
    let ends = [SEGMENTER_LINK, SEGMENTER_PEER];
    ends.iter().filter_map(|end| links.get(*end)).map(|end| end.dropped).sum()
}

/// The features by which a device takes super-packets as they are. Generic segmentation, which is done in software before the
/// device, is what remains then.
fn segmentation(active: &BTreeSet<String>) -> BTreeSet<String> {
    let takes = |name: &&String| {
        let segments = name.ends_with("-segmentation") || name.starts_with("tx-gso-");
        segments && name.as_str() != "tx-generic-segmentation"
    };
    active.iter().filter(takes).cloned().collect()
}

/// Builds a pair, or mends the one that is there.
pub(super) fn set_pair(
    route: &mut Route,
    ethtool: &mut Generic,
    name: &str,
    pair: &Pair,
    headroom_attribute: Option<u16>,
) -> Result<(), StepError> {
    let mut known = links(route, headroom_attribute).doing("looking for links")?;
    for end in [name, pair.peer.as_str()] {
        if known.get(end).is_some_and(|link| !link.ours) {
            return Err(format!("a link {end} of somebody else is in the way"))
                .doing(format_args!("building {name}"));
        }
    }
    let headroom = headroom_attribute.map(|number| headroom(number, pair.headroom));
    let connected = |links: &Links| {
        let far = links.get(&pair.peer).map(|far| far.link.ifindex);
        links.get(name).is_some_and(|near| near.peer.is_some() && near.peer == far)
    };
    if !connected(&known) {
        for end in [name, pair.peer.as_str()] {
            remove_link(route, end)?;
        }
        create(route, name, pair, headroom.as_ref())
            .doing(format_args!("creating {name} and {}", pair.peer))?;
        for end in [name, pair.peer.as_str()] {
            before_up(end).doing(format_args!("preparing link {end}"))?;
        }
        known = links(route, headroom_attribute).doing("looking for links")?;
    }
    for (end, mac) in [(name, pair.mac), (pair.peer.as_str(), switch_side_mac(pair.mac))] {
        let seen = known.get(end).ok_or("it is gone");
        let seen = seen.doing(format_args!("setting link {end}"))?;
        mend(route, seen, mac, pair.mtu, headroom.as_ref()).doing(format_args!("setting link {end}"))?;
        if end == name && pair.segments {
            stop_super_packets(ethtool, seen.link.ifindex)
                .doing(format_args!("turning segmentation offloads of {end} off"))?;
        }
    }
    Ok(())
}

/// What has to stand before a link is up. The gateway's link-local address must not wait for duplicate address detection:
/// the kernel solicits on behalf of forwarded packets from it only (`ndisc_send_ns`, net/ipv6/ndisc.c). The other ends say
/// nothing of their own.
fn before_up(link: &str) -> io::Result<()> {
    let (setting, value) = if link == GATEWAY_LINK { ("accept_dad", "0") } else { ("disable_ipv6", "1") };
    sysctls::write(&format!("net/ipv6/conf/{link}/{setting}"), value)
}

fn stop_super_packets(ethtool: &mut Generic, ifindex: u32) -> Answer<()> {
    let active = segmentation(&ethtool.active_features(ifindex)?);
    if active.is_empty() { Ok(()) } else { ethtool.disable_features(ifindex, &active) }
}

/// Both ends in one message. An end cannot be created up.
fn create(route: &mut Route, name: &str, pair: &Pair, headroom: Option<&LinkAttribute>) -> Answer<()> {
    let end = |name: &str, mac: MacAddress| {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.into()),
            LinkAttribute::Group(LINK_GROUP),
            LinkAttribute::Address(mac.0.to_vec()),
            LinkAttribute::Mtu(pair.mtu),
        ];
        message.attributes.extend(headroom.cloned());
        message
    };
    let far = end(&pair.peer, switch_side_mac(pair.mac));
    let mut near = end(name, pair.mac);
    near.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(far))),
    ]));
    route.change(&RouteNetlinkMessage::NewLink(near), NLM_F_CREATE | NLM_F_EXCL)
}

/// Brings a link up and gives it what it lacks.
pub(super) fn mend(
    route: &mut Route,
    seen: &Seen,
    mac: MacAddress,
    mtu: u32,
    headroom: Option<&LinkAttribute>,
) -> Answer<()> {
    let mut message = LinkMessage::default();
    message.header.index = seen.link.ifindex;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    if seen.link.mac != mac {
        message.attributes.push(LinkAttribute::Address(mac.0.to_vec()));
    }
    if seen.link.mtu != mtu {
        message.attributes.push(LinkAttribute::Mtu(mtu));
    }
    message.attributes.extend(headroom.cloned());
    route.change(&RouteNetlinkMessage::SetLink(message), 0)
}

pub(super) fn headroom(number: u16, bytes: u32) -> LinkAttribute {
    LinkAttribute::Other(DefaultNla::new(number, bytes.to_ne_bytes().to_vec()))
}

/// Interface index of a link.
pub(super) fn index(route: &mut Route, name: &str) -> Answer<u32> {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.into()));
    match route.get(&RouteNetlinkMessage::GetLink(message))? {
        RouteNetlinkMessage::NewLink(found) => Ok(found.header.index),
        _ => Err(Errno::ENODEV.into()),
    }
}

/// Removes a link; a veth's other end goes with it.
pub(super) fn remove_link(route: &mut Route, name: &str) -> Result<(), StepError> {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.into()));
    match route.change(&RouteNetlinkMessage::DelLink(message), 0) {
        Err(error) if error.errno == Errno::ENODEV => Ok(()),
        result => result.doing(format_args!("removing link {name}")),
    }
}
