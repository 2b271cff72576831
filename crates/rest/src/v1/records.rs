//! Where it is kept that a request was done, or that a transaction has committed: in the store, in the batch that does it; where only
//! documents were written, in their commit.
//!
//! Walk: [`Records::find`] looks in both · [`Records::row`] is a write of the store · [`Records::carried`] a field of a commit.
//! Deliberately absent: a pass over what is over. The store's rows expire, and the documents' index lets them go.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use assent_docs::{Database, OnceName};
use assent_ids::Lsn;
use assent_kind::Kind;
use assent_kv::{Durability, Kv, KvError, Op};
use assent_world::Clock;
use axum::http::StatusCode;
use axum::response::Response;

use crate::once::{Kept, Once, Turns, again, told};
use crate::problem::Problem;

/// The keyspace of the store that has them. No request reaches it by its name.
pub(crate) const KEYSPACE: &str = "assent.requests";

pub(crate) struct Records {
    kv: Option<Arc<Kv>>,
    documents: Option<Arc<Database>>,
    clock: Arc<dyn Clock>,
    keep: Duration,
    pub(crate) turns: Turns,
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("keep", &self.keep).finish_non_exhaustive()
    }
}

/// A row of the store.
pub(crate) struct Row {
    pub(crate) keyspace: u32,
    pub(crate) name: OnceName,
    pub(crate) value: String,
    pub(crate) expiry: u64,
}

impl Row {
    /// As the store writes it.
    pub(crate) fn op(&self) -> Op<'_> {
        let (key, value) = (self.name.as_slice(), self.value.as_bytes());
        Op::Put { keyspace: self.keyspace, key, metadata: &[], value, expiry: self.expiry }
    }
}

/// What is found, and where in the store's log it was written.
pub(crate) type Found = (Kept, Lsn);

impl Records {
    pub(crate) fn new(
        kv: Option<Arc<Kv>>,
        documents: Option<Arc<Database>>,
        clock: Arc<dyn Clock>,
        keep: Duration,
    ) -> Self {
        Self { kv, documents, clock, keep, turns: Turns::default() }
    }

    /// For how long.
    pub(crate) const fn keep(&self) -> Duration {
        self.keep
    }

    fn until(&self) -> u64 {
        let keep = u64::try_from(self.keep.as_millis()).unwrap_or(u64::MAX);
        self.clock.wall_ms().saturating_add(keep)
    }

    /// The keyspace, made when it is first needed.
    fn keyspace(&self, kv: &Kv) -> Result<u32, KvError> {
        if let Some(found) = kv.keyspace(KEYSPACE)? {
            return Ok(found.id);
        }
        match kv.keyspace_create(KEYSPACE) {
            // Somebody else has just made it.
            Err(KvError::NameKnown { .. }) => kv
                .keyspace(KEYSPACE)?
                .map(|found| found.id)
                .ok_or(KvError::Busy { what: "keyspaces being made", limit: 1 }),
            made => made,
        }
    }

    /// What was done under this name.
    pub(crate) fn find(&self, once: &Once) -> Result<Option<Found>, Problem> {
        if let Some(kv) = &self.kv
            && let Some(keyspace) = kv.keyspace(KEYSPACE)?
        {
            // A branch that recovery will commit must not be taken for one that was never there.
            if kv.is_on_its_way(keyspace.id, &once.name) {
                return Err(Problem::of(Kind::Unavailable, "whether this is done is not decided yet: ask again"));
            }
            let found = kv.entry(keyspace.id, &once.name)?;
            let kept = |value: &[u8]| std::str::from_utf8(value).ok().and_then(Kept::of_text);
            if let Some((kept, at)) = found.and_then(|found| Some((kept(&found.value)?, found.committed))) {
                return Ok(Some((kept, at)));
            }
        }
        let Some(documents) = &self.documents else { return Ok(None) };
        let done = documents.done(&once.name)?;
        Ok(done.and_then(|done| Kept::of_text(&done.once.note)).map(|kept| (kept, Lsn::ZERO)))
    }

    /// Does what is no write of a branch, and keeps what was told, if there is a store. What ends between the two is done again by who asks
    /// again.
    pub(crate) fn once(
        &self,
        once: Option<&Once>,
        work: impl FnOnce() -> Result<(StatusCode, String), Problem>,
    ) -> Result<Response, Problem> {
        let _turn = self.turns.take(once)?;
        if let Some(once) = once
            && let Some((kept, _)) = self.find(once)?
        {
            let kept = kept.judge(once)?;
            return Ok(again(told(kept.status, &kept.body)));
        }
        let (status, body) = work()?;
        if let Some(once) = once
            && let Err(problem) = self.note(once, &once.kept(status, body.as_str()))
        {
            // It is done, and nobody is told otherwise.
            let why = problem.detail;
            tracing::warn!(why, "a request is done, and its key could not be noted: asked again it is done again");
        }
        Ok(told(status, &body))
    }

    fn note(&self, once: &Once, kept: &Kept) -> Result<(), Problem> {
        if let (Some(kv), Some(row)) = (&self.kv, self.row(once, kept)?) {
            kv.batch_if(&[], &[row.op()], Durability::Durable)?;
        }
        Ok(())
    }

    /// The row of the store that says it.
    pub(crate) fn row(&self, once: &Once, kept: &Kept) -> Result<Option<Row>, Problem> {
        let Some(kv) = &self.kv else { return Ok(None) };
        Ok(Some(Row { keyspace: self.keyspace(kv)?, name: once.name, value: kept.text(), expiry: self.until() }))
    }

    /// The same for a commit of documents.
    pub(crate) fn carried(&self, once: &Once, kept: &Kept) -> assent_docs::Once {
        assent_docs::Once { name: once.name, until_ms: self.until(), note: kept.text() }
    }
}
