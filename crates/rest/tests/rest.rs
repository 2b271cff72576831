//! Real requests over loopback.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "helpers of tests speak to the listener as strangers do"
)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use assent_door::{Check, Health, Limits, Metrics, listen_address};
use assent_kind::Kind;
use assent_rest::{Rest, RestError};

struct House {
    rest: Rest,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
}

fn house(limits: Limits) -> House {
    let (metrics, health) = (Arc::new(Metrics::default()), Arc::new(Health::default()));
    let any = listen_address("admin.listen", "127.0.0.1:0", false).unwrap();
    let rest = Rest::start(&any, limits, Arc::clone(&metrics), Arc::clone(&health)).unwrap();
    House { rest, metrics, health }
}

fn request(method: &str, address: SocketAddr, path: &str) -> (u16, String, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(10)))
        .build()
        .into();
    let uri = format!("http://{address}{path}");
    let mut response = match method {
        "POST" => agent.post(&uri).send("x").unwrap(),
        _ => agent.get(&uri).call().unwrap(),
    };
    let kind = response.headers().get("content-type").map(|value| value.to_str().unwrap().to_owned());
    (response.status().as_u16(), kind.unwrap_or_default(), response.body_mut().read_to_string().unwrap())
}

fn get(address: SocketAddr, path: &str) -> (u16, String, String) {
    request("GET", address, path)
}

#[test]
fn health_is_200_while_it_works_and_503_when_a_part_does_not() {
    let house = house(Limits::default());
    let at = house.rest.address();
    let json = "application/json".to_owned();
    assert_eq!(get(at, "/health"), (200, json.clone(), r#"{"checks":{},"state":"ok"}"#.to_owned()));
    house.health.watch("coordinator", || Check::degraded("1 heuristic outcome waits for a person"));
    let degraded = r#"{"checks":{"coordinator":{"message":"1 heuristic outcome waits for a person","state":"degraded"}},"state":"degraded"}"#;
    assert_eq!(get(at, "/health"), (200, json, degraded.to_owned()));
    house.health.watch("kv", || Check::failed("the journal is closed"));
    let (status, _, body) = get(at, "/health");
    assert_eq!(status, 503);
    assert!(body.contains(r#""kv":{"message":"the journal is closed","state":"failed"}"#), "{body}");
    assert!(body.ends_with(r#""state":"failed"}"#), "{body}");
}

#[test]
fn metrics_are_open_metrics_text_and_sampled_at_the_scrape() {
    let house = house(Limits::default());
    let decisions = house.metrics.counter("decisions", Some(("outcome", "committed")), "Decisions made");
    decisions.inc_by(41);
    let before = get(house.rest.address(), "/metrics");
    decisions.inc();
    let (status, kind, text) = get(house.rest.address(), "/metrics");
    assert_eq!((status, kind.as_str()), (200, "application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert!(before.2.contains("assent_decisions_total{outcome=\"committed\"} 41\n"), "{}", before.2);
    assert!(text.contains("assent_decisions_total{outcome=\"committed\"} 42\n"), "{text}");
    assert!(text.contains("assent_http_connections ") && text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn an_unknown_path_and_a_wrong_method_are_answered_with_a_kind_and_a_sentence() {
    let house = house(Limits::default());
    let (status, kind, body) = get(house.rest.address(), "/nowhere?a=b");
    assert_eq!((status, kind.as_str()), (404, "application/json"));
    assert_eq!(
        body,
        r#"{"error":{"kind":"not_found","message":"no path \"/nowhere\"; there are /health and /metrics"}}"#
    );
    let (status, _, body) = request("POST", house.rest.address(), "/health");
    assert_eq!(status, 405);
    assert_eq!(body, r#"{"error":{"kind":"invalid","message":"POST /health; only GET is served there"}}"#);
}

#[test]
fn a_silent_peer_keeps_its_place_only_for_so_long() {
    // One place. Who holds it says half a line and falls silent; the next is served as soon as patience has ended.
    let house = house(Limits { connections_max: 1, partial_frame_ms: 50, ..Limits::default() });
    let mut silent = TcpStream::connect(house.rest.address()).unwrap();
    silent.write_all(b"GET /hea").unwrap();
    assert_eq!(get(house.rest.address(), "/health").0, 200);
    let mut rest = Vec::new();
    // Closed, with or without a last word; never kept.
    _ = silent.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
}

#[test]
fn a_peer_that_drips_bytes_does_not_keep_its_place_either() {
    let house = house(Limits { connections_max: 1, partial_frame_ms: 50, ..Limits::default() });
    let address = house.rest.address();
    let mut slow = TcpStream::connect(address).unwrap();
    let served = std::thread::spawn(move || get(address, "/health").0);
    // Each byte is new; the whole request never comes. Writing fails once the listener has closed.
    while !served.is_finished() {
        if slow.write_all(b"G").is_err() {
            break;
        }
    }
    assert_eq!(served.join().unwrap(), 200);
}

#[test]
fn garbage_harms_only_its_own_connection() {
    let house = house(Limits { partial_frame_ms: 200, ..Limits::default() });
    for garbage in [&b"\x00\xff\xfe\x01 nonsense\r\n\r\n"[..], b"GET / HTTP/9.9\r\n\r\n", &[b'A'; 100_000]] {
        let mut stream = TcpStream::connect(house.rest.address()).unwrap();
        _ = stream.write_all(garbage);
        _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer);
        assert_eq!(get(house.rest.address(), "/health").0, 200);
    }
}

#[test]
fn a_stop_is_bounded_although_somebody_never_finishes_his_request() {
    let house = house(Limits { partial_frame_ms: 3_600_000, ..Limits::default() });
    let address = house.rest.address();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(b"GET /health HTTP/1.1\r\n").unwrap();
    assert_eq!(get(address, "/health").0, 200);
    house.rest.stop(Duration::from_millis(20));
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
    let mut rest = Vec::new();
    _ = half.read_to_end(&mut rest);
    assert!(rest.is_empty());
}

#[test]
fn a_taken_address_is_said() {
    let house = house(Limits::default());
    let address = house.rest.address();
    let refused = Rest::start(&address.into(), Limits::default(), Arc::default(), Arc::default()).unwrap_err();
    assert!(matches!(refused, RestError::Listen { .. }));
    assert_eq!(refused.kind(), Kind::Unavailable);
    assert!(refused.to_string().contains(&address.to_string()), "{refused}");
}
