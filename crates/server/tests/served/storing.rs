//! The store served: reads, writes, scans, branches, many connections.

use std::io::Write as _;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use assent_ids::{Epoch, Incarnation, TxId};
use assent_kind::Kind;
use assent_wire::{
    Answer, Bound, Condition, Expect, Expected, Look, Op, PAYLOAD_BYTES_MAX, Past, Reply, Request, Role, Rows, Scan,
    Write, WriteIf,
};
use assent_world::{Clock, Moment, RealClock};

use crate::hostile::{hello, raw};
use crate::house::{NODE, Rules, branch, eventually, expect, get, is_yes, put, refusal, store, store_behind, xid};

/// Stands still until somebody moves it; who sleeps by it sleeps.
#[derive(Debug, Default)]
struct Stopped(AtomicU64);

impl Clock for Stopped {
    fn now(&self) -> Moment {
        Moment(self.0.load(Ordering::Relaxed))
    }

    fn wall_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed) / 1000
    }

    fn sleep(&self, pause: Duration) {
        RealClock.sleep(pause);
    }

    fn boot_id(&self) -> u128 {
        1
    }
}

#[test]
fn whoever_reads_does_not_wait_for_a_store_that_is_behind() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Stopped::default());
    let house = store_behind(folder.path(), &Rules { clock: Arc::clone(&clock) as _, ..Rules::default() });
    let (reader, writer) = (house.store_link(), house.store_link());
    let kv = house.kv.as_ref().unwrap();
    let before = kv.stats();
    std::thread::scope(|scope| {
        let written = scope.spawn(|| writer.request(&put(None, b"new", b"v")).unwrap().answer().map(drop));
        eventually("the write is there", || kv.stats().unpublished == 1);
        for _ in 0..100 {
            assert_eq!(get(&reader, b"k"), Some(19_u64.to_le_bytes().to_vec()));
        }
        assert!(!written.is_finished(), "it waits");
        // A vote does not, and takes it along.
        let xid = xid(NODE, tx(1), "a", 0);
        expect(&reader, &Request::Start(xid), &Reply::Done);
        reader.request(&put(Some(xid), b"voted", b"v")).unwrap().answer().unwrap();
        expect(&reader, &Request::End { xid, success: true }, &Reply::Done);
        assert!(is_yes(&reader.request(&Request::Prepare(xid)).unwrap()));
        written.join().unwrap().unwrap();
        // Nor for longer than it must.
        let written = scope.spawn(|| writer.request(&put(None, b"new", b"w")).unwrap().answer().map(drop));
        eventually("the next write is there", || kv.stats().unpublished == 1);
        clock.0.fetch_add(10_000, Ordering::Relaxed);
        written.join().unwrap().unwrap();
    });
    // The first for nothing, by this clock.
    let after = kv.stats();
    assert_eq!((after.delayed - before.delayed, after.delayed_us - before.delayed_us), (2, 10_000));
    assert_eq!(get(&reader, b"new"), Some(b"w".to_vec()));
}

fn tx(counter: u64) -> TxId {
    TxId { incarnation: Incarnation { epoch: Epoch(1), number: 1 }, counter }
}

#[test]
fn a_branch_sees_its_own_writes_and_others_see_them_when_it_has_committed() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let (mine, other) = (house.store_link(), house.store_link());
    let xid = xid(NODE, tx(1), "a", 0);
    expect(&mine, &Request::Start(xid), &Reply::Done);
    let arrived = mine.request(&put(Some(xid), b"k", b"v")).unwrap();
    assert_eq!(arrived.answer().unwrap(), Answer::Written(assent_ids::Lsn::ZERO));
    let arrived = mine.request(&Request::Get { xid: Some(xid), keyspace: 0, key: b"k" }).unwrap();
    assert_eq!(arrived.answer().unwrap(), Answer::Value(Some(b"v")));
    assert_eq!(get(&other, b"k"), None);
    expect(&mine, &Request::End { xid, success: true }, &Reply::Done);
    assert!(is_yes(&mine.request(&Request::Prepare(xid)).unwrap()));
    expect(&other, &Request::Recover(NODE), &Reply::Listed(vec![xid]));
    assert_eq!(get(&other, b"k"), None);
    // Whoever knows the outcome may tell it, over any connection.
    expect(&other, &Request::Commit(xid), &Reply::Done);
    assert_eq!(get(&mine, b"k"), Some(b"v".to_vec()));
    assert!(matches!(branch(&mine.request(&Request::Commit(xid)).unwrap()), Reply::Unknown(_)));
    assert!(matches!(branch(&mine.request(&Request::Forget(xid)).unwrap()), Reply::Unknown(_)));
}

