//! Folds: all keys, heads or objects of a range, one after the other, in the order of the keys or of the journal.
//!
//! Memory is bounded, whatever the range holds: in key order by one piece of rows, and nothing is held while the caller looks at
//! them. In the journal's order, each walk over the range gathers the rows of the smallest places that fit `fold_bytes`, sorts
//! them, and the next walk takes up behind: values are read front to back, for one walk over the ledger each `fold_bytes`.
//! Each is read by itself when it is its turn: of the files that they stand in the system reads nothing ahead.
//! Not a sort on disk: rows are small beside values, and a walk over them is cheap beside reading these.
//!
//! Walk: [`Lease::fold`] · [`Fold::new`] and its fields say what.

use std::collections::BinaryHeap;
use std::ops::{Bound, ControlFlow, RangeInclusive};
use std::sync::Arc;

use assent_ids::Lsn;

use crate::keyed::Key;
use crate::ledger;
use crate::snapshot::{Found, Head, Snapshot};
use crate::{KvError, Lease};

/// So many rows, or about so many bytes of them, are gathered before the caller sees them.
const PIECE_ROWS: usize = 256;
const PIECE_BYTES: usize = 1 << 20;
/// What a gathered row takes beside its key and metadata.
const ROW_BYTES: u64 = 160;

/// What a fold shows of each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The key.
    Keys,
    /// And what is known of its value, which is not read.
    Heads,
    /// And the value.
    Objects,
}

/// In which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// That of the keys.
    Key,
    /// That in which the values stand in the journal.
    Journal,
}

/// A row of a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row<'a> {
    /// A key.
    Key(&'a [u8]),
    /// A key, and what is known of its value.
    Head(&'a [u8], &'a Head),
    /// A key with its value.
    Object(&'a [u8], &'a Found),
}

impl<'a> Row<'a> {
    /// The key.
    #[must_use]
    pub const fn key(&self) -> &'a [u8] {
        match self {
            Self::Key(key) | Self::Head(key, _) | Self::Object(key, _) => key,
        }
    }
}

/// What to go through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold<'a> {
    /// What to show.
    pub what: What,
    /// Whose keys.
    pub keyspace: u32,
    /// From this key.
    pub from: Bound<&'a [u8]>,
    /// To this one. Bounds that hold nothing give nothing.
    pub to: Bound<&'a [u8]>,
    /// In which order.
    pub order: Order,
    /// Only what was written then, in milliseconds since 1970.
    pub modified: RangeInclusive<u64>,
}

impl Fold<'_> {
    /// All of a keyspace, in key order.
    #[must_use]
    pub const fn new(what: What, keyspace: u32) -> Self {
        let (from, to) = (Bound::Unbounded, Bound::Unbounded);
        Self { what, keyspace, from, to, order: Order::Key, modified: 0..=u64::MAX }
    }
}

/// What was gathered of a row.
struct Gathered {
    key: Key,
    what: Shown,
}

enum Shown {
    Key,
    Head(Box<Head>),
    Object(Box<Found>),
}

impl Gathered {
    fn show(&self) -> Row<'_> {
        match &self.what {
            Shown::Key => Row::Key(&self.key),
            Shown::Head(head) => Row::Head(&self.key, head),
            Shown::Object(found) => Row::Object(&self.key, found),
        }
    }

    fn bytes(&self) -> usize {
        self.key.len()
            + match &self.what {
                Shown::Key => 0,
                Shown::Head(head) => head.metadata.len(),
                Shown::Object(found) => found.metadata.len() + found.value.len(),
            }
    }
}

/// A row and where its value stands: (entry, offset).
struct Standing {
    place: (u64, u32),
    key: Key,
    head: ledger::Head,
}

impl Standing {
    fn bytes(&self) -> u64 {
        u64::try_from(self.key.len() + self.head.metadata.len()).unwrap_or(u64::MAX).saturating_add(ROW_BYTES)
    }
}

