//! Requests that are done once: whoever sends one again, under the same `Idempotency-Key`, is told what the first one was told.
//!
//! ```text
//!   name         SHA-256 of who asks and his key          fingerprint   the first half of the SHA-256 of what he asks
//!   kept         fingerprint (hex) · status · body, with what was written: in one entry of the log, so both are there, or neither
//! ```
//! Walk: [`Asking::once`] reads the header, where the hash of a long body holds nobody up · [`Turns::take`] lets one request of a name be under way at a time · [`Kept::judge`] tells the same
//! request from another one.
//! Deliberately absent: where it is kept (`v1::records`, and the commits of documents), and answers of what was refused: that has
//! changed nothing, and is judged anew.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use assent_docs::OnceName;
use assent_ids::TxId;
use assent_kind::Kind;
use axum::http::{self, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};

use crate::identity::Caller;
use crate::problem::Problem;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Stands in answers that are told again.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// The longest key.
const KEY_BYTES_MAX: usize = 255;

type Fingerprint = [u8; 16];

/// A request with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Once {
    pub(crate) name: OnceName,
    pub(crate) fingerprint: Fingerprint,
}

fn hash(parts: &[&[u8]]) -> OnceName {
    let mut sum = Sha256::new();
    for part in parts {
        // Where each ends is part of what is hashed.
        sum.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        sum.update(part);
    }
    sum.finalize().into()
}

fn fingerprint(parts: &[&[u8]]) -> Fingerprint {
    hash(parts).first_chunk().copied().unwrap_or_default()
}

/// Who asks, and for what: all of a request but its body.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) caller: Caller,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
}

impl Asking {
    pub(crate) fn of<B>(request: &http::Request<B>, caller: &Caller) -> Self {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        Self { caller: caller.clone(), method, uri, headers: request.headers().clone() }
    }

    /// The request, if it has a key. Its preconditions are no part of it: what was done once has changed what they were about.
    pub(crate) fn once(&self, body: &[u8]) -> Result<Option<Once>, Problem> {
        let Self { caller, method, uri, headers } = self;
        let mut given = headers.get_all(KEY).iter();
        let Some(key) = given.next() else { return Ok(None) };
        let is_key = (1..=KEY_BYTES_MAX).contains(&key.len()) && key.as_bytes().iter().all(u8::is_ascii_graphic);
        if !is_key || given.next().is_some() {
            let rule = format!("give one Idempotency-Key of 1 to {KEY_BYTES_MAX} visible ASCII characters");
            return Err(Problem::invalid(rule));
        }
        let text = |name| headers.get(name).map_or(&b""[..], HeaderValue::as_bytes);
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        let asked =
            [method.as_str().as_bytes(), path.as_bytes(), query.as_bytes(), text(header::CONTENT_TYPE.as_str()), body];
        let said = [&asked[..], &[text("assent-metadata")]].concat();
        Ok(Some(Once {
            name: hash(&[b"key", caller.name.as_bytes(), key.as_bytes()]),
            fingerprint: fingerprint(&said),
        }))
    }
}

impl Once {
    /// That a transaction committed, by its name; the fingerprint is its owner's.
    pub(crate) fn transaction(tx: TxId, owner: &str) -> Self {
        let name = hash(&[b"transaction", tx.to_string().as_bytes()]);
        Self { name, fingerprint: fingerprint(&[owner.as_bytes()]) }
    }

    /// What is kept of it.
    pub(crate) fn kept(&self, status: StatusCode, body: impl Into<String>) -> Kept {
        Kept { fingerprint: self.fingerprint, status, body: body.into() }
    }
}

/// What is kept of a request that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) status: StatusCode,
    pub(crate) body: String,
}

impl Kept {
    pub(crate) fn text(&self) -> String {
        let digits: String = self.fingerprint.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{digits} {} {}", self.status.as_u16(), self.body)
    }

    pub(crate) fn of_text(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let (digits, status, body) = (parts.next()?, parts.next()?, parts.next()?);
        let fingerprint = u128::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 32)?.to_be_bytes();
        Some(Self { fingerprint, status: StatusCode::from_bytes(status.as_bytes()).ok()?, body: body.to_owned() })
    }

    /// Refuses another request under the same key.
    pub(crate) fn judge(self, once: &Once) -> Result<Self, Problem> {
        if self.fingerprint == once.fingerprint { Ok(self) } else { Err(another()) }
    }
}

