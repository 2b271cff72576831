//! Decisions: write-once, durable before they are told, forgotten by one rule.

use assent_coordinator::{BRANCHES_MAX, By, Config, Coordinator, CoordinatorError, Identity, Known, Standing};
use assent_ids::{Epoch, Incarnation, NodeId, TxId};
use assent_journal::{JournalError, Log};
use assent_kind::Kind;
use assent_sim::SimClock;
use assent_xa::{DecideError, Decision, Outcome};

use std::sync::Arc;

use super::stand::{IDENTITY, Stand, branch, commit, decision, tx};
use crate::memory::MemoryLog;

fn kind(answer: Result<Outcome, DecideError>) -> Result<Outcome, Kind> {
    answer.map_err(|error| error.kind)
}

/// Brings the first client of a fresh stand there.
fn client_standing(standing: Standing) -> (Stand, TxId) {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    match standing {
        Standing::Connected => {}
        Standing::Lost => stand.coordinator.lost(session.incarnation),
        Standing::Resumable => stand.restart(true),
        Standing::Fencing => {
            stand.fence();
            stand.coordinator.lost(session.incarnation);
            stand.clock.advance(super::stand::LOST);
            stand.log.stored().is_closed = true;
            assert!(stand.coordinator.tick().is_err(), "the fence's record cannot become durable");
        }
        Standing::Fenced => {
            stand.coordinator.lost(session.incarnation);
            stand.fence();
        }
        Standing::Never => {
            let never = TxId { incarnation: Incarnation { epoch: Epoch(9), number: 1 }, counter: 1 };
            return (stand, never);
        }
    }
    assert_eq!(stand.coordinator.standing(mine.incarnation), standing);
    (stand, mine)
}

#[test]
fn who_may_decide_stands_in_a_table() {
    use Kind::{InDoubt, Invalid, Unavailable};
    use Outcome::{Committed, RolledBack};
    // Asked to commit for the first time, asked again; after an agent's abort; asked to roll back for the first time.
    let table = [
        (Standing::Connected, Ok(Committed), Ok(Committed), Ok(RolledBack), Ok(RolledBack)),
        (Standing::Lost, Ok(Committed), Ok(Committed), Ok(RolledBack), Ok(RolledBack)),
        (Standing::Resumable, Err(Unavailable), Err(InDoubt), Ok(RolledBack), Err(Unavailable)),
        (Standing::Fencing, Ok(RolledBack), Err(InDoubt), Err(InDoubt), Ok(RolledBack)),
        (Standing::Fenced, Ok(RolledBack), Err(InDoubt), Ok(RolledBack), Ok(RolledBack)),
        (Standing::Never, Err(Invalid), Err(InDoubt), Err(Invalid), Err(Invalid)),
    ];
    assert_eq!(table.map(|row| row.0), Standing::ALL);
    for (standing, first, again, after_abort, rollback) in table {
        let (stand, mine) = client_standing(standing);
        assert_eq!(kind(stand.coordinator.decide(&commit(mine))), first, "{standing:?}, first");
        let (stand, mine) = client_standing(standing);
        let repeated = decision(mine, Committed, false);
        assert_eq!(kind(stand.coordinator.decide(&repeated)), again, "{standing:?}, again");
        let (stand, mine) = client_standing(standing);
        _ = stand.coordinator.decide_abort(mine, By::Agent, &[]);
        assert_eq!(kind(stand.coordinator.decide(&commit(mine))), after_abort, "{standing:?}, after an abort");
        let (stand, mine) = client_standing(standing);
        let gives_up = decision(mine, RolledBack, true);
        assert_eq!(kind(stand.coordinator.decide(&gives_up)), rollback, "{standing:?}, rollback");
    }
}

