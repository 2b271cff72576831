//! The one thread of a member that orders: it hears, steps the value, does what that wants, and says.
//!
//! Walk: [`Desk::work`] waits for whatever comes first · [`Desk::hear`] takes in all that has come · the front has its round · one
//! step for all of it · [`Desk::act`] does what is wanted, in its order · one write to each member · what is confirmed is executed
//! (`execute`), behind those writes: no acknowledgement waits for it · the front says its answers · the disks get their orders.
//! Deliberately absent: waiting for a disk or an arbiter, but where the value wants something durable before what follows: a
//! configuration, a cut, the name of a snapshot that came from elsewhere.

use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use assent_arbiter::ArbiterError;
use assent_ids::Lsn;
use assent_journal::Keeper;
use assent_membership::{Ack, Configuration, Member, Sequence, Standing, Word, WordError};
use assent_world::net::{Event, Events, Poll};
use assent_world::{Clock, Gate};

use crate::chores::{LogDone, LogOrder, Openings, ShelfDone, ShelfOrder, Worker};
use crate::error::ReplicaError;
use crate::event::{Fault, Input, Output};
use crate::execute::{Asked, Whose};
use crate::front::{FRONT_TOKEN, Facts, Front, Port, Ready, Wanted};
use crate::machine::Machine;
use crate::member::{CallError, Tuning};
use crate::message::Base;
use crate::own::Own;
use crate::own_log::OwnLog;
use crate::questions::{Question, Questions};
use crate::replica::Replica;
use crate::shelf::{Coming, Lent, Shelf, Wrote};
use crate::status::Status;
use crate::told::Told;
use crate::wires::{ACCEPT_AGAIN, LISTENER, WAKER, Wired, Wires};

/// Notes of one turn: what comes next waits for the step between.
const NOTES_MAX: usize = 1_024;
/// How often it is looked whether who watches has something new to see.
const LOOK_MS: u64 = 50;
/// How soon a snapshot that the disk refused is tried again.
const SNAPSHOT_AGAIN_MS: u64 = 5_000;

/// What reads a machine when that may be read; without one, it is told why not.
pub(crate) type Reader<M> = Box<dyn FnOnce(Result<&M, CallError>) + Send>;

/// What the desk is told by other threads.
pub(crate) enum Note<M: Machine> {
    Command { kind: u16, command: Vec<u8>, answer: SyncSender<Result<Vec<u8>, CallError>> },
    Read(Reader<M>),
    Word { word: Word, answer: SyncSender<Result<(), WordError>> },
    Status(SyncSender<Status>),
    Wired(Wired),
    Log(LogDone),
    Shelf(Result<Box<ShelfDone<M>>, ReplicaError>),
    Arbiter(Result<Configuration, ArbiterError>),
}

/// A member at work.
pub(crate) struct Desk<M: Machine, F: Front<M>> {
    pub(crate) replica: Replica,
    pub(crate) front: F,
    pub(crate) wanted: Wanted,
    pub(crate) halted: Option<String>,
    pub(crate) ack: Ack,
    pub(crate) tuning: Tuning,
    pub(crate) log: OwnLog,
    pub(crate) own: Own,
    pub(crate) keeper: Keeper,
    pub(crate) machine: M,
    /// What the machine has executed.
    pub(crate) applied: Base,
    /// Everything up to here may be.
    pub(crate) commit_to: Sequence,
    pub(crate) answer: Vec<u8>,
    pub(crate) waiting: BTreeMap<Sequence, SyncSender<Result<Vec<u8>, CallError>>>,
    pub(crate) asked_reads: VecDeque<Asked<M>>,
    /// Reads up to this beat may be answered.
    pub(crate) beat: u64,
    /// Answers to what the value wanted, for the next steps.
    pub(crate) later: VecDeque<Input>,
    pub(crate) snapshots: Snapshots<M>,
    pub(crate) wants_sync: bool,
    pub(crate) log_busy: bool,
    pub(crate) questions: Questions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) poll: Poll,
    pub(crate) wires: Wires,
    pub(crate) notes: Receiver<Note<M>>,
    pub(crate) log_worker: Worker<LogOrder>,
    pub(crate) arbiter_worker: Worker<Question>,
    pub(crate) shown: Shown,
    pub(crate) stopping: Arc<AtomicBool>,
}

/// What was last shown of where the member stands, and the gate of those who watch.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) changes: Arc<Gate>,
    last: Option<Where>,
    /// When it is looked again.
    due_ms: u64,
}

