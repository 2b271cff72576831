//! Keys over HTTP: the value is the body, what is known of it stands in headers.
//!
//! Walk: the path has the keyspace (a number or a name) and the key, any bytes behind percent signs · `ETag` is the place of
//! the write in the log, `If-Match` and `If-None-Match: *` are conditions that the store judges itself · `tx` puts the work
//! into a transaction · [`keyspaces`], [`create`] and [`drop`] are the names.

use std::sync::Arc;

use assent_door::Role;
use assent_ids::{Lsn, TxId};
use assent_kind::Kind;
use assent_kv::{Condition, Durability, Found, Head, Op};
use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Json, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::House;
use super::branches::Work;
use super::records::{KEYSPACE, Row};
use super::transactions::accepted;
use super::write::{expects, keyspace};
use crate::body;
use crate::identity::Caller;
use crate::once::{Asking, Once, again};
use crate::params::{Params, bytes, decoded};
use crate::problem::Problem;

const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");
pub(super) const METADATA: HeaderName = HeaderName::from_static("assent-metadata");
const MODIFIED: HeaderName = HeaderName::from_static("assent-modified-ms");
const EXPIRES: HeaderName = HeaderName::from_static("assent-expires-ms");
const HASH: HeaderName = HeaderName::from_static("assent-hash");

/// What a path of a key names.
struct Name {
    keyspace: String,
    key: Vec<u8>,
}

impl Name {
    fn of(uri: &Uri) -> Result<Self, Problem> {
        let path = uri.path().strip_prefix("/v1/keys/").and_then(|rest| rest.split_once('/'));
        let (keyspace, key) = path.ok_or_else(|| Problem::not_found("write /v1/keys/KEYSPACE/KEY"))?;
        Ok(Self { keyspace: decoded(keyspace)?, key: bytes(key)? })
    }
}

fn tx(params: &mut Params<'_>) -> Result<Option<TxId>, Problem> {
    params.parsed(&["tx"], "a transaction as POST /v1/transactions names it")
}

pub(super) async fn get(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let name = Name::of(request.uri())?;
    caller.may(Role::View, Some(&name.keyspace))?;
    let mut params = Params::of(request.uri())?;
    let tx = tx(&mut params)?;
    params.end()?;
    let known = request.headers().get(header::IF_NONE_MATCH).cloned();
    let work = Arc::clone(&house);
    // Within a transaction it comes behind what is being written there.
    let pool = if tx.is_some() { &house.guard.writes } else { &house.guard.pool };
    pool.run(move || {
        let kv = work.kv()?;
        let keyspace = keyspace(kv, &name.keyspace)?;
        let found = match tx {
            None => kv.entry(keyspace, &name.key)?,
            Some(tx) => {
                let read = |branches: &mut Work<'_>| {
                    let (kv, xid) = branches.keys()?;
                    Ok(kv.branch_entry(&xid, keyspace, &name.key)?)
                };
                work.desk.within(tx, &caller, None, read)?.0.flatten()
            }
        };
        let Some(found) = found else { return Err(absent()) };
        let mut headers = about(&head_of(&found));
        headers.insert(header::CONTENT_TYPE, BYTES);
        if known.is_some() && headers.get(header::ETAG) == known.as_ref() {
            return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
        }
        Ok((headers, found.value).into_response())
    })
    .await
}

/// What is known of a key; no value is read.
pub(super) async fn head(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let name = Name::of(request.uri())?;
    caller.may(Role::View, Some(&name.keyspace))?;
    Params::of(request.uri())?.end()?;
    let work = Arc::clone(&house);
    house
        .guard
        .pool
        .run(move || {
            let kv = work.kv()?;
            let found = kv.head(keyspace(kv, &name.keyspace)?, &name.key)?.ok_or_else(absent)?;
            let mut headers = about(&found);
            headers.insert(header::CONTENT_TYPE, BYTES);
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(found.value_bytes));
            if let Ok(hash) = HeaderValue::from_str(&format!("{:016x}", found.hash)) {
                headers.insert(HASH, hash);
            }
            Ok((headers, Body::empty()).into_response())
        })
        .await
}

