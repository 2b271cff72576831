//! The store's limits: each one is a number with a unit, checked once at open.

use assent_ids::NodeId;
use assent_journal::ENTRY_BYTES_MAX;

use crate::KvError;
use crate::vault::{Chooser, Hours};

/// The longest key that a record can carry.
pub const KEY_BYTES_MAX: u32 = 64 << 10;
/// The longest value that a record can carry.
pub const VALUE_BYTES_MAX: u32 = 256 << 20;
/// The most metadata beside a value.
pub const METADATA_BYTES_MAX: u16 = 4 << 10;

/// The most bytes that the ledger's rows of one entry may take in memory.
pub(crate) const ROWS_BYTES_MAX: u64 = 1 << 30;
/// What a row takes beside its key and metadata, at most.
pub(crate) const ROW_BYTES: u64 = 192;
/// The most bytes that the rows of all prepared branches may take: memory that is kept for their outcomes. Their keys
/// stand in the desk too, as long as they are prepared: that comes beside it.
pub(crate) const PREPARED_ROWS_BYTES_MAX: u64 = 1 << 30;
/// What the ledger's memory may take. Never reached: what is published fits, for the doors have counted it.
const LEDGER_BYTES_MAX: u64 = 5 << 30;
/// Files at the ledger's first level that are merged together: each merge writes what it meets below again, and fewer of them do so less often.
pub(crate) const LEVEL0_RUNS: u32 = 6;
/// Four volumes of the least size, and the journal of one checkpoint, which no compaction may take before it: a store of less than 160 MiB would be
/// rewritten again and again for less. `RocksDB` holds four files of 64 MiB before it merges any, `LevelDB` some 30 MiB in all.
const SPACE_ROOM_BYTES_MIN: u64 = 64 << 20;
/// What short values may take in memory that a compaction asks the ledger for together.
const WINDOW_BYTES_MAX: u64 = 4 << 20;
/// And such a part of the cache, at most.
const WINDOW_PARTS: u64 = 16;
/// Shares of the cache move by as much as one of these.
const SHARE_STEPS: u64 = 64;
const _: () = assert!(
    2 * ROWS_BYTES_MAX + PREPARED_ROWS_BYTES_MAX + (1 << 30) < LEDGER_BYTES_MAX,
    "what waits, one more entry, what is prepared, and what is published"
);

