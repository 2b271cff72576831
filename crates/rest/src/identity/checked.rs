//! Tokens whose signature was found good: it is good for the next request too, and to check it costs more than most of them.
//!
//! Walk: [`Checked::keep`] what a token says · [`Checked::find`] it by the digest of all its bytes · [`Good::is_over`] is asked each time.
//! Deliberately absent: what was refused, which is judged anew. So is waiting: where somebody stays in a part of it nothing is found,
//! and nothing is kept.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::Caller;
use super::sessions::Digest;

/// Bytes of tokens, and of what is kept of them.
const BYTES_MAX: u64 = 8 << 20;
/// What one costs beside its bytes.
const ITEM_BYTES: u64 = 256;
/// And for each database that its roles name: a node of a map, and a text of its own for a word of eight bytes.
const DATABASE_BYTES: u64 = 128;
/// Room for so many is taken at once.
const ITEMS: usize = 1_024;

/// What a good token says.
#[derive(Debug)]
pub(crate) struct Good {
    pub(crate) caller: Caller,
    /// From when it is good, and until when: in milliseconds since 1970, with what clocks may differ by.
    pub(crate) from_ms: u64,
    pub(crate) until_ms: u64,
    /// How long it is.
    pub(crate) bytes: usize,
}

impl Good {
    /// Whether its time is over, or has not come.
    pub(crate) const fn is_over(&self, wall_ms: u64) -> bool {
        wall_ms < self.from_ms || wall_ms > self.until_ms
    }
}

#[derive(Clone, Debug)]
struct Bytes;

impl Weighter<Digest, Arc<Good>> for Bytes {
    fn weight(&self, _: &Digest, good: &Arc<Good>) -> u64 {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let databases = count(good.caller.grants.databases()).saturating_mul(DATABASE_BYTES);
        count(good.bytes).saturating_add(databases).saturating_add(ITEM_BYTES)
    }
}

/// Good tokens; those that nobody comes with go when there is no room.
#[derive(Debug)]
pub(crate) struct Checked(Cache<Digest, Arc<Good>, Bytes>);

impl Default for Checked {
    fn default() -> Self {
        Self(Cache::with_weighter(ITEMS, BYTES_MAX, Bytes))
    }
}

impl Checked {
    pub(crate) fn find(&self, token: &Digest) -> Option<Arc<Good>> {
        self.0.try_get(token).ok().flatten()
    }

    pub(crate) fn keep(&self, token: Digest, good: Good) {
        _ = self.0.try_insert(token, Arc::new(good));
    }
}

#[cfg(test)]
mod tests {
    use assent_door::Grants;

    use super::*;
    use crate::identity::sessions::digest;

    fn good(bytes: usize) -> Good {
        with(bytes, Grants::default())
    }

    fn with(bytes: usize, grants: Grants) -> Good {
        let caller = Caller { name: "anna".into(), shown: None, grants: Arc::new(grants) };
        Good { caller, from_ms: 1_000, until_ms: 2_000, bytes }
    }

    #[test]
    fn a_token_is_good_from_its_first_millisecond_to_its_last() {
        let over = [999, 1_000, 2_000, 2_001].map(|at| good(0).is_over(at));
        assert_eq!(over, [true, false, false, true]);
    }

    #[test]
    fn a_token_weighs_what_its_roles_take() {
        let checked = Checked::default();
        let words: Vec<String> = (0..1_500).map(|number| format!("{number}-view")).collect();
        let grants = Grants::read(words.iter().map(String::as_str));
        checked.keep(digest(b"a"), with(16 << 10, grants));
        assert_eq!(checked.0.weight(), (16 << 10) + ITEM_BYTES + 1_500 * DATABASE_BYTES);
    }

    #[test]
    fn tokens_without_end_take_bounded_memory_and_the_last_one_is_found() {
        let checked = Checked::default();
        let of = |number: u32| digest(&number.to_le_bytes());
        for (bytes, many) in [(744, 100_000_u32), (16 << 10, 2_000)] {
            for number in 0..many {
                checked.keep(of(number), good(bytes));
                assert!(checked.0.weight() <= BYTES_MAX, "{number}");
            }
            assert!(checked.find(&of(many - 1)).is_some());
            let found = (0..many).filter(|number| checked.find(&of(*number)).is_some()).count();
            let most = BYTES_MAX / (u64::try_from(bytes).unwrap() + ITEM_BYTES);
            assert!(found > 0 && u64::try_from(found).unwrap() <= most, "{found} of at most {most}");
        }
    }
}
