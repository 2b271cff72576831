//! Many keys of a keyspace, in order, page by page.
//!
//! Walk: `prefix`, or `from` and `to` · `after` is what the page before gave as `next` · with `values=true` each row has its
//! value, else only what the ledger knows. Text where it is UTF-8, Base64 where it is not.

use std::ops::Bound;
use std::sync::Arc;

use assent_door::Role;
use assent_kv::{Head, KvError, Snapshot};
use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Json, Response};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};

use super::House;
use super::write::keyspace;
use crate::deadline::Deadline;
use crate::identity::Caller;
use crate::params::{Params, decoded};
use crate::problem::Problem;

const ROWS_MAX: usize = 10_000;
const ROWS: usize = 100;
/// Keys, metadata and values of one page: behind so many bytes, the next page begins.
const PAGE_BYTES_MAX: usize = 16 << 20;
/// Rows that are looked at together.
const ROWS_AT_ONCE: usize = 256;

type Rows = Vec<(Vec<u8>, Head)>;

/// What is asked.
struct Range {
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    limit: usize,
    values: bool,
}

impl Range {
    fn of(uri: &Uri) -> Result<Self, Problem> {
        let mut params = Params::of(uri)?;
        let prefix = params.take(&["prefix"])?.map(String::into_bytes);
        let (from, to) = (params.take(&["from"])?, params.take(&["to"])?);
        let after = params.take(&["after"])?;
        let limit = params.parsed::<usize>(&["limit"], "a number from 1")?.unwrap_or(ROWS);
        let values = params.flag(&["values"])?;
        params.end()?;
        if !(1..=ROWS_MAX).contains(&limit) {
            return Err(Problem::invalid(format!("limit = {limit}; it is 1 to {ROWS_MAX}")));
        }
        if prefix.is_some() && (from.is_some() || to.is_some()) {
            return Err(Problem::invalid("give prefix, or from and to"));
        }
        let to = match &prefix {
            Some(prefix) => behind(prefix),
            None => to.map_or(Bound::Unbounded, |to| Bound::Excluded(to.into_bytes())),
        };
        let from = prefix.or_else(|| from.map(String::into_bytes)).map_or(Bound::Unbounded, Bound::Included);
        let from = match after {
            None => from,
            Some(after) => {
                let wrong = |_| Problem::invalid("after is not what a page gave as next");
                Bound::Excluded(URL_SAFE_NO_PAD.decode(after).map_err(wrong)?)
            }
        };
        Ok(Self { from, to, limit, values })
    }
}

/// The first key that does not begin with this.
fn behind(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Bound::Excluded(end);
        }
    }
    Bound::Unbounded
}

pub(super) async fn scan(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let name = decoded(uri.path().strip_prefix("/v1/keys/").unwrap_or_default())?;
    caller.may(Role::View, Some(&name))?;
    let range = Range::of(&uri)?;
    let (work, deadline) = (Arc::clone(&house), house.guard.deadline());
    let scan = move || {
        let kv = work.kv()?;
        let keyspace = keyspace(kv, &name)?;
        // One moment for heads and values.
        let snapshot = kv.snapshot();
        let (from, to) = (range.from.as_ref().map(Vec::as_slice), range.to.as_ref().map(Vec::as_slice));
        let (heads, more) = page(&snapshot, keyspace, &range, &deadline)?;
        let (mut limit, mut values) = (heads.len(), Vec::new());
        if range.values && limit > 0 {
            values = loop {
                match snapshot.scan(keyspace, from, to, limit) {
                    // Large values: fewer at a time. One alone that is too large is the caller's to know.
                    Err(KvError::Size { .. }) if limit > 1 => limit /= 2,
                    rows => break rows?,
                }
            };
        }
        let more = more || heads.len() > limit;
        let heads = heads.get(..limit).unwrap_or(&heads);
        let mut values = values.into_iter();
        let rows: Vec<Value> =
            heads.iter().map(|(key, head)| row(key, head, values.next().map(|(_, value)| value))).collect();
        let next = heads.last().filter(|_| more).map(|(key, _)| URL_SAFE_NO_PAD.encode(key));
        Ok(Json(json!({"keys": rows, "next": next})).into_response())
    };
    house.guard.pool.run(scan).await
}

/// As many rows as fit a page with all that is told of them, at least one; and whether there are more.
fn page(snapshot: &Snapshot, keyspace: u32, range: &Range, deadline: &Deadline) -> Result<(Rows, bool), Problem> {
    let to = range.to.as_ref().map(Vec::as_slice);
    let (mut rows, mut bytes) = (Rows::new(), 0_usize);
    loop {
        deadline.check()?;
        let from = match rows.last() {
            Some((key, _)) => Bound::Excluded(key.as_slice()),
            None => range.from.as_ref().map(Vec::as_slice),
        };
        let wanted = ROWS_AT_ONCE.min((range.limit - rows.len()).saturating_add(1));
        let piece = snapshot.heads(keyspace, from, to, wanted)?;
        let is_last = piece.len() < wanted;
        for (key, head) in piece {
            let value = if range.values { usize::try_from(head.value_bytes).unwrap_or(usize::MAX) } else { 0 };
            bytes = bytes.saturating_add(key.len() + head.metadata.len()).saturating_add(value);
            if rows.len() == range.limit || (!rows.is_empty() && bytes > PAGE_BYTES_MAX) {
                return Ok((rows, true));
            }
            rows.push((key, head));
        }
        if is_last {
            return Ok((rows, false));
        }
    }
}

fn row(key: &[u8], head: &Head, value: Option<Vec<u8>>) -> Value {
    let mut row = Map::new();
    put(&mut row, "key", key);
    row.insert("etag".to_owned(), json!(format!("\"{}\"", head.committed.0)));
    row.insert("bytes".to_owned(), json!(head.value_bytes));
    row.insert("modified_ms".to_owned(), json!(head.modified));
    if head.expiry > 0 {
        row.insert("expires_ms".to_owned(), json!(head.expiry));
    }
    if !head.metadata.is_empty() {
        row.insert("metadata_base64".to_owned(), json!(STANDARD.encode(&head.metadata)));
    }
    if let Some(value) = value {
        put(&mut row, "value", &value);
    }
    Value::Object(row)
}

fn put(row: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => row.insert(name.to_owned(), json!(text)),
        Err(_) => row.insert(format!("{name}_base64"), json!(STANDARD.encode(bytes))),
    };
}
