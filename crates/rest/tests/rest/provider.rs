//! An OpenID provider of the test's own: its documents, its keys, and tokens as an honest one and a forger make them.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use assent_rest::{Identity, OidcConfig, Settings};
use assent_world::{Clock as _, RealClock};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _};
use serde_json::{Value, json};

use crate::house::{Ahead, House, Rules, house_of};

struct Provider {
    address: SocketAddr,
    keys: Arc<Mutex<Vec<Value>>>,
    /// How often the keys were fetched.
    fetched: Arc<AtomicU32>,
    /// How often somebody came.
    came: Arc<AtomicU32>,
    /// Held by a test, nobody is answered.
    hold: Arc<Mutex<()>>,
    /// What it says that it is called.
    issuer: Arc<Mutex<String>>,
}

impl Provider {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let issuer = Arc::new(Mutex::new(format!("http://{address}")));
        let provider = Self {
            address,
            keys: Arc::default(),
            fetched: Arc::default(),
            came: Arc::default(),
            hold: Arc::default(),
            issuer,
        };
        let (keys, fetched, issuer) = (provider.keys.clone(), provider.fetched.clone(), provider.issuer.clone());
        let (came, hold) = (provider.came.clone(), provider.hold.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                came.fetch_add(1, Ordering::SeqCst);
                drop(hold.lock().unwrap());
                let mut line = String::new();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                reader.read_line(&mut line).unwrap();
                let mut header = String::new();
                while reader.read_line(&mut header).is_ok_and(|bytes| bytes > 2) {
                    header.clear();
                }
                let body = if line.contains("/.well-known/openid-configuration") {
                    json!({"issuer": *issuer.lock().unwrap(), "jwks_uri": format!("http://{address}/keys")})
                } else {
                    fetched.fetch_add(1, Ordering::SeqCst);
                    json!({"keys": *keys.lock().unwrap()})
                };
                let body = body.to_string();
                let bytes = body.len();
                _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\nconnection: close\r\n\r\n{body}");
            }
        });
        provider
    }

    fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    fn show(&self, keys: &[&Key]) {
        *self.keys.lock().unwrap() = keys.iter().map(|key| key.public()).collect();
    }

    fn fetched(&self) -> u32 {
        self.fetched.load(Ordering::SeqCst)
    }
}

struct Key {
    id: &'static str,
    pair: KeyPair,
}

impl Key {
    fn new(id: &'static str) -> Self {
        Self { id, pair: KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap() }
    }

    fn public(&self) -> Value {
        // An uncompressed point: 4, x, y.
        let point = self.pair.der_bytes();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..65]));
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id, "x": x, "y": y})
    }

    /// A token that names the key of this id.
    fn token(&self, id: &str, claims: &Value) -> String {
        let header = Header { kid: Some(id.to_owned()), ..Header::new(Algorithm::ES256) };
        encode(&header, claims, &EncodingKey::from_ec_der(&self.pair.serialize_der())).unwrap()
    }

    fn signs(&self, claims: &Value) -> String {
        self.token(self.id, claims)
    }
}

fn claims(provider: &Provider) -> Value {
    let now = RealClock.wall_ms() / 1_000;
    json!({
        "iss": provider.issuer(), "aud": ["other", "assent"], "sub": "f3a1", "preferred_username": "anna",
        "exp": now + 300, "nbf": now - 10, "realm_access": {"roles": ["view", "offline_access"]},
    })
}

fn served(provider: &Provider) -> House {
    served_by(provider, Rules::default())
}

fn served_by(provider: &Provider, rules: Rules) -> House {
    let clock = Arc::new(Ahead::default());
    let config = OidcConfig {
        issuer: provider.issuer(),
        audience: "assent".to_owned(),
        algorithms: vec!["ES256".to_owned(), "RS256".to_owned()],
        roles_claim: "realm_access.roles".to_owned(),
        roots: None,
    };
    let identity = Identity::oidc(config, clock.clone()).unwrap();
    house_of(rules, identity, clock)
}

fn status(house: &House, token: &str) -> u16 {
    house.ask("GET", "/v1/version", &[("authorization", &format!("Bearer {token}"))], b"").status
}

