//! MariaDB's branches while the sessions that hold them are on their way out: the server acknowledges a rollback then, and
//! does nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use ::mysql::prelude::Queryable;
use assent_ids::Xid;
use assent_kind::Kind;
use assent_resources::{Limits, Mariadb, MariadbConnector};
use assent_xa::{Connector, Reply, Resource, Verb};

use super::engine::{Engine, MariadbTable, freed, node, wait, xid};
use super::mariadb::Tap;
use super::owners::{Account, holder, mark, of_client, prepared, prepared_in};
use super::servers::shared;

/// The server frees a session's variables between handing its branch to others and letting go of it.
const VARIABLES: usize = 50_000;

/// A prepared branch whose session takes a while to go.
fn burdened(table: &MariadbTable, xid: Xid, row: i32) -> Mariadb {
    let mut branch = table.resource();
    let set: Vec<String> = (0..VARIABLES).map(|number| format!("@v{number} = 0")).collect();
    branch.work(|connection| connection.query_drop(format!("SET {}", set.join(", ")))).unwrap();
    prepared_in(branch, table, xid, row)
}

/// As recovery does, of a client that died before anybody decided.
fn roll_back(agent: &mut dyn Resource, xid: Xid) {
    wait("the branch to be rolled back", || {
        match agent.call(Verb::Freed { xid, witness: Vec::new() }) {
            Reply::Refused(Kind::Busy, _) => return None,
            reply => assert_eq!(reply, Reply::Done),
        }
        match agent.call(Verb::Rollback(xid)) {
            Reply::Refused(Kind::Busy, _) => None,
            reply => {
                assert_eq!(reply, Reply::Done);
                Some(())
            }
        }
    });
}

fn assert_nothing_is_locked(table: &MariadbTable) {
    let rows = format!("SELECT COUNT(*) FROM {} FOR UPDATE NOWAIT", table.table);
    assert_eq!(table.plain().query_first::<u64, _>(rows).unwrap(), Some(0), "no row, and none is locked");
}

/// What was seen: recovery rolled back what a killed client had prepared, the server said OK, nothing listed the branch any
/// more, and its row stayed locked (1205) until the server was started again.
#[test]
fn a_rollback_behind_an_owner_that_is_going_leaves_no_lock() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "undone");
    let mut agent = table.connector().connect().unwrap();
    for round in 0..8 {
        let xid = of_client(xid("undone", 0), 7, round);
        let owner = burdened(&table, xid, i32::try_from(round).unwrap());
        // As when its process dies: nobody waits for that.
        let going = std::thread::spawn(move || drop(owner));
        roll_back(&mut *agent, xid);
        going.join().unwrap();
    }
    assert_eq!(agent.call(Verb::Recover(node("undone"))), Reply::Listed(vec![]));
    assert_nothing_is_locked(&table);
}

/// The same of many sessions that go at once, as those of one process do.
#[test]
fn rollbacks_behind_many_owners_that_are_going_leave_no_lock() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "undone_many");
    let mut agent = table.connector().connect().unwrap();
    for round in 0..20 {
        let xids: Vec<Xid> = (0..10).map(|it| of_client(xid("undone_many", it), 7, round)).collect();
        let rows = i32::try_from(round).unwrap() * 10..;
        let owners: Vec<_> = xids.iter().zip(rows).map(|(xid, row)| prepared(&table, *xid, row)).collect();
        let going: Vec<_> = owners.into_iter().map(|owner| std::thread::spawn(move || drop(owner))).collect();
        xids.iter().for_each(|xid| roll_back(&mut *agent, *xid));
        going.into_iter().for_each(|it| it.join().unwrap());
    }
    assert_eq!(agent.call(Verb::Recover(node("undone_many"))), Reply::Listed(vec![]));
    assert_nothing_is_locked(&table);
}

/// Ten thousand branches of one client cost one look and one pause.
#[test]
fn a_client_without_a_session_is_looked_for_once_a_list() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "no_session");
    let tap = Tap::new(&table.url);
    let connector = MariadbConnector::new("shop", &tap.url).unwrap();
    let mut agent = connector.connect().unwrap();
    let cost = || (tap.times("SELECT IS_USED_LOCK("), tap.times("SELECT SLEEP(0.1)"));
    let xids = [0, 1, 2, 3].map(|number| xid("no_session", number));
    let owners: Vec<Mariadb> = (0..).zip(xids).map(|(row, xid)| prepared(&table, xid, row)).collect();
    let asked = |xid| Verb::Freed { xid, witness: Vec::new() };
    let reply = agent.call(asked(xids[0]));
    assert!(matches!(reply, Reply::Refused(Kind::Busy, _)), "its sessions are there: {reply:?}");
    assert_eq!(cost(), (1, 0), "the first that is found is enough");
    drop(owners);
    for number in 0..4 {
        wait("the marks to be free", || holder(&table, &mark("no_session", "1.1", number)).is_none().then_some(()));
    }
    for xid in &xids[..2] {
        assert_eq!(agent.call(asked(*xid)), Reply::Done);
        assert_eq!(agent.call(Verb::Rollback(*xid)), Reply::Done);
    }
    assert_eq!(cost(), (17, 1));
    // Another connection, of those that are opened for a crowd, waits for itself.
    let mut helper = connector.connect().unwrap();
    assert_eq!(helper.call(asked(xids[2])), Reply::Done);
    assert_eq!(helper.call(Verb::Rollback(xids[2])), Reply::Done);
    assert_eq!(cost(), (17, 2));
    // What is listed now may have been prepared since.
    assert_eq!(agent.call(Verb::Recover(node("no_session"))), Reply::Listed(vec![xids[3]]));
    assert_eq!(agent.call(asked(xids[3])), Reply::Done);
    assert_eq!(agent.call(Verb::Rollback(xids[3])), Reply::Done);
    assert_eq!(cost(), (33, 3));
    assert_nothing_is_locked(&table);
}

