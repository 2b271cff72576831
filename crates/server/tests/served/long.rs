//! Messages longer than a frame: whole or refused, within a budget that all connections share.

use std::io::Write as _;

use assent_door::Limits;
use assent_ids::{Epoch, Incarnation, Lsn, TxId};
use assent_kind::Kind;
use assent_link::{Link, LinkConfig, LinkError};
use assent_wire::{
    Answer, Bound, Decoder, Hello, Look, Object, Op, PAYLOAD_BYTES_MAX, Reply, Request, Role, Rows, Scan, Versions,
    WireError, Write,
};

use crate::hostile::{hello, raw};
use crate::house::{House, NODE, Rules, eventually, expect, get, put, refusal, store, xid};

fn value(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| seed ^ u8::try_from(at % 251).unwrap() ^ u8::try_from(at / 251 % 256).unwrap()).collect()
}

/// A link with time for long messages on a loaded machine.
fn patient(house: &House) -> Link {
    let config = LinkConfig { connect_ms: 10_000, answer_ms: 300_000, ..LinkConfig::default() };
    Link::connect(house.address(), &Hello::new(Role::Store { label: "long" }), &config).unwrap()
}

fn written(link: &Link, request: &Request<'_>) -> Lsn {
    let arrived = link.request(request).unwrap();
    let Answer::Written(lsn) = arrived.answer().unwrap() else { panic!("not written: {arrived:?}") };
    lsn
}

#[test]
fn values_around_a_frame_travel_and_others_are_answered_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let link = patient(&house);
    let incarnation = Incarnation { epoch: Epoch(1), number: 1 };
    for bytes in [PAYLOAD_BYTES_MAX - 40, PAYLOAD_BYTES_MAX - 5, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX + 1, 5 << 20] {
        let sent = value(bytes, 3);
        written(&link, &put(None, b"key", &sent));
        assert!(get(&link, b"key") == Some(sent.clone()), "{bytes} bytes");
        // A branch sees it as of its first read, whatever comes since, and its own write at once.
        let branch = xid(NODE, TxId { incarnation, counter: bytes as u64 }, "a", 0);
        expect(&link, &Request::Start(branch), &Reply::Done);
        let seen = || {
            let arrived = link.request(&Request::Get { xid: Some(branch), keyspace: 0, key: b"key" }).unwrap();
            let Answer::Value(found) = arrived.answer().unwrap() else { panic!("no value") };
            found.map(<[u8]>::to_vec)
        };
        assert!(seen().as_ref() == Some(&sent));
        let newer = value(bytes, 4);
        written(&link, &put(None, b"key", &newer));
        assert!(seen().as_ref() == Some(&sent));
        written(&link, &put(None, b"key", &sent));
        let own = value(bytes, 5);
        let arrived = link.request(&put(Some(branch), b"key", &own)).unwrap();
        assert!(!matches!(arrived.answer().unwrap(), Answer::Error { .. }));
        assert!(seen() == Some(own));
        expect(&link, &Request::Rollback(branch), &Reply::Done);
    }
    // What was asked later may be answered before the long one has left.
    let long = link.send(&Request::Get { xid: None, keyspace: 0, key: b"key" }).unwrap();
    let pings: Vec<_> = (0..10).map(|_| link.send(&Request::Ping).unwrap()).collect();
    for ping in pings {
        assert_eq!(link.receive(ping).unwrap().answer(), Ok(Answer::Pong));
    }
    let arrived = link.receive(long).unwrap();
    assert!(matches!(arrived.answer().unwrap(), Answer::Value(Some(found)) if found == value(5 << 20, 3)));
    eventually("its room is given back", || house.stat("server.long_bytes") == 0);
}

