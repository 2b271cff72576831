//! Every order of answers, every reply, every fate of the decision, over one to three branches: what must never happen
//! never does, and every way ends.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use assent_xa::{Command, Commit, Event, Outcome, Pace, Phase, Reply, Task, Trust, Verdict, Vote};

use crate::table::{refusal, replies};

/// What an onlooker has seen so far.
#[derive(Clone, Debug, Default)]
struct Onlooker {
    outstanding: BTreeMap<u16, Task>,
    asked_to_decide: bool,
    decided: Option<Outcome>,
    asked_twice: bool,
    prepared: u32,
    yes: Vec<u16>,
    committed: Vec<u16>,
    rolled_back: Vec<u16>,
    one_phase: Vec<u16>,
    told_last: bool,
    told_finished: bool,
    retried: bool,
}

impl Onlooker {
    fn sees(&mut self, commands: &[Command]) {
        for command in commands {
            match command {
                Command::Send { branch, task } => self.sends(*branch, *task),
                Command::Decide { yes, first } => {
                    assert!(!yes.is_empty(), "nothing to decide");
                    assert_eq!(yes, &self.yes, "the yes votes are decided on");
                    assert_eq!(*first, !self.asked_twice);
                    assert!(self.outstanding.is_empty(), "asked before all votes are in");
                    self.asked_to_decide = true;
                    self.asked_twice = true;
                }
                Command::Settle => {
                    assert!(self.outstanding.is_empty() && self.told_last, "a row that nobody was told to write");
                    self.asked_to_decide = true;
                }
                Command::Finished => {
                    assert!(self.decided.is_some(), "forgets what was never decided");
                    self.told_finished = true;
                }
                Command::Acknowledged => assert!(self.decided.is_some(), "acknowledges what was never decided"),
            }
        }
    }

    fn sends(&mut self, branch: u16, task: Task) {
        assert_eq!(self.outstanding.insert(branch, task), None, "one receive follows each send");
        match task {
            Task::Prepare => self.prepared += 1,
            Task::Commit => {
                assert_eq!(self.decided, Some(Outcome::Committed), "commits without a durable decision");
                assert!(self.yes.contains(&branch), "commits what did not vote yes");
                self.committed.push(branch);
            }
            Task::CommitOnePhase => {
                assert!(self.one_phase.is_empty() && self.yes.is_empty(), "one phase beside another branch");
                assert_eq!(self.decided, None);
                self.one_phase.push(branch);
            }
            Task::Rollback => {
                assert_ne!(self.decided, Some(Outcome::Committed), "rolls back what is decided to commit");
                self.rolled_back.push(branch);
            }
            Task::CommitLast => {
                assert!(!self.yes.is_empty() && !self.yes.contains(&branch), "decides for nobody, or is prepared");
                assert!(self.outstanding.len() == 1 && !self.told_last, "beside others, or twice");
                assert!(self.decided.is_none() && self.rolled_back.is_empty() && !self.asked_twice);
                self.told_last = true;
            }
            Task::End { .. } | Task::Forget => {}
        }
        let both = |branch: &u16| self.committed.contains(branch) && self.rolled_back.contains(branch);
        assert!(!both(&branch), "both ways");
        assert!(self.committed.is_empty() || self.rolled_back.is_empty(), "one branch each way");
    }
}

struct Walk {
    seen: HashSet<u64>,
    replies: Vec<Reply>,
    steps_max: u32,
    ends: BTreeMap<&'static str, u64>,
}

impl Walk {
    fn from(&mut self, commit: &Commit, onlooker: &Onlooker, depth: u32) {
        assert!(depth <= self.steps_max, "does not end");
        let mut hasher = DefaultHasher::new();
        format!("{commit:?} {onlooker:?}").hash(&mut hasher);
        if !self.seen.insert(hasher.finish()) {
            return;
        }
        if let Some(report) = commit.report() {
            assert!(onlooker.outstanding.is_empty() && !onlooker.asked_to_decide, "rests while something is missing");
            assert_eq!(onlooker.told_finished, onlooker.decided.is_some() && report.is_finished());
            let end = match &report.verdict {
                Verdict::Committed => {
                    assert!(onlooker.rolled_back.is_empty(), "committed, but a branch was rolled back");
                    "committed"
                }
                Verdict::RolledBack(_) => {
                    assert!(onlooker.committed.is_empty(), "rolled back, but a branch was committed");
                    "rolled back"
                }
                Verdict::InDoubt(_) => {
                    assert!(onlooker.committed.is_empty() && onlooker.rolled_back.is_empty(), "acted in doubt");
                    "in doubt"
                }
                Verdict::Heuristic(list) => {
                    assert!(!list.is_empty());
                    "heuristic"
                }
            };
            *self.ends.entry(end).or_default() += 1;
        }
        let mut ways: Vec<Event> = Vec::new();
        for branch in onlooker.outstanding.keys() {
            ways.extend(self.replies.iter().cloned().map(|reply| Event::Answer { branch: *branch, reply }));
        }
        if onlooker.asked_to_decide {
            ways.extend([Event::Decided(Outcome::Committed), Event::Decided(Outcome::RolledBack)]);
            ways.extend([Event::NotDecided(refusal()), Event::DecisionInDoubt]);
        }
        if commit.phase() == Phase::Working {
            ways.extend([Event::Commit, Event::Rollback]);
        }
        if commit.phase() == Phase::Resting && !onlooker.retried {
            ways.push(Event::Retry);
        }
        assert!(!ways.is_empty() || commit.phase() == Phase::Resting, "stuck in {commit:?}");
        for event in ways {
            self.one_step(commit, onlooker, event, depth);
        }
    }

