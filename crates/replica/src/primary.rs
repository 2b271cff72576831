//! The sending side: each standby has a cursor, fed from memory while it is near, from the own log while it is far, and from a
//! snapshot while it is farther.
//!
//! Walk: a standby says where its log ends ([`Replica::resumed`]) · its chain there must be ours, looked up in memory or read
//! from the log ([`Replica::fetched`]) · [`Replica::feed`] sends what follows, as much as may be on its way · what the log
//! does not reach goes as a snapshot, piece by piece, each asked for ([`Replica::more`]).
//! What a standby lost on the way it asks for again: the primary remembers no message. Nothing is kept for a standby
//! but some numbers, so a slow one costs no memory; one that confirms nothing for too long is taken out of the set.
//! What of the log it will need is held (`hold`), for a bounded time: else each new snapshot would send it back to the beginning.

use std::collections::{BTreeMap, VecDeque};

use assent_membership::{Ack, Event, Lease, Member, Reach, Sequence};

use crate::entry::{Chain, Entry, Mark};
use crate::event::Output;
use crate::hold::Hold;
use crate::message::{PIECE_BYTES_MAX, Piece, STREAM_BYTES_MAX, Said};
use crate::replica::{Replica, Side};
use crate::rules::Rule;
use crate::settings::LeaseSettings;

/// A primary's side of the stream.
#[derive(Clone, Debug)]
pub(crate) struct Primary {
    pub(crate) peers: BTreeMap<Member, Peer>,
    /// The own log when it began to lead: some of it may be acknowledged, so a read must see all of it.
    base: Sequence,
    lease: Option<Lease>,
    /// Bytes that may be read from the disk for others, and when that was reckoned.
    budget: (u64, u64),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    pub(crate) held: Reach,
    /// What it must confirm, and since when it does not.
    lags: Option<(Sequence, u64)>,
    /// What it must have on its disk, and since when it has not.
    owes: Option<(Sequence, u64)>,
    pub(crate) cursor: Option<Cursor>,
    /// What of the log it may still need.
    pub(crate) hold: Option<Hold>,
    /// It is being sent a snapshot.
    pub(crate) lent: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Cursor {
    /// Its place is being looked up in the log.
    Asked(Mark),
    /// It lacks what the log has no more.
    Snapshot,
    Sending {
        sent: Sequence,
        /// What is on its way, or not confirmed as the group acknowledges: the end and the bytes of each message.
        under_way: VecDeque<(Sequence, usize)>,
        /// The log is being read for it.
        reading: bool,
    },
}

impl Cursor {
    const fn at(sent: Sequence) -> Self {
        Self::Sending { sent, under_way: VecDeque::new(), reading: false }
    }
}

impl Primary {
    pub(crate) fn new(lease: Option<LeaseSettings>, base: Sequence) -> Self {
        let lease = lease.map(|lease| Lease::new(lease.length_ms, lease.drift_ppm));
        Self { peers: BTreeMap::new(), base, lease, budget: (0, 0) }
    }

    /// This beat is sent now.
    pub(crate) fn beats(&mut self, beat: u64, now_ms: u64) {
        if let Some(lease) = self.lease.as_mut().filter(|_| beat > 0) {
            lease.asked(beat, now_ms);
        }
    }

    /// A standby holds so much.
    pub(crate) fn answered(&mut self, from: Member, reach: Reach, now_ms: u64) {
        let Peer { held, cursor, hold, .. } = self.peers.entry(from).or_default();
        if let Some(hold) = hold {
            // What an earlier life of it held says nothing of this one: only what was sent since can be held.
            let sent = if let Some(Cursor::Sending { sent, .. }) = cursor { *sent } else { Sequence(0) };
            hold.heard(now_ms, Some(reach.received).filter(|received| *received <= sent));
        }
        *held = Reach {
            received: held.received.max(reach.received),
            written: held.written.max(reach.written),
            durable: held.durable.max(reach.durable),
        };
    }

    /// A standby has answered that beat, and promised so much.
    pub(crate) fn promised(&mut self, from: Member, beat: u64, promised_ms: u64) {
        if let Some(lease) = &mut self.lease {
            lease.answered(from, beat, promised_ms);
        }
    }

    /// Whether so many bytes may be read now; some more may each millisecond.
    fn afford(&mut self, now_ms: u64, per_s: u64, bytes: u64) -> bool {
        let (left, then) = self.budget;
        let grown = now_ms.saturating_sub(then).saturating_mul(per_s) / 1_000;
        // One burst is a tenth of a second, and no less than one read.
        let left = left.saturating_add(grown).min((per_s / 10).max(bytes));
        let enough = left >= bytes;
        self.budget = (if enough { left - bytes } else { left }, now_ms);
        enough
    }
}

impl Replica {
    /// Whether a read may be answered from the lease.
    pub(crate) fn reads_alone(&self) -> bool {
        let Side::Primary(Primary { lease: Some(lease), base, .. }) = &self.side else { return false };
        // Who gives the lead away has no lease: the other one leads as soon as the arbiter says so.
        let leads = self.node.takes_commands() && !self.node.gives_away() && self.confirmed >= *base;
        let sets = if self.keeps(Rule::AllPromise) { usize::MAX } else { 0 };
        leads && self.node.sets().take(sets).all(|set| lease.holds(set, self.me(), self.watch.now_ms))
    }

