//! Metrics and probes, in the node's network namespace.

use std::{net::SocketAddr, sync::mpsc::Sender, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::{net::TcpListener, sync::oneshot, time::timeout};

use crate::agent::Input;

/// The agent answers within this, or it hangs.
const DEADLINE: Duration = Duration::from_secs(10);
/// What Prometheus asks for.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until the program ends.
///
/// # Errors
/// If the address cannot be listened on.
pub async fn serve(address: SocketAddr, agent: Sender<Input>) -> std::io::Result<()> {
    let routes = Router::new()
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(agent);
    axum::serve(TcpListener::bind(address).await?, routes).await
}

/// Asks the agent; nothing if it does not answer in time.
async fn ask<T>(agent: &Sender<Input>, question: impl FnOnce(oneshot::Sender<T>) -> Input) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    agent.send(question(reply)).ok()?;
    timeout(DEADLINE, answer).await.ok()?.ok()
}

fn silent() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the agent does not answer\n").into_response()
}

/// Alive is who answers, whatever the answer.
async fn alive(State(agent): State<Sender<Input>>) -> Response {
    ask(&agent, Input::Ready).await.map_or_else(silent, |_| "ok\n".into_response())
}

async fn ready(State(agent): State<Sender<Input>>) -> Response {
    match ask(&agent, Input::Ready).await {
        Some(Ok(())) => "ok\n".into_response(),
        Some(Err(reason)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
        None => silent(),
    }
}

async fn metrics(State(agent): State<Sender<Input>>) -> Response {
    let encoded = ask(&agent, Input::Metrics).await;
    encoded.map_or_else(silent, |text| ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response())
}
