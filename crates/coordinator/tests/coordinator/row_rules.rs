//! Who may presume what of a branch whose decision may be a row, what is said of rows that cannot be asked for, and when they go.

use assent_coordinator::{Config, Known, LostDecision};
use assent_ids::{Epoch, Incarnation, Mark, ResourceId, TxId};
use assent_kind::Kind;
use assent_xa::{Decision, Outcome, ROWS_MAX, Resource as _, Verb, lay_votes};

use crate::bank::{TABLE, Trouble};
use crate::rows::{mark, marked};
use crate::stand::{IDENTITY, NAMES, Stand, commit, operator, tx};

/// A branch of a client that is fenced, prepared and marked; bank-a has the table.
fn left(mark: Mark) -> (Stand, TxId) {
    let stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    stand.banks[1].prepare_marked(IDENTITY.node, mine, 1, mark);
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    (stand, mine)
}

fn trouble(stand: &Stand, tx: TxId) -> String {
    stand.coordinator.show(tx).unwrap().branches.remove(0).native.message
}

#[test]
fn nobody_presumes_an_abort_where_the_row_cannot_be_asked_for() {
    // Another configuration: the resource with the table is not registered any more.
    let (mut stand, mine) = left(Mark { resource: ResourceId::of("gone"), ..mark() });
    (0..8).for_each(|_| drop(stand.round()));
    assert_eq!(stand.banks[1].vault().prepared.len(), 1);
    assert!(trouble(&stand, mine).contains("not registered"), "{}", trouble(&stand, mine));
    for outcome in [Outcome::Committed, Outcome::RolledBack] {
        let refused = stand.coordinator.force(mine, outcome, &operator()).unwrap_err();
        assert_eq!(refused.kind, Kind::Conflict, "{refused}");
    }
    // It is away; then it is back.
    let (mut stand, mine) = left(mark());
    stand.banks[0].trouble(Some(Trouble::Dead));
    (0..8).for_each(|_| drop(stand.round()));
    assert_eq!((stand.banks[1].vault().prepared.len(), stand.coordinator.gauges().rows_awaited), (1, 1));
    assert!(trouble(&stand, mine).contains("bank-a"), "{}", trouble(&stand, mine));
    assert_eq!(stand.coordinator.ask(mine), Known::Undecided);
    stand.banks[0].trouble(None);
    (0..8).for_each(|_| drop(stand.round()));
    assert_eq!((stand.banks[1].vault().rolled_back.len(), stand.coordinator.gauges().rows_awaited), (1, 0));
    // Another database answers under its name.
    let (mut stand, mine) = left(Mark { table: TABLE + 1, ..mark() });
    (0..8).for_each(|_| drop(stand.round()));
    assert_eq!(stand.banks[1].vault().prepared.len(), 1);
    assert!(trouble(&stand, mine).contains("another table"), "{}", trouble(&stand, mine));
}

/// A person's rollback waits for recovery's row, as everybody's; a commit is nobody's word but the client's.
#[test]
fn a_persons_word_is_no_row() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    stand.banks[1].prepare_marked(IDENTITY.node, mine, 1, mark());
    stand.coordinator.lost(session.incarnation);
    stand.round();
    let refused = stand.coordinator.force(mine, Outcome::Committed, &operator()).unwrap_err();
    assert_eq!(refused.kind, Kind::Conflict, "{refused}");
    let asked = stand.coordinator.force(mine, Outcome::RolledBack, &operator()).unwrap_err();
    assert_eq!(asked.kind, Kind::Unavailable, "{asked}");
    stand.agent.round();
    assert_eq!(stand.coordinator.force(mine, Outcome::RolledBack, &operator()), Ok(Outcome::RolledBack));
    stand.round();
    assert_eq!(stand.banks[1].vault().rolled_back.len(), 1);
}

