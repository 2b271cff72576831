//! Clients, coordinators and connections that die in the middle.

use std::time::Duration;

use assent_ids::TxId;
use assent_kind::Kind;
use assent_wire::{Answer, By, Fate, Known, Outcome, Reply, Request, Role, Standing};
use assent_world::{Clock as _, RealClock};

use crate::house::{Rules, Street, branch, coordinator, eventually, get, is_yes, refusal, street};

fn known(street: &Street, tx: TxId) -> Known {
    let arrived = street.coordinator.link(Role::Admin).request(&Request::Ask(tx)).unwrap();
    let Answer::Known(known) = arrived.answer().unwrap() else { panic!("no answer") };
    known
}

#[test]
fn a_client_that_dies_after_prepare_is_fenced_and_recovery_rolls_its_branches_back() {
    let street = street(&Rules { client_lost_ms: 50, ..Rules::default() });
    let mut committer = street.committer();
    committer.commit(b"key", b"before");
    let tx = committer.begin();
    committer.work(tx, b"key", b"never");
    assert!(committer.all(tx, Request::Prepare).iter().all(is_yes));
    assert_eq!(street.prepared(), 2);
    let session = committer.session();
    drop(committer);
    eventually("recovery rolls back", || street.prepared() == 0);
    assert!(matches!(known(&street, tx), Known::RolledBack | Known::Unknown));
    for house in [&street.a, &street.b] {
        assert_eq!(get(&house.store_link(), b"key"), Some(b"before".to_vec()));
    }
    // Its incarnation is over.
    let resume = Role::Client { label: "late", resume: Some(session), resources: vec![] };
    let (kind, message) = refusal(street.coordinator.try_link(resume));
    assert_eq!(kind, Kind::RolledBack, "{message}");
    assert_eq!(street.coordinator.stat("coordinator.fenced"), 1);
}

#[test]
fn a_client_that_dies_after_the_decision_is_finished_by_recovery() {
    let street = street(&Rules { client_lost_ms: 50, ..Rules::default() });
    let mut committer = street.committer();
    let tx = committer.begin();
    committer.work(tx, b"key", b"decided");
    assert!(committer.all(tx, Request::Prepare).iter().all(is_yes));
    assert_eq!(committer.decide(tx), Outcome::Committed);
    drop(committer);
    eventually("recovery commits", || street.prepared() == 0);
    for house in [&street.a, &street.b] {
        assert_eq!(get(&house.store_link(), b"key"), Some(b"decided".to_vec()));
    }
}

#[test]
fn a_client_that_comes_back_in_time_goes_on_with_its_transaction() {
    let street = street(&Rules::default());
    let mut committer = street.committer();
    let tx = committer.begin();
    committer.work(tx, b"key", b"v");
    assert!(committer.all(tx, Request::Prepare).iter().all(is_yes));
    let session = committer.session();
    committer.decisions.close("a cable was pulled");
    committer.decisions = street.coordinator.client_link(Some(session));
    assert_eq!(committer.session(), session);
    assert_eq!(committer.decide(tx), Outcome::Committed);
    // Recovery may have come first: it was called when the connection ended.
    let is_done = |done: &_| matches!(branch(done), Reply::Done | Reply::Unknown(_));
    assert!(committer.all(tx, Request::Commit).iter().all(is_done));
}

#[test]
fn a_late_decision_from_a_connection_that_was_left_behind_decides_nothing() {
    let street = street(&Rules::default());
    let mut committer = street.committer();
    let tx = committer.begin();
    let session = committer.session();
    let old = std::mem::replace(&mut committer.decisions, street.coordinator.client_link(Some(session)));
    // The old connection is whole, its client speaks over the new one.
    let decide =
        Request::Decide(assent_wire::Decide { tx, outcome: Outcome::Committed, first: true, branches: vec![] });
    let late = old.request(&decide);
    assert!(matches!(late, Err(assent_link::LinkError::InDoubt { .. })), "it ends without an answer: {late:?}");
    assert_eq!(known(&street, tx), Known::Unknown, "nothing was decided");
    assert_eq!(committer.decide(tx), Outcome::Committed, "the present connection decides");
}

#[test]
fn a_commit_with_a_branch_that_recovery_could_never_reach_is_refused() {
    let street = street(&Rules::default());
    let mut committer = street.committer();
    let tx = committer.begin();
    let stranger = assent_ids::ResourceId::of("a-typo");
    let branch = assent_wire::BranchRecord { resource: stranger, number: 0, flags: 0, mark: None, witness: b"" };
    let decide = |outcome| Request::Decide(assent_wire::Decide { tx, outcome, first: true, branches: vec![branch] });
    let (kind, message) =
        refusal(committer.decisions.request(&decide(Outcome::Committed)).and_then(|it| it.answer().map(drop)));
    assert_eq!(kind, Kind::Invalid);
    assert!(message.contains(&stranger.to_string()), "{message}");
    assert_eq!(known(&street, tx), Known::Unknown, "nothing was decided");
    assert!(committer.decisions.request(&decide(Outcome::RolledBack)).is_ok(), "undoing is never refused");
    // Nor is one taken that would be a row of such.
    let mark = assent_ids::Mark { resource: stranger, table: 7, timeline: 1 };
    let marked = assent_wire::BranchRecord { resource: assent_ids::ResourceId::of("a"), mark: Some(mark), ..branch };
    let tx = committer.begin();
    let decide = assent_wire::Decide { tx, outcome: Outcome::Committed, first: true, branches: vec![marked] };
    let (kind, message) =
        refusal(committer.decisions.request(&Request::Decide(decide)).and_then(|it| it.answer().map(drop)));
    assert!(kind == Kind::Invalid && message.contains(&stranger.to_string()), "{message}");
}

