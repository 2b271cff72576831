//! What a listener serves: its routes, and what has to be done beside them now and then.
//!
//! Walk: [`Service::admin`] health, metrics and `/v1` · [`Service::documents`] documents at the root · [`Service::under`] puts the guard before them, and the words for
//! what is not there.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use assent_kind::Kind;
use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use serde_json::Value;
use tokio::sync::watch as flag;

use crate::docs::{self, Documents};
use crate::front::{Front, Inside};
use crate::guard::Guard;
use crate::identity::token;
use crate::problem::Problem;
use crate::rest::Settings;
use crate::v1::{self, Admin};
use crate::{openapi, shape, viewer};

/// Work beside the requests, for ever.
pub(crate) type Upkeep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a listener serves.
pub struct Service(What);

enum What {
    Admin(Box<Admin>),
    Documents(Documents),
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Service").field(&self.name()).finish()
    }
}

pub(crate) struct Served {
    pub(crate) front: Front,
    pub(crate) upkeep: Option<Upkeep>,
    /// Told true once the listener stops: what would go on for ever ends.
    pub(crate) closing: flag::Sender<bool>,
}

impl Service {
    /// Health, metrics, and `/v1`: transactions, keys, and the server itself.
    #[must_use]
    pub fn admin(admin: Admin) -> Self {
        Self(What::Admin(Box::new(admin)))
    }

    /// Documents, as SirixDB's published clients ask for them.
    #[must_use]
    pub const fn documents(documents: Documents) -> Self {
        Self(What::Documents(documents))
    }

    pub(crate) const fn name(&self) -> &'static str {
        match &self.0 {
            What::Admin(_) => "admin",
            What::Documents(_) => "docs",
        }
    }

    /// What it serves, as OpenAPI 3.1: what `/openapi.json` answers.
    #[must_use]
    pub fn openapi(&self) -> Value {
        match &self.0 {
            What::Admin(_) => openapi::document("Assent: transactions, keys and the server", openapi::ADMIN),
            What::Documents(_) => openapi::document("Assent: documents", openapi::DOCUMENTS),
        }
    }

    /// Paths that anybody may ask, beside those of the viewer. Exactly these: behind others may stand documents.
    pub(crate) const fn open(&self) -> &'static [&'static str] {
        match &self.0 {
            What::Admin(_) => &[
                "/health",
                "/metrics",
                "/token",
                "/logout",
                "/user/authorize",
                "/v1/health",
                "/v1/health/live",
                "/v1/health/ready",
                "/v1/metrics",
            ],
            What::Documents(_) => &["/health", "/metrics", "/token", "/logout", "/user/authorize"],
        }
    }

    pub(crate) fn under(self, guard: Arc<Guard>, settings: &Settings) -> Served {
        let document = self.openapi();
        let (closing, closed) = flag::channel(false);
        let (routes, upkeep, library) = match self.0 {
            What::Admin(admin) => {
                let (routes, upkeep) = v1::routes(*admin, Arc::clone(&guard), settings);
                (routes, upkeep, None)
            }
            What::Documents(documents) => {
                let (routes, upkeep, library) = docs::routes(documents, Arc::clone(&guard), settings, closed);
                (routes, upkeep, Some(library))
            }
        };
        let tokens = Router::new()
            .route("/token", post(token::token))
            .route("/logout", post(token::logout))
            .route("/user/authorize", get(token::authorize))
            .with_state(Arc::clone(&guard));
        let router = routes
            .layer(from_fn_with_state(Arc::clone(&guard), shape::pass))
            .merge(tokens)
            .merge(viewer::routes(&document))
            .method_not_allowed_fallback(async |method: Method, uri: Uri| {
                let detail = format!("{method} is not served at {:?}", uri.path());
                Problem::of(Kind::Invalid, detail).status(StatusCode::METHOD_NOT_ALLOWED)
            })
            .fallback(async |uri: Uri| Problem::not_found(format!("no path {:?}", uri.path())))
            // Lays the routes of what has no state now, and not in each request.
            .with_state(());
        Served { front: Front::new(guard, Inside { router, library }), upkeep, closing }
    }
}
