//! Two-phase commit as a value: events go in, commands come out.
//!
//! ```text
//!  Working ─ Commit ─▶ Ending ─▶ Preparing ─▶ Deciding ─▶ Committing ──▶ (Forgetting) ─▶ Resting
//!     │                  │  │       └ a last resource ─▶ Settling ┴──┘  ▲             ▲
//!     │                  │  └ one left ─▶ OnePhase ─────────────────┐   │             │
//!     └── Rollback ──────┴── somebody said no ─▶ RollingBack ───────┴───┴─────────────┘
//! ```
//! Walk: [`Commit::step`] takes an [`Event`] and answers the [`Command`]s of the next round · a round is sent to all its
//! branches and then received from each; the last answer of a round begins the next · at rest, [`Commit::report`] says
//! how it ended.
//! Deliberately absent: I/O, clocks, XIDs, and a way to be stuck: every reply of a resource has a meaning (one that does
//! not fit its verb counts as lost), only an event that nobody asked for is refused.
//! Source: X/Open CAE Specification C193 (XA), chapter 2.3; presumed abort after Mohan and Lindsay (1983).

use crate::answer::{Stand, fate_after, stand_after};
use crate::event::{Command, Event, Pace, Phase, StepError, Trust};
use crate::report::{Ballot, Cause, HeuristicBranch, Report, UnfinishedBranch, Verdict, Voice};
use crate::tx::{Fate, TxReturn};
use crate::{Heuristic, Native, Outcome, Reply, Task};

#[derive(Clone, Debug)]
struct Branch {
    trust: Trust,
    stand: Stand,
    /// What became of it, once that is known.
    fate: Option<Fate>,
    /// What it voted, if it was asked.
    voice: Option<Voice>,
    asked: Option<Task>,
}

/// One transaction's way from the application's work to its end.
#[derive(Clone, Debug)]
pub struct Commit {
    branches: Vec<Branch>,
    pace: Pace,
    phase: Phase,
    waiting: usize,
    asks: u32,
    decided: Option<Outcome>,
    decision_in_doubt: bool,
    /// The branch that may decide by a row.
    last: Option<u16>,
    cause: Option<Cause>,
}

impl Commit {
    /// A transaction over these branches, in their order; at most 65,535 are looked at.
    #[must_use]
    pub fn new(branches: &[Trust], pace: Pace) -> Self {
        let branches = branches
            .iter()
            .take(usize::from(u16::MAX))
            .map(|trust| Branch { trust: *trust, stand: Stand::Working, fate: None, voice: None, asked: None })
            .collect();
        Self {
            branches,
            pace,
            phase: Phase::Working,
            waiting: 0,
            asks: 0,
            decided: None,
            decision_in_doubt: false,
            last: None,
            cause: None,
        }
    }

    /// This branch decides, if it says at its end that it can and another one has voted: when all others have, it commits
    /// together with the row that says so, and nobody else is asked. The XIDs of all others must say so.
    #[must_use]
    pub const fn with_last(mut self, branch: u16) -> Self {
        self.last = Some(branch);
        self
    }

    /// Where it stands.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Takes an event in. The commands are those of the next round; none while answers of this round are missing, and
    /// at rest.
    ///
    /// # Errors
    /// [`StepError`] for an event that cannot happen here; nothing has changed then.
    pub fn step(&mut self, event: Event) -> Result<Vec<Command>, StepError> {
        match (self.phase, event) {
            (phase, Event::Answer { branch, reply }) => self.answer(phase, branch, reply),
            (Phase::Working, Event::Commit) => Ok(self.end(Phase::Ending)),
            (Phase::Working, Event::Rollback) => {
                self.cause = Some(Cause::Asked);
                Ok(self.end(Phase::Stopping))
            }
            (Phase::Deciding, Event::Decided(outcome)) => Ok(self.decided(outcome)),
            (Phase::Deciding, Event::NotDecided(error)) if self.asks == 1 && !self.is_settling() => {
                self.cause.get_or_insert(Cause::NotDecided(error));
                Ok(self.roll_back())
            }
            // That a repeated question was refused says nothing about the first one.
            (Phase::Deciding, Event::DecisionInDoubt | Event::NotDecided(_)) => {
                self.decision_in_doubt = true;
                Ok(self.rest())
            }
            (Phase::Resting, Event::Retry) if self.decision_in_doubt => Ok(self.decide()),
            (Phase::Resting, Event::Retry) if self.has(|stand| matches!(stand, Stand::Unfinished { .. })) => {
                Ok(self.again())
            }
            (phase, event) => Err(StepError::OutOfPhase { event: event.name(), phase }),
        }
    }

