//! What a member hears and what it does about it.

use assent_ids::Epoch;
use assent_kind::Kind;

use crate::configuration::Configuration;
use crate::history::{History, Place, Sequence};
use crate::member::{Life, Member};
use crate::reach::Reach;

/// A message between members.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Letter {
    /// Who says it.
    pub from: Member,
    /// To whom.
    pub to: Member,
    /// The highest epoch that the sender knew.
    pub epoch: Epoch,
    /// What it says.
    pub body: Body,
}

/// What a [`Letter`] says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Body {
    /// I follow nobody: here I am, with this log.
    Hello {
        /// The last configuration I know.
        version: u64,
        /// What my confirmations live in.
        life: Life,
        /// The end of my log.
        place: Place,
    },
    /// I lead. Also the heartbeat.
    Lead {
        /// In this configuration.
        configuration: Configuration,
        /// My log as it was when I began to lead.
        base: History,
        /// Answer with the highest of these that you have seen.
        beat: u64,
        /// I need the arbiter and do not reach it: lead yourself if you do.
        aside: bool,
    },
    /// I follow you, and hold this much.
    Held {
        /// What my confirmations live in.
        life: Life,
        /// How far I hold your log.
        reach: Reach,
        /// The highest beat I have seen.
        beat: u64,
        /// A person told me to stay out: do not count on me.
        out: bool,
        /// For so many milliseconds I shall not ask for the lead; 0: I promise nothing.
        promised_ms: u64,
    },
    /// This is the configuration; you know an older one.
    News(Configuration),
}

/// What a member hears.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// Some time has passed: say again what may have been lost.
    Tick,
    /// From another member.
    Heard(Letter),
    /// What the arbiter holds: the answer to a read or to a change, whether that was done or refused, or its own word.
    Arbiter(Configuration),
    /// The arbiter has not answered for a while.
    ArbiterSilent,
    /// The arbiter holds the version that is expected, has answered that it does not do this, and surely has not; and no earlier try of
    /// this member, of this change or of another one of that version, can come true any more.
    Refused {
        /// What it must hold.
        expect: u64,
        /// What it was to hold.
        to: Configuration,
    },
    /// A member has not said for longer than its lease what it should: the primary that it leads, a follower that it holds.
    /// Or the connection to it broke.
    Silent(Member),
    /// Nobody else has come for as long as one waits at a start.
    Patience,
    /// The own log is held this far; entries that came last are of this epoch. Told for each epoch, in order.
    Log {
        /// Whose entries came last.
        epoch: Epoch,
        /// How far it is held.
        reach: Reach,
    },
    /// An answer waits until the log up to here is on the disk of every member in the set, whatever the group's `ack` asks for.
    Keep(Sequence),
    /// Somebody reads: is anyone else the primary by now?
    Ask,
}

/// What a member does. In this order: what stands behind a [`Action::Store`] is done when that is durable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Makes this durable: the last configuration known, and with it the fence. Handed to [`crate::Node::start`] again.
    Store(Configuration),
    /// Says this; it may be lost.
    Send(Letter),
    /// Asks the arbiter what it holds.
    Read,
    /// Asks the arbiter to hold this instead, if it still holds that version.
    Change {
        /// What it must hold.
        expect: u64,
        /// What it shall hold.
        to: Configuration,
    },
    /// Leads: takes commands, and writes them under this epoch.
    Lead(Epoch),
    /// Leads no longer. Commands without an answer are in doubt.
    Yield,
    /// Cuts the own log behind this sequence, then takes the primary's stream.
    Follow {
        /// Whose stream.
        primary: Member,
        /// In this epoch, and in no other.
        epoch: Epoch,
        /// The last sequence that both logs share.
        cut: Sequence,
    },
    /// Syncs the own log: something waits for it.
    Sync,
    /// Everything up to here may be acknowledged.
    Release(Sequence),
    /// What was to be kept up to here is on the disk of every member in the set, and of every one that comes into it.
    Kept(Sequence),
    /// Reads that asked up to this beat may be answered, from everything released so far.
    Confirmed(u64),
}

/// A person's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Word {
    /// Lead, although nothing says that you hold everything. The person knows that no other member runs, and that what
    /// only they hold is lost. Needs the arbiter, raises the epoch, and stays visible in the configuration.
    Force,
    /// Give the lead to this member, when it holds everything; commands are taken until the arbiter has been heard again, as only it
    /// can change who leads. To the primary itself: keep it after all.
    HandOver(Member),
    /// What a forced lead may have lost is settled: the configuration need not say it any more.
    Settle,
    /// Stay out: lead nothing, and be counted on for nothing; or come back.
    Out(bool),
}

/// A person's word that cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordError {
    /// Only the primary can do that.
    #[error("this member does not lead; say it to the primary")]
    NotLeading,
    /// It leads.
    #[error("this member leads; hand the lead over first, if it should not")]
    Leading,
    /// The other one does not hold everything.
    #[error("member {0} is not in sync; wait until it has caught up")]
    NotInSync(Member),
    /// It has stopped for good.
    #[error("this member has stopped: restart it, and then say it again")]
    Stopped,
    /// It is to stay out.
    #[error("this member is told to stay out; take that back first")]
    Out,
}

impl WordError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::NotLeading | Self::Leading | Self::Out => Kind::Invalid,
            Self::NotInSync(_) => Kind::Unavailable,
            Self::Stopped => Kind::Closed,
        }
    }
}

/// Where a member stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It leads, and acknowledges as commands are confirmed.
    Leads,
    /// It leads, and acknowledges nothing that is new.
    Stalls(Why),
    /// It follows this member.
    Follows(Member),
    /// It neither leads nor follows.
    Waits(Why),
}

/// Why nothing goes on here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// These members are in the set and do not confirm, and the arbiter has not taken them out.
    Unconfirmed(Vec<Member>),
    /// It gives the lead away.
    HandingOver,
    /// The arbiter has not said what it holds.
    ArbiterUnread,
    /// The arbiter holds an older configuration than was seen before, or one that cannot follow it: it has forgotten. A person must look.
    ArbiterForgot {
        /// What version it holds; where it is not a lower one, it is of another history.
        holds: u64,
        /// What was seen.
        seen: u64,
    },
    /// The arbiter answers, and has just refused to hold anything new.
    ArbiterRefuses,
    /// It asked to lead and has no answer.
    Asked,
    /// The primary may be at work.
    PrimaryExpected(Member),
    /// It does not hold everything that was acknowledged; these members may.
    NotInSync(Vec<Member>),
    /// It has not heard these members, which may know more.
    Missing(Vec<Member>),
    /// Another member knows more.
    Outranked(Member),
    /// Its log must reach the disk first.
    Unsynced,
    /// A person told it to stay out.
    Out,
}
