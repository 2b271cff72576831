//! Databases: listed, made, dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use assent_docs::{Database, DocsError, Edit, Meta, Once, Versioning};
use assent_door::Role;
use assent_kind::Kind;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Json, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::names::{Place, markers, names, refuse_taken};
use super::read::JSON;
use super::{Library, not_here};
use crate::body;
use crate::deadline::Deadline;
use crate::identity::Caller;
use crate::jsoniq::{self, Query};
use crate::once::{Asking, again};
use crate::params::Params;
use crate::problem::Problem;

/// Writers' seats of documents that a drop has at a time: a part of those documents that the library has at hand.
const SEATS_MAX: usize = 1_024;

pub(super) async fn list(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    caller.may_somewhere(Role::View)?;
    let mut params = Params::of(&uri)?;
    if let Some(query) = params.take(&["query"])? {
        let asked = results(&mut params, library.guard.deadline())?;
        params.end()?;
        return answered(&library, caller, query, asked).await;
    }
    let with_resources = params.flag(&["withResources", "with-resources"])?;
    params.end()?;
    let (database, deadline) = (Arc::clone(&library.database), library.guard.deadline());
    let list = move || {
        let mut all = markers(&database, &deadline)?;
        let name = |marker: &str| marker.trim_end_matches('/').to_owned();
        all.retain(|marker| caller.grants.allows(Role::View, Some(&name(marker))));
        let one = |marker: String| -> Result<Value, Problem> {
            let mut one = json!({"name": name(&marker), "type": "json"});
            if with_resources && let Value::Object(fields) = &mut one {
                fields.insert("resources".to_owned(), json!(resources(&database, &marker, &deadline)?));
            }
            Ok(one)
        };
        let list = all.into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
        Ok(Json(json!({"databases": list})).into_response())
    };
    library.guard.pool.run(list).await
}

/// The names of a database's documents. One that is being made is nowhere yet.
fn resources(library: &Database, marker: &str, deadline: &Deadline) -> Result<Vec<String>, Problem> {
    let mut resources = Vec::new();
    for (turn, name) in names(library, marker, || deadline.check())?.iter().enumerate() {
        deadline.check_at(turn)?;
        if library.has_revision(name)? {
            resources.extend(name.strip_prefix(marker).map(str::to_owned));
        }
    }
    Ok(resources)
}

/// A query as a body: `{"query","startResultSeqIndex","endResultSeqIndex","commitMessage"}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Sent {
    query: String,
    start_result_seq_index: Option<usize>,
    end_result_seq_index: Option<usize>,
    commit_message: Option<String>,
    commit_timestamp: Option<String>,
    plan: Option<Value>,
    plan_stage: Option<Value>,
}

pub(super) async fn query(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    caller.may_somewhere(Role::View)?;
    Params::of(request.uri())?.end()?;
    let asking = Asking::of(&request, &caller);
    let bytes = body::whole(request, library.body_bytes_max).await?;
    let work = Arc::clone(&library);
    let deadline = library.guard.deadline();
    let read = |bytes: &[u8]| {
        let sent: Sent = body::json(bytes)?;
        if sent.commit_timestamp.is_some() {
            return Err(not_here("a commit at another time than now (commitTimestamp)"));
        }
        if sent.plan.is_some() || sent.plan_stage.is_some() {
            return Err(not_here("the plan of a query"));
        }
        Ok((Query::read(&sent.query)?, sent))
    };
    let (query, sent) = body::taken(bytes.clone(), &library.guard.pool, read).await?;
    let pool = if query.is_write() { &library.guard.writes } else { &library.guard.pool };
    let run = move || {
        let (first, last) = (sent.start_result_seq_index, sent.end_result_seq_index);
        let mut said = Meta { author: caller.name.to_string(), ..Meta::default() };
        said.message = sent.commit_message.unwrap_or_default();
        let once = if query.is_write() { asking.once(&bytes)? } else { None };
        let _turn = work.turns.take(once.as_ref())?;
        let is_again = work.before(once.as_ref())?.is_some();
        said.fields.extend(once.map(|once| work.carried(&once, StatusCode::OK, "").field()));
        let asked = jsoniq::Asked { first, last, writes: Some(said), ..jsoniq::Asked::until(deadline) };
        // Of a write nothing is told but that it is done.
        let bytes =
            if is_again { jsoniq::NOTHING.to_vec() } else { jsoniq::run(&work.database, &caller, &query, &asked)? };
        let response = ([(header::CONTENT_TYPE, JSON)], bytes).into_response();
        Ok(if is_again { again(response) } else { response })
    };
    pool.run(run).await
}

