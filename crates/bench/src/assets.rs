//! assets: commands of many connections, each with so many under way, against an echo of the same bytes in the same run.
//!
//! Walk: [`drive`] loads a server that speaks frames, from as many threads as there are connections, for one slice · [`echo`] is the
//! floor's server: it gives every byte back · [`Row::of`] what the slices of one row say. The same client drives both.
//! Every command adds one, so that the sum of all assets is the number of commands that were executed.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use assent_assets::{Answer, AssetId, Command, Op};
use assent_frame::{Head, Writer, lay, parse};
use assent_kind::Kind;
use assent_world::net::{Address, Events, Interest, Listener, Peer, Poll, Stream, Token};
use serde::Serialize;

use crate::BenchError;
use crate::stats::{Samples, median, per_second};

const KIND_COMMAND: u16 = 0x51;
const KIND_ANSWER: u16 = 0x52;
const ANSWER_BYTES_MAX: usize = 1 << 20;
const READ_BYTES: usize = 1 << 16;
/// A server that says nothing for so long is dead.
const PATIENCE: Duration = Duration::from_secs(30);
/// Ticks of `/proc/PID/stat` in a second, as Linux has them on every machine that we know.
const TICKS: f64 = 100.0;

/// One row of the race.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Connections, each with a thread.
    pub connections: u32,
    /// Commands under way on each.
    pub outstanding: u32,
}

/// What one slice saw.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    samples: Samples,
    took: Duration,
    cpu_s: f64,
    /// Commands that were answered as done.
    pub done: u64,
}

/// A row's figures. Latencies in microseconds, over all samples of all slices.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which row.
    #[serde(flatten)]
    pub shape: Shape,
    /// `floor`, or what stands behind an answer.
    pub what: String,
    /// Commands a second: the median of the slices.
    pub per_second: f64,
    /// Of the floor of this row.
    pub ratio_to_floor: f64,
    /// CPU of the server for each.
    pub server_cpu_us: f64,
    /// The mean.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// The median, then one, two and three sigma.
    pub p50: f64,
    /// One sigma.
    pub p68_27: f64,
    /// Two sigma.
    pub p95_45: f64,
    /// Three sigma.
    pub p99_73: f64,
    /// The largest.
    pub max: f64,
}

