//! A member's connections: one out to each other member, and those that come in.
//!
//! Walk: [`Wires::say`] lays a message behind what waits for a member · [`Wires::flush`] writes what can be written · what arrives is
//! parsed whole ([`Wires::hear`]) · a connection out is made by a thread of its own, again and again, and handed in
//! ([`Wires::wire`]).
//! What cannot be said is lost, as messages are: a member that reads nothing costs a bounded buffer.
//! Deliberately absent: TLS and accounts. Whoever reaches a member can speak for another.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use assent_membership::Member;
use assent_world::net::{Address, Interest, Listener, Peer, Proofs, Registry, Stream, Token};
use assent_world::{Clock, Gate};

use crate::message::Message;

pub(crate) const LISTENER: Token = Token(0);
pub(crate) const WAKER: Token = Token(1);
const FIRST: usize = 2;
/// Bytes that a member has not read; what comes on top is lost.
const UNREAD_BYTES_MAX: usize = 8 << 20;
/// Connections that come in at once.
const INBOUND_MAX: usize = 64;
/// Reads of one connection in one turn: nobody keeps the others waiting.
const READS_MAX: u32 = 16;
const READ_BYTES: usize = 64 << 10;
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// A member whose machine vanished takes nothing more on this connection, though it is back: Linux tries again at intervals that grow to two minutes. So it
/// is connected to anew.
const UNANSWERED_MAX: Duration = Duration::from_secs(5);
const CONNECT_AGAIN: Duration = Duration::from_millis(50);
/// How soon an accept that failed for want of descriptors is tried again.
pub(crate) const ACCEPT_AGAIN: Duration = Duration::from_millis(200);

/// The connections.
#[derive(Debug)]
pub(crate) struct Wires {
    listener: Listener,
    registry: Registry,
    inbound: BTreeMap<usize, Inbound>,
    outbound: BTreeMap<Member, Outbound>,
    next: usize,
    /// Somebody may wait to be taken in, and nobody says it again.
    pub(crate) accept_again: bool,
    /// Connections with more to read than one turn takes.
    unread: Vec<usize>,
    buffer: Vec<u8>,
    /// Bytes in and out.
    bytes: (u64, u64),
}

#[derive(Debug)]
struct Inbound {
    peer: Peer,
    inbox: Vec<u8>,
    /// It has said what a member says.
    spoke: bool,
}

#[derive(Debug)]
struct Outbound {
    token: usize,
    peer: Peer,
    outbox: Vec<u8>,
    /// How much of the outbox is written.
    written: usize,
    connector: Arc<Gate>,
}

/// How reading a connection ended.
enum Turn {
    /// There is nothing more now.
    Empty,
    /// There may be more.
    More,
    /// The other end has gone, or said what no member says.
    Over,
}

/// A new connection out to a member.
#[derive(Debug)]
pub(crate) struct Wired {
    pub(crate) to: Member,
    peer: Peer,
    connector: Arc<Gate>,
}

impl Wires {
    pub(crate) fn new(mut listener: Listener, registry: Registry) -> io::Result<Self> {
        registry.register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            listener,
            registry,
            inbound: BTreeMap::new(),
            outbound: BTreeMap::new(),
            next: FIRST,
            accept_again: false,
            unread: Vec::new(),
            buffer: vec![0; READ_BYTES],
            bytes: (0, 0),
        })
    }

    fn token(&mut self) -> usize {
        let token = self.next;
        self.next = self.next.wrapping_add(1).max(FIRST);
        token
    }

    /// Takes in who comes.
    pub(crate) fn accept(&mut self) {
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
            if self.inbound.len() >= INBOUND_MAX {
                // Strangers go, not members: one that loses its connection takes the other for lost.
                let stranger = self.inbound.iter().find(|(_, inbound)| !inbound.spoke).map(|(token, _)| *token);
                let Some(stranger) = stranger else { continue };
                self.inbound.remove(&stranger);
            }
            let token = self.token();
            if self.registry.register(&mut peer, Token(token), Interest::READABLE).is_ok() {
                self.inbound.insert(token, Inbound { peer, inbox: Vec::new(), spoke: false });
            }
        }
    }

    /// A connection out was made.
    pub(crate) fn wire(&mut self, wired: Wired) {
        let Wired { to, mut peer, connector } = wired;
        let token = self.token();
        let both = Interest::READABLE | Interest::WRITABLE;
        if self.registry.register(&mut peer, Token(token), both).is_ok() {
            self.outbound.insert(to, Outbound { token, peer, outbox: Vec::new(), written: 0, connector });
        } else {
            again(&connector);
        }
    }

    /// Lays a message behind what waits for its member.
    pub(crate) fn say(&mut self, message: &Message) {
        if let Some(out) = self.outbound.get_mut(&message.to).filter(|out| out.unwritten() < UNREAD_BYTES_MAX) {
            message.lay(&mut out.outbox);
        }
    }

    /// Writes what can be written. Returns whose connection is over.
    pub(crate) fn flush(&mut self) -> Vec<Member> {
        let mut over = Vec::new();
        for (member, out) in &mut self.outbound {
            let waiting = out.unwritten();
            if !out.write() {
                over.push(*member);
            }
            self.bytes.1 = self.bytes.1.saturating_add(bytes(waiting.saturating_sub(out.unwritten())));
        }
        over.iter().for_each(|member| self.drop_out(*member));
        over
    }

    /// What has arrived on one connection. A member's whose connection out is over is told apart. `to_the_end`: nobody says again that the
    /// other end has closed.
    pub(crate) fn hear(&mut self, token: usize, to_the_end: bool) -> (Vec<Message>, Option<Member>) {
        if let Some(member) = self.outbound.iter().find(|(_, out)| out.token == token).map(|(member, _)| *member) {
            let ended = self.outbound.get_mut(&member).is_some_and(|out| out.has_ended());
            if ended {
                self.drop_out(member);
            }
            return (Vec::new(), ended.then_some(member));
        }
        let Some(inbound) = self.inbound.get_mut(&token) else { return (Vec::new(), None) };
        let mut messages = Vec::new();
        match inbound.read(&mut self.buffer, &mut messages, &mut self.bytes.0, to_the_end) {
            Turn::Over => _ = self.inbound.remove(&token),
            Turn::More => self.unread.push(token),
            Turn::Empty => {}
        }
        (messages, None)
    }

    /// The connections that were not read to their end.
    pub(crate) fn unread(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.unread)
    }

    /// Whether there are any.
    pub(crate) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// How many bytes came in, and how many went out.
    pub(crate) const fn bytes(&self) -> (u64, u64) {
        self.bytes
    }

    /// Whether there is a connection out to this member.
    pub(crate) fn is_connected(&self, to: Member) -> bool {
        self.outbound.contains_key(&to)
    }

    /// Every connection ends: who has nothing more to say must not be waited for.
    pub(crate) fn hang_up(&mut self) {
        self.inbound.clear();
        self.outbound.clear();
    }

    fn drop_out(&mut self, member: Member) {
        if let Some(out) = self.outbound.remove(&member) {
            again(&out.connector);
        }
    }
}

