//! The desk: one thread that takes all that waits on all ready sockets, steps each request, syncs once, answers all.
//!
//! Walk of one turn: [`Desk::turn`] polls · letters from other threads · newcomers · `serve` reads and steps each ready
//! connection · `settle` waits for what must be durable: the first wait syncs for all · `flush` writes the answers of
//! each connection with one call · now and then, patience is checked. Where the store is behind, plain writes are answered some turns
//! later ([`Desk::holds`]), and nobody else. What waits for keys of prepared branches is stepped again when some have become free.
//! Nothing of one connection stays with a thread between turns, so there is no crossing and no lock on this walk.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use assent_frame::{Frame, parse};
use assent_kind::Kind;
use assent_world::Moment;
use assent_world::net::{Events, Interest, Listener, Peer, Poll, Token};
use assent_world::stop::{self, Stop};

use crate::connection::{Connection, Heard, Phase};
use crate::deferred::Deferred;
use crate::long::{self, Share};
use crate::owed::{Due, Owed};
use crate::role::{self, Visit};
use crate::shared::{Letter, Shared};

const LISTENER: Token = Token(0);
/// The waker's token.
pub(crate) const WAKER: Token = Token(1);
const FIRST: usize = 2;
const EVENTS_MAX: usize = 1024;
/// A turn that begins so long after the last one was due says that the desk itself did not run.
const STALL: Duration = Duration::from_millis(500);
const ACCEPTS_TURN_MAX: usize = 64;
/// Read in one go, and so the most that one connection gets of a turn's attention twice over.
const SCRATCH_BYTES: usize = 256 << 10;
const READS_TURN_MAX: usize = 2;
/// Writes that wait for a store that is behind. With more, everybody waits: nothing is gathered without end.
const HELD_MAX: usize = 1024;
/// Refused connections that are still told so; beyond, they are closed without a word. Whoever shares out the
/// process's descriptors keeps as many for them.
const TURNED_AWAY_MAX: usize = 64;
/// During a stop, a connection that has said nothing for so long has nothing under way.
const DRAIN_QUIET: Duration = Duration::from_millis(50);
const DRAIN_TURN: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Desk {
    number: usize,
    shared: Arc<Shared>,
    poll: Poll,
    listener: Option<Listener>,
    accepting: bool,
    /// No descriptor was left for a newcomer: try again later.
    starved: bool,
    next_desk: usize,
    connections: BTreeMap<usize, Connection>,
    turned_away: usize,
    next_token: usize,
    /// To be served without waiting for an event.
    ready: BTreeSet<usize>,
    owed: Vec<Owed>,
    /// Those that wait for keys, in the order in which they came, and what the store said of such keys when they were last tried.
    deferred: Vec<Deferred>,
    freed: u32,
    /// Until when what is owed waits, if it waits.
    held_until: Option<Moment>,
    /// Since when.
    held_since: Moment,
    scratch: Vec<u8>,
    patience_at: Moment,
    /// When the last turn began.
    turned: Moment,
}

impl Desk {
    pub(crate) fn new(number: usize, shared: Arc<Shared>, poll: Poll, listener: Option<Listener>) -> io::Result<Self> {
        let mut listener = listener;
        if let Some(listener) = &mut listener {
            poll.registry().register(listener, LISTENER, Interest::READABLE)?;
        }
        Ok(Self {
            number,
            shared,
            poll,
            listener,
            accepting: true,
            starved: false,
            next_desk: number,
            connections: BTreeMap::new(),
            turned_away: 0,
            next_token: FIRST,
            ready: BTreeSet::new(),
            owed: Vec::new(),
            deferred: Vec::new(),
            freed: 0,
            held_until: None,
            held_since: Moment::default(),
            scratch: vec![0; SCRATCH_BYTES],
            patience_at: Moment::default(),
            turned: Moment::default(),
        })
    }

    /// Turns until a stop has ended.
    pub(crate) fn run(&mut self) {
        let mut events = Events::with_capacity(EVENTS_MAX);
        while self.turn(&mut events) {}
        for token in self.connections.keys().copied().collect::<Vec<_>>() {
            self.remove(token, "the server has stopped");
        }
    }

