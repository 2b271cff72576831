//! Assets over one log: one ordering point, answers released by how far the log is confirmed.
//!
//! ```text
//!   order     read and check · one lock: time, try in memory, append, finish          the answer is there, and not yet told
//!   confirm   wait for the log as the acknowledgement asks: who waits syncs for all   POINT OF NO RETURN: the entry is kept
//!   answer    told by the caller · subscribers are told what changed
//! ```
//! Walk: [`Engine::open`] loads a snapshot and replays the log behind it (`recover`) · a desk thread orders many commands, merges
//! their [`Ordered`] and confirms once; a blocking caller uses [`Engine::execute`] · [`Engine::snapshot`] is called off this walk, by
//! whoever has a thread for it, when [`Engine::snapshot_due`].
//! Deliberately absent: threads, and a local file below the log: `log` may be any [`Log`].

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use assent_frame::Writer;
use assent_ids::{Lsn, Xid};
use assent_journal::{Log, Ticket};
use assent_membership::{Ack, Sequence};
use assent_world::net::Waker;
use assent_world::{Clock, Disk};

use crate::answer::Answer;
use crate::asset::{Asset, AssetId};
use crate::branches::{InDoubt, Known};
use crate::command::{COMMAND_BYTES_MAX, Command};
use crate::config::Config;
use crate::error::AssetsError;
use crate::logic::Logics;
use crate::machine::{Begun, Machine};
use crate::recover::{self, Recovery};
use crate::resource::Claims;
use crate::store::{Slots, Slow, Store, Verified};
use crate::subscribe::{Change, News, SubscriptionId, Subscriptions};
use crate::trace::{Step, Steps, Trace};

/// The kind of a command's entry in the log: sequence 8, time 8, and the command as it came.
pub const KIND_COMMAND: u16 = 1;
/// The kind of the entry that says under which [`Rules`](crate::Rules) the log was laid.
pub const KIND_RULES: u16 = 2;
/// Changes that wait for their confirmation to be told, at most; more are told as missed.
const UNTOLD_MAX: usize = 1 << 16;

/// A command that has its place. Its answer may be told once it is confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an answer is told only when its command is confirmed"]
pub struct Ordered {
    end: Lsn,
    durable: bool,
}

impl Ordered {
    /// Both: what a desk confirms at once.
    pub fn and(self, other: Self) -> Self {
        Self { end: self.end.max(other.end), durable: self.durable || other.durable }
    }

    /// The same, and durable in every policy.
    pub(crate) const fn durably(self) -> Self {
        Self { durable: true, ..self }
    }
}

/// What everybody shares.
#[derive(Debug)]
struct Core {
    machine: Machine,
    /// Where the last entry ends.
    end: Lsn,
    closed: Option<String>,
    subscriptions: Subscriptions,
    /// Changes of entries that are not confirmed yet, with where the entry ends.
    untold: std::collections::VecDeque<(Lsn, Change)>,
}

/// The assets of one process.
#[derive(Debug)]
pub struct Engine {
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    config: Config,
    logics: Logics,
    store: Store,
    core: Mutex<Core>,
    /// Held while a snapshot is written: one at a time.
    slots: Mutex<Slots>,
    steps: Mutex<Steps>,
    arrived: AtomicU64,
    snapshot_at: AtomicU64,
    claims: Claims,
    /// Wakes the door, whose subscribers are told of what others confirm.
    door: OnceLock<Arc<Waker>>,
}

/// What an engine is at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Assets.
    pub assets: usize,
    /// Sessions that are remembered.
    pub sessions: usize,
    /// Bytes of their answers.
    pub session_bytes: usize,
    /// Branches in doubt.
    pub in_doubt: usize,
    /// The last command.
    pub sequence: Sequence,
    /// [`Machine::hash`] behind it.
    pub hash: u64,
    /// Bytes of the log that are not known to be durable: what a lost machine may take, where the log is lazy.
    pub unsynced_bytes: u64,
    /// Bytes of the log behind the last snapshot: what an open replays.
    pub replay_bytes: u64,
    /// Bytes that the assets take.
    pub memory_bytes: usize,
    /// Subscriptions.
    pub subscriptions: usize,
}

/// A snapshot that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last command in it.
    pub sequence: Sequence,
    /// Its bytes.
    pub bytes: u64,
    /// Its assets.
    pub assets: usize,
    /// Why the log behind the older one was not given back, if it was not: the snapshot is whole all the same.
    pub untrimmed: Option<AssetsError>,
}

