//! Ways to peers: all looked up in one reading of the routing table, where no rule sends a look-up elsewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
};

use agent_core::{
    dataplane::{Hop, RouteKey},
    routing::{self, Table, Way},
};
use nix::errno::Errno;
use rtnetlink::packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::{RouteFlags, RouteHeader, RouteMessage, RouteType},
    rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage},
};

use super::routes;
use crate::netlink::{Answer, Route};

/// `RT_TABLE_LOCAL` (include/uapi/linux/rtnetlink.h).
const LOCAL: u32 = 255;

/// Next hops of the kernel's routes to these addresses; those without a route are left out. `main`: the main table as
/// it was just read. `own`: addresses of this node, to which no route of the main table leads.
pub(super) fn ways(
    route: &mut Route,
    main: &[RouteMessage],
    own: &BTreeSet<Ipv6Addr>,
    addresses: &BTreeSet<Ipv6Addr>,
) -> Answer<BTreeMap<Ipv6Addr, Vec<Hop>>> {
    let mut ways = BTreeMap::new();
    if main_table_decides(route)? {
        let table = Table::new(main.iter().filter_map(parsed));
        let others = addresses.iter().filter(|address| !own.contains(address));
        ways.extend(others.filter_map(|address| Some((*address, table.way(*address)?))));
    } else {
        for address in addresses {
            ways.extend(routes::way(route, *address)?.map(|hops| (*address, hops)));
        }
    }
    Ok(ways)
}

/// A route for look-ups; `None` if it counts in none of ours.
fn parsed(message: &RouteMessage) -> Option<routing::Route> {
    let header = &message.header;
    let unused = RouteFlags::Cloned | RouteFlags::Dead;
    if header.source_prefix_length != 0 || header.flags.intersects(unused) {
        return None;
    }
    let way = match header.kind {
        RouteType::Unicast => {
            Some(routes::next_hops(message)).filter(|hops| !hops.is_empty()).map(Way::Via)?
        }
        RouteType::Unreachable | RouteType::Prohibit | RouteType::BlackHole | RouteType::Throw => {
            Way::Nowhere
        }
        _ => return None,
    };
    let RouteKey { destination, metric } = routes::key(message)?;
    Some(routing::Route { destination, metric, way })
}

/// Do look-ups of ours, which have neither source nor mark, end in the tables `local` and `main`, as they do unless
/// somebody has added rules?
fn main_table_decides(route: &mut Route) -> Answer<bool> {
    let mut request = RuleMessage::default();
    request.header.family = AddressFamily::Inet6;
    let replies = match route.dump(&RouteNetlinkMessage::GetRule(request)) {
        // A kernel without rules has these two tables only.
        Err(error) if [Errno::EAFNOSUPPORT, Errno::EOPNOTSUPP].contains(&error.errno) => return Ok(true),
        replies => replies?,
    };
    let rules = replies.into_iter().filter_map(|reply| match reply {
        RouteNetlinkMessage::NewRule(message) => Some(message),
        _ => None,
    });
    let deciding: Vec<Option<u32>> = rules.filter(may_match).map(|rule| plain(&rule)).collect();
    Ok(deciding == [Some(LOCAL), Some(RouteHeader::RT_TABLE_MAIN.into())])
}

/// Can a rule match a look-up without source, mark and VRF (`fib_rule_match`, net/core/fib_rules.c)?
fn may_match(rule: &RuleMessage) -> bool {
    let conditional = rule.attributes.iter().any(|attribute| {
        matches!(attribute, RuleAttribute::L3MDev(true))
            || matches!(attribute, RuleAttribute::FwMark(mark) if *mark != 0)
    });
    rule.header.src_len == 0 && !conditional
}

/// The table of a rule that says nothing but "look here".
fn plain(rule: &RuleMessage) -> Option<u32> {
    let mut table = u32::from(rule.header.table);
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::Table(number) => table = *number,
            RuleAttribute::Priority(_) | RuleAttribute::Protocol(_) | RuleAttribute::L3MDev(false) => {}
            RuleAttribute::SuppressPrefixLen(u32::MAX) => {}
            _ => return None,
        }
    }
    let bare =
        rule.header.dst_len == 0 && rule.header.tos == 0 && !rule.header.flags.contains(RuleFlags::Invert);
    (bare && rule.header.action == RuleAction::ToTable).then_some(table)
}
