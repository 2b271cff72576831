//! A member of a group, running: its threads, and what others may ask of it.
//!
//! ```text
//!   clients ── the front's protocol ──▶ desk (one thread: sockets, order, apply) ──▶ clients
//!   caller ── execute, read ──▶         │ journal written and synced: the log's thread
//!                                       │ snapshots laid, and read from elsewhere: the snapshots' thread
//!                                       │ what the arbiter holds: the arbiter's thread
//!                                       └ connections out, made again: a thread for each other member
//! ```
//! Walk: [`Running::start`] opens the folder and begins, with a [`Front`] on its desk · [`Running::execute`] is answered when its command
//! is confirmed · [`Running::read`] sees everything that was acknowledged before it · [`Running::stop`].
//! A command whose answer was lost is in doubt: asked again at the next primary, it is for the machine to tell it apart.
//! Deliberately absent: a protocol for clients; a front has one.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use assent_arbiter::Arbiter;
use assent_journal::{Config, Journal, Keeper};
use assent_kind::Kind;
use assent_membership::{History, Member, Setup, SetupError, Word, WordError};
use assent_world::net::{Address, Listener, Poll, Waker};
use assent_world::{Clock, Dice, Disk, Gate};

use crate::chores::{self, Openings, Slow, Worker};
use crate::desk::{Desk, Note, Shown, Snapshots};
use crate::error::ReplicaError;
use crate::event::{Opened, Refused};
use crate::execute;
use crate::front::{Front, Wanted};
use crate::machine::Machine;
use crate::own::Own;
use crate::own_log::OwnLog;
use crate::questions::{Question, Questions};
use crate::replica::Replica;
use crate::settings::{LeaseSettings, Settings, SettingsError};
use crate::shelf::Shelf;
use crate::status::Status;
use crate::told::Told;
use crate::wires::{self, WAKER, Wires};

/// Calls that wait for the desk.
const NOTES_MAX: usize = 4_096;

/// Where a member lives, and with whom.
#[derive(Clone, Debug)]
pub struct Home {
    /// Its number.
    pub me: Member,
    /// Every member's address, its own too.
    pub members: BTreeMap<Member, Address>,
    /// Who leads where nothing else makes a difference.
    pub preferred: Member,
    /// What it is told of its group.
    pub told: Told,
    /// Its folder.
    pub folder: PathBuf,
    /// What a user may tune.
    pub tuning: Tuning,
}

/// What a user may tune; the defaults suit a pair in one room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The pace of heartbeats. Default 20.
    pub tick_ms: u64,
    /// A member that has not said for so long what it should is silent. Default 150.
    pub silent_ms: u64,
    /// How long one waits at a start for members that are missing. Default 1,000.
    pub patience_ms: u64,
    /// A member of the set that confirms nothing of what it lacks for so long is taken out. Default 500.
    pub slow_ms: u64,
    /// Reads without a round of messages. Default none.
    pub lease: Option<LeaseSettings>,
    /// Milliseconds after which the own log is on the disk, where nothing asks for it sooner; counts only where an acknowledgement does
    /// not. Default 10.
    pub sync_ms: u64,
    /// Bytes of one segment of the own log: it is let go in whole ones. A command that is longer than one is laid in pieces, and heartbeats
    /// wait for that with any acknowledgement: see that one holds the longest. Default as the journal's.
    pub log_size: u64,
    /// After how many commands a snapshot is taken. Default 1,000,000.
    pub snapshot_every: u64,
    /// After how many bytes of commands a snapshot is taken. Default 256 MiB.
    pub snapshot_log_bytes: u64,
    /// Bytes a second that a snapshot may write, 0: no limit; while commands are executed, at most
    /// [`crate::BESIDE_COMMANDS_BYTES_PER_S`]. Default 0.
    pub snapshot_bytes_per_s: u64,
    /// Bytes a second that a primary reads from its disk for standbys that are far behind. Default 64 MiB.
    pub catch_up_bytes_per_s: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            tick_ms: 20,
            silent_ms: 150,
            patience_ms: 1_000,
            slow_ms: 500,
            lease: None,
            sync_ms: 10,
            log_size: Config::default().log_size,
            snapshot_every: 1_000_000,
            snapshot_log_bytes: 256 << 20,
            snapshot_bytes_per_s: 0,
            catch_up_bytes_per_s: 64 << 20,
        }
    }
}

