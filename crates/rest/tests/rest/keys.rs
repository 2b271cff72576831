//! Keys: any bytes in the path, the value as the body, tags that the store judges, pages of many.

use assent_kv::{Durability, Op};
use serde_json::{Value, json};

use crate::house::{Answer, House, Rules, house};

fn put(house: &House, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    house.ask("PUT", path, headers, body)
}

#[test]
fn a_value_comes_back_with_its_tag_and_head_reads_no_value() {
    let house = house(Rules::default());
    let written = put(&house, "/v1/keys/0/greeting", &[("assent-metadata", "YW5uYQ==")], b"good morning");
    assert_eq!((written.status, written.body.len()), (204, 0));
    let tag = written.header("etag").unwrap();
    let read = house.get("/v1/keys/0/greeting");
    assert_eq!((read.status, read.text().as_str()), (200, "good morning"));
    assert_eq!(read.header("etag").as_deref(), Some(tag.as_str()));
    assert_eq!(read.header("content-type").as_deref(), Some("application/octet-stream"));
    assert_eq!(read.header("assent-metadata").as_deref(), Some("YW5uYQ=="));
    let known = house.ask("GET", "/v1/keys/0/greeting", &[("if-none-match", &tag)], b"");
    assert_eq!((known.status, known.body.len()), (304, 0));
    let head = house.ask("HEAD", "/v1/keys/0/greeting", &[], b"");
    assert_eq!((head.status, head.header("content-length").as_deref(), head.body.len()), (200, Some("12"), 0));
    assert_eq!(head.header("assent-hash").unwrap().len(), 16);
    assert_eq!(house.kv.get(0, b"greeting").unwrap().as_deref(), Some(&b"good morning"[..]));
    assert_eq!(house.ask("DELETE", "/v1/keys/0/greeting", &[], b"").status, 204);
    assert_eq!(
        (house.get("/v1/keys/0/greeting").status, house.ask("HEAD", "/v1/keys/0/greeting", &[], b"").status),
        (404, 404)
    );
}

#[test]
fn any_bytes_are_a_key_and_a_path_leads_nowhere_else() {
    let house = house(Rules::default());
    for (path, key) in [
        ("a%2Fb", &b"a/b"[..]),
        ("a/b/c", b"a/b/c"),
        ("..%2f..%2fetc%2fpasswd", b"../../etc/passwd"),
        ("../x", b"../x"),
        ("%00%ff%fe", b"\0\xff\xfe"),
        ("%C3%A9+", "é+".as_bytes()),
        ("a//b", b"a//b"),
    ] {
        assert_eq!(put(&house, &format!("/v1/keys/7/{path}"), &[], b"v").status, 204, "{path}");
        assert_eq!(house.kv.get(7, key).unwrap().as_deref(), Some(&b"v"[..]), "{path}");
        assert_eq!(house.get(&format!("/v1/keys/7/{path}")).status, 200, "{path}");
    }
    for (path, status) in [
        ("/v1/keys/7/%", 400),
        ("/v1/keys/7/%4", 400),
        ("/v1/keys/7/%zz", 400),
        ("/v1/keys/nowhere/a", 404),
        ("/v1/keys/4294967295/a", 400),
        ("/v1/keys/1073741824/a", 400),
        ("/v1/keys/-1/a", 404),
        ("/v1/keys/7/a?colour=red", 400),
        ("/v1/keys/7/a?tx=x", 400),
        ("/v1/keys/7/a?tx=1.1.1", 404),
    ] {
        assert_eq!(house.get(path).status, status, "{path}");
    }
    let long = format!("/v1/keys/7/{}", "k".repeat(70_000));
    assert_eq!(put(&house, &long, &[], b"v").status, 414, "longer than an address may be");
}

#[test]
fn a_condition_is_judged_by_the_store_and_one_that_does_not_hold_is_412() {
    let house = house(Rules::default());
    let at = "/v1/keys/0/k";
    assert_eq!(put(&house, at, &[("if-match", "*")], b"0").status, 412);
    let first = put(&house, at, &[("if-none-match", "*")], b"1").header("etag").unwrap();
    assert_eq!(put(&house, at, &[("if-none-match", "*")], b"2").status, 412);
    let second = put(&house, at, &[("if-match", &first)], b"2").header("etag").unwrap();
    let late = put(&house, at, &[("if-match", &first)], b"3");
    assert_eq!((late.status, late.json()["kind"].clone()), (412, "conflict".into()));
    assert_eq!(house.ask("DELETE", at, &[("if-match", &first)], b"").status, 412);
    assert_eq!(put(&house, at, &[("if-match", "\"something\"")], b"3").status, 412);
    assert_eq!(house.get(at).text(), "2");
    assert_eq!(put(&house, at, &[("if-match", "*"), ("if-none-match", "*")], b"3").status, 400);
    assert_eq!(put(&house, at, &[("if-none-match", "\"1\"")], b"3").status, 400);
    assert_eq!(house.ask("DELETE", at, &[("if-match", &second)], b"").status, 204);
}

