//! Tokens that an OpenID provider has signed: checked here, without asking it for each.
//!
//! Walk: [`Oidc::who`] reads the header, which only says which key and algorithm to look for · the key is the provider's
//! (`keys`) · [`Oidc::check`]: the algorithm is on our list and the key's own, the signature holds, the issuer, the audience
//! and the time are right · the roles stand in the claim that the configuration names.
//! Deliberately absent: the flows by which people get tokens. The provider has them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use assent_door::Grants;
use assent_kind::Kind;
use assent_world::Clock;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::keys::{Found, Keys, Provider};
use super::{Caller, IdentityError};
use crate::pool::Pool;
use crate::problem::Problem;

/// The longest token that is looked at.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// What two clocks may differ by.
const LEEWAY_SECONDS: u64 = 30;
/// A longer name is told by its digest: it stands in commits, as their author.
const NAME_BYTES_MAX: usize = 255;
/// So much of what somebody likes to be called is shown.
const SHOWN_CHARS_MAX: usize = 64;

/// A provider, and what of its tokens is believed.
#[derive(Clone, Debug)]
pub struct OidcConfig {
    /// Its name, which is also where its documents begin. Compared as it is written.
    pub issuer: String,
    /// Us: one of the audiences of a token must be this.
    pub audience: String,
    /// The algorithms that are taken: RS256 to 512, PS256 to 512, ES256, ES384, EdDSA.
    pub algorithms: Vec<String>,
    /// Where a token has its roles: a claim, or a path to one with dots, as `realm_access.roles`.
    pub roles_claim: String,
    /// The certificates that vouch for the provider's, as PEM.
    pub roots: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(crate) struct Oidc {
    issuer: String,
    audience: String,
    algorithms: Vec<Algorithm>,
    roles: Vec<String>,
    provider: Arc<Provider>,
    keys: Arc<Mutex<Keys>>,
    /// Held by the work that asks the provider; others wait for the same answer.
    asking: Arc<tokio::sync::Mutex<()>>,
    clock: Arc<dyn Clock>,
}

impl Oidc {
    pub(crate) fn new(config: OidcConfig, clock: Arc<dyn Clock>) -> Result<Self, IdentityError> {
        let OidcConfig { issuer, audience, algorithms, roles_claim, roots } = config;
        if audience.is_empty() || roles_claim.is_empty() {
            return Err(IdentityError("identity.audience and identity.roles_claim must not be empty".to_owned()));
        }
        let named = |name: &String| match name.parse() {
            // A shared secret would be known to everybody who reads the provider's keys.
            Ok(Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512) | Err(_) => Err(IdentityError(format!(
                "identity.algorithms: {name:?}; take RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 or EdDSA"
            ))),
            Ok(algorithm) => Ok(algorithm),
        };
        let algorithms: Vec<Algorithm> = algorithms.iter().map(named).collect::<Result<_, _>>()?;
        if algorithms.is_empty() {
            return Err(IdentityError("identity.algorithms is empty: no token could be taken".to_owned()));
        }
        Ok(Self {
            provider: Arc::new(Provider::new(&issuer, roots.as_deref())?),
            issuer,
            audience,
            algorithms,
            roles: roles_claim.split('.').map(str::to_owned).collect(),
            keys: Arc::default(),
            asking: Arc::default(),
            clock,
        })
    }

    pub(crate) fn issuer(&self) -> &str {
        &self.issuer
    }