impl Row {
    /// Of all slices of one subject.
    #[must_use]
    pub fn of(shape: Shape, what: &str, slices: &[Slice], floor: Option<&Row>) -> Self {
        let mut samples = Samples::default();
        slices.iter().for_each(|slice| samples.extend(&slice.samples));
        let mut sorted = samples.nanos().to_vec();
        sorted.sort_unstable();
        let at = |share: f64| micros(sorted.get(rank(sorted.len(), share)).copied().unwrap_or(0));
        let rates: Vec<f64> = slices.iter().map(|slice| per_second(slice.samples.len(), slice.took)).collect();
        let commands = number(sorted.len()).max(1.0);
        let per_second = median(&rates);
        Self {
            shape,
            what: what.to_owned(),
            per_second,
            ratio_to_floor: floor.map_or(1.0, |floor| per_second / floor.per_second.max(1e-9)),
            server_cpu_us: slices.iter().map(|slice| slice.cpu_s).sum::<f64>() * 1e6 / commands,
            mean: sorted.iter().copied().map(micros).sum::<f64>() / commands,
            min: at(0.0),
            p50: at(0.5),
            p68_27: at(0.6827),
            p95_45: at(0.9545),
            p99_73: at(0.9973),
            max: at(1.0),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
const fn number(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "durations below 52 days")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1_000.0
}

/// The place of the smallest sample that at least that share does not exceed.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
fn rank(length: usize, share: f64) -> usize {
    ((number(length) * share).ceil() as usize).saturating_sub(1).min(length.saturating_sub(1))
}

/// The server that is loaded.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Where it listens.
    pub at: Address,
    /// Its process, for its CPU time.
    pub process: u32,
    /// Whether it executes commands; the floor gives them back.
    pub executes: bool,
}

/// Loads a server for one slice. Commands go round over `assets` assets, numbered from 1.
///
/// # Errors
/// What the network says; `Internal` for an answer that is none.
pub fn drive(subject: &Subject, shape: Shape, assets: u64, slice: Duration) -> Result<Slice, BenchError> {
    let lines = (0..shape.connections).map(|_| connect(&subject.at)).collect::<Result<Vec<_>, _>>()?;
    let (cpu, began) = (cpu_s(subject.process), now());
    let results: Vec<Result<(Samples, u64), BenchError>> = std::thread::scope(|scope| {
        let load = |(number, stream): (u64, Stream)| {
            scope.spawn(move || Load::new(&stream, shape, assets, number, subject.executes).run(slice))
        };
        let threads: Vec<_> = (0..).zip(lines).map(load).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
    });
    let took = began.elapsed();
    let mut all = Slice { took, cpu_s: cpu_s(subject.process) - cpu, ..Slice::default() };
    for result in results {
        let (samples, done) = result?;
        all.samples.extend(&samples);
        all.done += done;
    }
    Ok(all)
}

fn panicked() -> BenchError {
    BenchError::new(Kind::Internal, "a client panicked")
}

fn connect(at: &Address) -> Result<Stream, BenchError> {
    let stream = Stream::connect(at, PATIENCE).and_then(|stream| {
        stream.set_timeouts(Some(PATIENCE), Some(PATIENCE))?;
        Ok(stream)
    });
    stream.map_err(|error| network(&error))
}

fn network(error: &std::io::Error) -> BenchError {
    BenchError::new(Kind::Unavailable, format!("a client of the race: {error}"))
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
fn now() -> Instant {
    Instant::now()
}

/// CPU time of a process so far, user and system.
#[expect(clippy::disallowed_methods, reason = "a fact of the machine, not of the product")]
fn cpu_s(process: u32) -> f64 {
    let text = std::fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    // The name may hold anything; what follows its bracket is fields 3 and on.
    let fields = text.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>()).unwrap_or_default();
    let field = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (field(11) + field(12)) / TICKS
}

/// One connection's client.
struct Load<'a> {
    stream: &'a Stream,
    outstanding: usize,
    executes: bool,
    /// One frame for each asset.
    frames: Vec<Vec<u8>>,
    next: usize,
    sent: VecDeque<Instant>,
    inbox: Vec<u8>,
}

impl<'a> Load<'a> {
    fn new(stream: &'a Stream, shape: Shape, assets: u64, number: u64, executes: bool) -> Self {
        let frame = |asset: u64| {
            let (mut command, mut frame) = (Writer::new(), Vec::new());
            Command::lay_batch(&mut command, None, &[Op::Add { id: AssetId(1 + asset), by: 1 }]);
            lay(&mut frame, Head { mark: asset, kind: KIND_COMMAND, ..Head::default() }, &[command.as_slice()]);
            frame
        };
        let frames: Vec<_> = (0..assets.max(1)).map(frame).collect();
        // Connections do not walk in step.
        let next = usize::try_from(number * 7_919).unwrap_or(0) % frames.len();
        let outstanding = usize::try_from(shape.outstanding).unwrap_or(1).max(1);
        Self { stream, outstanding, executes, frames, next, sent: VecDeque::new(), inbox: Vec::new() }
    }

    fn run(mut self, slice: Duration) -> Result<(Samples, u64), BenchError> {
        let (mut samples, mut done) = (Samples::default(), 0);
        let (began, mut buffer) = (now(), vec![0; READ_BYTES]);
        self.send(self.outstanding)?;
        while !self.sent.is_empty() {
            let read = match self.stream.read(&mut buffer) {
                Ok(0) => return Err(BenchError::new(Kind::Unavailable, "the server closed a connection of the race")),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(network(&error)),
            };
            self.inbox.extend_from_slice(buffer.get(..read).unwrap_or_default());
            let at = now();
            let answered = self.take(at, &mut samples)?;
            done += u64::try_from(answered).unwrap_or(0);
            if began.elapsed() < slice {
                self.send(answered)?;
            }
        }
        Ok((samples, done))
    }