pub(super) async fn put(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let name = Name::of(request.uri())?;
    caller.may(Role::Modify, Some(&name.keyspace))?;
    let mut params = Params::of(request.uri())?;
    let expires = params.parsed::<u64>(&["expires_ms"], "milliseconds since 1970")?;
    let time = params.parsed::<u64>(&["ttl_ms"], "milliseconds from now")?;
    let mut asked = Asked::of(params, request.headers())?;
    let metadata = match request.headers().get(METADATA) {
        None => Vec::new(),
        Some(value) => STANDARD.decode(value).map_err(|_| Problem::invalid("Assent-Metadata is no Base64"))?,
    };
    let expiry = match (expires, time) {
        (Some(_), Some(_)) => return Err(Problem::invalid("give expires_ms or ttl_ms, not both")),
        (Some(at), None) => at,
        (None, Some(ms)) => house.guard.clock.wall_ms().saturating_add(ms),
        (None, None) => 0,
    };
    let asking = Asking::of(&request, &caller);
    let value = body::whole(request, house.body_bytes_max).await?;
    let work = Arc::clone(&house);
    let put = move || {
        asked.once = asking.once(&value)?;
        let keyspace = keyspace(work.kv()?, &name.keyspace)?;
        let op = Op::Put { keyspace, key: &name.key, metadata: &metadata, value: &value, expiry };
        write(&work, &caller, &asked, keyspace, &op)
    };
    house.guard.writes.run(put).await
}

pub(super) async fn delete(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let name = Name::of(request.uri())?;
    caller.may(Role::Delete, Some(&name.keyspace))?;
    let mut asked = Asked::of(Params::of(request.uri())?, request.headers())?;
    asked.once = Asking::of(&request, &caller).once(b"")?;
    let work = Arc::clone(&house);
    let delete = move || {
        let keyspace = keyspace(work.kv()?, &name.keyspace)?;
        write(&work, &caller, &asked, keyspace, &Op::delete(keyspace, &name.key))
    };
    house.guard.writes.run(delete).await
}

/// What is asked of a write beside what it writes.
struct Asked {
    tx: Option<TxId>,
    durability: Durability,
    expects: Option<assent_kv::Expect>,
    once: Option<Once>,
}

impl Asked {
    fn of(mut params: Params<'_>, headers: &HeaderMap) -> Result<Self, Problem> {
        let tx = tx(&mut params)?;
        let durability = match params.take(&["durability"])?.as_deref() {
            None | Some("durable") => Durability::Durable,
            Some("buffered") => Durability::Buffered,
            Some(other) => {
                return Err(Problem::invalid(format!("durability = {other:?}; it is durable or buffered")));
            }
        };
        params.end()?;
        Ok(Self { tx, durability, expects: expects(headers)?, once: None })
    }
}

fn write(house: &House, caller: &Caller, asked: &Asked, keyspace: u32, op: &Op<'_>) -> Result<Response, Problem> {
    let condition = asked.expects.map(|expects| Condition::new(keyspace, op.key().1, expects));
    let once = asked.once.as_ref();
    let Some(tx) = asked.tx else { return write_once(house, asked, condition, op) };
    let (done, view) = house.desk.within(tx, caller, once, |branches| branches.write_key(condition, op))?;
    Ok(accepted(done.is_none(), &view))
}

/// A write of its own, in one batch with what is kept of its request.
fn write_once(
    house: &House,
    asked: &Asked,
    condition: Option<Condition<'_>>,
    op: &Op<'_>,
) -> Result<Response, Problem> {
    let answer = |at: Lsn| {
        let tag = if matches!(op, Op::Delete { .. }) { None } else { tag(at) };
        let mut response = StatusCode::NO_CONTENT.into_response();
        tag.map(|tag| response.headers_mut().insert(header::ETAG, tag));
        response
    };
    let _turn = house.records.turns.take(asked.once.as_ref())?;
    let mut row = None;
    if let Some(once) = &asked.once {
        if let Some((kept, at)) = house.records.find(once)? {
            kept.judge(once)?;
            return Ok(again(answer(at)));
        }
        row = house.records.row(once, &once.kept(StatusCode::NO_CONTENT, ""))?;
    }
    let ops: Vec<Op<'_>> = std::iter::once(*op).chain(row.as_ref().map(Row::op)).collect();
    Ok(answer(house.kv()?.batch_if(condition.as_slice(), &ops, asked.durability)?))
}

