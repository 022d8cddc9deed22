//! The status document for people.

use std::fmt::Write as _;

use super::{Endpoint, Peer, Report, outcome};

/// The document as text, a few lines for each matter.
#[must_use]
pub fn table(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = node(&mut text, report);
    let _ = problems(&mut text, report);
    let _ = rows(&mut text, "Endpoints", &report.endpoints.iter().map(endpoint).collect::<Vec<_>>());
    let _ = rows(&mut text, "Peers", &report.peers.iter().map(peer).collect::<Vec<_>>());
    let counted = |counters: &std::collections::BTreeMap<String, u64>| -> Vec<Vec<String>> {
        let counters = counters.iter().filter(|(_, count)| **count > 0);
        counters.map(|(name, count)| vec![name.clone(), count.to_string()]).collect()
    };
    let mut drops = counted(&report.drops);
    if report.segmenter_drops > 0 {
        drops.push(vec!["lost in the segmenter".into(), report.segmenter_drops.to_string()]);
    }
    let _ = rows(&mut text, "Dropped packets", &drops);
    let _ = rows(&mut text, "Handled packets", &counted(&report.events));
    text
}

fn node(text: &mut String, report: &Report) -> std::fmt::Result {
    let node = &report.node;
    writeln!(text, "Node      {} (number {}), agent {}", node.name, node.number, report.version)?;
    writeln!(text, "Ready     {}", if report.ready { "yes" } else { "no" })?;
    writeln!(text, "Locator   {}", node.locator)?;
    writeln!(text, "Pods      {}", node.pod_cidrs.join(", "))?;
    let mtu = node.mtu.map_or_else(|| "not known yet".into(), |mtu| mtu.to_string());
    writeln!(text, "Datapath  {}, MTU of pods {mtu}", node.datapath)?;
    for uplink in &node.uplinks {
        let state = if uplink.up { "up" } else { "down" };
        let switch = if uplink.attached { "attached" } else { "not attached" };
        writeln!(text, "Uplink    {}: {state}, MTU {}, switch {switch}", uplink.name, uplink.mtu)?;
    }
    let headroom = &report.headroom;
    let outcomes = headroom.outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}"));
    let outcomes = outcomes.collect::<Vec<_>>().join(", ");
    let endpoints = if outcomes.is_empty() { String::new() } else { format!("; endpoints: {outcomes}") };
    writeln!(
        text,
        "Headroom  {} bytes asked for, {} by this kernel{endpoints}",
        headroom.asked, headroom.kernel
    )?;
    if let Some(publishing) = &report.publishing {
        let written = |what: bool| if what { "written" } else { "not written" };
        let (locator, status) = (written(publishing.locator_written), written(publishing.status_written));
        writeln!(text, "Kubernetes  Locator {locator}, HeadwayNode {status}")?;
    }
    for (family, table) in &report.neighbour_tables {
        writeln!(text, "Neighbour table, {family}: {} of {} entries", table.entries, table.limit)?;
    }
    Ok(())
}

fn problems(text: &mut String, report: &Report) -> std::fmt::Result {
    let wrong = report.conditions.iter().filter(|condition| !condition.holds);
    let rows: Vec<Vec<String>> = wrong.map(|one| vec![one.kind.clone(), one.message.clone()]).collect();
    self::rows(text, "Conditions that do not hold", &rows)?;
    let failures: Vec<Vec<String>> = report.failures.iter().map(|failure| vec![failure.clone()]).collect();
    self::rows(text, "Failing", &failures)?;
    let unpublished = report.publishing.iter().flat_map(|publishing| &publishing.failures);
    let unpublished: Vec<Vec<String>> = unpublished.map(|failure| vec![failure.clone()]).collect();
    self::rows(text, "Not written to Kubernetes", &unpublished)
}

fn endpoint(endpoint: &Endpoint) -> Vec<String> {
    let addresses = endpoint.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let container: String = endpoint.key.container.chars().take(13).collect();
    vec![
        if endpoint.pod.is_empty() { container } else { endpoint.pod.clone() },
        endpoint.key.ifname.clone(),
        addresses,
        endpoint.mac.to_string(),
        endpoint.link.clone(),
        endpoint.headroom.as_ref().map_or("being attached", outcome).to_owned(),
    ]
}

fn peer(peer: &Peer) -> Vec<String> {
    let hop = |hop: &super::NextHop| {
        let mac = hop.mac.map_or_else(|| "unresolved".into(), |mac| mac.to_string());
        format!("{} ({mac}) {}", hop.gateway, hop.uplink)
    };
    let ways = peer.next_hops.iter().map(hop).collect::<Vec<_>>().join(", ");
    vec![
        peer.name.clone(),
        peer.locator.clone(),
        if peer.reachable { "reachable" } else { "unreachable" }.into(),
        peer.probe.clone().unwrap_or_else(|| "not probed".into()),
        match (peer.mtu, peer.path_mtu) {
            (Some(mtu), Some(path)) if path < mtu => format!("MTU {path} (links: {mtu})"),
            (Some(mtu), _) => format!("MTU {mtu}"),
            (None, _) => String::new(),
        },
        if ways.is_empty() { "no route".into() } else { ways },
    ]
}

/// A heading and aligned columns; nothing at all without rows.
fn rows(text: &mut String, heading: &str, rows: &[Vec<String>]) -> std::fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n{heading}")?;
    for row in rows {
        let mut line = String::from(" ");
        for (column, cell) in row.iter().enumerate() {
            let last = column + 1 == row.len();
            let widest = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
            let width = if last { 0 } else { widest.unwrap_or(0) };
            write!(line, " {cell:width$}")?;
        }
        writeln!(text, "{}", line.trim_end())?;
    }
    Ok(())
}
