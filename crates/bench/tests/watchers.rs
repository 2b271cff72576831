//! What a cell says of a store's processor time has nothing of the threads that watch the machine. Alone in its process, whose time is counted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use assent_bench::BenchError;
use assent_bench::kv::cell;
use assent_bench::kv::scenario::{Begin, Given, Job, Scenario};
use assent_bench::kv::store::{Each, Member, Setup, Store, Write};
use assent_bench::record::Recorder;
use assent_world::{Clock as _, RealClock};
use rustix::time::{ClockId, clock_gettime};

const OPERATIONS: u64 = 150;
const SLEEP: Duration = Duration::from_millis(5);

/// Time of all threads, and of the client's own, at its first GET and at its last.
static SEEN: Mutex<Option<[(Duration, Duration); 2]>> = Mutex::new(None);
static OPENED: AtomicU32 = AtomicU32::new(0);

/// A map that takes its time.
struct Sleeper {
    map: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    is_raced: bool,
}

impl Store for Sleeper {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
        if self.is_raced {
            RealClock.sleep(SLEEP);
            let of = |clock| Duration::try_from(clock_gettime(clock)).unwrap();
            let now = (of(ClockId::ProcessCPUTime), of(ClockId::ThreadCPUTime));
            let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
            let first = seen.map_or(now, |[first, _]| first);
            *seen = Some([first, now]);
        }
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(map.get(key).map(|found| value.clone_from(found)).is_some())
    }

    fn head(&self, key: &[u8], head: &mut Vec<u8>) -> Result<bool, BenchError> {
        self.get(key, head)
    }

    fn write(&self, writes: &[Write<'_>], _: bool) -> Result<(), BenchError> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        for write in writes {
            match *write {
                Write::Put(key, value) => _ = map.insert(key.to_vec(), value.to_vec()),
                Write::Delete(key) => _ = map.remove(key),
            }
        }
        Ok(())
    }

    fn fold(&self, _: &[u8], _: &[u8], _: &mut Each<'_>) -> Result<(), BenchError> {
        Ok(())
    }

    fn flush(&self) -> Result<(), BenchError> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        *KEPT.lock().unwrap_or_else(PoisonError::into_inner) =
            self.map.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(())
    }
}

/// What it had when it was closed.
static KEPT: Mutex<BTreeMap<Vec<u8>, Vec<u8>>> = Mutex::new(BTreeMap::new());

#[expect(clippy::unnecessary_wraps, reason = "as a member is opened")]
fn open(_: &Setup) -> Result<Box<dyn Store>, BenchError> {
    let map = std::mem::take(&mut *KEPT.lock().unwrap_or_else(PoisonError::into_inner));
    let is_raced = OPENED.fetch_add(1, Ordering::Relaxed) == 0;
    Ok(Box::new(Sleeper { map: Mutex::new(map), is_raced }))
}

#[test]
fn the_processor_time_of_a_store_that_sleeps_has_nothing_of_the_watchers() {
    let folder = tempfile::tempdir().unwrap();
    let given = Given {
        scenarios: vec![Scenario::KvNosync],
        clients: vec![1],
        keys: 20,
        value_bytes: 300,
        operations: Some(OPERATIONS),
        ..Given::default()
    };
    let member = Member { name: "sleeper", about: String::new(), lacks: Vec::new(), open };
    let case = given.cases().remove(0);
    let job = Job { store: "sleeper".to_owned(), folder: folder.path().to_owned(), begin: Begin::Empty, case };
    let figures = cell::run(&job, &[member], &Mutex::new(Recorder::default())).unwrap().figures;
    let [first, last] = SEEN.lock().unwrap_or_else(PoisonError::into_inner).unwrap();
    let (all, own) = (last.0 - first.0, last.1 - first.1);
    let watchers = all.saturating_sub(own).as_secs_f64();
    assert!(watchers > 0.0, "who sleeps a millisecond at a time takes some: {all:?} {own:?}");
    // One client, whose thread has been at work before its first GET and after its last, too.
    let told = figures["cpu_us_per_op"] * figures["operations"] / 1e6;
    let more = told - own.as_secs_f64();
    assert!(more < watchers / 2.0, "{told} s told, {own:?} its own, {watchers} s the watchers', {figures:?}");
    let seconds = figures["operations"] / figures["ops_per_s"];
    let watched = figures["cpu_harness_ms_per_s"] / 1e3 * seconds;
    assert!(watched > watchers / 2.0, "{watched} s told of the watchers, {watchers} s seen, {figures:?}");
    assert!((figures["cpu_percent"] - told * 100.0 / seconds).abs() < 1.0, "{figures:?}");
}
