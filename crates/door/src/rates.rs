//! How often somebody may ask: a bucket of tokens for each name, refilled by time.
//!
//! Walk: [`Rates::take`] takes one token, or says how long to wait for it · full buckets are forgotten when there are too
//! many, so the memory has a bound and nobody who was told to wait is forgotten by more names than that.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use assent_world::Moment;

/// Names that are remembered.
const NAMES_MAX: usize = 65_536;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// When it will be full again, if nobody takes from it.
    full_at: Moment,
}

/// The buckets of one kind of request.
#[derive(Debug)]
pub struct Rates {
    /// What one token costs in time.
    each: Duration,
    /// What a full bucket holds, in time.
    depth: Duration,
    buckets: Mutex<BTreeMap<String, Bucket>>,
}

impl Rates {
    /// So many in so long, for each name; so many at once.
    #[must_use]
    pub fn new(many: u32, within: Duration, burst: u32) -> Self {
        let each = within / many.max(1);
        Self { each, depth: each * burst.max(1), buckets: Mutex::default() }
    }

    /// Takes a token of this name.
    ///
    /// # Errors
    /// How long it takes until there is one.
    pub fn take(&self, name: &str, now: Moment) -> Result<(), Duration> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = buckets.get(name).map_or(now, |bucket| bucket.full_at.max(now));
        let next = full_at.after(self.each);
        let missing = next.since(now);
        if missing > self.depth {
            return Err(missing.saturating_sub(self.depth));
        }
        if buckets.len() >= NAMES_MAX && !buckets.contains_key(name) {
            buckets.retain(|_, bucket| bucket.full_at > now);
            if buckets.len() >= NAMES_MAX {
                return Err(self.each);
            }
        }
        buckets.insert(name.to_owned(), Bucket { full_at: next });
        Ok(())
    }

    /// Fills the bucket of this name: what was counted is forgiven.
    pub fn forgive(&self, name: &str) {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_taken_at_once_and_then_one_token_comes_at_a_time() {
        let rates = Rates::new(10, Duration::from_secs(1), 3);
        let at = |ms: u64| Moment(0).after(Duration::from_millis(ms));
        for _ in 0..3 {
            assert_eq!(rates.take("anna", at(0)), Ok(()));
        }
        assert_eq!(rates.take("anna", at(0)), Err(Duration::from_millis(100)));
        assert_eq!(rates.take("anna", at(40)), Err(Duration::from_millis(60)));
        assert_eq!(rates.take("bert", at(40)), Ok(()), "another name has its own");
        assert_eq!(rates.take("anna", at(100)), Ok(()));
        assert!(rates.take("anna", at(100)).is_err());
        rates.forgive("anna");
        assert_eq!(rates.take("anna", at(100)), Ok(()));
    }

    #[test]
    fn names_without_end_take_bounded_memory_and_do_not_free_whoever_has_to_wait() {
        let rates = Rates::new(1, Duration::from_secs(60), 1);
        assert_eq!(rates.take("anna", Moment(0)), Ok(()));
        for other in 1..NAMES_MAX {
            assert_eq!(rates.take(&other.to_string(), Moment(0)), Ok(()));
        }
        assert!(rates.take("one too many", Moment(0)).is_err());
        assert!(rates.take("anna", Moment(0)).is_err());
        let later = Moment(0).after(Duration::from_secs(61));
        assert_eq!(rates.take("one too many", later), Ok(()), "those that are full again have been forgotten");
    }
}
