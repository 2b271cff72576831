//! Answers that are longer than anybody wants to keep in memory: they are made as they are read, and so many at a time.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::house::{Archive, archive, ask_at, bearer, user};

/// A connection on which this was asked, and nothing has been read.
fn unread(archive: &Archive, path: &str, token: &str) -> TcpStream {
    let mut stream = TcpStream::connect(archive.rest.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {token}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// The body of a chunked answer, and whether its end was told.
fn dechunked(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut whole = Vec::new();
    while let Some(at) = bytes.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..at]).unwrap(), 16).unwrap();
        if size == 0 {
            return (whole, true);
        }
        whole.extend_from_slice(&bytes[at + 2..at + 2 + size]);
        bytes = &bytes[at + 2 + size + 2..];
    }
    (whole, false)
}

fn revised(archive: &Archive, bytes: usize, revisions: u32) {
    let body = format!("[0,\"{}\"]", "x".repeat(bytes));
    assert_eq!(archive.ask("PUT", "/db/doc", &[], body.as_bytes()).status, 201);
    for revision in 2..=revisions {
        let patch = format!(r#"[{{"op":"replace","path":"/0","value":{revision}}}]"#);
        let kind = [("content-type", "application/json-patch+json")];
        assert_eq!(archive.ask("PATCH", "/db/doc", &kind, patch.as_bytes()).status, 200);
    }
}

#[test]
fn a_range_of_revisions_is_made_as_it_is_read_and_not_before() {
    // 50 revisions of 12 MB are 600 MB; built whole they would all be in memory before the first byte is sent.
    let archive = archive(None);
    revised(&archive, 12 << 20, 50);
    let before = resident_bytes();
    let mut stream = unread(&archive, "/db/doc?start-revision=1&end-revision=50", "none");
    let mut some = vec![0; 1 << 20];
    stream.read_exact(&mut some).unwrap();
    let text = String::from_utf8_lossy(&some[..512]).to_lowercase();
    assert!(text.starts_with("http/1.1 200") && text.contains("transfer-encoding: chunked"), "{text}");
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 300 << 20, "{grown} bytes more for an answer of which one megabyte was read");
    // Who leaves is nobody's burden.
    drop(stream);
    assert_eq!(archive.get("/health").status, 200);
}

