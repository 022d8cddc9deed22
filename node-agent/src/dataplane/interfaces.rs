//! The node's links with their addresses, before anything is done with them.

use std::collections::BTreeMap;

use agent_core::dataplane::Link;

use super::{Doing, StepError, addresses, links};
use crate::netlink::Route;

/// All links of the namespace, by name.
///
/// # Errors
/// If the kernel cannot be asked.
pub fn interfaces() -> Result<BTreeMap<String, Link>, StepError> {
    let mut route = Route::open().doing("opening a netlink socket")?;
    let seen = links::links(&mut route, None).doing("looking at links")?;
    let mut found: BTreeMap<String, Link> = seen.into_iter().map(|(name, seen)| (name, seen.link)).collect();
    for seen in addresses::addresses(&mut route).doing("looking at addresses")? {
        if let Some(link) = found.values_mut().find(|link| link.ifindex == seen.ifindex) {
            link.addresses.push(seen.address.addr());
        }
    }
    Ok(found)
}
