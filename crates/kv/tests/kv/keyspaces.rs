//! Keyspaces by name, and many keys at once.

use std::path::Path;
use std::time::Duration;

use assent_kind::Kind;
use assent_kv::{Config, Durability, Keyspace, Kv, KvError, NAME_BYTES_MAX, NAMED_FROM, Op};
use assent_world::{Access, Disk, Open, write_all_at};

use super::branches::{commit, prepare};
use super::{Desk, all, fresh, open, rows, xid};

fn names(kv: &Kv) -> Vec<(u32, String)> {
    kv.keyspaces().unwrap().into_iter().map(|Keyspace { id, name, .. }| (id, name)).collect()
}

fn without_its_ledger(desk: Desk) -> Desk {
    let disk = desk.disk.clone();
    drop(desk);
    for name in disk.list(Path::new("kv")).unwrap() {
        disk.unlink(&Path::new("kv").join(name)).unwrap();
    }
    open(&disk, Config::default())
}

#[test]
fn a_keyspace_is_made_listed_and_dropped_and_its_id_is_never_used_again() {
    let mut desk = fresh();
    desk.clock.advance(Duration::from_secs(7));
    let a = desk.kv.keyspace_create("a").unwrap();
    let b = desk.kv.keyspace_create("b").unwrap();
    assert_eq!((a, b), (NAMED_FROM, NAMED_FROM + 1));
    let known = desk.kv.keyspace_create("a").unwrap_err();
    assert_eq!((known.kind(), known.to_string().as_str()), (Kind::Conflict, "keyspace \"a\" exists"));
    assert_eq!(desk.kv.keyspace("b").unwrap().unwrap(), Keyspace { id: b, name: "b".to_owned(), created: 7_000 });
    for space in [a, b, 0] {
        desk.kv.put(space, b"k", b"v", Durability::Durable).unwrap();
    }
    desk.kv.keyspace_drop("a").unwrap();
    let gone = desk.kv.keyspace_drop("a").unwrap_err();
    assert_eq!((gone.kind(), gone.to_string().as_str()), (Kind::NotFound, "there is no keyspace \"a\""));
    let check = |kv: &Kv| {
        assert_eq!(names(kv), [(b, "b".to_owned())]);
        assert_eq!((kv.get(a, b"k").unwrap(), all(kv, b).len(), all(kv, 0).len()), (None, 1, 1));
        let refused = kv.put(a, b"k", b"v", Durability::Durable).unwrap_err();
        assert!(matches!(refused, KvError::Dropped { keyspace } if keyspace == a), "{refused}");
    };
    check(&desk.kv);
    desk = desk.again();
    check(&desk.kv);
    desk.kv.checkpoint().unwrap();
    desk = desk.again();
    check(&desk.kv);
    desk = without_its_ledger(desk);
    check(&desk.kv);
    // The one that was made last is dropped: neither its id comes back.
    desk.kv.keyspace_drop("b").unwrap();
    desk = without_its_ledger(desk);
    let again = desk.kv.keyspace_create("a").unwrap();
    assert_eq!((again, all(&desk.kv, again)), (NAMED_FROM + 2, rows(&[])));
}

#[test]
fn names_have_limits_and_the_stores_own_rows_are_nobodys() {
    let kv = fresh().kv;
    let longest = "n".repeat(NAME_BYTES_MAX);
    let umlauts = "ü".repeat(NAME_BYTES_MAX / 2);
    for name in [&longest[..], &umlauts, " ", "a/b"] {
        kv.keyspace_create(name).unwrap();
    }
    for name in ["", "a\nb", "\u{7f}", "\u{85}", &format!("{longest}n"), &format!("{umlauts}ü")] {
        let refused = kv.keyspace_create(name).unwrap_err();
        assert!(matches!(refused, KvError::Named { .. }) && refused.kind() == Kind::Invalid, "{refused}");
        assert_eq!(kv.keyspace(name).unwrap(), None);
        assert_eq!(kv.keyspace_drop(name).unwrap_err().kind(), Kind::NotFound);
    }
    assert_eq!(names(&kv).len(), 4);
    for op in [Op::put(u32::MAX, b"k", b"v"), Op::erase(u32::MAX, b"", None)] {
        assert_eq!(kv.batch(&[op], Durability::Durable).unwrap_err().kind(), Kind::Invalid);
    }
    kv.start(&xid(1)).unwrap();
    assert_eq!(kv.branch_put(&xid(1), u32::MAX, b"k", b"v").unwrap_err().kind(), Kind::Invalid);
    kv.put(NAMED_FROM - 1, b"k", b"v", Durability::Durable).unwrap();
    assert_eq!(kv.put(u32::MAX - 1, b"k", b"v", Durability::Durable).unwrap_err().kind(), Kind::Conflict);
}

