//! What a command is answered, and how that is laid: the bytes that a session remembers are the bytes that are sent.
//!
//! ```text
//!   | status 1 | body …
//!   done, voted:  results 2 · each: value 8, updates 8 · output: length 4, bytes
//!   refused:      op 2 · reason 1, three numbers of 8          opened: session 8          gap: expected 8
//!   listed:       count 4, each: a branch's name               branch: known 1, since 8, last command 8
//! ```

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::Xid;
use assent_kind::Kind;
use assent_membership::Sequence;

use crate::asset::Asset;
use crate::branches::Known;
use crate::command::{SessionName, lay_xid, read_xid};
use crate::refusal::{Refusal, signed, signless};

/// Bytes that business logic may answer, at most.
pub const OUTPUT_BYTES_MAX: usize = 1 << 16;

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was executed.
    Done(Results),
    /// It was executed and changed nothing.
    Refused {
        /// The first operation that was refused, from 0.
        op: u16,
        /// Why.
        refusal: Refusal,
    },
    /// The session is open.
    Opened(SessionName),
    /// The branch votes yes; these would be the results.
    Voted(Results),
    /// The branch only read, and is finished.
    ReadOnly(Results),
    /// Whether it was executed cannot be known any more: its session, or its answer, is forgotten. It was not executed now.
    InDoubt,
    /// Requests of the session before it are missing. It was not executed.
    Gap {
        /// The number that is taken next.
        expected: u64,
    },
    /// These branches wait for their outcome.
    Listed(Vec<Xid>),
    /// What is known of the branch, and behind which command.
    Branch {
        /// What.
        known: Known,
        /// The last command then.
        at: Sequence,
    },
}

/// What the operations of a command led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results {
    /// Each operation's asset behind it, in order; a removed one as it was before.
    pub assets: Vec<Asset>,
    /// What business logic says.
    pub output: Vec<u8>,
}

const DONE: u8 = 0;
const REFUSED: u8 = 1;
const OPENED: u8 = 2;
const VOTED: u8 = 3;
const READ_ONLY: u8 = 4;
const IN_DOUBT: u8 = 5;
const GAP: u8 = 6;
const LISTED: u8 = 7;
const BRANCH: u8 = 8;

impl Answer {
    /// What the caller must do; nothing, where it was done.
    #[must_use]
    pub const fn kind(&self) -> Option<Kind> {
        match self {
            Self::Done(_) | Self::Opened(_) | Self::Voted(_) | Self::ReadOnly(_) => None,
            Self::Listed(_) | Self::Branch { .. } => None,
            Self::Refused { refusal, .. } => Some(refusal.kind()),
            Self::InDoubt => Some(Kind::InDoubt),
            Self::Gap { .. } => Some(Kind::Invalid),
        }
    }

    /// Lays it behind what is there.
    pub fn lay(&self, out: &mut Writer) {
        match self {
            Self::Done(results) => results.lay(out, DONE),
            Self::Voted(results) => results.lay(out, VOTED),
            Self::ReadOnly(results) => results.lay(out, READ_ONLY),
            Self::Refused { op, refusal } => refusal.lay(out.u8(REFUSED).u16(*op)),
            Self::Opened(session) => _ = out.u8(OPENED).u64(session.0),
            Self::InDoubt => _ = out.u8(IN_DOUBT),
            Self::Gap { expected } => _ = out.u8(GAP).u64(*expected),
            Self::Listed(names) => {
                out.u8(LISTED).u32(u32::try_from(names.len()).unwrap_or(u32::MAX));
                names.iter().for_each(|xid| lay_xid(out, xid));
            }
            Self::Branch { known, at } => {
                let (known, since) = match known {
                    Known::Prepared => (0, 0),
                    Known::Committed => (1, 0),
                    Known::RolledBack => (2, 0),
                    Known::Nothing { since } => (3, since.0),
                };
                out.u8(BRANCH).u8(known).u64(since).u64(at.0);
            }
        }
    }

