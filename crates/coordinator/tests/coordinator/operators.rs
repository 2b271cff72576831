//! A person decides, a branch goes its own way, and the log tells both, also after a restart.

use assent_coordinator::history::{self, Filter, Past, State};
use assent_coordinator::{Action, BRANCHES_MAX, By, Config, Coordinator, Fate, Known, Operator};
use assent_ids::{ResourceId, TxId};
use assent_journal::Log;
use assent_kind::Kind;
use assent_xa::{Decider, Decision, Deviation, Heuristic, Native, Outcome};
use std::ops::ControlFlow;

use crate::bank::Trouble;
use crate::stand::{IDENTITY, NAMES, Stand, branch, commit, decision, operator, tx};

fn told(log: &dyn Log, filter: &Filter) -> Vec<Past> {
    let mut all = Vec::new();
    let more = history::read(log, filter, &mut |past| {
        all.push(past.clone());
        ControlFlow::Continue(())
    });
    assert_eq!(more, Ok(false));
    all
}

fn deviation(number: u16) -> Deviation {
    let native = Native { code: "1402".to_owned(), message: "XA_RBROLLBACK".to_owned() };
    let resource = ResourceId::of(NAMES[usize::from(number)]);
    Deviation { resource, number, flags: 0, heuristic: Heuristic::RolledBack, native }
}

fn listed(coordinator: &Coordinator, tx: TxId) -> Option<(Heuristic, String, Option<By>)> {
    let view = coordinator.show(tx)?;
    view.branches.into_iter().find_map(|branch| match branch.fate {
        Fate::Heuristic(heuristic, native) => Some((heuristic, native.code, branch.by)),
        _ => None,
    })
}

/// A person's word about a heuristic outcome is not that of the client, who may still ask.
#[test]
fn what_a_person_forgets_of_a_client_that_lives_is_not_decided_again() {
    for restarts in [false, true] {
        let mut stand = Stand::with(Config { prepared_ms_max: 1_000, ..Config::default() });
        let session = stand.coordinator.handshake("client").unwrap();
        let mine = tx(&session, 1);
        stand.banks[0].prepare(IDENTITY.node, mine, 0);
        stand.banks[0].trouble(Some(Trouble::Heuristic(Heuristic::Committed)));
        // It takes its time, and recovery decides.
        (0..5).for_each(|_| _ = stand.round());
        assert_eq!(stand.coordinator.gauges().heuristic, 1);
        stand.coordinator.forget(mine, &operator()).unwrap();
        assert_eq!(stand.coordinator.gauges().heuristic, 0);
        stand.banks[0].trouble(None);
        (0..4).for_each(|_| _ = stand.round());
        if restarts {
            stand.restart(false);
            stand.coordinator.resume(session.incarnation, session.secret).unwrap();
            (0..4).for_each(|_| _ = stand.round());
            assert_eq!(stand.coordinator.gauges().heuristic, 0, "it stays forgotten");
        }
        assert_eq!(stand.coordinator.decide(&commit(mine)), Ok(Outcome::RolledBack));
        // Once it knows, nothing is kept.
        stand.coordinator.acknowledged(mine);
        (0..4).for_each(|_| _ = stand.round());
        assert!(stand.coordinator.show(mine).is_none());
    }
}

#[test]
fn an_operator_decides_what_is_prepared_and_undecided_and_nothing_else() {
    for outcome in [Outcome::Committed, Outcome::RolledBack] {
        let mut stand = Stand::new();
        let session = stand.coordinator.handshake("shop").unwrap();
        let (mine, other, unseen) = (tx(&session, 1), tx(&session, 2), tx(&session, 3));
        let xid = stand.banks[0].prepare(IDENTITY.node, mine, 0);
        stand.coordinator.decide(&commit(other)).unwrap();
        stand.round();
        let force = |stand: &Stand, tx| stand.coordinator.force(tx, outcome, &operator()).map_err(|error| error.kind);
        assert_eq!(force(&stand, mine), Err(Kind::Conflict), "its client decides");
        assert_eq!(force(&stand, other), Ok(Outcome::Committed), "somebody was first");
        stand.coordinator.lost(session.incarnation);
        assert_eq!(force(&stand, unseen), Err(Kind::NotFound));
        let before = stand.log.stored().appends;
        assert_eq!(force(&stand, mine), Ok(outcome));
        assert_eq!(stand.log.durable(), stand.log.end(), "durable on return");
        assert_eq!(force(&stand, mine), Ok(outcome), "once");
        assert_eq!(stand.log.stored().appends - before, 2, "the word and its effect");
        stand.restart(false);
        assert_eq!(stand.coordinator.show(mine).unwrap().decided, Some((outcome, By::Operator)));
        // Even the client that comes back gets it.
        stand.coordinator.resume(session.incarnation, session.secret).unwrap();
        assert_eq!(stand.coordinator.decide(&decision(mine, Outcome::Committed, true)), Ok(outcome));
        (0..3).for_each(|_| _ = stand.round());
        assert!(!stand.banks[0].vault().prepared.contains(&xid), "recovery tells the branches");
        let past = told(&stand.log, &Filter { state: Some(State::Forced), ..Filter::default() });
        assert_eq!(past.iter().map(|past| past.tx).collect::<Vec<_>>(), [mine]);
        let action = if outcome == Outcome::Committed { Action::Commit } else { Action::Rollback };
        let word = &past[0].words[0];
        assert_eq!((word.action, word.who.as_str(), past[0].by), (action, "ada", By::Operator));
        assert_eq!(past[0].client, "shop");
    }
}

