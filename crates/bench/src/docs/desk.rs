//! A database on the machine's disk as a server would hold it: its journal, its keeper, its tick.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use assent_docs::{Config, Database, Document};
use assent_journal::{Journal, Keeper, Log as _};
use assent_kind::Kind;
use assent_world::{Clock, Disk, RealClock, RealDice, RealDisk};

use super::unsynced::Unsynced;
use super::{failed, now};
use crate::BenchError;

const TICK: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(5);
const SEGMENT_BYTES: u64 = 64 << 20;

pub(super) struct Desk {
    folder: PathBuf,
    cache_bytes: u64,
    pub(super) journal: Arc<Journal>,
    pub(super) db: Arc<Database>,
    stop: Arc<AtomicBool>,
    ticker: Option<JoinHandle<()>>,
    _keeper: Keeper,
}

impl Desk {
    pub(super) fn open(folder: &Path, cache_bytes: u64) -> Result<Self, BenchError> {
        Self::open_on(Arc::new(RealDisk), folder, cache_bytes)
    }

    fn open_on(disk: Arc<dyn Disk>, folder: &Path, cache_bytes: u64) -> Result<Self, BenchError> {
        let clock: Arc<dyn Clock> = Arc::new(RealClock);
        let kept = assent_journal::Config {
            log_size: SEGMENT_BYTES,
            kept_until_released: true,
            settles_late: true,
            writes_in_flight: Config::WRITES_IN_FLIGHT,
            ..Default::default()
        };
        let opened =
            Journal::open(Arc::clone(&disk), Arc::clone(&clock), Arc::new(RealDice), &folder.join("log"), kept);
        let (journal, _) = opened.map_err(|error| BenchError::new(error.kind(), error))?;
        let keeper = Keeper::start(Arc::clone(&journal), Arc::clone(&clock));
        let config = Config { cache_bytes, trims: true, ..Config::default() };
        let log: Arc<dyn assent_journal::Log> = journal.clone();
        let db = Arc::new(Database::open(log, disk, clock, &folder.join("index"), config).map_err(failed)?);
        let stop = Arc::new(AtomicBool::new(false));
        let (ticked, stopped) = (Arc::clone(&db), Arc::clone(&stop));
        let tick = move || {
            let mut last = now();
            while !stopped.load(Ordering::Relaxed) {
                RealClock.sleep(LOOK);
                if last.elapsed() >= TICK {
                    ticked.tick();
                    last = now();
                }
            }
        };
        let ticker = std::thread::Builder::new().name("docs-tick".to_owned()).spawn(tick);
        let ticker =
            ticker.map_err(|error| BenchError::new(Kind::Unavailable, format!("starting a thread: {error}")))?;
        let folder = folder.to_owned();
        Ok(Self { folder, cache_bytes, journal, db, stop, ticker: Some(ticker), _keeper: keeper })
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(ticker) = self.ticker.take() {
            // A panic there has been printed.
            _ = ticker.join();
        }
    }

    /// Closed as a server closes it: the process keeps nothing of it.
    pub(super) fn close(mut self) -> Result<Closed, BenchError> {
        self.db.checkpoint().map_err(failed)?;
        self.end();
        // The journal's last word is that it is over: who opens it looks for nothing behind that.
        self.journal.close().map_err(|error| BenchError::new(error.kind(), error))?;
        Ok(Closed { folder: self.folder.clone(), cache_bytes: self.cache_bytes })
    }

    /// Closed and opened again.
    pub(super) fn again(self) -> Result<Self, BenchError> {
        self.close()?.open()
    }

    pub(super) fn document(&self, name: &str) -> Result<Document, BenchError> {
        self.db.document(name).map_err(failed)
    }

    /// Where the log ends.
    pub(super) fn end_bytes(&self) -> u64 {
        self.journal.end().0
    }
}

/// A database that is closed.
pub(super) struct Closed {
    folder: PathBuf,
    cache_bytes: u64,
}

impl Closed {
    pub(super) fn open(&self) -> Result<Desk, BenchError> {
        Desk::open(&self.folder, self.cache_bytes)
    }

    /// Opened to be filled: nothing is durable before it is closed.
    pub(super) fn open_unsynced(&self) -> Result<Desk, BenchError> {
        Desk::open_on(Arc::new(Unsynced), &self.folder, self.cache_bytes)
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.end();
    }
}
