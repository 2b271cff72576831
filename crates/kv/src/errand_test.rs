//! Writers who find the desk taken: whoever has it does what they want, and nobody sleeps on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use assent_ids::Xid;
use assent_journal::{Config as Settings, Journal, Log};
use assent_kind::Kind;
use assent_sim::{SimClock, SimDice, SimDisk};

use super::*;
use crate::{Config, Kv};

/// Whoever sleeps for longer has been forgotten.
const LONG: Duration = Duration::from_secs(60);

fn store() -> Arc<Kv> {
    store_with(0, Config::default())
}

/// Beside a log that syncs after so many milliseconds.
fn store_with(max_elapsed_sync_time: u64, config: Config) -> Arc<Kv> {
    let disk = Arc::new(SimDisk::new());
    let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(1)));
    let settings = Settings { kept_until_released: true, max_elapsed_sync_time, ..Settings::default() };
    let (log, _) = Journal::open(Arc::<SimDisk>::clone(&disk) as _, clock, dice, Path::new("log"), settings).unwrap();
    Arc::new(Kv::open(log as Arc<dyn Log>, disk, Arc::new(SimClock::new()), Path::new("kv"), config).unwrap())
}

/// Does this on a thread of its own, which nobody waits for: one that is forgotten shall end the test.
fn apart<T: Send + 'static>(kv: &Arc<Kv>, act: impl FnOnce(&Kv) -> T + Send + 'static) -> Receiver<T> {
    let ((done, answer), kv) = (channel(), Arc::clone(kv));
    std::thread::spawn(move || _ = done.send(act(&kv)));
    answer
}

fn until_left(kv: &Kv, many: usize) {
    while kv.counter.left() != many {
        std::thread::yield_now();
    }
}

#[test]
fn what_is_left_while_the_desk_is_taken_is_done_when_it_is_given_back() {
    let kv = store();
    kv.put(0, b"gone", b"value", Durability::Durable).unwrap();
    let desk = kv.desk();
    let puts: Vec<_> = (0..20_u8)
        .map(|key| {
            let durability = if key % 2 == 0 { Durability::Durable } else { Durability::Buffered };
            let metadata = [key; 3];
            let put = move |kv: &Kv| {
                let op = Op::Put { keyspace: 7, key: &[key], metadata: &metadata, value: &[key; 900], expiry: 0 };
                kv.batch(&[op.expiring(u64::from(key % 3) << 50)], durability)
            };
            apart(&kv, put)
        })
        .collect();
    let delete = apart(&kv, |kv| kv.delete(0, b"gone", Durability::Durable));
    until_left(&kv, 21);
    drop(desk);
    let at: Vec<_> = puts.iter().map(|put| put.recv_timeout(LONG).unwrap().unwrap()).collect();
    delete.recv_timeout(LONG).unwrap().unwrap();
    for (key, at) in (0..20_u8).zip(at) {
        let head = kv.head(7, &[key]).unwrap().unwrap();
        assert_eq!(kv.get(7, &[key]).unwrap(), Some(vec![key; 900]));
        assert_eq!((head.metadata, head.expiry), (vec![key; 3], u64::from(key % 3) << 50));
        assert_eq!(head.committed, at, "{key}");
    }
    assert_eq!((kv.get(0, b"gone").unwrap(), kv.counter.left()), (None, 0));
}

/// One is woken, and runs those of all.
#[test]
fn however_many_errands_are_left_all_are_run() {
    let kv = store();
    let desk = kv.desk();
    let puts: Vec<_> =
        (0..200_u8).map(|key| apart(&kv, move |kv| kv.put(0, &[key], b"value", Durability::Buffered))).collect();
    until_left(&kv, 200);
    drop(desk);
    puts.iter().for_each(|put| _ = put.recv_timeout(LONG).unwrap().unwrap());
    assert_eq!(kv.scan(0, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, 1000).unwrap().len(), 200);
}

