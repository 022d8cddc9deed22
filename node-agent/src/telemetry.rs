//! Logs.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::{EnvFilter, filter::ParseError};

/// Where the client for the API server logs its connections.
const CLIENT: &str = "kube_client::client::builder";

/// How log lines look.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON document a line.
    Json,
}

/// Begins to log to stderr.
///
/// # Errors
/// If `level` is not a filter such as `info` or `info,node_agent=debug`.
pub fn start(format: LogFormat, level: &str) -> Result<(), ParseError> {
    // The client logs each attempt to connect as an error; what the agent makes of them is said once.
    let quiet = if level.contains(CLIENT) { String::new() } else { format!(",{CLIENT}=off") };
    let filter = EnvFilter::builder().parse(format!("{level}{quiet}"))?;
    let stderr = std::io::stderr;
    // Colours are for people at a terminal, not for files and `kubectl logs`.
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal());
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().init(),
    }
    Ok(())
}
