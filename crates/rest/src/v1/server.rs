//! The server itself: its version, its configuration as it was read, and how much it logs.

use std::sync::Arc;

use assent_door::Role;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::Uri;
use axum::response::Json;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{House, LogLevel};
use crate::body;
use crate::identity::Caller;
use crate::params::Params;
use crate::problem::Problem;

pub(super) async fn version(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Json<Value>, Problem> {
    caller.may_somewhere(Role::View)?;
    Params::of(&uri)?.end()?;
    let coordinator = house.coordinator.as_ref().map(|it| json!({"epoch": it.epoch().0}));
    Ok(Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "node": house.node.to_string(),
        "coordinator": coordinator,
        "kv": house.kv.is_some(),
    })))
}

pub(super) async fn configuration(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Json<Value>, Problem> {
    caller.may(Role::Admin, None)?;
    Params::of(&uri)?.end()?;
    Ok(Json(house.configuration.clone()))
}

fn level(house: &House) -> Result<&LogLevel, Problem> {
    house.log_level.as_ref().ok_or_else(|| Problem::not_found("what is logged here cannot be changed"))
}

pub(super) async fn log_level(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Json<Value>, Problem> {
    caller.may(Role::Admin, None)?;
    Params::of(&uri)?.end()?;
    Ok(Json(json!({"level": (level(&house)?.get)()})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Level {
    level: String,
}

pub(super) async fn set_log_level(
    State(house): State<Arc<House>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Json<Value>, Problem> {
    caller.may(Role::Admin, None)?;
    Params::of(request.uri())?.end()?;
    let Level { level: wanted } = body::json(&body::whole(request, house.body_bytes_max).await?)?;
    let known = level(&house)?;
    (known.set)(&wanted).map_err(|why| Problem::invalid(format!("level = {wanted:?}: {why}")))?;
    tracing::warn!(level = wanted, who = &*caller.name, "what is logged has been changed");
    Ok(Json(json!({"level": (known.get)()})))
}
