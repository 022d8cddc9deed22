//! Logs.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::{EnvFilter, filter::ParseError};

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
    let filter = EnvFilter::builder().parse(level)?;
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
