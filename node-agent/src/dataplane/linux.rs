//! The kernel that runs here, composed of the parts beside this file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use agent_api::{MacAddress, names};
use agent_core::{
    btf,
    dataplane::{Attached, Dataplane, Entry, Facts, Hop, Key, Program, RouteKey, Step},
    desired, sysctls as wanted_sysctls,
    world::World,
};
use agent_switch::Switch;
use nix::errno::Errno;
use tracing::warn;

use super::{
    Doing, Kernel, Measurements, StepError, addresses,
    expedite::Expedite,
    files,
    links::{self, Links},
    neighbour_tables, neighbours,
    nft::Nft,
    pod_links, routes, switch,
    sysctls::{self, Originals},
    ways,
};
use crate::{
    clock,
    config::Paths,
    netlink::{Answer, Generic, Route},
};

/// The kernel's type information.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// The kernel, in the network namespace in which this was opened.
pub struct Linux {
    route: Route,
    ethtool: Generic,
    switch: Switch,
    /// For attaching programs, if the operator has nothing against it.
    expedite: Option<Expedite>,
    nft: Nft,
    originals: Originals,
    state: PathBuf,
    headroom_attribute: Option<u16>,
    /// Routes of ours.
    routes: BTreeSet<RouteKey>,
    /// Last known MACs of neighbours.
    macs: BTreeMap<Hop, MacAddress>,
}

/// Why the kernel cannot be worked with.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A newer agent has left what this one must not touch.
    #[error("{0}")]
    Newer(String),
    /// Something could not be opened or loaded.
    #[error(transparent)]
    Failed(#[from] StepError),
}

