//! Transactions over HTTP: what belongs together is named, written, and committed as one.
//!
//! Walk: [`begin`], with writes and the commit in one request if it says so · [`write`] a list of writes of keys and documents, or
//! `PUT /v1/keys/…?tx=` one · [`commit`] or [`roll_back`], which may be asked
//! again and tell the same · [`list`] and [`show`] what is open here and what is in doubt anywhere · [`force`] and [`forget`]
//! are a person's word · [`history`] the log, page by page.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use assent_coordinator::history::{self, Filter, State as PastState};
use assent_coordinator::{Known, Operator};
use assent_docs::MESSAGE_BYTES_MAX;
use assent_door::Role;
use assent_ids::{ResourceId, TxId};
use assent_kind::Kind;
use assent_xa::Outcome;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Json, Response};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::House;
use super::branches::Work;
use super::desk::{Ended, Patience, Seen, View};
use super::views;
use super::write::{Laid, Write};
use crate::body;
use crate::identity::Caller;
use crate::once::{Asking, Once, again};
use crate::params::Params;
use crate::problem::Problem;

/// Seconds that a transaction stays open unless it is told otherwise, and at most.
const SECONDS: u64 = 30;
const SECONDS_MAX: u64 = 3_600;
/// Writes of one request.
const WRITES_MAX: usize = 10_000;
/// Transactions of one page.
const PAGE_MAX: usize = 1_000;
/// So often it is looked whether whoever is in a transaction has left it, before he is taken for one who waits.
const MOMENTS: u32 = 5;
const MOMENT: Duration = Duration::from_millis(1);

/// An open transaction as its caller sees it.
pub(super) fn view_of_open(view: &View) -> Value {
    let left = u64::try_from(view.left.as_millis()).unwrap_or(u64::MAX);
    json!({"tx": view.tx.to_string(), "state": "open", "expires_in_ms": left, "writes": view.writes})
}

