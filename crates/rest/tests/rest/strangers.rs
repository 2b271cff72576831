//! Callers whom nobody knows yet: they cost those who are known nothing, and a web page of theirs does not speak for anybody.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use assent_door::Limits;
use assent_rest::Settings;
use serde_json::json;

use crate::house::{House, Rules, archive, bearer, house, user};

/// A request whose body never comes.
fn half(house: &House, line: &str) -> TcpStream {
    let mut stream = TcpStream::connect(house.rest.address()).unwrap();
    let head = format!("{line} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

#[test]
fn logins_without_a_body_keep_nobody_out_who_is_known_and_one_address_has_only_so_many() {
    let limits = Limits { partial_frame_ms: 60_000, ..Limits::default() };
    let settings = Settings { limits, request_ms: 60_000, requests_max: 2, ..Settings::default() };
    let house = house(Rules { settings, users: Some(vec![user("anna", "a", &["view"])]), ..Rules::default() });
    let anna = bearer(&house.token("anna", "a"));
    let begin = |at: usize| {
        let stream = half(&house, if at.is_multiple_of(2) { "POST /token" } else { "POST /logout" });
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let mut slow: Vec<_> = (0..8).map(begin).collect();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let login = json!({"username": "anna", "password": "a", "grant_type": "password"}).to_string();
    // All eight are being waited for once a ninth finds no place.
    while house.post("/token", &login).status != 503 {
        // Two threads serve: the login may have had the place of one of them.
        for (at, stream) in slow.iter_mut().enumerate().filter(|(_, stream)| stream.peek(&mut [0]).is_ok()) {
            *stream = begin(at);
        }
        assert!(std::time::Instant::now() < until, "one address may have as many logins under way as it likes");
    }
    for _ in 0..4 {
        assert_eq!(house.ask("GET", "/v1/version", &[("authorization", &anna)], b"").status, 200);
    }
    // Their time is short, whatever that of a request is.
    for mut stream in slow {
        stream.set_nonblocking(false).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
    assert_eq!(house.post("/token", &login).status, 200);
}

#[test]
fn who_falls_silent_in_the_middle_of_a_body_loses_his_connection_as_before_it() {
    let limits = Limits { partial_frame_ms: 500, ..Limits::default() };
    let settings = Settings { limits, request_ms: 60_000, ..Settings::default() };
    let house = house(Rules { settings, ..Rules::default() });
    let mut slow = half(&house, "PUT /v1/keys/0/a");
    let mut answer = String::new();
    _ = slow.read_to_string(&mut answer);
    assert_eq!(answer, "", "closed by its silence, and not answered when the time of a request is over");
    assert_eq!(house.get("/v1/keys/0/a").status, 404);
}

#[test]
fn without_identity_a_web_page_of_somebody_else_changes_and_reads_nothing() {
    let house = house(Rules::default());
    let port = house.rest.address().port();
    let own = format!("http://127.0.0.1:{port}");
    let address = format!("127.0.0.1:{port}");
    let asked = |headers: &[(&str, &str)]| house_says(&house, headers);
    assert_eq!(asked(&[("host", &address)]), 204);
    assert_eq!(asked(&[("host", &address), ("origin", &own), ("sec-fetch-site", "same-origin")]), 204);
    assert_eq!(asked(&[("host", "localhost")]), 204);
    for page in [
        &[("host", "evil.example:7431")][..],
        &[("host", &address), ("origin", "http://evil.example")],
        &[("host", &address), ("origin", "null")],
        &[("host", &address), ("sec-fetch-site", "cross-site")],
        &[("host", &address), ("sec-fetch-site", "same-site")],
    ] {
        assert_eq!(asked(page), 403, "{page:?}");
    }
    assert_eq!(raw(&house, "GET /v1/config", &[("host", "evil.example")]), 403);
    assert_eq!(raw(&house, "POST /token", &[("host", "evil.example")]), 403);
    // How it stands is no secret; a probe may call the machine as it likes.
    assert_eq!(raw(&house, "GET /health", &[("host", "node-7.cluster")]), 200);
    // Documents have the same door.
    let archive = archive(None);
    let answer = archive.ask("PUT", "/db/doc", &[("origin", "http://evil.example")], b"[]");
    assert_eq!((answer.status, answer.json()["kind"].clone()), (403, "denied".into()));
    assert_eq!(archive.get("/db/doc").status, 404);
}

fn house_says(house: &House, headers: &[(&str, &str)]) -> u16 {
    raw(house, "PUT /v1/keys/0/a", headers)
}

fn raw(house: &House, line: &str, headers: &[(&str, &str)]) -> u16 {
    let mut stream = TcpStream::connect(house.rest.address()).unwrap();
    let mut head = format!("{line} HTTP/1.1\r\ncontent-length: 0\r\nconnection: close\r\n");
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn where_callers_have_tokens_the_host_may_have_any_name() {
    let house = house(Rules { users: Some(vec![user("anna", "a", &["view"])]), ..Rules::default() });
    assert_eq!(raw(&house, "GET /v1/version", &[("host", "db.example")]), 401, "asked who he is, not where from");
    let anna = bearer(&house.token("anna", "a"));
    assert_eq!(raw(&house, "GET /v1/version", &[("host", "db.example"), ("authorization", &anna)]), 200);
}

#[test]
fn a_user_who_logs_in_without_end_ends_his_own_sessions_and_nobody_elses() {
    let users = vec![user("anna", "a", &["view"]), user("bert", "b", &["view"])];
    let house = house(Rules { users: Some(users), ..Rules::default() });
    let version = |token: &str| house.ask("GET", "/v1/version", &[("authorization", token)], b"").status;
    let bert = bearer(&house.token("bert", "b"));
    let anna: Vec<_> = (0..65).map(|_| bearer(&house.token("anna", "a"))).collect();
    assert_eq!((version(&anna[0]), version(&anna[1]), version(&anna[64]), version(&bert)), (401, 200, 200, 200));
}

#[test]
fn a_user_who_begins_without_end_leaves_room_for_others() {
    let users = vec![user("anna", "a", &["modify"]), user("bert", "b", &["modify"])];
    let house = house(Rules { users: Some(users), ..Rules::default() });
    let (anna, bert) = (bearer(&house.token("anna", "a")), bearer(&house.token("bert", "b")));
    let begin = |who: &str| house.ask("POST", "/v1/transactions", &[("authorization", who)], b"{\"seconds\":3600}");
    let begun: Vec<_> = (0..64).map(|_| begin(&anna)).collect();
    assert!(begun.iter().all(|it| it.status == 201), "{begun:?}");
    assert_eq!((begin(&anna).status, begin(&bert).status), (429, 201));
    let tx = begun[0].json()["tx"].as_str().unwrap().to_owned();
    assert_eq!(house.ask("DELETE", &format!("/v1/transactions/{tx}"), &[("authorization", &anna)], b"").status, 200);
    assert_eq!(begin(&anna).status, 201);
}
