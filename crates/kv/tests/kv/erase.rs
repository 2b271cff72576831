//! Ranges of keys that go with one entry, and the times that a value carries.

use std::ops::Bound;

use assent_kind::Kind;
use assent_kv::{Config, Durability, KEY_BYTES_MAX, NAMED_FROM, Op};

use super::branches::prepare;
use super::{all, fresh, open, rows, xid};

#[test]
fn a_range_is_gone_at_once_and_stays_gone_through_restart_checkpoint_and_rebuild() {
    let mut desk = fresh();
    for key in ["a", "b", "bb", "c", "d"] {
        desk.kv.put(1, key.as_bytes(), b"v", Durability::Durable).unwrap();
        desk.kv.put(2, key.as_bytes(), b"v", Durability::Durable).unwrap();
    }
    desk.kv.checkpoint().unwrap();
    let before = desk.kv.snapshot();
    desk.kv.erase(1, b"b", Some(b"d"), Durability::Durable).unwrap();
    let left = rows(&[("a", "v"), ("d", "v")]);
    assert_eq!((all(&desk.kv, 1), all(&desk.kv, 2).len()), (left.clone(), 5));
    assert_eq!(before.scan(1, Bound::Unbounded, Bound::Unbounded, 9).unwrap().len(), 5);
    drop(before);
    desk = desk.again();
    assert_eq!((all(&desk.kv, 1), all(&desk.kv, 2).len()), (left, 5));
    desk.kv.put(1, b"b", b"again", Durability::Durable).unwrap();
    desk.kv.erase(2, b"", None, Durability::Durable).unwrap();
    desk.kv.checkpoint().unwrap();
    desk = desk.again();
    let left = rows(&[("a", "v"), ("b", "again"), ("d", "v")]);
    assert_eq!((all(&desk.kv, 1), all(&desk.kv, 2)), (left.clone(), rows(&[])));
    // Without the ledger, from the journal alone.
    let disk = desk.disk.clone();
    drop(desk);
    for name in assent_world::Disk::list(&disk, "kv".as_ref()).unwrap() {
        assent_world::Disk::unlink(&disk, &std::path::Path::new("kv").join(name)).unwrap();
    }
    let desk = open(&disk, Config::default());
    assert_eq!((all(&desk.kv, 1), all(&desk.kv, 2)), (left, rows(&[])));
}

#[test]
fn within_a_batch_the_last_word_on_a_key_counts() {
    let mut desk = fresh();
    let ops = [
        Op::put(0, b"b", b"before the erase"),
        Op::put(0, b"z", b"outside"),
        Op::erase(0, b"a", Some(b"m")),
        Op::put(0, b"c", b"behind it"),
    ];
    for _ in 0..2 {
        desk.kv.batch(&ops, Durability::Durable).unwrap();
        let left = rows(&[("c", "behind it"), ("z", "outside")]);
        assert_eq!(all(&desk.kv, 0), left);
        desk = desk.again();
        assert_eq!(all(&desk.kv, 0), left);
    }
    // Bounds that hold nothing erase nothing.
    desk.kv.erase(0, b"z", Some(b"c"), Durability::Durable).unwrap();
    desk.kv.erase(0, b"c", Some(b"c"), Durability::Durable).unwrap();
    assert_eq!(all(&desk.kv, 0).len(), 2);
}

#[test]
fn a_prepared_branch_keeps_its_keys_from_an_erase() {
    let desk = fresh();
    desk.kv.start(&xid(1)).unwrap();
    desk.kv.branch_put(&xid(1), 0, b"m", b"v").unwrap();
    let refused = desk.kv.branch_write(&xid(1), &Op::erase(0, b"a", None)).unwrap_err();
    assert_eq!(refused.kind(), Kind::Invalid);
    desk.kv.end(&xid(1), true).unwrap();
    prepare(&desk.kv, &xid(1)).unwrap();
    for (from, to) in [("a", None), ("m", Some("n")), ("a", Some("ma"))] {
        let refused = desk.kv.erase(0, from.as_bytes(), to.map(str::as_bytes), Durability::Durable).unwrap_err();
        assert_eq!(refused.kind(), Kind::Conflict, "{from} {to:?}");
    }
    for (keyspace, from, to) in [(0, "a", Some("m")), (0, "ma", None), (1, "a", None)] {
        desk.kv.erase(keyspace, from.as_bytes(), to.map(str::as_bytes), Durability::Durable).unwrap();
    }
    desk.kv.wait(desk.kv.commit_begin(&xid(1)).unwrap()).unwrap();
    assert_eq!(all(&desk.kv, 0), rows(&[("m", "v")]));
}

