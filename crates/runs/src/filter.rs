//! A filter over the keys of one run: most look-ups for a key that is not there end here.
//!
//! A binary fuse filter with fingerprints of eight bits (arXiv 2201.01174): nine bits a key, one wrong "perhaps" in 256 and no
//! wrong "no". `xorf` builds it; how it is laid and asked is ours, so that a file outlives a crate.
//!
//! ```text
//!   kind 4, 1: this · segment 4 | segments 4 · 0 4 | seed 8 | fingerprints, (segments + 2) x segment
//!   kind 4, 0: none (it could not be built), and nothing behind
//! ```
//! Walk: [`hash`] of a key · [`lay`] a filter for hashes · [`Filter::parse`] and [`Filter::may_hold`].
//! Deliberately absent: keys.

use assent_frame::{Malformed, Reader, Writer};
use xorf::BinaryFuse8;
use xxhash_rust::xxh3::xxh3_64;

const NONE: u32 = 0;
const BINARY_FUSE_8: u32 = 1;

/// About so many hashes have the same upper bits when they are sorted: they are put in order one by one.
const FEW: usize = 8;

/// Bytes of a filter before its fingerprints.
const HEAD_BYTES: usize = 24;

/// What a filter knows of a key.
pub(crate) fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// Lays a filter that answers "perhaps" to each of these; their order is lost.
pub(crate) fn lay(hashes: &mut Vec<u64>) -> Vec<u8> {
    // Two keys with one hash are one member: the builder takes no member twice.
    sort(hashes);
    hashes.dedup();
    let built = BinaryFuse8::try_from(&*hashes).ok().map(|built| Filter {
        seed: built.descriptor.seed,
        segment: built.descriptor.segment_length,
        segments: built.descriptor.segment_count_length.checked_div(built.descriptor.segment_length).unwrap_or(0),
        fingerprints: built.fingerprints,
    });
    // A wrong "no" would be a lost key, so nothing is taken on trust: a filter that misses one is no filter.
    match built.filter(|filter| filter.is_whole() && hashes.iter().all(|hash| filter.may_hold(*hash))) {
        Some(filter) => filter.laid(),
        None => lay_none(),
    }
}

/// Puts hashes in order. They are spread evenly, so each is put among those of its upper bits at once, and those are few; where somebody chose
/// them so that they are not, sorting these takes as long as to sort all.
fn sort(hashes: &mut [u64]) {
    let bits = (hashes.len() / FEW).max(1).ilog2();
    if bits < 2 {
        return hashes.sort_unstable();
    }
    let part = |hash: u64| usize::try_from(hash >> (64 - bits)).unwrap_or(0);
    let mut ends = vec![0_usize; 1 << bits];
    for hash in &*hashes {
        ends.get_mut(part(*hash)).into_iter().for_each(|count| *count += 1);
    }
    let mut end = 0;
    for place in &mut ends {
        (*place, end) = (end, end + *place);
    }
    let mut spread = vec![0; hashes.len()];
    for hash in &*hashes {
        if let Some(place) = ends.get_mut(part(*hash)) {
            spread.get_mut(*place).into_iter().for_each(|to| *to = *hash);
            *place += 1;
        }
    }
    hashes.copy_from_slice(&spread);
    let mut from = 0;
    for end in ends {
        hashes.get_mut(from..end).into_iter().for_each(<[u64]>::sort_unstable);
        from = end;
    }
}

/// Lays no filter: "perhaps" to everything.
pub(crate) fn lay_none() -> Vec<u8> {
    Filter::default().laid()
}

/// A filter in memory. The default one answers "perhaps" to everything.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    seed: u64,
    segment: u32,
    segments: u32,
    fingerprints: Box<[u8]>,
}

impl Filter {
    fn laid(&self) -> Vec<u8> {
        let mut writer = Writer::behind(Vec::with_capacity(HEAD_BYTES + self.fingerprints.len()));
        if self.segments == 0 {
            writer.u32(NONE);
        } else {
            writer
                .u32(BINARY_FUSE_8)
                .u32(self.segment)
                .u32(self.segments)
                .u32(0)
                .u64(self.seed)
                .raw(&self.fingerprints);
        }
        writer.into_vec()
    }