impl Engine {
    /// Opens the assets of a log, with the snapshots in a folder that is made if it is missing.
    ///
    /// # Errors
    /// `Config`; `Corrupt` where neither a snapshot nor the log has what is needed, or they do not belong together; as log and disk
    /// say.
    pub fn open(
        log: Arc<dyn Log>,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        folder: &Path,
        config: Config,
        logics: Logics,
    ) -> Result<(Self, Recovery), AssetsError> {
        config.check()?;
        let store = Store { disk, folder: folder.to_path_buf() };
        store.make_folder()?;
        let recovered = recover::recover(&*log, &store, config.limits, &logics)?;
        let mut end = recovered.end;
        if !recovered.has_rules {
            // Before the first command: whoever replays the log under other limits would come to another state.
            let mut rules = Writer::new();
            recovered.machine.rules().lay(&mut rules);
            end = log.append(KIND_RULES, &[rules.as_slice()])?.end;
        }
        let core = Core {
            machine: recovered.machine,
            end,
            closed: None,
            subscriptions: Subscriptions::default(),
            untold: std::collections::VecDeque::new(),
        };
        let engine = Self {
            log,
            clock,
            config,
            logics,
            store,
            core: Mutex::new(core),
            slots: Mutex::new(recovered.slots),
            steps: Mutex::default(),
            arrived: AtomicU64::new(0),
            snapshot_at: AtomicU64::new(recovered.recovery.place.0),
            claims: Claims::default(),
            door: OnceLock::new(),
        };
        Ok((engine, recovered.recovery))
    }

    /// Gives a command its place and lays its answer behind what `answers` has. Nobody may be told before
    /// [`Engine::confirm`].
    ///
    /// # Errors
    /// `Malformed` and `Size`, `Closed`, and what the log says: nothing was done, and nothing was laid.
    pub fn order(&self, bytes: &[u8], answers: &mut Vec<u8>, trace: &mut Trace) -> Result<Ordered, AssetsError> {
        if bytes.len() > COMMAND_BYTES_MAX {
            return Err(AssetsError::Size { bytes: bytes.len(), limit: COMMAND_BYTES_MAX });
        }
        let command = Command::read(bytes)?;
        let start = answers.len();
        let mut core = self.core();
        core.refuse_closed()?;
        trace.stamp(Step::Ordered, &*self.clock);
        let begun = core.machine.begin(self.clock.wall_ms(), &command, answers);
        trace.stamp(Step::Executed, &*self.clock);
        let durable = command.is_of_branch();
        if begun == Begun::Answered {
            trace.sequence = core.machine.sequence();
            return Ok(Ordered { end: core.end, durable });
        }
        let head = entry_head(&core.machine);
        let ticket = match self.log.append(KIND_COMMAND, &[&head, bytes]) {
            Ok(ticket) => ticket,
            Err(error) => {
                core.machine.cancel();
                answers.truncate(start);
                return Err(error.into());
            }
        };
        core.machine.finish(answers.get(start..).unwrap_or_default());
        core.end = ticket.end;
        trace.sequence = core.machine.sequence();
        trace.stamp(Step::Queued, &*self.clock);
        core.keep_changes();
        Ok(Ordered { end: ticket.end, durable })
    }

    /// Waits until the command, and everything before it, is kept as the acknowledgement asks. Then its answer may be told.
    ///
    /// # Errors
    /// `InDoubt`: the log failed, and whether the command is kept is unknown until a restart. Nothing more is taken.
    pub fn confirm(&self, ordered: Ordered) -> Result<(), AssetsError> {
        self.confirm_here(ordered)?;
        if let Some(door) = self.door.get().filter(|_| !self.core().subscriptions.is_empty()) {
            // If it cannot be woken it ends.
            _ = door.wake();
        }
        Ok(())
    }

    /// The same, for the door itself.
    pub(crate) fn confirm_here(&self, ordered: Ordered) -> Result<(), AssetsError> {
        let ticket = Ticket { lsn: ordered.end, end: ordered.end };
        let kept = match self.config.ack {
            _ if ordered.durable => self.log.wait_durable(ticket),
            Ack::Durable => self.log.wait_durable(ticket),
            Ack::Written | Ack::Received => self.log.wait(ticket),
            Ack::None => Ok(()),
        };
        let mut core = self.core();
        if let Err(error) = kept {
            let reason = error.to_string();
            core.closed.get_or_insert_with(|| reason.clone());
            return Err(AssetsError::InDoubt { reason });
        }
        core.tell(ordered.end);
        Ok(())
    }

