//! One entry of a group's log, and the chain that ties it to everything before it.
//!
//! ```text
//!   before the payload, in the journal and in the stream:   | epoch 4 | sequence 8 | chain 8 |
//! ```
//! The chain of an entry is a hash of the chain before it and of all that the entry says: two logs that share it share
//! everything up to there. Damage is told by the journal's checksums; the chain tells another history.

use assent_frame::{Malformed, Reader};
use assent_ids::Epoch;
use assent_membership::{Place, Sequence};
use bytes::{Buf as _, Bytes};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The most bytes of one command: any entry fits a message.
pub const COMMAND_BYTES_MAX: usize = 512 << 10;
/// Bytes before a payload.
pub(crate) const HEADER_BYTES: usize = 20;

/// A hash of everything up to one entry. All zeroes before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chain(pub u64);

/// An entry's number, and the chain up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// Its number; 0 before the first.
    pub sequence: Sequence,
    /// The chain.
    pub chain: Chain,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The primary of which epoch put it there.
    pub epoch: Epoch,
    /// Its number.
    pub sequence: Sequence,
    /// The chain up to it.
    pub chain: Chain,
    /// What the payload is; nobody here looks.
    pub kind: u16,
    /// The command: a part of the bytes that it came in with others, which all handles share.
    pub payload: Bytes,
}

impl Entry {
    /// The entry that follows this place.
    #[must_use]
    pub fn behind(before: Mark, epoch: Epoch, kind: u16, payload: Bytes) -> Self {
        let sequence = Sequence(before.sequence.0.saturating_add(1));
        Self { epoch, sequence, chain: chain(before.chain, epoch, sequence, kind, &payload), kind, payload }
    }

    /// Whether it is the next one behind this place, of the same history.
    #[must_use]
    pub fn follows(&self, before: Mark) -> bool {
        let next = before.sequence.0.checked_add(1) == Some(self.sequence.0);
        next && self.chain == chain(before.chain, self.epoch, self.sequence, self.kind, &self.payload)
    }

    /// Its number and chain.
    #[must_use]
    pub const fn mark(&self) -> Mark {
        Mark { sequence: self.sequence, chain: self.chain }
    }

    /// Its name in the group.
    #[must_use]
    pub const fn place(&self) -> Place {
        Place { epoch: self.epoch, sequence: self.sequence }
    }

    /// How much room it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.payload.len()
    }

    /// What stands before the payload.
    #[must_use]
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let (epoch, rest) = header.split_at_mut(4);
        let (sequence, chain) = rest.split_at_mut(8);
        epoch.copy_from_slice(&self.epoch.0.to_le_bytes());
        sequence.copy_from_slice(&self.sequence.0.to_le_bytes());
        chain.copy_from_slice(&self.chain.0.to_le_bytes());
        header
    }

    /// The entry of these bytes: header and payload, which is not copied.
    ///
    /// # Errors
    /// [`Malformed`] if they end before the header does. Whether it follows another is for [`Entry::follows`].
    pub fn parse(kind: u16, mut bytes: Bytes) -> Result<Self, Malformed> {
        let mut fields = Reader::new(&bytes);
        let epoch = Epoch(fields.u32("epoch")?);
        let sequence = Sequence(fields.u64("sequence")?);
        let chain = Chain(fields.u64("chain")?);
        if fields.rest().len() > COMMAND_BYTES_MAX {
            return Err(Malformed { field: "payload" });
        }
        bytes.advance(HEADER_BYTES);
        Ok(Self { epoch, sequence, chain, kind, payload: bytes })
    }
}

fn chain(before: Chain, epoch: Epoch, sequence: Sequence, kind: u16, payload: &[u8]) -> Chain {
    let mut name = [0; 16];
    let (rows, _) = name.as_chunks_mut::<8>();
    if let [first, last] = rows {
        *first = sequence.0.to_le_bytes();
        *last = (u64::from(epoch.0) << 16 | u64::from(kind)).to_le_bytes();
    }
    Chain(xxh3_64_with_seed(payload, xxh3_64_with_seed(&name, before.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_follows_one_history_and_no_other() {
        let first = Entry::behind(Mark::default(), Epoch(1), 7, Bytes::from_static(b"one"));
        let second = Entry::behind(first.mark(), Epoch(2), 7, Bytes::from_static(b"two"));
        assert!(first.follows(Mark::default()) && second.follows(first.mark()));
        assert!(!second.follows(Mark::default()), "a gap");
        let other = Entry::behind(Mark::default(), Epoch(1), 7, Bytes::from_static(b"eno"));
        assert!(!second.follows(other.mark()), "another history");
        for changed in [
            Entry { epoch: Epoch(1), ..second.clone() },
            Entry { kind: 8, ..second.clone() },
            Entry { payload: Bytes::from_static(b"Two"), ..second.clone() },
            Entry { sequence: Sequence(3), ..second },
        ] {
            assert!(!changed.follows(first.mark()), "{changed:?}");
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_laid_and_the_longest_is_taken() {
        let entry =
            Entry::behind(Mark { sequence: Sequence(41), chain: Chain(9) }, Epoch(3), 5, Bytes::from_static(b"x"));
        let laid = [&entry.header()[..], &entry.payload].concat();
        assert_eq!(Entry::parse(5, laid.clone().into()), Ok(entry.clone()));
        assert_eq!(Entry::parse(5, laid[..19].to_vec().into()), Err(Malformed { field: "chain" }));
        let longest = [&entry.header()[..], &vec![0; COMMAND_BYTES_MAX]].concat();
        assert!(Entry::parse(5, longest.clone().into()).is_ok());
        assert_eq!(Entry::parse(5, [longest, vec![0]].concat().into()), Err(Malformed { field: "payload" }));
    }
}
