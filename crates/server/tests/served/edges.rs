//! The store's verbs at their edges: sizes, ranges and names that are just right, just wrong, or no sense at all. Each gets its answer,
//! nothing is written by halves, and the connection goes on.

use assent_ids::{Epoch, Incarnation, Lsn, TxId};
use assent_kind::Kind;
use assent_kv::{Durability, KEY_BYTES_MAX, METADATA_BYTES_MAX, NAMED_FROM};
use assent_wire::{
    Answer, Bound, Condition, Expect, Expected, KeyspaceQuery, Look, Op, Reply, Request, Rows, Scan, Write, WriteIf,
};

use crate::house::{NODE, Rules, branch, expect, get, put, refusal, store, xid};

const SYSTEM: u32 = u32::MAX;

/// What is refused, and how it is said; none where it is answered.
type Wrong = Option<(Kind, &'static str)>;

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn each_verb_takes_the_longest_key_and_refuses_to_write_a_longer_one() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let link = house.store_link();
    let longer = vec![b'k'; usize::try_from(KEY_BYTES_MAX).unwrap() + 1];
    let (longest, metadata) = (&longer[1..], vec![7; usize::from(METADATA_BYTES_MAX) + 1]);
    let tx = TxId { incarnation: Incarnation { epoch: Epoch(1), number: 1 }, counter: 1 };
    let own = xid(NODE, tx, "a", 0);
    expect(&link, &Request::Start(own), &Reply::Done);
    let write = |op| {
        Request::Write(Write {
            xid: None,
            durable: true,
            ops: vec![Op::Put { keyspace: 0, key: b"first", value: b"" }, op],
        })
    };
    let work = |op| Request::Write(Write { xid: Some(own), durable: true, ops: vec![op] });
    let if_there = |key| {
        let conditions = vec![Condition { keyspace: 0, key, expects: Expect::Absent }];
        Request::WriteIf(WriteIf { durable: true, conditions, ops: vec![Op::Delete { keyspace: 0, key: b"first" }] })
    };
    let set = |key, metadata| Op::Set { keyspace: 0, key, metadata, expiry_ms: 0, value: b"v" };
    let erase = |from, to| Op::Erase { keyspace: 0, from, to };
    let too_long: Wrong = Some((Kind::Invalid, "65537"));
    let too_much: Wrong = Some((Kind::Invalid, "4097"));
    let table: Vec<(Request<'_>, Wrong)> = vec![
        (write(Op::Put { keyspace: 0, key: longest, value: b"v" }), None),
        (write(Op::Put { keyspace: 0, key: &longer, value: b"v" }), too_long),
        (write(set(longest, &metadata[1..])), None),
        (write(set(&longer, b"")), too_long),
        (write(set(b"k", &metadata)), too_much),
        (write(Op::Delete { keyspace: 0, key: &longer }), too_long),
        (write(erase(longest, Some(longest))), None),
        (write(erase(&longer, None)), too_long),
        (write(erase(b"", Some(&longer))), too_long),
        (work(Op::Put { keyspace: 0, key: &longer, value: b"v" }), too_long),
        (work(set(b"k", &metadata)), too_much),
        (work(erase(b"a", Some(b"b"))), Some((Kind::Invalid, "within a branch"))),
        (if_there(&longer), too_long),
        (
            Request::Expect(Expected {
                xid: own,
                conditions: vec![Condition { keyspace: 0, key: &longer, expects: Expect::Present }],
            }),
            too_long,
        ),
        // The store's own rows, and a keyspace that nobody has made.
        (write(Op::Put { keyspace: SYSTEM, key: b"k", value: b"v" }), Some((Kind::Invalid, "the store's own"))),
        (write(Op::Erase { keyspace: SYSTEM, from: b"", to: None }), Some((Kind::Invalid, "the store's own"))),
        (work(Op::Put { keyspace: SYSTEM, key: b"k", value: b"v" }), Some((Kind::Invalid, "the store's own"))),
        (write(Op::Put { keyspace: NAMED_FROM, key: b"k", value: b"v" }), Some((Kind::Conflict, "never made"))),
        (Request::Write(Write { xid: None, durable: true, ops: vec![] }), Some((Kind::Invalid, "0 operations"))),
        (
            Request::WriteIf(WriteIf { durable: true, conditions: vec![], ops: vec![] }),
            Some((Kind::Invalid, "0 operations")),
        ),
        (Request::KeyspaceCreate(""), Some((Kind::Invalid, "no name"))),
        (Request::KeyspaceCreate("a\u{0}"), Some((Kind::Invalid, "no name"))),
        (Request::KeyspaceDrop("strangers"), Some((Kind::NotFound, "strangers"))),
    ];
    for (request, wrong) in &table {
        // What is refused leaves none of its batch behind.
        house.kv.as_ref().unwrap().delete(0, b"first", Durability::Durable).unwrap();
        let arrived = link.request(request).unwrap();
        match wrong {
            Some((kind, words)) => {
                let (told, message) = refusal(arrived.answer());
                assert!(told == *kind && message.contains(words), "{told} {message}, not {kind} {words}");
            }
            None => assert!(matches!(arrived.answer(), Ok(Answer::Written(_))), "{arrived:?}"),
        }
        assert_eq!(get(&link, b"first").is_some(), wrong.is_none());
    }
    // To ask for what cannot be there is no mistake.
    assert_eq!((get(&link, &longer), get(&link, longest)), (None, Some(b"v".to_vec())));
    let arrived =
        link.request(&Request::Look(Look { values: true, keys: vec![(0, &longer), (SYSTEM, b"x")] })).unwrap();
    assert_eq!(arrived.answer(), Ok(Answer::Objects(vec![None, None])));
    let arrived = link.request(&Request::Look(Look { values: true, keys: vec![] })).unwrap();
    assert_eq!(arrived.answer(), Ok(Answer::Objects(vec![])));
    expect(&link, &Request::Rollback(own), &Reply::Done);
    assert!(matches!(branch(&link.request(&Request::Prepare(own)).unwrap()), Reply::Unknown(_)));
}

