//! Callers who want more than is theirs: places, other people's documents by the way of an answer, seats of writers, memory.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use assent_docs::Look as _;
use assent_rest::Settings;
use serde_json::{Value, json};

use crate::house::{House, Rules, bearer, house, user};

fn guarded(users: &[(&str, &[&str])]) -> House {
    let users = users.iter().map(|(name, roles)| user(name, "secret", roles)).collect();
    house(Rules { users: Some(users), ..Rules::default() })
}

fn known(house: &House, name: &str) -> String {
    bearer(&house.token(name, "secret"))
}

#[test]
fn a_document_is_not_told_back_to_who_may_write_it_and_not_see_it() {
    let house = guarded(&[("anna", &["create", "modify", "view"]), ("bert", &["create", "modify"])]);
    let [anna, bert] = ["anna", "bert"].map(|name| known(&house, name));
    let ask = |who: &str, method: &str, path: &str, kind: &str, body: &str| {
        house.docs(method, path, &[("authorization", who), ("content-type", kind), ("idempotency-key", path)], body)
    };
    let json = "application/json";
    assert_eq!(ask(&anna, "PUT", "/db/doc", json, r#"["secret"]"#).text(), r#"["secret"]"#);
    let merge = "application/merge-patch+json";
    for (method, path, kind, body) in [
        ("POST", "/db/doc", json, "1"),
        ("PATCH", "/db/doc?commitMessage=a", "application/json-patch+json", r#"[{"op":"remove","path":"/0"}]"#),
        ("PATCH", "/db/doc?commitMessage=b", merge, r#"{"a":1}"#),
        ("PUT", "/db/doc?commitMessage=c", json, "[2]"),
    ] {
        for again in [false, true] {
            let told = ask(&bert, method, path, kind, body);
            assert_eq!((told.status, told.text().as_str()), (200, ""), "{method} {path}, again: {again}");
            assert!(told.header("etag").is_some(), "what he wrote he may go on with");
        }
    }
    assert_eq!(ask(&anna, "POST", "/db/doc?insert=asFirstChild", json, "3").text(), "[3,2]");
}

#[test]
fn however_many_begin_at_once_one_caller_has_his_share_of_transactions_and_others_theirs() {
    const SHARE: usize = 64;
    let house = guarded(&[("anna", &["modify"]), ("bert", &["modify"])]);
    let [anna, bert] = ["anna", "bert"].map(|name| known(&house, name));
    let begin = |who: &str| house.ask("POST", "/v1/transactions", &[("authorization", who)], b"").status;
    let start = Barrier::new(16);
    let begun: usize = std::thread::scope(|scope| {
        let one = |_| {
            scope.spawn(|| {
                start.wait();
                (0..8).filter(|_| begin(&anna) == 201).count()
            })
        };
        let threads: Vec<_> = (0..16).map(one).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((begun, begin(&anna), begin(&bert)), (SHARE, 429, 201));
}

#[test]
fn a_message_that_no_commit_would_take_is_refused_before_it_is_kept() {
    let house = house(Rules::default());
    let begin =
        |bytes: usize| house.post("/v1/transactions", &json!({"message": "m".repeat(bytes)}).to_string()).status;
    assert_eq!((begin(64 << 10), begin((64 << 10) + 1)), (201, 400));
}

#[test]
fn who_may_only_create_keeps_no_writer_from_a_document_that_is_there() {
    let house = guarded(&[("anna", &["create", "modify", "view"]), ("bert", &["db-create", "other-modify"])]);
    let [anna, bert] = ["anna", "bert"].map(|name| known(&house, name));
    assert_eq!(house.docs("PUT", "/db/doc", &[("authorization", &anna)], "[]").status, 201);
    let by_bert = [("authorization", bert.as_str())];
    let tx = house.ask("POST", "/v1/transactions", &by_bert, b"").json()["tx"].as_str().unwrap().to_owned();
    let writes = json!({"writes": [{"document": "db/doc", "put": [1]}]}).to_string();
    let told = house.ask("POST", &format!("/v1/transactions/{tx}/writes"), &by_bert, writes.as_bytes());
    assert_eq!(told.status, 403, "{}", told.text());
    // His transaction is open still; the document's writers do not wait for it.
    let began = Instant::now();
    assert_eq!(house.docs("POST", "/db/doc", &[("authorization", &anna)], "2").text(), "[2]");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn one_caller_has_his_share_of_streams_and_others_theirs_and_an_end_gives_a_place_back() {
    const SHARE: usize = 128;
    let house = guarded(&[("anna", &["create", "view"]), ("bert", &["view"]), ("cleo", &["delete"])]);
    let [anna, bert, cleo] = ["anna", "bert", "cleo"].map(|name| known(&house, name));
    assert_eq!(house.docs("PUT", "/db/doc", &[("authorization", &anna)], "[]").status, 201);
    let watch = |who: &str| {
        let mut socket = TcpStream::connect(house.docs_address()).unwrap();
        let head = format!("GET /db/doc/watch HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {who}\r\n\r\n");
        socket.write_all(head.as_bytes()).unwrap();
        let mut status = [0; 12];
        socket.read_exact(&mut status).unwrap();
        (status == *b"HTTP/1.1 200").then_some(socket)
    };
    let mut streams: Vec<_> = (0..SHARE).map(|_| watch(&anna).unwrap()).collect();
    assert!(watch(&anna).is_none() && watch(&bert).is_some());
    // One that has ended is found when there is something to say.
    streams.pop();
    assert_eq!(house.docs("DELETE", "/db/doc", &[("authorization", &cleo)], "").status, 204);
    drop(streams);
    assert_eq!(house.docs("PUT", "/db/doc", &[("authorization", &anna)], "[]").status, 201);
    let again = (0..1_000).find_map(|_| watch(&anna));
    assert!(again.is_some(), "all of them have ended with their document");
}

#[test]
fn no_document_outlives_its_database_whoever_makes_one_while_that_is_dropped() {
    let house = house(Rules::default());
    for round in 0..60 {
        let start = Barrier::new(3);
        std::thread::scope(|scope| {
            for path in ["/db/one", "/db/two"] {
                let (house, start) = (&house, &start);
                scope.spawn(move || {
                    start.wait();
                    house.docs("PUT", path, &[], "[]")
                });
            }
            start.wait();
            house.docs("DELETE", if round % 2 == 0 { "/db" } else { "/" }, &[], "")
        });
        let status = |path: &str| house.docs("GET", path, &[], "").status;
        let is_there = status("/db") == 200;
        for path in ["/db/one", "/db/two"] {
            assert!(is_there || status(path) == 404, "round {round}: {path} is there, and its database is not");
        }
        let listed = house.docs("GET", "/?withResources=true", &[], "").json();
        assert_eq!(listed["databases"].as_array().map(Vec::len), Some(usize::from(is_there)), "{listed}");
        assert!(is_there || listed["databases"] == Value::Array(Vec::new()), "{listed}");
        house.docs("DELETE", "/", &[], "");
    }
}

#[test]
fn one_caller_has_his_share_of_bytes_that_he_does_not_read_and_others_theirs() {
    const SHARE: usize = 8;
    let house = guarded(&[("anna", &["modify", "view"]), ("bert", &["view"])]);
    let [anna, bert] = ["anna", "bert"].map(|name| known(&house, name));
    let value = vec![7; 8 << 20];
    assert_eq!(house.ask("PUT", "/v1/keys/0/a", &[("authorization", &anna)], &value).status, 204);
    let begin = |who: &str| {
        let mut socket = TcpStream::connect(house.rest.address()).unwrap();
        let head = format!("GET /v1/keys/0/a HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {who}\r\n\r\n");
        socket.write_all(head.as_bytes()).unwrap();
        let mut status = [0; 12];
        socket.read_exact(&mut status).unwrap();
        (status == *b"HTTP/1.1 200").then_some(socket)
    };
    let mut held: Vec<_> = (0..SHARE).map(|_| begin(&anna).unwrap()).collect();
    assert!(begin(&anna).is_none() && begin(&bert).is_some());
    assert_eq!(house.ask("GET", "/v1/version", &[("authorization", &anna)], b"").status, 200, "what is short is told");
    // Whoever leaves gives his share back.
    held.pop();
    let again = (0..1_000).find_map(|_| begin(&anna));
    assert!(again.is_some());
    drop(held);
    let read = house.ask("GET", "/v1/keys/0/a", &[("authorization", &anna)], b"");
    assert!(read.status == 200 && read.body == value);
}

#[test]
fn a_page_of_keys_ends_where_its_values_are_long_and_goes_on_behind() {
    let house = house(Rules::default());
    for name in ["a", "b", "c", "d"] {
        let value = vec![b'v'; if name == "d" { 1 } else { 7 << 20 }];
        assert_eq!(house.ask("PUT", &format!("/v1/keys/0/{name}"), &[], &value).status, 204);
    }
    let mut pages = Vec::new();
    let mut after = String::new();
    loop {
        let page = house.get(&format!("/v1/keys/0?values=true{after}")).json();
        let rows = page["keys"].as_array().unwrap();
        pages.push(rows.iter().map(|row| row["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>());
        assert!(rows.iter().all(|row| json!(row["value"].as_str().unwrap().len()) == row["bytes"]));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(pages, [vec!["a", "b"], vec!["c", "d"]]);
    assert_eq!(house.get("/v1/keys/0").json()["keys"].as_array().unwrap().len(), 4, "without values it is one page");
}

/// It took the square of them: a megabyte a quarter of an hour, with one of eight threads for writers, whoever waited for it.
#[test]
fn many_members_are_put_into_an_object_in_the_time_of_a_request() {
    let house = house(Rules::default());
    assert_eq!(house.docs("PUT", "/db/doc", &[], r#"{"k7":1}"#).status, 201);
    let members = |from: usize| -> String {
        let all: Vec<String> = (from..from + 60_000).map(|number| format!("\"k{number}\":{number}")).collect();
        format!("{{{}}}", all.join(","))
    };
    let told = house.docs("POST", "/db/doc?insert=asFirstChild", &[], &members(10));
    assert_eq!(told.status, 200, "{}", told.text());
    // One that is there keeps all of them out; and so does one that comes twice.
    for wrong in [members(60_000), r#"{"a":1,"b":2,"a":3}"#.to_owned()] {
        assert_eq!(house.docs("POST", "/db/doc", &[], &wrong).status, 400);
    }
    assert_eq!(house.docs("POST", "/db/doc", &[], r#"{"a":1,"b":2}"#).status, 200);
    let latest = house.documents.document("db/doc").unwrap().latest();
    assert_eq!(latest.item(latest.value().unwrap()).unwrap().node.children, 60_003);
}

/// He was told that nothing was done and when to ask again, and what he did was done twice.
#[test]
fn what_was_done_is_told_as_done_to_who_has_not_read_his_answers() {
    let house = house(Rules::default());
    for letter in ["x", "y"] {
        let long = format!("[\"{}\"]", letter.repeat(6 << 20));
        assert!(house.docs("PUT", "/db/long", &[], &long).status < 300);
    }
    assert_eq!(house.docs("PUT", "/db/doc", &[], "[]").status, 201);
    // Answers of which nobody reads more than their status, until there is room for no more of them.
    let begin = || {
        let mut socket = TcpStream::connect(house.docs_address()).unwrap();
        let head = b"GET /db/long/diff?first-revision=1&second-revision=2 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
        socket.write_all(head).unwrap();
        let mut status = [0; 12];
        socket.read_exact(&mut status).unwrap();
        assert!([*b"HTTP/1.1 200", *b"HTTP/1.1 503"].contains(&status), "{}", String::from_utf8_lossy(&status));
        (status == *b"HTTP/1.1 200").then_some(socket)
    };
    let unread: Vec<TcpStream> = std::iter::from_fn(begin).take(100).collect();
    assert!((1..100).contains(&unread.len()), "{}", unread.len());
    let text = format!("\"{}\"", "x".repeat(6 << 20));
    let told = house.docs("POST", "/db/doc?insert=asFirstChild", &[], &text);
    assert!(told.status == 204 && told.header("etag").is_some(), "{} {}", told.status, told.text());
    drop(unread);
    let history = house.docs("GET", "/db/doc/history", &[], "").json();
    assert_eq!(history["history"].as_array().unwrap().len(), 2, "{history}");
}

/// He had all places there are for requests, and others none.
#[test]
fn one_caller_leaves_others_a_quarter_of_the_places_for_requests() {
    let settings = Settings { requests_max: 8, request_ms: 60_000, ..Settings::default() };
    let users = ["anna", "bert"].map(|name| user(name, "secret", &["modify", "view"])).to_vec();
    let house = house(Rules { settings, users: Some(users), ..Rules::default() });
    let [anna, bert] = ["anna", "bert"].map(|name| known(&house, name));
    let half = || {
        let mut stream = TcpStream::connect(house.rest.address()).unwrap();
        let head = format!(
            "PUT /v1/keys/0/a HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {anna}\r\ncontent-length: 5\r\n\r\n12"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let status = |who: &str| house.ask("GET", "/v1/keys/0/none", &[("authorization", who)], b"").status;
    let mut held = Vec::new();
    let until = Instant::now() + Duration::from_secs(60);
    while status(&anna) != 503 {
        held.push(half());
        assert!(Instant::now() < until && held.len() < 1_000, "she has all of them");
    }
    assert_eq!(status(&bert), 404);
    drop(held);
    while status(&anna) != 404 {
        assert!(Instant::now() < until, "her places do not come back");
    }
}

#[test]
fn writers_who_wait_for_a_seat_keep_no_reader_waiting() {
    // They waited in the threads of the readers: a transaction that was left open and a few writes stopped the listener for five seconds each.
    let house = house(Rules { settings: Settings { threads: 2, ..Settings::default() }, ..Rules::default() });
    assert_eq!(house.docs("PUT", "/db/doc", &[], "[]").status, 201);
    let tx = house.post("/v1/transactions", "").json()["tx"].as_str().unwrap().to_owned();
    let writes = json!({"writes": [{"document": "db/doc", "put": [1]}]}).to_string();
    assert_eq!(house.post(&format!("/v1/transactions/{tx}/writes"), &writes).status, 202);
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let status = house.docs("POST", "/db/doc", &[], "2").status;
                answered.fetch_add(1, Ordering::SeqCst);
                status
            });
        }
        house.docs_wait_for(2);
        // Read by a thread that may block.
        assert_eq!(house.docs("GET", "/db/doc/history", &[], "").status, 200);
        assert_eq!(answered.load(Ordering::SeqCst), 0, "a reader has waited for a writer");
        assert_eq!(house.post(&format!("/v1/transactions/{tx}/rollback"), "").status, 200);
    });
}

/// Its commit had no thread before those who waited for its seat were told 429, five seconds later.
#[test]
fn a_transaction_ends_while_as_many_as_there_are_threads_wait_for_its_seat() {
    let house = house(Rules { settings: Settings { threads: 2, ..Settings::default() }, ..Rules::default() });
    assert_eq!(house.docs("PUT", "/db/doc", &[], "[]").status, 201);
    let begin = || house.post("/v1/transactions", "").json()["tx"].as_str().unwrap().to_owned();
    let writes = json!({"writes": [{"document": "db/doc", "put": [1]}]}).to_string();
    let write = |tx: &str| house.post(&format!("/v1/transactions/{tx}/writes"), &writes).status;
    let end = |tx: &str, how: &str| house.post(&format!("/v1/transactions/{tx}/{how}"), "").status;
    let show = |tx: &str| house.get(&format!("/v1/transactions/{tx}")).json()["state"].clone();
    for how in ["commit", "rollback"] {
        let (first, second) = (begin(), begin());
        assert_eq!(write(&first), 202);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| write(&second));
            while house.documents.document("db/doc").unwrap().waiting() == 0 {
                std::thread::yield_now();
            }
            // Who asks after that one waits for it, and stands in nobody's way.
            let asked: Vec<_> = (0..4).map(|_| scope.spawn(|| show(&second))).collect();
            house.wait_for(5);
            assert_eq!(show(&first), "open");
            assert_eq!((end(&first, how), waits.join().unwrap()), (200, 202), "{how}");
            asked.into_iter().for_each(|shown| assert_eq!(shown.join().unwrap(), "open"));
        });
        assert_eq!(end(&second, "rollback"), 200);
    }
}

#[test]
fn lists_of_documents_take_their_seats_in_one_order_whatever_order_they_were_sent_in() {
    // Two lists in different order waited for each other until both were told 429.
    let house = house(Rules::default());
    let form = |names: [&str; 2]| {
        let part = |name: &str| format!("--x\r\nContent-Disposition: form-data; filename=\"{name}\"\r\n\r\n[]\r\n");
        format!("{}{}--x--\r\n", part(names[0]), part(names[1]))
    };
    let kind = [("content-type", "multipart/form-data; boundary=x")];
    assert_eq!(house.docs("POST", "/db", &kind, &form(["a", "b"])).status, 201);
    let begin = || house.post("/v1/transactions", "").json()["tx"].as_str().unwrap().to_owned();
    let write = |tx: &str, names: &[&str]| {
        let writes: Vec<_> = names.iter().map(|name| json!({"document": format!("db/{name}"), "put": [1]})).collect();
        house.post(&format!("/v1/transactions/{tx}/writes"), &json!({ "writes": writes }).to_string()).status
    };
    for by_upload in [true, false] {
        let (first, second) = (begin(), begin());
        assert_eq!(write(&first, &["a"]), 202);
        std::thread::scope(|scope| {
            let last = scope.spawn(|| match by_upload {
                true => house.docs("POST", "/db", &kind, &form(["b", "a"])).status,
                false => write(&second, &["b", "a"]),
            });
            if by_upload {
                house.docs_wait_for(1);
            }
            // It waits for "a", and has not taken "b" before.
            assert_eq!(house.docs("POST", "/db/b", &[], "2").status, 200);
            assert!(!last.is_finished(), "it had taken what it was sent first");
            assert_eq!(house.post(&format!("/v1/transactions/{first}/rollback"), "").status, 200);
            assert_eq!(last.join().unwrap(), if by_upload { 201 } else { 202 });
        });
        assert_eq!(house.post(&format!("/v1/transactions/{second}/rollback"), "").status, 200);
    }
}

#[test]
fn writes_are_counted_while_they_are_taken_apart_and_what_follows_is_not_looked_at() {
    const WRITES_MAX: usize = 10_000;
    let house = house(Rules::default());
    let tx = house.post("/v1/transactions", "").json()["tx"].as_str().unwrap().to_owned();
    for path in ["/v1/transactions".to_owned(), format!("/v1/transactions/{tx}/writes")] {
        let told = house.post(&path, &format!("{{\"writes\":[{}no JSON", "{},".repeat(WRITES_MAX + 1)));
        assert_eq!(told.status, 400);
        assert!(told.text().contains("more than 10000 writes"), "{}", told.text());
        let one = r#"{"key":"a","value":"b"}"#;
        let most = house.post(&path, &format!("{{\"writes\":[{}{one}]}}", format!("{one},").repeat(WRITES_MAX - 1)));
        assert!(matches!(most.status, 201 | 202), "{}", most.text());
    }
}
