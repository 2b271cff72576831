//! One thread that keeps all connections of a plan busy.
//!
//! Walk: [`drive`] connects, sends one request on each connection, and another one for each answer, until the window is over ·
//! [`Wire::read`] takes an answer in and checks it · requests that are sent in the window count, also where their answers come
//! behind its end.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::time::{Duration, Instant};

use assent_kind::Kind;
use assent_world::net::{Address, Events, Interest, Peer, Poll, Stream, Token};

use super::answer::{Answer, body_hash};
use super::{Group, Outcome, PATIENCE, Plan, network, wrong};
use crate::BenchError;

const READ_BYTES: usize = 128 << 10;
/// Ticks of `/proc/PID/stat` in a second, as Linux has them on every machine that we know.
const TICKS: f64 = 100.0;
/// How often it looks at the clock where nothing comes.
const LOOK: Duration = Duration::from_millis(20);
/// And where somebody is early.
const SOON: Duration = Duration::from_millis(1);

/// Runs a plan.
///
/// # Errors
/// What the network says; [`Kind::Corrupt`] for an answer that is not what was expected.
pub fn drive(plan: &Plan) -> Result<Outcome, BenchError> {
    let at: Address = plan.at.parse().map_err(|error| BenchError::new(Kind::Invalid, error))?;
    let mut poll = Poll::new().map_err(|error| network(&error))?;
    let mut wires = Vec::new();
    for (number, group) in plan.groups.iter().enumerate() {
        for _ in 0..group.connections {
            let mut wire = Wire::to(&at, number, group)?;
            let registered = poll.registry().register(&mut wire.peer, Token(wires.len()), Interest::READABLE);
            registered.map_err(|error| network(&error))?;
            wires.push(wire);
        }
    }
    Drive::new(plan).run(&mut poll, &mut wires)
}

struct Drive<'p> {
    plan: &'p Plan,
    outcome: Outcome,
    /// When the window begins, and when it ends.
    begins: Instant,
    ends: Instant,
    /// Processor time of server and generator when it began.
    before: Option<(f64, f64)>,
    counts: Vec<u64>,
    buffer: Vec<u8>,
}

impl<'p> Drive<'p> {
    fn new(plan: &'p Plan) -> Self {
        let begins = now() + Duration::from_millis(plan.warm_up_ms);
        let counts = plan.groups.iter().map(|group| group.counted.as_ref().map_or(0, |counted| counted.2)).collect();
        Self {
            plan,
            outcome: Outcome {
                nanos: vec![Vec::new(); plan.groups.len()],
                answered: vec![0; plan.groups.len()],
                ..Outcome::default()
            },
            begins,
            ends: begins + Duration::from_millis(plan.window_ms),
            before: None,
            counts,
            buffer: vec![0; READ_BYTES],
        }
    }

    fn run(mut self, poll: &mut Poll, wires: &mut [Wire]) -> Result<Outcome, BenchError> {
        let mut events = Events::with_capacity(1_024);
        let mut ready: VecDeque<usize> = (0..wires.len()).collect();
        let mut early = Vec::new();
        let mut under_way = 0_usize;
        let mut heard = now();
        loop {
            ready.extend(early.drain(..));
            while let Some(number) = ready.pop_front() {
                let Some(wire) = wires.get_mut(number) else { continue };
                if self.is_early(wire) {
                    early.push(number);
                } else if self.send(wire)? {
                    under_way += 1;
                }
            }
            if under_way == 0 && early.is_empty() {
                return Ok(self.end());
            }
            let pause = if early.is_empty() { LOOK } else { SOON };
            match poll.poll(&mut events, Some(pause)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(network(&error)),
                _ => {}
            }
            for event in &events {
                let number = event.token().0;
                let Some(wire) = wires.get_mut(number) else { continue };
                if self.read(wire)? {
                    under_way -= 1;
                    // At once: the server may go on while the other answers are looked at.
                    if self.is_early(wire) {
                        early.push(number);
                    } else if self.send(wire)? {
                        under_way += 1;
                    }
                }
                heard = now();
            }
            if under_way > 0 && heard.elapsed() > PATIENCE {
                return Err(BenchError::new(Kind::Unavailable, "the server of the race says nothing any more"));
            }
        }
    }

