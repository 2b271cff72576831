//! The doctor at real servers: well ones, bad ones, dead ones.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Opts, OptsBuilder};
use ::postgres::{Client, NoTls};
use assent_kind::Kind;
use assent_resources::doctor::{self, Engine, Facts, Finding, NoFacts, PATIENCE, Patient, Severity};
use assent_resources::{Limits, MariadbClient, PostgresConnector};
use assent_world::{Clock, RealClock};
use assent_xa::{Connector as _, Reply, Resource as _, Verb, Vote};

use super::engine::{Engine as _, MariadbTable, PostgresTable, other_database, wait, work, xid};
use super::servers::{Own, alone, shared};

fn patient(name: &str, engine: Engine, url: &str) -> Patient {
    Patient { name: name.to_owned(), engine, url: Ok(url.to_owned()) }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(RealClock)
}

fn examine(patients: &[Patient]) -> Vec<Finding> {
    doctor::judge(&doctor::examine(patients, PATIENCE, &clock()))
}

fn found<'f>(findings: &'f [Finding], resource: &str, said: &str) -> &'f Finding {
    let mut of = findings.iter().filter(|finding| finding.resource == resource);
    of.find(|finding| finding.what.contains(said)).unwrap_or_else(|| panic!("{said:?} of {resource}: {findings:#?}"))
}

fn severity(findings: &[Finding], resource: &str, said: &str) -> Severity {
    found(findings, resource, said).severity
}

fn postgres_facts(url: &str) -> doctor::PostgresFacts {
    let mut examined = doctor::examine(&[patient("bank", Engine::Postgres, url)], PATIENCE, &clock());
    match examined.remove(0).facts {
        Ok(Facts::Postgres(facts)) => *facts,
        other => panic!("{other:?}"),
    }
}

#[test]
fn well_servers_are_described_and_their_branches_counted() {
    let servers = shared();
    let (bank, shop) = (PostgresTable::new(&servers, "doctor"), MariadbTable::new(&servers, "doctor"));
    let patients =
        [patient("bank", Engine::Postgres, &servers.postgres), patient("shop", Engine::Mariadb, &servers.mariadb)];
    let prepared = xid("doctor", 0);
    let (mut there, mut here) = (bank.open(), shop.open());
    for branch in [&mut there, &mut here] {
        work(&mut **branch, prepared, 1);
        assert_eq!(branch.call(Verb::Prepare(prepared)), Reply::Vote(Vote::Yes));
    }
    let findings = examine(&patients);
    assert!(!findings.iter().any(|finding| finding.severity > Severity::Warning), "{findings:#?}");
    assert_eq!(severity(&findings, "bank", "database \"assent\", role \"assent\""), Severity::Ok);
    assert_eq!(severity(&findings, "shop", "database \"assent\", account \"assent@127.0.0.1\""), Severity::Ok);
    // Other tests prepare there too.
    let facts = postgres_facts(&servers.postgres);
    let ours = facts.prepared.iter().filter(|one| one.is_ours && one.owner == "assent" && one.database == "assent");
    assert!(ours.count() >= 1 && facts.prepared_max >= 200 && facts.system.is_some(), "{facts:?}");
    assert!(facts.clock_ahead_ms.abs() < 5_000, "it is the same machine: {facts:?}");
    let counted = found(&findings, "shop", "prepared branches").what.clone();
    assert!(!counted.starts_with("0 ") && !counted.contains(", 0 of them"), "{counted}");
    for branch in [&mut there, &mut here] {
        assert_eq!(branch.call(Verb::Rollback(prepared)), Reply::Done);
    }
}

#[test]
fn one_server_under_two_names_is_told() {
    let servers = shared();
    let postgres = |name| patient(name, Engine::Postgres, &servers.postgres);
    let mariadb = |name| patient(name, Engine::Mariadb, &servers.mariadb);
    let beside = patient("beside", Engine::Postgres, &other_database(&servers.postgres, "postgres"));
    let findings = examine(&[postgres("bank"), mariadb("shop"), postgres("again"), beside, mariadb("once-more")]);
    assert_eq!(severity(&findings, "again", "the same data as resource \"bank\""), Severity::Warning);
    assert_eq!(severity(&findings, "beside", "another database on the server of resource \"bank\""), Severity::Note);
    assert_eq!(severity(&findings, "once-more", "the same data as resource \"shop\""), Severity::Warning);
    assert!(!findings.iter().any(|it| matches!(it.resource.as_str(), "bank" | "shop") && it.what.contains("resource")));
}