#[test]
fn a_connection_that_ends_takes_its_unprepared_branches_along_and_leaves_the_prepared() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let (open, prepared) = (xid(NODE, tx(1), "a", 0), xid(NODE, tx(2), "a", 0));
    let link = house.store_link();
    for (xid, key) in [(open, b"open"), (prepared, b"prep")] {
        expect(&link, &Request::Start(xid), &Reply::Done);
        link.request(&put(Some(xid), key, b"v")).unwrap().answer().unwrap();
    }
    expect(&link, &Request::End { xid: prepared, success: true }, &Reply::Done);
    assert!(is_yes(&link.request(&Request::Prepare(prepared)).unwrap()));
    assert_eq!(house.stat("kv.branches"), 2);
    link.close("the test says so");
    eventually("the open branch is dropped", || house.stat("kv.branches") == 1);
    let other = house.store_link();
    expect(&other, &Request::Recover(NODE), &Reply::Listed(vec![prepared]));
    expect(&other, &Request::Rollback(prepared), &Reply::Done);
    assert_eq!((get(&other, b"open"), get(&other, b"prep")), (None, None));
}

#[test]
fn thirty_two_connections_pipeline_and_each_gets_its_own_answers() {
    const CONNECTIONS: u32 = 32;
    const EACH: u32 = 50;
    let folder = tempfile::tempdir().unwrap();
    for threads in [1, 3] {
        let path = folder.path().join(threads.to_string());
        std::fs::create_dir(&path).unwrap();
        let house = store(&path, &Rules { threads, ..Rules::default() });
        std::thread::scope(|scope| {
            for number in 0..CONNECTIONS {
                let house = &house;
                scope.spawn(move || {
                    let link = house.store_link();
                    let key = |index: u32| format!("{number}/{index}");
                    let tickets: Vec<_> = (0..EACH)
                        .map(|index| link.lay(&put(None, key(index).as_bytes(), &number.to_le_bytes())).unwrap())
                        .collect();
                    for ticket in tickets {
                        assert!(matches!(link.receive(ticket).unwrap().answer().unwrap(), Answer::Written(_)));
                    }
                    let tickets: Vec<_> = (0..EACH)
                        .map(|index| {
                            let key = key(index);
                            link.lay(&Request::Get { xid: None, keyspace: 0, key: key.as_bytes() }).unwrap()
                        })
                        .collect();
                    for ticket in tickets {
                        let arrived = link.receive(ticket).unwrap();
                        assert_eq!(arrived.answer().unwrap(), Answer::Value(Some(&number.to_le_bytes()[..])));
                    }
                });
            }
        });
        assert_eq!(house.stat("kv.keys"), u64::from(CONNECTIONS * EACH));
        assert_eq!(house.number("assent_requests_total{kind=\"write\"}"), f64::from(CONNECTIONS * EACH));
        assert!(
            house.journal.counts().syncs < u64::from(CONNECTIONS * EACH),
            "writes that wait together share their syncs"
        );
    }
}