    /// Whether its next request is not due, and the window is not over.
    fn is_early(&self, wire: &Wire) -> bool {
        let at = now();
        at < self.ends && wire.due.is_some_and(|due| at < due)
    }

    /// Sends the next request, unless the window is over.
    fn send(&mut self, wire: &mut Wire) -> Result<bool, BenchError> {
        let at = now();
        if at >= self.ends {
            return Ok(false);
        }
        if self.before.is_none() && at >= self.begins {
            (self.before, self.begins) = (Some((cpu_s(self.plan.process), own_cpu_s())), at);
            // Where it begins late, it ends late.
            self.ends = at + Duration::from_millis(self.plan.window_ms);
        }
        let Some(group) = self.plan.groups.get(wire.group) else { return Ok(false) };
        if let Some((before, after, _)) = &group.counted {
            let count = self.counts.get_mut(wire.group).map_or(0, |count| {
                *count += 1;
                *count - 1
            });
            let body = format!("{before}{count}{after}");
            wire.request = format!("{}Content-Length: {}\r\n\r\n{body}", group.head, body.len()).into_bytes();
        }
        wire.sent = Some(at);
        wire.due = group.per_s_max.map(|most| wire.due.unwrap_or(at) + Duration::from_secs(1) / most.max(1));
        match wire.peer.write(&wire.request) {
            Ok(written) if written == wire.request.len() => Ok(true),
            Ok(_) => Err(BenchError::new(Kind::Internal, "a request did not fit a socket's buffer")),
            Err(error) => Err(network(&error)),
        }
    }

    /// Reads what there is; whether the answer is whole.
    fn read(&mut self, wire: &mut Wire) -> Result<bool, BenchError> {
        let Some(group) = self.plan.groups.get(wire.group) else { return Ok(false) };
        if !wire.read(&mut self.buffer, group)? {
            return Ok(false);
        }
        let Some(sent) = wire.sent.take() else { return Err(wrong("what nobody asked")) };
        self.outcome.answered.get_mut(wire.group).into_iter().for_each(|all| *all += 1);
        if self.before.is_some() && sent >= self.begins {
            let nanos = u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.outcome.nanos.get_mut(wire.group).into_iter().for_each(|all| all.push(nanos));
            self.outcome.bytes += u64::try_from(wire.bytes).unwrap_or(0);
        }
        Ok(true)
    }

    fn end(mut self) -> Outcome {
        let (server, own) = self.before.unwrap_or_default();
        self.outcome.took_s = self.begins.elapsed().as_secs_f64();
        self.outcome.server_cpu_s = cpu_s(self.plan.process) - server;
        self.outcome.client_cpu_s = own_cpu_s() - own;
        self.outcome
    }
}

/// A connection.
struct Wire {
    peer: Peer,
    group: usize,
    request: Vec<u8>,
    sent: Option<Instant>,
    /// When the next one may be sent.
    due: Option<Instant>,
    /// Of an answer that came in more than one piece: what came so far.
    inbox: Vec<u8>,
    /// Of the last answer.
    bytes: usize,
}

impl Wire {
    fn to(at: &Address, number: usize, group: &Group) -> Result<Self, BenchError> {
        let peer = Stream::connect(at, PATIENCE).and_then(Stream::into_peer).map_err(|error| network(&error))?;
        let request = format!("{}\r\n", group.head).into_bytes();
        Ok(Self { peer, group: number, request, sent: None, due: None, inbox: Vec::new(), bytes: 0 })
    }

    /// Reads until there is a whole answer, or nothing more.
    fn read(&mut self, buffer: &mut [u8], group: &Group) -> Result<bool, BenchError> {
        loop {
            let count = match self.peer.read(buffer) {
                Ok(0) => return Err(wrong("nothing and closed")),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(network(&error)),
            };
            let piece = buffer.get(..count).unwrap_or_default();
            let whole = if self.inbox.is_empty() { piece } else { &[] };
            if let Some(bytes) = taken(whole, group)? {
                self.bytes = bytes;
                return Ok(true);
            }
            self.inbox.extend_from_slice(piece);
            if let Some(bytes) = taken(&self.inbox, group)? {
                self.bytes = bytes;
                self.inbox.clear();
                return Ok(true);
            }
        }
    }
}

