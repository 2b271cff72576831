//! The frame: its header, how it is laid, patched and parsed.
//!
//! Walk: [`lay`] writes header, parts and padding and seals them · [`mark`] patches and seals again · [`parse`] checks
//! the length against the reader's limit before it waits for the bytes, and the checksum before it believes them.

use crate::Writer;

/// Bytes of a frame before its payload.
pub const HEADER_BYTES: usize = 24;
/// Frames begin at multiples of this.
pub const ALIGN_BYTES: usize = 8;
/// The most bytes of one payload. Larger entries are chains of frames.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Behind its checksum a frame of so many bytes is copied to what stands before, to be summed in one piece.
const JOINED_BYTES_MAX: usize = 124;

const _: () = assert!(HEADER_BYTES.is_multiple_of(ALIGN_BYTES), "payloads of packed frames stay aligned");

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length field is beyond what the reader takes.
    #[error("a frame says {length} payload bytes; at most {limit} are taken here")]
    Length {
        /// What the header says.
        length: u64,
        /// What the reader takes.
        limit: usize,
    },
    /// The checksum does not match: torn, rotten or not a frame.
    #[error("a frame's checksum is {computed:#010x}, its header says {stored:#010x}")]
    Checksum {
        /// The header's.
        stored: u32,
        /// The bytes'.
        computed: u32,
    },
}

/// A frame, parsed in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// LSN on disk, request id on the wire.
    pub mark: u64,
    /// What the payload is.
    pub kind: u16,
    /// Meaning depends on the kind.
    pub flags: u16,
    /// Free for the layer above.
    pub chain: u32,
    /// The bytes.
    pub payload: &'a [u8],
}

/// Bytes a frame of that payload takes, padding included.
#[must_use]
pub const fn laid_bytes(payload: usize) -> usize {
    (HEADER_BYTES + payload).next_multiple_of(ALIGN_BYTES)
}

/// What stands before a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// LSN on disk, request id on the wire.
    pub mark: u64,
    /// What the payload is.
    pub kind: u16,
    /// Meaning depends on the kind.
    pub flags: u16,
    /// Free for the layer above.
    pub chain: u32,
}

/// Appends a frame whose payload is the parts one after the other; each byte is copied once. Returns the bytes laid.
///
/// The caller keeps the sum of the parts within [`PAYLOAD_BYTES_MAX`]; a longer one is laid but no reader takes it.
pub fn lay(out: &mut Vec<u8>, head: Head, parts: &[&[u8]]) -> usize {
    let start = out.len();
    let payload: usize = parts.iter().map(|part| part.len()).sum();
    out.reserve(laid_bytes(payload));
    out.extend_from_slice(&front(payload, head));
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.resize(start + laid_bytes(payload), 0);
    seal(out.get_mut(start..).unwrap_or_default(), payload);
    out.len() - start
}

/// Appends a frame whose payload is what `fields` writes, straight into the buffer. Returns the bytes laid.
///
/// The caller keeps the payload within [`PAYLOAD_BYTES_MAX`], as for [`lay`], and does not clear the writer.
pub fn lay_with(out: &mut Vec<u8>, head: Head, fields: impl FnOnce(&mut Writer)) -> usize {
    let start = out.len();
    lay(out, head, &[]);
    let mut writer = Writer::behind(std::mem::take(out));
    fields(&mut writer);
    *out = writer.into_vec();
    let payload = out.len().saturating_sub(start + HEADER_BYTES);
    out.resize(start + laid_bytes(payload), 0);
    let frame = out.get_mut(start..).unwrap_or_default();
    if let Some(place) = frame.get_mut(..4) {
        place.copy_from_slice(&u32::try_from(payload).unwrap_or(u32::MAX).to_le_bytes());
    }
    seal(frame, payload);
    out.len() - start
}

/// Lays a frame at the start of `out`, as [`lay`] does at the end of a vector: for memory that must not move. Returns the
/// bytes laid; `None`, and nothing laid, if `out` is too short.
pub fn lay_at(out: &mut [u8], head: Head, parts: &[&[u8]]) -> Option<usize> {
    let payload: usize = parts.iter().map(|part| part.len()).sum();
    let laid = laid_bytes(payload);
    let out = out.get_mut(..laid)?;
    let (place, mut rest) = out.split_first_chunk_mut::<HEADER_BYTES>()?;
    *place = front(payload, head);
    for part in parts {
        let (place, behind) = rest.split_at_mut_checked(part.len())?;
        place.copy_from_slice(part);
        rest = behind;
    }
    rest.fill(0);
    seal(out, payload);
    Some(laid)
}

