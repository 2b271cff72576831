//! The listener's description for programs (`/openapi.json`) and for people (`/swagger-ui/`): Swagger UI, whose files are in the
//! binary. Nothing is fetched from anywhere else, and the browser is told so.
//!
//! Walk: [`routes`] · [`OPEN`] paths that anybody may ask.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use serde_json::Value;
use utoipa_swagger_ui::{Config, serve};

use crate::problem::Problem;

/// Exactly these: what stands behind other names may be documents.
pub(crate) const OPEN: &[&str] = &[
    "/openapi.json",
    "/swagger-ui",
    "/swagger-ui/",
    "/swagger-ui/index.html",
    "/swagger-ui/index.css",
    "/swagger-ui/swagger-ui.css",
    "/swagger-ui/swagger-ui-bundle.js",
    "/swagger-ui/swagger-ui-standalone-preset.js",
    "/swagger-ui/swagger-initializer.js",
    "/swagger-ui/favicon-16x16.png",
    "/swagger-ui/favicon-32x32.png",
];

/// Its own scripts and no others; Swagger UI writes styles into its page.
const POLICY: (HeaderName, HeaderValue) = (
    header::CONTENT_SECURITY_POLICY,
    HeaderValue::from_static(
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'",
    ),
);

/// The description, and its viewer.
pub(crate) fn routes(document: &Value) -> Router {
    let laid = Bytes::from(document.to_string());
    let json = move || async move { ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], laid) };
    // Without a validator of somebody else's, to which it would send where we are.
    let config = Arc::new(Config::from("/openapi.json").validator_url("none").display_operation_id(true));
    let files = Arc::clone(&config);
    Router::new()
        .route("/openapi.json", get(json))
        .route("/swagger-ui", get(async || Redirect::permanent("/swagger-ui/")))
        .route("/swagger-ui/", get(move || async move { file("", config) }))
        .route("/swagger-ui/{file}", get(move |Path(name): Path<String>| async move { file(&name, files) }))
}

fn file(name: &str, config: Arc<Config<'static>>) -> Result<Response, Problem> {
    let none = || Problem::not_found(format!("the viewer has no file {name:?}"));
    let found = serve(name, config).map_err(|_| none())?.ok_or_else(none)?;
    let kind = HeaderValue::from_str(&found.content_type).map_err(|_| none())?;
    // Most are part of the program: nobody needs one of his own.
    let bytes = match found.bytes {
        Cow::Borrowed(bytes) => Bytes::from_static(bytes),
        Cow::Owned(bytes) => bytes.into(),
    };
    Ok(([(header::CONTENT_TYPE, kind), POLICY], bytes).into_response())
}
