//! The listener itself: health and metrics for whoever asks, words for what is not there, silence, garbage, the end.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use assent_door::{Check, Limits, listen_address};
use assent_kind::Kind;
use assent_rest::{RestError, Settings};

use crate::house::{Answer, House, Rules, ask_at, house};

fn limited(limits: Limits) -> House {
    house(Rules { settings: Settings { limits, ..Settings::default() }, ..Rules::default() })
}

fn told(answer: &Answer) -> (u16, String, String) {
    (answer.status, answer.header("content-type").unwrap_or_default(), answer.text())
}

#[test]
fn health_is_200_while_it_works_and_503_when_a_part_does_not() {
    let house = house(Rules::default());
    let json = "application/json".to_owned();
    assert_eq!(told(&house.get("/health")), (200, json.clone(), r#"{"checks":{},"state":"ok"}"#.to_owned()));
    house.health.watch("coordinator", || Check::degraded("1 heuristic outcome waits for a person"));
    let degraded = r#"{"checks":{"coordinator":{"message":"1 heuristic outcome waits for a person","state":"degraded"}},"state":"degraded"}"#;
    assert_eq!(told(&house.get("/health")), (200, json, degraded.to_owned()));
    assert_eq!(house.get("/v1/health/ready").status, 200);
    house.health.watch("kv", || Check::failed("the journal is closed"));
    let (status, _, body) = told(&house.get("/health"));
    assert_eq!((status, house.get("/v1/health/ready").status, house.get("/v1/health/live").status), (503, 503, 200));
    assert!(body.contains(r#""kv":{"message":"the journal is closed","state":"failed"}"#), "{body}");
    assert!(body.ends_with(r#""state":"failed"}"#), "{body}");
}

#[test]
fn metrics_are_open_metrics_text_and_sampled_at_the_scrape() {
    let house = house(Rules::default());
    let decisions = house.metrics.counter("decisions", Some(("outcome", "committed")), "Decisions made");
    decisions.inc_by(41);
    let before = told(&house.get("/metrics"));
    decisions.inc();
    let (status, kind, text) = told(&house.get("/metrics"));
    assert_eq!((status, kind.as_str()), (200, "application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert!(before.2.contains("assent_decisions_total{outcome=\"committed\"} 41\n"), "{}", before.2);
    assert!(text.contains("assent_decisions_total{outcome=\"committed\"} 42\n"), "{text}");
    assert!(text.contains("assent_http_connections{listener=\"admin\"} ") && text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn what_goes_wrong_is_a_problem_detail_that_older_clients_can_read_too() {
    let house = house(Rules::default());
    let answer = house.ask("GET", "/nowhere?secret=b", &[("x-request-id", "mine-1")], b"");
    assert_eq!((answer.status, answer.header("content-type").unwrap().as_str()), (404, "application/problem+json"));
    assert_eq!(answer.header("x-request-id").as_deref(), Some("mine-1"));
    let expected = serde_json::json!({
        "type": "urn:assent:problem:not_found", "title": "Not Found", "status": 404, "statusCode": 404,
        "detail": "no path \"/nowhere\"", "message": "no path \"/nowhere\"", "instance": "/nowhere",
        "kind": "not_found", "requestId": "mine-1",
    });
    assert_eq!(answer.json(), expected);
    let answer = house.post("/health", "x");
    assert_eq!((answer.status, answer.json()["kind"].clone()), (405, "invalid".into()));
    assert_eq!(answer.header("allow").as_deref(), Some("GET,HEAD"));
    let (bytes, head) = (house.get("/nowhere").body.len(), house.ask("HEAD", "/nowhere", &[], b""));
    assert_eq!((head.status, head.body.len(), head.header("content-length")), (404, 0, Some(bytes.to_string())));
    // A name that could be mistaken for something else is not taken over, and each request has another one.
    let own =
        |given: &str| house.ask("GET", "/nowhere", &[("x-request-id", given)], b"").header("x-request-id").unwrap();
    let (one, other, long) = (own("a b\tc"), own(""), own(&"a".repeat(65)));
    assert!(one.len() == 16 && other.len() == 16 && long.len() == 16 && one != other, "{one} {other} {long}");
}

/// RFC 9110, 8.6: a length in an answer to HEAD is that which GET would have. It was 0.
#[test]
fn who_asks_for_what_is_told_beside_a_document_is_told_no_wrong_length() {
    let house = house(Rules::default());
    assert_eq!(house.docs("PUT", "/db/doc", &[], "[1,2]").status, 201);
    assert_eq!(house.docs("PUT", "/db/doc", &[], "[1,2,3]").status, 200);
    let range = "/db/doc?start-revision=1&end-revision=2";
    for path in ["/db/doc", "/db/doc?revision=1", "/db/doc?tag=none", range, "/db/doc?path=$[0]", "/db", "/", "/health"]
    {
        let (get, head) = (house.docs("GET", path, &[], ""), house.docs("HEAD", path, &[], ""));
        assert_eq!((head.status, head.header("etag"), head.body.len()), (get.status, get.header("etag"), 0), "{path}");
        let is_right = head.header("content-length").is_none_or(|length| length == get.body.len().to_string());
        assert!(is_right, "{path}: {:?} of {}", head.header("content-length"), get.body.len());
    }
    // What is known to be empty is told so.
    assert_eq!(house.ask("PUT", "/v1/keys/0/empty", &[], b"").status, 204);
    assert_eq!(house.ask("HEAD", "/v1/keys/0/empty", &[], b"").header("content-length").as_deref(), Some("0"));
}

#[test]
fn a_silent_peer_keeps_its_place_only_for_so_long() {
    // One place. Who holds it says half a line and falls silent; the next is served as soon as patience has ended.
    let house = limited(Limits { connections_max: 1, partial_frame_ms: 500, ..Limits::default() });
    let mut silent = TcpStream::connect(house.rest.address()).unwrap();
    silent.write_all(b"GET /hea").unwrap();
    assert_eq!(house.get("/health").status, 200);
    let mut rest = Vec::new();
    // Closed, with or without a last word; never kept.
    _ = silent.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
}

#[test]
fn a_peer_that_drips_bytes_does_not_keep_its_place_either() {
    let house = limited(Limits { connections_max: 1, partial_frame_ms: 500, ..Limits::default() });
    let address = house.rest.address();
    let mut slow = TcpStream::connect(address).unwrap();
    let served = std::thread::spawn(move || ask_at(address, "GET", "/health", &[], b"").status);
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
    let house = limited(Limits { partial_frame_ms: 200, ..Limits::default() });
    for garbage in [&b"\x00\xff\xfe\x01 nonsense\r\n\r\n"[..], b"GET / HTTP/9.9\r\n\r\n", &[b'A'; 100_000]] {
        let mut stream = TcpStream::connect(house.rest.address()).unwrap();
        _ = stream.write_all(garbage);
        _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer);
        assert_eq!(house.get("/health").status, 200);
    }
}

#[test]
fn a_stop_is_bounded_although_somebody_never_finishes_his_request() {
    let house = limited(Limits { partial_frame_ms: 3_600_000, ..Limits::default() });
    let address = house.rest.address();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(b"GET /health HTTP/1.1\r\n").unwrap();
    assert_eq!(house.get("/health").status, 200);
    house.rest.stop(Duration::from_millis(20));
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
    let mut rest = Vec::new();
    _ = half.read_to_end(&mut rest);
    assert!(rest.is_empty());
}

#[test]
fn a_thread_that_looks_for_the_next_request_serves_others_meanwhile_and_stops_in_time() {
    const LANES_MAX: usize = 8;
    let limits = Limits { partial_frame_ms: 3_000, ..Limits::default() };
    let house = house(Rules { settings: Settings { limits, look_us: 100, ..Settings::default() }, ..Rules::default() });
    let address = house.rest.address();
    let request = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    // One on each thread says half a line.
    let silent = |_| {
        let mut silent = TcpStream::connect(address).unwrap();
        silent.write_all(b"GET /hea").unwrap();
        silent.set_nonblocking(true).unwrap();
        silent
    };
    let mut silent: Vec<TcpStream> = (0..LANES_MAX).map(silent).collect();
    let mut lone = TcpStream::connect(address).unwrap();
    lone.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    lone.write_all(request).unwrap();
    let mut answer = [0; 4_096];
    let bytes = lone.read(&mut answer).unwrap();
    assert!(answer[..bytes].starts_with(b"HTTP/1.1 200"));
    // He asks on at once, so that his thread never sleeps; each of the others is let go all the same, and somebody else is answered.
    let until = Instant::now() + Duration::from_secs(60);
    while !silent.is_empty() {
        lone.write_all(request).unwrap();
        lone.read_exact(&mut answer[..bytes]).unwrap();
        let is_kept = |silent: &mut TcpStream| match silent.read(&mut [0; 512]) {
            Ok(bytes) => bytes > 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        };
        silent.retain_mut(is_kept);
        assert!(Instant::now() < until, "{} are kept", silent.len());
    }
    assert_eq!(house.get("/health").status, 200);
    // Many in one piece are answered each.
    lone.write_all(&request.repeat(64)).unwrap();
    for _ in 0..64 {
        lone.read_exact(&mut answer[..bytes]).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"));
    }
    house.rest.stop(Duration::from_millis(20));
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
    assert_eq!(lone.read(&mut answer).unwrap_or_default(), 0);
}

#[test]
fn a_taken_address_and_a_setting_that_cannot_work_are_said() {
    use assent_rest::{Entrance, Rest, Service};
    let first = house(Rules::default());
    let address = first.rest.address();
    let second = |settings: Settings| {
        let entrance = Entrance {
            settings,
            identity: first.identity.clone(),
            certificates: None,
            clock: first.clock.clone(),
            metrics: first.metrics.clone(),
        };
        let admin = assent_rest::Admin {
            metrics: first.metrics.clone(),
            health: first.health.clone(),
            node: assent_ids::NodeId(1),
            coordinator: None,
            coordinator_log: None,
            kv: None,
            own_store: None,
            documents: None,
            own_documents: None,
            resources: Vec::new(),
            configuration: serde_json::Value::Null,
            log_level: None,
        };
        let there = listen_address("admin.listen", &address.to_string(), false).unwrap();
        Rest::start(&there, entrance, Service::admin(admin)).unwrap_err()
    };
    let refused = second(Settings::default());
    assert!(matches!(refused, RestError::Listen { .. }));
    assert_eq!(refused.kind(), Kind::Unavailable);
    assert!(refused.to_string().contains(&address.to_string()), "{refused}");
    let refused = second(Settings { threads: 0, ..Settings::default() });
    assert_eq!(
        (refused.kind(), refused.to_string()),
        (Kind::Invalid, "http.threads = 0; it must be 1 to 512".to_owned())
    );
}