    /// Asks the set whether anybody else leads.
    pub(crate) fn ask(&mut self) {
        self.node(Event::Ask);
    }

    /// A standby's log ends there.
    pub(crate) fn resumed(&mut self, from: Member, mark: Mark) {
        let known = self.chain_at(mark.sequence);
        let (end, keeps) = (self.end.sequence, self.keeps(Rule::SameChain));
        let fetch = STREAM_BYTES_MAX as u64;
        let (now, base) = (self.watch.now_ms, self.base);
        let Side::Primary(primary) = &mut self.side else { return };
        let peer = primary.peers.entry(from).or_default();
        // In whatever life it said that it held more.
        peer.held = peer.held.cut(mark.sequence);
        Hold::at(&mut peer.hold, mark.sequence, base, now);
        if std::mem::take(&mut peer.lent) {
            self.out.push(Output::Unlend(from));
        }
        match known {
            // Behind our end it can hold nothing of ours, and it has cut what is not.
            _ if mark.sequence > end => self.send(from, Said::Differs(mark.sequence)),
            Some(chain) if chain != mark.chain && keeps => {
                peer.cursor = None;
                self.send(from, Said::Differs(mark.sequence));
            }
            Some(_) => {
                // That it says so is what `received` asks for.
                peer.held.received = peer.held.received.max(mark.sequence);
                peer.cursor = Some(Cursor::at(mark.sequence));
            }
            None => {
                peer.cursor = Some(Cursor::Asked(mark));
                self.out.push(Output::Fetch { to: from, after: mark.sequence, bytes_max: fetch });
            }
        }
    }

    /// The own log was read for a standby.
    pub(crate) fn fetched(&mut self, to: Member, after: Sequence, chain: Option<Chain>, entries: Vec<Entry>) {
        let (keeps, confirms) = (self.keeps(Rule::SameChain), self.settings.setup.ack);
        let Side::Primary(primary) = &mut self.side else { return };
        let Some(Peer { held, cursor: Some(cursor), .. }) = primary.peers.get_mut(&to) else { return };
        match (&*cursor, chain) {
            (Cursor::Asked(mark), _) if mark.sequence != after => return,
            (Cursor::Sending { sent, reading, .. }, _) if *sent != after || !reading => return,
            (Cursor::Snapshot, _) => return,
            (_, None) => {
                *cursor = Cursor::Snapshot;
                return self.read_piece(to, Sequence(0), 0);
            }
            (Cursor::Asked(mark), Some(chain)) if mark.chain != chain && keeps => {
                let at = mark.sequence;
                return self.send(to, Said::Differs(at));
            }
            (Cursor::Asked(_), _) => {
                *cursor = Cursor::at(after);
                held.received = held.received.max(after);
                // Until its letter says how much of that it has confirmed, no more is sent, as in `feed_one`; then it is read again.
                if held.at(confirms) < after {
                    return;
                }
            }
            _ => {}
        }
        if let Cursor::Sending { sent, under_way, reading } = cursor {
            *reading = false;
            // What was cut since it was read is not ours any more.
            let entries: Vec<Entry> = entries.into_iter().filter(|entry| entry.sequence <= self.end.sequence).collect();
            if let Some(last) = entries.last() {
                *sent = last.sequence;
                let bytes = entries.iter().map(Entry::bytes).sum();
                self.counts.catch_up_bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
                under_way.push_back((last.sequence, bytes));
                self.stream(to, entries);
            }
        }
    }

    /// A standby asks for a piece of a snapshot.
    pub(crate) fn more(&mut self, from: Member, at: Sequence, offset: u64) {
        let now = self.watch.now_ms;
        let Side::Primary(primary) = &mut self.side else { return };
        // Also for one whom an earlier primary sent the beginning.
        let peer = primary.peers.entry(from).or_default();
        peer.cursor = Some(Cursor::Snapshot);
        if let Some(hold) = &mut peer.hold {
            hold.heard(now, None);
        }
        self.read_piece(from, at, offset);
    }

    fn read_piece(&mut self, to: Member, at: Sequence, offset: u64) {
        let (now, per_s) = (self.watch.now_ms, self.settings.catch_up_bytes_per_s);
        let bytes_max = PIECE_BYTES_MAX as u64;
        // Not affordable now: it asks again.
        if let Side::Primary(primary) = &mut self.side
            && primary.afford(now, per_s, bytes_max)
        {
            self.out.push(Output::ReadPiece { to, at, offset, bytes_max });
        }
    }

    pub(crate) fn piece_read(&mut self, to: Member, piece: Option<Piece>) {
        let (now, base) = (self.watch.now_ms, self.base);
        if let (Some(piece), Side::Primary(primary)) = (piece, &mut self.side) {
            let peer = primary.peers.entry(to).or_default();
            peer.lent = true;
            Hold::at(&mut peer.hold, piece.base.end.sequence, base, now);
            self.counts.pieces_sent += 1;
            self.counts.catch_up_bytes += u64::try_from(piece.bytes.len()).unwrap_or(u64::MAX);
            self.send(to, Said::Piece(piece));
        }
    }

