//! A PostgreSQL fail-over loses a branch of a decided transaction: recovery finds that, says so, and forgets nothing.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use postgres::{Client, NoTls};
use serde_json::Value;

use super::assent::json;
use super::manual;
use super::town::{Rules, Town, alone, eventually, number, prepared, servers, superuser, text, variable};

/// The primary is away, and what follows it too; afterwards everything is as it was.
struct Failed;

impl Drop for Failed {
    fn drop(&mut self) {
        servers("revive", "postgres");
        servers("stop", "standby");
    }
}

/// The standby takes nothing more from its primary.
fn cut_off(standby: &mut Client) {
    standby.batch_execute("ALTER SYSTEM SET primary_conninfo = ''").unwrap();
    standby.batch_execute("SELECT pg_reload_conf()").unwrap();
    eventually("the standby is cut off", || {
        standby.query_one("SELECT count(*) FROM pg_stat_wal_receiver", &[]).unwrap().get::<_, i64>(0) == 0
    });
}

fn catch_up(primary: &mut Client, standby: &mut Client) {
    let position: String = primary.query_one("SELECT pg_current_wal_flush_lsn()::text", &[]).unwrap().get(0);
    let asked = format!("SELECT pg_last_wal_replay_lsn() >= '{position}'::pg_lsn");
    eventually("the standby has caught up", || standby.query_one(&asked, &[]).unwrap().get(0));
}

#[test]
fn a_branch_that_a_fail_over_lost_is_listed_with_its_reason_and_never_told_as_done() {
    let _alone = alone();
    let _failed = Failed;
    // Both hosts stand in the URL, so that nobody has to change a configuration: the one that takes writes is taken.
    servers("start", "standby");
    let (primary, standby) = (variable("ASSENT_TEST_POSTGRES"), servers("url", "standby"));
    let host = |url: &str| url.split_once('@').unwrap().1.split_once('/').unwrap().0.to_owned();
    let bank = primary.replace(&host(&primary), &format!("{},{}", host(&primary), host(&standby)));
    let rules = Rules { bank, ..Rules::default() };
    let town = Town::new("fail_over", Rules { stop: "coordinator-after-answer", ..rules.clone() });
    let mut there = superuser(&standby);
    catch_up(&mut superuser(&primary), &mut there);
    cut_off(&mut there);

    let mut voted = town.voted(1);
    voted.decide();
    town.served.freezes();
    let (tx, xids) = voted.dies();
    let tx = tx.to_string();
    assert_eq!(prepared(&primary, &xids), (true, true), "nobody has told them");
    servers("kill", "postgres");
    assert!(there.query_one("SELECT pg_promote()", &[]).unwrap().get::<_, bool>(0));
    assert!(!prepared(&standby, &xids).0, "the new primary has never heard of it");

    let mut town = town.again(rules.clone());
    for _ in 0..2 {
        let listed = town.until("it is in hazard", |listed| listed[0]["branches"][0]["heuristic"] == "hazard");
        assert_eq!((&listed[0]["tx"], &listed[0]["outcome"]), (&tx.as_str().into(), &"committed".into()));
        let why = listed[0]["branches"][0]["message"].as_str().unwrap();
        assert!(why.contains("on timeline 1, behind ") && why.contains("is on timeline 2"), "{why}");
        // Over a kill, as nothing forgets it but a person.
        town = town.again(rules.clone());
    }
    town.until("the other branch is told", |listed| {
        listed[0]["client_is"] == "fenced"
            && listed[0]["branches"][1]["state"].as_str().is_some_and(|state| state.starts_with("committed"))
    });
    json(&town.tx(&["recover"]));
    assert_eq!(town.rows(), (vec![], vec![1]), "half a transaction, and it is said");
    assert_eq!(number(&town.served, "assent_heuristic"), 1);
    let shown = text(&town.served, &["show", &tx]);
    for said in
        ["bank#0 voted yes, in hazard: it may have gone either way: ", "forget    the branches that ended on their own"]
    {
        assert!(shown.contains(said), "{said:?} in {shown}");
    }
    let told = json(&town.tx(&["log", "--tx", &tx]));
    let past = &told["transactions"][0];
    assert_eq!((&past["finished_at"], &past["branches"][0]["heuristic"]), (&Value::Null, &"hazard".into()), "not over");

    // Where a person looks, as the words and the manual say: the old timeline was left before the vote.
    let history = manual::ask(&mut there, &manual::statement("SELECT pg_read_file"));
    assert!(history[0][0].starts_with("1\t"), "{history:?}");
    json(&town.tx(&["forget", &tx, "--yes", "--by", "anna", "--reason", "booked at the new primary"]));
    town.settles();
    let told = json(&town.tx(&["log", "--state", "heuristic"]));
    assert_eq!(told["transactions"][0]["branches"][0]["heuristic"], "hazard");

    // The old primary still holds it.
    drop(town);
    servers("revive", "postgres");
    let gid = xids[0].to_gid();
    Client::connect(&primary, NoTls).unwrap().batch_execute(&format!("ROLLBACK PREPARED '{gid}'")).unwrap();
}
