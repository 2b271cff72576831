//! A member of a group, running: its threads, and what others may ask of it.
//!
//! ```text
//!   caller ── execute, read ──▶ desk (one thread: sockets, order, apply) ──▶ caller
//!                                 │ journal written, synced, snapshots: the disk's thread
//!                                 │ what the arbiter holds: the arbiter's thread
//!                                 └ connections out, made again: a thread for each other member
//! ```
//! Walk: [`Running::start`] opens the folder and begins · [`Running::execute`] is answered when its command is confirmed ·
//! [`Running::read`] sees everything that was acknowledged before it · [`Running::stop`].
//! A command whose answer was lost is in doubt: asked again at the next primary, it is for the machine to tell it apart.
//! Deliberately absent: a protocol for clients; whoever embeds this has one.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use assent_arbiter::Arbiter;
use assent_journal::{Config, Journal, Keeper};
use assent_kind::Kind;
use assent_membership::{Ack, Configuration, History, Member, Sequence, Setup, SetupError, Standing, Word, WordError};
use assent_world::net::{Address, Listener, Poll, Waker};
use assent_world::{Clock, Dice, Disk};

use crate::chores::{self, Worker};
use crate::desk::{Desk, Note};
use crate::error::{ReplicaError, damaged};
use crate::event::{Opened, Refused};
use crate::machine::Machine;
use crate::own::Own;
use crate::own_log::OwnLog;
use crate::replica::Replica;
use crate::settings::{Settings, SettingsError};
use crate::snapshot::Snapshot;
use crate::wires::{self, WAKER, Wires};

/// Milliseconds after which the own log is on the disk, where nothing asks for it sooner.
const SYNC_MS: u64 = 10;
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
    /// What an acknowledgement means in this group.
    pub ack: Ack,
    /// Its folder.
    pub folder: PathBuf,
    /// After how many commands a snapshot is taken.
    pub snapshot_every: u64,
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

/// Where a member stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether it leads or follows, and if nothing goes on, why.
    pub standing: Standing,
    /// The last configuration known.
    pub configuration: Configuration,
    /// The end of its log.
    pub end: Sequence,
    /// Everything up to here is confirmed, as far as known here.
    pub confirmed: Sequence,
    /// What its snapshot holds.
    pub snapshot: Sequence,
}

/// A member that runs.
#[derive(Debug)]
pub struct Running<M: Machine> {
    notes: SyncSender<Note<M>>,
    waker: Arc<Waker>,
    stopping: Arc<AtomicBool>,
    why: Arc<Mutex<Option<String>>>,
    threads: Vec<JoinHandle<()>>,
    address: Address,
}

impl<M: Machine> Running<M> {
    /// Opens the folder, made if missing, and begins. The machine is as before its first command.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(home: &Home, doors: &Doors, arbiter: Box<dyn Arbiter>, mut machine: M) -> Result<Self, StartError> {
        let Kept { own, snapshot, log, history, keeper } = open(home, doors)?;
        let unreadable = |why| damaged(&home.folder.join("snapshot"), why);
        machine.load(&snapshot.state).map_err(unreadable)?;
        let Listening { wires, poll, waker, address } = listen(home)?;
        let setup = Setup {
            me: home.me,
            members: home.members.keys().copied().collect(),
            preferred: home.preferred,
            life: own.life(home.ack),
            ack: home.ack,
        };
        let settings = Settings::new(setup);
        let compare_every = settings.compare_every;
        let base = snapshot.base.end.sequence;
        let opened = Opened { known: own.known().clone(), out: own.out(), history, end: log.end(), base };
        let (replica, first) = Replica::start(settings, opened, doors.clock.now().0 / 1_000)?;
        let (notes, taken) = sync_channel(NOTES_MAX);
        let stopping = Arc::new(AtomicBool::new(false));
        let disk_worker = disk_worker(doors, home, &notes, &waker).map_err(system("starting a thread"))?;
        let arbiter_worker = arbiter_worker(arbiter, &notes, &waker).map_err(system("starting a thread"))?;
        let mut desk = Desk {
            replica,
            ack: home.ack,
            log,
            own,
            applied: snapshot.base.clone(),
            snapshot: Arc::new(snapshot),
            snapshot_every: home.snapshot_every.max(1),
            compare_every,
            keeper,
            machine,
            fresh: VecDeque::new(),
            coming: Vec::new(),
            waiting: BTreeMap::new(),
            readers: Vec::new(),
            later: VecDeque::new(),
            wants_sync: false,
            disk_busy: false,
            asked: None,
            disk: Arc::clone(&doors.disk),
            folder: home.folder.clone(),
            clock: Arc::clone(&doors.clock),
            poll,
            wires,
            notes: taken,
            disk_worker,
            arbiter_worker,
            stopping: Arc::clone(&stopping),
        };
        let why = Arc::new(Mutex::new(None));
        let told = Arc::clone(&why);
        let work = move || {
            let result = desk.work(first);
            if let Err(stopped) = result {
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(stopped.to_string());
            }
            desk.doubt();
            // What is appended is durable then; a journal that has failed was told above.
            _ = desk.log.journal().close();
        };
        let thread = std::thread::Builder::new().name(format!("member-{}", home.me)).spawn(work);
        let mut threads = vec![thread.map_err(system("starting a thread"))?];
        for (to, at) in home.members.iter().filter(|(member, _)| **member != home.me) {
            let thread = connector(*to, at.clone(), doors, &stopping, &notes, &waker);
            threads.push(thread.map_err(system("starting a thread"))?);
        }
        Ok(Self { notes, waker, stopping, why, threads, address })
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
    snapshot: Snapshot,
    log: OwnLog,
    history: History,
    keeper: Keeper,
}

