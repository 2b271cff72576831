//! Recovery asks what became of a branch that is gone, and says what it was told: done, undone by somebody, or not known.

use assent_coordinator::{Resolution, Round};
use assent_ids::TxId;
use assent_kind::Kind;
use assent_xa::{BranchRecord, Decision, Heuristic, Outcome};

use super::stand::{IDENTITY, Stand, branch, operator, tx};
use crate::bank::Trouble;

/// A commit, decided over the first bank by a client that is gone for ever.
fn orphan(stand: &Stand, counter: u64) -> TxId {
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, counter);
    let branches = vec![BranchRecord { witness: b"xid8 4711".to_vec(), ..branch("bank-a", 0) }];
    let decision = Decision { tx: mine, outcome: Outcome::Committed, first: true, branches };
    stand.coordinator.decide(&decision).unwrap();
    stand.coordinator.lost(session.incarnation);
    mine
}

fn how(round: &Round) -> Vec<&Resolution> {
    round.branches.iter().map(|branch| &branch.resolution).collect()
}

fn inquiries(stand: &Stand) -> u64 {
    stand.banks[0].vault().verbs.get("inquire").copied().unwrap_or_default()
}

#[test]
fn a_branch_that_is_gone_is_asked_about_once_with_its_witness() {
    let mut stand = Stand::new();
    let mine = orphan(&stand, 1);
    let xid = stand.banks[0].xid(IDENTITY.node, mine, 0);
    stand.banks[0].vault().committed.insert(xid);
    stand.fence();
    assert_eq!(how(&stand.round()), [] as [&Resolution; 0], "one listing is no evidence");
    assert_eq!(inquiries(&stand), 0);
    assert_eq!(how(&stand.round()), [&Resolution::Committed]);
    assert_eq!(stand.banks[0].vault().witnesses, [b"xid8 4711".to_vec()]);
    (0..3).for_each(|_| _ = stand.round());
    assert_eq!(inquiries(&stand), 1);
    assert!(stand.coordinator.show(mine).is_none());
}

#[test]
fn a_commit_that_somebody_undid_is_reported_and_stays() {
    let mut stand = Stand::new();
    let mine = orphan(&stand, 1);
    let xid = stand.banks[0].xid(IDENTITY.node, mine, 0);
    stand.banks[0].vault().rolled_back.insert(xid);
    stand.fence();
    stand.round();
    let round = stand.round();
    let [Resolution::Heuristic(Heuristic::RolledBack, native)] = how(&round)[..] else { panic!("{round:?}") };
    assert!(native.message.contains("undid"), "{native:?}");
    (0..3).for_each(|_| _ = stand.round());
    assert_eq!((inquiries(&stand), stand.coordinator.gauges().heuristic), (1, 1));
    assert!(stand.coordinator.show(mine).is_some());
    assert!(stand.coordinator.forget(mine, &operator()).is_ok());
    (0..3).for_each(|_| _ = stand.round());
    assert!(stand.coordinator.show(mine).is_none(), "a person has seen to it");
    assert_eq!(inquiries(&stand), 1, "and it is not asked about again");
}

#[test]
fn a_branch_that_was_lost_by_a_fail_over_is_a_hazard_and_never_done() {
    // Written: a commit, decided; its client died. The database failed over to a standby that had not received the
    // prepare. The agent saw two listings without the branch and called it finished: half a transaction, nobody told.
    let mut stand = Stand::new();
    let mine = orphan(&stand, 1);
    stand.banks[0].prepare(IDENTITY.node, mine, 0);
    stand.fence();
    let mut vault = stand.banks[0].vault();
    vault.prepared.clear();
    vault.is_elsewhere = true;
    drop(vault);
    stand.round();
    let round = stand.round();
    let [Resolution::Heuristic(Heuristic::Hazard, native)] = how(&round)[..] else { panic!("{round:?}") };
    assert_eq!(native.message, "timeline 2");
    assert!(!round.is_clean());
    (0..3).for_each(|_| _ = stand.round());
    assert_eq!(stand.coordinator.gauges().heuristic, 1);
}

