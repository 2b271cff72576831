//! Writers of one document beside each other, which they may replace, make or drop while others wait for its seat.

use std::thread;
use std::time::Duration;

use assent_docs::{At, Document, Meta, NodeKey, Versioning};

use crate::house::{Answer, Rules, archive, ask_at, house};

const MERGE: (&str, &str) = ("content-type", "application/merge-patch+json");

/// Waits until so many wait for the writer's seat.
fn until_waiting(document: &Document, writers: u32) {
    while document.waiting() != writers {
        thread::yield_now();
    }
}

#[test]
fn who_waits_while_others_overwrite_the_document_writes_the_one_that_came() {
    // The first of them overwrote it, and the others were told that there is none: an overwrite at once, and any other change at the second.
    let house = house(Rules::default());
    for round in 0..5 {
        assert!([200, 201].contains(&house.docs("PUT", "/shop/pen", &[], r#"{"n":0}"#).status));
        let document = house.documents.document("shop/pen").unwrap();
        let held = document.edit().unwrap();
        let asked: [(&str, &str, &[_], &str, u16); 6] = [
            ("PUT", "/shop/pen?overwrite=true", &[], r#"{"n":1}"#, 201),
            ("PUT", "/shop/pen?overwrite=true", &[], r#"{"n":2}"#, 201),
            ("PUT", "/shop/pen?overwrite=true", &[], r#"{"n":3}"#, 201),
            ("PUT", "/shop/pen", &[], r#"{"n":4}"#, 200),
            ("PATCH", "/shop/pen", &[MERGE], r#"{"m":5}"#, 200),
            ("POST", "/shop/pen", &[], r#"{"o":6}"#, 200),
        ];
        thread::scope(|scope| {
            let house = &house;
            let one = |(method, path, headers, body, wanted)| {
                let answering = scope.spawn(move || house.docs(method, path, headers, body));
                (answering, wanted)
            };
            let asking = asked.map(one);
            until_waiting(&document, 6);
            drop(held);
            for (number, (answering, wanted)) in asking.into_iter().enumerate() {
                let answer: Answer = answering.join().unwrap();
                assert_eq!(answer.status, wanted, "round {round}, {:?}: {}", asked[number], answer.text());
            }
        });
    }
}

#[test]
fn who_finds_another_document_when_nobody_waits_for_him_any_more_writes_nothing() {
    // He held a thread for as many turns as others took before him, and then wrote.
    let house = house(Rules::default());
    let asked: [(&str, &str, &[_], &str); 3] = [
        ("PUT", "/shop/pen?overwrite=true", &[], r#"{"n":1}"#),
        ("PUT", "/shop/pen", &[], r#"{"n":2}"#),
        ("PATCH", "/shop/pen", &[MERGE], r#"{"n":3}"#),
    ];
    for (method, path, headers, body) in asked {
        assert!([200, 201].contains(&house.docs("PUT", "/shop/pen", &[], "0").status));
        let document = house.documents.document("shop/pen").unwrap();
        let held = document.edit().unwrap();
        let answer: Answer = thread::scope(|scope| {
            let asking = scope.spawn(|| house.docs(method, path, headers, body));
            until_waiting(&document, 1);
            house.clock.by(Duration::from_secs(3_600));
            let mut anew = held.anew(Versioning::default()).unwrap();
            anew.insert_json(At::Last(NodeKey::DOCUMENT), None, "[7]".as_bytes()).unwrap();
            anew.commit(&Meta::default()).unwrap();
            asking.join().unwrap()
        });
        assert_eq!(answer.status, 503, "{method} {path}: {}", answer.text());
        assert_eq!(house.docs("GET", "/shop/pen", &[], "").json(), serde_json::json!([7]), "{method} {path}");
    }
}

#[test]
fn of_those_who_make_the_same_document_one_makes_it_and_the_others_give_it_revisions() {
    // They were told that it is there already, or that it is not there yet.
    const WRITERS: usize = 6;
    let archive = archive(None);
    let address = archive.rest.address();
    for round in 0..20 {
        let path = format!("/db/doc{round}");
        let mut statuses = thread::scope(|scope| {
            let put = |writer: usize| {
                let path = &path;
                scope.spawn(move || ask_at(address, "PUT", path, &[], writer.to_string().as_bytes()).status)
            };
            let asking: Vec<_> = (0..WRITERS).map(put).collect();
            asking.into_iter().map(|answering| answering.join().unwrap()).collect::<Vec<_>>()
        });
        statuses.sort_unstable();
        assert_eq!(statuses, [&[200; WRITERS - 1][..], &[201]].concat(), "round {round}");
        let revisions = archive.get(&format!("{path}/history")).json()["history"].as_array().unwrap().len();
        assert_eq!(revisions, WRITERS);
    }
}

#[test]
fn a_document_that_is_put_and_dropped_at_once_is_there_or_not_and_nobody_who_puts_is_refused() {
    let archive = archive(None);
    let address = archive.rest.address();
    thread::scope(|scope| {
        let writers = [("PUT", "/db/doc"), ("PUT", "/db/doc?overwrite=true"), ("DELETE", "/db/doc")];
        for (method, path) in writers {
            scope.spawn(move || {
                for round in 0..40 {
                    let answer = ask_at(address, method, path, &[], b"1");
                    let wanted: &[u16] = if method == "PUT" { &[200, 201] } else { &[204, 404] };
                    assert!(wanted.contains(&answer.status), "{method} {path} {round}: {}", answer.text());
                }
            });
        }
    });
}

#[test]
fn a_document_that_is_put_while_its_database_is_dropped_is_there_or_its_database_is_gone() {
    // Who drops looks behind it for documents without a database, and who puts one makes that again.
    let archive = archive(None);
    let address = archive.rest.address();
    for round in 0..200 {
        assert_eq!(archive.ask("PUT", "/db/other", &[], b"1").status, 201);
        thread::scope(|scope| {
            scope.spawn(move || assert_eq!(ask_at(address, "DELETE", "/db", &[], b"").status, 204));
            scope.spawn(move || assert_eq!(ask_at(address, "PUT", "/db/doc", &[], b"2").status, 201));
        });
        let [database, document] = ["/db", "/db/doc"].map(|path| archive.get(path).status);
        assert_eq!(database, document, "round {round}");
        archive.ask("DELETE", "/db", &[], b"");
    }
}
