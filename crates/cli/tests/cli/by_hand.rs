//! A person finishes a branch by hand behind the decision: who can know says so, and it stays listed until it is forgotten.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use mysql::prelude::Queryable as _;
use postgres::{Client, NoTls};

use super::assent::{fails, json};
use super::town::{Rules, Town, alone, eventually, mariadb, number, prepared, root, shared, text, variable};

/// A coordinator that has answered "committed" and died, and its client too: both branches are still prepared.
pub(crate) fn decided(test: &str) -> (Town, String, [assent_ids::Xid; 2]) {
    let town = Town::new(test, Rules::frozen_at("coordinator-after-answer"));
    let mut voted = town.voted(1);
    voted.decide();
    town.served.freezes();
    let session = voted.shop_session();
    let (tx, xids) = voted.dies();
    // While it is just ending, MariaDB 10.11 answers OK to whoever finishes its branch, and does nothing.
    let gone = format!("SELECT COUNT(*) = 0 FROM information_schema.PROCESSLIST WHERE ID = {session}");
    eventually("its session is gone", || root().query_first(&gone).unwrap() == Some(true));
    assert_eq!(prepared(&town.rules.bank, &xids), (true, true), "nobody has told them");
    (town, tx.to_string(), xids)
}

#[test]
fn a_postgres_branch_rolled_back_by_hand_is_found_listed_over_a_kill_and_forgotten_by_a_person() {
    let _quiet = shared();
    let (town, tx, xids) = decided("by_hand");
    let mut bank = Client::connect(&town.rules.bank, NoTls).unwrap();
    let sql = "SELECT transaction::text FROM pg_prepared_xacts WHERE gid = $1";
    let known_by: String = bank.query_one(sql, &[&xids[0].to_gid()]).unwrap().get(0);
    bank.batch_execute(&format!("ROLLBACK PREPARED '{}'", xids[0].to_gid())).unwrap();
    let mut town = town.again(Rules::default());
    // Also after another kill: nothing forgets it but a person. MariaDB's end may be lost with the process, and is inferred.
    for _ in 0..2 {
        town.until("both ends are known", |listed| {
            let branches = &listed[0]["branches"];
            let is_told = branches[1]["state"].as_str().is_some_and(|state| state.starts_with("committed"));
            branches[0]["heuristic"] == "rolled_back" && is_told
        });
        town = town.again(Rules::default());
    }
    town.until("it is asked again", |listed| listed[0]["client_is"] == "fenced");
    json(&town.tx(&["recover"]));
    let one = town.listed()[0].clone();
    assert_eq!(
        (&one["tx"], &one["outcome"], &one["branches"][0]["resource"]),
        (&tx.as_str().into(), &"committed".into(), &"bank".into())
    );
    assert_eq!(one["branches"][0]["message"], "decided commit; a person or a fail-over undid it");
    assert_eq!(town.rows(), (vec![], vec![1]), "half a transaction, and it is said");
    assert_eq!(number(&town.served, "assent_heuristic"), 1);
    assert!(town.served.get("/health").contains("1 heuristic outcomes wait for a person"));
    let shown = text(&town.served, &["show", &tx]);
    assert!(shown.contains("bank#0 voted yes, rolled back on its own: decided commit"), "{shown}");
    // What a person needs to ask PostgreSQL himself.
    let voted = format!("voted as transaction {known_by} of role \"assent\" in database \"assent\", log at ");
    assert!(shown.contains(&voted) && shown.contains("voted as connection "), "{voted:?} in {shown}");

    fails(&["tx", "forget", &tx, "--server", &town.served.protocol], 2, "add --yes");
    json(&town.tx(&["forget", &tx, "--yes", "--by", "anna", "--reason", "booked by hand"]));
    town.settles();
    let town = town.again(Rules::default());
    assert_eq!(number(&town.served, "assent_heuristic"), 0);
    let told = json(&town.tx(&["log", "--state", "heuristic"]));
    assert_eq!(told["transactions"][0]["operators"][0]["who"], "anna");
}

/// Its client's session has to be gone first, and [`decided`] has waited for that.
fn roll_back_in_mariadb(xid: &assent_ids::Xid) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let name = format!("X'{}',X'{}',{}", hex(xid.gtrid()), hex(xid.bqual()), xid.format());
    let mut connection = mariadb(&variable("ASSENT_TEST_MARIADB"));
    connection.query_drop(format!("XA ROLLBACK {name}")).unwrap();
}

/// MariaDB keeps nothing of a branch that is over. So the log never says "committed" of it, but what that rests on.
#[test]
fn of_a_mariadb_branch_rolled_back_by_hand_the_log_says_that_its_commit_is_inferred() {
    let _quiet = shared();
    let (town, tx, xids) = decided("inferred");
    roll_back_in_mariadb(&xids[1]);
    let town = town.again(Rules::default());
    town.settles();
    let told = json(&town.tx(&["log", "--tx", &tx]));
    let branches = &told["transactions"][0]["branches"];
    assert_eq!((&branches[0]["fate"], &branches[1]["fate"]), (&"committed".into(), &"committed (inferred)".into()));
    assert_eq!(town.rows(), (vec![1], vec![]), "what nobody can know");
}

/// The same behind another server than the one that voted: then not even that is claimed.
#[test]
fn of_a_mariadb_that_is_not_the_one_that_voted_nothing_is_inferred_and_a_person_is_asked() {
    let _alone = alone();
    let (town, tx, xids) = decided("other");
    roll_back_in_mariadb(&xids[1]);
    let mut root = root();
    let before: u32 = root.query_first("SELECT @@GLOBAL.server_id").unwrap().unwrap();
    root.query_drop(format!("SET GLOBAL server_id = {}", before + 1)).unwrap();
    let town = town.again(Rules::default());
    town.until("it is in hazard", |listed| listed[0]["branches"][1]["heuristic"] == "hazard");
    root.query_drop(format!("SET GLOBAL server_id = {before}")).unwrap();
    let shown = text(&town.served, &["show", &tx]);
    assert!(
        shown.contains("shop#1 voted yes, in hazard: it may have gone either way: ")
            && shown.contains("the branch voted on server"),
        "{shown}"
    );
    town.until("its client is fenced", |listed| listed[0]["client_is"] == "fenced");
    json(&town.tx(&["forget", &tx, "--yes", "--by", "anna"]));
    town.settles();
}