/// Which results of a query are wanted.
pub(super) fn results(params: &mut Params<'_>, deadline: Deadline) -> Result<jsoniq::Asked, Problem> {
    let index = "the place of a result, from 0";
    let first = params.parsed(&["startResultSeqIndex", "start-result-seq-index"], index)?;
    let last = params.parsed(&["endResultSeqIndex", "end-result-seq-index"], index)?;
    Ok(jsoniq::Asked { first, last, ..jsoniq::Asked::until(deadline) })
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
    request: Request,
) -> Result<Response, Problem> {
    caller.may(Role::Delete, None)?;
    Params::of(request.uri())?.end()?;
    let (asking, deadline) = (Asking::of(&request, &caller), library.guard.deadline());
    let drop = move |database: &Database, _: &Place, once: Option<Once>| {
        let markers = markers(database, &deadline)?;
        if once.is_some() && markers.is_empty() {
            // Done now and asked for again it would take what is made meanwhile.
            let detail = "there is no database, and so nothing that could keep this Idempotency-Key: leave it out";
            return Err(Problem::invalid(detail).status(StatusCode::CONFLICT));
        }
        emptied(database, &deadline, markers, once)?;
        Ok((StatusCode::NO_CONTENT, String::new()))
    };
    library.once(asking, Place::default(), drop).await
}

/// Drops databases and all their documents. Where one of them is busy, none is dropped.
fn emptied(
    library: &Database,
    deadline: &Deadline,
    markers: Vec<String>,
    mut once: Option<Once>,
) -> Result<(), Problem> {
    let named = |marker: String| Ok((names(library, &marker, || deadline.check())?, marker));
    let going = markers.into_iter().map(named).collect::<Result<Vec<_>, Problem>>()?;
    // In the order in which lists of documents take theirs; that of a database behind them, as nobody who has one waits for another.
    let mut of_documents = Seats::of(library, deadline, going.iter().flat_map(|(documents, _)| documents))?;
    let mut of_markers = Seats::of(library, deadline, going.iter().map(|(_, marker)| marker))?;
    // The last one says that all are gone.
    let last = of_markers.0.keys().next().cloned();
    let mut is_begun = false;
    for (documents, marker) in going.iter().rev() {
        for name in documents {
            of_documents.drop(library, name, None).map_err(|problem| partly(is_begun, problem))?;
            is_begun = true;
        }
        let once = once.take_if(|_| last.as_ref() == Some(marker));
        of_markers.drop(library, marker, once).map_err(|problem| partly(is_begun, problem))?;
        is_begun = true;
        // The database is gone, whatever fails from here on.
        let left = names(library, marker, || Ok(())).unwrap_or_default();
        left.iter().for_each(|name| homeless(library, name, marker));
    }
    Ok(())
}

/// What was not dropped, and why, where something was.
fn partly(is_begun: bool, problem: Problem) -> Problem {
    if !is_begun {
        return problem;
    }
    Problem::of(Kind::InDoubt, format!("part of it is dropped, and the rest is not: {}; drop it again", problem.detail))
}

/// Writers' seats of what is to go.
struct Seats(BTreeMap<String, Edit>);