/// The client says what it has decided, and nobody waits; its row goes when all is finished.
#[test]
fn what_a_row_has_decided_is_kept_for_history_and_its_row_goes() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    assert!(stand.coordinator.settles(&[ResourceId::of(NAMES[0]), ResourceId::of(NAMES[2])]));
    assert!(!stand.coordinator.settles(&[ResourceId::of(NAMES[0]), ResourceId::of("gone")]));
    let mine = tx(&session, 1);
    stand.banks[0].vault().rows.standing.insert(mine, (Some(Vec::new()), 1));
    let branches = vec![marked(NAMES[0], 0), marked(NAMES[1], 1)];
    let noted = Decision { tx: mine, outcome: Outcome::Committed, first: true, branches };
    let syncs = stand.log.stored().syncs;
    stand.coordinator.noted(&noted);
    assert_eq!(stand.log.stored().syncs, syncs, "nobody waits");
    assert_eq!(stand.coordinator.ask(mine), Known::Committed);
    stand.coordinator.noted(&noted);
    assert_eq!(stand.coordinator.gauges().decided_committed, 1, "told twice it is one");
    stand.round();
    assert_eq!(stand.banks[0].vault().rows.standing.len(), 1, "not before all is finished");
    stand.coordinator.finished(mine);
    stand.round();
    assert_eq!(stand.banks[0].vault().rows.standing.len(), 0);
    // A fenced client's word is not needed: its row is read.
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    stand.coordinator.noted(&Decision { tx: tx(&session, 2), ..noted });
    assert_eq!(stand.coordinator.ask(tx(&session, 2)), Known::Unknown);
}

/// The log says rollback, and then a row says commit: that must never be, and is not passed over in silence.
#[test]
fn a_row_against_the_log_is_a_persons_to_see() {
    let stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    let rolled_back = Decision { outcome: Outcome::RolledBack, ..commit(mine) };
    stand.coordinator.decide(&rolled_back).unwrap();
    let branches = vec![marked(NAMES[0], 0), marked(NAMES[1], 1)];
    stand.coordinator.noted(&Decision { branches, ..commit(mine) });
    assert_eq!((stand.coordinator.ask(mine), stand.coordinator.gauges().heuristic), (Known::RolledBack, 1));
}

/// What no row can have said is nobody's word.
#[test]
fn only_a_commit_of_marked_branches_is_noted() {
    let stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let branches = vec![marked(NAMES[0], 0), marked(NAMES[1], 1)];
    let rolled_back = Decision { outcome: Outcome::RolledBack, branches: branches.clone(), ..commit(tx(&session, 1)) };
    let plain = commit(tx(&session, 2));
    for refused in [rolled_back, plain] {
        stand.coordinator.noted(&refused);
        assert_eq!(stand.coordinator.ask(refused.tx), Known::Unknown, "{refused:?}");
    }
    stand.coordinator.noted(&Decision { branches, ..commit(tx(&session, 3)) });
    assert_eq!(stand.coordinator.ask(tx(&session, 3)), Known::Committed);
}

/// RPO > 0: the first branch was prepared as any other, and the decision lost. Its siblings are found by the names that they have.
#[test]
fn a_lost_decision_over_marked_branches_is_found_by_a_committed_sibling() {
    for left in [0_u16, 1] {
        let mut stand = Stand::with(Config { lost_decision: LostDecision::Rollback, ..Config::default() });
        stand.log.stored().is_lazy = true;
        stand.restart(true);
        let session = stand.coordinator.handshake("client").unwrap();
        let mine = tx(&session, 1);
        let branches = vec![marked(NAMES[0], 0), marked(NAMES[1], 1)];
        (0..2).for_each(|at| stand.banks[usize::from(at)].prepare_marked(IDENTITY.node, mine, at, mark()));
        assert_eq!(stand.coordinator.decide(&Decision { branches, ..commit(mine) }), Ok(Outcome::Committed));
        stand.log.stored().may_have_lost = true;
        stand.restart(false);
        stand.fence();
        let told = 1 - left;
        let name = |at: u16| stand.banks[usize::from(at)].marked(IDENTITY.node, mine, at, mark());
        let (told_name, left_name) = (name(told), name(left));
        stand.banks[usize::from(told)].teller().call(Verb::Commit(told_name));
        (0..20).for_each(|_| drop(stand.round()));
        assert!(stand.banks[usize::from(left)].vault().committed.contains(&left_name), "branch {left} was left");
    }
}

