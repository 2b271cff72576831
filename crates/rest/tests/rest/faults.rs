//! Peers that do nothing, say too much, or leave: the listener goes on, and what it held for them comes back.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use assent_door::Limits;
use assent_rest::Settings;

use crate::house::{Rules, archive, house};

const LONG: Duration = Duration::from_secs(60);

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

#[test]
fn a_thousand_idle_connections_keep_nobody_out_take_little_and_end_with_their_time() {
    let limits = Limits { connections_max: 1_100, partial_frame_ms: 3_000, ..Limits::default() };
    let house = house(Rules { settings: Settings { limits, ..Settings::default() }, ..Rules::default() });
    assert_eq!(house.get("/v1/version").status, 200);
    let before = resident_bytes();
    let idle: Vec<TcpStream> = (0..1_000)
        .map(|_| {
            let stream = TcpStream::connect(house.rest.address()).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            stream
        })
        .collect();
    for _ in 0..10 {
        assert_eq!(house.get("/v1/version").status, 200);
    }
    let taken = resident_bytes().saturating_sub(before);
    assert!(taken < 512 << 20, "{taken} bytes for 1,000 connections, those of the tests beside this one included");
    for mut stream in idle {
        let mut rest = Vec::new();
        // Closed, with or without a last word.
        _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 4"), "{rest:?}");
    }
    // Its own connection, and perhaps the one before it.
    let is_free =
        |text: String| (1..=2).any(|open| text.contains(&format!("http_connections{{listener=\"admin\"}} {open}\n")));
    let until = Instant::now() + LONG;
    while !is_free(house.get("/metrics").text()) {
        assert!(Instant::now() < until, "places are not given back: {}", house.get("/metrics").text());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn names_of_ten_megabytes_are_refused_wherever_they_stand_and_the_next_request_is_served() {
    let archive = archive(None);
    let long = "n".repeat(10 << 20);
    let told = |head: &str, body: &str| {
        let mut stream = TcpStream::connect(archive.rest.address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        // Whoever refuses a head does not read it to its end.
        _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer);
        let status = String::from_utf8_lossy(&answer).split(' ').nth(1).map(|code| code.parse::<u16>().unwrap());
        // Nothing at all where it was reset before the answer was read.
        assert!(
            status.is_none_or(|status| body.is_empty() && (400..500).contains(&status) || status == 201),
            "{status:?}"
        );
        assert_eq!(archive.get("/health").status, 200);
    };
    let rest = "HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n";
    told(&format!("GET /{long} {rest}\r\n"), "");
    told(&format!("GET /db/doc?{long}=1 {rest}\r\n"), "");
    told(&format!("GET /db/doc {rest}{long}: 1\r\n\r\n"), "");
    told(&format!("GET /db/doc {rest}x-request-id: {long}\r\n\r\n"), "");
    let body = format!("{{\"{long}\":1}}");
    told(&format!("PUT /db/doc {rest}content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len()), &body);
}

#[test]
fn readers_who_leave_in_the_middle_of_long_answers_leave_their_places_to_others() {
    let archive = archive(None);
    let items: Vec<String> = (0..60_000).map(|number| format!("\"a text of some length, {number}\"")).collect();
    let json = format!("[{}]", items.join(","));
    assert_eq!(archive.ask("PUT", "/db/doc", &[], json.as_bytes()).status, 201);
    // More of them than there are places for one caller.
    for _ in 0..40 {
        let mut stream = TcpStream::connect(archive.rest.address()).unwrap();
        stream.write_all(b"GET /db/doc?prettyPrint=true HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").unwrap();
        let mut some = [0; 1_000];
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.read_exact(&mut some).unwrap();
    }
    let until = Instant::now() + LONG;
    loop {
        let answer = archive.get("/db/doc");
        if answer.status == 200 {
            break;
        }
        assert!(answer.status == 503 && Instant::now() < until, "{}: {}", answer.status, answer.text());
    }
}
