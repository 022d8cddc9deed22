//! The switch: its programs, maps and links.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{HashMap, Map, MapData, MapError, PerCpuArray},
    programs::SchedClassifier,
};
use bpf_common::{
    counters::{DropReason, Event},
    maps::{Endpoint, FdbEntry, FdbKey, FloodEndpoint, Network, Node, PathMtu, Prefix6, Settings},
    names,
    program::Program,
};
use ipnet::{Ipv4Net, Ipv6Net};

use crate::{
    bpffs::{is_bpffs, mount},
    carried::carry_over,
    counters::Counters,
    endpoints::{Endpoints, Fdb},
    error::Error,
    layout::Layout,
    pinned_link::take_down,
    table::{Bounds, Hash, Prefixes, Slots, Table},
};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/headway.bpf.o"));

/// The switch of this node.
///
/// Dropping it changes nothing in the kernel: what is pinned stays.
pub struct Switch {
    pub(crate) dir: PathBuf,
    connections: u32,
    pub(crate) ebpf: Ebpf,
    settings: Slots<Settings>,
    networks: Slots<Network>,
    endpoints: Endpoints,
    fdb: Fdb,
    prefixes4: Prefixes<[u32; 2], u32>,
    prefixes6: Prefixes<[u32; 5], Prefix6>,
    nodes: Hash<u32, Node>,
    flood_endpoints: Slots<FloodEndpoint>,
    flood_nodes: Slots<u32>,
    path_mtus: HashMap<MapData, u32, PathMtu>,
    drops: PerCpuArray<MapData, u64>,
    events: PerCpuArray<MapData, u64>,
}

impl Switch {
    /// Opens the switch whose maps and links are pinned in `dir`, or makes a new one there. Loads the programs,
    /// touches no link. A new one can remember `connections` TCP connections that the node routes on behalf of its pods.
    ///
    /// # Errors
    /// [`Error::NotBpffs`] and [`Error::NewerLayout`]; others if the kernel refuses maps or programs.
    pub fn open(dir: &Path, connections: u32) -> Result<Self, Error> {
        if !is_bpffs(dir)? {
            return Err(Error::NotBpffs { dir: dir.into() });
        }
        Layout::check(dir)?;
        let maps = Layout::OWN.folder(dir);
        for folder in [&maps, &links(dir)] {
            fs::create_dir_all(folder).map_err(Error::file("creating", folder))?;
        }
        let sibling = Layout::sibling(dir)?;
        if let Some(sibling) = sibling {
            carry_over(&sibling.folder(dir), &maps)?;
        }
        let mut ebpf = EbpfLoader::new()
            .default_map_pin_directory(&maps)
            .map_max_entries(names::CONNECTIONS, connections)
            .map_max_entries(names::FLOWS, connections.div_ceil(names::CONNECTIONS_A_FLOW))
            .load(OBJECT)
            .map_err(Error::program("loading maps into", maps.display().to_string()))?;
        for program in Program::ALL {
            classifier(&mut ebpf, program)?.load().map_err(Error::program("loading", program.name()))?;
        }
        let mut switch = Self::with_maps(dir, connections, ebpf)?;
        if sibling.is_some() {
            switch.endpoints.suspect()?;
            switch.fdb.suspect()?;
        }
        Ok(switch)
    }

