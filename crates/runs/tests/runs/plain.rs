//! What each verb promises, one by one, at its limits.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use assent_runs::{
    AtOnce, Bulk, Change, Config, Entry, Found, KEY_BYTES_MAX, Newest, Range, Runs, RunsError, VALUE_BYTES_MAX,
};
use assent_sim::{SimDisk, Survival};
use assent_world::{Access, Disk, Open, RealDisk};

use super::{Accounts, FOLDER, close_if_full, open, settle, small};

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Change<'a> {
    Change::Put { key, value }
}

fn newest(runs: &Runs, key: &[u8]) -> Result<Option<Newest>, RunsError> {
    runs.newest(key, |seq, value| Newest { seq, value: value.map(<[u8]>::to_vec) })
}

#[test]
fn the_longest_key_and_value_are_taken_and_one_byte_more_is_not() {
    let (runs, _, accounts) = open(&SimDisk::new(), small()).unwrap();
    let (key, value) = (vec![b'k'; KEY_BYTES_MAX], vec![b'v'; VALUE_BYTES_MAX]);
    runs.apply(1, &[put(&key, &value), put(b"", b"")]).unwrap();
    for seq in 2..9 {
        // Each is more than all memory may hold, and finds it empty.
        assert!(matches!(runs.apply(seq, &[put(&key, &value)]), Err(RunsError::Busy { .. })));
        runs.rotate(seq - 1);
        settle(&runs, &accounts);
        runs.apply(seq, &[put(&key, &value)]).unwrap_or_else(|error| panic!("{error}"));
    }
    runs.rotate(8);
    settle(&runs, &accounts);
    assert_eq!(runs.get(&key), Ok(Some(Found { seq: 8, value: value.clone() })));
    assert_eq!(runs.get(b""), Ok(Some(Found { seq: 1, value: Vec::new() })));
    let longer = [key.as_slice(), b"k"].concat();
    let limit = KEY_BYTES_MAX as u64;
    let refused = RunsError::Size { part: "key", bytes: limit + 1, limit };
    for change in [put(&longer, b""), Change::Delete { key: &longer }, Change::Erase { from: &longer, to: None }] {
        assert_eq!(runs.apply(9, &[put(b"a", b"b"), change]), Err(refused.clone()));
    }
    assert_eq!(runs.apply(9, &[Change::Erase { from: b"", to: Some(&longer) }]), Err(refused));
    let longer = [value.as_slice(), b"v"].concat();
    let refused = runs.apply(9, &[put(b"a", b"b"), put(b"k", &longer)]).unwrap_err();
    assert_eq!(refused.to_string(), "a value of 131073 bytes; the limit is 131072");
    assert_eq!((runs.get(b"a"), runs.seq()), (Ok(None), 8), "nothing of a refused batch");
}

#[test]
fn places_rise_and_an_empty_batch_moves_them() {
    let disk = SimDisk::new();
    let (runs, _, accounts) = open(&disk, small()).unwrap();
    runs.apply(5, &[put(b"a", b"1")]).unwrap();
    assert_eq!(runs.apply(5, &[]), Err(RunsError::Order { seq: 5, newest: 5 }));
    runs.apply(9, &[]).unwrap();
    assert_eq!((runs.seq(), runs.applied()), (9, 0));
    runs.rotate(3);
    assert_eq!(runs.seq(), 9, "a place behind moves nothing back");
    settle(&runs, &accounts);
    assert_eq!(runs.applied(), 9);
    runs.rotate(12);
    runs.rotate(12);
    assert_eq!((runs.seq(), runs.debt().immutables), (12, 1), "the log went on without a change, once");
    settle(&runs, &accounts);
    drop(runs);
    let (runs, opened, _) = open(&disk, small()).unwrap();
    assert_eq!((opened.applied, runs.seq(), opened.runs), (12, 12, 1));
    assert_eq!(runs.apply(12, &[]), Err(RunsError::Order { seq: 12, newest: 12 }));
}

