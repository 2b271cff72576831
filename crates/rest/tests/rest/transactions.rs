//! Transactions: committed as one, undone as one, told again to whoever lost the answer, ended by their time.

use std::time::Duration;

use serde_json::{Value, json};

use crate::house::{Answer, House, Rules, house};

fn begin(house: &House) -> String {
    let begun = house.post("/v1/transactions", "");
    assert_eq!(begun.status, 201, "{}", begun.text());
    let tx = begun.json()["tx"].as_str().unwrap().to_owned();
    assert_eq!(begun.header("location").unwrap(), format!("/v1/transactions/{tx}"));
    tx
}

fn writes(house: &House, tx: &str, writes: Value) -> Answer {
    house.post(&format!("/v1/transactions/{tx}/writes"), &json!({ "writes": writes }).to_string())
}

fn end(house: &House, tx: &str, how: &str) -> Answer {
    house.post(&format!("/v1/transactions/{tx}/{how}"), "")
}

fn value(house: &House, key: &str) -> Option<String> {
    let answer = house.get(&format!("/v1/keys/0/{key}"));
    (answer.status == 200).then(|| answer.text())
}

#[test]
fn what_is_written_in_a_transaction_is_seen_by_it_alone_until_it_commits_as_one() {
    let house = house(Rules::default());
    assert_eq!(house.ask("PUT", "/v1/keys/0/stock", &[], b"10").status, 204);
    let tx = begin(&house);
    assert_eq!(house.ask("PUT", &format!("/v1/keys/0/stock?tx={tx}"), &[], b"9").status, 202);
    let told = writes(
        &house,
        &tx,
        json!([{"key": "order/7", "value": "a pen"}, {"keyspace": 1, "key_base64": "/w==", "value_base64": "AA=="}]),
    );
    assert_eq!((told.status, told.json()["writes"].clone()), (202, json!(3)));
    assert_eq!((value(&house, "stock").as_deref(), value(&house, "order/7")), (Some("10"), None));
    assert_eq!(house.get(&format!("/v1/keys/0/stock?tx={tx}")).text(), "9");
    assert_eq!(house.get("/v1/transactions").json()["open"][0]["tx"], json!(tx));
    let committed = end(&house, &tx, "commit");
    assert_eq!((committed.status, committed.json()), (200, json!({"tx": tx, "state": "committed", "unfinished": []})));
    assert_eq!((value(&house, "stock").as_deref(), value(&house, "order/7").as_deref()), (Some("9"), Some("a pen")));
    assert_eq!(house.kv.get(1, b"\xff").unwrap().as_deref(), Some(&b"\0"[..]));
    // Asked again, it tells the same; what comes too late is told so.
    assert_eq!(end(&house, &tx, "commit").json()["state"], "committed");
    assert_eq!(house.get(&format!("/v1/transactions/{tx}")).json()["state"], "committed");
    assert_eq!((end(&house, &tx, "rollback").status, writes(&house, &tx, json!([])).status), (409, 404));
}

#[test]
fn a_rollback_leaves_nothing_and_a_transaction_without_work_ends_either_way() {
    let house = house(Rules::default());
    let tx = begin(&house);
    assert_eq!(writes(&house, &tx, json!([{"key": "a", "value": "1"}])).status, 202);
    assert_eq!(house.ask("DELETE", &format!("/v1/transactions/{tx}"), &[], b"").json()["state"], "rolled_back");
    assert_eq!(value(&house, "a"), None);
    assert_eq!((end(&house, &tx, "rollback").status, end(&house, &tx, "commit").status), (200, 409));
    assert_eq!(end(&house, &begin(&house), "commit").status, 200);
    assert_eq!(end(&house, &begin(&house), "rollback").status, 200);
    assert_eq!(house.kv.stats().branches, 0);
}

