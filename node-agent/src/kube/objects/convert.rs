//! From what the core wants to be said to objects.

use agent_core::{
    addr::PodCidrs,
    conditions,
    published::{OwnLocator, Status},
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time},
    jiff::Timestamp,
};

use super::{HeadroomStatus, HeadwayNodeStatus, LocatorSpec, PeersStatus};

/// A condition's message is for people: more than this nobody reads, and Events take no more.
pub const LONGEST_MESSAGE: usize = 1000;

/// The node's Locator.
#[must_use]
pub fn locator_spec(locator: &OwnLocator) -> LocatorSpec {
    let identity = &locator.identity;
    LocatorSpec {
        node_number: identity.number.into(),
        locator: identity.locator.to_string(),
        pod_cidrs: prefixes(identity.pods),
        underlay_addresses: locator.underlay.iter().map(ToString::to_string).collect(),
        mtu: locator.mtu,
        capabilities: Vec::new(),
    }
}

/// The node's status. `before`: conditions as they were published last, of which those that have not turned keep their time;
/// `generation`: of the object that the conditions are observed at.
#[must_use]
pub fn node_status(
    status: &Status,
    before: &[Condition],
    generation: Option<i64>,
    now: Timestamp,
) -> HeadwayNodeStatus {
    let count = |figure: usize| u32::try_from(figure).unwrap_or(u32::MAX);
    let identity = status.identity.as_ref();
    HeadwayNodeStatus {
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        node_number: identity.map(|identity| identity.number.into()),
        locator: identity.map(|identity| identity.locator.to_string()),
        pod_cidrs: identity.map(|identity| prefixes(identity.pods)).unwrap_or_default(),
        uplinks: status.uplinks.clone(),
        datapath: "tc".to_owned(),
        mtu: status.mtu,
        headroom: HeadroomStatus { wanted: status.headroom, supported: status.headroom_supported },
        endpoints: count(status.figures.endpoints),
        peers: PeersStatus {
            known: count(status.figures.known),
            routed: count(status.figures.routed),
            probed: count(status.figures.probed),
            reachable: count(status.figures.reachable),
        },
        conditions: status.conditions.iter().map(|one| condition(one, before, generation, now)).collect(),
    }
}

fn condition(
    one: &conditions::Condition,
    before: &[Condition],
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    let status = if one.holds { "True" } else { "False" };
    let same = before.iter().find(|former| former.type_ == one.kind && former.status == status);
    Condition {
        type_: one.kind.to_owned(),
        status: status.to_owned(),
        reason: one.reason.to_owned(),
        message: clipped(&one.message),
        last_transition_time: same.map_or(Time(now), |former| former.last_transition_time.clone()),
        observed_generation: generation,
    }
}

/// The beginning of a message that is too long.
#[must_use]
pub fn clipped(message: &str) -> String {
    match message.char_indices().nth(LONGEST_MESSAGE) {
        None => message.to_owned(),
        Some((end, _)) => format!("{}...", &message[..end]),
    }
}

fn prefixes(pods: PodCidrs) -> Vec<String> {
    let v4 = pods.v4.map(|net| net.to_string());
    v4.into_iter().chain(pods.v6.map(|net| net.to_string())).collect()
}

/// What makes an object go with the Node.
#[must_use]
pub fn owned_by_node(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(kind: &'static str, holds: bool) -> conditions::Condition {
        conditions::Condition { kind, holds, reason: "Why", message: "m".repeat(2000) }
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_turns() {
        let (early, late) = (Timestamp::from_second(100).unwrap(), Timestamp::from_second(200).unwrap());
        let status = Status { conditions: vec![one("A", true), one("B", true)], ..Status::default() };
        let before = node_status(&status, &[], Some(1), early).conditions;
        let status = Status { conditions: vec![one("A", true), one("B", false)], ..Status::default() };
        let after = node_status(&status, &before, Some(1), late).conditions;
        let times: Vec<_> = after.iter().map(|one| one.last_transition_time.0).collect();
        assert_eq!(times, [early, late]);
        assert_eq!((after[0].status.as_str(), after[1].status.as_str()), ("True", "False"));
        assert_eq!(after[0].observed_generation, Some(1));
        assert!(after[0].message.chars().count() <= LONGEST_MESSAGE + 3);
    }

    #[test]
    fn prefixes_stay_in_the_order_of_families() {
        let pods = PodCidrs { v4: "10.1.2.0/24".parse().ok(), v6: "fd10:0:0:2::/64".parse().ok() };
        assert_eq!(prefixes(pods), ["10.1.2.0/24", "fd10:0:0:2::/64"]);
    }
}
