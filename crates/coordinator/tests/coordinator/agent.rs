//! Recovery: orphans, dead resources, lost answers, heuristics, copies.

use std::time::Duration;

use assent_coordinator::{Attendant, Config, Known, Resolution, Round, Standing};
use assent_ids::{Epoch, Incarnation, TxId};
use assent_journal::Log;
use assent_kind::Kind;
use assent_xa::{Decider, Heuristic, Outcome, Verdict};

use super::stand::{IDENTITY, Stand, commit, decision, operator, tx};
use crate::bank::Trouble;
use crate::client::transfer;

fn how(round: &Round) -> Vec<&Resolution> {
    round.branches.iter().map(|branch| &branch.resolution).collect()
}

#[test]
fn branches_of_a_dead_client_are_rolled_back_when_seen_twice() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    let xid = stand.banks[0].prepare(IDENTITY.node, mine, 0);
    assert_eq!(how(&stand.round()), [&Resolution::Waiting], "the client is at work");
    stand.coordinator.lost(session.incarnation);
    assert_eq!(how(&stand.round()), [&Resolution::Waiting], "it may come back");
    assert_eq!(stand.agent.pause(), Duration::from_millis(500));
    stand.fence();
    let syncs = stand.log.stored().syncs;
    assert_eq!(how(&stand.round()), [&Resolution::RolledBack]);
    assert_eq!(stand.log.stored().syncs, syncs + 1, "decided durably before the branch was told");
    assert!(stand.banks[0].vault().rolled_back.contains(&xid));
    assert!(stand.round().is_clean());
    assert!(stand.coordinator.show(mine).is_none(), "rolled back, and nobody can contradict it");
    assert_eq!(stand.agent.pause(), Duration::from_secs(10));
    // A late PREPARE appears late.
    stand.banks[0].prepare(IDENTITY.node, mine, 0);
    assert_eq!(how(&stand.round()), [&Resolution::Waiting]);
    assert_eq!(how(&stand.round()), [&Resolution::RolledBack]);
}

#[test]
fn a_transaction_aborted_again_after_it_was_forgotten_is_known_after_a_restart() {
    // The record of the second abort carries the news that the first one was forgotten: in this order.
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    stand.banks[0].prepare(IDENTITY.node, mine, 0);
    (0..3).for_each(|_| _ = stand.round());
    assert!(stand.coordinator.show(mine).is_none());
    let late = stand.banks[0].prepare(IDENTITY.node, mine, 0);
    stand.round();
    stand.banks[0].trouble(Some(Trouble::LosesVerbs));
    stand.round();
    stand.restart(false);
    assert_eq!(stand.coordinator.ask(mine), Known::RolledBack);
    stand.banks[0].trouble(None);
    assert_eq!(how(&stand.round()), [&Resolution::RolledBack]);
    assert!(stand.banks[0].vault().rolled_back.contains(&late));
}

#[test]
fn a_branch_seen_once_is_left_alone_even_if_its_client_is_fenced() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    stand.banks[0].prepare(IDENTITY.node, tx(&session, 1), 0);
    assert_eq!(how(&stand.round()), [&Resolution::Waiting]);
    assert_eq!(how(&stand.round()), [&Resolution::RolledBack]);
}

#[test]
fn a_decided_commit_is_finished_for_a_client_that_died() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    stand.banks[0].prepare(IDENTITY.node, mine, 0);
    stand.banks[1].prepare(IDENTITY.node, mine, 1);
    stand.coordinator.decide(&commit(mine)).unwrap();
    stand.restart(false);
    let round = stand.round();
    assert_eq!(how(&round), [&Resolution::Committed; 2]);
    assert_eq!(round.branches.iter().map(|one| one.resource.as_str()).collect::<Vec<_>>(), ["bank-a", "bank-b"]);
    assert!(stand.coordinator.show(mine).is_some(), "its client may still ask");
    stand.fence();
    stand.round();
    assert!(stand.coordinator.show(mine).is_none());
}