    fn one_step(&mut self, commit: &Commit, onlooker: &Onlooker, event: Event, depth: u32) {
        let (mut commit, mut onlooker) = (commit.clone(), onlooker.clone());
        match &event {
            Event::Answer { branch, reply } => {
                let task = onlooker.outstanding.remove(branch);
                if (task, reply) == (Some(Task::Prepare), &Reply::Vote(Vote::Yes)) {
                    onlooker.yes.push(*branch);
                    onlooker.yes.sort_unstable();
                }
                if (task, reply) == (Some(Task::CommitLast), &Reply::Done) {
                    onlooker.decided = Some(Outcome::Committed);
                }
            }
            Event::Decided(outcome) => {
                onlooker.asked_to_decide = false;
                onlooker.decided = Some(*outcome);
            }
            Event::NotDecided(_) | Event::DecisionInDoubt => onlooker.asked_to_decide = false,
            Event::Retry => onlooker.retried = true,
            Event::Commit | Event::Rollback => {}
        }
        let retry = event == Event::Retry;
        match commit.step(event) {
            Ok(commands) => onlooker.sees(&commands),
            Err(error) => {
                assert!(retry, "{error}");
                return;
            }
        }
        self.from(&commit, &onlooker, depth + 1);
    }
}

fn walk(branches: &[Trust], pace: Pace, replies: Vec<Reply>, onlooker: &Onlooker) -> BTreeMap<&'static str, u64> {
    drive(Commit::new(branches, pace), branches.len(), replies, onlooker)
}

fn drive(commit: Commit, branches: usize, replies: Vec<Reply>, onlooker: &Onlooker) -> BTreeMap<&'static str, u64> {
    // End, prepare, (the last one's prepare), decide, phase two, forget; retried once.
    let rounds = u32::try_from(branches).unwrap() * 8 + 6;
    let mut walk = Walk { seen: HashSet::new(), replies, steps_max: rounds, ends: BTreeMap::new() };
    walk.from(&commit, onlooker, 0);
    walk.ends
}

fn all() -> Vec<Reply> {
    replies().into_iter().map(|(_, reply)| reply).collect()
}

#[test]
fn one_and_two_branches_end_well_in_every_order() {
    for pace in [Pace::Together, Pace::LastAlone] {
        let mut ends = walk(&[], pace, all(), &Onlooker::default());
        assert_eq!(ends.remove("committed"), Some(1));
        for trust in [Trust::KeepsVotes, Trust::MayLoseVotes] {
            for count in 1..=2 {
                let ends = walk(&vec![trust; count], pace, all(), &Onlooker::default());
                assert_eq!(ends.len(), 4, "all four ends are reached: {ends:?}");
            }
        }
    }
}

/// Any of them may say that it can decide; only one of them is asked to.
#[test]
fn with_a_last_resource_all_end_well_in_every_order() {
    let decides = Reply::Vote(Vote::Decides);
    for pace in [Pace::Together, Pace::LastAlone] {
        for last in 0..2 {
            let replies = all().into_iter().chain([decides.clone()]).collect();
            let commit = Commit::new(&[Trust::KeepsVotes; 2], pace).with_last(last);
            let ends = drive(commit, 2, replies, &Onlooker::default());
            assert_eq!(ends.len(), 4, "all four ends are reached: {ends:?}");
        }
        let names = ["done", "yes", "rolled back", "lost"];
        let few = replies().into_iter().filter(|(name, _)| names.contains(name)).map(|(_, reply)| reply);
        let onlooker = Onlooker { retried: true, ..Onlooker::default() };
        let commit = Commit::new(&[Trust::KeepsVotes; 3], pace).with_last(0);
        let ends = drive(commit, 3, few.chain([decides.clone()]).collect(), &onlooker);
        assert!(ends.values().sum::<u64>() > 100, "{ends:?}");
    }
}

#[test]
fn three_branches_end_well_in_every_order() {
    // The replies that mean something else than another one does; no retry.
    let few: Vec<Reply> = replies()
        .into_iter()
        .filter(|(name, _)| ["done", "yes", "read-only", "rolled back", "lost"].contains(name))
        .map(|(_, reply)| reply)
        .collect();
    let onlooker = Onlooker { retried: true, ..Onlooker::default() };
    for pace in [Pace::Together, Pace::LastAlone] {
        let ends = walk(&[Trust::KeepsVotes; 3], pace, few.clone(), &onlooker);
        assert!(ends.values().sum::<u64>() > 100, "{ends:?}");
    }
}
