//! The chart and the agent say the same: definitions, settings with their defaults and descriptions, manifests of the right form.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{fs, path::Path};

use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    apps::v1::DaemonSet,
    core::v1::{ConfigMap, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use node_agent::{config, kube::crds};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn manifests() -> Vec<Value> {
    let text = read("deploy/headway.yaml");
    let documents = text.split("\n---\n").filter(|document| document.contains("kind:"));
    documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

#[test]
fn the_chart_brings_the_definitions_of_this_agent() {
    assert!(
        read("charts/headway/files/crds.yaml") == crds::yaml().unwrap(),
        "write them anew: headway-agent crds > charts/headway/files/crds.yaml, and deploy/headway.yaml"
    );
}

#[test]
fn the_chart_takes_the_settings_of_the_agent() {
    let chart: Value = serde_json::from_str(&read("charts/headway/values.schema.json")).unwrap();
    let agent = config::schema();
    let settings = agent.get("properties").and_then(Value::as_object).unwrap();
    for (name, setting) in settings {
        // Peers come from Kubernetes; the chart has more to say on the others.
        if !["peers", "node", "sidBlock", "clusterCIDRs", "cni"].contains(&name.as_str()) {
            assert_eq!(chart["properties"][name], *setting, "charts/headway/values.schema.json: {name}");
        }
    }
    let definitions = agent.get("$defs").and_then(Value::as_object).unwrap();
    for (name, definition) in definitions {
        match name.as_str() {
            "Node" | "Peer" => {}
            "Cni" => {
                for (name, setting) in definition["properties"].as_object().unwrap() {
                    // The chart makes the file's name from `confPriority`.
                    if name != "confName" {
                        assert_eq!(chart["$defs"]["Cni"]["properties"][name], *setting, "cni.{name}");
                    }
                }
            }
            _ => assert_eq!(chart["$defs"][name], *definition, "values.schema.json, $defs: {name}"),
        }
    }
}

#[test]
fn every_value_is_described() {
    fn undescribed(path: &str, schema: &Value, found: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if !property["description"].is_string() {
                found.push(path.clone());
            }
            undescribed(&path, property, found);
        }
    }
    let schema: Value = serde_json::from_str(&read("charts/headway/values.schema.json")).unwrap();
    let mut found = Vec::new();
    undescribed("", &schema, &mut found);
    assert_eq!(found, Vec::<String>::new());
    let values: Value = serde_saphyr::from_str(&read("charts/headway/values.yaml")).unwrap();
    for name in values.as_object().unwrap().keys() {
        assert!(schema["properties"][name].is_object(), "{name} is not in values.schema.json");
    }
}

/// The agent's configuration that the chart makes.
fn config_file() -> String {
    let config_map = manifests().into_iter().find(|object| object["kind"] == "ConfigMap").unwrap();
    config_map["data"]["config.yaml"].as_str().unwrap().to_owned()
}

#[test]
fn the_chart_configures_an_agent_in_kubernetes() {
    config::parse_cluster(&config_file()).unwrap();
}

#[test]
fn the_defaults_of_the_chart_are_those_of_the_agent() {
    let mut chart: Value = serde_saphyr::from_str(&config_file()).unwrap();
    let mut least = json!({
        "node": {"name": "a", "number": 1, "podCIDRs": ["10.244.1.0/24"], "uplinks": ["eth0"]},
        "sidBlock": "5f00:1::/32",
        "clusterCIDRs": ["10.244.0.0/16"],
    });
    for (name, value) in least.as_object().unwrap() {
        chart[name] = value.clone();
    }
    // The one thing in which the chart differs.
    least["cni"] = json!({"chain": chart["cni"]["chain"]});
    assert_eq!(config::parse(&chart.to_string()).unwrap(), config::parse(&least.to_string()).unwrap());
}

/// What the type does not know is lost on the way, and the difference shows it: a field that is misspelt or in the wrong
/// place.
fn assert_form<T: DeserializeOwned + Serialize>(object: &Value) {
    let typed: T = serde_json::from_value(object.clone())
        .unwrap_or_else(|error| panic!("{} {}: {error}", object["kind"], object["metadata"]["name"]));
    assert_eq!(serde_json::to_value(typed).unwrap(), *object);
}

#[test]
fn the_manifests_have_the_form_of_the_oldest_kubernetes() {
    let manifests = manifests();
    assert!(manifests.len() > 10, "{} manifests", manifests.len());
    for object in &manifests {
        match object["kind"].as_str().unwrap() {
            "ServiceAccount" => assert_form::<ServiceAccount>(object),
            "ConfigMap" => assert_form::<ConfigMap>(object),
            "ClusterRole" => assert_form::<ClusterRole>(object),
            "ClusterRoleBinding" => assert_form::<ClusterRoleBinding>(object),
            "Role" => assert_form::<Role>(object),
            "RoleBinding" => assert_form::<RoleBinding>(object),
            "DaemonSet" => assert_form::<DaemonSet>(object),
            // Made from types, see above; numbers in their schemas have two forms.
            "CustomResourceDefinition" => {}
            "ValidatingAdmissionPolicy" => assert_form::<ValidatingAdmissionPolicy>(object),
            "ValidatingAdmissionPolicyBinding" => assert_form::<ValidatingAdmissionPolicyBinding>(object),
            other => panic!("no form for {other}"),
        }
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let dashboard: Value = serde_json::from_str(&read("charts/headway/files/dashboard.json")).unwrap();
    // Families are not shown before something is counted, so their names are looked for where they are registered.
    let registered = read("node-agent/src/metrics.rs");
    for panel in dashboard["panels"].as_array().unwrap() {
        let targets = panel["targets"].as_array().unwrap();
        let words = targets.iter().flat_map(|target| {
            let expression = target["expr"].as_str().unwrap();
            expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        });
        for metric in words.filter(|word| word.starts_with("headway_")) {
            // What is added to names as they are registered.
            let name =
                metric.trim_start_matches("headway_").trim_end_matches("_total").trim_end_matches("_bucket");
            assert!(registered.contains(&format!("\"{name}\"")), "{}: {metric}", panel["title"]);
        }
    }
}
