//! Documents made, changed and dropped.
//!
//! Walk: [`put`] makes a document, or gives the one that is there another revision · [`insert`] puts a value before, behind, into
//! or in place of a node · [`patch`] · [`delete`] drops a document or a node. The precondition is judged while the writer's seat is held:
//! nobody comes between. Each answer tells the tag and what there is now. A request with a key is named in its commit: who sends it
//! again is told what that commit made.

use std::sync::Arc;

use assent_docs::{At, Database, DocsError, Edit, Form, Look, Meta, NodeKey, Revision, Versioning};
use assent_door::Role;
use assent_kind::Kind as Class;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::change::{Change, Insert, judge, wanted};
use super::databases::{homed, made, refuse_new, refuse_xml, to_drop};
use super::names::{Place, refuse_taken};
use super::read::{JSON, tag};
use super::{Library, not_here};
use crate::answer::Whole;
use crate::body;
use crate::deadline::Deadline;
use crate::identity::Caller;
use crate::once::{Asking, Kept, Once, again};
use crate::params::Params;
use crate::prefer::{self, Done};
use crate::problem::Problem;

/// Patches that are taken.
const PATCHES: &str = "application/json-patch+json or application/merge-patch+json";
/// Documents of more nodes are not told back, and neither are those that are longer.
const ECHOED_NODES_MAX: u64 = 2_000;
const ECHOED_BYTES_MAX: usize = 8 << 20;

/// What is said of a commit.
pub(super) fn meta(params: &mut Params<'_>, caller: &Caller) -> Result<Meta, Problem> {
    if params.take(&["commitTimestamp", "commit-timestamp"])?.is_some() {
        return Err(not_here("a commit at another time than now (commitTimestamp)"));
    }
    let message = params.take(&["commitMessage", "commit-message"])?.unwrap_or_default();
    Ok(Meta { author: caller.name.to_string(), message, ..Meta::default() })
}

/// A write, and what it is a repeat of.
struct Writing {
    library: Arc<Library>,
    deadline: Deadline,
    caller: Caller,
    place: Place,
    said: Meta,
    wanted: Option<HeaderValue>,
    once: Option<Once>,
    /// The caller does not want to be told what is there now.
    is_minimal: bool,
}

/// A write that is asked for, and its body.
struct Asked {
    library: Arc<Library>,
    deadline: Deadline,
    asking: Asking,
    place: Place,
    said: Meta,
    bytes: Bytes,
}

impl Asked {
    async fn of(
        library: Arc<Library>,
        asking: Asking,
        place: Place,
        said: Meta,
        request: Request,
    ) -> Result<Self, Problem> {
        let deadline = library.guard.deadline();
        let bytes = body::whole(request, library.body_bytes_max).await?;
        Ok(Self { library, deadline, asking, place, said, bytes })
    }

    /// Does it where it may block, unless it was done before.
    async fn run(
        self,
        work: impl FnOnce(&Writing, &[u8]) -> Result<Response, Problem> + Send + 'static,
    ) -> Result<Response, Problem> {
        let pool = self.library.guard.writes.clone();
        let run = move || {
            let Self { library, deadline, asking, place, said, bytes } = self;
            let (wanted, once) = (wanted(&asking.headers)?, asking.once(&bytes)?);
            let is_minimal = prefer::is_minimal(&asking.headers);
            let writing = Writing { library, deadline, caller: asking.caller, place, said, wanted, once, is_minimal };
            let _turn = writing.library.turns.take(once.as_ref())?;
            match writing.before()? {
                Some(told) => Ok(told),
                None => work(&writing, &bytes),
            }
        };
        pool.run(run).await
    }
}

