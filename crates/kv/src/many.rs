//! Many keys at once, of one moment.
//!
//! Walk: [`Snapshot::get_many`], [`Snapshot::head_many`] · [`Kv::get_many`] and its like are the same as of now.

use crate::snapshot::{Found, Head, Snapshot};
use crate::{Kv, KvError};

impl Snapshot {
    /// The values of these keys, in their order; none where there is none.
    ///
    /// # Errors
    /// As [`Snapshot::get`]; [`KvError::Size`] if values and metadata are more than `scan_bytes_max` bytes.
    pub fn get_many(&self, keys: &[(u32, &[u8])]) -> Result<Vec<Option<Found>>, KvError> {
        let (mut all, mut gathered) = (Vec::with_capacity(keys.len()), 0_u64);
        for (keyspace, key) in keys {
            let found = self.entry(*keyspace, key)?;
            let bytes = found.as_ref().map_or(0, |found| found.value.len() + found.metadata.len());
            gathered = gathered.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
            self.refuse_more("the values of many keys", gathered)?;
            all.push(found);
        }
        Ok(all)
    }

    /// What is known of these keys, in their order; no value is read.
    ///
    /// # Errors
    /// As [`Snapshot::head`].
    pub fn head_many(&self, keys: &[(u32, &[u8])]) -> Result<Vec<Option<Head>>, KvError> {
        keys.iter().map(|(keyspace, key)| self.head(*keyspace, key)).collect()
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// As [`Snapshot::head`].
    pub fn exists(&self, keyspace: u32, key: &[u8]) -> Result<bool, KvError> {
        Ok(self.head(keyspace, key)?.is_some())
    }
}

impl Kv {
    /// The values of these keys as of one moment, in their order; none where there is none.
    ///
    /// # Errors
    /// As [`Snapshot::get_many`].
    pub fn get_many(&self, keys: &[(u32, &[u8])]) -> Result<Vec<Option<Found>>, KvError> {
        self.snapshot().get_many(keys)
    }

    /// What is known of these keys as of one moment, in their order; no value is read.
    ///
    /// # Errors
    /// As [`Kv::head`].
    pub fn head_many(&self, keys: &[(u32, &[u8])]) -> Result<Vec<Option<Head>>, KvError> {
        self.snapshot().head_many(keys)
    }

    /// Whether a key is there; no value is read.
    ///
    /// # Errors
    /// As [`Kv::head`].
    pub fn exists(&self, keyspace: u32, key: &[u8]) -> Result<bool, KvError> {
        Ok(self.head(keyspace, key)?.is_some())
    }
}
