//! What became of a branch that is not listed: asked with the witness of its vote.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::postgres::{Client, Config, NoTls};
use assent_ids::Xid;
use assent_kind::Kind;
use assent_resources::{Limits, Postgres, PostgresConnector};
use assent_xa::{Connector, Past, Reply, Resource, Verb};

use super::super::engine::{Engine, PostgresTable, code, node, other_database, wait, xid};
use super::super::servers::{Own, alone, shared};
use super::{YES, as_superuser, process, run, superuser};

fn inquire(of: &mut dyn Resource, xid: Xid, witness: &[u8]) -> Past {
    match of.call(Verb::Inquire { xid, witness: witness.to_vec() }) {
        Reply::Past(past) => past,
        reply => panic!("{reply:?}"),
    }
}

/// The words of a server that cannot know.
fn elsewhere(of: &mut dyn Resource, xid: Xid, witness: &[u8]) -> String {
    match inquire(of, xid, witness) {
        Past::Elsewhere(native) => native.message,
        past => panic!("{past:?}"),
    }
}

/// Votes yes over one row, or over nothing; gives what the decision would keep.
fn voted(branch: &mut Postgres, xid: Xid, sql: &str) -> Vec<u8> {
    ended(branch, xid, sql);
    assert_eq!(branch.call(Verb::Prepare(xid)), YES);
    branch.witness()
}

fn ended(branch: &mut Postgres, xid: Xid, sql: &str) {
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    assert_eq!(branch.witness(), b"", "the last vote's is gone");
    run(branch, sql).unwrap();
    assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
}

/// The witness as fields, to change one.
fn changed(witness: &[u8], field: usize, to: &str) -> Vec<u8> {
    let text = String::from_utf8(witness.to_vec()).unwrap();
    let mut fields: Vec<&str> = text.split('\0').collect();
    fields[field] = to;
    fields.join("\0").into_bytes()
}

#[test]
fn what_a_person_did_to_a_prepared_branch_is_told_as_it_was() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "by_hand");
    let mut recovery = PostgresConnector::new("bank", &table.url).unwrap().connect().unwrap();
    let mut number = 0;
    // The witness rides in the question at the end, or else in the vote.
    for detect in [true, false] {
        for (word, past) in [("COMMIT", Past::Committed), ("ROLLBACK", Past::RolledBack)] {
            let xid = xid("by_hand", number);
            number += 1;
            let mut branch = table.resource().detect_read_only(detect);
            let witness = voted(&mut branch, xid, &format!("INSERT INTO {} VALUES ({number})", table.table));
            assert_eq!(inquire(&mut *recovery, xid, &witness), Past::Open);
            assert_eq!(inquire(&mut *recovery, xid, b""), Past::Open);
            table.plain().batch_execute(&format!("{word} PREPARED '{}'", xid.to_gid())).unwrap();
            let reply = recovery.call(Verb::Commit(xid));
            assert!(matches!(reply, Reply::Unknown(_)), "{reply:?}");
            assert_eq!(code(&reply), "42704", "one code for both");
            assert_eq!(inquire(&mut *recovery, xid, &witness), past, "asked at the end: {detect}");
            let said = elsewhere(&mut *recovery, xid, b"");
            assert!(said.contains("nothing was kept of its vote"), "without a witness nobody knows: {said}");
        }
    }
    // One that wrote nothing and was not asked has a number since its vote.
    let (reader, mut branch) = (xid("by_hand", 9), table.resource().detect_read_only(false));
    let witness = voted(&mut branch, reader, "SELECT 1");
    assert_eq!(branch.call(Verb::Commit(reader)), Reply::Done);
    assert_eq!(inquire(&mut *recovery, reader, &witness), Past::Committed);
    assert_eq!(table.rows(), [1, 3]);
}

