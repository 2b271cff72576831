//! TLS: the certificate that was given, another one while it serves, and nothing for whoever does not shake hands.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use assent_door::Limits;
use assent_rest::{Certificates, Settings};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::house::{House, Rules, house};

struct Pair {
    chain: String,
    key: String,
}

fn pair() -> Pair {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    Pair { chain: cert.pem(), key: signing_key.serialize_pem() }
}

fn trusting(pair: &Pair) -> Agent {
    let root = Certificate::from_pem(pair.chain.as_bytes()).unwrap();
    let tls = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .root_certs(RootCerts::new_with_certs(&[root]))
        .build();
    let limit = Some(Duration::from_secs(60));
    Agent::config_builder().timeout_global(limit).tls_config(tls).http_status_as_error(false).build().into()
}

fn asked(house: &House, agent: &Agent) -> Result<u16, String> {
    let url = format!("https://localhost:{}/health", house.rest.address().port());
    agent.get(&url).call().map(|answer| answer.status().as_u16()).map_err(|error| error.to_string())
}

fn secured(pair: &Pair, limits: Limits) -> (House, Arc<Certificates>) {
    let certificates = Arc::new(Certificates::new(pair.chain.as_bytes(), pair.key.as_bytes()).unwrap());
    let settings = Settings { limits, ..Settings::default() };
    (house(Rules { settings, certificates: Some(certificates.clone()), ..Rules::default() }), certificates)
}

#[test]
fn a_client_that_trusts_the_certificate_is_served_and_another_one_is_shown_while_it_serves() {
    let (first, second) = (pair(), pair());
    let (house, certificates) = secured(&first, Limits::default());
    assert_eq!(asked(&house, &trusting(&first)), Ok(200));
    assert!(asked(&house, &trusting(&second)).is_err(), "a certificate that nobody vouches for");
    certificates.replace(second.chain.as_bytes(), second.key.as_bytes()).unwrap();
    assert_eq!(asked(&house, &trusting(&second)), Ok(200));
    assert!(asked(&house, &trusting(&first)).is_err());
    // A pair that does not belong together changes nothing.
    assert!(certificates.replace(first.chain.as_bytes(), second.key.as_bytes()).is_err());
    assert_eq!(asked(&house, &trusting(&second)), Ok(200));
}

#[test]
fn what_is_no_certificate_or_no_key_is_named() {
    let pair = pair();
    let wrong = |chain: &str, key: &str| Certificates::new(chain.as_bytes(), key.as_bytes()).unwrap_err().to_string();
    assert!(wrong("", &pair.key).contains("tls.certificate"), "{}", wrong("", &pair.key));
    assert!(wrong(&pair.chain, "").contains("tls.key"));
    assert!(wrong(&pair.chain, &self::pair().key).contains("do not work together"));
}

#[test]
fn a_stranger_who_speaks_no_tls_or_nothing_at_all_keeps_no_place() {
    let pair = pair();
    let (house, _) = secured(&pair, Limits { connections_max: 1, partial_frame_ms: 50, ..Limits::default() });
    let mut plain = TcpStream::connect(house.rest.address()).unwrap();
    plain.write_all(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1 200"));
    let mut silent = TcpStream::connect(house.rest.address()).unwrap();
    // It has the one place, and says nothing; the listener ends it.
    assert_eq!(silent.read(&mut [0_u8; 1]).unwrap_or(0), 0);
    drop((plain, silent));
    // Patience is short here, for a handshake on a loaded machine too: asked until one is quick enough.
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while asked(&house, &trusting(&pair)) != Ok(200) {
        assert!(std::time::Instant::now() < until, "nobody is served any more");
    }
}
