//! One connection: its socket, the frame that is not whole yet, the answers that are not taken yet, and its times.
//!
//! Walk: [`Connection::read`] takes what waits · the desk parses and lays answers into [`Connection::out`] ·
//! [`Connection::flush`] writes them with one call · [`Connection::overdue`] says when patience ends.
//! A connection that is refused is answered first, then read to its end for a moment ([`Phase::Lingering`]): closing
//! with unread bytes would reset it, and the answer could be lost.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use assent_door::{Limits, Slot};
use assent_wire::Long;
use assent_world::Moment;
use assent_world::net::Peer;

use crate::long::{Gathering, Progress, Share};
use crate::role::Role;

/// How long a refused connection may take to read its last answer and close.
const LINGER: Duration = Duration::from_millis(500);
/// How long a claim may be silent. Recovery looks at every resource at least every 10 s; a coordinator whose machine has
/// vanished without a word must not keep its own successor out for longer.
const CLAIM_SILENCE: Duration = Duration::from_secs(30);
/// Unread answers beyond which no further request of the connection is looked at, as a part of the limit.
const BACKLOG_DIVISOR: usize = 4;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before its `Hello`.
    New,
    /// Welcomed.
    Open,
    /// Its last answer is laid; nothing it sends is looked at.
    Closing,
    /// Its last answer is written; it is read to its end, or to the end of patience.
    Lingering,
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// That many bytes; there may be more.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The other side writes no more.
    End,
    /// A reset, or whatever else the system says.
    Gone,
}

#[derive(Debug)]
pub(crate) struct Connection {
    peer: Peer,
    slot: Option<Slot>,
    pub(crate) phase: Phase,
    pub(crate) role: Role,
    /// Of the protocol, as agreed on.
    pub(crate) version: u16,
    /// A request of which not all parts have come.
    pub(crate) gathering: Option<Gathering>,
    /// Answers that leave part by part, and their room.
    longs: VecDeque<(Long, Share)>,
    /// How they are taken, while there are any.
    taken: Option<Progress>,
    /// Payload bytes of a part.
    part_bytes: usize,
    /// The beginning of a frame, and whatever came with it while its owner did not read answers.
    pub(crate) begun: Vec<u8>,
    /// Answers, from `written` on not yet taken by the other side.
    pub(crate) out: Vec<u8>,
    written: usize,
    /// The poll said so, and no read has emptied it since.
    pub(crate) readable: bool,
    /// The poll said that the other side writes no more: a short read is not the end of it.
    pub(crate) ends: bool,
    /// It has written all it will.
    pub(crate) ended: bool,
    writable: bool,
    /// Requests that are answered later than in this turn, or at its end.
    pub(crate) pending: u32,
    /// Whoever works for it for long looks whether it is still there.
    pub(crate) lives: Arc<()>,
    /// Whoever reads for it looks whether there is anybody to answer: one that says nothing more still hears.
    pub(crate) is_there: Arc<()>,
    /// When the frame (or handshake) that is not whole began, or lingering did.
    pub(crate) waits_since: Option<Moment>,
    stalled_since: Option<Moment>,
    /// When it last said something whole.
    pub(crate) heard: Moment,
}

impl Connection {
    pub(crate) fn new(peer: Peer, slot: Option<Slot>, now: Moment) -> Self {
        Self {
            peer,
            slot,
            phase: Phase::New,
            role: Role::Nobody,
            version: 1,
            gathering: None,
            longs: VecDeque::new(),
            taken: None,
            part_bytes: 0,
            begun: Vec::new(),
            out: Vec::new(),
            written: 0,
            readable: true,
            ends: false,
            ended: false,
            writable: true,
            pending: 0,
            lives: Arc::new(()),
            is_there: Arc::new(()),
            waits_since: Some(now),
            stalled_since: None,
            heard: now,
        }
    }

