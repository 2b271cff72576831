//! `assent witness`: a ledger served to the members of its groups, by one thread.
//!
//! Walk: what has arrived is parsed, question after question · a change is on the disk before its answer · a watch is
//! parked until something changes or its time is up · a full house closes the connection that was silent the longest.
//! Deliberately absent: TLS and accounts. Whoever reaches it can change everything.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use assent_kind::Kind;
use assent_membership::Configuration;
use assent_world::net::{Address, Events, Interest, Listener, Peer, Poll, Token, Waker};
use assent_world::{Clock, Moment};

use crate::arbiter::GroupName;
use crate::ledger::Ledger;
use crate::message::{self, KIND_QUESTION, Question, Refusal};

/// As many connections at once.
pub const CONNECTIONS_MAX: usize = 256;

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST: usize = 2;
/// Answers that a member does not read; beyond this its connection is closed.
const UNREAD_BYTES_MAX: usize = 64 << 10;
/// How soon an accept that failed for want of descriptors is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// A witness at work.
#[derive(Debug)]
pub struct Door {
    address: Address,
    stopping: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Serves this ledger there until it is stopped or dropped.
    ///
    /// # Errors
    /// As the operating system says of the address.
    pub fn open(ledger: Ledger, at: &Address, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let mut listener = Listener::bind(at)?;
        let address = listener.address()?;
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let stopping = Arc::new(AtomicBool::new(false));
        let desk = Desk {
            ledger,
            listener,
            poll,
            clock,
            stopping: Arc::clone(&stopping),
            members: BTreeMap::new(),
            next: FIRST,
            accept_again: false,
        };
        let thread = std::thread::Builder::new().name("witness".to_owned()).spawn(move || desk.work())?;
        Ok(Self { address, stopping, waker, thread: Some(thread) })
    }

    /// Where it really listens.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Closes all connections and gives the folder back. What was answered is on the disk.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // If it cannot be woken it has ended already.
        _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.end();
    }
}

struct Desk {
    ledger: Ledger,
    listener: Listener,
    poll: Poll,
    clock: Arc<dyn Clock>,
    stopping: Arc<AtomicBool>,
    members: BTreeMap<usize, Connection>,
    next: usize,
    accept_again: bool,
}

struct Connection {
    peer: Peer,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    parked: Option<Parked>,
    heard: Moment,
}

/// A watch that waits.
struct Parked {
    mark: u64,
    group: GroupName,
    seen: u64,
    until: Moment,
}

