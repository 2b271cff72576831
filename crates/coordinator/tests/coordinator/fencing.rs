//! Clients that come, go, come back in time or too late.

use std::time::Duration;

use assent_coordinator::{Known, Standing};
use assent_ids::{Epoch, Incarnation};
use assent_kind::Kind;
use assent_xa::Outcome;

use super::stand::{IDENTITY, LOST, Stand, commit, decision, operator, tx};

#[test]
fn a_client_resumes_with_its_secret_and_nobody_else_does() {
    let stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    stand.coordinator.lost(session.incarnation);
    let wrong = stand.coordinator.resume(session.incarnation, session.secret ^ 1).unwrap_err();
    assert_eq!(wrong.kind(), Kind::Denied);
    assert_eq!(stand.coordinator.resume(session.incarnation, session.secret), Ok(session));
    let never = Incarnation { epoch: Epoch(1), number: 77 };
    assert_eq!(stand.coordinator.resume(never, session.secret).unwrap_err().kind(), Kind::Denied);
    assert!(!format!("{session:?}").contains(&session.secret.to_string()), "a secret is never printed");
}

#[test]
fn a_late_loss_of_the_old_connection_does_not_fence_the_resumed_client() {
    let stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    // The new connection comes before the server sees that the old one is dead.
    stand.coordinator.resume(session.incarnation, session.secret).unwrap();
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    assert_eq!(stand.coordinator.standing(session.incarnation), Standing::Connected);
    stand.coordinator.lost(session.incarnation);
    stand.clock.advance(Duration::from_millis(1_000));
    stand.coordinator.tick().unwrap();
    assert_eq!(stand.coordinator.standing(session.incarnation), Standing::Lost, "at the limit");
    stand.clock.advance(Duration::from_micros(1));
    stand.coordinator.tick().unwrap();
    assert_eq!(stand.coordinator.standing(session.incarnation), Standing::Fenced, "one beyond");
    let late = stand.coordinator.resume(session.incarnation, session.secret).unwrap_err();
    assert_eq!(late.kind(), Kind::RolledBack);
}

#[test]
fn a_restarted_server_knows_its_clients_for_as_long_as_they_may_be_away() {
    let mut stand = Stand::new();
    let (early, late) = (stand.coordinator.handshake("e").unwrap(), stand.coordinator.handshake("l").unwrap());
    stand.restart(false);
    stand.coordinator.resume(early.incarnation, early.secret).unwrap();
    stand.clock.advance(LOST);
    stand.coordinator.tick().unwrap();
    assert_eq!(stand.coordinator.resume(late.incarnation, late.secret).unwrap_err().kind(), Kind::RolledBack);
    assert_eq!(stand.coordinator.decide(&commit(tx(&early, 1))), Ok(Outcome::Committed));
    assert_eq!(stand.coordinator.decide(&commit(tx(&late, 1))), Ok(Outcome::RolledBack));
    // The next epoch: who resumed may again, who did not never.
    stand.restart(false);
    assert_eq!(stand.coordinator.resume(late.incarnation, late.secret).unwrap_err().kind(), Kind::RolledBack);
    stand.coordinator.resume(early.incarnation, early.secret).unwrap();
    // A restart loop faster than client_lost_ms fences nobody.
    for _ in 0..5 {
        stand.restart(false);
        stand.coordinator.tick().unwrap();
    }
    stand.coordinator.resume(early.incarnation, early.secret).unwrap();
}

#[test]
fn whoever_never_comes_back_is_called_for_when_its_time_is_over() {
    // Written: branches of clients that died before they had reached the restarted server, prepared just behind its first
    // look. What the user would see: prepared for ten seconds, until the resource is looked at again at rest.
    let mut stand = Stand::new();
    let gone = stand.coordinator.handshake("gone").unwrap();
    stand.restart(false);
    stand.clock.advance(Duration::from_millis(1_000));
    stand.coordinator.tick().unwrap();
    assert_eq!((stand.coordinator.standing(gone.incarnation), stand.coordinator.calls()), (Standing::Resumable, 0));
    stand.clock.advance(Duration::from_micros(1));
    stand.coordinator.tick().unwrap();
    assert_eq!((stand.coordinator.standing(gone.incarnation), stand.coordinator.calls()), (Standing::Fenced, 1));
    assert_eq!(stand.coordinator.gauges().fenced, 0, "it was never seen here");
    // And of this epoch.
    let lost = stand.coordinator.handshake("lost").unwrap();
    stand.coordinator.lost(lost.incarnation);
    stand.fence();
    assert_eq!((stand.coordinator.standing(lost.incarnation), stand.coordinator.calls()), (Standing::Fenced, 2));
    stand.fence();
    assert_eq!(stand.coordinator.calls(), 2, "nobody is called for nothing");
}