    /// Both sides have agreed on a version, and on how long a frame may be.
    pub(crate) fn agreed(&mut self, version: u16, part_bytes: usize) {
        (self.version, self.part_bytes) = (version, part_bytes);
    }

    /// An answer that leaves part by part, as fast as the other side takes it.
    pub(crate) fn send_long(&mut self, long: Long, share: Share) {
        self.longs.push_back((long, share));
    }

    /// Who is at the other end, in words.
    pub(crate) fn who(&self) -> String {
        self.peer.from().map_or_else(|| "a Unix socket".to_owned(), ToString::to_string)
    }

    pub(crate) fn peer_mut(&mut self) -> &mut Peer {
        &mut self.peer
    }

    /// Reads once. Fewer bytes than asked for are all there were (a stream socket's promise, epoll(7)).
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Heard {
        if !self.readable {
            return Heard::Nothing;
        }
        loop {
            match self.peer.read(into) {
                Ok(0) => return Heard::End,
                Ok(read) => {
                    self.readable = read == into.len() || self.ends;
                    return Heard::Bytes(read);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Heard::Nothing;
                }
                Err(_) => return Heard::Gone,
            }
        }
    }

    /// Nothing more will come. What is under way is still answered: the other side may have ended its direction only.
    pub(crate) fn at_end(&mut self) {
        self.ended = true;
        // Who says nothing more may be gone: nobody works for him for long.
        self.lives = Arc::default();
        self.begun.clear();
        self.gathering = None;
        if matches!(self.phase, Phase::New | Phase::Open) {
            self.phase = Phase::Closing;
        }
    }

    /// Whether its frames are looked at.
    pub(crate) const fn listens(&self) -> bool {
        matches!(self.phase, Phase::New | Phase::Open)
    }

    /// So many of these bytes were whole frames; the clock of a begun one runs from its first byte. Says how many need
    /// not be kept.
    pub(crate) fn noted(&mut self, used: usize, bytes: usize, now: Moment) -> usize {
        if !self.listens() {
            return bytes;
        }
        if self.phase == Phase::Open {
            let since = if used > 0 { None } else { self.waits_since };
            self.waits_since = (used < bytes).then(|| since.unwrap_or(now));
        }
        used
    }

    /// Whether it came in by a place, not to be turned away.
    pub(crate) const fn has_slot(&self) -> bool {
        self.slot.is_some()
    }

    /// Whether nothing of it is under way.
    pub(crate) fn is_idle(&self) -> bool {
        let is_read = self.begun.is_empty() && self.gathering.is_none();
        is_read && self.backlog() == 0 && self.longs.is_empty() && self.pending == 0 && !self.role.has_work()
    }

    /// Whether requests were left lying for its backlog, and can go on.
    pub(crate) fn waits_for_room(&self, limits: &Limits) -> bool {
        (self.readable || !self.begun.is_empty()) && self.phase != Phase::Lingering && !self.stuffed(limits)
    }

    /// Bytes of answers that the other side has not taken.
    pub(crate) const fn backlog(&self) -> usize {
        self.out.len().saturating_sub(self.written)
    }

    /// Whether it has so many unread answers that its further requests wait.
    pub(crate) fn stuffed(&self, limits: &Limits) -> bool {
        let most = usize::try_from(limits.unread_bytes_max).unwrap_or(usize::MAX);
        self.backlog() > most / BACKLOG_DIVISOR
    }

    pub(crate) fn writable_again(&mut self) {
        self.writable = true;
    }

