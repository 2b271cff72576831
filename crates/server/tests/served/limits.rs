//! Every limit at its value and one beyond.

use std::time::Duration;

use assent_door::Limits;
use assent_ids::{Epoch, Incarnation, ResourceId, TxId};
use assent_kind::Kind;
use assent_link::LinkError;
use assent_server::{Config, Engines, Server, ServerError};
use assent_wire::{Answer, BranchRecord, Known, Outcome, Request, Role, Secret, Session};
use assent_world::RealClock;

use crate::house::{NODE, Rules, eventually, get, put, refusal, store, street};

#[test]
fn connections_beyond_the_limit_are_answered_busy_and_come_in_when_there_is_room() {
    const PLACES: usize = 100;
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { connections_max: 100, ..Limits::default() };
    let house = store(folder.path(), &Rules::limited(limits));
    let first = house.store_link();
    let mut inside = vec![];
    let mut busy = 0;
    for _ in 0..300 {
        match house.try_link(Role::Store { label: "crowd" }) {
            Ok(link) => inside.push(link),
            Err(LinkError::Refused { kind, message }) => {
                assert_eq!(kind, Kind::Busy, "{message}");
                assert!(message.contains("100"), "{message}");
                busy += 1;
            }
            Err(error) => panic!("not told: {error}"),
        }
    }
    assert_eq!((inside.len(), busy), (PLACES - 1, 300 - PLACES + 1));
    assert_eq!(house.number("assent_refused_total{kind=\"busy\"}"), 201.0);
    assert_eq!(house.health.report().checks["server"].state, assent_door::State::Degraded);
    for link in &inside {
        assert_eq!(get(link, b"k"), None, "those inside are served");
    }
    drop(inside);
    eventually("places are free again", || house.try_link(Role::Store { label: "late" }).is_ok());
    assert_eq!(get(&first, b"k"), None);
}

#[test]
fn a_crowd_that_comes_at_once_is_told_to_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { connections_max: 100, ..Limits::default() };
    let house = store(folder.path(), &Rules::limited(limits));
    let come = |_| match house.try_link(Role::Store { label: "crowd" }) {
        Ok(link) => Some(link),
        Err(LinkError::Refused { kind: Kind::Busy, .. }) => None,
        Err(error) => panic!("not told: {error}"),
    };
    let come = &come;
    let inside: usize = std::thread::scope(|scope| {
        let all: Vec<_> = (0..10).map(|_| scope.spawn(move || (0..30).filter_map(come).collect::<Vec<_>>())).collect();
        let kept: Vec<_> = all.into_iter().map(|thread| thread.join().unwrap()).collect();
        kept.iter().map(Vec::len).sum()
    });
    assert_eq!(inside, 100);
}

#[test]
fn requests_beyond_the_limit_of_one_connection_are_busy_and_the_rest_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::limited(Limits { pending_max: 8, ..Limits::default() }));
    let link = house.store_link();
    assert_eq!(link.welcome().limits.in_flight_max, 8);
    // A well-behaved link stops by itself.
    let tickets: Vec<_> = (0..8_u8).map(|key| link.lay(&put(None, &[key], b"v")).unwrap()).collect();
    assert!(matches!(link.lay(&put(None, b"x", b"v")), Err(LinkError::Busy { in_flight: 8 })));
    for ticket in tickets {
        link.receive(ticket).unwrap().answer().unwrap();
    }
    // One that does not is told.
    let (busy, done) = crate::hostile::flood(&house, 20);
    assert!(done >= 8 && busy >= 1 && busy + done == 20, "{busy} busy, {done} done");
}

#[test]
fn an_idle_connection_is_closed_only_where_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let house = store(folder.path(), &Rules::limited(Limits { idle_ms: 40, ..Limits::default() }));
    let link = house.store_link();
    eventually("it is closed", || house.number("assent_connections_overdue_total") >= 1.0);
    assert!(link.request(&Request::Ping).is_err());
}

#[test]
fn a_client_that_misses_three_heartbeats_is_lost_and_one_that_pings_is_not() {
    let street = street(&Rules { heartbeat_ms: 500, client_lost_ms: 60_000, ..Rules::default() });
    let silent = street.coordinator.client_link(None);
    let alive = street.coordinator.client_link(None);
    assert_eq!(alive.welcome().limits.heartbeat_ms, 500);
    eventually("the silent one is lost", || {
        assert!(matches!(alive.request(&Request::Ping).unwrap().answer().unwrap(), Answer::Pong));
        street.coordinator.coordinator.as_ref().unwrap().gauges().clients == 1
    });
    assert!(silent.request(&Request::Ping).is_err());
    // Stores and operators owe no heartbeat.
    assert_eq!(street.a.number("assent_connections_overdue_total"), 0.0);
    // It comes back as who it was.
    let session = silent.welcome().session.unwrap();
    let again = street.coordinator.client_link(Some(session));
    assert_eq!(again.welcome().session, Some(session));
}

