//! Documents at the root: what the published clients do not send, every route by every role, and what is wrong.

use std::io::Read as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::house::{Answer, Archive, archive, ask_at, bearer, user};

const JSON: (&str, &str) = ("content-type", "application/json");

fn put(archive: &Archive, path: &str, body: &str) -> Answer {
    archive.ask("PUT", path, &[JSON], body.as_bytes())
}

fn post(archive: &Archive, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    archive.ask("POST", path, headers, body.as_bytes())
}

#[test]
fn a_document_keeps_its_digits_its_order_and_every_revision_it_had() {
    let archive = archive(None);
    let text = r#"{"z":1.50,"a":[1e2,-0,12345678901234567890.5],"é":"\u0000\n"}"#;
    let made = put(&archive, "/db/doc?commitMessage=first", text);
    assert_eq!((made.status, made.header("content-type").as_deref()), (201, Some("application/json")));
    assert_eq!(archive.get("/db/doc").text(), text);
    let tag = made.header("etag").unwrap();
    assert_eq!(archive.get("/db/doc").header("etag").as_deref(), Some(tag.as_str()));
    // Over it: a revision more; told to, the history goes.
    assert_eq!(put(&archive, "/db/doc", "[1]").status, 200);
    archive.clock.by(Duration::from_secs(5));
    assert_eq!(put(&archive, "/db/doc", "[2]").status, 200);
    let history = archive.get("/db/doc/history").json()["history"].clone();
    assert_eq!(history.as_array().unwrap().len(), 3);
    assert_eq!((&history[2]["commitMessage"], &history[2]["author"]), (&json!("first"), &json!("anonymous")));
    assert_eq!(archive.get("/db/doc/history?revisions=1").json()["history"][0]["revision"], 3);
    for range in ["startRevision=1&endRevision=2", "start-revision=2&end-revision=1"] {
        let list = archive.get(&format!("/db/doc/history?{range}")).json()["history"].clone();
        assert_eq!((list.as_array().unwrap().len(), &list[0]["revision"]), (2, &json!(2)), "{range}");
    }
    assert_eq!(archive.get("/db/doc?revision=1").text(), text);
    let time = history[1]["revisionTimestamp"].as_str().unwrap();
    let blank = time.replace('T', "%20").trim_end_matches('Z').to_owned();
    for form in [format!("revision-timestamp={time}"), format!("revisionTimestamp={blank}")] {
        assert_eq!(archive.get(&format!("/db/doc?{form}")).text(), "[1]", "{form}");
    }
    assert_eq!(archive.get("/db/doc?revision-timestamp=1980-01-01T00:00").text(), text, "before the first, the first");
    let several = archive.get("/db/doc?startRevision=3&end-revision=2").json();
    let numbers: Vec<&Value> = several["sirix"].as_array().unwrap().iter().map(|one| &one["revisionNumber"]).collect();
    assert_eq!((numbers, &several["sirix"][1]["revision"]), (vec![&json!(2), &json!(3)], &json!([2])));
    // What is no document takes nothing away, whatever it should have replaced.
    assert_eq!(put(&archive, "/db/doc?overwrite=true", "{\"a\":").status, 400);
    assert_eq!(archive.get("/db/doc/history").json()["history"].as_array().unwrap().len(), 3);
    assert_eq!(put(&archive, "/db/doc?overwrite=true", "[3]").status, 201);
    assert_eq!(archive.get("/db/doc/history").json()["history"].as_array().unwrap().len(), 1);
}

