//! Which values of the oldest cells of the journal are known to be dead: a bit for each, so that a compaction asks the ledger of the others only.
//!
//! A merge meets the row of a value that was superseded, and of what it was superseded by: nobody has to look for that again. Of small values
//! a look-up costs more than all else that is done to one on its way to its end. Kept in memory alone, and of no more cells than
//! there is room for: what is not known is asked.
//!
//! ```text
//!   a cell   | bit 0 | bit 1 | ...      a bit for each 16 bytes of it: no two values of it begin so close to each other
//! ```
//! That is so where entries lie one behind the other. A long one, whose pieces lie between others, may have the bits of those: what begins
//! within its range is asked ([`crate::vault::Source::is_dead`]).
//!
//! Walk: a merge gathers ([`Dead::empty`], [`Dead::note`]) · [`Dead::add`] once it is committed · a compaction takes what it needs
//! ([`Dead::before`]) and looks ([`Dead::knows`]) · [`Dead::go_on`] behind it.
//! Deliberately absent: what has expired. It may still hide something, and the ledger says so.

use crate::vault::Address;

/// Bytes of a cell for each bit. Before a value in its entry stand 16 bytes of its own.
const BIT_BYTES: u64 = 16;
/// No more cells, however short they are.
const CELLS_MAX: u64 = 64;

type Bits = Box<[u64]>;

/// Bits of some cells in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dead {
    cell_bytes: u64,
    /// The number of the first cell.
    first: u64,
    /// None: nothing is known.
    cells: Vec<Option<Bits>>,
}

impl Dead {
    /// Of the cells from this place on, as many as there is room for.
    pub(crate) fn new(cell_bytes: u64, from: u64, bytes_max: u64) -> Self {
        let cells = (bytes_max / (words(cell_bytes) * 8).max(1)).min(CELLS_MAX);
        let cells = vec![None; usize::try_from(cells).unwrap_or(0)];
        // Of a cell that is half gone nobody would see the long entries that begin in the other half.
        Self { cell_bytes, first: from.div_ceil(cell_bytes.max(1)), cells }
    }

    /// Nothing, of the same cells.
    pub(crate) fn empty(&self) -> Self {
        Self { cells: vec![None; self.cells.len()], ..*self }
    }

    /// The cell and the bit of an address; nothing for one beyond, or that is reckoned into the cell behind its own.
    fn place(&self, address: Address) -> Option<(usize, usize, u32)> {
        let cell = (address.lsn.checked_div(self.cell_bytes)?).checked_sub(self.first)?;
        let within = address.lsn % self.cell_bytes + u64::from(address.at);
        let bit = within / BIT_BYTES;
        let word = usize::try_from(bit / 64).ok().filter(|_| within < self.cell_bytes)?;
        Some((usize::try_from(cell).ok()?, word, u32::try_from(bit % 64).ok()?))
    }

    /// The value there is dead.
    pub(crate) fn note(&mut self, address: Address) {
        let Some((cell, word, bit)) = self.place(address) else { return };
        let length = usize::try_from(words(self.cell_bytes)).unwrap_or(0);
        let Some(cell) = self.cells.get_mut(cell) else { return };
        let bits = cell.get_or_insert_with(|| std::iter::repeat_n(0, length).collect());
        bits.get_mut(word).into_iter().for_each(|word| *word |= 1 << bit);
    }

    /// The values there are: what is noted of them is fetched into the processor's cache at once, where one by one each would be waited for.
    pub(crate) fn note_all(&mut self, addresses: &[Address]) {
        let places = addresses.iter().filter_map(|address| self.place(*address));
        let words = places.filter_map(|(cell, word, _)| self.cells.get(cell)?.as_ref()?.get(word));
        std::hint::black_box(words.fold(0, |all, word| all ^ word));
        addresses.iter().for_each(|address| self.note(*address));
    }

    /// Whether the value there is known to be dead, if its entry lies alone.
    pub(crate) fn knows(&self, address: Address) -> bool {
        let Some((cell, word, bit)) = self.place(address) else { return false };
        let bits = self.cells.get(cell).and_then(Option::as_ref).and_then(|bits| bits.get(word));
        bits.is_some_and(|word| word >> bit & 1 == 1)
    }