/// Recovery's row stands and the decision may be lost: a person's commit is refused where the first branch may have been undone.
#[test]
fn a_persons_commit_needs_the_first_branch() {
    for is_listed in [false, true] {
        let mut stand = Stand::new();
        stand.log.stored().is_lazy = true;
        stand.restart(true);
        let session = stand.coordinator.handshake("client").unwrap();
        let mine = tx(&session, 1);
        for at in if is_listed { 0..2_u16 } else { 1..2 } {
            stand.banks[usize::from(at)].prepare_marked(IDENTITY.node, mine, at, mark());
        }
        stand.log.stored().may_have_lost = true;
        stand.restart(false);
        stand.fence();
        (0..6).for_each(|_| drop(stand.round()));
        let forced = stand.coordinator.force(mine, Outcome::Committed, &operator());
        if is_listed {
            assert_eq!(forced, Ok(Outcome::Committed));
        } else {
            let refused = forced.unwrap_err();
            assert_eq!(refused.kind, Kind::Conflict);
            assert!(refused.message.contains("bank-a"), "{refused}");
            assert_eq!(stand.coordinator.force(mine, Outcome::RolledBack, &operator()), Ok(Outcome::RolledBack));
        }
    }
}

/// Finished, forgotten, its row gone: a question that comes late puts no row of recovery's, and decides nothing.
#[test]
fn a_doubt_of_what_is_forgotten_asks_for_no_row() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    for is_seen in [true, false] {
        if is_seen {
            stand.banks[1].prepare_marked(IDENTITY.node, mine, 1, mark());
            stand.round();
        }
        // It has been seen: the row is asked for in the next look. By then its client has ended it.
        assert_eq!(stand.coordinator.settle(mine, mark()), Ok(Known::Undecided));
        stand.banks[1].vault().prepared.clear();
        // Two: bank-a looks before bank-b has shown that nothing is left.
        stand.banks[0].trouble(Some(Trouble::Dead));
        stand.round();
        stand.banks[0].trouble(None);
        (0..4).for_each(|_| drop(stand.round()));
        assert_eq!(stand.banks[0].vault().rows.standing.len(), 0, "seen {is_seen}");
        assert_eq!((stand.coordinator.ask(mine), stand.coordinator.gauges().rows_awaited), (Known::Unknown, 0));
    }
}

/// Rows that may not go are said, and tried again. That a table may not be read in which nobody looks for anything is not.
#[test]
fn rows_that_may_not_go_are_said() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let mine = tx(&session, 1);
    let said = |stand: &mut Stand| {
        let round = stand.round();
        round.resources.into_iter().filter_map(|it| it.trouble).map(|(_, native)| native.message).collect::<Vec<_>>()
    };
    stand.banks[0].vault().rows.standing.insert(mine, (Some(Vec::new()), 1));
    stand.banks[0].vault().rows.is_denied = true;
    (0..2).for_each(|_| drop(stand.round()));
    assert_eq!(said(&mut stand).len(), 0);
    stand.coordinator.noted(&Decision { branches: vec![marked(NAMES[0], 0), marked(NAMES[1], 1)], ..commit(mine) });
    stand.coordinator.finished(mine);
    (0..2).for_each(|_| drop(stand.round()));
    let messages = said(&mut stand);
    assert!(messages.iter().any(|it| it.contains("nobody may delete")), "{messages:?}");
    stand.banks[0].vault().rows.is_denied = false;
    (0..2).for_each(|_| drop(stand.round()));
    assert_eq!((said(&mut stand).len(), stand.banks[0].vault().rows.standing.len()), (0, 0));
}

/// An older data folder was put back: a name that is given again may have a row of before. While it stands nothing is presumed anywhere.
#[test]
fn a_row_of_a_client_that_was_never_known_here_stops_everything() {
    let (mut stand, mine) = left(mark());
    let stranger = TxId { incarnation: Incarnation { epoch: Epoch(u32::MAX), number: 1 }, counter: 1 };
    stand.banks[0].vault().rows.standing.insert(stranger, (Some(Vec::new()), 1));
    (0..2).for_each(|_| drop(stand.round()));
    let stopped = stand.round().stopped.unwrap();
    assert_eq!((stopped.tx, stopped.resource.as_str()), (stranger, NAMES[0]));
    let refused = stand.coordinator.force(mine, Outcome::RolledBack, &operator()).unwrap_err();
    assert_eq!(refused.kind, Kind::Conflict, "{refused}");
    stand.banks[0].vault().rows.standing.remove(&stranger);
    (0..6).for_each(|_| drop(stand.round()));
    assert_eq!((stand.round().stopped, stand.banks[1].vault().rolled_back.len()), (None, 0), "it has gone");
    // What was decided behind a copy nobody knows here: from then on a person's word is wanted.
    assert_eq!(stand.coordinator.gauges().held, 1);
    assert_eq!(stand.coordinator.force(mine, Outcome::RolledBack, &operator()), Ok(Outcome::RolledBack));
    stand.round();
    assert_eq!(stand.banks[1].vault().rolled_back.len(), 1);
}

