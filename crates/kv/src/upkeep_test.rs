//! What is done behind the writers' backs, and who is woken for it.

use std::path::Path;
use std::sync::Arc;

use assent_journal::{Config as Settings, Journal, Log};
use assent_sim::{SimClock, SimDice, SimDisk};
use assent_world::{Clock, RealClock};

use super::*;
use crate::Durability;
use crate::config::LEVEL0_RUNS;
use crate::space::Look;
use crate::vault::Owed;

#[test]
fn merges_and_compactions_take_turns_and_of_urgent_merges_no_more_than_three_in_a_row() {
    let turns = |level0_runs| [1, 2, 3, 4, 5].map(|turn| is_merge_first(turn, level0_runs));
    assert_eq!(turns(LEVEL0_RUNS_URGENT - 1), [true, false, true, false, true]);
    assert_eq!(turns(LEVEL0_RUNS_URGENT), [true, true, true, false, true]);
}

fn store(config: Config) -> Kv {
    store_on(&SimDisk::new(), config)
}

fn store_on(disk: &SimDisk, config: Config) -> Kv {
    open(disk, 9 * 4096, config)
}

fn open(disk: &SimDisk, log_size: u64, config: Config) -> Kv {
    let disk = Arc::new(disk.clone());
    let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(1)));
    let settings =
        Settings { log_size, max_buffer_log_size: 2 * 4096, kept_until_released: true, ..Settings::default() };
    let (log, _) = Journal::open(Arc::<SimDisk>::clone(&disk) as _, clock, dice, Path::new("log"), settings).unwrap();
    Kv::open(log as Arc<dyn Log>, disk, Arc::new(SimClock::new()), Path::new("kv"), config).unwrap()
}

fn put(kv: &Kv, key: u64, bytes: usize) {
    kv.put(0, &key.to_be_bytes(), &vec![7; bytes], Durability::Buffered).unwrap();
}

/// Who worked slept for 100 ms, and writers with him.
#[test]
fn who_writes_while_dead_values_are_too_much_wakes_who_works_and_who_compacts_wakes_nobody() {
    let (kv, clock) = (store(Config::default()), RealClock);
    let slept = |at_most: Duration| {
        let from = clock.now();
        kv.wait_work(at_most);
        clock.now().since(from)
    };
    let owes = |bytes: u64| {
        let owed = Owed { bytes, room: 0, most: bytes };
        kv.shared.ledger.space.owes(&Look { owed, volume: 1 << 20, ..Look::default() });
    };
    assert!(!kv.work(&AtOnce));
    let space = &kv.shared.ledger.space;
    let delay = || kv.delay(&[Op::put(0, b"key", b"value")]);
    assert_eq!(delay(), Duration::ZERO);
    owes(1 << 30);
    kv.throttle(|| false).wrote(1);
    let rest = Duration::from_millis(50);
    assert!(slept(rest) >= rest && !space.was_told());
    assert!(delay() > Duration::ZERO);
    assert!(slept(Duration::from_secs(60)) < Duration::from_secs(30) && space.was_told());
}

#[test]
fn who_works_rests_longer_while_memory_is_seldom_written_out() {
    let kv = store(Config::default());
    let clock = kv.shared.time.clock();
    let rests = || {
        let from = clock.now();
        kv.throttle(|| false).wrote(1);
        clock.now().since(from).as_micros()
    };
    assert_eq!(rests(), 16_000);
    let writes_out = |key| {
        put(&kv, key, 10);
        kv.checkpoint().unwrap();
    };
    (1..=2).for_each(writes_out);
    assert_eq!(rests(), 250);
    clock.sleep(Duration::from_millis(4096));
    assert_eq!(rests(), 4000);
    kv.hears_of_room(assent_kind::Kind::Full);
    assert_eq!(rests(), 250, "somebody is refused");
    kv.shared.ledger.space.no_room.ended(kv.shared.ledger.published().0);
    assert_eq!(rests(), 4004);
    (3..LEVEL0_RUNS_URGENT.into()).for_each(writes_out);
    clock.sleep(Duration::from_secs(60));
    assert_eq!(rests(), 16_000);
    writes_out(0);
    clock.sleep(Duration::from_secs(60));
    assert_eq!(rests(), 250, "a read goes through many files");
}