#[test]
fn a_witness_names_the_role_that_the_work_has_set() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "set_role");
    let role = format!("assent_resources_worker_{}", std::process::id());
    let mut superuser = superuser(&table.url);
    superuser.batch_execute(&format!("CREATE ROLE {role}; GRANT {role} TO assent")).unwrap();
    let xid = xid("set_role", 0);
    let mut branch = table.resource();
    let sql = format!("INSERT INTO {} VALUES (1); SET LOCAL ROLE {role}", table.table);
    let witness = voted(&mut branch, xid, &sql);
    assert!(witness.ends_with(role.as_bytes()), "{}", String::from_utf8_lossy(&witness));
    let Reply::Refused(Kind::Denied, native) = branch.call(Verb::Commit(xid)) else { panic!("not its role any more") };
    assert!(native.message.contains(&format!("connect as {role:?}")), "{}", native.message);
    superuser.batch_execute(&format!("COMMIT PREPARED '{}'", xid.to_gid())).unwrap();
    superuser.batch_execute(&format!("DROP ROLE {role}")).unwrap();
}

#[test]
fn a_server_that_is_not_the_one_that_voted_says_that_it_cannot_know() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "strange");
    let xid = xid("strange", 0);
    let mut branch = table.resource();
    let witness = voted(&mut branch, xid, &format!("INSERT INTO {} VALUES (1)", table.table));
    assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
    let (system, timeline, wal, number) = (1, 2, 3, 4);
    for (field, to, words) in [
        (system, "123", "prepared at the server with system identifier 123; the one that answers has "),
        (timeline, "99", "timeline 99"),
        (wal, "FFFFFFFF/0", "a backup was restored"),
        (number, "99999999999", "in the future"),
        (0, "pg9", "cannot read"),
        (system, "", "not readable at the vote"),
    ] {
        let said = elsewhere(&mut branch, xid, &changed(&witness, field, to));
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(inquire(&mut branch, xid, &changed(&witness, number, "3")), Past::Forgotten, "too old to be known");
    assert_eq!(inquire(&mut branch, xid, &witness), Past::Committed);
}

#[test]
fn an_open_branch_that_is_not_ours_to_finish_is_refused_with_its_owner() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "whose");
    let xid = xid("whose", 0);
    let mut branch = table.resource();
    let witness = voted(&mut branch, xid, &format!("INSERT INTO {} VALUES (1)", table.table));
    let role = format!("assent_resources_stranger_{}", std::process::id());
    let mut superuser = superuser(&table.url);
    superuser.batch_execute(&format!("CREATE ROLE {role} LOGIN")).unwrap();
    let stranger = table.url.replace("//assent@", &format!("//{role}@"));
    let elsewhere = other_database(&table.url, "postgres");
    for (url, expected, words) in [
        (stranger, Kind::Denied, "connect as \"assent\""),
        (elsewhere, Kind::Invalid, "database \"assent\", and this connection is to \"postgres\""),
    ] {
        let mut other = PostgresConnector::new("bank", &url).unwrap().connect().unwrap();
        let reply = other.call(Verb::Inquire { xid, witness: witness.clone() });
        let Reply::Refused(kind, native) = reply else { panic!("{reply:?}") };
        assert_eq!(kind, expected);
        assert!(native.message.contains(words), "{}", native.message);
    }
    assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
    superuser.batch_execute(&format!("DROP ROLE {role}")).unwrap();
}

/// Nobody but a superuser may read which server this is, until this goes.
struct Unread(String);

impl Unread {
    fn new(url: &str) -> Self {
        superuser(url).batch_execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC").unwrap();
        Self(url.to_owned())
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        superuser(&self.0).batch_execute("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC").unwrap();
    }
}

