//! A write of a key as JSON and as headers have it, and its conditions.
//!
//! Walk: [`Write`] is one of the list that a transaction is given · [`Write::lay`] makes it the store's own · [`expects`]
//! reads `If-Match` and `If-None-Match` · [`keyspace`] a number or a name.

use assent_ids::Lsn;
use assent_kind::Kind;
use assent_kv::{Condition, Expect, Kv, NAMED_FROM, Op};
use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::problem::Problem;

/// A keyspace as JSON has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Where {
    Number(u32),
    Name(String),
}

/// What a key must be.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum If {
    At(u64),
    Word(String),
}

/// One write.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Write {
    keyspace: Option<Where>,
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
    metadata_base64: Option<String>,
    #[serde(default)]
    delete: bool,
    #[serde(default)]
    expires_ms: u64,
    #[serde(rename = "if")]
    condition: Option<If>,
}

/// A write with its bytes.
#[derive(Debug)]
pub(crate) struct Laid {
    keyspace: u32,
    key: Vec<u8>,
    /// None deletes.
    value: Option<Vec<u8>>,
    metadata: Vec<u8>,
    expires_ms: u64,
    expects: Option<Expect>,
}

impl Write {
    /// The keyspace as the caller named it: what his roles are asked for.
    pub(crate) fn scope(&self) -> String {
        match &self.keyspace {
            None => "0".to_owned(),
            Some(Where::Number(number)) => number.to_string(),
            Some(Where::Name(name)) => name.clone(),
        }
    }

    pub(crate) const fn deletes(&self) -> bool {
        self.delete
    }

    pub(crate) fn lay(self, kv: &Kv) -> Result<Laid, Problem> {
        let keyspace = keyspace(kv, &self.scope())?;
        let key = one("key", self.key, self.key_base64)?.ok_or_else(|| Problem::invalid("a write without a key"))?;
        let value = one("value", self.value, self.value_base64)?;
        let value = match (value, self.delete) {
            (None, true) => None,
            (Some(value), false) => Some(value),
            _ => return Err(Problem::invalid("a write has either a value, or `\"delete\": true`")),
        };
        let expects = match self.condition {
            None => None,
            Some(If::At(lsn)) => Some(Expect::At(Lsn(lsn))),
            Some(If::Word(word)) => match word.as_str() {
                "absent" => Some(Expect::Absent),
                "present" => Some(Expect::Present),
                _ => return Err(Problem::invalid(format!("if = {word:?}; it is \"absent\", \"present\" or a number"))),
            },
        };
        let metadata = one("metadata", None, self.metadata_base64)?.unwrap_or_default();
        Ok(Laid { keyspace, key, value, metadata, expires_ms: self.expires_ms, expects })
    }
}

impl Laid {
    pub(crate) fn op(&self) -> Op<'_> {
        let Self { keyspace, key, metadata, .. } = self;
        match &self.value {
            None => Op::delete(*keyspace, key),
            Some(value) => Op::Put { keyspace: *keyspace, key, metadata, value, expiry: self.expires_ms },
        }
    }

    pub(crate) fn condition(&self) -> Option<Condition<'_>> {
        self.expects.map(|expects| Condition::new(self.keyspace, &self.key, expects))
    }
}

fn one(name: &str, text: Option<String>, base64: Option<String>) -> Result<Option<Vec<u8>>, Problem> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(Problem::invalid(format!("give {name} or {name}_base64, not both"))),
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(text)) => {
            let wrong = |_| Problem::invalid(format!("{name}_base64 is no Base64"));
            STANDARD.decode(text).map(Some).map_err(wrong)
        }
        (None, None) => Ok(None),
    }
}

/// The number of a keyspace: its own, or that of its name.
pub(crate) fn keyspace(kv: &Kv, text: &str) -> Result<u32, Problem> {
    match text.parse::<u32>() {
        Ok(number) if number < NAMED_FROM => Ok(number),
        Ok(number) => Err(Problem::invalid(format!(
            "keyspace {number}; a number is below {NAMED_FROM}, those from there on have names"
        ))),
        Err(_) => {
            let found = kv.keyspace(text)?;
            found.map(|it| it.id).ok_or_else(|| Problem::not_found(format!("no keyspace {text:?}")))
        }
    }
}

/// What the headers want a key to be.
pub(crate) fn expects(headers: &HeaderMap) -> Result<Option<Expect>, Problem> {
    let text = |name| match headers.get(name) {
        None => Ok(None),
        Some(value) => value.to_str().map(|it| Some(it.trim())).map_err(|_| Problem::invalid("a tag is no text")),
    };
    match (text(header::IF_MATCH)?, text(header::IF_NONE_MATCH)?) {
        (None, None) => Ok(None),
        (Some("*"), None) => Ok(Some(Expect::Present)),
        (Some(tag), None) => lsn(tag).map(|lsn| Some(Expect::At(lsn))),
        (None, Some("*")) => Ok(Some(Expect::Absent)),
        (None, Some(_)) => Err(Problem::invalid("If-None-Match takes * where something is written")),
        (Some(_), Some(_)) => Err(Problem::invalid("give If-Match or If-None-Match, not both")),
    }
}

/// The place in the log that a tag names.
fn lsn(tag: &str) -> Result<Lsn, Problem> {
    let inside = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    // A tag of another kind is nobody's: nothing can match it.
    let none = || Problem::of(Kind::Conflict, format!("no version of a key has the tag {tag}"));
    inside
        .and_then(|digits| digits.parse().ok())
        .map(Lsn)
        .ok_or_else(|| none().status(axum::http::StatusCode::PRECONDITION_FAILED))
}
