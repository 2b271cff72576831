//! What members say to each other, in bytes: one frame a message.
//!
//! ```text
//!   frame: kind = what is said · mark, flags, chain 0
//!   payload: | version: 1 byte | from 1 | to 1 | told 8 | epoch 4 | what it says ... |
//! ```
//! Kinds 1 to 4 are the letters of `membership`, as `letters` lays them; from 16 on it is the stream of entries. Every one
//! carries the epoch of its sender; who gets a lower one than his refuses it. And each carries a digest of what its sender was told of
//! the group; who was told otherwise asks, and believes nothing of another group.
//!
//! Walk: [`Message::lay`] appends the frame to a buffer · [`Message::read`] takes the first message off bytes.
//! Deliberately absent: connections, and what follows from a message.

use assent_frame::{Frame, FrameError, Head, Malformed, PAYLOAD_BYTES_MAX, Reader, Writer};
use assent_ids::Epoch;
use assent_membership::{Body, History, Member, Sequence};
use bytes::Bytes;

use crate::entry::{COMMAND_BYTES_MAX, Chain, Entry, HEADER_BYTES, Mark};
use crate::letters;
use crate::told::Told;

/// As many bytes of entries as one message takes, unless the first alone is longer.
pub const STREAM_BYTES_MAX: usize = 256 << 10;
/// As many bytes of a snapshot as one message takes.
pub const PIECE_BYTES_MAX: usize = 256 << 10;

/// Of 6 entries may hold what a member of 5 would not know: the messages themselves are the same.
const VERSION: u8 = 6;
const KIND_RESUME: u16 = 16;
const KIND_STREAM: u16 = 17;
const KIND_DIFFERS: u16 = 18;
const KIND_PIECE: u16 = 19;
const KIND_MORE: u16 = 20;
const KIND_STATE: u16 = 21;
const KIND_TOLD: u16 = 22;

/// Bytes of an entry in a stream beside its payload: kind, length, header.
const ENTRY_BYTES: usize = 6 + HEADER_BYTES;

const _: () = assert!(
    STREAM_BYTES_MAX + COMMAND_BYTES_MAX + ENTRY_BYTES + 64 <= PAYLOAD_BYTES_MAX,
    "a stream of any entries fits a frame"
);

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who says it.
    pub from: Member,
    /// To whom.
    pub to: Member,
    /// The digest of what the sender was told of the group.
    pub told: u64,
    /// The highest epoch that the sender knew.
    pub epoch: Epoch,
    /// What it says.
    pub said: Said,
}

/// What a [`Message`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// A letter of `membership`.
    Letter(Body),
    /// A standby: my log ends here; send what follows.
    Resume(Mark),
    /// The primary: these follow, in order. Without entries: how far the log goes, and how far it is confirmed.
    Stream {
        /// The end of the primary's log.
        end: Sequence,
        /// Everything up to here may be applied.
        confirmed: Sequence,
        /// Somebody waits until the log up to here is on every disk.
        keep: Sequence,
        /// What follows.
        entries: Vec<Entry>,
    },
    /// The primary: what you hold up to there is not what I hold.
    Differs(Sequence),
    /// The primary: what you miss is not in my log any more; this is a piece of a snapshot.
    Piece(Piece),
    /// A standby: the next piece, please.
    More {
        /// Of the snapshot of this place.
        at: Sequence,
        /// From this byte on.
        offset: u64,
    },
    /// The primary: the state after this entry has this hash.
    State {
        /// After which entry.
        at: Sequence,
        /// The hash.
        hash: u64,
    },
    /// I was told this of the group.
    Told {
        /// What.
        told: Told,
        /// And you?
        asks: bool,
    },
}

/// Where a snapshot stands: it holds the state after this entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// Which epochs wrote the log up to there.
    pub history: History,
    /// The last entry that is in it.
    pub end: Mark,
}

/// Some bytes of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where the snapshot stands.
    pub base: Base,
    /// How many bytes it has.
    pub total_bytes: u64,
    /// From which byte on these are.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Bytes that are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// They are no frame.
    #[error("{0}")]
    Frame(FrameError),
    /// The frame holds nothing that a member says.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// A kind that is not known.
    #[error("a message of kind {0}, which no member sends")]
    Kind(u16),
    /// Another version of the protocol.
    #[error("a message of version {0}; this member speaks {VERSION}")]
    Version(u8),
}

impl Message {
    /// Appends it as one frame.
    pub fn lay(&self, out: &mut Vec<u8>) {
        // Straight into the buffer: each command is copied once.
        assent_frame::lay_with(out, Head { kind: self.said.kind(), ..Head::default() }, |fields| {
            fields.u8(VERSION).u8(self.from.0).u8(self.to.0).u64(self.told).u32(self.epoch.0);
            self.said.lay(fields);
        });
    }

    /// The first message of these bytes and how many it takes; none if they end before.
    ///
    /// # Errors
    /// [`MessageError`]: what follows on that connection cannot be believed either.
    pub fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, MessageError> {
        match assent_frame::parse(bytes, PAYLOAD_BYTES_MAX) {
            Ok(None) => Ok(None),
            Ok(Some((frame, laid))) => Ok(Some((Self::of(&frame)?, laid))),
            Err(error) => Err(MessageError::Frame(error)),
        }
    }