impl Seats {
    /// Takes these, one after the other. Those of which there would be too many are given back at once: who was busy is known by then.
    fn of<'a>(
        library: &Database,
        deadline: &Deadline,
        names: impl Iterator<Item = &'a String>,
    ) -> Result<Self, Problem> {
        let mut seats = BTreeMap::new();
        for name in names {
            match to_drop(library, name) {
                Ok(edit) if seats.len() < SEATS_MAX => _ = seats.insert(name.clone(), edit),
                Ok(_) | Err(DocsError::NoDocument { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            // Each may have been waited for, and nothing is dropped yet.
            deadline.check()?;
        }
        Ok(Self(seats))
    }

    fn drop(&mut self, library: &Database, name: &str, once: Option<Once>) -> Result<(), Problem> {
        match (self.0.remove(name), once) {
            (Some(edit), Some(once)) => edit.drop_once(once)?,
            (Some(edit), None) => edit.drop_document()?,
            (None, _) => gone(library, name)?,
        }
        Ok(())
    }
}

/// Behind the commit that made a document: whoever dropped its database meanwhile may not have seen it, and it goes with the database.
pub(crate) fn homed(library: &Database, place: &Place) {
    homeless(library, &place.document(), &place.marker());
}

/// Drops a document whose database is not there. Either this or the other look comes behind both the drop and the commit: none
/// outlives its database.
fn homeless(library: &Database, name: &str, marker: &str) {
    let is_homeless = || matches!(library.document(marker), Err(DocsError::NoDocument { .. }));
    if !is_homeless() {
        return;
    }
    let dropped = match to_drop(library, name) {
        // Whoever had its seat may have made the database again, for what he put there.
        Ok(edit) if is_homeless() => edit.drop_document(),
        Ok(_) | Err(DocsError::NoDocument { .. }) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(why) = dropped {
        tracing::warn!(name, %why, "a document has outlived its database");
    }
}

/// The writer's seat of a document that is to go, whether it can be read or not.
pub(super) fn to_drop(library: &Database, name: &str) -> Result<Edit, DocsError> {
    match library.edit(name) {
        Err(DocsError::Damaged { .. }) => library.edit_anew(name, Versioning::default()),
        edit => edit,
    }
}

/// Drops a document; somebody else may have done so.
fn gone(library: &Database, name: &str) -> Result<(), Problem> {
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
    let place = Place::open_to(&uri, &caller, Role::View)?;
    Params::of(&uri)?.end()?;
    let (database, deadline) = (Arc::clone(&library.database), library.guard.deadline());
    let show = move || {
        if !place.is_there(&database)? {
            return Err(missing(&place));
        }
        Ok(Json(json!({"resources": resources(&database, &place.marker(), &deadline)?})).into_response())
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
) -> Result<Response, Problem> {
    let asking = Asking::of(&request, &caller);
    let place = Place::open_to(&asking.uri, &caller, Role::Create)?;
    refuse_xml(&asking.headers)?;
    Params::of(&asking.uri)?.end()?;
    let create = |database: &Database, place: &Place, _| {
        Ok((if made(database, place)? { StatusCode::CREATED } else { StatusCode::OK }, String::new()))
    };
    library.once(asking, place, create).await
}

/// Refuses a name that a database cannot be made under. One that is there keeps it, whatever else has that.
pub(super) fn refuse_new(library: &Database, place: &Place) -> Result<(), Problem> {
    if place.is_there(library)? { Ok(()) } else { refuse_taken(&place.database) }
}

/// Makes the database, unless it is there.
pub(super) fn made(library: &Database, place: &Place) -> Result<bool, Problem> {
    if place.is_there(library)? {
        return Ok(false);
    }
    refuse_taken(&place.database)?;
    match library.create(&place.marker(), Versioning::default()) {
        Ok(_) => Ok(true),
        Err(DocsError::Exists { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn drop(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let asking = Asking::of(&request, &caller);
    let place = Place::open_to(&asking.uri, &caller, Role::Delete)?;
    Params::of(&asking.uri)?.end()?;
    let deadline = library.guard.deadline();
    let drop = move |database: &Database, place: &Place, once| {
        if !place.is_there(database)? {
            return Err(missing(place));
        }
        emptied(database, &deadline, vec![place.marker()], once)?;
        Ok((StatusCode::NO_CONTENT, String::new()))
    };
    library.once(asking, place, drop).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use assent_docs::{At, Config, NodeKey};
    use assent_journal::Journal;
    use assent_world::{Clock, RealClock, RealDice, RealDisk};

    use super::*;

    #[test]
    fn databases_and_their_documents_are_listed_for_as_long_as_somebody_waits_for_them() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, clock) = (Arc::new(RealDisk), Arc::new(RealClock) as Arc<dyn Clock>);
        let config = assent_journal::Config { kept_until_released: true, ..Default::default() };
        let log =
            Journal::open(disk.clone(), Arc::clone(&clock), Arc::new(RealDice), &folder.path().join("log"), config);
        let index = folder.path().join("index");
        let db = Database::open(log.unwrap().0, disk, Arc::clone(&clock), &index, Config::default()).unwrap();
        // Names that stand before and behind a database's, one without it, and documents that are being made.
        for name in ["db", "db!/", "db/", "db/making", "db0", "db0/", "é/", "lost/doc", "lost/making"] {
            db.create(name, Versioning::default()).unwrap();
        }
        for name in ["db/a", "db/b/c", "db!/a", "lost/doc"] {
            let doc = db.create(name, Versioning::default()).or_else(|_| db.document(name)).unwrap();
            let mut edit = doc.edit().unwrap();
            edit.insert_json(At::Last(NodeKey::DOCUMENT), None, &b"1"[..]).unwrap();
            edit.commit(&Meta::default()).unwrap();
        }
        let [long, over] = [Duration::from_secs(3_600), Duration::ZERO].map(|time| Deadline::after(&clock, time));
        assert_eq!(markers(&db, &long).unwrap(), ["db!/", "db/", "db0/", "é/"]);
        assert_eq!(resources(&db, "db/", &long).unwrap(), ["a", "b/c"]);
        assert_eq!(resources(&db, "db0/", &long).unwrap(), [""; 0]);
        assert_eq!(markers(&db, &over).unwrap_err().kind, "unavailable");
        assert_eq!(resources(&db, "db/", &over).unwrap_err().kind, "unavailable");
    }
}
