//! What a container runtime does with a network configuration list (CNI specification 1.1.0, section 3).

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{Netns, host};

/// Where Debian's containernetworking-plugins are.
pub const REFERENCE_PLUGINS: &str = "/usr/lib/cni";

/// A runtime on a node.
#[derive(Clone, Debug)]
pub struct Runtime<'a> {
    node: &'a Netns,
    conflist: PathBuf,
    /// Use this cniVersion instead of the list's own.
    pub version: Option<String>,
    /// Capability arguments, e.g. `portMappings`: given to plugins that declare the capability.
    pub capabilities: Value,
}

/// An attachment, from the runtime's side.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// Container id.
    pub container: String,
    /// Name of the interface in the pod.
    pub ifname: String,
    /// The pod's namespace; empty when it is gone.
    pub netns: PathBuf,
    /// `CNI_ARGS`.
    pub args: String,
    /// The result of ADD, which later verbs get as prevResult.
    pub result: Value,
}

/// One run of a plugin.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// Exit status 0?
    pub success: bool,
    /// What it printed.
    pub stdout: String,
    /// What it logged.
    pub stderr: String,
}

impl Invocation {
    /// The one JSON document on stdout; null if there is none.
    ///
    /// # Panics
    /// There is something else on stdout.
    #[must_use]
    #[track_caller]
    pub fn document(&self) -> Value {
        if self.stdout.trim().is_empty() {
            return Value::Null;
        }
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| {
            panic!("stdout is not one JSON document: {error}: {:?}\n{}", self.stdout, self.stderr)
        })
    }
}

/// A plugin's error document.
#[derive(Clone, Debug, PartialEq)]
pub struct CniError {
    /// CNI error code.
    pub code: u64,
    /// `msg` and `details`.
    pub message: String,
}

impl fmt::Display for CniError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CNI error {}: {}", self.code, self.message)
    }
}

impl<'a> Runtime<'a> {
    pub(crate) fn new(node: &'a Netns, conflist: PathBuf) -> Self {
        Self { node, conflist, version: None, capabilities: json!({}) }
    }

    /// ADD through the whole chain.
    ///
    /// # Errors
    /// The first plugin that fails. As the specification asks of runtimes, DEL is not implied.
    #[track_caller]
    pub fn add(&self, attachment: &Attachment) -> Result<Value, CniError> {
        let mut result = Value::Null;
        for plugin in self.chain() {
            result = self.call("ADD", &plugin, Some(attachment), &result)?;
        }
        Ok(result)
    }

    /// DEL through the whole chain, in reverse.
    ///
    /// # Errors
    /// The first plugin that fails.
    #[track_caller]
    pub fn del(&self, attachment: &Attachment) -> Result<(), CniError> {
        for plugin in self.chain().iter().rev() {
            self.call("DEL", plugin, Some(attachment), &attachment.result)?;
        }
        Ok(())
    }

    /// CHECK through the whole chain.
    ///
    /// # Errors
    /// The first plugin that fails.
    #[track_caller]
    pub fn check(&self, attachment: &Attachment) -> Result<(), CniError> {
        for plugin in self.chain() {
            self.call("CHECK", &plugin, Some(attachment), &attachment.result)?;
        }
        Ok(())
    }

    /// STATUS of our plugin.
    ///
    /// # Errors
    /// What the plugin says.
    #[track_caller]
    pub fn status(&self) -> Result<(), CniError> {
        self.call("STATUS", &self.chain()[0], None, &Value::Null).map(drop)
    }

    /// GC of our plugin: keeps these attachments. `network` replaces the list's name if given.
    ///
    /// # Errors
    /// What the plugin says.
    #[track_caller]
    pub fn gc(&self, keep: &[&Attachment], network: Option<&str>) -> Result<(), CniError> {
        let keep: Vec<Value> =
            keep.iter().map(|kept| json!({"containerID": kept.container, "ifname": kept.ifname})).collect();
        let mut plugin = self.chain().remove(0);
        plugin["cni.dev/valid-attachments"] = json!(keep);
        plugin["cni.dev/attachments"] = json!(keep);
        if let Some(network) = network {
            plugin["name"] = json!(network);
        }
        self.call("GC", &plugin, None, &Value::Null).map(drop)
    }

