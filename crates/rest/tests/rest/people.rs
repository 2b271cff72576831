//! Users with passwords, as the published clients log in: token, refresh, a stolen refresh token, logout, a new list.

use std::time::Duration;

use serde_json::{Value, json};

use crate::house::{Answer, House, Rules, bearer, house, user};

fn guarded() -> House {
    let users = vec![user("anna", "pass word", &["view"]), user("bert", "secret", &["admin"])];
    house(Rules { users: Some(users), ..Rules::default() })
}

fn version(house: &House, tokens: &Value) -> u16 {
    house.ask("GET", "/v1/version", &[("authorization", &bearer(tokens))], b"").status
}

fn refresh(house: &House, tokens: &Value) -> Answer {
    // As pysirix sends it: without a grant type.
    house.post("/token", &json!({"refresh_token": tokens["refresh_token"]}).to_string())
}

#[test]
fn a_password_gives_tokens_in_the_shape_that_clients_expect_however_it_is_sent() {
    let house = guarded();
    let tokens = house.token("anna", "pass word");
    assert_eq!((&tokens["token_type"], &tokens["expires_in"]), (&json!("Bearer"), &json!(300)));
    assert_eq!(version(&house, &tokens), 200);
    let form = "grant_type=password&username=anna&password=pass+word";
    let answer = house.ask("POST", "/token", &[("content-type", "application/x-www-form-urlencoded")], form.as_bytes());
    assert_eq!((answer.status, answer.header("cache-control").as_deref()), (200, Some("no-store")));
    assert_eq!(version(&house, &answer.json()), 200);
    // The npm client sends JSON and says that it is text.
    let body = json!({"username": "anna", "password": "pass word", "clientId": "x", "grant_type": "password"});
    let answer =
        house.ask("POST", "/token", &[("content-type", "text/plain;charset=UTF-8")], body.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn what_is_no_login_is_refused_and_a_stranger_is_not_told_from_a_wrong_password() {
    let house = guarded();
    let login = |body: Value| house.post("/token", &body.to_string());
    let wrong = login(json!({"username": "anna", "password": "guess", "grant_type": "password"}));
    let stranger = login(json!({"username": "zoe", "password": "guess", "grant_type": "password"}));
    assert_eq!((wrong.status, wrong.json()["detail"].clone()), (401, stranger.json()["detail"].clone()));
    for body in ["", "{", "[]", "{}", r#"{"username":"anna"}"#, r#"{"username":7,"password":"x"}"#, "username=%ff"] {
        assert_eq!(house.post("/token", body).status, 400, "{body}");
    }
    let both = json!({"username": "anna", "password": "pass word", "refresh_token": "x", "grant_type": "password"});
    assert_eq!(login(both).status, 400);
    assert_eq!(login(json!({"username": "anna", "password": "pass word", "grant_type": "magic"})).status, 400);
    let long = json!({"username": "anna", "password": "x".repeat(1 << 20), "grant_type": "password"});
    assert_eq!(login(long).status, 413);
}

#[test]
fn guessing_is_slowed_down_for_the_name_that_is_guessed_at() {
    let house = guarded();
    let login = |name: &str, password: &str| {
        house.post("/token", &json!({"username": name, "password": password, "grant_type": "password"}).to_string())
    };
    for _ in 0..10 {
        assert_eq!(login("anna", "guess").status, 401);
    }
    let slowed = login("anna", "pass word");
    assert_eq!(slowed.status, 429, "also the right one: a guesser must not learn that it was right");
    let wait: u64 = slowed.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=6).contains(&wait), "{wait}");
    assert_eq!(login("bert", "secret").status, 200);
    house.clock.by(Duration::from_secs(wait));
    assert_eq!(login("anna", "pass word").status, 200);
}

#[test]
fn an_access_token_ends_in_time_and_a_refresh_token_gives_the_next() {
    let house = guarded();
    let first = house.token("anna", "pass word");
    house.clock.by(Duration::from_secs(295));
    let second = refresh(&house, &first).json();
    assert_eq!((version(&house, &first), version(&house, &second)), (200, 200));
    house.clock.by(Duration::from_secs(10));
    assert_eq!((version(&house, &first), version(&house, &second)), (401, 200));
    house.clock.by(Duration::from_secs(1_900));
    assert_eq!(refresh(&house, &second).status, 401);
}