/// Sets it, also when a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What was seen: a client that was cut off from its coordinator and not from its database went on, its pool opened each session
/// that was ended again at once, with the same mark, and its branch was never rolled back.
#[test]
fn a_branch_is_free_although_a_pool_opens_its_sessions_again() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "reopened");
    let tap = Tap::new(&table.url);
    let mut agent = MariadbConnector::new("shop", &tap.url).unwrap().connect().unwrap();
    let branch = xid("reopened", 0);
    let witness = prepared(&table, branch, 1).witness();
    freed(&mut *agent, branch, &witness);
    let is_over = AtomicBool::new(false);
    let is_on = || !is_over.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        for number in 1..9 {
            let table = &table;
            scope.spawn(move || {
                while is_on() {
                    let mut session = table.resource();
                    if session.call(Verb::Start(xid("reopened", number))) == Reply::Done {
                        while is_on() && session.work(|it| it.query_drop("DO SLEEP(0.01)")).is_ok() {}
                    }
                }
            });
        }
        let has = |number| holder(&table, &mark("reopened", "1.1", number));
        let marked = || (0..8).find_map(has);
        wait("the pool to be at work", || (0..8).all(|number| has(number).is_some()).then_some(()));
        let asked = || Verb::Freed { xid: branch, witness: Vec::new() };
        let reply = agent.call(asked());
        assert!(matches!(reply, Reply::Refused(Kind::Busy, _)), "one of those may have it: {reply:?}");
        assert_eq!(agent.call(Verb::Evict(branch)), Reply::Done);
        wait("the pool to be back", marked);
        assert_eq!(agent.call(asked()), Reply::Done, "they came later");
        let pauses = tap.times("SELECT SLEEP(0.1)");
        assert_eq!(agent.call(Verb::Rollback(branch)), Reply::Done);
        assert_eq!(tap.times("SELECT SLEEP(0.1)"), pauses + 1);
    });
    assert_nothing_is_locked(&table);
}

/// It may have been ended, and still have it.
#[test]
fn an_eviction_whose_session_is_there_is_not_done() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "stays");
    let tap = Tap::new(&table.url);
    let mut agent = MariadbConnector::new("shop", &tap.url).unwrap().connect().unwrap();
    let branch = xid("stays", 0);
    let mut owner = prepared(&table, branch, 1);
    let id = owner.work(|connection| Ok(connection.connection_id())).unwrap();
    // A server that goes on saying that it is.
    tap.garble(Some(("SHOW EXPLAIN FOR", "DO 1")));
    let reply = agent.call(Verb::Evict(branch));
    let Reply::Refused(Kind::Busy, native) = &reply else { panic!("{reply:?}") };
    assert!(native.message.contains(&format!("connection {id} ")), "{}", native.message);
    tap.garble(None);
    roll_back(&mut *agent, branch);
    assert_nothing_is_locked(&table);
}

/// Those that recovery may end are ended, and waited for, whichever it finds first.
#[test]
fn a_session_that_was_ended_beside_one_of_another_account_has_gone_before_the_answer() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "two_accounts");
    let other = Account::new(&servers, "two_accounts");
    let url = table.url.replace("//assent:assent@", &format!("//{}@", other.login()));
    for round in 0..8 {
        let tap = Tap::new(&table.url);
        let mut agent = MariadbConnector::new("shop", &tap.url).unwrap().connect().unwrap();
        let branch = of_client(xid("two_accounts", 0), 7, round);
        let others = of_client(xid("two_accounts", 1), 7, round);
        let mut denied = Mariadb::connect("shop", &url, Limits::WORK).unwrap();
        let is_first = round % 2 == 0;
        if is_first {
            assert_eq!(denied.call(Verb::Start(others)), Reply::Done);
        }
        let owner = burdened(&table, branch, i32::try_from(round).unwrap());
        if !is_first {
            assert_eq!(denied.call(Verb::Start(others)), Reply::Done);
        }
        let reply = agent.call(Verb::Evict(branch));
        assert!(matches!(reply, Reply::Refused(Kind::Denied, _)), "round {round}: {reply:?}");
        assert_eq!(agent.call(Verb::Rollback(branch)), Reply::Done, "round {round}");
        assert_eq!(tap.times("SELECT SLEEP(0.1)"), 1, "round {round}");
        assert_eq!(denied.call(Verb::Rollback(others)), Reply::Done, "it was not ended");
        drop(owner);
    }
    assert_nothing_is_locked(&table);
}

/// Only they may have it.
#[test]
fn sessions_of_another_client_are_not_waited_for() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "beside");
    let mut agent = table.connector().connect().unwrap();
    let (gone, there) = (of_client(xid("beside", 0), 7, 1), of_client(xid("beside", 0), 7, 2));
    let mut other = prepared(&table, there, 2);
    let witness = {
        let mut owner = prepared(&table, gone, 1);
        owner.witness()
    };
    // Its session has gone, as its vote says; then so must its mark have.
    freed(&mut *agent, gone, &witness);
    assert_eq!(agent.call(Verb::Freed { xid: gone, witness: Vec::new() }), Reply::Done);
    assert_eq!(agent.call(Verb::Rollback(gone)), Reply::Done);
    assert_eq!(other.call(Verb::Commit(there)), Reply::Done);
    assert_eq!(table.rows(), [2]);
}
