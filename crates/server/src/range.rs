//! Ranges of keys: as many rows as fit a message, and no more values than a desk may read for one answer; the caller asks on behind the last.
//!
//! Between two keys may stand any number of dead ones, whose rows no merge has met yet: a desk steps over few of them, and others wait
//! for it. What has more is walked again by a thread for such ranges, as of when it was asked for. Not so within a branch: what it has
//! written by then belongs to it, and is the desk's to look at.
//!
//! Walk: [`scan`], and [`objects::rows`](crate::objects::rows), gather on the desk · [`Range::walk`] on that thread.

use std::ops;

use assent_kv::{Kv, KvError, Rows, Snapshot};
use assent_wire::{Answer, Bound, Found, Scan};

use crate::inquiry::{self, Refusal};
use crate::objects;
use crate::role::Visit;
use crate::shared::Shared;

/// Dead keys that a desk steps over for one request: about as long as it takes to lay an answer.
pub(crate) const PASSES_MAX: u64 = 4096;
/// Rows that are fetched at a time.
const SCAN_ROWS: usize = 64;
/// What an answer has beside its rows, and each row beside its bytes.
const PAIRS_HEAD_BYTES: usize = 1;
const PAIR_HEAD_BYTES: usize = 8;

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
    snapshot: Snapshot,
    keyspace: u32,
    from: ops::Bound<Vec<u8>>,
    to: ops::Bound<Vec<u8>>,
    limit: u32,
    told: Told,
}

/// The keys of a range with their values.
pub(crate) fn scan(visit: &mut Visit<'_>, kv: &Kv, scan: &Scan<'_>) {
    let most = objects::frame_bytes_max(visit.shared);
    let (from, to) = (bound(scan.from), bound(scan.to));
    let gathered = if let Some(xid) = &scan.xid {
        gather(scan, most, |behind, rows| kv.branch_scan(xid, scan.keyspace, behind.unwrap_or(from), to, rows))
    } else {
        let (snapshot, mut passes) = (kv.snapshot(), PASSES_MAX);
        let fetch = |behind: Behind<'_>, rows| {
            snapshot.scan_within(scan.keyspace, behind.unwrap_or(from), to, rows, &mut passes)
        };
        match gather(scan, most, fetch) {
            Err(KvError::Busy { .. }) => {
                return inquiry::ask_walk(visit, Range::of(snapshot, scan, Told::Pairs));
            }
            gathered => gathered,
        }
    };
    match gathered {
        Ok((rows, more)) => visit.answer(&pairs(&rows, more)),
        Err(error) => visit.error(error.kind(), &error.to_string()),
    }
}

fn pairs(rows: &Rows, more: bool) -> Answer<'_> {
    Answer::Pairs { more, pairs: rows.iter().map(|(key, value)| Found { key, value }).collect() }
}

impl Range {
    pub(crate) fn of(snapshot: Snapshot, scan: &Scan<'_>, told: Told) -> Self {
        let owned = |end| bound(end).map(<[u8]>::to_vec);
        let (keyspace, limit) = (scan.keyspace, scan.limit);
        Self { snapshot, keyspace, from: owned(scan.from), to: owned(scan.to), limit, told }
    }

    /// Walks it to its end, or until a message is full.
    pub(crate) fn walk(&self, shared: &Shared, mark: u64) -> Result<Vec<u8>, Refusal> {
        let (told, most) = (|error: KvError| (error.kind(), error.to_string()), objects::frame_bytes_max(shared));
        let Self { snapshot, keyspace, limit, .. } = self;
        let scan = Scan { xid: None, keyspace: *keyspace, from: end(&self.from), to: end(&self.to), limit: *limit };
        match self.told {
            Told::Pairs => {
                let (from, to) = (bound(scan.from), bound(scan.to));
                let fetch = |behind: Behind<'_>, rows| snapshot.scan(*keyspace, behind.unwrap_or(from), to, rows);
                let (rows, more) = gather(&scan, most, fetch).map_err(told)?;
                inquiry::lay(shared, mark, &pairs(&rows, more))
            }
            Told::Objects { values } => {
                let mut passes = u64::MAX;
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

/// Where rows go on; nothing: where the range begins.
type Behind<'a> = Option<ops::Bound<&'a [u8]>>;

fn gather(
    scan: &Scan<'_>,
    bytes_max: usize,
    mut fetch: impl FnMut(Behind<'_>, usize) -> Result<Rows, KvError>,
) -> Result<(Rows, bool), KvError> {
    let limit = usize::try_from(scan.limit).unwrap_or(usize::MAX).min(objects::READS_MAX);
    let mut rows = Rows::new();
    let mut bytes = PAIRS_HEAD_BYTES;
    let mut at_once = SCAN_ROWS;
    loop {
        let behind = rows.last().map(|(key, _)| ops::Bound::Excluded(key.as_slice()));
        let wanted = at_once.min((limit - rows.len()).saturating_add(1));
        let fetched = match fetch(behind, wanted) {
            // Large values: fewer at a time. One alone that is too large is the caller's to know.
            Err(KvError::Size { .. }) if at_once > 1 => {
                at_once /= 2;
                continue;
            }
            fetched => fetched?,
        };
        let last = fetched.len() < wanted;
        for row in fetched {
            let taken = PAIR_HEAD_BYTES + row.0.len() + row.1.len();
            // The first row goes in any case: alone and too large, it is answered with the limit it breaks.
            if rows.len() == limit || (!rows.is_empty() && bytes + taken > bytes_max) {
                return Ok((rows, true));
            }
            bytes += taken;
            rows.push(row);
        }
        if last {
            return Ok((rows, false));
        }
    }
}