    /// What each branch has voted so far, in their order; one that was not asked is not there.
    pub fn votes(&self) -> impl Iterator<Item = (u16, &Voice)> {
        self.numbered().filter_map(|(branch, at)| Some((branch, at.voice.as_ref()?)))
    }

    /// How it ended; `None` before it rests.
    #[must_use]
    pub fn report(&self) -> Option<Report> {
        if self.phase != Phase::Resting {
            return None;
        }
        let mut report = Report {
            verdict: Verdict::Committed,
            returned: self.returned(),
            decided: self.decided,
            unfinished: Vec::new(),
            inferred: Vec::new(),
        };
        let mut heuristics = Vec::new();
        let mut in_doubt = self.decision_in_doubt.then(Default::default);
        for (branch, at) in self.numbered() {
            match &at.stand {
                Stand::Inferred => report.inferred.push(branch),
                Stand::Unfinished { native, .. } => {
                    report.unfinished.push(UnfinishedBranch { branch, native: native.clone() });
                }
                Stand::Heuristic(heuristic, native) => {
                    heuristics.push(HeuristicBranch { branch, heuristic: *heuristic, native: native.clone() });
                }
                Stand::InDoubt(native) => in_doubt = Some(native.clone()),
                Stand::Asked(native) if self.decision_in_doubt => {
                    report.unfinished.push(UnfinishedBranch { branch, native: native.clone() });
                }
                Stand::Voted if self.decision_in_doubt => {
                    report.unfinished.push(UnfinishedBranch { branch, native: Default::default() });
                }
                _ => {}
            }
        }
        report.verdict = match (in_doubt, heuristics.is_empty(), self.cause.clone()) {
            (Some(native), ..) => Verdict::InDoubt(native),
            (None, false, _) => Verdict::Heuristic(heuristics),
            (None, true, Some(cause)) => Verdict::RolledBack(cause),
            (None, true, None) => Verdict::Committed,
        };
        Some(report)
    }

    fn returned(&self) -> TxReturn {
        let asked = if self.cause == Some(Cause::Asked) { Outcome::RolledBack } else { Outcome::Committed };
        let meant = if self.cause.is_some() { Outcome::RolledBack } else { Outcome::Committed };
        // Who voted and was not told anything since may become either.
        TxReturn::of(asked, meant, self.branches.iter().map(|at| at.fate.unwrap_or(Fate::Hazard)))
    }

    fn answer(&mut self, phase: Phase, branch: u16, reply: Reply) -> Result<Vec<Command>, StepError> {
        let refused = StepError::NotAsked { branch, phase };
        let at = self.branches.get_mut(usize::from(branch)).ok_or(refused)?;
        let task = at.asked.take().ok_or(refused)?;
        let (stand, no) = stand_after(task, reply, at.trust);
        at.fate = fate_after(task, &stand, no.is_some()).or(at.fate);
        match (&stand, &no, &mut at.voice) {
            (_, Some(no), voice) => *voice = Some(Voice::new(Ballot::No, no.native.clone())),
            (Stand::Voted, None, voice) => *voice = Some(Voice::new(Ballot::Yes, Native::default())),
            (Stand::Finished, None, voice) if matches!(task, Task::End { .. } | Task::Prepare) => {
                *voice = Some(Voice::new(Ballot::ReadOnly, Native::default()));
            }
            (Stand::Unfinished { native, .. }, None, Some(voice)) => voice.native = native.clone(),
            _ => {}
        }
        at.stand = match stand {
            // It may say so of itself, and the others' XIDs name another one.
            Stand::Last if self.last != Some(branch) => Stand::Working,
            stand => stand,
        };
        if let Some(no) = no {
            self.cause.get_or_insert(Cause::Branch { branch, kind: no.kind, native: no.native });
        }
        self.waiting = self.waiting.saturating_sub(1);
        Ok(if self.waiting == 0 { self.next_round() } else { Vec::new() })
    }