/// Whoever may not read which server this is gets the way to the truth about what another one voted; the verbs work as
/// ever.
#[test]
fn a_role_that_may_not_read_the_system_identifier_is_told_the_grant() {
    let servers = alone();
    let table = PostgresTable::new(&servers, "unread");
    let known = xid("unread", 0);
    let witness = voted(&mut table.resource(), known, &format!("INSERT INTO {} VALUES (1)", table.table));
    let unread = Unread::new(&table.url);
    let mut blind = table.resource();
    assert_eq!(blind.call(Verb::Commit(known)), Reply::Done);
    let reply = blind.call(Verb::Inquire { xid: known, witness: witness.clone() });
    drop(unread);
    let Reply::Refused(Kind::Denied, native) = reply else { panic!("{reply:?}") };
    assert!(native.message.contains("GRANT EXECUTE ON FUNCTION"), "{}", native.message);
    assert_eq!(inquire(&mut blind, known, &witness), Past::Committed, "a grant is enough");
}

/// What such a role votes is told as long as the server runs, to itself and to others.
#[test]
fn the_vote_of_a_role_that_may_not_read_the_system_identifier_is_told_until_the_server_is_started_again() {
    let servers = alone();
    let table = PostgresTable::new(&servers, "one_run");
    let _unread = Unread::new(&table.url);
    let mut recovery = PostgresConnector::new("bank", &table.url).unwrap().connect().unwrap();
    let mut sighted = PostgresConnector::new("bank", &as_superuser(&table.url)).unwrap().connect().unwrap();
    let mut votes = Vec::new();
    // The witness rides in the question at the end, or else in the vote.
    for (number, detect) in [(0, true), (2, false)] {
        for (number, word, past) in [(number, "COMMIT", Past::Committed), (number + 1, "ROLLBACK", Past::RolledBack)] {
            let xid = xid("one_run", number);
            let mut blind = table.resource().detect_read_only(detect);
            let witness = voted(&mut blind, xid, &format!("INSERT INTO {} VALUES ({number})", table.table));
            assert!(witness.starts_with(b"pg2\0") && witness.ends_with(b"\0assent"), "{witness:?}");
            assert_eq!(inquire(&mut *recovery, xid, &witness), Past::Open);
            table.plain().batch_execute(&format!("{word} PREPARED '{}'", xid.to_gid())).unwrap();
            assert_eq!(inquire(&mut *recovery, xid, &witness), past);
            assert_eq!(inquire(&mut *sighted, xid, &witness), past);
            votes.push((xid, witness));
        }
    }
    assert_eq!(table.rows(), [0, 2]);
    servers.kill("postgres");
    servers.revive("postgres");
    let mut recovery = PostgresConnector::new("bank", &table.url).unwrap().connect().unwrap();
    for (xid, witness) in votes {
        let said = elsewhere(&mut *recovery, xid, &witness);
        assert!(said.contains("was started since") && said.contains("GRANT EXECUTE ON FUNCTION"), "{said}");
    }
}

/// The standby takes nothing more from its primary.
fn cut_off(standby: &mut Client) {
    standby.batch_execute("ALTER SYSTEM SET primary_conninfo = ''").unwrap();
    standby.batch_execute("SELECT pg_reload_conf()").unwrap();
    wait("the standby to be cut off", || {
        let receivers: i64 = standby.query_one("SELECT count(*) FROM pg_stat_wal_receiver", &[]).unwrap().get(0);
        (receivers == 0).then_some(())
    });
}

fn caught_up(primary: &mut Client, standby: &mut Client) {
    // A commit, so that everything before it is on disk and on its way.
    primary.batch_execute("CREATE TABLE assent_mark (); DROP TABLE assent_mark").unwrap();
    let position: String = primary.query_one("SELECT pg_current_wal_flush_lsn()::text", &[]).unwrap().get(0);
    let asked = format!("SELECT pg_last_wal_replay_lsn() >= '{position}'::pg_lsn");
    wait("the standby to catch up", || standby.query_one(&asked, &[]).unwrap().get::<_, bool>(0).then_some(()));
}

