//! Members in this process, with a small protocol for clients on their desks, and a machine whose snapshots take as long as the test likes.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use assent_arbiter::{Arbiter, ArbiterError};
use assent_ids::Epoch;
use assent_membership::{Ack, Configuration, Member, Sequence, Standing, Word};
use assent_replica::{
    CallError, Doors, FRONT_TOKEN, Front, Home, Machine, Next, Port, Put, Ready, Running, Status, Told, Tuning,
};
use assent_world::net::{Address, Interest, Listener, Peer, Registry, Token, Waker};
use assent_world::{Clock, Disk, RealClock, RealDice, RealDisk};

use super::child::Counter;

pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// Asks for a read.
const READ: u64 = u64::MAX;
/// The answer of one that does not lead, or in doubt.
const REFUSED: u64 = u64::MAX;
/// What a front orders when it begins to lead.
const KIND_FIRST: u16 = 9;
/// A command that no primary lays.
const WRONG: u16 = 13;

/// Nobody is taken for silent or slow because the machine is busy.
pub(crate) fn calm(snapshot_every: u64) -> Tuning {
    Tuning { silent_ms: 20_000, slow_ms: 30_000, snapshot_every, ..Tuning::default() }
}

/// An arbiter in memory, shared by all members.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<Configuration>>);

impl Arbiter for Memory {
    fn read(&self) -> Result<Configuration, ArbiterError> {
        Ok(self.0.lock().unwrap().clone())
    }

    fn change(&self, expect: u64, to: &Configuration) -> Result<Configuration, ArbiterError> {
        let mut held = self.0.lock().unwrap();
        if held.version == expect {
            *held = to.clone();
        }
        Ok(held.clone())
    }

    fn watch(&self, _: u64, _: Duration) -> Result<Configuration, ArbiterError> {
        self.read()
    }
}

/// Whether snapshots may go on, and how many have begun.
#[derive(Debug, Default)]
pub(crate) struct Lock {
    inside: Mutex<(bool, u64)>,
    changed: Condvar,
}

impl Lock {
    fn set(&self, closed: bool) {
        self.inside.lock().unwrap().0 = closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut inside = self.inside.lock().unwrap();
        inside.1 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(inside, |(closed, _)| *closed).unwrap());
    }

    fn until_begun(&self) {
        let inside = self.inside.lock().unwrap();
        let waited = self.changed.wait_timeout_while(inside, LIMIT, |(_, begun)| *begun == 0).unwrap();
        assert!(!waited.1.timed_out(), "no snapshot is begun");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A member waits for its threads.
        self.lock.set(false);
    }
}

/// A counter whose snapshots wait. It also remembers which kinds it executed.
#[derive(Debug, Default)]
pub(crate) struct Slow {
    pub(crate) counter: Counter,
    kinds: Vec<u16>,
    lock: Arc<Lock>,
    /// It can read no snapshot.
    refuses: bool,
}

impl Machine for Slow {
    type View = (<Counter as Machine>::View, Arc<Lock>);

    fn apply(&mut self, at: Sequence, kind: u16, command: &[u8], answer: &mut Vec<u8>) -> Result<(), String> {
        self.kinds.push(kind);
        match kind {
            WRONG => Err("nobody lays that".to_owned()),
            KIND_FIRST => Ok(()),
            _ => self.counter.apply(at, kind, command, answer),
        }
    }

    fn hash(&self) -> u64 {
        self.counter.hash()
    }

    fn view(&self) -> Self::View {
        (self.counter.view(), Arc::clone(&self.lock))
    }

    fn lay((view, lock): &Self::View, put: Put<'_>) -> io::Result<()> {
        lock.pass();
        Counter::lay(view, put)
    }

    fn empty(&self) -> Self {
        Self { lock: Arc::clone(&self.lock), refuses: self.refuses, ..Self::default() }
    }

    fn load(&mut self, next: Next<'_>) -> Result<(), String> {
        if self.refuses { Err("other limits".to_owned()) } else { self.counter.load(next) }
    }
}