    /// The plugins' configurations as the runtime makes them: name, version and capability arguments injected.
    ///
    /// # Panics
    /// The conflist is not there or malformed.
    #[must_use]
    #[track_caller]
    pub fn chain(&self) -> Vec<Value> {
        let text =
            fs::read(&self.conflist).unwrap_or_else(|error| panic!("{}: {error}", self.conflist.display()));
        let list: Value = serde_json::from_slice(&text).expect("the conflist is JSON");
        let version =
            self.version.as_ref().map_or_else(|| list["cniVersion"].clone(), |version| json!(version));
        let plugins = list["plugins"].as_array().expect("the conflist has plugins").clone();
        let configured = plugins.into_iter().map(|mut plugin| {
            plugin["cniVersion"] = version.clone();
            plugin["name"] = list["name"].clone();
            if let Some(declared) = plugin.as_object_mut().and_then(|object| object.remove("capabilities")) {
                let wanted = self.capabilities.as_object().into_iter().flatten();
                let given = wanted.filter(|(name, _)| declared[name.as_str()] == json!(true));
                plugin["runtimeConfig"] = given.map(|(name, value)| (name.clone(), value.clone())).collect();
            }
            plugin
        });
        configured.collect()
    }

    /// Runs a plugin as given: environment and stdin are the caller's.
    ///
    /// # Panics
    /// It cannot be started.
    #[must_use]
    #[track_caller]
    pub fn invoke(&self, program: &Path, environment: &BTreeMap<&str, String>, stdin: &[u8]) -> Invocation {
        let mut command = self.node.command(program);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").envs(environment);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        if let Some(mut pipe) = child.stdin.take() {
            // A plugin that refuses early does not read its input: EPIPE is not the harness's business.
            let _refused = pipe.write_all(stdin);
        }
        let output =
            child.wait_with_output().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        Invocation {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Starts our plugin for a verb and kills it after a while, as a runtime does at its deadline.
    ///
    /// # Panics
    /// It cannot be started.
    #[track_caller]
    pub fn kill_during(&self, verb: &str, plugin: &Value, attachment: &Attachment, after: Duration) {
        let mut command = self.node.command(host::plugin_binary());
        command.env_clear().envs(self.environment(verb, Some(attachment)));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("start the plugin");
        if let Some(mut pipe) = child.stdin.take() {
            let _refused = pipe.write_all(plugin.to_string().as_bytes());
        }
        std::thread::sleep(after);
        // It may have ended by itself: then there is nothing to kill, and wait collects it.
        let _gone = child.kill();
        let _status = child.wait();
    }

    /// The environment of a verb.
    #[must_use]
    pub fn environment(&self, verb: &str, attachment: Option<&Attachment>) -> BTreeMap<&'static str, String> {
        let ours = host::plugin_binary();
        let folder = ours.parent().unwrap_or(Path::new("/")).display().to_string();
        let path = format!("{folder}:{REFERENCE_PLUGINS}");
        let mut environment = BTreeMap::from([("CNI_COMMAND", verb.to_owned()), ("CNI_PATH", path)]);
        if let Some(attachment) = attachment {
            environment.insert("CNI_CONTAINERID", attachment.container.clone());
            environment.insert("CNI_IFNAME", attachment.ifname.clone());
            environment.insert("CNI_NETNS", attachment.netns.display().to_string());
            environment.insert("CNI_ARGS", attachment.args.clone());
        }
        environment
    }

    #[track_caller]
    fn call(
        &self,
        verb: &str,
        plugin: &Value,
        attachment: Option<&Attachment>,
        previous: &Value,
    ) -> Result<Value, CniError> {
        let name = plugin["type"].as_str().expect("a plugin has a type");
        let program = match name {
            "headway" => host::plugin_binary(),
            other => Path::new(REFERENCE_PLUGINS).join(other),
        };
        let mut config = plugin.clone();
        if !previous.is_null() {
            config["prevResult"] = previous.clone();
        }
        let environment = self.environment(verb, attachment);
        let invocation = self.invoke(&program, &environment, config.to_string().as_bytes());
        let document = invocation.document();
        if invocation.success {
            return Ok(document);
        }
        let text = |key: &str| document[key].as_str().unwrap_or_default().to_owned();
        let message = format!("{name} {verb}: {} {}", text("msg"), text("details"));
        let code = document["code"].as_u64();
        Err(CniError {
            code: code.unwrap_or_else(|| panic!("{message}: no error document: {invocation:?}")),
            message,
        })
    }
}
