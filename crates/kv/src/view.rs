//! The ledger as it was at one moment, and at one time: what had expired by then is not in it.
//!
//! Walk: [`View::find`] is a key, [`View::range`] the keys of a range in order, [`View::written`] a key expired or not.

use std::ops::Bound;
use std::sync::Arc;

use assent_ids::Lsn;
use assent_runs::Pinned;

use crate::KvError;
use crate::keyed::Key;
use crate::ledger::{Head, laid_key, with_laid_key};
use crate::rows::{behind, head};
use crate::snapshot::Bounds;
use crate::time::{Time, is_over};

/// The rows of one moment.
#[derive(Debug)]
pub(crate) struct View {
    view: assent_runs::View,
    time: u64,
    /// Whoever is told that something is over tells the store at once: a snapshot may be kept for long.
    clock: Option<Arc<Time>>,
}

impl View {
    pub(crate) const fn of(view: assent_runs::View, time: u64, clock: Option<Arc<Time>>) -> Self {
        Self { view, time, clock }
    }

    /// Every entry that ends here or before is in it.
    pub(crate) fn lsn(&self) -> Lsn {
        Lsn(self.view.seq())
    }

    /// What has expired by then is not there.
    pub(crate) const fn time(&self) -> u64 {
        self.time
    }

    /// A key as of this moment.
    pub(crate) fn find(&self, keyspace: u32, key: &[u8]) -> Result<Option<Head>, KvError> {
        Ok(self.written(keyspace, key)?.filter(|head| !self.is_over(head.place.expiry)))
    }

    fn is_over(&self, expiry: u64) -> bool {
        self.clock.as_ref().map_or_else(|| is_over(expiry, self.time), |clock| clock.is_over(expiry, self.time))
    }

    /// Two of the same version hold the same.
    pub(crate) fn version(&self) -> usize {
        self.view.version()
    }

    /// What it holds and a newer one does not.
    pub(crate) fn pinned_beyond(&self, newer: &Self) -> Arc<[Pinned]> {
        self.view.pinned_beyond(&newer.view).into()
    }

    /// As it was written, expired or not.
    pub(crate) fn written(&self, keyspace: u32, key: &[u8]) -> Result<Option<Head>, KvError> {
        with_laid_key(keyspace, key, |laid| self.view.look(laid, head))?.transpose()
    }

    /// All keys with their keyspaces, in order, expired or not; what could not be read in their place. Ends behind that.
    pub(crate) fn all(&self) -> impl Iterator<Item = Result<(u32, Key, Head), KvError>> {
        let mut walk = self.view.range(Bound::Unbounded, Bound::Unbounded);
        std::iter::from_fn(move || {
            let next = walk.next().transpose()?;
            Some(next.map_err(KvError::from).and_then(|(key, found)| {
                let (keyspace, key) = key.split_first_chunk().unwrap_or((&[0; 4], &key));
                Ok((u32::from_be_bytes(*keyspace), key.into(), head(found.seq, &found.value)?))
            }))
        })
    }

    /// The keys of a range, in order. Bounds that hold nothing give nothing.
    pub(crate) fn range(&self, keyspace: u32, (from, to): Bounds<'_>) -> Walk<'_> {
        let from = match from {
            Bound::Included(key) => Bound::Included(laid_key(keyspace, key)),
            Bound::Excluded(key) => Bound::Excluded(laid_key(keyspace, key)),
            Bound::Unbounded => Bound::Included(laid_key(keyspace, b"")),
        };
        let to = match to {
            Bound::Included(key) => Bound::Included(laid_key(keyspace, key)),
            Bound::Excluded(key) => Bound::Excluded(laid_key(keyspace, key)),
            Bound::Unbounded => behind(keyspace).map_or(Bound::Unbounded, Bound::Excluded),
        };
        let walk = self.view.range(from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        Walk { walk, view: self, most: u64::MAX }
    }
}

/// A walk over the keys of a range.
pub(crate) struct Walk<'v> {
    walk: assent_runs::Walk<'v>,
    view: &'v View,
    /// Dead keys that it steps over.
    most: u64,
}

impl Walk<'_> {
    /// The same, but it steps over no more dead keys than these: deleted, erased, expired.
    pub(crate) fn within(self, passes: u64) -> Self {
        Self { walk: self.walk.within(passes), most: passes, ..self }
    }

    pub(crate) const fn passes_left(&self) -> u64 {
        self.walk.passes_left()
    }

    /// The next key.
    ///
    /// # Errors
    /// `Busy` if too many dead ones stand before it; as the ledger says.
    pub(crate) fn step(&mut self) -> Result<Option<(Key, Head)>, KvError> {
        let next = self.next().transpose()?;
        if next.is_none() && self.walk.gave_up() {
            return Err(KvError::Busy { what: "dead keys before the next one", limit: self.most });
        }
        Ok(next)
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<(Key, Head), KvError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let next = match self.walk.next().transpose()? {
                Ok((key, found)) => head(found.seq, &found.value).map(|head| (key, head)),
                Err(error) => Err(error.into()),
            };
            match next {
                Ok((_, head)) if self.view.is_over(head.place.expiry) => {
                    if !self.walk.pass() {
                        return None;
                    }
                }
                Ok((key, head)) => return Some(Ok((key.get(4..).unwrap_or_default().into(), head))),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
