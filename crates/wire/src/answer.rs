//! What a server answers.
//!
//! Walk: [`Answer::lay`] lays one as a frame with the id of its request · [`Answer::parse`] reads one in place.

use assent_frame::{Frame, Malformed, Reader, Writer};
use assent_ids::{Lsn, Xid};
use assent_kind::Kind;

use crate::admin::{RoundView, TransactionView, heuristic, put_heuristic};
use crate::chores::{Checked, Compacted};
use crate::history::{Detail, PastView, Verified};
use crate::keyspaces::KeyspaceView;
use crate::objects::{Object, Row, objects, put_objects};
use crate::request::{outcome, put_outcome};
use crate::{Outcome, Welcome, WireError, field};

/// What the coordinator knows of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Decided: commit.
    Committed,
    /// Decided: roll back.
    RolledBack,
    /// Not decided yet.
    Undecided,
    /// Forgotten, or never seen.
    Unknown,
    /// A decision was laid, but the log failed: it shows after a restart.
    InDoubt,
}

/// How a resource finished a branch on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heuristic {
    /// Committed.
    Committed,
    /// Rolled back.
    RolledBack,
    /// Partly each.
    Mixed,
    /// May be either.
    Hazard,
}

/// Never renumbered.
pub(crate) const HEURISTICS: &[(u8, Heuristic)] =
    &[(1, Heuristic::Committed), (2, Heuristic::RolledBack), (3, Heuristic::Mixed), (4, Heuristic::Hazard)];

/// The store's own words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Native<'a> {
    /// A code or nothing.
    pub code: &'a str,
    /// One sentence.
    pub message: &'a str,
}

