//! The commit counted: rooms, crossings, syncs, messages. Counts gate, times do not.

use std::fmt::Write as _;

use assent_client::{Client, Remote};
use assent_ids::Lsn;
use assent_journal::Log;
use assent_wire::{Answer, Outcome, Request, Role};

use crate::house::{House, Rules, Street, eventually, street};

const GOLDEN: &str = include_str!("../golden/walk.txt");
/// A client beats ten times a second.
const WALKS_MAX: usize = 1_000;

/// Counters of an application and of the houses it speaks to.
#[derive(Clone, Copy)]
struct Counted {
    round_trips: u64,
    one_way: u64,
    heartbeats: u64,
    store_requests: u64,
    store_writes: u64,
    coordinator_syncs: u64,
    store_syncs: u64,
    records: u64,
    turns: u64,
    crossings: u64,
}

fn count(street: &Street, client: &Client, remotes: &[Remote; 2]) -> Counted {
    let (sent, journal) = (client.counts(), street.coordinator.journal.counts());
    let links = remotes.iter().filter_map(Remote::counts);
    let stores = [&street.a, &street.b];
    let all = || [&street.coordinator, &street.a, &street.b].into_iter();
    Counted {
        round_trips: sent.round_trips,
        one_way: sent.one_way,
        heartbeats: sent.heartbeats,
        store_requests: links.clone().map(|link| link.requests).sum(),
        store_writes: links.map(|link| link.writes).sum(),
        coordinator_syncs: journal.syncs,
        store_syncs: stores.iter().map(|house| house.journal.counts().syncs).sum(),
        records: records(&street.coordinator),
        turns: all().map(|house| house.count("assent_sync_group_count")).sum(),
        crossings: all().map(|house| house.count("assent_thread_crossings_total")).sum(),
    }
}

/// What stands in the coordinator's log on behalf of transactions: not what the upkeep lays when its time has come, a seal
/// each second, and what is forgotten where no decision came by to carry it.
fn records(coordinator: &House) -> u64 {
    const FINISHED: u16 = 0x0202;
    const SEAL: u16 = 0x0801;
    let kinds = coordinator.journal.read(Lsn::ZERO).unwrap().map(|entry| entry.unwrap().kind);
    u64::try_from(kinds.filter(|kind| ![FINISHED, SEAL].contains(kind)).count()).unwrap()
}

fn line(golden: &mut String, what: &str, before: Counted, after: Counted) {
    let rows = [
        ("round trips to the coordinator", after.round_trips - before.round_trips),
        ("one-way messages to the coordinator", after.one_way - before.one_way),
        ("decision records", after.records - before.records),
        ("decision syncs", after.coordinator_syncs - before.coordinator_syncs),
        ("requests to stores", after.store_requests - before.store_requests),
        ("socket writes to stores", after.store_writes - before.store_writes),
        ("store syncs", after.store_syncs - before.store_syncs),
        ("desk turns that waited for a journal", after.turns - before.turns),
        ("thread crossings in the servers", after.crossings - before.crossings),
    ];
    writeln!(golden, "{what}").unwrap();
    rows.into_iter().for_each(|(name, count)| writeln!(golden, "  {name} {count}").unwrap());
}

/// One transaction of an application: a key is written or read in so many stores.
fn transact(client: &Client, remotes: &mut [Remote], value: Option<&[u8]>) {
    let mut tx = client.begin().unwrap();
    for remote in remotes {
        let enlisted = tx.enlist(remote);
        match value {
            Some(value) => enlisted.work().unwrap().put(0, b"key", value).unwrap(),
            None => assert!(enlisted.work().unwrap().get(0, b"key").unwrap().is_some()),
        }
    }
    tx.commit().unwrap();
}

/// What one transaction costs right behind another one, whose end its decision tells. A heartbeat of between would have told
/// it, which is no part of the walk: then once more.
fn walked(
    street: &Street,
    client: &Client,
    remotes: &mut [Remote; 2],
    stores: usize,
    value: Option<&[u8]>,
) -> [Counted; 2] {
    for _ in 0..WALKS_MAX {
        let beats = client.counts().heartbeats;
        transact(client, remotes, Some(b"0"));
        let before = count(street, client, remotes);
        transact(client, &mut remotes[..stores], value);
        let after = count(street, client, remotes);
        if after.heartbeats == beats {
            return [before, after];
        }
    }
    panic!("a heartbeat fell into each of {WALKS_MAX} walks");
}