#[test]
fn of_a_batch_the_last_counts_and_a_range_erases_what_was_before_it() {
    let (runs, _, accounts) = open(&SimDisk::new(), small()).unwrap();
    runs.apply(1, &[put(b"a", b"old"), put(b"b", b"old"), put(b"c", b"old")]).unwrap();
    let erase = Change::Erase { from: b"a", to: Some(b"c") };
    runs.apply(2, &[put(b"a", b"1"), erase, put(b"a", b"2"), Change::Delete { key: b"x" }, put(b"x", b"3")]).unwrap();
    for flushed in [false, true] {
        if flushed {
            runs.rotate(runs.seq());
            settle(&runs, &accounts);
        }
        let value = |key: &[u8]| runs.get(key).unwrap().map(|found| (found.seq, found.value));
        assert_eq!(value(b"a"), Some((2, b"2".to_vec())));
        assert_eq!(value(b"b"), None);
        assert_eq!(value(b"c"), Some((1, b"old".to_vec())));
        assert_eq!(value(b"x"), Some((2, b"3".to_vec())));
    }
}

#[test]
fn the_newest_of_a_key_is_known_while_there_is_something_to_hide() {
    let (runs, _, accounts) = open(&SimDisk::new(), small()).unwrap();
    let newest = |key: &[u8]| newest(&runs, key).unwrap();
    let gone = |seq| Some(Newest { seq, value: None });
    assert_eq!(newest(b"a"), None);
    runs.apply(1, &[put(b"a", b"1"), put(b"b", b"1")]).unwrap();
    runs.rotate(runs.seq());
    settle(&runs, &accounts);
    runs.apply(2, &[Change::Delete { key: b"a" }, Change::Erase { from: b"b", to: Some(b"d") }]).unwrap();
    assert_eq!((newest(b"a"), newest(b"b"), newest(b"c")), (gone(2), gone(2), gone(2)));
    assert_eq!((runs.get(b"a"), runs.get(b"b")), (Ok(None), Ok(None)));
    runs.apply(3, &[put(b"c", b"3")]).unwrap();
    assert_eq!(newest(b"c"), Some(Newest { seq: 3, value: Some(b"3".to_vec()) }));
    runs.rotate(runs.seq());
    settle(&runs, &accounts);
    assert_eq!((newest(b"a"), newest(b"b")), (None, None), "both are merged away with what they hid");
    assert_eq!(accounts.sums().entries, 1);
}

#[test]
fn the_newest_of_a_key_is_what_the_files_say_and_not_what_was_found_in_them_before() {
    let (runs, _, accounts) = open(&SimDisk::new(), small()).unwrap();
    let write = |seq, value| {
        runs.apply(seq, &[put(b"k", value), put(b"l", b"stays")]).unwrap();
        runs.rotate(seq);
        settle(&runs, &accounts);
    };
    write(1, b"value");
    assert!(runs.view().last_written(b"k").unwrap().is_some());
    let bytes = || runs.facts().cache_bytes;
    let before = bytes();
    assert_eq!(newest(&runs, b"k"), Ok(Some(Newest { seq: 1, value: Some(b"value".to_vec()) })));
    assert_eq!(bytes(), before, "who asks for the newest leaves no row behind");
    assert!(runs.get(b"k").unwrap().is_some() && bytes() > before);
    // Expired when its flush meets it.
    write(2, b"! value");
    let newest = newest(&runs, b"k").unwrap();
    assert_eq!(newest, runs.view().last_written(b"k").unwrap());
    assert!(newest.is_none_or(|newest| newest.value.is_none()));
}

