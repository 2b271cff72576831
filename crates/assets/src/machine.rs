//! The state machine: a function of an ordered log, the same on every member of a group.
//!
//! Walk: [`Machine::apply`] takes the next command of the log, with the sequence and the time that the log gives it, and lays its
//! answer · who orders commands does the same in two steps, with the log in between: [`Machine::begin`] tries and answers,
//! [`Machine::finish`] once it is in the log, or [`Machine::cancel`] · [`Machine::view`] for a snapshot, without a stop ·
//! [`Machine::hash`] two members at one sequence have the same.
//! Deliberately absent: clocks, dice, I/O, threads.

use std::mem;

use assent_frame::Writer;
use assent_ids::Xid;
use assent_membership::Sequence;
use xxhash_rust::xxh3::xxh3_64;

use crate::answer::{Answer, OUTPUT_BYTES_MAX, Results};
use crate::asset::{Asset, AssetId};
use crate::branches::{Branches, InDoubt, Known, Prepared, Write};
use crate::command::{Command, Ops, Request, What};
use crate::config::Limits;
use crate::error::AssetsError;
use crate::image::View;
use crate::logic::Logics;
use crate::refusal::Refusal;
use crate::sessions::{Admission, Sessions};
use crate::subscribe::Change;
use crate::work::{State, Undo, Work};

/// What became of a command that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It leaves everything as it is: its answer stands, and it needs no place in the log. It may be told once everything
    /// before it is confirmed.
    Answered,
    /// It is done in memory: put it into the log and finish it, or cancel it.
    Ready,
}

/// What is to be done when the command is in the log.
#[derive(Debug, Default)]
enum Staged {
    #[default]
    Nothing,
    /// The assets are changed already.
    Plain(Option<Request>),
    Open,
    Close(Sequence),
    Prepare(Xid, Vec<Write>),
    Outcome(Xid, bool),
}

/// All state, and the business logic that works on it.
#[derive(Debug)]
pub struct Machine {
    pub(crate) state: State,
    pub(crate) sessions: Sessions,
    pub(crate) branches: Branches,
    pub(crate) sequence: Sequence,
    pub(crate) time_ms: u64,
    logics: Logics,
    /// What the last command changed, until the next one begins.
    undo: Undo,
    staged: Staged,
    /// When the staged command is ordered.
    staged_ms: u64,
    results: Vec<Asset>,
}

impl Machine {
    /// Without anything in it.
    #[must_use]
    pub fn new(limits: Limits, logics: Logics) -> Self {
        Self {
            state: State::default(),
            sessions: Sessions::new(limits),
            branches: Branches::new(limits),
            sequence: Sequence(0),
            time_ms: 0,
            logics,
            undo: Undo::default(),
            staged: Staged::Nothing,
            staged_ms: 0,
            results: Vec::new(),
        }
    }

    /// The next command of the log. Its answer is laid behind what `answers` has.
    ///
    /// # Errors
    /// [`AssetsError::OutOfOrder`] if it is not the next, [`AssetsError::Malformed`] if it is no command: then nothing was done,
    /// and this log is not one that was laid by a primary.
    pub fn apply(
        &mut self,
        sequence: Sequence,
        time_ms: u64,
        command: &[u8],
        answers: &mut Vec<u8>,
    ) -> Result<(), AssetsError> {
        if sequence != self.next() {
            return Err(AssetsError::OutOfOrder { last: self.sequence, found: sequence });
        }
        let command = Command::read(command)?;
        let start = answers.len();
        if self.begin(time_ms, &command, answers) == Begun::Answered {
            // A primary lays no such command; whoever does gets the same state everywhere.
            self.staged = Staged::Nothing;
        }
        self.finish(answers.get(start..).unwrap_or_default());
        Ok(())
    }

    /// Tries a command that would be the next, at this time, and lays its answer behind what `answers` has. `Ready`
    /// must be followed by [`Machine::finish`] or [`Machine::cancel`].
    pub fn begin(&mut self, time_ms: u64, command: &Command<'_>, answers: &mut Vec<u8>) -> Begun {
        self.undo.clear();
        self.staged = Staged::Nothing;
        self.staged_ms = self.time_ms.max(time_ms);
        let mut out = Writer::behind(mem::take(answers));
        let begun = self.step(command, &mut out);
        *answers = out.into_vec();
        begun
    }