#[test]
fn the_first_decision_wins_and_all_who_ask_get_it() {
    let stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let (one, two, three) = (tx(&session, 1), tx(&session, 2), tx(&session, 3));
    assert_eq!(stand.coordinator.decide(&commit(one)), Ok(Outcome::Committed));
    assert_eq!(stand.coordinator.decide_abort(one, By::Operator, &[]), Ok(Outcome::Committed));
    assert_eq!(stand.coordinator.decide(&decision(one, Outcome::RolledBack, false)), Ok(Outcome::Committed));
    assert_eq!(stand.coordinator.decide_abort(two, By::Operator, &[]), Ok(Outcome::RolledBack));
    assert_eq!(stand.coordinator.decide(&commit(two)), Ok(Outcome::RolledBack));
    // A client that gave up: a delayed copy of its commit comes too late.
    assert_eq!(stand.coordinator.decide(&decision(three, Outcome::RolledBack, true)), Ok(Outcome::RolledBack));
    assert_eq!(stand.coordinator.decide(&commit(three)), Ok(Outcome::RolledBack));
    let known = [one, two, three, tx(&session, 4)].map(|tx| stand.coordinator.ask(tx));
    assert_eq!(known, [Known::Committed, Known::RolledBack, Known::RolledBack, Known::Unknown]);
    assert_eq!(stand.log.stored().appends, 3, "the client and two decisions; its own rollback needs no record");
}

#[test]
fn whoever_learns_of_a_decision_waits_until_it_is_durable() {
    let stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    let pending = stand.coordinator.decide_begin(&commit(mine)).unwrap();
    assert_eq!(stand.log.durable(), assent_ids::Lsn(0), "decide_begin never waits");
    assert_eq!(stand.coordinator.ask(mine), Known::Committed);
    assert_eq!(stand.log.durable(), stand.log.end(), "the answer came after the sync");
    assert_eq!(stand.coordinator.decide_end(pending), Ok(Outcome::Committed));
    assert_eq!(stand.log.stored().syncs, 1);
}

#[test]
fn a_lazy_log_may_lose_a_client_s_own_decision_and_nothing_else_and_says_so() {
    // Written: a commit over a log with RPO > 0, answered before it was durable; one branch committed. Lost with the
    // power: the decision. Recovery must not presume an abort then: it would be half a commit.
    let mut stand = Stand::new();
    stand.log.stored().is_lazy = true;
    stand.restart(true);
    let session = stand.coordinator.handshake("client").unwrap();
    let [one, two, three] = [1, 2, 3].map(|counter| tx(&session, counter));
    assert_eq!(stand.coordinator.decide_abort(one, By::Agent, &[]), Ok(Outcome::RolledBack));
    assert_eq!(stand.log.durable(), stand.log.end(), "what others decide is durable first");
    assert_eq!(stand.coordinator.gauges().decisions_unsynced, 0);
    assert!(stand.coordinator.decide_begin(&commit(one)).unwrap().is_strict, "also where its client asks");
    assert_eq!(stand.coordinator.decide(&commit(two)), Ok(Outcome::Committed));
    assert!(stand.log.durable() < stand.log.end(), "told by the log's policy");
    assert_eq!(stand.coordinator.gauges().decisions_unsynced, 1);
    stand.log.stored().may_have_lost = true;
    stand.restart(false);
    assert_eq!([one, two].map(|tx| stand.coordinator.ask(tx)), [Known::RolledBack, Known::Unknown]);
    let may_be_lost = |stand: &Stand| [one, two, three].map(|tx| stand.coordinator.may_be_lost(tx));
    assert_eq!(may_be_lost(&stand), [false, true, true], "what is decided is not lost");
    // The next openings lose nothing, and still know; also when the log's policy has become strict.
    stand.log.stored().may_have_lost = false;
    stand.log.stored().is_lazy = false;
    for keeps in [false, true] {
        stand.restart(keeps);
        assert_eq!(may_be_lost(&stand), [false, true, true]);
    }
    let later = tx(&stand.coordinator.handshake("later").unwrap(), 1);
    assert!(!stand.coordinator.may_be_lost(later), "its client began after the loss");
    // The client, which knows better, decides again.
    stand.coordinator.resume(session.incarnation, session.secret).unwrap();
    assert_eq!(stand.coordinator.decide(&decision(two, Outcome::Committed, false)), Ok(Outcome::Committed));
    assert_eq!(may_be_lost(&stand), [false, false, true]);
}

