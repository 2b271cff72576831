//! A write as JSON and as headers have it, and its conditions: of a key, or of a document.
//!
//! Walk: [`Write`] is one of the list that a transaction is given · [`Write::lay`] makes it the engine's own, [`Laid::done`] does it ·
//! [`expects`] reads `If-Match` and `If-None-Match` · [`keyspace`] a number or a name.

use assent_docs::{Database, DocsError, DocsResource, NodeKey, Versioning};
use assent_door::Role;
use assent_ids::Lsn;
use assent_kind::Kind;
use assent_kv::{Condition, Expect, Kv, NAMED_FROM, Op};
use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::branches::Work;
use super::records::KEYSPACE;
use crate::docs::change::{Change, Insert, judge};
use crate::docs::names::{Place, refuse_taken};
use crate::identity::Caller;
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
    /// `DATABASE/RESOURCE`: then it is of a document.
    document: Option<String>,
    node: Option<u64>,
    insert: Option<String>,
    #[serde(default, deserialize_with = "raw")]
    put: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "raw")]
    patch: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "raw")]
    merge: Option<Box<RawValue>>,
}

/// JSON as it stands there, to the last digit. One that is null is there, too.
fn raw<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// A write with its bytes.
#[derive(Debug)]
pub(crate) enum Laid {
    Key(LaidKey),
    Document(LaidDocument),
}

/// Of a key.
#[derive(Debug)]
pub(crate) struct LaidKey {
    keyspace: u32,
    key: Vec<u8>,
    /// None deletes.
    value: Option<Vec<u8>>,
    metadata: Vec<u8>,
    expires_ms: u64,
    expects: Option<Expect>,
}

/// Of a document.
#[derive(Debug)]
pub(crate) struct LaidDocument {
    place: Place,
    change: Change,
    bytes: Box<[u8]>,
    /// The tag, `*` for any.
    wanted: Option<HeaderValue>,
    /// It must not be there.
    is_absent: bool,
}

impl Write {
    /// Whether the caller may do this, as far as that is known before it is done.
    pub(crate) fn refuse(&self, caller: &Caller) -> Result<(), Problem> {
        let role = if self.delete { Role::Delete } else { Role::Modify };
        match &self.document {
            None => caller.may(role, Some(&self.scope())),
            Some(name) => {
                let (database, _) = name.split_once('/').unwrap_or((name, ""));
                // Whether it is made is known once it is looked for.
                let makes = self.put.is_some() && self.insert.is_none() && self.node.is_none();
                if makes && caller.grants.allows(Role::Create, Some(database)) {
                    return Ok(());
                }
                caller.may(role, Some(database))
            }
        }
    }

    /// The keyspace as the caller named it: what his roles are asked for.
    fn scope(&self) -> String {
        match &self.keyspace {
            None => "0".to_owned(),
            Some(Where::Number(number)) => number.to_string(),
            Some(Where::Name(name)) => name.clone(),
        }
    }

    /// Everything that can be found wrong with it alone is found now.
    pub(crate) fn lay(self, kv: Option<&Kv>) -> Result<Laid, Problem> {
        if self.document.is_some() {
            return self.lay_document().map(Laid::Document);
        }
        let kv = kv.ok_or_else(|| Problem::not_found("this server has no key-value store: write [kv]"))?;
        let laid = self.lay_key(kv)?;
        kv.check_write(&laid.op())?;
        Ok(Laid::Key(laid))
    }

    fn lay_key(self, kv: &Kv) -> Result<LaidKey, Problem> {
        if self.node.is_some() || self.insert.is_some() || self.put.or(self.patch).or(self.merge).is_some() {
            return Err(Problem::invalid("node, insert, put, patch and merge are of documents: name one"));
        }
        let keyspace = keyspace(
            kv,
            &match &self.keyspace {
                None => "0".to_owned(),
                Some(Where::Number(number)) => number.to_string(),
                Some(Where::Name(name)) => name.clone(),
            },
        )?;
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
        Ok(LaidKey { keyspace, key, value, metadata, expires_ms: self.expires_ms, expects })
    }

    fn lay_document(self) -> Result<LaidDocument, Problem> {
        let Self { document, node, insert, put, patch, merge, delete, condition, .. } = self;
        let of_keys = self.keyspace.is_some() || self.metadata_base64.is_some() || self.expires_ms > 0;
        if of_keys || self.key.or(self.key_base64).or(self.value).or(self.value_base64).is_some() {
            return Err(Problem::invalid("a write is of a document or of a key, not of both"));
        }
        let place = Place::of_name(&document.unwrap_or_default())?;
        let node = node.filter(|key| *key != 0).map(NodeKey);
        let (change, bytes) = match (put, patch, merge, delete, node, insert) {
            (Some(json), None, None, false, None, None) => (Change::Put, Some(json)),
            (Some(json), None, None, false, node, Some(word)) => {
                (Change::Insert(node, Insert::of_word(&word)?), Some(json))
            }
            (Some(json), None, None, false, node, None) => (Change::Insert(node, Insert::FirstChild), Some(json)),
            (None, Some(json), None, false, None, None) => (Change::Patch, Some(json)),
            (None, None, Some(json), false, None, None) => (Change::Merge, Some(json)),
            (None, None, None, true, Some(node), None) => (Change::Remove(node), None),
            _ => {
                return Err(Problem::invalid(
                    "a write of a document has one of put (with node and insert: beside or into a node), patch, merge, or \
                     `\"delete\": true` with a node",
                ));
            }
        };
        let (wanted, is_absent) = match condition {
            None => (None, false),
            Some(If::Word(word)) if word == "absent" => (None, true),
            Some(If::Word(word)) => (Some(document_tag(&word)?), false),
            Some(If::At(_)) => return Err(Problem::invalid("if is \"absent\", \"present\" or a tag of a document")),
        };
        let bytes = bytes.map(|json| Box::from(json.get().as_bytes())).unwrap_or_default();
        Ok(LaidDocument { place, change, bytes, wanted, is_absent })
    }
}