/// With four thousand keys at the second level of the ledger.
fn with_keys(disk: &SimDisk, log_size: u64, cache_bytes: u64, bytes: usize) -> Kv {
    let kv = open(disk, log_size, Config { cache_bytes, ..Config::default() });
    (0..4000).for_each(|key| put(&kv, key, bytes));
    for part in 0..LEVEL0_RUNS.into() {
        put(&kv, part, bytes);
        kv.checkpoint().unwrap();
    }
    while kv.shared.ledger.merge(&*kv.shared.log, &AtOnce).unwrap() {}
    assert_eq!(files(&kv), (0, 0), "of the first level, and of those that are leaving");
    kv
}

/// And as many small files at the first as are merged together.
fn with_small_files(cache_bytes: u64) -> Kv {
    let kv = with_keys(&SimDisk::new(), 9 * 4096, cache_bytes, 1100);
    for part in 0..LEVEL0_RUNS.into() {
        (0..10).for_each(|key| put(&kv, 10 * part + key, 1100));
        kv.checkpoint().unwrap();
    }
    kv
}

fn files(kv: &Kv) -> (u64, u64) {
    let facts = kv.shared.ledger.runs().facts();
    (facts.levels.first().map_or(0, |level| level.runs), facts.runs_leaving)
}

#[test]
fn small_files_of_the_ledger_are_gathered_however_long_it_is_and_what_was_merged_is_gone() {
    for cache_bytes in [64 << 20, 0] {
        let kv = with_small_files(cache_bytes);
        assert!(kv.shared.ledger.merge(&*kv.shared.log, &AtOnce).unwrap());
        assert_eq!(files(&kv), (1, 0), "{cache_bytes} bytes of cache");
    }
}

/// Bytes that the accounts count as living, and that are known to be superseded.
fn known(kv: &Kv) -> u64 {
    let lives = |accounts: &crate::vault::Accounts| accounts.sums(kv.shared.log.end().0).1;
    lives(&kv.shared.ledger.accounts()) - lives(&kv.shared.ledger.expected())
}

/// A ledger that was longer than twice its cache had nothing looked up: all that its first levels hide counted as living, a third of a store. And
/// whatever a flush had found was forgotten by a restart.
#[test]
fn what_is_superseded_is_known_of_a_ledger_beyond_its_cache_too_and_behind_a_restart_until_merges_have_met_it() {
    // In percent of the values alone: beside each of 300 bytes are 84 more, and one of sixteen is looked up.
    for (cache_bytes, bytes, percent) in [(64 << 20, 9000, 100..=101), (0, 9000, 100..=101), (0, 300, 115..=145)] {
        let (disk, again) = (SimDisk::new(), 2000_u64);
        let kv = with_keys(&disk, 4 << 20, cache_bytes, bytes);
        assert_eq!(known(&kv), 0, "{bytes} bytes");
        (0..again).for_each(|key| put(&kv, 2 * key, bytes));
        kv.checkpoint().unwrap();
        let found = known(&kv);
        assert!(percent.contains(&(found * 100 / again / bytes as u64)), "{found} of values of {bytes} bytes");
        drop(kv);
        disk.kill();
        let kv = open(&disk, 4 << 20, Config { cache_bytes, ..Config::default() });
        assert_eq!(known(&kv), found);
        for part in 0..LEVEL0_RUNS.into() {
            put(&kv, 8000 + part, bytes);
            kv.checkpoint().unwrap();
        }
        while kv.shared.ledger.merge(&*kv.shared.log, &AtOnce).unwrap() {}
        assert_eq!(known(&kv), 0, "{cache_bytes} bytes of cache, values of {bytes}");
    }
}

/// Deleted values of 8 KB and those that a short one superseded counted as living until small files went down: a fifth of a store.
#[test]
fn what_a_delete_and_a_short_value_supersede_is_known_once_they_are_written_out() {
    let kv = with_small_files(64 << 20);
    let known = || known(&kv);
    let before = known();
    kv.delete(0, &1000_u64.to_be_bytes(), Durability::Buffered).unwrap();
    kv.checkpoint().unwrap();
    let deleted = known() - before;
    assert!((1100..1200).contains(&deleted), "{deleted}");
    put(&kv, 1001, 10);
    kv.checkpoint().unwrap();
    let shortened = known() - before - deleted;
    assert!((1100..1200).contains(&shortened), "{shortened}");
}