    fn send(&mut self, count: usize) -> Result<(), BenchError> {
        let mut bytes = Vec::new();
        for _ in 0..count {
            bytes.extend_from_slice(self.frames.get(self.next).map(Vec::as_slice).unwrap_or_default());
            self.next = (self.next + 1) % self.frames.len();
        }
        let at = now();
        self.sent.extend(std::iter::repeat_n(at, count));
        let mut stream = self.stream;
        stream.write_all(&bytes).map_err(|error| network(&error))
    }

    /// Takes the answers that are whole.
    fn take(&mut self, at: Instant, samples: &mut Samples) -> Result<usize, BenchError> {
        let (mut taken, mut answered) = (0, 0);
        let wrong = |what: &str| BenchError::new(Kind::Internal, format!("the server of the race answered {what}"));
        loop {
            let rest = self.inbox.get(taken..).unwrap_or_default();
            let Some((frame, laid)) = parse(rest, ANSWER_BYTES_MAX).map_err(|error| wrong(&error.to_string()))? else {
                break;
            };
            if self.executes {
                match (frame.kind, Answer::read(frame.payload)) {
                    (KIND_ANSWER, Ok(Answer::Done(_))) => {}
                    (_, other) => return Err(wrong(&format!("{other:?}"))),
                }
            }
            let sent = self.sent.pop_front().ok_or_else(|| wrong("what nobody asked"))?;
            samples.push(at.saturating_duration_since(sent));
            (taken, answered) = (taken + laid, answered + 1);
        }
        self.inbox.drain(..taken.min(self.inbox.len()));
        Ok(answered)
    }
}

/// The floor: gives every byte back, with one thread, until it is killed. `ready` is told where.
///
/// # Errors
/// What the network says.
pub fn echo(ready: impl FnOnce(&Address)) -> Result<(), BenchError> {
    let bound = "127.0.0.1:0".parse().ok().map(|at| Listener::bind(&at));
    let mut listener = bound.unwrap_or_else(|| Err(ErrorKind::InvalidInput.into())).map_err(|error| network(&error))?;
    ready(&listener.address().map_err(|error| network(&error))?);
    serve_echo(&mut listener).map_err(|error| network(&error))
}

fn serve_echo(listener: &mut Listener) -> std::io::Result<()> {
    let mut poll = Poll::new()?;
    poll.registry().register(listener, Token(0), Interest::READABLE)?;
    let (mut events, mut buffer) = (Events::with_capacity(1_024), vec![0; READ_BYTES]);
    let mut peers: Vec<Option<(Peer, Vec<u8>)>> = Vec::new();
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &events {
            let Some(number) = event.token().0.checked_sub(1) else {
                while let Some(mut peer) = listener.accept()? {
                    let both = Interest::READABLE | Interest::WRITABLE;
                    poll.registry().register(&mut peer, Token(peers.len() + 1), both)?;
                    peers.push(Some((peer, Vec::new())));
                }
                continue;
            };
            if let Some(place) = peers.get_mut(number)
                && place.as_mut().is_some_and(|(peer, unsent)| !give_back(peer, unsent, &mut buffer))
            {
                *place = None;
            }
        }
    }
}