#[test]
fn the_longest_value_travels_and_one_byte_more_is_refused_with_the_limit() {
    const MOST: usize = 256 << 20;
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let link = patient(&house);
    let mut sent = value(MOST, 9);
    written(&link, &put(None, b"longest", &sent));
    let arrived = link.request(&Request::Get { xid: None, keyspace: 0, key: b"longest" }).unwrap();
    assert!(matches!(arrived.answer().unwrap(), Answer::Value(Some(found)) if found == sent));
    drop(arrived);
    sent.push(0);
    let (kind, message) = refusal(link.request(&put(None, b"longer", &sent)).unwrap().answer());
    assert_eq!((kind, message.contains("268435456")), (Kind::Invalid, true), "{message}");
    assert_eq!(get(&link, b"longer"), None, "the connection is well");
}

#[test]
fn what_does_not_fit_the_budget_is_refused_and_its_parts_are_counted_away() {
    let limits = Limits { long_bytes_max: 4 << 20, ..Limits::default() };
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::limited(limits));
    let link = patient(&house);
    // The link knows the limit from the handshake.
    let error = link.send(&put(None, b"k", &value(4 << 20, 1))).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    // Somebody sends the first part of three mebibytes, and no more.
    let mut begun = Vec::new();
    put(None, b"k", &value(3 << 20, 1)).lay_long(&mut begun, 2, PAYLOAD_BYTES_MAX, 4 << 20).unwrap();
    let mut stream = raw(&house);
    stream.write_all(&hello(Role::Store { label: "half" })).unwrap();
    stream.write_all(&begun[..2 << 20]).unwrap();
    eventually("its room is taken", || house.stat("server.long_bytes") > 3 << 20);
    let (kind, message) = refusal(link.request(&put(None, b"k", &value(2 << 20, 1))).unwrap().answer());
    assert_eq!((kind, message.contains("long_bytes_max = 4194304")), (Kind::Busy, true), "{message}");
    assert_eq!(get(&link, b"k"), None, "the connection is well, and nothing was written");
    // Reading finds no room either.
    house.kv.as_ref().unwrap().put(0, b"there", &value(2 << 20, 5), assent_kv::Durability::Durable).unwrap();
    let read = link.request(&Request::Get { xid: None, keyspace: 0, key: b"there" }).unwrap();
    assert_eq!(refusal(read.answer()).0, Kind::Busy);
    drop(stream);
    eventually("its room is back", || house.stat("server.long_bytes") == 0);
    written(&link, &put(None, b"k", &value(2 << 20, 1)));
    assert!(get(&link, b"k") == Some(value(2 << 20, 1)));
    assert!(get(&link, b"there") == Some(value(2 << 20, 5)));
}

#[test]
fn a_message_that_does_not_come_to_its_end_is_given_up() {
    let limits = Limits { partial_frame_ms: 1_000, ..Limits::default() };
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::limited(limits));
    let mut begun = Vec::new();
    put(None, b"k", &value(300, 1)).lay_long(&mut begun, 2, 64, 4096).unwrap();
    let mut stream = raw(&house);
    stream.write_all(&hello(Role::Store { label: "half" })).unwrap();
    // Two whole parts: no frame is left begun.
    stream.write_all(&begun[..2 * assent_frame::laid_bytes(64)]).unwrap();
    eventually("the connection is closed", || house.count("assent_connections_overdue_total") == 1);
    eventually("its room is back", || house.stat("server.long_bytes") == 0);
}

/// He says nothing more, and still reads: what another thread answers comes too, and then the connection ends.
#[test]
fn who_ends_his_own_direction_still_gets_what_takes_long() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    house.kv.as_ref().unwrap().put(0, b"long", &value(3 << 20, 5), assent_kv::Durability::Durable).unwrap();
    let mut ask = hello(Role::Store { label: "half" });
    for mark in 2..12 {
        Request::Get { xid: None, keyspace: 0, key: b"long" }.lay(&mut ask, mark, PAYLOAD_BYTES_MAX).unwrap();
    }
    let mut stream = raw(&house);
    stream.write_all(&ask).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut all = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut all).unwrap();
    assert!(all.len() > 10 * (3 << 20), "{} bytes", all.len());
    // And one who is gone before he is answered leaves nothing behind.
    let mut stream = raw(&house);
    stream.write_all(&ask).unwrap();
    drop(stream);
    eventually("his connection is gone", || house.number("assent_connections") == 0.0);
    eventually("and what he had of the room", || house.stat("server.long_bytes") == 0);
}