/// The bytes of the answer that stands here, if it is whole and as expected.
fn taken(bytes: &[u8], group: &Group) -> Result<Option<usize>, BenchError> {
    let Some(answer) = Answer::of(bytes)? else { return Ok(None) };
    let expected = group.expected;
    if answer.status != expected.status {
        return Err(wrong(format!("{}, not {}", answer.status, expected.status)));
    }
    if bytes.len() < answer.bytes() {
        return Ok(None);
    }
    if bytes.len() > answer.bytes() {
        return Err(wrong("more than was asked"));
    }
    if let Some((length, hash)) = expected.body {
        let body = bytes.get(answer.head_bytes..).unwrap_or_default();
        if (body.len(), body_hash(body)) != (length, hash) {
            return Err(wrong(format!("{} bytes that are not the {length} of the document", body.len())));
        }
    }
    Ok(Some(answer.bytes()))
}

/// Processor time of a process so far, user and system.
fn cpu_s(process: u32) -> f64 {
    #[expect(clippy::disallowed_methods, reason = "a fact of the machine, not of the product")]
    let text = std::fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // The name may hold anything; what follows its bracket is fields 3 and on.
    let mut fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(11);
    let mut field = || fields.next().and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (field() + field()) / TICKS
}

fn own_cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default().as_secs_f64()
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::super::{Expected, floor};
    use super::*;

    fn plan(bytes: usize) -> Plan {
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || floor::serve(bytes, |at| send.send(at).unwrap()));
        let body = floor::body(bytes);
        let group = Group {
            connections: 3,
            head: "GET / HTTP/1.1\r\nHost: floor\r\n".to_owned(),
            counted: None,
            per_s_max: None,
            expected: Expected { status: 200, body: Some((bytes, body_hash(&body))) },
        };
        let counted = Some(("{\"n\":".to_owned(), "}".to_owned(), 9));
        let writer = Group { connections: 1, counted, ..group.clone() };
        Plan {
            at: receive.recv().unwrap().to_string(),
            process: std::process::id(),
            warm_up_ms: 5,
            window_ms: 60,
            groups: vec![group, writer],
        }
    }

    #[test]
    fn every_group_is_answered_and_every_answer_of_the_window_is_timed() {
        for bytes in [18_000, 300_000] {
            let outcome = drive(&plan(bytes)).unwrap();
            let counts: Vec<u64> = outcome.nanos.iter().map(|all| all.len() as u64).collect();
            assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
            assert!(outcome.bytes >= counts.iter().sum::<u64>() * bytes as u64);
            assert!(outcome.took_s >= 0.06 && outcome.nanos[0].iter().all(|it| *it > 0), "{} s", outcome.took_s);
        }
    }

    #[test]
    fn who_asks_so_often_at_most_asks_no_more_often() {
        let mut plan = plan(100);
        plan.groups[1].per_s_max = Some(200);
        let begun = now();
        let outcome = drive(&plan).unwrap();
        let most = begun.elapsed().as_millis() / 5 + 1;
        assert!((1..=most).contains(&u128::from(outcome.answered[1])), "{:?} of {most}", outcome.answered);
        assert!(outcome.answered[0] > 0);
    }

    #[test]
    fn an_answer_that_is_another_one_ends_the_race() {
        let right = plan(18_000);
        type Change = fn(&mut Expected);
        let wrong: [Change; 3] = [
            |it| it.status = 201,
            |it| it.body = it.body.map(|(bytes, hash)| (bytes + 1, hash)),
            |it| it.body = it.body.map(|(bytes, hash)| (bytes, hash ^ 1)),
        ];
        for change in wrong {
            let mut plan = right.clone();
            change(&mut plan.groups[0].expected);
            assert_eq!(drive(&plan).unwrap_err().kind, Kind::Corrupt);
        }
        drive(&right).unwrap();
    }
}
