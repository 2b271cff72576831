//! `[identity]` and `[tls]`: who may do what by HTTP, behind which certificate. How much of it, `[http]`, are [`assent_rest::Settings`].
//!
//! Walk: the sections as serde reads them · [`Identity::open`] and [`Tls::open`] read the files they name and make what the
//! listeners take · [`reload`] does it again while they serve.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use assent_rest::{Certificates, OidcConfig, User, UsersConfig};
use assent_world::Clock;
use serde::Deserialize;
use tracing::{info, warn};

use crate::config::{Config, read};
use crate::failure::Failure;
use crate::mistake::sentence;

/// Where Debian keeps the certificates that vouch for others.
const ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// `identity.mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// Whoever reaches the listener may do everything.
    #[default]
    None,
    /// Users that the configuration names.
    Users,
    /// Whoever an OpenID provider vouches for.
    Oidc,
}

/// `[identity]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Identity {
    pub(crate) mode: Mode,
    users_file: Option<PathBuf>,
    user: Vec<Person>,
    token_seconds: u32,
    refresh_seconds: u32,
    issuer: Option<String>,
    audience: Option<String>,
    algorithms: Vec<String>,
    roles_claim: String,
    ca_file: Option<PathBuf>,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            mode: Mode::None,
            users_file: None,
            user: Vec::new(),
            token_seconds: 300,
            refresh_seconds: 1_800,
            issuer: None,
            audience: None,
            algorithms: vec!["RS256".to_owned(), "ES256".to_owned()],
            roles_claim: "roles".to_owned(),
            ca_file: None,
        }
    }
}

/// `[[identity.user]]`, and `[[user]]` of a file of users.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Person {
    name: String,
    password_hash: String,
    #[serde(default)]
    roles: Vec<String>,
}

// The hash can be guessed at: never printed.
impl std::fmt::Debug for Person {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Person").field("name", &self.name).field("roles", &self.roles).finish_non_exhaustive()
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct People {
    user: Vec<Person>,
}

impl Identity {
    /// A path in the file means beside the file.
    pub(crate) fn beside(&mut self, folder: &Path) {
        for path in [&mut self.users_file, &mut self.ca_file].into_iter().flatten() {
            *path = folder.join(&*path);
        }
    }

    /// Says what does not go together; without `identity.`, which is before it.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (has_users, has_provider) = (self.users_file.is_some() || !self.user.is_empty(), self.issuer.is_some());
        match self.mode {
            Mode::None if has_users || has_provider => {
                Err("mode = \"none\" takes no users and no issuer; write mode = \"users\" or \"oidc\"".to_owned())
            }
            Mode::Users if has_provider => Err("mode = \"users\" takes no issuer; write mode = \"oidc\"".to_owned()),
            Mode::Users if !has_users => {
                Err("mode = \"users\" needs them: identity.users_file or [[identity.user]]".to_owned())
            }
            Mode::Oidc if has_users => Err("mode = \"oidc\" takes no users; its provider has them".to_owned()),
            Mode::Oidc if !has_provider || self.audience.is_none() => {
                Err("mode = \"oidc\" needs identity.issuer and identity.audience".to_owned())
            }
            Mode::None | Mode::Users | Mode::Oidc => Ok(()),
        }
    }

    fn users(&self) -> Result<Vec<User>, Failure> {
        let mut people = self.user.clone();
        if let Some(path) = &self.users_file {
            let text = read(path)?;
            let wrong = |error| Failure::invalid(format!("{}: {}", path.display(), sentence(&text, &error)));
            let file: People = toml::from_str(&text).map_err(wrong)?;
            people.extend(file.user);
        }
        let user = |Person { name, password_hash, roles }| User { name, password_hash, roles };
        Ok(people.into_iter().map(user).collect())
    }

    /// How callers are known from now on.
    pub(crate) fn open(&self, clock: Arc<dyn Clock>) -> Result<assent_rest::Identity, Failure> {
        match self.mode {
            Mode::None => {
                warn!(
                    "[identity] mode = \"none\": whoever reaches the HTTP listeners of this machine may do everything"
                );
                Ok(assent_rest::Identity::open())
            }
            Mode::Users => {
                let (token_seconds, refresh_seconds) = (self.token_seconds, self.refresh_seconds);
                let config = UsersConfig { users: self.users()?, token_seconds, refresh_seconds };
                info!("{} users may use the HTTP listeners", config.users.len());
                Ok(assent_rest::Identity::users(&config, clock)?)
            }
            Mode::Oidc => {
                let issuer = self.issuer.clone().unwrap_or_default();
                let roots = match &self.ca_file {
                    Some(path) => Some(read(path)?.into_bytes()),
                    None if issuer.starts_with("https:") => Some(read(Path::new(ROOTS))?.into_bytes()),
                    None => None,
                };
                let config = OidcConfig {
                    issuer,
                    audience: self.audience.clone().unwrap_or_default(),
                    algorithms: self.algorithms.clone(),
                    roles_claim: self.roles_claim.clone(),
                    roots,
                };
                Ok(assent_rest::Identity::oidc(config, clock)?)
            }
        }
    }
}

/// `[tls]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tls {
    certificate: PathBuf,
    key: PathBuf,
}

impl Tls {
    pub(crate) fn beside(&mut self, folder: &Path) {
        self.certificate = folder.join(&self.certificate);
        self.key = folder.join(&self.key);
    }

    pub(crate) fn open(&self) -> Result<Certificates, Failure> {
        let (chain, key) = self.read()?;
        Ok(Certificates::new(chain.as_bytes(), key.as_bytes())?)
    }

    fn read(&self) -> Result<(String, String), Failure> {
        Ok((read(&self.certificate)?, read(&self.key)?))
    }
}

/// Reads users and certificates again, and has them taken. What cannot be read or used stays as it was.
pub(crate) fn reload(config: &Config, identity: &assent_rest::Identity, certificates: Option<&Certificates>) {
    if config.identity.mode == Mode::Users {
        let taken = config.identity.users().and_then(|users| {
            identity.replace_users(&users)?;
            Ok(users.len())
        });
        match taken {
            Ok(many) => info!("{many} users may use the HTTP listeners from now on"),
            Err(failure) => warn!("the users stay as they were: {}", failure.message),
        }
    }
    if let (Some(tls), Some(certificates)) = (&config.tls, certificates) {
        let taken = tls.read().and_then(|(chain, key)| Ok(certificates.replace(chain.as_bytes(), key.as_bytes())?));
        match taken {
            Ok(()) => info!("new HTTP connections are shown the certificate of {}", tls.certificate.display()),
            Err(failure) => warn!("the certificate stays as it was: {}", failure.message),
        }
    }
}
