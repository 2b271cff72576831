//! The clients of the race: connections, each with a thread that keeps so many commands under way for a slice.
//!
//! Walk: [`drive`] connects all, then runs them · a [`Load`] sends as many as were answered, one write for each read.
//! The same client drives servers and floors: what it costs is in both.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use assent_kind::Kind;
use assent_world::net::{Address, Stream};

use super::speech::{Answered, Speech};
use super::{Case, Spread, failed};
use crate::BenchError;
use crate::kv::keys::Draw;
use crate::stats::Samples;

const READ_BYTES: usize = 1 << 16;
/// A server that says nothing for so long is dead.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The assets of one client's commands, drawn before the clock starts.
const DRAWN: usize = 1 << 14;

/// What one slice saw.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// From a command's write to the read that held its answer.
    pub samples: Samples,
    /// From the first write to the last answer.
    pub took: Duration,
    /// Commands that were answered as done.
    pub done: u64,
}

/// Loads a server for one slice.
///
/// # Errors
/// What the network says; `Internal` for an answer that is none.
pub fn drive(at: &Address, speech: Speech, case: &Case, slice: Duration) -> Result<Slice, BenchError> {
    let connections = case.shape.connections;
    let lines = (0..connections).map(|_| connect(at)).collect::<Result<Vec<_>, _>>()?;
    let gate = Barrier::new(lines.len() + 1);
    let (results, took) = std::thread::scope(|scope| {
        let load = |(number, stream): (u64, Stream)| {
            let gate = &gate;
            scope.spawn(move || Load::new(&stream, case, number, speech).run(gate, slice))
        };
        let threads: Vec<_> = (0..).zip(lines).map(load).collect();
        gate.wait();
        let began = now();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|_| Err(panicked()));
        let results: Vec<Result<(Samples, u64), BenchError>> = threads.into_iter().map(join).collect();
        (results, began.elapsed())
    });
    let mut all = Slice { took, ..Slice::default() };
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
    stream.map_err(|error| failed("a client of the race", &error))
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
fn now() -> Instant {
    Instant::now()
}