#[test]
fn a_vote_sees_an_erase_of_its_keys_published_or_on_its_way() {
    for waited in [false, true] {
        let desk = fresh();
        desk.kv.put(0, b"k", b"v", Durability::Durable).unwrap();
        for number in [1, 2] {
            desk.kv.start(&xid(number)).unwrap();
            desk.kv.branch_get(&xid(number), 0, b"k").unwrap();
        }
        desk.kv.branch_put(&xid(1), 0, b"k", b"mine").unwrap();
        desk.kv.branch_put(&xid(2), 0, b"other", b"mine").unwrap();
        let erase = desk.kv.batch_begin(&[Op::erase(0, b"k", Some(b"l"))], Durability::Durable).unwrap();
        if waited {
            desk.kv.wait(erase).unwrap();
        }
        for number in [1, 2] {
            desk.kv.end(&xid(number), true).unwrap();
        }
        assert_eq!(prepare(&desk.kv, &xid(1)).unwrap_err().kind(), Kind::Conflict, "{waited}");
        prepare(&desk.kv, &xid(2)).unwrap();
    }
}

#[test]
fn both_ends_of_a_range_have_the_length_of_keys() {
    let desk = fresh();
    let longest = vec![b'k'; KEY_BYTES_MAX as usize];
    let longer = vec![b'k'; KEY_BYTES_MAX as usize + 1];
    desk.kv.put(NAMED_FROM - 1, &longest, b"v", Durability::Durable).unwrap();
    for (from, to) in [(&longer, None), (&longest, Some(&longer[..]))] {
        let refused = desk.kv.erase(NAMED_FROM - 1, from, to, Durability::Durable).unwrap_err();
        assert_eq!(refused.to_string(), "key of 65537 bytes; at most 65536 are taken");
    }
    desk.kv.erase(NAMED_FROM - 1, b"", Some(&longest), Durability::Durable).unwrap();
    assert_eq!(all(&desk.kv, NAMED_FROM - 1).len(), 1);
    desk.kv.erase(NAMED_FROM - 1, &longest, None, Durability::Durable).unwrap();
    assert_eq!(all(&desk.kv, NAMED_FROM - 1).len(), 0);
}

#[test]
fn a_value_says_when_it_was_written_and_when_it_expires() {
    let mut desk = fresh();
    desk.clock.set_wall_ms(1_000);
    let plain = desk.kv.put(0, b"plain", b"v", Durability::Durable).unwrap();
    desk.clock.set_wall_ms(2_000);
    desk.kv.batch(&[Op::put(0, b"short", b"v").expiring(9_000)], Durability::Durable).unwrap();
    desk.kv.start(&xid(1)).unwrap();
    desk.kv.branch_write(&xid(1), &Op::put(0, b"branch", b"v").expiring(8_000)).unwrap();
    desk.kv.end(&xid(1), true).unwrap();
    prepare(&desk.kv, &xid(1)).unwrap();
    desk.kv.wait(desk.kv.commit_begin(&xid(1)).unwrap()).unwrap();
    for checkpoint in [false, true] {
        let times = |key: &[u8]| {
            let (head, found) = (desk.kv.head(0, key).unwrap().unwrap(), desk.kv.entry(0, key).unwrap().unwrap());
            let times = (head.modified, head.expiry, head.committed);
            assert_eq!(times, (found.modified, found.expiry, found.committed));
            times
        };
        assert_eq!(times(b"plain"), (1_000, 0, plain));
        assert_eq!((times(b"short").0, times(b"short").1), (2_000, 9_000));
        assert_eq!((times(b"branch").0, times(b"branch").1), (2_000, 8_000));
        if checkpoint {
            desk.kv.checkpoint().unwrap();
        }
        desk = desk.again();
    }
}