#[test]
fn a_prepared_branch_keeps_its_keyspace_and_one_that_comes_too_late_is_rolled_back() {
    let kv = fresh().kv;
    let a = kv.keyspace_create("a").unwrap();
    for number in [1, 2] {
        kv.start(&xid(number)).unwrap();
        kv.branch_put(&xid(number), a, &[number.to_le_bytes()[0]], b"v").unwrap();
        kv.end(&xid(number), true).unwrap();
    }
    prepare(&kv, &xid(1)).unwrap();
    assert!(matches!(kv.keyspace_drop("a").unwrap_err(), KvError::Held { .. }));
    commit(&kv, &xid(1)).unwrap();
    kv.keyspace_drop("a").unwrap();
    assert_eq!(prepare(&kv, &xid(2)).unwrap_err().kind(), Kind::Conflict);
    assert_eq!((kv.stats().branches, all(&kv, a)), (0, rows(&[])));
}

#[test]
fn ten_thousand_keyspaces_come_and_go() {
    let mut desk = fresh();
    for number in 0..10_000_u32 {
        let id = desk.kv.keyspace_create(&format!("space {number}")).unwrap();
        desk.kv.put(id, b"k", &number.to_be_bytes(), Durability::Buffered).unwrap();
    }
    desk.kv.checkpoint().unwrap();
    desk = desk.again();
    let names = names(&desk.kv);
    assert_eq!(names.len(), 10_000);
    for (id, name) in &names {
        let value = u32::from_be_bytes(*desk.kv.get(*id, b"k").unwrap().unwrap().first_chunk().unwrap());
        assert_eq!(*name, format!("space {value}"));
        if value % 10 != 0 {
            desk.kv.keyspace_drop(name).unwrap();
        }
    }
    desk.kv.checkpoint().unwrap();
    desk = desk.again();
    assert_eq!(desk.kv.keyspaces().unwrap().len(), 1_000);
    let there = names.iter().filter(|(id, _)| desk.kv.exists(*id, b"k").unwrap()).count();
    assert_eq!(there, 1_000);
}

#[test]
fn many_keys_are_asked_for_at_once_as_of_one_moment() {
    let desk = open(&assent_sim::SimDisk::new(), Config { scan_bytes_max: 200, ..Config::default() });
    let kv = &desk.kv;
    kv.batch(&[Op::put(0, b"a", &[1; 100]), Op::put(1, b"b", &[2; 100])], Durability::Durable).unwrap();
    let snapshot = kv.snapshot();
    kv.batch(&[Op::delete(0, b"a"), Op::put(1, b"b", &[3; 101])], Durability::Durable).unwrap();
    let asked: [(u32, &[u8]); 4] = [(1, b"b"), (0, b"b"), (0, b"a"), (1, b"b")];
    let values = |found: Vec<Option<assent_kv::Found>>| {
        found.into_iter().map(|found| found.map(|found| found.value)).collect::<Vec<_>>()
    };
    assert_eq!(values(snapshot.get_many(&asked[..3]).unwrap()), [Some(vec![2; 100]), None, Some(vec![1; 100])]);
    assert_eq!(values(kv.get_many(&asked[..3]).unwrap()), [Some(vec![3; 101]), None, None]);
    let refused = kv.get_many(&asked).unwrap_err();
    assert_eq!(refused.to_string(), "the values of many keys of 202 bytes; at most 200 are taken");
    let heads = kv.head_many(&asked).unwrap();
    assert_eq!(
        heads.iter().map(|head| head.as_ref().map(|head| head.value_bytes)).collect::<Vec<_>>(),
        [Some(101), None, None, Some(101)]
    );
    assert_eq!(snapshot.head_many(&asked[2..3]).unwrap()[0].as_ref().unwrap().value_bytes, 100);
    assert_eq!((snapshot.exists(0, b"a"), kv.exists(0, b"a"), kv.exists(1, b"b")), (Ok(true), Ok(false), Ok(true)));
    assert_eq!(kv.get_many(&[]).unwrap(), []);
}

#[test]
fn where_the_names_are_damaged_nothing_is_made_of_them_and_the_rest_goes_on() {
    let desk = fresh();
    let a = desk.kv.keyspace_create("a").unwrap();
    desk.kv.checkpoint().unwrap();
    let disk = desk.disk.clone();
    drop(desk);
    let mut damaged = 0;
    for name in disk.list(Path::new("kv")).unwrap() {
        let path = Path::new("kv").join(&name);
        for at in (0..4096).step_by(7) {
            let disk = disk.copy();
            let file = disk.open(&path, Open { access: Access::Write, direct: false }).unwrap();
            let mut byte = [0];
            if file.read_at(at, &mut byte).unwrap() == 0 {
                break;
            }
            write_all_at(&*file, at, &[byte[0] ^ 0x10]).unwrap();
            let kv = open(&disk, Config::default()).kv;
            kv.put(0, b"k", b"v", Durability::Durable).unwrap();
            if kv.keyspaces().is_err() {
                let refused = [kv.keyspace_create("b").map(drop), kv.keyspace_drop("a").map(drop)];
                assert!(
                    refused.iter().all(|refused| refused.as_ref().is_err_and(|error| error.kind() == Kind::Corrupt))
                );
                let refused = kv.put(a, b"k", b"v", Durability::Durable).unwrap_err();
                assert_eq!(refused.kind(), Kind::Corrupt, "{refused}");
                damaged += 1;
            } else {
                assert_eq!(names(&kv), [(a, "a".to_owned())]);
            }
        }
    }
    assert!(damaged > 0);
}
