//! Ranges of keys: as many rows as fit a message, and no more values than a desk may read for one answer; the caller asks on behind the last.
//!
//! Between two keys may stand any number of dead ones, whose rows no merge has met yet: a desk steps over few of them, and others wait
//! for it. What has more is walked again by a thread for such ranges, as of when it was asked for. Not so within a branch: what it has
//! written by then belongs to it, and is the desk's to look at.
//!
//! Walk: [`scan`], and [`objects::rows`](crate::objects::rows), gather on the desk · [`Range::walk`] on that thread.

use std::ops;
use std::sync::Arc;

use assent_kv::{Kv, KvError, Most, Page, Snapshot};
use assent_wire::{Answer, Bound, Found, Scan};

use crate::inquiry::{self, Refusal};
use crate::objects;
use crate::role::Visit;
use crate::shared::Shared;

/// Dead keys that a desk steps over for one request: about as long as it takes to lay an answer.
pub(crate) const PASSES_MAX: u64 = 4096;
/// What an answer has beside its rows, and each row beside its bytes.
const PAIRS_HEAD_BYTES: usize = 1;
const PAIR_HEAD_BYTES: u64 = 8;

/// What is told of the keys of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Their values.
    Pairs,
    /// What is known of them; with their values where these fit.
    Objects { values: bool },
}

/// A range that is walked later.
#[derive(Debug)]
pub(crate) struct Range {
    snapshot: Arc<Snapshot>,
    keyspace: u32,
    from: ops::Bound<Vec<u8>>,
    to: ops::Bound<Vec<u8>>,
    limit: u32,
    told: Told,
}

/// The keys of a range with their values.
pub(crate) fn scan(visit: &mut Visit<'_>, kv: &Kv, scan: &Scan<'_>) {
    let (from, to, most) = (bound(scan.from), bound(scan.to), most(visit.shared, scan));
    let page = if let Some(xid) = &scan.xid {
        kv.branch_page(xid, scan.keyspace, from, to, most)
    } else {
        let (snapshot, mut passes) = match objects::snapshot(visit, kv) {
            Ok(snapshot) => (snapshot, PASSES_MAX),
            Err(error) => return visit.error(error.kind(), &error.to_string()),
        };
        match snapshot.page(scan.keyspace, from, to, most, &mut passes) {
            Err(KvError::Busy { .. }) => {
                return inquiry::ask_walk(visit, Range::of(snapshot, scan, Told::Pairs));
            }
            page => page,
        }
    };
    match page {
        Ok(page) => visit.answer(&pairs(&page)),
        Err(error) => {
            let (kind, message) = told(visit.shared, &error);
            visit.error(kind, &message);
        }
    }
}

/// What fits a message. A first row that does not is answered with the limit that it breaks.
fn most(shared: &Shared, scan: &Scan<'_>) -> Most {
    let rows = usize::try_from(scan.limit).unwrap_or(usize::MAX).min(objects::READS_MAX);
    let bytes = objects::frame_bytes_max(shared).saturating_sub(PAIRS_HEAD_BYTES);
    Most { rows, bytes: u64::try_from(bytes).unwrap_or(u64::MAX), row_bytes: PAIR_HEAD_BYTES }
}

/// The caller may know the limit of a message, but not what of it is a row's.
fn told(shared: &Shared, error: &KvError) -> Refusal {
    let message = match error {
        KvError::Size { part: part @ "row", bytes, .. } => {
            format!("a {part} of {bytes} bytes; a message has at most {}", objects::frame_bytes_max(shared))
        }
        error => error.to_string(),
    };
    (error.kind(), message)
}

fn pairs(page: &Page) -> Answer<'_> {
    Answer::Pairs { more: page.more, pairs: page.rows.iter().map(|(key, value)| Found { key, value }).collect() }
}

impl Range {
    pub(crate) fn of(snapshot: Arc<Snapshot>, scan: &Scan<'_>, told: Told) -> Self {
        let owned = |end| bound(end).map(<[u8]>::to_vec);
        let (keyspace, limit) = (scan.keyspace, scan.limit);
        Self { snapshot, keyspace, from: owned(scan.from), to: owned(scan.to), limit, told }
    }

    /// Walks it to its end, or until a message is full.
    pub(crate) fn walk(&self, shared: &Shared, mark: u64) -> Result<Vec<u8>, Refusal> {
        let told = |error: KvError| told(shared, &error);
        let Self { snapshot, keyspace, limit, .. } = self;
        let scan = Scan { xid: None, keyspace: *keyspace, from: end(&self.from), to: end(&self.to), limit: *limit };
        let mut passes = u64::MAX;
        match self.told {
            Told::Pairs => {
                let (from, to, most) = (bound(scan.from), bound(scan.to), most(shared, &scan));
                let page = snapshot.page(*keyspace, from, to, most, &mut passes).map_err(told)?;
                inquiry::lay(shared, mark, &pairs(&page))
            }
            Told::Objects { values } => {
                let most = objects::frame_bytes_max(shared);
                let (rows, more) = objects::gather(snapshot, &scan, (values, most), &mut passes).map_err(told)?;
                inquiry::lay(shared, mark, &objects::rows_of(&rows, more))
            }
        }
    }
}

pub(crate) const fn bound<'a>(bound: Bound<'a>) -> ops::Bound<&'a [u8]> {
    match bound {
        Bound::Unbounded => ops::Bound::Unbounded,
        Bound::Included(key) => ops::Bound::Included(key),
        Bound::Excluded(key) => ops::Bound::Excluded(key),
    }
}

fn end(bound: &ops::Bound<Vec<u8>>) -> Bound<'_> {
    match bound {
        ops::Bound::Unbounded => Bound::Unbounded,
        ops::Bound::Included(key) => Bound::Included(key),
        ops::Bound::Excluded(key) => Bound::Excluded(key),
    }
}
