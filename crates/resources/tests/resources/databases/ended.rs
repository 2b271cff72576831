//! MariaDB's sessions that recovery ends, and those that it does not.

use std::sync::Arc;

use ::mysql::prelude::Queryable;
use assent_ids::Xid;
use assent_kind::Kind;
use assent_resources::doctor::{self, Engine as DoctorsEngine, Facts, PATIENCE, Patient};
use assent_resources::{Mariadb, MariadbConnector};
use assent_world::{Clock, RealClock};
use assent_xa::{Connector, Reply, Resource, Verb};

use super::engine::{Engine, MariadbTable, freed, wait, xid};
use super::mariadb::Tap;
use super::owners::{Account, holder, id, mark, of_client, prepared};
use super::servers::shared;

/// A client that hangs keeps its branch for ever: 1397 to everybody, and XA RECOVER lists it.
#[test]
fn the_sessions_of_a_fenced_client_are_ended_and_no_others() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "evict");
    let mut agent = table.connector().connect().unwrap();
    // Again and again, as the answer must mean that the branch is free at once.
    for round in 0..20 {
        let fenced = of_client(xid("evict", round), 1, u32::from(round));
        let mut resting = table.resource();
        assert_eq!(resting.call(Verb::Start(of_client(xid("evict", 100), 1, u32::from(round)))), Reply::Done);
        let mut owner = prepared(&table, fenced, i32::from(round));
        let mut other = table.resource();
        let others = of_client(xid("evict", 101), 2, u32::from(round));
        assert_eq!(other.call(Verb::Start(others)), Reply::Done);
        assert!(matches!(agent.call(Verb::Commit(fenced)), Reply::Refused(Kind::Busy, _)));
        assert_eq!(agent.call(Verb::Evict(fenced)), Reply::Done);
        assert_eq!(agent.call(Verb::Commit(fenced)), Reply::Done, "round {round}");
        assert!(matches!(owner.call(Verb::Commit(fenced)), Reply::Lost(_)), "it wakes to a lost connection");
        assert!(resting.work(|connection| connection.query_drop("SELECT 1")).is_err(), "all of the client's");
        other.work(|connection| connection.query_drop("SELECT 1")).unwrap();
        assert_eq!(agent.call(Verb::Evict(fenced)), Reply::Done, "nothing keeps what is gone");
    }
    assert_eq!(table.rows(), (0..20).collect::<Vec<_>>());
}

/// A pool that comes back to its coordinator does so as another client, over the connections that it has.
#[test]
fn a_connection_that_works_for_another_client_by_now_is_not_ended() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "moved");
    let tap = Tap::new(&table.url);
    let mut agent = MariadbConnector::new("shop", &tap.url).unwrap().connect().unwrap();
    let fenced = of_client(xid("moved", 0), 1, 1);
    let owner = prepared(&table, fenced, 1);
    let mut pooled = table.resource();
    let earlier = of_client(xid("moved", 1), 1, 1);
    assert_eq!(pooled.call(Verb::Start(earlier)), Reply::Done);
    assert_eq!(pooled.call(Verb::Rollback(earlier)), Reply::Done);
    let (moved, comes) = std::sync::mpsc::channel();
    tap.before("KILL CONNECTION", move || {
        assert_eq!(pooled.call(Verb::Start(of_client(xid("moved", 2), 1, 2))), Reply::Done);
        moved.send(pooled).unwrap();
    });
    assert_eq!(agent.call(Verb::Evict(fenced)), Reply::Done);
    comes.recv().unwrap().work(|connection| connection.query_drop("SELECT 1")).unwrap();
    assert_eq!(tap.times("KILL CONNECTION"), 1);
    assert_eq!(agent.call(Verb::Rollback(fenced)), Reply::Done);
    drop(owner);
}

/// The answer means that the branch is free, not that its session was told to go.
#[test]
fn a_session_that_takes_a_while_to_end_is_waited_for() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "slow");
    let xid = xid("slow", 0);
    let mut owner = prepared(&table, xid, 1);
    let mut agent = table.connector().connect().unwrap();
    let busy = std::thread::spawn(move || {
        // Nothing looks for a kill in here, and no table is needed.
        let hashes = ["SHA2(REPEAT('a', 16000000), 512)"; 60].join(", ");
        owner.work(|connection| connection.query_drop(format!("DO {hashes}"))).is_err()
    });
    let mut plain = table.plain();
    wait("the session to work", || {
        let listed: Vec<::mysql::Row> = plain.query("SHOW PROCESSLIST").unwrap();
        let words = |row: &::mysql::Row| row.get::<Option<String>, _>("Info").flatten().unwrap_or_default();
        listed.iter().any(|row| words(row).starts_with("DO SHA2")).then_some(())
    });
    wait("the session to end", || (agent.call(Verb::Evict(xid)) == Reply::Done).then_some(()));
    assert_eq!(agent.call(Verb::Commit(xid)), Reply::Done);
    assert!(busy.join().unwrap(), "it was ended");
}

#[test]
fn a_branch_whose_session_has_no_mark_is_left_to_a_person() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "unmarked");
    let foreign = Xid::new(1, format!("foreign {}", std::process::id()).as_bytes(), b"").unwrap();
    let mut agent = table.connector().connect().unwrap();
    for xid in [foreign, xid("unmarked", 0)] {
        let mut owner = prepared(&table, xid, 1);
        // Tableless statements pass while a branch is prepared.
        owner.work(|connection| connection.query_drop("DO RELEASE_ALL_LOCKS()")).unwrap();
        let reply = agent.call(Verb::Evict(xid));
        let Reply::Refused(Kind::Busy, native) = &reply else { panic!("{reply:?}") };
        assert!(native.message.contains("KILL CONNECTION"), "{}", native.message);
        assert_eq!(owner.call(Verb::Rollback(xid)), Reply::Done);
    }
}

