//! This node's own objects, as the API server last showed them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::{ResourceExt, runtime::watcher::Event};
use tokio::sync::watch;

use super::objects::Locator;

/// The objects. The watches fill them in; the publisher compares them with what it wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Own {
    /// The Node, once seen.
    pub node: Option<Arc<Node>>,
    /// The Locator; the outer `None` says that Locators have not been listed yet.
    pub locator: Option<Option<Arc<Locator>>>,
}

/// Follows the objects through the events of the watches.
#[derive(Debug)]
pub struct OwnObjects {
    name: String,
    seen: watch::Sender<Own>,
    /// The Locator in a list that is not complete yet.
    listed: Option<Arc<Locator>>,
}

impl OwnObjects {
    /// Of the node of that name; whoever subscribes to `seen` is told.
    #[must_use]
    pub fn new(name: &str, seen: watch::Sender<Own>) -> Self {
        Self { name: name.to_owned(), seen, listed: None }
    }

    /// Takes an event of the watch of the own Node in. A Node that is gone stays what it was: its agent is about to go too.
    pub fn node(&self, event: &Event<Node>) {
        if let Event::Apply(node) | Event::InitApply(node) = event
            && node.name_any() == self.name
        {
            self.seen.send_modify(|own| own.node = Some(Arc::new(node.clone())));
        }
    }

    /// Takes an event of the watch of all Locators in.
    pub fn locator(&mut self, event: &Event<Locator>) {
        match event {
            Event::Init => self.listed = None,
            Event::InitApply(locator) if locator.name_any() == self.name => {
                self.listed = Some(Arc::new(locator.clone()));
            }
            Event::InitDone => {
                let listed = self.listed.take();
                self.seen.send_modify(|own| own.locator = Some(listed));
            }
            Event::Apply(locator) if locator.name_any() == self.name => {
                self.seen.send_modify(|own| own.locator = Some(Some(Arc::new(locator.clone()))));
            }
            Event::Delete(locator) if locator.name_any() == self.name => {
                self.seen.send_modify(|own| own.locator = Some(None));
            }
            Event::InitApply(_) | Event::Apply(_) | Event::Delete(_) => {}
        }
    }
}
