//! The state machine: a function of an ordered log, the same on every member of a group.
//!
//! Walk: [`Machine::apply`] takes the next command of the log, with the sequence and the time that the log gives it, and lays its
//! answer · who orders commands does the same in two steps, with the log in between: [`Machine::begin`] tries and answers,
//! [`Machine::finish`] once it is in the log, or [`Machine::cancel`] · a group's log holds commands before anyone has tried them:
//! [`Machine::take`] · [`Machine::view`] for a snapshot, without a stop ·
//! [`Machine::hash`] two members at one sequence have the same.
//! Deliberately absent: clocks, dice, I/O, threads.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::Xid;
use assent_membership::Sequence;
use xxhash_rust::xxh3::xxh3_64;

use crate::answer::{Answer, OUTPUT_BYTES_MAX, Results};
use crate::asset::{Asset, AssetId};
use crate::branches::{Branches, InDoubt, Known, Prepared, Write};
use crate::command::{Command, Op, Ops, Request, SessionName, What};
use crate::config::Limits;
use crate::duties::Duty;
use crate::error::AssetsError;
use crate::image::View;
use crate::logic::Logics;
use crate::refusal::Refusal;
use crate::rules::Rules;
use crate::run::{self, Item, Stretch};
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
    Open(SessionName),
    Close(SessionName),
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
    limits: Limits,
    logics: Logics,
    /// What the last command changed, until the next one begins.
    undo: Undo,
    staged: Staged,
    /// When the staged command is ordered.
    staged_ms: u64,
    results: Vec<Asset>,
    /// What the last entry changed, if it was a run.
    pub(crate) changed: Vec<Change>,
}

