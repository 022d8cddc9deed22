//! Whether the cluster has NetworkPolicies, which headway does not enforce.

use std::{sync::mpsc::Sender, time::Duration};

use agent_core::world::Event;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::{Api, Client, api::ListParams};
use tokio::time::sleep;
use tracing::warn;

use super::publish::ask;
use crate::{agent::Input, clock};

/// So often it is asked: one small question of each node.
const INTERVAL: Duration = Duration::from_secs(3600);
/// The first questions of nodes that start together are spread over this.
const FIRST: Duration = Duration::from_secs(30);

/// Tells the agent at the start, and about once an hour, for as long as it listens.
pub async fn follow(client: Client, agent: Sender<Input>) {
    let policies = Api::<NetworkPolicy>::all(client);
    sleep(part_of(FIRST)).await;
    loop {
        match ask(policies.list_metadata(&ListParams::default().limit(1))).await {
            Ok(list) => {
                let exist = !list.items.is_empty();
                if agent.send(Input::Event(Event::NetworkPolicies(exist))).is_err() {
                    return;
                }
            }
            Err(failure) => warn!(error = failure.sentence(), "NetworkPolicies not looked for"),
        }
        sleep(INTERVAL / 2 + part_of(INTERVAL)).await;
    }
}

/// A random part of some time.
fn part_of(time: Duration) -> Duration {
    // Without a random number all nodes ask at once.
    time.mul_f64((clock::random().unwrap_or(0) % 1000) as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use serde_json::json;

    use super::*;
    use crate::kube::fake_api::FakeApi;

    #[tokio::test(start_paused = true)]
    async fn a_policy_that_comes_is_noticed_within_the_hour_or_two() {
        let (sender, told) = channel();
        let api = FakeApi::default();
        tokio::spawn(follow(api.client(), sender));
        let exist = || {
            told.try_iter()
                .map(|input| matches!(input, Input::Event(Event::NetworkPolicies(true))))
                .collect::<Vec<_>>()
        };
        sleep(FIRST * 2).await;
        assert_eq!(exist(), [false]);
        let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny"}});
        api.state().put("/apis/networking.k8s.io/v1/networkpolicies/deny", policy);
        sleep(INTERVAL * 2).await;
        assert_eq!(exist().last(), Some(&true));
    }
}