/// A branch's answer to its verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Done, and durable where the verb says so.
    Done,
    /// Prepared: it will do whatever is decided. With what the coordinator keeps of the vote, at most 4,096 bytes.
    Yes(&'a [u8]),
    /// Prepared with nothing to do: it is finished.
    ReadOnly,
    /// It is rolled back or can only be.
    RolledBack(Native<'a>),
    /// It was finished without the decision.
    Heuristic(Heuristic, Native<'a>),
    /// There is no such branch.
    Unknown(Native<'a>),
    /// No, and nothing has changed.
    Refused(Kind, Native<'a>),
    /// The prepared branches.
    Listed(Vec<Xid>),
    /// What became of a branch that is not listed.
    Past(Past<'a>),
}

/// What a store knows of a branch that is not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past<'a> {
    /// It was committed.
    Committed,
    /// It was rolled back.
    RolledBack,
    /// It is there.
    Open,
    /// It may be either: too long ago.
    Forgotten,
    /// This is not the store that voted.
    Elsewhere(Native<'a>),
}

/// A key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// A message from server to caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// To a hello.
    Welcome(Welcome),
    /// To anything: it was not done, and the kind says what to do. To a hello: and the connection is closed.
    Error {
        /// What the caller must do.
        kind: Kind,
        /// One sentence.
        message: &'a str,
    },
    /// To `Ping`.
    Pong,
    /// To `Decide`.
    Decided(Outcome),
    /// To `Ask`.
    Known(Known),
    /// To the branch verbs.
    Branch(Reply<'a>),
    /// To `Get`; nothing if there is no such key.
    Value(Option<&'a [u8]>),
    /// To `Write`: where it stands in the journal; zero within a branch, where it stands nowhere yet.
    Written(Lsn),
    /// To `Scan`.
    Pairs {
        /// Whether there are more behind the last one.
        more: bool,
        /// In the order of their keys.
        pairs: Vec<Found<'a>>,
    },
    /// To `Look`: what is known of the first keys that were asked for, in their order; ask on for the others.
    Objects(Vec<Option<Object<'a>>>),
    /// To `Rows`.
    Rows {
        /// Whether there are more behind the last one.
        more: bool,
        /// In the order of their keys.
        rows: Vec<Row<'a>>,
    },
    /// To `KeyspaceCreate` and `Keyspaces`.
    Keyspaces {
        /// Whether there are more behind the last one.
        more: bool,
        /// In the order of their names.
        list: Vec<KeyspaceView<'a>>,
    },
    /// To `StoreVerify`.
    Checked(Checked<'a>),
    /// To `StoreCompact`.
    Compacted(Compacted),
    /// To `TxList` and `TxShow`.
    Transactions {
        /// Whether there are more behind the last one.
        more: bool,
        /// In their order.
        list: Vec<TransactionView<'a>>,
    },
    /// To `TxRecover`.
    Round(RoundView<'a>),
    /// To `TxForget`: it is done, on disk.
    Forgotten,
    /// To `TxLog`, `TxLogVotes` and `TxLogWitnesses`.
    Log {
        /// Whether there are more behind the last one.
        more: bool,
        /// What it tells of each branch.
        detail: Detail,
        /// In the order in which they were finished.
        list: Vec<PastView<'a>>,
    },
    /// To `TxVerify`, if nothing is wrong; else `Error` with the place.
    Verified(Verified),
    /// To `Stats`: every gauge by its name, in the order of names.
    Stats(Vec<(&'a str, u64)>),
}

const WELCOME: u16 = 0x8001;
const PONG: u16 = 0x8002;
const DECIDED: u16 = 0x8010;
const KNOWN: u16 = 0x8012;
const BRANCH: u16 = 0x8020;
pub(crate) const VALUE: u16 = 0x8030;
const WRITTEN: u16 = 0x8031;
const PAIRS: u16 = 0x8032;
const OBJECTS: u16 = 0x8033;
const ROWS: u16 = 0x8034;
const KEYSPACES: u16 = 0x8038;
const CHECKED: u16 = 0x8039;
const COMPACTED: u16 = 0x803a;
const TRANSACTIONS: u16 = 0x8040;
const ROUND: u16 = 0x8042;
const STATS: u16 = 0x8043;
const FORGOTTEN: u16 = 0x8045;
const LOG: u16 = 0x8046;
const LOG_VOTES: u16 = 0x8048;
const LOG_WITNESSES: u16 = 0x8049;
const VERIFIED: u16 = 0x8047;
const ERROR: u16 = 0x80ff;

impl<'a> Answer<'a> {
    const fn kind(&self) -> u16 {
        match self {
            Self::Welcome(_) => WELCOME,
            Self::Error { .. } => ERROR,
            Self::Pong => PONG,
            Self::Decided(_) => DECIDED,
            Self::Known(_) => KNOWN,
            Self::Branch(_) => BRANCH,
            Self::Value(_) => VALUE,
            Self::Written(_) => WRITTEN,
            Self::Pairs { .. } => PAIRS,
            Self::Objects(_) => OBJECTS,
            Self::Rows { .. } => ROWS,
            Self::Keyspaces { .. } => KEYSPACES,
            Self::Checked(_) => CHECKED,
            Self::Compacted(_) => COMPACTED,
            Self::Transactions { .. } => TRANSACTIONS,
            Self::Round(_) => ROUND,
            Self::Stats(_) => STATS,
            Self::Forgotten => FORGOTTEN,
            Self::Log { detail: Detail::Fates, .. } => LOG,
            Self::Log { detail: Detail::Votes, .. } => LOG_VOTES,
            Self::Log { detail: Detail::Witnesses, .. } => LOG_WITNESSES,
            Self::Verified(_) => VERIFIED,
        }
    }

    /// Lays it as a frame with its request's id behind what `out` holds.
    ///
    /// # Errors
    /// [`WireError::TooLarge`]; the buffer is as it was. Answer the error then.
    pub fn lay(&self, out: &mut Vec<u8>, mark: u64, limit: usize) -> Result<(), WireError> {
        field::lay(out, mark, self.kind(), limit, |to| self.put(to))
    }

    fn put(&self, to: &mut Writer) {
        match self {
            Self::Pong | Self::Forgotten => {}
            Self::Welcome(welcome) => welcome.put(to),
            Self::Error { kind, message } => _ = to.u8(kind.wire()).text(message),
            Self::Decided(outcome) => put_outcome(to, *outcome),
            Self::Known(known) => put_known(to, *known),
            Self::Branch(reply) => reply.put(to),
            Self::Value(value) => field::put_option(to, value.as_ref(), |to, value| _ = to.bytes(value)),
            Self::Written(lsn) => _ = to.u64(lsn.0),
            Self::Pairs { more, pairs } => {
                to.u8(u8::from(*more));
                pairs.iter().for_each(|pair| _ = to.bytes(pair.key).bytes(pair.value));
            }
            Self::Objects(objects) => put_objects(to, objects),
            Self::Rows { more, rows } => {
                to.u8(u8::from(*more));
                rows.iter().for_each(|row| row.put(to));
            }
            Self::Checked(checked) => checked.put(to),
            Self::Compacted(compacted) => compacted.put(to),
            Self::Keyspaces { more, list } => {
                to.u8(u8::from(*more));
                list.iter().for_each(|view| view.put(to));
            }
            Self::Transactions { more, list } => {
                to.u8(u8::from(*more));
                list.iter().for_each(|view| view.put(to));
            }
            Self::Round(round) => round.put(to),
            Self::Log { more, detail, list } => {
                to.u8(u8::from(*more));
                list.iter().for_each(|past| past.put(to, *detail));
            }
            Self::Verified(verified) => verified.put(to),
            Self::Stats(gauges) => gauges.iter().for_each(|(name, value)| _ = to.text(name).u64(*value)),
        }
    }

    /// Reads an answer in place. The frame's mark is the id of its request.
    ///
    /// # Errors
    /// [`WireError::UnknownKind`], [`WireError::Malformed`].
    pub fn parse(frame: &Frame<'a>) -> Result<Self, WireError> {
        let from = &mut Reader::new(frame.payload);
        let answer = match frame.kind {
            WELCOME => Self::Welcome(Welcome::take(from)?),
            ERROR => Self::Error { kind: Kind::from_wire(from.u8("kind")?), message: from.text("message")? },
            PONG => Self::Pong,
            DECIDED => Self::Decided(outcome(from)?),
            KNOWN => Self::Known(known(from)?),
            BRANCH => Self::Branch(Reply::take(from)?),
            VALUE => Self::Value(field::option(from, "value", |from| from.bytes("value"))?),
            WRITTEN => Self::Written(Lsn(from.u64("lsn")?)),
            PAIRS => Self::Pairs {
                more: field::flag(from, "more")?,
                pairs: field::rest(from, |from| Ok(Found { key: from.bytes("key")?, value: from.bytes("value")? }))?,
            },
            OBJECTS => Self::Objects(objects(from)?),
            ROWS => Self::Rows { more: field::flag(from, "more")?, rows: field::rest(from, Row::take)? },
            CHECKED => Self::Checked(Checked::take(from)?),
            COMPACTED => Self::Compacted(Compacted::take(from)?),
            KEYSPACES => {
                Self::Keyspaces { more: field::flag(from, "more")?, list: field::rest(from, KeyspaceView::take)? }
            }
            TRANSACTIONS => {
                Self::Transactions { more: field::flag(from, "more")?, list: field::rest(from, TransactionView::take)? }
            }
            ROUND => Self::Round(RoundView::take(from)?),
            FORGOTTEN => Self::Forgotten,
            LOG => log(from, Detail::Fates)?,
            LOG_VOTES => log(from, Detail::Votes)?,
            LOG_WITNESSES => log(from, Detail::Witnesses)?,
            VERIFIED => Self::Verified(Verified::take(from)?),
            STATS => Self::Stats(field::rest(from, |from| Ok((from.text("name")?, from.u64("gauge")?)))?),
            kind => return Err(WireError::UnknownKind { kind }),
        };
        from.end()?;
        Ok(answer)
    }
}

fn log<'a>(from: &mut Reader<'a>, detail: Detail) -> Result<Answer<'a>, Malformed> {
    let more = field::flag(from, "more")?;
    Ok(Answer::Log { more, detail, list: field::rest(from, |from| PastView::take(from, detail))? })
}

fn put_known(to: &mut Writer, known: Known) {
    to.u8(match known {
        Known::Committed => 1,
        Known::RolledBack => 2,
        Known::Undecided => 3,
        Known::Unknown => 4,
        Known::InDoubt => 5,
    });
}

fn known(from: &mut Reader<'_>) -> Result<Known, Malformed> {
    match from.u8("known")? {
        1 => Ok(Known::Committed),
        2 => Ok(Known::RolledBack),
        3 => Ok(Known::Undecided),
        4 => Ok(Known::Unknown),
        5 => Ok(Known::InDoubt),
        _ => Err(Malformed { field: "known" }),
    }
}

impl<'a> Native<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        to.text(self.code).text(self.message);
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { code: from.text("code")?, message: from.text("message")? })
    }
}

impl<'a> Past<'a> {
    fn put(&self, to: &mut Writer) {
        match self {
            Self::Committed => _ = to.u8(1),
            Self::RolledBack => _ = to.u8(2),
            Self::Open => _ = to.u8(3),
            Self::Forgotten => _ = to.u8(4),
            Self::Elsewhere(native) => native.put(to.u8(5)),
        }
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match from.u8("past")? {
            1 => Self::Committed,
            2 => Self::RolledBack,
            3 => Self::Open,
            4 => Self::Forgotten,
            5 => Self::Elsewhere(Native::take(from)?),
            _ => return Err(Malformed { field: "past" }),
        })
    }
}

impl<'a> Reply<'a> {
    fn put(&self, to: &mut Writer) {
        match self {
            Self::Done => _ = to.u8(1),
            Self::Yes(witness) => _ = to.u8(2).bytes(witness),
            Self::ReadOnly => _ = to.u8(3),
            Self::RolledBack(native) => native.put(to.u8(4)),
            Self::Heuristic(heuristic, native) => {
                put_heuristic(to.u8(5), *heuristic);
                native.put(to);
            }
            Self::Unknown(native) => native.put(to.u8(6)),
            Self::Refused(kind, native) => native.put(to.u8(7).u8(kind.wire())),
            Self::Listed(xids) => {
                to.u8(8);
                xids.iter().for_each(|xid| field::put_xid(to, xid));
            }
            Self::Past(past) => past.put(to.u8(9)),
        }
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match from.u8("reply")? {
            1 => Self::Done,
            2 => Self::Yes(from.bytes("witness")?),
            3 => Self::ReadOnly,
            4 => Self::RolledBack(Native::take(from)?),
            5 => Self::Heuristic(heuristic(from)?, Native::take(from)?),
            6 => Self::Unknown(Native::take(from)?),
            7 => Self::Refused(Kind::from_wire(from.u8("kind")?), Native::take(from)?),
            8 => Self::Listed(field::rest(from, field::xid)?),
            9 => Self::Past(Past::take(from)?),
            _ => return Err(Malformed { field: "reply" }),
        })
    }
}
