//! What the listeners say of themselves, against what they are: every route of the source is described, every description is a
//! route, and each is for the roles that it names.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::house::{Answer, Archive, House, Rules, archive, ask_at, bearer, house, user};

const ROLES: [&str; 5] = ["view", "create", "modify", "delete", "admin"];

/// Compared with the file that is read by whoever makes a client; UPDATE_OPENAPI=1 writes it.
fn as_committed(said: &Value, name: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let mut laid = serde_json::to_string_pretty(said).unwrap();
    laid.push('\n');
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(&path, &laid).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == laid, "docs/{name} is not what is served: UPDATE_OPENAPI=1 cargo test -p assent-rest openapi");
}

#[test]
fn what_is_served_is_what_was_committed_on_both_listeners_and_anybody_may_read_it() {
    let house = house(Rules { users: Some(vec![user("anna", "a", &[])]), ..Rules::default() });
    let archive = archive(Some(vec![user("anna", "a", &[])]));
    for (answer, name) in
        [(house.get("/openapi.json"), "openapi.json"), (archive.get("/openapi.json"), "openapi-documents.json")]
    {
        assert_eq!((answer.status, answer.header("content-type").as_deref()), (200, Some("application/json")));
        assert_eq!(answer.json()["openapi"], "3.1.0");
        as_committed(&answer.json(), name);
    }
}

/// Methods and paths of `.route("…", get(…).put(…))`.
fn routes_of(source: &str) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    let source: String = source.split_whitespace().collect();
    for line in source.split(".route(\"").skip(1) {
        let (path, handlers) = line.split_once('"').unwrap();
        let handlers = handlers.split(".with_state").next().unwrap();
        for method in ["get", "head", "put", "post", "patch", "delete"] {
            let begins = format!(",{method}(");
            if handlers.starts_with(&begins) || handlers.contains(&format!(").{method}(")) {
                found.insert((method.to_uppercase(), path.replace("{*", "{")));
            }
        }
    }
    found
}

fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let of = |path: &str, methods: &Value| {
        let methods = methods.as_object().unwrap().clone();
        let path = path.to_owned();
        methods
            .into_iter()
            .map(move |(method, operation)| (method.to_uppercase(), path.clone(), operation))
            .collect::<Vec<_>>()
    };
    paths.iter().flat_map(|(path, methods)| of(path, methods)).collect()
}

#[test]
fn every_route_of_the_source_is_described_and_nothing_else_is() {
    let house = house(Rules::default());
    let archive = archive(None);
    let shared = [include_str!("../../src/service.rs"), include_str!("../../src/viewer.rs")].map(routes_of).concat();
    for (document, sources) in [
        (house.get("/openapi.json").json(), [include_str!("../../src/v1/mod.rs"), include_str!("../../src/health.rs")]),
        (archive.get("/openapi.json").json(), [include_str!("../../src/docs/mod.rs"), ""]),
    ] {
        let mut routes: BTreeSet<_> = sources.map(routes_of).concat();
        routes.extend(shared.clone());
        // Of health, the documents' listener has what every listener has.
        routes.extend(["/health", "/metrics"].map(|path| ("GET".to_owned(), path.to_owned())));
        // Pages for people are none for programs.
        routes.retain(|(_, path)| !path.starts_with("/swagger-ui"));
        let described: BTreeSet<_> =
            operations(&document).into_iter().map(|(method, path, _)| (method, path)).collect();
        let missing: Vec<_> = routes.difference(&described).collect();
        let extra: Vec<_> = described.difference(&routes).collect();
        assert!(missing.is_empty() && extra.is_empty(), "add to or take from src/openapi: {missing:?}, {extra:?}");
        assert!(routes.len() > 20);
    }
}

trait Concat {
    fn concat(self) -> BTreeSet<(String, String)>;
}

impl<const N: usize> Concat for [BTreeSet<(String, String)>; N] {
    fn concat(self) -> BTreeSet<(String, String)> {
        self.into_iter().flatten().collect()
    }
}

/// What is sent where an operation needs a body to be understood.
fn body_of(id: &str) -> &'static str {
    match id {
        "setLogLevel" => r#"{"level":"info"}"#,
        "write" => r#"{"writes":[]}"#,
        "force" => r#"{"outcome":"commit","reason":"x"}"#,
        "forget" => r#"{"reason":"x"}"#,
        "putDocument" | "insert" => "[1]",
        "patch" => r#"[{"op":"add","path":"/-","value":1}]"#,
        _ => "",
    }
}

fn people() -> Vec<assent_rest::User> {
    let mut users: Vec<_> = ROLES.iter().map(|role| user(role, "secret", &[role])).collect();
    for of in ["shop", "other"] {
        users.extend(ROLES.iter().map(|role| user(&format!("{of}-{role}"), "secret", &[&format!("{of}-{role}")])));
    }
    users.push(user("nothing", "secret", &[]));
    users
}

fn tokens(address: std::net::SocketAddr) -> Vec<(String, String)> {
    let names = people().into_iter().map(|user| user.name);
    let token = |name: String| {
        let asked = serde_json::json!({"username": name, "password": "secret", "grant_type": "password"});
        let answer = ask_at(address, "POST", "/token", &[], asked.to_string().as_bytes());
        (name, bearer(&answer.json()))
    };
    names.map(token).collect()
}

