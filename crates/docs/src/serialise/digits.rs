//! Numbers in letters, of which each is most often the one before or a little more: keys in document order, counts of like children.
//!
//! Walk: [`Digits::put`] changes the last digit where that is all, and asks `itoa` for any other.

use super::sheet::Sheet;

/// As many as a number has at most.
const DIGITS_MAX: usize = 20;

/// The number that was written last.
#[derive(Debug)]
pub(super) struct Digits {
    number: u64,
    letters: [u8; DIGITS_MAX],
    many: usize,
}

impl Default for Digits {
    fn default() -> Self {
        Self { number: 0, letters: [b'0'; DIGITS_MAX], many: 1 }
    }
}

impl Digits {
    /// Puts a number behind what is there.
    #[inline]
    pub(super) fn put(&mut self, number: u64, out: &mut Sheet) {
        let more = number.checked_sub(self.number).and_then(|more| u8::try_from(more).ok());
        match self.letters.get_mut(self.many - 1).zip(more) {
            Some((last, more)) if more <= b'9' - *last => {
                *last += more;
                self.number = number;
            }
            _ => self.anew(number),
        }
        out.put_block(&self.letters, self.many);
    }

    fn anew(&mut self, number: u64) {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(number).as_bytes();
        self.letters.iter_mut().zip(digits).for_each(|(place, digit)| *place = *digit);
        (self.number, self.many) = (number, digits.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_is_written_whichever_was_before_it() {
        let edges = (0..20).flat_map(|zeros| {
            let ten = 10_u64.pow(zeros);
            [ten - 1, ten, ten + 1, ten + 8, ten + 9, ten + 10, ten + 300]
        });
        let numbers: Vec<u64> = edges.chain([u64::MAX - 9, u64::MAX - 1, u64::MAX]).collect();
        for first in &numbers {
            for then in &numbers {
                let (mut digits, mut out) = (Digits::default(), Sheet::default());
                for number in [first, then, then] {
                    digits.put(*number, &mut out);
                    out.put(b",");
                }
                assert_eq!(out.taken(), format!("{first},{then},{then},").as_bytes());
            }
        }
    }
}