    /// All answers of a round are there.
    fn next_round(&mut self) -> Vec<Command> {
        match self.phase {
            Phase::Ending if self.cause.is_some() => self.roll_back(),
            Phase::Ending => self.prepare(true),
            Phase::Stopping => self.roll_back(),
            Phase::Preparing if self.cause.is_some() => self.roll_back(),
            Phase::Preparing if self.has(|stand| matches!(stand, Stand::Working)) => self.prepare(false),
            Phase::Preparing => self.decide_or_settle(),
            Phase::Settling if self.is_settling() => self.ask_row(),
            // No row says so to recovery, and the log may still.
            Phase::Settling if self.has(|at| matches!(at, Stand::Unrecorded(_))) => self.decide(),
            // POINT OF NO RETURN: the decision is a row, as durable as the work beside it.
            Phase::Settling if self.cause.is_none() => self.decided(Outcome::Committed),
            Phase::Settling => self.roll_back(),
            Phase::OnePhase if self.has(|stand| matches!(stand, Stand::Doomed)) => self.roll_back(),
            Phase::OnePhase | Phase::Committing | Phase::RollingBack | Phase::Forgetting => self.close(),
            // Nobody is waited for in these.
            Phase::Working | Phase::Deciding | Phase::Resting => Vec::new(),
        }
    }

    fn end(&mut self, phase: Phase) -> Vec<Command> {
        let success = phase == Phase::Ending;
        self.round(phase, Task::End { success }, |_| true)
    }

    /// The next branches to prepare; or one phase, if only one branch is left that may have something to commit.
    fn prepare(&mut self, first_round: bool) -> Vec<Command> {
        let open: Vec<u16> = self
            .numbered()
            .filter(|(_, at)| matches!(at.stand, Stand::Working | Stand::Last | Stand::Voted))
            .map(|(branch, _)| branch)
            .collect();
        match open.as_slice() {
            // All read-only: there is nothing to decide.
            [] => self.rest(),
            // XA, 2.3.2: with one branch there is nothing to agree on. It has not been told to prepare yet.
            [_] => self.one_phase(),
            [.., last] if first_round && self.pace == Pace::LastAlone => {
                let last = *last;
                self.round_of(Phase::Preparing, Task::Prepare, |branch, at| {
                    matches!(at, Stand::Working) && branch != last
                })
            }
            _ => self.round(Phase::Preparing, Task::Prepare, |at| matches!(at, Stand::Working)),
        }
    }

    fn one_phase(&mut self) -> Vec<Command> {
        self.round(Phase::OnePhase, Task::CommitOnePhase, |at| matches!(at, Stand::Working | Stand::Last))
    }

    /// All have voted but the last resource, if there is one: it decides, unless nothing waits for its decision.
    fn decide_or_settle(&mut self) -> Vec<Command> {
        match (self.has(|at| matches!(at, Stand::Last)), self.has(|at| matches!(at, Stand::Voted))) {
            (false, _) => self.decide(),
            (true, false) => self.one_phase(),
            (true, true) => self.round(Phase::Settling, Task::CommitLast, |at| matches!(at, Stand::Last)),
        }
    }

    /// Whether only its row tells what the last resource has decided.
    fn is_settling(&self) -> bool {
        self.has(|at| matches!(at, Stand::Asked(_)))
    }

    fn ask_row(&mut self) -> Vec<Command> {
        self.decision_in_doubt = false;
        self.phase = Phase::Deciding;
        vec![Command::Settle]
    }

    fn decide(&mut self) -> Vec<Command> {
        if self.is_settling() {
            return self.ask_row();
        }
        let yes: Vec<u16> =
            self.numbered().filter(|(_, at)| matches!(at.stand, Stand::Voted)).map(|(branch, _)| branch).collect();
        if yes.is_empty() {
            return self.rest();
        }
        let first = self.asks == 0;
        self.asks = self.asks.saturating_add(1);
        self.decision_in_doubt = false;
        self.phase = Phase::Deciding;
        vec![Command::Decide { yes, first }]
    }

