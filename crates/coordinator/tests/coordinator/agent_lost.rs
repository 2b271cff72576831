//! A power cut took a decision that was told (RPO > 0), or it was made behind a copy of the log that was put back. Recovery looks for a
//! committed sibling before it presumes anything.

use assent_coordinator::{By, Config, LostDecision, Resolution, Round, Session};
use assent_ids::{TxId, Xid};
use assent_kind::Kind;
use assent_xa::{Outcome, Resource, Verb};

use std::time::Duration;

use super::stand::{IDENTITY, Stand, commit, operator, tx};
use crate::bank::Trouble;

fn how(round: &Round) -> Vec<&Resolution> {
    round.branches.iter().map(|branch| &branch.resolution).collect()
}

/// A commit over two banks, told by a lazy log to a client that then died; the power cut took the decision.
fn lost(policy: LostDecision) -> (Stand, TxId, [Xid; 2]) {
    let mut stand = Stand::with(Config { lost_decision: policy, ..Config::default() });
    stand.log.stored().is_lazy = true;
    stand.restart(true);
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    let branches = [0, 1].map(|at| stand.banks[usize::from(at)].prepare(IDENTITY.node, mine, at));
    assert_eq!(stand.coordinator.decide(&commit(mine)), Ok(Outcome::Committed));
    stand.log.stored().may_have_lost = true;
    stand.restart(false);
    stand.fence();
    (stand, mine, branches)
}

#[test]
fn a_committed_sibling_shows_what_was_decided() {
    let (mut stand, mine, [a, b]) = lost(LostDecision::Hold);
    // Its client had told one branch before it died.
    stand.banks[0].teller().call(Verb::Commit(a));
    assert_eq!(how(&stand.round()), [&Resolution::Waiting]);
    assert_eq!(how(&stand.round()), [&Resolution::Waiting], "asked, not yet answered by all");
    let syncs = stand.log.stored().syncs;
    assert!(how(&stand.round()).contains(&&Resolution::Committed));
    assert!(stand.log.stored().syncs > syncs, "decided durably before the branch was told");
    assert!(stand.banks[1].vault().committed.contains(&b));
    let view = stand.coordinator.show(mine);
    assert!(view.is_none_or(|view| view.decided == Some((Outcome::Committed, By::Agent))));
    (0..4).for_each(|_| _ = stand.round());
    assert!(stand.coordinator.show(mine).is_none() && stand.round().is_clean());
    assert_eq!(stand.coordinator.gauges().heuristic, 0);
}

#[test]
fn without_one_it_is_held_reported_in_every_round_and_asked_about_again() {
    let (mut stand, mine, [a, b]) = lost(LostDecision::Hold);
    (0..2).for_each(|_| _ = stand.round());
    for _ in 0..40 {
        let round = stand.round();
        assert_eq!(how(&round), [&Resolution::Held; 2]);
        assert!(!round.is_clean());
    }
    assert_eq!(stand.coordinator.gauges().held, 1);
    let asked = stand.banks[2].vault().verbs.get("inquire").copied().unwrap_or_default();
    assert!((32..=48).contains(&asked), "{asked} questions in twenty seconds, sixteen a time");
    // A client that was told "committed" and only slept tells one of its branches after all.
    stand.banks[0].teller().call(Verb::Commit(a));
    (0..25).for_each(|_| _ = stand.round());
    assert!(stand.banks[1].vault().committed.contains(&b));
    assert_eq!(stand.coordinator.gauges().held, 0);
    (0..4).for_each(|_| _ = stand.round());
    assert!(stand.coordinator.show(mine).is_none());
}

#[test]
fn a_person_s_word_frees_what_is_held() {
    let (mut stand, mine, branches) = lost(LostDecision::Hold);
    (0..3).for_each(|_| _ = stand.round());
    assert_eq!(stand.coordinator.force(mine, Outcome::Committed, &operator()), Ok(Outcome::Committed));
    assert_eq!(how(&stand.round()), [&Resolution::Committed; 2]);
    for (bank, xid) in stand.banks.iter().zip(branches) {
        assert!(bank.vault().committed.contains(&xid));
    }
}

