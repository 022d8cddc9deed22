//! Wiring of the running agent: who tells whom, and the order of starting and ending.

use std::{
    net::SocketAddr,
    path::Path,
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::Instant,
};

use ::kube::Client;
use agent_core::cluster::InCluster;
use anyhow::{Context, Result};
use node_agent::{
    agent::{Agent, Feeds, Input, Parts},
    clock,
    cluster::Cluster,
    cni_server,
    config::{self, NodeConfig, Paths},
    conflist_file,
    dataplane::{
        interfaces::interfaces,
        linux::{Linux, OpenError},
    },
    halted, http,
    kube::{
        self,
        own::{Own, OwnObjects},
        publish::Sources,
        uninstall::{DaemonSetName, Installation},
    },
    lock, probes,
    reconcile::Reconciler,
    replace_file::remove_file,
    store::{Store, StoreError},
    waiting, watch as wakers,
};
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
    sync::{oneshot, watch},
};
use tracing::{debug, error, info};

/// Runs a node that the file describes.
pub fn standalone(config_file: &Path) -> Result<()> {
    let config = config::load(config_file)?;
    let node = &config.configuration.node;
    let (locator, peers) = (config.configuration.locator(), config.peers.len());
    info!(node = node.name, %locator, uplinks = ?node.uplinks, peers, file = %config_file.display(), "configuration read");
    debug!(?config, "the whole configuration");
    let runtime = runtime()?;
    let (inputs, received) = mpsc::channel();
    listen(config_file, &config.paths, &inputs)?;
    let _alone = lock::take(&config.paths.state)?;
    let feeds = feeds(&inputs)?;
    let owner = owner(config_file, config.clone(), None, feeds)?;
    let (agent, ended) = start(move || {
        owner.run(&received);
        Ok(())
    })?;
    runtime.block_on(serve(&config.paths, config.http, inputs, ended))?;
    join(agent)
}

/// Runs a node of which the API server says who it is.
/// `set`: the DaemonSet that says, by being gone, that the CNI configuration has to go too.
pub fn cluster(config_file: &Path, name: String, set: Option<&DaemonSetName>) -> Result<()> {
    let config = config::load_cluster(config_file)?;
    info!(node = name, clusters = ?config.prefixes.both, file = %config_file.display(), "configuration read");
    debug!(?config, "the whole configuration");
    let runtime = runtime()?;
    let (inputs, received) = mpsc::channel();
    let client = runtime.block_on(kube::client::client())?;
    listen(config_file, &config.paths, &inputs)?;
    let _alone = lock::take(&config.paths.state)?;
    let feeds = feeds(&inputs)?;
    talk(&runtime, &client, &name, &inputs, &feeds);
    let installation = set.map(|set| Installation::new(client, set));
    if let Some(installation) = &installation {
        runtime.spawn(installation.clone().find());
    }
    let (paths, http, conflist) = (config.paths.clone(), config.http, config.conflist.clone());
    let cluster = Cluster::new(name, config, &paths.state, Instant::now());
    let file = config_file.to_owned();
    let (agent, ended) = start(move || begin(&file, cluster, &received, feeds))?;
    runtime.block_on(serve(&paths, http, inputs, ended))?;
    join(agent)?;
    if installation.is_some_and(|installation| runtime.block_on(installation.is_going())) {
        info!(conflist = %conflist.display(), "headway is being uninstalled: the CNI configuration goes");
        remove_file(&conflist).with_context(|| format!("removing {}", conflist.display()))?;
    }
    Ok(())
}

/// Starts what listens to the API server, and what writes there.
fn talk(runtime: &Runtime, client: &Client, name: &str, inputs: &Sender<Input>, feeds: &Feeds) {
    let (seen, own) = watch::channel(Own::default());
    let own_objects = OwnObjects::new(name, seen);
    let sources = Sources { wanted: feeds.published.subscribe(), own };
    let writes = feeds.writes.clone();
    runtime.spawn(kube::watch::follow(client.clone(), name.to_owned(), own_objects, inputs.clone()));
    runtime.spawn(kube::publish::run(client.clone(), name.to_owned(), sources, inputs.clone(), writes));
    runtime.spawn(kube::policies::follow(client.clone(), inputs.clone()));
}