/// What a store takes, and what it keeps in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The longest key, at most [`KEY_BYTES_MAX`]. The empty key is a key.
    pub key_bytes_max: u32,
    /// The longest value, at most [`VALUE_BYTES_MAX`].
    pub value_bytes_max: u32,
    /// The most bytes of one batch as laid in the journal. A value of full length fits the default.
    pub batch_bytes_max: u32,
    /// The most bytes of one branch's writes, as they will be laid.
    pub branch_bytes_max: u32,
    /// The most bytes that all open branches keep in memory together, 192 more for each write and condition than it is laid as; beyond it
    /// writes in them are `Busy`.
    pub branches_bytes_max: u64,
    /// The most branches known at once, prepared ones among them; beyond it a start is `Busy`.
    pub branches_max: u32,
    /// The most entries that are appended and not yet waited for; beyond it writers are `Busy`.
    pub unpublished_max: u32,
    /// The most bytes of keys and values that one scan gathers; beyond it the scan is refused, never cut silently.
    pub scan_bytes_max: u64,
    /// The most leases at once, branches' ones among them; beyond it the oldest ends.
    pub leases_max: u32,
    /// The most memory that all leases together keep for themselves; beyond it the oldest end. Looked at with each tick.
    pub leases_memory_bytes_max: u64,
    /// And the most bytes of files, of the ledger's and of values. None while the disk refuses writers room.
    pub leases_file_bytes_max: u64,
    /// So long a branch may go on reading as of its first read.
    pub branch_snapshot_ms: u64,
    /// About so many threads for each processor read at once, two thirds of it or more; still more, where processors idle while others wait. Those
    /// stand in line: with many more threads than processors a turn comes sooner so than from the scheduler. 0: all at once. At most 1,024.
    pub readers_per_processor: u32,
    /// What a fold in the journal's order gathers in memory at a time.
    pub fold_bytes: u64,
    /// The ledger's memory is written out after that many bytes of journal: about as much is replayed at an open.
    pub checkpoint_bytes: u64,
    /// And once it takes that many bytes itself. Four times as much is the most that it takes, with what of it waits for the next rows.
    pub memory_bytes: u64,
    /// What the first level of the ledger's sorted files holds, or twice as much, before some of it goes to the next one; that holds eight times
    /// as much, and so on. 64 KiB to 1 GiB.
    pub level_bytes: u64,
    /// What work in the background may write in a second: merges. 0: as fast as it goes. Writing the memory out is not slowed down.
    pub background_bytes_per_second: u64,
    /// Bytes of files that are kept in memory: an eighth for the volumes' indexes, up to five eighths for blocks of the ledger, their indexes
    /// and filters, and what those do not need, at least a quarter, for rows that are asked for again and their values of at most 4 KiB. A
    /// sixteenth as much, up to 4 MiB, comes beside it while a compaction asks the ledger for values that take no more than 1 KiB with their keys.
    pub cache_bytes: u64,
    /// Memory for values of more than 4 KiB and up to 256 KiB that are asked for again, or are put over such ones outside of a branch; of less than
    /// 1.1 MiB those that would take about a quarter are left out. 0: Linux keeps what of the files there is room for. With it they are read
    /// past its cache, so it should be most of what the machine leaves to the store. 36 KiB for each thread that reads come beside it.
    pub value_cache_bytes: u64,
    /// So many finished branches are remembered for a coordinator that asks what became of one; the oldest go first.
    pub finished_max: u32,
    /// Bytes on disk for each hundred of values that live, at most: beyond it the emptiest volumes are compacted. Less room costs more
    /// writes. The ledger, the room that the log holds ready, what keys and values are framed by, what a compaction is about to write and what
    /// may come meanwhile count too, up to a quarter of what may be dead.
    pub space_amplification_max_percent: u32,
    /// Bytes on disk beyond those of values that live that are none too many, however little lives. The ledger, the room that the log holds
    /// ready and what is about to be written take up to a quarter of it, so that compactions begin at about three quarters. At the defaults
    /// it counts while less than 160 MiB live; not for [`crate::Kv::compact_asked`], nor once the disk has refused room.
    pub space_room_bytes_min: u64,
    /// About the bytes of one compacted volume, at most: a 256th of what lives, but no less than a quarter of this.
    pub volume_bytes: u64,
    /// Where volumes are at least so long, stretches of the journal are left as they are as long as they are fuller than what stands behind them.
    /// Each takes two blocks to say so.
    pub passed_bytes_min: u64,
    /// From which hour to which values may be compacted, over midnight if the second is lower; always if they are the same. Of the
    /// clock's UTC, shifted by `utc_offset_minutes`.
    pub compact_hours: (u8, u8),
    /// What the operator's time is ahead of UTC.
    pub utc_offset_minutes: i16,
    /// Who this store is, in the witness of its votes: the data folder's identity. Never changes.
    pub store: NodeId,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            key_bytes_max: KEY_BYTES_MAX,
            value_bytes_max: VALUE_BYTES_MAX,
            batch_bytes_max: VALUE_BYTES_MAX + (1 << 20),
            branch_bytes_max: 64 << 20,
            branches_bytes_max: 512 << 20,
            branches_max: 4096,
            unpublished_max: 1 << 16,
            scan_bytes_max: 256 << 20,
            leases_max: 8192,
            leases_memory_bytes_max: 256 << 20,
            leases_file_bytes_max: 4 << 30,
            branch_snapshot_ms: 60 * 60 * 1000,
            readers_per_processor: 6,
            fold_bytes: 32 << 20,
            checkpoint_bytes: 64 << 20,
            memory_bytes: 24 << 20,
            level_bytes: 32 << 20,
            background_bytes_per_second: 0,
            cache_bytes: 64 << 20,
            value_cache_bytes: 0,
            finished_max: 1 << 16,
            space_amplification_max_percent: 140,
            space_room_bytes_min: SPACE_ROOM_BYTES_MIN,
            volume_bytes: 64 << 20,
            passed_bytes_min: 2 << 20,
            compact_hours: (0, 0),
            utc_offset_minutes: 0,
            store: NodeId(0),
        }
    }
}