/// What another client was told then may be the opposite.
#[test]
fn a_person_s_rollback_is_told_to_a_resource_that_comes_back_later() {
    for restarts in [false, true] {
        let (mut stand, mine, [a, b]) = lost(LostDecision::Hold);
        stand.banks[0].trouble(Some(Trouble::Dead));
        (0..3).for_each(|_| _ = stand.round());
        assert_eq!(stand.coordinator.force(mine, Outcome::RolledBack, &operator()), Ok(Outcome::RolledBack));
        (0..6).for_each(|_| _ = stand.round());
        assert!(stand.banks[1].vault().rolled_back.contains(&b));
        if restarts {
            stand.restart(true);
            stand.fence();
            (0..6).for_each(|_| _ = stand.round());
        }
        stand.banks[0].trouble(None);
        (0..150).for_each(|_| _ = stand.round());
        assert!(stand.banks[0].vault().rolled_back.contains(&a), "restarted: {restarts}");
        assert_eq!(stand.coordinator.gauges().held, 0);
        assert!(stand.coordinator.show(mine).is_none(), "and then it is forgotten");
    }
}

/// A store of ours can be asked by recovery alone.
#[test]
fn a_person_s_rollback_is_refused_before_those_who_know_were_asked_and_against_what_they_know() {
    let (mut stand, mine, [a, b]) = lost(LostDecision::Hold);
    stand.banks[0].teller().call(Verb::Commit(a));
    stand.round();
    let early = stand.coordinator.force(mine, Outcome::RolledBack, &operator()).unwrap_err();
    assert_eq!(early.kind, Kind::Unavailable);
    assert!(early.message.contains("bank-") && early.message.contains("in a moment"), "{early:?}");
    // Recovery hears of it, and cannot tell the other branch.
    stand.banks[1].trouble(Some(Trouble::Dead));
    stand.round();
    let late = stand.coordinator.force(mine, Outcome::RolledBack, &operator()).unwrap_err();
    assert_eq!(late.kind, Kind::Conflict);
    assert!(late.message.contains("is committed at resource bank-a"), "{late:?}");
    stand.banks[1].trouble(None);
    (0..20).for_each(|_| _ = stand.round());
    assert!(stand.banks[1].vault().committed.contains(&b));
}

#[test]
fn a_resource_that_will_not_say_or_is_not_there_keeps_no_person_s_word_waiting() {
    for trouble in [Trouble::Standby, Trouble::Dead] {
        let (mut stand, mine, [_, b]) = lost(LostDecision::Hold);
        stand.banks[2].trouble(Some(trouble));
        (0..3).for_each(|_| _ = stand.round());
        assert_eq!(
            stand.coordinator.force(mine, Outcome::RolledBack, &operator()),
            Ok(Outcome::RolledBack),
            "{trouble:?}"
        );
        (0..3).for_each(|_| _ = stand.round());
        assert!(stand.banks[1].vault().rolled_back.contains(&b));
    }
}

#[test]
fn a_resource_that_is_asked_looks_again_soon() {
    let mut stand = Stand::new();
    stand.log.stored().is_lazy = true;
    stand.restart(true);
    let mine = tx(&stand.coordinator.handshake("client").unwrap(), 1);
    // The last one that looks.
    stand.banks[2].prepare(IDENTITY.node, mine, 0);
    stand.log.stored().may_have_lost = true;
    stand.restart(false);
    stand.fence();
    let soon = Duration::from_millis(500);
    (0..4).for_each(|_| _ = stand.round());
    assert_eq!(stand.coordinator.gauges().held, 1);
    let mut paused = Vec::new();
    for _ in 0..12 {
        stand.clock.advance(Duration::from_secs(1));
        stand.agent.round();
        paused.push(stand.agent.pause());
    }
    // Answers are ten seconds old once, and the others have looked before they are asked again.
    assert!(paused.contains(&soon) && paused.contains(&Duration::from_secs(10)), "{paused:?}");
}

/// Others may have decided against it behind the copy: it was given a commit.
#[test]
fn no_client_of_before_comes_back_behind_a_copy_that_was_put_back() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    stand.banks[0].prepare(IDENTITY.node, mine, 0);
    stand.log = stand.log.copied();
    for is_restored in [true, false] {
        stand.config.is_restored = is_restored;
        stand.restart(false);
        let refused = stand.coordinator.resume(session.incarnation, session.secret).unwrap_err();
        assert_eq!(refused.kind(), Kind::RolledBack, "restored: {is_restored}");
        assert_eq!(stand.coordinator.decide(&commit(mine)), Ok(Outcome::RolledBack), "it has never asked before");
    }
    (0..8).for_each(|_| _ = stand.round());
    assert_eq!(stand.coordinator.gauges().held, 1, "nobody presumes");
}

