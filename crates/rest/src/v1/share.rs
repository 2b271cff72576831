//! What open transactions keep in memory of documents: each its share, all of them a limit.
//!
//! Walk: [`Share::room`] before a write · [`Share::weigh`] behind it, also where it failed · dropped with its transaction.
//! Deliberately absent: a limit for each. A branch lays into the journal what is beyond (`DocsResource`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use assent_kind::Kind;

use crate::problem::Problem;

/// Bytes of all open transactions; beyond it what is written to documents is refused until some have ended.
const BYTES_MAX: u64 = 512 << 20;

/// The bytes of one.
#[derive(Debug, Default)]
pub(super) struct Share {
    all: Arc<AtomicU64>,
    own: u64,
}

impl Share {
    pub(super) fn of(all: &Arc<AtomicU64>) -> Self {
        Self { all: Arc::clone(all), own: 0 }
    }

    /// Whether one more write may come.
    pub(super) fn room(&self) -> Result<(), Problem> {
        let all = self.all.load(Ordering::Relaxed);
        if all < BYTES_MAX {
            return Ok(());
        }
        let detail = format!(
            "open transactions keep {all} bytes of documents in memory; beyond {BYTES_MAX} nothing more is written until some \
             have ended"
        );
        Err(Problem::of(Kind::Busy, detail))
    }

    /// It keeps so many now.
    pub(super) fn weigh(&mut self, bytes: u64) {
        self.all.fetch_add(bytes, Ordering::Relaxed);
        self.all.fetch_sub(self.own, Ordering::Relaxed);
        self.own = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.weigh(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_together_have_a_limit_and_who_ends_gives_his_share_back() {
        let all = Arc::default();
        let (mut one, mut other) = (Share::of(&all), Share::of(&all));
        one.weigh(BYTES_MAX - 1);
        assert!(other.room().is_ok());
        other.weigh(1);
        for share in [&one, &other] {
            let refused = share.room().unwrap_err();
            assert_eq!((refused.kind, refused.status.as_u16()), ("busy", 429), "{refused:?}");
        }
        one.weigh(5);
        assert!(other.room().is_ok());
        drop(one);
        assert_eq!(all.load(Ordering::Relaxed), 1);
    }
}
