//! Single ways, told.

use assent_ids::{Branch, Epoch, Incarnation, NodeId, ResourceId, TxId};
use assent_kind::Kind;
use assent_xa::{
    Ballot, Cause, Command, Commit, DecideError, Event, Heuristic, Native, Outcome, Pace, Phase, Reply, StepError,
    Task, Trust, TxReturn, Verb, Verdict, Vote,
};

fn native(code: &str) -> Native {
    Native { code: code.to_owned(), message: "as the resource says".to_owned() }
}

fn send(branch: u16, task: Task) -> Command {
    Command::Send { branch, task }
}

fn all_say(commit: &mut Commit, replies: &[(u16, Reply)]) -> Vec<Command> {
    let mut last = Vec::new();
    for (branch, reply) in replies {
        assert_eq!(last, [], "a round ends with its last answer");
        last = commit.step(Event::Answer { branch: *branch, reply: reply.clone() }).unwrap();
    }
    last
}

#[test]
fn all_are_told_before_any_is_read_and_only_a_durable_decision_commits() {
    let mut commit = Commit::new(&[Trust::KeepsVotes; 3], Pace::Together);
    let end = Task::End { success: true };
    assert_eq!(commit.step(Event::Commit), Ok(vec![send(0, end), send(1, end), send(2, end)]));
    let prepare = all_say(&mut commit, &[(2, Reply::Done), (0, Reply::Done), (1, Reply::Done)]);
    assert_eq!(prepare, [send(0, Task::Prepare), send(1, Task::Prepare), send(2, Task::Prepare)]);
    let yes = Reply::Vote(Vote::Yes);
    let decide = all_say(&mut commit, &[(0, yes.clone()), (1, Reply::Vote(Vote::ReadOnly)), (2, yes)]);
    assert_eq!(decide, [Command::Decide { yes: vec![0, 2], first: true }]);
    let told = commit.step(Event::Decided(Outcome::Committed)).unwrap();
    assert_eq!(told, [send(0, Task::Commit), send(2, Task::Commit)]);
    assert_eq!(all_say(&mut commit, &[(0, Reply::Done), (2, Reply::Done)]), [Command::Finished]);
    let report = commit.report().unwrap();
    assert_eq!((report.verdict, report.decided), (Verdict::Committed, Some(Outcome::Committed)));
}

/// What its branches answer at the end, what to prepare, and what each voted.
type Case<'a> = (&'a [Reply], &'a [(u16, Reply)], &'a [(u16, Ballot)]);

/// What each branch said to `end` and `prepare` is its vote; what it says later is not.
#[test]
fn every_branch_that_was_asked_has_a_vote() {
    let [yes, read_only, done] = [Reply::Vote(Vote::Yes), Reply::Vote(Vote::ReadOnly), Reply::Done];
    let cases: [Case<'_>; 4] = [
        (
            &[done.clone(), read_only.clone(), done.clone()],
            &[(0, yes.clone()), (2, yes.clone())],
            &[(0, Ballot::Yes), (1, Ballot::ReadOnly), (2, Ballot::Yes)],
        ),
        (
            &[done.clone(), done.clone(), done.clone()],
            &[(0, yes.clone()), (1, Reply::RolledBack(native("23505"))), (2, read_only)],
            &[(0, Ballot::Yes), (1, Ballot::No), (2, Ballot::ReadOnly)],
        ),
        (
            &[done.clone(), done.clone(), done.clone()],
            &[(0, Reply::Lost(native("23505"))), (1, yes.clone()), (2, yes)],
            &[(0, Ballot::No), (1, Ballot::Yes), (2, Ballot::Yes)],
        ),
        (&[done.clone(), Reply::Refused(Kind::Invalid, native("23505")), done], &[], &[(1, Ballot::No)]),
    ];
    for (ends, prepares, expected) in cases {
        let mut commit = Commit::new(&[Trust::KeepsVotes; 3], Pace::Together);
        commit.step(Event::Commit).unwrap();
        let ends: Vec<(u16, Reply)> = (0..).zip(ends.to_vec()).collect();
        all_say(&mut commit, &ends);
        let votes = |commit: &Commit| commit.votes().map(|(branch, voice)| (branch, voice.ballot)).collect::<Vec<_>>();
        let next = all_say(&mut commit, prepares);
        assert_eq!(votes(&commit), expected);
        let words = commit.votes().filter(|(_, voice)| voice.ballot == Ballot::No);
        assert!(words.into_iter().all(|(_, voice)| voice.native == native("23505")), "in the resource's own words");
        if next == [Command::Decide { yes: vec![0, 2], first: true }] {
            commit.step(Event::Decided(Outcome::Committed)).unwrap();
            all_say(&mut commit, &[(0, Reply::RolledBack(native("1402"))), (2, Reply::Lost(native("08006")))]);
            commit.step(Event::Retry).unwrap();
            all_say(&mut commit, &[(2, Reply::Done)]);
            assert_eq!(votes(&commit), expected, "a broken promise is no vote");
            let voice = commit.votes().last().unwrap().1;
            assert_eq!((voice.retries, &voice.native), (1, &native("08006")), "told twice");
        }
    }
}

