//! The `CNI_*` variables (section 2 "Parameters").

use std::{ffi::OsString, path::PathBuf};

use super::{Error, Kind};

/// Longest name of a link, bytes: `IFNAMSIZ` without the final zero.
const MAX_IFNAME: usize = 15;

/// Why the plugin was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// By a person: there is no command.
    Person,
    /// VERSION, for which nothing else is looked at.
    Version,
    /// For a verb of a network.
    Verb(Invocation),
}

/// What the environment asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The verb with its parameters.
    pub command: Command,
    /// `CNI_ARGS` as it stands: only ADD reads it, so that DEL cannot fail on it.
    pub args: String,
    /// `CNI_NETNS_OVERRIDE`: the plugin's own namespace may be the target.
    pub own_netns_allowed: bool,
}

/// A verb with the parameters it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// ADD
    Add(Attachment, PathBuf),
    /// DEL; the namespace is not looked at and may be gone.
    Del(Attachment),
    /// CHECK
    Check(Attachment, PathBuf),
    /// GC
    Gc,
    /// STATUS
    Status,
}

/// `CNI_CONTAINERID` and `CNI_IFNAME`, valid ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Container id.
    pub container: String,
    /// Name of the interface in the pod.
    pub ifname: String,
}

impl Invocation {
    /// Reads the variables through `get`.
    ///
    /// # Errors
    /// [`Kind::InvalidEnvironment`]; the message names *all* missing variables.
    pub fn from_environment(get: impl Fn(&str) -> Option<OsString>) -> Result<Start, Error> {
        let mut variables = Variables { get, missing: Vec::new() };
        let Some(command) = variables.optional("CNI_COMMAND")? else { return Ok(Start::Person) };
        let command = match command.as_str() {
            "ADD" => {
                variables.attachment_in_netns()?.map(|(attachment, netns)| Command::Add(attachment, netns))
            }
            "CHECK" => {
                variables.attachment_in_netns()?.map(|(attachment, netns)| Command::Check(attachment, netns))
            }
            "DEL" => variables.attachment()?.map(Command::Del),
            "GC" => Some(Command::Gc),
            "STATUS" => Some(Command::Status),
            "VERSION" => return Ok(Start::Version),
            other => return Err(invalid(format!("CNI_COMMAND: unknown command {other:?}"))),
        };
        let Some(command) = command else {
            return Err(invalid(format!("required variables are missing: {}", variables.missing.join(", "))));
        };
        let args = variables.optional("CNI_ARGS")?.unwrap_or_default();
        let own_netns_allowed =
            variables.optional("CNI_NETNS_OVERRIDE")?.is_some_and(|value| value != "0" && value != "false");
        Ok(Start::Verb(Self { command, args, own_netns_allowed }))
    }
}

/// The environment, and what was looked for in vain.
struct Variables<G> {
    get: G,
    missing: Vec<&'static str>,
}

impl<G: Fn(&str) -> Option<OsString>> Variables<G> {
    /// The variable's value; an empty variable is one that is not there.
    fn optional(&self, name: &'static str) -> Result<Option<String>, Error> {
        let Some(value) = (self.get)(name) else { return Ok(None) };
        let text = value.into_string().map_err(|_| invalid(format!("{name} is not UTF-8")))?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    fn required(&mut self, name: &'static str) -> Result<Option<String>, Error> {
        let value = self.optional(name)?;
        if value.is_none() {
            self.missing.push(name);
        }
        Ok(value)
    }

    fn attachment(&mut self) -> Result<Option<Attachment>, Error> {
        let (container, ifname) = (self.required("CNI_CONTAINERID")?, self.required("CNI_IFNAME")?);
        let (Some(container), Some(ifname)) = (container, ifname) else { return Ok(None) };
        if !is_identifier(&container) {
            let rule = "letters, digits, '.', '_', '-', beginning with a letter or digit";
            return Err(invalid(format!("CNI_CONTAINERID: {container:?} is not made of {rule}")));
        }
        if let Some(reason) = ifname_fault(&ifname) {
            return Err(invalid(format!("CNI_IFNAME: {ifname:?} {reason}")));
        }
        Ok(Some(Attachment { container, ifname }))
    }

    fn attachment_in_netns(&mut self) -> Result<Option<(Attachment, PathBuf)>, Error> {
        let (attachment, netns) = (self.attachment()?, self.required("CNI_NETNS")?);
        Ok(attachment.zip(netns.map(PathBuf::from)))
    }
}

fn invalid(message: String) -> Error {
    Error::new(Kind::InvalidEnvironment, message)
}

/// The form of container ids and network names (section 1 and 2: alphanumeric first, then also `_`, `.`, `-`).
pub fn is_identifier(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

/// Why the kernel (`dev_valid_name`) or libcni would not take this name.
fn ifname_fault(name: &str) -> Option<&'static str> {
    if name.len() > MAX_IFNAME {
        Some("is longer than 15 bytes")
    } else if name == "." || name == ".." {
        Some("is not a name")
    } else if name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control()) {
        Some("has a slash, colon, space or control character")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, os::unix::ffi::OsStringExt};

