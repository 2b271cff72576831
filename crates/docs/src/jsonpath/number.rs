//! Numbers by their digits: compared exactly, however long they are and however large their exponents.
//!
//! Walk: [`compare`] holds signs, then places, then digits against each other · nothing is computed that could overflow or round.
//! Deliberately absent: arithmetic.

use std::cmp::Ordering;

/// A number as it is written, cut into its parts.
#[derive(Clone, Copy, Debug)]
struct Parts<'a> {
    is_negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent_is_negative: bool,
    exponent: &'a [u8],
}

/// How two numbers of JSON stand to each other.
pub(crate) fn compare(left: &str, right: &str) -> Ordering {
    let (left, right) = (Parts::of(left), Parts::of(right));
    match (left.sign(), right.sign()) {
        (0, 0) => Ordering::Equal,
        (1, 1) => left.compare_size(right),
        (-1, -1) => right.compare_size(left),
        (left, right) => left.cmp(&right),
    }
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Self {
        let digits = text.strip_prefix('-');
        let (is_negative, text) = (digits.is_some(), digits.unwrap_or(text));
        let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, ""));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let exponent_is_negative = exponent.starts_with('-');
        let exponent = exponent.trim_start_matches(['-', '+']).as_bytes();
        Self { is_negative, whole: whole.as_bytes(), fraction: fraction.as_bytes(), exponent_is_negative, exponent }
    }

    fn digits(self) -> impl Iterator<Item = u8> {
        self.whole.iter().chain(self.fraction).copied()
    }

    /// The digits from the first that is not 0.
    fn significant(self) -> impl Iterator<Item = u8> {
        self.digits().skip_while(|digit| *digit == b'0')
    }

    fn sign(self) -> i8 {
        match (self.significant().next(), self.is_negative) {
            (None, _) => 0,
            (Some(_), false) => 1,
            (Some(_), true) => -1,
        }
    }

    /// Where the point stands, counted from the first significant digit, before the exponent moves it.
    fn point(self) -> i128 {
        let zeroes = self.digits().take_while(|digit| *digit == b'0').count();
        let place = |length: usize| i128::try_from(length).unwrap_or(i128::MAX);
        place(self.whole.len()) - place(zeroes)
    }

    /// As [`compare`], for two that are not 0, without their signs.
    fn compare_size(self, other: Self) -> Ordering {
        let places = self.exponent_beyond(other).saturating_add(self.point() - other.point());
        places.cmp(&0).then_with(|| {
            let (mut left, mut right) = (self.significant(), other.significant());
            loop {
                let (digit, against) = (left.next(), right.next());
                match digit.unwrap_or(b'0').cmp(&against.unwrap_or(b'0')) {
                    Ordering::Equal if digit.is_none() && against.is_none() => return Ordering::Equal,
                    Ordering::Equal => {}
                    unequal => return unequal,
                }
            }
        })
    }

    /// By how much this exponent is above another; what is far beyond any number of digits is cut off.
    fn exponent_beyond(self, other: Self) -> i128 {
        const FAR: i128 = 1 << 100;
        let length = self.exponent.len().max(other.exponent.len());
        let digit = |of: Self, at: usize| {
            // Aligned at their ends.
            let at = (at + of.exponent.len()).checked_sub(length);
            let digit = at.and_then(|at| of.exponent.get(at)).map_or(0, |digit| i128::from(digit - b'0'));
            if of.exponent_is_negative { -digit } else { digit }
        };
        let mut beyond = 0_i128;
        for at in 0..length {
            beyond = beyond * 10 + digit(self, at) - digit(other, at);
            // A digit changes it by 18 at most: what is beyond 2 only grows.
            if beyond.abs() > FAR {
                return beyond;
            }
        }
        beyond
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_what_they_say_and_not_what_a_float_makes_of_them() {
        let equal = [
            ("0", "-0.0e9"),
            ("1", "1.000"),
            ("100", "1e2"),
            ("0.001", "1E-3"),
            ("120e-1", "0.12e+2"),
            ("12345678901234567890123", "1.2345678901234567890123e22"),
            ("1e0000000000000000000000000000000000000000000000005", "100000"),
            ("0e99999999999999999999999999999999999999999999999999", "0"),
            ("10e99999999999999999999999999999999999999999999998", "1e99999999999999999999999999999999999999999999999"),
            (
                "0.1e-99999999999999999999999999999999999999999999999",
                "1e-100000000000000000000000000000000000000000000000",
            ),
        ];
        for (left, right) in equal {
            assert_eq!(compare(left, right), Ordering::Equal, "{left} {right}");
        }
        let rising = [
            "-1e99999999999999999999999999999999999999999999999",
            "-1e400",
            "-2",
            "-1",
            "-1e-400",
            "-1e-99999999999999999999999999999999999999999999999",
            "0",
            "1e-99999999999999999999999999999999999999999999999",
            "1e-400",
            "0.1",
            "0.10000000000000000000001",
            "9007199254740992",
            "9007199254740993",
            "9007199254740993.5",
            "1e400",
            "1.1e400",
            "1e401",
            "1e99999999999999999999999999999999999999999999999",
            "1e100000000000000000000000000000000000000000000000",
        ];
        for (at, left) in rising.iter().enumerate() {
            for (against, right) in rising.iter().enumerate() {
                assert_eq!(compare(left, right), at.cmp(&against), "{left} {right}");
            }
        }
    }

    proptest! {
        #[test]
        fn comparing_is_that_of_whole_numbers_of_one_unit(
            left in -99_999_i64..99_999, right in -99_999_i64..99_999, shift in 0_u32..6, down in 0_u32..6,
        ) {
            // left * 10^shift against right * 10^shift, each written in its own way.
            let unit = 10_i64.pow(shift);
            let plain = (left * unit).to_string();
            let scaled = format!("{right}e{shift}");
            prop_assert_eq!(compare(&plain, &scaled), left.cmp(&right));
            let unit = 10_i64.pow(down);
            let sign = if left < 0 { "-" } else { "" };
            let (whole, part) = (left.abs() / unit, left.abs() % unit);
            let width = usize::try_from(down).unwrap();
            let pointed = if down == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part:0width$}") };
            prop_assert_eq!(compare(&pointed, &format!("{right}E-{down}")), left.cmp(&right));
        }
    }
}