#[test]
fn one_branch_and_read_only_ones_need_no_decision() {
    let mut one = Commit::new(&[Trust::KeepsVotes], Pace::Together);
    one.step(Event::Commit).unwrap();
    assert_eq!(all_say(&mut one, &[(0, Reply::Done)]), [send(0, Task::CommitOnePhase)]);
    assert_eq!(all_say(&mut one, &[(0, Reply::Done)]), []);
    assert_eq!(one.report().unwrap().decided, None);

    let mut readers = Commit::new(&[Trust::KeepsVotes; 2], Pace::Together);
    readers.step(Event::Commit).unwrap();
    all_say(&mut readers, &[(0, Reply::Done), (1, Reply::Done)]);
    let read_only = Reply::Vote(Vote::ReadOnly);
    assert_eq!(all_say(&mut readers, &[(0, read_only.clone()), (1, read_only)]), []);
    assert_eq!(readers.report().unwrap().verdict, Verdict::Committed);
}

#[test]
fn the_last_writer_commits_in_one_phase_if_it_was_not_told_to_prepare() {
    // Found at end: the first branch has nothing to commit.
    let mut early = Commit::new(&[Trust::KeepsVotes; 2], Pace::Together);
    early.step(Event::Commit).unwrap();
    let told = all_say(&mut early, &[(0, Reply::Vote(Vote::ReadOnly)), (1, Reply::Done)]);
    assert_eq!(told, [send(1, Task::CommitOnePhase)]);

    // Found at prepare, with the last one held back.
    let mut held = Commit::new(&[Trust::KeepsVotes; 2], Pace::LastAlone);
    held.step(Event::Commit).unwrap();
    assert_eq!(all_say(&mut held, &[(0, Reply::Done), (1, Reply::Done)]), [send(0, Task::Prepare)]);
    assert_eq!(all_say(&mut held, &[(0, Reply::Vote(Vote::ReadOnly))]), [send(1, Task::CommitOnePhase)]);

    // Told together: its vote cannot be taken back, so it needs the decision.
    let mut late = Commit::new(&[Trust::KeepsVotes; 2], Pace::Together);
    late.step(Event::Commit).unwrap();
    all_say(&mut late, &[(0, Reply::Done), (1, Reply::Done)]);
    let told = all_say(&mut late, &[(0, Reply::Vote(Vote::ReadOnly)), (1, Reply::Vote(Vote::Yes))]);
    assert_eq!(told, [Command::Decide { yes: vec![1], first: true }]);
}

#[test]
fn the_first_no_is_named_and_the_others_are_rolled_back() {
    let mut commit = Commit::new(&[Trust::KeepsVotes; 3], Pace::Together);
    commit.step(Event::Commit).unwrap();
    all_say(&mut commit, &[(0, Reply::Done), (1, Reply::Done), (2, Reply::Done)]);
    let no = Reply::RolledBack(native("23505"));
    let told = all_say(&mut commit, &[(1, no), (0, Reply::Vote(Vote::Yes)), (2, Reply::Lost(native("")))]);
    assert_eq!(told, [send(0, Task::Rollback), send(2, Task::Rollback)], "a no is rolled back already");
    assert_eq!(all_say(&mut commit, &[(0, Reply::Done), (2, Reply::Unknown(native("42704")))]), []);
    let cause = Cause::Branch { branch: 1, kind: Kind::RolledBack, native: native("23505") };
    assert_eq!(commit.report().unwrap().verdict, Verdict::RolledBack(cause));
}