/// Whether somebody who has one role, everywhere or in one database, may do what takes these.
fn may(name: &str, takes: &Value) -> bool {
    let (of, role) = name.split_once('-').map_or((None, name), |(of, role)| (Some(of), role));
    takes.as_array().unwrap().iter().any(|one| {
        let is_role = role == "admin" || one["role"] == role;
        let is_there = match of {
            None => true,
            Some("shop") => one["reach"] != "server",
            Some(_) => one["reach"] == "anywhere",
        };
        is_role && is_there
    })
}

/// Asks every operation as everybody; `before` makes what is asked for anew, since somebody may drop it.
fn walk(document: &Value, address: std::net::SocketAddr, before: impl Fn(&str)) {
    let everybody = tokens(address);
    let (_, root) = everybody.iter().find(|(name, _)| name == "admin").unwrap();
    let mut walked = 0;
    for (method, path, operation) in operations(document) {
        let takes = &operation["x-assent-roles"];
        if takes.as_array().unwrap().is_empty() {
            assert_eq!(operation["security"], serde_json::json!([]), "{method} {path}");
            continue;
        }
        let id = operation["operationId"].as_str().unwrap();
        let named = [
            ("database", "shop"),
            ("resource", "doc"),
            ("keyspace", "shop"),
            ("key", "a"),
            ("name", "shop"),
            ("tx", "1.1.1"),
            ("tag", "v1"),
        ];
        let path = named.iter().fold(path, |path, (name, value)| path.replace(&format!("{{{name}}}"), value));
        let path = match id {
            "diff" => format!("{path}?first-revision=1&second-revision=1"),
            // One that is let in is told that this is no id; a stream would not end.
            "watch" => format!("{path}?lastEventId=none"),
            _ => path,
        };
        let kind = if id == "patch" { "application/json-patch+json" } else { "application/json" };
        let ask = |path: &str, headers: &[(&str, &str)]| -> Answer {
            let headers: Vec<_> = headers.iter().copied().chain([("content-type", kind)]).collect();
            ask_at(address, &method, path, &headers, body_of(id).as_bytes())
        };
        for wrong in [
            &[][..],
            &[("authorization", "Bearer nonsense")],
            &[("authorization", "Basic YTpi")],
            &[("authorization", "Bearer")],
        ] {
            let unnamed = ask(&path, wrong);
            assert_eq!(unnamed.status, 401, "{method} {path} with {wrong:?}");
            assert_eq!(unnamed.header("www-authenticate").as_deref(), Some("Bearer"));
        }
        for (name, token) in &everybody {
            before(root);
            // Who may only make one makes another one.
            let path =
                if id == "putDocument" && name.ends_with("create") { format!("{path}-{name}") } else { path.clone() };
            let answer = ask(&path, &[("authorization", token)]);
            let let_in = !matches!(answer.status, 401 | 403);
            assert_eq!(let_in, may(name, takes), "{method} {path} by {name}: {} {}", answer.status, answer.text());
            assert!(answer.status != 405 && !answer.text().contains("no path"), "{method} {path} is no route");
            walked += 1;
        }
    }
    assert!(walked > 15 * 16, "{walked}");
}

#[test]
fn each_operation_of_the_admin_listener_is_for_the_roles_that_it_names() {
    let house: House = house(Rules { users: Some(people()), ..Rules::default() });
    walk(&house.get("/openapi.json").json(), house.rest.address(), |_| {});
}

#[test]
fn each_operation_of_the_documents_listener_is_for_the_roles_that_it_names() {
    let archive: Archive = archive(Some(people()));
    let address = archive.rest.address();
    walk(&archive.get("/openapi.json").json(), address, |root| {
        let found = ask_at(address, "HEAD", "/shop/doc", &[("authorization", root)], b"").status;
        if found == 404 {
            let made = ask_at(address, "PUT", "/shop/doc", &[("authorization", root)], b"[1]");
            assert_eq!(made.status, 201, "{}", made.text());
        }
    });
}

#[test]
fn the_viewer_is_here_whole_asks_nobody_else_and_hides_no_document() {
    let archive = archive(Some(people()));
    let page = archive.get("/swagger-ui/");
    assert_eq!((page.status, page.header("content-type").as_deref()), (200, Some("text/html")));
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'self';"));
    let text = page.text();
    let quoted = |name: &str| {
        text.split(&format!("{name}=\""))
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let parts: Vec<String> = ["src", "href"].iter().flat_map(|name| quoted(name)).collect();
    assert!(parts.len() >= 4, "{parts:?}");
    for part in parts {
        assert!(!part.contains("//"), "{part} is somebody else's");
        let file = archive.get(&format!("/swagger-ui/{}", part.trim_start_matches("./")));
        assert_eq!(file.status, 200, "{part}");
    }
    let start = archive.get("/swagger-ui/swagger-initializer.js").text();
    assert!(start.contains("/openapi.json") && start.contains("validatorUrl") && start.contains("\"none\""), "{start}");
    assert_eq!(archive.get("/swagger-ui").header("location").as_deref(), Some("/swagger-ui/"));
    // What only looks like a part of it is asked for by somebody.
    for other in
        ["/swagger-ui/other.js", "/swagger-ui/index.html/history", "/openapi.json/doc", "/swagger-ui/../db/doc"]
    {
        assert_eq!(archive.get(other).status, 401, "{other}");
    }
}