#[test]
fn a_branch_that_is_gone_when_it_is_told_is_asked_about_at_once() {
    for (rolled_back, expected) in [(false, Resolution::Committed), (true, Resolution::RolledBack)] {
        let mut stand = Stand::new();
        let mine = orphan(&stand, 1);
        let xid = stand.banks[0].prepare(IDENTITY.node, mine, 0);
        stand.fence();
        // Somebody finishes it between the list and the word.
        let bank = stand.banks[0].clone();
        stand.banks[0].vault().meanwhile = Some(Box::new(move || {
            let mut vault = bank.vault();
            vault.prepared.remove(&xid);
            if rolled_back {
                vault.rolled_back.insert(xid)
            } else {
                vault.committed.insert(xid)
            };
        }));
        let round = stand.round();
        match (&how(&round)[..], expected) {
            ([Resolution::Heuristic(Heuristic::RolledBack, _)], Resolution::RolledBack) => {}
            ([found], expected) => assert_eq!(**found, expected),
            other => panic!("{other:?}"),
        }
        assert_eq!(stand.banks[0].vault().witnesses, [b"xid8 4711".to_vec()]);
    }
}

#[test]
fn a_resource_that_cannot_say_is_asked_again_later_and_later() {
    let mut stand = Stand::new();
    let mine = orphan(&stand, 1);
    stand.fence();
    stand.banks[0].trouble(Some(Trouble::Standby));
    for _ in 0..20 {
        stand.round();
    }
    assert!((3..=6).contains(&inquiries(&stand)), "{} questions in ten seconds", inquiries(&stand));
    assert!(stand.coordinator.show(mine).is_some(), "kept");
    let round = stand.agent.round();
    assert!(how(&round).iter().all(|one| matches!(one, Resolution::Retry(Kind::Unavailable, _))), "{round:?}");
}

#[test]
fn a_decided_rollback_that_a_person_committed_is_reported() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    let decision = Decision {
        tx: mine,
        outcome: Outcome::RolledBack,
        first: true,
        branches: vec![branch("bank-a", 0), branch("bank-b", 1)],
    };
    stand.coordinator.decide(&decision).unwrap();
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    let xid = stand.banks[0].xid(IDENTITY.node, mine, 0);
    stand.banks[0].vault().committed.insert(xid);
    stand.round();
    let round = stand.round();
    let found = how(&round);
    assert!(matches!(found[..], [Resolution::Heuristic(Heuristic::Committed, _), Resolution::NotListed]), "{round:?}");
}

#[test]
fn a_session_that_keeps_a_branch_is_ended_once_its_client_is_fenced_and_not_before() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    let xid = stand.banks[0].prepare(IDENTITY.node, mine, 0);
    stand.coordinator.decide(&super::stand::commit(mine)).unwrap();
    stand.banks[0].vault().kept.insert(xid);
    let evictions = |stand: &Stand| stand.banks[0].vault().verbs.get("evict").copied().unwrap_or_default();
    stand.coordinator.lost(session.incarnation);
    let round = stand.round();
    assert!(matches!(how(&round)[..], [Resolution::Retry(Kind::Busy, _)]), "{round:?}");
    assert_eq!(evictions(&stand), 0, "its client may come back");
    stand.fence();
    stand.round();
    stand.round();
    assert_eq!(evictions(&stand), 1);
    assert!(stand.banks[0].vault().committed.contains(&xid), "told again at once");
}

/// The first bank shows its branch, the second is dead; a person decides commit, then the client is fenced.
fn forced_while_one_is_dead() -> (Stand, TxId, assent_ids::Xid) {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    stand.banks[0].prepare(IDENTITY.node, mine, 0);
    let late = stand.banks[1].prepare(IDENTITY.node, mine, 1);
    stand.banks[1].trouble(Some(Trouble::Dead));
    stand.coordinator.lost(session.incarnation);
    stand.round();
    assert_eq!(stand.coordinator.force(mine, Outcome::Committed, &operator()), Ok(Outcome::Committed));
    stand.fence();
    (0..6).for_each(|_| _ = stand.round());
    (stand, mine, late)
}

