//! The one thread of a member that orders: it hears, steps the value, does what that wants, and says.
//!
//! Walk: [`Desk::work`] waits for whatever comes first · [`Desk::hear`] takes in all that has come · one step for all of it ·
//! [`Desk::act`] does what is wanted, in its order · one write to each member, one order to the disk, and it waits again.
//! Deliberately absent: waiting for a disk or an arbiter, but where the value wants something durable before what follows: a
//! configuration, a cut, a snapshot that came from elsewhere.

use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use assent_arbiter::ArbiterError;
use assent_journal::Keeper;
use assent_membership::{Ack, Configuration, Sequence, Word, WordError};
use assent_world::net::{Events, Poll};
use assent_world::{Clock, Disk};

use crate::chores::{DiskDone, DiskOrder, Question, Worker};
use crate::entry::Entry;
use crate::error::{ReplicaError, damaged};
use crate::event::{Fault, Input, Output, ReadAt};
use crate::machine::Machine;
use crate::member::{CallError, Status};
use crate::message::Base;
use crate::own::Own;
use crate::own_log::OwnLog;
use crate::replica::Replica;
use crate::snapshot::Snapshot;
use crate::wires::{LISTENER, WAKER, Wired, Wires};

/// Bytes of the own log that are read for one standby at once, or to be applied.
const FETCH_BYTES: u64 = 256 << 10;
/// Notes of one turn: what comes next waits for the step between.
const NOTES_MAX: usize = 1_024;

/// What reads a machine when that may be read; without one, it is told why not.
pub(crate) type Reader<M> = Box<dyn FnOnce(Result<&M, CallError>) + Send>;

/// What the desk is told by other threads.
pub(crate) enum Note<M> {
    Command { kind: u16, command: Vec<u8>, answer: SyncSender<Result<Vec<u8>, CallError>> },
    Read(Reader<M>),
    Word { word: Word, answer: SyncSender<Result<(), WordError>> },
    Status(SyncSender<Status>),
    Wired(Wired),
    Disk(Result<DiskDone, ReplicaError>),
    Arbiter(Result<Configuration, ArbiterError>),
}

/// A member at work.
pub(crate) struct Desk<M: Machine> {
    pub(crate) replica: Replica,
    pub(crate) ack: Ack,
    pub(crate) log: OwnLog,
    pub(crate) own: Own,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) snapshot_every: u64,
    pub(crate) compare_every: u64,
    pub(crate) keeper: Keeper,
    pub(crate) machine: M,
    pub(crate) applied: Base,
    /// Appended and not applied.
    pub(crate) fresh: VecDeque<Entry>,
    /// A snapshot that comes from elsewhere.
    pub(crate) coming: Vec<u8>,
    pub(crate) waiting: BTreeMap<Sequence, SyncSender<Result<Vec<u8>, CallError>>>,
    pub(crate) readers: Vec<(u64, Reader<M>)>,
    /// Answers to what the value wanted, for the next steps.
    pub(crate) later: VecDeque<Input>,
    pub(crate) wants_sync: bool,
    pub(crate) disk_busy: bool,
    pub(crate) asked: Option<Question>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) folder: PathBuf,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) poll: Poll,
    pub(crate) wires: Wires,
    pub(crate) notes: Receiver<Note<M>>,
    pub(crate) disk_worker: Worker<DiskOrder>,
    pub(crate) arbiter_worker: Worker<Question>,
    pub(crate) stopping: Arc<AtomicBool>,
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
}

