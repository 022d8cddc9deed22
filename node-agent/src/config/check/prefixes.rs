//! Prefixes, each by itself.

use agent_core::{
    addr::{POD_LENGTHS4, POD_LENGTHS6, PodCidrs, SidBlock},
    identity::ClusterPrefixes,
};
use ipnet::{IpNet, Ipv6Net};

use super::Problems;

/// The space for SIDs (RFC 9602).
pub(super) const SRV6: Ipv6Net =
    Ipv6Net::new_assert(std::net::Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16);

/// A prefix without host bits.
pub(super) fn prefix(field: &str, text: &str, problems: &mut Problems) -> Option<IpNet> {
    let message = || format!("{text:?} is not a prefix, such as 10.1.0.0/16 or fd10::/48");
    let net: IpNet = problems.take(field, text.parse().map_err(|_| message()))?;
    let trimmed = net.trunc();
    if trimmed != net {
        problems.add(field, format!("{net} has bits set beyond its length: {trimmed} would be right"));
        return None;
    }
    Some(net)
}

/// Prefixes of any family and number.
pub(super) fn list(field: &str, texts: &[String], problems: &mut Problems) -> Vec<IpNet> {
    texts
        .iter()
        .enumerate()
        .filter_map(|(index, text)| prefix(&format!("{field}[{index}]"), text, problems))
        .collect()
}

/// At least one prefix, at most one a family.
fn families(field: &str, texts: &[String], problems: &mut Problems) -> Option<PodCidrs> {
    let known = problems.0.len();
    if texts.is_empty() {
        problems.add(field, "at least one prefix is needed");
    }
    let mut pods = PodCidrs { v4: None, v6: None };
    for (index, text) in texts.iter().enumerate() {
        let field = format!("{field}[{index}]");
        let second = match prefix(&field, text, problems) {
            Some(IpNet::V4(net)) => pods.v4.replace(net).is_some(),
            Some(IpNet::V6(net)) => pods.v6.replace(net).is_some(),
            None => false,
        };
        problems.require(!second, &field, || format!("{text} is the second of its family: one is right"));
    }
    (problems.0.len() == known).then_some(pods)
}

/// The cluster's prefixes.
pub(super) fn cluster(texts: &[String], problems: &mut Problems) -> Option<ClusterPrefixes> {
    let both = families("clusterCIDRs", texts, problems)?;
    let first = both.prefixes().find(|net| texts.first().and_then(|text| text.parse().ok()) == Some(*net))?;
    Some(ClusterPrefixes { both, first })
}

/// A node's pod prefixes.
pub(super) fn pods(field: &str, texts: &[String], problems: &mut Problems) -> Option<PodCidrs> {
    let pods = families(field, texts, problems)?;
    let known = problems.0.len();
    let (four, six) = (POD_LENGTHS4, POD_LENGTHS6);
    problems.require(pods.v4.is_none_or(|net| four.contains(&net.prefix_len())), field, || {
        format!("{}: an IPv4 pod prefix is a /{} to /{}", shown(pods.v4), four.start(), four.end())
    });
    problems.require(pods.v6.is_none_or(|net| six.contains(&net.prefix_len())), field, || {
        format!("{}: an IPv6 pod prefix is a /{} to /{}", shown(pods.v6), six.start(), six.end())
    });
    (problems.0.len() == known).then_some(pods)
}

/// The SID block is no part of what pods are addressed by.
pub(super) fn outside_block(cluster: PodCidrs, block: SidBlock, problems: &mut Problems) {
    let (Some(net), block) = (cluster.v6, block.prefix()) else { return };
    problems.require(!overlap(net.into(), block.into()), "clusterCIDRs", || {
        format!("{net} overlaps the SID block {block}")
    });
}

/// Do two prefixes share an address?
pub(super) fn overlap(a: IpNet, b: IpNet) -> bool {
    a.contains(&b) || b.contains(&a)
}

/// A prefix that may be missing, for messages.
pub(super) fn shown(net: Option<impl ToString>) -> String {
    net.map_or_else(|| "none".into(), |net| net.to_string())
}
