//! What a replica hears, and what it wants done.

use assent_ids::Epoch;
use assent_kind::Kind;
use assent_membership::{Configuration, History, Member, Sequence};

use crate::entry::{Chain, Entry, Mark};
use crate::message::{Base, Message, Piece};

/// What was found at a start: the own log, opened, verified and durable.
#[derive(Clone, Debug, Default)]
pub struct Opened {
    /// The configuration that was stored last; the default one if there is none.
    pub known: Configuration,
    /// Whether a person told it to stay out.
    pub out: bool,
    /// The longest promise that an earlier life may have given: the last [`Output::Promise`].
    pub promised_ms: u64,
    /// Which epochs wrote which stretch of the log.
    pub history: History,
    /// Its end.
    pub end: Mark,
    /// Where the snapshot stands that the state was loaded from; nothing before it can be cut.
    pub base: Sequence,
}

/// What a replica hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Only time has passed.
    Time,
    /// Another member said something.
    Heard(Message),
    /// There is a new connection to this member: what was on its way before may be lost.
    Connected(Member),
    /// The connection to this member broke, and cannot be had again at once.
    Lost(Member),
    /// What the arbiter holds.
    Arbiter(Configuration),
    /// The arbiter did not answer.
    ArbiterSilent,
    /// The arbiter answered that it does not do this; and nothing of that version that was asked before can come true any more.
    Refused {
        /// What it must hold.
        expect: u64,
        /// What it was to hold.
        to: Configuration,
    },
    /// How far the own log has come. Told of the log as it is now: never with what was cut.
    Held {
        /// In the kernel.
        written: Sequence,
        /// On the disk.
        durable: Sequence,
    },
    /// The answer to [`Output::Cut`]: it is done, and this is the end.
    WasCut(Mark),
    /// The answer to [`Output::Fetch`].
    Fetched {
        /// For whom.
        to: Member,
        /// Behind which entry.
        after: Sequence,
        /// The chain up to that entry; none if the log does not reach back so far.
        chain: Option<Chain>,
        /// What follows it, in order; nothing at the end of the log.
        entries: Vec<Entry>,
    },
    /// The answer to [`Output::ReadPiece`]; none: there is no snapshot.
    PieceRead {
        /// For whom.
        to: Member,
        /// The bytes.
        piece: Option<Piece>,
    },
    /// The answer to [`Output::Load`]: what came is the snapshot of this place, whole and durable; or it is not, and is thrown away.
    Loaded {
        /// Where it stands.
        base: Base,
        /// Whether it is.
        whole: bool,
    },
    /// The answer to [`Output::Install`]: the state is the snapshot's, durably.
    Installed,
    /// There is a snapshot of the state after this entry now: nothing before it can be cut.
    SnapshotKept(Mark),
    /// The state after this entry has this hash. Told each time `compare_every` divides the sequence.
    State {
        /// After which entry.
        at: Sequence,
        /// The hash.
        hash: u64,
    },
}