impl PartialEq for Standing {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl Eq for Standing {}

impl PartialOrd for Standing {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Standing {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.place.cmp(&other.place)
    }
}

impl Lease {
    /// Shows each row to the caller until he breaks off; whether he did. He may take his time: the lease may be ended meanwhile,
    /// and writers never wait. Who wants to go on as of now breaks off, refreshes, and starts behind the last key.
    ///
    /// # Errors
    /// As [`Lease::get`] and [`Lease::head`]; what was shown before stays true.
    pub fn fold(
        &self,
        fold: &Fold<'_>,
        then: &mut dyn FnMut(Row<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, KvError> {
        match fold.order {
            Order::Key => self.fold_by_key(fold, then),
            Order::Journal => self.fold_by_place(fold, then),
        }
    }

    fn fold_by_key(
        &self,
        fold: &Fold<'_>,
        then: &mut dyn FnMut(Row<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, KvError> {
        let mut last: Option<Key> = None;
        loop {
            let from = last.as_ref().map_or(fold.from, |key| Bound::Excluded(&**key));
            let (piece, end) = self.look()?.piece(fold, from)?;
            for row in &piece {
                if then(row.show()).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            match end {
                Some(key) => last = Some(key),
                None => return Ok(ControlFlow::Continue(())),
            }
        }
    }

    fn fold_by_place(
        &self,
        fold: &Fold<'_>,
        then: &mut dyn FnMut(Row<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, KvError> {
        let mut behind = None;
        // A refresh in between would show another moment: all of it is as of where it began.
        let at = self.lsn()?;
        loop {
            let (rows, more) = self.of(at)?.by_place(fold, behind, self.fold_bytes())?;
            for Standing { place, key, head } in rows {
                let row = self.of(at)?.gather(fold, key, head)?;
                if then(row.show()).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                behind = Some(place);
            }
            if !more {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    /// What it sees, if that is still of this moment.
    fn of(&self, at: Lsn) -> Result<Arc<Snapshot>, KvError> {
        let snapshot = self.look()?;
        if snapshot.lsn() == at {
            return Ok(snapshot);
        }
        Err(KvError::SnapshotEnded { at, what: "refreshes within a fold in the journal's order", limit: 0 })
    }
}

impl Snapshot {
    /// The next rows, and behind which key to go on.
    fn piece(&self, fold: &Fold<'_>, from: Bound<&[u8]>) -> Result<(Vec<Gathered>, Option<Key>), KvError> {
        self.line_up();
        let (mut piece, mut bytes) = (Vec::new(), 0);
        for row in self.view().range(fold.keyspace, (from, fold.to)) {
            let (key, head) = row?;
            if !fold.modified.contains(&head.place.modified) {
                continue;
            }
            let row = self.gather(fold, key.clone(), head)?;
            bytes += row.bytes();
            piece.push(row);
            if piece.len() >= PIECE_ROWS || bytes >= PIECE_BYTES {
                return Ok((piece, Some(key)));
            }
        }
        Ok((piece, None))
    }

    fn gather(&self, fold: &Fold<'_>, key: Key, head: ledger::Head) -> Result<Gathered, KvError> {
        let what = match fold.what {
            What::Keys => Shown::Key,
            What::Heads => Shown::Head(Box::new(Head::from(head))),
            What::Objects => Shown::Object(Box::new(self.value_of(fold.keyspace, &key, head)?)),
        };
        Ok(Gathered { key, what })
    }

    /// The rows of the smallest places behind one, in order, as many as fit; whether there are more.
    fn by_place(
        &self,
        fold: &Fold<'_>,
        behind: Option<(u64, u32)>,
        bytes_max: u64,
    ) -> Result<(Vec<Standing>, bool), KvError> {
        self.line_up();
        let (mut rows, mut bytes, mut more) = (BinaryHeap::new(), 0_u64, false);
        for row in self.view().range(fold.keyspace, (fold.from, fold.to)) {
            let (key, head) = row?;
            let place = (head.place.entry.0, head.place.at);
            if Some(place) <= behind || !fold.modified.contains(&head.place.modified) {
                continue;
            }
            // More than fitted before: only what stands before the last of them can be among the next.
            if more && rows.peek().is_some_and(|last: &Standing| place > last.place) {
                continue;
            }
            let row = Standing { place, key, head };
            bytes = bytes.saturating_add(row.bytes());
            rows.push(row);
            while bytes > bytes_max && rows.len() > 1 {
                more = true;
                bytes = bytes.saturating_sub(rows.pop().map_or(0, |last| last.bytes()));
            }
        }
        Ok((rows.into_sorted_vec(), more))
    }
}