/// Two connections that said something else now and then, or took a byte of their answers, had all the room for long messages for ever.
#[test]
fn who_keeps_the_room_of_a_long_message_has_to_use_it() {
    let limits = Limits { partial_frame_ms: 1_500, ..Limits::default() };
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::limited(limits));
    // He announces a long one, and pings.
    let mut begun = Vec::new();
    put(None, b"k", &value(30_000, 1)).lay_long(&mut begun, 2, 64, 1 << 20).unwrap();
    let mut ping = Vec::new();
    Request::Ping.lay(&mut ping, 3, PAYLOAD_BYTES_MAX).unwrap();
    let mut stream = raw(&house);
    stream
        .write_all(&[hello(Role::Store { label: "half" }), begun[..assent_frame::laid_bytes(64)].to_vec()].concat())
        .unwrap();
    eventually("it pings, and is cut off", || {
        _ = stream.write_all(&ping);
        house.count("assent_connections_overdue_total") == 1
    });
    eventually("its room is back", || house.stat("server.long_bytes") == 0);
    // Another one asks for a long one, and takes a little of it each time.
    house.kv.as_ref().unwrap().put(0, b"long", &value(64 << 20, 5), assent_kv::Durability::Durable).unwrap();
    let mut ask = hello(Role::Store { label: "slow" });
    Request::Get { xid: None, keyspace: 0, key: b"long" }.lay(&mut ask, 2, PAYLOAD_BYTES_MAX).unwrap();
    let mut stream = raw(&house);
    stream.write_all(&ask).unwrap();
    let mut little = [0; 64];
    eventually("it reads, and is cut off", || {
        _ = std::io::Read::read(&mut stream, &mut little);
        house.count("assent_connections_overdue_total") == 2
    });
    eventually("its room is back", || house.stat("server.long_bytes") == 0);
    // Who sends and takes as fast as it goes is not.
    let link = patient(&house);
    written(&link, &put(None, b"k", &value(8 << 20, 1)));
    assert!(get(&link, b"k") == Some(value(8 << 20, 1)) && get(&link, b"long") == Some(value(64 << 20, 5)));
}

#[test]
fn parts_that_are_no_message_end_the_connection_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let neighbour = house.store_link();
    let mut laid = Vec::new();
    put(None, b"k", &value(300, 1)).lay_long(&mut laid, 2, 64, 4096).unwrap();
    let part = assent_frame::laid_bytes(64);
    // The second one missing; and a last one where a first one should be.
    for wrong in [[&laid[..part], &laid[2 * part..]].concat(), laid[laid.len() - part..].to_vec()] {
        let mut stream = raw(&house);
        stream.write_all(&[hello(Role::Store { label: "x" }), wrong].concat()).unwrap();
        let mut decoder = Decoder::new(PAYLOAD_BYTES_MAX);
        let mut said = Vec::new();
        loop {
            let read = std::io::Read::read(&mut stream, decoder.space()).unwrap_or(0);
            if read == 0 {
                break;
            }
            decoder.filled(read);
            while let Some(frame) = decoder.frame().unwrap() {
                if let Ok(Answer::Error { kind, message }) = Answer::parse(&frame) {
                    said.push((kind, message.to_owned()));
                }
            }
        }
        assert!(matches!(&said[..], [(Kind::Invalid, message)] if message.contains("long message")), "{said:?}");
    }
    assert_eq!(get(&neighbour, b"k"), None);
    eventually("its room is back", || house.stat("server.long_bytes") == 0);
}

