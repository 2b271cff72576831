//! What an operator is shown. States are words for people; programs decide by outcomes and kinds.

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::{TxId, Xid};

use crate::request::{outcome, put_outcome};
use crate::{Outcome, field};

/// A branch of a listed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchView<'a> {
    /// The registered name, or the id if no such resource is registered any more.
    pub resource: &'a str,
    /// Its XID.
    pub xid: Xid,
    /// Where it stands, in a word: `prepared`, `committed`, `unreachable`.
    pub state: &'a str,
}

/// A transaction as the coordinator knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionView<'a> {
    /// Which.
    pub tx: TxId,
    /// What was decided, if it was.
    pub outcome: Option<Outcome>,
    /// Where it stands, in a word or a sentence.
    pub state: &'a str,
    /// The label of its client.
    pub client: &'a str,
    /// For how long it has been known.
    pub age_ms: u64,
    /// Its branches.
    pub branches: Vec<BranchView<'a>>,
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

impl<'a> TransactionView<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        field::put_tx(to, self.tx);
        field::put_option(to, self.outcome.as_ref(), |to, outcome| put_outcome(to, *outcome));
        to.text(self.state).text(self.client).u64(self.age_ms);
        field::put_list(to, &self.branches, |to, branch| {
            to.text(branch.resource);
            field::put_xid(to, &branch.xid);
            to.text(branch.state);
        });
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            tx: field::tx(from)?,
            outcome: field::option(from, "outcome", outcome)?,
            state: from.text("state")?,
            client: from.text("client")?,
            age_ms: from.u64("age_ms")?,
            branches: field::list(from, "branches", |from| {
                Ok(BranchView {
                    resource: from.text("resource")?,
                    xid: field::xid(from)?,
                    state: from.text("branch state")?,
                })
            })?,
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
