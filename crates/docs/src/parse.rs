//! JSON in: streamed, in bounded memory, numbers by their digits.
//!
//! Walk: [`Edit::insert_json`] and [`Edit::replace`] read one value · the parser's events go into a [`Build`], or whatever else
//! [`Takes`] them.
//! Deliberately absent: more than RFC 8259: no comments, no NaN, no second value behind the first.

use std::collections::HashSet;
use std::io::Read;

use json_event_parser::{JsonEvent, JsonParseError, ReaderJsonParser};

use crate::DocsError;
use crate::build::Build;
use crate::edit::{At, Edit, Value};
use crate::look::Look as _;
use crate::node::NodeKey;

/// What a byte of a text takes as an escape, at most.
const ESCAPED_BYTES: usize = 6;

impl Edit {
    /// Puts a value that is read as JSON somewhere, and gives its key. In an object it needs a name, elsewhere it has none.
    ///
    /// # Errors
    /// As [`Edit::insert`]; [`DocsError::Json`] with line and column, [`DocsError::Stream`]. Nothing has changed then.
    pub fn insert_json(&mut self, at: At, name: Option<&str>, json: impl Read) -> Result<NodeKey, DocsError> {
        let text_bytes_max = self.store.config.text_bytes_max;
        self.insert_built(at, name, |build| fill(build, name, json, text_bytes_max))
    }

    /// Puts members into an object, one behind the other, each a value that is read as JSON: all of them or none. What is there is
    /// walked once, however many come.
    ///
    /// # Errors
    /// As [`Edit::insert_json`]; [`DocsError::Duplicate`] for a name that is there, or that comes twice.
    pub fn insert_members(&mut self, at: At, members: &[(&str, &[u8])]) -> Result<(), DocsError> {
        let text_bytes_max = self.store.config.text_bytes_max;
        let Some((first, _)) = members.first() else { return Ok(()) };
        let object = self.hook(at, Some(first))?.parent;
        let names: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
        let there = self.members(object, &names)?;
        let mut known = HashSet::new();
        let mut taken = names.iter().zip(there).filter(|(name, there)| there.is_some() || !known.insert(**name));
        if let Some((name, _)) = taken.next() {
            return Err(DocsError::Duplicate { key: object, name: (*name).to_owned() });
        }
        let (mut at, mut made) = (at, Vec::new());
        for (name, json) in members {
            match self.insert_new(at, |build| fill(build, Some(name), *json, text_bytes_max)) {
                Ok(key) => {
                    made.push(key);
                    at = At::After(key);
                }
                Err(error) => {
                    // No copy of all that the edit has was kept for this.
                    if let Err(why) = made.into_iter().try_for_each(|key| self.remove(key)) {
                        // To take something out needs room, too: what stays is not committed.
                        self.failed.get_or_insert(why);
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// What takes a value in, piece by piece.
pub(crate) trait Takes {
    /// A container begins.
    fn open(&mut self, value: Value<'_>, name: Option<&str>) -> Result<(), DocsError>;

    /// A value that is no container.
    fn leaf(&mut self, value: Value<'_>, name: Option<&str>) -> Result<(), DocsError>;

    /// The innermost container ends.
    fn close(&mut self) -> Result<(), DocsError>;
}

impl Takes for Build<'_> {
    fn open(&mut self, value: Value<'_>, name: Option<&str>) -> Result<(), DocsError> {
        Build::open(self, value, name)
    }

    fn leaf(&mut self, value: Value<'_>, name: Option<&str>) -> Result<(), DocsError> {
        Build::leaf(self, value, name)
    }

    fn close(&mut self) -> Result<(), DocsError> {
        Build::close(self)
    }
}

/// Reads one value into a build.
pub(crate) fn fill(
    build: &mut impl Takes,
    name: Option<&str>,
    json: impl Read,
    text_bytes_max: u32,
) -> Result<(), DocsError> {
    let buffer = usize::try_from(text_bytes_max).unwrap_or(usize::MAX).saturating_mul(ESCAPED_BYTES);
    let mut parser = ReaderJsonParser::new(json).with_max_buffer_size(buffer.saturating_add(4096));
    let (mut name, mut member) = (name, String::new());
    let mut is_member = false;
    loop {
        let event = parser.parse_next().map_err(|error| told(&error))?;
        let name = if std::mem::take(&mut is_member) { Some(member.as_str()) } else { name.take() };
        match event {
            JsonEvent::ObjectKey(key) => {
                member.clear();
                member.push_str(&key);
                is_member = true;
            }
            JsonEvent::StartObject => build.open(Value::Object, name)?,
            JsonEvent::StartArray => build.open(Value::Array, name)?,
            JsonEvent::EndObject | JsonEvent::EndArray => build.close()?,
            JsonEvent::String(text) => build.leaf(Value::String(&text), name)?,
            JsonEvent::Number(digits) => build.leaf(Value::Number(&digits), name)?,
            JsonEvent::Boolean(value) => build.leaf(Value::Bool(value), name)?,
            JsonEvent::Null => build.leaf(Value::Null, name)?,
            JsonEvent::Eof => return Ok(()),
        }
    }
}

pub(crate) fn told(error: &JsonParseError) -> DocsError {
    match error {
        JsonParseError::Io(error) => DocsError::Stream { doing: "reading JSON", error: error.to_string() },
        JsonParseError::Syntax(error) => {
            let start = error.location().start;
            let what = format!("line {}, column {}: {}", start.line + 1, start.column + 1, error.message());
            DocsError::Json { what }
        }
    }
}
