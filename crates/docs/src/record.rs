//! A record: what one slot of a page says, whole or only what has changed of it.
//!
//! ```text
//!   mask (varint) · the fields that it names, in the order of its bits
//!   bit 0 whole · 1 text (length, bytes) · 2 hash (8 bytes) · 3 to 11 numbers (varints)
//! ```
//! A whole record says all: what it does not name is absent. Any other is a patch of an older one. A whole record that names
//! nothing says that the slot is empty.
//!
//! Walk: [`Record::read`] and [`Record::lay`] · [`Record::over`] puts a patch over what is older.
//! Deliberately absent: what the fields mean: nodes, paths and references of pages know that.

use assent_frame::{Malformed, Reader};

use crate::varint;

/// The record says everything of its slot.
pub(crate) const WHOLE: u16 = 1;
/// It has a text.
pub(crate) const TEXT: u16 = 1 << 1;
/// It has a hash.
pub(crate) const HASH: u16 = 1 << 2;
/// How many numbers it can have.
pub(crate) const NUMBERS: usize = 9;
const BITS: u32 = 12;
const FIELD: &str = "record";

/// The bit of a number.
pub(crate) const fn bit(number: usize) -> u16 {
    1 << (3 + number)
}

/// What one slot says. What the mask does not name is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) mask: u16,
    pub(crate) text: &'a [u8],
    pub(crate) hash: u64,
    pub(crate) numbers: [u64; NUMBERS],
}

impl<'a> Record<'a> {
    /// The slot is empty from here on.
    pub(crate) const GONE: Record<'static> = Record { mask: WHOLE, text: &[], hash: 0, numbers: [0; NUMBERS] };

    /// A whole record that is only a text.
    pub(crate) const fn text(text: &'a [u8]) -> Self {
        Record { mask: WHOLE | TEXT, text, hash: 0, numbers: [0; NUMBERS] }
    }

    pub(crate) const fn is_whole(&self) -> bool {
        self.mask & WHOLE != 0
    }

    /// Whether it says that the slot is empty.
    pub(crate) const fn is_gone(&self) -> bool {
        self.mask == WHOLE
    }

    pub(crate) const fn has(&self, bits: u16) -> bool {
        self.mask & bits != 0
    }

    pub(crate) fn number(&self, number: usize) -> u64 {
        self.numbers.get(number).copied().unwrap_or_default()
    }

    /// Says a number too.
    pub(crate) fn with(mut self, number: usize, value: u64) -> Self {
        if let Some(place) = self.numbers.get_mut(number) {
            *place = value;
            self.mask |= bit(number);
        }
        self
    }

    /// This one where it says something, else what is older.
    pub(crate) fn over(self, older: Self) -> Self {
        if self.is_whole() {
            return self;
        }
        let mut merged = older;
        merged.mask |= self.mask;
        if self.has(TEXT) {
            merged.text = self.text;
        }
        if self.has(HASH) {
            merged.hash = self.hash;
        }
        for (at, (place, value)) in merged.numbers.iter_mut().zip(self.numbers).enumerate() {
            if self.has(bit(at)) {
                *place = value;
            }
        }
        merged
    }

    pub(crate) fn lay(&self, out: &mut Vec<u8>) {
        varint::lay(out, self.mask.into());
        if self.has(TEXT) {
            varint::lay(out, length(self.text));
            out.extend_from_slice(self.text);
        }
        if self.has(HASH) {
            out.extend_from_slice(&self.hash.to_le_bytes());
        }
        let mut left = self.mask >> bit(0).trailing_zeros();
        while left != 0 {
            varint::lay(out, self.number(usize::try_from(left.trailing_zeros()).unwrap_or(NUMBERS)));
            left &= left - 1;
        }
    }

