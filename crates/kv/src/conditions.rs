//! Writes that depend on what is there: compare-and-set, for one key or many, atomically with the batch.
//!
//! Walk: [`Kv::batch_if_begin`] judges and appends under one lock, [`Kv::wait_judged`] answers · [`Kv::branch_expect`]: a
//! branch's vote judges.
//! What is current is what the log says so far, published or not: who appends next stands behind it, and a crash that takes the
//! one takes the other. So a condition is judged against writes on their way too. Only the answer "unmet" needs more: it tells
//! of such a write, and nobody may be told of what a crash can take back or what a read does not see yet. It waits until that
//! write is visible. And a branch that has conditions and appends nothing stands behind nothing: its vote waits until what the
//! log has so far is durable.
//! A key that a prepared branch holds is neither: who has a condition on it is refused like who writes it.

use std::fmt;

use assent_ids::{Lsn, Xid};

use crate::branch::Work;
use crate::config::ROW_BYTES;
use crate::desk::{Desk, Staged, Turn};
use crate::error::Shown;
use crate::error::within;
use crate::keyed::Key;
use crate::ledger::Ledger;
use crate::line::Place;
use crate::op::{Durability, Op};
use crate::record::{KIND_BATCH, Laid};
use crate::transaction::active;
use crate::{Kv, KvError, Pending};

/// The most conditions of one batch or branch.
pub const CONDITIONS_MAX: u32 = 4096;

/// What a key must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Not there.
    Absent,
    /// There.
    Present,
    /// As this write left it: what the writer was answered, and what [`crate::Head::committed`] says.
    At(Lsn),
}

impl Expect {
    const fn is_met(self, found: Option<Lsn>) -> bool {
        match (self, found) {
            (Self::Absent, None) | (Self::Present, Some(_)) => true,
            (Self::At(expected), Some(found)) => expected.0 == found.0,
            (Self::Absent, Some(_)) | (Self::Present | Self::At(_), None) => false,
        }
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("absent"),
            Self::Present => f.write_str("present"),
            Self::At(lsn) => write!(f, "as committed at {lsn}"),
        }
    }
}

/// What must hold of a key for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition<'a> {
    /// Whose key.
    pub keyspace: u32,
    /// The key.
    pub key: &'a [u8],
    /// What it must be.
    pub expects: Expect,
}

impl<'a> Condition<'a> {
    /// A condition.
    #[must_use]
    pub const fn new(keyspace: u32, key: &'a [u8], expects: Expect) -> Self {
        Self { keyspace, key, expects }
    }
}

/// A condition that a branch keeps until its vote.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    keyspace: u32,
    key: Key,
    expects: Expect,
}

impl Expected {
    fn as_condition(&self) -> Condition<'_> {
        Condition { keyspace: self.keyspace, key: &self.key, expects: self.expects }
    }
}

/// What became of a conditional batch. To be answered once [`Kv::wait_judged`] returns.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it is neither durable nor true before Kv::wait_judged"]
pub enum Judged {
    /// All conditions hold; it was appended.
    Met(Pending),
    /// One does not; nothing was appended. True once what it tells of is visible.
    Unmet {
        /// What it tells of.
        behind: Pending,
        /// [`KvError::Unmet`].
        why: Box<KvError>,
    },
}

/// What a key is for whoever appends next.
struct Current {
    found: Option<Lsn>,
    /// The entry that made it so and is not visible yet.
    on_its_way: Option<Lsn>,
}