    /// Orders, confirms and reads the answer: for a caller that has one command at a time.
    ///
    /// # Errors
    /// As [`Engine::order`] and [`Engine::confirm`].
    pub fn execute(&self, command: &[u8]) -> Result<Answer, AssetsError> {
        let mut trace = self.sample();
        trace.stamp(Step::Arrived, &*self.clock);
        let mut answer = Vec::new();
        let ordered = self.order(command, &mut answer, &mut trace)?;
        self.confirm(ordered)?;
        trace.stamp(Step::Confirmed, &*self.clock);
        self.book(trace);
        Ok(Answer::read(&answer)?)
    }

    /// A trace for the next command: on for one in `trace_every`.
    #[must_use]
    pub fn sample(&self) -> Trace {
        let every = u64::from(self.config.trace_every);
        if every == 0 {
            return Trace::OFF;
        }
        let number = self.arrived.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(every) { Trace::on() } else { Trace::OFF }
    }

    /// A finished trace.
    pub fn book(&self, trace: Trace) {
        if trace.is_on() {
            self.steps.lock().unwrap_or_else(PoisonError::into_inner).take(trace);
        }
    }

    /// Looks at what was booked.
    pub fn steps<T>(&self, look: impl FnOnce(&Steps) -> T) -> T {
        look(&self.steps.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What an asset is now, perhaps by a command that is not confirmed yet: for tests and displays, never for an answer. A command that
    /// reads waits for what it saw.
    #[must_use]
    pub fn peek(&self, id: AssetId) -> Option<Asset> {
        self.core().machine.get(id)
    }

    /// Branches that wait for their outcome. Told when their votes are durable: whoever resolves them must not hear of one that a power
    /// cut may take.
    ///
    /// # Errors
    /// As [`Engine::confirm`].
    pub fn in_doubt(&self) -> Result<Vec<InDoubt>, AssetsError> {
        let (ordered, listed) = self.look(Machine::in_doubt);
        self.confirm(ordered).map(|()| listed)
    }

    /// What is known of a branch, and durable.
    ///
    /// # Errors
    /// As [`Engine::confirm`].
    pub fn branch(&self, xid: &Xid) -> Result<Known, AssetsError> {
        let (ordered, known) = self.look(|machine| machine.branch(xid));
        self.confirm(ordered).map(|()| known)
    }

    /// Looks at the state as it is ordered now; to be told when all of it is durable.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Machine) -> T) -> (Ordered, T) {
        let core = self.core();
        (Ordered { end: core.end, durable: true }, look(&core.machine))
    }

    /// Wakes this door when something is confirmed; the first one stays.
    pub(crate) fn wake(&self, door: Arc<Waker>) {
        _ = self.door.set(door);
    }

    /// Subscribes to changes of these assets, or of all; up to `most` wait to be taken.
    ///
    /// # Errors
    /// `Subscribed`: all subscriptions together name too many assets; `Keeps`: or they would keep too many changes.
    pub fn subscribe(&self, wanted: Option<&[AssetId]>, most: usize) -> Result<SubscriptionId, AssetsError> {
        self.core().subscriptions.add(wanted, most)
    }

    /// Ends a subscription.
    pub fn unsubscribe(&self, id: SubscriptionId) {
        self.core().subscriptions.remove(id);
    }

    /// Takes up to so many news of a subscription: of confirmed commands only.
    #[must_use]
    pub fn news(&self, id: SubscriptionId, most: usize) -> Vec<News> {
        self.core().subscriptions.take(id, most)
    }

    /// How it is.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let core = self.core();
        let (sessions, session_bytes) = core.machine.sessions();
        Stats {
            assets: core.machine.assets(),
            sessions,
            session_bytes,
            in_doubt: core.machine.prepared(),
            sequence: core.machine.sequence(),
            hash: core.machine.hash(),
            unsynced_bytes: core.end.0.saturating_sub(self.log.durable().0),
            replay_bytes: core.end.0.saturating_sub(self.snapshot_at.load(Ordering::Relaxed)),
            memory_bytes: core.machine.memory_bytes(),
            subscriptions: core.subscriptions.len(),
        }
    }