impl Writing {
    /// What was told when it was done before, if it was.
    fn before(&self) -> Result<Option<Response>, Problem> {
        let Some((Kept { status, .. }, done)) = self.library.before(self.once.as_ref())? else { return Ok(None) };
        let revision = match self.library.database.document(&self.place.document()) {
            Ok(document) if status != StatusCode::NO_CONTENT => done.revision_of(&document),
            Ok(_) | Err(DocsError::NoDocument { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Some(again(revision.map_or_else(|| status.into_response(), |revision| self.told(status, &revision)))))
    }

    /// What its commit says.
    fn said(&self, status: StatusCode) -> Meta {
        let field = self.carried(status).map(|once| once.field());
        Meta { fields: field.into_iter().collect(), ..self.said.clone() }
    }

    fn carried(&self, status: StatusCode) -> Option<assent_docs::Once> {
        self.once.map(|once| self.library.carried(&once, status, ""))
    }

    /// The writer's seat of the document.
    fn seat(&self) -> Result<Edit, Problem> {
        self.place.edit(&self.library.database, &self.deadline)
    }

    /// The same where it goes, whether it can be read or not.
    fn seat_to_drop(&self) -> Result<Edit, Problem> {
        match self.seat() {
            Err(problem) if problem.kind == Class::Corrupt.name() => {
                Ok(to_drop(&self.library.database, &self.place.document())?)
            }
            seat => seat,
        }
    }

    /// A change of a document that is there.
    fn change(&self, mut edit: Edit, change: Change, bytes: &[u8]) -> Result<Response, Problem> {
        judge(&edit, change.node(&edit), self.wanted.as_ref())?;
        change.make(&mut edit, bytes)?;
        let status = if matches!(change, Change::Remove(_)) { StatusCode::NO_CONTENT } else { StatusCode::OK };
        // The edit has at hand what the revision would have to be searched for.
        let top = top(&edit)?;
        let revision = edit.commit(&self.said(status))?;
        Ok(if status == StatusCode::NO_CONTENT { status.into_response() } else { self.shown(status, top, &revision) })
    }

    /// A document in the place of one that is there, which goes with the commit of what comes, or stays.
    fn overwrite(&self, edit: Edit, bytes: &[u8]) -> Result<Response, Problem> {
        judge(&edit, edit.value(), self.wanted.as_ref())?;
        let mut anew = edit.anew(Versioning::default())?;
        anew.insert_json(At::Last(NodeKey::DOCUMENT), None, bytes)?;
        let revision = anew.commit(&self.said(StatusCode::CREATED))?;
        Ok(self.told(StatusCode::CREATED, &revision))
    }

    /// Makes the document, and its database too if that is not there. Nothing: somebody else has made it, or dropped it, meanwhile.
    fn make(&self, bytes: &[u8]) -> Result<Option<Response>, Problem> {
        let revision = make(&self.library.database, &self.place, bytes, &self.said(StatusCode::CREATED))?;
        Ok(revision.map(|revision| self.told(StatusCode::CREATED, &revision)))
    }

    /// The revision that was committed, if it is not too long and the caller may see it. That it is committed is told even if it cannot
    /// be read.
    fn told(&self, status: StatusCode, revision: &Revision) -> Response {
        top(revision).map_or_else(|_| status.into_response(), |top| self.shown(status, top, revision))
    }

    /// The same where it is known what its value is.
    fn shown(&self, status: StatusCode, top: Option<Top>, revision: &Revision) -> Response {
        let is_shown = !self.is_minimal && self.caller.may(Role::View, Some(&self.place.database)).is_ok();
        echoed(status, top, revision, is_shown)
    }
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
    let asking = Asking::of(&request, &caller);
    let asked = Asked::of(library, asking, place, said, request).await?;
    asked.run(move |writing, bytes| put_there(writing, overwrite, bytes)).await
}

fn put_there(writing: &Writing, overwrite: bool, bytes: &[u8]) -> Result<Response, Problem> {
    let Writing { library, deadline, caller, place, wanted, .. } = writing;
    let may = |role| caller.may(role, Some(&place.database));
    // Each further turn is for what somebody else has committed while this one looked, or waited for the seat.
    loop {
        // Nothing is written yet, and who asked was told by then.
        deadline.check()?;
        let document = match place.find(&library.database) {
            Ok(document) => document,
            // It goes, whatever it says.
            Err(problem) if overwrite && problem.kind == Class::Corrupt.name() => {
                [Role::Modify, Role::Delete].into_iter().try_for_each(may)?;
                match writing.seat_to_drop() {
                    Err(problem) if problem.status == StatusCode::NOT_FOUND => continue,
                    edit => return writing.overwrite(edit?, bytes),
                }
            }
            Err(problem) if problem.status != StatusCode::NOT_FOUND => return Err(problem),
            Err(_) => {
                may(Role::Create)?;
                if wanted.is_some() {
                    return Err(Problem::precondition("there is no such resource, and so no tag"));
                }
                match writing.make(bytes)? {
                    Some(told) => return Ok(told),
                    None => continue,
                }
            }
        };
        may(Role::Modify)?;
        if overwrite {
            // Its history goes, and that takes more than a change of it.
            may(Role::Delete)?;
        }
        match document.edit() {
            Err(DocsError::NoDocument { .. }) => {}
            Ok(edit) if overwrite => return writing.overwrite(edit, bytes),
            edit => return writing.change(edit?, Change::Put, bytes),
        }
    }
}

/// Nothing: somebody else has made it, or dropped it, meanwhile.
fn make(library: &Database, place: &Place, bytes: &[u8], said: &Meta) -> Result<Option<Revision>, Problem> {
    let name = place.document();
    refuse_taken(&name)?;
    refuse_new(library, place)?;
    let document = match library.create(&name, Versioning::default()) {
        // Somebody else is making it, or left it without a revision.
        Err(DocsError::Exists { .. }) => library.document(&name),
        created => created,
    };
    let edit = match document.and_then(|document| document.edit()) {
        Err(DocsError::NoDocument { .. }) => return Ok(None),
        Ok(edit) if edit.value().is_some() => return Ok(None),
        edit => edit?,
    };
    let revision = first(library, place, edit, bytes, said);
    // Its seat is free again: where this was refused and no database is there, nor is the document.
    homed(library, place);
    revision.map(Some)
}

/// What fails leaves a document without a revision, which nobody finds: the next one to make it goes on with it, as who waits here does.
fn first(library: &Database, place: &Place, mut edit: Edit, bytes: &[u8], said: &Meta) -> Result<Revision, Problem> {
    edit.insert_json(At::Last(NodeKey::DOCUMENT), None, bytes)?;
    // Only now: what is refused leaves no database behind.
    made(library, place)?;
    Ok(edit.commit(said)?)
}

/// What is told of a document's value beside what it says.
struct Top {
    hash: u64,
    descendants: u64,
}

/// None: the document is empty.
fn top<L: Look>(look: &L) -> Result<Option<Top>, DocsError> {
    let Some(value) = look.value() else { return Ok(None) };
    let item = look.item(value)?;
    Ok(Some(Top { hash: look.hash(&item)?, descendants: item.node.descendants }))
}

fn echoed(status: StatusCode, top: Option<Top>, revision: &Revision, is_shown: bool) -> Response {
    let is_few = top.as_ref().is_some_and(|top| top.descendants <= ECHOED_NODES_MAX);
    // It is committed, whether it can be told or not.
    let whole = if is_shown && is_few { text(revision).ok() } else { None };
    let mut response = whole.map_or_else(|| status.into_response(), |whole| (status, whole).into_response());
    response.extensions_mut().insert(Done);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, JSON);
    if let Some(Top { hash, .. }) = top {
        headers.insert(header::ETAG, tag(hash));
    }
    response
}

/// All that is there, unless it is too long.
fn text(revision: &Revision) -> Result<Vec<u8>, Problem> {
    let mut whole = Whole::of(ECHOED_BYTES_MAX);
    let written = Form::default().write(revision, &mut whole);
    whole.taken(written)
}

fn node(params: &mut Params<'_>) -> Result<Option<NodeKey>, Problem> {
    let key = params.parsed::<u64>(&["nodeId", "node-id"], "the key of a node")?;
    Ok(key.filter(|key| *key != 0).map(NodeKey))
}

pub(super) async fn insert(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let place = Place::open_to(request.uri(), &caller, Role::Modify)?;
    refuse_xml(request.headers())?;
    let mut params = Params::of(request.uri())?;
    let said = meta(&mut params, &caller)?;
    let change = Change::Insert(node(&mut params)?, Insert::of(&mut params)?);
    params.end()?;
    let asking = Asking::of(&request, &caller);
    let asked = Asked::of(library, asking, place, said, request).await?;
    asked.run(move |writing, bytes| writing.change(writing.seat()?, change, bytes)).await
}

/// Changes a document as a patch says, all of it or nothing.
pub(super) async fn patch(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let place = Place::open_to(request.uri(), &caller, Role::Modify)?;
    let told_type = request.headers().get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let change = match told_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/json-patch+json" => Change::Patch,
        "application/merge-patch+json" => Change::Merge,
        other => {
            let detail = format!("a patch of type {other:?}; write {PATCHES}");
            return Err(Problem::invalid(detail).status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
    };
    let mut params = Params::of(request.uri())?;
    let said = meta(&mut params, &caller)?;
    params.end()?;
    let asking = Asking::of(&request, &caller);
    let asked = Asked::of(library, asking, place, said, request).await?;
    asked.run(move |writing, bytes| writing.change(writing.seat()?, change, bytes)).await
}

pub(super) async fn delete(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let place = Place::open_to(request.uri(), &caller, Role::Delete)?;
    let mut params = Params::of(request.uri())?;
    let said = meta(&mut params, &caller)?;
    let node = node(&mut params)?;
    params.end()?;
    let asking = Asking::of(&request, &caller);
    let deadline = library.guard.deadline();
    let asked = Asked { library, deadline, asking, place, said, bytes: Bytes::new() };
    asked
        .run(move |writing, _| match node {
            Some(node) => writing.change(writing.seat()?, Change::Remove(node), b""),
            None => {
                let edit = writing.seat_to_drop()?;
                judge(&edit, edit.value(), writing.wanted.as_ref())?;
                match writing.carried(StatusCode::NO_CONTENT) {
                    Some(once) => edit.drop_once(once)?,
                    None => edit.drop_document()?,
                }
                Ok(StatusCode::NO_CONTENT.into_response())
            }
        })
        .await
}
