//! The bytes of batch and segment headers. `docs/format.md` draws them.
//!
//! Walk: [`SegmentHead`] opens a file · [`BatchHead`] opens a batch, its body are entry frames · [`Frames`] reads a
//! body · [`fold`] ties the body to its header, so that stale frames of an older write never complete a torn batch.
//! Deliberately absent: I/O.

use assent_frame::{Frame, HEADER_BYTES, Head, PAYLOAD_BYTES_MAX, Reader, Writer, crc32c, laid_bytes, lay_at, parse};

use crate::config::LOG_SIZE_MAX;

/// A device block, and the header of a segment.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// A batch header, frame header included.
pub(crate) const BATCH_BYTES: u64 = 64;
/// Kinds from here on are the journal's own.
pub const KIND_RESERVED: u16 = 0xfff0;
const KIND_BATCH: u16 = 0xffff;
const KIND_SEGMENT: u16 = 0xfffe;
pub(crate) const KIND_EPOCHS: u16 = 0xfffd;
pub(crate) const KIND_CLOSED: u16 = 0xfffc;

/// Flag of an entry frame: one piece of a longer entry.
pub(crate) const PIECE: u16 = 1;
/// Flag of a piece: the first, the entry's address.
pub(crate) const FIRST: u16 = 2;
/// Flag of a piece: it closes the entry and holds its length and checksum instead of bytes.
pub(crate) const LAST: u16 = 4;
/// Flag of an empty batch: the journal was closed properly here.
const CLOSE: u16 = 1;
/// Flag of a batch: no entry that begins before it goes on in it or behind it.
const DIVIDES: u16 = 2;

const MAGIC: [u8; 8] = *b"ASSENTJ\n";
const VERSION: u32 = 1;
const BATCH_PAYLOAD_BYTES: usize = 40;
const _: () = assert!(laid_bytes(BATCH_PAYLOAD_BYTES) == 64, "BATCH_BYTES");

/// A length as a position.
pub(crate) fn bytes(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// A position as a length; what does not fit is as long as nothing can be.
pub(crate) fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The start of the block that holds a place.
pub(crate) const fn block_of(lsn: u64) -> u64 {
    lsn - lsn % BLOCK_BYTES
}

/// The first block boundary at or behind a place.
pub(crate) const fn block_from(lsn: u64) -> u64 {
    lsn.saturating_add(BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES
}

/// What a segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHead {
    /// Its name: the place where its first batch may begin, at the earliest.
    pub(crate) first: u64,
    /// Bytes of the file.
    pub(crate) size: u64,
    /// The opening that made it, and its salt.
    pub(crate) epoch: u32,
    pub(crate) salt: u64,
    /// It was another segment before: its bytes are not zeroes.
    pub(crate) recycled: bool,
}

impl SegmentHead {
    /// Where the log goes on in another file.
    pub(crate) const fn end(&self) -> u64 {
        block_of(self.first) + self.size - BLOCK_BYTES
    }

    /// The header's bytes, without the zeroes that fill its block.
    pub(crate) fn lay(&self) -> Vec<u8> {
        let mut fields = Writer::new();
        fields.u32(VERSION).u32(self.epoch).u64(self.salt).u64(self.size);
        let head = Head { mark: self.first, kind: KIND_SEGMENT, flags: u16::from(self.recycled), chain: 0 };
        let mut out = MAGIC.to_vec();
        assent_frame::lay(&mut out, head, &[fields.as_slice()]);
        out
    }

    /// Reads the block back; the error says what is wrong.
    pub(crate) fn parse(block: &[u8]) -> Result<Self, &'static str> {
        let rest = block.strip_prefix(&MAGIC).ok_or("it does not begin as a journal segment does")?;
        let Ok(Some((frame, _))) = parse(rest, 256) else { return Err("the checksum of its header fails") };
        let fields = || -> Result<_, assent_frame::Malformed> {
            let mut reader = Reader::new(frame.payload);
            let fields = (reader.u32("version")?, reader.u32("epoch")?, reader.u64("salt")?, reader.u64("size")?);
            reader.end()?;
            Ok(fields)
        };
        let Ok((version, epoch, salt, size)) = fields() else { return Err("its header is malformed") };
        if version != VERSION {
            return Err("its format version is not 1: it was written by another release");
        }
        let sized = (2 * BLOCK_BYTES..=2 * LOG_SIZE_MAX).contains(&size) && size.is_multiple_of(BLOCK_BYTES);
        if frame.kind != KIND_SEGMENT || !sized || frame.mark > 1 << 62 {
            return Err("its header is malformed");
        }
        Ok(Self { first: frame.mark, size, epoch, salt, recycled: frame.flags & 1 == 1 })
    }
}

/// What stands before a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHead {
    /// Where it begins.
    pub(crate) lsn: u64,
    pub(crate) epoch: u32,
    pub(crate) salt: u64,
    /// Everything before this was durable when the header was written.
    pub(crate) synced: u64,
    /// How many frames its body has. None: an idle or closing batch, the next one is laid over it.
    pub(crate) entries: u32,
    /// Bytes of its body.
    pub(crate) body: u32,
    /// Bytes left free between the batch before and this one: the link that recovery follows.
    pub(crate) skipped: u32,
    /// All frames' checksums, folded.
    pub(crate) digest: u32,
    /// The journal was closed properly here.
    pub(crate) close: bool,
    /// No entry that begins before it goes on in it or behind it. Earlier releases do not say so.
    pub(crate) divides: bool,
}

