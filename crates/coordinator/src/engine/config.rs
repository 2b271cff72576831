//! What a table can be told, in the field's names.

use std::time::Duration;

use assent_journal::JournalError;

use crate::engine::layout::{BLOCK_BYTES, BLOCKS_MAX};

const LOG_SIZE_MIN: u64 = 5 * BLOCK_BYTES;
const LOG_SIZE_MAX: u64 = BLOCKS_MAX as u64 * BLOCK_BYTES;

/// How a table keeps its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableConfig {
    /// Bytes by which each file grows, a multiple of 4096. Default 1 MiB.
    pub log_size: u64,
    /// The most bytes of one write call, a multiple of 4096. Default 4 MiB.
    pub max_buffer_log_size: usize,
    /// Milliseconds between two syncs, at least, where `max_elapsed_sync_time` is not 0.
    pub min_elapsed_sync_time: u64,
    /// Milliseconds after which an acknowledged record is durable, at the latest. 0 (default): before it is acknowledged.
    pub max_elapsed_sync_time: u64,
    /// Durable writes go past the page cache. Default true. Counts only where `max_elapsed_sync_time` is 0.
    pub direct: bool,
    /// Writes with RWF_DSYNC instead of a write and fdatasync. Default false. A group whose blocks are not neighbours is
    /// then several durable writes, the head last.
    pub dsync: bool,
    /// So many epochs are left out by this opening, as in a journal. Default 0.
    pub epochs_skipped: u32,
}

impl Default for TableConfig {
    fn default() -> Self {
        Self {
            log_size: 1 << 20,
            max_buffer_log_size: 4 << 20,
            min_elapsed_sync_time: 0,
            max_elapsed_sync_time: 0,
            direct: true,
            dsync: false,
            epochs_skipped: 0,
        }
    }
}

impl TableConfig {
    /// Whether an acknowledgement may come before the sync (RPO > 0).
    #[must_use]
    pub const fn is_lazy(&self) -> bool {
        self.max_elapsed_sync_time > 0
    }

    pub(crate) const fn is_direct(&self) -> bool {
        self.direct && !self.is_lazy()
    }

    /// Two that alternate; with RPO > 0 a third that nobody touches before another one is synced.
    pub(crate) const fn files(&self) -> usize {
        if self.is_lazy() { 3 } else { 2 }
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
            return wrong("log_size", self.log_size, "a multiple of 4096 from 20480 to 268435456 bytes for a table");
        }
        let buffer = u64::try_from(self.max_buffer_log_size).unwrap_or(u64::MAX);
        if !(2 * BLOCK_BYTES..=1 << 30).contains(&buffer) || !buffer.is_multiple_of(BLOCK_BYTES) {
            return wrong("max_buffer_log_size", buffer, "a multiple of 4096 from 8192 to 1073741824 bytes");
        }
        if self.min_elapsed_sync_time > self.max_elapsed_sync_time {
            return wrong("min_elapsed_sync_time", self.min_elapsed_sync_time, "at most max_elapsed_sync_time");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_taken_and_one_beyond_is_refused_by_name() {
        type Change = fn(&mut TableConfig);
        let with = |change: Change| {
            let mut config = TableConfig::default();
            change(&mut config);
            config.check()
        };
        assert_eq!(LOG_SIZE_MAX, 268_435_456, "as the message says");
        assert_eq!(with(|c| (c.log_size, c.max_buffer_log_size) = (LOG_SIZE_MIN, 8_192)), Ok(()));
        assert_eq!(with(|c| (c.min_elapsed_sync_time, c.max_elapsed_sync_time) = (5, 5)), Ok(()));
        let refused: [(&str, Change); 5] = [
            ("log_size", |c| c.log_size = LOG_SIZE_MIN - 4096),
            ("log_size", |c| c.log_size += 1),
            ("log_size", |c| c.log_size = LOG_SIZE_MAX + 4096),
            ("max_buffer_log_size", |c| c.max_buffer_log_size = 4096),
            ("min_elapsed_sync_time", |c| c.min_elapsed_sync_time = 1),
        ];
        for (key, change) in refused {
            assert!(matches!(with(change), Err(JournalError::Config { name, .. }) if name == key), "{key}");
        }
    }
}