#[test]
fn whoever_commits_second_and_whoever_s_condition_does_not_hold_is_rolled_back_whole() {
    let house = house(Rules::default());
    let (one, other) = (begin(&house), begin(&house));
    for tx in [&one, &other] {
        // Who has read does not write over what he has not seen; who only writes does.
        assert_eq!(house.get(&format!("/v1/keys/0/k?tx={tx}")).status, 404);
        assert_eq!(writes(&house, tx, json!([{"key": "k", "value": tx}, {"key": tx, "value": "1"}])).status, 202);
    }
    assert_eq!(end(&house, &one, "commit").status, 200);
    let second = end(&house, &other, "commit");
    assert_eq!((second.status, second.json()["kind"].clone()), (409, "rolled_back".into()));
    assert_eq!((value(&house, "k"), value(&house, &other)), (Some(one.clone()), None));
    assert_eq!(house.get(&format!("/v1/transactions/{other}")).json()["state"], "rolled_back");
    let tx = begin(&house);
    assert_eq!(
        writes(&house, &tx, json!([{"key": "k", "value": "new", "if": "absent"}, {"key": "x", "value": "1"}])).status,
        202
    );
    assert_eq!((end(&house, &tx, "commit").status, value(&house, "k"), value(&house, "x")), (409, Some(one), None));
    let tag = house.get("/v1/keys/0/k").header("etag").unwrap();
    let tx = begin(&house);
    let put = house.ask("PUT", &format!("/v1/keys/0/k?tx={tx}"), &[("if-match", &tag)], b"newer");
    assert_eq!((put.status, end(&house, &tx, "commit").status), (202, 200));
    assert_eq!(value(&house, "k").as_deref(), Some("newer"));
}