#[test]
fn clients_of_earlier_epochs_have_their_time_from_when_they_can_reach_the_server() {
    // Written: nothing wrong. The server restarted, opened its coordinator, then replayed a large store for seconds, and
    // only then listened; its first tick fenced every client before one could connect, and their work was rolled back.
    let mut stand = Stand::new();
    let (early, late) = (stand.coordinator.handshake("e").unwrap(), stand.coordinator.handshake("l").unwrap());
    stand.restart(false);
    stand.clock.advance(LOST * 5);
    stand.coordinator.listening();
    stand.coordinator.tick().unwrap();
    stand.coordinator.resume(early.incarnation, early.secret).unwrap();
    assert_eq!(stand.coordinator.decide(&commit(tx(&early, 1))), Ok(Outcome::Committed));
    stand.clock.advance(Duration::from_millis(1_000));
    stand.coordinator.tick().unwrap();
    assert_eq!(stand.coordinator.standing(late.incarnation), Standing::Resumable, "at the limit");
    stand.clock.advance(Duration::from_micros(1));
    stand.coordinator.tick().unwrap();
    assert_eq!(stand.coordinator.standing(late.incarnation), Standing::Fenced, "one beyond");
    assert_eq!(stand.coordinator.standing(early.incarnation), Standing::Connected);
}

#[test]
fn listening_does_not_take_a_fence_back() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    stand.restart(false);
    stand.coordinator.tick().unwrap();
    assert_eq!(stand.coordinator.standing(session.incarnation), Standing::Resumable);
    stand.clock.advance(LOST);
    stand.log.stored().is_closed = true;
    assert!(stand.coordinator.tick().is_err(), "the fence's record cannot become durable");
    stand.coordinator.listening();
    assert_eq!(stand.coordinator.standing(session.incarnation), Standing::Fencing);
    assert_eq!(stand.coordinator.decide(&commit(tx(&session, 1))), Ok(Outcome::RolledBack));
    stand.log.stored().is_closed = false;
    stand.coordinator.tick().unwrap();
    stand.coordinator.listening();
    assert_eq!(stand.coordinator.standing(session.incarnation), Standing::Fenced);
}

#[test]
fn a_fence_is_permanent_once_something_was_forgotten_because_of_it() {
    // Written: a commit, decided, answered, its answer lost. The client was fenced, the agent finished the branches and
    // the decision was forgotten. Without a durable fence the client would resume after a restart, ask again, be told
    // "rolled back" or decide anew.
    for keeps in [false, true] {
        let mut stand = Stand::new();
        stand.fence();
        let session = stand.coordinator.handshake("client").unwrap();
        let mine = tx(&session, 1);
        stand.coordinator.decide(&commit(mine)).unwrap();
        stand.coordinator.lost(session.incarnation);
        stand.fence();
        (0..2).for_each(|_| _ = stand.round());
        assert!(stand.coordinator.show(mine).is_none(), "forgotten");
        // Lazily: the log may have heard of it or not when the power goes.
        stand.coordinator.tick().unwrap();
        stand.restart(keeps);
        let back = stand.coordinator.resume(session.incarnation, session.secret).unwrap_err();
        assert_eq!(back.kind(), Kind::RolledBack);
        let again = stand.coordinator.decide(&decision(mine, Outcome::Committed, false));
        let expected = if keeps { Err(Kind::InDoubt) } else { Ok(Outcome::Committed) };
        assert_eq!(again.map_err(|error| error.kind), expected);
    }
}

