//! What a prepared branch outlives, and what it costs while nobody finishes it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::time::Duration;

use assent_world::{Clock as _, RealClock};
use postgres::{Client, NoTls};

use super::assent::{json, run};
use super::town::{Rules, Town, alone, eventually, prepared, servers, shared, text, variable};

/// Both databases serve again, also if the test fails.
struct Stopped;

impl Drop for Stopped {
    fn drop(&mut self) {
        ["postgres", "mariadb"].iter().for_each(|name| drop(servers("revive", name)));
    }
}

#[test]
fn a_decided_branch_survives_an_orderly_stop_of_both_databases_and_is_finished_when_they_are_back() {
    let _alone = alone();
    let town = Town::new("orderly", Rules::frozen_at("coordinator-after-answer"));
    let mut voted = town.voted(1);
    voted.decide();
    town.served.freezes();
    let (_, xids) = voted.dies();
    let stopped = Stopped;
    ["postgres", "mariadb"].iter().for_each(|name| drop(servers("stop", name)));
    let town = town.again(Rules::default());
    eventually("both are named as away", || {
        let looked = json(&town.tx(&["recover"]));
        looked["unreachable"].as_array().is_some_and(|list| list.len() == 2)
    });
    assert_eq!(town.listed()[0]["outcome"], "committed");
    drop(stopped);
    town.settles();
    assert_eq!((town.rows(), prepared(&town.rules.bank, &xids)), ((vec![1], vec![1]), (false, false)));
}

/// No row that died after its snapshot was taken can be cleared away, in any table of the database.
#[test]
fn a_prepared_branch_of_postgres_holds_vacuum_back_and_the_doctor_counts_it() {
    let _quiet = shared();
    // In a database of its own: other tests' branches in the same one hold it back, too.
    let (shared, own) = (Rules::default().bank, format!("assent_cli_vacuum_{}", std::process::id()));
    Client::connect(&shared, NoTls).unwrap().batch_execute(&format!("CREATE DATABASE {own}")).unwrap();
    let bank = format!("{}/{own}", shared.rsplit_once('/').unwrap().0);
    let town = Town::new("vacuum", Rules { client_lost_ms: 600_000, bank, ..Rules::default() });
    let (tx, _) = town.voted(1).dies();
    let mut bank = Client::connect(&town.rules.bank, NoTls).unwrap();
    let table = format!("{}_other", town.table);
    bank.batch_execute(&format!("CREATE TABLE {table} (id int) WITH (autovacuum_enabled = off)")).unwrap();
    // Where the next row is laid behind one that was deleted: in its place, once that was cleared away.
    let mut place = || -> String {
        bank.batch_execute(&format!("INSERT INTO {table} VALUES (1)")).unwrap();
        bank.batch_execute(&format!("DELETE FROM {table}")).unwrap();
        bank.batch_execute(&format!("VACUUM {table}")).unwrap();
        bank.query_one(&format!("INSERT INTO {table} VALUES (2) RETURNING ctid::text"), &[]).unwrap().get(0)
    };
    assert_eq!(place(), "(0,2)", "the dead row is still there");
    let config = town.folder.path().join("assent.toml");
    let report = json(&run(&["--json", "doctor", "--config", config.to_str().unwrap()]));
    let findings = report["findings"].as_array().unwrap();
    let counted = findings.iter().filter_map(|it| it["what"].as_str()).find(|it| it.contains("prepared transactions"));
    assert!(counted.is_some_and(|it| !it.contains(" 0 of them")), "{report}");

    json(&town.tx(&["recover"]));
    town.until("its client is lost", |listed| listed[0]["client_is"] == "lost");
    json(&town.tx(&["rollback", &tx.to_string(), "--yes", "--by", "anna"]));
    town.until("it is rolled back", |listed| listed[0]["branches"][0]["state"] == "rolled back");
    // Recovery's own looks are snapshots, too.
    eventually("the place of a dead row is taken", || place() == "(0,1)");
}

/// What was in doubt before a restart is not young after it, and who looks for it is told where to look.
#[test]
fn a_branch_in_doubt_is_shown_with_its_server_its_role_its_number_and_since_when_also_behind_a_restart() {
    let _quiet = shared();
    let town = Town::new("since", Rules { client_lost_ms: 60_000, ..Rules::default() });
    let voted = town.voted(1);
    let since = RealClock.now();
    let mut bank = Client::connect(&town.rules.bank, NoTls).unwrap();
    let sql = "SELECT transaction::text FROM pg_prepared_xacts WHERE gid = $1";
    let number: String = bank.query_one(sql, &[&voted.xids[0].to_gid()]).unwrap().get(0);
    let (tx, _) = voted.dies();
    let tx = tx.to_string();
    RealClock.sleep(Duration::from_millis(1_500));
    let rules = town.rules.clone();
    let town = town.again(rules);
    let seen = town.until("both are seen", |listed| listed[0]["branches"].as_array().is_some_and(|all| all.len() == 2));
    let lasts_ms = u64::try_from(RealClock.now().since(since).as_millis()).unwrap();
    let age_ms = seen[0]["age_ms"].as_u64().unwrap();
    assert!((1_500..lasts_ms + 5_000).contains(&age_ms), "{age_ms} ms, and it is {lasts_ms} ms old");
    let shown = text(&town.served, &["show", &tx]);
    let place = |url: &str| url.rsplit_once('@').unwrap().1.split_once('/').unwrap().0.to_owned();
    for words in [
        format!("at {}, database \"assent\", role \"assent\"", place(&variable("ASSENT_TEST_POSTGRES"))),
        format!("at {}, database \"assent\", account \"assent\"", place(&variable("ASSENT_TEST_MARIADB"))),
        format!("listed as transaction {number} of role \"assent\" in database \"assent\""),
        "prepared since 20".to_owned(),
    ] {
        assert!(shown.contains(&words), "{words:?} in {shown}");
    }
    assert!(text(&town.served, &["list"]).contains(&place(&variable("ASSENT_TEST_POSTGRES"))));
    let branch = &json(&town.tx(&["show", &tx]))["transactions"][0]["branches"][0];
    assert!(branch["prepared_since"].as_str().is_some_and(|since| since.ends_with('Z')), "{branch}");
    json(&town.tx(&["rollback", &tx, "--yes", "--by", "anna"]));
    // It stays listed until its client, which may come back, is fenced: that is not waited for here.
    town.until("both are rolled back", |listed| {
        [0, 1].iter().all(|branch| listed[0]["branches"][branch]["state"] == "rolled back")
    });
}