#[test]
fn a_scan_is_answered_in_pieces_that_fit_a_message_and_nothing_is_lost_between_them() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let link = house.store_link();
    // 40 rows of 100,000 bytes do not fit one message; 300 small ones behind them do.
    let value = vec![5_u8; 100_000];
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for index in 0..40 {
        keys.push(format!("large-{index:03}").into_bytes());
        link.request(&put(None, keys.last().unwrap(), &value)).unwrap().answer().unwrap();
    }
    for index in 0..300 {
        keys.push(format!("small-{index:03}").into_bytes());
    }
    let ops = keys[40..].iter().map(|key| Op::Put { keyspace: 0, key, value: b"x" }).collect();
    link.request(&Request::Write(Write { xid: None, durable: true, ops })).unwrap().answer().unwrap();
    let branch = xid(NODE, tx(1), "a", 0);
    expect(&link, &Request::Start(branch), &Reply::Done);
    for xid in [None, Some(branch)] {
        let (mut seen, mut pieces) = (Vec::<Vec<u8>>::new(), 0);
        loop {
            let last = seen.last().cloned();
            let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let scan = Scan { xid, keyspace: 0, from, to: Bound::Unbounded, limit: 1000 };
            let arrived = link.request(&Request::Scan(scan)).unwrap();
            let Answer::Pairs { more, pairs } = arrived.answer().unwrap() else { panic!("no pairs") };
            seen.extend(pairs.iter().map(|pair| pair.key.to_vec()));
            pieces += 1;
            if !more {
                break;
            }
            assert!(!pairs.is_empty(), "every piece goes on");
        }
        assert_eq!(seen, keys, "within {xid:?}");
        assert_eq!(pieces, 8, "ten large rows a message, and 64 of any size");
    }
    let rows = [("000", 0, (true, 0)), ("000", 63, (true, 63)), ("000", 64, (true, 64)), ("000", 300, (true, 64))];
    let last = [("236", 63, (true, 63)), ("236", 64, (false, 64)), ("236", 65, (false, 64)), ("298", 300, (false, 2))];
    for (from, limit, expected) in rows.into_iter().chain(last) {
        let from = format!("small-{from}");
        let from = Bound::Included(from.as_bytes());
        let scan = Scan { xid: None, keyspace: 0, from, to: Bound::Unbounded, limit };
        let arrived = link.request(&Request::Scan(scan)).unwrap();
        let Answer::Pairs { more, pairs } = arrived.answer().unwrap() else { panic!("no pairs") };
        assert_eq!((more, pairs.len()), expected, "limit {limit}");
    }
}

