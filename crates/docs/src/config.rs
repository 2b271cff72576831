//! The limits of a database: each one is a number with a unit, checked once at open.

use crate::DocsError;

/// The longest name of a document.
pub const NAME_BYTES_MAX: usize = 255;
/// The longest author of a commit.
pub const AUTHOR_BYTES_MAX: u64 = 255;
/// The longest message of a commit, and the most bytes of its own fields.
pub const MESSAGE_BYTES_MAX: u64 = 64 << 10;
/// The longest string, number or member's name that can be configured.
pub const TEXT_BYTES_MAX: u32 = 64 << 20;
/// The deepest nesting that can be configured.
pub const DEPTH_MAX: u32 = 1 << 15;

/// The most distinct paths of a document that can be configured.
pub const PATHS_MAX: u32 = 1 << 26;

/// What a database takes, and what it keeps in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The longest string, number or member's name.
    pub text_bytes_max: u32,
    /// The deepest nesting of values; the outermost value is at depth 1.
    pub depth_max: u32,
    /// How long a second writer of a document waits for the first.
    pub writer_wait_ms: u64,
    /// Changed nodes that an edit keeps in memory, about; more are laid into the journal before the commit.
    pub edit_nodes_max: u32,
    /// Distinct paths of a document: an edit that makes new ones has a table of all of them in memory, 48 bytes each.
    pub paths_max: u32,
    /// Bytes of pages and revisions that are kept in memory. A commit of a field whose page is not there reads it first: from the disk, as
    /// what is written past the page cache is not in that either. A document takes about 1.3 times its JSON. Default 256 MiB.
    pub cache_bytes: u64,
    /// The index is written out after that many bytes of journal: about as much is replayed at an open.
    pub checkpoint_bytes: u64,
    /// And once it takes that many bytes of memory. Commits wait at four times as much, and eight times as much is the most.
    pub memory_bytes: u64,
    /// Memory that a new version may take that is imported, about: it is read whole before anything is changed.
    pub import_bytes_max: u64,
    /// The journal keeps what is trimmed until it is released (`kept_until_released`): then a checkpoint trims what an open
    /// need not walk. Never true over another journal: it would lose history. Default false.
    pub trims: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            text_bytes_max: 16 << 20,
            depth_max: 10_000,
            writer_wait_ms: 5000,
            edit_nodes_max: 1 << 16,
            paths_max: 1 << 22,
            cache_bytes: 256 << 20,
            checkpoint_bytes: 64 << 20,
            memory_bytes: 16 << 20,
            import_bytes_max: 1 << 30,
            trims: false,
        }
    }
}

impl Config {
    /// Durable writes of its journal under way at the same time, for whoever opens that: what comes meanwhile is one batch. Who commits
    /// waits, and a second write would take half of each batch: 64 writers needed 0.078 syncs a commit with two, and 0.044 with one.
    pub const WRITES_IN_FLIGHT: u32 = 1;

    /// Says which value cannot work.
    ///
    /// # Errors
    /// [`DocsError::Config`] with the key, its value and the rule.
    pub fn check(&self) -> Result<(), DocsError> {
        let rules: [(&'static str, u64, u64, u64, &'static str); 6] = [
            ("text_bytes_max", self.text_bytes_max.into(), 1, TEXT_BYTES_MAX.into(), "1 to 67108864"),
            ("depth_max", self.depth_max.into(), 1, DEPTH_MAX.into(), "1 to 32768"),
            ("edit_nodes_max", self.edit_nodes_max.into(), 1, u64::MAX, "at least 1"),
            ("paths_max", self.paths_max.into(), 1, PATHS_MAX.into(), "1 to 67108864"),
            ("checkpoint_bytes", self.checkpoint_bytes, 1, u64::MAX, "at least 1"),
            ("memory_bytes", self.memory_bytes, 64 << 10, 256 << 20, "65536 to 268435456"),
        ];
        match rules.into_iter().find(|(_, value, from, to, _)| !(*from..=*to).contains(value)) {
            Some((name, value, _, _, rule)) => Err(DocsError::Config { name, value, rule }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_taken_and_one_beyond_is_refused_by_name() {
        let with = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.check()
        };
        assert_eq!(with(|_| {}), Ok(()));
        assert_eq!(with(|config| config.text_bytes_max = TEXT_BYTES_MAX), Ok(()));
        type Change = fn(&mut Config);
        let refused: [(&str, Change); 5] = [
            ("text_bytes_max", |config| config.text_bytes_max = TEXT_BYTES_MAX + 1),
            ("depth_max", |config| config.depth_max = 0),
            ("edit_nodes_max", |config| config.edit_nodes_max = 0),
            ("memory_bytes", |config| config.memory_bytes = 1),
            ("paths_max", |config| config.paths_max = PATHS_MAX + 1),
        ];
        for (key, change) in refused {
            assert!(matches!(with(change), Err(DocsError::Config { name, .. }) if name == key), "{key}");
        }
    }
}