#[test]
fn a_postgres_that_is_set_badly_is_told_all_of_it_at_once() {
    drop(shared()); // The binaries are there from here on.
    let own = Own::start(
        "postgres",
        "-c max_prepared_transactions=0 -c fsync=off -c full_page_writes=off -c statement_timeout=7s \
         -c idle_in_transaction_session_timeout=2min -c synchronous_standby_names=nobody -c synchronous_commit=local",
    );
    let role = own.url.replace("//assent@", "//postgres@");
    let findings = examine(&[patient("bank", Engine::Postgres, &own.url), patient("root", Engine::Postgres, &role)]);
    for (said, worth) in [
        ("max_prepared_transactions = 0", Severity::Error),
        ("fsync and full_page_writes off", Severity::Error),
        ("synchronous_commit = local", Severity::Warning),
        ("statement_timeout = 7000 ms", Severity::Note),
        ("idle_in_transaction_session_timeout = 120000 ms", Severity::Note),
    ] {
        assert_eq!(severity(&findings, "bank", said), worth);
    }
    assert_eq!(severity(&findings, "root", "\"postgres\" is a superuser"), Severity::Note);
    assert_eq!(doctor::worst(&findings), Severity::Error);
    // What the adapter says of it, at once.
    let refused = PostgresConnector::new("bank", &own.url).unwrap().connect().map(drop);
    let Err((Kind::Invalid, native)) = refused else { panic!("{refused:?}") };
    assert!(native.message.contains("max_prepared_transactions = 0, so it can prepare nothing"), "{native:?}");
    let mut client = Client::connect(&role, NoTls).unwrap();
    client.batch_execute("ALTER ROLE assent SET default_transaction_read_only = on").unwrap();
    let findings = examine(&[patient("bank", Engine::Postgres, &own.url)]);
    assert_eq!(severity(&findings, "bank", "default_transaction_read_only is on"), Severity::Error);
}

#[test]
fn a_standby_and_the_primary_that_does_not_wait_for_it_are_told() {
    let servers = alone();
    let standby = servers.standby();
    let superuser = servers.postgres.replace("//assent@", "//postgres@");
    let mut primary = Client::connect(&superuser, NoTls).unwrap();
    wait("the standby to follow", || {
        let sql = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
        (primary.query_one(sql, &[]).unwrap().get::<_, i64>(0) == 1).then_some(())
    });
    let patients =
        [patient("bank", Engine::Postgres, &servers.postgres), patient("standby", Engine::Postgres, &standby.url)];
    let findings = examine(&patients);
    // It may not see more than that there is one; that is enough.
    assert_eq!(severity(&findings, "bank", "1 standbys follow, and none is waited for"), Severity::Warning);
    assert_eq!(severity(&findings, "standby", "it is a standby"), Severity::Error);
    assert_eq!(severity(&findings, "standby", "a copy of the server of resource \"bank\""), Severity::Warning);
    assert_eq!(severity(&findings, "bank", "may not read timeline histories"), Severity::Note);
    assert!(postgres_facts(&superuser).reads_history);
    let seen = postgres_facts(&superuser).replicas;
    assert_eq!((seen.connected, seen.synchronous, seen.hidden), (1, 0, 0));
    let seen = postgres_facts(&servers.postgres).replicas;
    assert_eq!((seen.connected, seen.hidden), (1, 1));
}

#[test]
fn a_mariadb_that_is_set_badly_is_told_all_of_it_at_once() {
    let servers = alone();
    let table = MariadbTable::new(&servers, "doctor_plain");
    table.plain().query_drop(format!("ALTER TABLE {} ENGINE=MyISAM", table.table)).unwrap();
    let root = servers.mariadb.replace("//assent:assent@", "//root@");
    let options = OptsBuilder::from_opts(Opts::from_url(&root).unwrap()).prefer_socket(false);
    let mut root = Conn::new(options).unwrap();
    let mut set = |settings: [&str; 3]| {
        settings.iter().for_each(|setting| root.query_drop(format!("SET GLOBAL {setting}")).unwrap());
    };
    set(["read_only = 1", "innodb_flush_log_at_trx_commit = 2", "wait_timeout = 30"]);
    let findings = examine(&[patient("shop", Engine::Mariadb, &servers.mariadb)]);
    set(["read_only = 0", "innodb_flush_log_at_trx_commit = 1", "wait_timeout = 28800"]);
    table.plain().query_drop(format!("DROP TABLE {}", table.table)).unwrap();
    assert_eq!(severity(&findings, "shop", "read_only = "), Severity::Error);
    assert_eq!(severity(&findings, "shop", "innodb_flush_log_at_trx_commit = 2"), Severity::Error);
    assert_eq!(severity(&findings, "shop", "wait_timeout = 30 s"), Severity::Note);
    assert_eq!(severity(&findings, "shop", &format!("{} (MyISAM)", table.table)), Severity::Warning);
}

