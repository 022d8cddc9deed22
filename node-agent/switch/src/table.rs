//! Typed access to the maps that the agent fills.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, Ipv6Addr},
};

use aya::{
    Pod,
    maps::{Array, HashMap, LpmTrie, MapData, MapError, lpm_trie},
};
use ipnet::{Ipv4Net, Ipv6Net};

use crate::error::Error;

/// A map as keys and values. What `set` has put in, `list` gives back.
pub trait Table {
    /// Key.
    type Key: Ord;
    /// Value.
    type Value;

    /// All entries.
    ///
    /// # Errors
    /// If the kernel refuses to read the map.
    fn list(&self) -> Result<BTreeMap<Self::Key, Self::Value>, Error>;

    /// Creates or replaces an entry.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no place for it.
    fn set(&mut self, key: Self::Key, value: Self::Value) -> Result<(), Error>;

    /// Removes an entry; that there is none is success.
    ///
    /// # Errors
    /// If the kernel refuses to change the map.
    fn remove(&mut self, key: Self::Key) -> Result<(), Error>;
}

/// Name and size of a map, for errors.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub map: &'static str,
    pub limit: u32,
}

impl Bounds {
    pub(crate) fn error(self, source: MapError) -> Error {
        // E2BIG: a hash map without a free element; ENOSPC: the same of a prefix table.
        let full =
            matches!(kind(&source), Some(io::ErrorKind::ArgumentListTooLong | io::ErrorKind::StorageFull))
                || matches!(source, MapError::OutOfBounds { .. });
        if full {
            Error::Full { map: self.map, limit: self.limit }
        } else {
            Error::Map { map: self.map, source: source.into() }
        }
    }

    fn removed(self, result: Result<(), MapError>) -> Result<(), Error> {
        match result {
            Err(MapError::KeyNotFound | MapError::ElementNotFound) => Ok(()),
            Err(error) if kind(&error) == Some(io::ErrorKind::NotFound) => Ok(()),
            result => result.map_err(|error| self.error(error)),
        }
    }
}

fn kind(error: &MapError) -> Option<io::ErrorKind> {
    match error {
        MapError::SyscallError(error) => Some(error.io_error.kind()),
        MapError::IoError(error) => Some(error.kind()),
        _ => None,
    }
}

/// A hash map.
pub(crate) struct Hash<K: Pod, V: Pod> {
    pub map: HashMap<MapData, K, V>,
    pub bounds: Bounds,
}

impl<K: Pod + Ord, V: Pod> Table for Hash<K, V> {
    type Key = K;
    type Value = V;

    fn list(&self) -> Result<BTreeMap<K, V>, Error> {
        self.map.iter().collect::<Result<_, _>>().map_err(|error| self.bounds.error(error))
    }

    fn set(&mut self, key: K, value: V) -> Result<(), Error> {
        self.map.insert(key, value, 0).map_err(|error| self.bounds.error(error))
    }

    fn remove(&mut self, key: K) -> Result<(), Error> {
        self.bounds.removed(self.map.remove(&key))
    }
}

/// An array whose all-zero elements count as absent.
pub(crate) struct Slots<V: Pod> {
    pub map: Array<MapData, V>,
    pub bounds: Bounds,
}

impl<V: Pod + Default + PartialEq> Table for Slots<V> {
    type Key = u32;
    type Value = V;

    fn list(&self) -> Result<BTreeMap<u32, V>, Error> {
        let mut entries = BTreeMap::new();
        for (slot, value) in (0..).zip(self.map.iter()) {
            let value = value.map_err(|error| self.bounds.error(error))?;
            if value != V::default() {
                entries.insert(slot, value);
            }
        }
        Ok(entries)
    }

    fn set(&mut self, slot: u32, value: V) -> Result<(), Error> {
        self.map.set(slot, value, 0).map_err(|error| self.bounds.error(error))
    }

    fn remove(&mut self, slot: u32) -> Result<(), Error> {
        self.set(slot, V::default())
    }
}

/// A longest-prefix table by network number and prefix.
pub(crate) struct Prefixes<K: Pod, V: Pod> {
    pub map: LpmTrie<MapData, K, V>,
    pub bounds: Bounds,
}

/// The network number comes first in the key and always counts as a whole.
const NETWORK_BITS: u32 = 32;

impl<V: Pod> Table for Prefixes<[u32; 2], V> {
    type Key = (u16, Ipv4Net);
    type Value = V;

    fn list(&self) -> Result<BTreeMap<Self::Key, V>, Error> {
        self.entries(|key| {
            let [network, address] = key.data();
            let address = Ipv4Addr::from(address.to_ne_bytes());
            let net = Ipv4Net::new(address, prefix_length(key.prefix_len())).ok()?;
            Some((u16::try_from(network).ok()?, net))
        })
    }

    fn set(&mut self, key: Self::Key, value: V) -> Result<(), Error> {
        self.map.insert(&key4(key), value, 0).map_err(|error| self.bounds.error(error))
    }

    fn remove(&mut self, key: Self::Key) -> Result<(), Error> {
        self.bounds.removed(self.map.remove(&key4(key)))
    }
}

impl<V: Pod> Table for Prefixes<[u32; 5], V> {
    type Key = (u16, Ipv6Net);
    type Value = V;

    fn list(&self) -> Result<BTreeMap<Self::Key, V>, Error> {
        self.entries(|key| {
            let [network, address @ ..] = key.data();
            let mut octets = [0; 16];
            for (octets, word) in octets.chunks_exact_mut(4).zip(address) {
                octets.copy_from_slice(&word.to_ne_bytes());
            }
            let net = Ipv6Net::new(Ipv6Addr::from(octets), prefix_length(key.prefix_len())).ok()?;
            Some((u16::try_from(network).ok()?, net))
        })
    }

    fn set(&mut self, key: Self::Key, value: V) -> Result<(), Error> {
        self.map.insert(&key6(key), value, 0).map_err(|error| self.bounds.error(error))
    }

    fn remove(&mut self, key: Self::Key) -> Result<(), Error> {
        self.bounds.removed(self.map.remove(&key6(key)))
    }
}

impl<K: Pod, V: Pod> Prefixes<K, V> {
    fn entries<P: Ord>(
        &self,
        parse: impl Fn(&lpm_trie::Key<K>) -> Option<P>,
    ) -> Result<BTreeMap<P, V>, Error> {
        let mut entries = BTreeMap::new();
        for entry in &self.map {
            let (key, value) = entry.map_err(|error| self.bounds.error(error))?;
            entries.extend(parse(&key).map(|key| (key, value)));
        }
        Ok(entries)
    }
}

fn prefix_length(key_bits: u32) -> u8 {
    u8::try_from(key_bits.saturating_sub(NETWORK_BITS)).unwrap_or(u8::MAX)
}

fn key4((network, net): (u16, Ipv4Net)) -> lpm_trie::Key<[u32; 2]> {
    let address = u32::from_ne_bytes(net.network().octets());
    lpm_trie::Key::new(NETWORK_BITS + u32::from(net.prefix_len()), [network.into(), address])
}

fn key6((network, net): (u16, Ipv6Net)) -> lpm_trie::Key<[u32; 5]> {
    let octets = net.network().octets();
    let mut words = [u32::from(network); 5];
    for (word, octets) in words[1..].iter_mut().zip(octets.as_chunks::<4>().0) {
        *word = u32::from_ne_bytes(*octets);
    }
    lpm_trie::Key::new(NETWORK_BITS + u32::from(net.prefix_len()), words)
}