    /// The command that was tried is in the log, with this answer.
    pub fn finish(&mut self, answer: &[u8]) {
        let at = self.next();
        match mem::take(&mut self.staged) {
            Staged::Nothing | Staged::Plain(None) => {}
            Staged::Plain(Some(request)) => self.sessions.executed(request, at, answer),
            Staged::Open => self.sessions.open(at),
            Staged::Close(session) => self.sessions.close(session),
            Staged::Prepare(xid, writes) => {
                self.branches.prepare(xid, Prepared { writes, at, time_ms: self.staged_ms });
            }
            Staged::Outcome(xid, committed) => self.branches.finish(&xid, at, committed),
        }
        self.sequence = at;
        self.time_ms = self.staged_ms;
    }

    /// The command that was tried did not come into the log: everything is as it was.
    pub fn cancel(&mut self) {
        self.undo.back(&mut self.state);
        self.staged = Staged::Nothing;
    }

    /// The last command applied.
    #[must_use]
    pub const fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// When the last command was ordered; the one that was tried, between begin and finish.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        if matches!(self.staged, Staged::Nothing) { self.time_ms } else { self.staged_ms }
    }

    /// What an asset is.
    #[must_use]
    pub fn get(&self, id: AssetId) -> Option<Asset> {
        self.state.assets.get(id)
    }

    /// How many assets there are.
    #[must_use]
    pub const fn assets(&self) -> usize {
        self.state.assets.len()
    }

    /// How many sessions are remembered, and the bytes of their answers.
    #[must_use]
    pub fn sessions(&self) -> (usize, usize) {
        (self.sessions.len(), self.sessions.bytes())
    }

    /// Bytes that the assets take, as far as capacities tell them.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.state.assets.memory_bytes()
    }

    /// Branches that wait for their outcome.
    #[must_use]
    pub fn in_doubt(&self) -> Vec<InDoubt> {
        self.branches.in_doubt()
    }

    /// What is known of a branch.
    #[must_use]
    pub fn branch(&self, xid: &Xid) -> Known {
        self.branches.known(xid)
    }

    /// A number that depends on all state and on nothing else. It is kept by each change, so that asking costs nothing.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let parts =
            [self.state.assets.digest(), self.state.notes.digest(), self.sessions.digest(), self.branches.digest()];
        let mut out = Writer::new();
        parts.into_iter().chain([self.sequence.0, self.time_ms]).for_each(|word| _ = out.u64(word));
        xxh3_64(out.as_slice())
    }

    /// All state as it is now. It costs some microseconds, whatever there is; what changes while it is kept is copied once.
    #[must_use]
    pub fn view(&self) -> View {
        View {
            sequence: self.sequence,
            time_ms: self.time_ms,
            hash: self.hash(),
            state: self.state.clone(),
            sessions: self.sessions.view(),
            branches: self.branches.view(),
        }
    }

    /// What the last finished command changed.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        let change = |id| Change { sequence: self.sequence, id, asset: self.get(id) };
        self.undo.changed().into_iter().map(change).collect()
    }

    const fn next(&self) -> Sequence {
        Sequence(self.sequence.0.saturating_add(1))
    }

    fn step(&mut self, command: &Command<'_>, out: &mut Writer) -> Begun {
        if let Some(request) = command.request
            && let Some(begun) = self.admitted(request, out)
        {
            return begun;
        }
        match command.what {
            What::Batch(ops) => {
                let done = self.run_ops(ops).map(|()| Vec::new());
                self.answered(command, done, out)
            }
            What::Call { logic, input } => {
                let done = self.run_logic(logic, input).map_err(|refusal| (0, refusal));
                self.answered(command, done, out)
            }
            What::Open => self.stage(Staged::Open, &Answer::Opened(self.next()), out),
            What::Close { session } => self.stage(Staged::Close(session), &Answer::Done(Results::default()), out),
            What::Prepare { xid, ops } => self.prepare(xid, ops, out),
            What::Commit { xid } => self.outcome(xid, true, out),
            What::Rollback { xid } => self.outcome(xid, false, out),
        }
    }

    /// The answer to a request that is not executed now.
    fn admitted(&self, request: Request, out: &mut Writer) -> Option<Begun> {
        match self.sessions.admit(request) {
            Admission::New => return None,
            Admission::Again(answer) => _ = out.raw(answer),
            Admission::InDoubt => Answer::InDoubt.lay(out),
            Admission::Gap { expected } => Answer::Gap { expected }.lay(out),
        }
        Some(Begun::Answered)
    }

    fn stage(&mut self, staged: Staged, answer: &Answer, out: &mut Writer) -> Begun {
        self.staged = staged;
        answer.lay(out);
        Begun::Ready
    }

    /// Runs operations; the results are in `self.results`. Takes everything back where one is refused.
    fn run_ops(&mut self, ops: Ops<'_>) -> Result<(), (u16, Refusal)> {
        self.results.clear();
        let mut work = Work::new(&mut self.state, &mut self.undo, self.branches.held(), self.staged_ms);
        for (number, op) in (0..).zip(ops.iter()) {
            match work.op(&op) {
                Ok(asset) => self.results.push(asset),
                Err(refusal) => {
                    self.undo.back(&mut self.state);
                    return Err((number, refusal));
                }
            }
        }
        Ok(())
    }

    fn run_logic(&mut self, number: u16, input: &[u8]) -> Result<Vec<u8>, Refusal> {
        self.results.clear();
        let logic = self.logics.get(number).cloned().ok_or(Refusal::NoLogic { logic: number })?;
        let mut work = Work::new(&mut self.state, &mut self.undo, self.branches.held(), self.staged_ms);
        let mut output = Vec::new();
        let done = logic.run(&mut work, input, &mut output).and_then(|()| match output.len() {
            0..=OUTPUT_BYTES_MAX => Ok(output),
            _ => Err(Refusal::Limit { limit: u64::try_from(OUTPUT_BYTES_MAX).unwrap_or(u64::MAX) }),
        });
        if done.is_err() {
            self.undo.back(&mut self.state);
        }
        done
    }

    fn answered(&mut self, command: &Command<'_>, done: Result<Vec<u8>, (u16, Refusal)>, out: &mut Writer) -> Begun {
        // A refusal that a session must give again stands in the log; any other is told and forgotten.
        let logged = command.request.is_some() || (done.is_ok() && !self.undo.is_empty());
        match done {
            Ok(output) => {
                let results = Results { assets: mem::take(&mut self.results), output };
                let answer = Answer::Done(results);
                answer.lay(out);
                self.take_back(answer);
            }
            Err((op, refusal)) => Answer::Refused { op, refusal }.lay(out),
        }
        if !logged {
            return Begun::Answered;
        }
        self.staged = Staged::Plain(command.request);
        Begun::Ready
    }

    /// The memory of the results is used again.
    fn take_back(&mut self, answer: Answer) {
        if let Answer::Done(Results { assets, .. }) = answer {
            self.results = assets;
        }
    }

    fn prepare(&mut self, xid: Xid, ops: Ops<'_>, out: &mut Writer) -> Begun {
        let refusal = match self.branches.known(&xid) {
            Known::Prepared => Some(Refusal::BranchKnown),
            Known::Committed => Some(Refusal::BranchFinished { committed: true }),
            Known::RolledBack => Some(Refusal::BranchFinished { committed: false }),
            Known::Nothing { .. } if self.branches.is_full() => {
                Some(Refusal::Limit { limit: u64::try_from(self.branches.in_doubt().len()).unwrap_or(u64::MAX) })
            }
            Known::Nothing { .. } => None,
        };
        let tried = refusal.map_or_else(|| self.run_ops(ops), |refusal| Err((0, refusal)));
        if let Err((op, refusal)) = tried {
            Answer::Refused { op, refusal }.lay(out);
            return Begun::Answered;
        }
        let write = |id| (id, self.state.assets.get(id));
        let writes: Vec<Write> = self.undo.changed().into_iter().map(write).collect();
        self.undo.back(&mut self.state);
        let results = Results { assets: mem::take(&mut self.results), output: Vec::new() };
        if writes.is_empty() {
            Answer::ReadOnly(results).lay(out);
            return Begun::Answered;
        }
        self.stage(Staged::Prepare(xid, writes), &Answer::Voted(results), out)
    }

    fn outcome(&mut self, xid: Xid, committed: bool, out: &mut Writer) -> Begun {
        let known = match self.branches.known(&xid) {
            Known::Prepared => {
                if committed && let Some(branch) = self.branches.get(&xid) {
                    self.undo.lay(&mut self.state, &branch.writes);
                }
                return self.stage(Staged::Outcome(xid, committed), &Answer::Done(Results::default()), out);
            }
            Known::Committed => Some(true),
            Known::RolledBack => Some(false),
            Known::Nothing { .. } => None,
        };
        match known {
            // Told again: the first answer may have been lost.
            Some(before) if before == committed => Answer::Done(Results::default()).lay(out),
            Some(committed) => Answer::Refused { op: 0, refusal: Refusal::BranchFinished { committed } }.lay(out),
            None => Answer::Refused { op: 0, refusal: Refusal::BranchUnknown }.lay(out),
        }
        Begun::Answered
    }
}
