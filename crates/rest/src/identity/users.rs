//! Users that the configuration names, with passwords as Argon2 hashes.
//!
//! Walk: [`Users::new`] checks names, hashes and roles · [`Users::login`] takes a password, as often as `Rates` allow ·
//! [`Users::refresh`], [`Users::logout`] are the sessions' · [`Users::who`] looks a token up · [`Users::replace`] takes
//! another list while it serves.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use argon2::{Argon2, PasswordHash, PasswordHasher as _, PasswordVerifier as _};
use assent_door::{Grants, Rates};
use assent_kind::Kind;
use assent_world::{Clock, RealDice};
use axum::http::StatusCode;

use super::sessions::{Refused, Sessions, Times, Tokens, digest};
use super::{Caller, IdentityError};
use crate::problem::Problem;

/// The longest password that is looked at.
const PASSWORD_BYTES_MAX: usize = 1_024;
/// The longest name of a user.
const NAME_BYTES_MAX: usize = 255;
/// Wrong passwords for one name from one place, within a minute.
const ATTEMPTS: u32 = 10;

/// A user as the configuration has it.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// What he calls himself.
    pub name: String,
    /// `$argon2id$…`: what [`password_hash`] makes of a password.
    pub password_hash: String,
    /// `view`, or `DATABASE-view`, and so on.
    pub roles: Vec<String>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).field("roles", &self.roles).finish_non_exhaustive()
    }
}

/// Users, and how long their tokens are good.
#[derive(Clone, Debug)]
pub struct UsersConfig {
    /// Who.
    pub users: Vec<User>,
    /// Seconds that an access token is good.
    pub token_seconds: u32,
    /// Seconds that a session lives without a refresh.
    pub refresh_seconds: u32,
}

struct Known {
    password_hash: String,
    grants: Arc<Grants>,
}

pub(crate) struct Users {
    known: RwLock<BTreeMap<String, Known>>,
    sessions: RwLock<Sessions>,
    attempts: Rates,
    /// What a stranger's password is compared with, so that a name is not told by the time an answer takes.
    nobody: String,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").finish_non_exhaustive()
    }
}

/// The hash of a password, for the configuration: Argon2id with a salt of its own.
///
/// # Errors
/// [`IdentityError`] for a password that is empty or too long.
pub fn password_hash(password: &str) -> Result<String, IdentityError> {
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        let bytes = password.len();
        return Err(IdentityError(format!("a password of {bytes} bytes; it has 1 to {PASSWORD_BYTES_MAX}")));
    }
    let hash = Argon2::default().hash_password(password.as_bytes());
    hash.map(|hash| hash.to_string()).map_err(|error| IdentityError(format!("the password cannot be hashed: {error}")))
}

impl Users {
    pub(crate) fn new(config: &UsersConfig, clock: Arc<dyn Clock>) -> Result<Self, IdentityError> {
        // Clients refresh ten seconds before a token ends.
        for (name, seconds) in [("token_seconds", config.token_seconds), ("refresh_seconds", config.refresh_seconds)] {
            if !(30..=31_536_000).contains(&seconds) {
                return Err(IdentityError(format!("identity.{name} = {seconds}; it must be 30 to 31536000")));
            }
        }
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let times = Times { access: seconds(config.token_seconds), refresh: seconds(config.refresh_seconds) };
        Ok(Self {
            known: RwLock::new(known(&config.users)?),
            sessions: RwLock::new(Sessions::new(times)),
            attempts: Rates::new(ATTEMPTS, Duration::from_secs(60), ATTEMPTS),
            nobody: password_hash("nobody")?,
            clock,
        })
    }

    pub(crate) fn replace(&self, users: &[User]) -> Result<(), IdentityError> {
        let next = known(users)?;
        let mut now = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let is_other = |name: &str| {
            let hash = |list: &BTreeMap<String, Known>| list.get(name).map(|user| user.password_hash.clone());
            hash(&next).is_none() || hash(&next) != hash(&now)
        };
        self.sessions().end_of(is_other);
        *now = next;
        Ok(())
    }

