//! The sizes of a map. A wrong value is refused at the door.

use crate::RunsError;

/// How large the parts of a map are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What all memtables may hold before `apply` says `Busy`. The owner closes them long before, by `rotate`.
    pub memory_bytes_max: u64,
    /// Memory of memtables that are gone waits for the next ones, as long as that and what memtables hold is no more than this.
    pub memory_bytes_kept: u64,
    /// What a rebuild gathers in memory before it sorts and spills.
    pub bulk_bytes: u64,
    /// A merge begins another run when one has this much.
    pub run_bytes: u64,
    /// A block of a run is closed when it has this much.
    pub block_bytes: u32,
    /// Runs at level 0 that make a merge worth while.
    pub level0_runs: u32,
    /// What level 1 holds; where level 0 gathers ([`crate::Owner::gathers`]) twice as much.
    pub level1_bytes: u64,
    /// How much more each further level holds.
    pub level_ratio: u32,
    /// Blocks, index blocks and filters that are kept in memory.
    pub cache_bytes: u64,
    /// Rows that were found and are asked for again, each with what its owner keeps beside it.
    pub rows_bytes: u64,
    /// Run files that are open at the same time, beside those that somebody reads at the moment.
    pub open_runs_max: u32,
    /// The manifest that an open finds is made sure of before the next one is written, and not by the open: a process that died may have left it
    /// in the page cache alone. Not for an owner that, told of it, removes what only the manifest before it names. Default false.
    pub settles_late: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            memory_bytes_max: 1 << 30,
            memory_bytes_kept: 32 << 20,
            bulk_bytes: 16 << 20,
            run_bytes: 8 << 20,
            block_bytes: 4096,
            level0_runs: 4,
            level1_bytes: 32 << 20,
            level_ratio: 8,
            cache_bytes: 24 << 20,
            rows_bytes: 8 << 20,
            open_runs_max: 64,
            settles_late: false,
        }
    }
}

impl Config {
    /// For so many keys places are laid ahead, at most: in an eighth of what is kept.
    pub(crate) const fn keys_ahead_max(&self) -> u64 {
        self.memory_bytes_kept / 256
    }

    /// What a level holds before it is too full; level 0 counts its runs instead.
    pub(crate) fn level_bytes(&self, level: usize) -> u64 {
        let ratio = u64::from(self.level_ratio);
        (1..level).fold(self.level1_bytes, |bytes, _| bytes.saturating_mul(ratio))
    }

    pub(crate) fn check(&self) -> Result<(), RunsError> {
        let within = |name, value: u64, from: u64, to: u64, rule| {
            if (from..=to).contains(&value) { Ok(()) } else { Err(RunsError::Config { name, value, rule }) }
        };
        within("memory_bytes_max", self.memory_bytes_max, 1 << 10, 1 << 36, "1 KiB to 64 GiB")?;
        within("memory_bytes_kept", self.memory_bytes_kept, 0, 1 << 36, "up to 64 GiB")?;
        within("bulk_bytes", self.bulk_bytes, 1 << 10, 1 << 32, "1 KiB to 4 GiB")?;
        within("run_bytes", self.run_bytes, 1 << 10, 1 << 32, "1 KiB to 4 GiB")?;
        within("block_bytes", self.block_bytes.into(), 128, 1 << 20, "128 bytes to 1 MiB")?;
        within("level0_runs", self.level0_runs.into(), 1, 64, "1 to 64")?;
        within("level1_bytes", self.level1_bytes, 1 << 10, 1 << 40, "1 KiB to 1 TiB")?;
        within("level_ratio", self.level_ratio.into(), 2, 64, "2 to 64")?;
        within("cache_bytes", self.cache_bytes, 0, 1 << 40, "up to 1 TiB")?;
        within("rows_bytes", self.rows_bytes, 0, 1 << 40, "up to 1 TiB")?;
        within("open_runs_max", self.open_runs_max.into(), 1, 1 << 16, "1 to 65,536")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_work_and_a_value_beyond_its_limit_is_named() {
        assert_eq!(Config::default().check(), Ok(()));
        let wrong = Config { level_ratio: 1, ..Config::default() };
        assert_eq!(wrong.check().unwrap_err().to_string(), "level_ratio is 1; it takes 2 to 64");
        let wrong = Config { bulk_bytes: (1 << 10) - 1, ..Config::default() };
        assert_eq!(wrong.check().unwrap_err().to_string(), "bulk_bytes is 1023; it takes 1 KiB to 4 GiB");
        let wrong = Config { open_runs_max: 0, ..Config::default() };
        assert_eq!(wrong.check().unwrap_err().to_string(), "open_runs_max is 0; it takes 1 to 65,536");
        assert_eq!(Config { bulk_bytes: 1 << 10, ..Config::default() }.check(), Ok(()));
    }

    #[test]
    fn each_level_holds_so_many_times_the_one_above() {
        let config = Config { level1_bytes: 1 << 20, level_ratio: 8, ..Config::default() };
        assert_eq!([1, 2, 4, 40].map(|level| config.level_bytes(level)), [1 << 20, 8 << 20, 512 << 20, u64::MAX]);
    }
}
