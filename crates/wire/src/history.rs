//! The coordinator's log as the history of what was decided: what is asked of it, and its pages.
//!
//! Walk: [`LogQuery`] which transactions, and behind which · [`PastView`] one of them, with its branches and what people
//! did · [`Verified`] how far the hash chain over it holds. Times are milliseconds since 1970 by the coordinator's clock.

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::{ResourceId, TxId};

use crate::admin::{BYS, By, heuristic, put_heuristic};
use crate::request::{outcome, put_outcome};
use crate::{Heuristic, Native, Outcome, field};

/// A way to be over, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// Decided to commit.
    Committed,
    /// Decided to roll back.
    RolledBack,
    /// A branch ended otherwise than decided.
    Heuristic,
    /// Decided, and not finished.
    InDoubt,
    /// A person had a hand in it.
    Forced,
}

const STATES: &[(u8, LogState)] = &[
    (1, LogState::Committed),
    (2, LogState::RolledBack),
    (3, LogState::Heuristic),
    (4, LogState::InDoubt),
    (5, LogState::Forced),
];

/// Which transactions are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogQuery<'a> {
    /// Decided at this time or later.
    pub since_ms: Option<u64>,
    /// Decided before this time.
    pub until_ms: Option<u64>,
    /// In this state.
    pub state: Option<LogState>,
    /// With a branch in this resource, by its name.
    pub resource: Option<&'a str>,
    /// This one.
    pub tx: Option<TxId>,
    /// Behind this one: the last of the page before.
    pub after: Option<TxId>,
    /// At most that many, and never more than a page.
    pub limit: u32,
}

/// What a person did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Decided commit.
    Commit,
    /// Decided rollback.
    Rollback,
    /// Forgot heuristic outcomes.
    Forget,
}

const ACTIONS: &[(u8, Action)] = &[(1, Action::Commit), (2, Action::Rollback), (3, Action::Forget)];

/// What a branch voted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// It would do whatever is decided.
    Yes,
    /// It had nothing to commit.
    ReadOnly,
    /// It could not commit.
    No,
}

const VOTES: &[(u8, Vote)] = &[(1, Vote::Yes), (2, Vote::ReadOnly), (3, Vote::No)];

/// What a branch voted, told by its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voted<'a> {
    /// The registered resource.
    pub resource: ResourceId,
    /// Which branch of the transaction.
    pub number: u16,
    /// What.
    pub vote: Vote,
    /// How often it had to be told the outcome again.
    pub retries: u32,
    /// The resource's own words: of a no, or of the last answer to the outcome that was none.
    pub native: Native<'a>,
}

/// How much the log tells of each branch. Each tells what the one before it tells, and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// How it was left.
    Fates,
    /// What it voted. Since version 3.
    Votes,
    /// What the decision keeps of its vote. Since version 4.
    Witnesses,
}

/// How a branch was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastBranch<'a> {
    /// The registered name, or the id if no such resource is registered any more.
    pub resource: &'a str,
    /// Which branch of the transaction.
    pub number: u16,
    /// Whether the decision keeps what its adapter needs to ask what became of it.
    pub has_witness: bool,
    /// In a word: `committed`, `rolled back`; empty where its own client finished it, or it is open.
    pub fate: &'a str,
    /// A heuristic outcome, also one that was forgotten since.
    pub heuristic: Option<Heuristic>,
    /// Who left it so.
    pub by: Option<By>,
    /// How often it had to be told again.
    pub retries: u32,
    /// The resource's own words.
    pub native: Native<'a>,
    /// When that was noted.
    pub noted_ms: Option<u64>,
    /// What it voted, if the log says. Since version 3.
    pub vote: Option<Vote>,
    /// That which the decision keeps: the adapter's own bytes. Since version 4.
    pub witness: &'a [u8],
}

/// What a person did, when and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastWord<'a> {
    /// When.
    pub at_ms: u64,
    /// What.
    pub action: Action,
    /// Who.
    pub who: &'a str,
    /// Why.
    pub reason: &'a str,
}

/// One transaction as the log tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastView<'a> {
    /// Which.
    pub tx: TxId,
    /// What was decided.
    pub outcome: Outcome,
    /// By whom.
    pub by: By,
    /// What its client called itself; empty if the log no longer says.
    pub client: &'a str,
    /// When it was decided.
    pub decided_ms: Option<u64>,
    /// By when it was finished, if it is.
    pub finished_ms: Option<u64>,
    /// Its branches.
    pub branches: Vec<PastBranch<'a>>,
    /// What people did about it.
    pub words: Vec<PastWord<'a>>,
}

/// The end of a run of records in the chain over the log. Kept elsewhere, its number and digest prove later that nothing
/// before it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Counts the seals.
    pub number: u64,
    /// SHA-256.
    pub digest: [u8; 32],
    /// When it was laid.
    pub at_ms: u64,
}

/// How far the chain over the log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Seals that were found and fit.
    pub seals: u64,
    /// Records that were read.
    pub records: u64,
    /// Records behind the last seal: nothing vouches for them yet.
    pub unsealed: u64,
    /// The log reaches back to its birth; else its first run is taken on trust.
    pub is_whole: bool,
    /// The first seal; none if nothing is sealed yet.
    pub first: Option<Seal>,
    /// The last one.
    pub head: Option<Seal>,
}

