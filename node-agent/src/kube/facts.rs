//! From the API server's objects to facts. Nothing is checked here: that is the core's affair.

use agent_core::{
    identity::{NUMBER_ANNOTATION, NodeObject},
    membership::Claim,
};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::objects::Locator;

/// What a Locator claims.
#[must_use]
pub fn claim(locator: &Locator) -> Claim {
    let owner = locator.owner_references().iter().find(|owner| owner.kind == "Node");
    Claim {
        created: locator.creation_timestamp().map_or(i64::MAX, |time| time.0.as_second()),
        owner: owner.map_or_else(String::new, |owner| owner.uid.clone()),
        number: locator.spec.node_number,
        locator: locator.spec.locator.clone(),
        pod_cidrs: locator.spec.pod_cidrs.clone(),
        addresses: locator.spec.underlay_addresses.clone(),
        mtu: locator.spec.mtu,
    }
}

/// What a Node says.
#[must_use]
pub fn node(node: &Node) -> NodeObject {
    let spec = node.spec.as_ref();
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let internal = addresses.filter(|address| address.type_ == "InternalIP");
    NodeObject {
        name: node.name_any(),
        uid: node.uid().unwrap_or_default(),
        pod_cidrs: spec.and_then(|spec| spec.pod_cidrs.clone()).unwrap_or_default(),
        number_annotation: node.annotations().get(NUMBER_ANNOTATION).cloned(),
        internal_ips: internal.filter_map(|address| address.address.parse().ok()).collect(),
    }
}
