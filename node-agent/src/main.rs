//! `headway-agent`: command line and wiring.

mod run;

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use agent_api::{Client, Reply, Verb, names};
use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use node_agent::{
    cleanup, config,
    kube::{self, uninstall::DaemonSetName},
    lock, plugin_file, status,
    telemetry::{self, LogFormat},
};

/// `status` waits this long for the agent.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// The agent of a node in a headway cluster.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Keeps this node's part of the segment up.
    Run {
        /// The configuration file.
        #[arg(long, env = "HEADWAY_CONFIG")]
        config: PathBuf,
        /// This node's name in Kubernetes: then the API server says who the node and its peers are, and not the file.
        #[arg(long, env = "HEADWAY_NODE_NAME")]
        node_name: Option<String>,
        /// The DaemonSet that the agent belongs to: if it is gone when the agent ends, headway is being uninstalled, and the CNI
        /// configuration goes.
        #[arg(long, env = "HEADWAY_DAEMONSET", requires_all = ["node_name", "namespace"])]
        daemonset: Option<String>,
        /// The DaemonSet's namespace.
        #[arg(long, env = "HEADWAY_NAMESPACE")]
        namespace: Option<String>,
        /// How log lines look.
        #[arg(long, env = "HEADWAY_LOG_FORMAT", default_value = "text")]
        log_format: LogFormat,
        /// What is logged: `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,node_agent=debug`.
        #[arg(long, env = "HEADWAY_LOG_LEVEL", default_value = "info")]
        log_level: String,
    },
    /// Says how the running agent is.
    Status {
        /// For people or for programs.
        #[arg(short, long, default_value = "text")]
        output: Output,
        /// The agent's socket.
        #[arg(long, default_value = names::SOCKET)]
        socket: PathBuf,
    },
    /// Removes everything that agents have left on this node; the agent should have ended.
    Cleanup {
        /// The configuration file.
        #[arg(long, env = "HEADWAY_CONFIG")]
        config: PathBuf,
        /// Removes the CNI plugin from this folder as well.
        #[arg(long)]
        plugin_folder: Option<PathBuf>,
        /// Does not end when all is removed, but when a signal says so: for a DaemonSet, which would start it again.
        #[arg(long)]
        stay: bool,
    },
    /// Puts the CNI plugin where the container runtime looks for it.
    Install {
        /// The plugin; the default is where the image has it.
        #[arg(long, default_value = "/usr/lib/headway/headway")]
        plugin: PathBuf,
        /// The folder of CNI plugins.
        #[arg(long, default_value = "/opt/cni/bin")]
        folder: PathBuf,
    },
    /// Prints the JSON schema of the configuration file.
    Schema,
    /// Prints the definitions of the Kubernetes objects that the agent writes, as YAML.
    Crds,
    /// Says what is wrong with a configuration file.
    CheckConfig {
        /// The configuration file.
        #[arg(long, env = "HEADWAY_CONFIG")]
        config: PathBuf,
        /// It is one for nodes in Kubernetes.
        #[arg(long)]
        kubernetes: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

fn main() -> ExitCode {
    match command(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "headway-agent: {}", sentence(&error));
            ExitCode::FAILURE
        }
    }
}

fn command(command: Command) -> Result<()> {
    match command {
        Command::Run { config, node_name, daemonset, namespace, log_format, log_level } => {
            telemetry::start(log_format, &log_level).with_context(|| format!("log level {log_level:?}"))?;
            match node_name {
                Some(name) => {
                    let set =
                        namespace.zip(daemonset).map(|(namespace, name)| DaemonSetName { namespace, name });
                    run::cluster(&config, name, set.as_ref())
                }
                None => run::standalone(&config),
            }
        }
        Command::Status { output, socket } => print(&status_of(output, &socket)?),
        Command::Cleanup { config, plugin_folder, stay } => {
            let (paths, conflist) = config::places(&config)?;
            let state = &paths.state;
            let _alone = state.exists().then(|| lock::take(state)).transpose()?;
            let mut failures = cleanup::cleanup(&paths, &conflist);
            let plugin = plugin_folder.map_or(Ok(()), |folder| plugin_file::remove(&folder));
            failures.extend(plugin.err().map(|error| sentence(&error.into())));
            if !failures.is_empty() {
                bail!("not all was removed:\n{}", failures.join("\n"));
            }
            if stay { run::until_signal() } else { Ok(()) }
        }
        Command::Install { plugin, folder } => plugin_file::install(&plugin, &folder).map_err(Into::into),
        Command::Schema => print(&format!("{:#}\n", config::schema().as_value())),
        Command::Crds => print(&kube::crds::yaml().context("writing the definitions as YAML")?),
        Command::CheckConfig { config, kubernetes: true } => Ok(config::load_cluster(&config).map(drop)?),
        Command::CheckConfig { config, kubernetes: false } => Ok(config::load(&config).map(drop)?),
    }
}

fn print(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("writing to standard output")
}

fn status_of(output: Output, socket: &Path) -> Result<String> {
    let Reply::Report(report) = Client::new(socket).call(Verb::Report, STATUS_TIMEOUT)? else {
        bail!("the agent at {} answered something else", socket.display());
    };
    match output {
        Output::Json => Ok(format!("{report:#}\n")),
        Output::Text => match (said(&report, "halted"), said(&report, "waiting")) {
            (Some(reason), _) => Ok(format!("Halted: {reason}\n")),
            (_, Some(reason)) => Ok(format!("Waiting: {reason}\n")),
            _ => Ok(status::table(&serde_json::from_value(report).context("reading the agent's report")?)),
        },
    }
}

fn said<'a>(report: &'a serde_json::Value, word: &str) -> Option<&'a str> {
    report.get(word)?.as_str()
}

/// An error and what is behind it. Some errors name their cause themselves.
fn sentence(error: &anyhow::Error) -> String {
    error.chain().skip(1).map(ToString::to_string).fold(error.to_string(), |text, cause| {
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}