fn changed(claims: &Value, name: &str, value: Value) -> Value {
    let mut other = claims.clone();
    other[name] = value;
    other
}

#[test]
fn a_token_of_the_provider_is_taken_with_the_roles_it_has_and_the_keys_are_asked_for_once() {
    let (provider, key) = (Provider::start(), Key::new("a"));
    provider.show(&[&key]);
    let house = served(&provider);
    let token = key.signs(&claims(&provider));
    assert_eq!((status(&house, &token), status(&house, &token)), (200, 200));
    assert_eq!(provider.fetched(), 1);
    let bearer = format!("Bearer {token}");
    let refused = house.ask("GET", "/v1/config", &[("authorization", &bearer)], b"");
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("#f3a1\\\" may not do this: it takes the role admin"), "{}", refused.text());
    // Its own endpoint gives no tokens, and says who does.
    let asked = house.post("/token", r#"{"username":"anna","password":"x","grant_type":"password"}"#);
    assert_eq!(asked.status, 400);
    assert!(asked.text().contains(&provider.issuer()), "{}", asked.text());
}

#[test]
fn a_token_that_is_not_for_us_not_from_them_or_not_of_now_is_refused() {
    let (provider, key) = (Provider::start(), Key::new("a"));
    provider.show(&[&key]);
    let house = served(&provider);
    let good = claims(&provider);
    let now = RealClock.wall_ms() / 1_000;
    assert_eq!(status(&house, &key.signs(&good)), 200);
    for (name, value) in [
        ("exp", json!(now - 60)),
        ("nbf", json!(now + 600)),
        ("aud", json!("other")),
        ("aud", json!(["other"])),
        ("iss", json!("http://127.0.0.1:1")),
        ("iss", json!(format!("{}/", provider.issuer()))),
        ("sub", Value::Null),
        ("exp", Value::Null),
        ("aud", Value::Null),
    ] {
        assert_eq!(status(&house, &key.signs(&changed(&good, name, value.clone()))), 401, "{name} = {value}");
    }
    // Without roles he is known, and may do nothing.
    let nothing = key.signs(&changed(&good, "realm_access", json!({"roles": "no list"})));
    assert_eq!(status(&house, &nothing), 403);
}

#[test]
fn no_forged_token_is_taken_unsigned_by_another_key_under_a_known_name_or_by_the_public_key_as_a_secret() {
    let (provider, key, other, stranger) = (Provider::start(), Key::new("a"), Key::new("b"), Key::new("a"));
    provider.show(&[&key, &other]);
    let house = served(&provider);
    let good = claims(&provider);
    assert_eq!(status(&house, &key.signs(&good)), 200);
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    for algorithm in ["none", "None", "NONE", ""] {
        let unsigned = format!("{}.{}.", part(&json!({"alg": algorithm, "kid": "a"})), part(&good));
        assert_eq!(status(&house, &unsigned), 401, "{algorithm}");
    }
    // Signed by one key under the name of the other; by a stranger under a known name; under a name that is no key's.
    assert_eq!(status(&house, &key.token("b", &good)), 401);
    assert_eq!(status(&house, &stranger.signs(&good)), 401);
    assert_eq!(status(&house, &key.token("c", &good)), 401);
    // The public key is known to all: as a shared secret it must sign nothing.
    let header = Header { kid: Some("a".to_owned()), ..Header::new(Algorithm::HS256) };
    let forged = encode(&header, &good, &EncodingKey::from_secret(key.pair.der_bytes())).unwrap();
    assert_eq!(status(&house, &forged), 401);
    // An algorithm that is on the list and not the key's.
    let mut token = part(&json!({"alg": "RS256", "kid": "a"}));
    token.push_str(&format!(".{}.{}", part(&good), URL_SAFE_NO_PAD.encode([1_u8; 256])));
    assert_eq!(status(&house, &token), 401);
    // A signed one with another's claims, cut short, and far too long.
    let signed = key.signs(&good);
    let pieces: Vec<&str> = signed.split('.').collect();
    let admin = part(&changed(&good, "realm_access", json!({"roles": ["admin"]})));
    assert_eq!(status(&house, &format!("{}.{admin}.{}", pieces[0], pieces[2])), 401);
    assert_eq!(status(&house, &signed[..signed.len() - 4]), 401);
    assert_eq!(status(&house, &"a".repeat(20_000)), 401);
}