/// Where a member stands, in which version of the configuration, and who was told otherwise.
type Where = (Standing, u64, BTreeMap<Member, (u64, Told)>);

impl Shown {
    /// Wakes who watches.
    pub(crate) fn tell(&self) {
        self.changes.bump();
        self.changes.wake_all();
    }

    /// Whether there is anything new.
    pub(crate) fn look(&mut self, replica: &Replica) {
        let now = replica.watch.now_ms;
        if now < self.due_ms {
            return;
        }
        self.due_ms = now.saturating_add(LOOK_MS);
        let last = (replica.standing(), replica.configuration().version, replica.otherwise.clone());
        if self.last.as_ref() != Some(&last) {
            self.last = Some(last);
            self.tell();
        }
    }
}

/// What a desk knows of its snapshots.
pub(crate) struct Snapshots<M: Machine> {
    pub(crate) shelf: Arc<Shelf>,
    /// Where the one that is kept stands.
    pub(crate) kept: Sequence,
    pub(crate) lent: Lent,
    /// One that comes from elsewhere; it is read under this number.
    pub(crate) coming: Option<Coming>,
    pub(crate) number: u64,
    pub(crate) wants_load: Option<Base>,
    /// The log before this place is not needed any more.
    pub(crate) wants_trim: Option<Lsn>,
    /// What a standby asked for could not be read: one more is taken, in its stead.
    pub(crate) wants_anew: bool,
    pub(crate) openings: Arc<Openings>,
    pub(crate) loaded: Option<M>,
    /// What was executed in all, and up to the one that is kept, and up to the one that is being written.
    pub(crate) done: Done,
    pub(crate) kept_done: Done,
    pub(crate) writing_done: Done,
    pub(crate) not_before_ms: u64,
    /// For who writes one: it goes slowly while commands are executed.
    pub(crate) executed: Arc<AtomicU64>,
    /// The last one that came was refused.
    pub(crate) refused: bool,
    pub(crate) busy: bool,
    worker: Worker<ShelfOrder<M>>,
}

/// What a machine has executed since its member began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) commands: u64,
    bytes: u64,
}

impl Done {
    pub(crate) fn add(&mut self, commands: u64, bytes: usize) {
        self.commands = self.commands.saturating_add(commands);
        self.bytes = self.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }
}

impl<M: Machine> Snapshots<M> {
    pub(crate) fn new(
        shelf: Arc<Shelf>,
        openings: Arc<Openings>,
        executed: Arc<AtomicU64>,
        worker: Worker<ShelfOrder<M>>,
    ) -> Self {
        Self {
            kept: shelf.base().end.sequence,
            shelf,
            lent: Lent::default(),
            coming: None,
            number: 0,
            wants_load: None,
            wants_trim: None,
            wants_anew: false,
            openings,
            loaded: None,
            done: Done::default(),
            kept_done: Done::default(),
            writing_done: Done::default(),
            not_before_ms: 0,
            executed,
            refused: false,
            busy: false,
            worker,
        }
    }
}

/// Why a desk stops before it is told to.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Stopped {
    #[error(transparent)]
    Kept(#[from] ReplicaError),
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error("waiting for connections: {0}")]
    Poll(String),
    #[error("the primary's snapshot behind entry {at} cannot be read here: {why}")]
    Snapshot { at: Sequence, why: String },
    #[error("command {at}, of kind {kind}: {why}")]
    Machine { at: Sequence, kind: u16, why: String },
}

fn ready(event: &Event) -> Ready {
    Ready { token: event.token().0, is_closing: event.is_read_closed() }
}

