//! Everything of ours in the kernel, whoever of us has left it.

use std::path::Path;

use agent_core::firewall::TABLE;

use super::{Doing, StepError, links, neighbours, nft, routes};
use crate::netlink::Route;

/// Removes it; gives what could not be removed.
#[must_use]
pub fn remove(bpf: &Path) -> Vec<String> {
    let mut failures = Vec::new();
    let mut note =
        |result: Result<(), StepError>| failures.extend(result.err().map(|error| error.to_string()));
    match Route::open().doing("opening a netlink socket") {
        Ok(mut route) => from_tables(&mut route, &mut note),
        Err(error) => note(Err(error)),
    }
    note(nft::remove(&format!("inet {TABLE}")));
    // After the links: what is still attached to them goes with the pins.
    note(agent_switch::remove_all(bpf).doing("removing the switch"));
    failures
}

/// Links with their addresses, routes, neighbours.
fn from_tables(route: &mut Route, note: &mut impl FnMut(Result<(), StepError>)) {
    match routes::main_table(route).map(|table| routes::ours(&table)).doing("looking for routes") {
        Ok(ours) => ours.keys().for_each(|key| note(routes::remove(route, key))),
        Err(error) => note(Err(error)),
    }
    match neighbours::all_of_ours(route).doing("looking for neighbours") {
        Ok(ours) => ours.iter().for_each(|hop| note(neighbours::remove(route, hop))),
        Err(error) => note(Err(error)),
    }
    match links::links(route, None).doing("looking for links") {
        Ok(links) => links::ours(&links).for_each(|name| note(links::remove_link(route, name))),
        Err(error) => note(Err(error)),
    }
}
