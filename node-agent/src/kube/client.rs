//! The connection to the API server.

use std::time::Duration;

use kube::{Client, Config};

/// A server that is there takes a connection within this.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than the longest silence of a watch: the server ends it after 290 seconds (`watcher::Config`).
const READ_TIMEOUT: Duration = Duration::from_secs(295);
/// Nothing that we send is large.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Neither a `KUBECONFIG` nor a pod's service account was found, or it cannot be read.
    #[error("neither KUBECONFIG nor a service account leads to an API server: {0}")]
    Config(#[from] kube::config::InferConfigError),
    /// What was found is of no use.
    #[error("no client for the API server: {0}")]
    Client(#[from] kube::Error),
}

/// A client by `KUBECONFIG`, or else by the pod's service account. It connects when it is first used.
///
/// # Errors
/// [`ClientError`].
pub async fn client() -> Result<Client, ClientError> {
    let mut config = Config::infer().await?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.write_timeout = Some(WRITE_TIMEOUT);
    Ok(Client::try_from(config)?)
}
