//! The routes, and errors as JSON: `{"error":{"kind","message"}}`.

use std::sync::Arc;

use assent_door::{Health, Metrics, State};
use assent_kind::Kind;
use axum::Router;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde_json::{Map, Value, json};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) fn router(metrics: Arc<Metrics>, health: Arc<Health>) -> Router {
    Router::new()
        .route("/health", get(move || async move { report(&health) }))
        .route("/metrics", get(move || async move { ([(header::CONTENT_TYPE, OPEN_METRICS)], metrics.text()) }))
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            let message = format!("{method} {}; only GET is served there", uri.path());
            error(StatusCode::METHOD_NOT_ALLOWED, Kind::Invalid, &message)
        })
        .fallback(async |uri: Uri| {
            let message = format!("no path {:?}; there are /health and /metrics", uri.path());
            error(StatusCode::NOT_FOUND, Kind::NotFound, &message)
        })
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

fn error(status: StatusCode, kind: Kind, message: &str) -> Response {
    (status, Json(json!({"error": {"kind": kind.name(), "message": message}}))).into_response()
}
