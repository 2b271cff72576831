//! docs/operations.md, done: every SQL statement that it gives a person is taken out of it and run at real servers, where it
//! has to show what the page says. A statement that nobody here runs is a failure, so the page cannot rot.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::collections::BTreeSet;

use mysql::prelude::Queryable as _;
use postgres::{Client, NoTls, SimpleQueryMessage};

use super::assent::json;
use super::town::{Rules, Town, alone, eventually, mariadb, prepared, servers, shared, superuser, variable};

const PAGE: &str = include_str!("../../../../docs/operations.md");
const BEGINNINGS: [&str; 4] = ["SELECT ", "XA RECOVER", "GRANT ", "SHOW "];

/// What the page gives to be typed into a database, each in one line.
fn statements() -> Vec<String> {
    let spans = PAGE.split('`').skip(1).step_by(2);
    let lines = spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| BEGINNINGS.iter().any(|word| line.starts_with(word))).collect()
}

/// The one that has these words.
pub(crate) fn statement(words: &str) -> String {
    let found: BTreeSet<String> = statements().into_iter().filter(|line| line.contains(words)).collect();
    assert_eq!(found.len(), 1, "{words:?} names {found:?}");
    found.into_iter().next().unwrap()
}

/// The rows of a statement as text, by PostgreSQL.
pub(crate) fn ask(client: &mut Client, sql: &str) -> Vec<Vec<String>> {
    let messages = client.simple_query(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let text = |row: &postgres::SimpleQueryRow| (0..row.len()).map(|at| row.get(at).unwrap_or("").to_owned()).collect();
    let rows =
        messages.iter().filter_map(|it| if let SimpleQueryMessage::Row(row) = it { Some(text(row)) } else { None });
    rows.collect()
}

#[test]
fn every_statement_of_the_page_is_run_by_a_test() {
    // Here, and in `fail_over` the one that needs a second timeline.
    let known = [
        "FROM pg_prepared_xacts",
        "pg_xact_status",
        "XA RECOVER",
        "FROM pg_locks",
        "GRANT EXECUTE ON FUNCTION pg_read_file",
        "SELECT pg_read_file",
        "GRANT pg_read_all_stats",
        "SHOW PROCESSLIST",
    ];
    for line in statements() {
        let by: Vec<&&str> = known.iter().filter(|words| line.contains(**words)).collect();
        assert_eq!(by.len(), 1, "{line:?} is run by {by:?}");
    }
    known.iter().for_each(|words| drop(statement(words)));
}

#[test]
fn what_the_page_gives_for_a_held_transaction_shows_each_branch_and_what_became_of_it() {
    let _alone = alone();
    let town = Town::new("manual", Rules { client_lost_ms: 600_000, ..Rules::default() });
    let voted = town.voted(1);
    let mut bank = superuser(&town.rules.bank);
    let listed = ask(&mut bank, &statement("FROM pg_prepared_xacts"));
    let gid = voted.xids[0].to_gid();
    let ours = listed.iter().find(|row| row[1] == gid).unwrap_or_else(|| panic!("{gid} in {listed:?}"));
    let status = statement("pg_xact_status").replace("NUMBER", &ours[0]);
    assert_eq!(ask(&mut bank, &status), [["in progress"]]);

    let (_, xids) = voted.dies();
    // As a person would find it: no session has the branch any more, as after a restart of the server. While the owner's is
    // just ending, MariaDB 10.11 answers OK to XA COMMIT and does nothing.
    ["kill", "revive"].iter().for_each(|verb| drop(servers(verb, "mariadb")));
    let mut shop = mariadb(&variable("ASSENT_TEST_MARIADB"));
    let listed: Vec<(i64, i64, i64, String)> = shop.query(statement("XA RECOVER")).unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let name = format!("X'{}',X'{}',{}", hex(xids[1].gtrid()), hex(xids[1].bqual()), xids[1].format());
    let ours = listed.iter().find(|row| row.3.eq_ignore_ascii_case(&name));
    let ours = &ours.unwrap_or_else(|| panic!("{name} in {listed:?}")).3;
    // As a person would paste it. The page says: only if the coordinator cannot decide otherwise any more.
    town.served.signal(rustix::process::Signal::KILL);
    let sessions: Vec<mysql::Row> = shop.query(statement("SHOW PROCESSLIST")).unwrap();
    assert!(!sessions.is_empty(), "at least this one");
    shop.query_drop(format!("XA COMMIT {ours}")).unwrap();
    bank.batch_execute(&format!("ROLLBACK PREPARED '{gid}'")).unwrap();
    assert_eq!(ask(&mut bank, &status), [["aborted"]]);
    assert_eq!(town.rows(), (vec![], vec![1]));
}

#[test]
fn what_the_page_gives_for_claims_and_grants_works_as_it_says() {
    let _quiet = shared();
    let town = Town::new("claimed", Rules::default());
    json(&town.tx(&["recover"]));
    let mut bank = superuser(&town.rules.bank);
    let holders = ask(&mut bank, &statement("FROM pg_locks"));
    let voted = town.voted(1);
    let branch = voted.xids[0].branch().unwrap();
    let key = format!("{:x}", branch.node.0 ^ branch.resource.0);
    assert!(holders.iter().any(|row| row[0].trim_start_matches('0') == key), "{key} in {holders:?}");
    for (words, role) in
        [("GRANT EXECUTE ON FUNCTION pg_read_file", " assent"), ("GRANT pg_read_all_stats", " TO assent")]
    {
        let grant = format!("{}{role}", statement(words));
        bank.batch_execute(&grant).unwrap_or_else(|error| panic!("{grant}: {error:?}"));
        let revoke = grant.replace("GRANT", "REVOKE").replace(" TO ", " FROM ");
        bank.batch_execute(&revoke).unwrap_or_else(|error| panic!("{revoke}: {error:?}"));
    }
    let (_, xids) = voted.dies();
    eventually("it is rolled back", || prepared(&town.rules.bank, &xids) == (false, false));
    let mut role = Client::connect(&town.rules.bank, NoTls).unwrap();
    assert!(role.simple_query("SELECT pg_read_file('PG_VERSION')").is_err(), "the grant is needed, and is gone");
}
