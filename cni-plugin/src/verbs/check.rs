//! CHECK: is the pod's interface what ADD said, and does the agent agree?

use std::{net::IpAddr, path::Path};

use agent_api::{Check, Verb};

use super::{Outcome, key};
use crate::{
    agent::Agent,
    cni::{Attachment, CniResult, Config, Error, Interface, Invocation, Kind},
    netns::Netns,
    pod_link::{self, PodInterface},
};

pub fn check(
    invocation: &Invocation,
    attachment: &Attachment,
    netns: &Path,
    config: &Config,
) -> Result<Outcome, Error> {
    let previous = config.previous.as_ref().ok_or_else(|| {
        Error::new(Kind::InvalidConfiguration, "prevResult is missing: CHECK has nothing to compare with")
    })?;
    let expected = CniResult::from_previous(previous)?;
    let netns = Netns::open(netns, invocation.own_netns_allowed)?;
    let ifname = &attachment.ifname;
    let Some(found) = pod_link::inspect(&netns, ifname)? else {
        return Err(mismatch(&[format!("the pod has no interface {ifname}")]));
    };
    let mut problems = differences(&expected, ifname, &found);
    problems.extend(Agent::new(config).problems(Verb::Check(Check {
        key: key(attachment, config),
        netns_inode: netns.inode(),
        host_ifindex: found.link.peer_index,
        mac: found.link.mac,
        mtu: found.link.mtu,
        addresses: found.addresses,
        attributes: found.link.attributes,
    }))?);
    if problems.is_empty() { Ok(Outcome::default()) } else { Err(mismatch(&problems)) }
}

fn mismatch(problems: &[String]) -> Error {
    Error::new(Kind::Mismatch, "the attachment is not as it should be").because(&problems.join("; "))
}

/// What of the result of ADD is no longer so. Plugins that came later may have added to the pod: only what the result
/// says of our interface, and its routes, is looked for.
fn differences(expected: &CniResult, ifname: &str, found: &PodInterface) -> Vec<String> {
    let mut problems = Vec::new();
    match expected.in_pod(ifname) {
        None => problems.push(format!("prevResult has no interface {ifname} in a sandbox")),
        Some((interface, addresses)) => {
            problems.extend(link_differences(interface, found));
            let missing = addresses.iter().filter(|address| !found.addresses.contains(address));
            problems.extend(missing.map(|address| format!("{ifname} does not have the address {address}")));
        }
    }
    let there = |destination, gateway: Option<IpAddr>| {
        found.routes.iter().any(|route| route.0 == destination && (gateway.is_none() || route.1 == gateway))
    };
    for route in &expected.routes {
        if !there(route.dst.trunc(), route.gw) {
            let via = route.gw.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
            problems.push(format!("the pod does not have the route {}{via}", route.dst));
        }
    }
    problems
}

fn link_differences(interface: &Interface, found: &PodInterface) -> Vec<String> {
    let name = &interface.name;
    let mut problems = Vec::new();
    if !found.link.up {
        problems.push(format!("{name} is down"));
    }
    let mac = found.link.mac.to_string();
    if let Some(wanted) = interface.mac.as_deref().filter(|wanted| !wanted.eq_ignore_ascii_case(&mac)) {
        problems.push(format!("{name} has MAC {mac} instead of {wanted}"));
    }
    if let Some(wanted) = interface.mtu.filter(|wanted| *wanted != 0 && *wanted != found.link.mtu) {
        problems.push(format!("{name} has MTU {} instead of {wanted}", found.link.mtu));
    }
    problems
}

#[cfg(test)]
mod tests {
    use agent_api::MacAddress;
    use serde_json::json;

    use super::*;
    use crate::pod_link::LinkView;

    fn expected() -> CniResult {
        let result = json!({
            "interfaces": [{"name": "hw0"}, {"name": "eth0", "mac": "0A:58:0a:01:01:05", "mtu": 1446, "sandbox": "/x"}],
            "ips": [{"address": "10.1.1.5/16", "interface": 1}, {"address": "192.168.0.1/24", "interface": 0}],
            "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.1.1"}, {"dst": "10.1.1.5/16"}],
        });
        CniResult::from_previous(&result).unwrap()
    }

    fn found() -> PodInterface {
        let mac = MacAddress([10, 0x58, 10, 1, 1, 5]);
        PodInterface {
            link: LinkView { up: true, mac, mtu: 1446, ..LinkView::default() },
            addresses: vec!["10.1.1.5/16".parse().unwrap(), "172.16.0.1/12".parse().unwrap()],
            routes: vec![
                ("0.0.0.0/0".parse().unwrap(), "10.1.1.1".parse().ok()),
                ("10.1.0.0/16".parse().unwrap(), None),
            ],
        }
    }

    #[test]
    fn a_pod_as_it_should_be_has_no_differences() {
        assert_eq!(differences(&expected(), "eth0", &found()), Vec::<String>::new());
    }

    #[test]
    fn every_change_is_a_difference() {
        let changes: [fn(&mut PodInterface); 6] = [
            |pod| pod.link.up = false,
            |pod| pod.link.mac = MacAddress([2; 6]),
            |pod| pod.link.mtu = 1500,
            |pod| pod.addresses.clear(),
            |pod| pod.routes[0].1 = "10.1.1.9".parse().ok(),
            |pod| pod.routes.truncate(1),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut pod = found();
            change(&mut pod);
            assert_eq!(differences(&expected(), "eth0", &pod).len(), 1, "change {number}");
        }
        assert_eq!(differences(&expected(), "eth1", &found()).len(), 1);
    }
}