#[test]
fn a_decision_in_doubt_keeps_all_branches_until_it_is_known() {
    let mut commit = Commit::new(&[Trust::KeepsVotes; 2], Pace::Together);
    commit.step(Event::Commit).unwrap();
    all_say(&mut commit, &[(0, Reply::Done), (1, Reply::Done)]);
    all_say(&mut commit, &[(0, Reply::Vote(Vote::Yes)), (1, Reply::Vote(Vote::Yes))]);
    let lost = DecideError { kind: Kind::InDoubt, message: "the answer was lost".to_owned() };
    assert_eq!(commit.step(Event::from(Err(lost))), Ok(vec![]));
    let report = commit.report().unwrap();
    assert!(matches!(report.verdict, Verdict::InDoubt(_)));
    assert_eq!(report.unfinished.len(), 2);
    // Asked again, refused: that says nothing about the first question.
    assert_eq!(commit.step(Event::Retry), Ok(vec![Command::Decide { yes: vec![0, 1], first: false }]));
    let full = DecideError { kind: Kind::Busy, message: "send it again".to_owned() };
    assert_eq!(commit.step(Event::from(Err(full))), Ok(vec![]));
    assert!(matches!(commit.report().unwrap().verdict, Verdict::InDoubt(_)));
    // And once more: it had been committed all the time.
    commit.step(Event::Retry).unwrap();
    let told = commit.step(Event::Decided(Outcome::Committed)).unwrap();
    assert_eq!(told, [send(0, Task::Commit), send(1, Task::Commit)]);
    assert_eq!(all_say(&mut commit, &[(0, Reply::Done), (1, Reply::Done)]), [Command::Finished]);
}

#[test]
fn an_unfinished_branch_is_left_to_recovery_or_told_again() {
    let mut commit = Commit::new(&[Trust::KeepsVotes, Trust::MayLoseVotes], Pace::Together);
    commit.step(Event::Commit).unwrap();
    all_say(&mut commit, &[(0, Reply::Done), (1, Reply::Done)]);
    all_say(&mut commit, &[(0, Reply::Vote(Vote::Yes)), (1, Reply::Vote(Vote::Yes))]);
    commit.step(Event::Decided(Outcome::Committed)).unwrap();
    // Both do not know their branch: the one that keeps its votes has been committed by recovery, the other says nothing.
    let unknown = Reply::Unknown(native("42704"));
    assert_eq!(all_say(&mut commit, &[(0, unknown.clone()), (1, unknown)]), [Command::Acknowledged]);
    let report = commit.report().unwrap();
    assert_eq!((report.verdict.clone(), report.inferred.clone()), (Verdict::Committed, vec![0]));
    assert_eq!(report.unfinished.iter().map(|open| open.branch).collect::<Vec<_>>(), [1]);
    assert!(!report.is_finished());
    assert_eq!(commit.step(Event::Retry), Ok(vec![send(1, Task::Commit)]));
    assert_eq!(all_say(&mut commit, &[(1, Reply::Done)]), [Command::Finished]);
    assert!(commit.report().unwrap().is_finished());
}

#[test]
fn heuristic_outcomes_that_agree_are_forgotten_and_others_stay() {
    let mut commit = Commit::new(&[Trust::KeepsVotes; 2], Pace::Together);
    commit.step(Event::Commit).unwrap();
    all_say(&mut commit, &[(0, Reply::Done), (1, Reply::Done)]);
    all_say(&mut commit, &[(0, Reply::Vote(Vote::Yes)), (1, Reply::Vote(Vote::Yes))]);
    commit.step(Event::Decided(Outcome::Committed)).unwrap();
    let told = all_say(
        &mut commit,
        &[
            (0, Reply::Heuristic(Heuristic::Committed, native(""))),
            (1, Reply::Heuristic(Heuristic::RolledBack, native("1402"))),
        ],
    );
    assert_eq!(told, [send(0, Task::Forget)], "the other is kept for people");
    assert_eq!(all_say(&mut commit, &[(0, Reply::Done)]), [Command::Acknowledged]);
    let Verdict::Heuristic(list) = commit.report().unwrap().verdict else { panic!("a branch went its own way") };
    assert_eq!(list.iter().map(|one| (one.branch, one.heuristic)).collect::<Vec<_>>(), [(1, Heuristic::RolledBack)]);
}