impl Desk {
    fn work(mut self) {
        let mut events = Events::with_capacity(64);
        while !self.stopping.load(Ordering::SeqCst) {
            let pause = self.pause();
            match self.poll.poll(&mut events, pause) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return,
                _ => {}
            }
            if self.accept_again || events.iter().any(|event| event.token() == LISTENER) {
                self.accept();
            }
            let ready: Vec<usize> =
                events.iter().map(|event| event.token().0).filter(|token| *token >= FIRST).collect();
            ready.into_iter().for_each(|token| self.turn(token));
            self.answer_watches();
        }
    }

    /// Until the next watch is over.
    fn pause(&self) -> Option<Duration> {
        let now = self.clock.now();
        let watches = self.members.values().filter_map(|member| member.parked.as_ref());
        let next = watches.map(|parked| parked.until.since(now)).min();
        let again = self.accept_again.then_some(AGAIN);
        // Whole milliseconds are what a poll waits; a watch must not be looked at just before it is over.
        next.map(|pause| pause.saturating_add(Duration::from_millis(1))).into_iter().chain(again).min()
    }

    fn accept(&mut self) {
        self.accept_again = false;
        loop {
            let mut peer = match self.listener.accept() {
                Ok(Some(peer)) => peer,
                Ok(None) => return,
                Err(_) => {
                    self.accept_again = true;
                    return;
                }
            };
            if self.members.len() >= CONNECTIONS_MAX {
                self.close_the_most_silent();
            }
            let token = self.next;
            self.next = self.next.wrapping_add(1).max(FIRST);
            let both = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut peer, Token(token), both).is_ok() {
                let (inbox, outbox) = (Vec::new(), Vec::new());
                self.members.insert(token, Connection { peer, inbox, outbox, parked: None, heard: self.clock.now() });
                self.turn(token);
            }
        }
    }

    /// A member's connection with a watch is silent because it waits; those go last.
    fn close_the_most_silent(&mut self) {
        let silent = |(_, member): &(&usize, &Connection)| (member.parked.is_some(), member.heard);
        if let Some(token) = self.members.iter().min_by_key(silent).map(|(token, _)| *token) {
            self.members.remove(&token);
        }
    }

    /// Reads, answers, writes; a connection that is over is closed.
    fn turn(&mut self, token: usize) {
        let Some(mut member) = self.members.remove(&token) else { return };
        let open = member.hear();
        let understood = self.answer_all(&mut member);
        if open && understood && member.say() {
            self.members.insert(token, member);
        }
    }

    /// Whether all of it were questions.
    fn answer_all(&mut self, member: &mut Connection) -> bool {
        let inbox = std::mem::take(&mut member.inbox);
        let mut rest = inbox.as_slice();
        loop {
            match assent_frame::parse(rest, message::BYTES_MAX) {
                Ok(Some((frame, laid))) if frame.kind == KIND_QUESTION => {
                    member.heard = self.clock.now();
                    match message::read_question(frame.payload) {
                        Ok(question) => self.answer(member, frame.mark, question),
                        Err(refusal) => message::lay_answer(&mut member.outbox, frame.mark, &Err(refusal)),
                    }
                    rest = rest.get(laid..).unwrap_or_default();
                }
                Ok(None) => break,
                Ok(Some(_)) | Err(_) => return false,
            }
        }
        member.inbox = rest.to_vec();
        member.outbox.len() <= UNREAD_BYTES_MAX
    }

    fn answer(&mut self, member: &mut Connection, mark: u64, question: Question) {
        let Question { group, expect, wait_ms, to } = question;
        let answer = match &to {
            Some(to) => self.ledger.change(&group, expect, to).map_err(Refusal::from),
            None => self.ledger.read(&group).map_err(Refusal::from),
        };
        let waits = to.is_none() && wait_ms > 0 && answer.as_ref().is_ok_and(|held| held.version == expect);
        if !waits {
            return message::lay_answer(&mut member.outbox, mark, &answer);
        }
        if member.parked.is_some() {
            let why = "a connection has one watch at a time".to_owned();
            return message::lay_answer(&mut member.outbox, mark, &Err(Refusal { kind: Kind::Busy, why }));
        }
        let until = self.clock.now().after(Duration::from_millis(u64::from(wait_ms)));
        member.parked = Some(Parked { mark, group, seen: expect, until });
    }

    fn answer_watches(&mut self) {
        let now = self.clock.now();
        let mut over = Vec::new();
        for (token, member) in &mut self.members {
            let Some(parked) = &member.parked else { continue };
            let held: Result<Configuration, Refusal> = self.ledger.read(&parked.group).map_err(Refusal::from);
            let changed = held.as_ref().map_or(true, |held| held.version != parked.seen);
            if changed || now >= parked.until {
                message::lay_answer(&mut member.outbox, parked.mark, &held);
                member.parked = None;
                if !member.say() {
                    over.push(*token);
                }
            }
        }
        for token in over {
            self.members.remove(&token);
        }
    }
}

impl Connection {
    /// Takes in what has arrived; false if the other end has gone, or says more than a question at once.
    fn hear(&mut self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match self.peer.read(&mut buffer) {
                Ok(0) => return false,
                Ok(read) => self.inbox.extend_from_slice(buffer.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if self.inbox.len() > UNREAD_BYTES_MAX {
                return false;
            }
        }
    }

    /// Writes what can be written; false if the other end has gone.
    fn say(&mut self) -> bool {
        while !self.outbox.is_empty() {
            match self.peer.write(&self.outbox) {
                Ok(0) => return false,
                Ok(written) => _ = self.outbox.drain(..written.min(self.outbox.len())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}
