//! Plain reads and writes, snapshots, and what is published when.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use assent_kind::Kind;
use assent_kv::{Config, Durability, Kv, Op};
use assent_sim::{Call, Fault, Operation, SimClock};

use super::{all, fresh, rows};

#[test]
fn what_was_put_is_found_also_after_a_restart() {
    let desk = fresh();
    let kv = &desk.kv;
    kv.put(0, b"a", b"1", Durability::Durable).unwrap();
    kv.put(1, b"a", b"other keyspace", Durability::Durable).unwrap();
    kv.put(0, b"b", b"2", Durability::Buffered).unwrap();
    kv.put(0, b"", b"the empty key is a key", Durability::Durable).unwrap();
    kv.put(0, b"c", b"", Durability::Durable).unwrap();
    kv.delete(0, b"b", Durability::Durable).unwrap();
    kv.delete(0, b"never there", Durability::Durable).unwrap();
    let expected = rows(&[("", "the empty key is a key"), ("a", "1"), ("c", "")]);
    assert_eq!(all(kv, 0), expected);
    assert_eq!((kv.get(0, b"b").unwrap(), kv.get(1, b"a").unwrap().as_deref()), (None, Some(&b"other keyspace"[..])));
    let before = kv.stats();
    let desk = desk.again();
    assert_eq!((all(&desk.kv, 0), all(&desk.kv, 1).len()), (expected, 1));
    let after = desk.kv.stats();
    // In memory each write counts.
    assert_eq!((after.keys, after.value_bytes, after.replayed), (5, 1 + 14 + 1 + 22, 7));
    assert_eq!((before.keys, before.value_bytes, before.published), (after.keys, after.value_bytes, after.published));
    desk.kv.checkpoint().unwrap();
    assert_eq!((desk.kv.stats().keys, desk.kv.stats().value_bytes), (4, 1 + 14 + 22));
}

#[test]
fn a_batch_is_one_entry_and_its_last_write_of_a_key_counts() {
    let desk = fresh();
    let put = Op::Put { keyspace: 3, key: b"k", metadata: b"who wrote it", value: b"third", expiry: 0 };
    let ops = [Op::put(3, b"k", b"first"), Op::delete(3, b"k"), put, Op::put(3, b"l", b"x"), Op::delete(3, b"l")];
    desk.kv.batch(&ops, Durability::Durable).unwrap();
    assert_eq!((desk.log.counts().appends, desk.log.counts().syncs), (1, 1));
    let found = desk.kv.entry(3, b"k").unwrap().unwrap();
    assert_eq!((&found.value[..], &found.metadata[..]), (&b"third"[..], &b"who wrote it"[..]));
    let desk = desk.again();
    assert_eq!(desk.kv.entry(3, b"k").unwrap(), Some(found));
    assert_eq!(all(&desk.kv, 3), rows(&[("k", "third")]));
}

#[test]
fn nothing_is_visible_before_it_was_waited_for_and_then_in_log_order() {
    let desk = fresh();
    let kv = &desk.kv;
    let first = kv.batch_begin(&[Op::put(0, b"k", b"1")], Durability::Durable).unwrap();
    let second = kv.batch_begin(&[Op::put(0, b"k", b"2"), Op::put(0, b"l", b"2")], Durability::Durable).unwrap();
    let third = kv.batch_begin(&[Op::put(0, b"k", b"3")], Durability::Durable).unwrap();
    assert!(first.lsn() < second.lsn() && second.lsn() < third.lsn());
    assert_eq!((all(kv, 0), kv.stats().unpublished), (rows(&[]), 3));
    kv.wait(third).unwrap();
    assert_eq!((all(kv, 0), kv.stats().unpublished), (rows(&[("k", "3"), ("l", "2")]), 0));
    kv.wait(first).unwrap();
    kv.wait(second).unwrap();
    assert_eq!(all(kv, 0), rows(&[("k", "3"), ("l", "2")]));
    assert_eq!(desk.log.counts().syncs, 1);
}

#[test]
fn a_snapshot_does_not_move_and_costs_nothing_once_it_is_gone() {
    let desk = fresh();
    let kv = &desk.kv;
    for value in 0..5_u8 {
        for key in 0..100_u8 {
            kv.put(0, &[key], &[value], Durability::Durable).unwrap();
        }
    }
    let before = kv.snapshot();
    let expected = before.scan(0, Bound::Unbounded, Bound::Unbounded, 1000).unwrap();
    for key in 0..100_u8 {
        kv.put(0, &[key], b"new", Durability::Durable).unwrap();
        kv.put(0, &[key, 1], b"added", Durability::Durable).unwrap();
        kv.delete(0, &[key], Durability::Durable).unwrap();
    }
    assert_eq!(before.scan(0, Bound::Unbounded, Bound::Unbounded, 1000).unwrap(), expected);
    assert_eq!((before.get(0, &[7]).unwrap(), before.get(0, &[7, 1]).unwrap()), (Some(vec![4]), None));
    assert_eq!((kv.get(0, &[7]).unwrap(), all(kv, 0).len()), (None, 100));
    // Written out and merged, with the snapshot's files kept beside.
    kv.checkpoint().unwrap();
    kv.tick();
    assert_eq!(before.scan(0, Bound::Unbounded, Bound::Unbounded, 1000).unwrap(), expected);
    drop(before);
    assert_eq!((kv.stats().snapshots, kv.stats().keys), (0, 100));
}