    fn turn(&mut self, events: &mut Events) -> bool {
        match self.poll.poll(events, self.patience()) {
            // A signal, or the process was stopped and goes on: nothing has been read yet.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(error) => {
                tracing::error!(desk = self.number, %error, "the event queue failed; this desk ends");
                self.shared.desk_failed(format!("the event queue of desk {} failed: {error}", self.number));
                return false;
            }
            Ok(()) => {}
        }
        let now = self.shared.clock.now();
        self.forgive(now);
        self.note(events);
        self.open_letters(now);
        self.accept(now);
        let mut served: Vec<usize> = std::mem::take(&mut self.ready).into_iter().collect();
        for token in &served {
            self.serve(*token, now);
        }
        self.retry(&mut served, now);
        let decided = self.settle(&mut served, now);
        self.flush(&served, now);
        for tx in decided {
            stop::about(Stop::CoordinatorAfterAnswer, || tx);
        }
        if now >= self.patience_at {
            self.check_patience(now);
        }
        self.drain(now)
    }

    /// How long the poll may sleep.
    fn patience(&self) -> Option<Duration> {
        if !self.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        if self.shared.drain.until().is_some() {
            return Some(DRAIN_TURN);
        }
        if self.accepting && self.listener.is_some() {
            // More came in than one turn takes.
            return Some(Duration::ZERO);
        }
        let waits = !self.connections.is_empty() || self.starved;
        let every = waits.then(|| self.shared.patience_every());
        let held = self.held_until.map(|until| until.since(self.shared.clock.now()));
        let deferred = self.deferred.iter().map(|it| it.waits.until).min();
        let deferred = deferred.map(|until| until.since(self.shared.clock.now()));
        held.into_iter().chain(every).chain(deferred).min()
    }

    fn note(&mut self, events: &Events) {
        for event in events {
            let token = event.token();
            if token == LISTENER {
                self.accepting = true;
            } else if let Some(connection) = self.connections.get_mut(&token.0) {
                connection.readable |= event.is_readable();
                connection.ends |= event.is_read_closed() || event.is_error();
                if event.is_writable() {
                    connection.writable_again();
                }
                self.ready.insert(token.0);
            }
        }
    }

    fn open_letters(&mut self, now: Moment) {
        let Some(inbox) = self.shared.inboxes.get(self.number) else { return };
        for letter in inbox.take() {
            self.shared.numbers.crossings.inc();
            match letter {
                Letter::Newcomer(peer, slot) => self.seat(Connection::new(peer, Some(slot), now)),
                Letter::Late { token, frame } => {
                    if let Some(connection) = self.connections.get_mut(&token) {
                        connection.pending = connection.pending.saturating_sub(1);
                        connection.out.extend_from_slice(&frame);
                        self.ready.insert(token);
                    }
                }
                Letter::Long { token, long, share } => {
                    if let Some(connection) = self.connections.get_mut(&token) {
                        connection.pending = connection.pending.saturating_sub(1);
                        connection.send_long(long, share);
                        self.ready.insert(token);
                    }
                }
            }
        }
    }

    fn accept(&mut self, now: Moment) {
        for _ in 0..ACCEPTS_TURN_MAX {
            let Some(listener) = self.listener.as_ref().filter(|_| self.accepting) else { return };
            match listener.accept() {
                Ok(Some(peer)) => self.admit(peer, now),
                Ok(None) => self.accepting = false,
                // The peer was gone before it was taken in.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken in, most often for want of descriptors");
                    self.accepting = false;
                    self.starved = true;
                }
            }
        }
    }

    fn admit(&mut self, peer: Peer, now: Moment) {
        self.shared.numbers.accepted.inc();
        let Some(slot) = self.shared.slots.take() else { return self.turn_away(peer, now) };
        let desk = self.next_desk;
        self.next_desk = (self.next_desk + 1) % self.shared.inboxes.len().max(1);
        match self.shared.inboxes.get(desk) {
            Some(inbox) if desk != self.number => inbox.post(Letter::Newcomer(peer, slot)),
            _ => self.seat(Connection::new(peer, Some(slot), now)),
        }
    }

    fn turn_away(&mut self, peer: Peer, now: Moment) {
        self.shared.numbers.refused(Kind::Busy);
        if self.turned_away >= TURNED_AWAY_MAX {
            return;
        }
        self.turned_away += 1;
        let mut connection = Connection::new(peer, None, now);
        let most = self.shared.slots.most();
        let message = format!("all {most} connections of this server are taken; come back later");
        role::refuse(&mut connection, 0, Kind::Busy, &message);
        self.seat(connection);
    }

    fn seat(&mut self, mut connection: Connection) {
        let token = self.next_token;
        self.next_token += 1;
        let both = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(connection.peer_mut(), Token(token), both) {
            tracing::warn!(%error, "a connection could not be registered");
            return;
        }
        self.shared.numbers.connections.inc();
        self.connections.insert(token, connection);
        self.ready.insert(token);
    }

    fn serve(&mut self, token: usize, now: Moment) {
        let Self { number, connections, shared, owed, deferred, scratch, .. } = self;
        let Some(connection) = connections.get_mut(&token) else { return };
        let mut table = Table { shared, owed, deferred, desk: *number, token, now };
        table.go_on(connection);
        for _ in 0..READS_TURN_MAX {
            if connection.stuffed(&shared.limits) {
                // Not read before it has taken its answers: `flush` serves it again then.
                connection.was_not_read(now);
                return;
            }
            match connection.read(scratch) {
                Heard::Nothing => return,
                Heard::Bytes(read) => {
                    shared.numbers.bytes_in.inc_by(u64::try_from(read).unwrap_or(0));
                    table.take_in(connection, scratch.get(..read).unwrap_or_default());
                }
                Heard::End => return connection.at_end(),
                Heard::Gone => return self.remove(token, "it was reset"),
            }
        }
        self.ready.insert(token);
    }

    /// Tries those again that wait for keys, in the order in which they came: all of them when keys have become free, else those whose
    /// time is over, for the last time.
    fn retry(&mut self, served: &mut Vec<usize>, now: Moment) {
        let Some(kv) = self.shared.kv.as_ref().filter(|_| !self.deferred.is_empty()) else { return };
        // Before any of them is tried: what becomes free from here on is another number.
        let freed = kv.freed();
        let is_free = std::mem::replace(&mut self.freed, freed) != freed;
        let is_stopping = self.shared.drain.until().is_some();
        let Self { number, connections, shared, owed, deferred: all, .. } = self;
        for mut deferred in std::mem::take(all) {
            let Some(connection) = connections.get_mut(&deferred.token) else { continue };
            // Who says nothing more may be gone: nobody waits in his place.
            let is_over = is_stopping || connection.ended || now >= deferred.waits.until;
            if !is_free && !is_over {
                all.push(deferred);
                continue;
            }
            if is_over {
                deferred.waits.place.give_up();
            }
            let token = deferred.token;
            connection.pending = connection.pending.saturating_sub(1);
            Table { shared, owed, deferred: all, desk: *number, token, now }.again(connection, deferred);
            served.push(token);
        }
    }

    /// Waits for all that must be durable before it is answered. The first wait of each journal syncs for all of it.
    fn settle(&mut self, served: &mut Vec<usize>, now: Moment) -> Vec<assent_ids::TxId> {
        let mut decided = Vec::new();
        if self.owed.is_empty() || self.holds(now) {
            return decided;
        }
        if let (Some(_), Some(kv)) = (self.held_until.take(), &self.shared.kv) {
            let writes = self.owed.iter().filter(is_plain).count();
            kv.was_delayed(writes, self.shared.clock.now().since(self.held_since));
        }
        self.shared.numbers.turn(self.owed.len());
        for owed in self.owed.drain(..) {
            let token = owed.token;
            // It may have been reset in this very turn: then its request was done and nobody hears of it.
            decided.extend(owed.settle(&self.shared, self.connections.get_mut(&token)));
            served.push(token);
        }
        decided
    }

    /// Where nothing but plain writes is owed, and the store is behind, they wait for it, all of them once; whoever reads meanwhile is
    /// answered. A vote or an outcome does not wait, nor does what stands before it.
    fn holds(&mut self, now: Moment) -> bool {
        let Some(kv) = &self.shared.kv else { return false };
        if self.shared.drain.until().is_some() || !self.owed.iter().all(|owed| is_plain(&owed)) {
            return false;
        }
        let until = match self.held_until {
            Some(until) => until,
            None => now.after(kv.delay(&[])),
        };
        if until <= now {
            return false;
        }
        if self.held_until.replace(until).is_none() {
            self.held_since = now;
        }
        if self.owed.len() >= HELD_MAX {
            self.shared.clock.sleep(until.since(now));
            return false;
        }
        true
    }

    fn flush(&mut self, served: &[usize], now: Moment) {
        for token in served {
            let Some(connection) = self.connections.get_mut(token) else { continue };
            let before = connection.backlog();
            if connection.flush(now).is_err() {
                self.remove(*token, "it was reset");
                continue;
            }
            let written = before.saturating_sub(connection.backlog());
            self.shared.numbers.bytes_out.inc_by(u64::try_from(written).unwrap_or(0));
            if connection.phase == Phase::Lingering && connection.ended {
                self.remove(*token, "it has ended");
            } else if before > 0 && connection.waits_for_room(&self.shared.limits) {
                self.ready.insert(*token);
            }
        }
    }

    /// A desk that did not run (the process was stopped, the machine suspended) was silent itself: whatever its peers
    /// owe is counted from now.
    fn forgive(&mut self, now: Moment) {
        let ran_late = now.since(std::mem::replace(&mut self.turned, now)) > self.shared.patience_every() + STALL;
        if ran_late {
            self.connections.values_mut().for_each(|connection| connection.forgive(now));
        }
    }

    fn check_patience(&mut self, now: Moment) {
        self.patience_at = now.after(self.shared.patience_every());
        if std::mem::take(&mut self.starved) {
            self.accepting = true;
        }
        let (limits, missed) = (&self.shared.limits, self.shared.heartbeats_missed());
        let overdue: Vec<_> = self
            .connections
            .iter_mut()
            .filter_map(|(token, connection)| connection.overdue(now, limits, missed).map(|why| (*token, why)))
            .collect();
        for (token, why) in overdue {
            self.shared.numbers.overdue.inc();
            self.remove(token, why);
        }
    }

    /// During a stop: nobody new, and whoever has nothing under way goes. Says whether to turn again.
    fn drain(&mut self, now: Moment) -> bool {
        let Some(until) = self.shared.drain.until() else { return true };
        if let Some(mut listener) = self.listener.take() {
            _ = self.poll.registry().deregister(&mut listener);
        }
        let quiet: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.is_idle() && now.since(connection.heard) >= DRAIN_QUIET)
            .map(|(token, _)| *token)
            .collect();
        for token in quiet {
            self.remove(token, "the server stops");
        }
        now < until && !self.connections.is_empty()
    }

    fn remove(&mut self, token: usize, why: &'static str) {
        let Some(mut connection) = self.connections.remove(&token) else { return };
        self.deferred.retain(|deferred| deferred.token != token);
        self.shared.numbers.connections.dec();
        if !connection.has_slot() {
            self.turned_away = self.turned_away.saturating_sub(1);
        }
        tracing::debug!(token, why, from = ?connection.peer_mut().from(), "a connection ends");
        role::goodbye(&self.shared, &mut connection);
        // Closing the socket takes it out of the event queue.
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A promise of ours is broken. Nobody else serves these connections: health must say so.
            self.shared.desk_failed(format!("desk {} has panicked: restart the server", self.number));
        }
    }
}

