//! Loading many values: one JSON value a line (NDJSON), each behind all others of an array.
//!
//! Walk: [`Document::load_lines`] streams line after line into a [`crate::Writer`], which commits by itself; what it holds in memory
//! is bounded, however long a line is, however many there are.
//! Deliberately absent: threads, and values that end elsewhere than at the end of a line.

use std::io::{self, BufRead, Read};

use crate::DocsError;
use crate::document::Document;
use crate::edit::{At, Edit, Value};
use crate::entry::Meta;
use crate::look::Look;
use crate::node::{Kind, NodeKey};
use crate::writer::Every;

/// Progress is told after so many bytes, and with each commit.
const TOLD_BYTES: u64 = 1 << 20;

/// How far a load has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Bytes read.
    pub bytes: u64,
    /// Lines read, blank ones too.
    pub lines: u64,
    /// Values put into the array.
    pub values: u64,
    /// Of these, values that are committed: they stay, whatever happens later.
    pub committed: u64,
    /// The newest revision.
    pub revision: u32,
}

impl Document {
    /// Appends one value a line to the document's array; an empty document becomes one. Blank lines are skipped. Commits as `every`
    /// says, and at the end; tells how far it is about every megabyte, and with each commit.
    ///
    /// # Errors
    /// [`DocsError::Line`] with the line and how many values stay: those committed before it. [`DocsError::Unfit`] if the document's value
    /// is no array.
    pub fn load_lines(
        &self,
        input: impl BufRead,
        every: Every,
        meta: &Meta,
        mut told: impl FnMut(Loaded),
    ) -> Result<Loaded, DocsError> {
        let mut input = Lines { input, bytes: 0, lines: 0, is_over: true };
        let mut loaded = Loaded { revision: self.latest().number(), ..Loaded::default() };
        let mut writer = self.writer(every, meta.clone());
        let limit = self.store.config.text_bytes_max;
        let mut array = None;
        let mut told_at = 0;
        loop {
            let line = input.lines + 1;
            let step = input.begin().map_err(stream).and_then(|is_more| {
                if !is_more {
                    return writer.commit().map(|revision| (false, Some(revision.number())));
                }
                writer.change(|edit| {
                    let parent = match array {
                        Some(array) => array,
                        None => *array.insert(the_array(edit)?),
                    };
                    edit.insert_line(parent, &mut input, limit)
                })?;
                // Behind a commit the array is looked for again: somebody else may have written.
                let is_committed = writer.uncommitted() == 0;
                Ok((true, is_committed.then(|| self.latest().number())))
            });
            let (is_more, committed) = step.map_err(|error| DocsError::Line {
                line: line.max(input.lines),
                committed: loaded.committed,
                error: Box::new(error),
            })?;
            loaded.values += u64::from(is_more);
            (loaded.bytes, loaded.lines) = (input.bytes, input.lines);
            if let Some(revision) = committed {
                (loaded.committed, loaded.revision, array) = (loaded.values, revision, None);
            }
            if committed.is_some() || loaded.bytes - told_at >= TOLD_BYTES {
                told_at = loaded.bytes;
                told(loaded);
            }
            if !is_more {
                return Ok(loaded);
            }
        }
    }
}

impl Edit {
    fn insert_line(&mut self, array: NodeKey, line: impl Read, text_bytes_max: u32) -> Result<(), DocsError> {
        self.insert_built(At::Last(array), None, |build| crate::parse::fill(build, None, line, text_bytes_max))
            .map(drop)
    }
}

/// The array that values are put into.
fn the_array(edit: &mut Edit) -> Result<NodeKey, DocsError> {
    match edit.value() {
        None => edit.insert(At::Last(NodeKey::DOCUMENT), None, Value::Array),
        Some(key) if edit.item(key)?.node.kind == Kind::Array => Ok(key),
        Some(key) => Err(DocsError::Unfit { key, why: "values are loaded into an array" }),
    }
}

fn stream(error: io::Error) -> DocsError {
    DocsError::Stream { doing: "reading lines", error: error.to_string() }
}

/// One line after the other: each is read as if the input ended with it.
struct Lines<R> {
    input: R,
    bytes: u64,
    lines: u64,
    is_over: bool,
}

impl<R: BufRead> Lines<R> {
    /// To the next line that is not blank. Whether there is one.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            let buffer = self.input.fill_buf()?;
            let Some(first) = buffer.first().copied() else { return Ok(false) };
            let blank = matches!(first, b' ' | b'\t' | b'\r' | b'\n');
            if !blank {
                self.is_over = false;
                return Ok(true);
            }
            self.lines += u64::from(first == b'\n');
            self.bytes += 1;
            self.input.consume(1);
        }
    }
}

impl<R: BufRead> Read for Lines<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.is_over {
            return Ok(0);
        }
        let buffer = self.input.fill_buf()?;
        let some = buffer.get(..out.len()).unwrap_or(buffer);
        // JSON has no line end within a value but where blanks may be: a string says it as an escape.
        let end = some.iter().position(|byte| *byte == b'\n');
        let count = end.unwrap_or(some.len());
        out.iter_mut().zip(some.iter().take(count)).for_each(|(to, from)| *to = *from);
        self.is_over = end.is_some() || buffer.is_empty();
        let taken = count + usize::from(end.is_some());
        self.lines += u64::from(self.is_over);
        self.bytes += u64::try_from(taken).unwrap_or(u64::MAX);
        self.input.consume(taken);
        // Nothing before the line's end: it is over.
        Ok(count)
    }
}