#[test]
fn a_commit_walks_as_far_as_the_golden_file_says() {
    let street = street(&Rules::default());
    let (client, mut remotes) = (street.client(), street.remotes());
    // The first one also pays for first things: connections and handshakes.
    transact(&client, &mut remotes, Some(b"0"));
    let mut golden = String::new();
    let walks: [(&str, usize, Option<&[u8]>, u64); 3] =
        [("two branches", 2, Some(b"1"), 1), ("one branch", 1, Some(b"2"), 0), ("two read-only branches", 2, None, 0)];
    for (what, stores, value, waits) in walks {
        let [before, after] = walked(&street, &client, &mut remotes, stores, value);
        line(&mut golden, what, before, after);
        let waited = (after.round_trips - before.round_trips, after.coordinator_syncs - before.coordinator_syncs);
        assert_eq!(waited, (waits, waits), "{what}");
    }

    let expected: String = GOLDEN.lines().filter(|line| !line.starts_with('#')).flat_map(|line| [line, "\n"]).collect();
    assert_eq!(
        golden, expected,
        "the walk has changed: say why in the commit and renew tests/golden/walk.txt\n{golden}"
    );
}

#[test]
fn decisions_that_wait_together_share_one_sync() {
    const TOGETHER: u64 = 64;
    let street = street(&Rules::default());
    let mut committer = street.committer();
    committer.commit(b"key", b"0");
    let (before, laid) = (street.coordinator.journal.counts(), records(&street.coordinator));
    // Laid first, sent in one write: the desk finds all of them in one turn.
    let transactions: Vec<_> = (0..TOGETHER).map(|_| committer.begin()).collect();
    let lay = |tx: &_| committer.decisions.lay(&Request::Decide(committer.decide_request(*tx))).unwrap();
    let tickets: Vec<_> = transactions.iter().map(lay).collect();
    for ticket in tickets {
        let arrived = committer.decisions.receive(ticket).unwrap();
        assert_eq!(arrived.answer().unwrap(), Answer::Decided(Outcome::Committed));
    }
    let after = street.coordinator.journal.counts();
    assert_eq!(after.syncs - before.syncs, 1, "{TOGETHER} decisions in one turn");
    assert_eq!(records(&street.coordinator) - laid, TOGETHER);
    let groups = street.coordinator.number("assent_sync_group_bucket{le=\"64.0\"}")
        - street.coordinator.number("assent_sync_group_bucket{le=\"32.0\"}");
    assert!(groups >= 1.0, "a group of {TOGETHER} was observed");
}

/// What recovery saw prepared in its last look is kept until it has looked again.
fn all_is_forgotten(street: &Street) {
    let admin = street.coordinator.link(Role::Admin);
    eventually("finished ones are forgotten", || {
        admin.request(&Request::TxRecover).unwrap().answer().unwrap();
        street.coordinator.stat("coordinator.live") == 0
    });
}

#[test]
fn thirty_two_threads_of_one_client_share_syncs_and_lose_nothing() {
    const THREADS: u32 = 32;
    const EACH: u32 = 10;
    let street = street(&Rules::default());
    let client = street.client();
    let before = street.coordinator.journal.counts();
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let (street, client) = (&street, &client);
            scope.spawn(move || {
                let mut remotes = street.remotes();
                for round in 0..EACH {
                    let key = format!("{number}/{round}");
                    let mut tx = client.begin().unwrap();
                    for remote in &mut remotes {
                        tx.enlist(remote).work().unwrap().put(0, key.as_bytes(), b"v").unwrap();
                    }
                    tx.commit().unwrap();
                }
            });
        }
    });
    let all = u64::from(THREADS * EACH);
    let syncs = street.coordinator.journal.counts().syncs - before.syncs;
    assert!(syncs < all, "{syncs} syncs for {all} decisions: they share");
    for house in [&street.a, &street.b] {
        assert_eq!(house.stat("kv.keys"), all);
        assert_eq!(house.stat("kv.prepared"), 0);
    }
    assert_eq!(street.coordinator.stat("coordinator.decided_committed"), all);
    assert_eq!(client.counts().round_trips, all);
    // What is finished travels with the client's last words.
    drop(client);
    all_is_forgotten(&street);
}

#[test]
fn thirty_two_clients_lose_nothing_while_others_come_and_go() {
    const CLIENTS: u64 = 32;
    const EACH: u64 = 10;
    let street = street(&Rules::default());
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let street = &street;
            scope.spawn(move || {
                let mut committer = street.committer();
                for round in 0..EACH {
                    committer.commit(format!("{number}/{round}").as_bytes(), b"v");
                }
                // `finished` travels with the next request.
                committer.decisions.request(&Request::Ping).unwrap();
            });
        }
    });
    for house in [&street.a, &street.b] {
        assert_eq!(house.stat("kv.keys"), CLIENTS * EACH);
        assert_eq!(house.stat("kv.prepared"), 0);
    }
    assert_eq!(street.coordinator.stat("coordinator.decided_committed"), CLIENTS * EACH);
    all_is_forgotten(&street);
}