impl BatchHead {
    pub(crate) fn end(&self) -> u64 {
        self.lsn + BATCH_BYTES + u64::from(self.body)
    }

    /// Lays the header at the start of `out`.
    pub(crate) fn lay(&self, out: &mut [u8]) {
        let flags = if self.close { CLOSE } else { 0 } | if self.divides { DIVIDES } else { 0 };
        let head = Head { mark: self.lsn, kind: KIND_BATCH, flags, chain: 0 };
        let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let words =
            [two(self.epoch, self.entries), self.salt, self.synced, two(self.body, self.skipped), two(self.digest, 0)];
        let mut rows = [0; BATCH_PAYLOAD_BYTES];
        let (places, _) = rows.as_chunks_mut::<8>();
        places.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
        let laid = lay_at(out, head, &[&rows]);
        debug_assert_eq!(laid.map(bytes), Some(BATCH_BYTES), "room for a header was reserved");
    }

    /// The header at the start of `at`, if one begins there that was laid for this place.
    pub(crate) fn parse(at: &[u8], lsn: u64) -> Option<Self> {
        // Cheap refusals first: the scan for later claims asks at every eighth byte.
        let kind = at.get(16..18)?;
        if kind != KIND_BATCH.to_le_bytes() || at.get(8..16)? != lsn.to_le_bytes() {
            return None;
        }
        let Ok(Some((frame, _))) = parse(at.get(..length(BATCH_BYTES))?, BATCH_PAYLOAD_BYTES) else { return None };
        let mut reader = Reader::new(frame.payload);
        let head = Self {
            lsn,
            epoch: reader.u32("epoch").ok()?,
            entries: reader.u32("entries").ok()?,
            salt: reader.u64("salt").ok()?,
            synced: reader.u64("synced").ok()?,
            body: reader.u32("body").ok()?,
            skipped: reader.u32("skipped").ok()?,
            digest: reader.u32("digest").ok()?,
            close: frame.flags & CLOSE != 0,
            divides: frame.flags & DIVIDES != 0,
        };
        // Nothing is durable before it is written.
        (head.synced <= lsn && (head.entries == 0) == (head.body == 0)).then_some(head)
    }

    /// Whether these bytes are the body, wholly.
    pub(crate) fn holds(&self, body: &[u8]) -> bool {
        if bytes(body.len()) != u64::from(self.body) {
            return false;
        }
        let mut frames = Frames::new(body, self.lsn + BATCH_BYTES);
        let (mut count, mut digest) = (0, 0);
        for (frame, _) in frames.by_ref() {
            let Some(stored) = frame.stored else { return false };
            digest = fold(digest, stored);
            count += 1;
        }
        frames.whole() && count == self.entries && digest == self.digest
    }
}

/// Takes one more frame's checksum into a batch's digest.
pub(crate) fn fold(digest: u32, checksum: u32) -> u32 {
    crc32c(&(u64::from(digest) << 32 | u64::from(checksum)).to_le_bytes())
}

/// The checksum that a laid frame says of itself.
pub(crate) fn stored_checksum(frame: &[u8]) -> Option<u32> {
    frame.get(4..8)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

/// A frame of a body and its checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) frame: Frame<'a>,
    pub(crate) stored: Option<u32>,
}

/// The frames of a body, each with the place where it ends, up to the first that was not laid for its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames<'a> {
    rest: &'a [u8],
    at: u64,
}

impl<'a> Frames<'a> {
    pub(crate) const fn new(body: &'a [u8], at: u64) -> Self {
        Self { rest: body, at }
    }

    /// Whether all bytes were frames.
    pub(crate) const fn whole(&self) -> bool {
        self.rest.is_empty()
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = (Placed<'a>, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let stored = stored_checksum(self.rest);
        let Ok(Some((frame, laid))) = parse(self.rest, PAYLOAD_BYTES_MAX) else { return None };
        if frame.mark != self.at || frame.kind >= KIND_RESERVED {
            return None;
        }
        self.rest = self.rest.get(laid..)?;
        self.at += bytes(laid);
        Some((Placed { frame, stored }, self.at))
    }
}

/// What the last piece of a long entry says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChainEnd {
    /// Where its first piece stands.
    pub(crate) first: u64,
    /// Bytes of all pieces.
    pub(crate) total: u64,
    /// CRC-32C of all of them.
    pub(crate) checksum: u32,
    /// How many pieces came before.
    pub(crate) pieces: u32,
}

impl ChainEnd {
    /// Bytes of the frame.
    pub(crate) const LAID_BYTES: usize = laid_bytes(24);

    pub(crate) fn lay(&self) -> [u8; 24] {
        let mut out = [0; 24];
        let (rows, _) = out.as_chunks_mut::<8>();
        if let [first, total, last] = rows {
            *first = self.first.to_le_bytes();
            *total = self.total.to_le_bytes();
            *last = (u64::from(self.checksum) | u64::from(self.pieces) << 32).to_le_bytes();
        }
        out
    }

    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let end = Self {
            first: reader.u64("first").ok()?,
            total: reader.u64("total").ok()?,
            checksum: reader.u32("checksum").ok()?,
            pieces: reader.u32("pieces").ok()?,
        };
        reader.end().is_ok().then_some(end)
    }
}

const _: () = assert!(HEADER_BYTES == 24, "a chain's last frame takes 48 bytes");
