//! The network configuration that arrives on stdin (section 1 "Configuration format").

use std::path::PathBuf;

use agent_api::names;
use serde::Deserialize;
use serde_json::Value;

use super::{Args, CniVersion, Dns, Error, Kind, invocation::is_identifier, requests::Requests};

/// The version that a configuration without one has.
const UNSAID_VERSION: &str = "0.1.0";

/// A configuration, as far as this plugin reads it. Keys that it does not know are other people's.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The version in which to answer.
    pub version: CniVersion,
    /// Network name.
    pub network: String,
    /// Where the agent listens.
    pub agent_socket: PathBuf,
    /// Where DEL leaves word while the agent is away.
    pub pending_directory: PathBuf,
    /// Passed through to the result.
    pub dns: Dns,
    /// What the plugins before this one, or all plugins at ADD, have made.
    pub previous: Option<Value>,
    /// GC: (container id, ifname) of what the runtime still has.
    pub valid_attachments: Option<Vec<(String, String)>>,
    requests: Vec<(String, Value)>,
}

#[derive(Deserialize)]
struct Versioned {
    #[serde(rename = "cniVersion")]
    version: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    name: Option<String>,
    agent_socket: Option<PathBuf>,
    pending_directory: Option<PathBuf>,
    dns: Option<Dns>,
    prev_result: Option<Value>,
    #[serde(flatten)]
    requests: Requests,
    /// The specification's name for the list.
    #[serde(rename = "cni.dev/valid-attachments")]
    valid_attachments: Option<Vec<RawAttachment>>,
    /// libcni's name for it; it sends both.
    #[serde(rename = "cni.dev/attachments")]
    attachments: Option<Vec<RawAttachment>>,
}

#[derive(Deserialize)]
struct RawAttachment {
    #[serde(rename = "containerID")]
    container: String,
    ifname: String,
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// [`Kind::Decode`] if it is not JSON of the right types, [`Kind::IncompatibleVersion`],
    /// [`Kind::InvalidConfiguration`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let decode = |error| Error::new(Kind::Decode, "the configuration is not understood").because(&error);
        let Versioned { version } = serde_json::from_slice(bytes).map_err(decode)?;
        let version = version.as_deref().unwrap_or(UNSAID_VERSION);
        let version = CniVersion::parse(version).ok_or_else(|| {
            let spoken = CniVersion::ALL.map(CniVersion::as_str).join(", ");
            Error::new(Kind::IncompatibleVersion, format!("cniVersion {version:?} is not one of {spoken}"))
        })?;
        let raw: Raw = serde_json::from_slice(bytes).map_err(decode)?;
        let requests = raw.requests.said();
        let valid_attachments = raw.union_of_attachments();
        let network = raw.name.filter(|name| !name.is_empty()).ok_or_else(|| invalid("name is missing"))?;
        if !is_identifier(&network) {
            return Err(invalid(format!("name: {network:?} is not made of letters, digits, '.', '_', '-'")));
        }
        Ok(Self {
            version,
            network,
            agent_socket: absolute("agentSocket", raw.agent_socket, names::SOCKET)?,
            pending_directory: absolute("pendingDirectory", raw.pending_directory, names::PENDING)?,
            dns: raw.dns.unwrap_or_default(),
            previous: raw.prev_result,
            valid_attachments,
            requests,
        })
    }

    /// Says no, at ADD, to what was asked for and will not be done: silence would look like success.
    ///
    /// # Errors
    /// [`Kind::UnsupportedField`] with key and value of the first request, all of them in the details;
    /// [`Kind::InvalidConfiguration`] if another plugin comes first in the chain.
    pub fn refuse_what_is_not_done(&self, args: &Args) -> Result<(), Error> {
        if self.previous.is_some() {
            return Err(invalid(
                "headway makes the pod's interface and has to be the first plugin of its list",
            ));
        }
        let asked = self.requests.iter().map(|(key, value)| format!("{key} = {value}"));
        let asked =
            asked.chain(args.requests.iter().map(|(key, value)| format!("CNI_ARGS {key} = {value:?}")));
        let asked: Vec<String> = asked.collect();
        let Some(first) = asked.first() else { return Ok(()) };
        let error = Error::new(Kind::UnsupportedField, format!("not supported yet: {first}"));
        Err(if asked.len() > 1 { error.because(&asked.join(", ")) } else { error })
    }

    /// Ends a verb that the configuration's version does not have.
    ///
    /// # Errors
    /// [`Kind::IncompatibleVersion`].
    pub fn require(&self, verb: &str, since: CniVersion) -> Result<(), Error> {
        if self.version >= since {
            return Ok(());
        }
        let (version, since) = (self.version.as_str(), since.as_str());
        let message = format!("{verb} needs cniVersion {since} or newer, the configuration has {version}");
        Err(Error::new(Kind::IncompatibleVersion, message))
    }
}

impl Raw {
    /// The attachments under both names; nothing if there is no list at all.
    fn union_of_attachments(&self) -> Option<Vec<(String, String)>> {
        if self.valid_attachments.is_none() && self.attachments.is_none() {
            return None;
        }
        let both = self.valid_attachments.iter().chain(&self.attachments).flatten();
        let mut pairs: Vec<_> = both.map(|it| (it.container.clone(), it.ifname.clone())).collect();
        pairs.sort_unstable();
        pairs.dedup();
        Some(pairs)
    }
}

