//! Every route, asked by every role: who may is answered, who may not is told what it takes, and nobody is let in unnamed.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::house::{House, Rules, bearer, house, user};

/// Method, path, body, and the role that it takes; of one keyspace, where the path names one.
const ROUTES: &[(&str, &str, &str, &str, bool)] = &[
    ("GET", "/v1/version", "", "view", false),
    ("GET", "/v1/config", "", "admin", false),
    ("GET", "/v1/log-level", "", "admin", false),
    ("PUT", "/v1/log-level", r#"{"level":"info"}"#, "admin", false),
    ("GET", "/v1/keyspaces", "", "view", false),
    ("PUT", "/v1/keyspaces/shop", "", "create", true),
    ("DELETE", "/v1/keyspaces/shop", "", "delete", true),
    ("GET", "/v1/keys/shop", "", "view", true),
    ("GET", "/v1/keys/shop/a", "", "view", true),
    ("HEAD", "/v1/keys/shop/a", "", "view", true),
    ("PUT", "/v1/keys/shop/a", "1", "modify", true),
    ("DELETE", "/v1/keys/shop/a", "", "delete", true),
    ("GET", "/v1/transactions", "", "view", false),
    ("POST", "/v1/transactions", "", "modify", false),
    // Of a transaction that is not there: whoever may ask is told so.
    ("GET", "/v1/transactions/1.1.1", "", "modify or view", false),
    ("DELETE", "/v1/transactions/1.1.1", "", "modify", false),
    ("POST", "/v1/transactions/1.1.1/writes", r#"{"writes":[]}"#, "modify", false),
    ("POST", "/v1/transactions/1.1.1/commit", "", "modify", false),
    ("POST", "/v1/transactions/1.1.1/rollback", "", "modify", false),
    ("POST", "/v1/transactions/1.1.1/force", r#"{"outcome":"commit","reason":"x"}"#, "admin", false),
    ("POST", "/v1/transactions/1.1.1/forget", r#"{"reason":"x"}"#, "admin", false),
    ("GET", "/v1/history", "", "view", false),
];

const ROLES: [&str; 5] = ["view", "create", "modify", "delete", "admin"];

fn guarded() -> House {
    let mut users: Vec<_> = ROLES.iter().map(|role| user(role, "secret", &[role])).collect();
    users.extend(ROLES.iter().map(|role| user(&format!("shop-{role}"), "secret", &[&format!("shop-{role}")])));
    users.extend(ROLES.iter().map(|role| user(&format!("other-{role}"), "secret", &[&format!("other-{role}")])));
    users.push(user("nothing", "secret", &[]));
    house(Rules { users: Some(users), ..Rules::default() })
}

/// What the routes of the source are, so that none is forgotten here.
fn routes_of_the_source() -> BTreeSet<(String, String)> {
    let source = include_str!("../../src/v1/mod.rs");
    let mut found = BTreeSet::new();
    for line in source.lines().map(str::trim).filter_map(|line| line.strip_prefix(".route(\"")) {
        let (path, handlers) = line.split_once('"').unwrap();
        for method in ["get", "head", "put", "post", "delete"] {
            if handlers.contains(&format!(" {method}(")) || handlers.contains(&format!(".{method}(")) {
                found.insert((method.to_uppercase(), path.to_owned()));
            }
        }
    }
    found
}

#[test]
fn the_table_has_every_route() {
    let shape = |path: &str| {
        let path = path.replace("1.1.1", "{tx}");
        match path.as_str() {
            "/v1/keyspaces/shop" => "/v1/keyspaces/{name}".to_owned(),
            "/v1/keys/shop" => "/v1/keys/{keyspace}".to_owned(),
            "/v1/keys/shop/a" => "/v1/keys/{keyspace}/{*key}".to_owned(),
            _ => path,
        }
    };
    let table: BTreeSet<_> = ROUTES.iter().map(|(method, path, ..)| ((*method).to_owned(), shape(path))).collect();
    let source = routes_of_the_source();
    assert_eq!(table, source);
    assert!(source.len() > 20);
}

#[test]
fn every_route_is_for_its_role_and_nobody_is_let_in_without_a_name() {
    let house = guarded();
    let everybody: Vec<(String, Value)> = {
        let scoped = ["shop", "other"].iter().flat_map(|of| ROLES.iter().map(move |role| format!("{of}-{role}")));
        let names = ROLES.iter().map(|role| (*role).to_owned()).chain(scoped).chain(["nothing".to_owned()]);
        names.map(|name| (name.clone(), house.token(&name, "secret"))).collect()
    };
    for (method, path, body, takes, is_of_shop) in ROUTES {
        let asked = |headers: &[(&str, &str)]| house.ask(method, path, headers, body.as_bytes());
        let unnamed = asked(&[]);
        assert_eq!(unnamed.status, 401, "{method} {path} without a token");
        assert_eq!(unnamed.header("www-authenticate").as_deref(), Some("Bearer"));
        for wrong in ["Bearer nonsense", "Basic YTpi", "Bearer", "nonsense"] {
            assert_eq!(asked(&[("authorization", wrong)]).status, 401, "{method} {path} with {wrong:?}");
        }
        for (name, tokens) in &everybody {
            let (of, role) = name.split_once('-').map_or((None, name.as_str()), |(of, role)| (Some(of), role));
            // Some need a role anywhere, some of the whole server.
            let is_anywhere = matches!(*path, "/v1/version" | "/v1/keyspaces")
                || (path.starts_with("/v1/transactions") && takes.contains("modify"));
            let counts = match of {
                None => true,
                Some("shop") => *is_of_shop || is_anywhere,
                Some(_) => is_anywhere,
            };
            let takes: Vec<&str> = takes.split(" or ").collect();
            // One's own transaction is for whoever may begin one, the list of all for whoever sees all.
            let is_seen_only = *path == "/v1/transactions/1.1.1" && *method == "GET" && role == "view" && of.is_some();
            let may = counts && !is_seen_only && (role == "admin" || takes.contains(&role));
            let answer = asked(&[("authorization", &bearer(tokens))]);
            let let_in = !matches!(answer.status, 401 | 403);
            assert_eq!(let_in, may, "{method} {path} by {name}: {} {}", answer.status, answer.text());
        }
    }
}

#[test]
fn a_role_of_one_keyspace_is_for_its_keys_also_within_a_transaction() {
    let users = vec![user("anna", "secret", &["1-modify", "2-view"]), user("root", "secret", &["admin"])];
    let house = house(Rules { users: Some(users), ..Rules::default() });
    let anna = bearer(&house.token("anna", "secret"));
    let root = bearer(&house.token("root", "secret"));
    let by = |who: &str, method: &str, path: &str, body: &str| {
        house.ask(method, path, &[("authorization", who)], body.as_bytes())
    };
    assert_eq!(by(&anna, "PUT", "/v1/keys/1/a", "x").status, 204);
    assert_eq!(by(&anna, "PUT", "/v1/keys/2/a", "x").status, 403);
    assert_eq!((by(&anna, "GET", "/v1/keys/1/a", "").status, by(&anna, "GET", "/v1/keys/2/a", "").status), (403, 404));
    let tx = by(&anna, "POST", "/v1/transactions", "").json()["tx"].as_str().unwrap().to_owned();
    let write = |keyspace: u32, more: &str| {
        let body = format!(
            r#"{{"writes":[{{"keyspace":1,"key":"a","value":"1"}},{{"keyspace":{keyspace},"key":"b",{more}}}]}}"#
        );
        by(&anna, "POST", &format!("/v1/transactions/{tx}/writes"), &body).status
    };
    assert_eq!((write(1, r#""value":"1""#), write(2, r#""value":"1""#), write(1, r#""delete":true"#)), (202, 403, 403));
    // Another's transaction is not there, but for whoever may do everything.
    let bert = by(&root, "POST", "/v1/transactions", "").json()["tx"].as_str().unwrap().to_owned();
    assert_eq!(by(&anna, "POST", &format!("/v1/transactions/{bert}/commit"), "").status, 404);
    assert_eq!(by(&anna, "PUT", &format!("/v1/keys/1/a?tx={bert}"), "y").status, 404);
    assert_eq!(by(&root, "POST", &format!("/v1/transactions/{tx}/commit"), "").status, 200);
}