#[test]
fn who_was_away_for_too_long_hears_what_a_person_decided_also_once_it_is_finished() {
    for outcome in [Outcome::Committed, Outcome::RolledBack] {
        let mut stand = Stand::new();
        let session = stand.coordinator.handshake("shop").unwrap();
        let (mine, unseen) = (tx(&session, 1), tx(&session, 2));
        stand.banks[0].prepare(IDENTITY.node, mine, 0);
        stand.round();
        stand.coordinator.lost(session.incarnation);
        assert_eq!(stand.coordinator.force(mine, outcome, &operator()), Ok(outcome));
        stand.fence();
        (0..3).for_each(|_| _ = stand.round());
        stand.coordinator.tick().unwrap();
        assert!(stand.banks[0].vault().prepared.is_empty(), "recovery tells the branches");
        assert_eq!(stand.coordinator.decide(&decision(mine, Outcome::Committed, true)), Ok(outcome));
        let nobody = stand.coordinator.decide(&decision(unseen, Outcome::Committed, true));
        assert_eq!(nobody, Ok(Outcome::RolledBack), "nobody has decided it");
    }
}

#[test]
fn an_operator_s_words_have_limits_that_are_named() {
    let stand = Stand::new();
    let mine = tx(&stand.coordinator.handshake("shop").unwrap(), 1);
    let say = |who: usize, reason: usize| {
        let operator = Operator { who: "a".repeat(who), reason: "b".repeat(reason) };
        let forced = stand.coordinator.force(mine, Outcome::Committed, &operator).unwrap_err();
        assert_eq!(stand.coordinator.forget(mine, &operator).unwrap_err().kind, forced.kind);
        (forced.kind, forced.message)
    };
    assert_eq!(say(128, 1_024).0, Kind::NotFound, "at the limits");
    assert_eq!(say(0, 0), (Kind::Invalid, "an operator's name of 0 bytes; it has 1 to 128".to_owned()));
    assert_eq!(say(129, 0).0, Kind::Invalid);
    let long = "an operator's reason of 1025 bytes; it has at most 1024".to_owned();
    assert_eq!(say(1, 1_025), (Kind::Invalid, long));
}

#[test]
fn a_heuristic_outcome_survives_every_restart_until_a_person_forgets_it() {
    for (by, checkpoint_bytes) in [(By::Agent, 8 << 20), (By::Client, 8 << 20), (By::Agent, 1), (By::Client, 1)] {
        let config = Config { checkpoint_bytes, ..Default::default() };
        let mut stand = Stand::with(config);
        stand.fence();
        let client = stand.coordinator.embedded().unwrap();
        let (_, mine) = client.begin().unwrap();
        stand.banks[0].prepare(IDENTITY.node, mine, 0);
        client.decide(&commit(mine)).unwrap();
        if by == By::Client {
            client.heuristic(mine, Outcome::Committed, &[deviation(0)]);
            stand.banks[0].vault().prepared.clear();
            stand.coordinator.tick().unwrap();
            client.acknowledged(mine);
        } else {
            stand.banks[0].trouble(Some(Trouble::Heuristic(Heuristic::RolledBack)));
            (0..2).for_each(|_| _ = stand.round());
        }
        assert_eq!(stand.coordinator.gauges().heuristic, 1, "{by:?}");
        drop(client);
        for life in 0..3 {
            // What recovery has found is durable at once; a client's word, which nobody waits for, at the next tick.
            if life > 0 || by == By::Client {
                stand.coordinator.tick().unwrap();
            }
            // Whatever nobody waited for is lost.
            stand.restart(false);
            (0..3).for_each(|_| _ = stand.round());
            stand.fence();
            let (heuristic, _, found) = listed(&stand.coordinator, mine).expect("it waits for a person");
            assert_eq!((heuristic, found), (Heuristic::RolledBack, Some(by)));
            assert_eq!(stand.coordinator.gauges().heuristic, 1);
        }
        assert_eq!(stand.coordinator.forget(mine, &operator()), Ok(()));
        assert_eq!(stand.coordinator.forget(mine, &operator()).unwrap_err().kind, Kind::NotFound);
        stand.restart(false);
        assert_eq!(stand.coordinator.gauges().heuristic, 0, "a person's word is durable");
        assert_eq!(listed(&stand.coordinator, mine), None);
        stand.fence();
        (0..3).for_each(|_| _ = stand.round());
        stand.coordinator.tick().unwrap();
        assert!(stand.coordinator.show(mine).is_none(), "forgotten: {by:?}");
        // A client that is not known to know it is told all the same, should it come.
        assert_eq!(stand.coordinator.ask(mine), Known::Committed, "{by:?}");
        let filter = Filter { state: Some(State::Heuristic), ..Filter::default() };
        if checkpoint_bytes > 1 {
            let past = told(&stand.log, &filter);
            let branch = &past[0].branches[0];
            assert_eq!((branch.heuristic, branch.by), (Some(Heuristic::RolledBack), Some(by)));
            assert!(past[0].finished_ms.is_some());
        }
    }
}

