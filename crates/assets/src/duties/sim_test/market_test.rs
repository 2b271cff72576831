//! Who plays with a group of assets: sessions that ask for many things at once, one without a session, one that moves money by branches,
//! and one that subscribes; and what they were told, held against the book and against each other.
//!
//! Walk: [`Market::client`] gives one his turn: it hears, is connected, asks, sends · what was answered is judged at once by the [`Book`], and
//! at the end by asset: one order explains all answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use assent_frame::Writer;
use assent_ids::Xid;
use assent_membership::{Member, Sequence};
use assent_replica::Entry;
use assent_replica::simulation_test::{Play, Stage};
use assent_sim::linear::{Timed, Verdict, linearizable};
use assent_sim::register::{self, Call, Did, Register, Registers};
use assent_sim::{Rng, SimClock};
use assent_world::net::Address;

use super::book_test::Book;
use super::caller_test::{Asked, Caller, Heard};
use crate::command::{Command, Request};
use crate::message::Ask;
use crate::{
    Answer, Asset, AssetId, GroupDoor, GroupDoorConfig, Limits, Logics, Machine, News, Op, Refusal, Results,
    SessionName,
};

const SESSIONS: u8 = 3;
const STRANGER: u8 = 3;
const MOVER: u8 = 4;
const READER: u8 = 5;
/// Assets between which money is moved, and others.
const BANK: u64 = 4;
const STRANGE: u64 = 7;
const ASSETS: u64 = 8;
const MONEY: i64 = 1_000;
/// So many of its requests a session has under way.
const WINDOW: u32 = 8;
const STATES_MAX: usize = 200_000;

#[derive(Debug)]
struct Session {
    name: SessionName,
    is_open: bool,
    /// The request that its next command has.
    next: u64,
}

/// Money on its way, by two branches.
#[derive(Debug)]
struct Move {
    branches: [(Xid, u64, i64); 2],
    /// What each voted, as far as known, and what the asset would be.
    votes: Vec<(bool, Option<Register>)>,
    /// Not before.
    ends_ms: u64,
    /// Those whose outcome is asked for, and when it was.
    ending: Vec<(usize, u64)>,
    has_ended: bool,
}

#[derive(Debug)]
pub(super) struct Market {
    limits: Limits,
    pub(super) book: Book,
    callers: Vec<Caller>,
    sessions: Vec<Session>,
    moving: Option<Move>,
    /// How many were begun.
    moves: u64,
    /// How many of all changes the subscriber knows, if there is one.
    known: Option<usize>,
    /// Since when somebody knows that the assets are there.
    created: Option<u64>,
    is_quiet: bool,
    /// Counts turns: the clock that all callers share.
    tick: u64,
    history: BTreeMap<u64, Vec<Timed<Did>>>,
    acked: usize,
    highest: Sequence,
    voted: Sequence,
    /// Branches that ended, news that were told, and what was read that does not stand in the log.
    pub(super) ended: u64,
    pub(super) news: u64,
    pub(super) reads: u64,
}

fn laid(lay: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut out = Writer::new();
    lay(&mut out);
    out.into_vec()
}

impl Market {
    pub(super) fn new(seed: u64) -> Self {
        // In one of four there is no room for all sessions: they give way to each other.
        let sessions_max = if seed.is_multiple_of(4) { 2 } else { 64 };
        let session = |at: u8| Session { name: SessionName(seed << 32 | u64::from(at)), is_open: false, next: 1 };
        Self {
            limits: Limits { sessions_max, ..Limits::default() },
            book: Book::new(sessions_max),
            callers: (0..=READER).map(|_| Caller::default()).collect(),
            sessions: (0..SESSIONS).map(session).collect(),
            moving: None,
            moves: 0,
            known: None,
            created: None,
            is_quiet: false,
            tick: 0,
            history: BTreeMap::new(),
            acked: 0,
            highest: Sequence(0),
            voted: Sequence(0),
            ended: 0,
            news: 0,
            reads: 0,
        }
    }

