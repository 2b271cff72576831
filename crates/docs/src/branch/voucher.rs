//! The witness of a vote: where the branch is prepared, and the hash of what stands there. No other database has the same there, and no
//! older copy of this one.
//!
//! ```text
//!   version 1 · LSN 8 · XXH3-64 of the entry's payload 8
//! ```
//! Walk: [`lay`] is what the coordinator keeps · [`read`] is what it asks with.
//! Deliberately absent: the name of the store. What stands in its journal says more.

use assent_frame::{Reader, Writer};
use assent_ids::Lsn;
use xxhash_rust::xxh3::xxh3_64;

const VERSION: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Voucher {
    pub(crate) prepare: Lsn,
    hash: u64,
}

impl Voucher {
    /// Whether this is what stood there.
    pub(crate) fn is_of(&self, payload: &[u8]) -> bool {
        xxh3_64(payload) == self.hash
    }
}

pub(crate) fn lay(prepare: Lsn, payload: &[u8]) -> Vec<u8> {
    let mut laid = Writer::new();
    laid.u8(VERSION).u64(prepare.0).u64(xxh3_64(payload));
    laid.into_vec()
}

/// Nothing for what no such store gave.
pub(crate) fn read(witness: &[u8]) -> Option<Voucher> {
    let mut reader = Reader::new(witness);
    let version = reader.u8("version").ok()?;
    let (prepare, hash) = (Lsn(reader.u64("prepare").ok()?), reader.u64("hash").ok()?);
    reader.end().ok()?;
    (version == VERSION).then_some(Voucher { prepare, hash })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_witness_comes_back_and_is_of_one_entry() {
        let laid = lay(Lsn(800), b"payload");
        let voucher = read(&laid).unwrap();
        assert!(voucher.prepare == Lsn(800) && voucher.is_of(b"payload") && !voucher.is_of(b"another"));
        for wrong in [&laid[..16], &[&laid[..], &[0]].concat(), &[&[2], &laid[1..]].concat(), &[]] {
            assert_eq!(read(wrong), None);
        }
    }
}