/// An asynchronous standby that is promoted may lack a branch that had voted: then 42704 to a decided commit means
/// neither committed nor rolled back, and must not be taken for either.
#[test]
fn after_a_fail_over_a_branch_that_came_along_is_finished_and_one_that_was_lost_is_said_to_be_lost() {
    let servers = alone();
    let table = PostgresTable::new(&servers, "fail_over");
    let standby = servers.standby();
    let mut there = superuser(&standby.url);
    let insert = |row: i32| format!("INSERT INTO {} VALUES ({row})", table.table);
    // One votes before the cut; of one only the work lies before it; one comes behind it.
    let [came, halved, lost] = [0, 1, 2].map(|number| xid("fail_over", number));
    let came_witness = voted(&mut table.resource(), came, &insert(0));
    let mut halved_branch = table.resource();
    ended(&mut halved_branch, halved, &insert(1));
    caught_up(&mut table.plain(), &mut there);
    cut_off(&mut there);
    assert_eq!(halved_branch.call(Verb::Prepare(halved)), YES);
    let halved_witness = halved_branch.witness();
    let lost_witness = voted(&mut table.resource(), lost, &insert(2));

    assert!(there.query_one("SELECT pg_promote()", &[]).unwrap().get::<_, bool>(0));
    let mut new = PostgresConnector::new("bank", &standby.url).unwrap().connect().unwrap();
    assert_eq!(new.call(Verb::Recover(node("fail_over"))), Reply::Listed(vec![came]));
    for xid in [halved, lost] {
        assert!(matches!(new.call(Verb::Commit(xid)), Reply::Unknown(_)), "42704 to a decided commit");
    }
    assert_eq!(inquire(&mut *new, came, &came_witness), Past::Open);
    assert_eq!(new.call(Verb::Commit(came)), Reply::Done);

    // Where the new timeline begins is not for everybody to read: then nothing is claimed.
    for (xid, witness) in [(came, &came_witness), (halved, &halved_witness), (lost, &lost_witness)] {
        let said = elsewhere(&mut *new, xid, witness);
        assert!(said.contains("on timeline 1, behind ") && said.contains("is on timeline 2"), "{said}");
        assert!(said.contains("pg_read_file('pg_wal/00000002.history')"), "{said}");
    }
    there.batch_execute("GRANT EXECUTE ON FUNCTION pg_read_file(text) TO assent").unwrap();
    assert_eq!(inquire(&mut *new, came, &came_witness), Past::Committed);
    assert_eq!(inquire(&mut *new, halved, &halved_witness), Past::RolledBack, "its work came along, its vote did not");
    let said = elsewhere(&mut *new, lost, &lost_witness);
    assert!(said.contains("timeline 2 left that one at ") && said.contains("was lost by the fail-over"), "{said}");
    let rows = PostgresTable { url: standby.url.clone(), table: table.table.clone() };
    assert_eq!(rows.rows(), [0]);

    // Whoever still asks the old primary about a vote at the new one hears that it was left behind.
    let later = xid("fail_over", 3);
    let later_witness = voted(&mut rows.resource(), later, &insert(3));
    assert_eq!(new.call(Verb::Commit(later)), Reply::Done);
    let mut old = PostgresConnector::new("bank", &table.url).unwrap().connect().unwrap();
    let said = elsewhere(&mut *old, later, &later_witness);
    assert!(said.contains("an old primary"), "{said}");
    for xid in [came, halved, lost] {
        assert_eq!(old.call(Verb::Rollback(xid)), Reply::Done);
    }
}

/// The server gives up half of it.
const SHORT: Limits = Limits { answer_ms_max: 2_000, ..Limits::RECOVERY };

/// From now on commits there wait for a standby that is not there.
pub(super) fn without_its_standby(url: &str) {
    let was_cut = Arc::new(AtomicBool::new(false));
    let cut = Arc::clone(&was_cut);
    let mut config: Config = as_superuser(url).parse().unwrap();
    config.notice_callback(move |notice| _ = cut.fetch_or(notice.code().code() == "01000", Ordering::Relaxed));
    let mut probe = config.connect(NoTls).unwrap();
    probe.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").unwrap();
    probe.batch_execute("SELECT pg_reload_conf()").unwrap();
    probe.batch_execute("SET statement_timeout = '200ms'").unwrap();
    // Which of its processes has read that, nobody is told.
    wait("commits to wait for a standby", || {
        let commit = "DO $$BEGIN PERFORM pg_logical_emit_message(true, 'probe', ''); COMMIT; END$$";
        let _slow = probe.batch_execute(commit);
        was_cut.load(Ordering::Relaxed).then_some(())
    });
}

