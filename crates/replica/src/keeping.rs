//! What is to be on the disk of every member in the set before it is told, whatever the group's `ack` asks for: votes and
//! outcomes of branches, which a coordinator believes for ever.
//!
//! Walk: [`Replica::keep`] when a command is ordered whose answer waits for it · the own log and those of the standbys are synced at
//! once ([`Replica::sync_kept`]) · [`Replica::kept`] says how far it is.
//! Deliberately absent: which commands those are. The front knows.

use assent_membership::{Event, Sequence};

use crate::event::Output;
use crate::replica::{Replica, Side};
use crate::rules::Rule;

/// How far it is to be kept, and how far it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keeping {
    /// Somebody waits until everything up to here is on every disk. A primary's; a standby's as it heard.
    pub(crate) wanted: Sequence,
    /// The node has been told so much.
    told: Sequence,
    /// The own log was to be synced for so much.
    synced: Sequence,
    /// So much is on every disk that counts.
    pub(crate) kept: Sequence,
}

impl Replica {
    /// Sees to it that everything up to here is on the disk of every member in the set soon, and on that of every one that comes into
    /// it: then [`Replica::kept`] has passed it.
    pub fn keep(&mut self, at: Sequence) {
        if self.node.leads().is_some() {
            self.keeping.wanted = self.keeping.wanted.max(at.min(self.end.sequence));
        }
    }

    /// Everything up to here that was to be kept is.
    #[must_use]
    pub fn kept(&self) -> Sequence {
        if self.keeps(Rule::Keep) { self.keeping.kept } else { self.end.sequence }
    }

    /// Whether the next step has something to do for it.
    pub(crate) fn keeps_anew(&self) -> bool {
        matches!(self.side, Side::Primary(_)) && self.keeping.wanted > self.keeping.told
    }

    /// The node hears what is to be kept.
    pub(crate) fn tell_keep(&mut self) {
        if self.keeps_anew() {
            self.keeping.told = self.keeping.wanted;
            self.node(Event::Keep(self.keeping.wanted));
        }
    }

    /// It leads: what it holds may hold votes that were told, so whoever comes into the set syncs up to here first.
    pub(crate) fn begin_keeping(&mut self) {
        let end = self.end.sequence;
        self.keeping = Keeping { wanted: end, ..Keeping::default() };
    }

    /// A standby heard what is to be kept.
    pub(crate) fn hear_keep(&mut self, to: Sequence) {
        self.keeping.wanted = self.keeping.wanted.max(to);
    }

    /// Syncs the own log for it, once.
    pub(crate) fn sync_kept(&mut self) {
        let wanted = self.keeping.wanted;
        if self.keeping.synced < wanted && self.reach.durable < wanted && wanted <= self.end.sequence {
            self.keeping.synced = wanted;
            self.out.push(Output::Sync);
        }
    }
}
