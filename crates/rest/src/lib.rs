//! HTTP: people and programs of any language reach documents, keys and transactions, and operators see and steer everything. The
//! only room with an asynchronous runtime.
//!
//! Walk: [`Rest::start`] binds and serves, on threads of its own · `listener` bounds connections and their silence, and
//! shakes hands for TLS ([`Certificates`]) · `origin` refuses pages of strangers where nobody is asked who he is, `entry` bounds
//! strangers · `front` seats each connection before its routes · `guard` names each request, knows who asks ([`Identity`]), bounds how many there are and for how long, and
//! writes a line about each · [`Service`] has the routes: `health` for machines that ask how it stands, `v1` for keys, transactions
//! and the server, `docs` for documents, `jsoniq` for queries of them; `openapi` says what there is, `viewer` shows it · `pool` for
//! what may block · `answer` for what may be long, `shape` for how it leaves · `problem` for what went wrong · [`Rest::stop`] finishes what is under way.
//! Deliberately absent: files. Whoever starts it reads them.
#![forbid(unsafe_code)]

mod answer;
mod body;
mod crew;
mod deadline;
mod digits;
mod docs;
mod entry;
mod front;
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod health;
mod identity;
mod jsoniq;
mod listener;
mod lookout;
mod moment;
mod once;
mod openapi;
mod origin;
mod params;
mod places;
mod pool;
mod prefer;
mod problem;
mod rest;
mod service;
mod shape;
mod tls;
mod turn;
mod unread;
mod v1;
mod viewer;

pub use docs::Documents;
pub use identity::{Identity, IdentityError, OidcConfig, User, UsersConfig, password_hash};
pub use rest::{Entrance, Rest, RestError, Settings};
pub use service::Service;
pub use tls::{Certificates, TlsError};
pub use v1::{Admin, LogLevel};
