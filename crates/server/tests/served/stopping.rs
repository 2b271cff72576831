//! A graceful stop: nobody new, what is under way is finished, and time is bounded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use assent_door::{Health, Metrics, State};
use assent_kind::Kind;
use assent_link::{Link, LinkConfig};
use assent_server::{Config, Engines, Server};
use assent_wire::{Answer, Hello, KeyspaceQuery, Outcome, Reply, Request, Role};
use assent_world::RealClock;
use assent_world::net::Address;

use crate::house::{LONG, NODE, Rules, branch, eventually, expect, get, is_yes, put, refusal, store, street, xid};

#[test]
fn a_branch_that_is_under_way_is_finished_and_no_new_one_is_started() {
    let street = street(&Rules::default());
    let mut committer = street.committer();
    let tx = committer.begin();
    committer.work(tx, b"key", b"v");
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| street.a.server.stop(LONG));
        eventually("it is stopping", || street.a.health.report().checks["server"].sentence == "it is stopping");
        eventually("nobody new comes in", || street.a.try_link(Role::Store { label: "late" }).is_err());
        let another = committer.begin();
        let refused = committer.stores["a"].request(&Request::Start(xid(committer.node(), another, "a", 0))).unwrap();
        assert!(matches!(branch(&refused), Reply::Refused(Kind::Unavailable, _)), "{refused:?}");
        // The one under way goes to its end.
        assert!(committer.all(tx, Request::Prepare).iter().all(is_yes));
        assert_eq!(committer.decide(tx), Outcome::Committed);
        assert!(committer.all(tx, Request::Commit).iter().all(|done| branch(done) == Reply::Done));
        stopping.join().unwrap();
    });
    assert!(committer.stores["a"].request(&Request::Ping).is_err(), "then the connection ends");
    assert_eq!(street.a.kv.as_ref().unwrap().get(0, b"key").unwrap(), Some(b"v".to_vec()));
    assert_eq!(get(&committer.stores["b"], b"key"), Some(b"v".to_vec()), "others go on");
}

#[test]
fn what_waits_for_a_thread_of_its_own_is_answered_before_the_server_has_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let told = house.store_link();
    // A branch that is under way keeps its connection until it is told.
    let incarnation = assent_ids::Incarnation { epoch: assent_ids::Epoch(1), number: 1 };
    let xid = xid(NODE, assent_ids::TxId { incarnation, counter: 1 }, "a", 0);
    expect(&told, &Request::Start(xid), &Reply::Done);
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| house.server.stop(LONG));
        eventually("it is stopping", || house.health.report().checks["server"].sentence == "it is stopping");
        let made = told.request(&Request::KeyspaceCreate("late")).unwrap();
        assert!(matches!(made.answer(), Ok(Answer::Keyspaces { list, .. }) if list[0].name == "late"), "{made:?}");
        let query = KeyspaceQuery { name: Some("late"), after: None };
        let listed = told.request(&Request::Keyspaces(query)).unwrap();
        assert!(matches!(listed.answer(), Ok(Answer::Keyspaces { list, .. }) if list.len() == 1), "{listed:?}");
        // Work on the whole store is not begun any more, and that is an answer, too.
        assert_eq!(refusal(told.request(&Request::StoreVerify).unwrap().answer()).0, Kind::Closed);
        expect(&told, &Request::Rollback(xid), &Reply::Done);
        stopping.join().unwrap();
    });
    assert!(house.kv.as_ref().unwrap().keyspace("late").unwrap().is_some());
}

#[test]
fn who_asks_for_a_round_of_recovery_is_answered_before_the_server_has_stopped() {
    // Who has nothing under way and is quiet goes: where that was quicker, anew.
    let is_answered = |_: &i32| {
        let street = street(&Rules::default());
        let admin = street.coordinator.link(Role::Admin);
        std::thread::scope(|scope| {
            let stopping = scope.spawn(|| street.coordinator.server.stop(LONG));
            let mut answered = 0;
            let is_stopping = || street.coordinator.health.report().checks["server"].sentence == "it is stopping";
            while answered < 2 {
                let was_stopping = is_stopping();
                match admin.request(&Request::TxRecover) {
                    Ok(round) => {
                        assert!(matches!(round.answer(), Ok(Answer::Round(_))), "{round:?}");
                        answered += i32::from(was_stopping);
                    }
                    Err(error) => {
                        assert!(!error.to_string().contains("silent"), "{error}");
                        break;
                    }
                }
            }
            stopping.join().unwrap();
            answered == 2
        })
    };
    assert!((0..20).any(|number| is_answered(&number)));
}

#[test]
fn somebody_who_never_ends_does_not_hold_the_stop_up() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules { threads: 2, ..Rules::default() });
    let links: Vec<_> = (0..4).map(|_| house.store_link()).collect();
    let incarnation = assent_ids::Incarnation { epoch: assent_ids::Epoch(1), number: 1 };
    for (link, counter) in links.iter().zip(0..) {
        let xid = xid(NODE, assent_ids::TxId { incarnation, counter }, "a", 0);
        expect(link, &Request::Start(xid), &Reply::Done);
    }
    let start = Instant::now();
    house.server.stop(Duration::from_millis(100));
    assert!(start.elapsed() < LONG);
    assert!(links.iter().all(|link| link.request(&Request::Ping).is_err()));
    assert_eq!(house.kv.as_ref().unwrap().stats().branches, 0, "what was not prepared is dropped");
}

#[test]
fn a_stop_without_work_is_quick_and_everything_acknowledged_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::default());
    let link = house.store_link();
    for key in 0..100_u8 {
        link.request(&put(None, &[key], b"v")).unwrap().answer().unwrap();
    }
    house.server.stop(LONG);
    house.server.stop(LONG);
    house.journal.close().unwrap();
    drop((house, link));
    let again = store(folder.path(), &Rules::default());
    assert_eq!(again.stat("kv.keys"), 100);
}

#[test]
fn a_unix_socket_is_served_and_its_file_goes_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("assent.sock");
    let config = Config::new(Address::Unix(path.clone()));
    let clock = Arc::new(RealClock);
    let server = Server::start(&config, Engines::of(NODE), clock, &Metrics::default(), &Health::default()).unwrap();
    let link = Link::connect(server.address(), &Hello::new(Role::Admin), &LinkConfig::default()).unwrap();
    assert_eq!(link.request(&Request::Ping).unwrap().answer().unwrap(), Answer::Pong);
    server.stop(LONG);
    assert!(!path.exists());
}

#[test]
fn a_journal_that_is_closed_refuses_writers_serves_readers_and_is_told_to_health() {
    let street = street(&Rules::default());
    let mut committer = street.committer();
    committer.commit(b"key", b"v");
    for house in [&street.a, &street.coordinator] {
        house.journal.close().unwrap();
    }
    let store = &committer.stores["a"];
    assert_eq!(refusal(store.request(&put(None, b"key", b"w")).unwrap().answer()).0, Kind::Closed);
    assert_eq!(get(store, b"key"), Some(b"v".to_vec()));
    let tx = committer.begin();
    let decide = Request::Decide(committer.decide_request(tx));
    assert_eq!(refusal(committer.decisions.request(&decide).unwrap().answer()).0, Kind::Closed);
    for (house, check) in [(&street.a, "kv"), (&street.coordinator, "coordinator")] {
        let report = house.health.report();
        assert_eq!(report.state, State::Failed);
        assert_eq!(report.checks[check].state, State::Failed, "{report:?}");
    }
    assert_eq!(street.b.health.report().state, State::Ok);
}
