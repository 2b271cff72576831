//! Which key comes next, and how a key looks.
//!
//! Objects have keys `o`, a scattered number, the number; index entries `i`, field, term, the object's number. So the hot
//! keys lie scattered over the order of keys, and all objects are one range.

use serde::{Deserialize, Serialize};

/// Bytes of an object's key.
pub const KEY_BYTES: usize = 17;
/// Bytes of an index entry's key.
pub const ENTRY_BYTES: usize = 18;
/// All objects lie from the first up to and without the second.
pub const OBJECTS: (&[u8], &[u8]) = (b"o", b"p");
/// All index entries.
pub const ENTRIES: (&[u8], &[u8]) = (b"i", b"j");
/// Terms of one field.
pub const TERMS: u64 = 100_000;

/// A Pareto distribution of this shape, whose scale is this share of the keys, cut off at the last key: 80 % of the draws fall
/// on 20 % of the keys. The shape is that of the field's load generator.
const SHAPE: f64 = 1.5;
const SCALE: f64 = 0.119;

/// How the draws fall on the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// 80 % on 20 % of the keys.
    Pareto,
    /// The same on each.
    Uniform,
}

impl Spread {
    /// Its name in a report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pareto => "pareto",
            Self::Uniform => "uniform",
        }
    }

    /// The next key of `keys`.
    pub fn draw(self, draw: &mut Draw, keys: u64) -> u64 {
        match self {
            Self::Uniform => draw.below(keys),
            Self::Pareto => {
                let whole = 1.0 - (1.0 + 1.0 / SCALE).powf(-SHAPE);
                let place = ((1.0 - draw.share() * whole).powf(-1.0 / SHAPE) - 1.0) * SCALE;
                floor(place * super::number(keys)).min(keys.saturating_sub(1))
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count, at least 0")]
fn floor(value: f64) -> u64 {
    value as u64
}

/// Numbers that look like chance and can be had again. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators" (2014).
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// Another sequence for each seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(mixed(seed))
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// The next number below `limit`; 0 where that is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        let wide = u128::from(self.bits()) * u128::from(limit);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// The next number from 0 up to and without 1.
    pub fn share(&mut self) -> f64 {
        super::number(self.bits() >> 11) / super::number(1 << 53)
    }
}

/// Every number to another one, one to one.
#[must_use]
pub const fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The key of an object.
#[must_use]
pub fn object(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    let fields = [&b"o"[..], &mixed(number).to_be_bytes(), &number.to_be_bytes()].concat();
    key.copy_from_slice(&fields);
    key
}

/// The number of an object's key.
#[must_use]
pub fn number_of(key: &[u8]) -> Option<u64> {
    let bytes: [u8; KEY_BYTES] = key.try_into().ok()?;
    let number = u64::from_be_bytes(bytes.last_chunk::<8>().copied()?);
    (bytes == object(number)).then_some(number)
}

/// The term that an object has in a field, as of the version that was indexed.
#[must_use]
pub const fn term(number: u64, indexed: u64, field: u8) -> u64 {
    mixed(number ^ mixed(indexed ^ ((field as u64) << 56))) % TERMS
}

/// The key of an index entry; with number 0 the first that a range of terms can hold.
#[must_use]
pub fn entry(field: u8, term: u64, number: u64) -> [u8; ENTRY_BYTES] {
    let mut key = [0; ENTRY_BYTES];
    let fields = [&[b'i', field][..], &term.to_be_bytes(), &number.to_be_bytes()].concat();
    key.copy_from_slice(&fields);
    key
}

/// Field, term and object's number of an index entry's key.
#[must_use]
pub fn parts_of(key: &[u8]) -> Option<(u8, u64, u64)> {
    let (term, number) = (key.get(2..10)?.try_into().ok()?, key.get(10..)?.try_into().ok()?);
    let parts = (*key.get(1)?, u64::from_be_bytes(term), u64::from_be_bytes(number));
    (key == entry(parts.0, parts.1, parts.2)).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_fifths_of_the_draws_fall_on_a_fifth_of_the_keys() {
        let (mut draw, keys, draws) = (Draw::new(1), 10_000, 200_000_u32);
        let mut counts = vec![0_u32; 10_000];
        for _ in 0..draws {
            counts[usize::try_from(Spread::Pareto.draw(&mut draw, keys)).unwrap()] += 1;
        }
        let hot: u32 = counts[..2_000].iter().sum();
        assert!((0.79..0.81).contains(&(f64::from(hot) / f64::from(draws))), "{hot}");
        assert!(counts[9_000..].iter().sum::<u32>() > 0, "the last keys are drawn too");
        let uniform: Vec<u64> = (0..draws).map(|_| Spread::Uniform.draw(&mut draw, keys)).collect();
        let first = uniform.iter().filter(|key| **key < 2_000).count();
        assert!((38_000..42_000).contains(&first) && uniform.iter().all(|key| *key < keys), "{first}");
        assert_eq!((Spread::Pareto.draw(&mut draw, 1), Spread::Uniform.draw(&mut draw, 1)), (0, 0));
    }

    #[test]
    fn keys_are_told_apart_and_taken_apart() {
        for number in [0, 1, 77, u64::MAX] {
            let key = object(number);
            assert_eq!(number_of(&key), Some(number));
            assert!(OBJECTS.0 <= key.as_slice() && key.as_slice() < OBJECTS.1);
            let entry = entry(3, term(number, 1, 3), number);
            assert!(ENTRIES.0 <= entry.as_slice() && entry.as_slice() < ENTRIES.1);
            assert_eq!((number_of(&entry), parts_of(&key)), (None, None));
            assert_eq!(parts_of(&entry), Some((3, term(number, 1, 3), number)));
            assert_eq!((parts_of(&entry[..17]), parts_of(&[&entry[..], b"x"].concat())), (None, None));
        }
        assert_eq!(number_of(b"o"), None);
        let mut wrong = object(5);
        wrong[3] ^= 1;
        assert_eq!(number_of(&wrong), None);
    }
}