fn bytes(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn again(connector: &Gate) {
    connector.bump();
    connector.wake_all();
}

impl Outbound {
    const fn unwritten(&self) -> usize {
        self.outbox.len().saturating_sub(self.written)
    }

    /// Whether the connection goes on.
    fn write(&mut self) -> bool {
        let open = loop {
            let rest = self.outbox.get(self.written..).unwrap_or_default();
            if rest.is_empty() {
                break true;
            }
            match self.peer.write(rest) {
                Ok(0) => break false,
                Ok(written) => self.written += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break false,
            }
        };
        // What a slow member leaves is moved to the front when it is the lesser half.
        if self.written * 2 >= self.outbox.len() {
            self.outbox.drain(..self.written.min(self.outbox.len()));
            self.written = 0;
        }
        open
    }

    /// Nobody answers here: what can be read is the end.
    fn has_ended(&mut self) -> bool {
        let mut nothing = [0; 64];
        loop {
            match self.peer.read(&mut nothing) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
        }
    }
}

impl Inbound {
    /// Takes in what has arrived, as much as one turn takes.
    fn read(&mut self, buffer: &mut [u8], messages: &mut Vec<Message>, heard: &mut u64, to_the_end: bool) -> Turn {
        for _ in 0..READS_MAX {
            match self.peer.read(buffer) {
                Ok(0) => return Turn::Over,
                Ok(read) => {
                    *heard = heard.saturating_add(bytes(read));
                    self.inbox.extend_from_slice(buffer.get(..read).unwrap_or_default());
                    if !self.parse(messages) {
                        return Turn::Over;
                    }
                    // Less than there was room for was all; what comes now is a new event.
                    if read < buffer.len() && !to_the_end {
                        return Turn::Empty;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Turn::Empty,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Turn::Over,
            }
        }
        Turn::More
    }

    fn parse(&mut self, messages: &mut Vec<Message>) -> bool {
        let mut used = 0;
        loop {
            match Message::read(self.inbox.get(used..).unwrap_or_default()) {
                Ok(Some((message, laid))) => {
                    self.spoke = true;
                    messages.push(message);
                    used += laid;
                }
                Ok(None) => break,
                Err(_) => return false,
            }
        }
        self.inbox.drain(..used.min(self.inbox.len()));
        true
    }
}

/// Connects to a member, and again whenever that connection is over, until it is told to stop.
pub(crate) fn connect<N: Send + 'static>(
    to: Member,
    at: &Address,
    clock: &dyn Clock,
    stopping: &AtomicBool,
    notes: &SyncSender<N>,
    note: impl Fn(Wired) -> N,
    wake: impl Fn(),
) {
    let connector = Arc::new(Gate::default());
    while !stopping.load(Ordering::SeqCst) {
        let seen = connector.value();
        let made = Stream::connect(at, CONNECT_LIMIT).and_then(|stream| {
            stream.give_up_after(Some(Proofs::SOON), Some(UNANSWERED_MAX))?;
            stream.into_peer()
        });
        let Ok(peer) = made else {
            clock.sleep(CONNECT_AGAIN);
            continue;
        };
        if notes.send(note(Wired { to, peer, connector: Arc::clone(&connector) })).is_err() {
            return;
        }
        wake();
        while connector.value() == seen && !stopping.load(Ordering::SeqCst) {
            connector.wait(seen, Some(Duration::from_millis(500)));
        }
        // A member that takes connections and drops them again must not be asked without a pause.
        clock.sleep(CONNECT_AGAIN / 5);
    }
}
