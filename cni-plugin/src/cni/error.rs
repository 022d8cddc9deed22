//! What went wrong, in the form in which the runtime hears it.

use std::{error, fmt};

use agent_api::{ClientError, ErrorKind};
use serde_json::{Value, json};

use super::CniVersion;

/// An error that ends the invocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What the runtime can do about it.
    pub kind: Kind,
    /// A short sentence.
    pub message: String,
    /// Its cause, and what else went wrong on the way out; may be empty.
    pub details: String,
}

/// Errors by their code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The `cniVersion` is not spoken here, or too old for the verb.
    IncompatibleVersion,
    /// The configuration asks for something that is not done here; the message names key and value.
    UnsupportedField,
    /// `CNI_*` variables are missing or wrong.
    InvalidEnvironment,
    /// stdin cannot be read.
    Io,
    /// stdin is not what it should be.
    Decode,
    /// The configuration is well-formed and wrong.
    InvalidConfiguration,
    /// `CNI_NETNS` is not a network namespace that may be used.
    InvalidNetns,
    /// It may work later.
    TryAgain,
    /// STATUS: no pods can be added.
    NotAvailable,
    /// The agent failed, or is not understood.
    Agent,
    /// The attachment, or the pod's interface, exists already.
    Exists,
    /// No address is free, or another limit is reached.
    Exhausted,
    /// The kernel refused.
    Kernel,
    /// CHECK: the attachment is not as it should be.
    Mismatch,
}

/// The codes of section 4 "Error", those that only libcni defines (8), and our own from 100 on.
const fn code(kind: Kind) -> u32 {
    match kind {
        Kind::IncompatibleVersion => 1,
        Kind::UnsupportedField => 2,
        Kind::InvalidEnvironment => 4,
        Kind::Io => 5,
        Kind::Decode => 6,
        Kind::InvalidConfiguration => 7,
        Kind::InvalidNetns => 8,
        Kind::TryAgain => 11,
        Kind::NotAvailable => 50,
        Kind::Agent => 100,
        Kind::Exists => 101,
        Kind::Exhausted => 102,
        Kind::Kernel => 103,
        Kind::Mismatch => 104,
    }
}

impl Error {
    /// An error without details.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), details: String::new() }
    }

    /// The same with its cause, or one more, in the details.
    #[must_use]
    pub fn because(mut self, cause: &impl fmt::Display) -> Self {
        if !self.details.is_empty() {
            self.details.push_str("; ");
        }
        self.details.push_str(&cause.to_string());
        self
    }

    /// The document for stdout.
    pub fn report(&self, version: CniVersion) -> Value {
        let mut report =
            json!({ "cniVersion": version.as_str(), "code": code(self.kind), "msg": self.message });
        if !self.details.is_empty() {
            report["details"] = self.details.clone().into();
        }
        report
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.details.is_empty() { Ok(()) } else { write!(f, ": {}", self.details) }
    }
}

impl error::Error for Error {}

impl From<ClientError> for Error {
    fn from(error: ClientError) -> Self {
        let (kind, message) = match &error {
            ClientError::Away { .. } => (Kind::TryAgain, "the node agent is away"),
            ClientError::TimedOut { .. } => (Kind::TryAgain, "the node agent does not answer"),
            ClientError::Garbled { .. } => (Kind::Agent, "the node agent is not understood"),
            ClientError::Refused(refusal) => (refused(refusal.kind), "the node agent refuses"),
        };
        Self::new(kind, message).because(&error)
    }
}

const fn refused(kind: ErrorKind) -> Kind {
    match kind {
        ErrorKind::Unsupported => Kind::UnsupportedField,
        ErrorKind::Exists => Kind::Exists,
        ErrorKind::Exhausted => Kind::Exhausted,
        ErrorKind::TryAgain => Kind::TryAgain,
        ErrorKind::Invalid => Kind::InvalidConfiguration,
        ErrorKind::Version | ErrorKind::NotFound | ErrorKind::Internal => Kind::Agent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_reported_as_the_specification_shows_it() {
        let cause = "Network 192.168.0.0/31 too small to allocate from.";
        let error = Error::new(Kind::InvalidConfiguration, "Invalid Configuration").because(&cause);
        let expected = json!({
            "cniVersion": "1.1.0",
            "code": 7,
            "msg": "Invalid Configuration",
            "details": "Network 192.168.0.0/31 too small to allocate from."
        });
        assert_eq!(error.report(CniVersion::V1_1_0), expected);
    }

    #[test]
    fn causes_add_up() {
        let error = Error::new(Kind::Kernel, "m").because(&"a").because(&"b");
        assert_eq!(error.to_string(), "m: a; b");
    }

    #[test]
    fn an_agent_that_is_away_is_worth_another_try() {
        let source = std::io::ErrorKind::NotFound.into();
        let error = Error::from(ClientError::Away { socket: "/run/x".into(), source });
        assert_eq!(error.report(CniVersion::V0_4_0)["code"], 11);
    }
}