/// The key of one request was given to another.
pub(crate) fn another() -> Problem {
    Problem::invalid("this Idempotency-Key was given to another request: its method, address or body was not this one")
        .status(StatusCode::UNPROCESSABLE_ENTITY)
}

/// An answer of which all is kept: a status, and JSON or nothing.
pub(crate) fn told(status: StatusCode, body: &str) -> Response {
    if body.is_empty() {
        return status.into_response();
    }
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body.to_owned()).into_response()
}

/// Marks an answer as told again.
pub(crate) fn again(mut response: Response) -> Response {
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// Names of requests that are under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns(Arc<Mutex<BTreeSet<OnceName>>>);

/// A request's turn, until it is dropped: by the work, not by whoever waits for it.
pub(crate) struct Turn {
    turns: Turns,
    name: Option<OnceName>,
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("has_name", &self.name.is_some()).finish()
    }
}

impl Turns {
    /// # Errors
    /// `Conflict` while another one of that name is under way.
    pub(crate) fn take(&self, once: Option<&Once>) -> Result<Turn, Problem> {
        let name = once.map(|once| once.name);
        if let Some(name) = name
            && !self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name)
        {
            let detail = "a request with this Idempotency-Key is under way; ask again";
            return Err(Problem::of(Kind::Conflict, detail).retry(Duration::from_secs(1)));
        }
        Ok(Turn { turns: self.clone(), name })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            self.turns.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use assent_door::Grants;

    use super::*;

    fn once(who: &str, key: &str, uri: &str, body: &str) -> Once {
        let caller = Caller { name: who.into(), shown: None, grants: Arc::new(Grants::all()) };
        let headers = HeaderMap::from_iter([(KEY, key.parse().unwrap())]);
        let asking = Asking { caller, method: Method::PUT, uri: uri.parse().unwrap(), headers };
        asking.once(body.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn a_key_is_its_caller_s_own_and_a_fingerprint_is_of_all_that_is_asked() {
        let first = once("anna", "k", "/a?b=1", "x");
        assert_eq!(first, once("anna", "k", "/a?b=1", "x"));
        for other in
            [once("bert", "k", "/a?b=1", "x"), once("anna", "l", "/a?b=1", "x"), once("ann", "ak", "/a?b=1", "x")]
        {
            assert!(other.name != first.name && other.fingerprint == first.fingerprint);
        }
        for other in
            [once("anna", "k", "/a?b=2", "x"), once("anna", "k", "/b?b=1", "x"), once("anna", "k", "/a?b=1", "")]
        {
            assert!(other.name == first.name && other.fingerprint != first.fingerprint);
        }
        let kept = first.kept(StatusCode::CREATED, "a b");
        assert_eq!(Kept::of_text(&kept.text()), Some(kept.clone()));
        assert_eq!(kept.clone().judge(&first).unwrap(), kept);
        assert_eq!(kept.judge(&once("anna", "k", "/a", "x")).unwrap_err().status, StatusCode::UNPROCESSABLE_ENTITY);
        for text in ["", "1 200 ", "00000000000000000000000000000000 x ", "00000000000000000000000000000000 200"] {
            assert_eq!(Kept::of_text(text), None, "{text}");
        }
    }

    #[test]
    fn a_key_is_one_visible_word_and_one_request_of_it_is_under_way_at_a_time() {
        let caller = Caller { name: "anna".into(), shown: None, grants: Arc::new(Grants::all()) };
        let uri: Uri = "/a".parse().unwrap();
        let of = |keys: &[&str]| {
            let headers = keys.iter().map(|key| (KEY, HeaderValue::from_bytes(key.as_bytes()).unwrap()));
            let mut map = HeaderMap::new();
            headers.for_each(|(name, key)| _ = map.append(name, key));
            Asking { caller: caller.clone(), method: Method::PUT, uri: uri.clone(), headers: map }.once(b"")
        };
        assert_eq!(of(&[]).unwrap(), None);
        let longest = "k".repeat(KEY_BYTES_MAX);
        assert!(of(&[&longest]).is_ok());
        for wrong in [&["", ""][..1], &["a b"], &["a", "b"], &["é"], &[&format!("{longest}k")]] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
        let (turns, once) = (Turns::default(), of(&["a"]).unwrap());
        let turn = turns.take(once.as_ref()).unwrap();
        assert_eq!(turns.take(once.as_ref()).unwrap_err().kind, "conflict");
        assert!(turns.take(of(&["b"]).unwrap().as_ref()).is_ok() && turns.take(None).is_ok());
        drop(turn);
        turns.take(once.as_ref()).unwrap();
    }
}