#[test]
fn a_program_of_version_1_goes_on_as_before_and_is_told_what_needs_version_2() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let old = Hello { versions: Versions { min: 1, max: 1 }, ..Hello::new(Role::Store { label: "old" }) };
    let link = Link::connect(house.address(), &old, &LinkConfig::default()).unwrap();
    assert_eq!((link.welcome().version, link.welcome().limits.message_bytes_max), (1, 1 << 20));
    written(&link, &put(None, b"k", b"v"));
    assert_eq!(get(&link, b"k"), Some(b"v".to_vec()));
    // Its own side says it before anything is sent.
    let look = Request::Look(Look { values: true, keys: vec![(0, b"k")] });
    let expected = WireError::Since { since: 2, version: 1 };
    assert_eq!(link.send(&look), Err(LinkError::Wire(expected.clone())));
    let set = Op::Set { keyspace: 0, key: b"k", metadata: b"", expiry_ms: 5, value: b"v" };
    assert_eq!(
        link.send(&Request::Write(Write { xid: None, durable: true, ops: vec![set] })),
        Err(LinkError::Wire(expected.clone()))
    );
    assert!(matches!(
        link.send(&put(None, b"k", &value(2 << 20, 0))),
        Err(LinkError::Wire(WireError::TooLarge { .. }))
    ));
    // And so does the server, to whoever sends it all the same.
    let mut bytes = Vec::new();
    old.lay(&mut bytes, 1).unwrap();
    look.lay(&mut bytes, 2, PAYLOAD_BYTES_MAX).unwrap();
    let mut stream = raw(&house);
    stream.write_all(&bytes).unwrap();
    let mut decoder = Decoder::new(PAYLOAD_BYTES_MAX);
    let said = loop {
        let read = std::io::Read::read(&mut stream, decoder.space()).unwrap();
        assert!(read > 0, "closed");
        decoder.filled(read);
        let mut said = None;
        while let Some(frame) = decoder.frame().unwrap() {
            if let Ok(Answer::Error { message, .. }) = Answer::parse(&frame) {
                said = Some(message.to_owned());
            }
        }
        if let Some(said) = said {
            break said;
        }
    };
    assert_eq!(said, expected.to_string());
    // A value that does not fit a frame is refused with the limit, as ever.
    house.kv.as_ref().unwrap().put(0, b"large", &value(2 << 20, 7), assent_kv::Durability::Durable).unwrap();
    let (kind, message) =
        refusal(link.request(&Request::Get { xid: None, keyspace: 0, key: b"large" }).unwrap().answer());
    assert_eq!((kind, message.contains("1048576")), (Kind::Invalid, true), "{message}");
}

fn set(link: &Link, key: &[u8], metadata: &[u8], expiry_ms: u64, value: &[u8]) -> Lsn {
    let ops = vec![Op::Set { keyspace: 4, key, metadata, expiry_ms, value }];
    written(link, &Request::Write(Write { xid: None, durable: true, ops }))
}

#[test]
fn heads_and_values_of_many_keys_are_of_one_answer_and_a_value_that_does_not_fit_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let link = patient(&house);
    let (far, large) = (32_503_680_000_000, value(2 << 20, 1));
    let first = set(&link, b"a", b"meta", far, b"one");
    let second = set(&link, b"large", b"", 0, &large);
    let keys: Vec<(u32, &[u8])> = vec![(4, b"none"), (4, b"a"), (4, b"large"), (0, b"a")];
    for values in [false, true] {
        let arrived = link.request(&Request::Look(Look { values, keys: keys.clone() })).unwrap();
        let Answer::Objects(found) = arrived.answer().unwrap() else { panic!("no objects") };
        let [None, Some(a), Some(big), None] = found[..] else { panic!("{found:?}") };
        let hash = assent_kv_hash(b"one");
        let expected = Object {
            lsn: first,
            modified_ms: a.modified_ms,
            expiry_ms: far,
            hash,
            value_bytes: 3,
            metadata: b"meta",
            value: values.then_some(b"one"),
        };
        assert_eq!(a, expected);
        assert!(a.modified_ms > 1_600_000_000_000, "a time of this century: {}", a.modified_ms);
        assert_eq!((big.lsn, big.value_bytes, big.expiry_ms, big.value), (second, 2 << 20, 0, None));
    }
    // More than fit one message: the first ones, and the others when they are asked for.
    let names: Vec<Vec<u8>> = (0..30_u8).map(|name| vec![b'm', name]).collect();
    names.iter().for_each(|name| _ = set(&link, name, b"", 0, &value(100_000, name[1])));
    let (mut seen, mut answers) = (0, 0);
    while seen < names.len() {
        let keys = names[seen..].iter().map(|name| (4, name.as_slice())).collect();
        let arrived = link.request(&Request::Look(Look { values: true, keys })).unwrap();
        let Answer::Objects(found) = arrived.answer().unwrap() else { panic!("no objects") };
        for object in &found {
            let expected = value(100_000, names[seen][1]);
            assert!(object.unwrap().value == Some(&expected[..]));
            seen += 1;
        }
        assert!(!found.is_empty());
        answers += 1;
    }
    assert!(answers < 4, "{answers}");
    // An erase of them all is one write.
    let ops = vec![Op::Erase { keyspace: 4, from: b"m", to: Some(b"n") }];
    written(&link, &Request::Write(Write { xid: None, durable: true, ops }));
    let keys = vec![(4, names[0].as_slice()), (4, b"a")];
    let arrived = link.request(&Request::Look(Look { values: false, keys })).unwrap();
    assert!(matches!(arrived.answer().unwrap(), Answer::Objects(found) if found[0].is_none() && found[1].is_some()));
}

