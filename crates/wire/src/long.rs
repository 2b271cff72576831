//! Messages that are longer than a frame: laid in parts, and put together again.
//!
//! ```text
//!   part    | frame: mark and kind of the message, flags 1, chain: bytes of the message from here to its end | bytes |
//! ```
//! Each part carries the message's mark and kind, so that other messages may stand between two parts. The first part says
//! how long the message is, before memory is spent on it; a part says where it belongs, so that none is lost unseen.
//!
//! Walk: [`lay`] lays a payload as a frame or as parts · [`Assembly`] gathers parts, or counts them away · [`Long`] is an
//! answer that leaves part by part, as fast as its reader takes it.
//! Deliberately absent: who may have how many under way; that is the server's to say.

use assent_frame::{Frame, Head};

use crate::{PAYLOAD_BYTES_MAX, WireError};

/// The most bytes of one message: a value of full length (256 MiB) with its key and its metadata.
pub const MESSAGE_BYTES_MAX: usize = (256 << 20) + (1 << 20);

/// In a frame's flags: this is a part.
const PART: u16 = 1;

/// Bytes of a part's payload; frames of this size need no padding between them.
fn part_bytes(limit: usize) -> usize {
    (limit.min(PAYLOAD_BYTES_MAX) & !7).max(8)
}

fn part(out: &mut Vec<u8>, mark: u64, kind: u16, left: usize, pieces: &[&[u8]]) {
    let chain = u32::try_from(left).unwrap_or(u32::MAX);
    assent_frame::lay(out, Head { mark, kind, flags: PART, chain }, pieces);
}

/// Lays a payload: as one frame if that is enough, else as parts.
pub(crate) fn lay(out: &mut Vec<u8>, mark: u64, kind: u16, limit: usize, payload: &[u8]) {
    if payload.len() <= limit.min(PAYLOAD_BYTES_MAX) {
        assent_frame::lay(out, Head { mark, kind, ..Head::default() }, &[payload]);
        return;
    }
    let mut left = payload.len();
    for piece in payload.chunks(part_bytes(limit)) {
        part(out, mark, kind, left, &[piece]);
        left -= piece.len();
    }
}

/// A message of which parts have come.
#[derive(Debug)]
pub struct Assembly {
    mark: u64,
    kind: u16,
    bytes: Vec<u8>,
    received: usize,
    whole: usize,
    is_kept: bool,
}

impl Assembly {
    /// Whether a frame is a part of a message, and not one.
    #[must_use]
    pub const fn is_part(frame: &Frame<'_>) -> bool {
        frame.flags & PART != 0
    }

    /// How long the message is whose first part this is.
    #[must_use]
    pub fn announced(first: &Frame<'_>) -> usize {
        usize::try_from(first.chain).unwrap_or(usize::MAX)
    }

    /// Begins with a first part. Memory grows only as bytes arrive; of a message that is not kept, they are only counted.
    ///
    /// # Errors
    /// [`WireError::Part`]: the stream cannot be followed any further.
    pub fn begin(first: &Frame<'_>, is_kept: bool) -> Result<Self, WireError> {
        let whole = Self::announced(first);
        if first.payload.is_empty() || first.payload.len() >= whole {
            return Err(WireError::Part { what: "a first part that is empty or the whole" });
        }
        let mut it = Self { mark: first.mark, kind: first.kind, bytes: Vec::new(), received: 0, whole, is_kept };
        it.keep(first.payload);
        Ok(it)
    }

    /// Adds the next part.
    ///
    /// # Errors
    /// [`WireError::Part`]: the stream cannot be followed any further.
    pub fn add(&mut self, next: &Frame<'_>) -> Result<(), WireError> {
        if next.mark != self.mark || next.kind != self.kind {
            return Err(WireError::Part { what: "a part of another message" });
        }
        let left = self.whole - self.received;
        if Self::announced(next) != left || next.payload.is_empty() || next.payload.len() > left {
            return Err(WireError::Part { what: "a part that does not follow the one before" });
        }
        self.keep(next.payload);
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.received += bytes.len();
        if self.is_kept {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Whether all parts have come.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.received == self.whole
    }

    /// Whether its bytes are kept.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// The id of its request.
    #[must_use]
    pub const fn mark(&self) -> u64 {
        self.mark
    }

    /// The message, as if it were one frame.
    #[must_use]
    pub fn frame(&self) -> Frame<'_> {
        Frame { mark: self.mark, kind: self.kind, flags: 0, chain: 0, payload: &self.bytes }
    }

    /// Its kind and its bytes.
    #[must_use]
    pub fn into_parts(self) -> (u16, Vec<u8>) {
        (self.kind, self.bytes)
    }
}

/// An answer that leaves part by part.
#[derive(Debug)]
pub struct Long {
    mark: u64,
    kind: u16,
    head: Vec<u8>,
    body: Vec<u8>,
    at: usize,
}

impl Long {
    /// `Answer::Value` of a value that is not copied again.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] beyond [`MESSAGE_BYTES_MAX`].
    pub fn value(mark: u64, value: Vec<u8>) -> Result<Self, WireError> {
        let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
        let mut head = vec![1];
        head.extend_from_slice(&length.to_le_bytes());
        let bytes = head.len() + value.len();
        if bytes > MESSAGE_BYTES_MAX {
            return Err(WireError::TooLarge { bytes, limit: MESSAGE_BYTES_MAX });
        }
        Ok(Self { mark, kind: crate::answer::VALUE, head, body: value, at: 0 })
    }

