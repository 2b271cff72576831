//! Clients with sessions that change a few assets at once, and write down what they called, when, and what they were told.
//!
//! Walk: [`Load::start`] runs the clients · each keeps a window of commands under way, takes answers and adds to its history ·
//! [`Load::end`] lets them receive what is missing and gives their histories. [`Load::newest`] says up to when commands that were
//! begun are answered.
//! Deliberately absent: retries. A lost connection is the client's own matter; what it gives up is in doubt.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use assent_assets::{Answer as Answered, AssetId, Client, Event, OPS_MAX, Op, Options, Refusal};
use assent_kind::Kind;
use assent_sim::Rng;
use assent_sim::linear::Timed;
use assent_sim::register::{Answer, Call, Did, Register};
use assent_world::net::Address;
use assent_world::{Clock as _, RealClock};

use crate::demo::now;
use crate::failure::Failure;

/// Longer than any fault of a play: a client that gives up before says nothing about the pair.
const PATIENCE: Duration = Duration::from_secs(60);

/// Behind a refusal: what is full is not asked at full speed.
const REFUSED_PAUSE: Duration = Duration::from_millis(20);
/// Of a flood, whose server may be the one that the harm is done to.
const FLOOD_PATIENCE: Duration = Duration::from_secs(1);

/// What clients are told to do.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    /// All members, through the network.
    pub(crate) servers: Vec<Address>,
    pub(crate) clients: u64,
    pub(crate) window: u32,
    /// Between two answers of a client.
    pub(crate) pace: Duration,
    /// They are numbered from 1.
    pub(crate) assets: u64,
    pub(crate) seed: u64,
}

/// A call of one asset, as its client saw it. Times are nanoseconds of the load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) asset: u64,
    pub(crate) timed: Timed<Did>,
}

/// What one client wrote down.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) told: Vec<Told>,
    /// Commands that were answered, and when.
    pub(crate) answered: Vec<u64>,
    /// Commands of which a server said that it did nothing.
    pub(crate) refused: u64,
    /// Commands that were sent a second time.
    pub(crate) again: u64,
    /// Connections that were lost and made again.
    pub(crate) reconnected: u64,
    /// Why something is in doubt.
    pub(crate) doubts: Vec<String>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    newest: AtomicU64,
    answers: AtomicU64,
}

/// Clients at work.
#[derive(Debug)]
pub(crate) struct Load {
    began: Instant,
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Result<History, Failure>>>,
}

fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Load {
    pub(crate) fn start(orders: &Orders) -> Self {
        let (began, shared) = (now(), Arc::<Shared>::default());
        let one = |number| {
            let (orders, shared) = (orders.clone(), Arc::clone(&shared));
            std::thread::spawn(move || Writer::connect(&orders, number, began, &shared)?.run())
        };
        let clients = (0..orders.clients).map(one).collect();
        Self { began, shared, clients }
    }

    /// Now, on the load's clock.
    pub(crate) fn now(&self) -> u64 {
        nanos(self.began)
    }

    /// The latest begin of a command that has an answer.
    pub(crate) fn newest(&self) -> u64 {
        self.shared.newest.load(Ordering::Relaxed)
    }

    /// Answers so far.
    pub(crate) fn answers(&self) -> u64 {
        self.shared.answers.load(Ordering::Relaxed)
    }

    /// No new commands; waits for the answers that are missing.
    pub(crate) fn end(self) -> Result<Vec<History>, Failure> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let gone = || Failure::new(Kind::Internal, "a client of the load panicked");
        self.clients.into_iter().map(|client| client.join().unwrap_or_else(|_| Err(gone()))).collect()
    }
}

/// What an asset is, asked by a client of its own; with the times of the question.
pub(crate) fn look(servers: &[Address], assets: u64, load: Option<Instant>) -> Result<Vec<Told>, Failure> {
    let mut client = connect(servers, 1, false)?;
    let began = load.unwrap_or_else(now);
    let ops: Vec<Op> = (1..=assets).map(|id| Op::Get { id: AssetId(id) }).collect();
    let invoked = nanos(began);
    let answer = client.execute(&ops).map_err(|error| Failure::new(error.kind, error.message))?;
    let mut told = Vec::new();
    note(&mut told, &calls(&ops), invoked, Some(nanos(began)), &answer);
    match told.iter().all(|told| matches!(told.timed.op.answer, Answer::Done(_))) {
        true => Ok(told),
        false => Err(Failure::new(Kind::Internal, format!("a look at the assets was answered {answer:?}"))),
    }
}

