//! Documents made, changed and dropped.
//!
//! Walk: [`put`] makes a document, or gives the one that is there another revision · [`insert`] puts a value before, behind, into
//! or in place of a node · [`delete`] drops a document or a node. The precondition is judged while the writer's seat is held: nobody
//! comes between. Each answer tells the tag and what there is now.

use std::sync::Arc;

use assent_docs::{At, Database, DocsError, Edit, Form, Kind as NodeKind, Look, Meta, NodeKey, Revision, Versioning};
use assent_door::Role;
use assent_kind::Kind;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::databases::{made, refuse_xml};
use super::members::members;
use super::names::Place;
use super::read::{JSON, tag};
use super::{Library, not_here};
use crate::body;
use crate::identity::Caller;
use crate::params::Params;
use crate::problem::Problem;

/// Documents of more nodes are not told back.
const ECHOED_NODES_MAX: u64 = 2_000;

/// What is said of a commit.
fn meta(params: &mut Params, caller: &Caller) -> Result<Meta, Problem> {
    if params.take(&["commitTimestamp", "commit-timestamp"])?.is_some() {
        return Err(not_here("a commit at another time than now (commitTimestamp)"));
    }
    let message = params.take(&["commitMessage", "commit-message"])?.unwrap_or_default();
    Ok(Meta { author: caller.name.to_string(), message, ..Meta::default() })
}

/// The tag that the node must have. Older clients send it as `ETag`.
fn wanted(headers: &HeaderMap) -> Result<Option<HeaderValue>, Problem> {
    if headers.contains_key(header::IF_NONE_MATCH) {
        return Err(Problem::invalid("If-None-Match is for reads; write If-Match"));
    }
    Ok(headers.get(header::IF_MATCH).or_else(|| headers.get(header::ETAG)).cloned())
}

/// Whether a node is as the caller knows it.
fn judge(edit: &Edit, node: Option<NodeKey>, wanted: Option<&HeaderValue>) -> Result<(), Problem> {
    let Some(wanted) = wanted else { return Ok(()) };
    let now = node.map(|key| edit.item(key).and_then(|item| edit.hash(&item))).transpose()?.map(tag);
    if now.as_ref() == Some(wanted) || (now.is_some() && wanted.as_bytes() == b"*") {
        return Ok(());
    }
    let now = now.as_ref().and_then(|it| it.to_str().ok()).unwrap_or("none");
    Err(Problem::precondition(format!("the node has another tag by now: {now}")))
}

pub(super) async fn put(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let place = Place::of(request.uri())?;
    // What it takes is known once it is known whether the document is there.
    let grants = Arc::clone(&caller.grants);
    let may = |role| grants.allows(role, Some(&place.database));
    if !may(Role::Create) {
        caller.may(Role::Modify, Some(&place.database))?;
    }
    refuse_xml(request.headers())?;
    let mut params = Params::of(request.uri())?;
    let said = meta(&mut params, &caller)?;
    let overwrite = params.flag(&["overwrite"])?;
    match params.take(&["hashType", "hash_type", "hash-type"])?.as_deref() {
        // Hashes are always on.
        None | Some("ROLLING" | "POSTORDER" | "NONE") => {}
        Some(other) => return Err(Problem::invalid(format!("hashType = {other:?}; it is ROLLING, POSTORDER or NONE"))),
    }
    // What the original stores differently for these is no matter here.
    params.take(&["useDeweyIDs"])?;
    params.take(&["maxNodes"])?;
    for valid in ["validFromPath", "validToPath", "useConventionalValidTime", "autoCreateValidTimeIndex"] {
        if params.take(&[valid])?.is_some() {
            return Err(not_here(valid));
        }
    }
    params.end()?;
    let wanted = wanted(request.headers())?;
    let bytes = body::whole(request, library.body_bytes_max).await?;
    let database = Arc::clone(&library.database);
    let put = move || {
        let found = match place.find(&database) {
            Ok(document) => Some(document),
            Err(problem) if problem.status == StatusCode::NOT_FOUND => None,
            Err(problem) => return Err(problem),
        };
        caller.may(if found.is_some() { Role::Modify } else { Role::Create }, Some(&place.database))?;
        match found {
            Some(document) if overwrite => {
                // Its history goes, and that takes more than a change of it.
                caller.may(Role::Delete, Some(&place.database))?;
                let mut edit = document.edit()?;
                judge(&edit, edit.value(), wanted.as_ref())?;
                // What comes must be a document before what is there goes.
                edit.import(&bytes[..])?;
                edit.drop_document()?;
                make(&database, &place, &bytes, &said)
            }
            Some(document) => {
                let mut edit = document.edit()?;
                let value = edit.value();
                judge(&edit, value, wanted.as_ref())?;
                match value {
                    Some(value) => edit.replace(value, &bytes[..])?,
                    None => edit.insert_json(At::Last(NodeKey::DOCUMENT), None, &bytes[..])?,
                };
                Ok(told(StatusCode::OK, &edit.commit(&said)?))
            }
            None if wanted.is_some() => Err(Problem::precondition("there is no such resource, and so no tag")),
            None => make(&database, &place, &bytes, &said),
        }
    };
    library.guard.pool.run(put).await
}