#[test]
fn a_healthy_client_is_left_to_itself_and_helped_when_it_lost_a_branch() {
    let mut stand = Stand::new();
    let client = stand.coordinator.embedded().unwrap();
    stand.banks[1].trouble(Some(Trouble::LosesVerbs));
    let report = transfer(&client, &stand.banks);
    assert_eq!((report.verdict, report.unfinished.len()), (Verdict::Committed, 1));
    stand.banks[1].trouble(None);
    assert_eq!(how(&stand.round()).iter().filter(|one| **one == &Resolution::Waiting).count(), 1);
    let round = stand.round();
    assert!(how(&round).contains(&&Resolution::Committed), "{round:?}");
    stand.round();
    assert_eq!(stand.coordinator.gauges().live, 0, "acknowledged and finished: forgotten while its client lives");
    assert_eq!(stand.banks.iter().map(|bank| bank.vault().committed.len()).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn a_branch_prepared_for_too_long_is_rolled_back_though_its_client_lives() {
    let mut stand = Stand::with(Config { prepared_ms_max: 2_000, ..Config::default() });
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    stand.banks[0].prepare(IDENTITY.node, mine, 0);
    for _ in 0..5 {
        assert_eq!(how(&stand.round()), [&Resolution::Waiting]);
    }
    assert_eq!(how(&stand.round()), [&Resolution::RolledBack]);
    // The client comes late, is told, and acknowledges.
    assert_eq!(stand.coordinator.decide(&commit(mine)), Ok(Outcome::RolledBack));
    stand.coordinator.finished(mine);
    stand.round();
    assert!(stand.coordinator.show(mine).is_none());
}

#[test]
fn one_dead_resource_stops_nobody_else_and_is_asked_every_second() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    for (number, bank) in (0..).zip(&stand.banks) {
        bank.prepare(IDENTITY.node, mine, number);
    }
    let branches =
        vec![super::stand::branch("bank-a", 0), super::stand::branch("bank-b", 1), super::stand::branch("bank-c", 2)];
    stand.coordinator.decide(&assent_xa::Decision { branches, ..commit(mine) }).unwrap();
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    stand.banks[1].trouble(Some(Trouble::Dead));
    let round = stand.round();
    assert_eq!(how(&round), [&Resolution::Committed; 2]);
    assert!(!round.is_clean());
    assert_eq!(round.resources[1].trouble.as_ref().map(|(kind, _)| *kind), Some(Kind::Unavailable));
    for _ in 0..20 {
        stand.round();
    }
    let connects = stand.banks[1].vault().connects;
    assert!((9..=13).contains(&connects), "{connects} attempts in ten seconds");
    assert!(stand.coordinator.show(mine).is_some());
    stand.banks[1].trouble(None);
    while !stand.round().is_clean() {}
    assert_eq!(stand.banks[1].vault().committed.len(), 1);
    stand.round();
    assert!(stand.coordinator.show(mine).is_none());
}

#[test]
fn a_lost_answer_is_asked_again() {
    for (trouble, last) in [
        (Trouble::LosesAnswers, Resolution::CommittedInferred),
        (Trouble::LosesVerbs, Resolution::Committed),
        (Trouble::Refuses, Resolution::Committed),
    ] {
        let mut stand = Stand::new();
        let session = stand.coordinator.handshake("client").unwrap();
        let mine = tx(&session, 1);
        stand.banks[0].vault().is_forgetful = true;
        stand.banks[0].prepare(IDENTITY.node, mine, 0);
        stand.coordinator.decide(&commit(mine)).unwrap();
        stand.coordinator.lost(session.incarnation);
        stand.banks[0].trouble(Some(trouble));
        let round = stand.round();
        assert!(matches!(round.branches[0].resolution, Resolution::Retry(..)), "{round:?}");
        stand.banks[0].trouble(None);
        let mut round = stand.round();
        if last == Resolution::CommittedInferred {
            assert!(
                !round.branches.iter().any(|one| one.resource == "bank-a"),
                "one listing is no evidence: {round:?}"
            );
            round = stand.round();
        }
        let bank_a: Vec<_> = round.branches.iter().filter(|one| one.resource == "bank-a").collect();
        assert_eq!(bank_a.iter().map(|one| &one.resolution).collect::<Vec<_>>(), [&last], "{trouble:?}");
        assert_eq!(stand.banks[0].vault().committed.len(), 1);
    }
}

#[test]
fn one_listing_without_the_branch_does_not_let_a_decided_commit_be_forgotten() {
    // Written: a commit, decided; its client died. The recovery connection reached a standby, which lists nothing; that
    // was taken for "finished" and the decision forgotten. After the promotion the branch came back, undecided, and was
    // rolled back, while the other bank had committed.
    for between in [None, Some(Trouble::Dead)] {
        let mut stand = Stand::new();
        let session = stand.coordinator.handshake("client").unwrap();
        let mine = tx(&session, 1);
        let xid = stand.banks[0].prepare(IDENTITY.node, mine, 0);
        stand.coordinator.decide(&commit(mine)).unwrap();
        stand.coordinator.lost(session.incarnation);
        stand.fence();
        stand.banks[0].trouble(Some(Trouble::Standby));
        stand.round();
        assert_eq!(stand.agent.pause(), Duration::from_millis(500), "it looks again soon");
        if between.is_some() {
            // The fail-over is seen, and the standby answers once more.
            stand.banks[0].trouble(between);
            stand.round();
            stand.banks[0].trouble(Some(Trouble::Standby));
            while stand.round().resources[0].listed.is_none() {}
        }
        stand.banks[0].trouble(None);
        assert!(stand.coordinator.show(mine).is_some(), "kept");
        assert!(how(&stand.round()).contains(&&Resolution::Committed));
        assert!(stand.banks[0].vault().committed.contains(&xid));
        stand.round();
        assert!(stand.coordinator.show(mine).is_none());
    }
}

#[test]
fn a_listing_in_a_stopped_round_does_not_count() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    stand.coordinator.decide(&commit(mine)).unwrap();
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    stand.round();
    let theirs = TxId { incarnation: Incarnation { epoch: Epoch(9), number: 1 }, counter: 7 };
    let xid = stand.banks[1].prepare(IDENTITY.node, theirs, 0);
    assert!(stand.round().stopped.is_some());
    stand.banks[1].vault().prepared.remove(&xid);
    assert_eq!(how(&stand.round()).len(), 0, "counted anew");
    assert_eq!(how(&stand.round()), [&Resolution::CommittedInferred; 2]);
}