    /// What somebody wants, and what it does to which asset.
    fn wish(rng: &mut Rng) -> (Vec<Op>, Vec<(u64, Call)>) {
        let other = BANK + rng.below(STRANGE - BANK);
        let (id, value) = (AssetId(other), i64::try_from(rng.below(9)).unwrap());
        match rng.below(10) {
            0..=2 => {
                let (from, to) = two(rng);
                let ops = [take(from, value), give(to, value)];
                (ops.to_vec(), vec![(from, Call::Add(-value)), (to, Call::Add(value))])
            }
            3 => (vec![Op::Set { id, value }], vec![(other, Call::Set(value))]),
            4 => (
                vec![Op::CompareAndSet { id, expected: value, value: value + 1 }],
                vec![(other, Call::CompareAndSet(value, value + 1))],
            ),
            5 => (vec![Op::AddWithin { id, by: value, min: 0, max: 20 }], vec![(other, Call::Add(value))]),
            6 => (vec![Op::Get { id }], vec![(other, Call::Get)]),
            7 => (
                vec![Op::Add { id, by: 1 }, Op::Get { id }, Op::Add { id, by: -3 }],
                vec![(other, Call::Add(1)), (other, Call::Get), (other, Call::Add(-3))],
            ),
            _ => (vec![Op::Add { id, by: value }], vec![(other, Call::Add(value))]),
        }
    }

    /// What a session asks for next: first that the assets are there.
    fn ask_as_session(&mut self, client: u8, rng: &mut Rng) {
        let (caller, session) = (&mut self.callers[usize::from(client)], &mut self.sessions[usize::from(client)]);
        let request = Some(Request { session: session.name, number: session.next, window: WINDOW });
        let (ops, calls) = if session.next == 1 {
            let value = |id| if id < BANK { MONEY } else { 0 };
            ((0..ASSETS).map(|id| Op::Create { id: AssetId(id), value: value(id) }).collect(), Vec::new())
        } else {
            Self::wish(rng)
        };
        let command = laid(|out| Command::lay_batch(out, request, &ops));
        caller.ask(&command, calls, self.tick, Some((session.name, session.next)));
        session.next += 1;
    }

    fn session_turn(&mut self, client: u8, rng: &mut Rng) {
        let at = usize::from(client);
        if !self.sessions[at].is_open {
            // What it lays behind that waits until it is known to be open.
            if self.callers[at].waiting.is_empty() && !self.is_quiet {
                let open = laid(|out| Command::lay_open(out, self.sessions[at].name));
                self.callers[at].ask(&open, Vec::new(), self.tick, None);
            }
            return;
        }
        let room = usize::try_from(WINDOW).unwrap() - self.callers[at].waiting.len();
        if !self.is_quiet && rng.below(3) == 0 {
            for _ in 0..rng.index(room + 1) {
                self.ask_as_session(client, rng);
            }
        }
    }

    fn session_hears(&mut self, client: u8, asked: &Asked, answer: &Answer, rng: &mut Rng) -> Result<(), String> {
        let at = usize::from(client);
        let name = self.sessions[at].name;
        let Some((session, number)) = asked.request else {
            self.sessions[at].is_open = *answer == Answer::Opened(name);
            return if self.sessions[at].is_open { Ok(()) } else { Err(format!("{name:?} is not opened: {answer:?}")) };
        };
        let executed = self.book.requests.get(&(session, number));
        if *answer == Answer::InDoubt {
            if !self.book.evicted.contains(&session) {
                return Err(format!("request {number} of {session:?} is in doubt, and nobody has forgotten it"));
            }
            // It may have been done before, and is not done any more.
            if let Some((_, Answer::Done(results))) = executed.cloned() {
                self.note_all(asked, &results, None);
            }
            if session == name {
                // Its client begins anew.
                self.sessions[at] = Session { name: SessionName(rng.roll()), is_open: false, next: 1 };
            }
            return Ok(());
        }
        match executed {
            Some((executed, expected)) if expected == answer => {
                self.highest = self.highest.max(*executed);
                // The first request creates them, or is told that they are there.
                self.created = self.created.or(Some(self.tick));
                self.done(asked, answer)
            }
            other => Err(format!("request {number} of {session:?} is told {answer:?}; executed was {other:?}")),
        }
    }