impl<M: Machine> Desk<M> {
    /// Works until it is told to stop, or cannot go on.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) fn work(&mut self, first: Vec<Output>) -> Result<(), Stopped> {
        self.act(first)?;
        let mut events = Events::with_capacity(64);
        while !self.stopping.load(Ordering::SeqCst) {
            match self.poll.poll(&mut events, Some(self.pause())) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(Stopped::Poll(error.to_string())),
                _ => {}
            }
            if events.iter().any(|event| event.token() == LISTENER) {
                self.wires.accept();
            }
            let mut ready: Vec<usize> = self.wires.unread();
            ready.extend(
                events
                    .iter()
                    .map(|event| event.token())
                    .filter(|token| *token != LISTENER && *token != WAKER)
                    .map(|token| token.0),
            );
            for token in ready {
                self.hear(token)?;
            }
            self.read_notes()?;
            self.step(Input::Time)?;
            while let Some(input) = self.later.pop_front() {
                self.step(input)?;
            }
            for member in self.wires.flush() {
                self.step(Input::Lost(member))?;
            }
            self.order()?;
        }
        Ok(())
    }

    fn now_ms(&self) -> u64 {
        self.clock.now().0 / 1_000
    }

    fn pause(&self) -> Duration {
        if self.wires.has_unread() || !self.later.is_empty() {
            return Duration::ZERO;
        }
        Duration::from_millis(self.replica.due_ms().saturating_sub(self.now_ms()).clamp(1, 1_000))
    }

    fn step(&mut self, input: Input) -> Result<(), Stopped> {
        let outputs = self.replica.step(input, self.now_ms());
        self.act(outputs)
    }

    fn hear(&mut self, token: usize) -> Result<(), Stopped> {
        let (messages, lost) = self.wires.hear(token);
        for message in messages {
            self.step(Input::Heard(message))?;
        }
        lost.map_or(Ok(()), |member| self.step(Input::Lost(member)))
    }

    fn read_notes(&mut self) -> Result<(), Stopped> {
        for _ in 0..NOTES_MAX {
            let Ok(note) = self.notes.try_recv() else { break };
            match note {
                Note::Command { kind, command, answer } => match self.replica.submit(kind, &command) {
                    Ok(sequence) => _ = self.waiting.insert(sequence, answer),
                    Err(refused) => _ = answer.try_send(Err(CallError::Refused(refused))),
                },
                Note::Read(reader) => match self.replica.read(self.now_ms()) {
                    Ok(ReadAt::Now) => reader(Ok(&self.machine)),
                    Ok(ReadAt::Beat(beat)) => self.readers.push((beat, reader)),
                    Err(refused) => reader(Err(CallError::Refused(refused))),
                },
                Note::Word { word, answer } => self.word(word, &answer)?,
                Note::Status(answer) => _ = answer.try_send(self.status()),
                Note::Wired(wired) => {
                    let to = wired.to;
                    self.wires.wire(wired);
                    self.step(Input::Connected(to))?;
                }
                Note::Disk(done) => self.disk_done(done?)?,
                Note::Arbiter(answer) => {
                    let input = answer.map_or(Input::ArbiterSilent, Input::Arbiter);
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
        Status {
            standing: self.replica.standing(),
            configuration: self.replica.configuration().clone(),
            end: self.replica.end().sequence,
            confirmed: self.replica.confirmed(),
            snapshot: self.snapshot.base.end.sequence,
        }
    }

    fn disk_done(&mut self, done: DiskDone) -> Result<(), Stopped> {
        self.disk_busy = false;
        match done {
            // Of another opening: there was a cut since, and the log is durable.
            DiskDone::Log { journal, .. } if !Arc::ptr_eq(&journal, self.log.journal()) => Ok(()),
            DiskDone::Log { written, .. } => {
                self.log.was_written(written);
                self.log.look();
                let (written, durable) = self.log.held();
                self.step(Input::Held { written, durable })
            }
            DiskDone::Snapshot(snapshot) => {
                let at = snapshot.base.end.sequence;
                // One from elsewhere may have overtaken it.
                if at > self.snapshot.base.end.sequence {
                    self.snapshot = snapshot;
                    self.log.trim(at)?;
                    self.step(Input::SnapshotKept(at))?;
                }
                Ok(())
            }
        }
    }

    /// Gives the disk and the arbiter what they are to do next.
    fn order(&mut self) -> Result<(), Stopped> {
        if let Some(question) = self.asked.take() {
            _ = self.arbiter_worker.order(question);
        }
        if self.disk_busy {
            return Ok(());
        }
        let since = self.applied.end.sequence.0.saturating_sub(self.snapshot.base.end.sequence.0);
        let last = self.log.last_open();
        let (written, _) = self.log.held();
        let order = match last {
            Some(last) if self.wants_sync || self.ack == Ack::Durable => {
                self.wants_sync = false;
                let journal = Arc::clone(self.log.journal());
                DiskOrder::Log { journal, last, to_disk: true }
            }
            Some(last) if self.ack == Ack::Written && written < last.0 => {
                DiskOrder::Log { journal: Arc::clone(self.log.journal()), last, to_disk: false }
            }
            _ if since >= self.snapshot_every => {
                let (base, state) = (self.applied.clone(), self.machine.save());
                DiskOrder::Snapshot(Arc::new(Snapshot { base, state }))
            }
            Some(_) => {
                // The journal's keeper syncs it in its time.
                let before = self.log.held();
                self.log.look();
                let (written, durable) = self.log.held();
                return if before == (written, durable) { Ok(()) } else { self.step(Input::Held { written, durable }) };
            }
            None => return Ok(()),
        };
        self.disk_busy = self.disk_worker.order(order);
        Ok(())
    }

    fn act(&mut self, outputs: Vec<Output>) -> Result<(), Stopped> {
        for output in outputs {
            match output {
                Output::Store(configuration) => self.own.store(configuration)?,
                Output::Send(message) => self.wires.say(&message),
                Output::Read => _ = self.asked.get_or_insert(Question::Read),
                Output::Change { expect, to } => self.asked = Some(Question::Change { expect, to }),
                Output::Append(entry) => {
                    self.log.append(&entry)?;
                    self.fresh.push_back(entry);
                }
                Output::Sync => self.wants_sync = true,
                Output::Cut(to) => {
                    let end = self.log.cut(to)?;
                    // A cut is another opening.
                    self.keeper.add(self.log.journal());
                    self.fresh.retain(|entry| entry.sequence <= to);
                    if self.applied.end.sequence > to {
                        self.load()?;
                    }
                    self.step(Input::WasCut(end))?;
                }
                Output::Commit(to) => self.commit(to)?,
                Output::Confirmed(beat) => self.answer_readers(beat),
                Output::Lead(_) => {}
                Output::Yield => self.doubt(),
                Output::Fetch { to, after, bytes_max } => {
                    let fetched = self.log.fetch(after, bytes_max)?;
                    let (chain, entries) = (fetched.chain, fetched.entries);
                    self.later.push_back(Input::Fetched { to, after, chain, entries });
                }
                Output::ReadPiece { to, at, offset, bytes_max } => {
                    let piece = self.snapshot.is_there().then(|| self.snapshot.piece(at, offset, bytes_max));
                    self.later.push_back(Input::PieceRead { to, piece });
                }
                Output::KeepPiece(piece) => {
                    if piece.offset == 0 {
                        self.coming.clear();
                    }
                    self.coming.extend_from_slice(&piece.bytes);
                }
                Output::Install(base) => {
                    self.install(base)?;
                    self.step(Input::Installed)?;
                }
                Output::Halt(fault) => return Err(fault.into()),
            }
        }
        Ok(())
    }

    /// The machine is the snapshot's; the log leads on from there.
    fn load(&mut self) -> Result<(), ReplicaError> {
        self.machine.load(&self.snapshot.state).map_err(|why| damaged(&self.folder.join("snapshot"), why))?;
        self.applied = self.snapshot.base.clone();
        self.fresh.clear();
        Ok(())
    }

    fn install(&mut self, base: Base) -> Result<(), ReplicaError> {
        let snapshot = Snapshot { base, state: std::mem::take(&mut self.coming) };
        snapshot.write(&*self.disk, &self.folder)?;
        self.snapshot = Arc::new(snapshot);
        self.log.begin(self.snapshot.base.end);
        self.load()
    }

    /// Applies what is confirmed, and answers whoever waits for it.
    fn commit(&mut self, to: Sequence) -> Result<(), ReplicaError> {
        while self.applied.end.sequence < to {
            let next = Sequence(self.applied.end.sequence.0.saturating_add(1));
            while self.fresh.pop_front_if(|entry| entry.sequence < next).is_some() {}
            let entries = match self.fresh.pop_front_if(|entry| entry.sequence == next) {
                Some(entry) => vec![entry],
                None => self.log.fetch(self.applied.end.sequence, FETCH_BYTES)?.entries,
            };
            if entries.is_empty() {
                return Err(ReplicaError::Missing { at: next });
            }
            for entry in entries.into_iter().take_while(|entry| entry.sequence <= to) {
                let answer = self.machine.apply(entry.sequence, entry.kind, &entry.payload);
                self.applied.end = entry.mark();
                self.applied.history.grew(entry.epoch, entry.sequence);
                if let Some(waiting) = self.waiting.remove(&entry.sequence) {
                    // Who waited may have gone.
                    _ = waiting.try_send(Ok(answer));
                }
                if entry.sequence.0.is_multiple_of(self.compare_every) {
                    self.later.push_back(Input::State { at: entry.sequence, hash: self.machine.hash() });
                }
            }
        }
        Ok(())
    }

    fn answer_readers(&mut self, beat: u64) {
        for (asked, reader) in std::mem::take(&mut self.readers) {
            if asked <= beat {
                reader(Ok(&self.machine));
            } else {
                self.readers.push((asked, reader));
            }
        }
    }

    /// It leads no longer: what waits is in doubt, and a read is to be asked again.
    pub(crate) fn doubt(&mut self) {
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            _ = waiting.try_send(Err(CallError::InDoubt));
        }
        for (_, reader) in std::mem::take(&mut self.readers) {
            reader(Err(CallError::Yielded));
        }
    }
}
