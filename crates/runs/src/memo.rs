//! What look-ups found: rows by the hash of their keys, so that a key that is asked for again takes one look at memory, however many runs
//! there are. And beside a row what its owner keeps of it: what the row leads to, say, if that is small.
//!
//! ```text
//!   a row   era 4 | seq 8 | key bytes 2 | value bytes 2 | key | value | beside          within the cache's budget of rows
//! ```
//! A row is the newest of its key as of the version that found it, and stays true until a flush brings a newer one; what memory has is asked
//! first. So a flush drops the rows of the keys that it brought something newer of, after it has closed the door to whoever looked at a version
//! before it; and of what was erased before its own memory was closed, which it left out. What a range erased is no longer hidden once nobody
//! remembers the range: with it an era ends, and rows of an era before are believed by nobody.
//!
//! Who looks as of an earlier seq asks the memory of its own version first, so a row that is not newer than that is its row too.
//!
//! Walk: [`Memo::recall`], and after a look at the files [`Memo::keep`] · [`Memo::put`] once the owner knows what is to be kept beside it ·
//! [`Memo::after`] a commit, before its version is shown. Who is kept at all is the cache's (`doorkeeper`).
//! Deliberately absent: keys that are not there, which the filters know, and walks over ranges.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use crate::cache::Cache;
use crate::filter;
use crate::ranges::Erased;
use crate::version::Frozen;

/// A longer row, with what is beside it, is looked up each time: its block costs no more than to copy it.
const ROW_BYTES_MAX: usize = 8 << 10;
const HEAD_BYTES: usize = 16;
/// With fewer rows than such a part of what a flush brought, each row is looked for in that, and not the other way round.
const FEW_ROWS: u64 = 4;
const _: () = assert!(ROW_BYTES_MAX <= 0xffff, "lengths take two bytes");

/// What is known of a key.
#[derive(Clone)]
pub(crate) struct Row(Arc<[u8]>);

/// A row, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept<'a> {
    era: u32,
    key: &'a [u8],
    pub(crate) seq: u64,
    pub(crate) value: &'a [u8],
    /// Nothing, if the owner keeps nothing.
    pub(crate) beside: &'a [u8],
}

impl<'a> Kept<'a> {
    /// The same row with something else beside it.
    pub(crate) const fn with(self, beside: &'a [u8]) -> Self {
        Self { beside, ..self }
    }
}

impl Row {
    /// Nothing if it is too long.
    pub(crate) fn lay(kept: &Kept<'_>) -> Option<Self> {
        let Kept { era, key, seq, value, beside } = *kept;
        if key.len() + value.len() + beside.len() > ROW_BYTES_MAX {
            return None;
        }
        let mut row = Vec::with_capacity(HEAD_BYTES + key.len() + value.len() + beside.len());
        row.extend_from_slice(&era.to_le_bytes());
        row.extend_from_slice(&seq.to_le_bytes());
        for part in [key, value] {
            row.extend_from_slice(&u16::try_from(part.len()).ok()?.to_le_bytes());
        }
        for part in [key, value, beside] {
            row.extend_from_slice(part);
        }
        Some(Self(row.into()))
    }

    pub(crate) fn read(&self) -> Option<Kept<'_>> {
        let (head, rest) = self.0.split_first_chunk::<HEAD_BYTES>()?;
        let (era, head) = head.split_first_chunk()?;
        let (seq, head) = head.split_first_chunk()?;
        let (key_bytes, head) = head.split_first_chunk()?;
        let (value_bytes, _) = head.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(u16::from_le_bytes(*key_bytes).into())?;
        let (value, beside) = rest.split_at_checked(u16::from_le_bytes(*value_bytes).into())?;
        Some(Kept { era: u32::from_le_bytes(*era), key, seq: u64::from_le_bytes(*seq), value, beside })
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
    era: u32,
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

    /// What is known of this key, if that is kept, and not newer than that.
    pub(crate) fn recall(&self, key: &[u8], hash: u64, as_of: u64) -> Option<Row> {
        let row = self.cache.row(hash)?;
        let Kept { era, key: own, seq, .. } = row.read()?;
        (era == self.moment.era && own == key && seq <= as_of).then_some(row)
    }

    /// Keeps what this version says of a key, and what its owner keeps beside it, if the cache lets it in.
    pub(crate) fn keep(&self, key: &[u8], hash: u64, (seq, value): (u64, &[u8]), beside: &[u8]) {
        if self.cache.admits_row(hash) {
            self.put(hash, &Kept { era: self.moment.era, key, seq, value, beside });
        }
    }

