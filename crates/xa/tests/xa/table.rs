//! Every phase against every event, the unreachable ones too. In each phase but the quiet ones exactly one answer is
//! missing: that of branch 0, the other branch has said what lets the protocol go on.

use assent_kind::Kind;
use assent_xa::{
    Command, Commit, DecideError, Event, Heuristic, Native, Outcome, Pace, Phase, Reply, Task, Trust, Verdict, Vote,
};

pub(crate) fn replies() -> Vec<(&'static str, Reply)> {
    let native = Native::default;
    vec![
        ("done", Reply::Done),
        ("yes", Reply::Vote(Vote::Yes)),
        ("read-only", Reply::Vote(Vote::ReadOnly)),
        ("rolled back", Reply::RolledBack(native())),
        ("unknown", Reply::Unknown(native())),
        ("refused", Reply::Refused(Kind::Busy, native())),
        ("lost", Reply::Lost(native())),
        ("heur. committed", Reply::Heuristic(Heuristic::Committed, native())),
        ("heur. rolled back", Reply::Heuristic(Heuristic::RolledBack, native())),
        ("heur. mixed", Reply::Heuristic(Heuristic::Mixed, native())),
        ("a list", Reply::Listed(Vec::new())),
    ]
}

pub(crate) fn refusal() -> DecideError {
    DecideError { kind: Kind::Full, message: "no room".to_owned() }
}

fn others() -> Vec<(&'static str, Event)> {
    vec![
        ("COMMIT", Event::Commit),
        ("ROLLBACK", Event::Rollback),
        ("DECIDED commit", Event::Decided(Outcome::Committed)),
        ("DECIDED rollback", Event::Decided(Outcome::RolledBack)),
        ("NOT DECIDED", Event::NotDecided(refusal())),
        ("IN DOUBT", Event::DecisionInDoubt),
        ("RETRY", Event::Retry),
    ]
}

fn answer(branch: u16, reply: Reply) -> Event {
    Event::Answer { branch, reply }
}

/// A commit of two branches (one in one phase) that stands there.
fn standing(phase: Phase) -> Commit {
    let count = if phase == Phase::OnePhase { 1 } else { 2 };
    let mut commit = Commit::new(&vec![Trust::KeepsVotes; count], Pace::Together);
    if phase == Phase::Settling {
        commit = commit.with_last(0);
    }
    let heuristic = |h| Reply::Heuristic(h, Native::default());
    let yes = || Reply::Vote(Vote::Yes);
    let way: Vec<Event> = match phase {
        Phase::Working => vec![],
        Phase::Ending => vec![Event::Commit, answer(1, Reply::Done)],
        Phase::Stopping => vec![Event::Rollback, answer(1, Reply::Done)],
        Phase::Preparing => {
            vec![Event::Commit, answer(1, Reply::Done), answer(0, Reply::Done), answer(1, yes())]
        }
        Phase::OnePhase => vec![Event::Commit, answer(0, Reply::Done)],
        Phase::Settling => {
            vec![Event::Commit, answer(0, Reply::Vote(Vote::Decides)), answer(1, Reply::Done), answer(1, yes())]
        }
        Phase::Deciding | Phase::Committing | Phase::RollingBack | Phase::Forgetting | Phase::Resting => {
            let mut way = vec![Event::Commit, answer(1, Reply::Done), answer(0, Reply::Done)];
            way.extend([answer(1, yes()), answer(0, yes())]);
            match phase {
                Phase::Committing => way.extend([Event::Decided(Outcome::Committed), answer(1, Reply::Done)]),
                Phase::RollingBack => way.extend([Event::Decided(Outcome::RolledBack), answer(1, Reply::Done)]),
                Phase::Forgetting => way.extend([
                    Event::Decided(Outcome::Committed),
                    answer(0, heuristic(Heuristic::Committed)),
                    answer(1, Reply::Done),
                ]),
                Phase::Resting => way.push(Event::DecisionInDoubt),
                _ => {}
            }
            way
        }
    };
    for event in way {
        commit.step(event).unwrap();
    }
    assert_eq!(commit.phase(), phase, "the way leads there");
    commit
}

fn told(task: Task) -> &'static str {
    match task {
        Task::End { success: true } => "end",
        Task::End { success: false } => "fail",
        Task::Prepare => "prepare",
        Task::Commit => "commit",
        Task::CommitOnePhase => "one-phase",
        Task::CommitLast => "commit-last",
        Task::Rollback => "rollback",
        Task::Forget => "forget",
    }
}

fn cell(mut commit: Commit, event: Event) -> String {
    let Ok(commands) = commit.step(event) else { return "-".to_owned() };
    let mut words: Vec<String> = commands
        .iter()
        .map(|command| match command {
            Command::Send { branch, task } => format!("{} {branch}", told(*task)),
            Command::Decide { yes, first } => format!("decide {yes:?} {}", if *first { "first" } else { "again" }),
            Command::Settle => "settle".to_owned(),
            Command::Finished => "finished".to_owned(),
            Command::Acknowledged => "acknowledged".to_owned(),
        })
        .collect();
    if let Some(report) = commit.report() {
        words.insert(
            0,
            match report.verdict {
                Verdict::Committed if report.inferred.is_empty() => "= committed",
                Verdict::Committed => "= committed (inferred)",
                Verdict::RolledBack(_) => "= rolled back",
                Verdict::InDoubt(_) => "= in doubt",
                Verdict::Heuristic(_) => "= heuristic",
            }
            .to_owned(),
        );
    }
    words.join(", ")
}

