//! Where a decision becomes durable. Embedded and served coordinators differ only in the `Decider` a client holds.

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::{Mark, NodeId, ResourceId, TxId};
use assent_kind::Kind;

use crate::{Heuristic, Native, Voice};

/// How a transaction ended, or must.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// All branches commit.
    Committed,
    /// All branches roll back.
    RolledBack,
}

/// What a decision keeps of each branch, so that recovery can finish it and tell the truth about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchRecord {
    /// The registered resource.
    pub resource: ResourceId,
    /// Which branch of the transaction.
    pub number: u16,
    /// The XID's flags.
    pub flags: u16,
    /// The XID's mark.
    pub mark: Option<Mark>,
    /// What the adapter needs later (for PostgreSQL: xid8, system identifier, timeline, database, role), in its own
    /// form; may be empty.
    pub witness: Vec<u8>,
}

/// The most branches of one decision.
pub const BRANCHES_MAX: usize = 4096;
/// How many branches there are.
const COUNT_BYTES: usize = 2;
/// Resource, number, flags, and the length of the witness behind them.
const BRANCH_BYTES: usize = 8 + 2 + 2 + 4;
/// Where there is a mark: resource, table, timeline.
const MARK_BYTES: usize = 8 + 8 + 4;

/// Lays what is kept of branches in one piece: in the coordinator's log, and in the row of a last resource. Drawn in
/// docs/format.md, section "Coordinator records". At most 65,535 are laid.
#[must_use]
pub fn lay_votes(list: &[BranchRecord]) -> Vec<u8> {
    // All of it at once: this is done for each decision.
    let bytes_of = |branch: &BranchRecord| BRANCH_BYTES + branch.mark.map_or(0, |_| MARK_BYTES) + branch.witness.len();
    let bytes = list.iter().map(bytes_of).sum::<usize>();
    let mut out = Writer::behind(Vec::with_capacity(COUNT_BYTES + bytes));
    out.u16(u16::try_from(list.len()).unwrap_or(u16::MAX));
    for BranchRecord { resource, number, flags, mark, witness } in list.iter().take(usize::from(u16::MAX)) {
        out.u64(resource.0).u16(*number).u16(Mark::flags(*mark, *flags));
        if let Some(Mark { resource, table, timeline }) = mark {
            out.u64(resource.0).u64(*table).u32(*timeline);
        }
        out.bytes(witness);
    }
    out.into_vec()
}

/// Reads what [`lay_votes`] laid, and what stands behind it not.
///
/// # Errors
/// [`Malformed`] names the field.
pub fn take_votes(reader: &mut Reader<'_>) -> Result<Vec<BranchRecord>, Malformed> {
    let count = reader.u16("branches")?;
    (0..count)
        .map(|_| {
            let (resource, number) = (ResourceId(reader.u64("branch.resource")?), reader.u16("branch.number")?);
            let (is_marked, flags) = Mark::follows(reader.u16("branch.flags")?);
            let mark = if is_marked {
                let (resource, table) = (ResourceId(reader.u64("mark.resource")?), reader.u64("mark.table")?);
                Some(Mark { resource, table, timeline: reader.u32("mark.timeline")? })
            } else {
                None
            };
            Ok(BranchRecord { resource, number, flags, mark, witness: reader.bytes("branch.witness")?.to_vec() })
        })
        .collect()
}

/// Reads exactly what [`lay_votes`] laid.
///
/// # Errors
/// [`Malformed`], also where more follows.
pub fn read_votes(bytes: &[u8]) -> Result<Vec<BranchRecord>, Malformed> {
    let mut reader = Reader::new(bytes);
    let list = take_votes(&mut reader)?;
    reader.end()?;
    Ok(list)
}

/// What a client asks to be decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The transaction.
    pub tx: TxId,
    /// What the client wants.
    pub outcome: Outcome,
    /// Whether this is the first time the client asks for this transaction. Only then may "never heard of it" be
    /// answered with rolled back; a repeated question may have been answered and forgotten.
    pub first: bool,
    /// The branches that voted yes.
    pub branches: Vec<BranchRecord>,
}