#[test]
fn while_somebody_writes_one_more_is_compacted_than_the_bound_asks_for() {
    let kv = store(Config {
        space_amplification_max_percent: 400,
        space_room_bytes_min: 0,
        volume_bytes: 24 << 10,
        ..Config::default()
    });
    (0..250).for_each(|key| put(&kv, key, 4000));
    let (compact, mut more) = (|| kv.compact_once(&AtOnce).unwrap(), 0);
    for key in (0..3000).map(|put| put * 7 % 250) {
        put(&kv, key, 4000);
        kv.checkpoint().unwrap();
        while compact() {}
        assert!(!compact(), "nobody writes");
        kv.shared.ledger.space.tell();
        more += u32::from(compact());
        kv.shared.ledger.space.was_told();
    }
    assert!(more > 1, "{more}");
}

/// A checkpoint that found no room woke whoever had just tried it, and was tried again without a rest.
#[test]
fn who_finds_no_room_for_a_checkpoint_rests_a_second_however_many_are_refused_meanwhile() {
    let disk = SimDisk::new();
    let kv = store_on(&disk, Config::default());
    (0..40).for_each(|key| put(&kv, key, 1100));
    disk.set_capacity(Some(disk.used_bytes()));
    let refused = || kv.put(0, b"key", &[7; 1100], Durability::Durable).map_err(|error| error.kind());
    while refused().is_ok() {}
    let (mut turns, mut passed_ms) = (0, 0);
    while passed_ms < 3000 && turns < 1000 {
        (0..8).for_each(|_| assert_eq!(refused(), Err(assent_kind::Kind::Full)));
        turns += 1;
        while kv.work(&AtOnce) {
            turns += 1;
        }
        passed_ms += if kv.wanted.is_awake() { 0 } else { 100 };
    }
    let tried = kv.stats().checkpoints_failed;
    assert!(turns <= 33 && (2..=4).contains(&tried), "{turns} turns in {passed_ms} ms, {tried} checkpoints");
    // Once there is room nobody waits for longer than a second.
    disk.set_capacity(None);
    assert!((0..=10).any(|_| kv.work(&AtOnce) || kv.stats().checkpoints > 0));
}

/// An entry that a thread had taken off its queue when it panicked was behind the next checkpoint and in no ledger: acknowledged to whoever
/// waited for a later one, and gone.
#[test]
fn who_panics_with_an_entry_in_his_hands_ends_the_store_and_an_open_finds_it() {
    let disk = SimDisk::new();
    let kv = store_on(&disk, Config::default());
    put(&kv, 1, 10);
    let begin = |key: u64| kv.batch_begin(&[Op::put(0, &key.to_be_bytes(), b"value")], Durability::Durable);
    let (taken, behind) = (begin(2).unwrap(), begin(3).unwrap());
    kv.shared.log.sync().unwrap();
    let panicked = std::thread::scope(|scope| {
        let died = scope.spawn(|| {
            let mut desk = kv.desk();
            assert_eq!(desk.ready(kv.shared.log.durable()).map(|staged| staged.ticket), taken.ticket);
            panic!("a promise is broken");
        });
        died.join().is_err()
    });
    assert!(panicked);
    // It is durable; nobody is told so before somebody knows what comes before what.
    for pending in [taken, behind] {
        assert_eq!(kv.wait(pending).unwrap_err().kind(), assent_kind::Kind::InDoubt);
    }
    let refused = begin(4).unwrap_err();
    assert!(
        refused.kind() == assent_kind::Kind::Closed && refused.to_string().contains("open the store again"),
        "{refused}"
    );
    let durable = kv.shared.ledger.durable();
    assert!(kv.checkpoint().is_err());
    kv.tick();
    assert!(
        kv.stats().broken == 1
            && kv.shared.ledger.durable() == durable
            && kv.get(0, &1_u64.to_be_bytes()).unwrap().is_some()
    );
    drop(kv);
    disk.kill();
    let kv = store_on(&disk, Config::default());
    let there = [1, 2, 3, 4].map(|key: u64| kv.get(0, &key.to_be_bytes()).unwrap().is_some());
    assert_eq!((there, kv.stats().broken), ([true, true, true, false], 0));
}
