//! What a run of the gate does beside its writes: checkpoints, compactions, and what they are to pass.

use std::sync::atomic::{AtomicU64, Ordering};

use assent_kv::Durability;
use assent_runs::AtOnce;

use super::{Run, Step, Value, Writes, with_ops};

/// Stretches that were left as they are for what stood behind them, the most of any store.
pub(super) static PASSED: AtomicU64 = AtomicU64::new(0);

impl Run<'_> {
    /// What lives for long, and behind it what does not: a stretch that is passed.
    fn load(&mut self) -> Result<(), String> {
        let hot = [(b'w', 300); 10];
        for (key, times) in [(b't', 600), (b'u', 600), (b'v', 600)].into_iter().chain(hot) {
            let value = Value { word: self.rng.roll(), times, expiry: 0 };
            let (writes, named) = (Writes::from([(key, Some(value))]), self.named);
            self.attempt(Step::Batch(writes.clone()), Durability::Buffered, |kv| {
                with_ops(&writes, named, |ops| kv.batch_begin(ops, Durability::Buffered))
            })?;
        }
        self.wait()
    }

    fn compact_all(&self) -> Result<(), String> {
        while self.kv.compact_once(&AtOnce).map_err(|error| error.to_string())? {
            PASSED.fetch_max(self.kv.stats().passed_stretches, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Values move, and the journal gives back what nobody reads.
    pub(super) fn compact(&mut self) -> Result<(), String> {
        if self.rng.below(3) == 0 {
            self.load()?;
        }
        self.kv.checkpoint().map_err(|error| error.to_string())?;
        _ = self.kv.work(&AtOnce);
        // What a compaction finds superseded by a write that only the kernel has.
        self.batch()?;
        self.wait()?;
        let snapshot = self.kv.snapshot();
        self.compact_all()?;
        drop(snapshot);
        self.compact_all()
    }
}
