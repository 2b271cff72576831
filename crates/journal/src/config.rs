//! What a journal can be told. The field's names stay as they are known from other logs; names of ours carry units.

use std::time::Duration;

use crate::JournalError;
use crate::layout::{BLOCK_BYTES, bytes};

/// The most bytes of one entry: a value of 256 MiB and what describes it.
pub const ENTRY_BYTES_MAX: u64 = (256 << 20) + (1 << 20);
/// The smallest segment: its header and four blocks.
pub const LOG_SIZE_MIN: u64 = 5 * BLOCK_BYTES;
/// The largest segment: every length in a batch header stays within 32 bits.
pub const LOG_SIZE_MAX: u64 = 1 << 30;
const WRITES_IN_FLIGHT_MAX: u32 = 16;
/// Half of what the file `epochs` takes: who could not lay them anew for want of room has as many more.
const OPENINGS_MAX: u32 = 16_384;

/// How a journal keeps its bytes. The defaults are measured; `docs/format.md` and the tuning chapter say how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of a segment file, header included; a multiple of 4096. Default 16 MiB.
    pub log_size: u64,
    /// Bytes of one batch buffer, a multiple of 4096: the most that one write takes. Default 4 MiB.
    pub max_buffer_log_size: usize,
    /// Milliseconds between two syncs, at least, where `max_elapsed_sync_time` is not 0.
    pub min_elapsed_sync_time: u64,
    /// Milliseconds after which an acknowledged entry is durable, at the latest. 0 (default): before it is acknowledged.
    pub max_elapsed_sync_time: u64,
    /// Durable writes go past the page cache. Default true. Counts only where `max_elapsed_sync_time` is 0.
    pub direct: bool,
    /// One write with RWF_DSYNC instead of a write and fdatasync. Default false.
    pub dsync: bool,
    /// Durable writes under way at the same time, 1 to 16. Default 2. Counts only with `direct`: the page cache tells
    /// a write-back error to one of several syncs alone, so behind it one write at a time is all that can be believed.
    pub writes_in_flight: u32,
    /// Trimmed segments are kept, readable and in order, up to that many bytes together; the oldest make room, also for
    /// the live log on a full disk. 0 (default): none, and what was kept goes with the next trim. The live log does not count.
    pub archive_bytes_max: u64,
    /// Trimmed segments are kept until their owner releases each one ([`Log::release`](crate::Log::release)), in any order,
    /// whatever they take: on a full disk none of them goes by itself. Default false. Needs `archive_bytes_max` to be 0. An
    /// opening without it reads what was kept so, and removes none of it either.
    pub kept_until_released: bool,
    /// Behind an opening that was closed, an open looks at nothing but its end, and makes its own epoch durable with its first write: an
    /// open to read writes nothing. What is damaged shows when it is read, `Recovery` counts no batches, and an opening that wrote nothing
    /// leaves its epoch to the next one: not for who gives out names by epochs. Default false.
    pub settles_late: bool,
    /// So many epochs are left out by this opening. Default 0. For a folder that is an older copy put back: what went on from
    /// it, and is lost, had given the next ones already.
    pub epochs_skipped: u32,
    /// Where that many openings have batches in the live log, an open lays these anew as the last one's: a folder takes no more than 32,768 openings,
    /// and of each that wrote something every open reads. 2 to 16,384, default 1,024.
    pub openings_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            log_size: 16 << 20,
            max_buffer_log_size: 4 << 20,
            min_elapsed_sync_time: 0,
            max_elapsed_sync_time: 0,
            direct: true,
            dsync: false,
            writes_in_flight: 2,
            archive_bytes_max: 0,
            kept_until_released: false,
            settles_late: false,
            epochs_skipped: 0,
            openings_max: 1_024,
        }
    }
}

impl Config {
    /// Whether an acknowledgement may come before the sync (RPO > 0).
    #[must_use]
    pub const fn lazy(&self) -> bool {
        self.max_elapsed_sync_time > 0
    }

    pub(crate) const fn direct(&self) -> bool {
        self.direct && !self.lazy()
    }

    pub(crate) const fn in_flight(&self) -> u32 {
        if self.direct() { self.writes_in_flight } else { 1 }
    }

    pub(crate) const fn sync_min(&self) -> Duration {
        Duration::from_millis(self.min_elapsed_sync_time)
    }

    pub(crate) const fn sync_max(&self) -> Duration {
        Duration::from_millis(self.max_elapsed_sync_time)
    }

    /// # Errors
    /// `Config` names the key, its value and the rule.
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        let wrong = |name, value: u64, rule| Err(JournalError::Config { name, value: value.to_string(), rule });
        if !(LOG_SIZE_MIN..=LOG_SIZE_MAX).contains(&self.log_size) || !self.log_size.is_multiple_of(BLOCK_BYTES) {
            return wrong("log_size", self.log_size, "a multiple of 4096 from 20480 to 1073741824 bytes");
        }
        let buffer = bytes(self.max_buffer_log_size);
        if !(2 * BLOCK_BYTES..=LOG_SIZE_MAX).contains(&buffer) || !buffer.is_multiple_of(BLOCK_BYTES) {
            return wrong("max_buffer_log_size", buffer, "a multiple of 4096 from 8192 to 1073741824 bytes");
        }
        if self.min_elapsed_sync_time > self.max_elapsed_sync_time {
            return wrong("min_elapsed_sync_time", self.min_elapsed_sync_time, "at most max_elapsed_sync_time");
        }
        if self.kept_until_released && self.archive_bytes_max > 0 {
            return wrong("archive_bytes_max", self.archive_bytes_max, "0 where segments are kept until released");
        }
        if !(1..=WRITES_IN_FLIGHT_MAX).contains(&self.writes_in_flight) {
            return wrong("writes_in_flight", u64::from(self.writes_in_flight), "1 to 16");
        }
        if !(2..=OPENINGS_MAX).contains(&self.openings_max) {
            return wrong("openings_max", u64::from(self.openings_max), "2 to 16384");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_taken_and_one_beyond_is_refused_by_name() {
        let base = Config::default();
        let with = |change: fn(&mut Config)| {
            let mut config = base.clone();
            change(&mut config);
            config.check()
        };
        assert_eq!(with(|_| {}), Ok(()));
        assert_eq!(with(|c| c.log_size = LOG_SIZE_MIN), Ok(()));
        assert_eq!(with(|c| c.max_elapsed_sync_time = 5), Ok(()));
        assert_eq!(with(|c| c.kept_until_released = true), Ok(()));
        type Change = fn(&mut Config);
        let refused: [(&str, Change); 9] = [
            ("openings_max", |c| c.openings_max = 1),
            ("openings_max", |c| c.openings_max = OPENINGS_MAX + 1),
            ("log_size", |c| c.log_size = LOG_SIZE_MIN - 4096),
            ("log_size", |c| c.log_size += 1),
            ("log_size", |c| c.log_size = LOG_SIZE_MAX + 4096),
            ("max_buffer_log_size", |c| c.max_buffer_log_size = 4096),
            ("min_elapsed_sync_time", |c| c.min_elapsed_sync_time = 1),
            ("writes_in_flight", |c| c.writes_in_flight = 0),
            ("archive_bytes_max", |c| (c.kept_until_released, c.archive_bytes_max) = (true, 1)),
        ];
        for (key, change) in refused {
            assert!(matches!(with(change), Err(JournalError::Config { name, .. }) if name == key), "{key}");
        }
    }
}