#[test]
fn what_its_owner_keeps_beside_a_row_is_there_as_long_as_the_row() {
    let (runs, _, accounts) = open(&SimDisk::new(), small()).unwrap();
    let flush = |seq| {
        runs.rotate(seq);
        settle(&runs, &accounts);
    };
    let look = |key: &[u8]| runs.look_beside(key, |seq, row, beside| (seq, row.to_vec(), beside.to_vec())).unwrap();
    let seen = |seq, row: &[u8], beside: &[u8]| Some((seq, row.to_vec(), beside.to_vec()));
    runs.keep_beside(b"k", 1, b"of nothing");
    runs.apply(1, &[put(b"k", b"row"), put(b"l", b"row")]).unwrap();
    let first = runs.view();
    runs.keep_beside(b"k", 1, b"first");
    assert_eq!((look(b"k"), look(b"l")), (seen(1, b"row", b"first"), seen(1, b"row", b"")));
    flush(1);
    assert_eq!(look(b"k"), seen(1, b"row", b"first"), "a flush brought nothing newer");
    assert_eq!(look(b"l"), seen(1, b"row", b""));
    runs.keep_beside(b"l", 1, b"found in files");
    assert_eq!(look(b"l"), seen(1, b"row", b"found in files"));
    // From here on another one is the newest, in memory and then in the files.
    runs.apply(2, &[put(b"k", b"row 2"), Change::Delete { key: b"l" }]).unwrap();
    for is_flushed in [false, true] {
        if is_flushed {
            flush(2);
        }
        runs.keep_beside(b"k", 1, b"too late");
        runs.keep_beside(b"l", 1, b"too late");
        assert_eq!((look(b"k"), look(b"l")), (seen(2, b"row 2", b""), None));
        assert_eq!(first.get(b"k"), Ok(Some(Found { seq: 1, value: b"row".to_vec() })));
    }
    runs.keep_beside(b"k", 2, b"second");
    assert_eq!(look(b"k"), seen(2, b"row 2", b"second"));
    assert_eq!(runs.beside(b"k", 2, <[u8]>::to_vec), Some(b"second".to_vec()));
    assert_eq!((runs.beside(b"k", 1, <[u8]>::to_vec), runs.beside(b"l", 1, <[u8]>::to_vec)), (None, None));
    runs.apply(3, &[Change::Erase { from: b"a", to: Some(b"z") }]).unwrap();
    assert_eq!(look(b"k"), None);
    flush(3);
    assert_eq!((runs.facts().ranges, look(b"k"), runs.beside(b"k", 2, <[u8]>::to_vec)), (0, None, None));
}

/// Written: a key, looked up so that it was remembered, erased and merged away; then written once more and erased with all else before its
/// memory was flushed. Lost was the erase: that flush renewed what was remembered of the key, though it left the key out and forgot the
/// range. The user saw the erased value, until a restart.
#[test]
fn what_was_written_and_erased_before_a_flush_is_gone_behind_it() {
    let (runs, _, accounts) = open(&SimDisk::new(), small()).unwrap();
    let flush = |seq| {
        runs.rotate(seq);
        settle(&runs, &accounts);
    };
    let erase = Change::Erase { from: b"a", to: Some(b"z") };
    runs.apply(3, &[put(b"k", b"old")]).unwrap();
    flush(3);
    assert_eq!(runs.get(b"k"), Ok(Some(Found { seq: 3, value: b"old".to_vec() })));
    runs.apply(4, &[erase]).unwrap();
    flush(4);
    assert_eq!((runs.facts().ranges, runs.get(b"k")), (0, Ok(None)));
    runs.apply(5, &[put(b"k", b"new")]).unwrap();
    runs.apply(6, &[erase]).unwrap();
    assert_eq!(runs.get(b"k"), Ok(None));
    flush(6);
    assert_eq!((runs.facts().ranges, runs.get(b"k")), (0, Ok(None)));
    assert_eq!(newest(&runs, b"k"), Ok(None));
}

#[test]
fn a_view_stays_as_it_was_and_a_walk_gives_no_key_twice() {
    let (runs, _, accounts) = open(&SimDisk::new(), small()).unwrap();
    runs.apply(1, &[put(b"a", b"1"), put(b"b", b"1"), put(b"c", b"1")]).unwrap();
    let view = runs.view();
    let mut walk = view.range(Bound::Unbounded, Bound::Excluded(b"c"));
    assert_eq!(walk.next().unwrap().map(|(key, _)| key), Some(b"a".to_vec()));
    runs.apply(2, &[Change::Erase { from: b"", to: None }]).unwrap();
    runs.rotate(runs.seq());
    settle(&runs, &accounts);
    assert_eq!(view.seq(), 1);
    assert_eq!(view.get(b"b"), Ok(Some(Found { seq: 1, value: b"1".to_vec() })));
    assert_eq!(walk.prev().unwrap().map(|(key, _)| key), Some(b"b".to_vec()));
    assert_eq!(walk.next(), Ok(None));
    assert_eq!(walk.prev(), Ok(None));
    assert_eq!(runs.view().range(Bound::Unbounded, Bound::Unbounded).next(), Ok(None));
}

