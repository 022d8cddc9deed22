//! `headway-agent`: command line and wiring.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::mpsc::{self, Sender},
    thread,
    time::Duration,
};

use agent_api::{Client, Reply, Verb, names};
use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use node_agent::{
    agent::{Agent, Feeds, Input, Parts},
    cleanup, clock, cni_server,
    config::{self, NodeConfig},
    dataplane::linux::{Linux, OpenError},
    halted, http, kube, lock, plugin_file, probes,
    reconcile::Reconciler,
    status,
    store::{Store, StoreError},
    telemetry::{self, LogFormat},
    watch,
};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{debug, error, info};

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
        Command::Run { config, log_format, log_level } => {
            telemetry::start(log_format, &log_level).with_context(|| format!("log level {log_level:?}"))?;
            run(&config)
        }
        Command::Status { output, socket } => print(&status_of(output, &socket)?),
        Command::Cleanup { config, plugin_folder, stay } => {
            let config = config::load(&config)?;
            let state = &config.paths.state;
            let _alone = state.exists().then(|| lock::take(state)).transpose()?;
            let mut failures = cleanup::cleanup(&config);
            let plugin = plugin_folder.map_or(Ok(()), |folder| plugin_file::remove(&folder));
            failures.extend(plugin.err().map(|error| sentence(&error.into())));
            if !failures.is_empty() {
                bail!("not all was removed:\n{}", failures.join("\n"));
            }
            if stay { runtime()?.block_on(ended()) } else { Ok(()) }
        }
        Command::Install { plugin, folder } => plugin_file::install(&plugin, &folder).map_err(Into::into),
        Command::Schema => print(&format!("{:#}\n", config::schema().as_value())),
        Command::Crds => print(&kube::crds::yaml().context("writing the definitions as YAML")?),
        Command::CheckConfig { config } => config::load(&config).map(drop).map_err(Into::into),
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
        Output::Text => match report.get("halted").and_then(serde_json::Value::as_str) {
            Some(reason) => Ok(format!("Halted: {reason}\n")),
            None => Ok(status::table(&serde_json::from_value(report).context("reading the agent's report")?)),
        },
    }
}

fn run(config_file: &Path) -> Result<()> {
    let config = config::load(config_file)?;
    let node = &config.configuration.node;
    let (locator, peers) = (config.configuration.locator(), config.configuration.peers.len());
    info!(node = node.name, %locator, uplinks = ?node.uplinks, peers, file = %config_file.display(), "configuration read");
    debug!(?config, "the whole configuration");
    let runtime = runtime()?;
    let (inputs, received) = mpsc::channel();
    // Before the first look, so that no change after it is missed.
    watch::surroundings(inputs.clone()).context("listening to the kernel")?;
    watch::config_file(config_file, inputs.clone())
        .with_context(|| format!("watching {}", config_file.display()))?;
    cni_server::make_folder(&config.paths.socket)
        .with_context(|| format!("making the folder of {}", config.paths.socket.display()))?;
    let _alone = lock::take(&config.paths.state)?;
    let feeds = Feeds::default();
    probes::start(feeds.targets.subscribe(), inputs.clone(), feeds.probes.clone())
        .context("starting probes")?;
    let owner = owner(config_file, config.clone(), feeds)?;
    let agent = thread::Builder::new()
        .name("agent".into())
        .spawn(move || match owner {
            Owner::Agent(agent) => agent.run(&received),
            Owner::Halted(reason) => halted::run(&received, &reason),
        })
        .context("starting the agent's thread")?;
    runtime.block_on(serve(&config, inputs))?;
    agent.join().map_err(|_| anyhow::anyhow!("the agent has panicked"))
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("starting the asynchronous runtime")
}

/// Returns when a signal asks for the end.
async fn ended() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Who answers.
enum Owner {
    Agent(Box<Agent>),
    Halted(String),
}

/// An error and what is behind it. Some errors name their cause themselves.
fn sentence(error: &anyhow::Error) -> String {
    error.chain().skip(1).map(ToString::to_string).fold(error.to_string(), |text, cause| {
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}

/// The agent, having done its first passes; or the reason why it must not touch anything.
fn owner(config_file: &Path, config: NodeConfig, feeds: Feeds) -> Result<Owner> {
    let halted = |reason: String| {
        error!(reason, "halted: a newer agent was here");
        Ok(Owner::Halted(reason))
    };
    let store = match Store::open(&config.paths.state) {
        Err(newer @ StoreError::Newer { .. }) => return halted(newer.to_string()),
        store => store.context("opening the state folder")?,
    };
    let boot = clock::boot().context("reading the boot id")?;
    let linux = match Linux::open(&config.paths, &boot, config.expedite_attach) {
        Err(OpenError::Newer(reason)) => return halted(reason),
        linux => linux.context("opening the kernel")?,
    };
    let parts = Parts {
        config_file: config_file.to_owned(),
        config,
        boot,
        store,
        reconciler: Reconciler::new(Box::new(linux)),
        feeds,
    };
    Ok(Owner::Agent(Box::new(Agent::start(parts).context("reading leases")?)))
}

/// Serves clients until a signal ends it, and tells the agent.
async fn serve(config: &NodeConfig, inputs: Sender<Input>) -> Result<()> {
    let socket = &config.paths.socket;
    let listener =
        cni_server::listen(socket).with_context(|| format!("listening on {}", socket.display()))?;
    tokio::spawn(cni_server::serve(listener, inputs.clone()));
    if let Some(address) = config.http {
        let inputs = inputs.clone();
        tokio::spawn(async move {
            if let Err(error) = http::serve(address, inputs).await {
                error!(%error, %address, "metrics and probes are not served");
            }
        });
    }
    let mut hangup = signal(SignalKind::hangup()).context("listening for SIGHUP")?;
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    loop {
        tokio::select! {
            _ = hangup.recv() => drop(inputs.send(Input::Reload)),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    info!("ending, everything stays as it is");
    // If nobody receives any more, the agent has ended already.
    let _ = inputs.send(Input::Stop);
    Ok(())
}
