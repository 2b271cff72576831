//! The receiving side: entries are taken in order, one history only; what is missing is asked for.
//!
//! Walk: [`Replica::follow`] cuts the own tail where it leaves the primary's log · [`Replica::was_cut`] says where it goes on ·
//! [`Replica::take`] takes entries · a snapshot comes piece by piece ([`Replica::piece`]) and replaces what the log would have
//! said ([`Replica::installed`]).

use assent_membership::{Event, Member, Reach, Sequence};

use crate::entry::{Entry, Mark};
use crate::event::{Fault, Output};
use crate::keeping::Keeping;
use crate::message::{Base, Piece, Said};
use crate::replica::{Replica, Side};
use crate::rules::Rule;

/// A standby's side of the stream.
#[derive(Clone, Debug)]
pub(crate) struct Standby {
    primary: Member,
    /// The cut is not done yet.
    cutting: bool,
    /// How far the primary's log goes, as far as heard.
    end: Sequence,
    /// When it asked last, or something of what it asked for came.
    asked_ms: u64,
    /// A snapshot that is coming, and how many bytes of it are here.
    coming: Option<(Base, u64)>,
    /// All of it is here, and is being read.
    loading: bool,
}

impl Replica {
    /// Follows this primary: its log and the own one are one up to this entry.
    pub(crate) fn follow(&mut self, primary: Member, cut: Sequence) {
        let cuts = cut < self.end.sequence && self.keeps(Rule::Cut);
        self.keeping = Keeping::default();
        let asked_ms = self.watch.now_ms;
        let end = Sequence(0);
        self.side = Side::Standby(Standby { primary, cutting: cuts, end, asked_ms, coming: None, loading: false });
        // Also where nothing is cut: an earlier primary may have said what its state was farther on.
        self.states.cut(cut);
        if !cuts {
            return self.resume();
        }
        if cut < self.base {
            return self.halt(Fault::CutBehindSnapshot { to: cut, base: self.base });
        }
        self.counts.cuts += 1;
        self.recent.cut(cut);
        self.confirmed = self.confirmed.min(cut);
        self.end.sequence = cut;
        self.reach = self.reach.cut(cut);
        self.out.push(Output::Cut(cut));
    }

    pub(crate) fn was_cut(&mut self, end: Mark) {
        if let Side::Standby(standby) = &mut self.side
            && standby.cutting
            && end.sequence == self.end.sequence
        {
            standby.cutting = false;
            self.end = end;
            // What was on its way to the disk when it was cut is there, and nobody else says so.
            self.reach = Reach::durable(end.sequence);
            self.tell_reach(self.node.place().epoch);
            self.resume();
        }
    }

    /// Asks for what follows the own log.
    fn resume(&mut self) {
        let now = self.watch.now_ms;
        let Side::Standby(standby) = &mut self.side else { return };
        standby.asked_ms = now;
        let primary = standby.primary;
        self.send(primary, Said::Resume(self.end));
    }

    /// There is a new connection: what the old one had under way is lost.
    pub(crate) fn connected(&mut self, member: Member) {
        if self.node.follows() == Some(member) && matches!(&self.side, Side::Standby(standby) if !standby.cutting) {
            self.resume();
        }
    }

    /// Entries of the primary's, in order.
    pub(crate) fn take(&mut self, end: Sequence, confirmed: Sequence, entries: Vec<Entry>) {
        let Side::Standby(standby) = &mut self.side else { return };
        if standby.cutting {
            return;
        }
        standby.end = standby.end.max(end);
        let mut written_by = None;
        let mut lost = false;
        for entry in entries {
            if entry.sequence <= self.end.sequence {
                continue;
            }
            if !entry.follows(self.end) && self.keeps(Rule::Order) {
                lost = true;
                break;
            }
            let epoch = entry.epoch;
            if let Some(before) = written_by.replace(epoch).filter(|before| *before != epoch) {
                self.tell_reach(before);
            }
            self.append(entry);
        }
        if let Some(epoch) = written_by {
            self.tell_reach(epoch);
            self.heard_more();
        }
        self.confirm(if self.keeps(Rule::ConfirmedOnly) { confirmed } else { self.end.sequence });
        if lost {
            self.ask_again();
        }
    }

