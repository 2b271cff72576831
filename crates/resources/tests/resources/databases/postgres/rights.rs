//! Who may finish a prepared branch: its own role, from its own database. Everybody sees it.

use assent_ids::Xid;
use assent_kind::Kind;
use assent_resources::PostgresConnector;
use assent_xa::{Connector, Reply, Verb};

use super::super::engine::{Engine, PostgresTable, code, node, other_database, work, xid};
use super::super::servers::shared;
use super::{YES, as_superuser, superuser};

/// What the connection with this URL hears when it tries to commit.
fn refused(url: &str, xid: Xid) -> (Kind, String, String) {
    let mut other = PostgresConnector::new("bank", url).unwrap().connect().unwrap();
    let reply = other.call(Verb::Commit(xid));
    let code = code(&reply).to_owned();
    match reply {
        Reply::Refused(kind, native) => (kind, code, native.message),
        reply => panic!("{reply:?}"),
    }
}

/// pgjdbc's recovery lists what the role is a member of, and then cannot finish it.
#[test]
fn a_member_of_the_owners_role_is_denied_and_told_which_role_it_must_be() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "denied");
    let [stranger, member] = ["stranger", "member"].map(|it| format!("assent_rights_{it}_{}", std::process::id()));
    let mut superuser = superuser(&table.url);
    superuser
        .batch_execute(&format!("CREATE ROLE {stranger} LOGIN; CREATE ROLE {member} LOGIN IN ROLE assent"))
        .unwrap();
    let [first, second] = [0, 1].map(|number| xid("denied", number));
    let mut branch = table.open();
    for xid in [first, second] {
        work(&mut *branch, xid, 1);
        assert_eq!(branch.call(Verb::Prepare(xid)), YES);
    }
    let as_role = |role: &str| table.url.replace("//assent@", &format!("//{role}@"));
    for role in [&stranger, &member] {
        let mut other = PostgresConnector::new("bank", &as_role(role)).unwrap().connect().unwrap();
        let Reply::Listed(listed) = other.call(Verb::Recover(node("denied"))) else { panic!("everybody sees it") };
        assert_eq!(listed.len(), 2);
        let (kind, code, words) = refused(&as_role(role), first);
        assert_eq!((kind, code.as_str()), (Kind::Denied, "42501"));
        let whose = format!("is of role \"assent\", and this connection is of {role:?}");
        assert!(words.contains(&whose) && words.contains("connect as \"assent\""), "{words}");
    }
    // A member may become the role; so may its URL. A superuser needs nothing.
    let becomes = format!("{}?options=-c%20role%3Dassent", as_role(&member));
    for (url, xid) in [(becomes, first), (as_superuser(&table.url), second)] {
        let mut other = PostgresConnector::new("bank", &url).unwrap().connect().unwrap();
        assert_eq!(other.call(Verb::Commit(xid)), Reply::Done, "{url}");
    }
    assert_eq!(table.rows(), [1, 1]);
    superuser.batch_execute(&format!("DROP ROLE {stranger}, {member}")).unwrap();
}

#[test]
fn a_branch_is_finished_from_its_own_database_only_and_keeps_that_from_being_dropped() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "own_database");
    let database = format!("assent_rights_{}", std::process::id());
    table.plain().batch_execute(&format!("CREATE DATABASE {database}")).unwrap();
    let there = PostgresTable { url: other_database(&table.url, &database), table: "t".to_owned() };
    there.plain().batch_execute("CREATE TABLE t (id int)").unwrap();
    let xid = xid("own_database", 0);
    let mut branch = there.open();
    work(&mut *branch, xid, 1);
    assert_eq!(branch.call(Verb::Prepare(xid)), YES);
    drop(branch);

    let (kind, code, words) = refused(&table.url, xid);
    assert_eq!((kind, code.as_str()), (Kind::Invalid, "0A000"));
    assert!(words.contains(&format!("is of database {database:?}, and this connection is to \"assent\"")), "{words}");
    let drop = format!("DROP DATABASE {database} WITH (FORCE)");
    let held = table.plain().batch_execute(&drop).unwrap_err();
    assert_eq!(held.code().map(|it| it.code().to_owned()).as_deref(), Some("55006"), "{held}");
    let mut own = there.connector().connect().unwrap();
    assert_eq!(own.call(Verb::Rollback(xid)), Reply::Done);
    table.plain().batch_execute(&drop).unwrap();
}