pub(super) async fn keyspaces(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    caller.may_somewhere(Role::View)?;
    Params::of(&uri)?.end()?;
    let work = Arc::clone(&house);
    let list = move || {
        let all = work.kv()?.keyspaces()?;
        let seen = all.iter().filter(|it| it.name != KEYSPACE && caller.grants.allows(Role::View, Some(&it.name)));
        let list: Vec<_> = seen.map(|it| json!({"name": it.name, "number": it.id, "created_ms": it.created})).collect();
        Ok(Json(json!({"keyspaces": list})).into_response())
    };
    house.guard.pool.run(list).await
}

pub(super) async fn create(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let asking = Asking::of(&request, &caller);
    let name = keyspace_name(&asking.uri)?;
    caller.may(Role::Create, Some(&name))?;
    Params::of(&asking.uri)?.end()?;
    let work = Arc::clone(&house);
    let create = move || {
        work.records.once(asking.once(b"")?.as_ref(), || {
            let id = work.kv()?.keyspace_create(&name)?;
            Ok((StatusCode::CREATED, json!({"name": name, "number": id}).to_string()))
        })
    };
    house.guard.writes.run(create).await
}

pub(super) async fn drop(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let asking = Asking::of(&request, &caller);
    let name = keyspace_name(&asking.uri)?;
    caller.may(Role::Delete, Some(&name))?;
    Params::of(&asking.uri)?.end()?;
    let work = Arc::clone(&house);
    let drop = move || {
        work.records.once(asking.once(b"")?.as_ref(), || {
            work.kv()?.keyspace_drop(&name)?;
            Ok((StatusCode::NO_CONTENT, String::new()))
        })
    };
    house.guard.writes.run(drop).await
}

fn keyspace_name(uri: &Uri) -> Result<String, Problem> {
    let name = decoded(uri.path().strip_prefix("/v1/keyspaces/").unwrap_or_default())?;
    if name == KEYSPACE {
        return Err(Problem::of(Kind::Denied, format!("keyspace {name:?} is the server's own")));
    }
    // It could not be told from a keyspace that needs no name.
    if name.parse::<u32>().is_ok() {
        return Err(Problem::invalid(format!("keyspace {name:?}: a name is no number")));
    }
    Ok(name)
}

fn absent() -> Problem {
    Problem::not_found("the key is not there")
}

fn head_of(found: &Found) -> Head {
    let value_bytes = u32::try_from(found.value.len()).unwrap_or(u32::MAX);
    let Found { metadata, lsn, committed, modified, expiry, .. } = found;
    let (metadata, hash) = (metadata.clone(), 0);
    Head { lsn: *lsn, value_bytes, hash, metadata, committed: *committed, modified: *modified, expiry: *expiry }
}

/// The tag of a version: where its write ended in the log. A transaction's own write has none yet.
pub(super) fn tag(committed: Lsn) -> Option<HeaderValue> {
    if committed == Lsn::ZERO { None } else { HeaderValue::from_str(&format!("\"{}\"", committed.0)).ok() }
}

fn about(head: &Head) -> HeaderMap {
    let mut headers = HeaderMap::new();
    tag(head.committed).map(|tag| headers.insert(header::ETAG, tag));
    if head.modified > 0 {
        headers.insert(MODIFIED, HeaderValue::from(head.modified));
    }
    if head.expiry > 0 {
        headers.insert(EXPIRES, HeaderValue::from(head.expiry));
    }
    if !head.metadata.is_empty()
        && let Ok(value) = HeaderValue::from_str(&STANDARD.encode(&head.metadata))
    {
        headers.insert(METADATA, value);
    }
    headers
}
