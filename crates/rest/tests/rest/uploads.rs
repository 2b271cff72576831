//! Several documents at once, tags, and answers without a body.

use std::time::{Duration, Instant};

use assent_docs::{At, Look as _, Meta};
use assent_ids::Xid;
use serde_json::json;

use crate::house::{Answer, Archive, Rules, archive, bearer, house, user};

fn form(files: &[(&str, &str)]) -> String {
    let part = |(name, text): &(&str, &str)| {
        format!("--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{name}\"\r\n\r\n{text}\r\n")
    };
    format!("{}--x--\r\n", files.iter().map(part).collect::<String>())
}

fn upload(archive: &Archive, headers: &[(&str, &str)], files: &[(&str, &str)]) -> Answer {
    let headers = [&[("content-type", "multipart/form-data; boundary=x")], headers].concat();
    archive.ask("POST", "/db?commitMessage=all", &headers, form(files).as_bytes())
}

fn names(archive: &Archive) -> serde_json::Value {
    archive.get("/db").json()["resources"].clone()
}

#[test]
fn files_are_made_together_or_none_of_them_is() {
    let archive = archive(None);
    let made = upload(&archive, &[], &[("a.json", "{\"x\":1.50}"), ("b", "[1]")]);
    assert_eq!((made.status, made.json()), (201, json!({"resources": ["a", "b"]})), "{}", made.text());
    assert_eq!((archive.get("/db/a").text().as_str(), archive.get("/db/b").text().as_str()), ("{\"x\":1.50}", "[1]"));
    // Those that are there have a revision more.
    assert_eq!(upload(&archive, &[], &[("b", "[2]"), ("c", "3")]).status, 201);
    let history = archive.get("/db/b/history").json()["history"].clone();
    assert_eq!((&history[0]["revision"], &history[0]["commitMessage"]), (&json!(2), &json!("all")));
    for wrong in
        [&[("b", "[4]"), ("d", "{")][..], &[("b", "[4]"), ("b.json", "5")], &[("b", "[4]"), ("../e", "5")], &[]]
    {
        let told = upload(&archive, &[], wrong);
        assert_eq!(told.status, 400, "{wrong:?}: {}", told.text());
        assert_eq!((archive.get("/db/b").text().as_str(), archive.get("/db/d").status), ("[2]", 404), "{wrong:?}");
    }
    assert_eq!(names(&archive), json!(["a", "b", "c"]));
    for kind in ["application/json", "multipart/form-data", "multipart/mixed; boundary=x"] {
        assert_eq!(archive.ask("POST", "/db", &[("content-type", kind)], form(&[("e", "1")]).as_bytes()).status, 415);
    }
    // Done once, too.
    let key = [("idempotency-key", "k")];
    for again in [false, true] {
        let told = upload(&archive, &key, &[("b", "[6]"), ("f", "7")]);
        assert_eq!((told.status, told.header("idempotency-replayed").is_some()), (201, again), "{}", told.text());
    }
    assert_eq!(upload(&archive, &key, &[("b", "[7]")]).status, 422);
    assert_eq!(archive.get("/db/b/history").json()["history"].as_array().unwrap().len(), 3);
}

#[test]
fn a_tag_names_a_revision_for_whoever_reads() {
    let archive = archive(None);
    for body in ["[1]", "[2]", "[3]"] {
        archive.ask("PUT", "/db/doc", &[], body.as_bytes());
    }
    let put = |path: &str| archive.ask("PUT", &format!("/db/doc/tags/{path}"), &[], b"");
    let first = put("release?revision=1");
    assert_eq!((first.status, first.json()), (201, json!({"tag": "release", "revision": 1})));
    assert_eq!((put("release?revision=2").status, put("now").json()["revision"].clone()), (200, json!(3)));
    assert_eq!(put("%C3%A9%20b?revision=1").status, 201);
    assert_eq!(archive.get("/db/doc?tag=release").text(), "[2]");
    assert_eq!(archive.get("/db/doc?tag=%C3%A9%20b&path=$[0]").json()["rest"], json!([1]));
    assert_eq!(archive.get("/db/doc/pathSummary?tag=now").json()["revision"], 3);
    let all = archive.get("/db/doc/tags").json();
    assert_eq!(all["tags"][0], json!({"tag": "now", "revision": 3}), "{all}");
    assert_eq!((all["tags"].as_array().unwrap().len(), &all["next"]), (3, &json!(null)));
    let page = archive.get("/db/doc/tags?limit=1").json();
    assert_eq!((&page["next"], page["tags"].as_array().unwrap().len()), (&json!("now"), 1));
    assert_eq!(archive.get("/db/doc/tags?limit=1&after=now").json()["tags"][0]["tag"], "release");
    assert_eq!(archive.ask("DELETE", "/db/doc/tags/now", &[], b"").status, 204);
    for (method, path, status) in [
        ("GET", "/db/doc?tag=now", 404),
        ("DELETE", "/db/doc/tags/now", 404),
        ("PUT", "/db/doc/tags/x?revision=4", 404),
        ("PUT", "/db/doc/tags/x?revision=y", 400),
        ("PUT", "/db/doc/tags/x%00", 400),
        ("PUT", "/db/none/tags/x", 404),
        ("GET", "/db/doc?tag=release&revision=1", 400),
        ("GET", "/db/doc/tags?limit=x", 400),
    ] {
        assert_eq!(archive.ask(method, path, &[], b"").status, status, "{method} {path}");
    }
}

