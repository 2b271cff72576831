//! Facts in, findings out.

use super::*;
use crate::doctor::Severity::{Error, Note, Ok as Well, Warning};
use crate::doctor::{self, Examined, Facts, Finding, Severity};

/// A server that nothing is wrong with.
fn healthy() -> PostgresFacts {
    PostgresFacts {
        place: "db:5432".into(),
        version: "15.6".into(),
        role: "bank".into(),
        is_superuser: false,
        database: "accounts".into(),
        is_standby: false,
        is_writable: true,
        system: Some("7301".into()),
        started: "2026-01-01 00:00:00.123456+00".into(),
        prepared_max: 100,
        connections_max: 100,
        prepared: Vec::new(),
        off: Vec::new(),
        synchronous_commit: "on".into(),
        synchronous_standby_names: String::new(),
        replicas: Replicas::default(),
        reads_history: true,
        rows: None,
        timeouts_ms: Vec::new(),
        clock_ahead_ms: 3,
        proxy: Proxy::default(),
    }
}

fn examined(name: &str, facts: PostgresFacts) -> Examined {
    Examined { resource: name.into(), facts: Ok(Facts::Postgres(Box::new(facts))) }
}

fn findings(facts: PostgresFacts) -> Vec<Finding> {
    doctor::judge(&[examined("bank", facts)])
}

fn ours(age_s: u64) -> Prepared {
    Prepared { is_ours: true, owner: "bank".into(), database: "accounts".into(), age_s }
}

fn theirs(age_s: u64) -> Prepared {
    Prepared { is_ours: false, owner: "batch".into(), ..ours(age_s) }
}

#[test]
fn a_healthy_server_is_described_and_nothing_else() {
    let found = findings(healthy());
    assert!(found.iter().all(|finding| finding.severity == Well && finding.advice.is_empty()), "{found:?}");
    for word in ["15.6", "db:5432", "\"accounts\"", "\"bank\""] {
        assert!(found[0].what.contains(word), "{word}: {}", found[0].what);
    }
    assert_eq!(found[1].what, "0 of 100 prepared transactions, 0 of them of Assent");
}

type Change = fn(&mut PostgresFacts);

#[test]
fn what_keeps_a_last_resources_rows_from_being_settled_is_told() {
    let kept = Kept { may: true, is_plain: true };
    let with = |change: Change, kept| {
        let mut facts = PostgresFacts { rows: Some(kept), ..healthy() };
        change(&mut facts);
        findings(facts)
    };
    let cases: &[(Change, Kept, Severity, &str)] = &[
        (|_| (), Kept { may: false, ..kept }, Error, "GRANT SELECT, INSERT, DELETE"),
        (|_| (), Kept { is_plain: false, ..kept }, Error, "triggers"),
        (|it| it.system = None, kept, Error, "pg_control_system"),
        (|it| it.reads_history = false, kept, Note, "pg_read_file"),
    ];
    for (change, kept, severity, advice) in cases {
        let all = with(*change, *kept);
        let found = all.iter().find(|it| it.what.contains("assent_rows.decisions")).unwrap();
        assert!(found.severity == *severity && found.advice.contains(advice), "{found:?}");
    }
    assert!(with(|_| (), kept).iter().all(|it| it.severity == Well));
}

