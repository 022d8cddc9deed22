//! Whether the agent ends because it is being uninstalled: then the CNI configuration must not stay behind.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::{Api, Client};
use tokio::time::{sleep, timeout};

/// The kubelet waits for our end; not all of that time is ours.
const PATIENCE: Duration = Duration::from_secs(3);

/// So often it is asked until it was seen once.
const RETRY: Duration = Duration::from_secs(60);

/// The DaemonSet that the agent belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSetName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Looks after the DaemonSet.
#[derive(Clone)]
pub struct Installation {
    sets: Api<DaemonSet>,
    name: String,
    /// We were allowed to see it once.
    seen: Arc<AtomicBool>,
}

/// What became of the DaemonSet.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// It is there and stays.
    Stays,
    /// It is gone, or about to go.
    Going,
    /// We may not look.
    Refused,
    /// Nobody answers.
    Unknown,
}

impl Installation {
    /// Of the agent that belongs to that DaemonSet.
    #[must_use]
    pub fn new(client: Client, set: &DaemonSetName) -> Self {
        let sets = Api::namespaced(client, &set.namespace);
        Self { sets, name: set.name.clone(), seen: Arc::default() }
    }

    /// Asks for the DaemonSet until it is seen, so that later a refusal means something.
    pub async fn find(self) {
        while !self.look().await {
            sleep(RETRY).await;
        }
    }

    /// Gives whether the DaemonSet is seen.
    async fn look(&self) -> bool {
        let seen = matches!(self.fate().await, Fate::Stays);
        self.seen.fetch_or(seen, Ordering::Relaxed);
        seen
    }

    /// Is the agent being uninstalled? While the API server does not answer, it is not: a conflist that is missing without need
    /// makes the node unusable, one that stays too long does not.
    ///
    /// An uninstallation takes away our rights together with the DaemonSet. A refusal therefore says the same, if we were
    /// allowed to look before.
    pub async fn is_going(&self) -> bool {
        match self.fate().await {
            Fate::Going => true,
            Fate::Refused => self.seen.load(Ordering::Relaxed),
            Fate::Stays | Fate::Unknown => false,
        }
    }

    async fn fate(&self) -> Fate {
        match timeout(PATIENCE, self.sets.get(&self.name)).await {
            Ok(Ok(set)) if set.metadata.deletion_timestamp.is_some() => Fate::Going,
            Ok(Ok(_)) => Fate::Stays,
            Ok(Err(kube::Error::Api(status))) => match status.code {
                404 => Fate::Going,
                401 | 403 => Fate::Refused,
                _ => Fate::Unknown,
            },
            Ok(Err(_)) | Err(_) => Fate::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube::fake_api::FakeApi;

    const PATH: &str = "/apis/apps/v1/namespaces/kube-system/daemonsets/headway";

    async fn installed(api: &FakeApi) -> Installation {
        api.state().put(PATH, json!({"metadata": {"name": "headway"}}));
        let owner = DaemonSetName { namespace: "kube-system".into(), name: "headway".into() };
        let installation = Installation::new(api.client(), &owner);
        installation.look().await;
        installation
    }

    #[tokio::test]
    async fn an_agent_that_is_only_restarted_stays_installed() {
        let api = FakeApi::default();
        let installation = installed(&api).await;
        assert!(!installation.is_going().await);
        for code in [500, 503, 429] {
            api.state().refusals.insert("daemonsets".into(), code);
            assert!(!installation.is_going().await, "{code}");
        }
    }

    #[tokio::test]
    async fn a_daemonset_that_is_gone_or_going_takes_the_agent_with_it() {
        let api = FakeApi::default();
        let installation = installed(&api).await;
        let going = json!({"metadata": {"name": "headway", "deletionTimestamp": "2026-12-01T00:00:00Z"}});
        api.state().put(PATH, going);
        assert!(installation.is_going().await);
        api.state().objects.clear();
        assert!(installation.is_going().await);
    }

    #[tokio::test]
    async fn rights_that_are_taken_away_say_the_same_but_rights_that_never_were_do_not() {
        for code in [401, 403] {
            let api = FakeApi::default();
            let installation = installed(&api).await;
            api.state().refusals.insert("daemonsets".into(), code);
            assert!(installation.is_going().await);
            let owner = DaemonSetName { namespace: "kube-system".into(), name: "headway".into() };
            let stranger = Installation::new(api.client(), &owner);
            stranger.look().await;
            assert!(!stranger.is_going().await);
        }
    }
}
