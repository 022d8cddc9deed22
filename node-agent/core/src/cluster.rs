//! What is known of the Kubernetes cluster, and what follows from it for this node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    addr::{NodeNumber, SidBlock},
    config::LocalNode,
    dataplane::Link,
    identity::{self, ClusterPrefixes, NodeObject, Waiting},
    membership::{Claim, Claims, Membership, Own, membership},
};

/// Something that the API server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// UID of the namespace kube-system, which names the cluster.
    Uid(String),
    /// This node's Node object.
    Node(Box<NodeObject>),
    /// All Locators there are.
    Locators(Claims),
    /// A Locator is there, or has changed.
    Locator(String, Box<Claim>),
    /// A Locator is gone.
    LocatorGone(String),
    /// The API server answers; if not, why.
    Reachable(Result<(), String>),
}

/// What is known of the cluster. Parts of it may be missing at first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct View {
    /// UID of the namespace kube-system.
    pub uid: Option<String>,
    /// This node's Node object, as it was last seen.
    pub node: Option<NodeObject>,
    /// All Locators.
    pub claims: Option<Claims>,
}

impl View {
    /// Takes a fact in; gives whether anything has changed.
    pub fn apply(&mut self, fact: Fact) -> bool {
        fn replace<T: PartialEq>(place: &mut Option<T>, value: T) -> bool {
            place.as_ref() != Some(&value) && {
                *place = Some(value);
                true
            }
        }
        match fact {
            Fact::Uid(uid) => replace(&mut self.uid, uid),
            Fact::Node(node) => replace(&mut self.node, *node),
            Fact::Locators(claims) => replace(&mut self.claims, claims),
            Fact::Locator(name, claim) => {
                let claims = self.claims.get_or_insert_default();
                claims.get(&name) != Some(&*claim) && {
                    claims.insert(name, *claim);
                    true
                }
            }
            Fact::LocatorGone(name) => {
                self.claims.as_mut().is_some_and(|claims| claims.remove(&name).is_some())
            }
            Fact::Reachable(_) => false,
        }
    }

    /// Fills what the API server has not said from what an earlier agent wrote down.
    pub fn recall(&mut self, earlier: &Self) {
        self.uid = self.uid.take().or_else(|| earlier.uid.clone());
        self.node = self.node.take().or_else(|| earlier.node.clone());
        self.claims = self.claims.take().or_else(|| earlier.claims.clone());
    }
}

/// A node number that was chosen once, for one Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chosen {
    /// UID of the Node: another node of the same name gets a number of its own.
    pub uid: String,
    /// Its number.
    pub number: NodeNumber,
}

/// What is set in the configuration file, and what is remembered.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Name of this node.
    pub name: &'a str,
    /// The cluster's pod prefixes.
    pub prefixes: ClusterPrefixes,
    /// The SID block, if it is set.
    pub sid_block: Option<SidBlock>,
    /// The uplinks, if they are set.
    pub uplinks: Option<&'a [String]>,
    /// The uplinks of before: they stay while the Node's addresses are on no link.
    pub uplinks_before: Option<&'a [String]>,
    /// The number of before.
    pub chosen: Option<&'a Chosen>,
}

/// Who this node is, and who the others are.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// This node.
    pub node: LocalNode,
    /// UID of its Node.
    pub uid: String,
    /// The cluster's SID block.
    pub block: SidBlock,
    /// The others.
    pub members: Membership,
}

/// Who this node is, and who the others are.
///
/// # Errors
/// [`Waiting`] while something is missing, with what to do.
pub fn standing(view: &View, given: Given<'_>, links: &BTreeMap<String, Link>) -> Result<Standing, Waiting> {
    let name = given.name;
    let node = view.node.as_ref().ok_or_else(|| {
        Waiting::new(
            "NoNode",
            format!("the API server has not shown Node {name} yet: --node-name must be a Node's name"),
        )
    })?;
    let block =
        given.sid_block.or_else(|| view.uid.as_deref().map(SidBlock::of_cluster)).ok_or_else(|| {
            Waiting::new("NoClusterUID", "the API server has not shown the namespace kube-system yet")
        })?;
    let claims = view
        .claims
        .as_ref()
        .ok_or_else(|| Waiting::new("NoLocators", "the API server has not listed the Locators yet"))?;
    let pods = identity::pods(node, given.prefixes)?;
    // What an earlier Node of the same name has left is about to go, and is no claim of this one.
    let own_claim = claims.get(name).filter(|claim| claim.owner == node.uid);
    let in_locator = own_claim.and_then(|claim| NodeNumber::new(claim.number).ok());
    let remembered = given.chosen.filter(|chosen| chosen.uid == node.uid).map(|chosen| chosen.number);
    let number = identity::number(node, in_locator, remembered, pods, given.prefixes)?;
    let uplinks = match given.uplinks {
        Some(uplinks) => uplinks.to_vec(),
        None => identity::uplinks(node, links)
            .or_else(|waiting| given.uplinks_before.map(<[String]>::to_vec).ok_or(waiting))?,
    };
    let own = Own { name: name.to_owned(), created: own_claim.map(|claim| claim.created), number, pods };
    let members = membership(claims, &own, block, given.prefixes.both);
    let node = LocalNode { name: name.to_owned(), number, pods, uplinks };
    Ok(Standing {
        node,
        uid: view.node.as_ref().map_or_else(String::new, |node| node.uid.clone()),
        block,
        members,
    })
}

/// What a running node knows of its cluster beside its peers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InCluster {
    /// UID of its Node.
    pub uid: String,
    /// Locators of others that are not taken, by node name, with a sentence that says what to do.
    pub rejected: BTreeMap<String, String>,
    /// Why this node's own claim does not hold, if it does not: then it stays without pods.
    pub own_rejected: Option<String>,
    /// Why the API server cannot be reached, if it cannot.
    pub unreachable: Option<String>,
}