/// Waits until the node can begin, and begins.
fn begin(config_file: &Path, mut cluster: Cluster, received: &Receiver<Input>, feeds: Feeds) -> Result<()> {
    let Some((config, standing)) = waiting::run(received, &mut cluster, config_file, &feeds, interfaces)
    else {
        return Ok(());
    };
    let node = &config.configuration.node;
    let (locator, peers) = (config.configuration.locator(), config.peers.len());
    info!(number = %node.number, %locator, pods = ?node.pods, uplinks = ?node.uplinks, peers, "this node's place is known");
    let beside = cluster.beside(&standing);
    owner(config_file, config, Some((cluster, beside)), feeds)?.run(received);
    Ok(())
}

fn runtime() -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().context("starting the asynchronous runtime")
}

/// Returns when a signal asks for the end.
pub fn until_signal() -> Result<()> {
    runtime()?.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}

/// Before the first look, so that no change after it is missed.
fn listen(config_file: &Path, paths: &Paths, inputs: &Sender<Input>) -> Result<()> {
    wakers::surroundings(inputs.clone()).context("listening to the kernel")?;
    wakers::config_file(config_file, inputs.clone())
        .with_context(|| format!("watching {}", config_file.display()))?;
    cni_server::make_folder(&paths.socket)
        .with_context(|| format!("making the folder of {}", paths.socket.display()))
}

/// What the agent feeds, with who is fed.
fn feeds(inputs: &Sender<Input>) -> Result<Feeds> {
    let feeds = Feeds::default();
    let counters = feeds.probes.clone();
    probes::start(feeds.targets.subscribe(), inputs.clone(), counters).context("starting probes")?;
    Ok(feeds)
}

/// Starts the agent's thread; tells when it has ended.
fn start(
    run: impl FnOnce() -> Result<()> + Send + 'static,
) -> Result<(thread::JoinHandle<Result<()>>, oneshot::Receiver<()>)> {
    let (end, ended) = oneshot::channel();
    let thread = thread::Builder::new().name("agent".into()).spawn(move || {
        let result = run();
        // The other side may have ended first.
        let _ = end.send(());
        result
    });
    Ok((thread.context("starting the agent's thread")?, ended))
}

fn join(agent: thread::JoinHandle<Result<()>>) -> Result<()> {
    agent.join().map_err(|_| anyhow::anyhow!("the agent has panicked"))?
}

/// Who answers.
enum Owner {
    Agent(Box<Agent>),
    Halted(String),
}

impl Owner {
    fn run(self, received: &Receiver<Input>) {
        match self {
            Self::Agent(agent) => agent.run(received),
            Self::Halted(reason) => halted::run(received, &reason),
        }
    }
}

/// The agent, having done its first passes; or the reason why it must not touch anything.
fn owner(
    config_file: &Path,
    config: NodeConfig,
    cluster: Option<(Cluster, InCluster)>,
    feeds: Feeds,
) -> Result<Owner> {
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
    let conflist = &config.configuration.conflist.0;
    let former = conflist_file::take_over(conflist)
        .with_context(|| format!("looking for CNI configurations beside {}", conflist.display()))?;
    if !former.is_empty() {
        info!(?former, now = %conflist.display(), "CNI configuration of another name taken over");
    }
    let parts = Parts {
        config_file: config_file.to_owned(),
        config,
        cluster,
        boot,
        store,
        reconciler: Reconciler::new(Box::new(linux)),
        feeds,
    };
    Ok(Owner::Agent(Box::new(Agent::start(parts).context("reading leases")?)))
}

/// Serves clients until a signal ends it, and tells the agent; or until the agent has ended by itself.
async fn serve(
    paths: &Paths,
    address: Option<SocketAddr>,
    inputs: Sender<Input>,
    mut ended: oneshot::Receiver<()>,
) -> Result<()> {
    let socket = &paths.socket;
    let listener =
        cni_server::listen(socket).with_context(|| format!("listening on {}", socket.display()))?;
    tokio::spawn(cni_server::serve(listener, inputs.clone()));
    if let Some(address) = address {
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
            _ = &mut ended => return Ok(()),
        }
    }
    info!("ending, everything stays as it is");
    // If nobody receives any more, the agent has ended already.
    let _ = inputs.send(Input::Stop);
    Ok(())
}
