//! Values that cannot be compressed and cannot be mistaken: each names its key and version and carries its checksums.
//!
//! ```text
//!   0        8        16        24        32         40
//!   | key    | version | indexed | body's  | head's   | body: a slice of one pool of noise
//!   |        |         |         | XXH3-64 | XXH3-64  |
//! ```
//! *indexed* is the version whose index entries stand, 0 for none; whoever updates without touching the index hands it on.

use assent_kind::Kind;
use xxhash_rust::xxh3::xxh3_64;

use super::keys::{Draw, mixed};
use crate::BenchError;

/// What stands before the body.
pub const HEAD_BYTES: usize = 40;
/// The largest value.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
const POOL_BYTES: usize = 4 << 20;
/// Short bodies are cut from its beginning, which a processor keeps at hand: each would else be a miss of its cache, whatever the store.
const SHORT_BYTES: usize = 1 << 10;
const SHORT_POOL_BYTES: usize = 256 << 10;
const HASHED: usize = 32;

const _: () = assert!(VALUE_BYTES_MAX * 2 <= POOL_BYTES, "a body of any length has many places in the pool");

/// What a value says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Its key's number.
    pub key: u64,
    /// Its key's version, from 1.
    pub version: u64,
    /// The version whose index entries stand; 0 for none.
    pub indexed: u64,
}

/// Noise that bodies are cut from.
#[derive(Debug)]
pub struct Pool {
    noise: Vec<u8>,
}

impl Pool {
    /// The same noise for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        let noise = std::iter::repeat_with(|| draw.bits().to_le_bytes()).take(POOL_BYTES / 8).flatten().collect();
        Self { noise }
    }

    /// Lays a value of `bytes` bytes, at least [`HEAD_BYTES`].
    pub fn lay(&self, head: Head, bytes: usize, into: &mut Vec<u8>) {
        let body = bytes.saturating_sub(HEAD_BYTES);
        let pool = if body < SHORT_BYTES { SHORT_POOL_BYTES } else { POOL_BYTES };
        let places = u64::try_from(pool - body.min(VALUE_BYTES_MAX)).unwrap_or(1);
        let at = usize::try_from(mixed(head.key ^ mixed(head.version)) % places).unwrap_or(0);
        let body = self.noise.get(at..at + body).unwrap_or_default();
        into.clear();
        for field in [head.key, head.version, head.indexed, xxh3_64(body)] {
            into.extend_from_slice(&field.to_le_bytes());
        }
        let sum = xxh3_64(into);
        into.extend_from_slice(&sum.to_le_bytes());
        into.extend_from_slice(body);
    }
}

/// Takes a head apart; `value` is the whole value or its beginning.
///
/// # Errors
/// [`Kind::Corrupt`] where it is none, or another key's.
pub fn head(key: u64, value: &[u8]) -> Result<Head, BenchError> {
    let wrong = |what: String| BenchError::new(Kind::Corrupt, format!("wrong value of key {key}: {what}"));
    let field = |at: usize| {
        let bytes = value.get(at * 8..at * 8 + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_le_bytes).ok_or_else(|| wrong(format!("{} bytes are no head", value.len())))
    };
    let sum = xxh3_64(value.get(..HASHED).unwrap_or_default());
    if field(4)? != sum {
        return Err(wrong(format!("its head's checksum is {sum:#018x}, it says {:#018x}", field(4)?)));
    }
    let head = Head { key: field(0)?, version: field(1)?, indexed: field(2)? };
    if head.key == key { Ok(head) } else { Err(wrong(format!("it is the value of key {}", head.key))) }
}

/// Checks a whole value.
///
/// # Errors
/// [`Kind::Corrupt`] where it is not one of `bytes` bytes that this key was given.
pub fn check(key: u64, value: &[u8], bytes: usize) -> Result<Head, BenchError> {
    let wrong = |what: String| BenchError::new(Kind::Corrupt, format!("wrong value of key {key}: {what}"));
    if value.len() != bytes {
        return Err(wrong(format!("{} bytes, {bytes} were written", value.len())));
    }
    let head = head(key, value)?;
    let said = value.get(24..HASHED).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let sum = xxh3_64(value.get(HEAD_BYTES..).unwrap_or_default());
    if said == Some(sum) {
        Ok(head)
    } else {
        Err(wrong(format!("version {}: its body's checksum is {sum:#018x}", head.version)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_value_counts() {
        let pool = Pool::new(7);
        let head = Head { key: 9, version: 3, indexed: 2 };
        let mut value = Vec::new();
        pool.lay(head, 200, &mut value);
        assert_eq!(check(9, &value, 200).unwrap(), head);
        assert_eq!(super::head(9, &value[..HEAD_BYTES]).unwrap(), head);
        for at in 0..value.len() {
            let mut damaged = value.clone();
            damaged[at] ^= 1;
            assert_eq!(check(9, &damaged, 200).unwrap_err().kind(), Kind::Corrupt, "byte {at}");
        }
        assert!(check(8, &value, 200).unwrap_err().message.contains("key 9"));
        assert!(check(9, &value[..199], 200).is_err() && check(9, &[], 0).is_err());
        pool.lay(head, HEAD_BYTES, &mut value);
        assert_eq!(check(9, &value, HEAD_BYTES).unwrap(), head);
        pool.lay(head, VALUE_BYTES_MAX, &mut value);
        assert_eq!(check(9, &value, VALUE_BYTES_MAX).unwrap(), head);
    }

    #[test]
    fn bodies_differ_from_version_to_version_and_are_noise() {
        let pool = Pool::new(1);
        let (mut one, mut two) = (Vec::new(), Vec::new());
        pool.lay(Head { key: 1, version: 1, indexed: 0 }, 8_192, &mut one);
        pool.lay(Head { key: 1, version: 2, indexed: 0 }, 8_192, &mut two);
        assert_ne!(one[HEAD_BYTES..], two[HEAD_BYTES..]);
        let mut seen = [0_u32; 256];
        one[HEAD_BYTES..].iter().for_each(|byte| seen[usize::from(*byte)] += 1);
        assert!(seen.iter().all(|count| (5..80).contains(count)), "{seen:?}");
    }

    #[test]
    fn short_bodies_differ_too_and_are_cut_from_what_a_processor_keeps() {
        let (pool, mut value) = (Pool::new(1), Vec::new());
        let mut bodies = std::collections::BTreeSet::new();
        for version in 0..1000 {
            pool.lay(Head { key: 1, version, indexed: 0 }, 64, &mut value);
            let (_, body) = value.split_at(HEAD_BYTES);
            assert!(pool.noise[..SHORT_POOL_BYTES].windows(body.len()).any(|piece| piece == body), "version {version}");
            bodies.insert(body.to_vec());
        }
        assert!(bodies.len() > 990, "{}", bodies.len());
    }
}