#[test]
fn a_listing_counts_only_after_the_decision_is_durable() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let (one, two) = (tx(&session, 1), tx(&session, 2));
    // Its client died between laying the decision and waiting for it.
    _ = stand.coordinator.decide_begin(&commit(one)).unwrap();
    stand.coordinator.lost(session.incarnation);
    stand.round();
    assert_eq!(stand.log.durable(), stand.log.end(), "recovery waits in its place");
    assert_eq!(how(&stand.round()), [&Resolution::CommittedInferred; 2]);
    // And where it cannot become durable nothing is concluded.
    _ = stand.coordinator.decide_begin(&commit(two)).unwrap();
    stand.log.stored().is_closed = true;
    for _ in 0..3 {
        assert_eq!(how(&stand.round()), [] as [&Resolution; 0]);
    }
}

/// A server that was killed and started again may list what it had answered as rolled back.
#[test]
fn a_connection_that_ended_while_it_rested_makes_a_look_due_and_a_few_more() {
    let (soon, late) = (Duration::from_millis(500), Duration::from_secs(10));
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    assert!(stand.round().is_clean());
    assert_eq!((stand.agent.is_cut_off(), stand.agent.pause()), (false, late));
    let kept: Vec<u64> = stand.banks[1].vault().claims.values().copied().collect();
    stand.banks[1].vault().broken.extend(kept);
    assert!(stand.agent.is_cut_off());
    stand.banks[1].prepare(IDENTITY.node, mine, 0);
    assert_eq!(how(&stand.round()), [&Resolution::Waiting]);
    assert_eq!(how(&stand.round()), [&Resolution::RolledBack]);
    for _ in 0..2 {
        assert_eq!((stand.agent.is_cut_off(), stand.agent.pause()), (false, soon));
        assert!(stand.round().is_clean());
    }
    assert_eq!(stand.agent.pause(), late);
}

/// A killed client's last words may be carried out long after it, and after the look that its fence has called for.
#[test]
fn a_call_makes_a_few_more_looks_due_so_a_late_prepare_is_found() {
    let (soon, late) = (Duration::from_millis(500), Duration::from_secs(10));
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    stand.agent.attendants().iter_mut().for_each(Attendant::called);
    for _ in 0..4 {
        assert!(stand.round().is_clean());
        assert_eq!(stand.agent.pause(), soon);
    }
    stand.banks[1].prepare(IDENTITY.node, mine, 0);
    assert_eq!(how(&stand.round()), [&Resolution::Waiting]);
    assert_eq!(how(&stand.round()), [&Resolution::RolledBack]);
    assert!(stand.round().is_clean());
    assert_eq!(stand.agent.pause(), late);
}

