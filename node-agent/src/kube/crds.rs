//! Definitions of our objects, made from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use super::objects::{HeadwayNode, Locator};

/// All definitions.
#[must_use]
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![Locator::crd(), HeadwayNode::crd()]
}

/// All definitions as YAML documents, the same text each time.
///
/// # Errors
/// If a definition cannot be written as YAML, which is a mistake in its type.
pub fn yaml() -> Result<String, serde_saphyr::ser::Error> {
    let documents: Vec<String> =
        definitions().iter().map(serde_saphyr::to_string).collect::<Result<_, _>>()?;
    Ok(documents.join("---\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn crds() -> Vec<Value> {
        definitions().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect()
    }

    /// Every schema in a definition, with the path to it.
    fn schemas(crd: &Value) -> Vec<(String, Value)> {
        fn walk(path: &str, schema: &Value, found: &mut Vec<(String, Value)>) {
            found.push((path.to_owned(), schema.clone()));
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                walk(&format!("{path}.{name}"), property, found);
            }
            if schema["items"].is_object() {
                walk(&format!("{path}[]"), &schema["items"], found);
            }
        }
        let mut found = Vec::new();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        walk(crd["spec"]["names"]["kind"].as_str().unwrap(), schema, &mut found);
        found
    }

    #[test]
    fn people_find_the_objects_by_short_name_category_and_label() {
        for (crd, (plural, short)) in crds().iter().zip([("locators", "loc"), ("headwaynodes", "hwn")]) {
            assert_eq!(crd["metadata"]["name"], format!("{plural}.headway.dev"));
            assert_eq!(crd["metadata"]["labels"]["app.kubernetes.io/part-of"], "headway");
            let names = &crd["spec"]["names"];
            assert_eq!(
                (&names["shortNames"][0], &names["categories"][0]),
                (&short.into(), &"headway".into())
            );
            assert_eq!(crd["spec"]["scope"], "Cluster");
        }
    }

    #[test]
    fn only_the_node_has_a_status_and_only_the_locator_a_spec() {
        let [locator, node] = crds().try_into().unwrap();
        let parts = |crd: &Value| {
            let version = &crd["spec"]["versions"][0];
            let properties = &version["schema"]["openAPIV3Schema"]["properties"];
            (
                properties["spec"].is_object(),
                properties["status"].is_object(),
                version["subresources"]["status"].is_object(),
            )
        };
        assert_eq!(parts(&locator), (true, false, false));
        assert_eq!(parts(&node), (false, true, true));
    }

    #[test]
    fn columns_show_what_operators_ask_first() {
        let columns = |crd: &Value| -> Vec<String> {
            let columns = crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap();
            let shown = columns.iter().filter(|column| column["priority"].as_i64().unwrap_or(0) == 0);
            shown.map(|column| column["name"].as_str().unwrap().to_owned()).collect()
        };
        let [locator, node] = crds().try_into().unwrap();
        assert_eq!(columns(&locator), ["Number", "Locator", "PodCIDRs", "Age"]);
        assert_eq!(columns(&node), ["Ready", "Number", "Locator", "Datapath", "Endpoints", "Peers", "Age"]);
    }

    /// The API server bounds the cost of rules by these; and an agent gone wild cannot fill it.
    #[test]
    fn everything_has_a_bound() {
        for (path, schema) in crds().iter().flat_map(schemas) {
            // Conditions are of Kubernetes' own form, metadata is checked by the server.
            if path.contains("conditions[]") || path.ends_with(".metadata") || path.matches('.').count() == 1
            {
                continue;
            }
            let bound = match schema["type"].as_str() {
                Some("string") => "maxLength",
                Some("integer") => "minimum",
                Some("array") => "maxItems",
                _ => continue,
            };
            assert!(schema[bound].is_number(), "{path} has no {bound}: {schema}");
        }
    }

    #[test]
    fn formats_are_those_that_the_api_server_knows() {
        for (path, schema) in crds().iter().flat_map(schemas) {
            if let Some(format) = schema["format"].as_str() {
                assert!(["int32", "int64", "date-time"].contains(&format), "{path}: {format}");
            }
            assert!(schema["anyOf"].is_null() && schema["oneOf"].is_null(), "{path}: {schema}");
        }
    }

    #[test]
    fn rules_say_in_words_what_would_be_right() {
        let rules: Vec<Value> = crds()
            .iter()
            .flat_map(schemas)
            .flat_map(|(_, schema)| {
                schema["x-kubernetes-validations"].as_array().cloned().unwrap_or_default()
            })
            .collect();
        assert_eq!(rules.len(), 5);
        assert!(
            rules.iter().all(|rule| rule["message"].as_str().is_some_and(|message| message.len() > 20)),
            "{rules:#?}"
        );
    }

    #[test]
    fn the_documents_are_what_the_types_say() {
        let text = yaml().unwrap();
        let documents: Vec<Value> =
            text.split("---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect();
        assert_eq!(documents, crds());
    }
}