    /// Takes the bytes of a filter in.
    ///
    /// # Errors
    /// [`Malformed`]: nothing laid them here.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        match reader.u32("filter kind")? {
            NONE => reader.end().map(|()| Filter::default()),
            BINARY_FUSE_8 => {
                let (segment, segments) = (reader.u32("segment")?, reader.u32("segments")?);
                reader.u32("zero")?;
                let seed = reader.u64("seed")?;
                let filter = Filter { seed, segment, segments, fingerprints: reader.rest().into() };
                if filter.is_whole() { Ok(filter) } else { Err(Malformed { field: "fingerprints" }) }
            }
            _ => Err(Malformed { field: "filter kind" }),
        }
    }

    /// Whether the three places of every hash are in it.
    fn is_whole(&self) -> bool {
        let fingerprints = (u64::from(self.segments) + 2).checked_mul(u64::from(self.segment));
        self.segment.is_power_of_two()
            && self.segments > 0
            && self.segments.checked_mul(self.segment).is_some()
            && fingerprints.and_then(|count| usize::try_from(count).ok()) == Some(self.fingerprints.len())
    }

    /// Whether a key with this hash may be there; `false`: it is not.
    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        if self.segments == 0 {
            return true;
        }
        let hash = mix(hash.wrapping_add(self.seed));
        let (segment, mask) = (u64::from(self.segment), u64::from(self.segment) - 1);
        let range = u128::from(self.segments) * u128::from(self.segment);
        // One place in each of three neighbouring segments.
        let first = u64::try_from((u128::from(hash) * range) >> 64).unwrap_or(0);
        let second = (first + segment) ^ ((hash >> 18) & mask);
        let third = (first + 2 * segment) ^ (hash & mask);
        let [wanted, ..] = (hash ^ (hash >> 32)).to_le_bytes();
        wanted == self.at(first) ^ self.at(second) ^ self.at(third)
    }

    fn at(&self, place: u64) -> u8 {
        usize::try_from(place).ok().and_then(|place| self.fingerprints.get(place)).copied().unwrap_or(0)
    }

    /// The memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.fingerprints.len()
    }
}

/// The finalizer of MurmurHash3: each bit of the answer hangs on every bit.
pub(crate) const fn mix(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(count: u64) -> Vec<u64> {
        (0..count).map(|number| hash(&number.to_be_bytes())).collect()
    }

    #[test]
    fn every_member_is_held_and_few_others() {
        for count in [0, 1, 2, 3, 7, 100, 5_000, 100_000] {
            let members = hashes(count);
            let laid = lay(&mut members.clone());
            let filter = Filter::parse(&laid).unwrap();
            assert!(filter.segments > 0, "a filter of {count} was built");
            assert!(members.iter().all(|hash| filter.may_hold(*hash)), "{count}");
            let strangers =
                (count..count + 20_000).filter(|number| filter.may_hold(hash(&number.to_be_bytes()))).count();
            assert!(strangers < 400, "{strangers} of 20,000 strangers held with {count} members");
            assert!(count < 5_000 || laid.len() * 8 < usize::try_from(count).unwrap() * 11, "{} bytes", laid.len());
        }
    }

    #[test]
    fn hashes_are_put_in_order_however_they_are_spread() {
        for count in [0, 1, 2, 31, 32, 33, 5_000, 70_000] {
            let even = hashes(count);
            let narrow: Vec<u64> = even.iter().map(|hash| 7 << 60 | hash >> 30).collect();
            let steps: Vec<u64> = (0..count).rev().map(|number| number / 3).collect();
            for spread in [even, narrow, steps, vec![u64::MAX; 100], vec![0; 100]] {
                let (mut own, mut plain) = (spread.clone(), spread);
                sort(&mut own);
                plain.sort_unstable();
                assert!(own == plain, "{count}");
            }
        }
    }

    #[test]
    fn keys_with_one_hash_are_one_member() {
        let mut members = hashes(10);
        members.extend(hashes(10));
        let filter = Filter::parse(&lay(&mut members)).unwrap();
        assert!(hashes(10).iter().all(|hash| filter.may_hold(*hash)));
    }

    #[test]
    fn what_no_filter_is_is_refused_and_what_is_cannot_panic() {
        let good = lay(&mut hashes(100));
        assert!(Filter::parse(&good[..good.len() - 1]).is_err());
        assert!(Filter::parse(&[]).is_err());
        assert!(Filter::parse(&[2, 0, 0, 0]).is_err());
        assert_eq!(Filter::parse(&Filter::default().laid()), Ok(Filter::default()));
        for (segment, segments) in [(3, 1), (0, 1), (4, 0), (u32::MAX, u32::MAX), (1 << 31, 2)] {
            let mut writer = Writer::new();
            writer.u32(BINARY_FUSE_8).u32(segment).u32(segments).u32(0).u64(1).raw(&[0; 12]);
            assert!(Filter::parse(writer.as_slice()).is_err(), "{segment} {segments}");
        }
        let filter = Filter { seed: 9, segment: 4, segments: 1, fingerprints: [7; 12].into() };
        assert!(filter.is_whole());
        (0..10_000).for_each(|number| _ = filter.may_hold(mix(number)));
    }
}