impl Tuning {
    fn settings(&self, setup: Setup, told: &Told) -> Settings {
        Settings {
            group: told.group.clone(),
            arbiter: told.arbiter.clone(),
            tick_ms: self.tick_ms,
            silent_ms: self.silent_ms,
            patience_ms: self.patience_ms,
            slow_ms: self.slow_ms,
            lease: self.lease,
            catch_up_bytes_per_s: self.catch_up_bytes_per_s,
            ..Settings::new(setup)
        }
    }
}

/// The doors of `world` that a member goes through.
#[derive(Clone, Debug)]
pub struct Doors {
    /// Its disk.
    pub disk: Arc<dyn Disk>,
    /// Its clock.
    pub clock: Arc<dyn Clock>,
    /// Its dice.
    pub dice: Arc<dyn Dice>,
}

/// Why a member does not start.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StartError {
    /// The group or its numbers cannot be.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// What it keeps.
    #[error(transparent)]
    Kept(#[from] ReplicaError),
    /// Its address, or a thread.
    #[error("{doing}: {error}")]
    System {
        /// What was under way.
        doing: String,
        /// As the operating system says.
        error: String,
    },
}

impl StartError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Settings(error) => error.kind(),
            Self::Kept(error) => error.kind(),
            Self::System { .. } => Kind::Unavailable,
        }
    }
}

/// Why a command or read has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It was not taken in. Nothing has happened.
    #[error(transparent)]
    Refused(Refused),
    /// More calls wait than a member takes. Nothing has happened.
    #[error("{NOTES_MAX} calls wait for this member; ask again")]
    Busy,
    /// The lead was lost while the command waited: it may be executed, or not.
    #[error("the lead was lost while this command waited: it may be done; ask the next primary")]
    InDoubt,
    /// The lead was lost while the read waited.
    #[error("the lead was lost while this read waited: ask the next primary")]
    Yielded,
    /// The member has stopped; a command that waited may be done.
    #[error("this member has stopped{}", why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    Stopped {
        /// Why, if nobody told it to.
        why: Option<String>,
    },
}

impl CallError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Refused(refused) => refused.kind(),
            Self::Busy => Kind::Busy,
            Self::InDoubt | Self::Stopped { .. } => Kind::InDoubt,
            Self::Yielded => Kind::Unavailable,
        }
    }
}

/// A member that runs.
#[derive(Debug)]
pub struct Running<M: Machine> {
    notes: SyncSender<Note<M>>,
    waker: Arc<Waker>,
    stopping: Arc<AtomicBool>,
    why: Arc<Mutex<Option<String>>>,
    changes: Arc<Gate>,
    threads: Vec<JoinHandle<()>>,
    address: Address,
}

