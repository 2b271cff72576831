//! Requests with a key: done once, told again, also after a restart; another one under the same key is refused.

use std::sync::Barrier;
use std::time::Duration;

use serde_json::{Value, json};

use crate::house::{Answer, House, Rules, bearer, house, user};
use crate::jsoniq::{MATCH, UPDATE};

const REPLAYED: &str = "idempotency-replayed";
const DOC: &str = "jn:doc('db','doc')";

fn key(house: &House, method: &str, key: &str, body: &str, headers: &[(&str, &str)]) -> Answer {
    let headers = [&[("idempotency-key", key)], headers].concat();
    house.ask(method, "/v1/keys/0/a", &headers, body.as_bytes())
}

fn document(house: &House, method: &str, path: &str, key: &str, body: &str) -> Answer {
    let patch = ("content-type", "application/json-patch+json");
    let json = ("content-type", "application/json");
    let kind = if method == "PATCH" { patch } else { json };
    house.docs(method, path, &[("idempotency-key", key), kind], body)
}

fn is_again(answer: &Answer) -> bool {
    answer.header(REPLAYED).is_some()
}

fn revisions(house: &House, path: &str) -> usize {
    house.docs("GET", &format!("{path}/history"), &[], "").json()["history"].as_array().unwrap().len()
}

#[test]
fn a_key_is_written_once_however_often_it_is_asked_and_the_first_answer_is_told() {
    let mut house = house(Rules::default());
    let first = key(&house, "PUT", "k1", "1", &[("if-none-match", "*")]);
    assert_eq!((first.status, is_again(&first)), (204, false));
    assert_eq!(key(&house, "PUT", "k2", "2", &[]).status, 204);
    for _ in 0..2 {
        // The precondition does not hold any more; that is what was done once.
        let again = key(&house, "PUT", "k1", "1", &[("if-none-match", "*")]);
        assert_eq!((again.status, is_again(&again), again.header("etag")), (204, true, first.header("etag")));
        assert_eq!(house.get("/v1/keys/0/a").text(), "2");
        let other = key(&house, "PUT", "k1", "3", &[]);
        assert_eq!((other.status, key(&house, "DELETE", "k1", "", &[]).status), (422, 422), "{}", other.text());
        house = house.again();
    }
    // What was refused has changed nothing, and is judged anew.
    assert_eq!(key(&house, "PUT", "k3", "3", &[("if-none-match", "*")]).status, 412);
    assert_eq!(key(&house, "PUT", "k3", "3", &[]).status, 204);
    assert_eq!((key(&house, "DELETE", "k4", "", &[]).status, key(&house, "PUT", "k5", "5", &[]).status), (204, 204));
    let again = key(&house, "DELETE", "k4", "", &[]);
    assert_eq!((again.status, is_again(&again), house.get("/v1/keys/0/a").text().as_str()), (204, true, "5"));
    for wrong in ["", "a b", &"k".repeat(256)] {
        assert_eq!(key(&house, "PUT", wrong, "1", &[]).status, 400, "{wrong:?}");
    }
    house.clock.by(Duration::from_secs(86_401));
    assert!(!is_again(&key(&house, "PUT", "k1", "1", &[])), "it is forgotten by then");
    // Nobody reaches what is kept by its name.
    assert_eq!(house.get("/v1/keys/assent.requests").status, 403);
    assert_eq!(house.ask("DELETE", "/v1/keyspaces/assent.requests", &[], b"").status, 403);
    assert_eq!(house.get("/v1/keyspaces").json()["keyspaces"], json!([]));
}

