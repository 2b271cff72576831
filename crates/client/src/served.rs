//! The coordinator in another process, over one link that all threads share.
//!
//! Walk: [`Served::begin`] names a transaction, greeting the coordinator if nobody has · [`Served::decide`] asks until
//! there is an answer or the time is over, over as many connections as it takes · `line` connects, resuming the
//! incarnation; a fenced one is replaced, and then the old one's transactions are only asked about, never decided.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assent_ids::{Epoch, Mark, NodeId, ResourceId, TxId};
use assent_kind::Kind;
use assent_link::{Link, LinkError};
use assent_wire::{self as wire, Answer, Hello, Request, Role, Session};
use assent_world::{Clock, Moment};
use assent_xa::{Ballot, DecideError, Decider, Decision, Deviation, Heuristic, Native, Outcome, Voted};

use crate::notes::{Ballots, Notes, Strayed, Told};
use crate::{ClientConfig, Known};

/// Beyond, the oldest is dropped: the coordinator then remembers it until this client is gone.
const DOUBTS_MAX: usize = 4_096;

/// What the coordinator is told of a resource's own words.
const WORDS_BYTES_MAX: usize = 1_024;

/// The first version with rows of a last resource.
const ROWS_SINCE: u16 = 5;

/// What has travelled between this client and the coordinator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections greeted.
    pub handshakes: u64,
    /// Requests that were sent and waited for: decisions and questions.
    pub round_trips: u64,
    /// Messages without an answer: what may be forgotten.
    pub one_way: u64,
    /// Heartbeats of an idle connection.
    pub heartbeats: u64,
}

#[derive(Debug, Default)]
struct Counters {
    handshakes: AtomicU64,
    round_trips: AtomicU64,
    one_way: AtomicU64,
    heartbeats: AtomicU64,
}

/// A connection and who we are on it.
#[derive(Clone, Debug)]
struct Line {
    link: Arc<Link>,
    session: Session,
}

#[derive(Debug, Default)]
struct State {
    line: Option<Line>,
    /// Kept when the line is lost: transactions go on with it, and it is resumed.
    session: Option<Session>,
    node: Option<NodeId>,
    /// Of the protocol, on the last line.
    version: u16,
    /// When the last question that was answered was sent: from then on, or later, the coordinator counts our silence.
    heard: Option<Moment>,
    /// So long after that nobody has taken this client for lost: half of what a client may be away.
    trust: Duration,
    /// Another one says that the coordinator has restarted.
    epoch: Option<Epoch>,
    counter: u64,
    notes: Notes,
    /// Transactions whose decision had no answer: whoever learns it later lets the coordinator forget them.
    doubts: VecDeque<TxId>,
}

/// A served coordinator.
#[derive(Debug)]
pub(crate) struct Served {
    config: ClientConfig,
    /// What the handshake has found registered.
    resources: BTreeSet<ResourceId>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Held by whoever connects: which try was the last, and why it failed, if it did.
    dial: Mutex<Option<(u64, LinkError)>>,
    /// How many tries have begun.
    dialled: AtomicU64,
    counters: Counters,
}

/// Nothing was decided by this question, or it may have been.
enum Trouble {
    /// It did not reach the coordinator, or was refused for the moment.
    NotSent(DecideError),
    /// It may have.
    Lost(DecideError),
    /// Asking again changes nothing.
    Final(DecideError),
}

fn error(kind: Kind, message: impl Into<String>) -> DecideError {
    DecideError { kind, message: message.into() }
}