/// Makes the database too, if it is not there.
fn make(library: &Database, place: &Place, bytes: &[u8], said: &Meta) -> Result<Response, Problem> {
    made(library, place)?;
    let name = place.document();
    let document = match library.create(&name, Versioning::default()) {
        // Somebody else is making it, or left it without a revision.
        Err(DocsError::Exists { .. }) => library.document(&name)?,
        created => created?,
    };
    let first = document.edit().and_then(|mut edit| {
        if edit.value().is_some() {
            return Err(DocsError::Exists { name });
        }
        edit.insert_json(At::Last(NodeKey::DOCUMENT), None, bytes)?;
        edit.commit(said)
    });
    match first {
        Ok(revision) => Ok(told(StatusCode::CREATED, &revision)),
        // It stays without a revision, which nobody finds: the next one to make it goes on with it, as who waits here does.
        Err(error) => Err(error.into()),
    }
}

/// The revision that was committed, if it is not too long. That it is committed is told even if it cannot be read.
fn told(status: StatusCode, revision: &Revision) -> Response {
    echoed(status, revision).unwrap_or_else(|_| status.into_response())
}

fn echoed(status: StatusCode, revision: &Revision) -> Result<Response, DocsError> {
    let mut response = match revision.value() {
        Some(value) if revision.item(value)?.node.descendants <= ECHOED_NODES_MAX => {
            (status, Form::default().text(revision)?).into_response()
        }
        _ => status.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, JSON);
    if let Some(value) = revision.value() {
        headers.insert(header::ETAG, tag(revision.hash(&revision.item(value)?)?));
    }
    Ok(response)
}

#[derive(Clone, Copy)]
enum Insert {
    FirstChild,
    LeftSibling,
    RightSibling,
    Replace,
}

impl Insert {
    fn of(params: &mut Params) -> Result<Self, Problem> {
        match params.take(&["insert"])?.as_deref() {
            None | Some("asFirstChild" | "as-first-child") => Ok(Self::FirstChild),
            Some("asLeftSibling" | "as-left-sibling") => Ok(Self::LeftSibling),
            Some("asRightSibling" | "as-right-sibling") => Ok(Self::RightSibling),
            Some("replace") => Ok(Self::Replace),
            Some(other) => Err(Problem::invalid(format!(
                "insert = {other:?}; it is asFirstChild, asLeftSibling, asRightSibling or replace"
            ))),
        }
    }
}

fn node(params: &mut Params) -> Result<Option<NodeKey>, Problem> {
    let key = params.parsed::<u64>(&["nodeId", "node-id"], "the key of a node")?;
    Ok(key.filter(|key| *key != 0).map(NodeKey))
}

