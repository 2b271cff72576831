//! Assent's own store in the race, over its public API: an embedded `Kv` over its journal.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use assent_journal::{Journal, Keeper, Log};
use assent_kind::Kind;
use assent_kv::{Config, Durability, Kv, KvError, Op};
use assent_world::{Clock, Disk, Gate, RealClock, RealDice, RealDisk, give_way};

use super::slow::SlowDisk;
use super::store::{Each, Member, Setup, Store, Write};
use super::value::HEAD_BYTES;
use crate::BenchError;

/// All of the race's keys are of one keyspace.
const KEYSPACE: u32 = 1;
/// Without sync on every write, what is acknowledged is durable that much later.
const LAZY_MS: u64 = 1_000;
/// Who owns a loop calls the store's tick about that often.
const TICK: Duration = Duration::from_millis(100);
/// Rows that a fold gathers at a time.
const PAGE_ROWS: usize = 128;

/// The member.
#[must_use]
pub fn member() -> Member {
    Member {
        name: "assent",
        about: format!(
            "assent: kv {} embedded, ledger of heads on disk, values in the journal and in volumes; without sync on every write a sync every \
             {LAZY_MS} ms",
            env!("CARGO_PKG_VERSION")
        ),
        lacks: Vec::new(),
        open: |setup| Ok(Box::new(Ours::open(setup)?)),
    }
}

struct Ours {
    kv: Arc<Kv>,
    journal: Arc<Journal>,
    /// Ticks, and work in the background.
    loops: Vec<JoinHandle<()>>,
    stop: Arc<Gate>,
    _keeper: Keeper,
}

fn failed(error: &KvError) -> BenchError {
    BenchError::new(error.kind(), error)
}

impl Ours {
    fn open(setup: &Setup) -> Result<Self, BenchError> {
        let clock: Arc<dyn Clock> = Arc::new(RealClock);
        let disk: Arc<dyn Disk> = match setup.disk_iops {
            Some(per_s) => Arc::new(SlowDisk::new(Arc::new(RealDisk), Arc::clone(&clock), per_s)),
            None => Arc::new(RealDisk),
        };
        let max_elapsed_sync_time = if setup.sync { 0 } else { LAZY_MS };
        let config = assent_journal::Config {
            log_size: setup.segment_bytes,
            max_elapsed_sync_time,
            kept_until_released: true,
            ..Default::default()
        };
        let place = setup.folder.join("kv");
        let opened = Journal::open(Arc::clone(&disk), Arc::clone(&clock), Arc::new(RealDice), &place, config);
        let (journal, _) = opened.map_err(|error| BenchError::new(error.kind(), error))?;
        let keeper = Keeper::start(Arc::clone(&journal), Arc::clone(&clock));
        let log: Arc<dyn Log> = journal.clone();
        let Setup { cache_bytes, value_cache_bytes, .. } = *setup;
        let config = Config { cache_bytes, value_cache_bytes, ..Config::default() };
        let kv = Kv::open(log, disk, clock, &setup.folder.join("kv-ledger"), config);
        let kv = Arc::new(kv.map_err(|error| failed(&error))?);
        let stop = Arc::new(Gate::default());
        let mut ours = Self { kv, journal, loops: Vec::new(), stop, _keeper: keeper };
        let asked = Arc::clone(&ours.stop);
        let pace = ours.kv.throttle(move || asked.value() > 0);
        ours.start("kv-tick", |kv, _| {
            kv.tick();
            kv.wait_due(TICK);
        })?;
        ours.start("kv-work", move |kv, stop| {
            while kv.work(&pace) && stop.value() == 0 {}
            kv.wait_work(TICK);
        })?;
        Ok(ours)
    }

