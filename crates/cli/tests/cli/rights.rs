//! A right that is missing, end to end: recovery may see a branch and not finish it. It says so where people look, everything else
//! is finished meanwhile, and once it is put right the rest follows by itself.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use super::assent::json;
use super::by_hand::decided;
use super::town::{Rules, eventually, prepared, shared, superuser, text};

#[test]
fn a_branch_of_another_role_stays_listed_with_the_role_to_connect_as_and_is_finished_once_that_is_put_right() {
    let _quiet = shared();
    let (town, tx, xids) = decided("rights");
    let bank = town.rules.bank.clone();
    let role = format!("assent_stranger_{}", std::process::id());
    superuser(&bank).batch_execute(&format!("CREATE ROLE {role} LOGIN")).unwrap();
    // Recovery comes as somebody else than the clients did.
    let town = town.again(Rules { bank: bank.replace("//assent@", &format!("//{role}@")), ..Rules::default() });
    let listed = town.until("PostgreSQL has refused, and MariaDB is done", |listed| {
        let branches = &listed[0]["branches"];
        let is_done = branches[1]["state"].as_str().is_some_and(|state| state.starts_with("committed"));
        branches[0]["state"] == "prepared" && branches[0]["code"] == "42501" && is_done
    });
    assert_eq!(listed[0]["outcome"], "committed");
    let shown = text(&town.served, &["show", &tx]);
    for words in ["bank#0 voted yes, prepared", "connect as \"assent\"", &format!("role \"{role}\""), "(42501)"] {
        assert!(shown.contains(words), "{words:?} in {shown}");
    }
    let health = town.served.get("/health");
    let words = format!("bank: a branch of {tx} cannot be finished by this account");
    assert!(health.contains(&words) && health.contains("42501"), "{health}");
    assert_eq!(prepared(&bank, &xids), (true, false), "nothing is lost meanwhile");
    let looked = json(&town.tx(&["recover"]));
    assert!(looked["resolved"].to_string().contains("being a member is not enough"), "{looked}");
    // Put right: the URL, and a start.
    let town = town.again(Rules { bank: bank.clone(), ..Rules::default() });
    town.settles();
    assert_eq!((town.rows(), prepared(&bank, &xids)), ((vec![1], vec![1]), (false, false)));
    eventually("health is well again", || town.served.get("/health").contains("0 branches open"));
    superuser(&bank).batch_execute(&format!("DROP ROLE {role}")).unwrap();
}