#[test]
fn a_commit_by_force_waits_for_the_branch_of_a_resource_that_was_down() {
    for restarts in [false, true] {
        let (mut stand, mine, late) = forced_while_one_is_dead();
        assert!(stand.coordinator.show(mine).is_some(), "the second bank may hold a branch of it");
        if restarts {
            stand.restart(false);
            (0..4).for_each(|_| _ = stand.round());
            stand.fence();
        }
        stand.banks[1].trouble(None);
        (0..6).for_each(|_| _ = stand.round());
        assert!(stand.banks[1].vault().committed.contains(&late), "as its sibling was, restarted: {restarts}");
        assert!(stand.coordinator.show(mine).is_none(), "and then it is forgotten");
    }
}

#[test]
fn a_commit_of_which_nothing_was_kept_is_a_hazard_where_votes_leave_witnesses() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    let (a, b) = (stand.banks[0].prepare(IDENTITY.node, mine, 0), stand.banks[1].prepare(IDENTITY.node, mine, 1));
    stand.coordinator.lost(session.incarnation);
    stand.round();
    stand.coordinator.force(mine, Outcome::Committed, &operator()).unwrap();
    // A fail-over loses both. The first leaves witnesses and says that nothing was kept; the second has none by nature.
    stand.banks[0].vault().prepared.remove(&a);
    stand.banks[0].vault().is_elsewhere = true;
    stand.banks[1].vault().prepared.remove(&b);
    stand.round();
    let round = stand.round();
    let found = how(&round);
    let [Resolution::Heuristic(Heuristic::Hazard, _), Resolution::CommittedInferred] = found[..] else {
        panic!("{round:?}")
    };
    assert_eq!(stand.coordinator.gauges().heuristic, 1);
}

#[test]
fn a_presumed_rollback_of_which_nothing_was_kept_is_no_hazard() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    let xid = stand.banks[0].prepare(IDENTITY.node, mine, 0);
    stand.coordinator.lost(session.incarnation);
    stand.round();
    stand.fence();
    stand.coordinator.force(mine, Outcome::RolledBack, &operator()).unwrap();
    stand.banks[0].vault().prepared.remove(&xid);
    stand.banks[0].vault().is_elsewhere = true;
    stand.round();
    assert_eq!(how(&stand.round()), [&Resolution::NotListed]);
    assert_eq!(stand.coordinator.gauges().heuristic, 0);
}

fn times(stand: &Stand, verb: &str) -> u64 {
    stand.banks[0].vault().verbs.get(verb).copied().unwrap_or_default()
}

/// MariaDB answers an outcome with success, and does nothing, while the session that voted is on its way out. Of a commit that
/// is half a transaction, of a rollback a row that stays locked until the server is started again.
#[test]
fn an_outcome_waits_until_the_connection_that_voted_has_gone() {
    for (outcome, verb) in [(Outcome::Committed, "commit"), (Outcome::RolledBack, "rollback")] {
        let mut stand = Stand::new();
        let session = stand.coordinator.handshake("client").unwrap();
        let mine = tx(&session, 1);
        let xid = stand.banks[0].prepare(IDENTITY.node, mine, 0);
        let mut decision = super::stand::decision(mine, outcome, true);
        decision.branches.truncate(1);
        decision.branches[0].witness = b"connection=17".to_vec();
        stand.coordinator.decide(&decision).unwrap();
        stand.banks[0].vault().going.insert(xid);
        stand.coordinator.lost(session.incarnation);
        for _ in 0..3 {
            let round = stand.round();
            assert!(matches!(how(&round)[..], [Resolution::Retry(Kind::Busy, _) | Resolution::Waiting]), "{round:?}");
        }
        assert_eq!(times(&stand, verb), 0, "its answer would be no answer");
        stand.banks[0].vault().going.remove(&xid);
        (0..20).for_each(|_| _ = stand.round());
        let vault = stand.banks[0].vault();
        let told = if outcome == Outcome::Committed { &vault.committed } else { &vault.rolled_back };
        assert!(told.contains(&xid));
        assert_eq!(vault.verbs.get(verb), Some(&1));
    }
}