const _: () = assert!(ENTRY_BYTES_MAX == 269_484_032, "the limit that Config::check names");

impl Config {
    /// From there on writers have to make room.
    pub(crate) const fn memory_bytes_max(&self) -> u64 {
        4 * self.memory_bytes
    }

    /// What was written out is kept for the next rows up to there: what is due, and as much that comes meanwhile. Beyond it writers
    /// are delayed, and nothing waits.
    const fn memory_bytes_kept(&self) -> u64 {
        2 * self.memory_bytes
    }

    /// For values that wait to be asked for together, beside the cache: what they read comes and goes in it.
    pub(crate) fn window_bytes(&self) -> usize {
        usize::try_from((self.cache_bytes / WINDOW_PARTS).min(WINDOW_BYTES_MAX)).unwrap_or(0)
    }

    /// What of the cache is that of the volumes' indexes: they are a small part of what they lead to.
    pub(crate) const fn index_cache_bytes(&self) -> u64 {
        self.cache_bytes / 8
    }

    /// And that of rows with small values, at least.
    pub(crate) const fn row_cache_bytes(&self) -> u64 {
        self.cache_bytes / 4
    }

    /// What of it is that of the ledger's files, of which there are so many bytes, and what is that of rows with small values then. Together
    /// they are always as much.
    pub(crate) fn share_cache(&self, ledger_bytes: u64) -> (u64, u64) {
        let both = self.cache_bytes - self.index_cache_bytes();
        let most = both - self.row_cache_bytes();
        // A quarter more: pieces have a cost of their own, and those of files that are gone stay for a while.
        // In steps: each change of a share costs the cache some of what it remembers of those that left.
        let step = (self.cache_bytes / SHARE_STEPS).max(1);
        let wanted = ledger_bytes.saturating_add(ledger_bytes / 4).div_ceil(step).saturating_mul(step);
        let ledger = wanted.clamp(self.cache_bytes / 4, most);
        (ledger, both - ledger)
    }

    /// Which volumes to compact.
    pub(crate) fn chooser(&self) -> Chooser {
        let (from, to) = self.compact_hours;
        Chooser {
            space_amplification_max: f64::from(self.space_amplification_max_percent) / 100.0,
            room_bytes_min: self.space_room_bytes_min,
            volume_bytes: self.volume_bytes,
            passed_bytes_min: self.passed_bytes_min,
            beside_bytes: 0,
            front_worth: 1.0,
            fits_bytes: u64::MAX,
            pays: true,
            extra: 0.0,
            hours: Hours::between(from, to),
        }
    }

    /// What of it is the ledger's.
    pub(crate) fn ledger(&self) -> assent_runs::Config {
        let rows_bytes = self.row_cache_bytes();
        let cache_bytes = self.cache_bytes - self.index_cache_bytes() - rows_bytes;
        let defaults = assent_runs::Config::default();
        let (memory_bytes_max, memory_bytes_kept) = (LEDGER_BYTES_MAX, self.memory_bytes_kept());
        assent_runs::Config {
            cache_bytes,
            rows_bytes,
            memory_bytes_max,
            memory_bytes_kept,
            level0_runs: LEVEL0_RUNS,
            level1_bytes: self.level_bytes,
            run_bytes: defaults.run_bytes.min(self.level_bytes / 4),
            ..defaults
        }
    }