    /// Whether the folder of pinned links is there. Without it nothing is attached any more.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        links(&self.dir).is_dir()
    }

    /// Makes everything anew in the same place, if somebody has unmounted the file system with the pins.
    ///
    /// # Errors
    /// Those of [`mount`] and [`Self::open`].
    pub fn reopen(&mut self) -> Result<(), Error> {
        mount(&self.dir)?;
        *self = Self::open(&self.dir, self.connections)?;
        Ok(())
    }

    fn with_maps(dir: &Path, connections: u32, mut ebpf: Ebpf) -> Result<Self, Error> {
        Ok(Self {
            dir: dir.into(),
            connections,
            settings: slots(&mut ebpf, names::SETTINGS, 1)?,
            networks: slots(&mut ebpf, names::NETWORKS, names::MAX_NETWORKS)?,
            endpoints: Endpoints {
                endpoints: hash(&mut ebpf, names::ENDPOINTS, names::MAX_ENDPOINTS)?,
                buckets: hash(&mut ebpf, names::BUCKETS, names::MAX_ENDPOINTS)?,
                suspected: false,
            },
            fdb: Fdb { entries: hash(&mut ebpf, names::FDB, names::MAX_ENDPOINTS)?, suspected: false },
            prefixes4: Prefixes {
                map: map(&mut ebpf, names::PREFIXES4)?,
                bounds: Bounds { map: names::PREFIXES4, limit: names::MAX_PREFIXES },
            },
            prefixes6: Prefixes {
                map: map(&mut ebpf, names::PREFIXES6)?,
                bounds: Bounds { map: names::PREFIXES6, limit: names::MAX_PREFIXES },
            },
            nodes: hash(&mut ebpf, names::NODES, names::MAX_NODES)?,
            flood_endpoints: slots(&mut ebpf, names::FLOOD_ENDPOINTS, names::MAX_ENDPOINTS)?,
            flood_nodes: slots(&mut ebpf, names::FLOOD_NODES, names::MAX_FLOOD_NODES)?,
            path_mtus: map(&mut ebpf, names::PATH_MTUS)?,
            drops: map(&mut ebpf, names::DROPS)?,
            events: map(&mut ebpf, names::EVENTS)?,
            ebpf,
        })
    }

    /// The node's settings, in slot 0. Without them all programs leave everything alone.
    pub fn settings(&mut self) -> &mut impl Table<Key = u32, Value = Settings> {
        &mut self.settings
    }

    /// Networks by number.
    pub fn networks(&mut self) -> &mut impl Table<Key = u32, Value = Network> {
        &mut self.networks
    }

    /// Endpoints by interface index of their switch-side link. A storm bucket comes and goes with each.
    pub fn endpoints(&mut self) -> &mut impl Table<Key = u32, Value = Endpoint> {
        &mut self.endpoints
    }

    /// The forwarding database: where local endpoints are.
    pub fn fdb(&mut self) -> &mut impl Table<Key = FdbKey, Value = FdbEntry> {
        &mut self.fdb
    }

    /// IPv4 pod prefixes by network number: their node's number.
    pub fn prefixes4(&mut self) -> &mut impl Table<Key = (u16, Ipv4Net), Value = u32> {
        &mut self.prefixes4
    }

    /// Prefixes of derived IPv6 addresses by network number. See [`names::PREFIXES6`] for their length.
    pub fn prefixes6(&mut self) -> &mut impl Table<Key = (u16, Ipv6Net), Value = Prefix6> {
        &mut self.prefixes6
    }

    /// Peers by node number.
    pub fn nodes(&mut self) -> &mut impl Table<Key = u32, Value = Node> {
        &mut self.nodes
    }

    /// Local endpoints that get flooded frames, by slot.
    pub fn flood_endpoints(&mut self) -> &mut impl Table<Key = u32, Value = FloodEndpoint> {
        &mut self.flood_endpoints
    }

    /// Node numbers of the peers that get flooded frames, by position.
    pub fn flood_nodes(&mut self) -> &mut impl Table<Key = u32, Value = u32> {
        &mut self.flood_nodes
    }

    /// Path MTUs that the switch has learned, by node number. Expired ones are among them until they are replaced.
    ///
    /// # Errors
    /// If the kernel refuses to read the map.
    pub fn path_mtus(&self) -> Result<BTreeMap<u32, PathMtu>, Error> {
        self.path_mtus.iter().collect::<Result<_, _>>().map_err(map_error(names::PATH_MTUS))
    }

    /// What the programs have counted so far.
    ///
    /// # Errors
    /// If the kernel refuses to read the maps.
    pub fn counters(&self) -> Result<Counters, Error> {
        let mut counters = Counters::default();
        for &reason in DropReason::ALL {
            counters.drops.insert(reason, sum(&self.drops, names::DROPS, reason as u32)?);
        }
        for &event in Event::ALL {
            counters.events.insert(event, sum(&self.events, names::EVENTS, event as u32)?);
        }
        Ok(counters)
    }

    /// Removes the maps of older layouts. To be called when all links run this build's programs.
    ///
    /// # Errors
    /// If a pin cannot be removed.
    pub fn retire_old_layouts(&mut self) -> Result<(), Error> {
        (self.endpoints.suspected, self.fdb.suspected) = (false, false);
        for layout in Layout::present(&self.dir)? {
            if layout < Layout::OWN {
                remove_folder(&layout.folder(&self.dir))?;
            }
        }
        Ok(())
    }
}

/// Removes all links and maps of a switch in `dir`, of whatever layout, and the directory's contents with them. Goes
/// on after a failure; the first one is returned.
///
/// # Errors
/// If a pin cannot be removed.
pub fn remove_all(dir: &Path) -> Result<(), Error> {
    let mut outcome = remove_links(&links(dir));
    for layout in Layout::present(dir)? {
        outcome = outcome.and(remove_folder(&layout.folder(dir)));
    }
    outcome
}

/// Where links are pinned.
pub(crate) fn links(dir: &Path) -> PathBuf {
    dir.join("links")
}

fn remove_links(folder: &Path) -> Result<(), Error> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(Error::file("reading", folder))?,
    };
    let mut outcome = Ok(());
    for entry in entries {
        let pin = entry.map_err(Error::file("reading", folder))?.path();
        outcome = outcome.and(take_down(&pin));
    }
    outcome.and(remove_folder(folder))
}

fn remove_folder(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(Error::file("removing", folder)),
    }
}

pub(crate) fn classifier(ebpf: &mut Ebpf, program: Program) -> Result<&mut SchedClassifier, Error> {
    let name = program.name();
    let loaded = ebpf.program_mut(name).ok_or("the object has no such program");
    let loaded = loaded.map_err(Error::program("finding", name))?;
    loaded.try_into().map_err(Error::program("finding", name))
}

fn map<M: TryFrom<Map, Error = MapError>>(ebpf: &mut Ebpf, name: &'static str) -> Result<M, Error> {
    let map = ebpf.take_map(name).ok_or(MapError::InvalidName { name: name.into() });
    map.and_then(M::try_from).map_err(map_error(name))
}

fn hash<K: aya::Pod, V: aya::Pod>(
    ebpf: &mut Ebpf,
    name: &'static str,
    limit: u32,
) -> Result<Hash<K, V>, Error> {
    Ok(Hash { map: map(ebpf, name)?, bounds: Bounds { map: name, limit } })
}

fn slots<V: aya::Pod>(ebpf: &mut Ebpf, name: &'static str, limit: u32) -> Result<Slots<V>, Error> {
    Ok(Slots { map: map(ebpf, name)?, bounds: Bounds { map: name, limit } })
}

fn map_error(map: &'static str) -> impl FnOnce(MapError) -> Error {
    move |source| Error::Map { map, source: source.into() }
}

fn sum(counters: &PerCpuArray<MapData, u64>, name: &'static str, index: u32) -> Result<u64, Error> {
    Ok(counters.get(&index, 0).map_err(map_error(name))?.iter().sum())
}
