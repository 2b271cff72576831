//! redb: a copy-on-write B-tree with one writer at a time.

use std::ops::ControlFlow;

use assent_bench::BenchError;
use assent_bench::kv::store::{Ability, Each, Member, Setup, Store, Write, failed};
use redb::{Database, Durability, ReadableDatabase as _, TableDefinition};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("race");

/// The member.
pub(crate) fn member() -> Member {
    Member {
        name: "redb",
        about:
            "redb: redb 4.4, a transaction a write; without sync on every write they are durable with the next that is"
                .to_owned(),
        lacks: vec![(Ability::SlowDisk, "it opens its file itself")],
        open: |setup| Ok(Box::new(Redb::open(setup)?)),
    }
}

struct Redb {
    database: Database,
}

fn said<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> BenchError {
    move |error| failed(&format!("redb: {what}"), error)
}

impl Redb {
    fn open(setup: &Setup) -> Result<Self, BenchError> {
        let cache = usize::try_from(setup.cache_bytes).unwrap_or(usize::MAX);
        let database = Database::builder()
            .set_cache_size(cache)
            .create(setup.folder.join("race.redb"))
            .map_err(said("opening"))?;
        let redb = Self { database };
        // Readers find the table from the first one on.
        redb.write(&[], true)?;
        Ok(redb)
    }
}

impl Store for Redb {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
        let read = self.database.begin_read().map_err(said("get"))?;
        let table = read.open_table(TABLE).map_err(said("get"))?;
        let Some(found) = table.get(key).map_err(said("get"))? else { return Ok(false) };
        value.clear();
        value.extend_from_slice(found.value());
        Ok(true)
    }

    fn head(&self, key: &[u8], head: &mut Vec<u8>) -> Result<bool, BenchError> {
        self.get(key, head)
    }

    fn write(&self, writes: &[Write<'_>], sync: bool) -> Result<(), BenchError> {
        let mut write = self.database.begin_write().map_err(said("write"))?;
        let durability = if sync { Durability::Immediate } else { Durability::None };
        write.set_durability(durability).map_err(said("write"))?;
        {
            let mut table = write.open_table(TABLE).map_err(said("write"))?;
            for write in writes {
                match *write {
                    Write::Put(key, value) => drop(table.insert(key, value).map_err(said("write"))?),
                    Write::Delete(key) => drop(table.remove(key).map_err(said("write"))?),
                }
            }
        }
        write.commit().map_err(said("write"))
    }

    fn fold(&self, from: &[u8], to: &[u8], each: &mut Each<'_>) -> Result<(), BenchError> {
        let read = self.database.begin_read().map_err(said("fold"))?;
        let table = read.open_table(TABLE).map_err(said("fold"))?;
        for row in table.range(from..to).map_err(said("fold"))? {
            let (key, value) = row.map_err(said("fold"))?;
            if each(key.value(), value.value()) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), BenchError> {
        self.write(&[], true)
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        self.flush()
    }
}