#[test]
fn a_coordinator_that_restarts_remembers_what_it_decided_and_lets_its_clients_resume() {
    let mut street = street(&Rules::default());
    let mut committer = street.committer();
    let (decided, open) = (committer.begin(), committer.begin());
    for (tx, key) in [(decided, b"decided"), (open, b"openopn")] {
        committer.work(tx, key, b"v");
        assert!(committer.all(tx, Request::Prepare).iter().all(is_yes));
    }
    assert_eq!(committer.decide(decided), Outcome::Committed);
    let session = committer.session();

    // The old house goes first: the folder is locked while it lives.
    let path = street.folder.join("c");
    let rules = Rules::default();
    let old = street.coordinator;
    let epoch = old.coordinator.as_ref().unwrap().epoch();
    old.journal.close().unwrap();
    drop(old);
    street.coordinator = coordinator(&path, &rules, &[("a", &street.a), ("b", &street.b)]);
    assert!(street.coordinator.coordinator.as_ref().unwrap().epoch() > epoch);

    // What was decided is committed by whoever comes first, the resumed client or recovery.
    committer.decisions = street.coordinator.client_link(Some(session));
    assert_eq!(committer.session(), session);
    assert_eq!(known(&street, decided), Known::Committed);
    assert_eq!(committer.decide(open), Outcome::Committed, "its incarnation was resumed in time");
    for tx in [decided, open] {
        committer.all(tx, Request::Commit);
    }
    eventually("nothing is left prepared", || street.prepared() == 0);
    for key in [b"decided", b"openopn"] {
        assert_eq!(get(&committer.stores["a"], key), Some(b"v".to_vec()));
        assert_eq!(get(&committer.stores["b"], key), Some(b"v".to_vec()));
    }
}

#[test]
fn a_coordinator_whose_door_opens_late_still_gives_its_clients_their_time() {
    let mut street = street(&Rules::default());
    let mut committer = street.committer();
    let tx = committer.begin();
    committer.work(tx, b"key", b"v");
    assert!(committer.all(tx, Request::Prepare).iter().all(is_yes));
    let session = committer.session();
    let path = street.folder.join("c");
    let old = street.coordinator;
    old.journal.close().unwrap();
    drop(old);
    let rules = Rules { client_lost_ms: 4_000, opens_for: Duration::from_millis(4_100), ..Rules::default() };
    street.coordinator = coordinator(&path, &rules, &[("a", &street.a), ("b", &street.b)]);
    // Several ticks, each of which could have fenced.
    RealClock.sleep(Duration::from_millis(300));
    committer.decisions = street.coordinator.client_link(Some(session));
    assert_eq!(committer.decide(tx), Outcome::Committed);
    committer.all(tx, Request::Commit);
}

#[test]
fn an_operator_sees_what_is_under_way_and_can_call_recovery() {
    let street = street(&Rules::default());
    let mut committer = street.committer();
    let tx = committer.begin();
    committer.work(tx, b"key", b"v");
    committer.all(tx, Request::Prepare);
    let admin = street.coordinator.link(Role::Admin);
    let arrived = admin.request(&Request::TxRecover).unwrap();
    let Answer::Round(round) = arrived.answer().unwrap() else { panic!("no round") };
    assert_eq!(round.resolved.len(), 2, "{round:?}");
    assert!(round.resolved.iter().all(|one| one.fate.starts_with("left")), "{round:?}");
    assert!(round.unreachable.is_empty());

    let arrived = admin.request(&Request::TxList { after: None, limit: 10 }).unwrap();
    let Answer::Transactions { more, list } = arrived.answer().unwrap() else { panic!("no list") };
    assert!(!more && list.len() == 1);
    assert_eq!((list[0].tx, list[0].decided), (tx, None));
    assert_eq!(list[0].branches.iter().map(|branch| branch.resource).collect::<Vec<_>>(), ["a", "b"]);
    assert!(list[0].branches.iter().all(|branch| branch.fate == Fate::Prepared));
    assert_eq!(list[0].standing, Standing::Connected);

    assert_eq!(committer.decide(tx), Outcome::Committed);
    let arrived = admin.request(&Request::TxShow(tx)).unwrap();
    let Answer::Transactions { list, .. } = arrived.answer().unwrap() else { panic!("no view") };
    assert_eq!(list[0].decided, Some((Outcome::Committed, By::Client)));
    let arrived = admin.request(&Request::TxList { after: Some(tx), limit: 10 }).unwrap();
    assert_eq!(arrived.answer().unwrap(), Answer::Transactions { more: false, list: vec![] });
    let arrived = admin.request(&Request::TxList { after: None, limit: 0 }).unwrap();
    assert_eq!(arrived.answer().unwrap(), Answer::Transactions { more: true, list: vec![] });
    assert_eq!(street.coordinator.number("assent_in_doubt"), 1.0);
    assert_eq!(street.coordinator.number("assent_decisions_total{outcome=\"committed\"}"), 1.0);
    assert_eq!(street.coordinator.health.report().state, assent_door::State::Ok);
}