#[test]
fn ten_thousand_ranges_are_kept_apart_and_go_when_nothing_lies_beneath() {
    let config = Config::default();
    let disk = SimDisk::new();
    let (runs, _, accounts) = open(&disk, config.clone()).unwrap();
    let key = |number: u32| number.to_be_bytes();
    for number in 0..20_000_u32 {
        runs.apply(u64::from(number) + 1, &[put(&key(number), b"v")]).unwrap();
    }
    runs.rotate(runs.seq());
    settle(&runs, &accounts);
    let batch = |number: u32| [key(number * 2), key(number * 2 + 1)];
    for hundred in 0..100_u32 {
        let bounds: Vec<_> = (0..100).map(|number| batch(hundred * 100 + number)).collect();
        let erases: Vec<_> = bounds.iter().map(|[from, to]| Change::Erase { from, to: Some(to) }).collect();
        runs.apply(30_000 + u64::from(hundred), &erases).unwrap();
    }
    assert_eq!(runs.facts().ranges, 10_000);
    let left = |runs: &Runs| {
        let view = runs.view();
        let mut walk = view.range(Bound::Unbounded, Bound::Unbounded);
        let mut left = Vec::new();
        while let Some(entry) = walk.next().unwrap() {
            left.push(u32::from_be_bytes(entry.0.try_into().unwrap()));
        }
        left
    };
    let odd: Vec<u32> = (0..20_000).filter(|number| number % 2 == 1).collect();
    assert_eq!(left(&runs), odd);
    runs.rotate(runs.seq());
    let steps = settle(&runs, &accounts);
    assert_eq!(left(&runs), odd);
    assert_eq!((runs.facts().ranges, accounts.sums().entries), (0, 10_000), "{steps:?}");
    drop(runs);
    let (runs, _, _) = open(&disk, config).unwrap();
    assert_eq!(left(&runs), odd);
    assert_eq!(runs.step(&accounts, &AtOnce), Ok(None));
}

#[test]
fn facts_count_what_is_there() {
    let (runs, _, accounts) = open(&SimDisk::new(), small()).unwrap();
    runs.apply(1, &[put(b"a", b"12345"), put(b"b", b"123")]).unwrap();
    let facts = runs.facts();
    assert_eq!((facts.memtable_entries, facts.levels.len(), facts.commits), (2, 0, 0));
    assert!(facts.memory_bytes > 0 && runs.debt().active_bytes > 0);
    runs.rotate(runs.seq());
    settle(&runs, &accounts);
    let facts = runs.facts();
    let level = facts.levels[0];
    assert_eq!((level.runs, level.entries, level.tombstones, level.value_bytes), (1, 2, 0, 8));
    assert_eq!((facts.memtable_entries, facts.commits, facts.flushed_bytes), (0, 1, level.bytes));
    assert_eq!((runs.debt().active_bytes, runs.debt().immutable_bytes, runs.debt().level0_runs), (0, 0, 1));
    assert_eq!((facts.runs, facts.bytes), (1, level.bytes));
    let misses = facts.cache_misses;
    assert!(runs.get(b"a").unwrap().is_some() && runs.get(b"a").unwrap().is_some());
    let facts = runs.facts();
    assert!(facts.cache_misses > misses && facts.cache_hits > 0 && facts.cache_bytes > 0);
}

