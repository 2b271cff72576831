//! Tokens that an OpenID provider has signed: checked here, without asking it for each.
//!
//! Walk: [`Oidc::at_once`] a token that was found good before, whose time is not over · any other: [`Oidc::who`] reads the header, which
//! only says which key and algorithm to look for · the key is the provider's (`keys`) · [`Oidc::check`]: the algorithm is on our list and the
//! key's own, the signature holds, the issuer, the audience and the time are right · the roles stand in the claim that the configuration names.
//! Deliberately absent: the flows by which people get tokens. The provider has them.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use assent_door::Grants;
use assent_kind::Kind;
use assent_world::Clock;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::checked::Good;
use super::keys::{Found, Keys, Provider};
use super::sessions::digest;
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
    /// Looked at by each request, and changed when the provider is asked.
    keys: Arc<RwLock<Keys>>,
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

    /// Whose token this is, if it was found good before and is good still.
    pub(crate) fn at_once(&self, token: &str) -> Option<Caller> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let good = read(&self.keys).good(&digest(token.as_bytes()), self.clock.now())?;
        (!good.is_over(self.clock.wall_ms())).then(|| good.caller.clone())
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
        let good = self.check(token, &header, &key)?;
        if good.is_over(self.clock.wall_ms()) {
            return Err(Problem::unauthorized("the token's time is over, or has not come"));
        }
        let caller = good.caller.clone();
        read(&self.keys).keep(&key, digest(token.as_bytes()), good);
        Ok(caller)
    }

    async fn key(&self, id: Option<&str>, pool: &Pool) -> Result<Arc<Jwk>, Problem> {
        let mut found = read(&self.keys).find(id, self.clock.now());
        if !matches!(found, Found::Key(_)) || read(&self.keys).is_due(&found, self.clock.now()) {
            let asking = Arc::clone(&self.asking).lock_owned().await;
            let (keys, provider, clock) = (Arc::clone(&self.keys), Arc::clone(&self.provider), Arc::clone(&self.clock));
            let id = id.map(str::to_owned);
            // All of it is the work's: what the provider says is kept also if whoever caused the question has left.
            let ask = move || {
                // Somebody may have asked while this one waited.
                let found = read(&keys).find(id.as_deref(), clock.now());
                if !write(&keys).due(&found, clock.now()) {
                    return Ok(found);
                }
                match provider.ask() {
                    Ok(set) => {
                        let gone = write(&keys).took(set, clock.now());
                        // Every request looks at the keys: nobody waits for what this frees.
                        drop(gone);
                    }
                    Err(error) => tracing::warn!(%error, "the OpenID provider does not give its keys"),
                }
                drop(asking);
                Ok(read(&keys).find(id.as_deref(), clock.now()))
            };
            found = pool.run(ask).await?;
        }
        match found {
            Found::Key(key) => Ok(key),
            Found::Unknown => Err(Problem::unauthorized("the token names a key that its provider does not have")),
            Found::Never => Err(Problem::of(Kind::Unavailable, "the OpenID provider cannot be asked for its keys")),
        }
    }

    fn check(&self, token: &str, header: &Header, key: &Jwk) -> Result<Good, Problem> {
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
        let caller = Caller { name: self.name(subject), shown, grants: Arc::new(self.grants(&claims)) };
        // The library has looked at them by the system's clock, and refused what is no number.
        let ms = |name: &str| claims.get(name).and_then(Value::as_f64).map(ms);
        let (from, until) = (ms("nbf").unwrap_or(0), ms("exp").unwrap_or(0));
        let leeway = LEEWAY_SECONDS * 1_000;
        let (from_ms, until_ms) = (from.saturating_sub(leeway), until.saturating_add(leeway));
        Ok(Good { caller, from_ms, until_ms, bytes: token.len() })
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

fn read(keys: &RwLock<Keys>) -> RwLockReadGuard<'_, Keys> {
    keys.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(keys: &RwLock<Keys>) -> RwLockWriteGuard<'_, Keys> {
    keys.write().unwrap_or_else(PoisonError::into_inner)
}