    /// Writes what waits, once if the socket takes it. `Err`: the connection is gone.
    pub(crate) fn flush(&mut self, now: Moment) -> Result<(), ()> {
        if !self.longs.is_empty() {
            self.taken.get_or_insert(Progress::from(now));
        }
        while self.writable && self.refill() {
            match self.peer.write(self.out.get(self.written..).unwrap_or_default()) {
                Ok(0) => return Err(()),
                Ok(taken) => {
                    self.written += taken;
                    self.stalled_since = None;
                    if let Some(progress) = &mut self.taken {
                        progress.add(taken);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(_) => return Err(()),
            }
        }
        if self.backlog() == 0 && self.longs.is_empty() {
            self.empty();
            (self.stalled_since, self.taken) = (None, None);
            if self.phase == Phase::Closing && self.pending == 0 {
                self.phase = Phase::Lingering;
                self.waits_since = Some(now);
                // An error means that the other side is gone: the next read says so.
                _ = self.peer.shutdown_write();
            }
        } else if self.stalled_since.is_none() {
            self.stalled_since = Some(now);
        }
        Ok(())
    }

    /// Whether there is something to write; the next part of a long answer if there is nothing else.
    fn refill(&mut self) -> bool {
        if self.backlog() > 0 {
            return true;
        }
        let Some((long, _)) = self.longs.front_mut() else { return false };
        self.written = 0;
        self.out.clear();
        if !long.next(&mut self.out, self.part_bytes) {
            self.longs.pop_front();
        }
        true
    }

    fn empty(&mut self) {
        const KEPT_BYTES: usize = 1 << 16;
        self.written = 0;
        self.out.clear();
        self.out.shrink_to(KEPT_BYTES);
    }

    /// It was not read for a while, as it has to take its answers first: what it sends is not late for that.
    pub(crate) fn was_not_read(&mut self, now: Moment) {
        if let Some(gathering) = &mut self.gathering {
            gathering.progress = Progress::from(now);
        }
    }

    /// Counts its silence from now: the time before was not its own.
    pub(crate) fn forgive(&mut self, now: Moment) {
        self.heard = now;
        self.waits_since = self.waits_since.map(|_| now);
        self.stalled_since = self.stalled_since.map(|_| now);
        self.taken = self.taken.map(|_| Progress::from(now));
        self.was_not_read(now);
    }

    /// Whether patience with it has ended, and why.
    pub(crate) fn overdue(&mut self, now: Moment, limits: &Limits, missed: Option<Duration>) -> Option<&'static str> {
        let partial = Duration::from_millis(u64::from(limits.partial_frame_ms));
        let longer = |since: Option<Moment>, than: Duration| since.is_some_and(|since| now.since(since) >= than);
        if longer(self.stalled_since, partial)
            || self.taken.as_mut().is_some_and(|taken| taken.is_too_slow(now, partial))
        {
            return Some("it does not read its answers");
        }
        let client = matches!(self.role, Role::Client(_)) && self.phase == Phase::Open;
        if missed.is_some_and(|missed| client && now.since(self.heard) >= missed) {
            return Some("its heartbeats are missing");
        }
        // Closed, not only let go: its old holder must not resolve anything over it any more.
        if self.role.has_claim() && now.since(self.heard) >= CLAIM_SILENCE {
            return Some("it has a claim and said nothing for too long");
        }
        let hears_all = self.backlog() == 0;
        let half = self.gathering.as_mut().filter(|_| hears_all);
        let is_half = half.is_some_and(|begun| begun.progress.is_too_slow(now, partial));
        match self.phase {
            Phase::Lingering => longer(self.waits_since, LINGER.min(partial)).then_some("it was told to go"),
            // Whoever is told to go and does not read is stalled, above.
            Phase::Closing => None,
            Phase::New => longer(self.waits_since, partial).then_some("its handshake did not come"),
            // Whatever else it says in between.
            Phase::Open if is_half => Some("a long message did not come to its end"),
            // Requests that wait for room are not the sender's fault.
            Phase::Open if !self.begun.is_empty() && self.backlog() == 0 => {
                longer(self.waits_since, partial).then_some("a frame did not come to its end")
            }
            Phase::Open => {
                let idle = limits.idle_ms > 0 && self.pending == 0 && self.backlog() == 0;
                let most = Duration::from_millis(u64::from(limits.idle_ms));
                (idle && now.since(self.heard) >= most).then_some("it said nothing for too long")
            }
        }
    }
}