#[test]
fn a_connection_reads_as_of_one_moment_until_it_says_otherwise_or_that_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let (reader, writer) = (house.store_link(), house.store_link());
    let written = |key: &[u8], value: &[u8]| {
        let arrived = writer.request(&put(None, key, value)).unwrap();
        let Answer::Written(at) = arrived.answer().unwrap() else { panic!("{arrived:?}") };
        at
    };
    let long = vec![1; 2 << 20];
    house.kv.as_ref().unwrap().put(0, b"long", &long, assent_kv::Durability::Durable).unwrap();
    let at = written(b"k", b"old");
    let as_of = |ms| reader.request(&Request::AsOf(ms)).unwrap();
    assert_eq!(as_of(60_000).answer(), Ok(Answer::Written(at)));
    written(b"k", b"new");
    written(b"later", b"new");
    house.kv.as_ref().unwrap().put(0, b"long", b"short", assent_kv::Durability::Durable).unwrap();
    // Whatever it asks: one key, some, a range; with and without their values.
    let rows = |values| {
        let scan = Scan { xid: None, keyspace: 0, from: Bound::Unbounded, to: Bound::Unbounded, limit: 10 };
        let arrived = reader.request(&Request::Rows(Rows { values, scan })).unwrap();
        let Answer::Rows { more: false, rows } = arrived.answer().unwrap() else { panic!("{arrived:?}") };
        rows.iter().map(|row| (row.key.to_vec(), row.object.value_bytes)).collect::<Vec<_>>()
    };
    let scanned = || {
        let scan = Scan { xid: None, keyspace: 0, from: Bound::Unbounded, to: Bound::Excluded(b"l"), limit: 10 };
        let arrived = reader.request(&Request::Scan(scan)).unwrap();
        let Answer::Pairs { pairs, .. } = arrived.answer().unwrap() else { panic!("{arrived:?}") };
        pairs.iter().map(|found| found.value.to_vec()).collect::<Vec<_>>()
    };
    let looked = |key: &[u8]| {
        let arrived = reader.request(&Request::Look(Look { values: true, keys: vec![(0, key)] })).unwrap();
        let Answer::Objects(found) = arrived.answer().unwrap() else { panic!("{arrived:?}") };
        found[0].as_ref().map(|object| object.value.unwrap().to_vec())
    };
    let before = vec![(b"k".to_vec(), 3), (b"long".to_vec(), 2 << 20)];
    for values in [true, false] {
        assert_eq!(rows(values), before);
    }
    assert_eq!((scanned(), looked(b"k"), looked(b"later")), (vec![b"old".to_vec()], Some(b"old".to_vec()), None));
    assert!((get(&reader, b"k"), get(&reader, b"later")) == (Some(b"old".to_vec()), None));
    assert!(get(&reader, b"long") == Some(long), "also what another thread reads");
    assert_eq!(get(&writer, b"k"), Some(b"new".to_vec()), "others read what is");
    // What it writes it does not see; within a branch it does.
    reader.request(&put(None, b"own", b"v")).unwrap().answer().unwrap();
    assert_eq!(get(&reader, b"own"), None);
    let own = xid(NODE, tx(1), "a", 0);
    expect(&reader, &Request::Start(own), &Reply::Done);
    let within = reader.request(&Request::Get { xid: Some(own), keyspace: 0, key: b"own" }).unwrap();
    assert_eq!(within.answer(), Ok(Answer::Value(Some(b"v"))));
    expect(&reader, &Request::Rollback(own), &Reply::Done);
    // Anew, as of now; and not any more.
    let at = written(b"k", b"newer");
    assert_eq!(as_of(60_000).answer(), Ok(Answer::Written(at)));
    assert_eq!(get(&reader, b"k"), Some(b"newer".to_vec()));
    assert!(matches!(as_of(0).answer(), Ok(Answer::Written(_))));
    written(b"k", b"newest");
    assert_eq!(get(&reader, b"k"), Some(b"newest".to_vec()));
    // Its time is over: it is refused, and not answered with something else.
    as_of(1).answer().unwrap();
    eventually("it is given up", || {
        let arrived = reader.request(&Request::Get { xid: None, keyspace: 0, key: b"k" }).unwrap();
        arrived.answer().is_err_and(|error| error.to_string().contains("its age in milliseconds"))
    });
    assert_eq!(house.stat("kv.leases"), 0);
    as_of(60_000).answer().unwrap();
    assert_eq!((house.stat("kv.leases"), get(&reader, b"k")), (1, Some(b"newest".to_vec())));
    drop(reader);
    eventually("it goes with its connection", || house.stat("kv.leases") == 0);
}