/// Writes back what was read; false when the other end has gone.
fn give_back(peer: &mut Peer, unsent: &mut Vec<u8>, buffer: &mut [u8]) -> bool {
    loop {
        while !unsent.is_empty() {
            match peer.write(unsent) {
                Ok(written) => _ = unsent.drain(..written.min(unsent.len())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        match peer.read(buffer) {
            Ok(0) => return false,
            Ok(read) => unsent.extend_from_slice(buffer.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(_) => return false,
        }
    }
}

/// What all assets say: how many commands were executed.
///
/// # Errors
/// As the client says.
pub fn executed(at: &Address, assets: u64) -> Result<u64, BenchError> {
    let mut client = client(at)?;
    let mut sum = 0;
    for first in (1..=assets).step_by(assent_assets::OPS_MAX) {
        let last = assets.min(first + u64::try_from(assent_assets::OPS_MAX).unwrap_or(1) - 1);
        let ops: Vec<Op> = (first..=last).map(|id| Op::Get { id: AssetId(id) }).collect();
        match client.execute(&ops).map_err(|error| BenchError::new(error.kind, error.message))? {
            Answer::Done(results) => sum += results.assets.iter().map(|asset| asset.updates).sum::<u64>(),
            other => return Err(BenchError::new(Kind::Internal, format!("the assets of the race answered {other:?}"))),
        }
    }
    Ok(sum)
}

/// Creates the assets of the race.
///
/// # Errors
/// As the client says.
pub fn create(at: &Address, assets: u64) -> Result<(), BenchError> {
    let mut client = client(at)?;
    for first in (1..=assets).step_by(assent_assets::OPS_MAX) {
        let last = assets.min(first + u64::try_from(assent_assets::OPS_MAX).unwrap_or(1) - 1);
        let ops: Vec<Op> = (first..=last).map(|id| Op::Create { id: AssetId(id), value: 0 }).collect();
        let answer = client.execute(&ops).map_err(|error| BenchError::new(error.kind, error.message))?;
        if !matches!(answer, Answer::Done(_)) {
            return Err(BenchError::new(Kind::Internal, format!("creating the assets of the race: {answer:?}")));
        }
    }
    Ok(())
}

fn client(at: &Address) -> Result<assent_assets::Client, BenchError> {
    let options =
        assent_assets::Options { session: false, patience: PATIENCE, ..assent_assets::Options::to(at.clone()) };
    assent_assets::Client::connect(options, std::sync::Arc::new(assent_world::RealClock))
        .map_err(|error| BenchError::new(error.kind, error.message))
}

/// A folder of one server of the race below the race's own.
#[must_use]
pub fn folder(base: &Path, ack: &str, shape: Shape) -> std::path::PathBuf {
    base.join(format!("{ack}-{}x{}", shape.connections, shape.outstanding))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use assent_assets::{Config, Door, Engine, Logics, Promise};
    use assent_journal::Journal;
    use assent_world::{RealClock, RealDice, RealDisk};

    use super::*;

    #[test]
    fn both_servers_are_loaded_by_one_client_and_nothing_is_lost_or_doubled() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, clock) = (Arc::new(RealDisk), Arc::new(RealClock));
        let log = Journal::open(
            disk.clone(),
            clock.clone(),
            Arc::new(RealDice),
            &folder.path().join("log"),
            Default::default(),
        );
        let config = Config::default();
        let opened = Engine::open(log.unwrap().0, disk, clock.clone(), folder.path(), config, Logics::default());
        let at = "127.0.0.1:0".parse().unwrap();
        let door = Door::open(Arc::new(opened.unwrap().0), Promise::default(), &at, clock).unwrap();
        create(door.address(), 1_500).unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || echo(|at| send.send(at.clone()).unwrap()));
        let process = std::process::id();
        let floor = Subject { at: receive.recv().unwrap(), process, executes: false };
        let subject = Subject { at: door.address().clone(), process, executes: true };
        let mut done = 0;
        for shape in [Shape { connections: 1, outstanding: 1 }, Shape { connections: 3, outstanding: 16 }] {
            let slices = [drive(&floor, shape, 1_500, Duration::from_millis(50)).unwrap()];
            let floor = Row::of(shape, "floor", &slices, None);
            let slices = [drive(&subject, shape, 1_500, Duration::from_millis(50)).unwrap()];
            done += slices[0].done;
            let row = Row::of(shape, "durable", &slices, Some(&floor));
            assert!(row.per_second > 0.0 && row.ratio_to_floor > 0.0, "{row:?}");
            assert!(row.min <= row.p50 && row.p50 <= row.p99_73 && row.p99_73 <= row.max, "{row:?}");
        }
        assert_eq!(executed(door.address(), 1_500).unwrap(), done);
    }

    #[test]
    fn a_share_is_the_nearest_rank() {
        assert_eq!([0.0, 0.5, 0.6827, 1.0].map(|share| rank(100, share)), [0, 49, 68, 99]);
        assert_eq!((rank(1, 0.5), rank(0, 1.0)), (0, 0));
    }
}
