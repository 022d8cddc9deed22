//! The API server calls a webhook that runs in a pod.

use std::process::Command;

use e2e::{
    cluster_or_skip,
    kube::{PATIENCE, Server},
    wait_for,
};
use serde_json::{Value, json};

/// A certificate for a Service's name that vouches for itself, and its key: PEM.
fn certificate(host: &str) -> (String, String) {
    let line = format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={host} \
         -addext subjectAltName=DNS:{host} -keyout - -out -"
    );
    let made = Command::new("sh").args(["-c", &line]).output();
    let made = made.unwrap_or_else(|error| panic!("{line}: {error}"));
    let text = String::from_utf8_lossy(&made.stdout).into_owned();
    let start = text.find("-----BEGIN CERTIFICATE");
    let start = start.unwrap_or_else(|| panic!("{line}: {}", String::from_utf8_lossy(&made.stderr)));
    (text[start..].to_owned(), text[..start].to_owned())
}

/// The server's pod, with the webhook of upstream's image in place of its usual program.
fn webhook_pod(server: &Server, namespace: &str) -> Value {
    let mut pod = server.manifest(namespace);
    pod["spec"]["volumes"] = json!([{"name": "tls", "secret": {"secretName": "tls"}}]);
    let container = &mut pod["spec"]["containers"][0];
    container["args"] = json!([
        "webhook",
        "--tls-cert-file=/tls/tls.crt",
        "--tls-private-key-file=/tls/tls.key",
        "--port=8080"
    ]);
    container["volumeMounts"] = json!([{"name": "tls", "mountPath": "/tls"}]);
    container["readinessProbe"] = json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1});
    pod
}

#[test]
fn the_api_server_asks_a_webhook_in_a_pod() {
    let kube = cluster_or_skip!();
    let nodes = kube.nodes();
    let space = kube.space("webhook");
    let name = space.name();
    let (certificate, key) = certificate(&format!("hook.{name}.svc"));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls", "namespace": name},
        "stringData": {"tls.crt": certificate, "tls.key": key}});
    kube.apply(&[secret, webhook_pod(&Server::new("hook", &nodes[1].name), name)]);
    kube.kubectl(&["-n", name, "wait", "--for=condition=Ready", "pod/hook", "--timeout=90s"]);
    let port = json!([{"name": "https", "port": 443, "targetPort": 8080}]);
    space.service("hook", ("app", "hook"), &json!({"ports": port}));
    let bundle = kube.get(&["-n", name, "secret", "tls"])["data"]["tls.crt"].clone();
    // Owned by the namespace, so that it goes with it.
    let uid = kube.get(&["namespace", name])["metadata"]["uid"].clone();
    let owner = json!([{"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": uid}]);
    kube.apply(&[json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name, "ownerReferences": owner},
        "webhooks": [{
            "name": "hook.headway.test",
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
            "objectSelector": {"matchLabels": {"asks": "hook"}},
            "clientConfig": {
                "service": {"namespace": name, "name": "hook", "path": "/always-deny"},
                "caBundle": bundle,
            },
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Ignore",
        }],
    })]);
    let mut tries = 0;
    // The API server takes a moment to know of the webhook; until then, and if it cannot reach it, the object is made.
    let refusal = wait_for("the webhook is asked", PATIENCE, || {
        tries += 1;
        let labelled = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("asked-{tries}"), "namespace": name, "labels": {"asks": "hook"}}});
        kube.try_apply(&[labelled]).err()
    });
    assert!(refusal.contains("this webhook denies all requests"), "{refusal}");
}
