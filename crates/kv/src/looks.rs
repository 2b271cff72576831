//! Of which rows that a flush writes somebody looks up what they supersede, and how many bytes such a look stands for.
//!
//! Where most of the ledger's files are in memory a look costs little beside a value that is not small, and each is made. Beyond, it reads a
//! block: one for each value of 4 KiB or more, and of smaller ones one for each [`EACH_BYTES`], which stands for as many. So it reads no more
//! than was put, and less than compactions do, who ask for each value that they pass. Of a volume of 16 MiB, what is superseded of it is
//! known to some hundredths then. Not fewer: which of the larger values die is what compactions choose by, and of a sample they choose what
//! looks emptier than it is, until all that is left looks fuller.
//! Keys are chosen by their hash: a row that leaves by a merge says by the same numbers what it stood for, so that what is known of a volume
//! ends where its values do.
//!
//! Walk: [`Looks::at`] asks of a row that comes, [`Looks::lost`] says of one that leaves.
//! Deliberately absent: the looks.

use xxhash_rust::xxh3::xxh3_64;

/// Smaller values that are near memory are not worth a look: four small runs and those that are gathered hide about as much.
const NEAR_BYTES_MIN: u64 = 1 << 10;
/// One look for so many bytes of values, where it reads from the disk.
pub(crate) const EACH_BYTES: u64 = 8 << 10;

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Looks {
    /// Most of the ledger's files are in memory.
    pub(crate) is_near: bool,
    /// Of a value that they have, on average.
    pub(crate) value_bytes: u64,
}

/// What a look stands for: each byte that it finds for two to the power of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight(u32);

impl Weight {
    /// It stands for itself alone.
    pub(crate) const ONE: Self = Self(0);

    /// Of a value of so many bytes. One that is much longer than what superseded it stands for little beside itself: it would be most of a volume.
    pub(crate) fn of(self, bytes: u64) -> u64 {
        bytes.saturating_mul(1 << self.0).min(2 * EACH_BYTES).max(bytes)
    }
}

impl Looks {
    /// Whether to look what a value of so many bytes supersedes, or what comes in a value's place. What is short counts as the average one: it
    /// may supersede such a one.
    pub(crate) fn at(self, key: &[u8], bytes: u64) -> Option<Weight> {
        let bytes = bytes.max(self.value_bytes);
        if self.is_near { (bytes >= NEAR_BYTES_MIN).then_some(Weight(0)) } else { chosen(key, bytes) }
    }

    /// Of how many superseded bytes a value of so many stood for the look is over, now that it leaves.
    pub(crate) fn lost(self, key: &[u8], bytes: u64) -> u64 {
        // Also of those that nobody looks up near memory: a compaction may have found them dead.
        let weight = if self.is_near { Some(Weight(0)) } else { chosen(key, bytes.max(self.value_bytes)) };
        weight.map_or(0, |weight| weight.of(bytes))
    }
}

fn chosen(key: &[u8], bytes: u64) -> Option<Weight> {
    let doublings = (EACH_BYTES / bytes.max(1)).checked_ilog2().unwrap_or(0);
    let is_chosen = doublings == 0 || xxh3_64(key).trailing_zeros() >= doublings;
    is_chosen.then_some(Weight(doublings))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of so many keys with values of so many bytes: how many are looked up, and what they stand for if they supersede such values.
    fn looked(looks: Looks, keys: u64, bytes: u64, old_bytes: u64) -> (u64, u64) {
        let found = (0..keys).filter_map(|key| looks.at(&key.to_be_bytes(), bytes));
        found.fold((0, 0), |(count, sum), weight| (count + 1, sum + weight.of(old_bytes)))
    }

    #[test]
    fn near_memory_all_that_are_no_small_values_are_looked_up_and_beyond_one_for_each_so_many_bytes() {
        const KEYS: u64 = 100_000;
        for (is_near, average, bytes, share) in [
            (true, 8192, 8192, 1),
            (true, 8192, 0, 1),
            (true, 100, 1024, 1),
            (true, 100, 1023, 0),
            (false, 8192, 8260, 1),
            (false, 8192, 0, 1),
            (false, 100, 4097, 1),
            (false, 100, 3000, 2),
            (false, 3000, 0, 2),
            (false, 100, 1100, 4),
            (false, 100, 160, 32),
            (false, 100, 0, 64),
            (false, 0, 0, 8192),
        ] {
            let (count, sum) = looked(Looks { is_near, value_bytes: average }, KEYS, bytes, bytes);
            let near = |number: u64, of: u64| number.abs_diff(of) <= of / 20 + of.isqrt() * 4;
            let expected = KEYS.checked_div(share).unwrap_or(0);
            assert!(near(count, expected), "{is_near}, {average}, {bytes}: {count} looks, {expected} expected");
            assert!(sum == count * share * bytes, "{is_near}, {average}, {bytes}: {sum} bytes");
        }
    }

    #[test]
    fn what_is_found_of_values_as_long_as_those_that_supersede_them_is_lost_when_they_leave() {
        for (is_near, bytes) in [(true, 9000), (false, 100), (false, 9000), (false, 60 << 10), (false, 1 << 20)] {
            let looks = Looks { is_near, value_bytes: 3000 };
            let (_, found) = looked(looks, 10_000, bytes, bytes);
            let lost: u64 = (0..10_000_u64).map(|key| looks.lost(&key.to_be_bytes(), bytes)).sum();
            assert_eq!((found > 0, lost), (true, found), "{bytes}");
        }
    }

    #[test]
    fn a_long_value_under_a_short_one_stands_for_no_more_than_two_looks_or_for_itself() {
        let bytes = [100, 500, 600, 16 << 10, 1 << 20];
        assert_eq!(bytes.map(|bytes| Weight(5).of(bytes)), [3200, 16_000, 16 << 10, 16 << 10, 1 << 20]);
    }
}