fn absolute(key: &str, path: Option<PathBuf>, default: &str) -> Result<PathBuf, Error> {
    let path = path.unwrap_or_else(|| default.into());
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(invalid(format!("{key}: {path:?} is not an absolute path")))
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Kind::InvalidConfiguration, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn parse(value: &Value) -> Result<Config, Error> {
        Config::parse(value.to_string().as_bytes())
    }

    fn with(key: &str, value: Value) -> Config {
        let mut config = json!({"cniVersion": "1.1.0", "name": "headway", "type": "headway"});
        config[key] = value;
        parse(&config).unwrap()
    }

    fn refusal(key: &str, value: Value) -> Result<(), Error> {
        with(key, value).refuse_what_is_not_done(&Args::default())
    }

    #[test]
    fn what_is_not_said_has_its_default() {
        let config = parse(&json!({"cniVersion": "0.4.0", "name": "n", "somebody": {"else's": 1}})).unwrap();
        assert_eq!(config.version, CniVersion::V0_4_0);
        assert_eq!(config.agent_socket.to_str(), Some(names::SOCKET));
        assert_eq!(config.pending_directory.to_str(), Some(names::PENDING));
        assert_eq!(config.valid_attachments, None);
    }

    #[test]
    fn each_fault_has_its_code() {
        let cases = [
            (json!({"name": "n"}), Kind::IncompatibleVersion),
            (json!({"cniVersion": "0.2.0", "name": "n"}), Kind::IncompatibleVersion),
            (json!({"cniVersion": "2.0.0", "name": 7}), Kind::IncompatibleVersion),
            (json!({"cniVersion": 1, "name": "n"}), Kind::Decode),
            (json!([1]), Kind::Decode),
            (json!({"cniVersion": "1.1.0", "name": 1}), Kind::Decode),
            (json!({"cniVersion": "1.1.0", "name": "n", "ipam": []}), Kind::Decode),
            (json!({"cniVersion": "1.1.0"}), Kind::InvalidConfiguration),
            (json!({"cniVersion": "1.1.0", "name": ""}), Kind::InvalidConfiguration),
            (json!({"cniVersion": "1.1.0", "name": "../n"}), Kind::InvalidConfiguration),
            (json!({"cniVersion": "1.1.0", "name": "n", "agentSocket": "x"}), Kind::InvalidConfiguration),
        ];
        for (config, kind) in cases {
            assert_eq!(parse(&config).unwrap_err().kind, kind, "{config}");
        }
        assert_eq!(Config::parse(b"").unwrap_err().kind, Kind::Decode);
        assert_eq!(Config::parse(&[b'['; 100_000]).unwrap_err().kind, Kind::Decode);
    }

    #[test]
    fn what_is_not_done_is_refused_by_key_and_value() {
        let requests = [
            (
                "runtimeConfig",
                json!({"mac": "02:00:00:00:00:01"}),
                r#"runtimeConfig.mac = "02:00:00:00:00:01""#,
            ),
            ("runtimeConfig", json!({"ips": ["10.0.0.1/24"]}), r#"runtimeConfig.ips = ["10.0.0.1/24"]"#),
            ("runtimeConfig", json!({"bandwidth": {"ingressRate": 1}}), "runtimeConfig.bandwidth"),
            ("runtimeConfig", json!({"deviceID": "0000:01:00.0"}), "runtimeConfig.deviceID"),
            ("args", json!({"cni": {"mac": "x"}}), "args.cni.mac"),
            ("ipam", json!({"type": "host-local"}), r#"ipam.type = "host-local""#),
            ("allowUnknownSources", json!(true), "allowUnknownSources"),
        ];
        for (key, value, said) in requests {
            let error = refusal(key, value).unwrap_err();
            assert_eq!(error.kind, Kind::UnsupportedField);
            assert!(error.message.contains(said), "{error}");
        }
        let args = Args::parse("MAC=02:00:00:00:00:01").unwrap();
        let error = with("x", Value::Null).refuse_what_is_not_done(&args).unwrap_err();
        assert!(error.message.contains("MAC"), "{error}");
    }

    #[test]
    fn empty_requests_and_those_for_others_are_none() {
        refusal("runtimeConfig", json!({"mac": "", "ips": [], "bandwidth": {}, "deviceID": null})).unwrap();
        refusal("runtimeConfig", json!({"portMappings": [{"hostPort": 80}], "cgroupPath": "/x"})).unwrap();
        refusal("ipam", json!({})).unwrap();
        refusal("allowUnknownSources", json!(false)).unwrap();
    }

    #[test]
    fn a_plugin_before_this_one_is_refused() {
        assert_eq!(refusal("prevResult", json!({})).unwrap_err().kind, Kind::InvalidConfiguration);
    }

    #[test]
    fn the_list_of_attachments_has_two_names() {
        let one = json!([{"containerID": "a", "ifname": "eth0"}]);
        for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
            assert_eq!(with(key, one.clone()).valid_attachments, Some(vec![("a".into(), "eth0".into())]));
        }
        assert_eq!(with("cni.dev/valid-attachments", json!([])).valid_attachments, Some(vec![]));
        let both = json!({"cniVersion": "1.1.0", "name": "n", "cni.dev/valid-attachments": one.clone(),
            "cni.dev/attachments": [{"containerID": "b", "ifname": "eth0"}, one[0].clone()]});
        assert_eq!(parse(&both).unwrap().valid_attachments.unwrap().len(), 2);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_understood_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Config::parse(&bytes);
        }

        #[test]
        fn any_value_under_any_key_is_understood_or_refused(
            key in "name|dns|prevResult|runtimeConfig|args|ipam|cni.dev/attachments|agentSocket",
            value in ".*|-?[0-9]{1,40}|true|null|\\[\\]|\\{\"type\":1\\}|\\{\"cni\":[0-9]\\}",
        ) {
            let text = format!(r#"{{"cniVersion":"1.1.0","name":"n","{key}":{value}}}"#);
            if let Ok(config) = Config::parse(text.as_bytes()) {
                let _ = config.refuse_what_is_not_done(&Args::default());
            }
        }
    }
}
