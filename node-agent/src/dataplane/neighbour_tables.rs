//! How full the machine's neighbour tables are.

use std::{collections::BTreeMap, fs};

use super::{NeighbourTable, sysctls};

/// The tables by family. A table that cannot be seen is left out.
pub(super) fn tables() -> BTreeMap<&'static str, NeighbourTable> {
    let tables = [("ipv4", "arp_cache"), ("ipv6", "ndisc_cache")];
    let seen = tables.into_iter().filter_map(|(family, name)| {
        // The counters are in the initial namespace's /proc/net only (net/core/neighbour.c, neigh_table_init).
        let text = fs::read_to_string(format!("/proc/1/net/stat/{name}")).ok()?;
        let path = format!("net/{family}/neigh/default/gc_thresh3");
        let limit = sysctls::read(&[path.clone()].into()).remove(&path)?.parse().ok()?;
        Some((family, NeighbourTable { entries: entries(&text)?, limit }))
    });
    seen.collect()
}

/// The first column below the heading, hexadecimal.
fn entries(text: &str) -> Option<u64> {
    u64::from_str_radix(text.lines().nth(1)?.split_whitespace().next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn entries_are_hexadecimal() {
        assert_eq!(super::entries("entries  allocs\n0000001f  00000007\n0000001f  0\n"), Some(31));
        assert_eq!(super::entries("entries\n"), None);
    }
}