/// A branch that ended by itself, otherwise than it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// The registered resource.
    pub resource: ResourceId,
    /// Which branch of the transaction.
    pub number: u16,
    /// The XID's flags.
    pub flags: u16,
    /// What it did.
    pub heuristic: Heuristic,
    /// The resource's own words.
    pub native: Native,
}

/// A branch and what it has said, for history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voted {
    /// The registered resource.
    pub resource: ResourceId,
    /// Which branch of the transaction.
    pub number: u16,
    /// What it said.
    pub voice: Voice,
}

/// Why there is no decision to tell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecideError {
    /// [`Kind::InDoubt`]: it may have been decided; ask again. Any other: it was not, roll back.
    pub kind: Kind,
    /// One sentence.
    pub message: String,
}

/// Who makes decisions durable, the same for all who ask: write-once, the first wins.
pub trait Decider: Send + Sync {
    /// A new transaction, named without a message.
    ///
    /// # Errors
    /// `Unavailable` if there has been no handshake yet and none succeeds.
    fn begin(&self) -> Result<(NodeId, TxId), DecideError>;

    /// Decides, durably, and tells what was decided: somebody else (recovery, an operator) may have been first.
    ///
    /// # Errors
    /// [`DecideError`]; only `InDoubt` leaves the outcome open.
    fn decide(&self, decision: &Decision) -> Result<Outcome, DecideError>;

    /// Whether recovery here reaches all of these resources and asks rows ([`crate::Verb::Settle`]) before it presumes an abort
    /// of a marked branch. Never waits. Only then may a last resource decide.
    fn settles(&self, resources: &[ResourceId]) -> bool {
        _ = resources;
        false
    }

    /// Whether this client may still decide, asked before a last resource is told to, when all others have voted: who was away for longer
    /// than it may be is fenced, and what it has prepared since nobody may have seen.
    ///
    /// # Errors
    /// [`DecideError`], never `InDoubt`: it does not, or it cannot be known. Nothing was decided.
    fn may_decide(&self, tx: TxId) -> Result<(), DecideError> {
        _ = tx;
        Ok(())
    }

    /// A last resource has decided commit, durably: what a decision keeps, so that recovery finishes it and history tells of it.
    /// Told before the first branch commits. One way, never waits; what is lost on the way recovery learns from the row.
    fn noted(&self, decision: &Decision) {
        _ = decision;
    }

    /// The last resource has not answered: whether it has decided, as its row says. Where there is none, it is rolled back.
    ///
    /// # Errors
    /// [`DecideError`] of kind `InDoubt`, whatever its reason: the row could not be asked in time, and recovery goes on.
    fn settle(&self, tx: TxId, mark: Mark) -> Result<Outcome, DecideError> {
        _ = mark;
        Err(DecideError { kind: Kind::InDoubt, message: format!("nobody here can ask for the row of {tx}") })
    }

    /// All branches are finished and the client knows the outcome: it may be forgotten. One way, never waits.
    fn finished(&self, tx: TxId);

    /// The client knows the outcome, but branches are unfinished: recovery finishes them, and then it may be forgotten.
    /// One way, never waits. A decider that does nothing here forgets only when the client is gone.
    fn acknowledged(&self, tx: TxId) {
        _ = tx;
    }

    /// The client learned that branches ended otherwise than they were told (`told`: the decision, or the client's own
    /// word where none was needed). Told before [`Decider::acknowledged`]; stays listed until a person forgets it. One
    /// way, never waits. A decider that does nothing here leaves it to the client's report alone.
    fn heuristic(&self, tx: TxId, told: Outcome, branches: &[Deviation]) {
        _ = (tx, told, branches);
    }

    /// What the branches of this one voted, where not all that were asked said yes, or had to be told the outcome again: for
    /// history only. Told with `Committed` right before a decision is asked for, and again before [`Decider::finished`] or
    /// [`Decider::acknowledged`] where there is more to say; with `RolledBack` when it is over and was not committed. One way,
    /// never waits; a decider that does nothing here keeps no such history.
    fn voted(&self, tx: TxId, outcome: Outcome, votes: &[Voted]) {
        _ = (tx, outcome, votes);
    }
}