/// The smallest free number each, so that few have to be asked after.
#[test]
fn each_session_of_a_client_has_a_mark_of_its_own() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "marks");
    let mut sessions: Vec<_> = (0..20).map(|_| table.resource()).collect();
    for (number, session) in (0..).zip(&mut sessions) {
        assert_eq!(session.call(Verb::Start(xid("marks", number))), Reply::Done);
        assert_eq!(holder(&table, &mark("marks", "1.1", u32::from(number))), Some(id(session)));
        assert_eq!(session.call(Verb::Rollback(xid("marks", number))), Reply::Done);
    }
    // A gap is filled, and a mark outlives its branches.
    drop(sessions.remove(3));
    wait("the mark to be free", || holder(&table, &mark("marks", "1.1", 3)).is_none().then_some(()));
    let mut next = table.resource();
    assert_eq!(next.call(Verb::Start(xid("marks", 50))), Reply::Done);
    assert_eq!(holder(&table, &mark("marks", "1.1", 3)), Some(id(&mut next)));
    assert_eq!(next.call(Verb::Rollback(xid("marks", 50))), Reply::Done);
    // Another client on the same connection.
    let later = of_client(xid("marks", 51), 1, 2);
    assert_eq!(next.call(Verb::Start(later)), Reply::Done);
    assert_eq!(holder(&table, &mark("marks", "1.2", 0)), Some(id(&mut next)));
    assert_eq!(holder(&table, &mark("marks", "1.1", 3)), None);
}

/// Pools reset a connection before they give it to the next, and its locks are gone.
#[test]
fn a_connection_that_was_reset_is_marked_again() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "reset");
    let mut session = table.resource();
    for (number, reset) in [(0, false), (1, true), (2, false)] {
        if reset {
            assert!(holder(&table, &mark("reset", "1.1", 0)).is_some());
            session.work(|it| it.native()?.reset()).unwrap();
            assert_eq!(holder(&table, &mark("reset", "1.1", 0)), None);
        }
        assert_eq!(session.call(Verb::Start(xid("reset", number))), Reply::Done);
        assert_eq!(holder(&table, &mark("reset", "1.1", 0)), Some(id(&mut session)));
        assert_eq!(session.call(Verb::Rollback(xid("reset", number))), Reply::Done);
    }
}

/// The right to end a session is another one than that to finish a branch, which every account has.
#[test]
fn another_account_may_finish_a_branch_and_not_end_its_session() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "account");
    let other = Account::new(&servers, "account");
    let url = table.url.replace("//assent:assent@", &format!("//{}@", other.login()));
    let mut agent = MariadbConnector::new("shop", &url).unwrap().connect().unwrap();
    let xid = xid("account", 0);
    let mut owner = prepared(&table, xid, 1);
    let (owner_id, witness) = (id(&mut owner), owner.witness());
    let reply = agent.call(Verb::Evict(xid));
    let Reply::Refused(Kind::Denied, native) = &reply else { panic!("{reply:?}") };
    assert_eq!(native.code, "1095");
    assert!(native.message.contains(&format!("KILL CONNECTION {owner_id}")), "{}", native.message);
    let reply = agent.call(Verb::Freed { xid, witness: witness.clone() });
    assert!(matches!(reply, Reply::Refused(Kind::Busy, _)), "it cannot see it, and knows that it is there: {reply:?}");
    // Whom the doctor tells so before anybody is lost.
    let held = |url: &str| {
        let patient = Patient { name: "shop".to_owned(), engine: DoctorsEngine::Mariadb, url: Ok(url.to_owned()) };
        let clock: Arc<dyn Clock> = Arc::new(RealClock);
        let facts = doctor::examine(&[patient], PATIENCE, &clock).remove(0).facts;
        let Ok(Facts::Mariadb(facts)) = facts else { panic!("{facts:?}") };
        facts.beyond_reach.contains(&owner_id)
    };
    assert!(held(&url));
    assert!(!held(&table.url), "the account of its client");
    assert!(!held(&servers.mariadb.replace("//assent:assent@", "//root@")), "who may end all");
    drop(owner);
    freed(&mut *agent, xid, &witness);
    assert_eq!((agent.call(Verb::Commit(xid)), table.rows()), (Reply::Done, vec![1]));
}

/// `information_schema.PROCESSLIST` is a table that is made on the disk for each question, and a 10.11 died of dropping it.
#[test]
fn recovery_looks_for_a_session_without_a_table_on_the_servers_disk() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "listed");
    let mut agent = table.resource();
    let xid = xid("listed", 0);
    let mut owner = prepared(&table, xid, 1);
    let witness = owner.witness();
    let tables = |agent: &mut Mariadb| {
        let made = "SHOW SESSION STATUS LIKE 'Created_tmp_disk_tables'";
        agent.work(|it| it.query_first::<(String, u64), _>(made)).unwrap().unwrap().1
    };
    let before = tables(&mut agent);
    let asked = agent.call(Verb::Freed { xid, witness: witness.clone() });
    assert!(matches!(asked, Reply::Refused(Kind::Busy, _)), "{asked:?}");
    drop(owner);
    freed(&mut agent, xid, &witness);
    assert_eq!(tables(&mut agent), before);
    let count = "SELECT COUNT(*) FROM information_schema.PROCESSLIST";
    agent.work(|it| it.query_first::<u64, _>(count)).unwrap();
    assert!(tables(&mut agent) > before, "what is counted here");
    assert_eq!(agent.call(Verb::Commit(xid)), Reply::Done);
}
