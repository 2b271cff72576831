//! What was refused has changed nothing, whatever comes behind it.

use assent_docs::Versioning;
use assent_kv::CONDITIONS_MAX;
use assent_rest::Settings;
use serde_json::{Value, json};

use crate::house::{Answer, House, Rules, house};

fn begin(house: &House) -> String {
    house.post("/v1/transactions", "").json()["tx"].as_str().unwrap().to_owned()
}

fn write(house: &House, tx: &str, writes: Value) -> Answer {
    house.post(&format!("/v1/transactions/{tx}/writes"), &json!({ "writes": writes }).to_string())
}

fn commit(house: &House, tx: &str) -> Answer {
    house.post(&format!("/v1/transactions/{tx}/commit"), "")
}

fn revisions(house: &House, path: &str) -> usize {
    house.docs("GET", &format!("{path}/history"), &[], "").json()["history"].as_array().unwrap().len()
}

fn upload(house: &House, path: &str, files: &[(&str, &str)]) -> Answer {
    let part = |(name, text): &(&str, &str)| {
        format!("--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{name}\"\r\n\r\n{text}\r\n")
    };
    let form = format!("{}--x--\r\n", files.iter().map(part).collect::<String>());
    house.docs("POST", path, &[("content-type", "multipart/form-data; boundary=x")], &form)
}