    pub(crate) async fn who(&self, token: &str, pool: &Pool) -> Result<Caller, Problem> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Problem::unauthorized(format!(
                "a token of {} bytes; it has at most {TOKEN_BYTES_MAX}",
                token.len()
            )));
        }
        let header = decode_header(token).map_err(|error| refused(&error))?;
        if !self.algorithms.contains(&header.alg) {
            return Err(Problem::unauthorized(format!("a token signed by {:?}, which is not taken here", header.alg)));
        }
        let key = self.key(header.kid.as_deref(), pool).await?;
        self.check(token, &header, &key)
    }

    async fn key(&self, id: Option<&str>, pool: &Pool) -> Result<Arc<Jwk>, Problem> {
        let mut found = lock(&self.keys).find(id, self.clock.now());
        if !matches!(found, Found::Key(_)) || lock(&self.keys).is_due(&found, self.clock.now()) {
            let asking = Arc::clone(&self.asking).lock_owned().await;
            let (keys, provider, clock) = (Arc::clone(&self.keys), Arc::clone(&self.provider), Arc::clone(&self.clock));
            let id = id.map(str::to_owned);
            // All of it is the work's: what the provider says is kept also if whoever caused the question has left.
            let ask = move || {
                // Somebody may have asked while this one waited.
                let found = lock(&keys).find(id.as_deref(), clock.now());
                if !lock(&keys).due(&found, clock.now()) {
                    return Ok(found);
                }
                match provider.ask() {
                    Ok(set) => lock(&keys).took(set, clock.now()),
                    Err(error) => tracing::warn!(%error, "the OpenID provider does not give its keys"),
                }
                drop(asking);
                Ok(lock(&keys).find(id.as_deref(), clock.now()))
            };
            found = pool.run(ask).await?;
        }
        match found {
            Found::Key(key) => Ok(key),
            Found::Unknown => Err(Problem::unauthorized("the token names a key that its provider does not have")),
            Found::Never => Err(Problem::of(Kind::Unavailable, "the OpenID provider cannot be asked for its keys")),
        }
    }

    fn check(&self, token: &str, header: &Header, key: &Jwk) -> Result<Caller, Problem> {
        if !suits(key, header.alg) {
            return Err(Problem::unauthorized(format!("the token's key is not one for {:?}", header.alg)));
        }
        let decoding = DecodingKey::from_jwk(key).map_err(|error| refused(&error))?;
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY_SECONDS;
        let claims =
            decode::<Map<String, Value>>(token, &decoding, &validation).map_err(|error| refused(&error))?.claims;
        let text = |name: &str| claims.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let subject = text("sub").filter(|text| !text.chars().any(char::is_control));
        let subject = subject.ok_or_else(|| Problem::unauthorized("the token names nobody"))?;
        let shown = text("preferred_username").map(|text| text.chars().filter(|it| !it.is_control()));
        let shown = shown.map(|text| text.take(SHOWN_CHARS_MAX).collect::<String>().into());
        Ok(Caller { name: self.name(subject), shown, grants: Arc::new(self.grants(&claims)) })
    }

    /// OpenID Connect Core, 2 and 5.7: the issuer and the subject together name a person, and nothing else does.
    fn name(&self, subject: &str) -> Arc<str> {
        let name = format!("{}#{subject}", self.issuer);
        if name.len() <= NAME_BYTES_MAX {
            return name.into();
        }
        let digest: String = Sha256::digest(name.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{digest}").into()
    }

    fn grants(&self, claims: &Map<String, Value>) -> Grants {
        let mut steps = self.roles.iter();
        let first = steps.next().and_then(|step| claims.get(step));
        let found = steps.try_fold(first, |value, step| Some(value?.get(step))).flatten();
        match found {
            Some(Value::Array(words)) => Grants::read(words.iter().filter_map(Value::as_str)),
            // RFC 9068 and RFC 6749 have scopes as one text.
            Some(Value::String(words)) => Grants::read(words.split(' ')),
            _ => Grants::default(),
        }
    }
}

fn lock(keys: &Mutex<Keys>) -> MutexGuard<'_, Keys> {
    keys.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the key is of the algorithm's kind, and its own word agrees.
fn suits(key: &Jwk, algorithm: Algorithm) -> bool {
    use Algorithm as A;
    let kind = match (&key.algorithm, algorithm) {
        (AlgorithmParameters::RSA(_), A::RS256 | A::RS384 | A::RS512 | A::PS256 | A::PS384 | A::PS512) => true,
        (AlgorithmParameters::EllipticCurve(it), A::ES256) => it.curve == EllipticCurve::P256,
        (AlgorithmParameters::EllipticCurve(it), A::ES384) => it.curve == EllipticCurve::P384,
        (AlgorithmParameters::OctetKeyPair(it), A::EdDSA) => it.curve == EllipticCurve::Ed25519,
        _ => false,
    };
    kind && key.common.key_algorithm.is_none_or(|told| told == KeyAlgorithm::from(algorithm))
}

fn refused(error: &jsonwebtoken::errors::Error) -> Problem {
    Problem::unauthorized(format!("the token is not taken: {error}"))
}