#[test]
fn a_new_key_of_the_provider_is_found_a_withdrawn_one_goes_and_strangers_do_not_make_us_ask_all_the_time() {
    let (provider, old, new) = (Provider::start(), Key::new("old"), Key::new("new"));
    provider.show(&[&old]);
    let house = served(&provider);
    let good = changed(&claims(&provider), "exp", json!(RealClock.wall_ms() / 1_000 + 86_400));
    // The same token each time: that it was good does not make it good.
    let by_old = old.signs(&good);
    assert_eq!((status(&house, &by_old), status(&house, &by_old)), (200, 200));
    provider.show(&[&new]);
    for _ in 0..5 {
        assert_eq!(status(&house, &new.signs(&good)), 401, "asked a moment ago");
    }
    assert_eq!(provider.fetched(), 1);
    house.clock.by(Duration::from_secs(11));
    assert_eq!((status(&house, &new.signs(&good)), status(&house, &by_old)), (200, 401));
    assert_eq!(provider.fetched(), 2);
    // Nobody names the withdrawn key by mistake for ten minutes: it goes all the same.
    provider.show(&[&old, &new]);
    house.clock.by(Duration::from_secs(700));
    assert_eq!((status(&house, &new.signs(&good)), status(&house, &by_old)), (200, 200));
    provider.show(&[&new]);
    house.clock.by(Duration::from_secs(700));
    assert_eq!((status(&house, &by_old), provider.fetched()), (401, 4));
}

#[test]
fn a_token_that_was_good_is_asked_for_its_time_each_time_and_says_nothing_for_one_that_is_like_it() {
    let (provider, key, stranger) = (Provider::start(), Key::new("a"), Key::new("a"));
    provider.show(&[&key]);
    let house = served(&provider);
    let good = claims(&provider);
    let (token, forged) = (key.signs(&good), stranger.signs(&good));
    assert_eq!((status(&house, &token), status(&house, &token)), (200, 200));
    let (said, _) = token.rsplit_once('.').unwrap();
    let (_, signature) = forged.rsplit_once('.').unwrap();
    assert_eq!(status(&house, &format!("{said}.{signature}")), 401);
    assert_eq!((status(&house, &format!("{token}A")), status(&house, &token[..token.len() - 1])), (401, 401));
    // Its five minutes, and half a minute that clocks may differ by.
    house.clock.by(Duration::from_secs(300));
    assert_eq!(status(&house, &token), 200);
    house.clock.by(Duration::from_secs(31));
    assert_eq!((status(&house, &token), provider.fetched()), (401, 1));
}

/// Waits, for a minute at most.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn what_the_provider_says_is_kept_although_whoever_made_us_ask_has_left() {
    let (provider, key) = (Provider::start(), Key::new("a"));
    provider.show(&[&key]);
    let house = served(&provider);
    let held = provider.hold.lock().unwrap();
    let mut stranger = TcpStream::connect(house.rest.address()).unwrap();
    let token = key.token("x", &claims(&provider));
    let head = format!("GET /v1/version HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\n\r\n");
    stranger.write_all(head.as_bytes()).unwrap();
    until("the provider is never asked", || provider.came.load(Ordering::SeqCst) > 0);
    drop(stranger);
    let alone = "assent_http_requests_under_way{listener=\"admin\"} 1\n";
    until("a request goes on whose caller has left", || house.get("/metrics").text().contains(alone));
    drop(held);
    // Nobody may ask again for ten seconds, and nobody has to.
    assert_eq!(status(&house, &key.signs(&claims(&provider))), 200);
    assert_eq!(provider.fetched(), 1);
}