/// A write that may wait for a store that is behind.
const fn is_plain(owed: &&Owed) -> bool {
    matches!(owed.due, Due::Write(_) | Due::Judged(_))
}

/// Where the bytes of one connection are taken apart during a turn.
struct Table<'a> {
    shared: &'a Shared,
    owed: &'a mut Vec<Owed>,
    deferred: &'a mut Vec<Deferred>,
    desk: usize,
    token: usize,
    now: Moment,
}

impl Table<'_> {
    /// Takes bytes that were just read, without copying them unless a frame is not whole.
    fn take_in(&mut self, connection: &mut Connection, bytes: &[u8]) {
        if connection.begun.is_empty() {
            let used = self.digest(connection, bytes);
            connection.begun.extend_from_slice(bytes.get(used..).unwrap_or_default());
        } else {
            connection.begun.extend_from_slice(bytes);
            self.go_on(connection);
        }
    }

    /// Goes on with what was left lying.
    fn go_on(&mut self, connection: &mut Connection) {
        if !connection.begun.is_empty() {
            let mut begun = std::mem::take(&mut connection.begun);
            let used = self.digest(connection, &begun);
            begun.drain(..used);
            if !begun.is_empty() {
                connection.begun = begun;
            }
        }
    }

    /// Steps each whole frame; says how many bytes were used up.
    fn digest(&mut self, connection: &mut Connection, bytes: &[u8]) -> usize {
        let limits = &self.shared.limits;
        let most = usize::try_from(limits.frame_bytes_max).unwrap_or(usize::MAX);
        let mut used = 0;
        while connection.listens() && !connection.stuffed(limits) {
            match parse(bytes.get(used..).unwrap_or_default(), most) {
                Ok(None) => break,
                Ok(Some((frame, laid))) => {
                    used += laid;
                    connection.heard = self.now;
                    self.step(connection, &frame);
                }
                Err(error) => {
                    // Where the next frame would begin is unknown: this connection is over.
                    self.shared.numbers.refused(Kind::Invalid);
                    role::refuse(connection, 0, Kind::Invalid, &error.to_string());
                }
            }
        }
        connection.noted(used, bytes.len(), self.now)
    }

    /// Steps a frame, or the message whose last part it is.
    fn step(&mut self, connection: &mut Connection, frame: &Frame<'_>) {
        if !long::is_part(connection, frame) {
            return self.visit(connection, frame);
        }
        match long::gather(self.shared, connection, frame) {
            Ok(Some(whole)) => {
                let before = (self.owed.len(), self.deferred.len());
                self.visit(connection, &whole.assembly.frame());
                self.keep_room(before, whole.share);
            }
            Ok(None) => {}
            Err(error) => {
                self.shared.numbers.refused(error.kind());
                role::refuse(connection, 0, error.kind(), &error.to_string());
            }
        }
    }

    /// The journal has the bytes of a long request until they are on disk, or they wait to get there: its room is given back with the
    /// answer.
    fn keep_room(&mut self, (owed, deferred): (usize, usize), share: Option<Share>) {
        if let Some(owed) = self.owed.get_mut(owed) {
            owed.share = share;
        } else if let Some(deferred) = self.deferred.get_mut(deferred) {
            deferred.long = share;
        }
    }

    fn visit(&mut self, connection: &mut Connection, frame: &Frame<'_>) {
        role::step(self.visit_of(connection, frame));
    }

    /// Steps a request that has waited for keys.
    fn again(&mut self, connection: &mut Connection, waited: Deferred) {
        let Deferred { timed, mut waits, kept, long, .. } = waited;
        let before = (self.owed.len(), self.deferred.len());
        waits.kept = Some(Arc::clone(&kept));
        let frame = kept.frame();
        role::again(Visit { timed, waits: Some(waits), ..self.visit_of(connection, &frame) });
        self.keep_room(before, long);
    }

    fn visit_of<'a>(&'a mut self, connection: &'a mut Connection, frame: &'a Frame<'a>) -> Visit<'a> {
        let Self { shared, owed, deferred, desk, token, .. } = self;
        let (desk, token, mark) = (*desk, *token, frame.mark);
        Visit { shared, connection, owed, deferred, frame, waits: None, desk, token, mark, timed: None }
    }
}
