//! What an operator is shown and asks for: transactions that are in doubt or unfinished, rounds of recovery, words.
//!
//! Walk: [`TransactionView`] one transaction and what is known of each [`BranchView`] · [`RoundView`] what recovery did ·
//! [`OperatorWord`] a person's decision. The log of what is over has a room of its own, `history`.

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::{TxId, Xid};

use crate::answer::HEURISTICS;
use crate::request::{outcome, put_outcome};
use crate::{Heuristic, Native, Outcome, field};

/// Who decided, or brought a branch to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The client that began the transaction.
    Client,
    /// Recovery, its client being fenced.
    Agent,
    /// Recovery: a branch had been prepared for too long.
    Timeout,
    /// A person.
    Operator,
}

pub(crate) const BYS: &[(u8, By)] = &[(1, By::Client), (2, By::Agent), (3, By::Timeout), (4, By::Operator)];

/// Where a client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is connected, and drives its transactions itself.
    Connected,
    /// It was lost a moment ago and may come back.
    Lost,
    /// It is of an earlier start of the coordinator, and may come back.
    Resumable,
    /// It is fenced, which is not on disk yet.
    Fencing,
    /// It is fenced: it decides nothing any more.
    Fenced,
    /// It was never known here.
    Never,
}

const STANDINGS: &[(u8, Standing)] = &[
    (1, Standing::Connected),
    (2, Standing::Lost),
    (3, Standing::Resumable),
    (4, Standing::Fencing),
    (5, Standing::Fenced),
    (6, Standing::Never),
];

/// How a branch was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Not seen by recovery.
    Open,
    /// Prepared: it waits for the outcome.
    Prepared,
    /// Committed.
    Committed,
    /// Committed, as was concluded from a durable decision, a vote of yes, and the branch being gone.
    CommittedInferred,
    /// Rolled back.
    RolledBack,
    /// It is not listed any more, after a decision: nothing is left to do.
    NotListed,
    /// It ended otherwise than decided.
    Heuristic(Heuristic),
    /// It did, and a person has forgotten it.
    Cleared,
}

const FATES: &[(u8, Fate)] = &[
    (1, Fate::Open),
    (2, Fate::Prepared),
    (3, Fate::Committed),
    (4, Fate::CommittedInferred),
    (5, Fate::RolledBack),
    (6, Fate::NotListed),
    (7, Fate::Cleared),
    (11, Fate::Heuristic(Heuristic::Committed)),
    (12, Fate::Heuristic(Heuristic::RolledBack)),
    (13, Fate::Heuristic(Heuristic::Mixed)),
    (14, Fate::Heuristic(Heuristic::Hazard)),
];

/// A branch of a listed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchView<'a> {
    /// The registered name, or the id if no such resource is registered any more.
    pub resource: &'a str,
    /// Its XID.
    pub xid: Xid,
    /// How it was last seen.
    pub fate: Fate,
    /// Who brought it there, if that is over.
    pub by: Option<By>,
    /// How often it had to be told again.
    pub retries: u32,
    /// The resource's own words; may be empty.
    pub native: Native<'a>,
    /// Where the resource is: host and port, database and account; may be empty.
    pub place: &'a str,
    /// Since when it is prepared, in milliseconds since 1970 by the resource's clock; 0 if that is not known.
    pub prepared_ms: u64,
    /// What the resource's latest list says of it beside its name, in words; may be empty.
    pub listed: &'a str,
    /// What the decision keeps of its vote, in the adapter's form; may be empty.
    pub witness: &'a [u8],
}

/// A transaction as the coordinator knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionView<'a> {
    /// Which.
    pub tx: TxId,
    /// What was decided and by whom, if it was.
    pub decided: Option<(Outcome, By)>,
    /// When, in milliseconds since 1970; 0 if it was not decided, or nobody noted it.
    pub decided_ms: u64,
    /// Whether the decision is on disk.
    pub is_durable: bool,
    /// Whether the client knows the outcome.
    pub is_acknowledged: bool,
    /// A decision may have been made and lost with the power: nobody presumes a rollback.
    pub may_be_lost: bool,
    /// The label of its client.
    pub client: &'a str,
    /// Where its client stands.
    pub standing: Standing,
    /// For how long it has been known, or decided.
    pub age_ms: u64,
    /// Its branches.
    pub branches: Vec<BranchView<'a>>,
}

