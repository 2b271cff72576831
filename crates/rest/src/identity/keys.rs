//! A provider's keys: found by its discovery document, kept, and asked for again when a token names one that is not there.
//!
//! Walk: [`Keys::find`] a key by its id, from memory · [`Keys::is_due`] whether the provider should be asked now · [`Keys::took`]
//! what came back. A provider that cannot be reached is not asked by every request, and what it said stays good for a day.
//! What a key has shown to be good (`checked`) is [`kept`](Keys::keep) with the keys, [`found`](Keys::good) but by the one who
//! has to ask, and goes when the keys are others.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use assent_world::Moment;
use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use super::IdentityError;
use super::checked::{Checked, Good};
use super::sessions::Digest;

/// Asked again after so long, so that a key that the provider has withdrawn goes.
const FRESH: Duration = Duration::from_secs(600);
/// Not asked again sooner, whatever tokens name.
const PAUSE: Duration = Duration::from_secs(10);
/// What a provider said that cannot be asked any more is good for so long.
const STALE: Duration = Duration::from_secs(86_400);
/// The longest document of a provider.
const DOCUMENT_BYTES_MAX: u64 = 1 << 20;
/// The most keys that are looked at.
const KEYS_MAX: usize = 256;
/// How long a provider may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is known of a provider's keys.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    set: Vec<Arc<Jwk>>,
    /// What they have signed.
    checked: Checked,
    /// When the provider last answered.
    told: Option<Moment>,
    /// When it was last asked.
    asked: Option<Moment>,
}

/// A key, or why there is none.
#[derive(Debug)]
pub(crate) enum Found {
    Key(Arc<Jwk>),
    /// The provider has no such key.
    Unknown,
    /// The provider has never answered, or not for too long.
    Never,
}

impl Keys {
    /// The key of this id; without an id, the only key there is.
    pub(crate) fn find(&self, id: Option<&str>, now: Moment) -> Found {
        if self.told.is_none_or(|told| now.since(told) > STALE) {
            return Found::Never;
        }
        let of = |key: &&Arc<Jwk>| id.is_some() && key.common.key_id.as_deref() == id;
        match (id, self.set.as_slice()) {
            (None, [only]) => Found::Key(Arc::clone(only)),
            _ => self.set.iter().find(of).map_or(Found::Unknown, |key| Found::Key(Arc::clone(key))),
        }
    }

    /// Whether the provider should be asked, for a token whose key is this.
    pub(crate) fn is_due(&self, found: &Found, now: Moment) -> bool {
        let is_old = self.told.is_none_or(|told| now.since(told) > FRESH);
        let is_missing = !matches!(found, Found::Key(_));
        (is_old || is_missing) && !self.is_soon(now)
    }

    /// The same; whoever is told yes asks.
    pub(crate) fn due(&mut self, found: &Found, now: Moment) -> bool {
        let due = self.is_due(found, now);
        if due {
            self.asked = Some(now);
        }
        due
    }

    /// Whether it would be asked again too soon.
    fn is_soon(&self, now: Moment) -> bool {
        self.asked.is_some_and(|asked| now.since(asked) < PAUSE)
    }

    /// What came back. Where the keys are others, what the old ones had signed is given out: it is much, and dropped by who holds no lock.
    pub(crate) fn took(&mut self, set: JwkSet, now: Moment) -> Option<Checked> {
        let signs = |key: &Jwk| key.common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature);
        let set: Vec<Jwk> = set.keys.into_iter().filter(signs).take(KEYS_MAX).collect();
        self.told = Some(now);
        // Anybody can make us ask, and mostly the same keys come.
        if self.set.iter().map(Arc::as_ref).eq(&set) {
            return None;
        }
        self.set = set.into_iter().map(Arc::new).collect();
        // Whether a key that is not there any more has signed them, nobody looks.
        Some(std::mem::take(&mut self.checked))
    }

    /// A token that was found good before, by its digest, as long as a key would be found. Where the keys are old the one who is to ask
    /// for them finds none; the others go on with what there is, as they do with a key.
    pub(crate) fn good(&self, token: &Digest, now: Moment) -> Option<Arc<Good>> {
        let age = now.since(self.told?);
        let is_kept = age <= FRESH || (age <= STALE && self.is_soon(now));
        if is_kept { self.checked.find(token) } else { None }
    }

    /// Keeps a token that is good by this key, if the key is still one of these.
    pub(crate) fn keep(&self, key: &Arc<Jwk>, token: Digest, good: Good) {
        if self.set.iter().any(|own| Arc::ptr_eq(own, key)) {
            self.checked.keep(token, good);
        }
    }
}