#[test]
fn a_branch_that_went_its_own_way_without_a_decision_is_kept_too() {
    // Presumed abort, one branch committed by hand: without a record nobody would ever hear of it again.
    for told_before in [false, true] {
        let mut stand = Stand::new();
        let client = stand.coordinator.embedded().unwrap();
        let (_, mine) = client.begin().unwrap();
        if told_before {
            client.decide(&decision(mine, Outcome::RolledBack, true)).unwrap();
        }
        client.heuristic(mine, Outcome::RolledBack, &[deviation(1)]);
        client.acknowledged(mine);
        stand.coordinator.tick().unwrap();
        stand.restart(false);
        let view = stand.coordinator.show(mine).unwrap();
        assert_eq!(view.decided, Some((Outcome::RolledBack, By::Client)));
        assert_eq!(listed(&stand.coordinator, mine).unwrap().1, "1402");
    }
}

#[test]
fn a_log_that_refuses_a_heuristic_outcome_gets_it_later() {
    let mut stand = Stand::new();
    let client = stand.coordinator.embedded().unwrap();
    let (_, mine) = client.begin().unwrap();
    client.decide(&commit(mine)).unwrap();
    stand.log.stored().refuses = Some(assent_journal::JournalError::Full { folder: "memory".to_owned() });
    client.heuristic(mine, Outcome::Committed, &[deviation(0)]);
    assert_eq!(stand.coordinator.gauges().heuristic, 1);
    _ = stand.coordinator.tick();
    stand.log.stored().refuses = None;
    stand.coordinator.tick().unwrap();
    stand.restart(false);
    assert_eq!(listed(&stand.coordinator, mine).unwrap().0, Heuristic::RolledBack);
}

#[test]
fn a_fenced_client_s_words_about_unknown_transactions_are_not_kept() {
    let stand = Stand::new();
    let session = stand.coordinator.handshake("late").unwrap();
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    stand.coordinator.heuristic(tx(&session, 1), Outcome::Committed, &[deviation(0)]);
    assert!(stand.coordinator.list().is_empty());
}

/// Where the table is full its transaction has its place in it all the same.
#[test]
fn a_full_table_keeps_what_a_client_says_of_a_transaction_that_is_in_it() {
    let stand = Stand::with(Config { transactions_max: 1, ..Config::default() });
    let session = stand.coordinator.handshake("shop").unwrap();
    let mine = tx(&session, 1);
    stand.coordinator.decide(&commit(mine)).unwrap();
    assert_eq!(stand.coordinator.decide(&commit(tx(&session, 2))).unwrap_err().kind, Kind::Busy);
    stand.coordinator.heuristic(mine, Outcome::Committed, &[deviation(0)]);
    assert_eq!(stand.coordinator.gauges().heuristic, 1);
    assert_eq!(listed(&stand.coordinator, mine).unwrap().0, Heuristic::RolledBack);
}

#[test]
fn pages_tell_all_and_each_once() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("shop").unwrap();
    for counter in 1..=5 {
        stand.coordinator.decide(&commit(tx(&session, counter))).unwrap();
    }
    // Decided and prepared, and prepared only.
    stand.banks[2].prepare(IDENTITY.node, tx(&session, 3), 7);
    stand.banks[2].prepare(IDENTITY.node, tx(&session, 9), 0);
    stand.round();
    let all: Vec<TxId> = stand.coordinator.list().iter().map(|view| view.tx).collect();
    assert_eq!(all, [1, 2, 3, 4, 5, 9].map(|counter| tx(&session, counter)));
    for limit in 1..=7 {
        let (mut pages, mut after) = (Vec::new(), None);
        loop {
            let (page, more) = stand.coordinator.page(after, limit);
            assert!(page.len() <= limit);
            pages.extend(page.iter().map(|view| view.tx));
            after = pages.last().copied();
            if !more {
                break;
            }
        }
        assert_eq!(pages, all, "pages of {limit}");
    }
}

