//! The CNI configuration that makes container runtimes call the plugin.

use serde_json::{Map, Value, json};

use super::Paths;

/// CNI versions that the plugin serves, ascending.
pub(super) const VERSIONS: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// The file's content: headway first, then the chained plugins; versions up to `highest`.
pub(super) fn content(network: &str, highest: &str, paths: &Paths, chain: &[Map<String, Value>]) -> String {
    let count = VERSIONS.iter().position(|version| *version == highest).map_or(VERSIONS.len(), |at| at + 1);
    let headway = json!({
        "type": "headway",
        "agentSocket": paths.socket,
        "pendingDirectory": paths.pending(),
    });
    let plugins: Vec<Value> = [headway].into_iter().chain(chain.iter().cloned().map(Value::Object)).collect();
    let conflist = json!({
        "cniVersion": highest,
        "cniVersions": VERSIONS[..count],
        "name": network,
        "plugins": plugins,
    });
    format!("{conflist:#}\n")
}