/// Of what nobody decided no vote is known: whoever works for its client may have it.
#[test]
fn the_branch_of_a_client_that_died_undecided_is_told_once_its_connections_have_gone() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let xid = stand.banks[0].prepare(IDENTITY.node, tx(&session, 1), 0);
    stand.banks[0].vault().going.insert(xid);
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    stand.round();
    let round = stand.round();
    let found = how(&round);
    let [Resolution::Retry(Kind::Busy, native)] = found[..] else { panic!("{round:?}") };
    assert_eq!(native.message, "its connection is there; its connection has not gone", "whom it waits for, and why");
    (0..2).for_each(|_| _ = stand.round());
    assert!(times(&stand, "freed") > 0 && times(&stand, "rollback") == 0, "its answer would be no answer");
    stand.banks[0].vault().going.remove(&xid);
    (0..20).for_each(|_| _ = stand.round());
    assert!(stand.banks[0].vault().rolled_back.contains(&xid));
    assert_eq!(times(&stand, "rollback"), 1);
}

/// Its other connections may stay for as long as it likes.
#[test]
fn a_client_that_may_come_back_is_not_waited_for_where_nothing_says_who_voted() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    let xid = stand.banks[0].prepare(IDENTITY.node, mine, 0);
    stand.coordinator.lost(session.incarnation);
    stand.round();
    assert_eq!(stand.coordinator.force(mine, Outcome::RolledBack, &operator()), Ok(Outcome::RolledBack));
    stand.round();
    assert!(stand.banks[0].vault().rolled_back.contains(&xid));
    assert_eq!(times(&stand, "freed"), 0);
}

/// Connections that nobody here may end are not waited for either, unless one of them is known to have the branch.
#[test]
fn a_branch_that_nobody_is_known_to_keep_is_rolled_back_beside_connections_of_another_account() {
    for is_attached in [false, true] {
        let mut stand = Stand::new();
        let session = stand.coordinator.handshake("client").unwrap();
        let xid = stand.banks[0].prepare(IDENTITY.node, tx(&session, 1), 0);
        let mut vault = stand.banks[0].vault();
        vault.is_denied = true;
        _ = if is_attached { vault.kept.insert(xid) } else { vault.beside.insert(xid) };
        drop(vault);
        stand.coordinator.lost(session.incarnation);
        stand.fence();
        stand.round();
        let round = stand.round();
        let found = how(&round);
        if is_attached {
            let [Resolution::Retry(Kind::Denied, native)] = found[..] else { panic!("{round:?}") };
            assert_eq!(native.message, "another account's");
        } else {
            assert_eq!(found, [&Resolution::RolledBack]);
        }
        assert_eq!(times(&stand, "rollback"), 1, "attached: {is_attached}");
    }
}

/// What was seen: a client cut off from its coordinator and not from its database opened its sessions again as fast as they
/// were ended; each of them counted as one that may have the branch, which was never rolled back.
#[test]
fn who_comes_behind_an_eviction_is_not_waited_for() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let xid = stand.banks[0].prepare(IDENTITY.node, tx(&session, 1), 0);
    // It does not go by an eviction.
    stand.banks[0].vault().beside.insert(xid);
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    stand.round();
    assert_eq!(how(&stand.round()), [&Resolution::RolledBack]);
    assert_eq!((times(&stand, "evict"), times(&stand, "rollback")), (1, 1));
}
