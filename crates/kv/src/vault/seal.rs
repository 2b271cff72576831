//! What a volume says of itself: one block, at its beginning and again at its end; either will do.
//!
//! Laid last, when everything is known; and the first one only once all the rest is durable, which it says. So a file that has it was
//! finished, whatever has become of it since. Deliberately absent: I/O.

use assent_frame::{Head, Malformed, Reader, Writer, lay, parse};

use crate::vault::hides::Hides;

/// A block: the seal's, and the index's.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// Cells are whole blocks of the journal.
const CELL_BLOCK_BYTES: u64 = 4096;
const MAGIC: [u8; 8] = *b"ASSENTV\n";
const VERSION: u32 = 1;
const KIND_SEAL: u16 = 0x41;
/// All other bytes of the file were durable before this block was laid.
const FLAG_LAST: u16 = 1;
/// Of a stretch that was passed: one more field says where its last entry ends.
const FLAG_PASSED: u16 = 2;

/// What a volume is and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// It holds what began from here on ...
    pub(crate) first: u64,
    /// ... to here.
    pub(crate) end: u64,
    /// How often what it holds has outlived a compaction.
    pub(crate) generation: u32,
    /// Nothing in it was dead as of this seq; 0: it was not compacted, and stands in the journal as it is.
    pub(crate) as_of: u64,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    /// Items in it.
    pub(crate) items: u64,
    /// Values among them, prepared ones too.
    pub(crate) values: u64,
    /// Where the items end and the index begins.
    pub(crate) index_at: u64,
    /// Blocks of the index.
    pub(crate) blocks: u32,
    /// Bytes of the top, behind the index.
    pub(crate) top_bytes: u64,
    /// In what its store counts the journal, for whoever lost the note; 0: not said.
    pub(crate) cell_bytes: u64,
    /// Of a stretch that was passed: its last entry ends there; else 0.
    pub(crate) until: u64,
}

impl Facts {
    /// It says that its range stands in the journal as it is.
    pub(crate) const fn is_kept(&self) -> bool {
        self.items == 0 && self.as_of == 0
    }

    /// What it remembers, as far as that can be told without reading it: of one with a value nothing.
    pub(crate) fn hides(&self) -> Hides {
        let Self { first: from, end: to, index_at, values, .. } = *self;
        let bytes = index_at.saturating_sub(u64::try_from(BLOCK_BYTES).unwrap_or(u64::MAX));
        if values > 0 || bytes == 0 { Hides::NONE } else { Hides { bytes, from, to } }
    }

    /// The file's name: no two volumes of a store ever have the same.
    pub(crate) fn name(&self) -> String {
        name(self.first, self.generation)
    }

    /// The seal's block; `is_last`: all other bytes of the file are durable.
    pub(crate) fn lay(&self, is_last: bool) -> Vec<u8> {
        let mut fields = Writer::new();
        fields.u32(VERSION).u32(self.generation).u64(self.end).u64(self.as_of).u64(self.bytes).u64(self.items);
        fields.u64(self.values).u64(self.index_at).u64(self.top_bytes).u32(self.blocks).u32(self.cell_blocks());
        let mut flags = if is_last { FLAG_LAST } else { 0 };
        if self.until > 0 {
            fields.u64(self.until);
            flags |= FLAG_PASSED;
        }
        let mut block = MAGIC.to_vec();
        lay(&mut block, Head { mark: self.first, kind: KIND_SEAL, flags, chain: 0 }, &[fields.as_slice()]);
        block.resize(BLOCK_BYTES, 0);
        block
    }

