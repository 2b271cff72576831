//! What was, and what there is: the history of a document, what differs between two revisions of it, and its paths.

use std::sync::Arc;

use assent_docs::{Diff, Document, Look as _, NodeKey, Scope};
use assent_door::Role;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse as _, Json, Response};
use serde_json::{Value, json};

use super::Library;
use super::names::Place;
use super::read::{JSON, When, tag_of, text};
use crate::answer::{Begun, Whole};
use crate::identity::Caller;
use crate::moment;
use crate::params::Params;
use crate::problem::Problem;

/// Revisions of one answer.
const REVISIONS_MAX: usize = 100_000;
/// Revisions that are read at a time: each may have a long message.
const PAGE: usize = 100;

pub(super) async fn history(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let place = Place::open_to(&uri, &caller, Role::View)?;
    let mut params = Params::of(&uri)?;
    let last = params.parsed::<usize>(&["revisions"], "a number from 1")?;
    let number = "a revision's number";
    let from = params.parsed::<u32>(&["startRevision", "start-revision"], number)?;
    let to = params.parsed::<u32>(&["endRevision", "end-revision"], number)?;
    params.end()?;
    if last == Some(0) || (last.is_some() && (from.is_some() || to.is_some())) {
        return Err(Problem::invalid("give revisions, at least 1, or startRevision and endRevision"));
    }
    let database = Arc::clone(&library.database);
    let read = move || {
        let document = place.find(&database)?;
        let newest = document.latest().number();
        let (from, to) = (from.unwrap_or(1).max(1), to.unwrap_or(newest));
        let (from, to) = (from.min(to), from.max(to));
        let left = last.unwrap_or(REVISIONS_MAX).min(REVISIONS_MAX);
        Begun::of(Box::new(
            text("{\"history\":[").chain(Told { document, from, to, left, is_first: true }).chain(text("]}")),
        ))
    };
    let guard = &library.guard;
    let begun = guard.pool.run(read).await?;
    guard.answers.of(HeaderMap::from_iter([(header::CONTENT_TYPE, JSON)]), begun, &guard.pool, &caller)
}

/// The revisions of a range, the newest first, a page at a time.
struct Told {
    document: Document,
    from: u32,
    to: u32,
    left: usize,
    is_first: bool,
}

impl Told {
    fn page(&mut self) -> Result<Vec<u8>, Problem> {
        let list = self.document.history(self.from..=self.to, self.left.min(PAGE))?;
        // Nobody asks for more of it once it has been all, or was not to be read.
        self.left = if list.len() < PAGE { 0 } else { self.left.saturating_sub(list.len()) };
        self.to = list.last().map_or(0, |oldest| oldest.revision.saturating_sub(1));
        let mut page = Vec::new();
        for told in list {
            if !std::mem::take(&mut self.is_first) {
                page.push(b',');
            }
            let time = moment::show(told.time_ms);
            let one = json!({"revision": told.revision, "revisionTimestamp": time, "author": told.author, "commitMessage": told.message});
            page.extend_from_slice(one.to_string().as_bytes());
        }
        Ok(page)
    }
}

impl Iterator for Told {
    type Item = Result<Vec<u8>, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 || self.to < self.from {
            return None;
        }
        let page = self.page();
        if page.is_err() {
            self.left = 0;
        }
        Some(page)
    }
}

pub(super) async fn diff(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let place = Place::open_to(&uri, &caller, Role::View)?;
    let mut params = Params::of(&uri)?;
    let mut revision = |names: &[&str]| {
        let text = params.take(names)?;
        let name = names.first().copied().unwrap_or_default();
        When::of(&text.ok_or_else(|| Problem::invalid(format!("give {name}: a revision's number, or a moment")))?)
    };
    let old = revision(&["first-revision", "firstRevision"])?;
    let new = revision(&["second-revision", "secondRevision"])?;
    let start = params.parsed::<u64>(&["startNodeKey", "start-node-key"], "the key of a node")?;
    let max_level = params.parsed::<u32>(&["maxDepth", "max-depth"], "a number from 1")?;
    let data = params.take(&["include-data", "includeData"])?.is_none_or(|word| word != "false");
    params.end()?;
    let scope = Scope { start: start.filter(|key| *key != 0).map(NodeKey), max_level };
    let (database, deadline) = (Arc::clone(&library.database), library.guard.deadline());
    let compare = move || {
        let document = place.find(&database)?;
        let [old, new] = [old, new].map(|when| when.find(&document).map(|revision| deadline.bound(revision)));
        let diff = Diff::between(&old?, &new?, scope)?;
        let mut whole = Whole::new();
        let written = diff.write(&place.database, data, &mut whole);
        let bytes = whole.taken(written)?;
        Ok(([(header::CONTENT_TYPE, JSON)], renamed(bytes, &place)).into_response())
    };
    library.guard.pool.run(compare).await
}

/// The library knows the document by the name of its database, too.
fn renamed(bytes: Vec<u8>, place: &Place) -> Vec<u8> {
    let head = |resource: &str| {
        format!("{{\"database\":{},\"resource\":{}", json!(place.database), json!(resource)).into_bytes()
    };
    match bytes.strip_prefix(head(&place.document()).as_slice()) {
        Some(rest) => [head(&place.resource).as_slice(), rest].concat(),
        None => bytes,
    }
}

pub(super) async fn paths(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let place = Place::open_to(&uri, &caller, Role::View)?;
    let mut params = Params::of(&uri)?;
    let when = params.take(&["revision"])?.map(|text| When::of(&text)).transpose()?;
    let tag = tag_of(&mut params)?;
    params.end()?;
    if when.is_some() && tag.is_some() {
        return Err(Problem::invalid("give the revision by its tag, its number or a time"));
    }
    let when = tag.or(when);
    let (database, deadline) = (Arc::clone(&library.database), library.guard.deadline());
    let read = move || {
        let document = place.find(&database)?;
        let revision = deadline.bound(when.map_or_else(|| Ok(document.latest()), |when| when.find(&document))?);
        let one = |path: &assent_docs::PathCount| json!({"nodeKey": path.id, "level": path.level, "path": path.path, "references": path.references});
        let list: Vec<Value> = revision.paths()?.iter().map(one).collect();
        Ok(Json(json!({"revision": revision.revision(), "pathSummary": list})).into_response())
    };
    library.guard.pool.run(read).await
}