/// Creates the assets, and one more that floods change.
pub(crate) fn create(servers: &[Address], assets: u64) -> Result<(), Failure> {
    let ops: Vec<Op> = (1..=assets + 1).map(|id| Op::Create { id: AssetId(id), value: 0 }).collect();
    let answer = connect(servers, 1, true)?.execute(&ops);
    match answer.map_err(|error| Failure::new(error.kind, error.message))? {
        Answered::Done(_) => Ok(()),
        answer => Err(Failure::new(Kind::Internal, format!("creating the assets was answered {answer:?}"))),
    }
}

/// Large commands, so that a log needs room. Whether they are done is nobody's question. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// So many bytes of commands at least, one behind the other, until one is not taken.
    pub(crate) fn start(servers: &[Address], assets: u64, bytes: usize) -> Self {
        let (servers, stop) = (servers.to_vec(), Arc::<AtomicBool>::default());
        let told = Arc::clone(&stop);
        let ops = vec![Op::Set { id: AssetId(assets + 1), value: 7 }; OPS_MAX];
        // An operation is 20 bytes at least.
        let many = bytes / (20 * OPS_MAX) + 1;
        let run = move || {
            let Ok(mut client) = connect_for(&servers, 1, false, FLOOD_PATIENCE) else { return };
            for _ in 0..many {
                if told.load(Ordering::Relaxed)
                    || client.execute(&ops).is_err_and(|error| error.kind == Kind::Unavailable)
                {
                    return;
                }
            }
        };
        Self { stop, thread: Some(std::thread::spawn(run)) }
    }

    /// Whether everything was sent, or it gave up.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It panicked: the panic was printed where it happened.
            _ = thread.join();
        }
    }
}

fn connect(servers: &[Address], window: u32, session: bool) -> Result<Client, Failure> {
    connect_for(servers, window, session, PATIENCE)
}

fn connect_for(servers: &[Address], window: u32, session: bool, patience: Duration) -> Result<Client, Failure> {
    let options = Options { patience, window, session, ..Options::to_all(servers.to_vec()) };
    Client::connect(options, Arc::new(RealClock)).map_err(|error| Failure::new(error.kind, error.message))
}

impl Load {
    /// The moment that its times count from.
    pub(crate) const fn began(&self) -> Instant {
        self.began
    }
}

/// One client.
struct Writer<'a> {
    client: Client,
    orders: &'a Orders,
    shared: &'a Shared,
    began: Instant,
    rng: Rng,
    /// Under way: number, begin, what was called.
    sent: VecDeque<(u64, Vec<(u64, Call)>)>,
    /// What this client saw last of each asset: a comparison that can succeed.
    seen: Vec<i64>,
    history: History,
}

impl<'a> Writer<'a> {
    fn connect(orders: &'a Orders, number: u64, began: Instant, shared: &'a Shared) -> Result<Self, Failure> {
        // Not all begin with the same member.
        let mut servers = orders.servers.clone();
        let turn = usize::try_from(number).unwrap_or(0) % servers.len().max(1);
        servers.rotate_left(turn);
        Ok(Self {
            client: connect(&servers, orders.window, true)?,
            orders,
            shared,
            began,
            rng: Rng::new(orders.seed.wrapping_mul(1_000).wrapping_add(number)),
            sent: VecDeque::new(),
            seen: vec![0; usize::try_from(orders.assets).unwrap_or(0)],
            history: History::default(),
        })
    }

    fn run(mut self) -> Result<History, Failure> {
        loop {
            let window = usize::try_from(self.orders.window).unwrap_or(1);
            while !self.shared.stop.load(Ordering::Relaxed) && self.sent.len() < window {
                let ops = self.pick();
                let invoked = nanos(self.began);
                match self.client.send(&ops) {
                    Ok(_) => self.sent.push_back((invoked, calls(&ops))),
                    // Behind a refusal the session begins anew when what it has is answered.
                    Err(_) if !self.sent.is_empty() => break,
                    Err(error) if error.kind == Kind::Unavailable => {
                        self.history.doubts.push(error.message);
                        return Ok(self.history);
                    }
                    Err(error) => return Err(Failure::new(error.kind, error.message)),
                }
            }
            if self.sent.is_empty() {
                return Ok(self.history);
            }
            let received = self.client.receive();
            let returned = nanos(self.began);
            self.count_events();
            match received {
                Ok((_, answer)) => self.take(returned, &answer),
                // Nothing was done, and the client keeps it.
                Err(error) if self.keeps() && error.kind != Kind::Unavailable => {
                    self.history.refused += 1;
                    RealClock.sleep(REFUSED_PAUSE);
                }
                // Nobody answered for longer than any fault lasts: that the pair is dead is for the play to say.
                Err(error) if self.keeps() => {
                    self.history.doubts.push(error.message);
                    for (invoked, calls) in std::mem::take(&mut self.sent) {
                        note(&mut self.history.told, &calls, invoked, None, &Answered::InDoubt);
                    }
                    return Ok(self.history);
                }
                // Nothing was done.
                Err(error) if matches!(error.kind, Kind::Full | Kind::Busy) => {
                    self.history.refused += 1;
                    self.sent.pop_front();
                }
                Err(error) => {
                    self.history.doubts.push(format!("{}: {}", error.kind.name(), error.message));
                    if let Some((invoked, calls)) = self.sent.pop_front() {
                        note(&mut self.history.told, &calls, invoked, None, &Answered::InDoubt);
                    }
                }
            }
            RealClock.sleep(self.orders.pace);
        }
    }

