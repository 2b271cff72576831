//! What each branch voted, in `assent tx log` and `show`, over a real PostgreSQL and a real MariaDB.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use assent_client::{Client, ClientConfig};
use assent_ids::TxId;
use assent_kind::Kind;
use assent_resources::{Limits, Mariadb, Postgres};
use mysql::prelude::Queryable as _;
use serde_json::{Value, json as value};

use super::assent::json;
use super::town::{BANK, Rules, SHOP, Town, eventually, shared, superuser, text, variable};

/// A client of the town, whose branches are two in PostgreSQL, the second one under its own number, and one in MariaDB.
struct Shopper {
    client: Client,
    bank: [Postgres; 2],
    shop: Mariadb,
}

impl Shopper {
    fn of(town: &Town) -> Self {
        let client = Client::connect(ClientConfig {
            resources: vec![BANK.to_owned(), SHOP.to_owned()],
            ..ClientConfig::new(town.served.protocol.parse().unwrap(), "shopper")
        });
        let bank = [(); 2].map(|()| Postgres::connect(BANK, &town.rules.bank, Limits::WORK).unwrap());
        let shop = Mariadb::connect(SHOP, &variable("ASSENT_TEST_MARIADB"), Limits::WORK).unwrap();
        Self { client, bank, shop }
    }

    /// A row in both, and a reader beside them.
    fn buys(&mut self, town: &Town, row: i32) -> (TxId, Result<(), Kind>) {
        let Self { client, bank: [bank, reader], shop } = self;
        let mut tx = client.begin().unwrap();
        let name = tx.tx();
        let (bank, reader, shop) = (tx.enlist(bank), tx.enlist(reader), tx.enlist(shop));
        let insert = format!("INSERT INTO {} VALUES ({row})", town.table);
        bank.work().unwrap().work(|client| client.batch_execute(&insert)).unwrap();
        let read = format!("SELECT count(*) FROM {}", town.table);
        reader.work().unwrap().work(|client| client.batch_execute(&read)).unwrap();
        shop.work().unwrap().work(|connection| connection.query_drop(&insert)).unwrap();
        drop((bank, reader, shop));
        (name, tx.commit().map(drop).map_err(|error| error.kind))
    }
}

/// The votes by the branches' numbers, and the words of a no.
fn voted(town: &Town, tx: TxId) -> Value {
    let told = json(&town.tx(&["log", "--tx", &tx.to_string()]));
    let Some(one) = told["transactions"].get(0) else { return Value::Null };
    let vote = |branch: &Value| value!([branch["resource"], branch["vote"], branch["code"]]);
    value!({ "outcome": one["outcome"], "votes": one["branches"].as_array().unwrap().iter().map(vote).collect::<Vec<_>>() })
}

#[test]
fn the_log_shows_a_yes_a_no_with_its_words_and_a_vote_of_read_only() {
    let _both = shared();
    let town = Town::new("votes", Rules::default());
    superuser(&town.rules.bank)
        .batch_execute(&format!(
            "ALTER TABLE {} ADD COLUMN twin int DEFAULT 1 UNIQUE DEFERRABLE INITIALLY DEFERRED",
            town.table
        ))
        .unwrap();
    let mut shopper = Shopper::of(&town);
    let (good, committed) = shopper.buys(&town, 1);
    assert_eq!(committed, Ok(()));
    // A deferred constraint says no when the branch is asked to prepare.
    let (bad, refused) = shopper.buys(&town, 2);
    assert_eq!(refused, Err(Kind::RolledBack));
    let good_votes = value!([[BANK, "yes", ""], [BANK, "read_only", ""], [SHOP, "yes", ""]]);
    assert_eq!(voted(&town, good), value!({ "outcome": "committed", "votes": good_votes }));
    let bad_votes = value!([[BANK, "no", "23505"], [BANK, "read_only", ""], [SHOP, "yes", ""]]);
    eventually("the client has told", || voted(&town, bad) != Value::Null);
    assert_eq!(voted(&town, bad), value!({ "outcome": "rolled_back", "votes": bad_votes }));
    // What the decision keeps of each yes, in words; of who only read it keeps nothing.
    let told = json(&town.tx(&["log", "--tx", &good.to_string()]));
    let branches = &told["transactions"][0]["branches"];
    let [bank, reader, shop] = [0, 1, 2].map(|at| branches[at]["witness"].as_str().map(str::to_owned));
    assert!(bank.is_some_and(|it| it.starts_with("transaction ") && it.contains(" in database ")), "{told}");
    assert!(shop.is_some_and(|it| it.starts_with("connection ") && it.contains(" of server ")), "{told}");
    assert_eq!(reader, None);
    let read = text(&town.served, &["log", "--tx", &bad.to_string()]);
    assert!(read.contains("bank#0 voted no: ") && read.contains("bank#1 voted read-only"), "{read}");
    assert_eq!(town.rows(), (vec![1], vec![1]));
}

/// Its client died behind the decision: what it voted is known all the same, and shown with what is in doubt.
#[test]
fn what_is_in_doubt_is_shown_with_the_vote_of_each_branch() {
    let _both = shared();
    let town = Town::new("votes_doubt", Rules { client_lost_ms: 60_000, ..Rules::default() });
    let mut voted = town.voted(1);
    voted.decide();
    let tx = voted.tx.to_string();
    let shown = json(&town.tx(&["show", &tx]));
    let votes: Vec<&Value> =
        shown["transactions"][0]["branches"].as_array().unwrap().iter().map(|it| &it["vote"]).collect();
    assert_eq!(votes, ["yes", "yes"]);
    let read = text(&town.served, &["show", &tx]);
    assert!(read.contains("bank#0 voted yes, "), "{read}");
    drop(voted);
    let town = town.again(Rules::default());
    town.settles();
}
