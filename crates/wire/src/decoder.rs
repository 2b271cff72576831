//! Frames out of a stream's bytes, whatever the pieces they arrive in.
//!
//! Walk: read into [`Decoder::space`], say how much with [`Decoder::filled`], then take every [`Decoder::frame`].
//! Deliberately absent: the reading itself. Memory is bounded by the largest message, and grows only as its bytes arrive.

use assent_frame::{Frame, PAYLOAD_BYTES_MAX, laid_bytes};

use crate::WireError;

/// What a quiet connection keeps.
const QUIET_BYTES: usize = 16 << 10;

/// A connection's incoming bytes.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    limit: usize,
}

impl Decoder {
    /// Takes messages of up to `limit` payload bytes ([`PAYLOAD_BYTES_MAX`] at most). Holds no memory yet.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, end: 0, limit: limit.min(PAYLOAD_BYTES_MAX) }
    }

    /// Room for bytes to be read into; never empty once [`Decoder::frame`] has answered that none is whole.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            // A large message is over: what it took goes back.
            if self.buffer.len() != QUIET_BYTES {
                self.buffer = vec![0; QUIET_BYTES];
            }
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end == self.buffer.len() {
                let most = laid_bytes(self.limit).max(QUIET_BYTES);
                self.buffer.resize((2 * self.end).min(most), 0);
            }
        }
        self.buffer.get_mut(self.end..).unwrap_or_default()
    }

    /// That many bytes of the space have been read.
    pub fn filled(&mut self, bytes: usize) {
        self.end = self.buffer.len().min(self.end.saturating_add(bytes));
    }

    /// The next whole frame; `None` while bytes of it are missing.
    ///
    /// # Errors
    /// [`WireError::Frame`]: what follows cannot be told from garbage; close the connection.
    pub fn frame(&mut self) -> Result<Option<Frame<'_>>, WireError> {
        let bytes = self.buffer.get(self.start..self.end).unwrap_or_default();
        let Some((frame, used)) = assent_frame::parse(bytes, self.limit)? else { return Ok(None) };
        self.start += used;
        Ok(Some(frame))
    }

    /// Whether bytes of an unfinished frame wait for the rest.
    #[must_use]
    pub const fn is_partial(&self) -> bool {
        self.start != self.end
    }

    /// The memory it holds.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Op, Request, Write};

    fn feed(decoder: &mut Decoder, mut bytes: &[u8], seen: &mut Vec<u64>) {
        while !bytes.is_empty() {
            let space = decoder.space();
            assert!(!space.is_empty(), "no whole frame waits, so there is room");
            let take = space.len().min(bytes.len());
            space[..take].copy_from_slice(&bytes[..take]);
            decoder.filled(take);
            bytes = &bytes[take..];
            while let Some(frame) = decoder.frame().unwrap() {
                seen.push(frame.mark);
            }
        }
    }

    fn messages() -> Vec<u8> {
        let mut bytes = Vec::new();
        for (mark, length) in (1..).zip([0, 1, 100, 20_000, 5, 600_000, 0]) {
            let value = vec![7; length];
            let ops = vec![Op::Put { keyspace: 0, key: b"k", value: &value }];
            let write = Write { xid: None, durable: true, ops };
            Request::Write(write).lay(&mut bytes, mark, PAYLOAD_BYTES_MAX).unwrap();
        }
        bytes
    }

    #[test]
    fn frames_come_out_whole_whatever_the_pieces_and_memory_goes_back() {
        let bytes = messages();
        for piece in [1_usize, 7, 24, 4096, 65_536, usize::MAX] {
            let mut decoder = Decoder::new(PAYLOAD_BYTES_MAX);
            assert_eq!(decoder.held_bytes(), 0);
            let mut seen = Vec::new();
            for piece in bytes.chunks(piece.min(bytes.len())) {
                feed(&mut decoder, piece, &mut seen);
                assert!(decoder.held_bytes() <= laid_bytes(PAYLOAD_BYTES_MAX));
            }
            assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7], "in pieces of {piece}");
            assert!(!decoder.is_partial());
            decoder.space();
            assert_eq!(decoder.held_bytes(), QUIET_BYTES);
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_memory_is_spent_on_it() {
        let bytes = messages();
        let mut decoder = Decoder::new(19_999);
        let mut outcome = Ok(());
        for piece in bytes.chunks(512) {
            decoder.space()[..piece.len()].copy_from_slice(piece);
            decoder.filled(piece.len());
            while let Some(frame) = match decoder.frame() {
                Ok(frame) => frame,
                Err(error) => {
                    outcome = Err(error);
                    None
                }
            } {
                assert!(frame.mark < 4);
            }
            if outcome.is_err() {
                break;
            }
        }
        assert!(matches!(outcome, Err(WireError::Frame(_))), "{outcome:?}");
        assert_eq!(decoder.held_bytes(), QUIET_BYTES);
    }

    #[test]
    fn a_flipped_bit_ends_the_stream() {
        let mut bytes = messages();
        bytes[30] ^= 1;
        let mut decoder = Decoder::new(PAYLOAD_BYTES_MAX);
        decoder.space()[..100].copy_from_slice(&bytes[..100]);
        decoder.filled(100);
        assert!(decoder.frame().is_err());
        assert!(decoder.frame().is_err(), "and stays ended");
    }
}