#[test]
fn what_is_applied_takes_the_memory_of_what_was_written_out_and_nothing_of_what_a_view_sees() {
    const KEYS: u32 = 2_000;
    let (runs, _, accounts) = open(&SimDisk::new(), Config { memory_bytes_max: 8 << 20, ..small() }).unwrap();
    let fill = |byte: u8| {
        for key in 0..KEYS {
            runs.apply(runs.seq() + 1, &[put(&key.to_be_bytes(), &[byte; 400])]).unwrap();
        }
    };
    let write_out = || {
        runs.rotate(runs.seq());
        settle(&runs, &accounts);
    };
    fill(1);
    let view = runs.view();
    write_out();
    let pinned = runs.pinned_bytes();
    assert!(pinned > 400 * u64::from(KEYS), "{pinned}");
    fill(2);
    for key in 0..KEYS {
        assert_eq!(view.get(&key.to_be_bytes()).unwrap().unwrap().value, [1; 400]);
        assert_eq!(runs.get(&key.to_be_bytes()).unwrap().unwrap().value, [2; 400]);
    }
    write_out();
    drop(view);
    assert_eq!(runs.pinned_bytes(), 0);
    let (before, spare) = (runs.facts().memory_bytes, runs.facts().spare_bytes);
    assert!(before > spare && spare > pinned, "it waits, and is told");
    fill(3);
    assert!(runs.facts().spare_bytes < spare, "it is used");
    // Its places come to it, laid once, for as many keys as there were before; and a list of chunks.
    assert_eq!(runs.facts().memory_bytes - before, 8 * 4096 + 24 * 64);
}

#[test]
fn on_a_real_disk_it_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("map");
    let open = || Runs::open(Arc::new(RealDisk), &folder, small()).unwrap();
    let (runs, opened) = open();
    assert_eq!((opened.applied, opened.runs), (0, 0));
    let accounts = Accounts::of(&opened.note);
    for seq in 1..=300_u64 {
        runs.apply(seq, &[put(&(seq % 50).to_be_bytes(), &seq.to_be_bytes().repeat(9))]).unwrap();
        close_if_full(&runs);
        settle(&runs, &accounts);
    }
    runs.rotate(300);
    settle(&runs, &accounts);
    assert!(runs.facts().levels.len() > 1, "{:?}", runs.facts());
    drop(runs);
    let (runs, opened) = open();
    assert_eq!((opened.applied, opened.orphans_removed, opened.manifest_torn), (300, 0, None));
    for key in 0..50_u64 {
        let seq = 250 + if key == 0 { 50 } else { key };
        let found = Found { seq, value: seq.to_be_bytes().repeat(9) };
        assert_eq!(runs.get(&key.to_be_bytes()), Ok(Some(found)));
    }
    assert_eq!(
        runs.verify(&mut |error| panic!("{error}")).entries,
        runs.facts().levels.iter().map(|level| level.entries).sum::<u64>()
    );
}

#[test]
fn to_look_changes_nothing_and_what_is_not_there_is_empty() {
    let disk = SimDisk::new();
    let look = |disk: &SimDisk| {
        Runs::open_read_only(Arc::new(disk.clone()), FOLDER.as_ref(), small())
            .map(|(runs, opened)| (runs, opened.applied))
    };
    let (empty, applied) = look(&disk).unwrap();
    assert_eq!((empty.get(b"a"), applied, disk.used_bytes()), (Ok(None), 0, 0));
    let (runs, _, accounts) = open(&disk, small()).unwrap();
    runs.apply(1, &[put(b"a", b"1"), put(b"b", b"1")]).unwrap();
    runs.rotate(1);
    settle(&runs, &accounts);
    drop(runs);
    let before = (disk.hash(), disk.list(FOLDER.as_ref()).unwrap());
    let (runs, applied) = look(&disk).unwrap();
    assert_eq!(applied, 1);
    runs.apply(2, &[put(b"a", b"2"), Change::Erase { from: b"b", to: None }]).unwrap();
    runs.rotate(2);
    assert_eq!(runs.step(&accounts, &AtOnce), Ok(None));
    assert_eq!(runs.renote(Vec::new, || {}), Err(RunsError::ReadOnly));
    assert_eq!(runs.get(b"a"), Ok(Some(Found { seq: 2, value: b"2".to_vec() })));
    assert_eq!((runs.get(b"b"), runs.applied()), (Ok(None), 1));
    let mut told = 0;
    assert_eq!((runs.verify(&mut |_| told += 1).entries, told), (2, 0));
    drop(runs);
    assert_eq!((disk.hash(), disk.list(FOLDER.as_ref()).unwrap()), before);
    for name in ["manifest-a", "manifest-b"] {
        disk.unlink(&Path::new(FOLDER).join(name)).unwrap();
    }
    assert!(matches!(look(&disk), Err(RunsError::Damaged { .. })), "runs without a manifest are no empty map");
    let (runs, _) = Runs::in_memory(small()).unwrap();
    runs.apply(7, &[put(b"a", b"7")]).unwrap();
    assert_eq!(runs.get(b"a"), Ok(Some(Found { seq: 7, value: b"7".to_vec() })));
    assert_eq!(runs.step(&accounts, &AtOnce), Ok(None));
}

