//! What a MariaDB server does to branches that have voted: several who finish one, backups, kills.

use std::io::Write as _;
use std::process::{Command, Stdio};

use ::mysql::prelude::Queryable;
use assent_kind::Kind;
use assent_xa::{Past, Reply, Resource as _, Verb, Vote};

use super::super::engine::{Engine, MariadbTable, code, freed, literal, node, wait, work, xid};
use super::super::owners::root;
use super::super::servers::{Own, alone, shared};

const YES: Reply = Reply::Vote(Vote::Yes);

/// To whoever comes too late the branch is gone, and while it is being finished it is attached.
#[test]
fn of_twenty_five_sessions_that_finish_one_branch_one_does() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "crowd");
    let mut others: Vec<_> = (0..25).map(|_| table.connector().connect().unwrap()).collect();
    for (round, verb) in [(0, Verb::Commit as fn(_) -> _), (1, Verb::Rollback as fn(_) -> _)] {
        let xid = xid("crowd", round);
        let mut owner = table.open();
        work(&mut *owner, xid, i32::from(round));
        assert_eq!(owner.call(Verb::Prepare(xid)), YES);
        let witness = owner.witness();
        drop(owner);
        freed(&mut *others[0], xid, &witness);
        others.iter_mut().for_each(|other| other.send(verb(xid)));
        let mut done = 0;
        for other in &mut others {
            let reply = match other.receive() {
                Reply::Refused(Kind::Busy, _) => {
                    wait("the branch to be free or gone", || match other.call(verb(xid)) {
                        Reply::Refused(Kind::Busy, _) => None,
                        reply => Some(reply),
                    })
                }
                reply => reply,
            };
            match reply {
                Reply::Done => done += 1,
                Reply::Unknown(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(done, 1);
    }
    assert_eq!(table.rows(), [0]);
}

/// A backup's FLUSH TABLES WITH READ LOCK holds up a branch that is decided. Recovery does not wait for it: the branch is
/// kept and tried again.
#[test]
fn a_decided_branch_outwaits_a_backup() {
    let servers = alone();
    let table = MariadbTable::new(&servers, "backup");
    let xid = xid("backup", 0);
    let mut owner = table.open();
    work(&mut *owner, xid, 1);
    assert_eq!(owner.call(Verb::Prepare(xid)), YES);
    let witness = owner.witness();
    drop(owner);
    let mut agent = table.connector().connect().unwrap();
    freed(&mut *agent, xid, &witness);
    let mut backup = root(&servers);
    backup.query_drop("FLUSH TABLES WITH READ LOCK").unwrap();
    let blocked = agent.call(Verb::Commit(xid));
    assert!(matches!(blocked, Reply::Refused(Kind::Busy, _)), "{blocked:?}");
    assert_eq!(agent.call(Verb::Recover(node("backup"))), Reply::Listed(vec![xid]));
    backup.query_drop("UNLOCK TABLES").unwrap();
    let done = wait("the backup to be over", || match agent.call(Verb::Commit(xid)) {
        Reply::Refused(Kind::Busy, _) => None,
        reply => Some(reply),
    });
    assert_eq!((done, table.rows()), (Reply::Done, vec![1]));
}

/// XA ROLLBACK of a prepared branch is not flushed, so a crash of the server may bring the branch back, with its locks.
#[test]
fn a_branch_that_a_crash_brings_back_after_its_rollback_is_listed_and_rolled_back_again() {
    let servers = alone();
    let table = MariadbTable::new(&servers, "again");
    let mut came_back = false;
    for round in 0..10 {
        // Once a second the server flushes by itself: not now, and the kill follows at once all the same.
        root(&servers).query_drop("SET GLOBAL innodb_flush_log_at_timeout = 2700").unwrap();
        let pid_file: String = table.plain().query_first("SELECT @@pid_file").unwrap().unwrap();
        let pid = std::fs::read_to_string(pid_file).unwrap();
        let xid = xid("again", round);
        // It stands ready: a program that has yet to be started would come too late.
        let mut killer =
            Command::new("sh").args(["-c", "read -r pid && kill -9 $pid"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut trigger = killer.stdin.take().unwrap();
        let mut owner = table.open();
        work(&mut *owner, xid, 1);
        assert_eq!(owner.call(Verb::Prepare(xid)), YES);
        assert_eq!(owner.call(Verb::Rollback(xid)), Reply::Done);
        writeln!(trigger, "{}", pid.trim()).unwrap();
        assert!(killer.wait().unwrap().success());
        servers.kill("mariadb");
        servers.revive("mariadb");
        let mut agent = table.connector().connect().unwrap();
        match agent.call(Verb::Recover(node("again"))) {
            Reply::Listed(xids) if xids == [xid] => {
                came_back = true;
                assert_eq!(agent.call(Verb::Rollback(xid)), Reply::Done);
            }
            reply => assert_eq!(reply, Reply::Listed(vec![])),
        }
        assert_eq!(agent.call(Verb::Recover(node("again"))), Reply::Listed(vec![]));
        assert_eq!(table.rows(), [0_i32; 0]);
        if came_back {
            break;
        }
    }
    assert!(came_back, "not once in ten crashes; has the server learned to flush it?");
}

/// Branches at every step, and one kill. What was answered holds, what was not voted for is gone.
#[test]
fn a_server_killed_at_every_step_keeps_what_it_has_answered() {
    let servers = alone();
    let table = MariadbTable::new(&servers, "steps");
    let at = |number: u16| xid("steps", number);
    let mut branches: Vec<_> = (0..5).map(|_| table.open()).collect();
    for (number, branch) in (0..).zip(&mut branches) {
        assert_eq!(branch.call(Verb::Start(at(number))), Reply::Done);
        branch.add(i32::from(number)).unwrap();
    }
    // 0 is at work, 1 has ended, 2 has voted, 3 is committed, 4 is committed in one phase.
    for (number, branch) in (0..).zip(&mut branches).skip(1) {
        assert_eq!(branch.call(Verb::End { xid: at(number), success: true }), Reply::Done);
    }
    for number in [2, 3] {
        assert_eq!(branches[usize::from(number)].call(Verb::Prepare(at(number))), YES);
    }
    assert_eq!(branches[3].call(Verb::Commit(at(3))), Reply::Done);
    assert_eq!(branches[4].call(Verb::CommitOnePhase(at(4))), Reply::Done);
    servers.kill("mariadb");
    let lost = [Verb::End { xid: at(0), success: true }, Verb::CommitOnePhase(at(1)), Verb::Commit(at(2))];
    for (branch, verb) in branches.iter_mut().zip(lost) {
        let reply = branch.call(verb.clone());
        // What has written says nothing to the server when it ends; its vote is lost then.
        let reply = if reply == Reply::Done { branch.call(Verb::Prepare(at(0))) } else { reply };
        assert!(matches!(reply, Reply::Lost(_)), "{verb:?}: {reply:?}");
    }
    servers.revive("mariadb");
    let mut agent = table.connector().connect().unwrap();
    assert_eq!(agent.call(Verb::Recover(node("steps"))), Reply::Listed(vec![at(2)]));
    // Its locks are back too.
    let mut other = table.plain();
    let kept = other.query_drop(format!("SELECT * FROM {} WHERE id = 2 FOR UPDATE NOWAIT", table.table)).unwrap_err();
    assert!(kept.to_string().contains("1205"), "{kept}");
    assert_eq!(table.rows(), [3, 4]);
    assert_eq!(agent.call(Verb::Commit(at(2))), Reply::Done);
    for number in [0, 1, 3] {
        assert!(matches!(agent.call(Verb::Commit(at(number))), Reply::Unknown(_)));
    }
    assert_eq!(table.rows(), [2, 3, 4]);
}

/// SELECT ... FOR UPDATE counts as writing, and the server prepares what wrote nothing. Such a branch is rolled back when its
/// session ends, and to a commit the server answers 1402; a crash takes it, and then it is 1397. There was nothing to commit:
/// to us it is done, and behind a crash it is said to be forgotten by the server that voted.
#[test]
fn a_branch_that_only_locked_rows_is_done_though_the_server_gives_it_up() {
    let servers = alone();
    let table = MariadbTable::new(&servers, "locked");
    table.plain().query_drop(format!("INSERT INTO {} VALUES (0), (1), (2)", table.table)).unwrap();
    let at = |number: u16| xid("locked", number);
    let voted = |number: u16| {
        let mut branch = table.resource();
        assert_eq!(branch.call(Verb::Start(at(number))), Reply::Done);
        let select = format!("SELECT * FROM {} WHERE id = {number} FOR UPDATE", table.table);
        branch.work(|connection| connection.query_drop(&select)).unwrap();
        assert_eq!(branch.call(Verb::End { xid: at(number), success: true }), Reply::Done);
        assert_eq!(branch.call(Verb::Prepare(at(number))), YES);
        let witness = branch.witness();
        (branch, witness)
    };
    let mut agent = table.connector().connect().unwrap();
    for number in [0, 1] {
        let (branch, witness) = voted(number);
        drop(branch);
        freed(&mut *agent, at(number), &witness);
        assert_eq!(agent.call(Verb::Recover(node("locked"))), Reply::Listed(vec![at(number)]), "still listed");
        if number == 0 {
            let said = table.plain().query_drop(format!("XA COMMIT {}", literal(&at(0)))).unwrap_err();
            assert!(said.to_string().contains("1402"), "{said}");
        } else {
            assert_eq!(agent.call(Verb::Commit(at(1))), Reply::Done);
        }
        assert_eq!(agent.call(Verb::Recover(node("locked"))), Reply::Listed(vec![]));
    }
    let (branch, witness) = voted(2);
    servers.kill("mariadb");
    drop(branch);
    servers.revive("mariadb");
    let mut agent = table.connector().connect().unwrap();
    assert_eq!(agent.call(Verb::Recover(node("locked"))), Reply::Listed(vec![]));
    let gone = agent.call(Verb::Commit(at(2)));
    assert!(matches!(gone, Reply::Unknown(_)) && code(&gone) == "1397", "{gone:?}");
    let asked = agent.call(Verb::Inquire { xid: at(2), witness });
    assert_eq!(asked, Reply::Past(Past::Forgotten), "what the coordinator calls committed (inferred)");
}

/// It ends a session whose branch has not voted, and never takes a vote back.
#[test]
fn an_idle_timeout_ends_what_has_not_voted_and_nothing_else() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "idle");
    let [voted, not_yet] = [0, 1].map(|number| xid("idle", number));
    let [mut first, mut second] = [0, 1].map(|_| table.resource());
    let mut sessions = Vec::new();
    for (branch, xid, row) in [(&mut first, voted, 1), (&mut second, not_yet, 2)] {
        branch.work(|it| it.query_drop("SET SESSION idle_transaction_timeout = 1")).unwrap();
        sessions.push(branch.work(|it| Ok(it.connection_id())).unwrap());
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        branch.work(|it| it.query_drop(format!("INSERT INTO {} VALUES ({row})", table.table))).unwrap();
    }
    assert_eq!(first.call(Verb::End { xid: voted, success: true }), Reply::Done);
    assert_eq!(first.call(Verb::Prepare(voted)), YES);
    let witness = first.witness();
    let mut plain = table.plain();
    wait("the idle session to be ended", || {
        // Not information_schema.PROCESSLIST: asked without a pause while a session ends, a 10.11 died of it (ha_maria::drop_table).
        let listed: Vec<mysql::Row> = plain.query("SHOW PROCESSLIST").unwrap();
        let is_there = listed.iter().any(|row| row.get::<u64, _>(0) == Some(sessions[1].into()));
        (!is_there).then_some(())
    });
    let end = second.call(Verb::End { xid: not_yet, success: true });
    let vote = if end == Reply::Done { second.call(Verb::Prepare(not_yet)) } else { end };
    assert!(matches!(vote, Reply::Lost(_) | Reply::RolledBack(_)), "{vote:?}");
    let mut agent = table.connector().connect().unwrap();
    assert_eq!(agent.call(Verb::Recover(node("idle"))), Reply::Listed(vec![voted]));
    drop(first);
    freed(&mut *agent, voted, &witness);
    assert_eq!(agent.call(Verb::Commit(voted)), Reply::Done);
    assert_eq!(table.rows(), [1]);
}

/// As most run in production: what it has prepared stands in two logs that have to agree after a crash.
#[test]
fn a_server_with_a_binlog_keeps_its_votes_and_one_that_was_set_back_is_known_by_its_log() {
    drop(shared()); // The binaries are there from here on.
    let own = Own::start("mariadb", "--log-bin --sync-binlog=1 --server-id=7");
    let table = MariadbTable::of(&own.url, "binlog");
    let at = |number: u16| xid("binlog", number);
    let voted = |number: u16| {
        let mut branch = table.open();
        work(&mut *branch, at(number), i32::from(number));
        assert_eq!(branch.call(Verb::Prepare(at(number))), YES);
        let witness = branch.witness();
        (branch, witness)
    };
    let (_committed, _) = {
        let (mut branch, witness) = voted(1);
        assert_eq!(branch.call(Verb::Commit(at(1))), Reply::Done);
        (branch, witness)
    };
    let (_kept, _) = voted(2);
    own.killed();
    let mut agent = table.connector().connect().unwrap();
    assert_eq!(agent.call(Verb::Recover(node("binlog"))), Reply::Listed(vec![at(2)]));
    assert_eq!(agent.call(Verb::Commit(at(2))), Reply::Done);
    let again = agent.call(Verb::Commit(at(2)));
    assert!(matches!(again, Reply::Unknown(_)) && code(&again) == "1397", "{again:?}");
    assert_eq!(table.rows(), [1, 2]);
    // What a replica that lacked the vote comes to: the data from before it.
    own.copied();
    let filled = "CREATE TABLE filled AS SELECT REPEAT('x', 4000000) AS text";
    table.plain().query_drop(filled).unwrap();
    let (branch, witness) = voted(3);
    own.put_back();
    drop(branch);
    let mut agent = table.connector().connect().unwrap();
    assert_eq!(agent.call(Verb::Recover(node("binlog"))), Reply::Listed(vec![]));
    assert!(matches!(agent.call(Verb::Commit(at(3))), Reply::Unknown(_)));
    let asked = agent.call(Verb::Inquire { xid: at(3), witness });
    let Reply::Past(Past::Elsewhere(native)) = &asked else { panic!("never \"done\": {asked:?}") };
    assert!(native.message.contains("set back to an earlier state"), "{native:?}");
    assert_eq!(table.rows(), [1, 2]);
}