#[rustfmt::skip]
const TABLE: &[(Phase, &[&str])] = &[
    // COMMIT, ROLLBACK, DECIDED commit, DECIDED rollback, NOT DECIDED, IN DOUBT, RETRY;
    // done, yes, read-only, rolled back, unknown, refused; lost, heur. committed, heur. rolled back, heur. mixed, a list
    (Phase::Working, &[
        "end 0, end 1", "fail 0, fail 1", "-", "-", "-", "-", "-",
        "-", "-", "-", "-", "-", "-",
        "-", "-", "-", "-", "-",
    ]),
    (Phase::Ending, &[
        "-", "-", "-", "-", "-", "-", "-",
        "prepare 0, prepare 1", "rollback 0, rollback 1", "one-phase 1", "rollback 0, rollback 1", "rollback 0, rollback 1", "rollback 0, rollback 1",
        "rollback 0, rollback 1", "rollback 0, rollback 1", "rollback 0, rollback 1", "rollback 0, rollback 1", "rollback 0, rollback 1",
    ]),
    (Phase::Stopping, &[
        "-", "-", "-", "-", "-", "-", "-",
        "rollback 0, rollback 1", "rollback 0, rollback 1", "rollback 1", "rollback 0, rollback 1", "rollback 0, rollback 1", "rollback 0, rollback 1",
        "rollback 0, rollback 1", "rollback 0, rollback 1", "rollback 0, rollback 1", "rollback 0, rollback 1", "rollback 0, rollback 1",
    ]),
    (Phase::Preparing, &[
        "-", "-", "-", "-", "-", "-", "-",
        "rollback 0, rollback 1", "decide [0, 1] first", "decide [1] first", "rollback 1", "rollback 0, rollback 1", "rollback 0, rollback 1",
        "rollback 0, rollback 1", "rollback 0, rollback 1", "rollback 0, rollback 1", "rollback 0, rollback 1", "rollback 0, rollback 1",
    ]),
    (Phase::OnePhase, &[
        "-", "-", "-", "-", "-", "-", "-",
        "= committed", "= in doubt", "= in doubt", "= rolled back", "= rolled back", "rollback 0",
        "= in doubt", "forget 0", "forget 0", "= heuristic", "= in doubt",
    ]),
    (Phase::Settling, &[
        "-", "-", "-", "-", "-", "-", "-",
        "commit 1", "settle", "settle", "rollback 1", "rollback 1", "rollback 0, rollback 1",
        "settle", "decide [1] first", "settle", "settle", "settle",
    ]),
    (Phase::Deciding, &[
        "-", "-", "commit 0, commit 1", "rollback 0, rollback 1", "rollback 0, rollback 1", "= in doubt", "-",
        "-", "-", "-", "-", "-", "-",
        "-", "-", "-", "-", "-",
    ]),
    (Phase::Committing, &[
        "-", "-", "-", "-", "-", "-", "-",
        "= committed, finished", "= committed, acknowledged", "= committed, acknowledged", "= heuristic, acknowledged", "= committed (inferred), finished", "= committed, acknowledged",
        "= committed, acknowledged", "forget 0", "= heuristic, acknowledged", "= heuristic, acknowledged", "= committed, acknowledged",
    ]),
    (Phase::RollingBack, &[
        "-", "-", "-", "-", "-", "-", "-",
        "= rolled back, finished", "= rolled back, acknowledged", "= rolled back, acknowledged", "= rolled back, finished", "= rolled back, finished", "= rolled back, acknowledged",
        "= rolled back, acknowledged", "= heuristic, acknowledged", "forget 0", "= heuristic, acknowledged", "= rolled back, acknowledged",
    ]),
    (Phase::Forgetting, &[
        "-", "-", "-", "-", "-", "-", "-",
        "= committed, finished", "= committed, acknowledged", "= committed, acknowledged", "= committed, acknowledged", "= committed, finished", "= committed, acknowledged",
        "= committed, acknowledged", "= committed, acknowledged", "= committed, acknowledged", "= committed, acknowledged", "= committed, acknowledged",
    ]),
    (Phase::Resting, &[
        "-", "-", "-", "-", "-", "-", "decide [0, 1] again",
        "-", "-", "-", "-", "-", "-",
        "-", "-", "-", "-", "-",
    ]),
];

#[test]
fn every_phase_answers_every_event_as_the_table_says() {
    let mut wrong = String::new();
    for phase in Phase::ALL {
        let row = TABLE.iter().find(|(of, _)| *of == phase).map_or(&[][..], |(_, row)| row);
        let events: Vec<(&str, Event)> =
            others().into_iter().chain(replies().into_iter().map(|(name, reply)| (name, answer(0, reply)))).collect();
        for (at, (name, event)) in events.into_iter().enumerate() {
            let seen = cell(standing(phase), event);
            let expected = row.get(at).copied().unwrap_or("(missing)");
            if seen != expected {
                wrong.push_str(&format!("{phase:?} x {name}: {seen:?}, the table says {expected:?}\n"));
            }
        }
        assert_eq!(row.len(), 18, "{phase:?} has a row of {} cells", row.len());
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