#[test]
fn by_the_other_policy_it_is_rolled_back_but_not_before_all_were_asked() {
    let (mut stand, _, branches) = lost(LostDecision::Rollback);
    for trouble in [Trouble::Standby, Trouble::Dead] {
        // One that refuses to say has not been asked.
        stand.banks[2].trouble(Some(trouble));
        for _ in 0..10 {
            assert!(how(&stand.round()).iter().all(|one| **one == Resolution::Waiting), "{trouble:?}");
        }
    }
    stand.banks[2].trouble(None);
    for _ in 0..100 {
        stand.round();
    }
    for (bank, xid) in stand.banks.iter().zip(branches) {
        assert!(bank.vault().rolled_back.contains(&xid));
    }
}

#[test]
fn a_crowd_that_is_searched_for_keeps_no_decided_branch_waiting_and_each_has_its_turn() {
    let mut stand = Stand::new();
    stand.log.stored().is_lazy = true;
    stand.restart(true);
    let session = stand.coordinator.handshake("client").unwrap();
    for counter in 1..=40 {
        stand.banks[0].prepare(IDENTITY.node, tx(&session, counter), 0);
        stand.coordinator.decide(&commit(tx(&session, counter))).unwrap();
    }
    stand.log.stored().may_have_lost = true;
    stand.restart(false);
    stand.fence();
    (0..2).for_each(|_| _ = stand.round());
    let asked = |stand: &Stand| stand.banks[0].vault().verbs.get("inquire").copied().unwrap_or_default();
    for _ in 0..4 {
        let before = asked(&stand);
        stand.round();
        assert!(asked(&stand) - before <= 64, "{} inquiries in one look", asked(&stand) - before);
    }
    (0..9).for_each(|_| _ = stand.round());
    assert_eq!(stand.coordinator.gauges().held, 40, "each was asked about");
}

#[test]
fn the_last_branch_that_is_looked_for_is_found_and_a_commit_with_one_more_is_refused() {
    let mut stand = Stand::new();
    let over = |session: &Session, counter, last| {
        let mut decision = commit(tx(session, counter));
        decision.branches[1].number = last;
        decision
    };
    let session = stand.coordinator.handshake("client").unwrap();
    assert_eq!(stand.coordinator.decide(&over(&session, 1, 16)), Ok(Outcome::Committed), "it is durable, or not told");
    stand.log.stored().is_lazy = true;
    stand.restart(true);
    let session = stand.coordinator.handshake("client").unwrap();
    let refused = stand.coordinator.decide(&over(&session, 1, 16)).unwrap_err();
    assert_eq!(refused.kind, Kind::Invalid);
    assert!(refused.message.contains("branch number 16") && refused.message.contains("set it to 0"), "{refused:?}");
    let mine = tx(&session, 2);
    let branches = [(0, 0), (1, 15)].map(|(at, number)| stand.banks[at].prepare(IDENTITY.node, mine, number));
    assert_eq!(stand.coordinator.decide(&over(&session, 2, 15)), Ok(Outcome::Committed));
    stand.log.stored().may_have_lost = true;
    stand.restart(false);
    stand.fence();
    stand.banks[1].teller().call(Verb::Commit(branches[1]));
    (0..4).for_each(|_| _ = stand.round());
    assert!(stand.banks[0].vault().committed.contains(&branches[0]), "its sibling was found");
}

#[test]
fn what_was_decided_behind_a_copy_that_is_put_back_is_never_presumed() {
    for is_restored in [true, false] {
        let mut stand = Stand::new();
        let session = stand.coordinator.handshake("client").unwrap();
        let mine = tx(&session, 1);
        let [a, b] = [0, 1].map(|at| stand.banks[usize::from(at)].prepare(IDENTITY.node, mine, at));
        let copy = stand.log.copied();
        assert_eq!(stand.coordinator.decide(&commit(mine)), Ok(Outcome::Committed));
        stand.banks[0].teller().call(Verb::Commit(a));
        // Its machine is lost. Once more, because the first opening of the copy keeps what it was told.
        stand.log = copy;
        stand.config.is_restored = is_restored;
        stand.restart(true);
        stand.config.is_restored = false;
        stand.restart(true);
        stand.fence();
        (0..8).for_each(|_| _ = stand.round());
        assert_eq!(
            stand.banks[1].vault().committed.contains(&b),
            is_restored,
            "found by its sibling, or half a commit"
        );
        let later = tx(&stand.coordinator.handshake("later").unwrap(), 1);
        assert!(!stand.coordinator.may_be_lost(later));
    }
}