    fn stranger_turn(&mut self, rng: &mut Rng) {
        let caller = &mut self.callers[usize::from(STRANGER)];
        if self.is_quiet || caller.waiting.len() >= 4 || rng.below(3) > 0 {
            return;
        }
        let id = rng.below(ASSETS);
        let (op, call) = match rng.below(2) {
            0 => (Op::Get { id: AssetId(id) }, (id, Call::Get)),
            // Nobody else sets it, and to no other value twice: so the log tells what became of what is in doubt.
            _ => {
                let value = i64::try_from(self.tick).unwrap();
                (Op::Set { id: AssetId(STRANGE), value }, (STRANGE, Call::Set(value)))
            }
        };
        let (ops, calls) = ([op], vec![call]);
        caller.ask(&laid(|out| Command::lay_batch(out, None, &ops)), calls, self.tick, None);
    }

    /// It was answered: that is held against all other answers at the end.
    fn done(&mut self, asked: &Asked, answer: &Answer) -> Result<(), String> {
        match answer {
            Answer::Done(results) => {
                self.acked += 1;
                let is_read = matches!(asked.calls[..], [(_, Call::Get)]);
                self.reads += u64::from(is_read && asked.request.is_none());
                self.note_all(asked, results, Some(self.tick));
            }
            Answer::Refused { refusal: Refusal::Differs { value, .. }, .. } => {
                let (asset, call) = asked.calls[0];
                self.note(asset, call, register::Answer::Differs(*value), asked.since, Some(self.tick));
            }
            // Who has no session is refused only before anybody knows that the assets are there; of a session the book has judged.
            Answer::Refused { refusal: Refusal::Unknown { .. }, .. }
                if self.created.is_none_or(|created| asked.since <= created) => {}
            Answer::Refused { .. } if asked.request.is_some() => {}
            other => return Err(format!("{asked:?} is answered {other:?}")),
        }
        Ok(())
    }

    fn note_all(&mut self, asked: &Asked, results: &Results, returned: Option<u64>) {
        for ((asset, call), is) in asked.calls.iter().zip(&results.assets) {
            self.note(*asset, *call, register::Answer::Done(register(is)), asked.since, returned);
        }
    }

    fn doubt(&mut self, asked: &Asked) {
        for (asset, call) in &asked.calls {
            self.note(*asset, *call, register::Answer::InDoubt, asked.since, None);
        }
    }

    fn note(&mut self, asset: u64, call: Call, answer: register::Answer, invoked: u64, returned: Option<u64>) {
        self.history.entry(asset).or_default().push(Timed { op: Did { call, answer }, invoked, returned });
    }

    fn mover_turn(&mut self, now_ms: u64, rng: &mut Rng) {
        let caller = &mut self.callers[usize::from(MOVER)];
        if !caller.waiting.is_empty() {
            return;
        }
        let Some(moving) = &mut self.moving else {
            if !self.is_quiet && rng.below(4) == 0 {
                self.moves += 1;
                let ((from, to), by) = (two(rng), i64::try_from(rng.below(300)).unwrap() + 1);
                let number = self.moves.to_be_bytes();
                let branch = |name: &[u8], id, by| (Xid::new(7, &number, name).unwrap(), id, by);
                let branches = [branch(b"from", from, -by), branch(b"to", to, by)];
                for (xid, id, by) in &branches {
                    let op = if *by < 0 { take(*id, -by) } else { give(*id, *by) };
                    caller.ask(&laid(|out| Command::lay_prepare(out, xid, &[op])), Vec::new(), self.tick, None);
                }
                let ends_ms = now_ms + rng.below(2) * rng.below(300);
                self.moving = Some(Move { branches, votes: Vec::new(), ends_ms, ending: Vec::new(), has_ended: false });
            }
            return;
        };
        if moving.has_ended {
            self.moving = None;
        } else if now_ms >= moving.ends_ms || self.is_quiet {
            let commits = moving.votes.iter().all(|(yes, _)| *yes);
            moving.has_ended = true;
            for (at, _) in moving.votes.iter().enumerate().filter(|(_, (yes, _))| *yes) {
                let xid = &moving.branches[at].0;
                caller.ask(&laid(|out| Command::lay_outcome(out, xid, commits)), Vec::new(), self.tick, None);
                moving.ending.push((at, self.tick));
            }
        }
    }