impl Linux {
    /// Opens what has to be open, loads the switch's programs. No traffic is touched.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(paths: &Paths, boot: &str, expedite_attach: bool) -> Result<Self, OpenError> {
        agent_switch::mount(&paths.bpf).doing("loading the switch")?;
        let switch = match Switch::open(&paths.bpf, switch::connections()) {
            Err(newer @ agent_switch::Error::NewerLayout { .. }) => {
                return Err(OpenError::Newer(newer.to_string()));
            }
            switch => switch.doing("loading the switch")?,
        };
        Ok(Self {
            route: Route::open().doing("opening a netlink socket")?,
            ethtool: Generic::open().doing("opening an ethtool socket")?,
            switch,
            expedite: expedite_attach
                .then(|| Expedite::new(paths.socket.parent().unwrap_or(Path::new("/run")))),
            nft: Nft::default(),
            originals: Originals::load(&paths.state, boot),
            state: paths.state.clone(),
            headroom_attribute: headroom_attribute(Path::new(BTF)),
            routes: BTreeSet::new(),
            macs: BTreeMap::new(),
        })
    }

    /// Links with their addresses, of which those on our links are ours.
    fn addresses(&mut self, links: &Links, facts: &mut Facts, plane: &mut Dataplane) -> Answer<()> {
        let mut addresses: BTreeMap<u32, Vec<IpAddr>> = BTreeMap::new();
        // On pods' links there is none, but on those of pods that are off the segment.
        let ours: BTreeMap<u32, &str> = links
            .iter()
            .filter(|(name, seen)| {
                seen.ours && (*name == desired::GATEWAY_LINK || names::is_host_ifname(name))
            })
            .map(|(name, seen)| (seen.link.ifindex, name.as_str()))
            .collect();
        for seen in addresses::addresses(&mut self.route)? {
            addresses.entry(seen.ifindex).or_default().push(seen.address.addr());
            if let Some(link) = ours.get(&seen.ifindex) {
                plane.addresses.extend(addresses::key(link, &seen).map(|key| (key, ())));
            }
        }
        for (name, seen) in links {
            let mut link = seen.link.clone();
            link.addresses = addresses.remove(&link.ifindex).unwrap_or_default();
            facts.links.insert(name.clone(), link);
        }
        Ok(())
    }

    /// Ways to peers, the neighbours on them, and which of these are in our care.
    fn ways(&mut self, world: &World, facts: &mut Facts, plane: &mut Dataplane) -> Answer<()> {
        let main = routes::main_table(&mut self.route)?;
        let own = facts.links.values().flat_map(|link| &link.addresses).filter_map(|address| match address {
            IpAddr::V6(ip) => Some(*ip),
            IpAddr::V4(_) => None,
        });
        facts.routes_to = ways::ways(&mut self.route, &main, &own.collect(), &desired::lookups(world))?;
        let mut seen = Vec::new();
        for uplink in &world.config.node.uplinks {
            if let Some(link) = facts.links.get(uplink) {
                seen.extend(neighbours::neighbours(&mut self.route, link.ifindex)?);
            }
        }
        neighbours::remember(&mut self.macs, &seen);
        facts.neighbours = self.macs.clone();
        plane.neighbours = seen.iter().filter(|seen| seen.ours).map(|seen| (seen.hop, ())).collect();
        plane.routes = routes::ours(&main);
        self.routes = plane.routes.keys().cloned().collect();
        Ok(())
    }

    /// Programs of others ahead of ours on the uplinks; without ours there is no "ahead".
    fn programs_ahead(&self, facts: &mut Facts, plane: &Dataplane) -> Result<(), agent_switch::Error> {
        for (name, link) in &facts.links {
            if plane.attachments.get(&(Program::Uplink, link.ifindex)) != Some(&Attached::Current) {
                continue;
            }
            let ahead = self.switch.ahead_of_us(link.ifindex)?;
            if !ahead.is_empty() {
                let words = ahead.iter().map(|foreign| match foreign.name.as_str() {
                    "" => format!("program {}", foreign.id),
                    name => format!("{name} (id {})", foreign.id),
                });
                facts.programs_ahead.insert(name.clone(), words.collect());
            }
        }
        Ok(())
    }

    fn set(&mut self, entry: &Entry) -> Result<(), StepError> {
        let mut set = || switch::set(&mut self.switch, entry);
        let result = match (&self.expedite, entry) {
            (Some(expedite), Entry::Attachment(..)) => expedite.during(set),
            _ => set(),
        };
        if let Some(result) = result {
            return result.doing(format_args!("setting {entry:?}"));
        }
        match entry {
            Entry::Pair(name, pair) => {
                links::set_pair(&mut self.route, &mut self.ethtool, name, pair, self.headroom_attribute)
            }
            Entry::Address(wanted, ()) => self
                .index(&wanted.link)
                .and_then(|ifindex| addresses::set(&mut self.route, ifindex, wanted))
                .doing(format_args!("setting address {} on {}", wanted.address, wanted.link)),
            Entry::Sysctl(path, value) => self.originals.set(&self.state, path, value),
            Entry::Route(key, target) => {
                routes::set(&mut self.route, key, target, self.routes.contains(key))?;
                self.routes.insert(key.clone());
                Ok(())
            }
            Entry::Neighbour(hop, ()) => neighbours::set(&mut self.route, hop),
            Entry::Firewall(name, script) => self.nft.set(name, script),
            Entry::PodLink(name, link) => {
                pod_links::set(&mut self.route, name, link, self.headroom_attribute)
            }
            Entry::File(path, content) => files::set(path, content),
            _ => Ok(()),
        }
    }

    fn remove(&mut self, key: &Key) -> Result<(), StepError> {
        if let Some(result) = switch::remove(&mut self.switch, key) {
            return result.doing(format_args!("removing {key:?}"));
        }
        match key {
            Key::Pair(name) | Key::PodLink(name) => links::remove_link(&mut self.route, name),
            Key::Address(gone) => match self.index(&gone.link) {
                Err(error) if error.errno == Errno::ENODEV => Ok(()),
                result => result
                    .and_then(|ifindex| addresses::remove(&mut self.route, ifindex, gone))
                    .doing(format_args!("removing address {} from {}", gone.address, gone.link)),
            },
            Key::Route(key) => {
                routes::remove(&mut self.route, key)?;
                self.routes.remove(key);
                Ok(())
            }
            Key::Neighbour(hop) => neighbours::remove(&mut self.route, hop),
            Key::Firewall(name) => self.nft.remove(name),
            Key::File(path) => files::remove(path),
            // A setting that is no longer wanted stays as it is until `cleanup`.
            _ => Ok(()),
        }
    }

    fn index(&mut self, link: &str) -> Answer<u32> {
        links::index(&mut self.route, link)
    }
}

