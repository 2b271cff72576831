//! Tags: names for revisions of a document, put, listed and taken away. `tag=NAME` reads the revision of one.

use std::sync::Arc;

use assent_docs::{Database, DocsError};
use assent_door::Role;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Json, Response};
use serde_json::{Value, json};

use super::Library;
use super::names::Place;
use super::read::When;
use crate::identity::Caller;
use crate::once::Asking;
use crate::params::{Params, decoded};
use crate::problem::Problem;

/// Tags of one answer.
const TAGS_MAX: usize = 1_000;

pub(super) async fn list(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let place = Place::open_to(&uri, &caller, Role::View)?;
    let mut params = Params::of(&uri)?;
    let behind = params.take(&["after"])?;
    let limit = params.parsed::<usize>(&["limit"], "a number from 1")?.unwrap_or(TAGS_MAX).clamp(1, TAGS_MAX);
    params.end()?;
    let database = Arc::clone(&library.database);
    let list = move || {
        let document = place.find(&database)?;
        let mut tags = document.tags(behind.as_deref(), limit + 1)?;
        let has_more = tags.len() > limit;
        tags.truncate(limit);
        let next = tags.last().filter(|_| has_more).map(|(tag, _)| tag.clone());
        let list: Vec<Value> = tags.iter().map(|(tag, revision)| json!({"tag": tag, "revision": revision})).collect();
        Ok(Json(json!({"tags": list, "next": next})).into_response())
    };
    library.guard.pool.run(list).await
}

/// The tag in the path.
fn named(uri: &Uri) -> Result<String, Problem> {
    let text = uri.path().rsplit_once('/').map_or("", |(_, name)| name);
    let tag = decoded(text)?;
    if tag.is_empty() || tag.len() > 255 || tag.chars().any(char::is_control) {
        return Err(Problem::invalid("a tag has 1 to 255 bytes and no control characters"));
    }
    Ok(tag)
}

pub(super) async fn put(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let asking = Asking::of(&request, &caller);
    let place = Place::open_to(&asking.uri, &caller, Role::Modify)?;
    let tag = named(&asking.uri)?;
    let mut params = Params::of(&asking.uri)?;
    let when = params.take(&["revision"])?.map(|text| When::of(&text)).transpose()?;
    params.end()?;
    let put = move |database: &Database, place: &Place, _| {
        let document = place.find(database)?;
        let revision = when.map_or_else(|| Ok(document.latest()), |when| when.find(&document))?.number();
        let status = match document.tagged(&tag) {
            Err(DocsError::NoTag { .. }) => StatusCode::CREATED,
            found => found.map(|_| StatusCode::OK)?,
        };
        document.tag(&tag, revision)?;
        Ok((status, json!({"tag": tag, "revision": revision}).to_string()))
    };
    library.once(asking, place, put).await
}

pub(super) async fn delete(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let asking = Asking::of(&request, &caller);
    let place = Place::open_to(&asking.uri, &caller, Role::Delete)?;
    let tag = named(&asking.uri)?;
    Params::of(&asking.uri)?.end()?;
    let delete = move |database: &Database, place: &Place, _| {
        place.find(database)?.untag(&tag)?;
        Ok((StatusCode::NO_CONTENT, String::new()))
    };
    library.once(asking, place, delete).await
}