#[test]
fn a_fenced_client_that_comes_late_is_still_told_what_became_of_its_transaction() {
    // Written: a commit whose answer was lost. The client was away for longer than client_lost_ms; recovery finished the
    // branches and the decision was forgotten. The user saw "in doubt" for ever, though the server had just known.
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let (one, two) = (tx(&session, 1), tx(&session, 2));
    stand.coordinator.decide(&commit(one)).unwrap();
    stand.banks[0].prepare(IDENTITY.node, two, 0);
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    (0..4).for_each(|_| _ = stand.round());
    assert!(stand.coordinator.list().is_empty(), "forgotten");
    let appends = stand.log.stored().appends;
    assert_eq!([one, two].map(|tx| stand.coordinator.ask(tx)), [Known::Committed, Known::RolledBack]);
    let again = |tx| stand.coordinator.decide(&decision(tx, Outcome::Committed, false));
    assert_eq!([one, two].map(again), [Ok(Outcome::Committed), Ok(Outcome::RolledBack)]);
    assert_eq!(again(tx(&session, 3)).map_err(|error| error.kind), Err(Kind::InDoubt));
    // It is information and no more: nothing is laid or listed because of it, and a restart knows nothing of it.
    assert_eq!((stand.coordinator.list().len(), stand.log.stored().appends), (0, appends));
    stand.coordinator.tick().unwrap();
    stand.restart(true);
    assert_eq!(stand.coordinator.ask(two), Known::Unknown);
}

#[test]
fn what_a_client_acknowledged_is_not_remembered_for_it_and_what_a_person_cleared_is() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let (one, two) = (tx(&session, 1), tx(&session, 2));
    stand.coordinator.decide(&commit(one)).unwrap();
    stand.coordinator.finished(one);
    assert_eq!(stand.coordinator.ask(one), Known::Unknown);
    stand.coordinator.decide(&commit(two)).unwrap();
    stand.banks[0].prepare(IDENTITY.node, two, 0);
    stand.coordinator.lost(session.incarnation);
    stand.banks[0].trouble(Some(crate::bank::Trouble::Heuristic(assent_xa::Heuristic::RolledBack)));
    stand.round();
    assert!(stand.coordinator.forget(two, &operator()).is_ok());
    (0..4).for_each(|_| _ = stand.round());
    assert!(stand.coordinator.show(two).is_some() && stand.coordinator.list().is_empty(), "its client may come back");
    stand.fence();
    (0..4).for_each(|_| _ = stand.round());
    assert!(stand.coordinator.show(two).is_none());
    assert_eq!(stand.coordinator.ask(two), Known::Committed);
}

#[test]
fn a_fence_that_could_not_be_written_lets_nothing_be_forgotten() {
    let mut stand = Stand::new();
    stand.fence();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    stand.coordinator.decide(&commit(mine)).unwrap();
    stand.coordinator.lost(session.incarnation);
    stand.clock.advance(LOST);
    stand.log.stored().is_closed = true;
    assert!(stand.coordinator.tick().is_err());
    (0..2).for_each(|_| _ = stand.round());
    assert!(stand.coordinator.show(mine).is_some(), "kept: the fence is not durable");
    // The fence was lost with the page cache: the client may come back, and finds its decision.
    stand.restart(false);
    stand.coordinator.resume(session.incarnation, session.secret).unwrap();
    let again = stand.coordinator.decide(&decision(mine, Outcome::Committed, false));
    assert_eq!(again, Ok(Outcome::Committed));
}

#[test]
fn a_checkpoint_remembers_who_is_fenced() {
    let config = assent_coordinator::Config { checkpoint_bytes: 1, ..Default::default() };
    let mut stand = Stand::with(config);
    let (gone, here) = (stand.coordinator.handshake("gone").unwrap(), stand.coordinator.handshake("here").unwrap());
    stand.coordinator.lost(gone.incarnation);
    stand.fence();
    stand.coordinator.tick().unwrap();
    let is_table = stand.log.stored().is_table;
    assert_eq!(stand.coordinator.gauges().checkpoints > 0, !is_table, "a table is its own checkpoint");
    stand.restart(false);
    assert_eq!(stand.coordinator.standing(gone.incarnation), Standing::Fenced);
    assert_eq!(stand.coordinator.standing(here.incarnation), Standing::Resumable);
}
