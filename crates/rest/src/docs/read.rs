//! Documents read: one revision or several, whole or from a node on, plain or with what is known of each node.
//!
//! Walk: [`Asked::of`] the parameters, in both spellings · [`One::at_once`] what is short and in memory · all else on a thread that may
//! block: [`which`] the revisions · one is written as it is ([`value`]), several in an envelope, both piece by piece · the tag is the
//! hash of the node that is read.

use std::iter::{empty, once};
use std::sync::Arc;

use assent_docs::{Database, DocsError, Document, Form, Look, Metadata, NodeKey, Revision};
use assent_door::Role;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};

use super::Library;
use super::names::{self, Place};
use super::query::Asking;
use crate::answer::{Begun, Pieces};
use crate::digits::digits;
use crate::identity::Caller;
use crate::jsoniq;
use crate::moment;
use crate::params::Params;
use crate::problem::Problem;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Headers of an answer.
const TOLD: usize = 8;
/// Revisions of one answer.
const REVISIONS_MAX: u32 = 1_000;

/// The tag of a node: its hash.
pub(super) fn tag(hash: u64) -> HeaderValue {
    let mut text = [b'"'; 18];
    if let Some((_, [inside @ .., _])) = text.split_first_mut() {
        inside.copy_from_slice(&digits(hash));
    }
    HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Which revision.
#[derive(Clone, Debug)]
pub(crate) enum When {
    Number(u32),
    Time(u64),
    Tag(String),
}

impl When {
    pub(crate) fn find(&self, document: &Document) -> Result<Revision, Problem> {
        let found = match self {
            Self::Tag(tag) => document.tagged(tag)?,
            Self::Number(number) => document.at(*number)?,
            // What was the newest then; before the first there was nothing, and the first is told.
            Self::Time(ms) => match document.as_of(*ms)? {
                none if none.number() == 0 => document.at(1)?,
                found => found,
            },
        };
        if found.number() == 0 {
            return Err(Problem::not_found("there is no revision 0: the first is 1"));
        }
        Ok(found)
    }

    /// A number, or a moment.
    pub(crate) fn of(text: &str) -> Result<Self, Problem> {
        let number = text.parse().map(Self::Number);
        number.or_else(|_| {
            let wrong = || Problem::invalid(format!("{text:?} is neither a revision's number nor a moment"));
            moment::parse(text).map(Self::Time).ok_or_else(wrong)
        })
    }
}

fn number(params: &mut Params<'_>, names: &[&str]) -> Result<Option<When>, Problem> {
    Ok(params.parsed(names, "a revision's number")?.map(When::Number))
}

fn time(params: &mut Params<'_>, names: &[&str]) -> Result<Option<When>, Problem> {
    let Some(text) = params.take(names)? else { return Ok(None) };
    let wrong = || Problem::invalid(format!("{text:?} is no moment such as 2026-11-21T07:05:17.123Z"));
    moment::parse(&text).map(When::Time).map(Some).ok_or_else(wrong)
}

/// The tag of a revision.
pub(super) fn tag_of(params: &mut Params<'_>) -> Result<Option<When>, Problem> {
    Ok(params.take(&["tag"])?.map(When::Tag))
}

/// One of two ways to say the same.
fn one(number: Option<When>, time: Option<When>, what: &str) -> Result<Option<When>, Problem> {
    match (number, time) {
        (Some(_), Some(_)) => Err(Problem::invalid(format!("give {what} by its number or by a time, not both"))),
        (number, time) => Ok(number.or(time)),
    }
}

struct Asked {
    revision: Option<When>,
    /// From the first to the last.
    range: Option<(When, When)>,
    form: Form,
    query: Option<Asking>,
}

impl Asked {
    fn of(uri: &Uri) -> Result<Self, Problem> {
        let mut params = Params::of(uri)?;
        let it = &mut params;
        let revision =
            one(number(it, &["revision"])?, time(it, &["revision-timestamp", "revisionTimestamp"])?, "the revision")?;
        let revision = match (tag_of(it)?, revision) {
            (Some(_), Some(_)) => return Err(Problem::invalid("give the revision by its tag, its number or a time")),
            (tag, revision) => tag.or(revision),
        };
        let from = one(
            number(it, &["start-revision", "startRevision"])?,
            time(it, &["start-revision-timestamp", "startRevisionTimestamp"])?,
            "the first revision",
        )?;
        let to = one(
            number(it, &["end-revision", "endRevision"])?,
            time(it, &["end-revision-timestamp", "endRevisionTimestamp"])?,
            "the last revision",
        )?;
        let range = match (from, to, &revision) {
            (None, None, _) => None,
            (Some(from), Some(to), None) => Some((from, to)),
            _ => return Err(Problem::invalid("give both ends of a range of revisions, or one revision")),
        };
        let query = Asking::of(it)?;
        let form = Self::form(it)?;
        params.end()?;
        if query.is_some() && range.is_some() {
            return Err(Problem::invalid("path is asked of one revision"));
        }
        Ok(Self { revision, range, form, query })
    }

    fn form(params: &mut Params<'_>) -> Result<Form, Problem> {
        let start = params.parsed::<u64>(&["nodeId", "node-id"], "the key of a node")?;
        let metadata = match params.take(&["withMetaData", "withMetadata", "with-metadata"])?.as_deref() {
            None | Some("false") => Metadata::None,
            Some("" | "true") => Metadata::All,
            Some("nodeKey") => Metadata::NodeKey,
            Some("nodeKeyAndChildCount") => Metadata::NodeKeyAndChildCount,
            Some(other) => {
                let rule = "it is true, nodeKey or nodeKeyAndChildCount";
                return Err(Problem::invalid(format!("withMetaData = {other:?}; {rule}")));
            }
        };
        let from_one = "a number from 1";
        let after =
            params.parsed::<u64>(&["lastTopLevelNodeKey", "startNodeKey", "start-node-key"], "the key of a node")?;
        let form = Form {
            start: start.filter(|key| *key != 0).map(NodeKey),
            max_level: params.parsed(&["maxLevel", "max-level"], from_one)?,
            max_children: params.parsed(&["maxChildren", "max-children"], from_one)?,
            after: after.filter(|key| *key != 0).map(NodeKey),
            max_top: params.parsed(&["nextTopLevelNodes", "next-top-level-nodes"], from_one)?,
            max_nodes: params.parsed(&["numberOfNodes", "number-of-nodes"], from_one)?,
            metadata,
            pretty: params.flag(&["prettyPrint", "pretty-print"])?,
        };
        if form.max_level == Some(0) || [form.max_children, form.max_nodes, form.max_top].contains(&Some(0)) {
            return Err(Problem::invalid("maxLevel, maxChildren, numberOfNodes and nextTopLevelNodes are at least 1"));
        }
        Ok(form)
    }
}

/// The revisions that are asked for, the first first.
fn which(document: &Document, from: &When, to: &When) -> Result<Vec<Revision>, Problem> {
    let (from, to) = (from.find(document)?.number(), to.find(document)?.number());
    let (first, last) = (from.min(to), from.max(to));
    let many = last - first + 1;
    if many > REVISIONS_MAX {
        return Err(Problem::invalid(format!("{many} revisions; one answer has at most {REVISIONS_MAX}")));
    }
    (first..=last).map(|number| document.at(number).map_err(Problem::from)).collect()
}

pub(super) async fn read(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    answer(&library, caller, request.headers(), request.uri(), true).await
}

pub(super) async fn head(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    answer(&library, caller, request.headers(), request.uri(), false).await
}

/// What is short and in memory is answered where it came in: to hand it to another thread and back takes longer than to make it. All
/// else, and all that fails, is for the routes.
pub(crate) fn at_once(library: &Library, caller: &Caller, request: &Request) -> Option<Response> {
    let uri = request.uri();
    if *request.method() != Method::GET || !names::is_document(uri.path()) {
        return None;
    }
    let place = Place::open_to(uri, caller, Role::View).ok()?;
    let Asked { revision, range: None, form, query: None } = Asked::of(uri).ok()? else { return None };
    let known = request.headers().get(header::IF_NONE_MATCH).cloned();
    One { form, known, body: true }.at_once(&library.database, &place, revision.as_ref())
}

async fn answer(
    library: &Library,
    caller: Caller,
    headers: &HeaderMap,
    uri: &Uri,
    body: bool,
) -> Result<Response, Problem> {
    let place = Place::open_to(uri, &caller, Role::View)?;
    if let Some((query, asked)) = jsoniq(uri, &place, library)? {
        return super::databases::answered(library, caller, query, asked).await;
    }
    let Asked { revision, range, form, query } = Asked::of(uri)?;
    let known = headers.get(header::IF_NONE_MATCH).cloned();
    let database = Arc::clone(&library.database);
    let one = One { form, known, body };
    // One that is to have a body was tried before it was looked for among the routes.
    if !body
        && range.is_none()
        && query.is_none()
        && let Some(response) = one.at_once(&database, &place, revision.as_ref())
    {
        return Ok(response);
    }
    let deadline = library.guard.deadline();
    let read = move || {
        let document = place.find(&database)?;
        let body = |pieces| Ok(Read::Body(json(), Begun::of(if body { pieces } else { Box::new(empty()) })?));
        if let Some((from, to)) = range {
            let revisions = which(&document, &from, &to)?;
            return body(envelope(revisions, form));
        }
        let revision = revision.map_or_else(|| Ok(document.latest()), |when| when.find(&document))?;
        if let Some(query) = query {
            return body(query.answer(revision, form, &deadline)?);
        }
        one.read(revision)
    };
    let guard = &library.guard;
    match guard.pool.run(read).await? {
        Read::Done(response) => Ok(response),
        Read::Body(told, begun) => guard.answers.of(told, begun, &guard.pool, &caller),
    }
}

fn json() -> HeaderMap {
    // With room for what the guard says.
    let mut told = HeaderMap::with_capacity(TOLD);
    told.insert(header::CONTENT_TYPE, JSON);
    told
}

/// One revision, read.
struct One {
    form: Form,
    /// The tag that the caller has.
    known: Option<HeaderValue>,
    body: bool,
}

impl One {
    /// What is told beside the body, and whether the caller has it.
    fn head(&self, revision: &Revision) -> Result<(HeaderMap, bool), DocsError> {
        let (mut told, mut is_known) = (json(), false);
        if let Some(key) = self.form.start.or_else(|| revision.value()) {
            let now = tag(revision.hash(&revision.item(key)?)?);
            is_known = self.known.as_ref() == Some(&now);
            told.insert(header::ETAG, now);
        }
        Ok((told, is_known))
    }

    /// Where it may block.
    fn read(&self, revision: Revision) -> Result<Read, Problem> {
        let (told, is_known) = self.head(&revision)?;
        if is_known {
            return Ok(Read::Done((StatusCode::NOT_MODIFIED, told).into_response()));
        }
        let pieces = if self.body { value(revision, self.form) } else { Box::new(empty()) };
        Ok(Read::Body(told, Begun::of(pieces)?))
    }

    /// What is in memory and no longer than one piece.
    fn at_once(&self, database: &Database, place: &Place, revision: Option<&When>) -> Option<Response> {
        let number = match revision {
            None => None,
            Some(When::Number(number)) => Some(*number),
            Some(When::Time(_) | When::Tag(_)) => return None,
        };
        let revision = database.at_hand(&place.document())?.at_hand(number)?.without_waiting();
        let (told, is_known) = self.head(&revision).ok()?;
        let mut only = Vec::new();
        if self.body && !is_known {
            let mut pieces = self.form.chunks(revision);
            only = pieces.next().unwrap_or(Ok(only)).ok()?;
            if !pieces.is_over() {
                return None;
            }
        }
        let mut response = Response::new(Body::from(only));
        *response.headers_mut() = told;
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        Some(response)
    }
}

/// A query in JSONiq, and what is said beside it.
fn jsoniq(uri: &Uri, place: &Place, library: &Library) -> Result<Option<(String, jsoniq::Asked)>, Problem> {
    // Most have none, and need not be taken apart twice. A letter may hide behind its % sign.
    if !uri.query().is_some_and(|query| query.contains("query") || query.contains('%')) {
        return Ok(None);
    }
    let mut params = Params::of(uri)?;
    let Some(query) = params.take(&["query"])? else { return Ok(None) };
    let it = &mut params;
    let revision =
        one(number(it, &["revision"])?, time(it, &["revision-timestamp", "revisionTimestamp"])?, "the revision")?;
    let mut asked = super::databases::results(it, library.guard.deadline())?;
    params.end()?;
    asked.here = Some((place.clone(), revision));
    Ok(Some((query, asked)))
}

enum Read {
    Done(Response),
    Body(HeaderMap, Begun),
}

/// A subtree of a revision.
pub(super) fn value(revision: Revision, form: Form) -> Pieces {
    Box::new(form.chunks(revision).map(|piece| piece.map_err(Problem::from)))
}

/// `{"sirix":[{"revisionNumber","revisionTimestamp","revision"}]}`
fn envelope(revisions: Vec<Revision>, form: Form) -> Pieces {
    let one = move |(at, revision): (usize, Revision)| {
        let (comma, number) = (if at == 0 { "" } else { "," }, revision.number());
        let time = moment::show(revision.time_ms());
        let head = format!("{comma}{{\"revisionNumber\":{number},\"revisionTimestamp\":\"{time}\",\"revision\":");
        let is_there = match form.start {
            None => revision.value().is_some(),
            Some(key) => matches!(revision.find(key), Ok(Some(_))),
        };
        let inside = if is_there { value(revision, form) } else { text("null") };
        text(head).chain(inside).chain(text("}"))
    };
    Box::new(text("{\"sirix\":[").chain(revisions.into_iter().enumerate().flat_map(one)).chain(text("]}")))
}

/// A piece that is there.
pub(super) fn text(text: impl Into<Vec<u8>>) -> Pieces {
    Box::new(once(Ok(text.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_sixteen_digits_between_quotes() {
        for hash in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            assert_eq!(tag(hash), format!("\"{hash:016x}\""));
        }
    }
}