#[test]
fn heuristic_outcomes_stay_until_a_person_clears_them() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    let xid = stand.banks[0].prepare(IDENTITY.node, mine, 0);
    stand.coordinator.decide(&commit(mine)).unwrap();
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    stand.banks[0].trouble(Some(Trouble::Heuristic(Heuristic::RolledBack)));
    for _ in 0..3 {
        let round = stand.round();
        let found =
            round.branches.iter().any(|one| matches!(one.resolution, Resolution::Heuristic(Heuristic::RolledBack, _)));
        assert!(found && !round.is_clean(), "{round:?}");
    }
    assert_eq!(stand.banks[0].vault().verbs.get("commit"), Some(&1), "it is told once");
    assert_eq!(stand.agent.pause(), Duration::from_secs(10), "there is nothing to hurry for");
    assert_eq!(stand.coordinator.gauges().heuristic, 1);
    assert!(stand.coordinator.forget(mine, &operator()).is_ok());
    assert!(stand.coordinator.forget(mine, &operator()).is_err());
    stand.round();
    assert!(stand.banks[0].vault().forgotten.contains(&xid));
    stand.round();
    assert!(stand.coordinator.show(mine).is_none());
}

#[test]
fn a_client_that_calls_all_finished_does_not_erase_a_heuristic_outcome() {
    // Written: decided commit. The agent, helping, was told that one branch had been rolled back by hand; then the
    // client, which had been answered before, said that all is finished. Lost: the only note of half a commit.
    for agent_is_first in [true, false] {
        let mut stand = Stand::new();
        let session = stand.coordinator.handshake("client").unwrap();
        let mine = tx(&session, 1);
        stand.banks[0].prepare(IDENTITY.node, mine, 0);
        stand.coordinator.decide(&commit(mine)).unwrap();
        stand.banks[0].trouble(Some(Trouble::Heuristic(Heuristic::RolledBack)));
        assert_eq!(how(&stand.round()), [&Resolution::Waiting], "its client is at work");
        if agent_is_first {
            stand.round();
            stand.coordinator.finished(mine);
        } else {
            stand.coordinator.finished(mine);
            stand.round();
        }
        // Even a resource that has forgotten the branch does not let the note go.
        stand.banks[0].vault().prepared.clear();
        (0..3).for_each(|_| _ = stand.round());
        let view = stand.coordinator.show(mine).expect("it waits for a person");
        assert!(view.is_acknowledged);
        assert_eq!(stand.coordinator.gauges().heuristic, 1);
        assert!(stand.coordinator.forget(mine, &operator()).is_ok());
        (0..3).for_each(|_| _ = stand.round());
        assert!(stand.coordinator.show(mine).is_none(), "cleared: forgotten");
    }
}

#[test]
fn heuristic_outcomes_that_agree_are_forgotten_by_themselves() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    let xid = stand.banks[0].prepare(IDENTITY.node, mine, 0);
    stand.coordinator.decide(&commit(mine)).unwrap();
    stand.coordinator.lost(session.incarnation);
    stand.banks[0].trouble(Some(Trouble::Heuristic(Heuristic::Committed)));
    assert!(how(&stand.round()).contains(&&Resolution::Committed));
    assert!(stand.banks[0].vault().forgotten.contains(&xid));
}

#[test]
fn a_copied_folder_stops_recovery_before_anything_is_touched() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    stand.banks[0].prepare(IDENTITY.node, mine, 0);
    let never = [Incarnation { epoch: Epoch(9), number: 1 }, Incarnation { epoch: Epoch(1), number: 2 }];
    for incarnation in never {
        let theirs = TxId { incarnation, counter: 7 };
        assert_eq!(stand.coordinator.standing(incarnation), Standing::Never);
        let xid = stand.banks[1].prepare(IDENTITY.node, theirs, 0);
        for _ in 0..3 {
            let round = stand.round();
            assert_eq!(
                round.stopped.map(|stopped| (stopped.tx, stopped.resource)),
                Some((theirs, "bank-b".to_owned()))
            );
            assert_eq!(round.branches, []);
        }
        stand.banks[1].vault().prepared.remove(&xid);
    }
    assert!(stand.banks.iter().all(|bank| !bank.vault().verbs.contains_key("rollback")));
    (0..2).for_each(|_| _ = stand.round());
    assert_eq!(
        how(&stand.round()),
        [&Resolution::Held],
        "the copy is gone, recovery goes on, and presumes nothing of then"
    );
    let before = tx(&stand.coordinator.handshake("behind it").unwrap(), 1);
    assert_eq!((before.incarnation.epoch, stand.coordinator.may_be_lost(before)), (Epoch(1), true));
}