/// It stands behind more rows than one answer holds: while the first of them are looked at again it is not forgotten.
#[test]
fn a_stranger_behind_a_full_answer_stops_everything_all_the_time() {
    let (mut stand, _) = left(mark());
    let living = stand.coordinator.handshake("living").unwrap();
    let stranger = TxId { incarnation: Incarnation { epoch: Epoch(u32::MAX), number: 1 }, counter: 1 };
    {
        let all = (1..=u64::try_from(ROWS_MAX).unwrap()).map(|counter| tx(&living, counter)).chain([stranger]);
        let mut vault = stand.banks[0].vault();
        all.for_each(|tx| _ = vault.rows.standing.insert(tx, (Some(Vec::new()), 1)));
    }
    while stand.round().stopped.is_none() {}
    for look in 0..6 {
        assert_eq!(stand.round().stopped.map(|stopped| stopped.tx), Some(stranger), "look {look}");
    }
    stand.banks[0].vault().rows.standing.remove(&stranger);
    (0..6).for_each(|_| drop(stand.round()));
    assert_eq!(stand.round().stopped, None);
}

/// Rows that do not go while others come would be found again only when their clients are gone: the ordinary way is taken before.
#[test]
fn no_more_rows_are_put_than_may_wait_for_going() {
    let stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    let others = [ResourceId::of(NAMES[1])];
    for counter in 1..=65_536 {
        assert!(stand.coordinator.settles(&others), "{counter}");
        let branches = vec![marked(NAMES[0], 0), marked(NAMES[1], 1)];
        stand.coordinator.noted(&Decision { branches, ..commit(tx(&session, counter)) });
        stand.coordinator.finished(tx(&session, counter));
    }
    assert!(!stand.coordinator.settles(&others));
}

/// More rows than one answer holds, of which none may go yet: those behind them are looked at all the same.
#[test]
fn rows_behind_a_full_answer_are_looked_at() {
    let mut stand = Stand::new();
    // In the order of keys the living client's, which stay, are before the fenced one's.
    let living = stand.coordinator.handshake("living").unwrap();
    let gone = stand.coordinator.handshake("gone").unwrap();
    let votes = lay_votes(&[marked(NAMES[1], 1)]);
    let last = tx(&gone, 1);
    let committed = stand.banks[1].marked(IDENTITY.node, last, 1, mark());
    stand.banks[1].vault().committed.insert(committed);
    {
        let all = (1..=u64::try_from(ROWS_MAX).unwrap()).map(|counter| tx(&living, counter)).chain([last]);
        let mut vault = stand.banks[0].vault();
        all.for_each(|tx| _ = vault.rows.standing.insert(tx, (Some(votes.clone()), 1)));
    }
    stand.coordinator.lost(gone.incarnation);
    stand.fence();
    (0..8).for_each(|_| drop(stand.round()));
    assert!(!stand.banks[0].vault().rows.standing.contains_key(&last), "adopted, finished, gone");
    assert_eq!(stand.banks[0].vault().rows.standing.len(), ROWS_MAX);
}

/// A crowd of rows keeps nobody's look for long, and each has its turn.
#[test]
fn a_crowd_of_rows_is_asked_for_some_at_a_time() {
    let mut stand = Stand::new();
    let session = stand.coordinator.handshake("client").unwrap();
    for counter in 1..=200 {
        stand.banks[1].prepare_marked(IDENTITY.node, tx(&session, counter), 1, mark());
        // A client's row that is not committed: each asks again.
        stand.banks[0].vault().rows.holds(tx(&session, counter));
    }
    stand.coordinator.lost(session.incarnation);
    stand.fence();
    let asked = |stand: &Stand| stand.banks[0].vault().verbs.get("settle").copied().unwrap_or_default();
    for _ in 0..10 {
        let before = asked(&stand);
        stand.round();
        assert!(asked(&stand) - before <= 64, "{} in one look", asked(&stand) - before);
    }
    assert_eq!(stand.banks[0].vault().rows.waited.len(), 200, "each was asked for");
}