    /// What a merge has found. What is not of these cells is forgotten.
    pub(crate) fn add(&mut self, found: Self) {
        for (number, bits) in (found.first..).zip(found.cells) {
            let own = number.checked_sub(self.first).and_then(|cell| self.cells.get_mut(usize::try_from(cell).ok()?));
            match (own, bits) {
                (Some(Some(own)), Some(bits)) => own.iter_mut().zip(bits).for_each(|(own, found)| *own |= found),
                (Some(own @ None), Some(bits)) => *own = Some(bits),
                (None, _) | (_, None) => {}
            }
        }
    }

    /// As it is now, of the cells up to a place.
    pub(crate) fn before(&self, end: u64) -> Self {
        let cells = end.div_ceil(self.cell_bytes.max(1)).saturating_sub(self.first);
        let cells = self.cells.iter().take(usize::try_from(cells).unwrap_or(usize::MAX)).cloned().collect();
        Self { cells, ..*self }
    }

    /// From now on of the cells from this place on.
    pub(crate) fn go_on(&mut self, from: u64) {
        let first = from.div_ceil(self.cell_bytes.max(1));
        let gone = usize::try_from(first.saturating_sub(self.first)).unwrap_or(usize::MAX).min(self.cells.len());
        self.first = self.first.max(first);
        self.cells.drain(..gone);
        self.cells.extend(std::iter::repeat_n(None, gone));
    }
}

/// Words of a cell's bits.
const fn words(cell_bytes: u64) -> u64 {
    cell_bytes.div_ceil(BIT_BYTES * 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: u64 = 4096;

    #[test]
    fn what_was_noted_is_known_and_nothing_beside_it() {
        let mut dead = Dead::new(CELL, CELL + 5, 2 * CELL / 128);
        let of = |lsn, at| Address::new(lsn, at);
        let noted =
            [of(2 * CELL, 0), of(2 * CELL, 16), of(3 * CELL - 16, 0), of(3 * CELL - 32, 17), of(3 * CELL + 64, 999)];
        noted.iter().for_each(|address| dead.note(*address));
        assert!(noted.iter().all(|address| dead.knows(*address)));
        // Before the first cell, behind the last one, and reckoned into the next cell.
        let others = [
            of(2 * CELL - 16, 0),
            of(4 * CELL, 0),
            of(3 * CELL - 16, 16),
            of(2 * CELL, 4096),
            of(0, u32::MAX),
            of(u64::MAX, 9),
        ];
        others.iter().for_each(|address| dead.note(*address));
        assert!(!others.iter().any(|address| dead.knows(*address)));
        let bits: u32 = dead.cells.iter().flatten().flat_map(|bits| bits.iter()).map(|word| word.count_ones()).sum();
        assert_eq!((bits, dead.cells.len()), (4, 2), "two of them are closer than values are");
    }

    #[test]
    fn what_merges_found_comes_together_and_goes_with_its_cells() {
        let mut dead = Dead::new(CELL, 0, 3 * CELL / 128);
        let (mut one, mut other) = (dead.empty(), dead.empty());
        let [a, b, c] = [0, CELL + 32, 2 * CELL + 32].map(|lsn| Address::new(lsn, 40));
        one.note_all(&[a, b]);
        [b, c].into_iter().for_each(|address| other.note(address));
        let knows = |dead: &Dead| [a, b, c].map(|address| dead.knows(address));
        assert_eq!(knows(&dead), [false; 3], "nothing is committed");
        dead.add(one.clone());
        assert_eq!(knows(&dead), [true, true, false]);
        let taken = dead.before(CELL + 1);
        assert_eq!((knows(&taken), taken.cells.len()), ([true, true, false], 2));
        dead.go_on(CELL);
        dead.add(other);
        assert_eq!((knows(&dead), knows(&taken)), ([false, true, true], [true, true, false]));
        // A merge that began before: what is not of these cells any more is forgotten.
        dead.add(one);
        assert_eq!((knows(&dead), dead.cells.len()), ([false, true, true], 3));
        dead.go_on(0);
        assert_eq!(knows(&dead), [false, true, true]);
        dead.go_on(9 * CELL);
        assert_eq!((knows(&dead), dead.cells.len()), ([false; 3], 3));
    }

    #[test]
    fn without_room_nothing_is_known() {
        assert_eq!(Dead::new(CELL, 0, 1 << 30).cells.len(), 64);
        for mut dead in [Dead::new(CELL, 0, CELL / 128 - 1), Dead::default(), Dead::new(0, 7, 1 << 20)] {
            dead.note(Address::new(32, 32));
            dead.go_on(CELL);
            assert!(!dead.knows(Address::new(32, 32)) && !dead.before(9).knows(Address::new(32, 32)));
        }
    }
}
