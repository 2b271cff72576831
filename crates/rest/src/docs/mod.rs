//! Documents over HTTP, at the root of a listener of their own: the paths, parameters and shapes that SirixDB's published
//! clients use, for JSON.
//!
//! Walk: [`routes`] · `names` what a path names · `databases` lists, makes and drops · `resource` makes, changes and drops
//! documents and nodes, `change` is one change · `upload` makes several at once · `tags` · `watch` tells of each revision as it comes · `read` one revision or several, whole or in part · `past` history, paths and differences.
//! A database is a document named `database/`, without a revision; its documents are named `database/resource`.
//! Deliberately absent: XML.

pub(crate) mod change;
mod databases;
mod members;
pub(crate) mod names;
mod past;
mod query;
mod read;
mod resource;
mod tags;
mod upload;
mod watch;

pub(crate) use databases::homed;
pub(crate) use members::members;
pub(crate) use names::Place;
pub(crate) use read::{When, at_once};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use assent_docs::{Database, DocsError, Done, Meta};
use assent_door::{Health, Metrics};
use assent_kind::Kind;
use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, put};
use tokio::sync::watch as flag;

use self::upload::Left;
use crate::guard::Guard;
use crate::health;
use crate::identity::Caller;
use crate::once::{Asking, Kept, Once, Turns, again, told};
use crate::places::Places;
use crate::problem::Problem;
use crate::rest::Settings;
use crate::service::Upkeep;

/// What the documents' listener serves.
#[derive(Debug)]
pub struct Documents {
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// How it stands.
    pub health: Arc<Health>,
    /// The documents.
    pub database: Arc<Database>,
}

/// What the handlers share.
pub(crate) struct Library {
    guard: Arc<Guard>,
    database: Arc<Database>,
    body_bytes_max: usize,
    /// For how long requests with a key are known.
    keep: Duration,
    turns: Turns,
    /// Streams that may be open.
    watchers: Places,
    closing: flag::Receiver<bool>,
    left: Arc<Left>,
}

impl Library {
    /// A request as its commit carries it.
    fn carried(&self, once: &Once, status: StatusCode, body: &str) -> assent_docs::Once {
        let keep = u64::try_from(self.keep.as_millis()).unwrap_or(u64::MAX);
        let until_ms = self.guard.clock.wall_ms().saturating_add(keep);
        assent_docs::Once { name: once.name, until_ms, note: once.kept(status, body).text() }
    }

    /// What was told when it was done before, if it was.
    fn before(&self, once: Option<&Once>) -> Result<Option<(Kept, Done)>, Problem> {
        let Some(once) = once else { return Ok(None) };
        let Some(done) = self.database.done(&once.name)? else { return Ok(None) };
        let kept = Kept::of_text(&done.once.note);
        let kept = kept.ok_or_else(|| Problem::of(Kind::Corrupt, "what was kept of this request cannot be read"))?;
        Ok(Some((kept.judge(once)?, done)))
    }

    /// Does what has no commit of its own to be named in: the database's own document carries that it was done. Told is a status, and
    /// JSON or nothing. What ends between the two is done again by who asks again.
    async fn once(
        self: Arc<Self>,
        asking: Asking,
        place: Place,
        work: impl FnOnce(&Database, &Place, Option<assent_docs::Once>) -> Result<(StatusCode, String), Problem>
        + Send
        + 'static,
    ) -> Result<Response, Problem> {
        let library = Arc::clone(&self);
        let run = move || {
            let once = asking.once(b"")?;
            let _turn = library.turns.take(once.as_ref())?;
            if let Some((kept, _)) = library.before(once.as_ref())? {
                return Ok(again(told(kept.status, &kept.body)));
            }
            let gone = once.map(|once| library.carried(&once, StatusCode::NO_CONTENT, ""));
            let (status, body) = work(&library.database, &place, gone)?;
            if let Some(once) = &once {
                library.note(&place, &asking.caller, &library.carried(once, status, &body));
            }
            Ok(told(status, &body))
        };
        self.guard.writes.run(run).await
    }

