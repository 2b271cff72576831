//! fjall, with key-value separation: its form for large values.

use std::ops::ControlFlow;

use assent_bench::BenchError;
use assent_bench::kv::store::{Ability, Each, Member, Setup, Store, Write, failed};
use fjall::config::CompressionPolicy;
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode, Readable as _,
    Snapshot,
};

/// Background threads, as many as the other peers have.
const THREADS: usize = 2;

/// The member.
pub(crate) fn member() -> Member {
    Member {
        name: "fjall",
        about: "fjall: fjall 3.1, values apart from keys from 1 KiB on (its default), no compression, write buffer as it ships".to_owned(),
        lacks: vec![(Ability::SlowDisk, "it opens its files itself")],
        open: |setup| Ok(Box::new(Fjall::open(setup)?)),
    }
}

struct Fjall {
    database: Database,
    keyspace: Keyspace,
}

fn said(what: &'static str) -> impl Fn(fjall::Error) -> BenchError {
    move |error| failed(&format!("fjall: {what}"), error)
}

impl Fjall {
    fn open(setup: &Setup) -> Result<Self, BenchError> {
        let database = Database::builder(&setup.folder)
            .cache_size(setup.cache_bytes)
            .journal_compression(CompressionType::None)
            .worker_threads(THREADS)
            .open()
            .map_err(said("opening"))?;
        let options = || {
            KeyspaceCreateOptions::default()
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
                .with_kv_separation(Some(KvSeparationOptions::default().compression(CompressionType::None)))
        };
        let keyspace = database.keyspace("race", options).map_err(said("opening its keyspace"))?;
        Ok(Self { database, keyspace })
    }

    fn snapshot(&self) -> Snapshot {
        self.database.snapshot()
    }
}

impl Store for Fjall {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
        let Some(found) = self.keyspace.get(key).map_err(said("get"))? else { return Ok(false) };
        value.clear();
        value.extend_from_slice(&found);
        Ok(true)
    }

    fn head(&self, key: &[u8], head: &mut Vec<u8>) -> Result<bool, BenchError> {
        self.get(key, head)
    }

    fn write(&self, writes: &[Write<'_>], sync: bool) -> Result<(), BenchError> {
        if let ([write], false) = (writes, sync) {
            return match *write {
                Write::Put(key, value) => self.keyspace.insert(key, value),
                Write::Delete(key) => self.keyspace.remove(key),
            }
            .map_err(said("write"));
        }
        let mut batch = self.database.batch().durability(sync.then_some(PersistMode::SyncData));
        for write in writes {
            match *write {
                Write::Put(key, value) => batch.insert(&self.keyspace, key, value),
                Write::Delete(key) => batch.remove(&self.keyspace, key),
            }
        }
        batch.commit().map_err(said("write"))
    }

    fn fold(&self, from: &[u8], to: &[u8], each: &mut Each<'_>) -> Result<(), BenchError> {
        for row in self.snapshot().range(&self.keyspace, from..to) {
            let (key, value) = row.into_inner().map_err(said("fold"))?;
            if each(&key, &value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), BenchError> {
        self.database.persist(PersistMode::SyncAll).map_err(said("flush"))
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        self.flush()
    }
}