#[test]
fn a_lost_one_phase_commit_is_in_doubt_and_nobody_can_be_asked() {
    let mut commit = Commit::new(&[Trust::KeepsVotes], Pace::Together);
    commit.step(Event::Commit).unwrap();
    all_say(&mut commit, &[(0, Reply::Done)]);
    assert_eq!(all_say(&mut commit, &[(0, Reply::Lost(native("57P01")))]), []);
    assert_eq!(commit.report().unwrap().verdict, Verdict::InDoubt(native("57P01")));
    assert_eq!(commit.step(Event::Retry), Err(StepError::OutOfPhase { event: "a retry", phase: Phase::Resting }));
}

#[test]
fn what_cannot_happen_is_refused_and_changes_nothing() {
    let mut commit = Commit::new(&[Trust::KeepsVotes; 2], Pace::Together);
    let early = Event::Answer { branch: 0, reply: Reply::Done };
    assert_eq!(commit.step(early.clone()), Err(StepError::NotAsked { branch: 0, phase: Phase::Working }));
    commit.step(Event::Commit).unwrap();
    commit.step(early.clone()).unwrap();
    let twice = commit.step(early).unwrap_err();
    assert_eq!(twice, StepError::NotAsked { branch: 0, phase: Phase::Ending });
    assert_eq!(twice.kind(), Kind::Internal);
    let nobody = Event::Answer { branch: 2, reply: Reply::Done };
    assert_eq!(commit.step(nobody), Err(StepError::NotAsked { branch: 2, phase: Phase::Ending }));
    assert_eq!(commit.phase(), Phase::Ending);
}

#[test]
fn a_task_is_its_verb_for_one_branch() {
    let incarnation = Incarnation { epoch: Epoch(1), number: 1 };
    let tx = TxId { incarnation, counter: 1 };
    let xid = Branch { node: NodeId(7), tx, resource: ResourceId::of("a"), number: 0, flags: 0, mark: None }.xid();
    let pairs = [
        (Task::End { success: false }, Verb::End { xid, success: false }),
        (Task::Prepare, Verb::Prepare(xid)),
        (Task::Commit, Verb::Commit(xid)),
        (Task::CommitOnePhase, Verb::CommitOnePhase(xid)),
        (Task::CommitLast, Verb::CommitLast { xid, votes: Vec::new() }),
        (Task::Rollback, Verb::Rollback(xid)),
        (Task::Forget, Verb::Forget(xid)),
    ];
    for (task, verb) in pairs {
        assert_eq!(task.verb(xid), verb);
    }
}

/// The last resource is not prepared: when the others have voted it commits with its row, and nobody else decides.
#[test]
fn the_last_resource_decides_when_all_others_have_voted() {
    let (yes, decides) = (Reply::Vote(Vote::Yes), Reply::Vote(Vote::Decides));
    let begun = |others: &[Reply]| {
        let mut commit = Commit::new(&[Trust::KeepsVotes; 3], Pace::Together).with_last(0);
        commit.step(Event::Commit).unwrap();
        let asked = all_say(&mut commit, &[(0, decides.clone()), (1, Reply::Done), (2, Reply::Done)]);
        assert_eq!(asked, [send(1, Task::Prepare), send(2, Task::Prepare)]);
        let next = all_say(&mut commit, &[(1, others[0].clone()), (2, others[1].clone())]);
        (commit, next)
    };
    let (mut commit, told) = begun(&[yes.clone(), yes.clone()]);
    assert_eq!(told, [send(0, Task::CommitLast)]);
    assert_eq!(all_say(&mut commit, &[(0, Reply::Done)]), [send(1, Task::Commit), send(2, Task::Commit)]);
    assert_eq!(all_say(&mut commit, &[(1, Reply::Done), (2, Reply::Done)]), [Command::Finished]);
    assert_eq!(commit.report().unwrap().returned, TxReturn::Ok);

    // Nobody waits for a decision: one phase.
    let (_, told) = begun(&[Reply::Vote(Vote::ReadOnly), Reply::Vote(Vote::ReadOnly)]);
    assert_eq!(told, [send(0, Task::CommitOnePhase)]);
    // A no: its transaction is rolled back, and no row was ever sent.
    let (_, told) = begun(&[yes.clone(), Reply::RolledBack(native("23505"))]);
    assert_eq!(told, [send(0, Task::Rollback), send(1, Task::Rollback)]);

    // Its answer is lost: its row tells, asked again and again; that it cannot be asked is no outcome.
    for (outcome, told, returned) in
        [(Outcome::Committed, Task::Commit, TxReturn::Ok), (Outcome::RolledBack, Task::Rollback, TxReturn::Rollback)]
    {
        let (mut commit, _) = begun(&[yes.clone(), yes.clone()]);
        assert_eq!(all_say(&mut commit, &[(0, Reply::Lost(native("08006")))]), [Command::Settle]);
        let refused = DecideError { kind: Kind::Unavailable, message: "nobody is there".to_owned() };
        assert_eq!(commit.step(Event::NotDecided(refused)), Ok(vec![]));
        let report = commit.report().unwrap();
        assert!(matches!(report.verdict, Verdict::InDoubt(_)) && report.unfinished.len() == 3, "{report:?}");
        assert_eq!(commit.step(Event::Retry), Ok(vec![Command::Settle]));
        assert_eq!(
            commit.step(Event::Decided(outcome)),
            Ok(vec![send(1, told), send(2, told)]),
            "it is finished itself"
        );
        assert_eq!(all_say(&mut commit, &[(1, Reply::Done), (2, Reply::Done)]), [Command::Finished]);
        assert_eq!(commit.report().unwrap().returned, returned);
    }
}