#[test]
fn each_fact_has_its_finding() {
    let cases: &[(Change, Severity, &str, &str)] = &[
        (|it| it.prepared_max = 0, Error, "max_prepared_transactions = 0", "restart"),
        (|it| it.prepared_max = 99, Note, "less than max_connections = 100", "slots"),
        (|it| it.prepared = vec![theirs(1); 80], Warning, "80 of 100", "raise"),
        (|it| it.prepared = vec![ours(1), ours(61)], Warning, "for 61 s", "assent tx list"),
        (|it| it.prepared = vec![theirs(3_601)], Warning, "somebody else's", "pg_prepared_xacts"),
        (|it| it.prepared = vec![Prepared { owner: "app".into(), ..ours(1) }], Warning, "role \"app\"", "same role"),
        (|it| it.prepared = vec![Prepared { database: "x".into(), ..ours(1) }], Note, "e.g. \"x\"", "own database"),
        (|it| it.off = vec!["fsync".into()], Error, "fsync off", "switch it on"),
        (|it| it.off = vec!["fsync".into(), "full_page_writes".into()], Error, "fsync and full_page_writes", ""),
        (|it| it.is_standby = true, Error, "it is a standby", "primary"),
        (|it| it.is_writable = false, Error, "default_transaction_read_only", "primary"),
        (|it| it.system = None, Warning, "may not read the system identifier", "GRANT EXECUTE"),
        (|it| it.proxy.shares_sessions = true, Error, "pools its connections by transaction", "pool_mode = session"),
        (
            |it| it.proxy.refuses_options = Some("unsupported startup parameter: options".into()),
            Error,
            "and recovery with them: unsupported startup parameter: options",
            "ignore_startup_parameters = options",
        ),
        (|it| it.is_superuser = true, Note, "is a superuser", "role of its own"),
        (|it| it.replicas.connected = 2, Warning, "2 standbys follow, and none", "synchronous_standby_names"),
        (|it| it.synchronous_standby_names = "s1".into(), Warning, "no such standby", "start"),
        (
            |it| {
                it.synchronous_standby_names = "s1".into();
                it.synchronous_commit = "local".into();
            },
            Warning,
            "synchronous_commit = local",
            "set it to on",
        ),
        (
            |it| {
                it.synchronous_standby_names = "s1".into();
                it.replicas = Replicas { connected: 1, synchronous: 0, hidden: 1 };
            },
            Note,
            "may not see",
            "pg_read_all_stats",
        ),
        (
            |it| {
                it.synchronous_standby_names = "s1".into();
                it.replicas = Replicas { connected: 1, synchronous: 1, hidden: 0 };
                it.reads_history = false;
            },
            Note,
            "may not read timeline histories",
            "GRANT EXECUTE ON FUNCTION pg_read_file(text) TO \"bank\"",
        ),
        (|it| it.synchronous_commit = "off".into(), Note, "one phase", "always flushed"),
        (
            |it| it.timeouts_ms = vec![("idle_in_transaction_session_timeout".into(), 500)],
            Note,
            "idle_in_transaction_session_timeout = 500 ms",
            "",
        ),
        (|it| it.timeouts_ms = vec![("statement_timeout".into(), 9)], Note, "statement_timeout = 9 ms", ""),
        (|it| it.clock_ahead_ms = -61_000, Warning, "61000 ms behind", "NTP"),
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
fn what_is_just_within_the_limits_is_well() {
    let cases: &[Change] = &[
        |it| it.prepared = vec![theirs(3_600); 79],
        |it| it.prepared = vec![ours(60)],
        |it| it.reads_history = false,
        |it| {
            it.synchronous_standby_names = "s1".into();
            it.replicas = Replicas { connected: 2, synchronous: 1, hidden: 0 };
        },
    ];
    for change in cases {
        let mut facts = healthy();
        change(&mut facts);
        let found = findings(facts);
        assert_eq!(doctor::worst(&found), Well, "{found:?}");
    }
    let mut facts = healthy();
    facts.prepared = vec![Prepared { owner: "app".into(), ..ours(1) }];
    facts.is_superuser = true;
    let found = findings(facts);
    assert_eq!(doctor::worst(&found), Note, "a superuser finishes everybody's: {found:?}");
}

#[test]
fn two_names_of_one_server_are_told_from_two_servers() {
    let about_the_second = |change: Change| {
        let mut second = healthy();
        change(&mut second);
        let found = doctor::judge(&[examined("first", healthy()), examined("second", second)]);
        let last = found.last().unwrap().clone();
        (last.resource.clone(), last.severity, last.what)
    };
    let (resource, severity, what) = about_the_second(|_| ());
    assert_eq!(
        (resource.as_str(), severity, what.as_str()),
        ("second", Warning, "the same data as resource \"first\"")
    );
    let (_, severity, what) = about_the_second(|it| it.database = "other".into());
    assert!(severity == Note && what.contains("another database"), "{what}");
    let (_, severity, what) = about_the_second(|it| it.started = "later".into());
    assert!(severity == Warning && what.contains("a copy"), "{what}");
    let (_, severity, _) = about_the_second(|it| it.system = Some("7302".into()));
    assert_eq!(severity, Well);
    let (_, severity, _) = about_the_second(|it| it.system = None);
    assert_eq!(severity, Well, "what may not be known is not guessed");
    // Of a copy and the server itself, the closer one is named.
    let copy = PostgresFacts { started: "later".into(), ..healthy() };
    let found = doctor::judge(&[examined("copy", copy), examined("same", healthy()), examined("third", healthy())]);
    assert!(found.last().unwrap().what.contains("\"same\""), "{found:?}");
}