/// A scan over ten million keys that had been deleted kept every client of the desk waiting for seconds.
#[test]
fn a_range_of_many_dead_keys_is_walked_by_no_desk() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let (link, kv) = (house.store_link(), house.kv.as_ref().unwrap());
    let keys: Vec<[u8; 4]> = (0..5000_u32).map(u32::to_be_bytes).collect();
    let write = |op: fn(&[u8; 4]) -> assent_kv::Op<'_>| {
        kv.batch(&keys.iter().map(op).collect::<Vec<_>>(), assent_kv::Durability::Durable).unwrap();
    };
    write(|key| assent_kv::Op::put(0, key, b"v"));
    write(|key| assent_kv::Op::delete(0, key));
    kv.put(0, b"z", b"last", assent_kv::Durability::Durable).unwrap();
    let branch = xid(NODE, tx(1), "a", 0);
    expect(&link, &Request::Start(branch), &Reply::Done);
    let range = |xid, from| Scan { xid, keyspace: 0, from, to: Bound::Unbounded, limit: 5 };
    let few = keys[1000];
    for (from, walks) in [(Bound::Included(&few[..]), 0), (Bound::Unbounded, 1)] {
        let walked = house.count("assent_kv_long_walks_total");
        for xid in [None, Some(branch)] {
            let arrived = link.request(&Request::Scan(range(xid, from))).unwrap();
            let Answer::Pairs { more: false, pairs } = arrived.answer().unwrap() else { panic!("no pairs") };
            assert_eq!(
                pairs.iter().map(|pair| (pair.key, pair.value)).collect::<Vec<_>>(),
                [(&b"z"[..], &b"last"[..])]
            );
        }
        let rows = Rows { scan: range(None, from), values: true };
        let arrived = link.request(&Request::Rows(rows)).unwrap();
        let Answer::Rows { more: false, rows } = arrived.answer().unwrap() else { panic!("no rows") };
        assert_eq!(rows.iter().map(|row| row.key).collect::<Vec<_>>(), [b"z"]);
        assert_eq!(house.count("assent_kv_long_walks_total") - walked, 2 * walks, "not within a branch");
    }
}

/// Each is a whole read of the store, one behind the other, and whoever asks next waits for all of them.
#[test]
fn work_on_all_of_the_store_ends_with_whoever_asked_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let keys: Vec<[u8; 4]> = (0..5_000_u32).map(u32::to_be_bytes).collect();
    let ops: Vec<_> = keys.iter().map(|key| assent_kv::Op::put(0, key, &[7; 1_000])).collect();
    house.kv.as_ref().unwrap().batch(&ops, assent_kv::Durability::Durable).unwrap();
    let mut bytes = hello(Role::Store { label: "gone" });
    (2..22).for_each(|mark| Request::StoreVerify.lay(&mut bytes, mark, PAYLOAD_BYTES_MAX).unwrap());
    let mut stream = raw(&house);
    stream.write_all(&bytes).unwrap();
    // A process that was killed says no more than that: there is nothing on its way to it that would come back.
    stream.shutdown(Shutdown::Write).unwrap();
    eventually("one is given up", || house.number("assent_refused_total{kind=\"closed\"}") > 0.0);
    let arrived = house.store_link().request(&Request::StoreVerify).unwrap();
    let Answer::Checked(checked) = arrived.answer().unwrap() else { panic!("not checked") };
    assert_eq!((checked.values, checked.damaged), (5_000, 0));
}

#[test]
fn a_value_that_does_not_fit_a_scan_is_refused_with_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    house.kv.as_ref().unwrap().put(0, b"large", &vec![1; 2 << 20], assent_kv::Durability::Durable).unwrap();
    let link = house.store_link();
    let scan = Scan { xid: None, keyspace: 0, from: Bound::Unbounded, to: Bound::Unbounded, limit: 5 };
    let arrived = link.request(&Request::Scan(scan)).unwrap();
    let (kind, message) = refusal(arrived.answer());
    assert_eq!((kind, message.contains("1048576")), (Kind::Invalid, true), "{message}");
    assert_eq!(get(&link, b"small"), None, "the connection is well");
}

#[test]
fn each_role_may_do_its_own_and_absent_engines_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let admin = house.link(Role::Admin);
    let (kind, message) = refusal(admin.request(&Request::Get { xid: None, keyspace: 0, key: b"k" }).unwrap().answer());
    assert_eq!(kind, Kind::Denied);
    assert!(message.contains("admin") && message.contains("get"), "{message}");
    let (kind, message) = refusal(admin.request(&Request::TxList { after: None, limit: 5 }).unwrap().answer());
    assert_eq!(kind, Kind::NotFound, "{message}");
    assert_eq!(refusal(admin.request(&Request::TxRecover).unwrap().answer()).0, Kind::NotFound);
    let arrived = house.store_link().request(&Request::Stats).unwrap();
    let Answer::Stats(gauges) = arrived.answer().unwrap() else { panic!("no stats") };
    assert!(gauges.iter().all(|(name, _)| name.starts_with("kv.")) && !gauges.is_empty(), "the store's: {gauges:?}");
    let (kind, message) = refusal(house.store_link().request(&Request::TxRecover).unwrap().answer());
    assert_eq!((kind, message.contains("store")), (Kind::Denied, true), "{message}");
    assert!(matches!(admin.request(&Request::Ping).unwrap().answer().unwrap(), Answer::Pong));
    let client = house.try_link(Role::Client { label: "c", resume: None, resources: vec![] });
    let (kind, message) = refusal(client);
    assert_eq!(kind, Kind::NotFound);
    assert!(message.contains("coordinator"), "{message}");
}