/// It has committed, and somebody has taken its row away: the log decides for the others; if recovery was there first, a person must know.
#[test]
fn a_last_resource_that_kept_no_decision_has_the_log_decide() {
    let committed = Reply::Heuristic(Heuristic::Committed, native("no row"));
    let begun = || {
        let mut commit = Commit::new(&[Trust::KeepsVotes; 2], Pace::Together).with_last(0);
        commit.step(Event::Commit).unwrap();
        all_say(&mut commit, &[(0, Reply::Vote(Vote::Decides)), (1, Reply::Done)]);
        all_say(&mut commit, &[(1, Reply::Vote(Vote::Yes))]);
        assert_eq!(all_say(&mut commit, &[(0, committed.clone())]), [Command::Decide { yes: vec![1], first: true }]);
        commit
    };
    let mut commit = begun();
    assert_eq!(commit.step(Event::Decided(Outcome::Committed)), Ok(vec![send(1, Task::Commit)]));
    assert_eq!(all_say(&mut commit, &[(1, Reply::Done)]), [Command::Finished]);
    assert_eq!(commit.report().unwrap().returned, TxReturn::Ok);

    let refused = DecideError { kind: Kind::Full, message: "no room".to_owned() };
    for no in [Event::Decided(Outcome::RolledBack), Event::NotDecided(refused)] {
        let mut commit = begun();
        assert_eq!(commit.step(no), Ok(vec![send(1, Task::Rollback)]));
        all_say(&mut commit, &[(1, Reply::Done)]);
        let report = commit.report().unwrap();
        let Verdict::Heuristic(list) = report.verdict else { panic!("{report:?}") };
        assert_eq!((list.len(), list[0].branch, list[0].heuristic), (1, 0, Heuristic::Committed));
    }

    let mut commit = begun();
    assert_eq!(commit.step(Event::DecisionInDoubt), Ok(vec![]));
    assert!(matches!(commit.report().unwrap().verdict, Verdict::InDoubt(_)));
    assert_eq!(commit.step(Event::Retry), Ok(vec![Command::Decide { yes: vec![1], first: false }]));
}

/// Two can decide: the others' names say which one does, and the second one is prepared as any other.
#[test]
fn of_two_last_resources_one_decides() {
    let decides = Reply::Vote(Vote::Decides);
    let mut commit = Commit::new(&[Trust::KeepsVotes; 2], Pace::Together).with_last(0);
    commit.step(Event::Commit).unwrap();
    assert_eq!(all_say(&mut commit, &[(0, decides.clone()), (1, decides.clone())]), [send(1, Task::Prepare)]);
    let mut neither = Commit::new(&[Trust::KeepsVotes; 2], Pace::Together);
    neither.step(Event::Commit).unwrap();
    let told = all_say(&mut neither, &[(0, decides.clone()), (1, decides)]);
    assert_eq!(told, [send(0, Task::Prepare), send(1, Task::Prepare)]);
}
