//! What a caller asks.
//!
//! Walk: [`Request::lay`] lays one as a frame · [`Request::parse`] reads one in place; texts, keys and values are
//! borrowed from the frame.

use assent_frame::{Frame, Malformed, Reader, Writer};
use assent_ids::{Mark, NodeId, ResourceId, TxId, Xid};

use crate::admin::{OperatorWord, heuristic, put_heuristic};
use crate::conditions::{Expected, WriteIf};
use crate::history::{LogQuery, Voted, digest, put_digest};
use crate::keyspaces::KeyspaceQuery;
use crate::objects::{Look, Rows};
use crate::work::{Op, Scan, Write};
use crate::{Heuristic, Native, WireError, field, long};

/// How a transaction ended, or must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All branches commit.
    Committed,
    /// All branches roll back.
    RolledBack,
}

/// What a decision keeps of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchRecord<'a> {
    /// The registered resource.
    pub resource: ResourceId,
    /// Which branch of the transaction.
    pub number: u16,
    /// The XID's flags.
    pub flags: u16,
    /// The XID's mark. Since version 5.
    pub mark: Option<Mark>,
    /// What the adapter needs later, in its own form.
    pub witness: &'a [u8],
}

/// Asks for a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decide<'a> {
    /// The transaction.
    pub tx: TxId,
    /// What the client wants.
    pub outcome: Outcome,
    /// Whether it was never asked before.
    pub first: bool,
    /// The branches that voted yes.
    pub branches: Vec<BranchRecord<'a>>,
}

/// A branch that ended by itself, otherwise than it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deviation<'a> {
    /// The registered resource.
    pub resource: ResourceId,
    /// Which branch of the transaction.
    pub number: u16,
    /// The XID's flags.
    pub flags: u16,
    /// What it did.
    pub heuristic: Heuristic,
    /// The resource's own words.
    pub native: Native<'a>,
}

