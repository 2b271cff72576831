//! How the process stands, for load balancers, probes and dashboards: nobody has to say who he is.

use std::sync::Arc;

use assent_door::{Health, Metrics, State};
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Json, Response};
use axum::routing::get;
use serde_json::{Map, Value, json};

use crate::guard::Guard;
use crate::problem::Problem;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Those that every listener has.
pub(crate) fn open(guard: &Arc<Guard>, metrics: &Arc<Metrics>, health: &Arc<Health>) -> Router {
    let (guard, metrics, health) = (Arc::clone(guard), Arc::clone(metrics), Arc::clone(health));
    Router::new()
        .route("/health", get(move || async move { report(&health) }))
        .route("/metrics", get(move || text(guard, metrics)))
}

async fn text(guard: Arc<Guard>, metrics: Arc<Metrics>) -> Result<Response, Problem> {
    let text = move || Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], metrics.text()).into_response());
    guard.scrapes.run(text).await
}

/// The same, and those of `/v1`.
pub(crate) fn routes(guard: &Arc<Guard>, metrics: &Arc<Metrics>, health: &Arc<Health>) -> Router {
    let ready = |health: Arc<Health>| move || async move { report(&health) };
    let (guard_too, metrics_too) = (Arc::clone(guard), Arc::clone(metrics));
    open(guard, metrics, health)
        .route("/v1/health", get(ready(Arc::clone(health))))
        .route("/v1/health/ready", get(ready(Arc::clone(health))))
        // Whoever answers is alive; what he serves may not be.
        .route("/v1/health/live", get(|| async { Json(json!({"state": "ok"})) }))
        .route("/v1/metrics", get(move || text(guard_too, metrics_too)))
}

fn report(health: &Health) -> Response {
    let report = health.report();
    let checks: Map<String, Value> = report
        .checks
        .into_iter()
        .map(|(name, check)| (name, json!({"state": check.state.name(), "message": check.sentence})))
        .collect();
    // Degraded still works: a load balancer that took it out of service would make things worse.
    let status = if report.state == State::Failed { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (status, Json(json!({"state": report.state.name(), "checks": checks}))).into_response()
}