    /// Sends every standby what it lacks, as far as it may be on its way.
    pub(crate) fn feed(&mut self) {
        let Side::Primary(primary) = &self.side else { return };
        let members: Vec<Member> = primary.peers.keys().copied().collect();
        for member in members {
            while self.feed_one(member) {}
        }
    }

    /// Sends one message, if one is to be sent.
    fn feed_one(&mut self, to: Member) -> bool {
        let (now, per_s) = (self.watch.now_ms, self.settings.catch_up_bytes_per_s);
        let confirms = self.settings.setup.ack;
        let Side::Primary(primary) = &mut self.side else { return false };
        let Some(peer) = primary.peers.get_mut(&to) else { return false };
        let Some(Cursor::Sending { sent, under_way, reading }) = &mut peer.cursor else { return false };
        // As the group acknowledges: where that is the disk, no more comes to a standby than its disk takes in a while.
        let held = peer.held.at(confirms);
        while under_way.pop_front_if(|(end, _)| *end <= held).is_some() {}
        let bytes: usize = under_way.iter().map(|(_, bytes)| bytes).sum();
        // How much of what it had before this connection it has not confirmed, nobody knows.
        let is_unknown = under_way.is_empty() && held < *sent;
        if *reading || *sent >= self.end.sequence || is_unknown || bytes >= self.settings.window_bytes {
            return false;
        }
        let Some(behind) = self.recent.behind(*sent) else {
            let (after, bytes_max) = (*sent, STREAM_BYTES_MAX as u64);
            if primary.afford(now, per_s, bytes_max) {
                if let Some(Peer { cursor: Some(Cursor::Sending { reading, .. }), .. }) = primary.peers.get_mut(&to) {
                    *reading = true;
                }
                self.out.push(Output::Fetch { to, after, bytes_max });
            }
            return false;
        };
        let mut room = STREAM_BYTES_MAX;
        let mut entries = Vec::new();
        for entry in behind {
            if !entries.is_empty() && entry.bytes() > room {
                break;
            }
            room = room.saturating_sub(entry.bytes());
            entries.push(entry.clone());
        }
        let Some(last) = entries.last() else { return false };
        *sent = last.sequence;
        under_way.push_back((last.sequence, entries.iter().map(Entry::bytes).sum()));
        self.stream(to, entries);
        true
    }

    fn stream(&mut self, to: Member, entries: Vec<Entry>) {
        let (end, confirmed, keep) = (self.end.sequence, self.confirmed, self.keeping.wanted);
        self.send(to, Said::Stream { end, confirmed, keep, entries });
    }

    /// Says again how far the log goes, and takes for lost who confirms nothing for too long.
    pub(crate) fn tick_primary(&mut self) {
        let (now, end, ack) = (self.watch.now_ms, self.end.sequence, self.settings.setup.ack);
        let in_sync = self.node.configuration().in_sync.clone();
        let Side::Primary(primary) = &mut self.side else { return };
        let mut slow = Vec::new();
        for (member, _) in in_sync.iter().filter(|(member, _)| *member != self.settings.setup.me) {
            let peer = primary.peers.entry(member).or_default();
            let is_slow = |since: u64| now.saturating_sub(since) >= self.settings.slow_ms;
            let lags = overdue(&mut peer.lags, peer.held.at(ack), end, now).is_some_and(is_slow);
            let owes = overdue(&mut peer.owes, peer.held.durable, self.keeping.wanted, now).is_some_and(is_slow);
            // Without an acknowledgement only what is to be kept waits for anybody.
            if owes || (lags && ack != Ack::None) {
                slow.push(member);
            }
        }
        // Also whom nothing is sent to: who hears that the log goes farther than its own asks for the rest.
        for member in self.others() {
            self.stream(member, Vec::new());
        }
        self.tell_state();
        self.tick_holds();
        if self.keeps(Rule::SlowGoes) {
            for member in slow {
                self.counts.slow += 1;
                self.node(Event::Silent(member));
            }
        }
    }

    /// The members that hear of this one's state.
    pub(crate) fn audience(&self) -> Vec<Member> {
        if matches!(self.side, Side::Primary(_)) { self.others() } else { Vec::new() }
    }

    pub(crate) fn chain_at(&self, at: Sequence) -> Option<Chain> {
        match at {
            Sequence(0) => Some(Chain::default()),
            at if at == self.end.sequence => Some(self.end.chain),
            at => self.recent.chain(at),
        }
    }
}

/// Since when so much is held too little; none if it is not.
fn overdue(owed: &mut Option<(Sequence, u64)>, held: Sequence, must: Sequence, now_ms: u64) -> Option<u64> {
    match owed {
        Some((owed, since)) if held < *owed => Some(*since),
        _ => {
            *owed = (held < must).then_some((must, now_ms));
            None
        }
    }
}