/// A message from caller to server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Answer `Pong`.
    Ping,
    /// Answer `Decided`.
    Decide(Decide<'a>),
    /// All branches of these are finished: they may be forgotten. One way.
    Finished(Vec<TxId>),
    /// The outcomes of these are known, their unfinished branches are left to recovery. One way.
    Acknowledged(Vec<TxId>),
    /// Branches of this one ended otherwise than the client told them: a person must see it. One way.
    Heuristic {
        /// The transaction.
        tx: TxId,
        /// What they were told.
        told: Outcome,
        /// Those that did not follow.
        branches: Vec<Deviation<'a>>,
    },
    /// What the branches of this one voted, and how it ended: for history. One way. Since version 3.
    Votes {
        /// The transaction.
        tx: TxId,
        /// How it ended.
        outcome: Outcome,
        /// Of the branches that were asked.
        votes: Vec<Voted<'a>>,
    },
    /// A last resource has decided this one, and its row tells: for recovery and history. One way. Since version 5.
    Noted(Decide<'a>),
    /// The last resource of this one has not answered: the row behind this mark is asked for. Answer `Known`; asked again while that is
    /// undecided. Since version 5.
    Settle {
        /// The transaction.
        tx: TxId,
        /// Where its row is.
        mark: Mark,
    },
    /// Answer `Known`.
    Ask(TxId),
    /// xa_start. Answer `Branch`, so for all verbs.
    Start(Xid),
    /// xa_end.
    End {
        /// The branch.
        xid: Xid,
        /// Whether the work went well; else it can only be rolled back.
        success: bool,
    },
    /// xa_prepare.
    Prepare(Xid),
    /// xa_commit of a prepared branch.
    Commit(Xid),
    /// xa_commit with TMONEPHASE.
    CommitOnePhase(Xid),
    /// xa_rollback.
    Rollback(Xid),
    /// xa_recover, of one node.
    Recover(NodeId),
    /// xa_forget.
    Forget(Xid),
    /// As long as this connection lives, no other resolves this node's branches here.
    Claim(NodeId),
    /// What became of a branch that is not listed.
    Inquire {
        /// The branch.
        xid: Xid,
        /// Of its vote; may be empty.
        witness: &'a [u8],
    },
    /// Answer `Value`.
    Get {
        /// As this branch sees it; else as of now.
        xid: Option<Xid>,
        /// Whose key.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
    },
    /// Answer `Written`.
    Write(Write<'a>),
    /// Answer `Pairs`.
    Scan(Scan<'a>),
    /// Answer `Objects`, for as many of the first keys as fit a message. Since version 2.
    Look(Look<'a>),
    /// Answer `Rows`. Since version 2.
    Rows(Rows<'a>),
    /// Answer `Written`; `Conflict` if a condition does not hold. Since version 2.
    WriteIf(WriteIf<'a>),
    /// Within a branch. Answer `Written`; whether they hold its vote says. Since version 2.
    Expect(Expected<'a>),
    /// From now on writes and votes of this connection that meet a key of a prepared branch wait for it, at most so many
    /// milliseconds; 0: not at all, as before. Answer `Pong`. Since version 2.
    Patience(u32),
    /// From now on what this connection reads outside of branches is as of this moment, for at most so many milliseconds; 0: as of
    /// when each request comes, as before. Answer `Written` with the place of the log up to which it sees everything. The store may end
    /// that earlier, when it costs too much: what is read then is refused (`Conflict`), until this is said again. Since version 6.
    AsOf(u32),
    /// Makes a keyspace of this name, durably. Answer `Keyspaces` with it. Since version 2.
    KeyspaceCreate(&'a str),
    /// Drops a keyspace and all that is in it, durably. Answer `Written`. Since version 2.
    KeyspaceDrop(&'a str),
    /// Answer `Keyspaces`, in the order of their names. Since version 2.
    Keyspaces(KeyspaceQuery<'a>),
    /// Reads everything in the store. Answer `Checked`, after as long as that takes. Since version 2.
    StoreVerify,
    /// Compacts values as long as that is worth it. Answer `Compacted`, after as long as that takes. Since version 2.
    StoreCompact,
    /// Transactions that the coordinator knows, in their order. Answer `Transactions`.
    TxList {
        /// Behind this one.
        after: Option<TxId>,
        /// At most that many.
        limit: u32,
    },
    /// Answer `Transactions` with one or none.
    TxShow(TxId),
    /// A round of the recovery agent, now. Answer `Round`.
    TxRecover,
    /// Every gauge by its name. Answer `Stats`.
    Stats,
    /// Decides what nobody has decided. Answer `Decided`, with what was decided by whoever was first.
    TxForce {
        /// The transaction.
        tx: TxId,
        /// What it must do.
        outcome: Outcome,
        /// Who says so.
        word: OperatorWord<'a>,
    },
    /// A person has seen to the heuristic outcomes of this one. Answer `Forgotten`.
    TxForget {
        /// The transaction.
        tx: TxId,
        /// Who says so.
        word: OperatorWord<'a>,
    },
    /// What the log tells of transactions that are over. Answer `Log` without votes.
    TxLog(LogQuery<'a>),
    /// The same, and what branches voted. Answer `Log` with votes. Since version 3.
    TxLogVotes(LogQuery<'a>),
    /// The same, and what the decisions keep of those votes. Answer `Log` with witnesses. Since version 4.
    TxLogWitnesses(LogQuery<'a>),
    /// Whether the log is as it was written. Answer `Verified`.
    TxVerify {
        /// The number and digest of a seal that somebody has kept elsewhere: it must be in the chain.
        kept: Option<(u64, [u8; 32])>,
    },
}

const PING: u16 = 0x0002;
const DECIDE: u16 = 0x0010;
const FINISHED: u16 = 0x0011;
const ASK: u16 = 0x0012;
const ACKNOWLEDGED: u16 = 0x0013;
const HEURISTIC: u16 = 0x0014;
const VOTES: u16 = 0x0015;
const NOTED: u16 = 0x0016;
const SETTLE: u16 = 0x0017;
const START: u16 = 0x0020;
const END: u16 = 0x0021;
const PREPARE: u16 = 0x0022;
const COMMIT: u16 = 0x0023;
const COMMIT_ONE_PHASE: u16 = 0x0024;
const ROLLBACK: u16 = 0x0025;
const RECOVER: u16 = 0x0026;
const FORGET: u16 = 0x0027;
const CLAIM: u16 = 0x0028;
const INQUIRE: u16 = 0x0029;
const GET: u16 = 0x0030;
const WRITE: u16 = 0x0031;
const SCAN: u16 = 0x0032;
const LOOK: u16 = 0x0033;
const ROWS: u16 = 0x0034;
const WRITE_IF: u16 = 0x0035;
const KEYSPACE_CREATE: u16 = 0x0036;
const KEYSPACE_DROP: u16 = 0x0037;
const KEYSPACES: u16 = 0x0038;
const STORE_VERIFY: u16 = 0x0039;
const STORE_COMPACT: u16 = 0x003a;
const EXPECT: u16 = 0x003b;
const PATIENCE: u16 = 0x003c;
const AS_OF: u16 = 0x003d;
const TX_LIST: u16 = 0x0040;
const TX_SHOW: u16 = 0x0041;
const TX_RECOVER: u16 = 0x0042;
const STATS: u16 = 0x0043;
const TX_FORCE: u16 = 0x0044;
const TX_FORGET: u16 = 0x0045;
const TX_LOG: u16 = 0x0046;
const TX_VERIFY: u16 = 0x0047;
const TX_LOG_VOTES: u16 = 0x0048;
const TX_LOG_WITNESSES: u16 = 0x0049;

impl<'a> Request<'a> {
    const fn kind(&self) -> u16 {
        match self {
            Self::Ping => PING,
            Self::Decide(_) => DECIDE,
            Self::Finished(_) => FINISHED,
            Self::Acknowledged(_) => ACKNOWLEDGED,
            Self::Heuristic { .. } => HEURISTIC,
            Self::Votes { .. } => VOTES,
            Self::Noted(_) => NOTED,
            Self::Settle { .. } => SETTLE,
            Self::Ask(_) => ASK,
            Self::Start(_) => START,
            Self::End { .. } => END,
            Self::Prepare(_) => PREPARE,
            Self::Commit(_) => COMMIT,
            Self::CommitOnePhase(_) => COMMIT_ONE_PHASE,
            Self::Rollback(_) => ROLLBACK,
            Self::Recover(_) => RECOVER,
            Self::Forget(_) => FORGET,
            Self::Claim(_) => CLAIM,
            Self::Inquire { .. } => INQUIRE,
            Self::Get { .. } => GET,
            Self::Write(_) => WRITE,
            Self::Scan(_) => SCAN,
            Self::Look(_) => LOOK,
            Self::Rows(_) => ROWS,
            Self::WriteIf(_) => WRITE_IF,
            Self::KeyspaceCreate(_) => KEYSPACE_CREATE,
            Self::KeyspaceDrop(_) => KEYSPACE_DROP,
            Self::Keyspaces(_) => KEYSPACES,
            Self::StoreVerify => STORE_VERIFY,
            Self::StoreCompact => STORE_COMPACT,
            Self::Expect(_) => EXPECT,
            Self::Patience(_) => PATIENCE,
            Self::AsOf(_) => AS_OF,
            Self::TxList { .. } => TX_LIST,
            Self::TxShow(_) => TX_SHOW,
            Self::TxRecover => TX_RECOVER,
            Self::Stats => STATS,
            Self::TxForce { .. } => TX_FORCE,
            Self::TxForget { .. } => TX_FORGET,
            Self::TxLog(_) => TX_LOG,
            Self::TxLogVotes(_) => TX_LOG_VOTES,
            Self::TxLogWitnesses(_) => TX_LOG_WITNESSES,
            Self::TxVerify { .. } => TX_VERIFY,
        }
    }

    /// Lays it as a frame with this request id behind what `out` holds.
    ///
    /// # Errors
    /// [`WireError::TooLarge`]; the buffer is as it was.
    pub fn lay(&self, out: &mut Vec<u8>, mark: u64, limit: usize) -> Result<(), WireError> {
        field::lay(out, mark, self.kind(), limit, |to| self.put(to))
    }

    /// As [`Request::lay`], in parts where one frame of `part` payload bytes is not enough: where both sides speak version 2.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] beyond `limit`; the buffer is as it was.
    pub fn lay_long(&self, out: &mut Vec<u8>, mark: u64, part: usize, limit: usize) -> Result<(), WireError> {
        let mut payload = Writer::new();
        self.put(&mut payload);
        let (payload, limit) = (payload.into_vec(), limit.min(long::MESSAGE_BYTES_MAX));
        if payload.len() > limit {
            return Err(WireError::TooLarge { bytes: payload.len(), limit });
        }
        long::lay(out, mark, self.kind(), part, &payload);
        Ok(())
    }

    /// The oldest version of the protocol that has this message.
    #[must_use]
    pub fn since(&self) -> u16 {
        match self {
            Self::Look(_)
            | Self::Rows(_)
            | Self::WriteIf(_)
            | Self::Expect(_)
            | Self::Patience(_)
            | Self::KeyspaceCreate(_)
            | Self::KeyspaceDrop(_)
            | Self::Keyspaces(_)
            | Self::StoreVerify
            | Self::StoreCompact => 2,
            Self::Votes { .. } | Self::TxLogVotes(_) => 3,
            Self::TxLogWitnesses(_) => 4,
            Self::Noted(_) | Self::Settle { .. } => 5,
            Self::AsOf(_) => 6,
            Self::Decide(decide) => decide.since(),
            Self::Write(write) => write.ops.iter().map(Op::since).max().unwrap_or(1),
            _ => 1,
        }
    }

    fn put(&self, to: &mut Writer) {
        match self {
            Self::Ping | Self::TxRecover | Self::Stats | Self::StoreVerify | Self::StoreCompact => {}
            Self::Decide(decide) | Self::Noted(decide) => decide.put(to),
            Self::Settle { tx, mark } => {
                field::put_tx(to, *tx);
                to.u64(mark.resource.0).u64(mark.table).u32(mark.timeline);
            }
            Self::Finished(list) | Self::Acknowledged(list) => list.iter().for_each(|tx| field::put_tx(to, *tx)),
            Self::Ask(tx) | Self::TxShow(tx) => field::put_tx(to, *tx),
            Self::End { xid, success } => {
                field::put_xid(to, xid);
                to.u8(u8::from(*success));
            }
            Self::Start(xid)
            | Self::Prepare(xid)
            | Self::Commit(xid)
            | Self::CommitOnePhase(xid)
            | Self::Rollback(xid)
            | Self::Forget(xid) => field::put_xid(to, xid),
            Self::Recover(node) | Self::Claim(node) => _ = to.u64(node.0),
            Self::Inquire { xid, witness } => {
                field::put_xid(to, xid);
                to.bytes(witness);
            }
            Self::Get { xid, keyspace, key } => {
                field::put_option(to, xid.as_ref(), field::put_xid);
                to.u32(*keyspace).bytes(key);
            }
            Self::Write(write) => write.put(to),
            Self::Scan(scan) => scan.put(to),
            Self::Look(look) => look.put(to),
            Self::Rows(rows) => rows.put(to),
            Self::WriteIf(write) => write.put(to),
            Self::Expect(expected) => expected.put(to),
            Self::Patience(ms) | Self::AsOf(ms) => _ = to.u32(*ms),
            Self::KeyspaceCreate(name) | Self::KeyspaceDrop(name) => _ = to.text(name),
            Self::Keyspaces(query) => query.put(to),
            Self::TxList { after, limit } => {
                field::put_option(to, after.as_ref(), |to, tx| field::put_tx(to, *tx));
                to.u32(*limit);
            }
            Self::Heuristic { tx, told, branches } => {
                field::put_tx(to, *tx);
                put_outcome(to, *told);
                branches.iter().for_each(|branch| branch.put(to));
            }
            Self::TxForce { tx, outcome, word } => {
                field::put_tx(to, *tx);
                put_outcome(to, *outcome);
                word.put(to);
            }
            Self::TxForget { tx, word } => {
                field::put_tx(to, *tx);
                word.put(to);
            }
            Self::Votes { tx, outcome, votes } => {
                field::put_tx(to, *tx);
                put_outcome(to, *outcome);
                votes.iter().for_each(|vote| vote.put(to));
            }
            Self::TxLog(query) | Self::TxLogVotes(query) | Self::TxLogWitnesses(query) => query.put(to),
            Self::TxVerify { kept } => field::put_option(to, kept.as_ref(), |to, (number, digest)| {
                put_digest(to.u64(*number), digest);
            }),
        }
    }

    /// Reads a request in place. Its id is the frame's mark.
    ///
    /// # Errors
    /// [`WireError::UnknownKind`], [`WireError::Malformed`]; the connection is well after either.
    pub fn parse(frame: &Frame<'a>) -> Result<Self, WireError> {
        let from = &mut Reader::new(frame.payload);
        let request = match frame.kind {
            PING => Self::Ping,
            DECIDE => Self::Decide(Decide::take(from)?),
            NOTED => Self::Noted(Decide::take(from)?),
            SETTLE => Self::Settle { tx: field::tx(from)?, mark: mark(from)? },
            FINISHED => Self::Finished(field::rest(from, field::tx)?),
            ACKNOWLEDGED => Self::Acknowledged(field::rest(from, field::tx)?),
            ASK => Self::Ask(field::tx(from)?),
            START => Self::Start(field::xid(from)?),
            END => Self::End { xid: field::xid(from)?, success: field::flag(from, "success")? },
            PREPARE => Self::Prepare(field::xid(from)?),
            COMMIT => Self::Commit(field::xid(from)?),
            COMMIT_ONE_PHASE => Self::CommitOnePhase(field::xid(from)?),
            ROLLBACK => Self::Rollback(field::xid(from)?),
            RECOVER => Self::Recover(NodeId(from.u64("node")?)),
            FORGET => Self::Forget(field::xid(from)?),
            CLAIM => Self::Claim(NodeId(from.u64("node")?)),
            INQUIRE => Self::Inquire { xid: field::xid(from)?, witness: from.bytes("witness")? },
            GET => Self::Get {
                xid: field::option(from, "branch", field::xid)?,
                keyspace: from.u32("keyspace")?,
                key: from.bytes("key")?,
            },
            WRITE => Self::Write(Write::take(from)?),
            SCAN => Self::Scan(Scan::take(from)?),
            LOOK => Self::Look(Look::take(from)?),
            ROWS => Self::Rows(Rows::take(from)?),
            WRITE_IF => Self::WriteIf(WriteIf::take(from)?),
            EXPECT => Self::Expect(Expected::take(from)?),
            PATIENCE => Self::Patience(from.u32("patience")?),
            AS_OF => Self::AsOf(from.u32("as of")?),
            KEYSPACE_CREATE => Self::KeyspaceCreate(from.text("name")?),
            KEYSPACE_DROP => Self::KeyspaceDrop(from.text("name")?),
            KEYSPACES => Self::Keyspaces(KeyspaceQuery::take(from)?),
            STORE_VERIFY => Self::StoreVerify,
            STORE_COMPACT => Self::StoreCompact,
            TX_LIST => Self::TxList { after: field::option(from, "after", field::tx)?, limit: from.u32("limit")? },
            TX_SHOW => Self::TxShow(field::tx(from)?),
            TX_RECOVER => Self::TxRecover,
            STATS => Self::Stats,
            HEURISTIC => Self::Heuristic {
                tx: field::tx(from)?,
                told: outcome(from)?,
                branches: field::rest(from, Deviation::take)?,
            },
            TX_FORCE => {
                Self::TxForce { tx: field::tx(from)?, outcome: outcome(from)?, word: OperatorWord::take(from)? }
            }
            TX_FORGET => Self::TxForget { tx: field::tx(from)?, word: OperatorWord::take(from)? },
            VOTES => {
                Self::Votes { tx: field::tx(from)?, outcome: outcome(from)?, votes: field::rest(from, Voted::take)? }
            }
            TX_LOG => Self::TxLog(LogQuery::take(from)?),
            TX_LOG_VOTES => Self::TxLogVotes(LogQuery::take(from)?),
            TX_LOG_WITNESSES => Self::TxLogWitnesses(LogQuery::take(from)?),
            TX_VERIFY => {
                Self::TxVerify { kept: field::option(from, "kept", |from| Ok((from.u64("seal")?, digest(from)?)))? }
            }
            kind => return Err(WireError::UnknownKind { kind }),
        };
        from.end()?;
        Ok(request)
    }
}

pub(crate) fn put_outcome(to: &mut Writer, outcome: Outcome) {
    to.u8(match outcome {
        Outcome::Committed => 1,
        Outcome::RolledBack => 2,
    });
}

pub(crate) fn outcome(from: &mut Reader<'_>) -> Result<Outcome, Malformed> {
    match from.u8("outcome")? {
        1 => Ok(Outcome::Committed),
        2 => Ok(Outcome::RolledBack),
        _ => Err(Malformed { field: "outcome" }),
    }
}

fn mark(from: &mut Reader<'_>) -> Result<Mark, Malformed> {
    let (resource, table) = (ResourceId(from.u64("mark resource")?), from.u64("mark table")?);
    Ok(Mark { resource, table, timeline: from.u32("mark timeline")? })
}

impl<'a> Decide<'a> {
    /// A mark is something new between resource and witness.
    fn since(&self) -> u16 {
        if self.branches.iter().any(|branch| branch.mark.is_some()) { 5 } else { 1 }
    }

    fn put(&self, to: &mut Writer) {
        field::put_tx(to, self.tx);
        put_outcome(to, self.outcome);
        to.u8(u8::from(self.first));
        for branch in &self.branches {
            to.u64(branch.resource.0).u16(branch.number).u16(Mark::flags(branch.mark, branch.flags));
            if let Some(mark) = branch.mark {
                to.u64(mark.resource.0).u64(mark.table).u32(mark.timeline);
            }
            to.bytes(branch.witness);
        }
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            tx: field::tx(from)?,
            outcome: outcome(from)?,
            first: field::flag(from, "first")?,
            branches: field::rest(from, |from| {
                let (resource, number) = (ResourceId(from.u64("resource")?), from.u16("branch number")?);
                let (is_marked, flags) = Mark::follows(from.u16("branch flags")?);
                let mark = if is_marked { Some(mark(from)?) } else { None };
                Ok(BranchRecord { resource, number, flags, mark, witness: from.bytes("witness")? })
            })?,
        })
    }
}

impl<'a> Deviation<'a> {
    fn put(&self, to: &mut Writer) {
        to.u64(self.resource.0).u16(self.number).u16(self.flags);
        put_heuristic(to, self.heuristic);
        self.native.put(to);
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            resource: ResourceId(from.u64("resource")?),
            number: from.u16("branch number")?,
            flags: from.u16("branch flags")?,
            heuristic: heuristic(from)?,
            native: Native::take(from)?,
        })
    }
}