#[test]
fn a_short_document_in_memory_is_read_although_no_thread_that_may_block_is_free() {
    let (provider, key) = (Provider::start(), Key::new("a"));
    provider.show(&[&key]);
    // One for readers, one for writers.
    let settings = Settings { threads: 2, ..Settings::default() };
    let house = served_by(&provider, Rules { settings, ..Rules::default() });
    let claims = changed(&claims(&provider), "realm_access", json!({"roles": ["view", "create"]}));
    let known = format!("Bearer {}", key.signs(&claims));
    let ask = |method: &str, body: &str| house.docs(method, "/db/doc", &[("authorization", &known)], body);
    assert_eq!((ask("PUT", "[1]").status, ask("GET", "").text().as_str()), (201, "[1]"));
    // A key that nobody knows makes the reader's thread ask the provider, who says nothing.
    house.clock.by(Duration::from_secs(11));
    let (held, came) = (provider.hold.lock().unwrap(), provider.came.load(Ordering::SeqCst));
    let mut stranger = TcpStream::connect(house.docs_address()).unwrap();
    let token = key.token("x", &claims);
    let head = format!("GET /db/doc HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\n\r\n");
    stranger.write_all(head.as_bytes()).unwrap();
    until("the provider is never asked", || provider.came.load(Ordering::SeqCst) > came);
    let told = ask("GET", "");
    assert_eq!((told.status, told.text().as_str()), (200, "[1]"));
    stranger.set_nonblocking(true).unwrap();
    assert!(stranger.peek(&mut [0]).is_err(), "the thread is free again: the provider is waited for no longer");
    drop(held);
}

#[test]
fn what_is_mine_goes_by_who_the_provider_says_i_am_and_not_by_what_i_like_to_be_called() {
    let (provider, key) = (Provider::start(), Key::new("a"));
    provider.show(&[&key]);
    let house = served(&provider);
    let good = changed(&claims(&provider), "realm_access", json!({"roles": ["view", "modify"]}));
    let by = |claims: &Value, method: &str, path: &str| {
        let token = format!("Bearer {}", key.signs(claims));
        house.ask(method, path, &[("authorization", &token)], b"")
    };
    let begun = by(&good, "POST", "/v1/transactions");
    assert_eq!(begun.status, 201, "{}", begun.text());
    let tx = begun.json()["tx"].as_str().unwrap().to_owned();
    // Another person with the same name, or with Anna's subject for a name, or with her whole name for one.
    let mallory = changed(&good, "sub", json!("6666"));
    let whole = format!("{}#f3a1", provider.issuer());
    for name in ["anna", "f3a1", &whole] {
        let mallory = changed(&mallory, "preferred_username", json!(name));
        assert_eq!(by(&mallory, "POST", &format!("/v1/transactions/{tx}/commit")).status, 404, "{name}");
    }
    // Anna is Anna under any name.
    let renamed = changed(&good, "preferred_username", json!("anna-maria"));
    assert_eq!(by(&renamed, "POST", &format!("/v1/transactions/{tx}/commit")).status, 200);
}

#[test]
fn a_provider_that_cannot_be_asked_or_says_that_it_is_another_one_lets_nobody_in() {
    let (provider, key) = (Provider::start(), Key::new("a"));
    provider.show(&[&key]);
    *provider.issuer.lock().unwrap() = "http://127.0.0.1:9/realm".to_owned();
    let house = served(&provider);
    let token = key.signs(&claims(&provider));
    let answer = house.ask("GET", "/v1/version", &[("authorization", &format!("Bearer {token}"))], b"");
    assert_eq!((answer.status, answer.header("retry-after").is_some()), (503, true));
    assert_eq!(house.get("/health").status, 200);
    *provider.issuer.lock().unwrap() = provider.issuer();
    house.clock.by(Duration::from_secs(11));
    assert_eq!(status(&house, &token), 200);
}

#[test]
fn a_configuration_that_could_let_anybody_in_is_refused() {
    let config = |issuer: &str, algorithm: &str| OidcConfig {
        issuer: issuer.to_owned(),
        audience: "assent".to_owned(),
        algorithms: vec![algorithm.to_owned()],
        roles_claim: "roles".to_owned(),
        roots: None,
    };
    let refused = |issuer: &str, algorithm: &str| {
        Identity::oidc(config(issuer, algorithm), Arc::new(RealClock)).unwrap_err().to_string()
    };
    for algorithm in ["none", "HS256", "HS512", "es256", ""] {
        assert!(refused("https://id.example", algorithm).contains("identity.algorithms"), "{algorithm}");
    }
    assert!(refused("http://id.example", "ES256").contains("identity.issuer"));
}
