//! Our nftables tables, and forward chains of others that drop.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    process::{Command, Stdio},
};

use agent_core::firewall::TABLE;
use serde::Deserialize;

use super::{Doing, StepError};
use crate::netlink::ruleset_generation;

/// What was seen of the ruleset, for as long as it does not change.
#[derive(Default)]
pub(super) struct Nft {
    /// The ruleset's generation when it was looked at.
    generation: Option<u32>,
    seen: Ruleset,
    /// Scripts that were applied, and how their tables were listed right afterwards.
    applied: BTreeMap<String, (String, String)>,
}

/// What the world wants to know of the ruleset.
#[derive(Clone, Default)]
pub(super) struct Ruleset {
    /// Our tables; one that is no longer as its script made it has an empty script.
    pub tables: BTreeMap<String, String>,
    /// Forward chains of others whose policy drops.
    pub forward_drops: Vec<String>,
}

impl Nft {
    /// Looks at the ruleset, if it has changed since the last look.
    pub(super) fn observe(&mut self) -> Result<Ruleset, StepError> {
        let generation = ruleset_generation().doing("looking at nftables")?;
        if self.generation != Some(generation) {
            let chains = chains()?;
            let mut tables = BTreeMap::new();
            if chains.iter().any(|chain| chain.table == TABLE && chain.family == "inet") {
                let name = format!("inet {TABLE}");
                let listed = list(&name)?;
                let applied = self.applied.get(&name).filter(|(_, listing)| *listing == listed);
                tables.insert(name, applied.map_or_else(String::new, |(script, _)| script.clone()));
            }
            let drops = chains.iter().filter(|chain| chain.drops_forwarded()).map(Chain::to_string);
            self.seen = Ruleset { tables, forward_drops: drops.collect() };
            self.generation = Some(generation);
        }
        Ok(self.seen.clone())
    }

    /// Runs the script that makes a table.
    pub(super) fn set(&mut self, name: &str, script: &str) -> Result<(), StepError> {
        self.generation = None;
        nft(&["-f", "-"], script).doing(format_args!("making nftables table {name}"))?;
        self.applied.insert(name.to_owned(), (script.to_owned(), list(name)?));
        Ok(())
    }

    /// Removes a table.
    pub(super) fn remove(&mut self, name: &str) -> Result<(), StepError> {
        self.generation = None;
        remove(name)
    }
}

/// Removes a table.
pub(super) fn remove(name: &str) -> Result<(), StepError> {
    // To name it makes it, so that there is always one to delete.
    nft(&["-f", "-"], &format!("table {name}\ndelete table {name}\n"))
        .doing(format_args!("removing nftables table {name}"))?;
    Ok(())
}

/// The table without its counters.
fn list(name: &str) -> Result<String, StepError> {
    let (family, table) = name.split_once(' ').unwrap_or(("inet", name));
    nft(&["-s", "list", "table", family, table], "").doing(format_args!("listing nftables table {name}"))
}

/// A chain of `nft -j list chains`.
#[derive(Deserialize)]
struct Chain {
    family: String,
    table: String,
    name: String,
    hook: Option<String>,
    policy: Option<String>,
}

impl Chain {
    fn drops_forwarded(&self) -> bool {
        self.table != TABLE
            && self.hook.as_deref() == Some("forward")
            && self.policy.as_deref() == Some("drop")
    }
}

impl std::fmt::Display for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.family, self.table, self.name)
    }
}

#[derive(Deserialize)]
struct Listing {
    nftables: Vec<Object>,
}

#[derive(Deserialize)]
struct Object {
    chain: Option<Chain>,
}

fn chains() -> Result<Vec<Chain>, StepError> {
    let doing = "listing nftables chains";
    let text = nft(&["-j", "list", "chains"], "").doing(doing)?;
    let listing: Listing = serde_json::from_str(&text).doing(doing)?;
    Ok(listing.nftables.into_iter().filter_map(|object| object.chain).collect())
}

/// Runs nft, gives what it prints.
fn nft(arguments: &[&str], input: &str) -> io::Result<String> {
    let mut command = Command::new("nft");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("the command nft cannot be run: {error}")))?;
    // Scripts are smaller than a pipe holds, so this does not block.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(said.trim().to_owned()));
    }
    written?;
    String::from_utf8(output.stdout).map_err(io::Error::other)
}