#[test]
fn a_map_that_is_made_anew_is_empty_whatever_was_there() {
    let disk = SimDisk::new();
    for damage in [false, true] {
        let (runs, _, accounts) = open(&disk, small()).unwrap();
        runs.apply(runs.seq() + 5, &[put(b"a", b"1")]).unwrap();
        runs.rotate(runs.seq());
        settle(&runs, &accounts);
        drop(runs);
        if damage {
            for name in ["manifest-a", "manifest-b"] {
                let open = Open { access: Access::Write, direct: false };
                disk.open(&Path::new(FOLDER).join(name), open).unwrap().set_size(40).unwrap();
            }
            assert!(matches!(open(&disk, small()), Err(RunsError::Damaged { .. })));
        }
        let (runs, opened) = Runs::create(Arc::new(disk.clone()), FOLDER.as_ref(), small()).unwrap();
        assert_eq!((opened.applied, opened.runs, runs.get(b"a")), (0, 0, Ok(None)));
        assert_eq!(disk.list(FOLDER.as_ref()).unwrap(), ["manifest-a", "manifest-b"]);
        drop(runs);
        assert_eq!(open(&disk, small()).unwrap().1.applied, 0);
    }
}

#[test]
fn a_rebuild_waits_for_the_log_and_holds_what_was_neither_deleted_nor_erased() {
    let disk = SimDisk::new();
    let (runs, _, accounts) = open(&disk, small()).unwrap();
    drop(runs);
    accounts.durable.store(8, std::sync::atomic::Ordering::SeqCst);
    let bulk = || {
        let mut bulk = Bulk::new(Arc::new(disk.clone()), FOLDER.as_ref(), small()).unwrap();
        for number in (0..200_u64).rev() {
            let value = (number % 3 > 0).then_some(&b"value"[..]);
            bulk.add(&Entry { key: &number.to_be_bytes(), seq: 1 + number % 4, value }).unwrap();
        }
        bulk
    };
    let range = Range { from: 100_u64.to_be_bytes().to_vec(), to: None, seq: 3 };
    let done = bulk().finish(std::slice::from_ref(&range), 9, &accounts, &AtOnce);
    assert_eq!(done, Err(RunsError::Unsettled { seq: 9, durable: 8 }));
    assert_eq!(disk.list(FOLDER.as_ref()).unwrap(), ["manifest-a", "manifest-b"], "nothing is left of it");
    accounts.durable.store(9, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(bulk().finish(&[range], 9, &accounts, &AtOnce), Ok(true));
    let (runs, opened, accounts) = open(&disk, small()).unwrap();
    assert_eq!(opened.applied, 9);
    let kept = (0..200_u64).filter(|number| number % 3 > 0 && (*number < 100 || 1 + number % 4 >= 3)).count() as i64;
    assert_eq!(accounts.sums().entries, kept);
    assert_eq!(accounts.agree_with(&runs.facts()), Ok(()));
    for number in 0..200_u64 {
        let there = number % 3 > 0 && (number < 100 || 1 + number % 4 >= 3);
        assert_eq!(runs.get(&number.to_be_bytes()).unwrap().is_some(), there, "{number}");
    }
}

/// What was written: a map's manifests are lost, and whoever builds it anew is killed, again and again. What the user saw in the end: no room for
/// the next attempt. The files of each before it stayed: a damaged map is not opened, and only an open removed them.
#[test]
fn rebuilds_that_were_killed_leave_nothing_to_the_next() {
    let disk = SimDisk::new();
    let (runs, _, accounts) = open(&disk, small()).unwrap();
    runs.apply(1, &[put(b"a", b"1")]).unwrap();
    runs.rotate(1);
    settle(&runs, &accounts);
    drop(runs);
    for name in ["manifest-a", "manifest-b"] {
        disk.unlink(&Path::new(FOLDER).join(name)).unwrap();
    }
    let config = || Config { bulk_bytes: 4 << 10, ..small() };
    let fill = || {
        let mut bulk = Bulk::new(Arc::new(disk.clone()), FOLDER.as_ref(), config()).unwrap();
        for number in 0..500_u64 {
            bulk.add(&Entry { key: &number.to_be_bytes(), seq: 1, value: Some(b"value") }).unwrap();
        }
        bulk
    };
    let mut files = Vec::new();
    for _ in 0..5 {
        assert!(matches!(open(&disk, small()), Err(RunsError::Damaged { .. })));
        std::mem::forget(fill());
        disk.kill();
        files.push(disk.list(FOLDER.as_ref()).unwrap().len());
    }
    assert!(files[0] > 3 && files == vec![files[0]; 5], "{files:?}");
    // And none to a map that is opened.
    accounts.durable.store(9, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(fill().finish(&[], 9, &accounts, &AtOnce), Ok(true));
    std::mem::forget(fill());
    disk.kill();
    let (runs, ..) = open(&disk, small()).unwrap();
    assert!(runs.get(&7_u64.to_be_bytes()).unwrap().is_some());
    let names = disk.list(FOLDER.as_ref()).unwrap();
    assert!(names.iter().all(|name| !name.ends_with(".part")), "{names:?}");
}

#[test]
fn an_open_that_settles_late_changes_nothing_until_something_is_committed() {
    let disk = SimDisk::new();
    let late = || Config { settles_late: true, ..small() };
    let (runs, _, accounts) = open(&disk, late()).unwrap();
    runs.apply(1, &[put(b"a", b"1")]).unwrap();
    runs.rotate(1);
    settle(&runs, &accounts);
    drop(runs);
    let before = disk.hash();
    let (runs, opened, accounts) = open(&disk, late()).unwrap();
    runs.apply(2, &[put(b"b", b"2")]).unwrap();
    assert_eq!((opened.applied, disk.hash()), (1, before));
    runs.rotate(2);
    settle(&runs, &accounts);
    drop(runs);
    disk.cut_power(Survival::Nothing);
    let (runs, opened, _) = open(&disk, late()).unwrap();
    assert_eq!((opened.applied, runs.get(b"b")), (2, Ok(Some(Found { seq: 2, value: b"2".to_vec() }))));
}

/// A range with a million keys that were deleted is walked for as long as that takes, by whoever asked.
#[test]
fn a_walk_gives_up_where_more_dead_rows_stand_than_it_may_pass() {
    let (runs, _, accounts) = open(&SimDisk::new(), small()).unwrap();
    let keys: Vec<[u8; 1]> = (0..20).map(|key| [key]).collect();
    runs.apply(1, &keys.iter().map(|key| put(key, b"v")).collect::<Vec<_>>()).unwrap();
    runs.rotate(1);
    settle(&runs, &accounts);
    let gone: Vec<Change<'_>> = keys[3..18].iter().map(|key| Change::Delete { key }).collect();
    runs.apply(2, &gone).unwrap();
    let view = runs.view();
    for (passes, given, left) in [(0, 3, 0), (14, 3, 0), (15, 5, 0), (16, 5, 1), (u64::MAX, 5, u64::MAX - 15)] {
        let mut walk = view.range(Bound::Unbounded, Bound::Unbounded).within(passes);
        let forth = std::iter::from_fn(|| walk.next().unwrap()).count();
        assert_eq!((forth, walk.passes_left(), walk.gave_up()), (given, left, given < 5), "{passes}");
        assert_eq!(walk.next(), Ok(None), "it stays so");
        let mut walk = view.range(Bound::Unbounded, Bound::Unbounded).within(passes);
        let back = std::iter::from_fn(|| walk.prev().unwrap()).count();
        assert_eq!((back, walk.gave_up()), (if given < 5 { 2 } else { 5 }, given < 5), "{passes}");
    }
    let mut walk = view.range(Bound::Unbounded, Bound::Unbounded).within(1);
    assert_eq!([walk.pass(), walk.pass()], [true, false]);
    assert_eq!((walk.next(), walk.gave_up()), (Ok(None), true));
}