/// A wake-up that is lost is lost in the moment in which the desk is given back.
#[test]
fn nobody_sleeps_on_however_often_the_desk_is_taken_and_given_back() {
    let (kv, stop) = (store(), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (0..6_u8)
        .map(|writer| {
            let put = move |kv: &Kv, round: u16| kv.put(0, &[writer], &round.to_be_bytes(), Durability::Buffered);
            apart(&kv, move |kv| (0..1500).try_for_each(|round| put(kv, round).map(drop)))
        })
        .collect();
    let stops = Arc::clone(&stop);
    let taking = apart(&kv, move |kv| {
        while !stops.load(Ordering::Relaxed) {
            let desk = kv.desk();
            (0..400).for_each(|_| std::hint::spin_loop());
            drop(desk);
            std::thread::yield_now();
        }
    });
    for writer in &writers {
        writer.recv_timeout(LONG).unwrap().unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    taking.recv_timeout(LONG).unwrap();
    for writer in 0..6_u8 {
        assert_eq!(kv.get(0, &[writer]).unwrap(), Some(1499_u16.to_be_bytes().to_vec()));
    }
}

#[test]
fn a_key_that_a_branch_holds_is_a_conflict_and_who_may_wait_stands_at_it() {
    let (kv, xid) = (store(), Xid::new(1, b"held", b"1").unwrap());
    kv.start(&xid).unwrap();
    kv.branch_write(&xid, &Op::put(0, b"key", b"of the branch")).unwrap();
    kv.end(&xid, true).unwrap();
    let crate::Voted { pending, .. } = kv.prepare_begin(&xid).unwrap();
    kv.wait(pending).unwrap();
    let desk = kv.desk();
    let at_once = apart(&kv, |kv| kv.put(0, b"key", b"at once", Durability::Durable));
    let patient = [Op::put(0, b"key", b"patient")];
    let later = apart(&kv, move |kv| kv.batch_within(LONG, &patient, Durability::Durable));
    until_left(&kv, 2);
    drop(desk);
    assert_eq!(at_once.recv_timeout(LONG).unwrap().unwrap_err().kind(), Kind::Conflict);
    while kv.stats().waiting == 0 {
        std::thread::yield_now();
    }
    let pending = kv.rollback_begin(&xid).unwrap();
    kv.wait(pending).unwrap();
    later.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(kv.get(0, b"key").unwrap(), Some(b"patient".to_vec()));
}

/// Log order: what was to be durable stands before it, and nobody has waited for that.
#[test]
fn who_has_left_what_shall_be_seen_waits_for_what_must_be_durable_before_it() {
    let kv = store_with(1_000, Config::default());
    let durable = kv.batch_begin(&[Op::put(0, b"durable", b"value")], Durability::Durable).unwrap();
    let buffered = kv.batch_begin(&[Op::put(0, b"buffered", b"value")], Durability::Buffered).unwrap();
    let desk = kv.desk();
    let seen = apart(&kv, move |kv| kv.wait(buffered));
    until_left(&kv, 1);
    drop(desk);
    seen.recv_timeout(LONG).unwrap().unwrap();
    let both = [b"durable", &b"buffered"[..]].map(|key| kv.get(0, key).unwrap().is_some());
    assert_eq!(both, [true, true]);
    assert!(durable.lsn().unwrap() <= kv.stats().published);
}

#[test]
fn a_refusal_goes_to_whose_errand_it_was_and_nothing_of_it_is_laid() {
    let kv = store_with(1_000, Config { unpublished_max: 2, ..Config::default() });
    let two = [b"a", b"b"].map(|key| kv.batch_begin(&[Op::put(0, key, b"value")], Durability::Durable).unwrap());
    let desk = kv.desk();
    let third = apart(&kv, |kv| kv.put(0, b"c", b"value", Durability::Buffered));
    until_left(&kv, 1);
    drop(desk);
    assert_eq!(third.recv_timeout(LONG).unwrap().unwrap_err().kind(), Kind::Busy);
    two.into_iter().for_each(|pending| kv.wait(pending).unwrap());
    let keys = kv.scan(0, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, 9).unwrap();
    assert_eq!(keys.len(), 2);
    kv.put(0, b"c", b"value", Durability::Buffered).unwrap();
}

#[test]
fn what_was_in_the_hands_of_somebody_who_panicked_is_in_doubt_and_the_rest_is_refused() {
    let kv = store();
    let desk = kv.desk();
    let first = apart(&kv, |kv| kv.put(0, b"first", b"value", Durability::Durable));
    until_left(&kv, 1);
    let second = apart(&kv, |kv| kv.put(0, b"second", b"value", Durability::Durable));
    until_left(&kv, 2);
    let mut third = None;
    let died = catch_unwind(AssertUnwindSafe(|| {
        let mut desk = desk;
        let in_his_hands = desk.errands();
        assert!(in_his_hands.first().unwrap().asked().is_some());
        third = Some(apart(&kv, |kv| kv.put(0, b"third", b"value", Durability::Durable)));
        until_left(&kv, 1);
        panic!("with errands in his hands");
    }));
    assert!(died.is_err());
    let kinds = [first, second, third.unwrap()].map(|put| put.recv_timeout(LONG).unwrap().unwrap_err().kind());
    assert_eq!(kinds, [Kind::InDoubt, Kind::Closed, Kind::Closed], "begun, not begun, and left meanwhile");
    assert!([b"first", &b"second"[..], b"third"].iter().all(|key| kv.get(0, key).unwrap().is_none()));
}

#[test]
fn an_errand_carries_one_write_that_is_not_too_long() {
    let long = vec![7; usize::try_from(ERRAND_BYTES_MAX).unwrap()];
    let fits = &long[..long.len() - 3 - 5 - 16];
    let put = |value| Op::Put { keyspace: 3, key: b"key", metadata: b"about", value, expiry: 0 };
    for op in [put(b""), put(fits), put(b"value").expiring(9), Op::delete(3, b"key")] {
        assert_eq!(Carried::of(&[op]).unwrap().op(), op);
    }
    let stays = [&[] as &[_], &[put(&long[..=fits.len()])], &[Op::erase(3, b"a", None)], &[put(b"a"), put(b"b")]];
    assert!(stays.iter().all(|ops| Carried::of(ops).is_none()));
}
