use std::process::{Command, Stdio};

use proptest::{prelude::*, test_runner::Config as Cases};
use serde_json::{Value, json};

use crate::rig::{Ended, binary, finish, start};

const GOOD: &str = r#"{"cniVersion":"1.1.0","name":"headway","type":"headway","agentSocket":"/nonexistent/agent.sock",
    "pendingDirectory":"/proc/nonexistent"}"#;

fn run(variables: &[(&str, &str)], stdin: &str) -> Ended {
    let mut command = Command::new(binary());
    command.env_clear().envs(variables.iter().copied());
    finish(start(command, stdin))
}

fn code(variables: &[(&str, &str)], stdin: &str) -> u64 {
    run(variables, stdin).failure().0
}

#[test]
fn version_does_not_wait_for_stdin() {
    let mut command = Command::new(binary());
    let child = command
        .env_clear()
        .env("CNI_COMMAND", "VERSION")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    let open = child.stdin.take();
    let ended = finish(child);
    drop(open);
    let expected = json!({"cniVersion": "1.1.0", "supportedVersions": ["0.3.1", "0.4.0", "1.0.0", "1.1.0"]});
    assert!(ended.success && ended.document() == expected, "{ended:?}");
}

#[test]
fn without_a_command_a_person_is_told_what_this_is() {
    for variables in [&[][..], &[("CNI_COMMAND", "")]] {
        let ended = run(variables, "");
        ended.silent_success();
        assert!(ended.stderr.contains("1.1.0") && ended.stderr.contains("headway"), "{ended:?}");
    }
}

#[test]
fn everything_that_is_missing_is_named_at_once() {
    let (code, said) = run(&[("CNI_COMMAND", "ADD")], GOOD).failure();
    assert_eq!(code, 4);
    for name in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"] {
        assert!(said.contains(name), "{said}");
    }
}

#[test]
fn each_fault_of_the_configuration_has_its_code() {
    let del = [("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "c"), ("CNI_IFNAME", "eth0")];
    let huge = format!(r#"{{"cniVersion":"1.1.0","name":"{}"}}"#, "x".repeat(5 << 20));
    let cases = [
        ("", 6),
        ("{", 6),
        ("7", 6),
        (r#"{"cniVersion":"1.1.0","name":[]}"#, 6),
        (r#"{"cniVersion":"1.1.0","name":"n","runtimeConfig":1e999}"#, 6),
        (&huge, 6),
        (r#"{"cniVersion":"1.1.0"}"#, 7),
        (r#"{"cniVersion":"1.1.0","name":"a/b"}"#, 7),
        (r#"{"name":"n"}"#, 1),
        (r#"{"cniVersion":"9.0.0","name":"n"}"#, 1),
    ];
    for (stdin, expected) in cases {
        assert_eq!(code(&del, stdin), expected, "{stdin:.80}");
    }
    assert_eq!(code(&[("CNI_COMMAND", "FOO")], GOOD), 4);
    assert_eq!(code(&[("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "c"), ("CNI_IFNAME", "../x")], GOOD), 4);
}

#[test]
fn verbs_that_the_version_does_not_have_are_refused() {
    let attachment = [
        ("CNI_CONTAINERID", "c"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_NETNS", "/nonexistent"),
        ("CNI_COMMAND", "CHECK"),
    ];
    let old = |version: &str| GOOD.replace("1.1.0", version);
    assert_eq!(code(&attachment, &old("0.3.1")), 1);
    assert_eq!(code(&attachment, &old("0.4.0")), 7, "CHECK exists since 0.4.0 and misses prevResult");
    for verb in ["GC", "STATUS"] {
        assert_eq!(code(&[("CNI_COMMAND", verb)], &old("1.0.0")), 1, "{verb}");
        assert_ne!(code(&[("CNI_COMMAND", verb)], &old("1.1.0")), 1, "{verb}");
    }
}

#[test]
fn an_error_speaks_the_version_of_the_configuration() {
    let ended = run(&[("CNI_COMMAND", "STATUS")], &GOOD.replace("1.1.0", "0.4.0"));
    assert_eq!(ended.document()["cniVersion"], "0.4.0");
}

proptest! {
    #![proptest_config(Cases { cases: 64, ..Cases::default() })]

    /// Whatever comes, there is one document or, where the verb has none, success and silence.
    #[test]
    fn there_is_always_one_document(
        verb in "STATUS|GC|VERSION|ADD|CHECK|[A-Z]{0,4}",
        container in "[a-z/]{0,3}",
        ifname in "[a-z/ ]{0,17}",
        args in "[A-Z;=]{0,6}",
        stdin in r#".*|\{"cniVersion":"1.1.0","name":"n","agentSocket":"/nonexistent/s","prevResult":(\{\}|1|null)\}"#,
    ) {
        let variables = [
            ("CNI_COMMAND", verb.as_str()), ("CNI_CONTAINERID", &container), ("CNI_IFNAME", &ifname),
            ("CNI_ARGS", &args), ("CNI_NETNS", "/nonexistent/netns"),
        ];
        let ended = run(&variables, &stdin);
        let documents: Vec<_> = serde_json::Deserializer::from_str(&ended.stdout).into_iter::<Value>().collect();
        prop_assert_eq!(documents.len(), usize::from(!ended.success || verb == "VERSION"));
        prop_assert!(documents.iter().all(Result::is_ok));
    }
}
