//! What a caller asks.
//!
//! Walk: [`Request::lay`] lays one as a frame · [`Request::parse`] reads one in place; texts, keys and values are
//! borrowed from the frame.

use assent_frame::{Frame, Malformed, Reader, Writer};
use assent_ids::{NodeId, ResourceId, TxId, Xid};

use crate::{WireError, field};

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

/// One write to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Sets a key.
    Put {
        /// Whose key.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// Removes a key; fine if it is not there.
    Delete {
        /// Whose key.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
    },
}

/// Writes, all or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// Within this branch; else at once.
    pub xid: Option<Xid>,
    /// On disk before it is answered, whatever the store's policy. Within a branch the vote is what is durable.
    pub durable: bool,
    /// In this order.
    pub ops: Vec<Op<'a>>,
}

/// One end of a range of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound<'a> {
    /// No end.
    Unbounded,
    /// This key and beyond.
    Included(&'a [u8]),
    /// Beyond this key.
    Excluded(&'a [u8]),
}

/// Keys of a range in their order. One answer holds what fits a message; ask on behind its last key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan<'a> {
    /// As this branch sees it; else as of now.
    pub xid: Option<Xid>,
    /// Whose keys.
    pub keyspace: u32,
    /// The lower end.
    pub from: Bound<'a>,
    /// The upper end.
    pub to: Bound<'a>,
    /// At most that many.
    pub limit: u32,
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
}

const PING: u16 = 0x0002;
const DECIDE: u16 = 0x0010;
const FINISHED: u16 = 0x0011;
const ASK: u16 = 0x0012;
const ACKNOWLEDGED: u16 = 0x0013;
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
const TX_LIST: u16 = 0x0040;
const TX_SHOW: u16 = 0x0041;
const TX_RECOVER: u16 = 0x0042;
const STATS: u16 = 0x0043;

impl<'a> Request<'a> {
    const fn kind(&self) -> u16 {
        match self {
            Self::Ping => PING,
            Self::Decide(_) => DECIDE,
            Self::Finished(_) => FINISHED,
            Self::Acknowledged(_) => ACKNOWLEDGED,
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
            Self::TxList { .. } => TX_LIST,
            Self::TxShow(_) => TX_SHOW,
            Self::TxRecover => TX_RECOVER,
            Self::Stats => STATS,
        }
    }

    /// Lays it as a frame with this request id behind what `out` holds.
    ///
    /// # Errors
    /// [`WireError::TooLarge`]; the buffer is as it was.
    pub fn lay(&self, out: &mut Vec<u8>, mark: u64, limit: usize) -> Result<(), WireError> {
        field::lay(out, mark, self.kind(), limit, |to| self.put(to))
    }

    fn put(&self, to: &mut Writer) {
        match self {
            Self::Ping | Self::TxRecover | Self::Stats => {}
            Self::Decide(decide) => decide.put(to),
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
            Self::TxList { after, limit } => {
                field::put_option(to, after.as_ref(), |to, tx| field::put_tx(to, *tx));
                to.u32(*limit);
            }
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
            TX_LIST => Self::TxList { after: field::option(from, "after", field::tx)?, limit: from.u32("limit")? },
            TX_SHOW => Self::TxShow(field::tx(from)?),
            TX_RECOVER => Self::TxRecover,
            STATS => Self::Stats,
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

impl<'a> Decide<'a> {
    fn put(&self, to: &mut Writer) {
        field::put_tx(to, self.tx);
        put_outcome(to, self.outcome);
        to.u8(u8::from(self.first));
        for branch in &self.branches {
            to.u64(branch.resource.0).u16(branch.number).u16(branch.flags).bytes(branch.witness);
        }
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            tx: field::tx(from)?,
            outcome: outcome(from)?,
            first: field::flag(from, "first")?,
            branches: field::rest(from, |from| {
                Ok(BranchRecord {
                    resource: ResourceId(from.u64("resource")?),
                    number: from.u16("branch number")?,
                    flags: from.u16("branch flags")?,
                    witness: from.bytes("witness")?,
                })
            })?,
        })
    }
}

impl<'a> Write<'a> {
    fn put(&self, to: &mut Writer) {
        field::put_option(to, self.xid.as_ref(), field::put_xid);
        to.u8(u8::from(self.durable));
        for op in &self.ops {
            match op {
                Op::Put { keyspace, key, value } => _ = to.u8(1).u32(*keyspace).bytes(key).bytes(value),
                Op::Delete { keyspace, key } => _ = to.u8(2).u32(*keyspace).bytes(key),
            }
        }
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            xid: field::option(from, "branch", field::xid)?,
            durable: field::flag(from, "durable")?,
            ops: field::rest(from, |from| match (from.u8("op")?, from.u32("keyspace")?, from.bytes("key")?) {
                (1, keyspace, key) => Ok(Op::Put { keyspace, key, value: from.bytes("value")? }),
                (2, keyspace, key) => Ok(Op::Delete { keyspace, key }),
                _ => Err(Malformed { field: "op" }),
            })?,
        })
    }
}

impl<'a> Bound<'a> {
    fn put(self, to: &mut Writer) {
        match self {
            Self::Unbounded => _ = to.u8(0),
            Self::Included(key) => _ = to.u8(1).bytes(key),
            Self::Excluded(key) => _ = to.u8(2).bytes(key),
        }
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        match from.u8("bound")? {
            0 => Ok(Self::Unbounded),
            1 => from.bytes("bound").map(Self::Included),
            2 => from.bytes("bound").map(Self::Excluded),
            _ => Err(Malformed { field: "bound" }),
        }
    }
}

impl<'a> Scan<'a> {
    fn put(&self, to: &mut Writer) {
        field::put_option(to, self.xid.as_ref(), field::put_xid);
        to.u32(self.keyspace).u32(self.limit);
        self.from.put(to);
        self.to.put(to);
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            xid: field::option(from, "branch", field::xid)?,
            keyspace: from.u32("keyspace")?,
            limit: from.u32("limit")?,
            from: Bound::take(from)?,
            to: Bound::take(from)?,
        })
    }
}
