//! The result of ADD, which comes back as `prevResult` in CHECK (section 5 "Result Types").

use std::net::IpAddr;

use agent_api::Assignment;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{CniVersion, Error, Kind};

/// A result. Members of later versions are left out of earlier ones by [`CniResult::in_version`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CniResult {
    /// The version whose form this has.
    pub cni_version: String,
    /// Interfaces, on the node and in the pod.
    pub interfaces: Vec<Interface>,
    /// Addresses.
    pub ips: Vec<Ip>,
    /// Routes of the pod.
    pub routes: Vec<Route>,
    /// Name resolution.
    #[serde(skip_serializing_if = "Dns::is_empty")]
    pub dns: Dns,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// MAC address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Bytes; since 1.1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// `CNI_NETNS` for an interface in the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ip {
    /// `"4"` or `"6"`; until 0.4.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// With its prefix length.
    pub address: IpNet,
    /// Default gateway of its family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Index into the interfaces; 0 is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Destination.
    pub dst: IpNet,
    /// Next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
}

/// Name resolution: only passed through.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dns {
    /// Servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// Local domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Domains to try.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Options of the resolver.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

impl Dns {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What ADD has made.
pub struct Addition<'a> {
    /// As the agent wanted it.
    pub assignment: &'a Assignment,
    /// Name of the pod's interface.
    pub ifname: &'a str,
    /// `CNI_NETNS`.
    pub sandbox: &'a str,
    /// From the configuration.
    pub dns: &'a Dns,
}

impl From<Addition<'_>> for CniResult {
    fn from(addition: Addition<'_>) -> Self {
        let Addition { assignment, ifname, sandbox, dns } = addition;
        let interface = |name: &str, mac: String, sandbox| Interface {
            name: name.to_owned(),
            mac: Some(mac),
            mtu: Some(assignment.mtu),
            sandbox,
        };
        let interfaces = vec![
            interface(&assignment.host_ifname, assignment.host_mac.to_string(), None),
            interface(ifname, assignment.mac.to_string(), Some(sandbox.to_owned())),
        ];
        let default_gateway = |family_of: &IpNet| {
            let mut routes = assignment.routes.iter();
            let found = routes.find(|it| {
                it.destination.prefix_len() == 0 && it.gateway.is_ipv4() == family_of.addr().is_ipv4()
            });
            found.map(|route| route.gateway)
        };
        let ips = assignment.addresses.iter().map(|address| Ip {
            version: Some(if address.addr().is_ipv4() { "4" } else { "6" }.to_owned()),
            address: *address,
            gateway: default_gateway(address),
            interface: Some(1),
        });
        let routes = assignment.routes.iter().map(|it| Route { dst: it.destination, gw: Some(it.gateway) });
        Self {
            cni_version: String::new(),
            interfaces,
            ips: ips.collect(),
            routes: routes.collect(),
            dns: dns.clone(),
        }
    }
}

impl CniResult {
    /// The same in the form of `version`.
    #[must_use]
    pub fn in_version(mut self, version: CniVersion) -> Self {
        version.as_str().clone_into(&mut self.cni_version);
        if version >= CniVersion::V1_0_0 {
            for ip in &mut self.ips {
                ip.version = None;
            }
        }
        if version < CniVersion::V1_1_0 {
            for interface in &mut self.interfaces {
                interface.mtu = None;
            }
        }
        self
    }

    /// Reads a `prevResult` of any version.
    ///
    /// # Errors
    /// [`Kind::Decode`].
    pub fn from_previous(value: &serde_json::Value) -> Result<Self, Error> {
        Self::deserialize(value)
            .map_err(|error| Error::new(Kind::Decode, "prevResult is not understood").because(&error))
    }

    /// The pod's interface, and the addresses on it.
    pub fn in_pod(&self, ifname: &str) -> Option<(&Interface, Vec<IpNet>)> {
        let is_it =
            |it: &Interface| it.name == ifname && it.sandbox.as_deref().is_some_and(|path| !path.is_empty());
        let index = self.interfaces.iter().position(is_it)?;
        let on_it = self.ips.iter().filter(|ip| ip.interface == Some(index));
        Some((&self.interfaces[index], on_it.map(|ip| ip.address).collect()))
    }
}