    fn decided(&mut self, outcome: Outcome) -> Vec<Command> {
        self.decided = Some(outcome);
        for at in self.branches.iter_mut().filter(|at| matches!(at.stand, Stand::Asked(_))) {
            at.stand = Stand::Finished;
            at.fate = Some(if outcome == Outcome::Committed { Fate::Committed } else { Fate::RolledBack });
        }
        match outcome {
            // POINT OF NO RETURN: the decision is durable; from here we only ever complete.
            Outcome::Committed => self.round(Phase::Committing, Task::Commit, |at| matches!(at, Stand::Voted)),
            Outcome::RolledBack => {
                self.cause.get_or_insert(Cause::Decided);
                self.roll_back()
            }
        }
    }

    fn roll_back(&mut self) -> Vec<Command> {
        for at in &mut self.branches {
            if let Stand::Unrecorded(native) = &mut at.stand {
                at.stand = Stand::Heuristic(Heuristic::Committed, std::mem::take(native));
            }
        }
        let open = |at: &Stand| matches!(at, Stand::Working | Stand::Last | Stand::Voted | Stand::Doomed);
        if self.has(open) { self.round(Phase::RollingBack, Task::Rollback, open) } else { self.rest() }
    }

    /// Every branch has answered its last verb; heuristic outcomes that agree may be forgotten by their resources.
    fn close(&mut self) -> Vec<Command> {
        let agrees = |at: &Stand| matches!(at, Stand::Agrees(_));
        if self.has(agrees) { self.round(Phase::Forgetting, Task::Forget, agrees) } else { self.rest() }
    }

    /// Tells the unfinished ones again what they were told last.
    fn again(&mut self) -> Vec<Command> {
        let told = |wanted| move |at: &Stand| matches!(at, Stand::Unfinished { task, .. } if *task == wanted);
        self.phase = if self.has(told(Task::Commit)) {
            Phase::Committing
        } else if self.has(told(Task::Rollback)) {
            Phase::RollingBack
        } else {
            Phase::Forgetting
        };
        let mut commands = Vec::new();
        for (branch, at) in (0..).zip(&mut self.branches) {
            if let Stand::Unfinished { task, .. } = at.stand {
                at.asked = Some(task);
                if let Some(voice) = &mut at.voice {
                    voice.retries = voice.retries.saturating_add(1);
                }
                commands.push(Command::Send { branch, task });
            }
        }
        self.waiting = commands.len();
        commands
    }

    fn rest(&mut self) -> Vec<Command> {
        self.phase = Phase::Resting;
        // Without a decision the decider has nothing to forget.
        if self.decided.is_none() || self.decision_in_doubt {
            return Vec::new();
        }
        let open = |at: &Stand| matches!(at, Stand::Unfinished { .. } | Stand::Heuristic(..));
        vec![if self.has(open) { Command::Acknowledged } else { Command::Finished }]
    }

    fn round(&mut self, phase: Phase, task: Task, pick: impl Fn(&Stand) -> bool) -> Vec<Command> {
        self.round_of(phase, task, |_, at| pick(at))
    }

    fn round_of(&mut self, phase: Phase, task: Task, pick: impl Fn(u16, &Stand) -> bool) -> Vec<Command> {
        self.phase = phase;
        let mut commands = Vec::with_capacity(self.branches.len());
        for (branch, at) in (0..).zip(&mut self.branches) {
            if pick(branch, &at.stand) {
                at.asked = Some(task);
                commands.push(Command::Send { branch, task });
            }
        }
        self.waiting = commands.len();
        if commands.is_empty() { self.next_round() } else { commands }
    }

    fn has(&self, pick: impl Fn(&Stand) -> bool) -> bool {
        self.branches.iter().any(|at| pick(&at.stand))
    }

    fn numbered(&self) -> impl Iterator<Item = (u16, &Branch)> {
        (0..).zip(&self.branches)
    }
}
