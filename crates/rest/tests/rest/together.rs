//! A document and a key in one transaction: both or neither, seen by nobody before, told again after a restart.

use std::time::Duration;

use serde_json::{Value, json};

use crate::house::{Answer, House, Rules, bearer, house, user};

fn begin(house: &House) -> String {
    house.post("/v1/transactions", r#"{"message":"sold"}"#).json()["tx"].as_str().unwrap().to_owned()
}

fn write(house: &House, tx: &str, writes: Value) -> Answer {
    house.post(&format!("/v1/transactions/{tx}/writes"), &json!({ "writes": writes }).to_string())
}

fn end(house: &House, tx: &str, how: &str) -> Answer {
    house.post(&format!("/v1/transactions/{tx}/{how}"), "")
}

fn stocked() -> House {
    let house = house(Rules::default());
    assert_eq!(house.docs("PUT", "/shop/pen", &[], r#"{"stock":10,"price":1.50,"sold":[]}"#).status, 201);
    house
}

fn pen(house: &House) -> String {
    house.docs("GET", "/shop/pen", &[], "").text()
}

fn order(house: &House) -> Option<String> {
    let answer = house.get("/v1/keys/0/order");
    (answer.status == 200).then(|| answer.text())
}

#[test]
fn a_document_and_a_key_are_committed_together_or_not_at_all() {
    let house = stocked();
    let before = pen(&house);
    for how in ["rollback", "commit"] {
        let tx = begin(&house);
        let told = write(
            &house,
            &tx,
            json!([
                {"document": "shop/pen", "patch": [{"op": "replace", "path": "/stock", "value": 9}]},
                {"document": "shop/pen", "node": 4, "put": "anna"},
                {"key": "order", "value": "a pen"},
            ]),
        );
        assert_eq!((told.status, told.json()["writes"].clone()), (202, json!(3)), "{}", told.text());
        assert_eq!(write(&house, &tx, json!([{"document": "shop/new", "put": null}])).status, 202);
        assert_eq!((pen(&house), order(&house)), (before.clone(), None), "nobody sees it");
        assert_eq!(house.docs("GET", "/shop/new", &[], "").status, 404);
        assert_eq!(end(&house, &tx, how).status, 200);
        let shown = house.get(&format!("/v1/transactions/{tx}")).json();
        assert_eq!(shown["state"], if how == "commit" { "committed" } else { "rolled_back" });
        if how == "rollback" {
            assert_eq!((pen(&house), order(&house)), (before.clone(), None));
            assert_eq!(house.docs("GET", "/shop/new", &[], "").status, 404);
        }
        // Two branches are decided by the coordinator, whose log tells both.
        let past = house.get(&format!("/v1/history?tx={tx}")).json();
        let told: Vec<_> =
            past["transactions"].as_array().unwrap().iter().flat_map(|it| it["branches"].as_array()).collect();
        assert_eq!(told.iter().map(|it| it.len()).sum::<usize>(), if how == "commit" { 2 } else { 0 }, "{past}");
    }
    assert_eq!(pen(&house), r#"{"stock":9,"price":1.50,"sold":["anna"]}"#, "digits and order stay");
    assert_eq!(
        (order(&house).as_deref(), house.docs("GET", "/shop/new", &[], "").text().as_str()),
        (Some("a pen"), "null")
    );
    let history = house.docs("GET", "/shop/pen/history", &[], "").json()["history"].clone();
    assert_eq!((&history[0]["commitMessage"], &history[0]["author"]), (&json!("sold"), &json!("anonymous")));
    assert!(house.documents.in_doubt().is_empty() && house.kv.prepared().is_empty());
}

#[test]
fn every_change_of_a_document_can_be_part_of_one_and_sees_those_before_it() {
    let house = stocked();
    let tx = begin(&house);
    let first = r#"{"writes":[{"document":"shop/pen","if":"present","put":{"a":[1],"b":2.50}},
                    {"document":"shop/pen","merge":{"b":null,"c":{"d":1e2}}}]}"#;
    assert_eq!(house.post(&format!("/v1/transactions/{tx}/writes"), first).status, 202);
    for writes in [
        json!([{"document": "shop/pen", "patch": [{"op": "test", "path": "/c/d", "value": 100}, {"op": "add", "path": "/a/-", "value": 7}]}]),
        json!([{"document": "shop/pen", "insert": "asFirstChild", "put": {"z": true}}]),
        json!([{"document": "shop/other", "put": [1, 2], "if": "absent"}]),
    ] {
        assert_eq!(write(&house, &tx, writes.clone()).status, 202, "{writes}");
    }
    assert_eq!(end(&house, &tx, "commit").status, 200);
    assert_eq!(pen(&house), r#"{"z":true,"a":[1,7],"c":{"d":1e2}}"#);
    assert_eq!(house.docs("GET", "/shop/pen/history", &[], "").json()["history"].as_array().unwrap().len(), 2);
    let tag = house.docs("HEAD", "/shop/other", &[], "").header("etag").unwrap();
    let tx = begin(&house);
    let node = json!([{"document": "shop/other", "node": 2, "delete": true}]);
    let tagged = json!([{"document": "shop/other", "put": 3, "if": tag}]);
    assert_eq!((write(&house, &tx, tagged.clone()).status, write(&house, &tx, tagged).status), (202, 412));
    assert_eq!(end(&house, &tx, "rollback").status, 200);
    let tx = begin(&house);
    assert_eq!((write(&house, &tx, node).status, end(&house, &tx, "commit").status), (202, 200));
    assert_eq!(house.docs("GET", "/shop/other", &[], "").text(), "[2]");
}

#[test]
fn what_is_wrong_in_a_list_writes_nothing_and_what_fails_in_its_middle_is_never_half_committed() {
    let house = stocked();
    let good = json!({"document": "shop/pen", "merge": {"stock": 0}});
    let long = "x".repeat(70_000);
    let tx = begin(&house);
    for (wrong, status) in [
        (json!({"document": "shop/pen"}), 400),
        (json!({"document": "pen", "put": 1}), 400),
        (json!({"document": "shop/../x", "put": 1}), 400),
        (json!({"document": "shop/pen", "put": 1, "merge": {}}), 400),
        (json!({"document": "shop/pen", "delete": true}), 400),
        (json!({"document": "shop/pen", "key": "a", "put": 1}), 400),
        (json!({"document": "shop/pen", "put": 1, "if": 7}), 400),
        (json!({"document": "shop/pen", "node": 2, "insert": "somewhere", "put": 1}), 400),
        (json!({"key": "a", "value": "1", "merge": {}}), 400),
        (json!({"key": "a", "value": "1", "keyspace": "assent.requests"}), 403),
        (json!({"key": long, "value": "1"}), 413),
        (json!({"key": "a", "value": "1", "if": "absent", "metadata_base64": "!"}), 400),
    ] {
        let told = write(&house, &tx, json!([good, wrong]));
        assert_eq!(told.status, status, "{wrong}: {}", told.text());
    }
    assert_eq!(house.get(&format!("/v1/transactions/{tx}")).json()["writes"], 0);
    assert_eq!((end(&house, &tx, "commit").status, pen(&house).contains(":10")), (200, true));
    for (wrong, status) in [
        (json!({"document": "shop/none", "merge": {}}), 404),
        (json!({"document": "nowhere/doc", "put": 1}), 404),
        (json!({"document": "shop/pen", "patch": [{"op": "test", "path": "/stock", "value": 5}]}), 409),
        (json!({"document": "shop/pen", "patch": [{"op": "jump"}]}), 400),
        (json!({"document": "shop/pen", "put": 1, "if": "\"0\""}), 412),
        (json!({"document": "shop/pen", "put": 1, "if": "absent"}), 412),
        (json!({"document": "shop/pen", "node": 99, "delete": true}), 404),
        (json!({"document": "shop/pen", "put": {"stock": 1, "new": 2}, "insert": "asFirstChild"}), 400),
    ] {
        // Alone it changes nothing, and the transaction goes on.
        let tx = begin(&house);
        assert_eq!(write(&house, &tx, json!([wrong])).status, status, "{wrong}");
        assert_eq!(write(&house, &tx, json!([{"key": "alone", "value": "1"}])).status, 202);
        assert_eq!(end(&house, &tx, "commit").status, 200, "{wrong}");
        // Behind others it is the end of it.
        let tx = begin(&house);
        assert_eq!(write(&house, &tx, json!([{"key": "order", "value": "1"}, good, wrong])).status, status);
        assert_eq!(write(&house, &tx, json!([good])).json()["kind"], "rolled_back");
        let ended = end(&house, &tx, "commit");
        assert_eq!((ended.status, ended.json()["kind"].clone()), (409, json!("rolled_back")), "{wrong}");
        assert!(ended.text().contains("half done"), "{}", ended.text());
        assert_eq!((order(&house), pen(&house).contains(":10")), (None, true), "{wrong}");
    }
}

#[test]
fn one_request_begins_writes_and_commits_and_one_that_fails_leaves_nothing() {
    let house = stocked();
    let one = |writes: Value| house.post("/v1/transactions", &json!({"writes": writes, "commit": true}).to_string());
    let sold = json!({"document": "shop/pen", "patch": [{"op": "replace", "path": "/stock", "value": 9}]});
    let failed = one(json!([{"key": "order", "value": "1"}, sold, {"document": "shop/none", "merge": {}}]));
    assert_eq!((failed.status, order(&house), house.kv.stats().branches), (404, None, 0));
    let unmet = one(json!([sold, {"key": "order", "value": "1", "if": "present"}]));
    assert_eq!((unmet.status, unmet.json()["kind"].clone(), order(&house)), (409, json!("rolled_back"), None));
    let done = one(json!([sold, {"key": "order", "value": "a pen", "if": "absent"}]));
    assert_eq!((done.status, done.json()["state"].clone()), (200, json!("committed")));
    assert_eq!((order(&house).as_deref(), pen(&house).contains(":9")), (Some("a pen"), true));
    assert_eq!(house.get("/v1/transactions").json()["open"], json!([]));
}

#[test]
fn a_commit_is_found_after_a_restart_whether_it_had_one_branch_or_two() {
    let mut house = stocked();
    let key = json!([{"key": "order", "value": "1"}]);
    let document = json!([{"document": "shop/pen", "merge": {"stock": 8}}]);
    let both = json!([{"key": "order", "value": "2"}, {"document": "shop/pen", "merge": {"stock": 7}}]);
    let ended = [key.clone(), document, both].map(|writes| {
        let tx = begin(&house);
        assert_eq!((write(&house, &tx, writes).status, end(&house, &tx, "commit").status), (202, 200));
        tx
    });
    let undone = begin(&house);
    assert_eq!((write(&house, &undone, key.clone()).status, end(&house, &undone, "rollback").status), (202, 200));
    let open = begin(&house);
    assert_eq!(write(&house, &open, key).status, 202);
    house = house.again();
    for tx in &ended {
        assert_eq!(end(&house, tx, "commit").json()["state"], "committed", "asked again");
        assert_eq!(house.get(&format!("/v1/transactions/{tx}")).json()["state"], "committed");
        assert_eq!(end(&house, tx, "rollback").status, 409);
    }
    for tx in [&undone, &open] {
        let told = end(&house, tx, "commit");
        assert_eq!(told.status, 404);
        assert!(told.text().contains("none of that name has committed"), "{}", told.text());
    }
    // What it has promised for a while it forgets then.
    house.clock.by(Duration::from_secs(86_401));
    assert_eq!(end(&house, &ended[0], "commit").status, 404);
    assert_eq!(end(&house, &ended[1], "commit").status, 404);
}

#[test]
fn roles_are_asked_for_each_document_and_each_key_and_what_is_another_s_stays_so() {
    let users = vec![
        user("anna", "a", &["shop-modify", "shop-create", "0-modify"]),
        user("bert", "b", &["shop-modify", "0-modify"]),
        user("root", "r", &["admin"]),
    ];
    let house = house(Rules { users: Some(users), ..Rules::default() });
    let [anna, bert, root] = ["anna", "bert", "root"].map(|name| bearer(&house.token(name, &name[..1])));
    let as_who = |who: &str, body: Value| {
        house.ask("POST", "/v1/transactions", &[("authorization", who)], body.to_string().as_bytes())
    };
    assert_eq!(house.docs("PUT", "/shop", &[("authorization", &root)], "").status, 201);
    let one = |write: Value| json!({"writes": [write], "commit": true});
    let put = one(json!({"document": "shop/pen", "put": {"n": 1}}));
    assert_eq!(as_who(&bert, put.clone()).status, 403, "he makes none");
    let made = as_who(&anna, put.clone());
    assert_eq!((made.status, as_who(&bert, put).status), (200, 200));
    assert_eq!(as_who(&bert, one(json!({"document": "shop/pen", "node": 2, "delete": true}))).status, 403);
    assert_eq!(as_who(&anna, one(json!({"document": "other/pen", "put": 1}))).status, 403);
    assert_eq!(as_who(&anna, one(json!({"key": "a", "value": "1", "keyspace": 1}))).status, 403);
    // Whose transaction it is, a restart does not forget.
    let tx = made.json()["tx"].as_str().unwrap().to_owned();
    let told =
        |who: &str| house.ask("POST", &format!("/v1/transactions/{tx}/commit"), &[("authorization", who)], b"").status;
    assert_eq!((told(&anna), told(&bert), told(&root)), (200, 404, 200));
}

#[test]
fn documents_that_are_no_resource_take_no_branch_and_say_what_to_write() {
    let house = house(Rules { own_store: false, ..Rules::default() });
    let told = write(&house, &begin(&house), json!([{"document": "shop/pen", "put": 1}]));
    assert_eq!(told.status, 404);
    assert!(told.text().contains("url = \\\"docs\\\""), "{}", told.text());
}

/// It was there, and its database was not: who made that again had it in there, with what it said before.
#[test]
fn what_a_transaction_makes_in_a_database_that_is_dropped_meanwhile_goes_with_it() {
    let house = house(Rules::default());
    let begin = || house.post("/v1/transactions", "").json()["tx"].as_str().unwrap().to_owned();
    let put = |tx: &str, name: &str| {
        let writes = json!({"writes": [{"document": name, "put": [1]}]}).to_string();
        house.post(&format!("/v1/transactions/{tx}/writes"), &writes).status
    };
    let end = |tx: &str, how: &str| house.post(&format!("/v1/transactions/{tx}/{how}"), "").status;
    // Whether the other one's document was there when the drop had looked already: else the drop waits for that one too, in vain.
    let is_played = |number: &i32| {
        let [db, aa, zz] = ["", "/aa", "/zz"].map(|name| format!("db{number}{name}"));
        assert_eq!(house.docs("PUT", &format!("/{aa}"), &[], "[]").status, 201);
        let (first, second) = (begin(), begin());
        assert_eq!(put(&first, &aa), 202);
        let (dropped, made) = std::thread::scope(|scope| {
            let drop = scope.spawn(|| house.docs("DELETE", &format!("/{db}"), &[], "").status);
            house.docs_wait_for(1);
            let made = put(&second, &zz);
            assert_eq!(end(&first, "rollback"), 200);
            (drop.join().unwrap(), made)
        });
        if (dropped, made) != (204, 202) {
            end(&second, "rollback");
            return false;
        }
        assert_eq!(end(&second, "commit"), 200);
        assert_eq!([db, zz].map(|path| house.docs("GET", &format!("/{path}"), &[], "").status), [404, 404]);
        true
    };
    assert!((0..20).any(|number| is_played(&number)));
}

/// Those before the busy one were gone, and he was told that nothing was done and when to ask again.
#[test]
fn a_database_of_which_a_document_is_busy_is_not_dropped_at_all() {
    let house = house(Rules::default());
    for path in ["/db/a", "/db/z", "/zoo/a"] {
        assert_eq!(house.docs("PUT", path, &[], "[]").status, 201);
    }
    let status = |path: &str| house.docs("GET", path, &[], "").status;
    let tx = begin(&house);
    assert_eq!(write(&house, &tx, json!([{"document": "db/z", "put": [1]}])).status, 202);
    for path in ["/db", "/"] {
        assert_eq!(house.docs("DELETE", path, &[], "").status, 429, "{path}");
        assert_eq!(["/db/a", "/db/z", "/zoo/a", "/db"].map(status), [200; 4], "{path}");
        // What it had taken it has given back.
        assert_eq!(house.docs("POST", "/db/a", &[], "2").status, 200);
    }
    assert_eq!(end(&house, &tx, "commit").status, 200);
    assert_eq!(house.docs("DELETE", "/db", &[], "").status, 204);
    assert_eq!(["/db/a", "/db/z", "/db", "/zoo/a"].map(status), [404, 404, 404, 200]);
    assert_eq!(house.docs("DELETE", "/", &[], "").status, 204);
    assert_eq!(status("/zoo"), 404);
}
