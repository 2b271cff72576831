//! Two processes of one node over a copied data folder, at the same databases: one works, the other one says what is wrong
//! and takes over when the first is gone.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use assent_client::{Client, ClientConfig};
use assent_kind::Kind;
use assent_resources::{Limits, Mariadb, Postgres};
use assent_wire::Role;
use mysql::prelude::Queryable as _;

use super::assent::{fails, json};
use super::town::{BANK, Rules, SHOP, Town, eventually, number, prepared, refused, shared, text, tx, variable};

/// One row in both databases, committed by a client of this server.
fn committed(town: &Town, row: i32) {
    let client = Client::connect(ClientConfig::new(town.served.protocol.parse().unwrap(), "shop"));
    let mut bank = Postgres::connect(BANK, &town.rules.bank, Limits::WORK).unwrap();
    let mut shop = Mariadb::connect(SHOP, &variable("ASSENT_TEST_MARIADB"), Limits::WORK).unwrap();
    let sql = format!("INSERT INTO {} VALUES ({row})", town.table);
    let mut tx = client.begin().unwrap();
    let (at_bank, at_shop) = (tx.enlist(&mut bank), tx.enlist(&mut shop));
    at_bank.work().unwrap().work(|client| client.batch_execute(&sql)).unwrap();
    at_shop.work().unwrap().work(|connection| connection.query_drop(&sql)).unwrap();
    tx.commit().unwrap();
}

#[test]
fn of_two_processes_of_one_node_the_second_touches_nothing_says_so_and_takes_over_when_the_first_is_killed() {
    let _quiet = shared();
    // Left behind by a client that may come back for a long time, as far as the first knows: it is not to finish it.
    let patient = Rules { client_lost_ms: 600_000, ..Rules::default() };
    let town = Town::new("copied", Rules { stop: "coordinator-before-decision", ..patient.clone() });
    let (orphan, xids) = town.voted(1).dies();
    let town = town.again(Rules { stop: "", ..patient });
    // Both were open at this place of the log, and count clients from here.
    let copy = town.copy("copy");
    let second = Rules::default().serve(&copy);
    // At the first, and it asks for no other.
    let rivals = || (number(&town.served, "assent_rivals"), number(&second, "assent_rivals"));
    eventually("the second has one", || rivals() == (0, 1));
    for _ in 0..3 {
        let looked = json(&tx(&second, &["recover"]));
        assert_eq!(looked["resolved"], serde_json::json!([]), "{looked}");
        let named: Vec<&str> =
            looked["unreachable"].as_array().unwrap().iter().map(|it| it["resource"].as_str().unwrap()).collect();
        assert_eq!(named, [BANK, SHOP], "{looked}");
    }
    let health = second.get("/health");
    assert!(health.starts_with("HTTP/1.1 503") && health.contains("another process"), "{health}");
    let said = text(&second, &["list"]);
    for words in ["1 rivals", "another process of this node resolves", "copied data folder"] {
        assert!(said.contains(words), "{words:?} in {said}");
    }
    assert_eq!(json(&tx(&second, &["list"]))["rivals"], 1);
    let (kind, why) = refused(&second, Role::Client { label: "lost", resume: None, resources: vec![BANK] });
    assert!(kind == Kind::Unavailable && why.contains(BANK), "{kind} {why}");
    let word = ["tx", "rollback", &orphan.to_string(), "--yes", "--server", &second.protocol];
    fails(&word, 4, BANK);
    assert_eq!(prepared(&town.rules.bank, &xids), (true, true), "the second has touched nothing");
    committed(&town, 2);
    assert_eq!(town.rows(), (vec![2], vec![2]), "the first is not disturbed");

    town.served.signal(rustix::process::Signal::KILL);
    eventually("the second has the claims", || number(&second, "assent_rivals") == 0);
    eventually("what the client left is rolled back", || prepared(&town.rules.bank, &xids) == (false, false));
    assert_eq!(town.rows(), (vec![2], vec![2]));
    assert!(second.get("/health").starts_with("HTTP/1.1 200"));
    let told = json(&tx(&second, &["log", "--tx", &orphan.to_string()]));
    assert_eq!(told["transactions"][0]["by"], "agent", "{told}");
}
