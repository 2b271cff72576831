//! What `pysirix` calls a store of records: each of its queries, word for word as it writes them, and who may send them.

use serde_json::{Value, json};

use crate::house::{Archive, archive, ask_at, bearer, user};

pub(crate) const MATCH: &str = "declare function local:q($i, $q) {let $m := for $k in jn:keys($q) return if (not(empty($i=>$k))) then \
                     deep-equal($i=>$k, $q=>$k) else false() return empty(index-of($m, false()))};";
const UPSERT: &str = "declare %updating function local:upsert-fields($r, $u) {for $key in bit:fields($u) return if (empty($r=>$key)) \
                      then insert json $u into $r else replace json value of $r=>$key with $u=>$key};";
pub(crate) const UPDATE: &str = "declare %updating function local:update-fields($r, $u) {for $key in bit:fields($u) return replace json value of \
                      $r=>$key with $u=>$key};";
const DOC: &str = "jn:doc('shop','books')";

fn library() -> Archive {
    let archive = archive(None);
    assert_eq!(archive.ask("PUT", "/shop/books", &[], b"[]").status, 201);
    archive
}

/// The results of a query that is posted.
fn posted(archive: &Archive, query: &str) -> Value {
    let answer = archive.ask("POST", "/", &[], json!({"query": query}).to_string().as_bytes());
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()["rest"].clone()
}

fn document(archive: &Archive) -> Value {
    archive.get("/shop/books").json()
}

fn append(archive: &Archive, record: &str) {
    assert_eq!(posted(archive, &format!("append json jn:parse('{record}') into {DOC}")), json!([]));
}

fn find(archive: &Archive, like: &str, rest: &str) -> Value {
    posted(archive, &format!("{MATCH} for $i in {DOC} where local:q($i, jn:parse('{like}')) {rest}"))
}