#[test]
fn a_precondition_that_does_not_hold_is_412_everywhere_also_at_the_root_and_nothing_is_done() {
    let archive = archive(None);
    let tag = put(&archive, "/db/doc", r#"{"a":[1]}"#).header("etag").unwrap();
    let with = |method: &str, path: &str, header: &str, tag: &str, body: &str| {
        archive.ask(method, path, &[JSON, (header, tag)], body.as_bytes()).status
    };
    for header in ["if-match", "etag"] {
        assert_eq!(with("PUT", "/db/doc", header, "\"0\"", "[]"), 412);
        assert_eq!(with("POST", "/db/doc", header, "\"0\"", r#"{"b":1}"#), 412);
        assert_eq!(
            with("POST", "/db/doc?nodeId=2&insert=asFirstChild", header, &tag, "0"),
            412,
            "the tag of another node"
        );
        assert_eq!(with("DELETE", "/db/doc?nodeId=2", header, "\"0\"", ""), 412);
        assert_eq!(with("DELETE", "/db/doc", header, "\"0\"", ""), 412);
        assert_eq!(with("PUT", "/db/new", header, &tag, "[]"), 412);
        assert_eq!(with("PUT", "/db/new", header, "*", "[]"), 412, "there is none");
        assert_eq!(with("PUT", "/db/doc?overwrite=true", header, "\"0\"", "[]"), 412);
    }
    assert_eq!((archive.get("/db/doc").text().as_str(), archive.get("/db/new").status), (r#"{"a":[1]}"#, 404));
    for method in ["GET", "HEAD"] {
        let known = archive.ask(method, "/db/doc", &[("if-none-match", &tag)], b"");
        assert_eq!((known.status, known.header("content-length")), (304, None), "{method}");
    }
    let node = archive.ask("HEAD", "/db/doc?nodeId=2", &[], b"").header("etag").unwrap();
    assert_eq!(with("POST", "/db/doc?nodeId=2", "if-match", &node, "0"), 200);
    assert_eq!(
        with("PUT", "/db/doc", "if-match", &tag, "[]"),
        412,
        "what is below the root has changed, and so has the root"
    );
    assert_eq!(with("PUT", "/db/doc", "if-match", "*", "[]"), 200);
}

#[test]
fn values_are_put_before_behind_into_and_in_place_of_a_node() {
    let archive = archive(None);
    put(&archive, "/db/doc", r#"{"list":[1],"m":true}"#);
    let at = |query: &str, body: &str| post(&archive, &format!("/db/doc?{query}"), &[JSON], body);
    assert_eq!(at("nodeId=2", "0").status, 200);
    assert_eq!(at("nodeId=3&insert=asRightSibling", r#"{"x":[]}"#).status, 200);
    assert_eq!(at("nodeId=3&insert=asLeftSibling", "\"l\"").text(), r#"{"list":[0,"l",1,{"x":[]}],"m":true}"#);
    // Into an object, and beside a member, go members.
    assert_eq!(at("nodeId=1", r#"{"f":1.0,"g":{}}"#).status, 200);
    assert_eq!(at("nodeId=4&insert=asLeftSibling", r#"{"e":null}"#).status, 200);
    assert_eq!(
        at("nodeId=4&insert=replace", "[false]").text(),
        r#"{"f":1.0,"g":{},"list":[0,"l",1,{"x":[]}],"e":null,"m":[false]}"#
    );
    for (query, body, status) in [
        ("nodeId=1", "7", 400),
        ("nodeId=1", r#"{"f":2}"#, 400),
        ("nodeId=2", "{", 400),
        ("nodeId=2", "", 400),
        ("nodeId=2", "1 2", 400),
        ("nodeId=2&insert=somewhere", "1", 400),
        ("nodeId=99", "1", 404),
        ("nodeId=x", "1", 400),
        ("nodeId=3", "1", 400),
        ("nodeId=2&commitTimestamp=2020-01-01T00:00", "1", 501),
    ] {
        assert_eq!(at(query, body).status, status, "{query} {body}");
    }
    assert_eq!(
        archive.get("/db/doc/history").json()["history"].as_array().unwrap().len(),
        7,
        "what failed left no revision"
    );
}

#[test]
fn reading_is_cut_and_annotated_as_asked_in_both_spellings() {
    let archive = archive(None);
    put(&archive, "/db/doc", r#"{"a":[1,2,3],"b":{"c":{"d":1}}}"#);
    for (query, text) in [
        ("nodeId=2", "[1,2,3]"),
        ("node-id=2&maxChildren=2", "[1,2]"),
        ("maxLevel=2", r#"{"a":[],"b":{}}"#),
        ("max-level=2&nodeId=6", r#"{"c":{}}"#),
        ("numberOfNodes=3", r#"{"a":[1]}"#),
        ("nodeId=3&prettyPrint=true", "1"),
    ] {
        assert_eq!(archive.get(&format!("/db/doc?{query}")).text(), text, "{query}");
    }
    for spelling in ["withMetaData=nodeKey", "withMetadata=nodeKey"] {
        assert_eq!(archive.get(&format!("/db/doc?nodeId=3&{spelling}")).json()["metadata"]["nodeKey"], 3, "{spelling}");
    }
    let paths = archive.get("/db/doc/pathSummary").json();
    assert!(paths["pathSummary"].as_array().unwrap().len() >= 5, "{paths}");
    for (query, status) in [
        ("revision=0", 404),
        ("revision=2", 404),
        ("revision=-1", 400),
        ("revision=x", 400),
        ("revision=1&revision-timestamp=2020-01-01T00:00", 400),
        ("start-revision=1", 400),
        ("start-revision=1&end-revision=1&revision=1", 400),
        ("revision-timestamp=yesterday", 400),
        ("maxLevel=0", 400),
        ("maxLevel=x", 400),
        ("withMetaData=some", 400),
        ("prettyPrint=perhaps", 400),
        ("colour=red", 400),
        ("nodeId=99", 404),
        ("query=1", 501),
    ] {
        assert_eq!(archive.get(&format!("/db/doc?{query}")).status, status, "{query}");
        let head = archive.ask("HEAD", &format!("/db/doc?{query}"), &[], b"");
        assert_eq!(head.status, status, "HEAD {query}");
    }
}

#[test]
fn a_patch_of_either_kind_is_made_whole_or_not_at_all() {
    let archive = archive(None);
    let tag = put(&archive, "/db/doc", r#"{"a":[1,2],"b":1.0}"#).header("etag").unwrap();
    let patch = |kind: &str, headers: &[(&str, &str)], body: &str| {
        let mut all = vec![("content-type", kind)];
        all.extend(headers);
        archive.ask("PATCH", "/db/doc", &all, body.as_bytes())
    };
    let (list, merge) = ("application/json-patch+json", "application/merge-patch+json; charset=utf-8");
    let done = patch(
        list,
        &[("if-match", &tag)],
        r#"[{"op":"test","path":"/b","value":1},{"op":"add","path":"/a/1","value":1.50}]"#,
    );
    assert_eq!((done.status, done.text().as_str()), (200, r#"{"a":[1,1.50,2],"b":1.0}"#));
    assert_eq!(patch(merge, &[], r#"{"b":null,"c":{"d":1}}"#).text(), r#"{"a":[1,1.50,2],"c":{"d":1}}"#);
    let half = r#"[{"op":"remove","path":"/c"},{"op":"remove","path":"/nowhere"}]"#;
    assert_eq!((patch(list, &[], half).status, patch(list, &[("if-match", &tag)], "[]").status), (409, 412));
    for (kind, body, status) in [
        (list, "{}", 400),
        (list, "[", 400),
        (merge, "{", 400),
        ("application/json", "[]", 415),
        (list, r#"[{"op":"x"}]"#, 400),
    ] {
        assert_eq!(patch(kind, &[], body).status, status, "{kind} {body}");
    }
    assert_eq!(
        (archive.get("/db/doc").text().as_str(), archive.get("/db/doc?revision=4").status),
        (r#"{"a":[1,1.50,2],"c":{"d":1}}"#, 404)
    );
}

#[test]
fn a_query_finds_nodes_of_any_revision_page_by_page() {
    let archive = archive(None);
    put(&archive, "/db/doc", r#"{"fruit":[{"n":"apple","p":1.50},{"n":"pear","p":2}]}"#);
    put(&archive, "/db/doc", r#"{"fruit":[]}"#);
    let asked = |query: &str| archive.get(&format!("/db/doc?revision=1&path={query}"));
    assert_eq!(asked("$.fruit[?@.p%3C2].n").text(), r#"{"rest":["apple"]}"#);
    assert_eq!(asked("$..p").text(), r#"{"rest":[1.50,2]}"#);
    assert_eq!(asked("$..p&startResultSeqIndex=1").text(), r#"{"rest":[2]}"#);
    assert_eq!(asked("$..p&startResultSeqIndex=0&endResultSeqIndex=0").text(), r#"{"rest":[1.50]}"#);
    let told = asked("$.fruit[1].n&withMetaData=nodeKey").json();
    assert!(told["rest"][0]["metadata"]["nodeKey"].as_u64().is_some(), "{told}");
    assert_eq!(archive.get("/db/doc?path=$..p").text(), r#"{"rest":[]}"#);
    for wrong in ["$.[", "fruit", "$..p&startResultSeqIndex=x", "$..p&endResultSeqIndex=20000"] {
        assert_eq!(asked(wrong).status, 400, "{wrong}");
    }
    assert_eq!(
        (
            archive.get("/db/doc?startResultSeqIndex=1").status,
            archive.get("/db/doc?path=$&start-revision=1&end-revision=2").status
        ),
        (400, 400)
    );
}

#[test]
fn a_long_array_is_read_page_by_page() {
    let archive = archive(None);
    put(&archive, "/db/doc", "[10,[20],30,40]");
    assert_eq!(archive.get("/db/doc?nextTopLevelNodes=2").text(), "[10,[20]]");
    // Keys are those of the nodes in their order: the document's value, then 10.
    for behind in ["lastTopLevelNodeKey=2", "startNodeKey=2"] {
        assert_eq!(archive.get(&format!("/db/doc?nextTopLevelNodes=2&{behind}")).text(), "[[20],30]", "{behind}");
    }
    assert_eq!(
        (archive.get("/db/doc?nextTopLevelNodes=0").status, archive.get("/db/doc?lastTopLevelNodeKey=4").status),
        (400, 400)
    );
}

#[test]
fn what_differs_is_told_in_both_directions_by_number_and_by_time() {
    let archive = archive(None);
    put(&archive, "/db/doc", r#"{"a":1,"b":[1]}"#);
    archive.clock.by(Duration::from_secs(5));
    assert_eq!(post(&archive, "/db/doc?nodeId=3", &[JSON], "7").status, 200);
    let diff = |query: &str| archive.get(&format!("/db/doc/diff?{query}"));
    let forth = diff("first-revision=1&second-revision=2").json();
    assert_eq!(
        (&forth["database"], &forth["resource"], &forth["new-revision"]),
        (&json!("db"), &json!("doc"), &json!(2))
    );
    let only = forth["diffs"].as_array().unwrap();
    assert_eq!((only.len(), &only[0]["insert"]["insertPositionNodeKey"]), (1, &json!(3)), "{forth}");
    let back = diff("firstRevision=2&secondRevision=1").json();
    assert!(back["diffs"][0]["delete"]["nodeKey"].as_u64().is_some(), "{back}");
    let history = archive.get("/db/doc/history").json();
    let time = |at: usize| history["history"][at]["revisionTimestamp"].as_str().unwrap().to_owned();
    assert_eq!(
        diff(&format!("first-revision={}&second-revision={}", time(1), time(0))).json()["diffs"],
        forth["diffs"]
    );
    assert_eq!(diff("first-revision=1&second-revision=2&startNodeKey=2").json()["diffs"], json!([]));
    assert!(
        diff("first-revision=1&second-revision=2&include-data=false").json()["diffs"][0]["insert"]
            .get("data")
            .is_none()
    );
    for (wrong, status) in [
        ("first-revision=1", 400),
        ("first-revision=1&second-revision=9", 404),
        ("first-revision=x&second-revision=1", 400),
        ("first-revision=1&second-revision=2&maxDepth=x", 400),
    ] {
        assert_eq!(diff(wrong).status, status, "{wrong}");
    }
}

#[test]
fn databases_are_made_listed_and_dropped_and_names_lead_nowhere_else() {
    let archive = archive(None);
    assert_eq!((put(&archive, "/one", "").status, put(&archive, "/one", "").status), (201, 200));
    put(&archive, "/one/a", "1");
    put(&archive, "/two%20words/b", "2");
    let listed = archive.get("/?withResources=true").json();
    let two = json!({"name": "two words", "type": "json", "resources": ["b"]});
    assert_eq!(listed, json!({"databases": [{"name": "one", "type": "json", "resources": ["a"]}, two]}));
    assert!(archive.get("/").json()["databases"][0].get("resources").is_none());
    assert_eq!(archive.get("/one").json(), json!({"resources": ["a"]}));
    assert_eq!(archive.ask("DELETE", "/one", &[], b"").status, 204);
    assert_eq!(
        (archive.get("/one").status, archive.get("/one/a").status, archive.ask("DELETE", "/one", &[], b"").status),
        (404, 404, 404)
    );
    assert_eq!(archive.get("/two%20words/b").text(), "2");
    for path in [
        "/%2e%2e/x",
        "/db/%2e",
        "/a%2fb/x",
        "/db/a%2fb",
        "/db/%00",
        "/db/%0a",
        "/db/%ff",
        "/db/%",
        &format!("/db/{}", "n".repeat(256)),
    ] {
        assert_eq!(put(&archive, path, "1").status, 400, "{path}");
        assert_eq!(archive.get(path).status, 400, "{path}");
    }
    for body in ["", "{", "{\"a\":1,}", "nul", "[1]]"] {
        assert_eq!(put(&archive, "/db/broken", body).status, 400, "{body:?}");
        assert_eq!(archive.get("/db/broken").status, 404, "{body:?} left something");
    }
    assert!(
        !archive.get("/db").text().contains("broken") && !archive.get("/?withResources=true").text().contains("broken")
    );
    assert_eq!(put(&archive, "/db/broken", "0").status, 201);
    let xml = archive.ask("PUT", "/db/x", &[("content-type", "application/xml")], b"<a/>");
    assert_eq!(
        (xml.status, post(&archive, "/", &[], "{}").status, post(&archive, "/db", &[], "").status),
        (501, 400, 415)
    );
    assert_eq!(archive.ask("DELETE", "/", &[], b"").status, 204);
    assert_eq!(archive.get("/").json(), json!({"databases": []}));
}

#[test]
fn many_writers_of_one_document_lose_nothing_and_readers_see_whole_revisions() {
    let archive = archive(None);
    put(&archive, "/db/doc", "[]");
    let address = archive.rest.address();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn(move || {
                for number in 0..10 {
                    let body = format!("[{writer},{number}]");
                    let answer = ask_at(address, "POST", "/db/doc", &[JSON], body.as_bytes());
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    let seen = ask_at(address, "GET", "/db/doc", &[], b"").json();
                    assert!(seen.as_array().unwrap().contains(&json!([writer, number])), "one's own write");
                }
            });
        }
    });
    assert_eq!(archive.get("/db/doc").json().as_array().unwrap().len(), 40);
    assert_eq!(archive.get("/db/doc/history").json()["history"].as_array().unwrap().len(), 41);
}

/// Method, path, body, role.
const ROUTES: &[(&str, &str, &str, &str)] = &[
    ("GET", "/", "", "view"),
    ("POST", "/", "{}", "view"),
    ("GET", "/shop", "", "view"),
    ("PUT", "/shop", "", "create"),
    ("POST", "/shop", "", "create"),
    ("PUT", "/shop/new", "1", "create"),
    ("GET", "/shop/doc", "", "view"),
    ("HEAD", "/shop/doc", "", "view"),
    ("PUT", "/shop/doc", "[]", "modify"),
    ("POST", "/shop/doc", "1", "modify"),
    ("PATCH", "/shop/doc", "[]", "modify"),
    ("GET", "/shop/doc/history", "", "view"),
    ("GET", "/shop/doc/diff", "", "view"),
    ("GET", "/shop/doc/pathSummary", "", "view"),
    ("GET", "/shop/doc/tags", "", "view"),
    ("PUT", "/shop/doc/tags/a", "", "modify"),
    ("DELETE", "/shop/doc/tags/a", "", "delete"),
    ("GET", "/shop/doc/watch?since=4000000000", "", "view"),
    ("DELETE", "/shop/doc?nodeId=9", "", "delete"),
    ("DELETE", "/shop/new", "", "delete"),
    ("DELETE", "/shop", "", "delete"),
    ("DELETE", "/", "", "delete everywhere"),
];

#[test]
fn every_route_of_documents_is_for_its_role_global_or_of_its_database() {
    let roles = ["view", "create", "modify", "delete", "admin"];
    let mut users: Vec<_> = roles.iter().map(|role| user(role, "s", &[role])).collect();
    users.extend(roles.iter().map(|role| user(&format!("shop-{role}"), "s", &[&format!("shop-{role}")])));
    users.extend(roles.iter().map(|role| user(&format!("other-{role}"), "s", &[&format!("other-{role}")])));
    let names: Vec<String> = users.iter().map(|user| user.name.clone()).collect();
    let archive = archive(Some(users));
    let token = |name: &str| {
        let asked = json!({"username": name, "password": "s", "grant_type": "password"}).to_string();
        bearer(&post(&archive, "/token", &[], &asked).json())
    };
    let tokens: Vec<(String, String)> = names.into_iter().map(|name| (name.clone(), token(&name))).collect();
    let root = token("admin");
    let methods = ["get(", "head(", "put(", "post(", "patch(", "delete("];
    let source = include_str!("../../src/docs/mod.rs");
    let routes = source.split_once("Router::new()").unwrap().1.split_once(".with_state").unwrap().0;
    let handlers: usize = methods.iter().map(|method| routes.matches(method).count()).sum();
    assert_eq!(ROUTES.len(), handlers + 2, "each handler is in the table; PUT and DELETE of a document twice");
    for (method, path, body, takes) in ROUTES {
        let told = archive.ask(method, path, &[], body.as_bytes());
        assert_eq!((told.status, told.body.is_empty()), (401, *method == "HEAD"), "{method} {path}");
        let bytes = archive.get(path).body.len().to_string();
        assert!(*method != "HEAD" || told.header("content-length") == Some(bytes), "{method} {path}");
        for (name, token) in &tokens {
            for (path, body) in [("/shop", ""), ("/shop/doc", "[[]]")] {
                archive.ask("PUT", path, &[("authorization", &root)], body.as_bytes());
            }
            if *path == "/shop/new" && *method == "PUT" {
                archive.ask("DELETE", path, &[("authorization", &root)], b"");
            }
            let (of, role) = name.split_once('-').map_or((None, name.as_str()), |(of, role)| (Some(of), role));
            let counts = match (of, *path) {
                (None, _) => true,
                (Some(_), "/") => *takes == "view",
                (Some(of), _) => of == "shop",
            };
            let may = counts && (role == "admin" || takes.split(' ').next() == Some(role));
            let answer = archive.ask(method, path, &[("authorization", token)], body.as_bytes());
            let let_in = !matches!(answer.status, 401 | 403);
            assert_eq!(let_in, may, "{method} {path} by {name}: {} {}", answer.status, answer.text());
        }
    }
    // Whoever sees one database is told of that one.
    let shop = &tokens.iter().find(|(name, _)| name == "other-view").unwrap().1;
    assert_eq!(archive.ask("GET", "/", &[("authorization", shop)], b"").json(), json!({"databases": []}));
    // A database that is called like an open path of the other listener is not open.
    assert_eq!(archive.get("/v1/health").status, 401);
    assert_eq!(archive.get("/healthy").status, 401);
}

/// What was sent in chunks.
fn whole(mut rest: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").unwrap();
        let bytes = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if bytes == 0 {
            return all;
        }
        all.extend_from_slice(&rest[end + 2..end + 2 + bytes]);
        rest = &rest[end + 2 + bytes + 2..];
    }
}

#[test]
fn a_long_answer_is_compressed_for_who_asks_for_it_and_its_tag_is_the_same() {
    let archive = archive(None);
    let text = format!("[{}0]", "\"a text that comes again and again\",".repeat(20_000));
    assert_eq!(put(&archive, "/db/long", &text).status, 201);
    assert_eq!(put(&archive, "/db/short", "[1]").status, 201);
    let plain = archive.get("/db/long");
    assert_eq!((plain.header("content-encoding"), plain.header("vary").as_deref()), (None, Some("accept-encoding")));
    for asked in ["gzip", "br;q=1.0, gzip;q=0.5", "deflate, gzip, br"] {
        let told = archive.ask("GET", "/db/long", &[("accept-encoding", asked)], b"");
        assert_eq!((told.status, told.header("content-encoding").as_deref()), (200, Some("gzip")), "{asked}");
        assert_eq!(told.header("etag"), plain.header("etag"));
        let body = whole(&told.body);
        assert!(body.len() * 10 < text.len(), "{} bytes", body.len());
        let mut read = String::new();
        flate2::read::GzDecoder::new(body.as_slice()).read_to_string(&mut read).unwrap();
        assert_eq!(read.len(), text.len());
        assert!(read == text);
        let known = told.header("etag").unwrap();
        let headers = [("accept-encoding", asked), ("if-none-match", known.as_str())];
        assert_eq!(archive.ask("GET", "/db/long", &headers, b"").status, 304);
    }
    for (path, asked) in [
        ("/db/long", "identity"),
        ("/db/long", "gzip;q=0"),
        ("/db/long", "br"),
        ("/db/short", "gzip"),
        ("/db/none", "gzip"),
    ] {
        let told = archive.ask("GET", path, &[("accept-encoding", asked)], b"");
        assert_eq!(told.header("content-encoding"), None, "{path} {asked}");
    }
}

#[test]
fn what_is_answered_at_once_leaves_in_the_shape_of_what_another_thread_has_read() {
    let archive = archive(None);
    let text = format!("[{}0]", "\"a text that comes again and again\",".repeat(80));
    let tag = put(&archive, "/db/doc", &text).header("etag").unwrap();
    let gzip = ("accept-encoding", "gzip");
    for path in ["/db/doc", "/db/doc?revision=1"] {
        for headers in [
            &[][..],
            &[gzip],
            &[("accept-encoding", "identity")],
            &[("prefer", "return=minimal")],
            &[("if-none-match", &tag)],
            &[("if-none-match", &tag), gzip],
        ] {
            // What is asked for by a time is always read by a thread that may block.
            let [by_time, first, again] = ["/db/doc?revision-timestamp=2999-01-01T00:00", path, path]
                .map(|path| archive.ask("GET", path, headers, b""));
            for told in [&first, &again] {
                assert_eq!((told.status, told.headers()), (by_time.status, by_time.headers()), "{path} {headers:?}");
                assert!(told.body == by_time.body, "{path} {headers:?}");
            }
        }
        let plain = archive.get(path);
        assert_eq!(plain.header("content-length"), Some(text.len().to_string()));
        assert_eq!((plain.header("vary").as_deref(), plain.text() == text), (Some("accept-encoding"), true));
        let small = archive.ask("GET", path, &[gzip], b"");
        assert_eq!(small.header("content-encoding").as_deref(), Some("gzip"), "{path}");
        assert!(small.body.len() * 10 < text.len(), "{} bytes", small.body.len());
    }
}

#[test]
fn a_document_that_is_overwritten_is_there_at_every_moment_the_old_one_or_the_new() {
    // It was dropped first and made then: two entries and a commit, and whoever looked in between, or came back after a crash, found nothing.
    const ROUNDS: usize = 60;
    let archive = archive(None);
    assert_eq!(put(&archive, "/db/doc", "0").status, 201);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let looks = std::thread::scope(|scope| {
        let look = || {
            let mut looks = 0;
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                let told = archive.get("/db/doc/history");
                assert_eq!(told.status, 200, "{}", told.text());
                looks += 1;
            }
            looks
        };
        let reader = scope.spawn(look);
        let statuses: Vec<u16> =
            (0..ROUNDS).map(|round| put(&archive, "/db/doc?overwrite=true", &round.to_string()).status).collect();
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(statuses, [201; ROUNDS]);
        reader.join().unwrap()
    });
    assert!(looks > 0);
    assert_eq!(archive.get("/db/doc").text(), (ROUNDS - 1).to_string());
    assert_eq!(archive.get("/db/doc/history").json()["history"].as_array().unwrap().len(), 1);
}