/// The transaction in the path.
fn named(uri: &Uri) -> Result<TxId, Problem> {
    let rest = uri.path().strip_prefix("/v1/transactions/").unwrap_or_default();
    let text = rest.split('/').next().unwrap_or_default();
    let wrong = |error: String| Problem::invalid(format!("transaction {text:?}: {error}"));
    text.parse().map_err(wrong)
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Begin {
    seconds: Option<u64>,
    /// What its commits of documents say.
    message: String,
    #[serde(deserialize_with = "bounded")]
    writes: Vec<Write>,
    /// At once, with these writes.
    commit: bool,
}

pub(super) async fn begin(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    caller.may_somewhere(Role::Modify)?;
    Params::of(request.uri())?.end()?;
    let asking = Asking::of(&request, &caller);
    let bytes = body::whole(request, house.body_bytes_max).await?;
    let take = move |bytes: &[u8]| {
        let begin = if bytes.is_empty() { Begin::default() } else { body::json(bytes)? };
        Ok((asking.once(bytes)?, begin))
    };
    let (once, begin) = body::taken(bytes, &house.guard.pool, take).await?;
    let Begin { seconds, message, writes, commit } = begin;
    let seconds = seconds.unwrap_or(SECONDS);
    if !(1..=SECONDS_MAX).contains(&seconds) {
        return Err(Problem::invalid(format!("seconds = {seconds}; it is 1 to {SECONDS_MAX}")));
    }
    // It is kept as long as the transaction is open.
    if u64::try_from(message.len()).is_ok_and(|bytes| bytes > MESSAGE_BYTES_MAX) {
        let detail = format!("a message of {} bytes; it has at most {MESSAGE_BYTES_MAX}", message.len());
        return Err(Problem::invalid(detail));
    }
    refuse(&writes, &caller)?;
    let work = Arc::clone(&house);
    let begin = move || {
        let _turn = work.records.turns.take(once.as_ref())?;
        if let Some(once) = &once
            && let Some(told) = begun_before(&work, &caller, once)?
        {
            return Ok(told);
        }
        let laid = laid(&work, writes)?;
        // Where nobody says who he is, all are one caller.
        let is_known = !work.guard.identity.is_open();
        let mut view = work.desk.begin(&caller, Duration::from_secs(seconds), message, is_known)?;
        let tx = view.tx;
        if !laid.is_empty() {
            match work.desk.within(tx, &caller, None, |branches| all(&laid, branches)) {
                Ok((_, now)) => view = now,
                // Nobody has heard of it yet.
                Err(problem) => return work.desk.roll_back(tx, &caller, Patience::Waits).and(Err(problem)),
            }
        }
        if commit {
            let ended = work.desk.commit(tx, &caller, once.as_ref(), Patience::Waits)?;
            return committed(tx, ended.ok_or_else(at_work)?);
        }
        once.inspect(|once| work.desk.has_begun(*once, tx));
        Ok(begun(&view))
    };
    house.guard.writes.run(begin).await
}

fn begun(view: &View) -> Response {
    let mut response = (StatusCode::CREATED, Json(view_of_open(view))).into_response();
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/transactions/{}", view.tx)) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

/// The answer of a request that began a transaction before: which one, and how it ended if it has.
fn begun_before(house: &House, caller: &Caller, once: &Once) -> Result<Option<Response>, Problem> {
    if let Some((kept, _)) = house.records.find(once)? {
        let wrong = |_| Problem::of(Kind::Corrupt, "what was kept of this request names no transaction");
        let tx = kept.judge(once)?.body.parse::<TxId>().map_err(wrong)?;
        return told(tx, Ended::Committed(Vec::new())).map(again).map(Some);
    }
    let Some(tx) = house.desk.begun(once)? else { return Ok(None) };
    if let Seen::Open(view) = house.desk.view(tx, caller, Patience::Waits) {
        return Ok(Some(again(begun(&view))));
    }
    // It has ended since: what comes next under its name is told how.
    Ok(Some(again(begun(&View { tx, left: Duration::ZERO, writes: 0 }))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Writes {
    #[serde(deserialize_with = "bounded")]
    writes: Vec<Write>,
}

/// Counted as they are taken apart: empty ones are three bytes each there, and a hundred times that here.
fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Write>, D::Error> {
    struct Bounded;

    impl<'de> Visitor<'de> for Bounded {
        type Value = Vec<Write>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of writes")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut writes = Vec::new();
            while let Some(write) = seq.next_element()? {
                if writes.len() == WRITES_MAX {
                    return Err(Error::custom(format!(
                        "more than {WRITES_MAX} writes; one request has at most that many"
                    )));
                }
                writes.push(write);
            }
            Ok(writes)
        }
    }

    deserializer.deserialize_seq(Bounded)
}

fn refuse(writes: &[Write], caller: &Caller) -> Result<(), Problem> {
    writes.iter().try_for_each(|write| write.refuse(caller))
}

/// All are read before the first is done: a body that is wrong in its last line changes nothing.
fn laid(house: &House, writes: Vec<Write>) -> Result<Vec<Laid>, Problem> {
    let mut laid = writes.into_iter().map(|write| write.lay(house.kv.as_deref())).collect::<Result<Vec<_>, _>>()?;
    // Writers' seats are taken in one order by all, so that no two lists wait for each other; writes of one document stay in theirs.
    laid.sort_by_cached_key(Laid::document);
    Ok(laid)
}

fn all(laid: &[Laid], branches: &mut Work<'_>) -> Result<(), Problem> {
    laid.iter().try_for_each(|one| one.done(branches))
}

pub(super) async fn write(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    caller.may_somewhere(Role::Modify)?;
    let tx = named(request.uri())?;
    Params::of(request.uri())?.end()?;
    let asking = Asking::of(&request, &caller);
    let bytes = body::whole(request, house.body_bytes_max).await?;
    let take = move |bytes: &[u8]| Ok((asking.once(bytes)?, body::json(bytes)?));
    let (once, Writes { writes }) = body::taken(bytes, &house.guard.pool, take).await?;
    refuse(&writes, &caller)?;
    let work = Arc::clone(&house);
    let write = move || {
        let laid = laid(&work, writes)?;
        let (done, view) = work.desk.within(tx, &caller, once.as_ref(), |branches| all(&laid, branches))?;
        Ok(accepted(done.is_none(), &view))
    };
    house.guard.writes.run(write).await
}

/// It will be done with the transaction.
pub(super) fn accepted(is_again: bool, view: &View) -> Response {
    let response = (StatusCode::ACCEPTED, Json(view_of_open(view))).into_response();
    if is_again { again(response) } else { response }
}

pub(super) async fn commit(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    caller.may_somewhere(Role::Modify)?;
    let tx = named(&uri)?;
    Params::of(&uri)?.end()?;
    let once = Asking { caller: caller.clone(), method: Method::POST, uri, headers }.once(b"")?;
    let work = Arc::clone(&house);
    let commit = move |patience| {
        let _turn = work.records.turns.take(once.as_ref())?;
        if let Some(once) = &once
            && let Some((kept, _)) = work.records.find(once)?
        {
            // The address names the transaction: it is this one.
            kept.judge(once)?;
            return told(tx, Ended::Committed(Vec::new())).map(again).map(Some);
        }
        let ended = work.desk.commit(tx, &caller, once.as_ref(), patience)?;
        ended.map(|ended| committed(tx, ended)).transpose()
    };
    beside_writers(&house, commit).await
}

/// Ends a transaction, or looks at it, among those who wait for no seat: whoever has one gives it back, however many wait for it. Where
/// somebody works in that transaction there is nothing yet: he waits for a seat, maybe, and this waits for him where such wait.
async fn beside_writers<T: Send + 'static>(
    house: &House,
    work: impl Fn(Patience) -> Result<Option<T>, Problem> + Clone + Send + 'static,
) -> Result<T, Problem> {
    // Whoever lists or sweeps is in it for a moment only.
    for _ in 0..MOMENTS {
        let at_once = work.clone();
        if let Some(done) = house.guard.ends.run(move || at_once(Patience::None)).await? {
            return Ok(done);
        }
        tokio::time::sleep(MOMENT).await;
    }
    house.guard.writes.run(move || work(Patience::Waits)).await?.ok_or_else(at_work)
}

fn at_work() -> Problem {
    Problem::of(Kind::Busy, "somebody works in this transaction; ask again")
}

fn committed(tx: TxId, ended: Ended) -> Result<Response, Problem> {
    match ended {
        Ended::RolledBack(why) => Err(Problem::of(Kind::RolledBack, why)),
        ended => told(tx, ended),
    }
}

pub(super) async fn roll_back(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    caller.may_somewhere(Role::Modify)?;
    let tx = named(&uri)?;
    Params::of(&uri)?.end()?;
    let work = Arc::clone(&house);
    let ended = beside_writers(&house, move |patience| work.desk.roll_back(tx, &caller, patience)).await?;
    match ended {
        Ended::Committed(_) => Err(Problem::of(Kind::Conflict, format!("transaction {tx} had been committed before"))),
        ended => told(tx, ended),
    }
}

fn told(tx: TxId, ended: Ended) -> Result<Response, Problem> {
    let tx = tx.to_string();
    Ok(match ended {
        Ended::Committed(unfinished) => Json(json!({"tx": tx, "state": "committed", "unfinished": unfinished})),
        Ended::RolledBack(why) => Json(json!({"tx": tx, "state": "rolled_back", "why": why})),
        Ended::Otherwise(kind, why) => return Err(Problem::of(kind, why)),
    }
    .into_response())
}

pub(super) async fn list(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    caller.may(Role::View, None)?;
    let mut params = Params::of(&uri)?;
    let after = params.parsed::<TxId>(&["after"], "a transaction")?;
    let limit = params.parsed::<usize>(&["limit"], "a number from 1")?.unwrap_or(PAGE_MAX);
    params.end()?;
    let work = Arc::clone(&house);
    let list = move || {
        let coordinator = work.coordinator()?;
        let (page, more) = coordinator.page(after, limit.clamp(1, PAGE_MAX));
        let gauges = coordinator.gauges();
        let open: Vec<Value> = work.desk.views(&caller).iter().map(view_of_open).collect();
        let next = page.last().filter(|_| more).map(|view| view.tx.to_string());
        let list: Vec<Value> = page.iter().map(|view| views::transaction(&work, view)).collect();
        let rivals = coordinator.rivals().len();
        let answer = json!({
            "open": open, "transactions": list, "next": next,
            "held": gauges.held, "heuristic": gauges.heuristic, "rivals": rivals,
        });
        Ok(Json(answer).into_response())
    };
    house.guard.pool.run(list).await
}

pub(super) async fn show(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    // One's own is told to whoever may begin one.
    caller.may_somewhere(Role::Modify).or_else(|_| caller.may(Role::View, None))?;
    let tx = named(&uri)?;
    Params::of(&uri)?.end()?;
    let work = Arc::clone(&house);
    let show = move |patience| match work.desk.view(tx, &caller, patience) {
        Seen::AtWork => Ok(None),
        Seen::Open(view) => Ok(Some(Json(view_of_open(&view)).into_response())),
        Seen::NotOpen => not_open(&work, tx, &caller).map(Some),
    };
    beside_writers(&house, show).await
}

/// What has become of one that is not open.
fn not_open(house: &House, tx: TxId, caller: &Caller) -> Result<Response, Problem> {
    if caller.may(Role::View, None).is_ok()
        && let Some(view) = house.coordinator.as_ref().and_then(|coordinator| coordinator.show(tx))
    {
        return Ok(Json(views::transaction(house, &view)).into_response());
    }
    if let Some(ended) = house.desk.ended(tx, caller)? {
        return told(tx, ended);
    }
    let unknown = || {
        Problem::not_found(format!(
            "transaction {tx} is neither in doubt nor unfinished here: it is over and forgotten, or never was; \
                 /v1/history?tx={tx} tells what became of it"
        ))
    };
    if caller.may(Role::View, None).is_err() {
        return Err(unknown());
    }
    let state = match house.coordinator()?.ask(tx) {
        Known::Committed => "committed",
        Known::RolledBack => "rolled_back",
        Known::Undecided => "undecided",
        Known::InDoubt => "in_doubt",
        Known::Unknown => return Err(unknown()),
    };
    Ok(Json(json!({"tx": tx.to_string(), "state": state})).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Force {
    outcome: String,
    reason: String,
}

pub(super) async fn force(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    caller.may(Role::Admin, None)?;
    let tx = named(request.uri())?;
    Params::of(request.uri())?.end()?;
    let asking = Asking::of(&request, &caller);
    let bytes = body::whole(request, house.body_bytes_max).await?;
    let Force { outcome, reason } = body::json(&bytes)?;
    let wanted = match outcome.as_str() {
        "commit" => Outcome::Committed,
        "rollback" => Outcome::RolledBack,
        _ => return Err(Problem::invalid(format!("outcome = {outcome:?}; it is \"commit\" or \"rollback\""))),
    };
    let operator = Operator { who: caller.name.to_string(), reason };
    let work = Arc::clone(&house);
    let force = move || {
        work.records.once(asking.once(&bytes)?.as_ref(), || {
            let decided = work.coordinator()?.force(tx, wanted, &operator)?;
            let (Operator { who, reason }, wish, is) = (&operator, views::outcome(wanted), views::outcome(decided));
            tracing::warn!("an operator, {who:?} over HTTP, forces {tx} to be {wish}, because {reason:?}: it is {is}");
            if decided != wanted {
                let detail = format!("{tx} had been decided before: {}; nothing was changed", views::outcome(decided));
                return Err(Problem::of(Kind::Conflict, detail));
            }
            Ok((StatusCode::OK, json!({"tx": tx.to_string(), "outcome": views::outcome(decided)}).to_string()))
        })
    };
    house.guard.writes.run(force).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Forget {
    reason: String,
}

pub(super) async fn forget(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    caller.may(Role::Admin, None)?;
    let tx = named(request.uri())?;
    Params::of(request.uri())?.end()?;
    let asking = Asking::of(&request, &caller);
    let bytes = body::whole(request, house.body_bytes_max).await?;
    let Forget { reason } = body::json(&bytes)?;
    let operator = Operator { who: caller.name.to_string(), reason };
    let work = Arc::clone(&house);
    let forget = move || {
        work.records.once(asking.once(&bytes)?.as_ref(), || {
            work.coordinator()?.forget(tx, &operator)?;
            let Operator { who, reason } = &operator;
            tracing::warn!("an operator, {who:?} over HTTP, forgets the heuristic outcome of {tx}, because {reason:?}");
            Ok((StatusCode::NO_CONTENT, String::new()))
        })
    };
    house.guard.writes.run(forget).await
}

pub(super) async fn history(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    caller.may(Role::View, None)?;
    let mut params = Params::of(&uri)?;
    let time = "milliseconds since 1970";
    let filter = Filter {
        since_ms: params.parsed(&["since_ms"], time)?,
        until_ms: params.parsed(&["until_ms"], time)?,
        state: params.take(&["state"])?.map(|word| past_state(&word)).transpose()?,
        resource: params.take(&["resource"])?.map(|name| ResourceId::of(&name)),
        tx: params.parsed(&["tx"], "a transaction")?,
        after: params.parsed(&["after"], "a transaction")?,
        limit: params.parsed(&["limit"], "a number from 1")?.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX),
    };
    params.end()?;
    let (work, deadline) = (Arc::clone(&house), house.guard.deadline());
    let read = move || {
        work.coordinator()?;
        let log = work.coordinator_log.as_ref();
        let log = log.ok_or_else(|| Problem::not_found("this server's coordinator has no log to read"))?;
        let mut list = Vec::new();
        let (mut last, mut turn) = (None, 0);
        let mut tell = |past: &history::Past| {
            last = Some(past.tx);
            list.push(views::past(&work, past));
            ControlFlow::Continue(())
        };
        let mut go_on = || {
            turn += 1;
            deadline.check_at(turn).is_ok()
        };
        let Some(more) = history::read_while(&**log, &filter, &mut tell, &mut go_on)? else {
            return Err(deadline.over());
        };
        let next = last.filter(|_| more).map(|tx| tx.to_string());
        Ok(Json(json!({"transactions": list, "next": next})).into_response())
    };
    house.guard.pool.run(read).await
}

fn past_state(word: &str) -> Result<PastState, Problem> {
    Ok(match word {
        "committed" => PastState::Committed,
        "rolled_back" => PastState::RolledBack,
        "heuristic" => PastState::Heuristic,
        "in_doubt" => PastState::InDoubt,
        "forced" => PastState::Forced,
        _ => {
            return Err(Problem::invalid(format!(
                "state = {word:?}; it is committed, rolled_back, heuristic, in_doubt or forced"
            )));
        }
    })
}