#[test]
fn an_answer_that_comes_in_pieces_is_the_same_as_its_parts() {
    let archive = archive(None);
    let many: Vec<u32> = (0..60_000).collect();
    let body = serde_json::to_vec(&many).unwrap();
    assert_eq!(archive.ask("PUT", "/db/doc", &[], &body).status, 201);
    assert_eq!(archive.ask("PUT", "/db/doc", &[], b"{\"now\":\"small\"}").status, 200);
    let long = archive.get("/db/doc?revision=1");
    assert_eq!(long.header("content-length"), None);
    assert_eq!(dechunked(&long.body), (body, true));
    let both = archive.get("/db/doc?start-revision=1&end-revision=2");
    let (both, is_whole) = dechunked(&both.body);
    let both: serde_json::Value = serde_json::from_slice(&both).unwrap();
    let told: Vec<_> = both["sirix"].as_array().unwrap().iter().map(|it| it["revision"].clone()).collect();
    assert!(is_whole);
    assert_eq!(told, [serde_json::json!(many), serde_json::json!({"now": "small"})]);
    let found = archive.get("/db/doc?revision=1&path=$[100:9100]");
    let found: serde_json::Value = serde_json::from_slice(&found.body).unwrap();
    assert_eq!(found, serde_json::json!({"rest": many[100..9_100]}));
    // A short answer has its length, and a HEAD makes no body at all.
    assert!(archive.get("/db/doc").header("content-length").is_some());
    let head = archive.ask("HEAD", "/db/doc?start-revision=1&end-revision=2", &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn a_history_of_several_pages_is_whole_newest_first_and_ends_where_it_was_asked_to() {
    let archive = archive(None);
    assert_eq!(archive.ask("PUT", "/db/doc?commitMessage=1", &[], b"[0]").status, 201);
    for revision in 2..=250 {
        let path = format!("/db/doc?commitMessage={revision}");
        assert_eq!(archive.ask("PUT", &path, &[], format!("[{revision}]").as_bytes()).status, 200);
    }
    let told = |query: &str| {
        let list = archive.get(&format!("/db/doc/history{query}")).json();
        let list = list["history"].as_array().unwrap().clone();
        list.iter().for_each(|it| assert_eq!(it["revision"].to_string(), it["commitMessage"].as_str().unwrap()));
        list.iter().map(|it| it["revision"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(told(""), (1..=250).rev().collect::<Vec<_>>());
    assert_eq!(told("?revisions=101"), (150..=250).rev().collect::<Vec<_>>());
    assert_eq!(told("?revisions=100"), (151..=250).rev().collect::<Vec<_>>());
    assert_eq!(told("?startRevision=20&endRevision=219"), (20..=219).rev().collect::<Vec<_>>());
    assert_eq!(told("?startRevision=7&endRevision=7"), [7]);
}

#[test]
fn so_many_long_answers_are_under_way_for_one_caller_and_short_ones_and_others_go_on() {
    let users = vec![user("anna", "a", &["admin"]), user("bert", "b", &["view"])];
    let archive = archive(Some(users));
    let token = |name: &str, password: &str| {
        let asked = serde_json::json!({"username": name, "password": password, "grant_type": "password"});
        bearer(&archive.ask("POST", "/token", &[], asked.to_string().as_bytes()).json())
    };
    let (anna, bert) = (token("anna", "a"), token("bert", "b"));
    let body = serde_json::to_vec(&"x".repeat(8 << 20)).unwrap();
    assert_eq!(archive.ask("PUT", "/db/doc", &[("authorization", &anna)], &body).status, 201);
    assert_eq!(archive.ask("PUT", "/db/short", &[("authorization", &anna)], b"[1]").status, 201);
    // One answer is several times what the kernel takes without a reader.
    let begun = |token: &str| {
        let mut stream = unread(&archive, "/db/doc?start-revision=1&end-revision=1", token);
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        (stream, String::from_utf8_lossy(&status).into_owned())
    };
    let held: Vec<_> = (0..16).map(|_| begun(&anna)).collect();
    assert!(held.iter().all(|(_, status)| status == "HTTP/1.1 200"), "{held:?}");
    let (_refused, status) = begun(&anna);
    assert_eq!(status, "HTTP/1.1 503");
    let get = |token: &str, path: &str| ask_at(archive.rest.address(), "GET", path, &[("authorization", token)], b"");
    assert_eq!((get(&anna, "/db/short").status, begun(&bert).1.as_str()), (200, "HTTP/1.1 200"));
    drop(held);
    let until = Instant::now() + Duration::from_secs(60);
    while begun(&anna).1 != "HTTP/1.1 200" {
        assert!(Instant::now() < until, "places of who has left are never given back");
    }
}

/// All that was there was built in memory and sent, for each small write, and once more for each that was asked for again.
#[test]
fn a_small_write_to_a_long_document_is_told_without_the_document() {
    let archive = archive(None);
    assert_eq!(archive.ask("PUT", "/db/doc", &[], b"[]").status, 201);
    let push = |body: &[u8], key: &str| archive.ask("POST", "/db/doc", &[("idempotency-key", key)], body);
    let long = format!("\"{}\"", "x".repeat(12 << 20));
    for number in 0..20 {
        assert_eq!(push(long.as_bytes(), &format!("long-{number}")).status, 200);
    }
    for is_again in [false, true] {
        let told = push(b"1", "short");
        assert_eq!((told.status, told.header("idempotency-replayed").is_some()), (200, is_again));
        assert!(told.header("etag").is_some() && told.body.len() < 1 << 20, "{} bytes", told.body.len());
    }
    assert_eq!(archive.ask("PUT", "/db/doc", &[], b"[3]").body, b"[3]", "what is short is told back");
}
