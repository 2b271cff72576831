//! Databases: listed, made, dropped.

use std::sync::Arc;

use assent_docs::{Database, DocsError, Versioning};
use assent_door::Role;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Json, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::names::{Place, names};
use super::read::JSON;
use super::{Library, not_here};
use crate::body;
use crate::identity::Caller;
use crate::jsoniq::{self, Query};
use crate::params::Params;
use crate::problem::Problem;

pub(super) async fn list(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    caller.may_somewhere(Role::View)?;
    let mut params = Params::of(&uri)?;
    if let Some(query) = params.take(&["query"])? {
        let asked = results(&mut params)?;
        params.end()?;
        return answered(&library, caller, query, asked).await;
    }
    let with_resources = params.flag(&["withResources", "with-resources"])?;
    params.end()?;
    let database = Arc::clone(&library.database);
    let list = move || {
        let mut databases: Vec<(String, Vec<String>)> = Vec::new();
        for name in names(&database, "")? {
            match name.split_once('/') {
                Some((database, "")) => databases.push((database.to_owned(), Vec::new())),
                // One that is being made is nowhere yet.
                Some(_) if !database.has_revision(&name)? => {}
                Some((_, resource)) => {
                    databases.last_mut().map(|(_, list)| list.push(resource.to_owned())).unwrap_or(())
                }
                None => {}
            }
        }
        let seen = databases.into_iter().filter(|(name, _)| caller.grants.allows(Role::View, Some(name)));
        let one = |(name, resources): (String, Vec<String>)| {
            let mut one = json!({"name": name, "type": "json"});
            if with_resources && let Value::Object(fields) = &mut one {
                fields.insert("resources".to_owned(), json!(resources));
            }
            one
        };
        Ok(Json(json!({"databases": seen.map(one).collect::<Vec<_>>()})).into_response())
    };
    library.guard.pool.run(list).await
}

/// A query as a body: `{"query","startResultSeqIndex","endResultSeqIndex"}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Sent {
    query: String,
    start_result_seq_index: Option<usize>,
    end_result_seq_index: Option<usize>,
}

pub(super) async fn query(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    caller.may_somewhere(Role::View)?;
    Params::of(request.uri())?.end()?;
    let bytes = body::whole(request, library.body_bytes_max).await?;
    let database = Arc::clone(&library.database);
    let run = move || {
        let Sent { query, start_result_seq_index: first, end_result_seq_index: last } = body::json(&bytes)?;
        let asked = jsoniq::Asked { first, last, writes: true, ..jsoniq::Asked::default() };
        let bytes = jsoniq::run(&database, &caller, &Query::read(&query)?, &asked)?;
        Ok(([(header::CONTENT_TYPE, JSON)], bytes).into_response())
    };
    library.guard.pool.run(run).await
}

/// Which results of a query are wanted.
pub(super) fn results(params: &mut Params) -> Result<jsoniq::Asked, Problem> {
    let index = "the place of a result, from 0";
    let first = params.parsed(&["startResultSeqIndex", "start-result-seq-index"], index)?;
    let last = params.parsed(&["endResultSeqIndex", "end-result-seq-index"], index)?;
    Ok(jsoniq::Asked { first, last, ..jsoniq::Asked::default() })
}

/// Reads by a query.
pub(super) async fn answered(
    library: &Library,
    caller: Caller,
    query: String,
    asked: jsoniq::Asked,
) -> Result<Response, Problem> {
    let database = Arc::clone(&library.database);
    let run = move || {
        let bytes = jsoniq::run(&database, &caller, &Query::read(&query)?, &asked)?;
        Ok(([(header::CONTENT_TYPE, JSON)], bytes).into_response())
    };
    library.guard.pool.run(run).await
}

pub(super) async fn drop_all(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    caller.may(Role::Delete, None)?;
    Params::of(&uri)?.end()?;
    let database = Arc::clone(&library.database);
    let drop = move || {
        // The names of databases are before those of their documents: backwards, so that no document outlives its database.
        names(&database, "")?.iter().rev().try_for_each(|name| gone(&database, name))?;
        Ok(StatusCode::NO_CONTENT)
    };
    library.guard.pool.run(drop).await
}

/// Drops a document; somebody else may have done so.
pub(super) fn gone(library: &Database, name: &str) -> Result<(), Problem> {
    match library.drop_document(name) {
        Ok(()) | Err(DocsError::NoDocument { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn show(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let place = Place::of(&uri)?;
    caller.may(Role::View, Some(&place.database))?;
    Params::of(&uri)?.end()?;
    let database = Arc::clone(&library.database);
    let show = move || {
        if !place.is_there(&database)? {
            return Err(missing(&place));
        }
        let marker = place.marker();
        let all = names(&database, &marker)?;
        let mut resources = Vec::new();
        for name in &all {
            if database.has_revision(name)? {
                resources.extend(name.strip_prefix(&marker));
            }
        }
        Ok(Json(json!({"resources": resources})).into_response())
    };
    library.guard.pool.run(show).await
}

fn missing(place: &Place) -> Problem {
    Problem::not_found(format!("there is no database {:?}", place.database))
}

/// XML has no place here.
pub(super) fn refuse_xml(headers: &HeaderMap) -> Result<(), Problem> {
    let is_xml = |name| {
        headers.get(name).and_then(|it| it.to_str().ok()).is_some_and(|it| it.contains("xml") && !it.contains("*/*"))
    };
    if is_xml(header::CONTENT_TYPE) { Err(not_here("XML")) } else { Ok(()) }
}

pub(super) async fn create(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<StatusCode, Problem> {
    let place = Place::of(request.uri())?;
    caller.may(Role::Create, Some(&place.database))?;
    refuse_xml(request.headers())?;
    Params::of(request.uri())?.end()?;
    let database = Arc::clone(&library.database);
    let create = move || Ok(if made(&database, &place)? { StatusCode::CREATED } else { StatusCode::OK });
    library.guard.pool.run(create).await
}

/// Makes the database, unless it is there.
pub(super) fn made(library: &Database, place: &Place) -> Result<bool, Problem> {
    if place.is_there(library)? {
        return Ok(false);
    }
    match library.create(&place.marker(), Versioning::default()) {
        Ok(_) => Ok(true),
        Err(DocsError::Exists { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn drop(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let place = Place::of(&uri)?;
    caller.may(Role::Delete, Some(&place.database))?;
    Params::of(&uri)?.end()?;
    let database = Arc::clone(&library.database);
    let drop = move || {
        if !place.is_there(&database)? {
            return Err(missing(&place));
        }
        let marker = place.marker();
        names(&database, &marker)?.iter().try_for_each(|name| gone(&database, name))?;
        gone(&database, &marker)?;
        Ok(StatusCode::NO_CONTENT)
    };
    library.guard.pool.run(drop).await
}