/// Places of the assets that commands fall on, in their order.
fn order(case: &Case, number: u64) -> Vec<usize> {
    let assets = case.reached().max(1);
    let place = |at: u64| usize::try_from(at).unwrap_or(0);
    match case.spread {
        Spread::Hot => vec![0],
        // Connections do not walk in step.
        Spread::Even => (0..assets).map(|at| place((at + number * 7_919) % assets)).collect(),
        Spread::Zipf => {
            let weights = (1..=assets).scan(0.0, |sum, rank| {
                *sum += 1.0 / float(rank);
                Some(*sum)
            });
            let (weights, mut draw): (Vec<f64>, _) = (weights.collect(), Draw::new(number));
            let all = weights.last().copied().unwrap_or(1.0);
            let mut drawn = || {
                let share = draw.share() * all;
                weights.partition_point(|sum| *sum <= share).min(weights.len() - 1)
            };
            (0..DRAWN).map(|_| drawn()).collect()
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rank below 2^52")]
const fn float(rank: u64) -> f64 {
    rank as f64
}

/// Commands that were written at once.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    commands: usize,
    /// Of them so many have no answer.
    left: usize,
}

/// One connection's client.
struct Load<'a> {
    stream: &'a Stream,
    outstanding: usize,
    speech: Speech,
    /// A request for each asset, and what follows those of one write.
    requests: Vec<Vec<u8>>,
    closing: Option<Vec<u8>>,
    order: Vec<usize>,
    next: usize,
    sent: VecDeque<Sent>,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
}

impl<'a> Load<'a> {
    fn new(stream: &'a Stream, case: &Case, number: u64, speech: Speech) -> Self {
        Self {
            stream,
            outstanding: usize::try_from(case.shape.outstanding).unwrap_or(1).max(1),
            speech,
            requests: (0..case.reached().max(1)).map(|asset| speech.request(asset)).collect(),
            closing: speech.closing(),
            order: order(case, number),
            next: 0,
            sent: VecDeque::new(),
            inbox: Vec::new(),
            outbox: Vec::new(),
        }
    }

    fn run(mut self, gate: &Barrier, slice: Duration) -> Result<(Samples, u64), BenchError> {
        let (mut samples, mut done) = (Samples::default(), 0);
        let mut buffer = vec![0; READ_BYTES];
        gate.wait();
        let began = now();
        self.send(self.outstanding)?;
        while !self.sent.is_empty() {
            let read = match self.stream.read(&mut buffer) {
                Ok(0) => return Err(BenchError::new(Kind::Unavailable, "the server closed a connection of the race")),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed("a client of the race", &error)),
            };
            self.inbox.extend_from_slice(buffer.get(..read).unwrap_or_default());
            let at = now();
            let answered = self.take(at, &mut samples)?;
            done += u64::try_from(answered).unwrap_or(0);
            if at.saturating_duration_since(began) < slice {
                self.send(answered)?;
            }
        }
        Ok((samples, done))
    }

    fn send(&mut self, commands: usize) -> Result<(), BenchError> {
        if commands == 0 {
            return Ok(());
        }
        self.outbox.clear();
        for _ in 0..commands {
            let request = self.order.get(self.next).and_then(|at| self.requests.get(*at));
            self.outbox.extend_from_slice(request.map(Vec::as_slice).unwrap_or_default());
            self.next = (self.next + 1) % self.order.len();
        }
        self.closing.iter().for_each(|closing| self.outbox.extend_from_slice(closing));
        let left = commands + usize::from(self.closing.is_some());
        self.sent.push_back(Sent { at: now(), commands, left });
        let mut stream = self.stream;
        stream.write_all(&self.outbox).map_err(|error| failed("a client of the race", &error))
    }

    /// Takes the answers that are whole. Where something closes a write, its answer is that of all commands of the write.
    fn take(&mut self, at: Instant, samples: &mut Samples) -> Result<usize, BenchError> {
        let (mut taken, mut answered) = (0, 0);
        let wrong = |what: &str| BenchError::new(Kind::Internal, format!("the server of the race answered {what}"));
        let closes = self.closing.is_some();
        while let Some(rest) = self.inbox.get(taken..).filter(|rest| !rest.is_empty()) {
            let sent = self.sent.front_mut().ok_or_else(|| wrong("what nobody asked"))?;
            let said = self.speech.answer(rest, closes && sent.left == 1).map_err(|what| wrong(&what))?;
            let Some(Answered { bytes }) = said else { break };
            taken += bytes;
            sent.left -= 1;
            let commands = match (closes, sent.left) {
                (false, _) => 1,
                (true, 0) => sent.commands,
                (true, _) => 0,
            };
            let took = at.saturating_duration_since(sent.at);
            (0..commands).for_each(|_| samples.push(took));
            answered += commands;
            if sent.left == 0 {
                self.sent.pop_front();
            }
        }
        self.inbox.drain(..taken.min(self.inbox.len()));
        Ok(answered)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Role, Shape};
    use super::*;

    #[test]
    fn commands_fall_on_all_assets_on_one_or_mostly_on_the_first() {
        let case = |spread| Case {
            role: Role::Solo,
            shape: Shape { connections: 2, outstanding: 1 },
            spread,
            assets: 100,
            rtt_us: 0,
            subscribers: 0,
        };
        let mut even = order(&case(Spread::Even), 1);
        assert_ne!(even, order(&case(Spread::Even), 0), "connections do not walk in step");
        even.sort_unstable();
        assert_eq!(even, (0..100).collect::<Vec<_>>());
        assert_eq!(order(&case(Spread::Hot), 1), [0]);
        let zipf = order(&case(Spread::Zipf), 1);
        let of = |asset: usize| zipf.iter().filter(|at| **at == asset).count();
        // The first of a hundred is drawn as often as 1 of 5.19, the second half as often.
        assert!((of(0) * 519 / 100).abs_diff(DRAWN) < DRAWN / 10, "{}", of(0));
        assert!((of(1) * 2).abs_diff(of(0)) < of(0) / 5, "{} {}", of(0), of(1));
        assert!(zipf.iter().all(|at| *at < 100));
    }
}
