//! Who may finish a prepared branch: its own role, from its own database. Everybody sees it.

use assent_ids::Xid;
use assent_kind::Kind;
use assent_resources::PostgresConnector;
use assent_xa::{Connector, Reply, Resource as _, Verb};

use super::super::engine::{Engine, PostgresTable, code, node, other_database, work, xid};
use super::super::servers::shared;
use super::{YES, as_superuser, run, superuser};

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

/// A vote of a branch that has told that it wrote is not asked for its role again where only rows were written since. What is
/// kept says at each vote which transaction it is, and whose, unless a function in what wrote rows became somebody else.
#[test]
fn the_witness_of_a_writer_names_its_transaction_and_the_role_that_was_asked_last() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "writer");
    let role = format!("assent_rights_writer_{}", std::process::id());
    let mut superuser = superuser(&table.url);
    superuser
        .batch_execute(&format!(
            "CREATE ROLE {role}; GRANT {role} TO assent; GRANT ALL ON {} TO {role}; GRANT USAGE ON SCHEMA public TO {role}",
            table.table
        ))
        .unwrap();
    let insert = format!("INSERT INTO {} VALUES (1)", table.table);
    let none = format!("UPDATE {} SET id = id WHERE false", table.table);
    let unseen = format!("UPDATE {} SET id = id WHERE set_config('role', '{role}', false) IS NOT NULL", table.table);
    let works = [
        (insert.clone(), "assent"),
        (insert.clone(), "assent"),
        (format!("SET LOCAL ROLE {role}; {insert}"), &role),
        (insert.clone(), "assent"),
        (insert.clone(), "assent"),
        (format!("SELECT set_config('role', '{role}', false); {insert}"), &role),
        (insert.clone(), &role),
        (insert.clone(), &role),
        (format!("RESET ROLE; {insert}"), "assent"),
        (format!("DO $$ BEGIN SET ROLE {role}; END $$; {insert}"), &role),
        (insert.clone(), &role),
        (format!("RESET ROLE; {none}"), "assent"),
        (none, "assent"),
        (format!("{insert}; COMMIT; BEGIN"), "assent"),
        (format!("SAVEPOINT here; {insert}; ROLLBACK TO here"), "assent"),
        (insert.clone(), "assent"),
        (unseen, "assent, not seen"),
        (insert.clone(), "assent, not seen"),
        (format!("SELECT 1; {insert}"), &role),
        (format!("RESET ROLE; {insert}"), "assent"),
    ];
    let mut branch = table.resource().detect_read_only(false);
    for (number, (work, owner)) in (0..).zip(&works) {
        let xid = xid("writer", number);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        run(&mut branch, work).unwrap();
        assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
        assert_eq!(branch.call(Verb::Prepare(xid)), YES);
        let witness = String::from_utf8(branch.witness()).unwrap();
        let fields: Vec<&str> = witness.split('\0').collect();
        let gid = xid.to_gid();
        let row = superuser
            .query_one("SELECT owner::text, transaction::text FROM pg_prepared_xacts WHERE gid = $1", &[&gid])
            .unwrap();
        let (told, transaction): (&str, &str) = (row.get(0), row.get(1));
        let (known, owner) = owner.strip_suffix(", not seen").map_or((*owner, *owner), |known| (known, role.as_str()));
        assert_eq!((fields[6], told), (known, owner), "{number}: {work}");
        let number: u64 = fields[4].parse().unwrap();
        assert_eq!((number & u64::from(u32::MAX)).to_string(), transaction, "{work}");
        superuser.batch_execute(&format!("COMMIT PREPARED '{gid}'")).unwrap();
    }
    let asked = branch.work(|client| {
        let used =
            "SELECT sum(generic_plans + custom_plans)::int8 FROM pg_prepared_statements WHERE name ~ '^assent_writer'";
        Ok(client.query_one(used, &[])?.get::<_, i64>(0))
    });
    // Those behind one that was asked and had itself done nothing else since the one before: 4, 7, 13, 16 and 17.
    assert_eq!(asked.unwrap(), 5, "as many were asked less");
    run(&mut branch, "RESET ROLE").unwrap();
    superuser.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).unwrap();
}