/// Where a provider is asked.
pub(crate) struct Provider {
    agent: Agent,
    issuer: String,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Provider {
    pub(crate) fn new(issuer: &str, roots: Option<&[u8]>) -> Result<Self, IdentityError> {
        check_url("identity.issuer", issuer).map_err(IdentityError)?;
        let mut certificates: Vec<Certificate<'static>> = Vec::new();
        for item in parse_pem(roots.unwrap_or_default()) {
            match item {
                Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
                Ok(_) => {}
                Err(error) => return Err(IdentityError(format!("identity.ca_file holds no certificates: {error}"))),
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(provider)
            .root_certs(RootCerts::new_with_certs(&certificates))
            .build();
        let config = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .max_redirects(0)
            .http_status_as_error(true)
            .tls_config(tls)
            .build();
        Ok(Self { agent: config.into(), issuer: issuer.to_owned() })
    }

    /// Asks for the keys. Blocks.
    pub(crate) fn ask(&self) -> Result<JwkSet, String> {
        let place = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let Discovery { issuer, jwks_uri } = self.fetch(&place)?;
        // OpenID Connect Discovery, 4.3: the same, or it is somebody else's document.
        if issuer != self.issuer {
            return Err(format!("{place} is of issuer {issuer:?}, not of {:?}", self.issuer));
        }
        check_url("jwks_uri", &jwks_uri)?;
        self.fetch(&jwks_uri)
    }

    fn fetch<T: DeserializeOwned>(&self, url: &str) -> Result<T, String> {
        let said = |error: &dyn std::fmt::Display| format!("{url}: {error}");
        let mut response = self.agent.get(url).call().map_err(|error| said(&error))?;
        let mut bytes = Vec::new();
        let mut body = response.body_mut().as_reader().take(DOCUMENT_BYTES_MAX + 1);
        body.read_to_end(&mut bytes).map_err(|error| said(&error))?;
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > DOCUMENT_BYTES_MAX {
            return Err(said(&format!("longer than {DOCUMENT_BYTES_MAX} bytes")));
        }
        serde_json::from_slice(&bytes).map_err(|error| said(&error))
    }
}

/// Keys come by TLS; without it only from this machine.
fn check_url(name: &str, url: &str) -> Result<(), String> {
    let wrong = || Err(format!("{name} = {url:?}: write https://…; http:// is for loopback alone"));
    let Ok(uri) = url.parse::<axum::http::Uri>() else { return wrong() };
    let is_loopback = uri.host().is_some_and(|host| {
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
        host == "localhost" || address.is_ok_and(|it| it.is_loopback())
    });
    match uri.scheme_str() {
        Some("https") if uri.host().is_some() => Ok(()),
        Some("http") if is_loopback => Ok(()),
        _ => wrong(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: &[&str]) -> JwkSet {
        let key = |id: &&str| serde_json::json!({"kty": "EC", "crv": "P-256", "kid": id, "x": "AA", "y": "AA"});
        serde_json::from_value(serde_json::json!({"keys": ids.iter().map(key).collect::<Vec<_>>()})).unwrap()
    }

    fn at(seconds: u64) -> Moment {
        Moment(0).after(Duration::from_secs(seconds))
    }

    #[test]
    fn a_key_that_is_missing_is_asked_for_but_not_by_every_token_that_names_it() {
        let mut keys = Keys::default();
        let found = keys.find(Some("a"), at(0));
        assert!(matches!(found, Found::Never) && keys.due(&found, at(0)) && !keys.due(&found, at(1)));
        keys.took(set(&["a", "b"]), at(1));
        let found = keys.find(Some("a"), at(2));
        assert!(matches!(found, Found::Key(_)) && !keys.due(&found, at(20)));
        let found = keys.find(Some("c"), at(20));
        assert!(matches!(found, Found::Unknown) && keys.due(&found, at(20)));
        assert!(!keys.due(&found, at(29)) && keys.due(&found, at(30)));
    }

    #[test]
    fn keys_are_asked_for_again_in_time_and_outlive_a_silent_provider_for_a_day() {
        let mut keys = Keys::default();
        keys.took(set(&["a"]), at(0));
        let found = keys.find(Some("a"), at(601));
        assert!(keys.due(&found, at(601)), "a withdrawn key must go");
        assert!(matches!(keys.find(Some("a"), at(86_400)), Found::Key(_)));
        assert!(matches!(keys.find(Some("a"), at(86_401)), Found::Never));
    }

    #[test]
    fn a_token_without_a_key_id_is_for_the_only_key_there_is() {
        let mut keys = Keys::default();
        keys.took(set(&["a"]), at(0));
        assert!(matches!(keys.find(None, at(1)), Found::Key(_)));
        keys.took(set(&["a", "b"]), at(1));
        assert!(matches!(keys.find(None, at(1)), Found::Unknown));
    }

    #[test]
    fn keys_travel_encrypted_or_not_at_all() {
        for fine in ["https://id.example/realms/a", "http://127.0.0.1:80/x", "http://localhost:1", "http://[::1]:1/x"] {
            assert_eq!(check_url("issuer", fine), Ok(()), "{fine}");
        }
        for wrong in ["http://id.example", "ftp://127.0.0.1", "", "https://", "127.0.0.1", "http://127.0.0.1.example"] {
            assert!(check_url("issuer", wrong).is_err(), "{wrong}");
        }
    }
}
