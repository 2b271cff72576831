//! A document watched: an event for each revision, from the next one on or from the last one that was seen.
//!
//! ```text
//!   id: REVISION.PLACE · event: revision · data: {"revision","revisionTimestamp","author","commitMessage"}
//!   event: truncated    revisions that were seen are gone; it goes on from the newest
//!   event: gone         the document was dropped, and the stream ends
//!   : alive             now and then
//! ```
//! Walk: [`watch`] answers and leaves a [`Watcher`] behind · it looks, writes, and waits: for whoever reads, never beyond one piece ·
//! the stream ends after a while, with its caller's token in mind: who comes again says `Last-Event-ID`.
//! Deliberately absent: queues. A watcher keeps a mark and one piece, so that who reads slowly costs no more than who reads.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use assent_docs::{DocsError, Document, Mark, Since};
use assent_door::Role;
use assent_ids::Lsn;
use assent_kind::Kind;
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use http_body_util::channel::{Channel, Sender};
use serde_json::json;
use tokio::sync::watch as flag;
use tokio::time::Instant;

use super::Library;
use super::names::Place;
use super::read::When;
use crate::identity::Caller;
use crate::moment;
use crate::params::Params;
use crate::places::{self, Full};
use crate::problem::Problem;

/// How often it is looked whether there is another revision: one load from memory.
const LOOK: Duration = Duration::from_millis(50);
/// How often something is said where there is nothing to say.
const ALIVE: Duration = Duration::from_secs(10);
/// How long a stream lives. A token that was withdrawn meanwhile opens none anew.
const LIFE: Duration = Duration::from_secs(900);
/// Revisions of one piece, and of those that are looked up at a time.
const PIECE: usize = 100;
const FEW: usize = 10;
/// A piece ends behind the revision with which it is that long.
const PIECE_BYTES: usize = 256 << 10;
/// Streams of one listener.
pub(super) const WATCHERS_MAX: usize = 1_024;
/// Of one caller, where callers are known.
pub(super) const WATCHERS_OF_ONE_MAX: usize = 128;

const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// The mark of an event's id.
fn mark_of(id: &str) -> Option<Mark> {
    let (revision, place) = id.split_once('.')?;
    Some(Mark { revision: revision.parse().ok()?, lsn: Lsn(place.parse().ok()?) })
}