    /// Notes what is done in the database's own document; one that dropped the database has said so itself. It is done: what fails here
    /// is told to nobody but the log.
    fn note(&self, place: &Place, caller: &Caller, once: &assent_docs::Once) {
        let said = Meta { author: caller.name.to_string(), fields: vec![once.field()], ..Meta::default() };
        match self.database.document(&place.marker()).and_then(|marker| marker.edit()?.commit(&said)) {
            Ok(_) | Err(DocsError::NoDocument { .. }) => {}
            Err(error) => {
                tracing::warn!(%error, "a request is done, and its key could not be noted: asked again it is done again")
            }
        }
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").finish_non_exhaustive()
    }
}

impl From<DocsError> for Problem {
    fn from(error: DocsError) -> Self {
        let detail = error.to_string();
        match &error {
            DocsError::Size { .. } => Self::invalid(detail).status(StatusCode::PAYLOAD_TOO_LARGE),
            _ => Self::of(error.kind(), detail),
        }
    }
}

/// What is understood and not served.
fn not_here(what: &str) -> Problem {
    Problem::of(Kind::Invalid, format!("{what} is not served here")).status(StatusCode::NOT_IMPLEMENTED)
}

/// How often the database is given its turn.
const TICK: Duration = Duration::from_millis(100);

/// The routes, and the work beside them.
pub(crate) fn routes(
    documents: Documents,
    guard: Arc<Guard>,
    settings: &Settings,
    closing: flag::Receiver<bool>,
) -> (Router, Option<Upkeep>, Arc<Library>) {
    let Documents { metrics, health, database } = documents;
    let body_bytes_max = usize::try_from(settings.body_bytes_max).unwrap_or(usize::MAX);
    let library_guard = Arc::clone(&guard);
    // Where nobody says who he is, all are one caller.
    let own_max = if guard.identity.is_open() { watch::WATCHERS_MAX } else { watch::WATCHERS_OF_ONE_MAX };
    let left = Arc::new(Left::behind(&database));
    let library = Arc::new(Library {
        left,
        guard,
        database,
        body_bytes_max,
        keep: Duration::from_secs(settings.idempotency_seconds.into()),
        turns: Turns::default(),
        watchers: Places::new(watch::WATCHERS_MAX, own_max),
        closing,
    });
    let router = Router::new()
        .route("/", get(databases::list).post(databases::query).delete(databases::drop_all))
        .route("/{database}", get(databases::show).put(databases::create).post(upload::upload).delete(databases::drop))
        .route(
            "/{database}/{resource}",
            get(read::read)
                .head(read::head)
                .put(resource::put)
                .post(resource::insert)
                .patch(resource::patch)
                .delete(resource::delete),
        )
        .route("/{database}/{resource}/history", get(past::history))
        .route("/{database}/{resource}/diff", get(past::diff))
        .route("/{database}/{resource}/pathSummary", get(past::paths))
        .route("/{database}/{resource}/tags", get(tags::list))
        .route("/{database}/{resource}/tags/{tag}", put(tags::put).delete(tags::delete))
        .route("/{database}/{resource}/watch", get(watch::watch))
        .with_state(Arc::clone(&library));
    let kept = Arc::clone(&library);
    let upkeep: Upkeep = Box::pin(async move {
        loop {
            tokio::time::sleep(TICK).await;
            // No more than that: what the handlers share must not end on the thread that does this.
            let (database, left) = (Arc::clone(&library.database), Arc::clone(&library.left));
            let tick = move || {
                database.tick();
                left.end(&database);
                Ok(())
            };
            _ = library.guard.upkeep.run(tick).await;
        }
    });
    (router.merge(health::open(&library_guard, &metrics, &health)), Some(upkeep), kept)
}