    /// Tokens for a password. Blocks for as long as the hash takes.
    pub(crate) fn login(&self, name: &str, password: &str, place: &str) -> Result<(Tokens, Times), Problem> {
        let wrong = || Problem::unauthorized("the name or the password is wrong");
        if name.len() > NAME_BYTES_MAX || password.len() > PASSWORD_BYTES_MAX {
            return Err(wrong());
        }
        // Counted before it is looked at: many at once are not more.
        let counted = format!("{name}\n{place}");
        self.attempts
            .take(&counted, self.clock.now())
            .map_err(|wait| Problem::of(Kind::Busy, "too many wrong passwords for this name; wait").retry(wait))?;
        let hash = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            known.get(name).map(|user| user.password_hash.clone())
        };
        let is_right = fits(password, hash.as_deref().unwrap_or(&self.nobody));
        let Some(hash) = hash.filter(|_| is_right) else { return Err(wrong()) };
        self.attempts.forgive(&counted);
        self.open(name, &hash)
    }

    /// A session for who has given the password of this hash, as long as it is his.
    fn open(&self, name: &str, hash: &str) -> Result<(Tokens, Times), Problem> {
        // Held until the session is there: another list either ends it, or is seen here.
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if known.get(name).is_none_or(|user| user.password_hash != hash) {
            return Err(Problem::unauthorized("the name or the password is wrong"));
        }
        let mut sessions = self.sessions();
        let tokens = sessions.open(name.into(), self.clock.now(), &RealDice).map_err(refused)?;
        Ok((tokens, sessions.times()))
    }

    pub(crate) fn refresh(&self, token: &str) -> Result<(Tokens, Times), Problem> {
        let mut sessions = self.sessions();
        let tokens = sessions.refresh(token, self.clock.now(), &RealDice).map_err(refused)?;
        Ok((tokens, sessions.times()))
    }

    pub(crate) fn logout(&self, token: &str) -> bool {
        self.sessions().close(token)
    }

    pub(crate) fn who(&self, token: &str) -> Result<Caller, Problem> {
        let over = || Problem::unauthorized("the token is unknown, or its time is over: refresh it, or log in again");
        // All threads that serve pass here with each request: nothing is hashed, and nobody waits for another reader.
        let digest = digest(token.as_bytes());
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        let name = sessions.user_of(digest, self.clock.now()).ok_or_else(over)?;
        drop(sessions);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let user = known.get(&*name).ok_or_else(over)?;
        Ok(Caller { name, shown: None, grants: Arc::clone(&user.grants) })
    }

    fn sessions(&self) -> RwLockWriteGuard<'_, Sessions> {
        self.sessions.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn known(users: &[User]) -> Result<BTreeMap<String, Known>, IdentityError> {
    let mut known = BTreeMap::new();
    for User { name, password_hash, roles } in users {
        let wrong = |what: String| Err(IdentityError(format!("user {name:?}: {what}")));
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return wrong(format!("a name has 1 to {NAME_BYTES_MAX} bytes and no control characters"));
        }
        if let Err(error) = PasswordHash::new(password_hash) {
            return wrong(format!("password_hash is none ({error}); `assent password` makes one"));
        }
        let grants = match Grants::checked(roles.iter().map(String::as_str)) {
            Ok(grants) => Arc::new(grants),
            Err(word) => {
                return wrong(format!(
                    "{word:?} is no role; view, create, modify, delete, admin, or DATABASE-view and so on"
                ));
            }
        };
        if known.insert(name.clone(), Known { password_hash: password_hash.clone(), grants }).is_some() {
            return wrong("is there twice".to_owned());
        }
    }
    Ok(known)
}

fn fits(password: &str, hash: &str) -> bool {
    PasswordHash::new(hash).is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

fn refused(why: Refused) -> Problem {
    match why {
        Refused::Unknown => Problem::unauthorized("the refresh token is unknown, or its time is over: log in again"),
        Refused::Replayed => {
            tracing::warn!("a refresh token was used twice: somebody has a copy; its session has ended");
            Problem::unauthorized("the refresh token was used before: its session has ended, log in again")
        }
        Refused::Full => {
            Problem::of(Kind::Busy, "as many sessions as there may be; wait").status(StatusCode::SERVICE_UNAVAILABLE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use assent_world::RealClock;

    #[test]
    fn a_password_that_is_withdrawn_while_it_is_looked_at_opens_no_session() {
        let user = |password: &str| User {
            name: "anna".to_owned(),
            password_hash: password_hash(password).unwrap(),
            roles: vec!["view".to_owned()],
        };
        let old = user("old");
        let config = UsersConfig { users: vec![old.clone()], token_seconds: 300, refresh_seconds: 1_800 };
        let users = Users::new(&config, Arc::new(RealClock)).unwrap();
        assert!(users.open("anna", &old.password_hash).is_ok());
        // It was right a moment ago; then the list is read again.
        users.replace(&[user("new")]).unwrap();
        let refused = users.open("anna", &old.password_hash).unwrap_err();
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
        users.replace(&[]).unwrap();
        assert!(users.open("anna", &old.password_hash).is_err());
    }
}