/// XXH3-64 as the store says it, from a store of its own.
fn assent_kv_hash(value: &[u8]) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let kv = house.kv.as_ref().unwrap();
    kv.put(0, b"k", value, assent_kv::Durability::Buffered).unwrap();
    kv.head(0, b"k").unwrap().unwrap().hash
}

#[test]
fn rows_of_a_range_come_in_pieces_with_what_is_known_of_each_and_none_is_lost_between_them() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let link = patient(&house);
    let mut expected = Vec::new();
    for number in 0..200_usize {
        // Some do not fit any row, some fit only alone.
        let bytes = match number % 50 {
            7 => 2 << 20,
            8 => PAYLOAD_BYTES_MAX - 200,
            _ => 3_000,
        };
        let key = format!("key-{number:04}").into_bytes();
        let lsn = set(&link, &key, &key[4..], 0, &value(bytes, 1));
        expected.push((key, lsn, bytes));
    }
    for values in [false, true] {
        let (mut seen, mut pieces) = (Vec::new(), 0);
        loop {
            let last = seen.last().map(|(key, ..): &(Vec<u8>, Lsn, usize)| key.clone());
            let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let scan = Scan { xid: None, keyspace: 4, from, to: Bound::Excluded(b"key-0190"), limit: 1000 };
            let arrived = link.request(&Request::Rows(Rows { values, scan })).unwrap();
            let Answer::Rows { more, rows } = arrived.answer().unwrap() else { panic!("no rows") };
            for row in &rows {
                let bytes = usize::try_from(row.object.value_bytes).unwrap();
                assert_eq!(row.object.metadata, &row.key[4..]);
                match row.object.value {
                    Some(found) => assert!(values && found == value(bytes, 1)),
                    None => assert!(!values || bytes > PAYLOAD_BYTES_MAX, "{bytes} bytes were left out"),
                }
                seen.push((row.key.to_vec(), row.object.lsn, bytes));
            }
            pieces += 1;
            if !more {
                break;
            }
            assert!(!rows.is_empty(), "every piece goes on");
        }
        assert!(seen == expected[..190], "values: {values}");
        assert_eq!(pieces > 4, values, "{pieces}");
    }
    let scan = |limit| Scan { xid: None, keyspace: 4, from: Bound::Unbounded, to: Bound::Unbounded, limit };
    for (limit, count) in [(0, (true, 0)), (5, (true, 5)), (200, (false, 200))] {
        let arrived = link.request(&Request::Rows(Rows { values: false, scan: scan(limit) })).unwrap();
        let Answer::Rows { more, rows } = arrived.answer().unwrap() else { panic!("no rows") };
        assert_eq!((more, rows.len()), count, "limit {limit}");
    }
}