fn add(counter: &AtomicU64) {
    // Only read by people.
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Served {
    pub(crate) fn new(config: ClientConfig) -> Self {
        let clock = Arc::clone(&config.link.clock);
        let resources = config.resources.iter().map(|name| ResourceId::of(name)).collect();
        Self {
            config,
            resources,
            clock,
            state: Mutex::default(),
            dial: Mutex::default(),
            dialled: AtomicU64::new(0),
            counters: Counters::default(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { handshakes, round_trips, one_way, heartbeats } = &self.counters;
        Counts {
            handshakes: read(handshakes),
            round_trips: read(round_trips),
            one_way: read(one_way),
            heartbeats: read(heartbeats),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can panic half-way through a change that matters.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that works, as far as anyone knows.
    fn line(&self) -> Result<Line, LinkError> {
        let before = self.dialled.load(Ordering::Acquire);
        if let Some(line) = self.living() {
            return Ok(line);
        }
        let mut dial = self.dial.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have connected while we waited.
        if let Some(line) = self.living() {
            return Ok(line);
        }
        // Or has tried since we came, and could not. Else each of many who wait would try for as long, in turn.
        if let Some((_, error)) = dial.clone().filter(|(number, _)| *number > before) {
            return Err(error);
        }
        let number = self.dialled.fetch_add(1, Ordering::AcqRel) + 1;
        let connected = self.connect();
        *dial = connected.as_ref().err().map(|error| (number, error.clone()));
        connected
    }

    fn living(&self) -> Option<Line> {
        self.state().line.clone().filter(|line| line.link.is_whole())
    }

    fn connect(&self) -> Result<Line, LinkError> {
        let begun = self.clock.now();
        let resume = self.state().session;
        let link = match (self.greet(resume), resume) {
            // It was away for too long, or the server does not know it: a new one. What the old one left undecided can
            // only be rolled back.
            (Err(LinkError::Refused { kind: Kind::RolledBack | Kind::Denied | Kind::NotFound, .. }), Some(_)) => {
                self.greet(None)?
            }
            (greeted, _) => greeted?,
        };
        let refuse = |kind, message| {
            link.close("not the coordinator of this client");
            Err(LinkError::Refused { kind, message })
        };
        let (node, epoch, at) = (link.welcome().node, link.welcome().epoch, link.address());
        let Some(session) = link.welcome().session else {
            return refuse(Kind::Invalid, format!("server {at} has no coordinator"));
        };
        let mut state = self.state();
        if let Some(home) = state.node.filter(|home| *home != node) {
            // Transactions of two nodes may bear the same name here.
            let message = format!("server {at} is node {node} now, this client's is {home}; make another client");
            return refuse(Kind::Conflict, message);
        }
        state.node = Some(node);
        state.version = link.welcome().version;
        let heard = state.heard.replace(begun);
        state.trust = Duration::from_millis(u64::from(link.welcome().limits.client_lost_ms) / 2);
        if state.session.is_none_or(|mine| mine.incarnation != session.incarnation) {
            state.counter = 0;
        }
        state.session = Some(session);
        state.notes.lost();
        if state.epoch.replace(epoch).is_some_and(|before| before != epoch) {
            state.notes.restarted(heard.unwrap_or_default());
        }
        let line = Line { link: Arc::new(link), session };
        state.line = Some(line.clone());
        Ok(line)
    }

    fn greet(&self, resume: Option<Session>) -> Result<Link, LinkError> {
        let resources = self.config.resources.iter().map(String::as_str).collect();
        let role = Role::Client { label: &self.config.label, resume, resources };
        let token = self.config.token.as_ref().map_or("", |token| token.0.as_str());
        let hello = Hello { token, ..Hello::new(role) };
        add(&self.counters.handshakes);
        Link::connect(&self.config.address, &hello, &self.config.link)
    }

    /// One request, with what may be forgotten in the same write.
    fn request(&self, line: &Line, request: &Request<'_>) -> Result<assent_link::Arrived, LinkError> {
        let (told, sent) = (self.tell(line), self.clock.now());
        let arrived = line.link.request(request);
        match &arrived {
            Ok(_) => {
                let now = self.clock.now();
                let mut state = self.state();
                state.notes.proven(told, now);
                state.heard = state.heard.max(Some(sent));
            }
            Err(LinkError::Unavailable { .. } | LinkError::InDoubt { .. }) => {
                // A silent connection is not trusted either.
                line.link.close("the client gave this connection up");
            }
            Err(_) => {}
        }
        arrived
    }

    /// Queues what may be forgotten; the number to prove it by.
    fn tell(&self, line: &Line) -> u64 {
        let mut state = self.state();
        if state.line.as_ref().is_none_or(|mine| !Arc::ptr_eq(&mine.link, &line.link)) {
            return 0;
        }
        if let Some(Told { ballots, noted, strayed, finished, acknowledged }) =
            state.notes.take(line.session.incarnation)
        {
            // An older coordinator keeps no votes.
            let ballots = ballots.iter().map(votes).filter(|it| it.since() <= line.link.welcome().version);
            let noted = noted.iter().map(|decision| Request::Noted(decide(decision, true)));
            let noted = noted.filter(|it| it.since() <= line.link.welcome().version);
            let strayed = strayed.iter().map(heuristic);
            let forgettable = [Request::Finished(finished), Request::Acknowledged(acknowledged)].into_iter().filter(
                |message| !matches!(message, Request::Finished(list) | Request::Acknowledged(list) if list.is_empty()),
            );
            for message in ballots.chain(noted).chain(strayed).chain(forgettable) {
                // A link that takes nothing is broken: its notes go again with the next one.
                if line.link.one_way(&message).is_ok() {
                    add(&self.counters.one_way);
                }
            }
        }
        state.notes.number()
    }

    fn attempt(&self, decision: &Decision, first: bool) -> Result<Outcome, Trouble> {
        let line = self.line().map_err(|trouble| match trouble {
            LinkError::Refused { kind, message } if kind != Kind::Busy && kind != Kind::Unavailable => {
                Trouble::Final(error(kind, message))
            }
            trouble => Trouble::NotSent(error(trouble.kind(), trouble.to_string())),
        })?;
        if line.session.incarnation != decision.tx.incarnation {
            return self.ask_about(&line, decision, first);
        }
        add(&self.counters.round_trips);
        let arrived = self.request(&line, &Request::Decide(decide(decision, first))).map_err(lost_or_not)?;
        match arrived.answer().map_err(lost_or_not)? {
            Answer::Decided(wire::Outcome::Committed) => Ok(Outcome::Committed),
            Answer::Decided(wire::Outcome::RolledBack) => Ok(Outcome::RolledBack),
            _ => Err(Trouble::Lost(error(Kind::InDoubt, "the coordinator's answer says nothing"))),
        }
    }

    /// About a transaction of an incarnation that is fenced: it decides nothing any more. But somebody may have decided it in its place, a person above
    /// all, also where its own question was never sent.
    fn ask_about(&self, line: &Line, decision: &Decision, first: bool) -> Result<Outcome, Trouble> {
        let known = self.ask_on(line, decision.tx).map_err(|trouble| {
            let told = error(Kind::InDoubt, trouble.to_string());
            if first { Trouble::NotSent(told) } else { Trouble::Lost(told) }
        })?;
        match known {
            Known::Committed => Ok(Outcome::Committed),
            Known::RolledBack => Ok(Outcome::RolledBack),
            Known::Undecided | Known::Unknown if first => {
                let message = "this client was away for too long and is fenced: nothing was decided";
                Err(Trouble::Final(error(Kind::RolledBack, message)))
            }
            Known::Undecided | Known::InDoubt => {
                Err(Trouble::Lost(error(Kind::InDoubt, "this client is fenced, and recovery has not decided yet")))
            }
            Known::Unknown => Err(Trouble::Final(error(Kind::InDoubt, "the coordinator does not know it any more"))),
        }
    }

    pub(crate) fn ask(&self, tx: TxId) -> Result<Known, LinkError> {
        let known = self.ask_on(&self.line()?, tx)?;
        if !matches!(known, Known::Undecided | Known::InDoubt) {
            let mut state = self.state();
            if let Some(place) = state.doubts.iter().position(|doubt| *doubt == tx) {
                state.doubts.remove(place);
                if known != Known::Unknown {
                    state.notes.acknowledged(tx);
                }
            }
        }
        Ok(known)
    }

    /// Nobody but us can tell the coordinator that we know it, once we do.
    fn doubt(&self, tx: TxId) {
        let mut state = self.state();
        if state.doubts.len() >= DOUBTS_MAX {
            state.doubts.pop_front();
        }
        state.doubts.push_back(tx);
    }

    fn decided(&self, decision: &Decision) -> Result<Outcome, DecideError> {
        let deadline = self.clock.now().after(Duration::from_millis(self.config.decide_ms));
        let (mut may_be_decided, mut was_lost) = (!decision.first, false);
        loop {
            let mut asks_again = false;
            let told = match self.attempt(decision, !may_be_decided) {
                Ok(outcome) => return Ok(outcome),
                Err(Trouble::NotSent(told)) => told,
                Err(Trouble::Lost(told)) => {
                    may_be_decided = true;
                    // However long nobody answered there: whoever has taken the coordinator's place may know.
                    asks_again = !std::mem::replace(&mut was_lost, true);
                    told
                }
                // That a repeated question was refused says nothing about the first one.
                Err(Trouble::Final(told)) if may_be_decided => return Err(error(Kind::InDoubt, told.message)),
                Err(Trouble::Final(told)) => return Err(told),
            };
            if self.clock.now() >= deadline && !asks_again {
                return Err(if may_be_decided { error(Kind::InDoubt, told.message) } else { told });
            }
            self.clock.sleep(Duration::from_millis(self.config.pause_ms));
        }
    }

    /// Whether the client of this transaction is not lost, as far as the coordinator has said lately, or says now.
    fn is_heard(&self, tx: TxId) -> Result<bool, LinkError> {
        {
            let (state, now) = (self.state(), self.clock.now());
            let is_mine = state.session.is_some_and(|session| session.incarnation == tx.incarnation);
            if is_mine && state.heard.is_some_and(|heard| now.since(heard) < state.trust) {
                return Ok(true);
            }
        }
        let line = self.line()?;
        if line.session.incarnation != tx.incarnation {
            return Ok(false);
        }
        add(&self.counters.round_trips);
        self.request(&line, &Request::Ping).map(|_| true)
    }

    fn ask_on(&self, line: &Line, tx: TxId) -> Result<Known, LinkError> {
        self.known(line, &Request::Ask(tx))
    }

    fn known(&self, line: &Line, question: &Request<'_>) -> Result<Known, LinkError> {
        add(&self.counters.round_trips);
        let arrived = self.request(line, question)?;
        match arrived.answer()? {
            Answer::Known(wire::Known::Committed) => Ok(Known::Committed),
            Answer::Known(wire::Known::RolledBack) => Ok(Known::RolledBack),
            Answer::Known(wire::Known::Undecided) => Ok(Known::Undecided),
            Answer::Known(wire::Known::Unknown) => Ok(Known::Unknown),
            Answer::Known(wire::Known::InDoubt) => Ok(Known::InDoubt),
            _ => Err(LinkError::InDoubt { message: "the coordinator's answer says nothing".to_owned() }),
        }
    }

    /// Keeps the incarnation alive and tells what may be forgotten; reconnects a lost line. Before the first handshake
    /// there is nothing to keep.
    pub(crate) fn beat(&self) {
        let (line, waits, was_greeted) = {
            let state = self.state();
            (state.line.clone(), state.notes.is_waiting(), state.session.is_some())
        };
        match line.filter(|line| line.link.is_whole()) {
            Some(line) => {
                let heartbeat = Duration::from_millis(line.link.welcome().limits.heartbeat_ms.into());
                if waits || (!heartbeat.is_zero() && line.link.idle() >= heartbeat / 2) {
                    add(&self.counters.heartbeats);
                    // If it fails, the next beat connects anew.
                    _ = self.request(&line, &Request::Ping);
                }
            }
            // If it fails, the next beat tries again; whoever needs it tries too, and tells.
            None if was_greeted => _ = self.line(),
            None => {}
        }
    }

    /// The last word: what may be forgotten is told, and the connection ends.
    pub(crate) fn end(&self) {
        if let Some(line) = self.living() {
            if !self.state().notes.is_empty() {
                _ = self.request(&line, &Request::Ping);
            }
            line.link.close("the client has ended");
        }
    }
}

fn decide(decision: &Decision, first: bool) -> wire::Decide<'_> {
    let branches = decision.branches.iter().map(|branch| wire::BranchRecord {
        resource: branch.resource,
        number: branch.number,
        flags: branch.flags,
        mark: branch.mark,
        witness: &branch.witness,
    });
    wire::Decide { tx: decision.tx, outcome: outcome_of(decision.outcome), first, branches: branches.collect() }
}

const fn outcome_of(outcome: Outcome) -> wire::Outcome {
    match outcome {
        Outcome::Committed => wire::Outcome::Committed,
        Outcome::RolledBack => wire::Outcome::RolledBack,
    }
}

fn heuristic(strayed: &Strayed) -> Request<'_> {
    let branches = strayed.branches.iter().map(deviation).collect();
    Request::Heuristic { tx: strayed.tx, told: outcome_of(strayed.told), branches }
}

fn deviation(it: &Deviation) -> wire::Deviation<'_> {
    let heuristic = match it.heuristic {
        Heuristic::Committed => wire::Heuristic::Committed,
        Heuristic::RolledBack => wire::Heuristic::RolledBack,
        Heuristic::Mixed => wire::Heuristic::Mixed,
        Heuristic::Hazard => wire::Heuristic::Hazard,
    };
    wire::Deviation { resource: it.resource, number: it.number, flags: it.flags, heuristic, native: native(&it.native) }
}

fn votes(ballots: &Ballots) -> Request<'_> {
    fn voted(it: &Voted) -> wire::Voted<'_> {
        let Voted { resource, number, voice } = it;
        let vote = match voice.ballot {
            Ballot::Yes => wire::Vote::Yes,
            Ballot::ReadOnly => wire::Vote::ReadOnly,
            Ballot::No => wire::Vote::No,
        };
        let (retries, native) = (voice.retries, native(&voice.native));
        wire::Voted { resource: *resource, number: *number, vote, retries, native }
    }
    let Ballots { tx, outcome, votes } = ballots;
    Request::Votes { tx: *tx, outcome: outcome_of(*outcome), votes: votes.iter().map(voted).collect() }
}

