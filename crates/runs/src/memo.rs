//! What look-ups found in the files: rows by the hash of their keys, so that a key that is asked for again takes one look at memory, however
//! many runs there are.
//!
//! ```text
//!   a row   era 8 | seq 8 | key bytes 4 | key | value          in the cache of blocks, and within its budget
//! ```
//! A row is what the files say of its key as of the version that found it, and stays true until a flush brings the key again. So a flush
//! takes the keys that it brought along, after it has closed the door to whoever looked at a version before it; of what was erased before its
//! own memory was closed it brought nothing, and no row is left. What a range erased is no longer hidden once nobody remembers the range: with it an era ends, and rows of an era before are believed by nobody.
//!
//! Who looks as of an earlier seq asks the memory of its own version first, so a row that is not newer than that is its row too.
//!
//! Walk: [`Memo::recall`], and after a look at the files [`Memo::keep`] · [`Memo::after`] a commit, before its version is shown.
//! Deliberately absent: keys that are not there, which the filters know, and walks over ranges.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use crate::cache::Cache;
use crate::entry::Cursor;
use crate::filter;
use crate::memtable::MemCursor;
use crate::ranges::Erased;
use crate::version::Frozen;

/// A longer row is looked up each time: its block costs no more than to copy it.
const ROW_BYTES_MAX: usize = 1 << 10;
const HEAD_BYTES: usize = 20;

/// What the files say of a key.
#[derive(Clone)]
pub(crate) struct Row(Arc<[u8]>);

/// A row, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept<'a> {
    era: u64,
    key: &'a [u8],
    pub(crate) seq: u64,
    pub(crate) value: &'a [u8],
}

impl Row {
    fn lay(era: u64, seq: u64, key: &[u8], value: &[u8]) -> Self {
        let mut row = Vec::with_capacity(HEAD_BYTES + key.len() + value.len());
        row.extend_from_slice(&era.to_le_bytes());
        row.extend_from_slice(&seq.to_le_bytes());
        row.extend_from_slice(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes());
        row.extend_from_slice(key);
        row.extend_from_slice(value);
        Self(row.into())
    }

    pub(crate) fn read(&self) -> Option<Kept<'_>> {
        let (era, rest) = self.0.split_first_chunk()?;
        let (seq, rest) = rest.split_first_chunk()?;
        let (key_bytes, rest) = rest.split_first_chunk()?;
        let key_bytes = usize::try_from(u32::from_le_bytes(*key_bytes)).ok()?;
        let (key, value) = rest.split_at_checked(key_bytes)?;
        Some(Kept { era: u64::from_le_bytes(*era), key, seq: u64::from_le_bytes(*seq), value })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.read())
    }
}

/// Which version somebody looks at, as far as rows are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moment {
    flushes: u64,
    era: u64,
}

/// The rows, as a version sees them.
#[derive(Clone, Debug)]
pub(crate) struct Memo {
    cache: Arc<Cache>,
    moment: Moment,
    /// The newest moment. Who keeps a row holds it meanwhile: nobody keeps one behind the back of a commit.
    newest: Arc<RwLock<Moment>>,
}

impl Memo {
    /// Of a map that has just been opened.
    pub(crate) fn new(cache: &Arc<Cache>) -> Self {
        Self { cache: Arc::clone(cache), moment: Moment::default(), newest: Arc::default() }
    }

    /// What the files say of this key, if that is kept, and not newer than that.
    pub(crate) fn recall(&self, key: &[u8], hash: u64, as_of: u64) -> Option<Row> {
        let row = self.cache.row(hash)?;
        let Kept { era, key: own, seq, .. } = row.read()?;
        (era == self.moment.era && own == key && seq <= as_of).then_some(row)
    }

    /// Keeps what the files of this version say of a key.
    pub(crate) fn keep(&self, key: &[u8], hash: u64, seq: u64, value: &[u8]) {
        if key.len() + value.len() > ROW_BYTES_MAX {
            return;
        }
        let row = Row::lay(self.moment.era, seq, key, value);
        let newest = self.newest.read().unwrap_or_else(PoisonError::into_inner);
        if *newest == self.moment {
            self.cache.keep_row(hash, row);
        }
    }

