//! `headway`, the CNI plugin: started by a container runtime for one verb, it asks the node agent what to build,
//! builds it in the pod's network namespace and prints one JSON document.
//!
//! ```text
//! environment + stdin -> cni (pure) -> verbs -> agent socket
//!                                         \--> pod_link, netns (kernel)
//! ```
//! Only this file prints: the document on stdout, also on failure; all words for people on stderr.

mod agent;
mod cni;
mod netlink;
mod netns;
mod pod_link;
mod verbs;

use std::{
    env,
    io::{self, Read, Write},
    process::ExitCode,
};

use cni::{CniVersion, Config, Error, Invocation, Kind, Start};

/// Largest configuration that is read, bytes; GC of a node with thousands of attachments stays far below.
const MAX_STDIN: u64 = 4 << 20;

fn main() -> ExitCode {
    let invocation = match Invocation::from_environment(|name| env::var_os(name)) {
        Ok(Start::Verb(invocation)) => invocation,
        Ok(Start::Version) => return print(&CniVersion::report()),
        Ok(Start::Person) => return say(&about()),
        Err(error) => return fail(CniVersion::NEWEST, &error),
    };
    let (version, result) = match read_stdin().and_then(|bytes| Config::parse(&bytes)) {
        Ok(config) => (config.version, verbs::run(&invocation, &config)),
        Err(error) => (CniVersion::NEWEST, Err(error)),
    };
    match result {
        Ok(outcome) => {
            for warning in &outcome.warnings {
                say(warning);
            }
            outcome.document.map_or(ExitCode::SUCCESS, |document| print(&document))
        }
        Err(error) => fail(version, &error),
    }
}

fn about() -> String {
    let versions = CniVersion::ALL.map(CniVersion::as_str).join(", ");
    format!("headway {} (CNI plugin); CNI versions: {versions}", env!("CARGO_PKG_VERSION"))
}

fn read_stdin() -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().take(MAX_STDIN + 1).read_to_end(&mut bytes);
    read.map_err(|error| Error::new(Kind::Io, "the configuration cannot be read").because(&error))?;
    if bytes.len() as u64 > MAX_STDIN {
        return Err(Error::new(Kind::Decode, format!("the configuration is longer than {MAX_STDIN} bytes")));
    }
    Ok(bytes)
}

fn print(document: &serde_json::Value) -> ExitCode {
    match writeln!(io::stdout(), "{document}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn fail(version: CniVersion, error: &Error) -> ExitCode {
    say(&error.to_string());
    print(&error.report(version));
    ExitCode::FAILURE
}

/// Nothing depends on stderr: a runtime may have closed it.
fn say(text: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "headway: {text}");
    ExitCode::SUCCESS
}