fn native(it: &Native) -> wire::Native<'_> {
    wire::Native { code: cut(&it.code), message: cut(&it.message) }
}

/// A resource's words may be of any length, and a message may not.
fn cut(words: &str) -> &str {
    words.get(..words.floor_char_boundary(WORDS_BYTES_MAX)).unwrap_or_default()
}

fn lost_or_not(trouble: LinkError) -> Trouble {
    let told = error(trouble.kind(), trouble.to_string());
    match trouble {
        LinkError::InDoubt { .. } => Trouble::Lost(told),
        LinkError::Unavailable { .. } | LinkError::Busy { .. } => Trouble::NotSent(told),
        LinkError::Refused { kind: Kind::InDoubt, .. } => Trouble::Final(told),
        LinkError::Refused { kind: Kind::Busy | Kind::Unavailable, .. } => Trouble::NotSent(told),
        LinkError::Refused { .. } | LinkError::Wire(_) => Trouble::Final(told),
    }
}

impl Decider for Served {
    fn begin(&self) -> Result<(NodeId, TxId), DecideError> {
        if self.state().session.is_none() {
            self.line().map_err(|trouble| error(trouble.kind(), trouble.to_string()))?;
        }
        let mut state = self.state();
        let (Some(session), Some(node)) = (state.session, state.node) else {
            return Err(error(Kind::Unavailable, format!("server {} has not answered", self.config.address)));
        };
        state.counter += 1;
        Ok((node, TxId { incarnation: session.incarnation, counter: state.counter }))
    }