    /// Whether the command whose answer was waited for is still under way.
    fn keeps(&self) -> bool {
        self.client.waiting() == self.sent.len()
    }

    fn take(&mut self, returned: u64, answer: &Answered) {
        let Some((invoked, calls)) = self.sent.pop_front() else { return };
        let before = self.history.told.len();
        note(&mut self.history.told, &calls, invoked, Some(returned), answer);
        for told in self.history.told.get(before..).unwrap_or_default() {
            let value = match told.timed.op.answer {
                Answer::Done(Register { value, .. }) | Answer::Differs(value) => value,
                Answer::InDoubt => continue,
            };
            if let Some(seen) = usize::try_from(told.asset - 1).ok().and_then(|at| self.seen.get_mut(at)) {
                *seen = value;
            }
        }
        if !matches!(answer, Answered::Done(_) | Answered::Refused { .. }) {
            self.history.doubts.push(format!("answered {answer:?}"));
            return;
        }
        self.history.answered.push(returned);
        self.shared.answers.fetch_add(1, Ordering::Relaxed);
        self.shared.newest.fetch_max(invoked, Ordering::Relaxed);
    }

    fn count_events(&mut self) {
        for event in self.client.events() {
            let again = match event {
                Event::Reconnected { again, .. } | Event::FailedOver { again, .. } => again,
                Event::SessionLost => {
                    self.history.doubts.push("the session is lost".to_owned());
                    continue;
                }
            };
            self.history.reconnected += 1;
            self.history.again += u64::try_from(again).unwrap_or(0);
        }
    }

    fn pick(&mut self) -> Vec<Op> {
        let assets = self.orders.assets.max(1);
        let asset = 1 + self.rng.below(assets);
        let id = AssetId(asset);
        let small = i64::try_from(self.rng.below(1_000)).unwrap_or(0);
        match self.rng.below(20) {
            0..=8 => vec![Op::Add { id, by: small - 400 }],
            9..=11 => vec![Op::Get { id }],
            12..=14 => vec![Op::Set { id, value: small }],
            15..=17 => {
                let seen = usize::try_from(asset - 1).ok().and_then(|at| self.seen.get(at)).copied();
                vec![Op::CompareAndSet { id, expected: seen.unwrap_or(0), value: small }]
            }
            // Both or none, where there is a second one.
            _ if assets > 1 => {
                let other = AssetId(1 + asset % assets);
                vec![Op::Add { id, by: -small }, Op::Add { id: other, by: small }]
            }
            _ => vec![Op::Add { id, by: small }],
        }
    }
}

fn calls(ops: &[Op]) -> Vec<(u64, Call)> {
    let call = |op: &Op| match *op {
        Op::Set { id, value } => (id.0, Call::Set(value)),
        Op::Add { id, by } => (id.0, Call::Add(by)),
        Op::CompareAndSet { id, expected, value } => (id.0, Call::CompareAndSet(expected, value)),
        _ => (op.id().0, Call::Get),
    };
    ops.iter().map(call).collect()
}

/// Adds what a command did to each of its assets.
fn note(told: &mut Vec<Told>, calls: &[(u64, Call)], invoked: u64, returned: Option<u64>, answer: &Answered) {
    for (place, (asset, call)) in calls.iter().enumerate() {
        let answer = match answer {
            Answered::Done(results) => {
                let found = results.assets.get(place);
                found.map(|found| Answer::Done(Register { value: found.value, updates: found.updates }))
            }
            Answered::Refused { refusal: Refusal::Differs { value, .. }, .. } => Some(Answer::Differs(*value)),
            _ => None,
        };
        // What is not explained may have been done or not; its answer says nothing that could be compared.
        let returned = returned.filter(|_| answer.is_some());
        let op = Did { call: *call, answer: answer.unwrap_or(Answer::InDoubt) };
        told.push(Told { asset: *asset, timed: Timed { op, invoked, returned } });
    }
}