#[test]
fn a_range_is_what_its_bounds_say_whatever_their_order_for_scans_and_rows_within_a_branch_and_outside() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let link = house.store_link();
    let keys: [&[u8]; 4] = [b"", b"a", b"ab", b"b"];
    for key in keys {
        link.request(&put(None, key, key)).unwrap().answer().unwrap();
    }
    let tx = TxId { incarnation: Incarnation { epoch: Epoch(1), number: 1 }, counter: 1 };
    let own = xid(NODE, tx, "a", 0);
    expect(&link, &Request::Start(own), &Reply::Done);
    link.request(&put(Some(own), b"ab", b"ab")).unwrap().answer().unwrap();
    let longer = vec![b'a'; usize::try_from(KEY_BYTES_MAX).unwrap() + 1];
    let ends: [&[u8]; 6] = [b"", b"a", b"aa", b"b", b"c", &longer];
    let bounds = |ends: &[&'static [u8]]| {
        let all = ends.iter().copied().flat_map(|end| [Bound::Included(end), Bound::Excluded(end)]);
        [Bound::Unbounded].into_iter().chain(all).collect::<Vec<_>>()
    };
    let ends: Vec<&'static [u8]> = ends.iter().map(|end| &*Box::leak(end.to_vec().into_boxed_slice())).collect();
    let inside = |key: &[u8], from: Bound<'_>, to: Bound<'_>| {
        let behind = match from {
            Bound::Unbounded => true,
            Bound::Included(from) => from <= key,
            Bound::Excluded(from) => from < key,
        };
        behind
            && match to {
                Bound::Unbounded => true,
                Bound::Included(to) => key <= to,
                Bound::Excluded(to) => key < to,
            }
    };
    for from in bounds(&ends) {
        for to in bounds(&ends) {
            for limit in [0, 1, 2, u32::MAX] {
                let most = usize::try_from(limit).unwrap();
                let all: Vec<&[u8]> = keys.into_iter().filter(|key| inside(key, from, to)).collect();
                let (more, expected) = (all.len() > most, &all[..all.len().min(most)]);
                for xid in [None, Some(own)] {
                    let scan = Scan { xid, keyspace: 0, from, to, limit };
                    let arrived = link.request(&Request::Scan(scan.clone())).unwrap();
                    let Ok(Answer::Pairs { more: told, pairs }) = arrived.answer() else { panic!("{arrived:?}") };
                    let found: Vec<&[u8]> = pairs.iter().map(|pair| pair.key).collect();
                    assert_eq!((told, &found[..]), (more, expected), "{from:?} {to:?} {limit} {xid:?}");
                    if xid.is_none() {
                        let arrived = link.request(&Request::Rows(Rows { values: true, scan })).unwrap();
                        let Ok(Answer::Rows { more: told, rows }) = arrived.answer() else { panic!("{arrived:?}") };
                        let found: Vec<&[u8]> = rows.iter().map(|row| row.key).collect();
                        assert_eq!((told, &found[..]), (more, expected), "{from:?} {to:?} {limit}: rows");
                    }
                }
            }
        }
    }
}

