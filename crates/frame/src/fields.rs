//! The fields of a payload: fixed little-endian numbers and byte strings with a length before them.
//!
//! Fields are laid and read where others loop, so what is called for each of them is inlined there.
//!
//! Walk: a [`Writer`] appends to one buffer · a [`Reader`] takes fields off the front of borrowed bytes and never
//! panics on them · [`Reader::end`] refuses what is left over.

/// A payload ended early, or has bytes left over, or holds a value that no writer lays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a payload is malformed at its field {field:?}")]
pub struct Malformed {
    /// The field that could not be read.
    pub field: &'static str,
}

/// Lays fields into a buffer.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lays behind what is there already.
    #[must_use]
    pub const fn behind(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    /// Two bytes.
    #[inline]
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Four bytes.
    #[inline]
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Eight bytes.
    #[inline]
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Sixteen bytes.
    #[inline]
    pub fn u128(&mut self, value: u128) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// A byte string of up to 4 GiB, its length (four bytes) before it.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX)).raw(value)
    }

    /// A text, as [`Writer::bytes`].
    pub fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    /// A number of seven bits a byte, the lowest first; all bytes but the last have their highest bit. At most ten.
    #[inline]
    pub fn varint(&mut self, mut value: u64) -> &mut Self {
        while value > 0x7f {
            self.bytes.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.u8(value.to_le_bytes()[0])
    }

    /// Bytes without a length.
    #[inline]
    pub fn raw(&mut self, value: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(value);
        self
    }

    /// What has been laid.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// Gives the buffer away.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.bytes
    }

    /// Empties the buffer and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// Takes fields off the front of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of these.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    fn chunk<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Malformed> {
        let (chunk, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed { field })?;
        self.rest = rest;
        Ok(*chunk)
    }

    /// One byte.
    ///
    /// # Errors
    /// [`Malformed`] with the field's name if the bytes end before; so for all below.
    #[inline]
    pub fn u8(&mut self, field: &'static str) -> Result<u8, Malformed> {
        self.chunk::<1>(field).map(|[byte]| byte)
    }

    /// Two bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    #[inline]
    pub fn u16(&mut self, field: &'static str) -> Result<u16, Malformed> {
        self.chunk(field).map(u16::from_le_bytes)
    }

    /// Four bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    #[inline]
    pub fn u32(&mut self, field: &'static str) -> Result<u32, Malformed> {
        self.chunk(field).map(u32::from_le_bytes)
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    #[inline]
    pub fn u64(&mut self, field: &'static str) -> Result<u64, Malformed> {
        self.chunk(field).map(u64::from_le_bytes)
    }

    /// Sixteen bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn u128(&mut self, field: &'static str) -> Result<u128, Malformed> {
        self.chunk(field).map(u128::from_le_bytes)
    }

    /// What [`Writer::varint`] laid.
    ///
    /// # Errors
    /// [`Malformed`], also for more than 64 bits, and for more bytes than the number needs.
    #[inline]
    pub fn varint(&mut self, field: &'static str) -> Result<u64, Malformed> {
        let first = self.u8(field)?;
        if first <= 0x7f { Ok(u64::from(first)) } else { self.varint_behind(first, field) }
    }

    fn varint_behind(&mut self, first: u8, field: &'static str) -> Result<u64, Malformed> {
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.u8(field)?;
            let bits = u64::from(byte & 0x7f);
            value |= bits << shift;
            let is_lost = (bits << shift) >> shift != bits;
            match byte {
                0 => break,
                _ if is_lost => break,
                1..=0x7f => return Ok(value),
                _ => {}
            }
        }
        Err(Malformed { field })
    }

    /// A byte string, borrowed.
    ///
    /// # Errors
    /// [`Malformed`], also if its length is more than what is left.
    pub fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.u32(field)?).map_err(|_| Malformed { field })?;
        self.raw(length, field)
    }

    /// A text, borrowed.
    ///
    /// # Errors
    /// [`Malformed`], also if it is not UTF-8.
    pub fn text(&mut self, field: &'static str) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes(field)?).map_err(|_| Malformed { field })
    }

    /// That many bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    #[inline]
    pub fn raw(&mut self, length: usize, field: &'static str) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed { field })?;
        self.rest = rest;
        Ok(taken)
    }

    /// What has not been read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The end of the payload.
    ///
    /// # Errors
    /// [`Malformed`] if bytes are left over.
    pub const fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed { field: "end" }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_survive_and_every_cut_is_refused() {
        let mut writer = Writer::new();
        writer.u8(1).u16(2).u32(3).u64(4).u128(5).bytes(b"six").text("seven");
        let bytes = writer.into_vec();
        let read = |bytes: &[u8]| -> Result<(), Malformed> {
            let mut reader = Reader::new(bytes);
            assert_eq!(reader.u8("a")?, 1);
            assert_eq!(reader.u16("b")?, 2);
            assert_eq!(reader.u32("c")?, 3);
            assert_eq!(reader.u64("d")?, 4);
            assert_eq!(reader.u128("e")?, 5);
            assert_eq!(reader.bytes("f")?, b"six");
            assert_eq!(reader.text("g")?, "seven");
            reader.end()
        };
        assert_eq!(read(&bytes), Ok(()));
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "{end}");
        }
        let mut longer = bytes;
        longer.push(0);
        assert_eq!(read(&longer), Err(Malformed { field: "end" }));
    }

    #[test]
    fn a_huge_length_is_refused_without_memory() {
        let mut reader = Reader::new(&[0xff, 0xff, 0xff, 0xff, 1, 2]);
        assert_eq!(reader.bytes("value"), Err(Malformed { field: "value" }));
    }

    #[test]
    fn a_varint_is_as_short_as_it_can_be_and_no_other_form_of_it_is_read() {
        let bits = (0..64).map(|bit| 1_u64 << bit);
        for number in bits.flat_map(|bit| [bit - 1, bit, bit + 1]).chain([u64::MAX]) {
            let mut writer = Writer::new();
            writer.varint(number);
            let bytes = writer.into_vec();
            assert_eq!(bytes.len(), number.max(1).ilog2() as usize / 7 + 1, "{number}");
            let mut reader = Reader::new(&bytes);
            assert_eq!((reader.varint("n"), reader.end()), (Ok(number), Ok(())));
            assert!((0..bytes.len()).all(|end| Reader::new(&bytes[..end]).varint("n").is_err()));
            let mut longer = bytes.clone();
            *longer.last_mut().unwrap() |= 0x80;
            longer.push(0);
            assert!(Reader::new(&longer).varint("n").is_err(), "{number} in one byte more");
        }
        let beyond = [&[0xff; 9][..], &[2]].concat();
        assert!(Reader::new(&beyond).varint("n").is_err(), "65 bits");
    }
}