/// Gives the frame at the start of `frame` another mark, and its checksum with it. The bytes stay where they are.
pub fn mark(frame: &mut [u8], mark: u64) {
    let Some(Ok((header, _))) = header(frame) else { return };
    let payload = header.length;
    if let Some(place) = frame.get_mut(8..16) {
        place.copy_from_slice(&mark.to_le_bytes());
        seal(frame, payload);
    }
}

/// A header without its checksum.
fn front(payload: usize, head: Head) -> [u8; HEADER_BYTES] {
    let mut front = [0; HEADER_BYTES];
    let (words, _) = front.as_chunks_mut::<8>();
    if let [sizes, mark, kinds] = words {
        *sizes = u64::from(u32::try_from(payload).unwrap_or(u32::MAX)).to_le_bytes();
        *mark = head.mark.to_le_bytes();
        *kinds = (u64::from(head.kind) | u64::from(head.flags) << 16 | u64::from(head.chain) << 32).to_le_bytes();
    }
    front
}

fn seal(frame: &mut [u8], payload: usize) {
    let sum = checksum(frame, payload);
    if let Some(place) = frame.get_mut(4..8) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
}

fn checksum(frame: &[u8], payload: usize) -> u32 {
    let behind = frame.get(8..HEADER_BYTES + payload).unwrap_or_default();
    let mut joined = [0; 4 + JOINED_BYTES_MAX];
    // A sum that goes on must be set up for that, which is most of what a short one costs.
    if let Some(length) = frame.first_chunk::<4>()
        && let (first, rest) = joined.split_at_mut(4)
        && let Some(rest) = rest.get_mut(..behind.len())
    {
        first.copy_from_slice(length);
        rest.copy_from_slice(behind);
        return crc32c(joined.get(..4 + behind.len()).unwrap_or_default());
    }
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(frame.get(..4).unwrap_or_default());
    digest.update(behind);
    u32::try_from(digest.finalize()).unwrap_or(0)
}

/// CRC-32C of some bytes, for whoever needs one beside a frame.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    u32::try_from(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes)).unwrap_or(0)
}

struct Header {
    length: usize,
    stored: u32,
}

type Headed = (Header, Head);

fn header(bytes: &[u8]) -> Option<Result<Headed, FrameError>> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (stored, rest) = rest.split_first_chunk::<4>()?;
    let (mark, rest) = rest.split_first_chunk::<8>()?;
    let (kind, rest) = rest.split_first_chunk::<2>()?;
    let (flags, rest) = rest.split_first_chunk::<2>()?;
    let (chain, _) = rest.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length);
    let Ok(length) = usize::try_from(length) else {
        return Some(Err(FrameError::Length { length: u64::from(length), limit: PAYLOAD_BYTES_MAX }));
    };
    let head = Head {
        mark: u64::from_le_bytes(*mark),
        kind: u16::from_le_bytes(*kind),
        flags: u16::from_le_bytes(*flags),
        chain: u32::from_le_bytes(*chain),
    };
    Some(Ok((Header { length, stored: u32::from_le_bytes(*stored) }, head)))
}

