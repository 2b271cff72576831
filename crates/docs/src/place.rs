//! Places of fragments in the log, and chains of them: what leads to a page.
//!
//! ```text
//!   place   LSN of the entry, its lowest three bits the entry's size class: 6 bytes · index in the entry (varint)
//!   chain   how many (varint) · places, the newest first
//! ```
//! An LSN is a multiple of eight, so three bits are free; they say how much to read at once. Zeroes instead of an LSN mean: in
//! the entry that says so. An entry does not know its own LSN before it is appended; whoever reads one resolves them.
//!
//! Walk: [`Chain::read`], [`Chain::lay`] · [`Place::resolve`], and [`resolve`] for a fragment whose records are chains.
//! Deliberately absent: LSNs beyond 2^48 bytes. That is 256 TiB of log.

use assent_frame::{Malformed, Reader};
use assent_ids::Lsn;
use smallvec::SmallVec;

use crate::fragment;
use crate::record::{TEXT, WHOLE};
use crate::varint;
use crate::versioning::WINDOW_MAX;

/// Places in the log end before this.
pub(crate) const LSN_END: u64 = 1 << 48;
/// An entry of the lowest size class has at most this many bytes of payload; each further class twice as many.
const CLASS_BYTES: usize = 4096 - 24;
const CLASS_MAX: u32 = 7;
const CHAIN: &str = "chain";
/// As many as the strategy that documents have by default; longer chains take memory of their own.
const FEW: usize = 3;

/// Lays an LSN in six bytes.
pub(crate) fn lay_lsn(out: &mut Vec<u8>, lsn: u64) {
    let [bytes @ .., _, _] = lsn.to_le_bytes();
    out.extend_from_slice(&bytes);
}

/// # Errors
/// [`Malformed`] with the field's name.
pub(crate) fn read_lsn(reader: &mut Reader<'_>, field: &'static str) -> Result<u64, Malformed> {
    let (low, high) = (reader.u32(field)?, reader.u16(field)?);
    Ok(u64::from(low) | u64::from(high) << 32)
}

/// An entry of the log, with how long it is, about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Entry(u64);

impl Entry {
    /// The entry that says so.
    pub(crate) const HERE: Entry = Entry(0);

    /// The entry there, with so many bytes of payload.
    pub(crate) fn new(lsn: Lsn, payload_bytes: usize) -> Self {
        let classes = payload_bytes.div_ceil(CLASS_BYTES).next_power_of_two().trailing_zeros();
        Self(lsn.0 & !7 | u64::from(classes.min(CLASS_MAX)))
    }

    pub(crate) const fn lsn(self) -> Lsn {
        Lsn(self.0 & !7)
    }

    /// So many bytes of payload are worth reading at once.
    pub(crate) const fn payload_bytes(self) -> usize {
        CLASS_BYTES << (self.0 & 7)
    }

    /// As six bytes.
    pub(crate) const fn laid(self) -> u64 {
        self.0
    }

    pub(crate) const fn of(laid: u64) -> Self {
        Self(laid)
    }
}

/// One fragment: the entry that has it, and which of that entry's it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) entry: Entry,
    pub(crate) index: u32,
}

impl Place {
    /// A fragment of the entry that says so.
    pub(crate) const fn here(index: u32) -> Self {
        Self { entry: Entry::HERE, index }
    }

    /// Whether it is in the entry that says so.
    pub(crate) fn is_here(self) -> bool {
        self.entry == Entry::HERE
    }

    pub(crate) fn resolve(self, here: Entry) -> Self {
        if self.is_here() { Self { entry: here, ..self } } else { self }
    }
}

/// What leads to a page: its fragments, the newest first. None: there is no page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain(pub(crate) SmallVec<[Place; FEW]>);

impl FromIterator<Place> for Chain {
    fn from_iter<I: IntoIterator<Item = Place>>(places: I) -> Self {
        Self(places.into_iter().collect())
    }
}

impl Chain {
    pub(crate) fn lay(&self, out: &mut Vec<u8>) {
        varint::lay(out, u64::try_from(self.0.len()).unwrap_or(u64::MAX));
        for place in &self.0 {
            lay_lsn(out, place.entry.laid());
            varint::lay(out, place.index.into());
        }
    }