/// As it comes out of the package, but for what makes it worse.
#[test]
fn a_mariadb_with_a_careless_binlog_is_told_all_of_it_and_its_lock_waits_are_votes_of_no() {
    drop(shared()); // The binaries are there from here on.
    let own = Own::start(
        "mariadb",
        "--log-bin --sync-binlog=0 --skip-innodb-doublewrite --wait-timeout=20 --server-id=1 --max-connections=10 \
         --innodb-rollback-on-timeout=ON --innodb-lock-wait-timeout=1",
    );
    let table = MariadbTable::of(&own.url, "careless");
    table.plain().query_drop(format!("INSERT INTO {} VALUES (1)", table.table)).unwrap();
    let mut crowd: Vec<_> = (0..8).map(|_| table.plain()).collect();
    let findings = examine(&[patient("shop", Engine::Mariadb, &own.url)]);
    for (said, worth) in [
        ("sync_binlog = 0", Severity::Warning),
        ("innodb_doublewrite = OFF", Severity::Warning),
        ("of max_connections = 10 were in use", Severity::Warning),
        ("server_id = 1, the default", Severity::Note),
        ("wait_timeout = 20 s", Severity::Note),
    ] {
        assert_eq!(severity(&findings, "shop", said), worth);
    }
    assert!(!findings.iter().any(|it| it.what.contains("innodb_rollback_on_timeout")), "{findings:#?}");
    // The hole that it closes: who keeps a lock wait's error to himself votes no all the same.
    let (mut other, mut branch) = (crowd.remove(0), table.resource());
    drop(crowd);
    other.query_drop("BEGIN").unwrap();
    other.query_drop(format!("SELECT * FROM {} WHERE id = 1 FOR UPDATE", table.table)).unwrap();
    for (number, vote) in [(0, Verb::Prepare as fn(_) -> _), (1, Verb::CommitOnePhase as fn(_) -> _)] {
        let xid = xid("careless", number);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        let (insert, update) = (
            format!("INSERT INTO {} VALUES ({})", table.table, number + 10),
            format!("UPDATE {} SET id = 2 WHERE id = 1", table.table),
        );
        let swallowed = |connection: &mut MariadbClient<'_>| {
            connection.query_drop(&insert)?;
            let waited = connection.query_drop(&update).unwrap_err();
            assert!(waited.to_string().contains("1205"), "{waited}");
            Ok(())
        };
        branch.work(swallowed).unwrap();
        let end = branch.call(Verb::End { xid, success: true });
        let reply = if end == Reply::Done { branch.call(vote(xid)) } else { end };
        assert!(matches!(reply, Reply::RolledBack(_)), "{reply:?}");
        assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
    }
    other.query_drop("ROLLBACK").unwrap();
    assert_eq!(table.rows(), [1]);
}

#[test]
fn dead_and_silent_ones_delay_nobody_and_no_password_is_printed() {
    let servers = shared();
    #[allow(clippy::disallowed_methods, reason = "a server that says nothing")]
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|at| (at.port(), silent)).unwrap();
    let at = |scheme: &str, port: u16| format!("{scheme}://u:secret@127.0.0.1:{port}/db");
    let mut patients = vec![patient("bank", Engine::Postgres, &servers.postgres)];
    for number in 0..8 {
        patients.push(patient(&format!("silent-p{number}"), Engine::Postgres, &at("postgresql", silent.0)));
        patients.push(patient(&format!("silent-m{number}"), Engine::Mariadb, &at("mysql", silent.0)));
        patients.push(patient(&format!("silent-s{number}"), Engine::Store, &format!("127.0.0.1:{}", silent.0)));
    }
    patients.push(patient("dead", Engine::Postgres, &at("postgresql", 1)));
    patients.push(patient("stranger", Engine::Postgres, &servers.postgres.replace("//assent@", "//nobody@")));
    patients.push(patient("nowhere", Engine::Mariadb, &other_database(&servers.mariadb, "assent_nowhere")));
    patients.push(patient("unread", Engine::Mariadb, "mysql://u:secret@h:port/db"));
    let unknown = NoFacts { kind: Kind::NotFound, message: "cannot read bank.url".to_owned() };
    patients.push(Patient { name: "no-file".to_owned(), engine: Engine::Postgres, url: Err(unknown) });

    let limits = Limits { connect_ms_max: 4_000, answer_ms_max: 4_000 };
    let started = RealClock.now();
    let findings = doctor::judge(&doctor::examine(&patients, limits, &clock()));
    // One after the other would take 96 s.
    assert!(RealClock.now().since(started) < Duration::from_secs(12));
    assert_eq!(severity(&findings, "bank", "PostgreSQL"), Severity::Ok);
    let of = |resource: &str| {
        let mut of = findings.iter().filter(|finding| finding.resource == resource);
        let finding = of.next().unwrap();
        assert!(of.next().is_none() && !finding.what.contains("secret"), "{finding:?}");
        finding.severity
    };
    for number in 0..8 {
        for kind in ["p", "m", "s"] {
            assert_eq!(of(&format!("silent-{kind}{number}")), Severity::Unreachable);
        }
    }
    assert_eq!(of("dead"), Severity::Unreachable);
    for name in ["stranger", "nowhere", "unread", "no-file"] {
        assert_eq!(of(name), Severity::Error, "{name}");
    }
    assert!(found(&findings, "dead", "127.0.0.1:1").advice.contains("start it"));
    assert!(!format!("{patients:?}").contains("secret"));
}