impl Kernel for Linux {
    fn observe(&mut self, world: &World, known: Option<&Dataplane>) -> Result<(Facts, Dataplane), StepError> {
        let mut facts = Facts {
            observed_at: clock::now(),
            headroom_attribute: self.headroom_attribute,
            sysctls: sysctls::read(&wanted_sysctls::of_interest(world)),
            ..Facts::default()
        };
        let links = links::links(&mut self.route, self.headroom_attribute).doing("looking at links")?;
        let mut plane = Dataplane {
            pairs: links::pairs(&links, &mut self.ethtool).doing("looking at pairs")?,
            pod_links: pod_links::pod_links(&links, world),
            sysctls: sysctls::read(&wanted_sysctls::desired(world).into_keys().collect()),
            ..Dataplane::default()
        };
        self.addresses(&links, &mut facts, &mut plane).doing("looking at addresses")?;
        self.ways(world, &mut facts, &mut plane).doing("looking at routes and neighbours")?;
        let ruleset = self.nft.observe()?;
        plane.firewall = ruleset.tables;
        facts.forward_drops = ruleset.forward_drops;
        if world.announced {
            let path = &world.config.conflist.0;
            plane.files.extend(files::read(path)?.map(|content| (path.clone(), content)));
        }
        match known {
            Some(known) => switch::trust(known, &mut plane),
            None => {
                if !self.switch.is_pinned() {
                    warn!("the switch's pins are gone, it is made anew");
                    self.switch.reopen().doing("making the switch anew")?;
                }
                switch::observe(&mut self.switch, &mut plane).doing("looking at the switch")?;
            }
        }
        self.programs_ahead(&mut facts, &plane).doing("looking at programs of others")?;
        Ok((facts, plane))
    }

    fn apply(&mut self, step: &Step) -> Result<(), StepError> {
        match step {
            Step::Set(entry) => self.set(entry),
            Step::Remove(key) => self.remove(key),
        }
    }

    fn measure(&mut self) -> Result<Measurements, StepError> {
        let links = links::links(&mut self.route, None).doing("looking at links")?;
        let learned = self.switch.path_mtus().doing("reading path MTUs")?.into_iter();
        let now = clock::switch_now();
        Ok(Measurements {
            path_mtus: learned
                .filter(|(_, learned)| learned.expires > now)
                .map(|(number, learned)| (number, learned.mtu))
                .collect(),
            counters: self.switch.counters().doing("reading counters")?,
            netlink_requests: self.route.requests() + self.ethtool.requests(),
            segmenter_drops: links::segmenter_drops(&links),
            neighbour_tables: neighbour_tables::tables(),
        })
    }

    fn settled(&mut self) -> Result<(), StepError> {
        self.switch.retire_old_layouts().doing("removing maps of earlier agents")
    }
}

/// The running kernel's number for `IFLA_TX_EXTRA_HEADROOM`. A kernel that does not show its types counts as one
/// without the attribute.
fn headroom_attribute(btf: &Path) -> Option<u16> {
    let bytes = fs::read(btf).ok()?;
    let number = btf::enumerator(&bytes, "IFLA_MTU", "IFLA_TX_EXTRA_HEADROOM").ok().flatten()?;
    u16::try_from(number).ok()
}