/// Neighbours' records were deleted: 64-bit names were compared as floating point numbers, and what these have no number for as null.
#[test]
fn records_are_told_apart_to_the_last_digit_of_their_numbers() {
    let archive = library();
    for id in ["9007199254740992", "9007199254740993", "18446744073709551616", "18446744073709551617", "1e400"] {
        append(&archive, &format!("{{\"id\": {id}}}"));
    }
    append(&archive, r#"{"id": null, "more": 1}"#);
    let ids = |like: &str| {
        let query = format!("{MATCH} for $i in {DOC} where local:q($i, jn:parse('{like}')) return {{$i}}");
        let told = archive.ask("POST", "/", &[], json!({"query": query}).to_string().as_bytes());
        assert_eq!(told.status, 200, "{}", told.text());
        told.text().matches("\"id\"").count()
    };
    for (like, count) in [
        (r#"{"id": 9007199254740993}"#, 1),
        (r#"{"id": 9007199254740993.0}"#, 1),
        (r#"{"id": 18446744073709551617}"#, 1),
        (r#"{"id": 1.0e400}"#, 1),
        (r#"{"id": 1e401}"#, 0),
        (r#"{"id": null}"#, 1),
        ("{}", 6),
    ] {
        assert_eq!(ids(like), count, "{like}");
    }
    let records = |like: &str| {
        format!(
            "{MATCH} let $doc := {DOC} let $m := for $i at $pos in $doc where local:q($i, jn:parse('{like}')) return $pos - 1 for $i in $m order by $i descending return delete json $doc[[$i]]"
        )
    };
    posted(&archive, &records(r#"{"id": 9007199254740993}"#));
    assert_eq!([ids(r#"{"id": 9007199254740992}"#), ids(r#"{"id": 9007199254740993}"#)], [1, 0]);
}

#[test]
fn records_are_appended_found_and_shown_as_far_as_is_asked() {
    let archive = library();
    append(&archive, r#"{"title": "it's", "price": 1.50, "tags": ["a", {"b": null}]}"#);
    let many =
        r#"[{"title": "two", "price": 2}, {"title": "three", "price": 2.0}, 7, {"title": "none", "price": null}]"#;
    posted(&archive, &format!("let $doc := {DOC}for $i in jn:parse('{many}') return append json $i into $doc"));
    // The digits stay as they came.
    assert!(archive.get("/shop/books").text().contains(r#""price":1.50"#), "{}", archive.get("/shop/books").text());
    assert_eq!(
        archive.get("/shop/books/history").json()["history"].as_array().unwrap().len(),
        3,
        "one commit for several"
    );
    let titles = |like: &str| {
        let found = find(&archive, like, "return {$i}");
        found.as_array().unwrap().iter().map(|it| it["title"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(titles(r#"{"price": 2}"#), ["two", "three"]);
    assert_eq!(titles(r#"{"tags": ["a", {"b": null}], "title": "it's"}"#), ["it's"]);
    assert_eq!(titles(r#"{"tags": ["a"]}"#), Vec::<String>::new());
    assert_eq!(titles(r#"{"price": null}"#), ["none"]);
    assert_eq!(titles(r#"{"colour": null}"#), Vec::<String>::new(), "what is not there is not null");
    assert_eq!(titles("{}").len(), 4, "whatever is no object is no record");
    let all = find(
        &archive,
        r#"{"title": "two"}"#,
        "return {$i,'nodeKey': sdb:nodekey($i),'hash': sdb:hash($i)}{title,nodeKey,hash}",
    );
    let key = all[0]["nodeKey"].as_u64().unwrap();
    let tag = archive.ask("HEAD", &format!("/shop/books?nodeId={key}"), &[], b"").header("etag").unwrap();
    assert_eq!(all, json!([{"title": "two", "nodeKey": key, "hash": tag.trim_matches('"')}]));
    // A part of the results.
    let body = json!({"query": format!("{MATCH}for $i in {DOC} where local:q($i, jn:parse('{{}}')) return {{$i}}{{title}}"), "startResultSeqIndex": 1, "endResultSeqIndex": 2});
    let part = archive.ask("POST", "/", &[], body.to_string().as_bytes()).json();
    assert_eq!(part, json!({"rest": [{"title": "two"}, {"title": "three"}]}));
    assert_eq!(posted(&archive, &format!("bit:array-values({DOC})=>title")), json!([]));
    assert_eq!(posted(&archive, &format!("{DOC}[[1]].price")), json!([2]));
    assert_eq!(posted(&archive, "bit:array-values(jn:doc('shop','books',2))").as_array().unwrap().len(), 1);
}

#[test]
fn fields_are_changed_added_and_deleted_and_records_dropped_each_in_one_commit() {
    let archive = library();
    let three = r#"[{"a": 1, "k": "x"}, {"a": 2, "k": "x"}, {"a": 3, "k": "y"}]"#;
    posted(&archive, &format!("let $doc := {DOC} for $i in jn:parse('{three}') return append json $i into $doc"));
    let revision = || archive.get("/shop/books/history").json()["history"][0]["revision"].as_u64().unwrap();
    assert_eq!(revision(), 2);
    let many = |prelude: &str, how: &str, fields: &str| {
        posted(
            &archive,
            &format!(
                "{MATCH}{prelude}for $i in {DOC} where local:q($i, jn:parse('{{\"k\": \"x\"}}')) return local:{how}-fields($i, jn:parse('{fields}'))"
            ),
        );
    };
    many(UPSERT, "upsert", r#"{"a": {"n": [1]}, "new": true}"#);
    assert_eq!(
        document(&archive),
        json!([{"a": {"n": [1]}, "k": "x", "new": true}, {"a": {"n": [1]}, "k": "x", "new": true}, {"a": 3, "k": "y"}])
    );
    many(UPDATE, "update", r#"{"a": 0, "unknown": 1}"#);
    assert_eq!(document(&archive)[1], json!({"a": 0, "k": "x", "new": true}));
    assert_eq!(revision(), 4);
    many(UPDATE, "update", r#"{"unknown": 1}"#);
    assert_eq!(revision(), 4, "nothing changed, nothing committed");
    let key = find(&archive, r#"{"k": "y"}"#, "return {$i,'nodeKey': sdb:nodekey($i)}")[0]["nodeKey"].as_u64().unwrap();
    posted(
        &archive,
        &format!(
            "{UPSERT}let $rec := sdb:select-item({DOC},{key}) return local:upsert-fields($rec, jn:parse('{{\"b\": 2}}'))"
        ),
    );
    posted(
        &archive,
        &format!(
            "let $obj := sdb:select-item({DOC},{key}) let $update := jn:parse('[\"a\", \"zz\"]') for $i in $fields return delete json $obj=>$i"
        ),
    );
    assert_eq!(document(&archive)[2], json!({"k": "y", "b": 2}));
    posted(
        &archive,
        &format!(
            "{MATCH}let $records := for $i in {DOC} where local:q($i, jn:parse('{{\"k\": \"x\"}}')) return $i let $fields := jn:parse('[\"new\"]') for $i in $fields return delete json $records=>$i"
        ),
    );
    assert_eq!(document(&archive), json!([{"a": 0, "k": "x"}, {"a": 0, "k": "x"}, {"k": "y", "b": 2}]));
    posted(
        &archive,
        &format!(
            "{MATCH}let $doc := {DOC} let $m := for $i at $pos in $doc where local:q($i, jn:parse('{{\"k\": \"x\"}}')) return $pos - 1 for $i in $m order by $i descending return delete json $doc[[$i]]"
        ),
    );
    assert_eq!(document(&archive), json!([{"k": "y", "b": 2}]));
    let newest = archive.get("/shop/books/history").json()["history"][0].clone();
    assert_eq!((newest["revision"].as_u64(), newest["author"].as_str()), (Some(8), Some("anonymous")));
}

#[test]
fn the_past_of_a_record_is_told_and_found_in_other_revisions() {
    let archive = library();
    append(&archive, r#"{"a": 1}"#);
    let key = find(&archive, "{}", "return {$i,'nodeKey': sdb:nodekey($i)}")[0]["nodeKey"].as_u64().unwrap();
    append(&archive, r#"{"other": 1}"#);
    let upsert = format!(
        "{UPSERT}let $rec := sdb:select-item({DOC},{key}) return local:upsert-fields($rec, jn:parse('{{\"a\": 2}}'))"
    );
    posted(&archive, &upsert);
    let gone = format!(
        "{MATCH}let $doc := {DOC} let $m := for $i at $pos in $doc where local:q($i, jn:parse('{{\"a\": 2}}')) return $pos - 1 for $i in $m order by $i descending return delete json $doc[[$i]]"
    );
    // Moments have milliseconds.
    archive.clock.by(std::time::Duration::from_millis(10));
    posted(&archive, &gone);
    let asked = |query: &str, revision: &str| {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        archive.get(&format!("/shop/books?query={encoded}{revision}"))
    };
    let told = "{\"revisionNumber\": sdb:revision($rev), \"revisionTimestamp\": xs:string(sdb:timestamp($rev))}";
    let past = |shown: &str| {
        format!(
            "let $node := sdb:select-item(., {key}) let $result := for $rev in jn:all-times($node) return if (not(exists(jn:previous($rev)))) then {shown} else if (sdb:hash($rev) ne sdb:hash(jn:previous($rev))) then {shown} else () return $result"
        )
    };
    // It is not there any more: one says of which revision one speaks.
    assert_eq!(asked(&past(told), "").status, 404);
    let revisions = asked(&past(told), "&revision=4").json();
    let numbers: Vec<_> =
        revisions["rest"].as_array().unwrap().iter().map(|it| it["revisionNumber"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [2, 4]);
    assert!(revisions["rest"][0]["revisionTimestamp"].as_str().unwrap().ends_with('Z'));
    assert_eq!(asked(&past("$rev"), "&revision=2").json(), json!({"rest": [{"a": 1}, {"a": 2}]}));
    let items = asked(&format!("sdb:item-history(sdb:select-item(., {key}))"), "&revision=2").json();
    assert_eq!((&items["rest"][1]["revision"], &items["rest"][1]["revisionNumber"]), (&json!({"a": 2}), &json!(4)));
    // Found as it was in revision 2, shown as it was last, and first.
    let then = |shift: &str| {
        posted(
            &archive,
            &format!(
                "{MATCH} for $i in bit:array-values(jn:doc('shop','books',2)) where local:q($i, jn:parse('{{\"a\": 1}}')) {shift} return {{$i}}"
            ),
        )
    };
    assert_eq!(then("let $i := jn:last-existing($i)"), json!([{"a": 2}]));
    assert_eq!(then("let $i := jn:first-existing($i)"), json!([{"a": 1}]));
    assert_eq!(then(""), json!([{"a": 1}]));
    let at = archive.get("/shop/books/history").json()["history"][1]["revisionTimestamp"].as_str().unwrap().to_owned();
    let open = format!(
        "{MATCH} for $i in bit:array-values(jn:open('shop','books',xs:dateTime('{at}'))) where local:q($i, jn:parse('{{\"a\": 2}}')) return {{$i}}"
    );
    assert_eq!(posted(&archive, &open), json!([{"a": 2}]));
    // A GET reads.
    let written = asked(&upsert, "");
    assert!(written.status == 400 && written.text().contains("a GET changes nothing"), "{}", written.text());
}

#[test]
fn a_query_takes_the_roles_of_what_it_does_where_it_does_it() {
    let users = vec![
        user("root", "x", &["admin"]),
        user("reader", "x", &["view"]),
        user("writer", "x", &["view", "shop-modify"]),
        user("other", "x", &["other-admin"]),
        user("cleaner", "x", &["view", "delete"]),
    ];
    let archive = archive(Some(users));
    let address = archive.rest.address();
    let by = |name: &str, query: &str| {
        let login = json!({"username": name, "password": "x", "grant_type": "password"}).to_string();
        let token = bearer(&archive.ask("POST", "/token", &[], login.as_bytes()).json());
        let body = json!({"query": query}).to_string();
        let made = ask_at(address, "PUT", "/shop/books", &[("authorization", &token)], b"[]").status;
        (ask_at(address, "POST", "/", &[("authorization", &token)], body.as_bytes()).status, made)
    };
    assert_eq!(by("root", DOC), (200, 201));
    let append = format!("append json jn:parse('1') into {DOC}");
    let drop = format!(
        "{MATCH}let $doc := {DOC} let $m := for $i at $pos in $doc where local:q($i, jn:parse('{{}}')) return $pos - 1 for $i in $m order by $i descending return delete json $doc[[$i]]"
    );
    let status = |name: &str, query: &str| by(name, query).0;
    assert_eq!((status("reader", DOC), status("reader", &append), status("reader", &drop)), (200, 403, 403));
    assert_eq!((status("writer", DOC), status("writer", &append), status("writer", &drop)), (200, 200, 403));
    assert_eq!((status("cleaner", DOC), status("cleaner", &append), status("cleaner", &drop)), (200, 403, 200));
    assert_eq!((status("other", DOC), status("other", &append), status("other", &drop)), (403, 403, 403));
    // What is not there is told to who may look.
    assert_eq!((status("reader", "jn:doc('shop','none')"), status("reader", "jn:doc('a/b','c')")), (404, 404));
}

#[test]
fn what_is_not_served_is_named_and_changes_nothing() {
    let archive = library();
    let says = |query: &str| {
        let answer = archive.ask("POST", "/", &[], json!({"query": query}).to_string().as_bytes());
        (answer.status, answer.json()["detail"].as_str().unwrap_or_default().to_owned())
    };
    for (query, status, word) in [
        ("xml:doc('a','b')", 501, "XML"),
        ("let $x := 1 return $x", 501, "\"$x\""),
        ("jn:store('a','b','[]')", 501, "jn:store"),
        ("append json jn:parse('{') into jn:doc('shop','books')", 400, "no JSON"),
        ("append json jn:parse('1') into jn:doc('shop','books',1)", 400, "what was is not changed"),
        ("append json jn:parse('1') into jn:doc('shop','books')=>a", 400, "goes to an array"),
        ("sdb:item-history(sdb:select-item(., 1))", 400, ". names nothing here"),
        ("", 400, "JSONiq"),
    ] {
        let (told, detail) = says(query);
        assert!(told == status && detail.contains(word), "{query}: {told} {detail}");
    }
    for body in ["", "[]", "{}", r#"{"query": 1}"#, r#"{"query": "1", "more": 1}"#] {
        assert_eq!(archive.ask("POST", "/", &[], body.as_bytes()).status, 400, "{body}");
    }
    assert_eq!(
        (document(&archive), archive.get("/shop/books/history").json()["history"].as_array().unwrap().len()),
        (json!([]), 1)
    );
}

#[test]
fn the_object_that_records_are_matched_with_has_a_limit() {
    let archive = library();
    append(&archive, r#"{"title": "one"}"#);
    let like = |bytes: usize| {
        let like = format!(r#"{{"t": "{}"}}"#, "x".repeat(bytes - 9));
        let query = format!("{MATCH} for $i in {DOC} where local:q($i, jn:parse('{like}')) return {{$i}}");
        archive.ask("POST", "/", &[], json!({"query": query}).to_string().as_bytes())
    };
    assert_eq!(like(64 << 10).status, 200);
    let refused = like((64 << 10) + 1);
    assert_eq!(refused.status, 413);
    assert!(refused.text().contains("65537 bytes; it has at most 65536"), "{}", refused.text());
}