    fn decide(&self, decision: &Decision) -> Result<Outcome, DecideError> {
        let decided = self.decided(decision);
        if decided.as_ref().is_err_and(|error| error.kind == Kind::InDoubt) {
            self.doubt(decision.tx);
        }
        decided
    }

    fn settles(&self, resources: &[ResourceId]) -> bool {
        let state = self.state();
        // What is not noted leaves a row that nobody lets go of before this client's end.
        state.version >= ROWS_SINCE
            && !state.notes.is_full()
            && resources.iter().all(|resource| self.resources.contains(resource))
    }

    fn may_decide(&self, tx: TxId) -> Result<(), DecideError> {
        let deadline = self.clock.now().after(Duration::from_millis(self.config.decide_ms));
        loop {
            let message = match self.is_heard(tx) {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    let message = format!("the client of {tx} was away for too long: it decides nothing any more");
                    return Err(error(Kind::RolledBack, message));
                }
                Err(trouble) => trouble.to_string(),
            };
            if self.clock.now() >= deadline {
                return Err(error(Kind::Unavailable, message));
            }
            self.clock.sleep(Duration::from_millis(self.config.pause_ms));
        }
    }

    fn noted(&self, decision: &Decision) {
        self.state().notes.noted(decision.clone());
    }

    fn settle(&self, tx: TxId, mark: Mark) -> Result<Outcome, DecideError> {
        let deadline = self.clock.now().after(Duration::from_millis(self.config.decide_ms));
        let mut was_asked = false;
        let message = loop {
            let asked = self.line().and_then(|line| {
                let is_fenced = line.session.incarnation != tx.incarnation;
                // Of an incarnation that is fenced nothing is settled but by recovery, which asks for the row by itself.
                let question = if is_fenced { Request::Ask(tx) } else { Request::Settle { tx, mark } };
                Ok((self.known(&line, &question)?, is_fenced))
            });
            let message = match asked {
                Ok((Known::Committed, _)) => return Ok(Outcome::Committed),
                Ok((Known::RolledBack, _)) => return Ok(Outcome::RolledBack),
                Ok((Known::Unknown, true)) => break "the coordinator does not know it any more".to_owned(),
                Ok((Known::Undecided | Known::InDoubt | Known::Unknown, _)) => {
                    format!("the row of {tx} has not answered yet")
                }
                Err(trouble) => trouble.to_string(),
            };
            // As of a decision: twice, however long nobody answers.
            if self.clock.now() >= deadline && std::mem::replace(&mut was_asked, true) {
                break message;
            }
            self.clock.sleep(Duration::from_millis(self.config.pause_ms));
        };
        self.doubt(tx);
        Err(error(Kind::InDoubt, message))
    }

    fn finished(&self, tx: TxId) {
        self.state().notes.finished(tx);
    }

    fn acknowledged(&self, tx: TxId) {
        self.state().notes.acknowledged(tx);
    }

    fn heuristic(&self, tx: TxId, told: Outcome, branches: &[Deviation]) {
        self.state().notes.heuristic(Strayed { tx, told, branches: branches.to_vec() });
    }

    fn voted(&self, tx: TxId, outcome: Outcome, votes: &[Voted]) {
        self.state().notes.voted(Ballots { tx, outcome, votes: votes.to_vec() });
    }
}