/// One client at a time: numbers of eight bytes in, how many there are out.
struct Line {
    at: Address,
    listener: Option<Listener>,
    registry: Option<Registry>,
    peer: Option<Peer>,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// What waits, in the order of the client's asking: the place of a command, or a read's tag.
    waiting: VecDeque<Sequence>,
    reads: u64,
    halted: Arc<AtomicBool>,
}

impl Line {
    fn new(path: &Path) -> Self {
        Self {
            at: Address::Unix(path.to_path_buf()),
            listener: None,
            registry: None,
            peer: None,
            inbox: Vec::new(),
            outbox: Vec::new(),
            waiting: VecDeque::new(),
            reads: 0,
            halted: Arc::default(),
        }
    }

    fn say(&mut self, number: u64) {
        self.outbox.extend(number.to_le_bytes());
    }

    fn hear(&mut self) {
        let Some(peer) = &mut self.peer else { return };
        let mut buffer = [0; 4_096];
        loop {
            match peer.read(&mut buffer) {
                Ok(0) => return self.peer = None,
                Ok(read) => self.inbox.extend(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

impl Front<Slow> for Line {
    fn open(&mut self, registry: &Registry, _: &Arc<Waker>) -> io::Result<()> {
        let mut listener = Listener::bind(&self.at)?;
        registry.register(&mut listener, Token(FRONT_TOKEN), Interest::READABLE)?;
        self.registry = Some(registry.try_clone()?);
        self.listener = Some(listener);
        Ok(())
    }

    fn round(&mut self, ready: &[Ready], port: &mut Port<'_, Slow>) {
        if ready.iter().any(|ready| ready.token == FRONT_TOKEN) {
            while let Some(mut peer) = self.listener.as_mut().unwrap().accept().unwrap() {
                let both = Interest::READABLE | Interest::WRITABLE;
                self.registry.as_ref().unwrap().register(&mut peer, Token(FRONT_TOKEN + 1), both).unwrap();
                (self.inbox, self.outbox, self.peer) = (Vec::new(), Vec::new(), Some(peer));
            }
        }
        self.hear();
        let inbox = std::mem::take(&mut self.inbox);
        let (numbers, rest) = inbox.as_chunks::<8>();
        for number in numbers {
            if u64::from_le_bytes(*number) == READ {
                self.reads += 1;
                if port.read(self.reads).is_err() {
                    self.say(REFUSED);
                }
                continue;
            }
            match port.order(1, &[&number[..3], &number[3..]]) {
                Ok(at) => self.waiting.push_back(at),
                Err(_) => self.say(REFUSED),
            }
        }
        self.inbox = rest.to_vec();
    }

    fn applied(&mut self, at: Sequence, _: u16, answer: &[u8], _: &Slow) {
        if self.waiting.pop_front_if(|waiting| *waiting == at).is_some() {
            let count: u64 = std::str::from_utf8(answer).unwrap().parse().unwrap();
            self.say(count);
        }
    }

    fn readable(&mut self, _: u64, machine: &Slow) {
        self.say(machine.counter.0.len() as u64);
    }

    fn leads(&mut self, _: Epoch, port: &mut Port<'_, Slow>) {
        port.order(KIND_FIRST, &[b"first"]).unwrap();
    }

    fn yields(&mut self) {
        for _ in 0..self.waiting.len() {
            self.say(REFUSED);
        }
        self.waiting.clear();
    }

    fn halts(&mut self, _: &str) {
        self.halted.store(true, Ordering::SeqCst);
    }

    fn flush(&mut self, port: &mut Port<'_, Slow>) {
        assert_eq!(port.halted().is_some(), self.halted.load(Ordering::SeqCst));
        let Some(peer) = &mut self.peer else { return };
        while !self.outbox.is_empty() {
            match peer.write(&self.outbox) {
                Ok(written) => drop(self.outbox.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.peer = None,
            }
        }
    }
}

/// A disk of the test's, and how what waits for it is let go.
pub(crate) type Own = (Arc<dyn Disk>, Box<dyn Fn() + Send + Sync>);

/// Members in one folder.
pub(crate) struct Group {
    folder: tempfile::TempDir,
    pub(crate) members: Vec<Running<Slow>>,
    /// Disks that are not the real one.
    pub(crate) disks: BTreeMap<u8, Own>,
    count: u8,
    ack: Ack,
    tuning: Tuning,
    arbiter: Memory,
    lock: Arc<Lock>,
    /// What the last one that was started says.
    halted: Arc<AtomicBool>,
}

impl Group {
    fn new(count: u8, ack: Ack, tuning: Tuning) -> Self {
        let mut group = Self::empty(count, ack, tuning);
        (0..count).for_each(|_| group.start(false));
        group.until("it leads", |group| group.leader().is_some_and(|(_, in_sync)| in_sync == usize::from(count)));
        group
    }

    /// Of which nobody is started.
    pub(crate) fn empty(count: u8, ack: Ack, tuning: Tuning) -> Self {
        let (folder, members) = (tempfile::tempdir().unwrap(), Vec::new());
        let (arbiter, lock, halted) = (Memory::default(), Arc::default(), Arc::default());
        Self { folder, members, disks: BTreeMap::new(), count, ack, tuning, arbiter, lock, halted }
    }

    /// Starts the next member.
    pub(crate) fn start(&mut self, refuses: bool) {
        let me = u8::try_from(self.members.len()).unwrap();
        let path = |name: String| -> PathBuf { self.folder.path().join(name) };
        let members = (0..self.count).map(|me| (Member(me), Address::Unix(path(format!("m{me}"))))).collect();
        let (folder, preferred) = (path(format!("member{me}")), Member(0));
        let home =
            Home { me: Member(me), members, preferred, told: Told::new(self.ack, "", ""), folder, tuning: self.tuning };
        let disk =
            self.disks.get(&me).map_or_else(|| Arc::new(RealDisk) as Arc<dyn Disk>, |(disk, _)| Arc::clone(disk));
        let doors = Doors { disk, clock: Arc::new(RealClock), dice: Arc::new(RealDice) };
        let machine = Slow { lock: Arc::clone(&self.lock), refuses, ..Slow::default() };
        let line = Line::new(&path(format!("line{me}")));
        self.halted = Arc::clone(&line.halted);
        let arbiter = Box::new(self.arbiter.clone());
        self.members.push(Running::start(&home, &doors, arbiter, machine, line).unwrap());
    }

    /// Segments of its log that have their names.
    pub(crate) fn segments(&self, at: usize) -> usize {
        let files = std::fs::read_dir(self.folder.path().join(format!("member{at}"))).unwrap();
        files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|it| it == "log")).count()
    }

    /// What a member's folder takes.
    pub(crate) fn bytes(&self, at: usize) -> u64 {
        let files = std::fs::read_dir(self.folder.path().join(format!("member{at}"))).unwrap();
        // One may go between the two looks.
        files.filter_map(|file| file.unwrap().metadata().ok()).map(|file| file.len()).sum()
    }

    pub(crate) fn status(&self, at: usize) -> Status {
        self.members[at].status().unwrap()
    }

    pub(crate) fn leader(&self) -> Option<(usize, usize)> {
        let statuses = (0..self.members.len()).map(|at| (at, self.status(at)));
        let mut leading = statuses.filter(|(_, status)| status.standing == Standing::Leads);
        leading.next().map(|(at, status)| (at, status.configuration.in_sync.len()))
    }

    pub(crate) fn until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let begun = RealClock.now();
        while !done(self) {
            assert!(RealClock.now().since(begun) < LIMIT, "{what}");
            RealClock.sleep(Duration::from_millis(5));
        }
    }

    fn client(&self, at: usize) -> UnixStream {
        let stream = UnixStream::connect(self.folder.path().join(format!("line{at}"))).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }
}

fn ask(client: &mut UnixStream, numbers: &[u64]) -> Vec<u64> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    client.write_all(&bytes).unwrap();
    let mut answers = vec![0; bytes.len()];
    client.read_exact(&mut answers).unwrap();
    answers.as_chunks::<8>().0.iter().map(|answer| u64::from_le_bytes(*answer)).collect()
}

#[test]
fn a_front_orders_on_the_desk_and_its_client_reads_what_it_ordered() {
    for (members, ack) in [(1, Ack::Received), (2, Ack::Received), (2, Ack::Durable), (3, Ack::Written)] {
        let group = Group::new(members, ack, calm(100));
        let (leader, _) = group.leader().unwrap();
        let mut client = group.client(leader);
        let numbers: Vec<u64> = (0..500).collect();
        let mut answers = Vec::new();
        for some in numbers.chunks(100) {
            answers.extend(ask(&mut client, some));
            let count = answers.len() as u64;
            // One more, and a read behind it on the same line: it sees it, answered in whatever order.
            let mut both = ask(&mut client, &[some[0], READ]);
            both.sort_unstable();
            assert_eq!(both, [count, count]);
        }
        assert_eq!(answers, (1..=500).collect::<Vec<u64>>(), "each once, in order");
        let status = group.status(leader);
        assert_eq!((status.counts.reads, status.counts.ordered), (5, 506), "{status:?}");
        let others = status.others.iter().filter(|other| other.is_in_sync && other.is_connected).count();
        assert_eq!(others + 1, usize::from(members), "{status:?}");
        if members == 1 {
            continue;
        }
        // The other one does not lead; then it does, and has everything.
        let other = (leader + 1) % usize::from(members);
        let mut standby = group.client(other);
        assert_eq!(ask(&mut standby, &[7, READ]), [REFUSED, REFUSED]);
        group.members[leader].word(Word::HandOver(Member(u8::try_from(other).unwrap()))).unwrap().unwrap();
        group.until("the other leads", |group| group.status(other).standing == Standing::Leads);
        assert_eq!(ask(&mut standby, &[1_000]), [501]);
        assert_eq!(ask(&mut client, &[1_001]), [REFUSED]);
        let kinds = group.members[other].read(|machine| machine.kinds.clone()).unwrap();
        assert_eq!(kinds.iter().filter(|kind| **kind == KIND_FIRST).count(), 2, "one for each that led");
        group.until("both have executed the same", |group| {
            let (one, two) = (group.status(0), group.status(1));
            one.applied == two.applied && one.hash == two.hash && one.counts.applied > 0
        });
    }
}

#[test]
fn a_snapshot_that_takes_long_keeps_nobody_waiting() {
    for (members, ack) in [(1, Ack::Durable), (2, Ack::Received), (2, Ack::Durable)] {
        let group = Group::new(members, ack, calm(16));
        let (leader, _) = group.leader().unwrap();
        group.lock.set(true);
        let mut client = group.client(leader);
        ask(&mut client, &(0..32).collect::<Vec<u64>>());
        group.lock.until_begun();
        // Primary and standby are both in the middle of one: commands are answered, reads too, and nobody is taken for silent or slow.
        let answers = ask(&mut client, &(32..600).collect::<Vec<u64>>());
        assert_eq!(answers.last(), Some(&600));
        assert_eq!(ask(&mut client, &[READ]), [600]);
        let status = group.status(leader);
        assert_eq!((status.standing, status.snapshot), (Standing::Leads, Sequence(0)));
        assert_eq!(status.configuration.in_sync.len(), usize::from(members));
        group.lock.set(false);
        group.until("snapshots are kept", |group| {
            (0..usize::from(members)).all(|at| group.status(at).snapshot > Sequence(500))
        });
    }
}

#[test]
fn under_steady_load_snapshots_are_taken() {
    let group = Group::new(1, Ack::Durable, calm(16));
    let stop = AtomicBool::new(false);
    let mut writer = group.client(0);
    let mut reader = writer.try_clone().unwrap();
    std::thread::scope(|scope| {
        let (group, stop) = (&group, &stop);
        // Always more than is answered: whenever a sync is done, something else wants one.
        scope.spawn(move || {
            let mut number = 0_u64;
            while !stop.load(Ordering::SeqCst) {
                let numbers: Vec<u8> = (number..number + 64).flat_map(u64::to_le_bytes).collect();
                writer.write_all(&numbers).unwrap();
                number += 64;
            }
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        scope.spawn(move || {
            let mut answers = [0; 65_536];
            // The front goes when its client says that it has said everything.
            while reader.read(&mut answers).is_ok_and(|read| read > 0) {}
        });
        let begun = RealClock.now();
        while group.status(0).counts.snapshots < 10 && RealClock.now().since(begun) < 4 * LIMIT {
            RealClock.sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::SeqCst);
    });
    let status = group.status(0);
    assert!(status.counts.snapshots >= 10 && status.snapshot > Sequence(100), "{status:?}");
}

#[test]
fn a_command_that_no_primary_lays_stops_the_member_and_it_says_so() {
    let group = Group::new(1, Ack::Received, calm(1_000));
    group.members[0].execute(1, &7_u64.to_le_bytes()).unwrap();
    let (told, heard) = channel();
    std::thread::scope(|scope| {
        let group = &group;
        scope.spawn(move || told.send(group.members[0].execute(WRONG, b"x")));
        let answer = heard.recv_timeout(LIMIT).unwrap();
        assert!(matches!(answer, Err(CallError::InDoubt | CallError::Stopped { .. })), "{answer:?}");
    });
    group.until("the front has heard of it", |group| group.halted.load(Ordering::SeqCst));
    let status = group.status(0);
    assert!(status.halted.as_ref().is_some_and(|why| why.contains("nobody lays that")), "{status:?}");
    let mut client = group.client(0);
    assert_eq!(ask(&mut client, &[8, READ]), [REFUSED, REFUSED], "it answers still");
    assert_eq!(group.members[0].execute(1, b"8").unwrap_err().kind(), assent_kind::Kind::InDoubt);
}

/// One that was never there gets a snapshot, because the log of the other one does not reach back; or says why it cannot read it.
#[test]
fn a_member_that_comes_late_gets_a_snapshot_or_says_why_not() {
    for refuses in [false, true] {
        let mut group = Group::empty(2, Ack::Received, Tuning { log_size: 1 << 20, ..calm(200) });
        group.start(false);
        group.until("it waits for the other", |group| group.members[0].word(Word::Force) == Ok(Ok(())));
        group.until("it leads", |group| group.leader() == Some((0, 1)));
        // More than the memory keeps for one that is a little behind.
        for number in 0..1_200_u64 {
            let command = [&number.to_le_bytes()[..], &[7; 16 << 10]].concat();
            group.members[0].execute(1, &command).unwrap();
        }
        group.until("a snapshot is kept", |group| group.status(0).snapshot >= Sequence(1_000));
        group.until("the room of the log before it is given back", |group| group.bytes(0) < 12 << 20);
        group.start(refuses);
        if refuses {
            group.until("it says so", |group| group.status(1).halted.is_some_and(|why| why.contains("other limits")));
            assert_eq!(ask(&mut group.client(0), &[9_000]), [1_201], "the other one goes on");
            continue;
        }
        group.until("it is in sync", |group| group.leader() == Some((0, 2)));
        let (first, second) = (group.status(0), group.status(1));
        assert_eq!(second.counts.snapshots_installed, 1, "{second:?}");
        assert!(second.snapshot >= Sequence(1_000) && first.counts.pieces_sent > 0, "{first:?} {second:?}");
        // What came is what it goes on with.
        group.members[0].word(Word::HandOver(Member(1))).unwrap().unwrap();
        group.until("the other leads", |group| group.status(1).standing == Standing::Leads);
        assert_eq!(ask(&mut group.client(1), &[10_000]), [1_201]);
    }
}
