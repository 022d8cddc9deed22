//! The kernel's IPv6 routes, looked up as the kernel does: longest prefix, then metric.
//!
//! A node asks for the ways to all its peers at once, so it reads the table once rather than ask the kernel for each.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
};

use ipnet::Ipv6Net;

use crate::dataplane::Hop;

/// A route, as far as ways to peers follow from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination.
    pub destination: Ipv6Net,
    /// Metric; of routes with the same destination the lowest counts.
    pub metric: u32,
    /// Where it leads.
    pub way: Way,
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// To these next hops, of which at least one can be used.
    Via(Vec<NextHop>),
    /// Nowhere: packets that match it are not looked up any further.
    Nowhere,
}

/// A next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NextHop {
    /// The interface.
    pub ifindex: u32,
    /// The neighbour; `None`: the destination itself is one.
    pub gateway: Option<Ipv6Addr>,
}

/// A table of routes.
#[derive(Debug, Default)]
pub struct Table {
    /// The best route of each destination.
    best: BTreeMap<Ipv6Net, (u32, Way)>,
    /// Lengths of destinations, the longest first.
    lengths: BTreeSet<Reverse<u8>>,
}

impl Table {
    /// The table of these routes. Those whose next hops are all dead must not be among them: the kernel passes them over
    /// (`rt6_score_route`, net/ipv6/route.c).
    #[must_use]
    pub fn new(routes: impl IntoIterator<Item = Route>) -> Self {
        let mut table = Self::default();
        for Route { destination, metric, way } in routes {
            table.lengths.insert(Reverse(destination.prefix_len()));
            let better = |(other, _): &(u32, Way)| *other <= metric;
            if !table.best.get(&destination).is_some_and(better) {
                table.best.insert(destination, (metric, way));
            }
        }
        table
    }

    /// Next hops towards an address; `None` if no route leads there.
    #[must_use]
    pub fn way(&self, to: Ipv6Addr) -> Option<Vec<Hop>> {
        let at = |Reverse(length): &Reverse<u8>| {
            self.best.get(&Ipv6Net::new_assert(to, *length).trunc()).map(|(_, way)| way)
        };
        match self.lengths.iter().find_map(at)? {
            Way::Nowhere => None,
            Way::Via(hops) => {
                let hop = |hop: &NextHop| Hop { ifindex: hop.ifindex, gateway: hop.gateway.unwrap_or(to) };
                let hops: BTreeSet<Hop> = hops.iter().map(hop).collect();
                Some(hops.into_iter().collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn route(destination: &str, metric: u32, via: &[&str]) -> Route {
        let hop = |gateway: &&str| NextHop { ifindex: 2, gateway: gateway.parse().ok() };
        let way = if via.is_empty() { Way::Nowhere } else { Way::Via(via.iter().map(hop).collect()) };
        Route { destination: destination.parse().unwrap(), metric, way }
    }

    fn gateways(table: &Table, to: &str) -> Vec<String> {
        let hops = table.way(to.parse().unwrap()).unwrap_or_default();
        hops.iter().map(|hop| hop.gateway.to_string()).collect()
    }

    #[test]
    fn the_longest_prefix_wins_and_then_the_lowest_metric() {
        let table = Table::new([
            route("::/0", 1024, &["fe80::1"]),
            route("fc00::/64", 256, &["on-link"]),
            route("5f00:1:2::/48", 2000, &["fe80::9"]),
            route("5f00:1:2::/48", 1024, &["fe80::2", "fe80::3"]),
            route("5f00:1:3::/48", 1024, &[]),
            route("5f00:1:3::/48", 2000, &["fe80::4"]),
        ]);
        assert_eq!(gateways(&table, "2001:db8::1"), ["fe80::1"]);
        assert_eq!(gateways(&table, "fc00::7"), ["fc00::7"]);
        assert_eq!(gateways(&table, "5f00:1:2::1"), ["fe80::2", "fe80::3"]);
        assert_eq!(gateways(&table, "5f00:1:3::1"), Vec::<String>::new());
        assert_eq!(Table::default().way("fc00::1".parse().unwrap()), None);
    }

    proptest! {
        #[test]
        fn a_look_up_finds_what_a_search_through_all_finds(
            routes in prop::collection::vec((any::<u16>(), 0_u8..=20, 1_u32..4, any::<bool>()), 0..60),
            to in any::<u16>(),
        ) {
            let address = |bits: u16| Ipv6Addr::from_bits(u128::from(bits) << 112);
            let routes: Vec<Route> = routes.into_iter().zip(0_u32..).map(|((bits, length, metric, leads), ifindex)| Route {
                destination: Ipv6Net::new_assert(address(bits), length).trunc(),
                metric,
                way: if leads { Way::Via(vec![NextHop { ifindex, gateway: None }]) } else { Way::Nowhere },
            }).collect();
            let to = address(to);
            let found = routes.iter().filter(|route| route.destination.contains(&to))
                .min_by_key(|route| (Reverse(route.destination.prefix_len()), route.metric));
            let expected = found.and_then(|route| match &route.way {
                Way::Via(hops) => Some(vec![Hop { ifindex: hops[0].ifindex, gateway: to }]),
                Way::Nowhere => None,
            });
            prop_assert_eq!(Table::new(routes.clone()).way(to), expected);
        }
    }
}
