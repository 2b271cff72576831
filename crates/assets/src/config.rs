//! What an engine can be told, and the limits that every member of a group must share.

use assent_membership::Ack;

use crate::AssetsError;

/// Limits of what the state remembers. They decide what is evicted, so every member of a group has the same: they stand in the
/// log and in snapshots, and what differs is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions. One more evicts the one that was silent for the longest stretch of the log. Default 65,536.
    pub sessions_max: usize,
    /// Bytes of all answers that sessions remember; more evict sessions in the same order. Default 64 MiB.
    pub answer_bytes_max: usize,
    /// Branches prepared at the same time. Default 4,096.
    pub prepared_max: usize,
    /// Outcomes of branches that are remembered. Default 4,096.
    pub finished_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sessions_max: 65_536, answer_bytes_max: 64 << 20, prepared_max: 4_096, finished_max: 4_096 }
    }
}

/// How an engine works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// What an answer has behind it. `Durable` (default): the disk. `Written`: the kernel, if the log is lazy
    /// (`max_elapsed_sync_time`): a killed process loses nothing, a lost machine at most what that time says. `None`: this
    /// process's memory. Votes and outcomes of branches are durable in each. `Received` is a pair's word, and refused here.
    pub ack: Ack,
    /// Bytes of log behind the last snapshot after which another one is due. Default 256 MiB.
    pub snapshot_log_bytes: u64,
    /// Bytes a second that a snapshot writes, at most; 0: as the disk takes them. While commands change assets no more than
    /// [`assent_replica::BESIDE_COMMANDS_BYTES_PER_S`] either way. Default 0.
    pub snapshot_bytes_per_second: u64,
    /// One in so many commands is traced. 0: none. Default 64.
    pub trace_every: u32,
    /// What the state remembers.
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ack: Ack::Durable,
            snapshot_log_bytes: 256 << 20,
            snapshot_bytes_per_second: 0,
            trace_every: 64,
            limits: Limits::default(),
        }
    }
}

impl Config {
    pub(crate) const fn check(&self) -> Result<(), AssetsError> {
        if matches!(self.ack, Ack::Received) {
            return Err(AssetsError::Config { name: "ack", value: "received", rule: "durable, written or none" });
        }
        if self.snapshot_log_bytes == 0 {
            return Err(AssetsError::Config { name: "snapshot_log_bytes", value: "0", rule: "at least 1" });
        }
        Ok(())
    }
}
