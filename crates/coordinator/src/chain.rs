//! The hash chain over everything that the coordinator lays: what was told cannot be changed later without breaking it.
//!
//! Walk: [`Chain::take`] hashes each record as it is laid or read · [`Chain::seal`] ends a run: a record with the digest
//! over it · the next run begins with that digest.
//! Deliberately absent: a secret. Whoever can rewrite the whole log can rewrite the chain; who keeps a head digest
//! elsewhere finds that out ([`crate::history::verify`]).

use std::fmt;

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::str::FromStr for Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is no digest; one is 64 hexadecimal digits");
        if text.len() != 64 || !text.is_ascii() {
            return Err(wrong());
        }
        let mut digest = Self::default();
        for (at, byte) in digest.0.iter_mut().enumerate() {
            let pair = text.get(2 * at..2 * at + 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(digest)
    }
}

/// The end of a run of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seal {
    /// The first is 1.
    pub number: u64,
    /// The digest of the seal before; zero before the first.
    pub previous: Digest,
    /// Over the previous digest, the run's records, and this seal's other fields.
    pub digest: Digest,
    /// Records of the run.
    pub count: u64,
    /// When, in milliseconds since 1970; 0 before the first.
    pub at_ms: u64,
}

/// Where the chain stands.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    last: Seal,
    run: Sha256,
    count: u64,
}

impl Default for Chain {
    fn default() -> Self {
        Self::behind(Seal::default())
    }
}

impl Chain {
    /// The chain right behind a seal.
    pub(crate) fn behind(last: Seal) -> Self {
        Self { last, run: Sha256::new().chain_update(last.digest.0), count: 0 }
    }

    /// A record, in the order of the log.
    pub(crate) fn take(&mut self, kind: u16, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.run.update(kind.to_le_bytes());
        self.run.update(u64::try_from(bytes).unwrap_or(u64::MAX).to_le_bytes());
        parts.iter().for_each(|part| self.run.update(part));
        self.count += 1;
    }

    /// The seal that would end the run now.
    pub(crate) fn seal(&self, at_ms: u64) -> Seal {
        let (number, count) = (self.last.number + 1, self.count);
        let words = [number, count, at_ms].map(u64::to_le_bytes).concat();
        let digest = Digest(self.run.clone().chain_update(words).finalize().into());
        Seal { number, previous: self.last.digest, digest, count, at_ms }
    }

    /// The seal before the run.
    pub(crate) const fn last(&self) -> Seal {
        self.last
    }

    /// Records since the last seal.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use assent_world::{Clock, RealClock};

    use super::*;

    #[test]
    fn the_digests_are_those_of_the_format_document() {
        // Computed from docs/format.md with another program's SHA-256.
        let mut chain = Chain::default();
        chain.take(0x0102, &[b"a", b"bc"]);
        chain.take(0x0202, &[]);
        let first = chain.seal(5);
        assert_eq!(first.digest.to_string(), "08fa35bedc8312b270959941d938fe10abd46eda488720e01be1e960fec6b2c8");
        let mut chain = Chain::behind(first);
        chain.take(0x0701, &[b"z"]);
        let second = chain.seal(6);
        assert_eq!((second.number, second.previous, second.count), (2, first.digest, 1));
        assert_eq!(second.digest.to_string(), "a7217d3c9ebcc5791496fac39a2ac59408040ae1ac916936b4f49386e68972c3");
    }

    #[test]
    #[ignore = "prints a figure, judges nothing: cargo test --release -p assent-coordinator -- --ignored --nocapture figure"]
    fn figure_of_the_chain_in_each_decision() {
        let (mut chain, begun) = (Chain::default(), RealClock.now());
        let (head, branches, forgotten) = ([1; 26], [2; 34], [3; 16]);
        (0..1_000_000).for_each(|_| chain.take(0x0102, &[&head, &branches, &forgotten]));
        let took = RealClock.now().since(begun);
        println!("{} ns a record; {}", took.as_nanos() / 1_000_000, chain.seal(0).digest);
    }
}