    fn of(frame: &Frame<'_>) -> Result<Self, MessageError> {
        let mut fields = Reader::new(frame.payload);
        let version = fields.u8("version")?;
        if version != VERSION {
            return Err(MessageError::Version(version));
        }
        let (from, to) = (Member(fields.u8("from")?), Member(fields.u8("to")?));
        let told = fields.u64("told")?;
        let epoch = Epoch(fields.u32("epoch")?);
        let said = match frame.kind {
            KIND_RESUME => Said::Resume(read_mark(&mut fields)?),
            KIND_STREAM => stream(&mut fields)?,
            KIND_DIFFERS => Said::Differs(Sequence(fields.u64("at")?)),
            KIND_PIECE => Said::Piece(piece(&mut fields)?),
            KIND_MORE => Said::More { at: Sequence(fields.u64("at")?), offset: fields.u64("offset")? },
            KIND_STATE => Said::State { at: Sequence(fields.u64("at")?), hash: fields.u64("hash")? },
            KIND_TOLD => Said::Told { told: Told::read(&mut fields)?, asks: letters::flag(&mut fields, "asks")? },
            kind => Said::Letter(letters::read(kind, &mut fields)?.ok_or(MessageError::Kind(kind))?),
        };
        fields.end()?;
        Ok(Self { from, to, told, epoch, said })
    }
}

impl Said {
    const fn kind(&self) -> u16 {
        match self {
            Self::Letter(body) => letters::kind(body),
            Self::Resume(_) => KIND_RESUME,
            Self::Stream { .. } => KIND_STREAM,
            Self::Differs(_) => KIND_DIFFERS,
            Self::Piece(_) => KIND_PIECE,
            Self::More { .. } => KIND_MORE,
            Self::State { .. } => KIND_STATE,
            Self::Told { .. } => KIND_TOLD,
        }
    }

    fn lay(&self, fields: &mut Writer) {
        match self {
            Self::Letter(body) => letters::lay(body, fields),
            Self::Resume(mark) => lay_mark(fields, *mark),
            Self::Stream { end, confirmed, keep, entries } => {
                let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
                fields.u64(end.0).u64(confirmed.0).u64(keep.0).u32(count);
                for entry in entries {
                    let length = u32::try_from(entry.bytes()).unwrap_or(u32::MAX);
                    fields.u16(entry.kind).u32(length).raw(&entry.header()).raw(&entry.payload);
                }
            }
            Self::Differs(at) => _ = fields.u64(at.0),
            Self::Piece(piece) => {
                lay_base(fields, &piece.base);
                fields.u64(piece.total_bytes).u64(piece.offset).bytes(&piece.bytes);
            }
            Self::More { at, offset } => _ = fields.u64(at.0).u64(*offset),
            Self::State { at, hash } => _ = fields.u64(at.0).u64(*hash),
            Self::Told { told, asks } => {
                told.lay(fields);
                fields.u8(u8::from(*asks));
            }
        }
    }
}

fn stream(fields: &mut Reader<'_>) -> Result<Said, Malformed> {
    let (end, confirmed) = (Sequence(fields.u64("end")?), Sequence(fields.u64("confirmed")?));
    let keep = Sequence(fields.u64("keep")?);
    let count = fields.u32("entries")?;
    // One copy for all of them.
    let whole = Bytes::copy_from_slice(fields.rest());
    let mut entries = Vec::with_capacity(whole.len() / ENTRY_BYTES);
    let mut laid = Reader::new(&whole);
    for _ in 0..count {
        let kind = laid.u16("kind")?;
        entries.push(Entry::parse(kind, whole.slice_ref(laid.bytes("entry")?))?);
    }
    fields.raw(whole.len() - laid.rest().len(), "entries")?;
    Ok(Said::Stream { end, confirmed, keep, entries })
}

fn piece(fields: &mut Reader<'_>) -> Result<Piece, Malformed> {
    let base = read_base(fields)?;
    let (total_bytes, offset) = (fields.u64("total")?, fields.u64("offset")?);
    let bytes = fields.bytes("bytes")?.to_vec();
    Ok(Piece { base, total_bytes, offset, bytes })
}

fn lay_mark(fields: &mut Writer, mark: Mark) {
    fields.u64(mark.sequence.0).u64(mark.chain.0);
}

fn read_mark(fields: &mut Reader<'_>) -> Result<Mark, Malformed> {
    Ok(Mark { sequence: Sequence(fields.u64("sequence")?), chain: Chain(fields.u64("chain")?) })
}

pub(crate) fn lay_base(fields: &mut Writer, base: &Base) {
    lay_mark(fields, base.end);
    letters::lay_history(fields, &base.history);
}

pub(crate) fn read_base(fields: &mut Reader<'_>) -> Result<Base, Malformed> {
    let end = read_mark(fields)?;
    let history = letters::read_history(fields)?;
    if history.end().sequence != end.sequence {
        return Err(Malformed { field: "history" });
    }
    Ok(Base { history, end })
}