    /// # Errors
    /// [`Malformed`] with the field that cannot be read.
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let wrong = Malformed { field: FIELD };
        let mask = read_mask(reader)?;
        let mut record = Record { mask, ..Record::default() };
        if record.has(TEXT) {
            let length = usize::try_from(varint::read(reader, FIELD)?).map_err(|_| wrong)?;
            record.text = reader.raw(length, FIELD)?;
        }
        if record.has(HASH) {
            record.hash = reader.u64(FIELD)?;
        }
        // Bit by bit of those that are there: most records name half of them.
        let mut left = mask >> 3;
        while left != 0 {
            let number = varint::read(reader, FIELD)?;
            let at = usize::try_from(left.trailing_zeros()).unwrap_or(NUMBERS);
            record.numbers.get_mut(at).into_iter().for_each(|place| *place = number);
            left &= left - 1;
        }
        Ok(record)
    }

    /// Goes past a record without a look at what it says; its mask.
    ///
    /// # Errors
    /// [`Malformed`] if it is cut off.
    pub(crate) fn pass(reader: &mut Reader<'_>) -> Result<u16, Malformed> {
        let wrong = Malformed { field: FIELD };
        let mask = read_mask(reader)?;
        let mut raw = if mask & HASH == 0 { 0 } else { size_of::<u64>() };
        if mask & TEXT != 0 {
            let text = usize::try_from(varint::read(reader, FIELD)?).map_err(|_| wrong)?;
            raw = raw.checked_add(text).ok_or(wrong)?;
        }
        reader.raw(raw, FIELD)?;
        let mut numbers = (mask >> bit(0).trailing_zeros()).count_ones();
        if numbers > 0 {
            let is_last = |byte: &u8| {
                numbers -= u32::from(byte & 0x80 == 0);
                numbers == 0
            };
            let last = reader.rest().iter().position(is_last).ok_or(wrong)?;
            reader.raw(last + 1, FIELD)?;
        }
        Ok(mask)
    }
}

fn read_mask(reader: &mut Reader<'_>) -> Result<u16, Malformed> {
    let mask = u16::try_from(varint::read(reader, FIELD)?).ok().filter(|mask| *mask != 0 && mask >> BITS == 0);
    mask.ok_or(Malformed { field: FIELD })
}

/// How long bytes are.
pub(crate) fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any record that can be laid, its text apart.
    pub(crate) fn any() -> impl Strategy<Value = (u16, Vec<u8>, u64, [u64; NUMBERS])> {
        let texts = prop::collection::vec(prop::num::u8::ANY, 0..12);
        (1_u16..1 << BITS, texts, prop::num::u64::ANY, prop::array::uniform9(0_u64..1 << 40))
    }

    pub(crate) fn record((mask, text, hash, numbers): &(u16, Vec<u8>, u64, [u64; NUMBERS])) -> Record<'_> {
        let mut record = Record { mask: *mask, ..Record::default() };
        if mask & TEXT != 0 {
            record.text = text;
        }
        if mask & HASH != 0 {
            record.hash = *hash;
        }
        for (at, value) in numbers.iter().enumerate().filter(|(at, _)| mask & bit(*at) != 0) {
            record.numbers[at] = *value;
        }
        record
    }

    proptest! {
        #[test]
        fn a_record_comes_back_and_every_cut_is_refused(parts in any()) {
            let record = record(&parts);
            let mut laid = Vec::new();
            record.lay(&mut laid);
            let mut reader = Reader::new(&laid);
            prop_assert_eq!(Record::read(&mut reader), Ok(record));
            prop_assert_eq!(reader.end(), Ok(()));
            for end in 0..laid.len() {
                prop_assert!(Record::read(&mut Reader::new(&laid[..end])).is_err());
            }
        }

        #[test]
        fn patches_may_be_put_together_before_they_meet_what_is_older(parts in any(), others in any(), oldest in any()) {
            let (newest, middle, oldest) = (record(&parts), record(&others), record(&oldest));
            prop_assert_eq!(newest.over(middle).over(oldest), newest.over(middle.over(oldest)));
        }
    }

    #[test]
    fn a_patch_says_only_what_it_says() {
        let older = Record { mask: WHOLE | TEXT | bit(0), text: b"old", numbers: [5; 9], ..Record::default() };
        let patch = Record { mask: HASH, hash: 7, ..Record::default() };
        assert_eq!(patch.over(older), Record { mask: older.mask | HASH, hash: 7, ..older });
        assert_eq!(Record::GONE.over(older), Record::GONE);
        assert!(Record::read(&mut Reader::new(&[0])).is_err(), "a record that says nothing");
        assert!(Record::read(&mut Reader::new(&[0x80, 0x20])).is_err(), "a bit that nobody knows");
    }
}
