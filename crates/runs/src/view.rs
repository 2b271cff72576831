//! A view: the map as it was at one moment, for as long as somebody looks.
//!
//! Walk: [`View::get`] and [`View::newest`] ask for one key · [`View::range`] walks, from both ends.
//! Deliberately absent: leases. A view holds memory and files until it is dropped; how long that may be is the owner's.

use std::ops::Bound;
use std::sync::Arc;

use crate::RunsError;
use crate::run_reader::OwnedEntry;
use crate::version::Version;
use crate::walk::Walk;

/// A value, and where the key became it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The place in the owner's order.
    pub seq: u64,
    /// The value.
    pub value: Vec<u8>,
}

/// What a key became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newest {
    /// The place in the owner's order.
    pub seq: u64,
    /// The value; `None`: it was deleted or erased there.
    pub value: Option<Vec<u8>>,
}

/// The map at one moment. Cheap to make; it pins what it sees.
#[derive(Clone, Debug)]
pub struct View {
    version: Arc<Version>,
    seq: u64,
}

pub(crate) fn found(became: Option<OwnedEntry>) -> Option<Found> {
    let OwnedEntry { seq, value } = became?;
    value.map(|value| Found { seq, value })
}

impl View {
    pub(crate) fn of(version: Arc<Version>) -> Self {
        let seq = version.seq();
        Self { version, seq }
    }

    /// The newest place that it sees.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// The value of a key.
    ///
    /// # Errors
    /// `Damaged` naming file and place; as the disk says. Another key may well be read.
    pub fn get(&self, key: &[u8]) -> Result<Option<Found>, RunsError> {
        Ok(found(self.version.find(key, self.seq)?))
    }

    /// What a key became last, a deletion too, as far as that is still known: deletions that have nothing more to hide are
    /// forgotten by merges. So two views that agree here agree about the key; one that says nothing says that it has none.
    ///
    /// # Errors
    /// As [`View::get`].
    pub fn newest(&self, key: &[u8]) -> Result<Option<Newest>, RunsError> {
        let became = self.version.find(key, self.seq)?;
        Ok(became.map(|OwnedEntry { seq, value }| Newest { seq, value }))
    }

    /// A walk over the keys between two bounds.
    #[must_use]
    pub fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Walk<'_> {
        Walk::new(&self.version, self.seq, from.map(<[u8]>::to_vec), to.map(<[u8]>::to_vec))
    }
}