impl<M: Machine> Running<M> {
    /// Opens the folder, made if missing, and begins. The machine is as before its first command; the front is opened here, and all
    /// that is said to it then is said on the desk's thread.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start<F: Front<M>>(
        home: &Home,
        doors: &Doors,
        arbiter: Box<dyn Arbiter>,
        mut machine: M,
        mut front: F,
    ) -> Result<Self, StartError> {
        let Kept { own, shelf, log, history, keeper } = open(home, doors)?;
        let applied = execute::load(&shelf, &mut machine, &home.folder)?;
        let Listening { wires, poll, waker, address } = listen(home)?;
        front.open(poll.registry(), &waker).map_err(system("opening the front"))?;
        front.replaced(&machine);
        let setup = Setup {
            me: home.me,
            members: home.members.keys().copied().collect(),
            preferred: home.preferred,
            life: own.life(home.told.ack),
            ack: home.told.ack,
        };
        let base = applied.end.sequence;
        let (known, out, promised_ms) = (own.known().clone(), own.out(), own.promised_ms());
        let opened = Opened { known, out, promised_ms, history, end: log.end(), base };
        let (replica, first) =
            Replica::start(home.tuning.settings(setup, &home.told), opened, doors.clock.now().0 / 1_000)?;
        let (notes, taken) = sync_channel(NOTES_MAX);
        let stopping = Arc::new(AtomicBool::new(false));
        let tell = Tell { notes: notes.clone(), waker: Arc::clone(&waker), stopping: Arc::clone(&stopping) };
        let mut desk = Desk {
            replica,
            front,
            wanted: Wanted::default(),
            halted: None,
            ack: home.told.ack,
            tuning: home.tuning,
            log,
            own,
            keeper,
            machine,
            applied,
            commit_to: base,
            answer: Vec::new(),
            waiting: BTreeMap::new(),
            asked_reads: VecDeque::new(),
            beat: 0,
            later: VecDeque::new(),
            log_worker: tell.log_worker()?,
            snapshots: tell.snapshots(doors, home, shelf)?,
            arbiter_worker: tell.arbiter_worker(arbiter)?,
            shown: Shown::default(),
            wants_sync: false,
            log_busy: false,
            questions: Questions::default(),
            clock: Arc::clone(&doors.clock),
            poll,
            wires,
            notes: taken,
            stopping: Arc::clone(&stopping),
        };
        let why = Arc::new(Mutex::new(None));
        let (told, changes) = (Arc::clone(&why), Arc::clone(&desk.shown.changes));
        let work = move || {
            let stopped = desk.work(first).err().map(|stopped| stopped.to_string());
            told.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&stopped);
            desk.doubt();
            desk.close();
            desk.shown.tell();
            if let Some(why) = stopped {
                desk.linger(why);
            }
        };
        let thread = std::thread::Builder::new().name(format!("member-{}", home.me)).spawn(work);
        let mut threads = vec![thread.map_err(system("starting a thread"))?];
        for (to, at) in home.members.iter().filter(|(member, _)| **member != home.me) {
            threads.push(tell.connector(*to, at.clone(), doors)?);
        }
        Ok(Self { notes, waker, stopping, why, changes, threads, address })
    }

    /// Where it really listens.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Executes a command: its answer, when everybody in the set holds it as the group's `ack` asks.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn execute(&self, kind: u16, command: &[u8]) -> Result<Vec<u8>, CallError> {
        let (answer, answered) = sync_channel(1);
        self.tell(Note::Command { kind, command: command.to_vec(), answer })?;
        answered.recv().map_err(|_| self.stopped())?
    }

    /// Reads the machine, when it surely shows everything that was acknowledged before this call. On the desk: be short.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn read<T: Send + 'static>(&self, read: impl FnOnce(&M) -> T + Send + 'static) -> Result<T, CallError> {
        let (answer, answered) = sync_channel(1);
        let reader = move |machine: Result<&M, CallError>| _ = answer.try_send(machine.map(read));
        self.tell(Note::Read(Box::new(reader)))?;
        answered.recv().map_err(|_| self.stopped())?
    }

    /// Follows a person's word.
    ///
    /// # Errors
    /// [`CallError::Stopped`]; within, [`WordError`] where that cannot be.
    pub fn word(&self, word: Word) -> Result<Result<(), WordError>, CallError> {
        let (answer, answered) = sync_channel(1);
        self.tell(Note::Word { word, answer })?;
        answered.recv().map_err(|_| self.stopped())
    }

    /// Where it stands.
    ///
    /// # Errors
    /// [`CallError::Stopped`].
    pub fn status(&self) -> Result<Status, CallError> {
        let (answer, answered) = sync_channel(1);
        self.tell(Note::Status(answer))?;
        answered.recv().map_err(|_| self.stopped())
    }

    /// Its number is another one whenever it leads or follows otherwise than before, or the configuration is another one, or who was told
    /// otherwise; and when it can go on no longer. For who would else ask again and again.
    #[must_use]
    pub const fn changes(&self) -> &Arc<Gate> {
        &self.changes
    }

    /// Stops it. What was acknowledged is where the group's `ack` says.
    pub fn stop(mut self) {
        self.end();
    }

    fn tell(&self, note: Note<M>) -> Result<(), CallError> {
        self.notes.try_send(note).map_err(|error| match error {
            TrySendError::Full(_) => CallError::Busy,
            TrySendError::Disconnected(_) => self.stopped(),
        })?;
        // If it cannot be woken it ticks soon.
        _ = self.waker.wake();
        Ok(())
    }

    fn stopped(&self) -> CallError {
        CallError::Stopped { why: self.why.lock().unwrap_or_else(PoisonError::into_inner).clone() }
    }

    fn end(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        _ = self.waker.wake();
        for thread in self.threads.drain(..) {
            // A panic there has been printed; here nothing is left to do about it.
            _ = thread.join();
        }
    }
}

