//! Transactions over HTTP: what belongs together is named, written, and committed as one.
//!
//! Walk: [`begin`] · [`write`] a list of writes, or `PUT /v1/keys/…?tx=` one · [`commit`] or [`roll_back`], which may be asked
//! again and tell the same · [`list`] and [`show`] what is open here and what is in doubt anywhere · [`force`] and [`forget`]
//! are a person's word · [`history`] the log, page by page.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use assent_coordinator::history::{self, Filter, State as PastState};
use assent_coordinator::{Known, Operator};
use assent_door::Role;
use assent_ids::{ResourceId, TxId};
use assent_kind::Kind;
use assent_xa::Outcome;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Json, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::House;
use super::desk::{Ended, View};
use super::views;
use super::write::Write;
use crate::body;
use crate::identity::Caller;
use crate::params::Params;
use crate::problem::Problem;

/// Seconds that a transaction stays open unless it is told otherwise, and at most.
const SECONDS: u64 = 30;
const SECONDS_MAX: u64 = 3_600;
/// Writes of one request.
const WRITES_MAX: usize = 10_000;
/// Transactions of one page.
const PAGE_MAX: usize = 1_000;

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
}

pub(super) async fn begin(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    caller.may_somewhere(Role::Modify)?;
    Params::of(request.uri())?.end()?;
    let bytes = body::whole(request, house.body_bytes_max).await?;
    let Begin { seconds } = if bytes.is_empty() { Begin::default() } else { body::json(&bytes)? };
    let seconds = seconds.unwrap_or(SECONDS);
    if !(1..=SECONDS_MAX).contains(&seconds) {
        return Err(Problem::invalid(format!("seconds = {seconds}; it is 1 to {SECONDS_MAX}")));
    }
    let work = Arc::clone(&house);
    let begin = move || {
        // Where nobody says who he is, all are one caller.
        if !work.guard.identity.is_open() {
            work.desk.room_for(&caller)?;
        }
        work.desk.begin(&caller, Duration::from_secs(seconds))
    };
    let view = house.guard.pool.run(begin).await?;
    let mut response = (StatusCode::CREATED, Json(view_of_open(&view))).into_response();
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/transactions/{}", view.tx)) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Writes {
    writes: Vec<Write>,
}

pub(super) async fn write(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    caller.may_somewhere(Role::Modify)?;
    let tx = named(request.uri())?;
    Params::of(request.uri())?.end()?;
    let bytes = body::whole(request, house.body_bytes_max).await?;
    let Writes { writes } = body::json(&bytes)?;
    if writes.len() > WRITES_MAX {
        return Err(Problem::invalid(format!("{} writes; one request has at most {WRITES_MAX}", writes.len())));
    }
    for write in &writes {
        let role = if write.deletes() { Role::Delete } else { Role::Modify };
        caller.may(role, Some(&write.scope()))?;
    }
    let work = Arc::clone(&house);
    let write = move || {
        let kv = work.kv()?;
        // All are read before the first is done: a body that is wrong in its last line changes nothing.
        let laid = writes.into_iter().map(|write| write.lay(kv)).collect::<Result<Vec<_>, _>>()?;
        let (_, view) = work.desk.within(tx, &caller, |branch| {
            for one in &laid {
                if let Some(condition) = one.condition() {
                    branch.kv.branch_expect(&branch.xid, condition)?;
                }
                branch.kv.branch_write(&branch.xid, &one.op())?;
                branch.wrote();
            }
            Ok(())
        })?;
        Ok((StatusCode::ACCEPTED, Json(view_of_open(&view))).into_response())
    };
    house.guard.pool.run(write).await
}

pub(super) async fn commit(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    caller.may_somewhere(Role::Modify)?;
    let tx = named(&uri)?;
    Params::of(&uri)?.end()?;
    let work = Arc::clone(&house);
    let ended = house.guard.pool.run(move || work.desk.commit(tx, &caller)).await?;
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
    let ended = house.guard.pool.run(move || work.desk.roll_back(tx, &caller)).await?;
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
    let show = move || {
        if let Some(view) = work.desk.view(tx, &caller) {
            return Ok(Json(view_of_open(&view)).into_response());
        }
        if let Some(ended) = work.desk.ended(tx, &caller) {
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
        let coordinator = work.coordinator()?;
        if let Some(view) = coordinator.show(tx) {
            return Ok(Json(views::transaction(&work, &view)).into_response());
        }
        let state = match coordinator.ask(tx) {
            Known::Committed => "committed",
            Known::RolledBack => "rolled_back",
            Known::Undecided => "undecided",
            Known::InDoubt => "in_doubt",
            Known::Unknown => return Err(unknown()),
        };
        Ok(Json(json!({"tx": tx.to_string(), "state": state})).into_response())
    };
    house.guard.pool.run(show).await
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
    let Force { outcome, reason } = body::json(&body::whole(request, house.body_bytes_max).await?)?;
    let wanted = match outcome.as_str() {
        "commit" => Outcome::Committed,
        "rollback" => Outcome::RolledBack,
        _ => return Err(Problem::invalid(format!("outcome = {outcome:?}; it is \"commit\" or \"rollback\""))),
    };
    let operator = Operator { who: caller.name.to_string(), reason };
    let work = Arc::clone(&house);
    let force = move || Ok(work.coordinator()?.force(tx, wanted, &operator)?);
    let decided = house.guard.pool.run(force).await?;
    if decided != wanted {
        let detail = format!("{tx} had been decided before: {}; nothing was changed", views::outcome(decided));
        return Err(Problem::of(Kind::Conflict, detail));
    }
    Ok(Json(json!({"tx": tx.to_string(), "outcome": views::outcome(decided)})).into_response())
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
) -> Result<StatusCode, Problem> {
    caller.may(Role::Admin, None)?;
    let tx = named(request.uri())?;
    Params::of(request.uri())?.end()?;
    let Forget { reason } = body::json(&body::whole(request, house.body_bytes_max).await?)?;
    let operator = Operator { who: caller.name.to_string(), reason };
    let work = Arc::clone(&house);
    let forget = move || Ok(work.coordinator()?.forget(tx, &operator)?);
    house.guard.pool.run(forget).await?;
    Ok(StatusCode::NO_CONTENT)
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
    let work = Arc::clone(&house);
    let read = move || {
        work.coordinator()?;
        let log = work.coordinator_log.as_ref();
        let log = log.ok_or_else(|| Problem::not_found("this server's coordinator has no log to read"))?;
        let mut list = Vec::new();
        let mut last = None;
        let more = history::read(&**log, &filter, &mut |past| {
            last = Some(past.tx);
            list.push(views::past(&work, past));
            ControlFlow::Continue(())
        })?;
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