#[test]
fn a_document_is_changed_once_and_whoever_asks_again_is_told_the_revision_that_was_made() {
    let mut house = house(Rules::default());
    let made = document(&house, "PUT", "/db/doc", "k1", "[1.50]");
    let pushed = document(&house, "POST", "/db/doc", "k2", "0");
    let patched = document(&house, "PATCH", "/db/doc", "k3", r#"[{"op":"add","path":"/-","value":2}]"#);
    // It changes nothing, and is a revision for its key.
    let same = document(&house, "PATCH", "/db/doc", "k4", r#"[{"op":"test","path":"/1","value":1.5}]"#);
    let removed = document(&house, "DELETE", "/db/doc?nodeId=2", "k5", "");
    assert_eq!([&made, &pushed, &patched, &same, &removed].map(|it| it.status), [201, 200, 200, 200, 204]);
    assert_eq!(
        (patched.text().as_str(), house.docs("GET", "/db/doc", &[], "").text().as_str()),
        ("[0,1.50,2]", "[0,2]")
    );
    for _ in 0..2 {
        for (first, method, path, key, body) in [
            (&made, "PUT", "/db/doc", "k1", "[1.50]"),
            (&pushed, "POST", "/db/doc", "k2", "0"),
            (&patched, "PATCH", "/db/doc", "k3", r#"[{"op":"add","path":"/-","value":2}]"#),
            (&same, "PATCH", "/db/doc", "k4", r#"[{"op":"test","path":"/1","value":1.5}]"#),
            (&removed, "DELETE", "/db/doc?nodeId=2", "k5", ""),
        ] {
            let again = document(&house, method, path, key, body);
            assert_eq!((again.status, is_again(&again), again.text()), (first.status, true, first.text()), "{key}");
            assert_eq!(again.header("etag"), first.header("etag"), "{key}");
            let other = document(&house, method, &path.replace("doc", "other"), key, body);
            assert_eq!(other.status, 422, "{key}: {}", other.text());
        }
        assert_eq!(revisions(&house, "/db/doc"), 5);
        house = house.again();
    }
    // A drop, too; what is made afterwards is not dropped by who asks again.
    assert_eq!(document(&house, "DELETE", "/db/doc", "k6", "").status, 204);
    assert_eq!(document(&house, "PUT", "/db/doc", "k7", "7").status, 201);
    for _ in 0..2 {
        let again = document(&house, "DELETE", "/db/doc", "k6", "");
        assert_eq!((again.status, is_again(&again)), (204, true));
        // Its document is another one now: that it was done is told, and no more.
        let again = document(&house, "PUT", "/db/doc", "k1", "[1.50]");
        assert_eq!((again.status, is_again(&again), again.text().as_str()), (201, true, ""));
        assert_eq!(house.docs("GET", "/db/doc", &[], "").text(), "7");
        house = house.again();
    }
}

#[test]
fn a_transaction_of_one_request_is_done_once_whichever_engines_it_writes() {
    let mut house = house(Rules::default());
    assert_eq!(house.docs("PUT", "/db/doc", &[], "[]").status, 201);
    let key = json!({"key": "n", "value": "1"});
    let push = json!({"document": "db/doc", "patch": [{"op": "add", "path": "/-", "value": 1}]});
    let bodies = [json!([key]), json!([push]), json!([key, push])].map(|list| json!({"writes": list, "commit": true}));
    let ask = |house: &House, name: &str, body: &Value| {
        house.ask("POST", "/v1/transactions", &[("idempotency-key", name)], body.to_string().as_bytes())
    };
    let told: Vec<Answer> = bodies.iter().zip(["a", "b", "c"]).map(|(body, name)| ask(&house, name, body)).collect();
    for _ in 0..2 {
        for ((first, body), name) in told.iter().zip(&bodies).zip(["a", "b", "c"]) {
            assert_eq!(first.status, 200, "{}", first.text());
            let again = ask(&house, name, body);
            assert_eq!((again.status, is_again(&again), again.json()), (200, true, first.json()), "{name}");
            assert_eq!(ask(&house, name, &json!({"writes": []})).status, 422, "{name}");
        }
        assert_eq!((revisions(&house, "/db/doc"), house.docs("GET", "/db/doc", &[], "").text().as_str()), (3, "[1,1]"));
        house = house.again();
    }
    // One that fails is not done, and may be tried again.
    let body = json!({"writes": [push, {"key": "n", "value": "2", "if": "absent"}], "commit": true});
    assert_eq!((ask(&house, "d", &body).status, ask(&house, "d", &body).status), (409, 409));
    assert_eq!(house.ask("DELETE", "/v1/keys/0/n", &[], b"").status, 204);
    let done = ask(&house, "d", &body);
    assert_eq!((done.status, is_again(&done)), (200, false), "{}", done.text());
}

#[test]
fn each_step_of_a_transaction_may_have_a_key_of_its_own() {
    let house = house(Rules::default());
    assert_eq!(house.docs("PUT", "/db/doc", &[], "[]").status, 201);
    let ask = |path: &str, name: &str, body: &Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        house.ask("POST", path, &[("idempotency-key", name)], body.as_bytes())
    };
    let begun = ask("/v1/transactions", "begin", &Value::Null);
    let again = ask("/v1/transactions", "begin", &Value::Null);
    assert_eq!((begun.status, again.status, is_again(&again)), (201, 201, true));
    assert_eq!(begun.json()["tx"], again.json()["tx"]);
    assert_eq!(ask("/v1/transactions", "begin", &json!({"seconds": 5})).status, 422);
    let tx = begun.json()["tx"].as_str().unwrap().to_owned();
    let push = json!({"writes": [{"document": "db/doc", "patch": [{"op": "add", "path": "/-", "value": 1}]}]});
    let writes = format!("/v1/transactions/{tx}/writes");
    for at in 0..3 {
        let told = ask(&writes, "push", &push);
        assert_eq!((told.status, is_again(&told), &told.json()["writes"]), (202, at > 0, &json!(1)), "{}", told.text());
    }
    assert_eq!(ask(&writes, "push", &json!({"writes": []})).status, 422);
    let put = |body: &str| {
        let path = format!("/v1/keys/0/k?tx={tx}");
        house.ask("PUT", &path, &[("idempotency-key", "put")], body.as_bytes()).status
    };
    assert_eq!((put("1"), put("1"), put("2")), (202, 202, 422));
    let commit = format!("/v1/transactions/{tx}/commit");
    for at in 0..3 {
        let told = ask(&commit, "commit", &Value::Null);
        assert_eq!((told.status, is_again(&told), &told.json()["state"]), (200, at > 0, &json!("committed")));
    }
    let other = ask("/v1/transactions", "other", &Value::Null).json()["tx"].as_str().unwrap().to_owned();
    assert_eq!(ask(&format!("/v1/transactions/{other}/commit"), "commit", &Value::Null).status, 422);
    assert_eq!(house.docs("GET", "/db/doc", &[], "").text(), "[1]");
}

#[test]
fn one_request_of_many_that_come_at_once_is_done_and_keys_of_others_are_their_own() {
    let users = vec![user("anna", "a", &["modify", "view", "create"]), user("bert", "b", &["modify", "view"])];
    let house = house(Rules { users: Some(users), ..Rules::default() });
    let [anna, bert] = ["anna", "bert"].map(|name| bearer(&house.token(name, &name[..1])));
    assert_eq!(house.docs("PUT", "/db/doc", &[("authorization", &anna)], "[]").status, 201);
    let push = |who: &str| loop {
        let headers = [("authorization", who), ("idempotency-key", "k")];
        let told = house.docs("POST", "/db/doc", &headers, "1");
        // Another one of that name is under way: it is worth asking again.
        match told.status {
            409 => assert_eq!(told.header("retry-after").as_deref(), Some("1")),
            status => return (status, is_again(&told)),
        }
    };
    let start = Barrier::new(16);
    let all: Vec<(u16, bool)> = std::thread::scope(|scope| {
        let one = |_| {
            let (start, push, anna) = (&start, &push, &anna);
            scope.spawn(move || {
                start.wait();
                push(anna)
            })
        };
        let threads: Vec<_> = (0..16).map(one).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.iter().all(|(status, _)| *status == 200), "{all:?}");
    assert_eq!(all.iter().filter(|(_, is_again)| !is_again).count(), 1, "{all:?}");
    assert_eq!(push(&bert), (200, false), "his key is his own");
    assert_eq!(house.docs("GET", "/db/doc", &[("authorization", &anna)], "").text(), "[1,1]");
}

#[test]
fn databases_tags_and_queries_are_done_once_too_and_nothing_that_came_after_is_undone_by_who_asks_again() {
    let mut house = house(Rules::default());
    assert_eq!(document(&house, "PUT", "/db", "make", "").status, 201);
    assert_eq!(house.docs("PUT", "/db/doc", &[], r#"[{"a":1}]"#).status, 201);
    let append = r#"append json jn:parse('{"a":2}') into jn:doc('db','doc')"#;
    let append = json!({"query": append, "commitMessage": "one more"}).to_string();
    let told = document(&house, "POST", "/", "append", &append);
    assert_eq!((told.status, told.text().as_str()), (200, r#"{"rest":[]}"#), "{}", told.text());
    let tagged = document(&house, "PUT", "/db/doc/tags/here?revision=1", "tag", "");
    assert_eq!((tagged.status, tagged.json()), (201, json!({"tag": "here", "revision": 1})));
    assert_eq!(house.docs("PUT", "/db/doc/tags/here?revision=2", &[], "").status, 200);
    for _ in 0..2 {
        for (method, path, key, body, status) in [
            ("PUT", "/db", "make", "", 201),
            ("POST", "/", "append", append.as_str(), 200),
            ("PUT", "/db/doc/tags/here?revision=1", "tag", "", 201),
        ] {
            let again = document(&house, method, path, key, body);
            assert_eq!((again.status, is_again(&again)), (status, true), "{key}: {}", again.text());
            let other = document(&house, "DELETE", "/db/doc?nodeId=1", key, "");
            assert_eq!(other.status, 422, "{key}: {}", other.text());
        }
        assert_eq!(house.docs("GET", "/db/doc", &[], "").text(), r#"[{"a":1},{"a":2}]"#);
        let tags = house.docs("GET", "/db/doc/tags", &[], "").json();
        assert_eq!(tags["tags"], json!([{"tag": "here", "revision": 2}]), "it was moved since");
        let history = house.docs("GET", "/db/doc/history", &[], "").json();
        assert_eq!((revisions(&house, "/db/doc"), &history["history"][0]["commitMessage"]), (2, &json!("one more")));
        house = house.again();
    }
    assert_eq!(document(&house, "DELETE", "/db/doc/tags/here", "untag", "").status, 204);
    assert_eq!(house.docs("PUT", "/db/doc/tags/here", &[], "").status, 201);
    assert_eq!(document(&house, "DELETE", "/db", "drop", "").status, 204);
    assert_eq!(house.docs("PUT", "/db/doc", &[], "7").status, 201);
    for _ in 0..2 {
        for (path, key) in [("/db/doc/tags/here", "untag"), ("/db", "drop")] {
            let again = document(&house, "DELETE", path, key, "");
            assert_eq!((again.status, is_again(&again)), (204, true), "{key}: {}", again.text());
        }
        assert_eq!(house.docs("GET", "/db/doc", &[], "").text(), "7", "it was made since");
        house = house.again();
    }
    assert_eq!(document(&house, "DELETE", "/", "all", "").status, 204);
    assert_eq!(house.docs("PUT", "/db/doc", &[], "8").status, 201);
    let again = document(&house, "DELETE", "/", "all", "");
    assert_eq!(
        (again.status, is_again(&again), house.docs("GET", "/db/doc", &[], "").text().as_str()),
        (204, true, "8")
    );
}

#[test]
fn what_was_done_and_changed_nothing_is_not_done_again_to_what_came_since() {
    let mut house = house(Rules::default());
    let refused = document(&house, "DELETE", "/", "all", "");
    assert_eq!(refused.status, 409, "nothing could keep the key: {}", refused.text());
    assert_eq!(house.docs("DELETE", "/", &[], "").status, 204);
    assert_eq!(house.docs("PUT", "/db/doc", &[], "[]").status, 201);
    let found = |like: &str| format!("where local:q($i, jn:parse('{like}'))");
    let ones = found(r#"{"a": 1}"#);
    let queries = [
        (
            "delete",
            format!(
                "{MATCH}let $doc := {DOC} let $m := for $i at $pos in $doc {ones} return $pos - 1 for $i in $m order by $i descending return delete json $doc[[$i]]"
            ),
        ),
        (
            "update",
            format!("{MATCH}{UPDATE}for $i in {DOC} {ones} return local:update-fields($i, jn:parse('{{\"a\": 2}}'))"),
        ),
        ("append", format!("let $doc := {DOC} for $i in jn:parse('[]') return append json $i into $doc")),
    ];
    let ask = |house: &House, (key, query): &(&str, String)| {
        document(house, "POST", "/", key, &json!({ "query": query }).to_string())
    };
    for query in &queries {
        let told = ask(&house, query);
        assert_eq!((told.status, is_again(&told)), (200, false), "{query:?}: {}", told.text());
    }
    assert_eq!(house.docs("PUT", "/db/doc", &[], r#"[{"a":1}]"#).status, 200);
    for _ in 0..2 {
        for query in &queries {
            let again = ask(&house, query);
            assert_eq!((again.status, is_again(&again)), (200, true), "{query:?}: {}", again.text());
        }
        assert_eq!(house.docs("GET", "/db/doc", &[], "").text(), r#"[{"a":1}]"#);
        house = house.again();
    }
    // Without a key what changes nothing makes no revision.
    let before = revisions(&house, "/db/doc");
    let sent = json!({ "query": queries[2].1 }).to_string();
    assert_eq!(house.docs("POST", "/", &[], &sent).status, 200);
    assert_eq!(revisions(&house, "/db/doc"), before);
}

#[test]
fn keyspaces_are_made_and_dropped_once() {
    let mut house = house(Rules::default());
    let ask = |house: &House, method: &str, key: &str| {
        house.ask(method, "/v1/keyspaces/shop", &[("idempotency-key", key)], b"")
    };
    let made = ask(&house, "PUT", "make");
    assert_eq!((made.status, ask(&house, "PUT", "other").status), (201, 409));
    for _ in 0..2 {
        let again = ask(&house, "PUT", "make");
        assert_eq!((again.status, is_again(&again), again.json()), (201, true, made.json()));
        house = house.again();
    }
    assert_eq!(ask(&house, "DELETE", "drop").status, 204);
    assert_eq!(ask(&house, "PUT", "anew").status, 201);
    assert_eq!(house.ask("PUT", "/v1/keys/shop/a", &[], b"1").status, 204);
    let again = ask(&house, "DELETE", "drop");
    assert_eq!((again.status, is_again(&again), house.get("/v1/keys/shop/a").text().as_str()), (204, true, "1"));
}