impl<M: Machine> Drop for Running<M> {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a folder holds.
struct Kept {
    own: Own,
    shelf: Arc<Shelf>,
    log: OwnLog,
    history: History,
    keeper: Keeper,
}

fn open(home: &Home, doors: &Doors) -> Result<Kept, ReplicaError> {
    let Doors { disk, clock, dice } = doors.clone();
    let Tuning { sync_ms, log_size, .. } = home.tuning;
    let config = OwnLog::config(home.told.ack, sync_ms, Config { log_size, ..Config::default() });
    let folder = home.folder.as_path();
    let (journal, _) = Journal::open(Arc::clone(&disk), Arc::clone(&clock), Arc::clone(&dice), folder, config)?;
    let keeper = Keeper::start(Arc::clone(&journal), Arc::clone(&clock));
    let own = Own::open(Arc::clone(&disk), &*clock, &*dice, folder)?;
    let shelf = Arc::new(Shelf::open(disk, folder)?);
    let (log, history) = OwnLog::open(journal, dice, &shelf.base())?;
    Ok(Kept { own, shelf, log, history, keeper })
}

/// Where a member is heard.
struct Listening {
    wires: Wires,
    poll: Poll,
    waker: Arc<Waker>,
    address: Address,
}

fn listen(home: &Home) -> Result<Listening, StartError> {
    let unknown = SettingsError::Setup(SetupError::Unknown(home.me));
    let at = home.members.get(&home.me).ok_or(unknown)?;
    let listener = Listener::bind(at).map_err(|error| refused_address(at, &error))?;
    let address = listener.address().map_err(system("listening"))?;
    let poll = Poll::new().map_err(system("making a poll"))?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKER).map_err(system("making a waker"))?);
    let registry = poll.registry().try_clone().map_err(system("making a poll"))?;
    let wires = Wires::new(listener, registry).map_err(system("listening"))?;
    Ok(Listening { wires, poll, waker, address })
}

fn system(doing: &'static str) -> impl Fn(std::io::Error) -> StartError {
    move |error| StartError::System { doing: doing.to_owned(), error: error.to_string() }
}

fn refused_address(at: &Address, error: &std::io::Error) -> StartError {
    StartError::System { doing: format!("listening at {at}"), error: error.to_string() }
}

/// How other threads tell the desk something.
struct Tell<M: Machine> {
    notes: SyncSender<Note<M>>,
    waker: Arc<Waker>,
    stopping: Arc<AtomicBool>,
}

impl<M: Machine> Tell<M> {
    /// Tells, and wakes it; false if it has gone.
    fn teller(&self) -> impl Fn(Note<M>) -> bool + Send + 'static {
        let (notes, waker) = (self.notes.clone(), Arc::clone(&self.waker));
        move |note| {
            let told = notes.send(note).is_ok();
            _ = waker.wake();
            told
        }
    }

    fn log_worker(&self) -> Result<Worker<chores::LogOrder>, StartError> {
        let tell = self.teller();
        let work = move |orders| chores::log(&orders, |done| tell(Note::Log(done)));
        Worker::start("member-disk", work).map_err(system("starting a thread"))
    }

    fn snapshots(&self, doors: &Doors, home: &Home, shelf: Arc<Shelf>) -> Result<Snapshots<M>, StartError> {
        let (tell, openings) = (self.teller(), Arc::<Openings>::default());
        let (lent, known) = (Arc::clone(&shelf), Arc::clone(&openings));
        let executed = Arc::<AtomicU64>::default();
        let slow = Slow {
            clock: Arc::clone(&doors.clock),
            bytes_per_s_max: home.tuning.snapshot_bytes_per_s,
            executed: Arc::clone(&executed),
            stopping: Arc::clone(&self.stopping),
        };
        let work = move |orders| {
            chores::snapshots(&orders, &lent, &known, &slow, |done| tell(Note::Shelf(done.map(Box::new))));
        };
        let worker = Worker::start("member-shelf", work).map_err(system("starting a thread"))?;
        Ok(Snapshots::new(shelf, openings, executed, worker))
    }

    fn arbiter_worker(&self, arbiter: Box<dyn Arbiter>) -> Result<Worker<Question>, StartError> {
        let tell = self.teller();
        let work = move |questions| chores::ask(&questions, &*arbiter, |answer| tell(Note::Arbiter(answer)));
        Worker::start("member-arbiter", work).map_err(system("starting a thread"))
    }

    fn connector(&self, to: Member, at: Address, doors: &Doors) -> Result<JoinHandle<()>, StartError> {
        let (clock, stopping) = (Arc::clone(&doors.clock), Arc::clone(&self.stopping));
        let (notes, waker) = (self.notes.clone(), Arc::clone(&self.waker));
        let work = move || {
            wires::connect(to, &at, &*clock, &stopping, &notes, Note::Wired, || _ = waker.wake());
        };
        let thread = std::thread::Builder::new().name(format!("member-to-{to}")).spawn(work);
        thread.map_err(system("starting a thread"))
    }
}