impl<M: Machine, F: Front<M>> Desk<M, F> {
    /// Works until it is told to stop, or cannot go on.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) fn work(&mut self, first: Vec<Output>) -> Result<(), Stopped> {
        self.act(first)?;
        let mut events = Events::with_capacity(1_024);
        let mut ready = Vec::new();
        while !self.stopping.load(Ordering::SeqCst) {
            self.listen(&mut events, &mut ready)?;
            self.read_notes()?;
            self.with_port(|front, port| front.round(&ready, port));
            self.take_wanted()?;
            self.step(Input::Time)?;
            while let Some(input) = self.later.pop_front() {
                self.step(input)?;
            }
            for member in self.wires.flush() {
                self.step(Input::Lost(member))?;
            }
            self.execute_some()?;
            self.answer_reads();
            self.with_port(Front::flush);
            self.take_wanted()?;
            self.order()?;
            self.shown.look(&self.replica);
        }
        Ok(())
    }

    /// It can go on no longer: its front says so until it is stopped.
    pub(crate) fn linger(&mut self, why: String) {
        self.wires.hang_up();
        self.front.halts(&why);
        self.halted = Some(why);
        let mut events = Events::with_capacity(1_024);
        while !self.stopping.load(Ordering::SeqCst) {
            match self.poll.poll(&mut events, Some(Duration::from_millis(100))) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return,
                _ => {}
            }
            let ready: Vec<Ready> = events.iter().map(ready).filter(|ready| ready.token >= FRONT_TOKEN).collect();
            while let Ok(note) = self.notes.try_recv() {
                // Whoever asks for more hears that it has stopped.
                if let Note::Status(answer) = note {
                    _ = answer.try_send(self.status());
                }
            }
            self.with_port(|front, port| front.round(&ready, port));
            self.with_port(Front::flush);
            self.wanted = Wanted::default();
        }
    }

    /// Waits for whatever comes first, and hears the members; what is the front's is told apart.
    fn listen(&mut self, events: &mut Events, fronts: &mut Vec<Ready>) -> Result<(), Stopped> {
        match self.poll.poll(events, Some(self.pause())) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(Stopped::Poll(error.to_string())),
            _ => {}
        }
        if self.wires.accept_again || events.iter().any(|event| event.token() == LISTENER) {
            self.wires.accept();
        }
        fronts.clear();
        // What was not read to its end may have ended since.
        let again = |token| Ready { token, is_closing: true };
        let mut members: Vec<Ready> = self.wires.unread().into_iter().map(again).collect();
        for event in events.iter().filter(|event| event.token() != LISTENER && event.token() != WAKER) {
            let ready = ready(event);
            if ready.token >= FRONT_TOKEN { fronts.push(ready) } else { members.push(ready) }
        }
        for ready in members {
            self.hear(ready)?;
        }
        Ok(())
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now().0 / 1_000
    }

    fn pause(&self) -> Duration {
        if self.wires.has_unread()
            || self.replica.keeps_anew()
            || !self.later.is_empty()
            || self.applied.end.sequence < self.commit_to
        {
            return Duration::ZERO;
        }
        let due = Duration::from_millis(self.replica.due_ms().saturating_sub(self.now_ms()).clamp(1, 1_000));
        let due = if self.wires.accept_again { due.min(ACCEPT_AGAIN) } else { due };
        self.front.pause().map_or(due, |pause| due.min(pause))
    }

    pub(crate) fn step(&mut self, input: Input) -> Result<(), Stopped> {
        let outputs = self.replica.step(input, self.now_ms());
        self.act(outputs)
    }

    fn hear(&mut self, ready: Ready) -> Result<(), Stopped> {
        let (messages, lost) = self.wires.hear(ready.token, ready.is_closing);
        for message in messages {
            self.step(Input::Heard(message))?;
        }
        lost.map_or(Ok(()), |member| self.step(Input::Lost(member)))
    }

    fn facts(&self) -> Facts {
        Facts {
            now_ms: self.now_ms(),
            applied: self.applied.end.sequence,
            durable: self.log.held().1,
            snapshot: self.snapshots.kept,
            replay_bytes: self.snapshots.done.bytes.saturating_sub(self.snapshots.kept_done.bytes),
        }
    }

    pub(crate) fn with_port(&mut self, call: impl FnOnce(&mut F, &mut Port<'_, M>)) {
        let facts = self.facts();
        let mut port = Port {
            replica: &mut self.replica,
            machine: &self.machine,
            wires: Some(&self.wires),
            clock: &*self.clock,
            wanted: &mut self.wanted,
            facts,
            halted: self.halted.as_deref(),
        };
        call(&mut self.front, &mut port);
    }

    /// Does what the front wanted beside commands.
    fn take_wanted(&mut self) -> Result<(), Stopped> {
        if let Some(out) = self.wanted.out.take() {
            self.own.stay_out(out)?;
        }
        let outputs = std::mem::take(&mut self.wanted.outputs);
        self.act(outputs)?;
        if !self.wanted.reads.is_empty() {
            let tags = std::mem::take(&mut self.wanted.reads);
            self.ask_read(Whose::Front(tags));
        }
        Ok(())
    }

    fn read_notes(&mut self) -> Result<(), Stopped> {
        for _ in 0..NOTES_MAX {
            let Ok(note) = self.notes.try_recv() else { break };
            match note {
                Note::Command { kind, command, answer } => match self.replica.submit(kind, &command) {
                    Ok(sequence) => _ = self.waiting.insert(sequence, answer),
                    Err(refused) => {
                        self.replica.counts.refused += 1;
                        _ = answer.try_send(Err(CallError::Refused(refused)));
                    }
                },
                Note::Read(reader) => self.ask_read(Whose::Caller(reader)),
                Note::Word { word, answer } => self.word(word, &answer)?,
                Note::Status(answer) => _ = answer.try_send(self.status()),
                Note::Wired(wired) => {
                    let to = wired.to;
                    self.wires.wire(wired);
                    self.step(Input::Connected(to))?;
                }
                Note::Log(done) => self.log_done(done)?,
                Note::Shelf(done) => self.shelf_done(*done?)?,
                Note::Arbiter(answer) => {
                    let input = self.questions.answered(answer);
                    self.step(input)?;
                }
            }
        }
        Ok(())
    }

    fn word(&mut self, word: Word, answer: &SyncSender<Result<(), WordError>>) -> Result<(), Stopped> {
        match self.replica.word(word, self.now_ms()) {
            Ok(outputs) => {
                if let Word::Out(out) = word {
                    self.own.stay_out(out)?;
                }
                _ = answer.try_send(Ok(()));
                self.act(outputs)
            }
            Err(error) => {
                _ = answer.try_send(Err(error));
                Ok(())
            }
        }
    }

    fn status(&self) -> Status {
        let mut status = self.replica.status(self.facts(), Some(&self.wires));
        status.hash = self.machine.hash();
        status.halted.clone_from(&self.halted);
        status
    }

    fn log_done(&mut self, done: LogDone) -> Result<(), Stopped> {
        self.log_busy = false;
        // Of another opening: there was a cut since, and the log is durable.
        if !Arc::ptr_eq(&done.journal, self.log.journal()) {
            return Ok(());
        }
        if let Some(written) = done.written.map_err(ReplicaError::from)? {
            self.log.was_written(written);
        }
        self.log.look();
        self.log.go_on()?;
        self.tell_held()
    }

    fn tell_held(&mut self) -> Result<(), Stopped> {
        let (written, durable) = self.log.held();
        self.step(Input::Held { written, durable })
    }

    fn shelf_done(&mut self, done: ShelfDone<M>) -> Result<(), Stopped> {
        self.snapshots.busy = false;
        match done {
            ShelfDone::Wrote(Wrote::Kept(snapshot)) => {
                let mark = snapshot.base.end;
                // One from elsewhere, or a cut, may have come between: then it was revoked, or the value looks at its chain.
                if mark.sequence >= self.snapshots.kept {
                    self.snapshots.kept = mark.sequence;
                    self.snapshots.kept_done = self.snapshots.writing_done;
                    self.replica.counts.snapshots += 1;
                    self.step(Input::SnapshotKept(mark))?;
                }
            }
            ShelfDone::Wrote(Wrote::Revoked) | ShelfDone::Trimmed(Ok(())) => {}
            // The log goes on, and takes its room.
            ShelfDone::Trimmed(Err(_)) => self.replica.counts.trims_failed += 1,
            ShelfDone::Wrote(Wrote::Failed(_)) => {
                // The one before stays, and the log behind it.
                self.replica.counts.snapshots_failed += 1;
                self.snapshots.not_before_ms = self.now_ms().saturating_add(SNAPSHOT_AGAIN_MS);
            }
            // Another one has begun to come since.
            ShelfDone::Loaded { number, .. } if number != self.snapshots.number => {}
            ShelfDone::Loaded { base, machine, .. } => {
                match machine {
                    Ok(machine) => {
                        self.snapshots.refused = false;
                        self.snapshots.loaded = Some(machine);
                    }
                    // It may have come broken; a second one that is refused is what the primary has.
                    Err(why) if self.snapshots.refused => {
                        return Err(Stopped::Snapshot { at: base.end.sequence, why });
                    }
                    Err(_) => self.snapshots.refused = true,
                }
                let whole = self.snapshots.loaded.is_some();
                self.step(Input::Loaded { base, whole })?;
                self.snapshots.loaded = None;
            }
        }
        Ok(())
    }

    /// Gives the disks and the arbiter what they are to do next. Snapshots first: under steady load the log always wants something.
    fn order(&mut self) -> Result<(), Stopped> {
        self.questions.hand(|question| self.arbiter_worker.order(question));
        if !self.snapshots.busy {
            self.order_shelf();
        }
        if self.log_busy {
            return Ok(());
        }
        let last = self.log.last_open();
        // What is written is told before room is made for more: that may take long, or fail.
        let room_bytes = if last.is_none() { self.log.held_back_bytes() } else { None };
        if last.is_none() && room_bytes.is_none() {
            return Ok(());
        }
        let to_disk = self.wants_sync || self.ack == Ack::Durable;
        let has_unwritten = last.is_some_and(|(last, _)| self.log.held().0 < last);
        if to_disk || (self.ack == Ack::Written && has_unwritten) {
            self.wants_sync &= !to_disk;
            let journal = Arc::clone(self.log.journal());
            self.log_busy = self.log_worker.order(LogOrder { journal, last, to_disk, room_bytes });
            return Ok(());
        }
        // The journal's keeper syncs it in its time.
        let before = self.log.held();
        self.log.look();
        if before == self.log.held() { Ok(()) } else { self.tell_held() }
    }

    fn order_shelf(&mut self) {
        if let (Some(base), Some(coming)) = (self.snapshots.wants_load.take(), &self.snapshots.coming) {
            let (number, coming, machine) = (self.snapshots.number, coming.clone(), self.machine.empty());
            self.snapshots.busy = self.snapshots.worker.order(ShelfOrder::Load { number, coming, base, machine });
            return;
        }
        if let Some(place) = self.snapshots.wants_trim.take() {
            let (log, journal) = (self.snapshots.openings.now(), Arc::clone(self.log.journal()));
            self.snapshots.busy = self.snapshots.worker.order(ShelfOrder::Trim { log, journal, place });
            return;
        }
        let since = self.snapshots.done.commands.saturating_sub(self.snapshots.kept_done.commands);
        let bytes = self.snapshots.done.bytes.saturating_sub(self.snapshots.kept_done.bytes);
        let due = since >= self.tuning.snapshot_every.max(1) || bytes >= self.tuning.snapshot_log_bytes.max(1);
        let (now, wanted) = (self.now_ms(), std::mem::take(&mut self.wanted.snapshot));
        let may = now >= self.snapshots.not_before_ms;
        let is_behind = self.applied.end.sequence > self.snapshots.kept;
        let anew = may && self.snapshots.wants_anew;
        if (is_behind && (wanted || anew || (due && may))) || (anew && self.snapshots.shelf.is_unreadable()) {
            if std::mem::take(&mut self.snapshots.wants_anew) {
                // Who asks in vain asks again soon: one in a while is enough.
                self.snapshots.not_before_ms = now.saturating_add(SNAPSHOT_AGAIN_MS);
            }
            self.snapshots.writing_done = self.snapshots.done;
            let (turn, base, view) = (self.snapshots.shelf.turn(), self.applied.clone(), self.machine.view());
            self.snapshots.busy = self.snapshots.worker.order(ShelfOrder::Write { turn, base, view });
        }
    }

    pub(crate) fn act(&mut self, outputs: Vec<Output>) -> Result<(), Stopped> {
        for output in outputs {
            match output {
                Output::Store(configuration) => self.own.store(configuration)?,
                Output::Promise(length_ms) => self.own.promise(length_ms)?,
                Output::Send(message) => self.wires.say(&message),
                Output::Read => self.questions.read(),
                Output::Change { expect, to } => self.questions.change(expect, to),
                Output::Append(entries) => entries.iter().try_for_each(|entry| self.log.append(entry))?,
                Output::Sync => self.wants_sync = true,
                Output::Cut(to) => self.cut(to)?,
                Output::Commit(to) => self.commit_to = self.commit_to.max(to),
                Output::Confirmed(beat) => self.confirmed(beat),
                Output::Lead(epoch) => self.with_port(|front, port| front.leads(epoch, port)),
                Output::Yield => {
                    // What is confirmed may be told, whoever leads now.
                    self.execute(u64::MAX)?;
                    self.doubt();
                }
                Output::Fetch { to, after, bytes_max } => self.fetch(to, after, bytes_max)?,
                Output::ReadPiece { to, at, offset, bytes_max } => self.read_piece(to, at, offset, bytes_max)?,
                Output::Unlend(member) => self.snapshots.lent.end(member),
                Output::Trim(to) => self.trim(to)?,
                Output::KeepPiece(piece) => self.keep_piece(&piece)?,
                Output::Load(base) => {
                    // The own one that is being laid stands lower: it gives way.
                    self.snapshots.shelf.revoke();
                    self.snapshots.wants_load = Some(base);
                }
                Output::Install(base) => self.install(&base)?,
                Output::Halt(fault) => return Err(fault.into()),
            }
        }
        Ok(())
    }
}