/// What a replica wants done, in this order: what stands behind a [`Output::Store`], [`Output::Promise`], [`Output::Cut`] or
/// [`Output::Install`] is done when that is durable; the answers to [`Output::Cut`] and [`Output::Install`] are the next input. All other answers may take their time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Make this durable: the last configuration known, and with it the fence.
    Store(Configuration),
    /// Make this durable: from now on promises not to ask for the lead may be as long as this, and no longer.
    Promise(u64),
    /// Say this; it may be lost.
    Send(Message),
    /// Ask the arbiter what it holds.
    Read,
    /// Ask the arbiter to hold this instead, if it holds that version.
    Change {
        /// What it must hold.
        expect: u64,
        /// What it shall hold.
        to: Configuration,
    },
    /// Put these behind the own log, in this order.
    Append(Vec<Entry>),
    /// Write and sync the own log soon: somebody waits for it.
    Sync,
    /// Move the end of the own log back behind this entry. Where more was applied, the state is loaded from the snapshot again.
    Cut(Sequence),
    /// Everything up to here is confirmed: apply it; a primary answers its clients.
    Commit(Sequence),
    /// Reads that asked up to this beat may be answered, from what is applied.
    Confirmed(u64),
    /// It leads: clients may come.
    Lead(Epoch),
    /// It leads no longer: commands without an answer are in doubt, reads are to be asked again.
    Yield,
    /// Read the own log behind this entry, about so many bytes, for this member.
    Fetch {
        /// For whom.
        to: Member,
        /// Behind which entry.
        after: Sequence,
        /// About how many bytes.
        bytes_max: u64,
    },
    /// Read the last snapshot for this member: of this place from that byte on, or another one's beginning.
    ReadPiece {
        /// For whom.
        to: Member,
        /// Of which place.
        at: Sequence,
        /// From which byte on.
        offset: u64,
        /// How many bytes at most.
        bytes_max: u64,
    },
    /// Keep these bytes of a snapshot that is coming; offset 0 begins a new one.
    KeepPiece(Piece),
    /// All pieces of a snapshot are here: check it, and make of it what [`Output::Install`] needs. That may take its time, and come to
    /// nothing: the answer is [`Input::Loaded`], if it is still the last one that was asked for.
    Load(Base),
    /// The snapshot that was loaded is the state, and the beginning of the own log, durably.
    Install(Base),
    /// This member asks for no piece of a snapshot any more.
    Unlend(Member),
    /// What stands before this entry in the own log is not needed any more: a snapshot holds it, and nobody is being sent it.
    Trim(Sequence),
    /// This member must stop, and a person must look.
    Halt(Fault),
}

/// Why a member cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Its log is not what its history says: damage, or a disk that was put back.
    #[error(
        "entry {at} of this log is not the primary's, although both say that the same epoch wrote it: start anew from an empty folder"
    )]
    LogDiffers {
        /// Up to which entry they were compared.
        at: Sequence,
    },
    /// Its state is not what the log led to elsewhere.
    #[error(
        "after entry {at} the state has hash {own:#x}, the primary's {theirs:#x}: keep both folders and compare them"
    )]
    StateDiffers {
        /// After which entry.
        at: Sequence,
        /// The own hash.
        own: u64,
        /// The primary's.
        theirs: u64,
    },
    /// What is to be cut is in its snapshot.
    #[error(
        "the log is to be cut behind entry {to}, and the snapshot holds entry {base}: start anew from an empty folder"
    )]
    CutBehindSnapshot {
        /// The last entry that stays.
        to: Sequence,
        /// The last entry in the snapshot.
        base: Sequence,
    },
}

impl Fault {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::LogDiffers { .. } | Self::StateDiffers { .. } => Kind::Corrupt,
            Self::CutBehindSnapshot { .. } => Kind::Closed,
        }
    }
}

/// A command or read that was not taken in. Nothing has happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It does not lead, or gives the lead away.
    #[error("this member does not lead{}", primary.map(|member| format!("; member {member} did last")).unwrap_or_default())]
    NotLeading {
        /// Who does, as far as known.
        primary: Option<Member>,
    },
    /// Too much waits for its confirmation.
    #[error("{bytes} bytes of commands wait for their confirmation; send it again")]
    Busy {
        /// How much.
        bytes: usize,
    },
    /// A kind that the journal keeps for itself.
    #[error("a command of kind {kind:#06x}; kinds from 0xfff0 are the journal's own")]
    Kind {
        /// The refused kind.
        kind: u16,
    },
    /// A command beyond the limit.
    #[error("a command of {bytes} bytes; a group takes at most {limit}", limit = crate::COMMAND_BYTES_MAX)]
    Long {
        /// How long it is.
        bytes: usize,
    },
}

impl Refused {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::NotLeading { .. } => Kind::Unavailable,
            Self::Busy { .. } => Kind::Busy,
            Self::Long { .. } | Self::Kind { .. } => Kind::Invalid,
        }
    }
}

/// When a read may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAt {
    /// Now, from what is applied: nobody else can lead.
    Now,
    /// When [`Output::Confirmed`] has reached this beat.
    Beat(u64),
}