/// Each of its documents says what is done once with the transaction: one of which the only write had been refused was there behind the
/// commit, and empty, or had a revision of which nothing had changed.
#[test]
fn a_document_of_which_a_transaction_has_written_nothing_gets_no_revision_from_it() {
    let house = house(Rules::default());
    for name in ["pen", "cup"] {
        assert_eq!(house.docs("PUT", &format!("/shop/{name}"), &[], r#"{"stock":10}"#).status, 201);
    }
    for (refused, status) in [
        (json!({"document": "shop/new", "put": 1, "if": "present"}), 412),
        (json!({"document": "shop/cup", "put": 1, "if": "\"0\""}), 412),
        (json!({"document": "shop/cup", "put": 1, "if": "absent"}), 412),
        (json!({"document": "shop/cup", "patch": [{"op": "test", "path": "/stock", "value": 5}]}), 409),
        (json!({"document": "shop/cup", "node": 99, "delete": true}), 404),
    ] {
        let tx = begin(&house);
        assert_eq!(write(&house, &tx, json!([refused])).status, status, "{refused}");
        assert_eq!(write(&house, &tx, json!([{"document": "shop/pen", "merge": {"stock": status}}])).status, 202);
        assert_eq!(commit(&house, &tx).status, 200, "{refused}");
        assert_eq!(house.docs("GET", "/shop/new", &[], "").status, 404, "{refused}");
        assert_eq!(
            (revisions(&house, "/shop/cup"), house.docs("GET", "/shop", &[], "").text().contains("new")),
            (1, false)
        );
    }
    assert_eq!(revisions(&house, "/shop/pen"), 6);
    // Nor does it keep others out, or forget what it had written before.
    let tx = begin(&house);
    let writes = [
        (json!([{"document": "shop/cup", "put": 1, "if": "\"0\""}]), 412),
        (json!([{"document": "shop/pen", "put": {"stock": 1}}, {"document": "shop/new", "put": 1}]), 202),
        (json!([{"document": "shop/pen", "put": 2, "if": "\"0\""}]), 412),
        (json!([{"document": "shop/new", "put": 2, "if": "absent"}]), 412),
    ];
    writes.into_iter().for_each(|(list, status)| assert_eq!(write(&house, &tx, list.clone()).status, status, "{list}"));
    assert_eq!(house.docs("PUT", "/shop/cup", &[], "{}").status, 200);
    assert_eq!(commit(&house, &tx).status, 200);
    let said = ["/shop/pen", "/shop/new", "/shop/cup"].map(|path| house.docs("GET", path, &[], "").text());
    assert_eq!(said, [r#"{"stock":1}"#, "1", "{}"]);
}

/// Its condition was kept, and the commit failed by it.
#[test]
fn a_write_that_finds_no_room_in_its_transaction_leaves_no_condition_there() {
    let settings = Settings { body_bytes_max: 20 << 20, ..Settings::default() };
    let house = house(Rules { settings, ..Rules::default() });
    assert_eq!(house.ask("PUT", "/v1/keys/0/there", &[], b"before").status, 204);
    let (tx, long) = (begin(&house), vec![b'x'; 16 << 20]);
    let put = |key: &str, headers: &[(&str, &str)], value: &[u8]| {
        house.ask("PUT", &format!("/v1/keys/0/{key}?tx={tx}"), headers, value).status
    };
    assert_eq!(["a", "b", "c"].map(|key| put(key, &[], &long)), [202; 3]);
    assert_eq!(put("there", &[("if-none-match", "*")], &long), 413);
    let value = String::from_utf8(long).unwrap();
    assert_eq!(write(&house, &tx, json!([{"key": "there", "value": value, "if": "absent"}])).status, 413);
    assert_eq!(["a", "b", "c"].map(|key| put(key, &[], b"1")), [202; 3]);
    let committed = commit(&house, &tx);
    assert_eq!(committed.status, 200, "{}", committed.text());
    assert_eq!(["a", "there"].map(|key| house.get(&format!("/v1/keys/0/{key}")).text()), ["1", "before"]);
}

#[test]
fn a_write_whose_condition_finds_no_room_is_not_committed_without_it() {
    let house = house(Rules::default());
    assert_eq!(house.ask("PUT", "/v1/keys/0/there", &[], b"before").status, 204);
    let tx = begin(&house);
    let many = vec![json!({"key": "a", "value": "1", "if": "absent"}); CONDITIONS_MAX as usize];
    assert_eq!(write(&house, &tx, json!(many)).status, 202);
    let one = house.ask("PUT", &format!("/v1/keys/0/there?tx={tx}"), &[("if-none-match", "*")], b"behind");
    assert!(matches!(one.status, 400 | 413), "{}", one.text());
    assert_eq!(commit(&house, &tx).json()["kind"], "rolled_back");
    assert_eq!((house.get("/v1/keys/0/a").status, house.get("/v1/keys/0/there").text()), (404, "before".to_owned()));
}

/// It was listed for ever.
#[test]
fn a_document_that_is_refused_leaves_no_database_behind() {
    let house = house(Rules::default());
    let long = format!("[\"{}\"]", "x".repeat(20));
    assert_eq!(house.docs("PUT", "/typo/doc", &[], "{bad").status, 400);
    assert_eq!(house.docs("PUT", "/typo/doc?overwrite=true", &[], &long[..9]).status, 400);
    assert_eq!(upload(&house, "/typo", &[("a", "1"), ("b", "{")]).status, 400);
    assert_eq!(house.docs("GET", "/", &[], "").json(), json!({"databases": []}));
    assert_eq!(house.docs("GET", "/typo", &[], "").status, 404);
    // What is right makes it, and finds nothing there.
    assert_eq!(upload(&house, "/typo", &[("a", "1"), ("b", "2")]).status, 201);
    assert_eq!(house.docs("GET", "/typo", &[], "").json(), json!({"resources": ["a", "b"]}));
    assert_eq!(house.docs("PUT", "/other/doc", &[], &long).status, 201);
    assert_eq!(house.docs("GET", "/", &[], "").json()["databases"].as_array().unwrap().len(), 2);
}

/// What was refused stayed, without a revision and without its database: a transaction wrote it, was told that it is committed, and the document
/// was dropped as one whose database is gone.
#[test]
fn a_document_that_is_refused_is_not_there_for_a_transaction_and_nowhere_else() {
    let house = house(Rules::default());
    for path in ["/typo/doc", "/metrics/doc"] {
        assert_eq!(house.docs("PUT", path, &[], "{bad").status, 400, "{path}");
    }
    for path in ["/typo", "/%6detrics"] {
        assert_eq!(upload(&house, path, &[("doc", "1"), ("other", "{")]).status, 400, "{path}");
    }
    assert_eq!(house.documents.names(None, 10).unwrap(), Vec::<String>::new());
    // As a process leaves it that dies before the database is made.
    house.documents.create("cut/doc", Versioning::default()).unwrap();
    for name in ["typo/doc", "metrics/doc", "cut/doc"] {
        let tx = begin(&house);
        let told = write(&house, &tx, json!([{"document": name, "put": 1}]));
        assert_eq!(told.status, 404, "{name}: {}", told.text());
        assert_eq!(commit(&house, &tx).status, 200, "{name}");
        assert_eq!(house.docs("GET", &format!("/{name}"), &[], "").status, 404, "{name}");
    }
    // Whoever makes it right goes on with what is left.
    assert_eq!(house.docs("PUT", "/cut/doc", &[], "[7]").status, 201);
    assert_eq!(house.docs("GET", "/cut", &[], "").json(), json!({"resources": ["doc"]}));
}

/// A database of such a name was made by its first document; it was not listed, and only a drop of all dropped it.
#[test]
fn nothing_is_made_where_the_listener_has_something_else() {
    let house = house(Rules::default());
    for name in ["health", "metrics", "token", "logout", "openapi.json"] {
        let told = house.docs("PUT", &format!("/{name}/doc"), &[], "[]");
        assert_eq!(told.status, 400, "{name}: {}", told.text());
    }
    for (path, file) in [("/%6detrics", "doc"), ("/swagger%2dui", "doc"), ("/user", "authorize")] {
        assert_eq!(upload(&house, path, &[("doc1", "1"), (file, "1")]).status, 400, "{path}");
    }
    for path in ["/%6detrics", "/swagger%2dui", "/swagger%2Dui/doc", "/user/%61uthorize"] {
        assert_eq!(house.docs("PUT", path, &[], "[]").status, 400, "{path}");
    }
    assert_eq!(house.docs("GET", "/", &[], "").json(), json!({"databases": []}));
    assert_eq!(house.docs("PUT", "/user/doc", &[], "[]").status, 201);
    assert_eq!(write(&house, &begin(&house), json!([{"document": "user/authorize", "put": 1}])).status, 400);
    assert_eq!(house.docs("GET", "/user", &[], "").json(), json!({"resources": ["doc"]}));
    // One that an earlier release has made goes on, and can be dropped by itself.
    house.documents.create("metrics/", Versioning::default()).unwrap();
    assert_eq!(house.docs("PUT", "/metrics/doc", &[], "[7]").status, 201);
    assert_eq!(house.docs("GET", "/metrics/doc", &[], "").text(), "[7]");
    assert_eq!(house.docs("GET", "/%6detrics", &[], "").json(), json!({"resources": ["doc"]}));
    assert_eq!(house.docs("DELETE", "/%6detrics", &[], "").status, 204);
    assert_eq!(house.docs("GET", "/metrics/doc", &[], "").status, 404);
}