    pub(crate) fn laid(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 + 8 * self.0.len());
        self.lay(&mut out);
        out
    }

    /// # Errors
    /// [`Malformed`], also for more fragments than any strategy allows.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = read_count(reader)?;
        let place = |_| {
            let entry = Entry::of(read_lsn(reader, CHAIN)?);
            let index = u32::try_from(varint::read(reader, CHAIN)?).map_err(|_| Malformed { field: CHAIN })?;
            Ok(Place { entry, index })
        };
        (0..count).map(place).collect::<Result<_, _>>().map(Self)
    }

    /// A chain that is all of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let chain = Self::read(&mut reader)?;
        reader.end()?;
        Ok(chain)
    }

    pub(crate) fn resolved(mut self, here: Entry) -> Self {
        self.0.iter_mut().for_each(|place| *place = place.resolve(here));
        self
    }

    pub(crate) fn newest(&self) -> Option<Place> {
        self.0.first().copied()
    }
}

/// Resolves the chains that a fragment's records are, in place: a chain keeps its length.
///
/// # Errors
/// [`Malformed`] if it cannot be read.
pub(crate) fn resolve(bytes: &mut [u8], here: Entry) -> Result<(), Malformed> {
    let mut places = Vec::new();
    let mut walk = fragment::records(bytes)?;
    while walk.slot()?.is_some() {
        let record = walk.record()?;
        if record.mask == WHOLE | TEXT {
            // It ends where the record does: a chain's record has nothing behind its text.
            let end = walk.at();
            here_in(record.text, |left| places.push(end - left))?;
        }
    }
    let mut laid = Vec::with_capacity(6);
    lay_lsn(&mut laid, here.laid());
    for at in places {
        bytes.get_mut(at..at + laid.len()).ok_or(Malformed { field: "chain" })?.copy_from_slice(&laid);
    }
    Ok(())
}

/// Tells of each place of a chain that is in the entry that says so, how far before the chain's end it stands.
fn here_in(chain: &[u8], mut told: impl FnMut(usize)) -> Result<(), Malformed> {
    let mut reader = Reader::new(chain);
    for _ in 0..read_count(&mut reader)? {
        let left = reader.rest().len();
        if Entry::of(read_lsn(&mut reader, CHAIN)?) == Entry::HERE {
            told(left);
        }
        varint::read(&mut reader, CHAIN)?;
    }
    reader.end()
}

fn read_count(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let count = varint::read(reader, CHAIN)?;
    if count > WINDOW_MAX.into() { Err(Malformed { field: CHAIN }) } else { Ok(count) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fragment::Records;
    use crate::record::Record;

    #[test]
    fn an_entry_says_how_much_to_read() {
        for (bytes, read) in [(0, 4072), (100, 4072), (4072, 4072), (4073, 8144), (8145, 16288), (1 << 30, 4072 << 7)] {
            let entry = Entry::new(Lsn(800), bytes);
            assert_eq!((entry.lsn(), entry.payload_bytes()), (Lsn(800), read));
        }
    }

    #[test]
    fn a_chain_comes_back_and_what_is_here_is_resolved() {
        let elsewhere = Place { entry: Entry::new(Lsn(0xabcd_ef01_2340), 9000), index: 300 };
        let chain = Chain::from_iter([Place::here(2), elsewhere]);
        let laid = chain.laid();
        assert_eq!((Chain::of(&laid), laid.len()), (Ok(chain.clone()), 1 + 7 + 8));
        for end in 0..laid.len() {
            assert!(Chain::of(&laid[..end]).is_err(), "{end}");
        }
        let here = Entry::new(Lsn(64), 10);
        let mut bytes = fragment::lay(&Records::from([(3, Record::text(&laid)), (9, Record::text(&laid))]));
        resolve(&mut bytes, here).unwrap();
        let resolved = chain.resolved(here);
        assert_eq!(resolved.0.as_slice(), [Place { entry: here, index: 2 }, elsewhere]);
        for record in fragment::records(&bytes).unwrap() {
            assert_eq!(Chain::of(record.unwrap().1.text), Ok(resolved.clone()));
        }
    }
}
