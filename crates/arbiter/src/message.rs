//! What a witness and its members say to each other: one frame a message.
//!
//! ```text
//!   question, kind 1: version 1 · group · expect · at most ms · configuration (text; empty: only to be told)
//!   answer,   kind 2: result (0 held, 1 refused) · kind of the refusal · text: a configuration (empty: none yet), or why not
//! ```
//! The frame's mark counts the questions of a connection; the answer carries it back. A question without a configuration
//! is answered at once if another version than `expect` is held, else when that changes or the time is up: with time 0 it
//! is a read, with more it is a watch.

use assent_frame::{Head, Malformed, Reader, Writer};
use assent_kind::Kind;
use assent_membership::Configuration;

use crate::arbiter::{ArbiterError, GroupName};
use crate::text;

pub(crate) const KIND_QUESTION: u16 = 1;
pub(crate) const KIND_ANSWER: u16 = 2;
const VERSION: u8 = 1;
/// The most bytes of one message.
pub(crate) const BYTES_MAX: usize = text::BYTES_MAX + 256;

/// What a member asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) group: GroupName,
    /// The version that must be held, or that was seen.
    pub(crate) expect: u64,
    /// How long to wait for another one.
    pub(crate) wait_ms: u32,
    /// What shall be held.
    pub(crate) to: Option<Configuration>,
}

/// Why a member was refused; only the kind travels, and the words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) kind: Kind,
    pub(crate) why: String,
}

impl From<ArbiterError> for Refusal {
    fn from(error: ArbiterError) -> Self {
        Self { kind: error.kind(), why: error.to_string() }
    }
}

impl From<Malformed> for Refusal {
    fn from(error: Malformed) -> Self {
        Self { kind: Kind::Invalid, why: error.to_string() }
    }
}

pub(crate) fn lay_question(out: &mut Vec<u8>, mark: u64, question: &Question) {
    let to = question.to.as_ref().map(text::write).unwrap_or_default();
    let mut fields = Writer::new();
    fields.u8(VERSION).text(question.group.as_str()).u64(question.expect).u32(question.wait_ms).text(&to);
    let head = Head { mark, kind: KIND_QUESTION, ..Head::default() };
    assent_frame::lay(out, head, &[fields.as_slice()]);
}

pub(crate) fn read_question(payload: &[u8]) -> Result<Question, Refusal> {
    let mut fields = Reader::new(payload);
    let version = fields.u8("version")?;
    if version != VERSION {
        let why = format!("a question of version {version}; this witness speaks {VERSION}");
        return Err(Refusal { kind: Kind::Invalid, why });
    }
    let group = fields.text("group")?.parse::<GroupName>()?;
    let (expect, wait_ms) = (fields.u64("expect")?, fields.u32("at most")?);
    let to = fields.bytes("configuration")?;
    fields.end()?;
    let to = match to {
        [] => None,
        to => Some(text::read(to).map_err(|why| Refusal { kind: Kind::Invalid, why })?),
    };
    Ok(Question { group, expect, wait_ms, to })
}

pub(crate) fn lay_answer(out: &mut Vec<u8>, mark: u64, answer: &Result<Configuration, Refusal>) {
    let mut fields = Writer::new();
    match answer {
        Ok(held) if held.version == 0 => fields.u8(0).u8(0).text(""),
        Ok(held) => fields.u8(0).u8(0).text(&text::write(held)),
        Err(refusal) => fields.u8(1).u8(refusal.kind.wire()).text(&refusal.why.chars().take(1_000).collect::<String>()),
    };
    let head = Head { mark, kind: KIND_ANSWER, ..Head::default() };
    assent_frame::lay(out, head, &[fields.as_slice()]);
}

pub(crate) fn read_answer(payload: &[u8]) -> Result<Result<Configuration, Refusal>, String> {
    let mut fields = Reader::new(payload);
    let mut read = || {
        let (result, kind) = (fields.u8("result")?, fields.u8("kind")?);
        let text = fields.bytes("text")?;
        fields.end().map(|()| (result, kind, text))
    };
    let (result, kind, text) = read().map_err(|error: Malformed| error.to_string())?;
    match (result, text) {
        (0, []) => Ok(Ok(Configuration::default())),
        (0, held) => text::read(held).map(Ok),
        _ => {
            let why = String::from_utf8_lossy(text).into_owned();
            Ok(Err(Refusal { kind: Kind::from_wire(kind), why }))
        }
    }
}