#[test]
fn a_refresh_token_that_comes_twice_ends_the_session_of_thief_and_owner() {
    let house = guarded();
    let first = house.token("anna", "pass word");
    let second = refresh(&house, &first).json();
    let replayed = refresh(&house, &first);
    assert_eq!(replayed.status, 401);
    assert!(replayed.text().contains("used before"), "{}", replayed.text());
    assert_eq!((version(&house, &second), refresh(&house, &second).status), (401, 401));
}

#[test]
fn a_logout_ends_the_session_by_either_token() {
    let house = guarded();
    let tokens = house.token("anna", "pass word");
    let by_refresh = house.post("/logout", &json!({"refresh_token": tokens["refresh_token"]}).to_string());
    assert_eq!((by_refresh.status, version(&house, &tokens)), (204, 401));
    let tokens = house.token("anna", "pass word");
    assert_eq!(house.ask("POST", "/logout", &[("authorization", &bearer(&tokens))], b"").status, 204);
    assert_eq!((version(&house, &tokens), refresh(&house, &tokens).status), (401, 401));
    assert_eq!(
        (house.post("/logout", "").status, house.post("/logout", r#"{"refresh_token":"x"}"#).status),
        (400, 401)
    );
}

#[test]
fn a_new_list_of_users_is_taken_at_once_and_one_that_is_wrong_not_at_all() {
    let house = guarded();
    let (anna, bert) = (house.token("anna", "pass word"), house.token("bert", "secret"));
    let wrong = [user("anna", "x", &["veiw"])];
    assert!(house.identity.replace_users(&wrong).unwrap_err().to_string().contains("\"veiw\" is no role"));
    let mut hashless = user("anna", "x", &[]);
    hashless.password_hash = "plain".to_owned();
    assert!(house.identity.replace_users(&[hashless]).unwrap_err().to_string().contains("assent password"));
    assert_eq!((version(&house, &anna), version(&house, &bert)), (200, 200));
    // Anna has another password, Bert is gone, Carl is new.
    house.identity.replace_users(&[user("anna", "other", &["view"]), user("carl", "secret", &["view"])]).unwrap();
    assert_eq!((version(&house, &anna), version(&house, &bert)), (401, 401));
    assert_eq!(
        (version(&house, &house.token("anna", "other")), version(&house, &house.token("carl", "secret"))),
        (200, 200)
    );
}

#[test]
fn who_may_do_less_by_a_new_list_may_do_less_at_once_with_the_token_that_he_has() {
    let mut bert = user("bert", "secret", &["admin"]);
    let house = house(Rules { users: Some(vec![bert.clone()]), ..Rules::default() });
    let tokens = house.token("bert", "secret");
    let config = || house.ask("GET", "/v1/config", &[("authorization", &bearer(&tokens))], b"").status;
    assert_eq!((config(), config()), (200, 200));
    bert.roles = vec!["view".to_owned()];
    house.identity.replace_users(&[bert]).unwrap();
    assert_eq!((config(), version(&house, &tokens)), (403, 200));
}

#[test]
fn without_identity_the_same_clients_work_and_anybody_may_do_everything() {
    let house = house(Rules::default());
    let tokens = house.token("whoever", "whatever");
    assert_eq!(version(&house, &tokens), 200);
    assert_eq!(house.get("/v1/config").status, 200);
    assert_eq!(house.get("/user/authorize").status, 501);
}

#[test]
fn a_hash_is_one_that_the_configuration_takes_and_no_two_are_the_same() {
    let (one, other) = (assent_rest::password_hash("secret").unwrap(), assent_rest::password_hash("secret").unwrap());
    assert!(one.starts_with("$argon2id$") && one != other, "{one} {other}");
    let anna = assent_rest::User { name: "anna".to_owned(), password_hash: one, roles: vec!["view".to_owned()] };
    let house = house(Rules { users: Some(vec![anna]), ..Rules::default() });
    assert_eq!(version(&house, &house.token("anna", "secret")), 200);
    assert!(assent_rest::password_hash("").is_err() && assent_rest::password_hash(&"x".repeat(1_025)).is_err());
}
