//! Numbers in letters, of which each is most often the one before or a little more: keys in document order, counts of like children.
//!
//! Walk: [`Digits::put`] changes the last digit where that is all, and computes eight at once for others (`eight`). More than eight are `itoa`'s.

use super::sheet::Room;

/// Numbers below this have eight digits at most.
const EIGHT: u64 = 100_000_000;
/// As many as a number has at most.
pub(super) const DIGITS_MAX: usize = 20;

/// Numbers that differ in the last digit alone, with no more than eight digits.
#[derive(Debug)]
pub(super) struct Digits {
    /// The first of ten.
    first: u64,
    /// Its letters, the first one lowest.
    letters: u64,
    many: u8,
}

impl Default for Digits {
    fn default() -> Self {
        Self { first: 0, letters: u64::from(b'0'), many: 1 }
    }
}

impl Digits {
    /// Puts a number behind what is there.
    #[inline(always)]
    pub(super) fn put(&mut self, number: u64, room: &mut Room<'_>) {
        let mut last = number.wrapping_sub(self.first);
        if last > 9 {
            if number >= EIGHT {
                let (digits, many) = long(number);
                return room.put(&digits, many);
            }
            last = number % 10;
            *self = eight(number - last);
        }
        let letters = self.letters + (last << (8 * (self.many - 1)));
        room.put(&letters.to_le_bytes(), self.many);
    }
}

/// The ten from a number below [`EIGHT`] on.
#[inline(never)]
fn eight(number: u64) -> Digits {
    // Halves of four digits, four pairs, eight digits: each in a lane of its own, the first one lowest.
    let halves = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | ((halves - 100 * hundreds) << 16);
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | ((pairs - 10 * tens) << 8);
    // Zeros before the first other digit go; of nothing but zeros one stays.
    let [leading, ..] = ((digits | 1 << 56).trailing_zeros() / 8).to_le_bytes();
    let letters = (digits | u64::from_le_bytes([b'0'; 8])) >> (8 * leading);
    Digits { first: number, letters, many: 8 - leading }
}

#[cold]
#[inline(never)]
fn long(number: u64) -> ([u8; DIGITS_MAX], u8) {
    let (mut block, mut buffer) = ([b'0'; DIGITS_MAX], itoa::Buffer::new());
    let digits = buffer.format(number).as_bytes();
    let many = block.iter_mut().zip(digits).map(|(place, digit)| *place = *digit).fold(0, |many, ()| many + 1);
    (block, many)
}

#[cfg(test)]
mod tests {
    use super::super::sheet::Sheet;
    use super::*;

    fn letters(digits: &mut Digits, number: u64) -> String {
        let mut sheet = Sheet::default();
        let mut room = sheet.room();
        digits.put(number, &mut room);
        room.put(b",", 1);
        let many = room.many();
        sheet.pass(many);
        String::from_utf8(sheet.taken()).unwrap()
    }

    #[test]
    fn any_number_is_written_whichever_was_before_it() {
        let edges = (0..20).flat_map(|zeros| {
            let ten = 10_u64.pow(zeros);
            [ten - 1, ten, ten + 1, ten + 8, ten + 9, ten + 10, ten + 300, ten / 9 * 8]
        });
        let numbers: Vec<u64> = edges.chain([u64::MAX - 9, u64::MAX - 1, u64::MAX]).collect();
        for first in &numbers {
            for then in &numbers {
                let mut digits = Digits::default();
                for number in [first, then, then] {
                    assert_eq!(letters(&mut digits, *number), format!("{number},"), "behind {first}");
                }
            }
        }
    }

    #[test]
    fn numbers_in_order_are_written_whatever_their_distance() {
        for step in [1, 2, 7, 9, 10, 11, 997] {
            let mut digits = Digits::default();
            for number in (0..30_000).chain(EIGHT - 2_000..EIGHT + 2_000).step_by(step) {
                assert_eq!(letters(&mut digits, number), format!("{number},"), "by {step}");
            }
        }
        for number in (0..EIGHT).step_by(4_999) {
            assert_eq!(letters(&mut Digits::default(), number), format!("{number},"));
        }
    }
}