/// Who speaks, and why. Kept in the coordinator's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorWord<'a> {
    /// A name.
    pub who: &'a str,
    /// A reason; may be empty.
    pub reason: &'a str,
}

/// What the recovery agent did with one branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved<'a> {
    /// The branch.
    pub xid: Xid,
    /// The registered name.
    pub resource: &'a str,
    /// In a word or a sentence: `committed`, `rolled back`, `left: its client lives`.
    pub fate: &'a str,
}

/// One round of the recovery agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundView<'a> {
    /// What was found and what became of it.
    pub resolved: Vec<Resolved<'a>>,
    /// Resources that could not be asked, and why.
    pub unreachable: Vec<(&'a str, &'a str)>,
}

impl<'a> OperatorWord<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        to.text(self.who).text(self.reason);
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { who: from.text("who")?, reason: from.text("reason")? })
    }
}

impl<'a> BranchView<'a> {
    fn put(&self, to: &mut Writer) {
        to.text(self.resource);
        field::put_xid(to, &self.xid);
        field::put_word(to, FATES, &self.fate);
        field::put_option(to, self.by.as_ref(), |to, by| field::put_word(to, BYS, by));
        to.u32(self.retries);
        self.native.put(to);
        to.text(self.place).u64(self.prepared_ms).text(self.listed).bytes(self.witness);
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            resource: from.text("resource")?,
            xid: field::xid(from)?,
            fate: field::word(from, "fate", FATES)?,
            by: field::option(from, "by", |from| field::word(from, "by", BYS))?,
            retries: from.u32("retries")?,
            native: Native::take(from)?,
            place: from.text("place")?,
            prepared_ms: from.u64("prepared_ms")?,
            listed: from.text("listed")?,
            witness: from.bytes("witness")?,
        })
    }
}

impl<'a> TransactionView<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        field::put_tx(to, self.tx);
        field::put_option(to, self.decided.as_ref(), |to, (outcome, by)| {
            put_outcome(to, *outcome);
            field::put_word(to, BYS, by);
        });
        to.u64(self.decided_ms);
        for flag in [self.is_durable, self.is_acknowledged, self.may_be_lost] {
            to.u8(u8::from(flag));
        }
        to.text(self.client);
        field::put_word(to, STANDINGS, &self.standing);
        to.u64(self.age_ms);
        field::put_list(to, &self.branches, |to, branch| branch.put(to));
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            tx: field::tx(from)?,
            decided: field::option(from, "decided", |from| Ok((outcome(from)?, field::word(from, "by", BYS)?)))?,
            decided_ms: from.u64("decided_ms")?,
            is_durable: field::flag(from, "is_durable")?,
            is_acknowledged: field::flag(from, "is_acknowledged")?,
            may_be_lost: field::flag(from, "may_be_lost")?,
            client: from.text("client")?,
            standing: field::word(from, "standing", STANDINGS)?,
            age_ms: from.u64("age_ms")?,
            branches: field::list(from, "branches", BranchView::take)?,
        })
    }
}

impl<'a> RoundView<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        field::put_list(to, &self.resolved, |to, resolved| {
            field::put_xid(to, &resolved.xid);
            to.text(resolved.resource).text(resolved.fate);
        });
        field::put_list(to, &self.unreachable, |to, (name, why)| _ = to.text(name).text(why));
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            resolved: field::list(from, "resolved", |from| {
                Ok(Resolved { xid: field::xid(from)?, resource: from.text("resource")?, fate: from.text("fate")? })
            })?,
            unreachable: field::list(from, "unreachable", |from| Ok((from.text("resource")?, from.text("why")?)))?,
        })
    }
}

pub(crate) fn put_heuristic(to: &mut Writer, heuristic: Heuristic) {
    field::put_word(to, HEURISTICS, &heuristic);
}

pub(crate) fn heuristic(from: &mut Reader<'_>) -> Result<Heuristic, Malformed> {
    field::word(from, "heuristic", HEURISTICS)
}