    /// The rows of the version behind a commit: one that brought a memtable's keys into the files, or one behind which some erased
    /// range is remembered no more. One commit at a time, and before anybody sees its version.
    pub(crate) fn after(&self, flushed: Option<&Frozen>, has_forgotten: bool) -> Self {
        let Moment { flushes, era } = self.moment;
        let moment = Moment { flushes: flushes + u64::from(flushed.is_some()), era: era + u64::from(has_forgotten) };
        // From here on nobody keeps a row before that version is shown.
        *self.newest.write().unwrap_or_else(PoisonError::into_inner) = moment;
        if let Some(frozen) = flushed {
            // What was erased before is older than its entries.
            let erased = Erased::of(&frozen.erases);
            let mut cursor = MemCursor::new(Arc::clone(&frozen.table), u64::MAX);
            // No walk through memory fails.
            _ = cursor.seek(&[]);
            while let Some(entry) = cursor.entry() {
                self.cache.renew_row(filter::hash(entry.key), || {
                    if erased.over(entry.key) > entry.seq {
                        // The flush left it out, and who looks may know nothing of the range any more.
                        return None;
                    }
                    let value = entry.value.filter(|value| entry.key.len() + value.len() <= ROW_BYTES_MAX)?;
                    Some(Row::lay(moment.era, entry.seq, entry.key, value))
                });
                _ = cursor.next();
            }
        }
        Self { moment, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::Memtable;
    use crate::{Entry, Range};

    fn memo() -> Memo {
        Memo::new(&Cache::new(1 << 20, 4096, 64).unwrap())
    }

    fn recalled(memo: &Memo, key: &[u8], as_of: u64) -> Option<(u64, Vec<u8>)> {
        let row = memo.recall(key, 7, as_of)?;
        row.read().map(|kept| (kept.seq, kept.value.to_vec()))
    }

    fn flushed(entries: &[Entry<'_>]) -> Frozen {
        let table = Arc::new(Memtable::with_room(1 << 16));
        entries.iter().for_each(|entry| assert!(table.insert(entry)));
        Frozen { table, mark: 9, erases: Vec::new() }
    }

    #[test]
    fn a_row_is_its_keys_own_and_as_of_its_seq_or_later() {
        let memo = memo();
        memo.keep(b"k", 7, 5, b"value");
        assert_eq!(recalled(&memo, b"k", 5), Some((5, b"value".to_vec())));
        assert_eq!(recalled(&memo, b"k", 4), None);
        assert_eq!(recalled(&memo, b"l", 9), None, "another key of the same hash");
        memo.keep(b"long", 7, 6, &[0; ROW_BYTES_MAX]);
        assert_eq!(recalled(&memo, b"long", 9), None);
        memo.keep(b"", 7, 6, b"");
        assert_eq!((recalled(&memo, b"", 9), recalled(&memo, b"k", 9)), (Some((6, Vec::new())), None));
    }

    #[test]
    fn a_flush_renews_what_it_brings_and_shuts_out_who_looked_before_it() {
        let memo = memo();
        let hash = filter::hash;
        for key in [&b"a"[..], b"b", b"c"] {
            memo.keep(key, hash(key), 1, b"old");
        }
        let long = [9; ROW_BYTES_MAX];
        let entry = |key, seq, value| Entry { key, seq, value };
        let table = flushed(&[
            entry(&b"a"[..], 2, Some(&b"older"[..])),
            entry(b"a", 3, Some(b"new")),
            entry(b"b", 4, None),
            entry(b"d", 5, Some(b"not asked for")),
        ]);
        let next = memo.after(Some(&table), false);
        let seen = |memo: &Memo, key: &[u8]| memo.recall(key, hash(key), 9).map(|row| row.read().unwrap().seq);
        assert_eq!([&b"a"[..], b"b", b"c", b"d"].map(|key| seen(&next, key)), [Some(3), None, Some(1), None]);
        memo.keep(b"b", hash(b"b"), 1, b"old");
        assert_eq!(seen(&next, b"b"), None, "who looked before the flush keeps nothing");
        next.keep(b"b", hash(b"b"), 1, b"old");
        assert_eq!(seen(&next, b"b"), Some(1));
        let last = next.after(Some(&flushed(&[entry(b"a", 6, Some(&long))])), false);
        assert_eq!(seen(&last, b"a"), None, "too long to be kept");
    }

    #[test]
    fn a_flush_lays_no_row_of_what_it_left_out_because_it_was_erased() {
        let memo = memo();
        let hash = filter::hash;
        let entry = |key, seq| Entry { key, seq, value: Some(&b"v"[..]) };
        for has_forgotten in [false, true] {
            [&b"a"[..], b"b", b"c"].iter().for_each(|key| memo.keep(key, hash(key), 1, b"old"));
            let erases = vec![Range { from: b"a".to_vec(), to: Some(b"c".to_vec()), seq: 5 }];
            let frozen = Frozen { erases, ..flushed(&[entry(b"a", 4), entry(b"b", 5), entry(b"c", 4)]) };
            let next = memo.after(Some(&frozen), has_forgotten);
            let seen = |key: &[u8]| next.recall(key, hash(key), 9).map(|row| row.read().unwrap().seq);
            // What stands in one batch with a range is behind it.
            assert_eq!([&b"a"[..], b"b", b"c"].map(seen), [None, Some(5), Some(4)]);
            memo.newest.write().map(|mut newest| *newest = memo.moment).unwrap();
        }
    }

    #[test]
    fn behind_a_forgotten_range_nobody_believes_what_it_hid() {
        let memo = memo();
        memo.keep(b"k", 7, 5, b"erased at 6");
        let next = memo.after(None, true);
        assert_eq!((recalled(&next, b"k", 9), recalled(&memo, b"k", 5).is_some()), (None, true));
        memo.keep(b"k", 7, 5, b"erased at 6");
        assert_eq!(recalled(&next, b"k", 9), None);
        next.keep(b"k", 7, 8, b"new");
        assert_eq!((recalled(&next, b"k", 9), recalled(&memo, b"k", 9)), (Some((8, b"new".to_vec())), None));
    }
}
