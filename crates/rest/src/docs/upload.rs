//! Several documents in one request: `multipart/form-data` (RFC 7578), a file each, all of them or none.
//!
//! Walk: [`parts`] takes the body apart · a part's file name, or else its name, is the resource's, without `.json` · they are committed
//! as one branch: one entry, one outcome.
//! Deliberately absent: parts that stream. The body is bounded, and has to be read before anything is made.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use assent_docs::{Database, DocsError, DocsResource, Versioning};
use assent_door::Role;
use assent_ids::Xid;
use assent_kind::Kind;
use assent_world::{Dice as _, RealDice};
use assent_xa::{Reply, Resource as _, Verb};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Json, Response};
use serde_json::json;

use super::Library;
use super::change::Change;
use super::databases::{homed, made, refuse_new};
use super::names::{Place, refuse_taken};
use super::resource::meta;
use crate::body;
use crate::identity::Caller;
use crate::once::{Asking, again};
use crate::params::Params;
use crate::prefer::Done;
use crate::problem::Problem;

/// What the branch of an upload is called by, beside a name that nobody else has.
const FORMAT: i32 = 1;
const NAMED: &[u8] = b"upload";
/// Files of one request.
const FILES_MAX: usize = 1_000;
/// The longest head of a part.
const HEAD_BYTES_MAX: usize = 8 << 10;

pub(super) async fn upload(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let place = Place::open_to(request.uri(), &caller, Role::Create)?;
    let told = request.headers().get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let boundary = boundary(told).ok_or_else(|| {
        Problem::invalid("send multipart/form-data with a boundary, a file for each resource")
            .status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
    })?;
    let mut params = Params::of(request.uri())?;
    let mut said = meta(&mut params, &caller)?;
    // What the original stores differently for these is no matter here.
    params.take(&["hashType", "hash_type", "hash-type"])?;
    params.take(&["useDeweyIDs"])?;
    params.end()?;
    let asking = Asking::of(&request, &caller);
    let bytes = body::whole(request, library.body_bytes_max).await?;
    let work = Arc::clone(&library);
    let upload = move || {
        let once = asking.once(&bytes)?;
        let _turn = work.turns.take(once.as_ref())?;
        let mut files = named(parts(&bytes, &boundary)?, &place.database)?;
        let names: Vec<&str> = files.iter().map(|(place, _)| place.resource.as_str()).collect();
        let mut answer = (StatusCode::CREATED, Json(json!({"resources": names}))).into_response();
        answer.extensions_mut().insert(Done);
        // Writers' seats are taken in one order by all, so that no two uploads wait for each other.
        files.sort_by(|(one, _), (other, _)| one.resource.cmp(&other.resource));
        if work.before(once.as_ref())?.is_some() {
            return Ok(again(answer));
        }
        said.fields.extend(once.map(|once| work.carried(&once, StatusCode::CREATED, "").field()));
        refuse_new(&work.database, &place)?;
        let done = all(DocsResource::new("upload", Arc::clone(&work.database), said), &work, &caller, (&place, &files));
        // Their seats are free again: where this was refused and no database is there, nor is any of them.
        files.iter().for_each(|(place, _)| homed(&work.database, place));
        done.map(|()| answer)
    };
    library.guard.writes.run(upload).await
}

type Files<'a> = Vec<(Place, &'a [u8])>;

/// Makes all of them or none, and their database too if that is not there: a branch of its own, whose name nobody else has.
fn all(
    mut branch: DocsResource,
    library: &Library,
    caller: &Caller,
    (home, files): (&Place, &Files<'_>),
) -> Result<(), Problem> {
    let database = &*library.database;
    let name = [RealDice.roll().to_le_bytes(), RealDice.roll().to_le_bytes()].concat();
    let xid = Xid::new(FORMAT, &name, NAMED).map_err(|error| Problem::of(Kind::Internal, error.to_string()))?;
    let did = |reply: Reply| match reply {
        Reply::Done => Ok(()),
        Reply::RolledBack(native) => Err(Problem::of(Kind::RolledBack, native.message)),
        Reply::Refused(kind, native) => Err(Problem::of(kind, native.message)),
        Reply::Lost(native) => Err(Problem::of(Kind::InDoubt, native.message)),
        other => Err(Problem::of(Kind::Internal, format!("the documents answered {other:?}"))),
    };
    did(branch.call(Verb::Start(xid)))?;
    for (place, json) in files {
        let name = place.document();
        match database.create(&name, Versioning::default()) {
            Ok(_) | Err(DocsError::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let edit = branch.edit(&name)?;
        if assent_docs::Look::value(edit).is_some() {
            caller.may(Role::Modify, Some(&place.database))?;
        } else {
            refuse_taken(&name)?;
        }
        let named = |mut problem: Problem| {
            problem.detail = format!("{:?}: {}", place.resource, problem.detail);
            problem
        };
        Change::Put.make(edit, json).map_err(named)?;
    }
    // Only now: what is refused leaves no database behind.
    made(database, home)?;
    did(branch.call(Verb::End { xid, success: true }))?;
    let reply = branch.call(Verb::CommitOnePhase(xid));
    if matches!(reply, Reply::Lost(_)) {
        // Perhaps it is prepared and has no outcome.
        library.left.list().push(xid);
    }
    did(reply)
}

/// Branches of uploads that have no outcome, though nobody works on them. No coordinator knows their names, and nobody was told that they
/// are committed.
#[derive(Debug)]
pub(super) struct Left(Mutex<Vec<Xid>>);

impl Left {
    /// Those of a process before this one.
    pub(super) fn behind(database: &Database) -> Self {
        let is_ours = |xid: &Xid| xid.format() == FORMAT && xid.bqual() == NAMED;
        Self(Mutex::new(database.in_doubt().into_iter().map(|branch| branch.xid).filter(is_ours).collect()))
    }

    fn list(&self) -> MutexGuard<'_, Vec<Xid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rolls them back; what cannot be now is tried again.
    pub(super) fn end(&self, database: &Database) {
        let all = std::mem::take(&mut *self.list());
        for xid in all {
            let ended = database.rollback_prepared_begin(&xid).and_then(|appended| database.wait(appended));
            match ended {
                Ok(()) => tracing::warn!(%xid, "an upload that had no outcome is rolled back"),
                // It has its outcome, or is on its way to it.
                Err(DocsError::Unknown { .. } | DocsError::State { .. }) => {}
                Err(_) => self.list().push(xid),
            }
        }
    }
}

/// The resources that the parts name.
fn named<'a>(parts: Vec<(String, &'a [u8])>, database: &str) -> Result<Files<'a>, Problem> {
    let mut files: Files<'a> = Vec::new();
    for (name, bytes) in parts {
        let name = name.strip_suffix(".json").unwrap_or(&name);
        let place = Place::of_name(&format!("{database}/{name}"))?;
        if files.iter().any(|(other, _)| other.resource == place.resource) {
            return Err(Problem::invalid(format!("the file {name:?} is there twice")));
        }
        files.push((place, bytes));
    }
    if files.is_empty() {
        return Err(Problem::invalid("no file is in the body"));
    }
    Ok(files)
}