    /// Lays the next frame of it; whether there are more.
    pub fn next(&mut self, out: &mut Vec<u8>, limit: usize) -> bool {
        let whole = self.head.len() + self.body.len();
        let left = whole - self.at;
        let take = left.min(part_bytes(limit));
        let end = self.at + take;
        let head = self.head.get(self.at.min(self.head.len())..end.min(self.head.len())).unwrap_or_default();
        let from = self.at.saturating_sub(self.head.len());
        let body = self.body.get(from..end.saturating_sub(self.head.len())).unwrap_or_default();
        if take == whole {
            assent_frame::lay(out, Head { mark: self.mark, kind: self.kind, ..Head::default() }, &[head, body]);
        } else {
            part(out, self.mark, self.kind, left, &[head, body]);
        }
        self.at = end;
        end < whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, Op, Request, Write};

    fn frames(mut bytes: &[u8]) -> Vec<Frame<'_>> {
        let mut all = Vec::new();
        while let Some((frame, used)) = assent_frame::parse(bytes, PAYLOAD_BYTES_MAX).unwrap() {
            all.push(frame);
            bytes = &bytes[used..];
        }
        assert!(bytes.is_empty());
        all
    }

    fn gather(frames: &[Frame<'_>]) -> Assembly {
        let mut gathered = Assembly::begin(&frames[0], true).unwrap();
        for next in &frames[1..] {
            assert!(!gathered.is_whole());
            gathered.add(next).unwrap();
        }
        assert!(gathered.is_whole());
        gathered
    }

    #[test]
    fn a_request_of_any_length_comes_out_as_it_went_in() {
        // Around one frame of 64 bytes, around two of them, and many.
        for length in [0, 40, 41, 42, 43, 44, 45, 107, 108, 109, 110, 5_000] {
            let value = vec![7; length];
            let request = Request::Write(Write {
                xid: None,
                durable: true,
                ops: vec![Op::Put { keyspace: 3, key: b"key", value: &value }],
            });
            let mut out = Vec::new();
            request.lay_long(&mut out, 9, 64, MESSAGE_BYTES_MAX).unwrap();
            let frames = frames(&out);
            let payload = length + 18;
            assert_eq!(frames.len(), payload.div_ceil(64), "{length}");
            assert!(frames.iter().all(|frame| frame.mark == 9 && frame.payload.len() <= 64));
            if payload <= 64 {
                assert!(!Assembly::is_part(&frames[0]));
                assert_eq!(Request::parse(&frames[0]), Ok(request));
            } else {
                assert_eq!(Assembly::announced(&frames[0]), payload);
                assert_eq!(Request::parse(&gather(&frames).frame()), Ok(request));
            }
        }
    }

    #[test]
    fn a_request_beyond_the_limit_lays_nothing() {
        let value = vec![7; 1000];
        let ops = vec![Op::Put { keyspace: 3, key: b"key", value: &value }];
        let request = Request::Write(Write { xid: None, durable: true, ops });
        let mut out = vec![5];
        let refused = request.lay_long(&mut out, 9, 64, 1017);
        assert_eq!((refused, out.as_slice()), (Err(WireError::TooLarge { bytes: 1018, limit: 1017 }), &[5][..]));
        assert!(request.lay_long(&mut out, 9, 64, 1018).is_ok());
    }

    #[test]
    fn a_value_leaves_part_by_part_and_is_the_answer_again() {
        for length in [0, 1, 58, 59, 60, 122, 123, 124, 1000] {
            let value: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let mut long = Long::value(4, value.clone()).unwrap();
            let mut out = Vec::new();
            while long.next(&mut out, 64) {}
            let frames = frames(&out);
            let whole = if frames.len() == 1 {
                assert!(!Assembly::is_part(&frames[0]), "{length}");
                Answer::parse(&frames[0]) == Ok(Answer::Value(Some(&value)))
            } else {
                Answer::parse(&gather(&frames).frame()) == Ok(Answer::Value(Some(&value)))
            };
            assert!(whole, "{length}");
        }
    }

    #[test]
    fn parts_that_do_not_follow_are_refused_and_what_is_not_kept_takes_no_memory() {
        let payload: Vec<u8> = (0..200).collect();
        let mut out = Vec::new();
        lay(&mut out, 5, 0x31, 64, &payload);
        let frames = frames(&out);
        let begun = || Assembly::begin(&frames[0], true).unwrap();
        let wrong = [
            Frame { mark: 6, ..frames[1] },
            Frame { kind: 0x30, ..frames[1] },
            Frame { chain: 135, ..frames[1] },
            Frame { payload: &[], ..frames[1] },
            frames[2],
            Frame { payload: &payload, ..frames[1] },
        ];
        for frame in wrong {
            assert!(matches!(begun().add(&frame), Err(WireError::Part { .. })), "{frame:?}");
        }
        for first in
            [Frame { payload: &[], ..frames[0] }, Frame { chain: 64, ..frames[0] }, Frame { chain: 0, ..frames[0] }]
        {
            assert!(matches!(Assembly::begin(&first, true), Err(WireError::Part { .. })), "{first:?}");
        }
        let mut counted = Assembly::begin(&frames[0], false).unwrap();
        frames[1..].iter().for_each(|next| counted.add(next).unwrap());
        assert!(counted.is_whole() && !counted.is_kept());
        assert_eq!((counted.mark(), counted.into_parts()), (5, (0x31, Vec::new())));
    }
}