#[test]
fn an_opening_that_died_with_the_news_of_a_loss_counts_as_one() {
    let mut stand = Stand::new();
    stand.log.stored().is_lazy = true;
    stand.restart(true);
    let mine = tx(&stand.coordinator.handshake("client").unwrap(), 1);
    // The log opened after the power cut, told of the loss, and died before the coordinator could note it.
    stand.log = stand.log.reopen(false);
    stand.restart(true);
    assert!(stand.coordinator.may_be_lost(mine));
}

#[test]
fn whoever_acts_on_a_lazy_decision_waits_until_it_is_durable() {
    let stand = Stand::new();
    stand.log.stored().is_lazy = true;
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    stand.coordinator.decide(&commit(mine)).unwrap();
    assert!(stand.log.durable() < stand.log.end());
    assert_eq!(stand.coordinator.ask(mine), Known::Committed);
    assert_eq!(stand.log.durable(), stand.log.end());
    assert_eq!(stand.coordinator.gauges().decisions_unsynced, 0);
}

#[test]
fn a_log_that_fails_leaves_the_decision_in_doubt_until_it_is_reopened() {
    for keeps in [false, true] {
        let mut stand = Stand::new();
        let session = stand.coordinator.handshake("client").unwrap();
        let mine = tx(&session, 1);
        stand.log.stored().is_closed = true;
        assert_eq!(kind(stand.coordinator.decide(&commit(mine))), Err(Kind::InDoubt));
        assert_eq!(kind(stand.coordinator.decide(&decision(mine, Outcome::Committed, false))), Err(Kind::InDoubt));
        assert_eq!(stand.coordinator.ask(mine), Known::InDoubt);
        assert!(!stand.coordinator.show(mine).unwrap().is_durable);
        stand.restart(keeps);
        stand.coordinator.resume(session.incarnation, session.secret).unwrap();
        let expected = if keeps { Known::Committed } else { Known::Unknown };
        assert_eq!(stand.coordinator.ask(mine), expected);
        // Nobody was told anything: the client may still commit.
        let again = stand.coordinator.decide(&decision(mine, Outcome::Committed, false));
        assert_eq!(again, Ok(Outcome::Committed));
    }
}

#[test]
fn what_cannot_be_laid_is_refused_before_it_is() {
    let stand = Stand::with(Config { transactions_max: 2, ..Config::default() });
    let session = stand.coordinator.handshake("client").unwrap();
    let full = JournalError::Full { folder: "memory".to_owned() };
    stand.log.stored().refuses = Some(full);
    assert_eq!(kind(stand.coordinator.decide(&commit(tx(&session, 1)))), Err(Kind::Full));
    assert_eq!(stand.coordinator.ask(tx(&session, 1)), Known::Unknown);
    stand.log.stored().refuses = None;
    for counter in 1..=2 {
        assert_eq!(stand.coordinator.decide(&commit(tx(&session, counter))), Ok(Outcome::Committed));
    }
    assert_eq!(kind(stand.coordinator.decide(&commit(tx(&session, 3)))), Err(Kind::Busy));
    assert_eq!(stand.log.stored().appends, 3, "the client, and two decisions");
    stand.coordinator.finished(tx(&session, 1));
    assert_eq!(stand.coordinator.decide(&commit(tx(&session, 3))), Ok(Outcome::Committed));
    assert_eq!(kind(stand.coordinator.decide(&commit(tx(&session, 4)))), Err(Kind::Busy));
    let aborted = stand.coordinator.decide_abort(tx(&session, 4), By::Timeout, &[branch("bank-a", 0)]);
    assert_eq!(aborted, Ok(Outcome::RolledBack), "what clients have filled recovery may have to finish");

    let branches = vec![branch("bank-a", 0); BRANCHES_MAX + 1];
    let many = Decision { branches, ..commit(tx(&session, 4)) };
    let error = stand.coordinator.decide(&many).unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (Kind::Invalid, "a decision over 4097 branches; at most 4096 are taken")
    );
    let mut long = commit(tx(&session, 4));
    long.branches[1].witness = vec![0; 4097];
    assert_eq!(kind(stand.coordinator.decide(&long)), Err(Kind::Invalid));
    let none = Config { transactions_max: 0, ..Config::default() };
    let clock = Arc::new(SimClock::new());
    let error = Coordinator::open(Arc::new(MemoryLog::new()), clock, IDENTITY, none).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
}