    /// Reads a block back; the error says what is wrong.
    pub(crate) fn parse(block: &[u8]) -> Result<Self, &'static str> {
        Self::parse_first(block).map(|(facts, _)| facts)
    }

    /// Reads the first block back, and whether it was laid last.
    pub(crate) fn parse_first(block: &[u8]) -> Result<(Self, bool), &'static str> {
        let rest = block.strip_prefix(&MAGIC).ok_or("it is no seal of a volume")?;
        let Ok(Some((frame, _))) = parse(rest, 256) else { return Err("the checksum of its seal fails") };
        let fields = || -> Result<_, Malformed> {
            let mut reader = Reader::new(frame.payload);
            let version = reader.u32("version")?;
            let mut facts = Self {
                first: frame.mark,
                generation: reader.u32("generation")?,
                end: reader.u64("end")?,
                as_of: reader.u64("as of")?,
                bytes: reader.u64("bytes")?,
                items: reader.u64("items")?,
                values: reader.u64("values")?,
                index_at: reader.u64("index")?,
                top_bytes: reader.u64("top")?,
                blocks: reader.u32("blocks")?,
                cell_bytes: 0,
                until: 0,
            };
            facts.cell_bytes = u64::from(reader.u32("cell blocks")?) * CELL_BLOCK_BYTES;
            if frame.flags & FLAG_PASSED != 0 {
                facts.until = reader.u64("until")?;
            }
            reader.end()?;
            Ok((version, facts))
        };
        let Ok((version, facts)) = fields() else { return Err("its seal is malformed") };
        if version != VERSION {
            return Err("its format version is not 1: it was written by another release");
        }
        if frame.kind != KIND_SEAL || !facts.adds_up() {
            return Err("its seal is malformed");
        }
        Ok((facts, frame.flags & FLAG_LAST != 0))
    }

    fn cell_blocks(&self) -> u32 {
        u32::try_from(self.cell_bytes / CELL_BLOCK_BYTES).unwrap_or(0)
    }

    fn adds_up(&self) -> bool {
        let block = u64::try_from(BLOCK_BYTES).unwrap_or(u64::MAX);
        let parts = [u64::from(self.blocks).saturating_mul(block), self.top_bytes, block];
        let end = parts.iter().fold(self.index_at, |sum, part| sum.saturating_add(*part));
        let passed = self.until == 0 || self.is_kept() && self.first < self.until && self.until <= self.end;
        self.first < self.end && self.index_at >= block && end == self.bytes && self.bytes < 1 << 62 && passed
    }
}

const ENDING: &str = ".values";

pub(crate) fn name(first: u64, generation: u32) -> String {
    format!("{first:016x}-{generation:08x}{ENDING}")
}

/// Which volume a file name says.
pub(crate) fn named(file: &str) -> Option<(u64, u32)> {
    let (first, generation) = file.strip_suffix(ENDING)?.split_once('-')?;
    let parsed = (u64::from_str_radix(first, 16).ok()?, u32::from_str_radix(generation, 16).ok()?);
    (name(parsed.0, parsed.1) == file).then_some(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            first: 64,
            end: 4096,
            generation: 2,
            as_of: 99,
            index_at: 8192,
            blocks: 2,
            top_bytes: 64,
            cell_bytes: 5 << 12,
            ..Facts::default()
        }
    }

    #[test]
    fn a_seal_is_read_back_and_every_flipped_bit_of_it_refused() {
        let facts = Facts { bytes: 8192 + 2 * 4096 + 64 + 4096, items: 5, values: 4, ..facts() };
        assert_eq!(
            [false, true].map(|last| Facts::parse_first(&facts.lay(last))),
            [Ok((facts, false)), Ok((facts, true))]
        );
        let block = facts.lay(true);
        assert_eq!((Facts::parse(&block), block.len()), (Ok(facts), BLOCK_BYTES));
        for bit in 0..(8 + 24 + 72) * 8 {
            let mut bad = block.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Facts::parse(&bad).is_err(), "bit {bit}");
        }
        // Whole, and impossible.
        assert!(Facts::parse(&Facts { bytes: facts.bytes + 1, ..facts }.lay(true)).is_err());
        assert!(Facts::parse(&Facts { end: facts.first, ..facts }.lay(true)).is_err());
    }

    #[test]
    fn a_passed_stretch_says_where_its_last_entry_ends_and_nothing_else_does() {
        let kept = Facts { index_at: 4096, blocks: 0, top_bytes: 0, bytes: 8192, as_of: 0, ..facts() };
        for until in [0, 65, 4000, 4096] {
            let passed = Facts { until, ..kept };
            assert_eq!(Facts::parse_first(&passed.lay(true)), Ok((passed, true)), "{until}");
        }
        let passed = Facts { until: 4000, ..kept };
        let impossible = [
            Facts { until: 64, ..passed },
            Facts { until: 4097, ..passed },
            Facts { as_of: 9, ..passed },
            Facts { items: 1, ..passed },
        ];
        impossible.iter().for_each(|facts| assert!(Facts::parse(&facts.lay(true)).is_err(), "{facts:?}"));
    }

    #[test]
    fn names_are_what_they_say() {
        assert_eq!(facts().name(), "0000000000000040-00000002.values");
        assert_eq!(named(&facts().name()), Some((64, 2)));
        for other in ["0000000000000040-2.values", "40-00000002.values", "0000000000000040-00000002.log", "-.values"] {
            assert_eq!(named(other), None, "{other}");
        }
    }
}