    /// Says which value cannot work.
    ///
    /// # Errors
    /// [`KvError::Config`] with the key, its value and the rule.
    pub fn check(&self) -> Result<(), KvError> {
        let rules: [(&'static str, u64, bool, &'static str); 17] = [
            (
                "key_bytes_max",
                self.key_bytes_max.into(),
                (1..=KEY_BYTES_MAX).contains(&self.key_bytes_max),
                "1 to 65536",
            ),
            ("value_bytes_max", self.value_bytes_max.into(), self.value_bytes_max <= VALUE_BYTES_MAX, "0 to 268435456"),
            (
                "batch_bytes_max",
                self.batch_bytes_max.into(),
                (64..=ENTRY_BYTES_MAX).contains(&self.batch_bytes_max.into()),
                "64 to 269484032",
            ),
            (
                "branch_bytes_max",
                self.branch_bytes_max.into(),
                (64..=VALUE_BYTES_MAX).contains(&self.branch_bytes_max),
                "64 to 268435456",
            ),
            (
                "space_amplification_max_percent",
                self.space_amplification_max_percent.into(),
                (110..=1000).contains(&self.space_amplification_max_percent),
                "110 to 1000",
            ),
            (
                "space_room_bytes_min",
                self.space_room_bytes_min,
                self.space_room_bytes_min <= 1 << 40,
                "at most 1099511627776",
            ),
            ("volume_bytes", self.volume_bytes, (4 << 10..=1 << 30).contains(&self.volume_bytes), "4096 to 1073741824"),
            (
                "compact_hours",
                self.compact_hours.0.max(self.compact_hours.1).into(),
                self.compact_hours.0 < 24 && self.compact_hours.1 < 24,
                "0 to 23",
            ),
            ("unpublished_max", self.unpublished_max.into(), self.unpublished_max > 0, "at least 1"),
            ("leases_max", self.leases_max.into(), self.leases_max > 0, "at least 1"),
            (
                "readers_per_processor",
                self.readers_per_processor.into(),
                self.readers_per_processor <= 1024,
                "0 to 1024",
            ),
            ("branch_snapshot_ms", self.branch_snapshot_ms, self.branch_snapshot_ms > 0, "at least 1"),
            ("checkpoint_bytes", self.checkpoint_bytes, self.checkpoint_bytes > 0, "at least 1"),
            (
                "memory_bytes",
                self.memory_bytes,
                (64 << 10..=256 << 20).contains(&self.memory_bytes),
                "65536 to 268435456",
            ),
            ("level_bytes", self.level_bytes, (64 << 10..=1 << 30).contains(&self.level_bytes), "65536 to 1073741824"),
            ("cache_bytes", self.cache_bytes, self.cache_bytes <= 1 << 40, "at most 1099511627776"),
            ("value_cache_bytes", self.value_cache_bytes, self.value_cache_bytes <= 1 << 40, "at most 1099511627776"),
        ];
        match rules.into_iter().find(|(_, _, fine, _)| !fine) {
            Some((name, value, _, rule)) => Err(KvError::Config { name, value, rule }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dead_may_take_its_share_and_the_least_room() {
        let config = Config { space_amplification_max_percent: 150, space_room_bytes_min: 100, ..Config::default() };
        assert_eq!([0, 100, 200, 300].map(|live| config.chooser().allowed(live)), [100, 200, 300, 450]);
        let most = Config { space_room_bytes_min: 1 << 40, ..config };
        assert_eq!(most.check(), Ok(()));
        let beyond = Config { space_room_bytes_min: (1 << 40) + 1, ..config };
        assert!(matches!(beyond.check(), Err(KvError::Config { name: "space_room_bytes_min", .. })));
    }

    #[test]
    fn a_small_ledger_leaves_room_to_rows_and_a_large_one_keeps_its_part() {
        let config = Config { cache_bytes: 6400, ..Config::default() };
        let shares = [0, 1280, 1920, 1921, 3200, u64::MAX].map(|bytes| config.share_cache(bytes));
        let steps = [(1600, 4000), (1600, 4000), (2400, 3200), (2500, 3100), (4000, 1600), (4000, 1600)];
        assert_eq!(shares, steps);
        let ledger = config.ledger();
        for cache_bytes in 0..70 {
            let config = Config { cache_bytes, ..Config::default() };
            let (ledger, rows) = config.share_cache(u64::MAX);
            assert_eq!(ledger + rows + config.index_cache_bytes(), cache_bytes);
        }
        assert_eq!((ledger.cache_bytes, ledger.rows_bytes), (4000, 1600));
    }
}