#[test]
fn a_client_enlists_registered_resources_only_and_decides_its_own_transactions_only() {
    let street = street(&Rules::default());
    let role = |resources: Vec<&'static str>| Role::Client { label: "c", resume: None, resources };
    assert!(street.coordinator.try_link(role(vec!["a", "b"])).is_ok());
    let (kind, message) = refusal(street.coordinator.try_link(role(vec!["a", "mystery"])));
    assert_eq!(kind, Kind::Invalid);
    assert!(message.contains("\"mystery\"") && message.contains("a, b"), "{message}");

    let mut committer = street.committer();
    let mine = committer.begin();
    let other = TxId { incarnation: Incarnation { epoch: Epoch(1), number: 99 }, counter: 1 };
    let stolen = committer.decide_request(other);
    let (kind, _) = refusal(committer.decisions.request(&Request::Decide(stolen)).unwrap().answer());
    assert_eq!(kind, Kind::Denied);
    assert_eq!(committer.decide(mine), Outcome::Committed);
    let arrived = committer.decisions.request(&Request::Ask(mine)).unwrap();
    assert_eq!(arrived.answer().unwrap(), Answer::Known(Known::Committed));
    // A rollback that names what nobody here can reach is one of the rest: nobody would ever finish it.
    let given_up = committer.begin();
    let mystery = ResourceId::of("mystery");
    let mut rollback = committer.decide_request(given_up);
    rollback.outcome = Outcome::RolledBack;
    rollback.branches.push(BranchRecord { resource: mystery, ..rollback.branches[0] });
    let told = committer.decisions.request(&Request::Decide(rollback)).unwrap();
    assert!(matches!(told.answer().unwrap(), Answer::Decided(Outcome::RolledBack)));
    let kept = street.coordinator.coordinator.as_ref().unwrap().show(given_up).unwrap();
    assert!(!kept.branches.is_empty() && kept.branches.iter().all(|branch| branch.resource != mystery), "{kept:?}");
    committer.decisions.one_way(&Request::Finished(vec![given_up])).unwrap();
    assert!(matches!(committer.decisions.request(&Request::Ping).unwrap().answer().unwrap(), Answer::Pong));
    // Somebody else's `finished` changes nothing.
    let stranger = street.coordinator.client_link(None);
    stranger.one_way(&Request::Finished(vec![mine])).unwrap();
    assert!(matches!(stranger.request(&Request::Ping).unwrap().answer().unwrap(), Answer::Pong));
    assert_eq!(street.coordinator.stat("coordinator.live"), 1);

    let session = stranger.welcome().session.unwrap();
    let forged = Session { secret: Secret(session.secret.0 ^ 1), ..session };
    let resume = Role::Client { label: "thief", resume: Some(forged), resources: vec![] };
    assert_eq!(refusal(street.coordinator.try_link(resume)).0, Kind::Denied);
    let (kind, message) = refusal(street.coordinator.try_link(Role::Store { label: "s" }));
    assert_eq!(kind, Kind::NotFound, "{message}");
}

#[test]
fn what_cannot_work_is_refused_at_the_start_and_named() {
    let start = |config: &Config| {
        let clock = std::sync::Arc::new(RealClock);
        Server::start(config, Engines::of(NODE), clock, &Default::default(), &Default::default())
    };
    let config = Config::new("127.0.0.1:0".parse().unwrap());
    let wrong = Config { threads: 0, ..config.clone() };
    assert_eq!(start(&wrong).unwrap_err().to_string(), "server.threads = 0; it must be 1 to 64");
    let wrong = Config { limits: Limits { pending_max: 0, ..Limits::default() }, ..config.clone() };
    assert_eq!(start(&wrong).unwrap_err().kind(), Kind::Invalid);
    let first = start(&config).unwrap();
    let taken = Config::new(first.address().clone());
    let refused = start(&taken).unwrap_err();
    assert!(matches!(refused, ServerError::Listen { .. }) && refused.kind() == Kind::Unavailable, "{refused}");
    assert!(refused.to_string().contains(&first.address().to_string()), "{refused}");
    first.stop(Duration::ZERO);
    start(&taken).unwrap();
}