    /// Reads an answer, all of it.
    ///
    /// # Errors
    /// [`Malformed`] names the field.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let answer = match reader.u8("status")? {
            DONE => Self::Done(Results::read(&mut reader)?),
            VOTED => Self::Voted(Results::read(&mut reader)?),
            READ_ONLY => Self::ReadOnly(Results::read(&mut reader)?),
            REFUSED => Self::Refused { op: reader.u16("op")?, refusal: Refusal::read(&mut reader)? },
            OPENED => Self::Opened(SessionName(reader.u64("session")?)),
            IN_DOUBT => Self::InDoubt,
            GAP => Self::Gap { expected: reader.u64("expected")? },
            LISTED => {
                let count = reader.u32("branches")?;
                Self::Listed((0..count).map(|_| read_xid(&mut reader)).collect::<Result<_, _>>()?)
            }
            BRANCH => {
                let (known, since) = (reader.u8("known")?, Sequence(reader.u64("since")?));
                let known = match known {
                    0 => Known::Prepared,
                    1 => Known::Committed,
                    2 => Known::RolledBack,
                    3 => Known::Nothing { since },
                    _ => return Err(Malformed { field: "known" }),
                };
                Self::Branch { known, at: Sequence(reader.u64("at")?) }
            }
            _ => return Err(Malformed { field: "status" }),
        };
        reader.end()?;
        Ok(answer)
    }
}

impl Results {
    fn lay(&self, out: &mut Writer, status: u8) {
        let [low, high] = u16::try_from(self.assets.len()).unwrap_or(u16::MAX).to_le_bytes();
        out.raw(&[status, low, high]);
        for asset in &self.assets {
            let row = u128::from(signless(asset.value)) | u128::from(asset.updates) << 64;
            out.u128(row);
        }
        match self.output.as_slice() {
            [] => _ = out.u32(0),
            output => _ = out.bytes(output),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = reader.u16("results")?;
        let mut assets = Vec::new();
        for _ in 0..count {
            assets.push(Asset { value: signed(reader.u64("value")?), updates: reader.u64("updates")? });
        }
        Ok(Self { assets, output: reader.bytes("output")?.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AssetId;

    #[test]
    fn an_answer_survives_and_every_cut_of_it_is_refused() {
        let results = || Results { assets: vec![Asset { value: -5, updates: 3 }], output: b"out".to_vec() };
        let id = AssetId(9);
        let refused = |refusal| Answer::Refused { op: 4, refusal };
        let all = [
            Answer::Done(results()),
            Answer::Voted(results()),
            Answer::ReadOnly(Results::default()),
            Answer::Opened(SessionName(8)),
            Answer::InDoubt,
            Answer::Gap { expected: 5 },
            Answer::Listed(vec![Xid::new(5, b"global", b"branch").unwrap(), Xid::new(5, b"g", b"").unwrap()]),
            Answer::Branch { known: Known::Committed, at: Sequence(9) },
            Answer::Branch { known: Known::Nothing { since: Sequence(4) }, at: Sequence(9) },
            refused(Refusal::Unknown { id }),
            refused(Refusal::Exists { id }),
            refused(Refusal::Overflow { id, value: 1, by: i64::MAX }),
            refused(Refusal::Bounds { id, value: -1, bound: 0 }),
            refused(Refusal::Differs { id, value: 1, expected: 2 }),
            refused(Refusal::Held { id }),
            refused(Refusal::NoLogic { logic: 3 }),
            refused(Refusal::Logic { code: -3, detail: 4 }),
            refused(Refusal::Limit { limit: 5 }),
            refused(Refusal::Panicked { logic: 3 }),
            refused(Refusal::BranchKnown),
            refused(Refusal::BranchUnknown),
            refused(Refusal::BranchFinished { committed: true }),
            refused(Refusal::BranchFinished { committed: false }),
        ];
        for answer in all {
            let mut out = Writer::new();
            answer.lay(&mut out);
            let bytes = out.into_vec();
            assert_eq!(Answer::read(&bytes), Ok(answer));
            assert!((0..bytes.len()).all(|end| Answer::read(&bytes[..end]).is_err()));
            assert!(Answer::read(&[bytes, vec![0]].concat()).is_err());
        }
    }
}
