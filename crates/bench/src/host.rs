//! The facts of the machine that a figure depends on. No names of hosts, people or folders.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// Where a race ran. What is not known is empty or null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// The processor's own name.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: u32,
    /// All memory of the machine.
    pub memory_bytes: u64,
    /// Name and release.
    pub kernel: String,
    /// Of the race's folder: `ext4`.
    pub file_system: String,
    /// Its mount's flags.
    pub mount_flags: String,
    /// Its disk's cache as the kernel sees it: `write back`, `write through`.
    pub write_cache: Option<String>,
    /// Whether the kernel takes its disk for one that turns.
    pub rotational: Option<bool>,
    /// One, five and fifteen minutes before the race.
    pub load_average: String,
    /// The compiler.
    pub rustc: String,
    /// `release` or `debug`.
    pub build: String,
    /// Of this program.
    pub version: String,
    /// When it began, UTC.
    pub date: String,
}

impl Host {
    /// Looks at this machine and the disk of `folder`.
    #[must_use]
    pub fn look(_folder: &Path, date: String) -> Self {
        Self { date, ..Self::default() }
    }
}