    /// What an answer has behind it.
    #[must_use]
    pub const fn ack(&self) -> Ack {
        self.config.ack
    }

    /// Why it takes nothing any more, if so.
    #[must_use]
    pub fn closed(&self) -> Option<String> {
        self.core().closed.clone()
    }

    /// Whether so much log stands behind the last snapshot that another one is due.
    #[must_use]
    pub fn snapshot_due(&self) -> bool {
        let end = self.core().end.0;
        end.saturating_sub(self.snapshot_at.load(Ordering::Relaxed)) >= self.config.snapshot_log_bytes
    }

    /// Writes a snapshot of now, on the caller's thread; commands go on meanwhile. Then the log is given back up to the snapshot before
    /// it: each of the two can be read from, so that one may rot. `None` if nothing happened since the last one.
    ///
    /// # Errors
    /// As the disk and the log say: there is no snapshot then. What was there before still is, and commands go on.
    pub fn snapshot(&self) -> Result<Option<Snapshot>, AssetsError> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let (view, place) = {
            let core = self.core();
            core.refuse_closed()?;
            if slots.iter().flatten().any(|kept| kept.sequence == core.machine.sequence()) {
                return Ok(None);
            }
            (core.machine.view(), core.end)
        };
        let executed = || self.core().machine.sequence().0;
        let mut slow = Slow::new(&*self.clock, self.config.snapshot_bytes_per_second, &executed);
        // The log first: a snapshot must not know more than the log can be asked for after a power cut.
        let settle = || Ok(self.log.wait_durable(Ticket { lsn: place, end: place })?);
        let bytes = self.store.write(&mut slots, &view, place, &mut slow, settle)?;
        self.snapshot_at.store(place.0, Ordering::Relaxed);
        let older = slots.iter().map(|kept| kept.map(|kept| kept.place)).min().flatten();
        let trimmed = older.map_or(Ok(()), |older| self.log.trim(older));
        let untrimmed = trimmed.err().map(AssetsError::Log);
        Ok(Some(Snapshot { sequence: view.sequence(), bytes, assets: view.assets(), untrimmed }))
    }

    /// Reads both snapshots as a whole and says what each is, or what is wrong with it.
    ///
    /// # Errors
    /// Where one may not be opened.
    pub fn verify(&self) -> Result<Vec<Verified>, AssetsError> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let verified = self.store.verify(self.config.limits, &self.logics);
        drop(slots);
        verified
    }

    /// Where its snapshots are.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.store.folder.clone()
    }

    pub(crate) const fn claims(&self) -> &Claims {
        &self.claims
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(|poisoned| {
            let mut core = poisoned.into_inner();
            // What it did is half in memory and not in the log: nobody may go on from there, or take a snapshot of it.
            core.closed.get_or_insert_with(|| "business logic panicked in the middle of a command".to_owned());
            core
        })
    }
}

impl Core {
    fn refuse_closed(&self) -> Result<(), AssetsError> {
        match &self.closed {
            Some(reason) => Err(AssetsError::Closed { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// What the last command changed waits for its confirmation.
    fn keep_changes(&mut self) {
        if self.subscriptions.is_empty() {
            return;
        }
        for change in self.machine.changes() {
            if !self.subscriptions.wants(change.id) {
                continue;
            }
            if self.untold.len() >= UNTOLD_MAX {
                // Whoever confirms so rarely has no subscriber that could keep up: the oldest are told early as missed.
                if let Some((_, old)) = self.untold.pop_front() {
                    self.subscriptions.miss(&old);
                }
            }
            self.untold.push_back((self.end, change));
        }
    }

    /// Everything up to here is confirmed.
    fn tell(&mut self, end: Lsn) {
        while let Some((_, change)) = self.untold.pop_front_if(|(at, _)| *at <= end) {
            self.subscriptions.tell(&change);
        }
    }
}

/// What stands before the command in its entry.
fn entry_head(machine: &Machine) -> [u8; 16] {
    let mut head = [0; 16];
    let (words, _) = head.as_chunks_mut::<8>();
    if let [sequence, time] = words {
        *sequence = machine.sequence().0.saturating_add(1).to_le_bytes();
        *time = machine.time_ms().to_le_bytes();
    }
    head
}