pub(super) async fn insert(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let place = Place::of(request.uri())?;
    caller.may(Role::Modify, Some(&place.database))?;
    refuse_xml(request.headers())?;
    let mut params = Params::of(request.uri())?;
    let said = meta(&mut params, &caller)?;
    let (node, how) = (node(&mut params)?, Insert::of(&mut params)?);
    params.end()?;
    let wanted = wanted(request.headers())?;
    let bytes = body::whole(request, library.body_bytes_max).await?;
    let database = Arc::clone(&library.database);
    let insert = move || {
        let document = place.find(&database)?;
        let mut edit = document.edit()?;
        let node = node.or_else(|| edit.value());
        judge(&edit, node, wanted.as_ref())?;
        match (node, how) {
            (None, Insert::FirstChild) => _ = edit.insert_json(At::Last(NodeKey::DOCUMENT), None, &bytes[..])?,
            (None, _) => {
                return Err(Problem::of(Kind::NotFound, "the document is empty: there is no node to put it beside"));
            }
            (Some(node), Insert::Replace) => _ = edit.replace(node, &bytes[..])?,
            (Some(node), how) => into(&mut edit, node, how, &bytes)?,
        }
        Ok(told(StatusCode::OK, &edit.commit(&said)?))
    };
    library.guard.pool.run(insert).await
}

/// Changes a document as a patch says, all of it or nothing.
pub(super) async fn patch(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let place = Place::of(request.uri())?;
    caller.may(Role::Modify, Some(&place.database))?;
    let told_type = request.headers().get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let is_merge = match told_type.split(';').next().unwrap_or_default().trim() {
        "application/json-patch+json" => false,
        "application/merge-patch+json" => true,
        other => {
            let detail =
                format!("a patch of type {other:?}; write application/json-patch+json or application/merge-patch+json");
            return Err(Problem::invalid(detail).status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
    };
    let mut params = Params::of(request.uri())?;
    let said = meta(&mut params, &caller)?;
    params.end()?;
    let wanted = wanted(request.headers())?;
    let bytes = body::whole(request, library.body_bytes_max).await?;
    let database = Arc::clone(&library.database);
    let patch = move || {
        let document = place.find(&database)?;
        let mut edit = document.edit()?;
        judge(&edit, edit.value(), wanted.as_ref())?;
        if is_merge {
            edit.merge_patch(&bytes[..])?
        } else {
            edit.patch(&bytes[..])?
        }
        Ok(told(StatusCode::OK, &edit.commit(&said)?))
    };
    library.guard.pool.run(patch).await
}

/// Puts a value into an array, or members into an object.
fn into(edit: &mut Edit, node: NodeKey, how: Insert, bytes: &[u8]) -> Result<(), Problem> {
    let item = edit.item(node)?.node;
    let parent = if matches!(how, Insert::FirstChild) { node } else { item.parent };
    let mut at = match how {
        Insert::LeftSibling => At::Before(node),
        Insert::RightSibling => At::After(node),
        Insert::FirstChild | Insert::Replace => At::First(node),
    };
    let is_object = parent != NodeKey::DOCUMENT && edit.item(parent)?.node.kind == NodeKind::Object;
    if !is_object {
        edit.insert_json(at, None, bytes)?;
        return Ok(());
    }
    for (name, value) in members(bytes)? {
        at = At::After(edit.insert_json(at, Some(&name), value)?);
    }
    Ok(())
}

pub(super) async fn delete(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<StatusCode, Problem> {
    let place = Place::of(request.uri())?;
    caller.may(Role::Delete, Some(&place.database))?;
    let mut params = Params::of(request.uri())?;
    let said = meta(&mut params, &caller)?;
    let node = node(&mut params)?;
    params.end()?;
    let wanted = wanted(request.headers())?;
    let database = Arc::clone(&library.database);
    let delete = move || {
        let document = place.find(&database)?;
        match node {
            Some(node) => {
                let mut edit = document.edit()?;
                judge(&edit, Some(node), wanted.as_ref())?;
                edit.remove(node)?;
                edit.commit(&said)?;
            }
            None => {
                let edit = document.edit()?;
                judge(&edit, edit.value(), wanted.as_ref())?;
                edit.drop_document()?;
            }
        }
        Ok(StatusCode::NO_CONTENT)
    };
    library.guard.pool.run(delete).await
}