#[test]
fn an_answer_without_a_body_says_so_and_has_the_tag() {
    let archive = archive(None);
    let minimal = ("prefer", "return=minimal");
    let made = archive.ask("PUT", "/db/doc", &[minimal], b"[1]");
    let changed = archive.ask("POST", "/db/doc", &[minimal], b"0");
    for (answer, status) in [(&made, 201), (&changed, 204)] {
        assert_eq!((answer.status, answer.text().as_str()), (status, ""));
        assert_eq!(answer.header("preference-applied").as_deref(), Some("return=minimal"));
    }
    let tag = archive.ask("HEAD", "/db/doc", &[], b"").header("etag");
    assert!(changed.header("etag") == tag && made.header("etag").is_some());
    let full = archive.ask("POST", "/db/doc", &[("prefer", "return=representation")], b"2");
    assert_eq!((full.status, full.text().as_str(), full.header("preference-applied")), (200, "[2,0,1]", None));
    // What is refused is told in full, and what is read is read.
    assert!(archive.ask("POST", "/db/doc", &[minimal], b"{").text().contains("statusCode"));
    assert_eq!(archive.ask("GET", "/db/doc", &[minimal], b"").text(), "[2,0,1]");
}

#[test]
fn roles_are_asked_for_tags_uploads_and_streams() {
    let users = vec![user("root", "r", &["admin"]), user("vera", "v", &["view"]), user("carl", "c", &["create"])];
    let archive = archive(Some(users));
    let token = |name: &str| {
        let asked = json!({"username": name, "password": &name[..1], "grant_type": "password"}).to_string();
        bearer(&archive.ask("POST", "/token", &[], asked.as_bytes()).json())
    };
    let [root, vera, carl] = ["root", "vera", "carl"].map(token);
    let with = |who: &str, method: &str, path: &str| archive.ask(method, path, &[("authorization", who)], b"").status;
    assert_eq!(archive.ask("PUT", "/db/doc", &[("authorization", &root)], b"[]").status, 201);
    assert_eq!(with(&root, "PUT", "/db/doc/tags/a"), 201);
    assert_eq!((with(&vera, "GET", "/db/doc/tags"), with(&carl, "GET", "/db/doc/tags")), (200, 403));
    assert_eq!((with(&vera, "PUT", "/db/doc/tags/b"), with(&vera, "DELETE", "/db/doc/tags/a")), (403, 403));
    assert_eq!((with(&carl, "GET", "/db/doc/watch"), archive.get("/db/doc/watch").status), (403, 401));
    let carls = [("authorization", carl.as_str())];
    assert_eq!(upload(&archive, &carls, &[("new", "1")]).status, 201);
    assert_eq!(
        upload(&archive, &carls, &[("newer", "1"), ("doc", "1")]).status,
        403,
        "another's is changed by who may"
    );
    assert_eq!(upload(&archive, &[("authorization", &vera)], &[("x", "1")]).status, 403);
}

/// They were held for ever, over restarts: no coordinator knows the name of an upload's branch, and no command ends it.
#[test]
fn what_an_upload_has_left_without_an_outcome_is_rolled_back_by_the_next_start() {
    let house = house(Rules::default());
    for name in ["a", "b"] {
        assert_eq!(house.docs("PUT", &format!("/db/{name}"), &[], "[]").status, 201);
    }
    // As a power cut leaves it between its vote and its outcome; and one that is a coordinator's own, which is left to that.
    for (name, bqual) in [("db/a", &b"upload"[..]), ("db/b", b"other")] {
        let mut edit = house.documents.document(name).unwrap().edit().unwrap();
        let value = edit.value().unwrap();
        edit.insert_json(At::Last(value), None, &b"1"[..]).unwrap();
        let xid = Xid::new(1, &[7; 16], bqual).unwrap();
        let voted = house.documents.prepare_begin(&xid, vec![edit], &Meta::default()).unwrap();
        house.documents.wait(voted.appended).unwrap();
    }
    let house = house.again();
    let is_free = |name: &str| house.documents.document(name).unwrap().edit().is_ok();
    let until = Instant::now() + Duration::from_secs(60);
    while !is_free("db/a") {
        assert!(Instant::now() < until, "it is held for ever");
        std::thread::yield_now();
    }
    assert_eq!((house.docs("GET", "/db/a", &[], "").text(), is_free("db/b")), ("[]".to_owned(), false));
}
