//! Facts in, findings out.

use super::*;
use crate::doctor::Severity::{Error, Note, Ok as Well, Warning};
use crate::doctor::{self, Examined, Facts, Finding, Severity};

/// A server that nothing is wrong with.
fn healthy() -> MariadbFacts {
    let settings = [
        ("innodb_flush_log_at_trx_commit", "1"),
        ("innodb_doublewrite", "ON"),
        ("log_bin", "OFF"),
        ("sync_binlog", "0"),
        ("read_only", "OFF"),
        ("wait_timeout", "28800"),
        ("idle_transaction_timeout", "0"),
        ("max_statement_time", "0.000000"),
        ("wsrep_on", "OFF"),
        ("slaves_connected", "0"),
        ("slave_running", "OFF"),
        ("slaves_running", "0"),
        ("innodb_read_only", "OFF"),
        ("tx_read_only", "OFF"),
        ("innodb_force_recovery", "0"),
        ("rpl_semi_sync_master_status", "OFF"),
        ("rpl_semi_sync_master_clients", "0"),
        ("server_id", "7"),
        ("port", "3306"),
        ("datadir", "/var/lib/mysql/"),
        ("innodb_rollback_on_timeout", "ON"),
        ("max_connections", "400"),
        ("max_used_connections", "319"),
    ];
    MariadbFacts {
        place: "db:3306".into(),
        version: "10.11.6-MariaDB".into(),
        account: "shop@%".into(),
        database: "shop".into(),
        identity: "uid host 3306 data".into(),
        settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        prepared: Ok((2, 1)),
        beyond_reach: Vec::new(),
        plain_tables: 0,
        plain_tables_first: Vec::new(),
        clock_ahead_ms: -3,
    }
}

fn set(facts: &mut MariadbFacts, name: &str, value: &str) {
    facts.settings.insert(name.into(), value.into());
}

fn examined(name: &str, facts: MariadbFacts) -> Examined {
    Examined { resource: name.into(), facts: Ok(Facts::Mariadb(Box::new(facts))) }
}

fn findings(facts: MariadbFacts) -> Vec<Finding> {
    doctor::judge(&[examined("shop", facts)])
}

#[test]
fn a_healthy_server_is_described_and_nothing_else() {
    let found = findings(healthy());
    assert_eq!(doctor::worst(&found), Well, "{found:?}");
    for word in ["MariaDB 10.11.6", "db:3306", "\"shop\"", "\"shop@%\""] {
        assert!(found[0].what.contains(word), "{word}: {}", found[0].what);
    }
    assert_eq!(found[1].what, "2 prepared branches, 1 of them of Assent");
}

type Change = fn(&mut MariadbFacts);

#[test]
fn each_fact_has_its_finding() {
    let cases: &[(Change, Severity, &str, &str)] = &[
        (|it| it.version = "10.4.32-MariaDB".into(), Error, "10.4.32", "upgrade to MariaDB 10.5.2"),
        (|it| it.version = "5.6.51-log".into(), Error, "5.6.51", "upgrade to MySQL 5.7.7"),
        (|it| it.version = "new".into(), Error, "cannot be read", "says its version"),
        (|it| it.prepared = Err("no right".into()), Error, "no right", "XA_RECOVER_ADMIN to shop@%"),
        (
            |it| it.beyond_reach = vec![17, 18],
            Warning,
            "e.g. 17, are of other accounts",
            "CONNECTION ADMIN ON *.* TO shop@%",
        ),
        (|it| set(it, "innodb_flush_log_at_trx_commit", "2"), Error, "= 2", "set it to 1"),
        (|it| set(it, "innodb_doublewrite", "OFF"), Warning, "innodb_doublewrite", "switch it on"),
        (|it| set(it, "log_bin", "ON"), Warning, "sync_binlog = 0", "set it to 1"),
        (|it| set(it, "read_only", "ON"), Error, "read_only = ON", "primary"),
        (|it| set(it, "read_only", "1"), Error, "read_only = 1", "primary"),
        (|it| set(it, "slave_running", "ON"), Warning, "follows another", "read_only = 1"),
        (|it| set(it, "slaves_running", "1"), Warning, "follows another", "read_only = 1"),
        (|it| set(it, "innodb_read_only", "ON"), Error, "innodb_read_only = ON, so every branch fails", "written to"),
        (|it| set(it, "tx_read_only", "1"), Error, "tx_read_only = 1, so every branch fails", "switch it off"),
        (|it| set(it, "transaction_read_only", "ON"), Error, "transaction_read_only = ON", "switch it off"),
        (|it| set(it, "innodb_force_recovery", "1"), Error, "innodb_force_recovery = 1", "rescue"),
        (|it| it.version = "8.0.36".into(), Note, "follows another server", "SHOW REPLICA STATUS"),
        (|it| set(it, "wsrep_on", "ON"), Error, "Galera", "outside"),
        (|it| set(it, "slaves_connected", "2"), Warning, "2 replicas follow", "semi-synchronous"),
        (|it| set(it, "wait_timeout", "599"), Note, "wait_timeout = 599 s", "quicker"),
        (|it| set(it, "idle_transaction_timeout", "30"), Note, "idle_transaction_timeout = 30 s", ""),
        (|it| set(it, "max_statement_time", "1.500000"), Note, "max_statement_time = 1.5", ""),
        (|it| set(it, "innodb_rollback_on_timeout", "OFF"), Note, "votes yes without it", "ON"),
        (|it| set(it, "server_id", "1"), Note, "server_id = 1", "of its own"),
        (|it| set(it, "max_used_connections", "320"), Warning, "320 of max_connections = 400", "raise"),
        (|it| it.clock_ahead_ms = 2_000, Note, "2000 ms ahead", "NTP"),
        (
            |it| {
                it.plain_tables = 7;
                it.plain_tables_first = vec![("log".into(), "MyISAM".into()), ("old".into(), "Aria".into())];
            },
            Warning,
            "7 tables keep what is rolled back: log (MyISAM), old (Aria), ...",
            "ENGINE=InnoDB",
        ),
    ];
    for (change, severity, what, advice) in cases {
        let mut facts = healthy();
        change(&mut facts);
        let found = findings(facts);
        let worse: Vec<_> = found.iter().filter(|finding| finding.severity > Well).collect();
        assert_eq!(worse.len(), 1, "{what}: {found:?}");
        assert_eq!(worse[0].severity, *severity, "{what}: {found:?}");
        assert!(worse[0].what.contains(what) && worse[0].advice.contains(advice), "{what}: {:?}", worse[0]);
    }
}