#[test]
fn a_client_s_heuristic_outcome_says_more_than_that_recovery_found_the_branch_finished() {
    let mut stand = Stand::new();
    let client = stand.coordinator.embedded().unwrap();
    let (_, mine) = client.begin().unwrap();
    stand.banks[0].prepare(IDENTITY.node, mine, 0);
    client.decide(&commit(mine)).unwrap();
    (0..2).for_each(|_| _ = stand.round());
    assert!(stand.coordinator.show(mine).unwrap().branches.iter().any(|it| matches!(it.fate, Fate::Finished(_))));
    client.heuristic(mine, Outcome::Committed, &[deviation(0)]);
    client.finished(mine);
    assert_eq!(stand.coordinator.gauges().heuristic, 1);
    assert_eq!(listed(&stand.coordinator, mine).unwrap().0, Heuristic::RolledBack);
}

/// Of a branch that no resource here knows.
fn strayed(resource: &str, number: u16) -> Deviation {
    Deviation { resource: ResourceId::of(resource), number, ..deviation(0) }
}

#[test]
fn a_heuristic_outcome_costs_one_record_however_many_there_are() {
    let mut stand = Stand::new();
    let client = stand.coordinator.embedded().unwrap();
    let (_, mine) = client.begin().unwrap();
    let branches = (0..1_000).map(|number| branch(NAMES[0], number)).collect();
    client.decide(&Decision { branches, ..commit(mine) }).unwrap();
    let all: Vec<Deviation> = (0..1_000).map(|number| strayed(NAMES[0], number)).collect();
    let before = stand.log.stored().appends;
    client.heuristic(mine, Outcome::Committed, &all);
    assert_eq!(stand.log.stored().appends - before, 1_000);
    client.heuristic(mine, Outcome::Committed, &all);
    assert_eq!(stand.log.stored().appends - before, 1_000, "no news");
    stand.coordinator.tick().unwrap();
    stand.restart(false);
    let view = stand.coordinator.show(mine).unwrap();
    assert_eq!(view.branches.iter().filter(|it| matches!(it.fate, Fate::Heuristic(..))).count(), 1_000);
}

#[test]
fn no_more_heuristic_outcomes_are_kept_than_a_transaction_has_branches() {
    let stand = Stand::new();
    let client = stand.coordinator.embedded().unwrap();
    let (_, mine) = client.begin().unwrap();
    client.decide(&commit(mine)).unwrap();
    let max = u16::try_from(BRANCHES_MAX).unwrap();
    let of =
        |resource: &str, count: u16| -> Vec<Deviation> { (0..count).map(|number| strayed(resource, number)).collect() };
    let before = stand.log.stored().appends;
    client.heuristic(mine, Outcome::Committed, &of(NAMES[0], max + 1));
    assert_eq!(stand.log.stored().appends, before, "one beyond");
    client.heuristic(mine, Outcome::Committed, &of(NAMES[0], max));
    assert_eq!(stand.log.stored().appends - before, u64::from(max), "at the limit");
    client.heuristic(mine, Outcome::Committed, &of(NAMES[1], 10));
    assert_eq!(stand.log.stored().appends - before, u64::from(max), "nor in two messages");
}

#[test]
fn a_heuristic_outcome_at_a_resource_that_is_not_registered_any_more_can_be_forgotten() {
    for restarts in [false, true] {
        let mut stand = Stand::new();
        let client = stand.coordinator.embedded().unwrap();
        let (_, mine) = client.begin().unwrap();
        stand.banks[0].prepare(IDENTITY.node, mine, 0);
        let branches = vec![branch(NAMES[0], 0), branch("gone", 1)];
        client.decide(&Decision { branches, ..commit(mine) }).unwrap();
        client.heuristic(mine, Outcome::Committed, &[strayed("gone", 1)]);
        drop(client);
        stand.fence();
        (0..3).for_each(|_| _ = stand.round());
        assert_eq!(stand.coordinator.list().len(), 1, "it waits for a person");
        assert_eq!(stand.round().unregistered, [(mine, ResourceId::of("gone"))]);
        stand.coordinator.forget(mine, &operator()).unwrap();
        if restarts {
            stand.restart(false);
        }
        (0..3).for_each(|_| _ = stand.round());
        assert_eq!(stand.round().unregistered, []);
        assert!(stand.coordinator.list().is_empty(), "{:?}", stand.coordinator.list());
    }
}
