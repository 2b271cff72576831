//! What went wrong, as HTTP tells it: a problem detail (RFC 9457) that also carries `statusCode` and `message`, which
//! older clients read.
//!
//! Walk: a handler returns a [`Problem`] · it travels as an extension of an empty response · `guard` lays it, with the
//! path and the request's id.

use std::time::Duration;

use assent_kind::Kind;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

const PROBLEM: &str = "application/problem+json";

/// Why a request was not done.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    pub(crate) detail: String,
    /// When it is worth asking again.
    retry: Option<Duration>,
    /// The scheme that would have been taken.
    challenge: bool,
}

impl Problem {
    /// With the status that the kind has everywhere.
    pub(crate) fn of(kind: Kind, detail: impl Into<String>) -> Self {
        let status = StatusCode::from_u16(kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry = matches!(kind, Kind::Busy | Kind::Unavailable).then_some(Duration::from_secs(1));
        Self { status, kind: kind.name(), detail: detail.into(), retry, challenge: false }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::of(Kind::Invalid, detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::of(Kind::NotFound, detail)
    }

    /// Nobody knows who asks.
    pub(crate) fn unauthorized(detail: impl Into<String>) -> Self {
        Self { challenge: true, ..Self::of(Kind::Denied, detail) }.status(StatusCode::UNAUTHORIZED)
    }

    /// The precondition that the caller gave does not hold.
    pub(crate) fn precondition(detail: impl Into<String>) -> Self {
        Self::of(Kind::Conflict, detail).status(StatusCode::PRECONDITION_FAILED)
    }

    pub(crate) const fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    pub(crate) const fn retry(mut self, after: Duration) -> Self {
        self.retry = Some(after);
        self
    }

    /// The response with its body.
    pub(crate) fn lay(&self, path: &str, request_id: &str) -> Response {
        let status = self.status.as_u16();
        let body = json!({
            "type": format!("urn:assent:problem:{}", self.kind),
            "title": self.status.canonical_reason().unwrap_or(self.kind),
            "status": status,
            "detail": self.detail,
            "instance": path,
            "kind": self.kind,
            "requestId": request_id,
            "statusCode": status,
            "message": self.detail,
        });
        let mut response = (self.status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
        if let Some(after) = self.retry {
            // Whole seconds, and never before it is worth it.
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if self.challenge {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        response.extensions_mut().insert(self);
        response
    }
}

impl From<assent_kv::KvError> for Problem {
    fn from(error: assent_kv::KvError) -> Self {
        let detail = error.to_string();
        match &error {
            assent_kv::KvError::Unmet { .. } => Self::precondition(detail),
            assent_kv::KvError::Size { .. } => Self::invalid(detail).status(StatusCode::PAYLOAD_TOO_LARGE),
            _ => Self::of(error.kind(), detail),
        }
    }
}

macro_rules! from_room {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Problem {
            fn from(error: $error) -> Self {
                Self::of(error.kind(), error.to_string())
            }
        })*
    };
}

from_room!(assent_coordinator::CoordinatorError, assent_client::WorkError);

impl From<assent_xa::DecideError> for Problem {
    fn from(error: assent_xa::DecideError) -> Self {
        Self::of(error.kind, error.message)
    }
}

impl From<assent_client::ClientError> for Problem {
    fn from(error: assent_client::ClientError) -> Self {
        Self::of(error.kind, error.message)
    }
}

impl From<assent_client::CommitError> for Problem {
    fn from(error: assent_client::CommitError) -> Self {
        Self::of(error.kind, error.message)
    }
}