impl<'a> LogQuery<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        put_time(to, self.since_ms);
        put_time(to, self.until_ms);
        field::put_option(to, self.state.as_ref(), |to, state| field::put_word(to, STATES, state));
        field::put_option(to, self.resource.as_ref(), |to, name| _ = to.text(name));
        for tx in [self.tx, self.after] {
            field::put_option(to, tx.as_ref(), |to, tx| field::put_tx(to, *tx));
        }
        to.u32(self.limit);
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            since_ms: time(from)?,
            until_ms: time(from)?,
            state: field::option(from, "state", |from| field::word(from, "state", STATES))?,
            resource: field::option(from, "resource", |from| from.text("resource"))?,
            tx: field::option(from, "tx", field::tx)?,
            after: field::option(from, "after", field::tx)?,
            limit: from.u32("limit")?,
        })
    }
}

fn put_time(to: &mut Writer, time: Option<u64>) {
    field::put_option(to, time.as_ref(), |to, ms| _ = to.u64(*ms));
}

fn time(from: &mut Reader<'_>) -> Result<Option<u64>, Malformed> {
    field::option(from, "time", |from| from.u64("time"))
}

impl<'a> Voted<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        field::put_word(to.u64(self.resource.0).u16(self.number), VOTES, &self.vote);
        to.u32(self.retries);
        self.native.put(to);
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            resource: ResourceId(from.u64("resource")?),
            number: from.u16("branch number")?,
            vote: field::word(from, "vote", VOTES)?,
            retries: from.u32("retries")?,
            native: Native::take(from)?,
        })
    }
}

impl<'a> PastBranch<'a> {
    fn put(&self, to: &mut Writer, detail: Detail) {
        to.text(self.resource).u16(self.number).u8(u8::from(self.has_witness)).text(self.fate);
        field::put_option(to, self.heuristic.as_ref(), |to, it| put_heuristic(to, *it));
        field::put_option(to, self.by.as_ref(), |to, by| field::put_word(to, BYS, by));
        to.u32(self.retries);
        self.native.put(to);
        put_time(to, self.noted_ms);
        if detail >= Detail::Votes {
            field::put_option(to, self.vote.as_ref(), |to, vote| field::put_word(to, VOTES, vote));
        }
        if detail >= Detail::Witnesses {
            to.bytes(self.witness);
        }
    }

    fn take(from: &mut Reader<'a>, detail: Detail) -> Result<Self, Malformed> {
        let vote = |from: &mut Reader<'a>| field::option(from, "vote", |from| field::word(from, "vote", VOTES));
        Ok(Self {
            resource: from.text("resource")?,
            number: from.u16("branch number")?,
            has_witness: field::flag(from, "has_witness")?,
            fate: from.text("fate")?,
            heuristic: field::option(from, "heuristic", heuristic)?,
            by: field::option(from, "by", |from| field::word(from, "by", BYS))?,
            retries: from.u32("retries")?,
            native: Native::take(from)?,
            noted_ms: time(from)?,
            vote: if detail >= Detail::Votes { vote(from)? } else { None },
            witness: if detail >= Detail::Witnesses { from.bytes("witness")? } else { b"" },
        })
    }
}

impl<'a> PastView<'a> {
    pub(crate) fn put(&self, to: &mut Writer, detail: Detail) {
        field::put_tx(to, self.tx);
        put_outcome(to, self.outcome);
        field::put_word(to, BYS, &self.by);
        to.text(self.client);
        put_time(to, self.decided_ms);
        put_time(to, self.finished_ms);
        field::put_list(to, &self.branches, |to, branch| branch.put(to, detail));
        field::put_list(to, &self.words, |to, word| {
            field::put_word(to.u64(word.at_ms), ACTIONS, &word.action);
            to.text(word.who).text(word.reason);
        });
    }

    pub(crate) fn take(from: &mut Reader<'a>, detail: Detail) -> Result<Self, Malformed> {
        Ok(Self {
            tx: field::tx(from)?,
            outcome: outcome(from)?,
            by: field::word(from, "by", BYS)?,
            client: from.text("client")?,
            decided_ms: time(from)?,
            finished_ms: time(from)?,
            branches: field::list(from, "branches", |from| PastBranch::take(from, detail))?,
            words: field::list(from, "words", |from| {
                Ok(PastWord {
                    at_ms: from.u64("at_ms")?,
                    action: field::word(from, "action", ACTIONS)?,
                    who: from.text("who")?,
                    reason: from.text("reason")?,
                })
            })?,
        })
    }
}

impl Seal {
    fn put(&self, to: &mut Writer) {
        put_digest(to.u64(self.number), &self.digest);
        to.u64(self.at_ms);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { number: from.u64("seal")?, digest: digest(from)?, at_ms: from.u64("at_ms")? })
    }
}

pub(crate) fn put_digest(to: &mut Writer, digest: &[u8; 32]) {
    to.raw(digest);
}

pub(crate) fn digest(from: &mut Reader<'_>) -> Result<[u8; 32], Malformed> {
    from.raw(32, "digest")?.try_into().map_err(|_| Malformed { field: "digest" })
}

impl Verified {
    pub(crate) fn put(&self, to: &mut Writer) {
        to.u64(self.seals).u64(self.records).u64(self.unsealed).u8(u8::from(self.is_whole));
        for seal in [&self.first, &self.head] {
            field::put_option(to, seal.as_ref(), |to, seal| seal.put(to));
        }
    }

    pub(crate) fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            seals: from.u64("seals")?,
            records: from.u64("records")?,
            unsealed: from.u64("unsealed")?,
            is_whole: field::flag(from, "is_whole")?,
            first: field::option(from, "first", Seal::take)?,
            head: field::option(from, "head", Seal::take)?,
        })
    }
}