/// Memory for the changes of a run that is kept for the next one.
const CHANGED_KEPT: usize = (1 << 20) / size_of::<Change>();

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
            limits,
            logics,
            undo: Undo::default(),
            staged: Staged::Nothing,
            staged_ms: 0,
            results: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// The next command of a log whose commands were tried before they were laid. Its answer is laid behind what `answers` has.
    ///
    /// # Errors
    /// [`AssetsError::OutOfOrder`] if it is not the next, [`AssetsError::Malformed`] if it is no command, [`AssetsError::NotLaid`] if it
    /// would have needed no place in the log: whoever laid it had another state. Then nothing was done.
    pub fn apply(
        &mut self,
        sequence: Sequence,
        time_ms: u64,
        command: &[u8],
        answers: &mut Vec<u8>,
    ) -> Result<(), AssetsError> {
        let command = self.read_next(sequence, command)?;
        let start = answers.len();
        if self.begin(time_ms, &command, answers) == Begun::Answered {
            // Were it passed over, what its session was told would be gone, and nobody would know.
            answers.truncate(start);
            return Err(AssetsError::NotLaid { found: sequence });
        }
        self.finish(answers.get(start..).unwrap_or_default());
        Ok(())
    }

    /// The next command of a log whose commands are tried when they are confirmed. One that leaves everything as it is has its place all
    /// the same.
    ///
    /// # Errors
    /// As [`Machine::apply`], but for [`AssetsError::NotLaid`].
    pub fn take(
        &mut self,
        sequence: Sequence,
        time_ms: u64,
        command: &[u8],
        answers: &mut Vec<u8>,
    ) -> Result<(), AssetsError> {
        let command = self.read_next(sequence, command)?;
        let start = answers.len();
        if self.begin(time_ms, &command, answers) == Begun::Answered {
            self.staged = Staged::Nothing;
        }
        self.finish(answers.get(start..).unwrap_or_default());
        Ok(())
    }

    /// The next entry of a log is a run: its commands are executed as [`Machine::take`] does, one after the other, and their answers are laid
    /// with their lengths before them.
    ///
    /// # Errors
    /// As [`Machine::take`]; of a run that is malformed, what stands before that is done: nobody lays such a run, and the member stops.
    pub(crate) fn take_run(
        &mut self,
        sequence: Sequence,
        run: &[u8],
        answers: &mut Vec<u8>,
    ) -> Result<(), AssetsError> {
        self.refuse_other(sequence)?;
        let (time_ms, said, items) = run::read(run)?;
        self.forget_changes();
        self.staged_ms = self.time_ms.max(time_ms);
        let mut reader = Reader::new(items);
        let mut stretch = Stretch::default();
        let mut missing = said;
        while !reader.rest().is_empty() {
            match Item::read(&mut reader)? {
                Item::Command(what) => {
                    missing = missing.checked_sub(1).ok_or(Malformed { field: "commands" })?;
                    self.take_one(sequence, &mut stretch, what, answers);
                }
                Item::Whose(first) => {
                    self.end_stretch(sequence, &stretch, answers);
                    let is_new = first
                        .is_some_and(|first| self.sessions.admit(first) == Admission::New || !Duty::Once.is_kept());
                    stretch = Stretch { first, commands: 0, is_new, from: answers.len() };
                }
            }
        }
        if missing > 0 {
            return Err(Malformed { field: "commands" }.into());
        }
        self.end_stretch(sequence, &stretch, answers);
        if !Duty::Answers.is_kept() {
            answers.truncate(stretch.from);
        }
        self.undo.clear();
        (self.sequence, self.time_ms) = (sequence, self.staged_ms);
        Ok(())
    }

    fn take_one(&mut self, at: Sequence, stretch: &mut Stretch, what: What<'_>, answers: &mut Vec<u8>) {
        self.undo.clear();
        // Where the first is the session's next, all of them are.
        let request = stretch.request().filter(|_| !stretch.is_new);
        stretch.commands += 1;
        answers.extend_from_slice(&[0; 4]);
        let start = answers.len();
        let mut out = Writer::behind(mem::take(answers));
        let begun = self.step(&Command { request, is_branch: false, what }, &mut out);
        self.staged = Staged::Nothing;
        *answers = out.into_vec();
        let length = u32::try_from(answers.len() - start).unwrap_or(u32::MAX);
        if let Some(place) = answers.get_mut(start - 4..start) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        if let (Some(request), Begun::Ready) = (request, begun) {
            self.sessions.executed(request, at, answers.get(start..).unwrap_or_default());
        }
        match self.undo.only() {
            Some((id, asset)) => self.changed.push(Change { sequence: at, id, asset }),
            None if self.undo.is_empty() => {}
            None => {
                let change = |(id, asset)| Change { sequence: at, id, asset };
                self.changed.extend(self.undo.changed().into_iter().map(change));
            }
        }
    }

    /// The session of these commands hears of all of them at once.
    fn end_stretch(&mut self, at: Sequence, stretch: &Stretch, answers: &[u8]) {
        if let Some(first) = stretch.first.filter(|_| stretch.is_new && stretch.commands > 0) {
            let laid = answers.get(stretch.from..).unwrap_or_default();
            self.sessions.executed_all(first, at, run::answers(laid));
        }
    }

    /// The next entry of a log holds no command.
    ///
    /// # Errors
    /// [`AssetsError::OutOfOrder`].
    pub fn pass(&mut self, sequence: Sequence) -> Result<(), AssetsError> {
        self.refuse_other(sequence)?;
        self.forget_changes();
        (self.staged, self.staged_ms) = (Staged::Nothing, self.time_ms);
        self.finish(&[]);
        Ok(())
    }

    fn refuse_other(&self, sequence: Sequence) -> Result<(), AssetsError> {
        if sequence == self.next() {
            return Ok(());
        }
        Err(AssetsError::OutOfOrder { last: self.sequence, found: sequence })
    }

    fn read_next<'a>(&self, sequence: Sequence, command: &'a [u8]) -> Result<Command<'a>, AssetsError> {
        self.refuse_other(sequence)?;
        Ok(Command::read(command)?)
    }

    /// Tries a command that would be the next, at this time, and lays its answer behind what `answers` has. `Ready`
    /// must be followed by [`Machine::finish`] or [`Machine::cancel`].
    pub fn begin(&mut self, time_ms: u64, command: &Command<'_>, answers: &mut Vec<u8>) -> Begun {
        self.forget_changes();
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
            Staged::Open(session) => self.sessions.open(session, at),
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

    /// Answers a command that only reads ([`Command::is_read`]) from what is there now, and lays that behind what `answers` has.
    pub fn answer_read(&self, command: &Command<'_>, answers: &mut Vec<u8>) {
        let mut out = Writer::behind(mem::take(answers));
        self.read_answer(&command.what).lay(&mut out);
        *answers = out.into_vec();
    }

    fn read_answer(&self, what: &What<'_>) -> Answer {
        let ops = match what {
            What::InDoubt => return Answer::Listed(self.in_doubt().into_iter().map(|one| one.xid).collect()),
            What::Branch { xid } => return Answer::Branch { known: self.branch(xid), at: self.sequence },
            What::Batch(ops) => ops,
            _ => return Answer::InDoubt,
        };
        let read = |(number, op): (u16, Op)| {
            let id = op.id();
            self.state.assets.get(id).ok_or(Answer::Refused { op: number, refusal: Refusal::Unknown { id } })
        };
        let found = (0..).zip(ops.iter()).map(read).collect::<Result<_, _>>();
        found.map_or_else(|refused| refused, |assets| Answer::Done(Results { assets, output: Vec::new() }))
    }

    /// What every machine of the same log must have the same.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules::new(self.limits, &self.logics)
    }

    /// Without anything in it, and the same limits and business logic.
    #[must_use]
    pub fn empty(&self) -> Self {
        Self::new(self.limits, self.logics.clone())
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

    /// How long the answer is that is kept for a request; none if there is none.
    pub(crate) fn kept_bytes(&self, request: Request) -> Option<usize> {
        if let Admission::Again(answer) = self.sessions.admit(request) { Some(answer.len()) } else { None }
    }

    /// Bytes that the assets take, as far as capacities tell them.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.state.assets.memory_bytes()
    }

    /// How many branches wait for their outcome.
    #[must_use]
    pub fn prepared(&self) -> usize {
        self.branches.counts().0
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
            rules: self.rules(),
            hash: self.hash(),
            state: self.state.clone(),
            sessions: self.sessions.view(),
            branches: self.branches.view(),
        }
    }

    /// What the last finished command changed; of a run, what each of its commands did.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        let change = |(id, asset)| Change { sequence: self.sequence, id, asset };
        self.changed.iter().copied().chain(self.undo.changed().into_iter().map(change)).collect()
    }

    fn forget_changes(&mut self) {
        self.undo.clear();
        self.changed.clear();
        self.changed.shrink_to(CHANGED_KEPT);
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
            What::Open { session } => self.open(session, out),
            What::Close { session } => self.stage(Staged::Close(session), &Answer::Done(Results::default()), out),
            What::Prepare { xid, ops } => self.prepare(xid, ops, out),
            What::Commit { xid } => self.outcome(xid, true, out),
            What::Rollback { xid } => self.outcome(xid, false, out),
            What::InDoubt | What::Branch { .. } => {
                self.read_answer(&command.what).lay(out);
                Begun::Answered
            }
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

    fn open(&mut self, session: SessionName, out: &mut Writer) -> Begun {
        match self.sessions.known(session) {
            None => return self.stage(Staged::Open(session), &Answer::Opened(session), out),
            // Its client asked again, because the answer was lost.
            Some(0) => Answer::Opened(session).lay(out),
            Some(_) => Answer::InDoubt.lay(out),
        }
        Begun::Answered
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
        // What it changed is noted before it is changed, so nothing is left half done; it has no state of its own. The same command
        // panics on every member: unwinding further would end all of them, at each start again.
        let run = AssertUnwindSafe(|| logic.run(&mut work, input, &mut output));
        let ran = catch_unwind(run).unwrap_or(Err(Refusal::Panicked { logic: number }));
        let done = ran.and_then(|()| match output.len() {
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
        let writes: Vec<Write> = self.undo.changed();
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