pub(super) fn waits_for_nobody(url: &str) {
    let mut superuser = superuser(url);
    superuser.batch_execute("ALTER SYSTEM SET synchronous_standby_names = ''").unwrap();
    superuser.batch_execute("SELECT pg_reload_conf()").unwrap();
}

pub(super) fn short_recovery(url: &str) -> Box<dyn Resource> {
    PostgresConnector::new("bank", url).unwrap().limited(SHORT).connect().unwrap()
}

/// The time limit of COMMIT PREPARED ends its wait for the standby, and the server says that it is done. A standby that was promoted
/// then listed as prepared what nobody knew any more, and had it rolled back: half a commit.
#[test]
fn a_commit_that_no_longer_waited_for_its_standby_is_not_done_until_that_has_it() {
    drop(shared()); // The binaries are there from here on.
    let own = Own::start("postgres", "");
    let table = PostgresTable::of(&own.url, "unwaited");
    let silent = format!("{}?options=-c%20client_min_messages%3Derror", own.url);
    let cases = [(&own.url, 0), (&silent, 1)].map(|(url, number)| {
        let xid = xid("unwaited", number);
        (url, xid, voted(&mut table.resource(), xid, &format!("INSERT INTO {} VALUES ({number})", table.table)))
    });
    without_its_standby(&own.url);
    for (url, xid, _) in &cases {
        let reply = short_recovery(url).call(Verb::Commit(*xid));
        assert!(matches!(&reply, Reply::Lost(native) if native.message.contains("its standby")), "{url}: {reply:?}");
        assert_eq!(code(&reply), "01000");
    }
    assert_eq!(table.rows(), [0, 1], "it is done here");
    waits_for_nobody(&own.url);
    for (url, xid, witness) in &cases {
        assert_eq!(inquire(&mut *short_recovery(url), *xid, witness), Past::Committed);
    }
}

/// The session of a client that waited for its standby was ended: the branch is committed here and nowhere else, and who said so had
/// recovery forget it. And a session that waits for ever keeps the claim, so that recovery would take itself for another process.
#[test]
fn a_commit_that_no_standby_has_is_not_told_and_who_asks_gives_its_claim_back() {
    drop(shared()); // The binaries are there from here on.
    let own = Own::start("postgres", "");
    let table = PostgresTable::of(&own.url, "unheard");
    let (node, xid) = (node("unheard"), xid("unheard", 0));
    let mut branch = table.resource();
    let witness = voted(&mut branch, xid, &format!("INSERT INTO {} VALUES (7)", table.table));
    let process = process(&mut branch);
    without_its_standby(&own.url);
    let mut superuser = superuser(&own.url);
    branch.send(Verb::Commit(xid));
    wait("the commit to wait", || {
        let sql = "SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'SyncRep'";
        superuser.query_opt(sql, &[&process]).unwrap()
    });
    assert_eq!(inquire(&mut *short_recovery(&own.url), xid, &witness), Past::Open);
    let ended: bool = superuser.query_one("SELECT pg_terminate_backend($1, 60000)", &[&process]).unwrap().get(0);
    assert!(ended && matches!(branch.receive(), Reply::Lost(_)));
    assert_eq!(table.rows(), [7]);
    for round in 0..2 {
        let mut agent = short_recovery(&own.url);
        wait("the claim to be free", || (agent.call(Verb::Claim(node)) == Reply::Done).then_some(()));
        let reply = agent.call(Verb::Inquire { xid, witness: witness.clone() });
        assert!(matches!(reply, Reply::Lost(_)), "{round}: {reply:?}");
    }
    waits_for_nobody(&own.url);
    assert_eq!(inquire(&mut *short_recovery(&own.url), xid, &witness), Past::Committed);
}
