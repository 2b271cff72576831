//! JSON out for whoever asks for bytes: the walk goes on when the next piece is asked for.
//!
//! Walk: [`Form::chunks`] · each piece is about [`CHUNK_BYTES`] long, or one value longer.
//! Deliberately absent: a thread.

use crate::DocsError;
use crate::look::Look;
use crate::serialise::{Form, Sheet, Writing, Written};

/// A piece is given when it is that long.
const CHUNK_BYTES: usize = 32 << 10;
/// Room for the value that makes a piece long enough, if it is short.
const ROOM_BYTES: usize = CHUNK_BYTES + 512;

/// The pieces of a subtree as JSON. After an error there are no more.
pub struct Chunks<L> {
    writing: Option<Writing<L>>,
    is_begun: bool,
    written: Written,
}

impl Form {
    /// A subtree as JSON, piece by piece. The first error is the last item.
    pub fn chunks<L: Look>(self, look: L) -> Chunks<L> {
        let writing = Writing::new(self, look, Sheet::with_room(ROOM_BYTES));
        Chunks { writing: Some(writing), is_begun: false, written: Written::default() }
    }
}

impl<L: Look> Chunks<L> {
    /// What has been written so far; all of it once there are no more pieces.
    #[must_use]
    pub fn written(&self) -> Written {
        self.writing.as_ref().map_or(self.written, |writing| writing.pen.written)
    }

    /// Whether there are no more pieces.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.writing.is_none()
    }

    fn fill(&mut self) -> Result<Option<Vec<u8>>, DocsError> {
        let Some(writing) = &mut self.writing else { return Ok(None) };
        if !self.is_begun {
            self.is_begun = true;
            writing.begin()?;
        }
        // A value alone may be as long as that too: it is a piece like others, and whether it was the last one is known behind it.
        if writing.step(CHUNK_BYTES)? || writing.pen.out.len() >= CHUNK_BYTES {
            return Ok(Some(std::mem::replace(&mut writing.pen.out, Sheet::with_room(ROOM_BYTES)).taken()));
        }
        self.written = writing.pen.written;
        let last = self.writing.take().map(|writing| writing.pen.out.taken());
        Ok(last.filter(|last| !last.is_empty()))
    }
}

impl<L: Look> Iterator for Chunks<L> {
    type Item = Result<Vec<u8>, DocsError>;

    fn next(&mut self) -> Option<Self::Item> {
        let filled = self.fill();
        if filled.is_err() {
            self.writing = None;
        }
        filled.transpose()
    }
}

impl<L> std::fmt::Debug for Chunks<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chunks").field("written", &self.written).finish_non_exhaustive()
    }
}
