//! Tables of local endpoints, with which the programs note something of their own.

use std::collections::BTreeMap;

use bpf_common::maps::{Bucket, Endpoint, FdbEntry, FdbKey};

use crate::{
    error::Error,
    table::{Hash, Table},
};

/// What the programs would note with an endpoint that has flows with everybody.
const EVERYBODY: u64 = u64::MAX;

/// Endpoints together with their storm buckets.
pub(crate) struct Endpoints {
    pub endpoints: Hash<u32, Endpoint>,
    pub buckets: Hash<u32, Bucket>,
    /// Flows were taken over from another layout, and not what it has noted with endpoints: they may have flows with anybody.
    pub suspected: bool,
}

impl Endpoints {
    /// Begins to suspect all endpoints, those that are there and new ones.
    pub fn suspect(&mut self) -> Result<(), Error> {
        self.suspected = true;
        for (ifindex, endpoint) in self.list()? {
            self.set(ifindex, endpoint)?;
        }
        Ok(())
    }
}

impl Table for Endpoints {
    type Key = u32;
    type Value = Endpoint;

    fn list(&self) -> Result<BTreeMap<u32, Endpoint>, Error> {
        let own = |endpoint: Endpoint| Endpoint { services: 0, ..endpoint };
        Ok(self.endpoints.list()?.into_iter().map(|(key, endpoint)| (key, own(endpoint))).collect())
    }

    /// A bucket that is there is left as it is, or an endpoint could empty it by being updated.
    fn set(&mut self, ifindex: u32, mut endpoint: Endpoint) -> Result<(), Error> {
        if self.buckets.map.get(&ifindex, 0).is_err() {
            self.buckets.set(ifindex, Bucket::default())?;
        }
        if self.suspected {
            endpoint.services = EVERYBODY;
        } else if let Ok(before) = self.endpoints.map.get(&ifindex, 0)
            && before.mac == endpoint.mac
        {
            endpoint.services = before.services;
        }
        self.endpoints.set(ifindex, endpoint)
    }

    fn remove(&mut self, ifindex: u32) -> Result<(), Error> {
        self.endpoints.remove(ifindex)?;
        self.buckets.remove(ifindex)
    }
}

/// The forwarding database.
pub(crate) struct Fdb {
    pub entries: Hash<FdbKey, FdbEntry>,
    /// See [`Endpoints::suspected`].
    pub suspected: bool,
}

impl Fdb {
    /// See [`Endpoints::suspect`].
    pub fn suspect(&mut self) -> Result<(), Error> {
        self.suspected = true;
        for (key, entry) in self.list()? {
            self.set(key, entry)?;
        }
        Ok(())
    }
}

impl Table for Fdb {
    type Key = FdbKey;
    type Value = FdbEntry;

    fn list(&self) -> Result<BTreeMap<FdbKey, FdbEntry>, Error> {
        let own = |entry: FdbEntry| FdbEntry { services: 0, ..entry };
        Ok(self.entries.list()?.into_iter().map(|(key, entry)| (key, own(entry))).collect())
    }

    /// What the programs have noted with an endpoint stays as long as its link does.
    fn set(&mut self, key: FdbKey, mut entry: FdbEntry) -> Result<(), Error> {
        if self.suspected {
            entry.services = EVERYBODY;
        } else if let Ok(before) = self.entries.map.get(&key, 0)
            && before.ifindex == entry.ifindex
        {
            entry.services = before.services;
        }
        self.entries.set(key, entry)
    }

    fn remove(&mut self, key: FdbKey) -> Result<(), Error> {
        self.entries.remove(key)
    }
}