#[cfg(test)]
mod tests {
    use agent_api::MacAddress;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn in_version(version: CniVersion) -> Value {
        let assignment = Assignment {
            nonce: "n".into(),
            host_ifname: "hw0123456789ab".into(),
            host_mac: MacAddress([2, 0, 0, 0, 0, 1]),
            mac: MacAddress([10, 0x58, 10, 1, 1, 5]),
            mtu: 1446,
            addresses: vec!["10.1.1.5/16".parse().unwrap(), "fd10::5/48".parse().unwrap()],
            routes: vec![
                agent_api::Route {
                    destination: "0.0.0.0/0".parse().unwrap(),
                    gateway: "10.1.1.1".parse().unwrap(),
                },
                agent_api::Route {
                    destination: "::/0".parse().unwrap(),
                    gateway: "fd10::1".parse().unwrap(),
                },
            ],
            headroom: 64,
            headroom_attribute: None,
        };
        let dns = Dns { nameservers: vec!["10.1.0.1".into()], ..Dns::default() };
        let addition =
            Addition { assignment: &assignment, ifname: "eth0", sandbox: "/run/netns/x", dns: &dns };
        serde_json::to_value(CniResult::from(addition).in_version(version)).unwrap()
    }

    #[test]
    fn the_newest_form_has_everything() {
        let expected = json!({
            "cniVersion": "1.1.0",
            "interfaces": [
                {"name": "hw0123456789ab", "mac": "02:00:00:00:00:01", "mtu": 1446},
                {"name": "eth0", "mac": "0a:58:0a:01:01:05", "mtu": 1446, "sandbox": "/run/netns/x"}
            ],
            "ips": [
                {"address": "10.1.1.5/16", "gateway": "10.1.1.1", "interface": 1},
                {"address": "fd10::5/48", "gateway": "fd10::1", "interface": 1}
            ],
            "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.1.1"}, {"dst": "::/0", "gw": "fd10::1"}],
            "dns": {"nameservers": ["10.1.0.1"]}
        });
        assert_eq!(in_version(CniVersion::V1_1_0), expected);
    }

    #[test]
    fn older_forms_differ_where_the_specification_does() {
        for (version, has_family) in
            [(CniVersion::V0_3_1, true), (CniVersion::V0_4_0, true), (CniVersion::V1_0_0, false)]
        {
            let result = in_version(version);
            assert_eq!(result["cniVersion"], version.as_str());
            assert_eq!(result["ips"][1]["version"], if has_family { json!("6") } else { Value::Null });
            assert_eq!(result["interfaces"][1]["mtu"], Value::Null);
        }
    }

    #[test]
    fn every_form_is_understood_when_it_comes_back() {
        for version in CniVersion::ALL {
            let result = CniResult::from_previous(&in_version(version)).unwrap();
            let (interface, addresses) = result.in_pod("eth0").unwrap();
            assert_eq!(interface.mac.as_deref(), Some("0a:58:0a:01:01:05"));
            assert_eq!(addresses.len(), 2);
            assert!(result.in_pod("hw0123456789ab").is_none());
        }
    }

    #[test]
    fn interface_index_0_is_an_index() {
        let text = json!({"interfaces": [{"name": "a", "sandbox": "/x"}], "ips": [{"address": "10.0.0.1/8", "interface": 0}]});
        assert_eq!(CniResult::from_previous(&text).unwrap().in_pod("a").unwrap().1.len(), 1);
    }

    proptest! {
        #[test]
        fn any_previous_result_is_understood_or_refused(text in r#"\{"(ips|interfaces|routes|dns)":(\[\]|\{\}|\[\{"(address|name|dst)":".*"\}\]|null|1)\}"#) {
            if let Ok(value) = serde_json::from_str(&text) {
                let _ = CniResult::from_previous(&value);
            }
        }
    }
}
