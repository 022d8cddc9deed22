//! What the API server says, as facts for the agent: Locators of all nodes, the own Node, the cluster's UID.
//!
//! Of Nodes only the own one is watched: the heartbeats of 5,000 nodes must not reach 5,000 agents.

use std::{
    fmt::Debug,
    pin::pin,
    sync::{Mutex, PoisonError, mpsc::Sender},
    time::Duration,
};

use agent_core::{cluster::Fact, membership::Claims};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Config, Event, InitialListStrategy},
    },
};
use serde::de::DeserializeOwned;
use tokio::{sync::mpsc::UnboundedSender, time::sleep};
use tracing::{debug, info};

use super::{
    facts,
    objects::Locator,
    own::OwnObjects,
    reachability::{self, Failure, Heard, PATIENCE},
};
use crate::agent::Input;

/// Its UID names the cluster.
const CLUSTER_NAMESPACE: &str = "kube-system";
/// What cannot be read is asked for again after this long.
const RETRY: Duration = Duration::from_secs(5);

/// Tells the agent what the API server says, for as long as the agent listens.
/// `own`: the node's own objects, for who compares them with what is to be there.
pub async fn follow(client: Client, node: String, own: OwnObjects, agent: Sender<Input>) {
    let (heard, hearing) = tokio::sync::mpsc::unbounded_channel();
    let send = |fact| {
        // Nobody receives any more: the agent has ended, and so will this.
        let _ = agent.send(Input::Cluster(fact));
    };
    let only = Config::default().fields(&format!("metadata.name={node}"));
    let own = Mutex::new(own);
    let own = || own.lock().unwrap_or_else(PoisonError::into_inner);
    let mut listed = Claims::new();
    tokio::join!(
        cluster_uid(client.clone(), &heard, send),
        watch(Api::<Node>::all(client.clone()), only, "Node", &heard, |event| {
            own().node(&event);
            // A Node that is gone is what it was last: its agent is about to go too, or it comes back.
            if let Event::Apply(node) | Event::InitApply(node) = event {
                send(Fact::Node(Box::new(facts::node(&node))));
            }
        }),
        watch(Api::<Locator>::all(client.clone()), Config::default(), "Locators", &heard, |event| {
            own().locator(&event);
            if let Some(fact) = locator_fact(&mut listed, event) {
                send(fact);
            }
        }),
        reachability::follow(client.clone(), hearing, send),
    );
}

/// A list counts once it is complete: what is not in it is gone.
fn locator_fact(listed: &mut Claims, event: Event<Locator>) -> Option<Fact> {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(locator) => drop(listed.insert(locator.name_any(), facts::claim(&locator))),
        Event::InitDone => return Some(Fact::Locators(std::mem::take(listed))),
        Event::Apply(locator) => {
            return Some(Fact::Locator(locator.name_any(), Box::new(facts::claim(&locator))));
        }
        Event::Delete(locator) => return Some(Fact::LocatorGone(locator.name_any())),
    }
    None
}

async fn cluster_uid(client: Client, heard: &UnboundedSender<Heard>, send: impl Fn(Fact)) {
    let namespaces = Api::<Namespace>::all(client);
    let what = "the namespace kube-system";
    loop {
        let got = tokio::time::timeout(PATIENCE, namespaces.get(CLUSTER_NAMESPACE)).await;
        let failure = match got {
            Ok(Ok(namespace)) => {
                let _ = heard.send(Heard { what, failure: None });
                return send(Fact::Uid(namespace.uid().unwrap_or_default()));
            }
            Ok(Err(error)) => Failure::from(&error),
            Err(_) => Failure { message: "no answer in time".into(), refused: false },
        };
        let _ = heard.send(Heard { what, failure: Some(failure) });
        sleep(RETRY).await;
    }
}

/// Hands events over for ever. What fails is tried again, later each time.
async fn watch<K>(
    api: Api<K>,
    config: Config,
    what: &'static str,
    heard: &UnboundedSender<Heard>,
    mut take: impl FnMut(Event<K>),
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut config = config.streaming_lists();
    loop {
        let mut events = pin!(watcher::watcher(api.clone(), config.clone()).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    // The beginning of a list is announced before the server is asked for it.
                    if !matches!(event, Event::Init) {
                        let _ = heard.send(Heard { what, failure: None });
                    }
                    take(event);
                }
                Err(error)
                    if config.initial_list_strategy != InitialListStrategy::ListWatch && refused(&error) =>
                {
                    info!(what, "the API server has no streaming lists: listed in pages");
                    config.initial_list_strategy = InitialListStrategy::ListWatch;
                    break;
                }
                // The server has forgotten how far we were: everything is listed again.
                Err(watcher::Error::WatchError(status)) if status.code == 410 => {
                    debug!(what, "watch expired");
                }
                Err(error) => drop(heard.send(Heard { what, failure: Some(Failure::from(&error)) })),
            }
        }
    }
}

/// A server without streaming lists calls `sendInitialEvents` invalid.
fn refused(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))
    | watcher::Error::WatchFailed(kube::Error::Api(status))
    | watcher::Error::WatchError(status)) = error
    else {
        return false;
    };
    [400, 422].contains(&status.code)
}
