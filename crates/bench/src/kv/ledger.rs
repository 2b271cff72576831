//! What the race knows of each key: the version that was acknowledged, and the one that may be under way.
//!
//! Nobody writes a key that another client is writing: it draws another key. So the versions of a key are acknowledged in
//! their order, and whoever reads knows which ones can be there.

use std::sync::atomic::{AtomicU64, Ordering};

use assent_kind::Kind;

use crate::BenchError;

/// All keys of a cell.
#[derive(Debug)]
pub struct Ledger {
    /// The version under way in the upper half, the acknowledged one in the lower; the same where none is under way.
    keys: Vec<AtomicU64>,
}

const fn parts(word: u64) -> (u64, u64) {
    (word >> 32, word & 0xffff_ffff)
}

impl Ledger {
    /// Of keys that were never written.
    #[must_use]
    pub fn new(keys: u64) -> Self {
        let keys = usize::try_from(keys).unwrap_or(usize::MAX);
        Self { keys: std::iter::repeat_with(AtomicU64::default).take(keys).collect() }
    }

    /// The next version of a key, which the caller writes and then settles; `None` while another does.
    #[must_use]
    pub fn claim(&self, key: u64) -> Option<u64> {
        let word = self.word(key)?;
        let seen = word.load(Ordering::Acquire);
        let (under_way, acknowledged) = parts(seen);
        if under_way != acknowledged {
            return None;
        }
        let next = acknowledged + 1;
        let claimed = word.compare_exchange(seen, next << 32 | acknowledged, Ordering::AcqRel, Ordering::Acquire);
        claimed.is_ok().then_some(next)
    }

    /// The version is acknowledged.
    pub fn settle(&self, key: u64, version: u64) {
        if let Some(word) = self.word(key) {
            word.store(version << 32 | version, Ordering::Release);
        }
    }

    /// Every key was written once, by another process.
    pub fn was_loaded(&self) {
        self.keys.iter().for_each(|word| word.store(1 << 32 | 1, Ordering::Release));
    }

    /// The version that a reader who begins now must find, or a later one; 0 where none was ever acknowledged.
    #[must_use]
    pub fn least(&self, key: u64) -> u64 {
        self.word(key).map_or(0, |word| parts(word.load(Ordering::Acquire)).1)
    }

    /// Judges what a reader found who began at `least`.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] for an acknowledged version that is gone, and for one that was never written.
    pub fn judge(&self, key: u64, least: u64, found: Option<u64>) -> Result<(), BenchError> {
        let most = self.word(key).map_or(0, |word| parts(word.load(Ordering::Acquire)).0);
        let wrong = |what: String| Err(BenchError::new(Kind::Corrupt, format!("key {key}: {what}")));
        match found {
            None if least == 0 => Ok(()),
            None => wrong(format!("version {least} was acknowledged and nothing is found")),
            Some(version) if version < least => {
                wrong(format!("version {least} was acknowledged and version {version} is found"))
            }
            Some(version) if version > most => {
                wrong(format!("version {version} is found and nothing beyond version {most} was written"))
            }
            Some(_) => Ok(()),
        }
    }

    /// How many keys there are.
    #[must_use]
    pub fn keys(&self) -> u64 {
        super::length(self.keys.len())
    }

    /// How many of them have an acknowledged version.
    #[must_use]
    pub fn written(&self) -> u64 {
        super::length(self.keys.iter().filter(|word| parts(word.load(Ordering::Acquire)).1 > 0).count())
    }

    fn word(&self, key: u64) -> Option<&AtomicU64> {
        self.keys.get(usize::try_from(key).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_must_find_what_was_acknowledged_and_may_find_what_is_under_way() {
        let ledger = Ledger::new(2);
        assert!(ledger.judge(0, ledger.least(0), None).is_ok());
        assert!(ledger.judge(0, 0, Some(1)).is_err(), "never written");
        assert_eq!(ledger.claim(0), Some(1));
        assert_eq!((ledger.claim(0), ledger.claim(1)), (None, Some(1)));
        assert!(ledger.judge(0, 0, Some(1)).is_ok() && ledger.judge(0, 0, None).is_ok());
        ledger.settle(0, 1);
        assert_eq!((ledger.least(0), ledger.written()), (1, 1));
        assert!(ledger.judge(0, 1, None).unwrap_err().message.contains("version 1 was acknowledged"));
        assert_eq!(ledger.claim(0), Some(2));
        for (found, fine) in [(Some(0), false), (Some(1), true), (Some(2), true), (Some(3), false)] {
            assert_eq!(ledger.judge(0, 1, found).is_ok(), fine, "{found:?}");
        }
        assert_eq!((ledger.claim(9), ledger.least(9)), (None, 0), "no such key");
    }
}