#[test]
fn a_head_is_known_without_its_value() {
    let desk = fresh();
    let put =
        |key: &'static [u8], value: &'static [u8]| Op::Put { keyspace: 2, key, metadata: b"meta", value, expiry: 0 };
    desk.kv.batch(&[put(b"a", b"first"), put(b"b", b""), put(b"c", b"third")], Durability::Durable).unwrap();
    for written_out in [false, true] {
        if written_out {
            desk.kv.checkpoint().unwrap();
        }
        let entry = desk.kv.entry(2, b"a").unwrap().unwrap();
        let head = desk.kv.head(2, b"a").unwrap().unwrap();
        assert_eq!((head.lsn, head.value_bytes, &head.metadata[..]), (entry.lsn, 5, &b"meta"[..]));
        assert_eq!((desk.kv.head(2, b"x").unwrap(), desk.kv.head(1, b"a").unwrap()), (None, None));
        let heads = |limit| desk.kv.snapshot().heads(2, Bound::Included(b"a"), Bound::Excluded(b"c"), limit).unwrap();
        let sizes: Vec<_> = heads(9).into_iter().map(|(key, head)| (key, head.value_bytes)).collect();
        assert_eq!(sizes, [(b"a".to_vec(), 5), (b"b".to_vec(), 0)]);
        assert_eq!((heads(1).len(), heads(0).len()), (1, 0));
        assert_eq!(heads(1)[0].1, desk.kv.snapshot().head(2, b"a").unwrap().unwrap());
    }
}

#[test]
fn ranges_are_cut_where_asked_and_many_chunks_are_one_scan() {
    let desk = fresh();
    let kv = &desk.kv;
    let keys: Vec<String> = (0..2000).map(|number| format!("{number:05}")).collect();
    let ops: Vec<Op<'_>> = keys.iter().map(|key| Op::put(9, key.as_bytes(), key.as_bytes())).collect();
    kv.batch(&ops, Durability::Durable).unwrap();
    let scan = |from: Bound<&str>, to: Bound<&str>, limit| {
        let (from, to) = (from.map(str::as_bytes), to.map(str::as_bytes));
        let rows = kv.scan(9, from, to, limit).unwrap();
        rows.iter().for_each(|(key, value)| assert_eq!(key, value));
        rows.into_iter().map(|(key, _)| String::from_utf8(key).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(scan(Bound::Unbounded, Bound::Unbounded, usize::MAX), keys);
    assert_eq!(scan(Bound::Excluded("00009"), Bound::Excluded("01500"), usize::MAX), keys[10..1500]);
    assert_eq!(scan(Bound::Included("01000"), Bound::Unbounded, 3), keys[1000..1003]);
    assert_eq!(scan(Bound::Included("2"), Bound::Included("1"), 3), [""; 0]);
    assert_eq!(scan(Bound::Unbounded, Bound::Unbounded, 0), [""; 0]);
}

#[test]
fn after_a_failed_sync_writes_are_in_doubt_then_closed_and_readers_go_on() {
    let desk = fresh();
    desk.kv.put(0, b"k", b"old", Durability::Durable).unwrap();
    desk.disk.inject(Call::of(Operation::SyncData, 1), Fault::Io);
    let error = desk.kv.put(0, b"k", b"new", Durability::Durable).unwrap_err();
    assert_eq!(error.kind(), Kind::InDoubt, "{error}");
    assert_eq!(desk.kv.put(0, b"k", b"newer", Durability::Durable).unwrap_err().kind(), Kind::Closed);
    assert_eq!(all(&desk.kv, 0), rows(&[("k", "old")]));
}

#[test]
fn a_value_damaged_on_disk_is_an_error_that_names_key_and_lsn_and_never_not_found() {
    let desk = fresh();
    desk.kv.put(0, b"whole", b"fine", Durability::Durable).unwrap();
    desk.kv.put(5, b"broken\n", b"a value to be damaged", Durability::Durable).unwrap();
    desk.kv.put(5, b"read", b"a value damaged behind its back", Durability::Durable).unwrap();
    assert!(desk.kv.get(5, b"read").unwrap().is_some());
    let lsn = desk.kv.head(5, b"broken\n").unwrap().unwrap().lsn;
    desk.log.damage(b"to be damaged");
    desk.log.damage(b"damaged behind");
    let error = desk.kv.get(5, b"broken\n").unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    let text = error.to_string();
    assert!(text.contains("broken\\n") && text.contains("keyspace 5") && text.contains(&lsn.to_string()), "{text}");
    assert!(desk.kv.scan(5, Bound::Unbounded, Bound::Unbounded, 9).is_err());
    assert_eq!(desk.kv.get(0, b"whole").unwrap().as_deref(), Some(&b"fine"[..]));
    let kept = desk.kv.get(5, b"read").unwrap();
    assert_eq!(kept.as_deref(), Some(&b"a value damaged behind its back"[..]), "what was read and right is kept");
}

#[test]
fn bytes_that_a_checksum_passes_and_the_index_did_not_mean_are_damage_too() {
    // A journal of the same shape with another value in it, put under a checkpoint.
    let filled = |value: &[u8]| {
        let desk = fresh();
        desk.kv.put(0, b"k", value, Durability::Durable).unwrap();
        desk.kv.put(0, b"last", b"the same", Durability::Durable).unwrap();
        desk
    };
    let (right, wrong) = (filled(b"right"), filled(b"wrong"));
    wrong.kv.checkpoint().unwrap();
    let kv = Kv::open(right.log, Arc::new(wrong.disk), Arc::new(SimClock::new()), Path::new("kv"), Config::default())
        .unwrap();
    assert_eq!(kv.stats().replayed, 0, "the checkpoint is believed: the last entry is the same");
    let error = kv.get(0, b"k").unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("it hashes to"), "{error}");
}
