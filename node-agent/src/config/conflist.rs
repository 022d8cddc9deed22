//! The CNI configuration that makes container runtimes call the plugin.

use serde_json::{Map, Value, json};

use super::Paths;

/// CNI versions that the plugin serves.
const VERSIONS: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// The file's content: headway first, then the chained plugins.
pub(super) fn content(network: &str, paths: &Paths, chain: &[Map<String, Value>]) -> String {
    let headway = json!({
        "type": "headway",
        "agentSocket": paths.socket,
        "pendingDirectory": paths.pending(),
    });
    let plugins: Vec<Value> = [headway].into_iter().chain(chain.iter().cloned().map(Value::Object)).collect();
    let conflist = json!({
        "cniVersion": VERSIONS[VERSIONS.len() - 1],
        "cniVersions": VERSIONS,
        "name": network,
        "plugins": plugins,
    });
    format!("{conflist:#}\n")
}