#[test]
fn a_key_expires_and_wrong_times_and_durabilities_are_named() {
    let house = house(Rules::default());
    assert_eq!(put(&house, "/v1/keys/0/s?ttl_ms=60000&durability=buffered", &[], b"v").status, 204);
    assert!(house.get("/v1/keys/0/s").header("assent-expires-ms").is_some());
    house.clock.by(std::time::Duration::from_secs(61));
    assert_eq!(house.get("/v1/keys/0/s").status, 404);
    for wrong in ["ttl_ms=x", "ttl_ms=-1", "ttl_ms=1&expires_ms=2", "durability=maybe", "expires_ms="] {
        assert_eq!(put(&house, &format!("/v1/keys/0/s?{wrong}"), &[], b"v").status, 400, "{wrong}");
    }
    assert_eq!(put(&house, "/v1/keys/0/s", &[("assent-metadata", "!")], b"v").status, 400);
}

fn keys(page: &Value) -> Vec<String> {
    let text = |row: &Value| row["key"].as_str().unwrap_or_else(|| row["key_base64"].as_str().unwrap()).to_owned();
    page["keys"].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn many_keys_come_in_order_page_by_page_with_values_if_asked() {
    let house = house(Rules::default());
    for key in ["a", "b/1", "b/2", "b/3", "c"] {
        house.kv.put(3, key.as_bytes(), key.to_uppercase().as_bytes(), Durability::Buffered).unwrap();
    }
    house.kv.put(3, b"b/\xff", b"\xff", Durability::Durable).unwrap();
    let page = house.get("/v1/keys/3").json();
    assert_eq!(
        (keys(&page), &page["next"]),
        (["a", "b/1", "b/2", "b/3", "Yi//", "c"].map(String::from).to_vec(), &Value::Null)
    );
    assert!(page["keys"][0].get("value").is_none());
    let first = house.get("/v1/keys/3?prefix=b%2F&limit=2&values=true").json();
    assert_eq!((keys(&first), &first["keys"][0]["value"]), (vec!["b/1".to_owned(), "b/2".to_owned()], &json!("B/1")));
    let after = first["next"].as_str().unwrap();
    let last = house.get(&format!("/v1/keys/3?prefix=b%2F&limit=2&values=true&after={after}")).json();
    assert_eq!(
        (keys(&last), &last["keys"][1]["value_base64"]),
        (vec!["b/3".to_owned(), "Yi//".to_owned()], &json!("/w=="))
    );
    assert_eq!(last["next"], Value::Null);
    assert_eq!(keys(&house.get("/v1/keys/3?from=b%2F2&to=c").json()), ["b/2", "b/3", "Yi//"]);
    for wrong in ["limit=0", "limit=10001", "limit=x", "prefix=a&from=b", "after=!", "values=maybe", "from=%ff"] {
        assert_eq!(house.get(&format!("/v1/keys/3?{wrong}")).status, 400, "{wrong}");
    }
}

#[test]
fn keyspaces_have_names_that_are_made_listed_and_dropped() {
    let house = house(Rules::default());
    assert_eq!(put(&house, "/v1/keys/orders/7", &[], b"pen").status, 404);
    let made = put(&house, "/v1/keyspaces/orders", &[], b"");
    assert_eq!((made.status, made.json()["name"].clone()), (201, "orders".into()));
    assert_eq!(put(&house, "/v1/keyspaces/orders", &[], b"").status, 409);
    assert_eq!(put(&house, "/v1/keyspaces/7", &[], b"").status, 400);
    assert_eq!(put(&house, "/v1/keys/orders/7", &[], b"pen").status, 204);
    assert_eq!(house.get("/v1/keyspaces").json()["keyspaces"][0]["name"], "orders");
    assert_eq!(house.ask("DELETE", "/v1/keyspaces/orders", &[], b"").status, 204);
    assert_eq!(
        (house.get("/v1/keys/orders/7").status, house.ask("DELETE", "/v1/keyspaces/orders", &[], b"").status),
        (404, 404)
    );
}

/// One answer took gigabytes: keys and metadata ended no page.
#[test]
fn a_page_of_much_metadata_ends_where_so_many_bytes_are() {
    let house = house(Rules::default());
    let (keys, metadata) = ((0..10_000).map(|number| format!("{number:05}")).collect::<Vec<_>>(), [b'm'; 4_000]);
    for keys in keys.chunks(100) {
        let keys = keys.iter().map(String::as_bytes);
        let ops: Vec<_> =
            keys.map(|key| Op::Put { keyspace: 0, key, metadata: &metadata, value: b"v", expiry: 0 }).collect();
        house.kv.batch(&ops, Durability::Buffered).unwrap();
    }
    let (mut seen, mut pages, mut after) = (0, 0, String::new());
    loop {
        let page = house.get(&format!("/v1/keys/0?limit=10000{after}"));
        assert!(page.body.len() < 30 << 20, "{} bytes", page.body.len());
        let page = page.json();
        for row in page["keys"].as_array().unwrap() {
            assert_eq!(row["key"], keys[seen]);
            seen += 1;
        }
        pages += 1;
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!((seen, pages), (10_000, 3));
}