#[test]
fn what_became_of_a_branch_is_told_to_whoever_has_the_witness_and_one_connection_resolves() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let (agent, other) = (house.store_link(), house.store_link());
    let mut witnesses = Vec::new();
    for counter in 1..=2 {
        let xid = xid(NODE, tx(counter), "a", 0);
        expect(&other, &Request::Start(xid), &Reply::Done);
        other.request(&put(Some(xid), &counter.to_le_bytes(), b"v")).unwrap().answer().unwrap();
        expect(&other, &Request::End { xid, success: true }, &Reply::Done);
        let arrived = other.request(&Request::Prepare(xid)).unwrap();
        let Reply::Yes(witness) = branch(&arrived) else { panic!("{arrived:?}") };
        witnesses.push(witness.to_vec());
    }
    let ask = |counter: u64, witness: &[u8], past: Past<'_>| {
        let xid = xid(NODE, tx(counter), "a", 0);
        expect(&agent, &Request::Inquire { xid, witness }, &Reply::Past(past));
    };
    expect(&agent, &Request::Claim(NODE), &Reply::Done);
    let refused = other.request(&Request::Claim(NODE)).unwrap();
    assert!(matches!(branch(&refused), Reply::Refused(Kind::Conflict, _)), "{refused:?}");
    ask(1, &witnesses[0], Past::Open);
    expect(&agent, &Request::Commit(xid(NODE, tx(1), "a", 0)), &Reply::Done);
    expect(&agent, &Request::Rollback(xid(NODE, tx(2), "a", 0)), &Reply::Done);
    ask(1, &witnesses[0], Past::Committed);
    ask(2, &witnesses[1], Past::RolledBack);
    ask(1, &[], Past::Committed);
    let arrived = agent.request(&Request::Inquire { xid: xid(NODE, tx(3), "a", 0), witness: &[] }).unwrap();
    assert!(matches!(branch(&arrived), Reply::Past(Past::Elsewhere(_))), "{arrived:?}");
    let arrived = agent.request(&Request::Inquire { xid: xid(NODE, tx(1), "a", 0), witness: b"pg" }).unwrap();
    assert!(matches!(branch(&arrived), Reply::Past(Past::Elsewhere(_))), "{arrived:?}");
    agent.close("the claim goes with it");
    eventually("the claim is free", || matches!(branch(&other.request(&Request::Claim(NODE)).unwrap()), Reply::Done));
}

#[test]
fn conditions_of_a_branch_are_judged_by_its_vote() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let link = house.store_link();
    link.request(&put(None, b"there", b"v")).unwrap().answer().unwrap();
    let table = [
        (Expect::Present, Expect::Absent, true),
        (Expect::Absent, Expect::Absent, false),
        (Expect::Present, Expect::Present, false),
        (Expect::At(assent_ids::Lsn(1)), Expect::Absent, false),
    ];
    for (counter, (there, missing, holds)) in (1..).zip(table) {
        let xid = xid(NODE, tx(counter), "a", 0);
        let expected = Request::Expect(Expected {
            xid,
            conditions: vec![
                Condition { keyspace: 0, key: b"there", expects: there },
                Condition { keyspace: 0, key: b"missing", expects: missing },
            ],
        });
        let early = refusal(link.request(&expected).unwrap().answer());
        assert_eq!(early.0, Kind::NotFound, "no such branch yet");
        expect(&link, &Request::Start(xid), &Reply::Done);
        assert_eq!(link.request(&expected).unwrap().answer().unwrap(), Answer::Written(assent_ids::Lsn::ZERO));
        link.request(&put(Some(xid), b"written", b"v")).unwrap().answer().unwrap();
        expect(&link, &Request::End { xid, success: true }, &Reply::Done);
        let arrived = link.request(&Request::Prepare(xid)).unwrap();
        if holds {
            assert!(is_yes(&arrived));
            expect(&link, &Request::Rollback(xid), &Reply::Done);
        } else {
            let Reply::RolledBack(native) = branch(&arrived) else { panic!("{arrived:?}") };
            assert!(native.message.contains("was expected"), "{}", native.message);
        }
    }
    assert_eq!(house.stat("kv.branches"), 0);
}