/// A tag as the header would have it, with its quotes or without.
fn document_tag(word: &str) -> Result<HeaderValue, Problem> {
    let text = match word {
        "present" | "*" => "*".to_owned(),
        word => format!("\"{}\"", word.trim_matches('"')),
    };
    HeaderValue::from_str(&text).map_err(|_| Problem::invalid(format!("if = {word:?}; it is no tag")))
}

impl Laid {
    /// The document that it is of.
    pub(crate) fn document(&self) -> Option<String> {
        match self {
            Self::Key(_) => None,
            Self::Document(laid) => Some(laid.place.document()),
        }
    }

    /// Does it within a transaction.
    pub(crate) fn done(&self, work: &mut Work<'_>) -> Result<(), Problem> {
        match self {
            Self::Key(laid) => work.write_key(laid.condition(), &laid.op())?,
            Self::Document(laid) => {
                let done = laid.done(work);
                // What is left half made is kept until the transaction ends.
                work.weigh();
                if done? {
                    work.made.insert(laid.place.clone());
                }
                work.wrote_document();
            }
        }
        Ok(())
    }
}

impl LaidKey {
    fn op(&self) -> Op<'_> {
        let Self { keyspace, key, metadata, .. } = self;
        match &self.value {
            None => Op::delete(*keyspace, key),
            Some(value) => Op::Put { keyspace: *keyspace, key, metadata, value, expiry: self.expires_ms },
        }
    }

    fn condition(&self) -> Option<Condition<'_>> {
        self.expects.map(|expects| Condition::new(self.keyspace, &self.key, expects))
    }
}

impl LaidDocument {
    /// Whether it made a document. Where it is refused, the branch says nothing of a document that it had not written before.
    fn done(&self, work: &mut Work<'_>) -> Result<bool, Problem> {
        let caller = work.caller;
        let (database, mut branch) = work.documents()?;
        let name = self.place.document();
        let made = if self.change == Change::Put { made(database, &self.place, caller)? } else { false };
        if !made {
            // Before its writer's seat is taken, which the transaction then keeps.
            let role = if matches!(self.change, Change::Remove(_)) { Role::Delete } else { Role::Modify };
            caller.may(role, Some(&self.place.database))?;
        }
        let is_new = !branch.has(&name);
        let written = self.written(database, &mut branch, caller, made);
        if is_new && written.is_err() {
            // Each of its documents gets a revision: what is done once is kept there, also where nothing has changed.
            branch.let_go(&name);
        }
        written.map(|()| made)
    }

    fn written(
        &self,
        database: &Database,
        branch: &mut DocsResource,
        caller: &Caller,
        made: bool,
    ) -> Result<(), Problem> {
        let name = self.place.document();
        let edit = match branch.edit(&name) {
            Err(DocsError::NoDocument { .. }) => return Err(self.place.missing()),
            edit => edit?,
        };
        let is_there = assent_docs::Look::value(edit).is_some();
        if !is_there && self.change != Change::Put {
            return Err(self.place.missing());
        }
        // Made by this transaction before, or by somebody else before the seat was ours: that one is changed, not made.
        if is_there && made && database.has_revision(&name)? {
            caller.may(Role::Modify, Some(&self.place.database))?;
        }
        if self.is_absent && is_there {
            return Err(Problem::precondition(format!("document {name:?} is there")));
        }
        judge(edit, self.change.node(edit), self.wanted.as_ref())?;
        self.change.make(edit, &self.bytes)
    }
}

/// Makes a document without a revision, which nobody sees before the commit, where there is none. Whether it has none.
fn made(database: &Database, place: &Place, caller: &Caller) -> Result<bool, Problem> {
    let name = place.document();
    let is_missing = match database.document(&name) {
        Ok(document) if document.latest().number() > 0 => return Ok(false),
        Ok(_) => false,
        Err(DocsError::NoDocument { .. }) => true,
        Err(error) => return Err(error.into()),
    };
    caller.may(Role::Create, Some(&place.database))?;
    refuse_taken(&name)?;
    // One without a revision may be there before its database is.
    if !place.is_there(database)? {
        let detail = format!("there is no database {:?}: make it before the transaction", place.database);
        return Err(Problem::not_found(detail));
    }
    if is_missing {
        match database.create(&name, Versioning::default()) {
            Ok(_) | Err(DocsError::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
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
    if text == KEYSPACE {
        return Err(Problem::of(Kind::Denied, format!("keyspace {text:?} is the server's own")));
    }
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