#[test]
fn an_entry_is_forgotten_only_by_the_rule() {
    // Finished (by the agent), acknowledged, client fenced, seen prepared by the agent's last look: is it forgotten?
    for case in 0..16_u8 {
        let [finished, acknowledged, fenced, seen] = [1, 2, 4, 8].map(|bit| case & bit != 0);
        let mut stand = Stand::new();
        let session = stand.coordinator.handshake("client").unwrap();
        let mine = tx(&session, 1);
        stand.coordinator.decide(&commit(mine)).unwrap();
        if acknowledged {
            stand.coordinator.acknowledged(mine);
        }
        stand.coordinator.lost(session.incarnation);
        if fenced {
            stand.fence();
        }
        if !finished {
            // One branch cannot be asked about.
            stand.banks[1].trouble(Some(crate::bank::Trouble::Dead));
        }
        // The first look without the branches is no evidence yet.
        stand.round();
        assert!(stand.coordinator.show(mine).is_some(), "case {case:04b}");
        if seen {
            // Prepared, and committed by this look: finished, but just seen.
            stand.banks[0].prepare(IDENTITY.node, mine, 0);
        }
        stand.round();
        let forgotten = stand.coordinator.show(mine).is_none();
        assert_eq!(forgotten, finished && (acknowledged || fenced) && !seen, "case {case:04b}");
        if seen && finished && (acknowledged || fenced) {
            stand.round();
            assert!(stand.coordinator.show(mine).is_none(), "the next look lets it go");
        }
        // And the client's own word is always enough, once the agent has looked again.
        stand.coordinator.finished(mine);
        stand.round();
        assert!(stand.coordinator.show(mine).is_none());
        stand.coordinator.tick().unwrap();
        stand.restart(true);
        assert_eq!(stand.coordinator.ask(mine), Known::Unknown);
    }
}

#[test]
fn a_foreign_or_newer_log_is_refused() {
    let stand = Stand::new();
    stand.fence();
    let clock = Arc::new(SimClock::new());
    let other = Identity { node: NodeId(5), ..IDENTITY };
    let log = Arc::new(stand.log.reopen(true));
    let error = Coordinator::open(log.clone(), clock.clone(), other, Config::default()).unwrap_err();
    assert_eq!(error, CoordinatorError::Node { log: IDENTITY.node, folder: NodeId(5) });
    assert_eq!(error.kind(), Kind::Corrupt);
    if log.stored().is_table {
        // It refuses such a record when it is laid.
        return;
    }
    let place = log.append(0x7f01, &[b"from the future"]).unwrap();
    let error = Coordinator::open(log, clock, IDENTITY, Config::default()).unwrap_err();
    assert!(matches!(&error, CoordinatorError::Record { lsn, kind: 0x7f01, .. } if *lsn == place.lsn), "{error}");
}

#[test]
fn lists_say_who_decided_and_what_is_left() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("shop").unwrap();
    let (one, two) = (tx(&session, 1), tx(&session, 2));
    stand.coordinator.decide(&commit(one)).unwrap();
    stand.banks[2].prepare(IDENTITY.node, two, 0);
    stand.round();
    stand.clock.advance(std::time::Duration::from_millis(250));
    let list = stand.coordinator.list();
    assert_eq!(list.iter().map(|view| view.tx).collect::<Vec<_>>(), [one, two]);
    assert_eq!(list[0].decided, Some((Outcome::Committed, By::Client)));
    assert_eq!((list[0].label.as_str(), list[0].client, list[0].branches.len()), ("shop", Standing::Connected, 2));
    assert_eq!((list[1].decided, list[1].age.as_millis()), (None, 250));
    assert_eq!(list[1].branches[0].fate, assent_coordinator::Fate::Prepared);
    assert_eq!(stand.coordinator.ask(two), Known::Undecided);
    let gauges = stand.coordinator.gauges();
    assert_eq!((gauges.decided_committed, gauges.live, gauges.prepared, gauges.clients), (1, 1, 1, 1));
}