#[test]
fn a_right_over_all_connections_is_read_out_of_the_grants() {
    for (grant, may) in [
        ("GRANT USAGE ON *.* TO `shop`@`%` IDENTIFIED BY PASSWORD '*SUPER ON *.* '", false),
        ("GRANT SELECT, CONNECTION ADMIN ON *.* TO `shop`@`%`", true),
        ("GRANT CONNECTION_ADMIN ON *.* TO `shop`@`%`", true),
        ("GRANT SUPER ON *.* TO `shop`@`%`", true),
        ("GRANT ALL PRIVILEGES ON *.* TO `shop`@`%` WITH GRANT OPTION", true),
        ("GRANT ALL PRIVILEGES ON `assent`.* TO `shop`@`%`", false),
    ] {
        assert_eq!(may_end_others(grant), may, "{grant}");
    }
}

#[test]
fn what_is_just_within_the_limits_is_well() {
    let cases: &[Change] = &[
        |it| set(it, "innodb_flush_log_at_trx_commit", "3"),
        |it| {
            set(it, "log_bin", "ON");
            set(it, "sync_binlog", "1");
        },
        |it| {
            set(it, "slaves_connected", "1");
            set(it, "rpl_semi_sync_master_status", "ON");
            set(it, "rpl_semi_sync_master_clients", "1");
        },
        |it| set(it, "wait_timeout", "600"),
        // MySQL lacks most of them.
        |it| {
            it.version = "8.0.36".into();
            it.settings.retain(|name, _| name.starts_with("innodb") || name == "read_only");
        },
    ];
    for change in cases {
        let mut facts = healthy();
        change(&mut facts);
        let is_mysql = !facts.version.contains("MariaDB");
        let found = findings(facts);
        // What is not looked at there is told.
        assert_eq!(doctor::worst(&found), if is_mysql { Note } else { Well }, "{found:?}");
    }
}

#[test]
fn two_names_of_one_server_are_told_from_two_servers() {
    let about_the_second = |change: Change| {
        let mut second = healthy();
        change(&mut second);
        let found = doctor::judge(&[examined("first", healthy()), examined("second", second)]);
        (found.last().unwrap().severity, found.last().unwrap().what.clone())
    };
    assert_eq!(about_the_second(|_| ()), (Warning, "the same data as resource \"first\"".to_owned()));
    let (severity, what) = about_the_second(|it| it.database = "other".into());
    assert!(severity == Note && what.contains("another database"), "{what}");
    let (severity, what) = about_the_second(|it| it.identity = "uid other-host 3306 data".into());
    assert!(severity == Warning && what.contains("the same server_id, port and datadir"), "{what}");
    let elsewhere: [Change; 3] =
        [|it| set(it, "server_id", "8"), |it| set(it, "port", "3307"), |it| set(it, "server_uuid", "e8a1")];
    for differs in elsewhere {
        let mut second = healthy();
        second.identity = "uid other-host 3306 data".into();
        differs(&mut second);
        let found = doctor::judge(&[examined("first", healthy()), examined("second", second)]);
        assert_eq!(doctor::worst(&found), Well, "{found:?}");
    }
}