/// Pages of a message each: 10,000 names do not fit one.
#[test]
fn ten_thousand_keyspaces_are_made_used_and_listed_over_the_protocol() {
    const MANY: usize = 10_000;
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let link = house.store_link();
    let name = |number: usize| format!("{number:05}{}", "n".repeat(120));
    let kv = house.kv.as_ref().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                (thread..MANY - 1).step_by(4).for_each(|number| _ = kv.keyspace_create(&name(number)).unwrap())
            });
        }
    });
    let (last, mut list, mut pages) = (name(MANY - 1), Vec::<(u32, String)>::new(), 0);
    let arrived = link.request(&Request::KeyspaceCreate(&last)).unwrap();
    assert!(matches!(arrived.answer(), Ok(Answer::Keyspaces { more: false, list }) if list[0].name == last));
    loop {
        let after = list.last().map(|(_, name)| name.clone());
        let query = KeyspaceQuery { name: None, after: after.as_deref() };
        let arrived = link.request(&Request::Keyspaces(query)).unwrap();
        let Ok(Answer::Keyspaces { more, list: page }) = arrived.answer() else { panic!("{arrived:?}") };
        list.extend(page.iter().map(|view| (view.id, view.name.to_owned())));
        pages += 1;
        if !more {
            break;
        }
        assert!(!page.is_empty(), "every page goes on");
    }
    assert!(
        list.len() == MANY && list.iter().enumerate().all(|(number, (_, it))| *it == name(number)),
        "{}",
        list.len()
    );
    assert!(pages > 1);
    let ids: std::collections::BTreeSet<u32> = list.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids.len(), MANY, "each has a number of its own");
    let (id, dropped) = (list[17].0, list[18].clone());
    let write = |keyspace| {
        let ops = vec![Op::Put { keyspace, key: b"k", value: b"v" }];
        link.request(&Request::Write(Write { xid: None, durable: true, ops })).unwrap()
    };
    assert!(matches!(write(id).answer(), Ok(Answer::Written(at)) if at > Lsn::ZERO));
    let arrived = link.request(&Request::KeyspaceDrop(&dropped.1)).unwrap();
    assert!(matches!(arrived.answer(), Ok(Answer::Written(_))));
    assert_eq!(refusal(write(dropped.0).answer()).0, Kind::Conflict);
    let query = KeyspaceQuery { name: Some(&dropped.1), after: None };
    let arrived = link.request(&Request::Keyspaces(query)).unwrap();
    assert_eq!(arrived.answer(), Ok(Answer::Keyspaces { more: false, list: vec![] }));
}