    /// What it asked for comes: more of that is on its way.
    fn heard_more(&mut self) {
        if let Side::Standby(standby) = &mut self.side {
            standby.asked_ms = self.watch.now_ms;
        }
    }

    /// Something is missing. One question is enough for a while: what is on its way may still come.
    fn ask_again(&mut self) {
        let (now, resend) = (self.watch.now_ms, self.settings.resend_ms);
        if let Side::Standby(standby) = &self.side
            && now.saturating_sub(standby.asked_ms) >= resend
            && self.keeps(Rule::AskAgain)
        {
            self.resume();
        }
    }

    pub(crate) fn tick_standby(&mut self) {
        let (now, resend, own) = (self.watch.now_ms, self.settings.resend_ms, self.end.sequence);
        let Side::Standby(standby) = &mut self.side else { return };
        if standby.cutting || self.node.follows() != Some(standby.primary) {
            return;
        }
        let waited = now.saturating_sub(standby.asked_ms) >= resend;
        match &standby.coming {
            Some(_) if standby.loading => {}
            Some((base, have)) if waited => {
                let (primary, at, offset) = (standby.primary, base.end.sequence, *have);
                standby.asked_ms = now;
                self.send(primary, Said::More { at, offset });
            }
            None if standby.end > own => self.ask_again(),
            _ => {}
        }
    }

    /// Some bytes of a snapshot.
    pub(crate) fn piece(&mut self, piece: Piece) {
        let now = self.watch.now_ms;
        let Side::Standby(standby) = &mut self.side else { return };
        let length = u64::try_from(piece.bytes.len()).unwrap_or(u64::MAX);
        let Some(have) = piece.offset.checked_add(length).filter(|have| *have <= piece.total_bytes) else { return };
        let next = match &standby.coming {
            Some((base, have)) if *base == piece.base => piece.offset == *have,
            // Another one than what was coming begins anew, and an older one than the own log is none.
            _ => piece.offset == 0,
        };
        let known = piece.base.end.sequence <= self.end.sequence;
        let idle = length == 0;
        if standby.cutting || standby.loading || known || !next || idle {
            return;
        }
        standby.asked_ms = now;
        let (primary, base, whole) = (standby.primary, piece.base.clone(), have == piece.total_bytes);
        standby.coming = Some((base.clone(), have));
        standby.loading = whole;
        self.out.push(Output::KeepPiece(piece));
        if whole {
            self.out.push(Output::Load(base));
        } else {
            self.send(primary, Said::More { at: base.end.sequence, offset: have });
        }
    }

    /// What came was read. What was cut, or led to, since is not overwritten: then somebody else says what follows.
    pub(crate) fn loaded(&mut self, base: Base, whole: bool) {
        let end = self.end.sequence;
        let Side::Standby(standby) = &mut self.side else { return };
        let asked = standby.coming.as_ref().is_some_and(|(coming, _)| *coming == base);
        if !standby.loading || !asked || standby.cutting {
            return;
        }
        standby.loading = false;
        if whole && base.end.sequence > end {
            self.out.push(Output::Install(base));
        } else {
            standby.coming = None;
            self.resume();
        }
    }

    /// The snapshot is the state, and the log begins behind it.
    pub(crate) fn installed(&mut self) {
        let Side::Standby(standby) = &mut self.side else { return };
        let Some((base, _)) = standby.coming.take() else { return };
        self.end = base.end;
        self.base = base.end.sequence;
        self.trimmed = base.end.sequence;
        self.counts.snapshots_installed += 1;
        self.reach = Reach::durable(base.end.sequence);
        self.recent.clear();
        self.states.cut(Sequence(0));
        self.confirmed = base.end.sequence;
        for (epoch, last) in base.history.tenures() {
            self.node(Event::Log { epoch, reach: Reach::durable(last) });
        }
        self.resume();
    }
}