    /// A thread that does this, and waits, again and again.
    fn start(&mut self, name: &str, turn: impl Fn(&Kv, &Gate) + Send + 'static) -> Result<(), BenchError> {
        let (kv, gate) = (Arc::clone(&self.kv), Arc::clone(&self.stop));
        let turns = move || {
            give_way();
            while gate.value() == 0 {
                turn(&kv, &gate);
            }
        };
        let started = std::thread::Builder::new().name(name.to_owned()).spawn(turns);
        let failed = |error| BenchError::new(Kind::Unavailable, format!("cannot start a thread: {error}"));
        self.loops.push(started.map_err(failed)?);
        Ok(())
    }

    fn end(&mut self) {
        self.stop.set(1);
        self.stop.wake_all();
        // A panic there has been printed.
        self.loops.drain(..).for_each(|one| _ = one.join());
    }
}

fn op<'w>(write: &Write<'w>) -> Op<'w> {
    match *write {
        // What a HEAD shows stands in the metadata.
        Write::Put(key, value) => {
            Op::Put { keyspace: KEYSPACE, key, metadata: value.get(..HEAD_BYTES).unwrap_or(value), value, expiry: 0 }
        }
        Write::Delete(key) => Op::delete(KEYSPACE, key),
    }
}

impl Store for Ours {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
        match self.kv.get(KEYSPACE, key).map_err(|error| failed(&error))? {
            Some(found) => *value = found,
            None => return Ok(false),
        }
        Ok(true)
    }

    fn head(&self, key: &[u8], head: &mut Vec<u8>) -> Result<bool, BenchError> {
        match self.kv.head(KEYSPACE, key).map_err(|error| failed(&error))? {
            Some(found) => *head = found.metadata,
            None => return Ok(false),
        }
        Ok(true)
    }

    fn write(&self, writes: &[Write<'_>], sync: bool) -> Result<(), BenchError> {
        let durability = if sync { Durability::Durable } else { Durability::Buffered };
        let done = match writes {
            [one] => self.kv.batch(&[op(one)], durability),
            many => self.kv.batch(&many.iter().map(op).collect::<Vec<_>>(), durability),
        };
        done.map(|_| ()).map_err(|error| failed(&error))
    }

    fn fold(&self, from: &[u8], to: &[u8], each: &mut Each<'_>) -> Result<(), BenchError> {
        let snapshot = self.kv.snapshot();
        let mut from = Bound::Included(from.to_vec());
        loop {
            let start = from.as_ref().map(Vec::as_slice);
            let heads = snapshot.heads(KEYSPACE, start, Bound::Excluded(to), PAGE_ROWS);
            let rows = heads.map_err(|error| failed(&error))?;
            for (key, head) in &rows {
                if each(key, &head.metadata) == ControlFlow::Break(()) {
                    return Ok(());
                }
            }
            match rows.into_iter().next_back() {
                Some((last, _)) => from = Bound::Excluded(last),
                None => return Ok(()),
            }
        }
    }

    fn flush(&self) -> Result<(), BenchError> {
        self.journal.sync().map(|_| ()).map_err(|error| BenchError::new(error.kind(), error))
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        const MIB: f64 = 1_048_576.0;
        let (counts, stats, (ledger, _)) = (self.journal.counts(), self.kv.stats(), self.kv.ledger_facts());
        vec![
            ("store_syncs", super::number(counts.syncs)),
            ("store_writes", super::number(counts.writes)),
            ("store_checkpoints", super::number(stats.checkpoints)),
            // What it wrote, by kind, since the open.
            ("store_journal_mb", super::number(counts.bytes) / MIB),
            ("store_zeroed_mb", super::number(counts.zeroed_bytes) / MIB),
            ("store_compacted_mb", super::number(stats.compacted_bytes_out) / MIB),
            ("store_ledger_mb", super::number(ledger.flushed_bytes + ledger.merged_bytes) / MIB),
            ("store_values_found", super::number(self.kv.value_cache().hits)),
            ("store_values_read", super::number(self.kv.value_cache().misses)),
            ("store_delayed_ms", super::number(stats.delayed_us) / 1_000.0),
        ]
    }

    fn close(mut self: Box<Self>) -> Result<(), BenchError> {
        self.end();
        self.journal.close().map_err(|error| BenchError::new(error.kind(), error))
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.end();
    }
}