/// The boundary of a content type.
fn boundary(text: &str) -> Option<String> {
    let (kind, rest) = text.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let found = parameter(rest, "boundary")?;
    (1..=70).contains(&found.len()).then_some(found)
}

/// A parameter of a header, quoted or not.
fn parameter(text: &str, name: &str) -> Option<String> {
    let mut rest = text;
    loop {
        let (key, behind) = rest.trim_start_matches([';', ' ', '\t']).split_once('=')?;
        let (value, after) = match behind.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => behind.split_at(behind.find(';').unwrap_or(behind.len())),
        };
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(value.trim().to_owned());
        }
        rest = after;
    }
}

/// The name of each part, and its bytes.
fn parts<'a>(body: &'a [u8], boundary: &str) -> Result<Vec<(String, &'a [u8])>, Problem> {
    let wrong = |what: &str| Problem::invalid(format!("the body is no multipart/form-data: {what}"));
    let line = format!("--{boundary}");
    let first = body.strip_prefix(line.as_bytes());
    let mut rest = match first {
        Some(rest) => rest,
        // What stands before the first boundary is nobody's.
        None => split(body, format!("\r\n{line}").as_bytes()).ok_or_else(|| wrong("its boundary is not there"))?.1,
    };
    let next = format!("\r\n{line}");
    let mut parts = Vec::new();
    loop {
        if rest.starts_with(b"--") {
            return Ok(parts);
        }
        let behind = split(rest, b"\r\n").ok_or_else(|| wrong("a boundary is not a line"))?.1;
        let (head, behind) = split(behind, b"\r\n\r\n").ok_or_else(|| wrong("a part has no head"))?;
        let (bytes, behind) = split(behind, next.as_bytes()).ok_or_else(|| wrong("its last boundary is missing"))?;
        let head = std::str::from_utf8(head).ok().filter(|head| head.len() <= HEAD_BYTES_MAX);
        let name = head.and_then(name_of).ok_or_else(|| wrong("a part has no name"))?;
        if parts.len() == FILES_MAX {
            return Err(wrong(&format!("it has more than {FILES_MAX} files")));
        }
        parts.push((name, bytes));
        rest = behind;
    }
}

/// What a part's head says that it is called.
fn name_of(head: &str) -> Option<String> {
    let (_, text) = head.lines().find_map(|line| {
        line.split_once(':').filter(|(name, _)| name.trim().eq_ignore_ascii_case("content-disposition"))
    })?;
    let (_, parameters) = text.split_once(';')?;
    parameter(parameters, "filename").or_else(|| parameter(parameters, "name"))
}

fn split<'a>(bytes: &'a [u8], at: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let place = bytes.windows(at.len()).position(|window| window == at)?;
    Some((bytes.get(..place)?, bytes.get(place + at.len()..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_falls_apart_into_its_files_and_every_cut_is_refused() {
        let body = "before\r\n--b-1\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.json\"\r\nContent-Type: \
                    application/json\r\n\r\n{\"x\":\r\n1}\r\n--b-1\r\ncontent-disposition: form-data; name=second\r\n\r\n\
                    \r\n--b-1--\r\nafter";
        let found = parts(body.as_bytes(), "b-1").unwrap();
        assert_eq!(found, [("a.json".to_owned(), &b"{\"x\":\r\n1}"[..]), ("second".to_owned(), b"")]);
        assert_eq!(parts(b"--b--", "b").unwrap(), []);
        let end = body.find("--b-1--").unwrap() + 7;
        for cut in 0..end {
            assert!(parts(&body.as_bytes()[..cut], "b-1").is_err(), "{cut}");
        }
        for (text, found) in [
            ("multipart/form-data; boundary=b-1", Some("b-1")),
            ("Multipart/Form-Data; charset=utf-8; Boundary=\"b;1\"", Some("b;1")),
            ("multipart/form-data", None),
            ("multipart/form-data; boundary=", None),
            ("multipart/mixed; boundary=b", None),
            ("application/json", None),
        ] {
            assert_eq!(boundary(text).as_deref(), found, "{text}");
        }
        assert_eq!(parameter("a=\"", "b"), None);
    }
}
