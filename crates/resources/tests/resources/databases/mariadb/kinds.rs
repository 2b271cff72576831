//! Every kind of statement, and whether the adapter takes it for a writing one.

use ::mysql::prelude::Queryable;
use assent_xa::{Reply, Resource, Verb, Vote};

use super::super::engine::{Engine, xid};
use super::super::servers::shared;
use super::Apart;

fn setup(t: &str) -> Vec<String> {
    vec![
        format!(
            "CREATE TABLE {t}_b (id int PRIMARY KEY, a int REFERENCES {t} (id) ON DELETE CASCADE ON UPDATE CASCADE) ENGINE=InnoDB"
        ),
        format!("CREATE TABLE {t}_m (id int) ENGINE=MyISAM"),
        format!("CREATE TABLE {t}_c (id int) ENGINE=InnoDB"),
        format!("CREATE TRIGGER {t}_t AFTER INSERT ON {t}_c FOR EACH ROW INSERT INTO {t}_b VALUES (NEW.id, NULL)"),
        format!("CREATE VIEW {t}_v AS SELECT * FROM {t}"),
        format!("CREATE SEQUENCE {t}_s"),
        format!(
            "CREATE FUNCTION {t}_f() RETURNS int MODIFIES SQL DATA BEGIN INSERT INTO {t} VALUES (70); RETURN 1; END"
        ),
        format!("CREATE PROCEDURE {t}_p() BEGIN INSERT INTO {t} VALUES (80); SELECT 1; END"),
        format!("INSERT INTO {t} VALUES (1), (2)"),
        format!("INSERT INTO {t}_b VALUES (1, 1)"),
    ]
}

fn writes(t: &str) -> Vec<String> {
    vec![
        format!("INSERT INTO {t} VALUES (60)"),
        format!("INSERT IGNORE INTO {t} VALUES (1)"),
        format!("INSERT INTO {t} SELECT id + 100 FROM {t}"),
        format!("INSERT INTO {t} VALUES (1) ON DUPLICATE KEY UPDATE id = 61"),
        format!("INSERT INTO {t} VALUES (62) RETURNING id"),
        format!("REPLACE INTO {t} VALUES (63)"),
        format!("UPDATE {t} SET id = id + 1000"),
        format!("UPDATE {t}_v SET id = id + 1000"),
        format!("UPDATE {t} JOIN {t}_b ON {t}.id = {t}_b.id SET {t}_b.a = NULL"),
        format!("DELETE FROM {t} WHERE id = 1"),
        format!("DELETE {t}_b FROM {t} JOIN {t}_b ON {t}.id = {t}_b.id"),
        format!("SELECT {t}_f()"),
        format!("DO {t}_f()"),
        format!("SET @x = {t}_f()"),
        format!("SELECT * FROM (SELECT {t}_f()) AS d"),
        format!("CALL {t}_p()"),
        format!("INSERT INTO {t}_c VALUES (5)"),
        format!("SELECT NEXT VALUE FOR {t}_s"),
        format!("SELECT SETVAL({t}_s, 500)"),
        format!("EXECUTE IMMEDIATE 'INSERT INTO {t} VALUES (64)'"),
        format!("SET STATEMENT max_statement_time = 60 FOR INSERT INTO {t} VALUES (65)"),
        format!("ANALYZE UPDATE {t} SET id = id + 10"),
        format!("INSERT INTO {t} VALUES (66); SELECT 1; SELECT 2"),
        format!("BEGIN NOT ATOMIC INSERT INTO {t} VALUES (67); SELECT 1; END"),
        format!("SAVEPOINT s; INSERT INTO {t} VALUES (68); ROLLBACK TO SAVEPOINT s"),
        format!("UPDATE {t} SET id = 2 WHERE id = 3000"),
        format!("SELECT * FROM {t} FOR UPDATE"),
    ]
}

fn reads(t: &str) -> Vec<String> {
    vec![
        format!("SELECT * FROM {t}"),
        format!("SELECT id % 2 AS odd, count(*) FROM {t} GROUP BY odd ORDER BY 2"),
        format!("SELECT * FROM {t} LOCK IN SHARE MODE"),
        format!("SELECT * FROM {t}_v, {t}_m"),
        format!("WITH RECURSIVE n AS (SELECT 1 AS i UNION SELECT i + 1 FROM n WHERE i < 9) SELECT * FROM n, {t}"),
        "SELECT 1".to_owned(),
        "SET @y = 1".to_owned(),
        "SELECT UUID()".to_owned(),
    ]
}

/// Whatever writes, and however hidden, is asked to vote; else it would be committed before the decision.
#[test]
fn every_kind_of_statement_that_writes_is_known_to_write() {
    let servers = shared();
    let apart = Apart::new(&servers, "kinds");
    let table = &apart.0;
    let mut plain = table.plain();
    for sql in setup(&table.table) {
        plain.query_drop(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let (writes, reads) = (writes(&table.table), reads(&table.table));
    let mut branch = table.resource();
    let all = writes.iter().map(|sql| (sql, true)).chain(reads.iter().map(|sql| (sql, false)));
    for (number, (sql, wrote)) in (0..).zip(all) {
        // Behind it, what hides the answer to it.
        for (variant, hidden) in [(0, false), (1, true)] {
            let xid = xid("kinds", number * 2 + variant);
            assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
            let statements = [sql.as_str(), "SELECT 1"];
            for sql in statements.iter().take(if hidden { 2 } else { 1 }) {
                branch.work(|it| it.query_drop(sql)).unwrap_or_else(|error| panic!("{sql}: {error}"));
            }
            let reply = branch.call(Verb::End { xid, success: true });
            assert_eq!(
                reply,
                if wrote { Reply::Done } else { Reply::Vote(Vote::ReadOnly) },
                "{sql} (hidden: {hidden})"
            );
            if wrote {
                assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
            }
        }
    }
    assert_eq!(table.rows(), [1, 2]);
}
