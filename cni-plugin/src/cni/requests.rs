//! What a runtime or an operator may ask for and this release does not do.

use serde::Deserialize;
use serde_json::{Map, Value};

const IN_RUNTIME_CONFIG: [&str; 6] = ["mac", "ips", "ipRanges", "bandwidth", "deviceID", "infinibandGUID"];
const IN_CNI_ARGS: [&str; 2] = ["mac", "ips"];

/// The members of a configuration that hold requests.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requests {
    runtime_config: Option<Map<String, Value>>,
    args: Option<Map<String, Value>>,
    ipam: Option<Map<String, Value>>,
    allow_unknown_sources: Option<bool>,
}

impl Requests {
    /// The requests that are not served yet: (key, value).
    pub fn said(&self) -> Vec<(String, Value)> {
        let cni_args = self.args.as_ref().and_then(|args| args.get("cni")).and_then(Value::as_object);
        let mut found = Vec::new();
        let mut look = |place: &str, keys: &[&str], map: Option<&Map<String, Value>>| {
            for key in keys {
                if let Some(value) = map.and_then(|map| map.get(*key)).filter(|value| says_something(value)) {
                    found.push((format!("{place}.{key}"), value.clone()));
                }
            }
        };
        look("runtimeConfig", &IN_RUNTIME_CONFIG, self.runtime_config.as_ref());
        look("args.cni", &IN_CNI_ARGS, cni_args);
        look("ipam", &["type"], self.ipam.as_ref());
        if self.allow_unknown_sources == Some(true) {
            found.push(("allowUnknownSources".into(), true.into()));
        }
        found
    }
}

/// Runtimes leave empty values where nothing is asked for.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}