    fn mover_hears(&mut self, asked: &Asked, answer: &Answer) -> Result<(), String> {
        let moving = self.moving.as_mut().ok_or("nothing is moved")?;
        if !moving.has_ended {
            let (xid, ..) = moving.branches[moving.votes.len()];
            let vote = match answer {
                Answer::Voted(Results { assets, .. }) => (true, Some(register(&assets[0]))),
                // Its results were told to nobody; the log has them.
                Answer::Refused { refusal: Refusal::BranchKnown, .. } if asked.is_again => {
                    (true, self.book.votes.get(&xid).map(register))
                }
                Answer::Refused {
                    refusal: Refusal::Held { .. } | Refusal::Bounds { .. } | Refusal::Unknown { .. },
                    ..
                } => (false, None),
                other => return Err(format!("branch {xid:?} votes {other:?}; asked again: {}", asked.is_again)),
            };
            if vote.0 {
                let at = self.book.prepared_at.get(&xid).ok_or_else(|| format!("{xid:?} is prepared by nobody"))?;
                self.voted = self.voted.max(*at);
                self.acked += 1;
            }
            moving.votes.push(vote);
            return Ok(());
        }
        let commits = moving.votes.iter().all(|(yes, _)| *yes);
        let (at, since) = moving.ending.remove(0);
        let ((xid, asset, by), vote) = (moving.branches[at], moving.votes[at].1);
        if *answer != Answer::Done(Results::default()) {
            return Err(format!("the outcome of {xid:?}, which voted, is answered {answer:?}"));
        }
        let ended = self.book.ended_at.get(&xid).ok_or_else(|| format!("{xid:?} is ended by nobody"))?;
        self.voted = self.voted.max(*ended);
        self.highest = self.highest.max(*ended);
        self.acked += 1;
        self.ended += 1;
        if commits {
            let told = vote.map_or(register::Answer::InDoubt, register::Answer::Done);
            self.note(asset, Call::Add(by), told, since, Some(self.tick));
        }
        Ok(())
    }

    /// Every change is told, one after the other, as long as a connection lives.
    fn reader_hears(&mut self, news: &[News]) -> Result<(), String> {
        for one in news {
            let News::Change(change) = one else { return Err(format!("a subscriber with room is told {one:?}")) };
            let at = self.known.ok_or("there is news before the subscription is answered")?;
            if self.book.changes.get(at) != Some(change) {
                let expected = self.book.changes.get(at);
                return Err(format!("a subscriber is told {change:?}; behind what it knows is {expected:?}"));
            }
            self.known = Some(at + 1);
            self.news += 1;
        }
        Ok(())
    }

    fn heard(&mut self, client: u8, heard: Vec<Heard>, rng: &mut Rng) -> Result<(), String> {
        for one in heard {
            match (client, one) {
                (_, Heard::News(news)) => self.reader_hears(&news)?,
                (_, Heard::Since(at)) => {
                    self.known = Some(self.book.changes.partition_point(|change| change.sequence <= at));
                }
                (MOVER, Heard::Answer(asked, answer)) => self.mover_hears(&asked, &answer)?,
                (STRANGER, Heard::Answer(asked, answer)) => self.done(&asked, &answer)?,
                (_, Heard::Answer(asked, answer)) => self.session_hears(client, &asked, &answer, rng)?,
                // Who has no session does not ask again; nothing of it was done.
                (STRANGER, Heard::Refused) => _ = self.callers[usize::from(STRANGER)].waiting.pop_front(),
                (_, Heard::Refused) => {}
            }
        }
        Ok(())
    }

    /// Money is moved, and none is made or lost.
    fn is_all_there(&self) -> Result<(), String> {
        let (sum, whole) = (self.book.sum(0..BANK), i64::try_from(BANK).unwrap() * MONEY);
        if sum == whole { Ok(()) } else { Err(format!("there are {sum} of {whole}")) }
    }

    /// Whether one order explains all answers about an asset, and what was done without one.
    fn is_linear(&self, asset: u64) -> Result<(), String> {
        let start = Register { value: if asset < BANK { MONEY } else { 0 }, updates: 0 };
        let mut history = self.history.get(&asset).cloned().unwrap_or_default();
        let changes = self.book.changes.iter().filter(|change| change.id == AssetId(asset));
        let of = |value| changes.clone().filter_map(|change| change.asset).find(|asset| asset.value == value);
        history.retain_mut(|timed| match (timed.op.call, &mut timed.op.answer) {
            (Call::Set(value), answer @ register::Answer::InDoubt) if asset == STRANGE => {
                let done = of(value).map(|asset| register::Answer::Done(register(&asset)));
                *answer = done.unwrap_or(*answer);
                done.is_some()
            }
            _ => true,
        });
        match linearizable(&Registers, start, &history, STATES_MAX) {
            Verdict::Linearizable => Ok(()),
            Verdict::Contradiction { at, placed, state } => Err(format!(
                "asset {asset}: behind {placed} of {} calls it is {state:?}, and that does not explain {:?}",
                history.len(),
                history[at]
            )),
            Verdict::Undecided { visited } => Err(format!("asset {asset}: not decided within {visited} states")),
        }
    }
}