#[test]
fn a_patient_connection_waits_for_a_held_key_while_the_desk_serves_everybody() {
    let folder = tempfile::tempdir().unwrap();
    for threads in [1, 2] {
        let path = folder.path().join(threads.to_string());
        std::fs::create_dir(&path).unwrap();
        let house = store(&path, &Rules { threads, ..Rules::default() });
        let held = xid(NODE, tx(1), "a", 0);
        let hold = |xid, key| {
            let link = house.store_link();
            expect(&link, &Request::Start(xid), &Reply::Done);
            link.request(&put(Some(xid), key, b"held")).unwrap().answer().unwrap();
            expect(&link, &Request::End { xid, success: true }, &Reply::Done);
            assert!(is_yes(&link.request(&Request::Prepare(xid)).unwrap()));
            link
        };
        let holder = hold(held, b"k");
        let (plain, voter, other) = (house.store_link(), house.store_link(), house.store_link());
        for link in [&plain, &voter] {
            assert_eq!(link.request(&Request::Patience(60_000)).unwrap().answer().unwrap(), Answer::Pong);
        }
        // At once without patience, naming the key.
        let (kind, message) = refusal(other.request(&put(None, b"k", b"v")).unwrap().answer());
        assert!(kind == Kind::Conflict && message.contains("\"k\""), "{message}");
        // One after the other: each connection may have a desk of its own, and who comes behind the vote waits for its outcome.
        let waits = |many| eventually("so many wait", || house.stat("kv.waiting") == many);
        let written = plain.send(&put(None, b"k", b"plain")).unwrap();
        waits(1);
        let condition = Condition { keyspace: 0, key: b"k", expects: Expect::Absent };
        let ops = vec![Op::Put { keyspace: 0, key: b"other", value: b"v" }];
        let unmet = plain.send(&Request::WriteIf(WriteIf { durable: true, conditions: vec![condition], ops })).unwrap();
        waits(2);
        let mine = xid(NODE, tx(2), "a", 0);
        expect(&voter, &Request::Start(mine), &Reply::Done);
        voter.request(&put(Some(mine), b"k", b"mine")).unwrap().answer().unwrap();
        expect(&voter, &Request::End { xid: mine, success: true }, &Reply::Done);
        let voted = voter.send(&Request::Prepare(mine)).unwrap();
        waits(3);
        for _ in 0..50 {
            assert_eq!(get(&other, b"k"), None);
            other.request(&put(None, b"elsewhere", b"v")).unwrap().answer().unwrap();
        }
        assert_eq!(get(&plain, b"k"), None, "nor does the connection itself stand still");
        // Freed by a thread that is no desk.
        let kv = house.kv.as_ref().unwrap();
        kv.wait(kv.commit_begin(&held).unwrap()).unwrap();
        assert!(matches!(plain.receive(written).unwrap().answer().unwrap(), Answer::Written(_)));
        assert_eq!(refusal(plain.receive(unmet).unwrap().answer()).0, Kind::Conflict);
        assert!(is_yes(&voter.receive(voted).unwrap()));
        expect(&holder, &Request::Commit(mine), &Reply::Done);
        assert_eq!((get(&other, b"k"), house.stat("kv.waiting")), (Some(b"mine".to_vec()), 0));
    }
}

