//! An API server for tests: objects by path, a record of what was asked, and refusals on demand.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{Method, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

/// The server.
#[derive(Clone, Default)]
pub(super) struct FakeApi(Arc<Mutex<Server>>);

/// What it holds.
#[derive(Default)]
pub(super) struct Server {
    /// Objects, by path.
    pub(super) objects: BTreeMap<String, Value>,
    /// Writes that were asked for, refused ones too: method, path, body.
    pub(super) writes: Vec<(String, Value)>,
    /// Requests whose method and path contain this are refused with that status.
    pub(super) refusals: BTreeMap<String, u16>,
    version: u64,
}

impl FakeApi {
    pub(super) fn client(&self) -> kube::Client {
        kube::Client::new(Router::new().fallback(answer).with_state(self.clone()), "default")
    }

    pub(super) fn state(&self) -> MutexGuard<'_, Server> {
        self.0.lock().unwrap()
    }
}

impl Server {
    /// Puts an object there, as somebody else would.
    pub(super) fn put(&mut self, path: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.objects.insert(path.to_owned(), object);
    }

    /// Writes whose method and path contain this.
    pub(super) fn count(&self, part: &str) -> usize {
        self.writes.iter().filter(|(what, _)| what.contains(part)).count()
    }

    fn patch(&mut self, path: &str, form: &str, body: &Value) -> Result<Value, u16> {
        let (base, status) = path.strip_suffix("/status").map_or((path, false), |base| (base, true));
        let mut object = match self.objects.get(base) {
            Some(object) => object.clone(),
            None if form.contains("apply") && !status => json!({"metadata": {"generation": 1}}),
            None => return Err(404),
        };
        let version = &body["metadata"]["resourceVersion"];
        if !version.is_null() && *version != object["metadata"]["resourceVersion"] {
            return Err(409);
        }
        let part = if status { json!({"status": body["status"]}) } else { body.clone() };
        if form.contains("strategic") {
            merge_conditions(&mut object, &part);
        } else {
            merge(&mut object, &part);
        }
        self.put(base, object.clone());
        Ok(self.objects[base].clone())
    }
}

/// RFC 7386, but nothing is ever removed.
fn merge(object: &mut Value, part: &Value) {
    match part {
        Value::Object(fields) => {
            for (name, field) in fields {
                merge(&mut object[name], field);
            }
        }
        part => *object = part.clone(),
    }
}

/// What a strategic merge does to a Node's conditions: by type.
fn merge_conditions(object: &mut Value, part: &Value) {
    let mut all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for condition in part["status"]["conditions"].as_array().unwrap() {
        all.retain(|one| one["type"] != condition["type"]);
        all.push(condition.clone());
    }
    object["status"]["conditions"] = all.into();
}

async fn answer(State(api): State<FakeApi>, request: Request) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let form =
        request.headers().get(CONTENT_TYPE).and_then(|form| form.to_str().ok()).unwrap_or("").to_owned();
    let body = to_bytes(request.into_body(), usize::MAX).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let what = format!("{method} {path}");
    let mut server = api.state();
    if method != Method::GET {
        server.writes.push((what.clone(), body.clone()));
    }
    let refused = server.refusals.iter().find(|(part, _)| what.contains(*part)).map(|(_, code)| *code);
    let outcome = match (refused, method) {
        (Some(code), _) => Err(code),
        (None, Method::GET) => match server.objects.get(&path) {
            Some(object) => Ok(object.clone()),
            None if path.ends_with('s') => Ok(list(&server, &path)),
            None => Err(404),
        },
        (None, Method::PATCH) => server.patch(&path, &form, &body),
        (None, _) => {
            let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            server.put(&format!("{path}/{name}"), body.clone());
            Ok(body)
        }
    };
    let (code, body) = match outcome {
        Ok(object) => (200, object),
        Err(code) => (
            code,
            json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason(code),
            "message": format!("{what} is refused by the test")}),
        ),
    };
    (StatusCode::from_u16(code).unwrap(), [(CONTENT_TYPE, "application/json")], Body::from(body.to_string()))
        .into_response()
}

fn list(server: &Server, path: &str) -> Value {
    let items: Vec<&Value> = server
        .objects
        .iter()
        .filter(|(one, _)| one.starts_with(&format!("{path}/")))
        .map(|(_, object)| object)
        .collect();
    json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})
}

fn reason(code: u16) -> &'static str {
    match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        _ => "InternalError",
    }
}