#[test]
fn a_transaction_whose_time_is_over_is_undone_and_never_committed_behind_it() {
    let house = house(Rules::default());
    let begun = house.post("/v1/transactions", r#"{"seconds":5}"#).json();
    let tx = begun["tx"].as_str().unwrap();
    assert_eq!(begun["expires_in_ms"], 5_000);
    assert_eq!(writes(&house, tx, json!([{"key": "late", "value": "1"}])).status, 202);
    house.clock.by(Duration::from_secs(5));
    let late = end(&house, tx, "commit");
    assert_eq!(late.status, 409, "{}", late.text());
    assert!(late.text().contains("its time was over"), "{}", late.text());
    assert_eq!((value(&house, "late"), house.kv.stats().branches), (None, 0));
    assert_eq!((house.ask("PUT", &format!("/v1/keys/0/late?tx={tx}"), &[], b"1")).status, 404);
    for wrong in [r#"{"seconds":0}"#, r#"{"seconds":3601}"#, r#"{"seconds":"x"}"#, r#"{"colour":1}"#, "[]", "{"] {
        assert_eq!(house.post("/v1/transactions", wrong).status, 400, "{wrong}");
    }
}

#[test]
fn a_forgotten_transaction_gives_its_keys_back_by_itself() {
    let house = house(Rules::default());
    let begun = house.post("/v1/transactions", r#"{"seconds":1}"#).json();
    assert_eq!(writes(&house, begun["tx"].as_str().unwrap(), json!([{"key": "a", "value": "1"}])).status, 202);
    assert_eq!(house.kv.stats().branches, 1);
    house.clock.by(Duration::from_secs(1));
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while house.kv.stats().branches > 0 {
        assert!(std::time::Instant::now() < until, "nobody sweeps");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_list_that_is_wrong_in_one_place_writes_nothing() {
    let house = house(Rules::default());
    let tx = begin(&house);
    for wrong in [
        json!([{"key": "a", "value": "1"}, {"value": "1"}]),
        json!([{"key": "a", "value": "1"}, {"key": "b"}]),
        json!([{"key": "a", "value": "1"}, {"key": "b", "value": "1", "delete": true}]),
        json!([{"key": "a", "value": "1"}, {"key": "b", "value": "1", "value_base64": "AA=="}]),
        json!([{"key": "a", "value": "1"}, {"key": "b", "value": "1", "if": "maybe"}]),
        json!([{"key": "a", "value": "1"}, {"key": "b", "value_base64": "!"}]),
        json!([{"key": "a", "value": "1"}, {"key": "b", "value": "1", "colour": 1}]),
        json!([{"key": "a", "value": "1"}, {"key": "b", "value": "1", "keyspace": 4_294_967_295_u32}]),
        json!({"key": "a"}),
    ] {
        assert_eq!(writes(&house, &tx, wrong.clone()).status, 400, "{wrong}");
    }
    assert_eq!(writes(&house, &tx, json!([{"keyspace": "nowhere", "key": "a", "value": "1"}])).status, 404);
    assert_eq!((end(&house, &tx, "commit").status, value(&house, "a")), (200, None));
}

#[test]
fn a_store_that_is_no_resource_takes_no_branch_and_says_what_to_write() {
    let house = house(Rules { own_store: false, ..Rules::default() });
    let refused = writes(&house, &begin(&house), json!([{"key": "a", "value": "1"}]));
    assert_eq!(refused.status, 404);
    assert!(refused.text().contains("kind = \\\"own\\\""), "{}", refused.text());
}

#[test]
fn names_that_are_no_transactions_and_words_about_unknown_ones_are_refused() {
    let house = house(Rules::default());
    for path in ["/v1/transactions/x", "/v1/transactions/1.2", "/v1/history?state=lost", "/v1/history?since_ms=x"] {
        assert_eq!(house.get(path).status, 400, "{path}");
    }
    assert_eq!(house.get("/v1/transactions/9.9.9").status, 404);
    let force = |body: &str| house.post("/v1/transactions/9.9.9/force", body).status;
    assert_eq!(
        (force(r#"{"outcome":"commit","reason":"x"}"#), force(r#"{"outcome":"x","reason":"x"}"#), force("")),
        (404, 400, 400)
    );
    assert_eq!(house.post("/v1/transactions/9.9.9/forget", r#"{"reason":"x"}"#).status, 404);
    assert_eq!(house.get("/v1/history?limit=5").json(), json!({"transactions": [], "next": null}));
}

#[test]
fn a_decision_is_told_by_the_history_and_a_person_decides_what_nobody_did() {
    use assent_ids::{ResourceId, TxId};
    use assent_xa::{BranchRecord, Decider as _, Decision, Outcome};
    let house = house(Rules::default());
    let client = house.coordinator.embedded().unwrap();
    let (_, tx): (_, TxId) = client.begin().unwrap();
    let branch =
        |number| BranchRecord { resource: ResourceId::of("store"), number, flags: 0, mark: None, witness: Vec::new() };
    let branches = vec![branch(0), branch(1)];
    client.decide(&Decision { tx, outcome: Outcome::Committed, first: true, branches }).unwrap();
    let listed = house.get("/v1/transactions").json();
    assert_eq!(
        (&listed["transactions"][0]["tx"], &listed["transactions"][0]["state"]),
        (&json!(tx.to_string()), &json!("committed"))
    );
    let shown = house.get(&format!("/v1/transactions/{tx}")).json();
    assert_eq!((&shown["decided_by"], &shown["branches"][1]["resource"]), (&json!("client"), &json!("store")));
    let past = house.get(&format!("/v1/history?tx={tx}&state=committed&resource=store")).json();
    assert_eq!(
        (&past["transactions"][0]["outcome"], &past["transactions"][0]["is_finished"]),
        (&json!("committed"), &json!(false))
    );
    assert_eq!(house.get("/v1/history?state=rolled_back").json()["transactions"], json!([]));
    // A decision is never taken back, also not by a person.
    let forced = house.post(&format!("/v1/transactions/{tx}/force"), r#"{"outcome":"rollback","reason":"ticket 7"}"#);
    assert_eq!(forced.status, 409, "{}", forced.text());
    let again = house.post(&format!("/v1/transactions/{tx}/force"), r#"{"outcome":"commit","reason":"ticket 7"}"#);
    assert_eq!((again.status, again.json()["outcome"].clone()), (200, "committed".into()));
}