/// Clients came back meanwhile, one was given the stranger's name, and its branch was taken for that one's and rolled back: half a
/// transaction. So it was behind a restart, where it was one of an earlier opening's clients.
#[test]
fn a_stranger_is_nobody_s_who_comes_later_and_nothing_of_its_opening_is_presumed_after_a_restart() {
    for restarts in 0..3 {
        let mut stand = Stand::new();
        let session = stand.coordinator.handshake("client").unwrap();
        let incarnation = Incarnation { number: 2, ..session.incarnation };
        let theirs = TxId { incarnation, counter: 7 };
        let xid = stand.banks[1].prepare(IDENTITY.node, theirs, 0);
        assert!(stand.round().stopped.is_some());
        let refused = stand.coordinator.handshake("another").unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable);
        assert!(refused.to_string().contains("which nobody here can have begun"), "{refused}");
        assert_eq!(stand.coordinator.decide(&commit(tx(&session, 1))).unwrap_err().kind, Kind::Unavailable);
        assert_eq!(stand.coordinator.standing(incarnation), Standing::Never);
        (0..restarts).for_each(|_| stand.restart(false));
        stand.fence();
        (0..10).for_each(|_| _ = stand.round());
        assert!(!stand.banks[1].vault().verbs.contains_key("rollback"), "{restarts} restarts");
        if restarts > 0 {
            assert_eq!(stand.coordinator.gauges().held, 1);
            assert_eq!(stand.coordinator.force(theirs, Outcome::Committed, &operator()), Ok(Outcome::Committed));
            (0..3).for_each(|_| _ = stand.round());
            assert!(stand.banks[1].vault().committed.contains(&xid));
        }
    }
}

#[test]
fn other_nodes_and_unregistered_resources_are_not_touched() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    let mine = tx(&session, 1);
    let foreign = stand.banks[0].xid(assent_ids::NodeId(99), mine, 0);
    // Another registered database of the same server, and one that nobody registered.
    let of_b = stand.banks[1].xid(IDENTITY.node, mine, 1);
    let nobody = crate::bank::Bank::new("nobody").xid(IDENTITY.node, mine, 2);
    stand.banks[0].vault().prepared.extend([foreign, of_b, nobody]);
    for _ in 0..3 {
        let round = stand.round();
        assert_eq!(round.branches, []);
        assert_eq!(round.unregistered, [(mine, assent_ids::ResourceId::of("nobody"))]);
        assert!(!round.is_clean());
    }
    assert_eq!(stand.banks[0].vault().prepared.len(), 3);
}

#[test]
fn an_old_listing_does_not_make_a_finished_transaction_look_undecided() {
    // Written: seen prepared and undecided. Then its client committed, finished and died; the next listing is an old one
    // (the resource answered from before). Without the watch the agent would decide rollback for a committed transaction.
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    stand.banks[0].prepare(IDENTITY.node, mine, 0);
    stand.round();
    stand.coordinator.decide(&commit(mine)).unwrap();
    stand.coordinator.finished(mine);
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    stand.round();
    assert_ne!(stand.coordinator.ask(mine), Known::RolledBack);
    assert_eq!(stand.coordinator.gauges().decided_rolled_back, 0);
    assert_eq!(stand.banks[0].vault().rolled_back.len(), 0);
}

#[test]
fn a_client_in_this_process_leaves_its_work_to_recovery_when_it_is_dropped() {
    let mut stand = Stand::new();
    let client = stand.coordinator.embedded().unwrap();
    let (node, tx) = client.begin().unwrap();
    stand.banks[0].prepare(node, tx, 0);
    drop(client);
    stand.fence();
    stand.round();
    assert_eq!(how(&stand.round()), [&Resolution::RolledBack]);
    let late = stand.coordinator.decide(&decision(tx, Outcome::Committed, true));
    assert_eq!(late, Ok(Outcome::RolledBack));
}

#[test]
fn a_caretaker_does_all_that_by_itself() {
    use std::sync::mpsc;
    let stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    stand.banks[0].prepare(IDENTITY.node, tx(&session, 1), 0);
    stand.coordinator.lost(session.incarnation);
    let (tell, told) = mpsc::channel();
    let listener = Box::new(move |round: Result<&Round, &assent_coordinator::CoordinatorError>| {
        _ = tell.send(round.unwrap().clone());
    });
    // Time passes only in front of the test: every round is one step.
    let clock = std::sync::Arc::new(stand.clock.clone());
    let caretaker = assent_coordinator::Caretaker::start(stand.coordinator.clone(), Some(stand.agent), clock, listener);
    let caretaker = caretaker.unwrap();
    loop {
        let round = told.recv_timeout(Duration::from_secs(20)).expect("a round");
        if how(&round).contains(&&Resolution::RolledBack) {
            break;
        }
        stand.clock.advance(Duration::from_millis(1_100));
    }
    drop(caretaker);
    assert_eq!(stand.banks[0].vault().rolled_back.len(), 1);
}