fn open(home: &Home, doors: &Doors) -> Result<Kept, ReplicaError> {
    let Doors { disk, clock, dice } = doors.clone();
    let config = Config { max_elapsed_sync_time: SYNC_MS, ..Config::default() };
    let folder = home.folder.as_path();
    let (journal, _) = Journal::open(Arc::clone(&disk), Arc::clone(&clock), Arc::clone(&dice), folder, config)?;
    let keeper = Keeper::start(Arc::clone(&journal), Arc::clone(&clock));
    let own = Own::open(Arc::clone(&disk), &*clock, &*dice, folder)?;
    let snapshot = Snapshot::open(&*disk, folder)?;
    let (log, history) = OwnLog::open(journal, dice, &snapshot.base)?;
    Ok(Kept { own, snapshot, log, history, keeper })
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

fn disk_worker<M: Machine>(
    doors: &Doors,
    home: &Home,
    notes: &SyncSender<Note<M>>,
    waker: &Arc<Waker>,
) -> std::io::Result<Worker<chores::DiskOrder>> {
    let (disk, folder) = (Arc::clone(&doors.disk), home.folder.clone());
    let (notes, waker) = (notes.clone(), Arc::clone(waker));
    Worker::start("member-disk", move |orders| {
        let write = |snapshot: &Snapshot| snapshot.write(&*disk, &folder);
        chores::disk(&orders, write, |done| {
            let told = notes.send(Note::Disk(done)).is_ok();
            _ = waker.wake();
            told
        });
    })
}

fn arbiter_worker<M: Machine>(
    arbiter: Box<dyn Arbiter>,
    notes: &SyncSender<Note<M>>,
    waker: &Arc<Waker>,
) -> std::io::Result<Worker<chores::Question>> {
    let (notes, waker) = (notes.clone(), Arc::clone(waker));
    Worker::start("member-arbiter", move |questions| {
        chores::ask(&questions, &*arbiter, |answer| {
            let told = notes.send(Note::Arbiter(answer)).is_ok();
            _ = waker.wake();
            told
        });
    })
}

fn connector<M: Machine>(
    to: Member,
    at: Address,
    doors: &Doors,
    stopping: &Arc<AtomicBool>,
    notes: &SyncSender<Note<M>>,
    waker: &Arc<Waker>,
) -> std::io::Result<JoinHandle<()>> {
    let (clock, stopping) = (Arc::clone(&doors.clock), Arc::clone(stopping));
    let (notes, waker) = (notes.clone(), Arc::clone(waker));
    std::thread::Builder::new().name(format!("member-to-{to}")).spawn(move || {
        wires::connect(to, &at, &*clock, &stopping, &notes, Note::Wired, || _ = waker.wake());
    })
}
