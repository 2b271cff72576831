//! What is published when, with a log that acknowledges before it syncs; and who waits for whom.

use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use assent_ids::{Epoch, Lsn};
use assent_journal::{Entry, JournalError, Log, State, Ticket};
use assent_kv::{Config, Durability, Kv, Op};
use assent_sim::{SimClock, SimDisk};

use super::scripted_log::ScriptedLog;
use super::{all, rows, xid};

fn over(log: Arc<dyn Log>) -> Kv {
    Kv::open(log, Arc::new(SimDisk::new()), Arc::new(SimClock::new()), Path::new("kv"), Config::default()).unwrap()
}

#[test]
fn a_buffered_write_is_visible_without_a_sync_and_a_durable_one_is_not() {
    let log = Arc::new(ScriptedLog::open(&SimDisk::new(), true).unwrap());
    let kv = over(Arc::<ScriptedLog>::clone(&log));
    kv.put(0, b"buffered", b"1", Durability::Buffered).unwrap();
    assert_eq!((all(&kv, 0), log.counts().syncs), (rows(&[("buffered", "1")]), 0));
    let durable = kv.batch_begin(&[Op::put(0, b"durable", b"2")], Durability::Durable).unwrap();
    // Somebody's acknowledgement takes it to the kernel: that is not enough for it.
    log.wait(Ticket { lsn: Lsn(0), end: log.end() }).unwrap();
    kv.tick();
    assert_eq!((all(&kv, 0).len(), log.counts().syncs), (1, 0));
    kv.wait(durable).unwrap();
    assert_eq!((all(&kv, 0).len(), log.counts().syncs), (2, 1));
}

#[test]
fn a_buffered_write_behind_a_durable_one_waits_for_it_because_readers_see_the_log_s_order() {
    let log = Arc::new(ScriptedLog::open(&SimDisk::new(), true).unwrap());
    let kv = over(Arc::<ScriptedLog>::clone(&log));
    let durable = kv.batch_begin(&[Op::put(0, b"a", b"1")], Durability::Durable).unwrap();
    let first = kv.batch_begin(&[Op::put(0, b"b", b"2")], Durability::Buffered).unwrap();
    let second = kv.batch_begin(&[Op::put(0, b"b", b"3")], Durability::Buffered).unwrap();
    kv.wait(first).unwrap();
    assert_eq!(
        (all(&kv, 0)[0].1.clone(), log.counts().syncs, kv.get(0, b"b").unwrap().is_some()),
        (b"1".to_vec(), 1, true)
    );
    kv.wait(second).unwrap();
    kv.wait(durable).unwrap();
    assert_eq!((all(&kv, 0), log.counts().syncs), (rows(&[("a", "1"), ("b", "3")]), 1));
}

#[test]
fn what_nobody_waits_for_is_published_by_the_next_tick_once_it_is_durable() {
    let log = Arc::new(ScriptedLog::open(&SimDisk::new(), false).unwrap());
    let kv = over(Arc::<ScriptedLog>::clone(&log));
    let _forgotten = kv.batch_begin(&[Op::put(0, b"k", b"v")], Durability::Durable).unwrap();
    kv.tick();
    assert_eq!(kv.stats().unpublished, 1);
    log.sync().unwrap();
    kv.tick();
    assert_eq!((kv.stats().unpublished, all(&kv, 0)), (0, rows(&[("k", "v")])));
}

/// A log whose syncs take until they are let go.
#[derive(Debug)]
struct SlowLog {
    under: ScriptedLog,
    /// How many wait, and whether they may go.
    waiting: Mutex<(u32, bool)>,
    changed: Condvar,
}

impl SlowLog {
    fn until(&self, right: impl Fn(&(u32, bool)) -> bool) {
        drop(self.changed.wait_while(self.waiting.lock().unwrap(), |now| !right(now)).unwrap());
    }

    fn let_go(&self) {
        self.waiting.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

impl Log for SlowLog {
    fn append(&self, kind: u16, parts: &[&[u8]]) -> Result<Ticket, JournalError> {
        self.under.append(kind, parts)
    }
    fn wait(&self, ticket: Ticket) -> Result<(), JournalError> {
        self.wait_durable(ticket)
    }
    fn wait_durable(&self, ticket: Ticket) -> Result<(), JournalError> {
        self.waiting.lock().unwrap().0 += 1;
        self.changed.notify_all();
        self.until(|(_, go)| *go);
        self.under.wait_durable(ticket)
    }
    fn sync(&self) -> Result<Lsn, JournalError> {
        self.under.sync()
    }
    fn durable(&self) -> Lsn {
        self.under.durable()
    }
    fn end(&self) -> Lsn {
        self.under.end()
    }
    fn start(&self) -> Lsn {
        self.under.start()
    }
    fn read(
        &self,
        from: Lsn,
    ) -> Result<Box<dyn Iterator<Item = Result<Entry, JournalError>> + Send + '_>, JournalError> {
        self.under.read(from)
    }
    fn read_at(&self, lsn: Lsn) -> Result<Entry, JournalError> {
        self.under.read_at(lsn)
    }
    fn trim(&self, to: Lsn) -> Result<(), JournalError> {
        self.under.trim(to)
    }
    fn epoch(&self) -> Epoch {
        self.under.epoch()
    }
    fn state(&self) -> State {
        self.under.state()
    }
}

#[test]
fn readers_and_other_writers_go_on_while_a_sync_takes_its_time() {
    let under = ScriptedLog::open(&SimDisk::new(), false).unwrap();
    let log = Arc::new(SlowLog { under, waiting: Mutex::new((0, true)), changed: Condvar::new() });
    let kv = over(Arc::<SlowLog>::clone(&log));
    kv.put(0, b"k", b"old", Durability::Durable).unwrap();
    *log.waiting.lock().unwrap() = (0, false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| kv.put(0, b"k", b"new", Durability::Durable));
        log.until(|(waiting, _)| *waiting == 1);
        assert_eq!(kv.get(0, b"k").unwrap().as_deref(), Some(&b"old"[..]));
        assert_eq!(kv.scan(0, Bound::Unbounded, Bound::Unbounded, 9).unwrap(), rows(&[("k", "old")]));
        assert_eq!(kv.snapshot().get(0, b"k").unwrap().as_deref(), Some(&b"old"[..]));
        kv.start(&xid(1)).unwrap();
        kv.branch_put(&xid(1), 0, b"l", b"").unwrap();
        assert_eq!(kv.branch_get(&xid(1), 0, b"k").unwrap().as_deref(), Some(&b"old"[..]));
        let another = kv.batch_begin(&[Op::put(0, b"m", b"")], Durability::Durable).unwrap();
        assert_eq!(kv.stats().unpublished, 2);
        log.let_go();
        writer.join().unwrap().unwrap();
        kv.wait(another).unwrap();
    });
    assert_eq!(all(&kv, 0), rows(&[("k", "new"), ("m", "")]));
}