#[test]
fn whoever_came_behind_a_vote_waits_for_its_outcome_and_is_woken_by_it() {
    let folder = tempfile::tempdir().unwrap();
    for threads in [1, 2] {
        let path = folder.path().join(threads.to_string());
        std::fs::create_dir(&path).unwrap();
        let house = store(&path, &Rules { threads, ..Rules::default() });
        let waits = |many| eventually("so many wait", || house.stat("kv.waiting") == many);
        let (first, second) = (xid(NODE, tx(1), "a", 0), xid(NODE, tx(2), "a", 0));
        let (holder, voter, plain) = (house.store_link(), house.store_link(), house.store_link());
        for (link, xid) in [(&holder, first), (&voter, second)] {
            expect(link, &Request::Start(xid), &Reply::Done);
            link.request(&put(Some(xid), b"k", b"held")).unwrap().answer().unwrap();
            expect(link, &Request::End { xid, success: true }, &Reply::Done);
        }
        assert!(is_yes(&holder.request(&Request::Prepare(first)).unwrap()));
        for link in [&voter, &plain] {
            assert_eq!(link.request(&Request::Patience(60_000)).unwrap().answer().unwrap(), Answer::Pong);
        }
        let voted = voter.send(&Request::Prepare(second)).unwrap();
        waits(1);
        let written = plain.send(&put(None, b"k", b"plain")).unwrap();
        waits(2);
        expect(&holder, &Request::Commit(first), &Reply::Done);
        assert!(is_yes(&voter.receive(voted).unwrap()));
        assert_eq!((house.stat("kv.waiting"), get(&holder, b"k")), (1, Some(b"held".to_vec())));
        expect(&holder, &Request::Commit(second), &Reply::Done);
        plain.receive(written).unwrap().answer().unwrap();
        assert_eq!((house.stat("kv.waiting"), get(&holder, b"k")), (0, Some(b"plain".to_vec())));
    }
}

#[test]
fn patience_ends_with_its_time_with_its_connection_and_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let held = xid(NODE, tx(1), "a", 0);
    let holder = house.store_link();
    expect(&holder, &Request::Start(held), &Reply::Done);
    holder.request(&put(Some(held), b"k", b"held")).unwrap().answer().unwrap();
    expect(&holder, &Request::End { xid: held, success: true }, &Reply::Done);
    assert!(is_yes(&holder.request(&Request::Prepare(held)).unwrap()));
    let patient = |ms| {
        let link = house.store_link();
        link.request(&Request::Patience(ms)).unwrap().answer().unwrap();
        link
    };
    let short = patient(30);
    let (kind, message) = refusal(short.request(&put(None, b"k", b"v")).unwrap().answer());
    assert!(kind == Kind::Conflict && message.contains("\"k\"") && message.contains(&held.to_string()), "{message}");
    let own = xid(NODE, tx(2), "a", 0);
    expect(&short, &Request::Start(own), &Reply::Done);
    short.request(&put(Some(own), b"k", b"v")).unwrap().answer().unwrap();
    expect(&short, &Request::End { xid: own, success: true }, &Reply::Done);
    let arrived = short.request(&Request::Prepare(own)).unwrap();
    assert!(matches!(branch(&arrived), Reply::RolledBack(_)), "{arrived:?}");
    let gone = patient(600_000);
    let _unheard = gone.send(&put(None, b"k", b"v")).unwrap();
    eventually("it waits", || house.stat("kv.waiting") == 1);
    gone.close("the test says so");
    eventually("its place is left", || house.stat("kv.waiting") == 0);
    let last = patient(600_000);
    let asked = last.send(&put(None, b"k", b"v")).unwrap();
    eventually("it waits", || house.stat("kv.waiting") == 1);
    house.server.stop(Duration::from_secs(5));
    assert_eq!(refusal(last.receive(asked).unwrap().answer()).0, Kind::Conflict);
}
