//! Numbers of few bytes: seven bits each, the lowest first; signed distances folded so that small ones stay small.
//!
//! Walk: [`lay`] and [`read`] · [`lay_near`] and [`read_near`] a key as its distance from another.
//! Deliberately absent: more than one way to say a number: a longer form than needed is refused.

use assent_frame::{Malformed, Reader};

/// Lays a number behind what is there.
pub(crate) fn lay(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low(value) | 0x80);
        value >>= 7;
    }
    out.push(low(value));
}

fn low(value: u64) -> u8 {
    let [byte, ..] = (value & 0x7f).to_le_bytes();
    byte
}

/// How many bytes [`lay`] takes.
pub(crate) fn bytes(value: u64) -> u64 {
    u64::from((64 - (value | 1).leading_zeros()).div_ceil(7))
}

/// # Errors
/// [`Malformed`] with the field's name.
pub(crate) fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<u64, Malformed> {
    let first = reader.u8(field)?;
    // Most are small.
    if first < 0x80 {
        return Ok(first.into());
    }
    let mut value = u64::from(first & 0x7f);
    for shift in (7..64).step_by(7) {
        let byte = reader.u8(field)?;
        let bits = u64::from(byte & 0x7f);
        if (shift == 63 && bits > 1) || byte == 0 {
            return Err(Malformed { field });
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed { field })
}

/// The distance of a key from another, as a number that is small where they are near.
pub(crate) const fn near(key: u64, from: u64) -> u64 {
    let distance = key.wrapping_sub(from).cast_signed();
    ((distance << 1) ^ (distance >> 63)).cast_unsigned()
}

/// The key that is so near to another.
pub(crate) const fn far(near: u64, from: u64) -> u64 {
    let distance = (near >> 1) ^ (near & 1).wrapping_neg();
    from.wrapping_add(distance)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back_and_every_cut_is_refused(value in any::<u64>(), shift in 0_u32..64, from in any::<u64>()) {
            let value = value >> shift;
            let mut laid = Vec::new();
            lay(&mut laid, value);
            prop_assert_eq!(laid.len() as u64, bytes(value));
            prop_assert_eq!(read(&mut Reader::new(&laid), "n"), Ok(value));
            prop_assert!(read(&mut Reader::new(&laid[..laid.len() - 1]), "n").is_err());
            prop_assert_eq!(far(near(value, from), from), value);
        }
    }

    #[test]
    fn a_number_has_one_form() {
        assert_eq!(read(&mut Reader::new(&[0x81, 0]), "n"), Err(Malformed { field: "n" }));
        assert_eq!(read(&mut Reader::new(&[0xff; 10]), "n"), Err(Malformed { field: "n" }));
        assert_eq!((near(7, 8), near(9, 8), near(8, 8)), (1, 2, 0));
    }
}
