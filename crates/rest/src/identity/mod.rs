//! Who asks: nobody in particular, a user that the configuration names, or whoever an OpenID provider vouches for.
//!
//! Walk: [`Identity::who`] turns a bearer token into a [`Caller`] · [`Caller::may`] is asked by every handler · `users` has
//! passwords and `sessions` · `oidc` checks signed tokens against a provider's keys (`keys`), each once (`checked`) · `token`
//! serves `/token`.
//! Deliberately absent: what the roles mean (`door::Grants`), cookies, and a sign-in page.

mod checked;
mod keys;
mod oidc;
mod sessions;
pub(crate) mod token;
mod users;

use std::sync::Arc;

use assent_door::{Grants, Role};
use assent_kind::Kind;
use assent_world::Clock;
use axum::http::{HeaderMap, header};

pub(crate) use oidc::Oidc;
pub use oidc::OidcConfig;
pub use users::{User, UsersConfig, password_hash};

use crate::problem::Problem;
use users::Users;

/// How callers are known.
#[derive(Debug)]
pub struct Identity(Means);

#[derive(Debug)]
enum Means {
    /// Everybody is this one.
    Open(Caller),
    Users(Users),
    Oidc(Oidc),
}

/// Why callers cannot be known this way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct IdentityError(pub(crate) String);

impl IdentityError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        Kind::Invalid
    }
}

impl Identity {
    /// Everybody may do everything: for loopback, and for development.
    #[must_use]
    pub fn open() -> Self {
        Self(Means::Open(Caller { name: "anonymous".into(), shown: None, grants: Arc::new(Grants::all()) }))
    }

    /// Users with passwords.
    ///
    /// # Errors
    /// [`IdentityError`] names the user and what is wrong with it.
    pub fn users(config: &UsersConfig, clock: Arc<dyn Clock>) -> Result<Self, IdentityError> {
        Users::new(config, clock).map(|users| Self(Means::Users(users)))
    }

    /// Whoever a provider vouches for. It is asked when the first token comes.
    ///
    /// # Errors
    /// [`IdentityError`] for an algorithm or an address that cannot be.
    pub fn oidc(config: OidcConfig, clock: Arc<dyn Clock>) -> Result<Self, IdentityError> {
        Oidc::new(config, clock).map(|oidc| Self(Means::Oidc(oidc)))
    }

    /// Whether callers prove who they are.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.0, Means::Open(_))
    }

    /// Takes these users instead; sessions of those that are gone, or whose password has changed, end at once.
    ///
    /// # Errors
    /// As [`Identity::users`]; nothing is changed. [`IdentityError`] where there are no users.
    pub fn replace_users(&self, users: &[User]) -> Result<(), IdentityError> {
        match &self.0 {
            Means::Users(known) => known.replace(users),
            Means::Open(_) | Means::Oidc(_) => Err(IdentityError("callers are not known by users here".to_owned())),
        }
    }

    /// Who asks, as far as it is known here.
    pub(crate) fn who(&self, headers: &HeaderMap) -> Result<Who<'_>, Problem> {
        match &self.0 {
            Means::Open(anybody) => Ok(Who::Known(anybody.clone())),
            Means::Users(users) => users.who(bearer(headers)?).map(Who::Known),
            Means::Oidc(oidc) => {
                let token = bearer(headers)?;
                Ok(oidc.at_once(token).map_or_else(|| Who::Unchecked(oidc, token.to_owned()), Who::Known))
            }
        }
    }
}

/// Who asks.
pub(crate) enum Who<'a> {
    Known(Caller),
    /// [`Oidc::who`] of this token can tell, and may have to ask the provider first.
    Unchecked(&'a Oidc, String),
}

/// The token of an `Authorization: Bearer` header.
fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else {
        return Err(Problem::unauthorized("send one header `Authorization: Bearer TOKEN`; POST /token gives tokens"));
    };
    let text = value.to_str().map_err(|_| Problem::unauthorized("the Authorization header is no text"))?;
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => Ok(token.trim()),
        _ => Err(Problem::unauthorized("the Authorization header is not `Bearer TOKEN`")),
    }
}

/// Who asks, and what he may do.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Nobody else has it, and he cannot choose it: what is his, and his rate, go by this.
    pub(crate) name: Arc<str>,
    /// What he likes to be called, if that is something else: for people who read logs.
    pub(crate) shown: Option<Arc<str>>,
    pub(crate) grants: Arc<Grants>,
}

impl Caller {
    /// Whether he may do this, in one database or to all of it.
    pub(crate) fn may(&self, role: Role, database: Option<&str>) -> Result<(), Problem> {
        if self.grants.allows(role, database) {
            return Ok(());
        }
        Err(self.refused(role, database.map_or_else(String::new, |name| format!(" or {name}-{role}"))))
    }

    /// Whether he may do this anywhere.
    pub(crate) fn may_somewhere(&self, role: Role) -> Result<(), Problem> {
        if self.grants.allows_somewhere(role) { Ok(()) } else { Err(self.refused(role, String::new())) }
    }

    fn refused(&self, role: Role, or: String) -> Problem {
        Problem::of(Kind::Denied, format!("{:?} may not do this: it takes the role {role}{or}", &*self.name))
    }
}
