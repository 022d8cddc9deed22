//! Tables of local endpoints, with which the programs note something of their own.

use std::collections::BTreeMap;

use bpf_common::maps::{Bucket, Endpoint, FdbEntry, FdbKey};

use crate::{
    error::Error,
    table::{Hash, Table},
};

/// Endpoints together with their storm buckets.
pub(crate) struct Endpoints {
    pub endpoints: Hash<u32, Endpoint>,
    pub buckets: Hash<u32, Bucket>,
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
        if let Ok(before) = self.endpoints.map.get(&ifindex, 0)
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
pub(crate) struct Fdb(pub Hash<FdbKey, FdbEntry>);

impl Table for Fdb {
    type Key = FdbKey;
    type Value = FdbEntry;

    fn list(&self) -> Result<BTreeMap<FdbKey, FdbEntry>, Error> {
        let own = |entry: FdbEntry| FdbEntry { services: 0, ..entry };
        Ok(self.0.list()?.into_iter().map(|(key, entry)| (key, own(entry))).collect())
    }

    /// What the programs have noted with an endpoint stays as long as its link does.
    fn set(&mut self, key: FdbKey, mut entry: FdbEntry) -> Result<(), Error> {
        if let Ok(before) = self.0.map.get(&key, 0)
            && before.ifindex == entry.ifindex
        {
            entry.services = before.services;
        }
        self.0.set(key, entry)
    }

    fn remove(&mut self, key: FdbKey) -> Result<(), Error> {
        self.0.remove(key)
    }
}