impl Kv {
    /// Writes all of these or none, if all conditions hold, and waits.
    ///
    /// # Errors
    /// [`KvError::Unmet`] (`Conflict`) names the first condition that does not hold, and what was found; nothing was written.
    /// Otherwise as [`Kv::batch`]; `Conflict` too if a prepared branch holds a key of a condition.
    pub fn batch_if(
        &self,
        conditions: &[Condition<'_>],
        ops: &[Op<'_>],
        durability: Durability,
    ) -> Result<Lsn, KvError> {
        self.pause(ops);
        let judged = self.batch_if_begin(conditions, ops, durability)?;
        self.wait_judged(judged)
    }

    /// Judges, appends if all conditions hold, and does not wait.
    ///
    /// # Errors
    /// As [`Kv::batch_begin`].
    pub fn batch_if_begin(
        &self,
        conditions: &[Condition<'_>],
        ops: &[Op<'_>],
        durability: Durability,
    ) -> Result<Judged, KvError> {
        self.batch_if_begin_at(&mut Place::nowhere(), conditions, ops, durability)
    }

    /// As [`Kv::batch_if_begin`], of somebody who may wait for what prepared branches hold ([`Kv::patiently`]).
    ///
    /// # Errors
    /// As [`Kv::batch_begin_at`].
    pub fn batch_if_begin_at(
        &self,
        place: &mut Place,
        conditions: &[Condition<'_>],
        ops: &[Op<'_>],
        durability: Durability,
    ) -> Result<Judged, KvError> {
        let (count, limit) = (u64::try_from(conditions.len()).unwrap_or(u64::MAX), u64::from(CONDITIONS_MAX));
        if count > limit {
            return Err(KvError::Many { what: "conditions", count, limit });
        }
        conditions.iter().try_for_each(|condition| self.check_key(condition.key))?;
        self.check_batch(ops)?;
        if place.id().is_some() {
            // Who has waited mostly has to wait on: nothing is looked for then.
            self.desk().refuse_held(ops.iter().copied().chain(conditions.iter().map(held_as)), place, false)?;
        }
        self.look_at(conditions.iter().map(|condition| (condition.keyspace, condition.key)))?;
        let now = self.shared.time.now_ms();
        let laid = Laid::batch(ops, durability, now);
        let parts = laid.parts(ops);
        let longs = self.shared.values.longs.as_ref();
        let renewals = longs.map(|longs| longs.renewals(ops, &laid.effects)).unwrap_or_default();
        let mut desk = self.writer()?;
        desk.refuse_dropped(ops.iter().copied())?;
        desk.refuse_held(ops.iter().copied().chain(conditions.iter().map(held_as)), place, false)?;
        for condition in conditions {
            let current = desk.current(condition, &self.shared.ledger, self.shared.time.now_ms())?;
            if let Err(why) = current.judge(condition) {
                let behind = current.on_its_way.and_then(|end| desk.waits_for(end)).unwrap_or(Pending::NOTHING);
                return Ok(Judged::Unmet { behind, why: Box::new(why) });
            }
        }
        let ticket = self.appended(self.shared.log.append_leaving(KIND_BATCH, &parts, self.leaves(&desk, ops, 0)))?;
        drop(parts);
        desk.stage(Staged { ticket, durability, effects: laid.placed(ticket.lsn), turn: Turn::Plain });
        drop(desk);
        longs.into_iter().for_each(|longs| longs.renew(ops, &renewals, ticket.lsn));
        Ok(Judged::Met(Pending { ticket: Some(ticket), durability }))
    }

    /// Waits until a conditional batch can be answered. The answer is the place in the log behind the write.
    ///
    /// # Errors
    /// [`KvError::Unmet`]; as [`Kv::wait`] for one that was appended; `Closed` for one that was not, if the log failed.
    pub fn wait_judged(&self, judged: Judged) -> Result<Lsn, KvError> {
        match judged {
            Judged::Met(pending) => self.wait(pending).map(|()| pending.lsn().unwrap_or_default()),
            Judged::Unmet { behind, why } => match self.wait(behind) {
                Ok(()) => Err(*why),
                // It was never appended, whatever became of what it waited for.
                Err(KvError::InDoubt(error)) => Err(KvError::Journal(error)),
                Err(error) => Err(error),
            },
        }
    }

    /// The branch commits only if this holds when it votes. What the branch writes stays so until its outcome; a key that it
    /// only has a condition on is not held.
    ///
    /// # Errors
    /// As [`Kv::branch_write`]. The vote: [`KvError::Unmet`], and the branch is rolled back.
    pub fn branch_expect(&self, xid: &Xid, condition: Condition<'_>) -> Result<(), KvError> {
        self.check_key(condition.key)?;
        let mut desk = self.desk();
        let all = desk.bytes;
        let work = active(&mut desk, xid, "a condition")?;
        let (count, limit) = (u64::try_from(work.conditions.len()).unwrap_or(u64::MAX), u64::from(CONDITIONS_MAX));
        if count >= limit {
            return Err(KvError::Many { what: "conditions", count: count + 1, limit });
        }
        let more = 16 + u64::try_from(condition.key.len()).unwrap_or(u64::MAX);
        within("branch", work.bytes.saturating_add(more), self.config.branch_bytes_max.into())?;
        let all = all.saturating_add(more).saturating_add(ROW_BYTES);
        if all > self.config.branches_bytes_max {
            return Err(KvError::Busy { what: "bytes of open branches", limit: self.config.branches_bytes_max });
        }
        let Condition { keyspace, key, expects } = condition;
        work.conditions.push(Expected { keyspace, key: key.into(), expects });
        work.bytes += more;
        desk.bytes = all;
        Ok(())
    }

    /// Looks for rows before anybody has to wait for it: under the desk's lock they are in memory then.
    pub(crate) fn look_at<'a>(&self, keys: impl Iterator<Item = (u32, &'a [u8])>) -> Result<(), KvError> {
        for (keyspace, key) in keys {
            self.shared.ledger.find(keyspace, key)?;
        }
        Ok(())
    }
}

/// A condition counts for held keys as a write does.
const fn held_as<'a>(condition: &Condition<'a>) -> Op<'a> {
    Op::Delete { keyspace: condition.keyspace, key: condition.key }
}

impl Work {
    /// Keys of its conditions.
    pub(crate) fn expected(&self) -> impl Iterator<Item = (u32, &Key)> {
        self.conditions.iter().map(|expected| (expected.keyspace, &expected.key))
    }
}

impl Desk {
    /// Whether all conditions of a branch hold for whoever appends next.
    pub(crate) fn refuse_unmet(
        &self,
        work: &Work,
        ledger: &Ledger,
        now: u64,
        place: &mut Place,
    ) -> Result<(), KvError> {
        self.refuse_held(work.conditions.iter().map(|expected| held_as(&expected.as_condition())), place, false)?;
        for expected in &work.conditions {
            let condition = expected.as_condition();
            self.current(&condition, ledger, now)?.judge(&condition)?;
        }
        Ok(())
    }

    fn current(&self, condition: &Condition<'_>, ledger: &Ledger, now: u64) -> Result<Current, KvError> {
        let Condition { keyspace, key, .. } = *condition;
        if let Some(way) = self.on_its_way(keyspace, key) {
            let lives = way.lives.is_some_and(|expiry| !ledger.is_over(expiry, now));
            return Ok(Current { found: lives.then_some(way.end), on_its_way: Some(way.end) });
        }
        let head = ledger.find(keyspace, key)?.filter(|head| !ledger.is_over(head.place.expiry, now));
        Ok(Current { found: head.map(|head| head.committed), on_its_way: None })
    }
}

impl Current {
    fn judge(&self, condition: &Condition<'_>) -> Result<(), KvError> {
        let Condition { keyspace, key, expects } = *condition;
        if expects.is_met(self.found) {
            return Ok(());
        }
        Err(KvError::Unmet { key: Shown::of(keyspace, key), expected: expects, found: self.found })
    }
}
