//! What callers may take: bytes of a body, depth of JSON, time, requests at a time and in a second.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use assent_door::Limits;
use assent_rest::Settings;

use crate::house::{Rules, bearer, house, user};

#[test]
fn a_body_is_taken_up_to_its_limit_and_one_byte_beyond_it_is_413_also_if_its_length_is_not_told() {
    let settings = Settings { body_bytes_max: 1_024, ..Settings::default() };
    let house = house(Rules { settings, ..Rules::default() });
    let put = |bytes: usize| house.ask("PUT", "/v1/keys/0/a", &[], &vec![b'x'; bytes]).status;
    assert_eq!((put(1_024), put(1_025)), (204, 413));
    let mut stream = TcpStream::connect(house.rest.address()).unwrap();
    let head =
        "PUT /v1/keys/0/b HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    for _ in 0..40 {
        if stream.write_all(b"20\r\n01234567890123456789012345678901\r\n").is_err() {
            break;
        }
    }
    _ = stream.write_all(b"0\r\n\r\n");
    let mut answer = String::new();
    _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(house.get("/v1/keys/0/b").status, 404);
}

#[test]
fn json_that_is_too_deep_is_refused_and_not_followed() {
    let house = house(Rules::default());
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(house.post("/v1/transactions", &deep).status, 400);
    let deep = format!("{{\"writes\":{deep}}}");
    let tx = house.post("/v1/transactions", "").json()["tx"].as_str().unwrap().to_owned();
    assert_eq!(house.post(&format!("/v1/transactions/{tx}/writes"), &deep).status, 400);
}

#[test]
fn a_body_that_does_not_come_ends_with_its_time_and_frees_its_place() {
    let limits = Limits { partial_frame_ms: 60_000, ..Limits::default() };
    let settings = Settings { limits, request_ms: 1_000, requests_max: 1, ..Settings::default() };
    let house = house(Rules { settings, ..Rules::default() });
    let mut slow = TcpStream::connect(house.rest.address()).unwrap();
    slow.write_all(b"PUT /v1/keys/0/a HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5\r\nconnection: close\r\n\r\n12")
        .unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 504") && answer.contains("\"kind\":\"in_doubt\""), "{answer}");
    assert_eq!(house.get("/v1/keys/0/a").status, 404);
}

#[test]
fn one_request_more_than_there_are_places_is_told_to_come_back_and_health_is_told_all_the_same() {
    let limits = Limits { partial_frame_ms: 60_000, ..Limits::default() };
    let settings = Settings { limits, request_ms: 60_000, requests_max: 1, ..Settings::default() };
    let house = house(Rules { settings, ..Rules::default() });
    let begin = || {
        let mut slow = TcpStream::connect(house.rest.address()).unwrap();
        slow.write_all(
            b"PUT /v1/keys/0/a HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5\r\nconnection: close\r\n\r\n12",
        )
        .unwrap();
        slow.set_nonblocking(true).unwrap();
        slow
    };
    let mut slow = begin();
    let until = std::time::Instant::now() + Duration::from_secs(60);
    let full = loop {
        let answer = house.get("/v1/version");
        if answer.status == 503 {
            break answer;
        }
        // Two threads serve: the other request may have had the place, and the slow one was told to come back.
        if slow.peek(&mut [0]).is_ok() {
            slow = begin();
        }
        assert!(std::time::Instant::now() < until, "the place is never taken");
    };
    slow.set_nonblocking(false).unwrap();
    assert_eq!((full.header("retry-after").as_deref(), full.json()["kind"].clone()), (Some("1"), "unavailable".into()));
    // Strangers have places of their own, and take none of those who are known.
    for path in ["/health", "/metrics", "/openapi.json", "/swagger-ui/"] {
        assert_eq!(house.get(path).status, 200, "{path}");
    }
    slow.write_all(b"345").unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert_eq!(house.get("/v1/version").status, 200);
}

#[test]
fn who_asks_too_often_waits_and_nobody_else_does() {
    let settings = Settings { requests_per_second: 2, ..Settings::default() };
    let users = vec![user("anna", "a", &["view"]), user("bert", "b", &["view"])];
    let house = house(Rules { settings, users: Some(users), ..Rules::default() });
    let (anna, bert) = (bearer(&house.token("anna", "a")), bearer(&house.token("bert", "b")));
    let ask = |who: &str| house.ask("GET", "/v1/version", &[("authorization", who)], b"");
    // A loaded machine may take a while for them; then one more is due.
    let refused = (0..100).map(|_| ask(&anna)).find(|answer| answer.status == 429).expect("nobody is slowed down");
    assert_eq!((refused.header("retry-after").as_deref(), refused.json()["kind"].clone()), (Some("1"), "busy".into()));
    assert_eq!(ask(&bert).status, 200);
    house.clock.by(Duration::from_secs(1));
    assert_eq!(ask(&anna).status, 200);
}
