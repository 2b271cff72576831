//! The commit counted: rooms, crossings, syncs, messages. Counts gate, times do not.

use std::fmt::Write as _;

use assent_wire::{Outcome, Reply, Request};

use crate::house::{Committer, House, Rules, branch, get, put, street};

const GOLDEN: &str = include_str!("../golden/walk.txt");

/// Counters of a committer and the houses it speaks to.
#[derive(Clone, Copy, Default)]
struct Counted {
    requests: u64,
    store_requests: u64,
    coordinator_syncs: u64,
    store_syncs: u64,
    records: u64,
    turns: u64,
    crossings: u64,
    coordinator_messages: u64,
}

fn count(committer: &Committer, coordinator: &House, stores: [&House; 2]) -> Counted {
    let link = committer.decisions.counts();
    let journal = coordinator.journal.counts();
    Counted {
        requests: link.requests,
        store_requests: committer.stores.values().map(|link| link.counts().requests).sum(),
        coordinator_syncs: journal.syncs,
        store_syncs: stores.iter().map(|house| house.journal.counts().syncs).sum(),
        records: journal.entries,
        turns: [coordinator, stores[0], stores[1]].map(|house| house.count("assent_sync_group_count")).iter().sum(),
        crossings: [coordinator, stores[0], stores[1]]
            .map(|house| house.count("assent_thread_crossings_total"))
            .iter()
            .sum(),
        coordinator_messages: link.requests + link.one_way + link.answers,
    }
}

fn line(golden: &mut String, what: &str, before: Counted, after: Counted) {
    let rows = [
        ("coordinator round trips", after.requests - before.requests),
        ("coordinator messages, both ways", after.coordinator_messages - before.coordinator_messages),
        ("decision records", after.records - before.records),
        ("decision syncs", after.coordinator_syncs - before.coordinator_syncs),
        ("store round trips", after.store_requests - before.store_requests),
        ("store syncs", after.store_syncs - before.store_syncs),
        ("desk turns that waited for a journal", after.turns - before.turns),
        ("thread crossings in the servers", after.crossings - before.crossings),
    ];
    writeln!(golden, "{what}").unwrap();
    rows.into_iter().for_each(|(name, count)| writeln!(golden, "  {name} {count}").unwrap());
}

#[test]
fn a_commit_walks_as_far_as_the_golden_file_says() {
    let street = street(&Rules::default());
    let mut committer = street.committer();
    // The first one also pays for first things; the second is what every further one costs.
    committer.commit(b"key", b"0");
    let mut golden = String::new();
    let houses = [&street.a, &street.b];
    let now = |committer: &Committer| count(committer, &street.coordinator, houses);

    let before = now(&committer);
    committer.commit(b"key", b"1");
    line(&mut golden, "two branches", before, now(&committer));

    let before = now(&committer);
    let tx = committer.begin();
    let (xid, link) = committer.branches(tx)[0];
    let tickets = [
        link.lay(&Request::Start(xid)).unwrap(),
        link.lay(&put(Some(xid), b"key", b"2")).unwrap(),
        link.lay(&Request::End { xid, success: true }).unwrap(),
        link.lay(&Request::CommitOnePhase(xid)).unwrap(),
    ];
    let [.., last] = tickets.map(|ticket| link.receive(ticket).unwrap());
    assert_eq!(branch(&last), Reply::Done);
    line(&mut golden, "one branch", before, now(&committer));

    let before = now(&committer);
    let tx = committer.begin();
    for (xid, link) in committer.branches(tx) {
        assert_eq!(branch(&link.request(&Request::Start(xid)).unwrap()), Reply::Done);
        link.request(&Request::Get { xid: Some(xid), keyspace: 0, key: b"key" }).unwrap();
        link.request(&Request::End { xid, success: true }).unwrap();
    }
    assert!(committer.all(tx, Request::Prepare).iter().all(|vote| branch(vote) == Reply::ReadOnly));
    line(&mut golden, "two read-only branches", before, now(&committer));

    let expected: String = GOLDEN.lines().filter(|line| !line.starts_with('#')).flat_map(|line| [line, "\n"]).collect();
    assert_eq!(
        golden, expected,
        "the walk has changed: say why in the commit and renew tests/golden/walk.txt\n{golden}"
    );
    assert_eq!(get(&committer.stores["a"], b"key"), Some(b"2".to_vec()));
}

#[test]
fn decisions_that_wait_together_share_one_sync() {
    const TOGETHER: u64 = 64;
    let street = street(&Rules::default());
    let mut committer = street.committer();
    committer.commit(b"key", b"0");
    let before = street.coordinator.journal.counts();
    // Laid first, sent in one write: the desk finds all of them in one turn.
    let transactions: Vec<_> = (0..TOGETHER).map(|_| committer.begin()).collect();
    let lay = |tx: &_| committer.decisions.lay(&Request::Decide(committer.decide_request(*tx))).unwrap();
    let tickets: Vec<_> = transactions.iter().map(lay).collect();
    for ticket in tickets {
        let arrived = committer.decisions.receive(ticket).unwrap();
        assert_eq!(arrived.answer().unwrap(), assent_wire::Answer::Decided(Outcome::Committed));
    }
    let after = street.coordinator.journal.counts();
    assert_eq!(after.syncs - before.syncs, 1, "{TOGETHER} decisions in one turn");
    assert_eq!(after.entries - before.entries, TOGETHER);
    let groups = street.coordinator.number("assent_sync_group_bucket{le=\"64.0\"}")
        - street.coordinator.number("assent_sync_group_bucket{le=\"32.0\"}");
    assert!(groups >= 1.0, "a group of {TOGETHER} was observed");
}

#[test]
fn thirty_two_committers_at_once_share_syncs_and_lose_nothing() {
    const COMMITTERS: u64 = 32;
    const EACH: u64 = 10;
    let street = street(&Rules::default());
    let before = street.coordinator.journal.counts();
    std::thread::scope(|scope| {
        for number in 0..COMMITTERS {
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
    let after = street.coordinator.journal.counts();
    let syncs = after.syncs - before.syncs;
    assert!(syncs < COMMITTERS * EACH, "{syncs} syncs for {} decisions: they share", COMMITTERS * EACH);
    for house in [&street.a, &street.b] {
        assert_eq!(house.stat("kv.keys"), COMMITTERS * EACH);
        assert_eq!(house.stat("kv.prepared"), 0);
    }
    assert_eq!(street.coordinator.stat("coordinator.decided_committed"), COMMITTERS * EACH);
    assert_eq!(street.coordinator.stat("coordinator.live"), 0, "finished ones are forgotten");
}