pub(super) async fn watch(
    State(library): State<Arc<Library>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let place = Place::open_to(request.uri(), &caller, Role::View)?;
    let mut params = Params::of(request.uri())?;
    let since = params.take(&["since"])?.map(|text| When::of(&text)).transpose()?;
    let query_id = params.take(&["lastEventId", "last-event-id"])?;
    params.end()?;
    let header_id = request.headers().get(LAST_EVENT).map(|value| value.to_str().unwrap_or("?").to_owned());
    let seen = match header_id.or(query_id).filter(|id| !id.is_empty()) {
        None => None,
        Some(id) => {
            let wrong = || Problem::invalid(format!("Last-Event-ID = {id:?}; it is the id of an event of this stream"));
            Some(mark_of(&id).ok_or_else(wrong)?)
        }
    };
    let slot = library.watchers.take(&caller.name).map_err(|full| {
        let (most, whose) = match full {
            Full::All(most) => (most, ""),
            Full::Own(most) => (most, " of this caller"),
        };
        Problem::of(Kind::Unavailable, format!("{most} streams{whose} are open; end some, or wait"))
    })?;
    let database = Arc::clone(&library.database);
    let find = move || {
        let document = place.find(&database)?;
        let mark = match (seen, since) {
            (Some(mark), _) => mark,
            // All behind that one.
            (None, Some(when)) => when.find(&document)?.mark(),
            (None, None) => document.latest().mark(),
        };
        Ok((document, mark))
    };
    let (document, mark) = library.guard.pool.run(find).await?;
    let (sender, body) = Channel::<Bytes, std::io::Error>::new(1);
    let closing = library.closing.clone();
    let watcher = Watcher { library, document, mark, sender, closing, _slot: slot };
    tokio::spawn(watcher.run());
    let headers = [(header::CONTENT_TYPE, STREAM), (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    Ok((headers, Body::new(body)).into_response())
}

struct Watcher {
    library: Arc<Library>,
    document: Document,
    /// The last revision that was told.
    mark: Mark,
    sender: Sender<Bytes, std::io::Error>,
    /// The listener stops.
    closing: flag::Receiver<bool>,
    _slot: places::Place,
}

/// What is to be written, and whether that is the end.
struct Piece {
    text: String,
    mark: Mark,
    is_last: bool,
}

impl Watcher {
    async fn run(mut self) {
        let (end, mut alive) = (Instant::now() + LIFE, Instant::now() + ALIVE);
        // So that whoever has just come knows that it stands.
        let mut text = ": watching\n\n".to_owned();
        loop {
            if self.sender.send_data(text.into()).await.is_err() {
                return;
            }
            match self.next(end, &mut alive).await {
                None => return,
                Some(Piece { text: last, is_last: true, .. }) => {
                    _ = self.sender.send_data(last.into()).await;
                    return;
                }
                Some(piece) => (self.mark, text) = (piece.mark, piece.text),
            }
        }
    }

    /// Waits until there is something to say; none if the stream is over.
    async fn next(&mut self, end: Instant, alive: &mut Instant) -> Option<Piece> {
        loop {
            if *self.closing.borrow() || Instant::now() >= end {
                return None;
            }
            if self.is_due() {
                let (document, mark) = (self.document.clone(), self.mark);
                let told = self.library.guard.pool.run(move || Ok(piece(&document, mark))).await.ok()?;
                if !told.text.is_empty() {
                    *alive = Instant::now() + ALIVE;
                    return Some(told);
                }
            }
            if Instant::now() >= *alive {
                *alive = Instant::now() + ALIVE;
                return Some(Piece { text: ": alive\n\n".to_owned(), mark: self.mark, is_last: false });
            }
            // A client that has left is found by the next piece, at the latest by that which says that we are alive.
            if let Ok(Err(_)) = tokio::time::timeout(LOOK, self.closing.changed()).await {
                return None;
            }
        }
    }

    /// Whether the newest revision is another one than the last that was told, or the document may be gone.
    fn is_due(&self) -> bool {
        self.document.latest().mark() != self.mark || self.document.is_dropped()
    }
}

fn piece(document: &Document, mark: Mark) -> Piece {
    if document.is_dropped() {
        return Piece { text: "event: gone\ndata: {}\n\n".to_owned(), mark, is_last: true };
    }
    let (mut text, mut mark) = (String::new(), mark);
    for _ in 0..PIECE / FEW {
        let revisions = match document.since(mark, FEW, Duration::ZERO) {
            Ok(Since { revisions, marks, .. }) => revisions.into_iter().zip(marks),
            Err(error) if text.is_empty() => return ended(document, mark, error),
            // What was found is told first.
            Err(_) => break,
        };
        let many = revisions.len();
        for (told, seen) in revisions {
            let data = json!({
                "revision": told.revision, "revisionTimestamp": moment::show(told.time_ms), "author": told.author,
                "commitMessage": told.message,
            });
            // Writing into memory does not fail.
            _ = write!(text, "id: {}.{}\nevent: revision\ndata: {data}\n\n", seen.revision, seen.lsn.0);
            mark = seen;
            if text.len() >= PIECE_BYTES {
                break;
            }
        }
        if many < FEW || text.len() >= PIECE_BYTES {
            break;
        }
    }
    Piece { text, mark, is_last: false }
}

/// What is told where the revisions behind a mark cannot be.
fn ended(document: &Document, mark: Mark, error: DocsError) -> Piece {
    let mut text = String::new();
    match error {
        DocsError::Truncated { newest, .. } => {
            let now = document.latest().mark();
            let data = json!({"revision": newest});
            _ = write!(text, "id: {}.{}\nevent: truncated\ndata: {data}\n\n", now.revision, now.lsn.0);
            Piece { text, mark: now, is_last: false }
        }
        error => {
            let data = json!({"kind": error.kind().name(), "message": error.to_string()});
            Piece { text: format!("event: error\ndata: {data}\n\n"), mark, is_last: true }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_revision_and_its_place() {
        assert_eq!(mark_of("7.4096"), Some(Mark { revision: 7, lsn: Lsn(4096) }));
        for wrong in ["", "7", "7.", ".1", "-1.2", "7.x", "4294967296.1"] {
            assert_eq!(mark_of(wrong), None, "{wrong}");
        }
    }
}