const fn register(asset: &Asset) -> Register {
    Register { value: asset.value, updates: asset.updates }
}

fn two(rng: &mut Rng) -> (u64, u64) {
    let from = rng.below(BANK);
    (from, (from + 1 + rng.below(BANK - 1)) % BANK)
}

const fn take(id: u64, by: i64) -> Op {
    Op::AddWithin { id: AssetId(id), by: -by, min: 0, max: i64::MAX }
}

const fn give(id: u64, by: i64) -> Op {
    Op::Add { id: AssetId(id), by }
}

impl Play for Market {
    type Machine = Machine;
    type Front = GroupDoor;

    fn machine(&self) -> Machine {
        Machine::new(self.limits, Logics::default())
    }

    fn front(&mut self, _: Member, clock: &SimClock) -> GroupDoor {
        let nodes = (0..3).map(|member| (Member(member), Address::Unix(member.to_string().into()))).collect();
        let config = GroupDoorConfig { nodes, trace_every: 0, clients_max: 64, window_ms: 0 };
        GroupDoor::closed(config, Arc::new(clock.clone()))
    }

    fn clients(&self) -> u8 {
        READER + 1
    }

    fn client(&mut self, client: u8, stage: &mut Stage<'_, Self>) -> Result<Option<usize>, String> {
        let at = usize::from(client);
        self.tick += 1;
        let (heard, mut is_lost) = self.callers[at].hear(stage.now_ms)?;
        self.heard(client, heard, stage.rng)?;
        is_lost |= stage.faults && stage.rng.below(80) == 0;
        if is_lost {
            let gone = self.callers[at].lose(stage, client != STRANGER);
            gone.iter().for_each(|asked| self.doubt(asked));
            self.known = self.known.filter(|_| client != READER);
        }
        if client == READER && is_lost {
            self.callers[at].member = stage.rng.index(stage.seats.len());
        }
        if self.callers[at].connect(stage) && client == READER {
            let mut frame = Vec::new();
            Ask::Subscribe { wanted: Vec::new(), most: 65_536 }.lay(&mut frame, 1);
            self.callers[at].say(&frame);
        }
        match client {
            STRANGER => self.stranger_turn(stage.rng),
            MOVER => self.mover_turn(stage.now_ms, stage.rng),
            READER => {}
            _ => self.session_turn(client, stage.rng),
        }
        Ok(self.callers[at].send(stage))
    }

    fn executed(&mut self, _: Member, entry: &Entry, answer: &[u8], is_first: bool) -> Result<(), String> {
        self.book.execute(entry, answer, is_first)?;
        // Between the outcomes of two branches some of it is on its way.
        let is_moving = self.moving.as_ref().is_some_and(|moving| moving.has_ended);
        if is_moving || self.book.changes.is_empty() { Ok(()) } else { self.is_all_there() }
    }

    fn voted(&self) -> Sequence {
        self.voted
    }

    fn acknowledged(&self) -> (usize, Sequence) {
        (self.acked, self.highest)
    }

    fn quiet(&mut self) {
        self.is_quiet = true;
    }

    fn is_idle(&self) -> bool {
        // The subscriber knows everything: nothing follows that would show what it missed.
        self.known == Some(self.book.changes.len())
            && self.moving.is_none()
            && self.callers.iter().all(|caller| caller.waiting.is_empty())
    }

    fn audit(&self, member: Member, machine: &Machine) -> Result<(), String> {
        self.book.audit(machine, ASSETS).map_err(|broken| format!("member {member}: {broken}"))?;
        self.is_all_there()?;
        (0..ASSETS).try_for_each(|asset| self.is_linear(asset))
    }
}