/// Milliseconds; more than can be said are for ever, less than none are none.
fn ms(seconds: f64) -> u64 {
    let ms = Duration::try_from_secs_f64(seconds.max(0.0)).map(|it| u64::try_from(it.as_millis()));
    ms.map_or(u64::MAX, |ms| ms.unwrap_or(u64::MAX))
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use assent_world::{Moment, RealClock};
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use jsonwebtoken::jwk::JwkSet;
    use jsonwebtoken::{EncodingKey, encode};
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _};
    use serde_json::json;

    use super::*;
    use crate::crew::Crew;

    const ISSUER: &str = "http://127.0.0.1:9";

    /// The machine's clock, so many seconds ahead.
    #[derive(Debug, Default)]
    struct Ahead(AtomicU64);

    impl Clock for Ahead {
        fn now(&self) -> Moment {
            RealClock.now().after(Duration::from_secs(self.0.load(Ordering::SeqCst)))
        }

        fn wall_ms(&self) -> u64 {
            RealClock.wall_ms() + self.0.load(Ordering::SeqCst) * 1_000
        }

        fn sleep(&self, pause: Duration) {
            RealClock.sleep(pause);
        }

        fn boot_id(&self) -> u128 {
            RealClock.boot_id()
        }
    }

    /// A provider's key, nobody's provider.
    struct Signer(KeyPair);

    impl Signer {
        fn new() -> Self {
            Self(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap())
        }

        fn set(&self) -> JwkSet {
            let point = self.0.der_bytes();
            let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..65]));
            let key = json!({"kty": "EC", "crv": "P-256", "kid": "a", "x": x, "y": y});
            serde_json::from_value(json!({ "keys": [key] })).unwrap()
        }

        /// For five minutes.
        fn token(&self) -> String {
            self.token_for(300)
        }

        fn token_for(&self, seconds: u64) -> String {
            let until = RealClock.wall_ms() / 1_000 + seconds;
            let claims = json!({"iss": ISSUER, "aud": "assent", "sub": "anna", "exp": until, "roles": ["view"]});
            let header = Header { kid: Some("a".to_owned()), ..Header::new(Algorithm::ES256) };
            encode(&header, &claims, &EncodingKey::from_ec_der(&self.0.serialize_der())).unwrap()
        }
    }

    fn oidc(clock: &Arc<Ahead>) -> Oidc {
        let (issuer, audience, roles_claim) = (ISSUER.to_owned(), "assent".to_owned(), "roles".to_owned());
        let config = OidcConfig { issuer, audience, algorithms: vec!["ES256".to_owned()], roles_claim, roots: None };
        Oidc::new(config, clock.clone()).unwrap()
    }

    fn who(oidc: &Oidc, token: &str) -> Result<Caller, Problem> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(oidc.who(token, &Pool::new(1, &Crew::default())))
    }

    #[test]
    fn a_signature_is_checked_once_and_its_token_taken_until_its_time_is_over_or_the_keys_are_others() {
        let (clock, signer) = (Arc::new(Ahead::default()), Signer::new());
        let oidc = oidc(&clock);
        write(&oidc.keys).took(signer.set(), clock.now());
        let (token, other) = (signer.token(), signer.token());
        assert!(oidc.at_once(&token).is_none(), "nobody has looked at it");
        let taken = who(&oidc, &token).unwrap();
        let known = oidc.at_once(&token).unwrap();
        assert_eq!((&known.name, &known.grants), (&taken.name, &taken.grants));
        // Another signature of the same claims, a letter less or more, and what was refused.
        let cut = &token[..token.len() - 1];
        for unknown in [&other, cut, &format!("{token}A"), &"a".repeat(TOKEN_BYTES_MAX + 1)] {
            assert!(oidc.at_once(unknown).is_none(), "{unknown}");
        }
        assert!(who(&oidc, cut).is_err() && oidc.at_once(cut).is_none());
        // The provider has the same keys as before: they have signed what they have signed, and go on.
        assert!(write(&oidc.keys).took(signer.set(), clock.now()).is_none() && oidc.at_once(&token).is_some());
        assert!(who(&oidc, &other).is_ok() && oidc.at_once(&other).is_some());
        // It has others.
        assert!(write(&oidc.keys).took(Signer::new().set(), clock.now()).is_some() && oidc.at_once(&other).is_none());
        assert!(oidc.at_once(&token).is_none() && who(&oidc, &token).is_err() && oidc.at_once(&token).is_none());
    }

    #[test]
    fn a_token_that_is_kept_is_refused_when_its_time_is_over() {
        let (clock, signer) = (Arc::new(Ahead::default()), Signer::new());
        let oidc = oidc(&clock);
        write(&oidc.keys).took(signer.set(), clock.now());
        let token = signer.token();
        assert!(who(&oidc, &token).is_ok());
        // What clocks may differ by is still its time.
        clock.0.store(300, Ordering::SeqCst);
        assert!(oidc.at_once(&token).is_some());
        clock.0.store(300 + LEEWAY_SECONDS + 1, Ordering::SeqCst);
        assert!(oidc.at_once(&token).is_none());
        let refused = who(&oidc, &token).unwrap_err();
        assert!(refused.detail.contains("time is over"), "{}", refused.detail);
        assert!(oidc.at_once(&token).is_none());
    }

    #[test]
    fn while_the_provider_is_away_one_asks_now_and_then_and_all_others_go_on_with_what_is_kept_for_a_day() {
        // Nobody's token was known any more ten minutes after the provider had gone: all took strangers' places, and waited for it.
        let (clock, signer) = (Arc::new(Ahead::default()), Signer::new());
        let oidc = oidc(&clock);
        write(&oidc.keys).took(signer.set(), clock.now());
        let token = signer.token_for(2 * 86_400);
        assert!(who(&oidc, &token).is_ok());
        clock.0.store(590, Ordering::SeqCst);
        assert!(oidc.at_once(&token).is_some());
        for seconds in [602, 613, 86_000] {
            clock.0.store(seconds, Ordering::SeqCst);
            assert!(oidc.at_once(&token).is_none(), "{seconds}: somebody has to ask");
            // He asks where nobody answers.
            assert!(who(&oidc, &token).is_ok() && oidc.at_once(&token).is_some(), "{seconds}");
            clock.0.store(seconds + 5, Ordering::SeqCst);
            assert!(oidc.at_once(&token).is_some(), "{seconds}");
        }
        clock.0.store(86_402, Ordering::SeqCst);
        assert!(who(&oidc, &token).is_err() && oidc.at_once(&token).is_none(), "nothing is believed for longer");
        // It comes back, and the key has gone meanwhile.
        write(&oidc.keys).took(Signer::new().set(), clock.now());
        assert!(oidc.at_once(&token).is_none() && who(&oidc, &token).is_err());
    }

    #[test]
    fn a_token_is_not_kept_with_keys_that_came_while_it_was_looked_at() {
        let (clock, signer) = (Arc::new(Ahead::default()), Signer::new());
        let oidc = oidc(&clock);
        write(&oidc.keys).took(signer.set(), clock.now());
        let (token, keys) = (signer.token(), read(&oidc.keys));
        let Found::Key(key) = keys.find(Some("a"), clock.now()) else { panic!("it is there") };
        drop(keys);
        let header = decode_header(&token).unwrap();
        let good = || oidc.check(&token, &header, &key).unwrap();
        write(&oidc.keys).took(Signer::new().set(), clock.now());
        read(&oidc.keys).keep(&key, digest(token.as_bytes()), good());
        assert!(oidc.at_once(&token).is_none());
    }

    #[test]
    fn seconds_that_no_clock_has_are_for_ever_or_over() {
        assert_eq!([0.0, 1.5, 1e300, f64::MAX].map(ms), [0, 1_500, u64::MAX, u64::MAX]);
        assert_eq!([-0.001, -1.0, f64::MIN, f64::NEG_INFINITY].map(ms), [0; 4]);
    }
}