/// The first frame of `bytes` and how many bytes it takes with its padding; `None` while bytes are missing.
///
/// # Errors
/// [`FrameError::Length`] as soon as the header is there and says more than `limit`; [`FrameError::Checksum`] once all
/// bytes are there.
pub fn parse(bytes: &[u8], limit: usize) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some(headed) = header(bytes) else { return Ok(None) };
    let (header, head) = headed?;
    let length = header.length;
    let limit = limit.min(PAYLOAD_BYTES_MAX);
    if length > limit {
        return Err(FrameError::Length { length: u64::try_from(length).unwrap_or(u64::MAX), limit });
    }
    let laid = laid_bytes(length);
    let (Some(_), Some(payload)) = (bytes.get(..laid), bytes.get(HEADER_BYTES..HEADER_BYTES + length)) else {
        return Ok(None);
    };
    let computed = checksum(bytes, length);
    if computed != header.stored {
        return Err(FrameError::Checksum { stored: header.stored, computed });
    }
    let Head { mark, kind, flags, chain } = head;
    Ok(Some((Frame { mark, kind, flags, chain, payload }, laid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid(payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let (front, back) = payload.split_at(payload.len() / 2);
        lay(&mut out, Head { mark: 7, kind: 3, flags: 1, chain: 9 }, &[front, back]);
        out
    }

    #[test]
    fn what_was_laid_is_parsed_in_place_and_each_missing_byte_waits() {
        for length in [0, 1, 7, 8, 100, 4096] {
            let payload = vec![0xa5; length];
            let bytes = laid(&payload);
            assert_eq!(bytes.len(), laid_bytes(length));
            let (frame, used) = parse(&bytes, PAYLOAD_BYTES_MAX).unwrap().unwrap();
            assert_eq!(used, bytes.len());
            assert_eq!(frame, Frame { mark: 7, kind: 3, flags: 1, chain: 9, payload: &payload });
            for end in 0..bytes.len() {
                assert_eq!(parse(&bytes[..end], PAYLOAD_BYTES_MAX), Ok(None), "{end} of {}", bytes.len());
            }
        }
    }

    #[test]
    fn fields_written_in_place_make_the_same_frame_as_parts() {
        let head = Head { mark: 7, kind: 3, flags: 1, chain: 9 };
        for length in 0..20 {
            let payload = vec![0xa5; length];
            let (mut parts, mut fields) = (vec![1; 8], vec![1; 8]);
            let laid = lay(&mut parts, head, &[&payload]);
            assert_eq!(lay_with(&mut fields, head, |writer| _ = writer.raw(&payload)), laid);
            assert_eq!(parts, fields);
        }
    }

    #[test]
    fn both_ways_of_laying_give_the_same_bytes() {
        for length in [0, 1, 7, 8, 100, 4096] {
            let payload = vec![0x5a; length];
            let (front, back) = payload.split_at(length / 2);
            let head = Head { mark: 7, kind: 3, flags: 1, chain: 9 };
            let mut bytes = Vec::new();
            lay(&mut bytes, head, &[front, back]);
            let mut memory = vec![0xee; bytes.len() + 8];
            assert_eq!(lay_at(&mut memory, head, &[front, back]), Some(bytes.len()));
            assert_eq!((&memory[..bytes.len()], memory[bytes.len()]), (&bytes[..], 0xee));
            assert_eq!(lay_at(&mut memory[..bytes.len() - 1], head, &[front, back]), None);
        }
    }

    #[test]
    fn every_flipped_bit_outside_the_padding_is_seen() {
        let bytes = laid(b"hello");
        for bit in 0..(HEADER_BYTES + 5) * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let seen = parse(&bad, PAYLOAD_BYTES_MAX);
            // A longer length may just wait for more bytes: that is a refusal too, the frame is never believed.
            assert!(!matches!(seen, Ok(Some(_))), "bit {bit}: {seen:?}");
        }
    }

    #[test]
    fn the_limit_is_taken_and_one_beyond_is_refused_before_its_bytes_are_there() {
        let bytes = laid(&[1; 64]);
        assert!(matches!(parse(&bytes, 64), Ok(Some(_))));
        assert_eq!(parse(&bytes[..HEADER_BYTES], 63), Err(FrameError::Length { length: 64, limit: 63 }));
    }

    #[test]
    fn a_patched_mark_keeps_the_payload_and_mends_the_checksum() {
        let mut bytes = laid(b"the same bytes");
        mark(&mut bytes, 4711);
        let (frame, _) = parse(&bytes, PAYLOAD_BYTES_MAX).unwrap().unwrap();
        assert_eq!((frame.mark, frame.payload), (4711, &b"the same bytes"[..]));
    }

    #[test]
    fn the_checksum_is_the_field_s_crc_32c() {
        for payload in [0, 1, 99, JOINED_BYTES_MAX - 16, JOINED_BYTES_MAX - 15, 5_000] {
            let frame = laid(&vec![7; payload]);
            let summed = [&frame[..4], &frame[8..HEADER_BYTES + payload]].concat();
            assert_eq!(frame[4..8], crc32c::crc32c(&summed).to_le_bytes(), "a payload of {payload} bytes");
        }
        for length in [0_u8, 1, 9, 31, 32, 33, 255] {
            let bytes: Vec<u8> = (0..length).collect();
            assert_eq!(crc32c(&bytes), crc32c::crc32c(&bytes));
        }
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
