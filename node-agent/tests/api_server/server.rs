//! A small API server: lists and watches of a few collections, out of memory.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use futures::{StreamExt, channel::mpsc, stream};
use kube::{Client, Config};
use serde_json::{Value, json};

/// The server; clones are the same one.
#[derive(Clone, Default)]
pub struct Server(Arc<Mutex<Inside>>);

#[derive(Default)]
struct Inside {
    /// By path and name.
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    watches: Vec<(String, mpsc::UnboundedSender<io::Result<Bytes>>)>,
    asked: Vec<String>,
    version: u64,
    no_streaming_lists: bool,
    failing: bool,
}

impl Server {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap()
    }

    /// Listens, and gives a client.
    pub async fn start(&self) -> Client {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Client::try_from(Config::new(url.parse().unwrap())).unwrap()
    }

    /// Puts an object into a collection.
    pub fn put(&self, collection: &str, object: Value) {
        self.inside().change(collection, "ADDED", object);
    }

    /// Takes an object out of a collection.
    pub fn delete(&self, collection: &str, name: &str) {
        let object = self.inside().objects.get_mut(collection).unwrap().remove(name).unwrap();
        self.inside().change(collection, "DELETED", object);
    }

    /// What was asked for, as paths with queries.
    pub fn asked(&self) -> Vec<String> {
        self.inside().asked.clone()
    }

    /// As servers are that have streaming lists turned off.
    pub fn without_streaming_lists(&self) {
        self.inside().no_streaming_lists = true;
    }

    /// Connections break, those that are there and those to come; or no longer.
    pub fn fail(&self, failing: bool) {
        let mut inside = self.inside();
        inside.failing = failing;
        for (_, watch) in inside.watches.drain(..) {
            let _ = watch.unbounded_send(Err(io::ErrorKind::ConnectionReset.into()));
        }
    }
}

impl Inside {
    fn change(&mut self, collection: &str, kind: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!((100 + self.version).to_string());
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let line = event(kind, &object);
        if kind != "DELETED" {
            self.objects.entry(collection.to_owned()).or_default().insert(name, object);
        }
        self.watches.retain(|(watched, watch)| {
            watched != collection || watch.unbounded_send(Ok(line.clone())).is_ok()
        });
    }
}

fn event(kind: &str, object: &Value) -> Bytes {
    format!("{}\n", json!({"type": kind, "object": object})).into()
}

fn status(code: u16, message: &str) -> Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": "Invalid"});
    (StatusCode::from_u16(code).unwrap(), body.to_string()).into_response()
}

async fn answer(State(server): State<Server>, uri: Uri) -> Response {
    let mut inside = server.inside();
    let (path, query) = (uri.path().to_owned(), uri.query().unwrap_or_default().to_owned());
    inside.asked.push(uri.to_string());
    if inside.failing {
        let broken = stream::iter([Err::<Bytes, _>(io::Error::from(io::ErrorKind::ConnectionReset))]);
        return Body::from_stream(broken).into_response();
    }
    match path.as_str() {
        "/version" => {
            let names = ["gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"];
            let mut version = json!({"major": "1", "minor": "33"});
            names.iter().for_each(|name| version[*name] = json!("x"));
            version.to_string().into_response()
        }
        "/api/v1/namespaces/kube-system" => json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "cluster-uid"},
        })
        .to_string()
        .into_response(),
        _ if query.contains("watch=true") => watch(&mut inside, path, &query),
        _ => {
            let items: Vec<&Value> = inside.objects.get(&path).into_iter().flat_map(BTreeMap::values).collect();
            let version = (100 + inside.version).to_string();
            json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": version}, "items": items})
                .to_string()
                .into_response()
        }
    }
}

fn watch(inside: &mut Inside, path: String, query: &str) -> Response {
    let (sender, events) = mpsc::unbounded();
    let mut first = Vec::new();
    if query.contains("sendInitialEvents=true") {
        if inside.no_streaming_lists {
            return status(422, "sendInitialEvents is forbidden");
        }
        let objects = inside.objects.get(&path).into_iter().flat_map(BTreeMap::values);
        first.extend(objects.map(|object| Ok(event("ADDED", object))));
        let kind = if path.ends_with("nodes") { ("v1", "Node") } else { ("headway.dev/v1alpha1", "Locator") };
        let end = json!({
            "apiVersion": kind.0, "kind": kind.1,
            "metadata": {
                "resourceVersion": (100 + inside.version).to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"},
            },
        });
        first.push(Ok(event("BOOKMARK", &end)));
    } else {
        // Whoever was away while something changed is sent back to the beginning.
        let since = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
        if since.and_then(|since| since.parse().ok()) != Some(100 + inside.version) {
            return event_stream(stream::iter([Ok(event(
                "ERROR",
                &json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old",
                }),
            ))]));
        }
    }
    inside.watches.push((path, sender));
    event_stream(stream::iter(first).chain(events))
}

fn event_stream(events: impl stream::Stream<Item = io::Result<Bytes>> + Send + 'static) -> Response {
    Body::from_stream(events).into_response()
}