    use proptest::prelude::*;

    use super::*;

    const ATTACHMENT: [(&str, &str); 3] =
        [("CNI_CONTAINERID", "c1"), ("CNI_NETNS", "/run/netns/x"), ("CNI_IFNAME", "eth0")];

    fn invoke(command: &str, variables: &[(&str, &str)]) -> Result<Start, Error> {
        let mut all: BTreeMap<&str, &str> = variables.iter().copied().collect();
        all.insert("CNI_COMMAND", command);
        Invocation::from_environment(|name| all.get(name).map(OsString::from))
    }

    /// Which of the attachment's variables each verb cannot do without.
    #[test]
    fn each_verb_insists_on_its_own_variables() {
        let matrix = [
            ("ADD", vec!["CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"]),
            ("CHECK", vec!["CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"]),
            ("DEL", vec!["CNI_CONTAINERID", "CNI_IFNAME"]),
            ("GC", vec![]),
            ("STATUS", vec![]),
            ("VERSION", vec![]),
        ];
        for (verb, required) in matrix {
            assert!(invoke(verb, &ATTACHMENT).is_ok(), "{verb}");
            for left_out in ATTACHMENT {
                let variables: Vec<_> = ATTACHMENT.into_iter().filter(|it| *it != left_out).collect();
                let needed = required.contains(&left_out.0);
                assert_eq!(invoke(verb, &variables).is_err(), needed, "{verb} without {}", left_out.0);
            }
            match invoke(verb, &[]) {
                Err(error) => assert!(error.message.ends_with(&required.join(", ")), "{verb}: {error}"),
                Ok(_) => assert!(required.is_empty(), "{verb}"),
            }
        }
    }

    #[test]
    fn no_command_is_a_person() {
        assert_eq!(Invocation::from_environment(|_| None), Ok(Start::Person));
        assert_eq!(invoke("", &ATTACHMENT), Ok(Start::Person));
    }

    #[test]
    fn an_unknown_command_is_named() {
        assert!(invoke("PING", &ATTACHMENT).unwrap_err().message.contains("PING"));
        assert!(invoke("add", &ATTACHMENT).is_err());
    }

    #[test]
    fn del_works_without_a_namespace() {
        let mut variables = ATTACHMENT;
        variables[1].1 = "";
        assert!(matches!(
            invoke("DEL", &variables),
            Ok(Start::Verb(Invocation { command: Command::Del(_), .. }))
        ));
    }

    #[test]
    fn hostile_names_are_refused() {
        for container in ["-a", ".a", "a/b", "a b", "ä", "a\n", "../x"] {
            let variables = [("CNI_CONTAINERID", container), ATTACHMENT[1], ATTACHMENT[2]];
            assert!(invoke("DEL", &variables).is_err(), "{container:?}");
        }
        for ifname in ["a/b", "a:b", "a b", ".", "..", "0123456789abcdef", "a\tb", "a\u{7f}"] {
            let variables = [ATTACHMENT[0], ATTACHMENT[1], ("CNI_IFNAME", ifname)];
            assert!(invoke("DEL", &variables).is_err(), "{ifname:?}");
        }
        for ifname in ["eth0", "0", "eth0.100", "net-1_a", "0123456789abcde"] {
            let variables = [ATTACHMENT[0], ATTACHMENT[1], ("CNI_IFNAME", ifname)];
            assert!(invoke("DEL", &variables).is_ok(), "{ifname:?}");
        }
    }

    proptest! {
        #[test]
        fn any_environment_is_understood_or_refused(values in prop::collection::vec(prop::option::of(prop::collection::vec(1..=255u8, 0..20)), 6)) {
            let names = ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_NETNS_OVERRIDE"];
            for command in ["ADD", "DEL", "CHECK"] {
                let _ = Invocation::from_environment(|name| {
                    let position = names.iter().position(|it| *it == name)?;
                    let value = values[position].clone().map(OsString::from_vec);
                    if position == 0 { value.or_else(|| Some(command.into())) } else { value }
                });
            }
        }
    }
}