    /// Puts a row in the place of the one of its key that is kept.
    pub(crate) fn put(&self, hash: u64, kept: &Kept<'_>) {
        let Some(row) = Row::lay(kept) else { return };
        // Behind a commit that waits for others in here nobody waits: what is not kept is looked up again.
        let Ok(newest) = self.newest.try_read() else { return };
        if *newest == self.moment {
            self.cache.keep_row(hash, row);
        }
    }

    /// The rows of the version behind a commit: one that brought a memtable's keys into the files, or one behind which some erased
    /// range is remembered no more. One commit at a time, and before anybody sees its version.
    pub(crate) fn after(&self, flushed: Option<&Frozen>, has_forgotten: bool) -> Self {
        let Moment { flushes, era } = self.moment;
        let era = era.wrapping_add(u32::from(has_forgotten));
        let moment = Moment { flushes: flushes + u64::from(flushed.is_some()), era };
        // From here on nobody keeps a row before that version is shown.
        *self.newest.write().unwrap_or_else(PoisonError::into_inner) = moment;
        if let Some(frozen) = flushed.filter(|_| self.cache.rows() > 0) {
            // What was erased before is older than its entries.
            let erased = Erased::of(&frozen.erases);
            // The flush left out what was erased, and who looks may know nothing of the range any more.
            let is_over = |key: &[u8], seq: u64, row: &Row| {
                let from = seq.max(erased.over(key));
                row.read().is_none_or(|kept| kept.seq < from)
            };
            if self.cache.rows() < frozen.table.entries() / FEW_ROWS {
                self.cache.retain_rows(|row| {
                    let key = row.read().map_or(&[][..], |kept| kept.key);
                    let newest = frozen.table.get(key, u64::MAX);
                    newest.is_none_or(|newest| !is_over(key, newest.seq, row))
                });
            } else {
                frozen.table.each(|key, seq| {
                    self.cache.drop_row(filter::hash(key), |row| is_over(key, seq, row));
                });
            }
        }
        Self { moment, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Spare;
    use crate::memtable::Memtable;
    use crate::{Entry, Range};

    fn memo() -> Memo {
        Memo::new(&Cache::new(0, 1 << 20, 4096, 64).unwrap())
    }

    fn recalled(memo: &Memo, key: &[u8], as_of: u64) -> Option<(u64, Vec<u8>)> {
        let row = memo.recall(key, 7, as_of)?;
        row.read().map(|kept| (kept.seq, kept.value.to_vec()))
    }

    /// With as many others as make the rows many beside them, or few.
    fn flushed(entries: &[Entry<'_>], others: u32) -> Frozen {
        let table = Arc::new(Memtable::with_room(1 << 16, 0, &Arc::new(Spare::new(0))));
        entries.iter().for_each(|entry| assert!(table.insert(entry)));
        (0..others).for_each(|key| assert!(table.insert(&Entry { key: &key.to_be_bytes(), seq: 9, value: None })));
        Frozen { table, mark: 9, erases: Vec::new() }
    }

    impl<'a> Kept<'a> {
        pub(crate) const fn of(key: &'a [u8], seq: u64, value: &'a [u8]) -> Self {
            Self { era: 0, key, seq, value, beside: &[] }
        }
    }

    #[test]
    fn a_row_is_its_keys_own_and_as_of_its_seq_or_later() {
        let memo = memo();
        memo.keep(b"k", 7, (5, b"value"), b"");
        assert_eq!(recalled(&memo, b"k", 5), Some((5, b"value".to_vec())));
        assert_eq!(recalled(&memo, b"k", 4), None);
        assert_eq!(recalled(&memo, b"l", 9), None, "another key of the same hash");
        memo.keep(b"", 7, (6, b""), b"");
        assert_eq!((recalled(&memo, b"", 9), recalled(&memo, b"k", 9)), (Some((6, Vec::new())), None));
    }

    #[test]
    fn what_is_kept_beside_a_row_comes_and_goes_with_it_and_too_much_is_not_kept() {
        let memo = memo();
        let beside = |as_of| memo.recall(b"k", 7, as_of).map(|row| row.read().unwrap().beside.to_vec());
        let rest = ROW_BYTES_MAX - b"kvalue".len();
        memo.keep(b"k", 7, (5, b"value"), b"");
        assert_eq!(beside(5), Some(Vec::new()));
        let row = memo.recall(b"k", 7, 5).unwrap();
        memo.put(7, &Kept { beside: &vec![1; rest], ..row.read().unwrap() });
        assert_eq!((beside(5), recalled(&memo, b"k", 5)), (Some(vec![1; rest]), Some((5, b"value".to_vec()))));
        memo.put(7, &Kept { beside: &vec![2; rest + 1], ..row.read().unwrap() });
        assert_eq!(beside(5), Some(vec![1; rest]), "one byte beyond");
        memo.keep(b"k", 7, (6, b"newer"), b"");
        assert_eq!((beside(5), beside(6)), (None, Some(Vec::new())));
    }

    #[test]
    fn a_flush_drops_what_it_brings_newer_and_shuts_out_who_looked_before_it() {
        [0, 100].into_iter().for_each(drops_what_it_brings_newer);
    }

    fn drops_what_it_brings_newer(others: u32) {
        let memo = memo();
        let hash = filter::hash;
        for key in [&b"a"[..], b"b", b"c"] {
            memo.keep(key, hash(key), (1, b"old"), b"");
        }
        memo.keep(b"e", hash(b"e"), (6, b"found in memory"), b"beside");
        memo.keep(b"f", hash(b"f"), (8, b"found in memory that came later"), b"");
        let entry = |key, seq, value| Entry { key, seq, value };
        let entries = [
            entry(&b"a"[..], 2, Some(&b"older"[..])),
            entry(b"a", 3, Some(b"new")),
            entry(b"b", 4, None),
            entry(b"d", 5, Some(b"not asked for")),
            entry(b"e", 6, Some(b"found in memory")),
            entry(b"f", 7, Some(b"overwritten by now")),
        ];
        let table = flushed(&entries, others);
        let next = memo.after(Some(&table), false);
        let seen = |memo: &Memo, key: &[u8]| memo.recall(key, hash(key), 9).map(|row| row.read().unwrap().seq);
        let all = [&b"a"[..], b"b", b"c", b"d", b"e", b"f"].map(|key| seen(&next, key));
        assert_eq!(all, [None, None, Some(1), None, Some(6), Some(8)]);
        assert_eq!(next.recall(b"e", hash(b"e"), 9).unwrap().read().unwrap().beside, b"beside");
        memo.keep(b"b", hash(b"b"), (1, b"old"), b"");
        assert_eq!(seen(&next, b"b"), None, "who looked before the flush keeps nothing");
        next.keep(b"b", hash(b"b"), (1, b"old"), b"");
        assert_eq!(seen(&next, b"b"), Some(1));
    }

    #[test]
    fn a_flush_leaves_no_row_of_what_it_left_out_because_it_was_erased() {
        let hash = filter::hash;
        let entry = |key, seq| Entry { key, seq, value: Some(&b"v"[..]) };
        for (has_forgotten, others) in [(false, 0), (false, 100), (true, 0), (true, 100)] {
            let memo = memo();
            for (key, seq) in [(&b"a"[..], 4), (b"b", 5), (b"c", 4)] {
                memo.keep(key, hash(key), (seq, b"found in memory"), b"");
            }
            let erases = vec![Range { from: b"a".to_vec(), to: Some(b"c".to_vec()), seq: 5 }];
            let frozen = Frozen { erases, ..flushed(&[entry(b"a", 4), entry(b"b", 5), entry(b"c", 4)], others) };
            let next = memo.after(Some(&frozen), has_forgotten);
            // Of this era or the one before: the row itself must have gone, whatever is believed.
            let left = |key: &[u8]| memo.cache.row(hash(key)).map(|row| row.read().unwrap().seq);
            // What stands in one batch with a range is behind it.
            assert_eq!([&b"a"[..], b"b", b"c"].map(left), [None, Some(5), Some(4)]);
            let believed = [&b"a"[..], b"b", b"c"].map(|key| next.recall(key, hash(key), 9).is_some());
            assert_eq!(believed, [false, !has_forgotten, !has_forgotten]);
        }
    }

    #[test]
    fn behind_a_forgotten_range_nobody_believes_what_it_hid() {
        let memo = memo();
        memo.keep(b"k", 7, (5, b"erased at 6"), b"");
        let next = memo.after(None, true);
        assert_eq!((recalled(&next, b"k", 9), recalled(&memo, b"k", 5).is_some()), (None, true));
        memo.keep(b"k", 7, (5, b"erased at 6"), b"");
        assert_eq!(recalled(&next, b"k", 9), None);
        next.keep(b"k", 7, (8, b"new"), b"");
        assert_eq!((recalled(&next, b"k", 9), recalled(&memo, b"k", 9)), (Some((8, b"new".to_vec())), None));
    }
}
