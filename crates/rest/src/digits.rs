//! Sixteen hexadecimal digits: what tags of nodes and names of requests are.

pub(crate) fn digits(number: u64) -> [u8; 16] {
    let mut text = [0; 16];
    let halves = number.to_be_bytes().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
    for (place, half) in text.iter_mut().zip(halves) {
        *place = if half < 10 { b'0' + half } else { b'a' + (half - 10) };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_sixteen_digits_however_small_it_is() {
        for number in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            assert_eq!(digits(number).as_slice(), format!("{number:016x}").as_bytes());
        }
    }
}
