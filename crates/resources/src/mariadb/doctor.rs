//! What a MariaDB or MySQL says of itself, and what that means for its branches.
//!
//! Walk: [`gather`] asks over a connection of its own, also a server that the adapter would refuse · [`judge`] makes
//! findings of the facts. Settings and status are one map by name: a name that a version does not have is missing.
//! Source: MariaDB's manual, "XA Transactions", "Galera Cluster - Known Limitations"; tried on MariaDB 10.11.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use assent_ids::FORMAT_ID;
use assent_kind::Kind;
use assent_world::Clock;
use mysql::prelude::Queryable as _;
use mysql::{Conn, OptsBuilder, Row};

use super::codes::judge_work;
use super::failure::Failure;
use super::owner::Owner;
use super::xids::read_row;
use super::{Address, keeps, refusal};
use crate::doctor::{NoFacts, Sheet, ahead_ms, within};
use crate::kept::Limits;

/// Tables of which the name is told.
const TABLES_TOLD_MAX: usize = 5;
/// A connection rests as long as its application thinks, and a prepared branch is tied to it.
const WAIT_S: u64 = 600;
/// Clients of which the sessions are looked at.
const OWNERS_MAX: usize = 16;

/// What a MariaDB or MySQL says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MariadbFacts {
    /// Host and port.
    pub place: String,
    /// As the server writes it.
    pub version: String,
    /// The account that the server took us for.
    pub account: String,
    /// The database of the URL.
    pub database: String,
    /// What no two servers have in common.
    pub identity: String,
    /// Global settings and status, by their names in lower case.
    pub settings: BTreeMap<String, String>,
    /// How many branches are prepared, and how many of them are Assent's; or why that may not be known.
    pub prepared: Result<(u64, u64), String>,
    /// Connections of Assent's clients with a branch among them that this account may not end.
    pub beyond_reach: Vec<u64>,
    /// How many tables of the database cannot be rolled back.
    pub plain_tables: u64,
    /// The first of them, each with its engine.
    pub plain_tables_first: Vec<(String, String)>,
    /// Its clock against ours.
    pub clock_ahead_ms: i64,
}

impl MariadbFacts {
    /// By what a vote's witness knows the server again; nothing where the server has a number of its own.
    pub(crate) fn known_by(&self) -> Option<String> {
        let parts = ["server_id", "port", "datadir"].map(|name| self.text(name));
        (self.text("server_uuid").is_empty() && parts.iter().all(|part| !part.is_empty())).then(|| parts.join(" "))
    }

    fn text(&self, name: &str) -> &str {
        self.settings.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name).parse().ok()
    }

    /// Versions differ in how they write it.
    fn is_on(&self, name: &str) -> bool {
        matches!(self.text(name).to_ascii_uppercase().as_str(), "ON" | "1" | "YES")
    }
}

const SETTINGS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', \
     'innodb_doublewrite', 'log_bin', 'sync_binlog', 'read_only', 'innodb_read_only', 'tx_read_only', \
     'transaction_read_only', 'innodb_force_recovery', 'wait_timeout', 'idle_transaction_timeout', \
     'idle_write_transaction_timeout', 'max_statement_time', 'wsrep_on', 'server_uuid', 'server_uid', 'hostname', \
     'port', 'datadir', 'server_id', 'innodb_rollback_on_timeout', 'max_connections')";
const STATUS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Slaves_connected', 'Slave_running', 'Slaves_running', \
     'Rpl_semi_sync_master_status', 'Rpl_semi_sync_master_clients', 'Max_used_connections')";
// What an engine says of itself: InnoDB says yes to both, MyISAM and Aria to none.
const PLAIN_TABLES: &str = "SELECT t.TABLE_NAME, t.ENGINE FROM information_schema.TABLES t \
     JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE WHERE t.TABLE_SCHEMA = DATABASE() \
     AND t.TABLE_TYPE = 'BASE TABLE' AND NOT (e.TRANSACTIONS = 'YES' AND e.XA = 'YES') ORDER BY t.TABLE_NAME";
const CLOCK: &str = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000 AS SIGNED)";

/// Asks.
pub(crate) fn gather(name: &str, url: &str, limits: Limits, clock: Arc<dyn Clock>) -> Result<MariadbFacts, NoFacts> {
    let address = Address::parse(name, url)?;
    let place = address.place.clone();
    let (at, answer) = (place.clone(), Duration::from_millis(limits.answer_ms_max));
    let options = OptsBuilder::from_opts(address.options)
        .prefer_socket(false)
        .tcp_connect_timeout(Some(Duration::from_millis(limits.connect_ms_max)))
        .read_timeout(Some(answer))
        .write_timeout(Some(answer));
    let connect = move || {
        Conn::new(options).map_err(|error| {
            let (kind, native) = refusal(&error);
            NoFacts::new(kind, format!("{}: {}", address.place, native.message))
        })
    };
    within(&place, limits, connect, move |connection| {
        ask(connection, at.clone(), &*clock).map_err(|error| {
            let failure = Failure::of(&error);
            let kind = match &failure {
                Failure::Server(code, _) => judge_work(*code),
                Failure::Lost(_) => Kind::Unavailable,
            };
            NoFacts::new(kind, format!("{at}: {}", failure.native().message))
        })
    })
}

fn ask(mut connection: Conn, place: String, clock: &dyn Clock) -> Result<MariadbFacts, mysql::Error> {
    let who: Option<(String, String, String)> =
        connection.query_first("SELECT VERSION(), CURRENT_USER(), DATABASE()")?;
    let (version, account, database) = who.unwrap_or_default();
    let mut settings = BTreeMap::new();
    for sql in [SETTINGS, STATUS] {
        let rows: Vec<(String, String)> = connection.query(sql)?;
        settings.extend(rows.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)));
    }
    let identity = ["server_uuid", "server_uid", "hostname", "port", "datadir"]
        .map(|name| settings.get(name).map_or("", String::as_str))
        .join(" ");
    let tables: Vec<(String, String)> = connection.query(PLAIN_TABLES)?;
    let plain_tables = u64::try_from(tables.len()).unwrap_or(u64::MAX);
    let (prepared, beyond_reach) = match connection.query::<Row, _>("XA RECOVER") {
        Ok(rows) => (Ok(count(&rows)), beyond_reach(&mut connection, rows)?),
        // MySQL lists them only to who has the right for it.
        Err(mysql::Error::MySqlError(error)) => (Err(error.message), Vec::new()),
        Err(lost) => return Err(lost),
    };
    let before_ms = clock.wall_ms();
    let there_ms: Option<i64> = connection.query_first(CLOCK)?;
    let clock_ahead_ms = ahead_ms(there_ms.unwrap_or_default(), before_ms, clock.wall_ms());
    Ok(MariadbFacts {
        place,
        version,
        account,
        database,
        identity,
        settings,
        prepared,
        beyond_reach,
        plain_tables,
        plain_tables_first: tables.into_iter().take(TABLES_TOLD_MAX).collect(),
        clock_ahead_ms,
    })
}

/// All of them, and those of our format.
fn count(rows: &[Row]) -> (u64, u64) {
    let is_ours = |row: &&Row| matches!(row.get_opt::<i64, _>(0), Some(Ok(format)) if format == i64::from(FORMAT_ID));
    let whole = |number| u64::try_from(number).unwrap_or(u64::MAX);
    (whole(rows.len()), whole(rows.iter().filter(is_ours).count()))
}

/// Sessions of the clients whose branches these are, as far as they belong to other accounts and this one has no right over
/// them: `KILL` asks for the same user, or for a right over all connections.
fn beyond_reach(connection: &mut Conn, branches: Vec<Row>) -> Result<Vec<u64>, mysql::Error> {
    let mut owners: Vec<Owner> = branches.into_iter().filter_map(read_row).filter_map(|xid| Owner::of(&xid)).collect();
    owners.dedup();
    owners.truncate(OWNERS_MAX);
    let grants: Vec<String> = if owners.is_empty() { Vec::new() } else { connection.query("SHOW GRANTS")? };
    if grants.iter().any(|grant| may_end_others(grant)) {
        return Ok(Vec::new());
    }
    let user: Option<String> = connection.query_first("SELECT SUBSTRING_INDEX(USER(), '@', 1)")?;
    let mut held = BTreeSet::new();
    for owner in owners {
        let holders: Option<Row> = connection.query_first(owner.find(0))?;
        let holders = holders.map(Row::unwrap).unwrap_or_default().into_iter();
        held.extend(holders.filter_map(|holder| mysql::from_value_opt::<Option<u64>>(holder).ok().flatten()));
    }
    for listed in connection.query::<Row, _>("SHOW PROCESSLIST")? {
        if let (Some(Ok(id)), Some(Ok(of))) = (listed.get_opt::<u64, _>(0), listed.get_opt::<String, _>(1))
            && user.as_ref() == Some(&of)
        {
            held.remove(&id);
        }
    }
    Ok(held.into_iter().collect())
}

/// Whether a line of SHOW GRANTS gives a right over other accounts' connections.
fn may_end_others(grant: &str) -> bool {
    grant.split_once(" ON *.* ").is_some_and(|(rights, _)| {
        ["ALL PRIVILEGES", "SUPER", "CONNECTION ADMIN", "CONNECTION_ADMIN"].iter().any(|right| rights.contains(right))
    })
}

/// What the facts say.
pub(crate) fn judge(facts: &MariadbFacts, sheet: &mut Sheet<'_>) {
    let MariadbFacts { place, version, account, database, .. } = facts;
    let server = if version.contains("MariaDB") { "MariaDB" } else { "MySQL" };
    let short = version.replace("-MariaDB", "");
    sheet.ok(format!("{server} {short} at {place}, database {database:?}, account {account:?}"));
    if let Err(reason) = keeps::check(1, version) {
        let (what, advice) = reason.split_once("; ").unwrap_or((&reason, "name a server that says its version"));
        sheet.error(what, advice);
    } else if server == "MySQL" {
        sheet.note(
            "whether a MySQL follows another server, or is followed by any, is not looked at",
            "see SHOW REPLICA STATUS and SHOW REPLICAS: a replica has to be read_only = 1, and a primary waits for one \
             (semi-synchronous), or a fail-over can lose a branch that had voted",
        );
    }
    match &facts.prepared {
        Ok((all, ours)) => sheet.ok(format!("{all} prepared branches, {ours} of them of Assent")),
        Err(reason) => sheet.error(
            format!("prepared branches are not listed to this account ({reason}), so recovery is blind"),
            format!("GRANT XA_RECOVER_ADMIN to {account}"),
        ),
    }
    if let Some(first) = facts.beyond_reach.first() {
        let many = facts.beyond_reach.len();
        sheet.warning(
            format!(
                "{many} connections of clients with a branch here, e.g. {first}, are of other accounts, and {account} may not end \
                 them: a client that hangs keeps its branches"
            ),
            format!("let clients and this url use the same account, or GRANT CONNECTION ADMIN ON *.* TO {account}"),
        );
    }
    judge_flushes(facts, sheet);
    judge_side(facts, sheet);
    judge_tables(facts, sheet);
    judge_timeouts(facts, sheet);
    judge_connections(facts, sheet);
    sheet.clock(facts.clock_ahead_ms);
}

fn judge_flushes(facts: &MariadbFacts, sheet: &mut Sheet<'_>) {
    let flush = facts.text("innodb_flush_log_at_trx_commit");
    // 3 flushes as 1 does, and once more.
    if !matches!(flush, "1" | "3") {
        sheet.error(
            format!("innodb_flush_log_at_trx_commit = {flush}, so a power cut takes back what it has voted"),
            "set it to 1 in the server's configuration and by SET GLOBAL",
        );
    }
    if facts.text("innodb_doublewrite").eq_ignore_ascii_case("OFF") {
        sheet.warning(
            "innodb_doublewrite = OFF, so a power cut can tear a page",
            "switch it on, unless the file system never tears a write",
        );
    }
    if facts.is_on("log_bin") && facts.number("sync_binlog") != Some(1) {
        sheet.warning(
            format!("sync_binlog = {}: after a power cut the binlog may lack a branch", facts.text("sync_binlog")),
            "set it to 1 in the server's configuration and by SET GLOBAL",
        );
    }
}

fn judge_side(facts: &MariadbFacts, sheet: &mut Sheet<'_>) {
    // A number, or in newer versions a word.
    if !matches!(facts.text("read_only"), "0" | "OFF") {
        sheet.error(
            format!("read_only = {}, as a replica has", facts.text("read_only")),
            "name the primary, or SET GLOBAL read_only = 0 if this is it",
        );
    } else if facts.is_on("slave_running") || facts.number("slaves_running") > Some(0) {
        // The one speaks of the connection that has no name, the other counts all.
        sheet.warning(
            "it follows another server, and may be written to all the same",
            "name the primary, and set read_only = 1 on every replica: it is known by that alone",
        );
    }
    // Each of them refuses the first write of every branch, whoever asks.
    for name in ["innodb_read_only", "tx_read_only", "transaction_read_only"] {
        if facts.is_on(name) {
            sheet.error(
                format!("{name} = {}, so every branch fails that writes", facts.text(name)),
                "name a server that is written to, or switch it off",
            );
        }
    }
    if let Some(level @ 1..) = facts.number("innodb_force_recovery") {
        sheet.error(
            format!("innodb_force_recovery = {level}: it may list none of what was prepared, and write nothing"),
            "rescue its data, and start it without that; recovery takes no such server",
        );
    }
    if facts.text("server_uuid").is_empty() && facts.text("server_id") == "1" {
        sheet.note(
            "server_id = 1, the default: recovery knows a MariaDB again by server_id, port and datadir",
            "give every server a server_id of its own, while nothing is in doubt",
        );
    }
    if facts.is_on("wsrep_on") {
        sheet.error("it is a node of a Galera cluster, which does not replicate XA", "name a server outside of it");
    }
    let replicas = facts.number("slaves_connected").unwrap_or(0);
    if replicas > 0
        && !(facts.is_on("rpl_semi_sync_master_status") && facts.number("rpl_semi_sync_master_clients") > Some(0))
    {
        sheet.warning(
            format!("{replicas} replicas follow, and none is waited for: a fail-over can lose a branch that had voted"),
            "use semi-synchronous replication, and see after a fail-over what assent tx list shows",
        );
    }
}

/// What a session costs that stays with its branch.
fn judge_connections(facts: &MariadbFacts, sheet: &mut Sheet<'_>) {
    let (Some(max), Some(used)) = (facts.number("max_connections"), facts.number("max_used_connections")) else {
        return;
    };
    if used.saturating_mul(5) >= max.saturating_mul(4) {
        sheet.warning(
            format!(
                "up to {used} of max_connections = {max} were in use: a session stays with its branch until the commit is done, \
                 so a crowd in doubt leaves none for recovery"
            ),
            "raise max_connections above what all clients open together, and 8 for recovery",
        );
    }
}

fn judge_tables(facts: &MariadbFacts, sheet: &mut Sheet<'_>) {
    let named = facts.plain_tables_first.iter().map(|(table, engine)| format!("{table} ({engine})"));
    let named = named.collect::<Vec<_>>().join(", ");
    let count = facts.plain_tables;
    if count > 0 {
        let more = if u64::try_from(facts.plain_tables_first.len()) == Ok(count) { "" } else { ", ..." };
        sheet.warning(
            format!("{count} tables keep what is rolled back: {named}{more}"),
            "ALTER TABLE ... ENGINE=InnoDB, or never write them in a transaction",
        );
    }
}

fn judge_timeouts(facts: &MariadbFacts, sheet: &mut Sheet<'_>) {
    if facts.text("innodb_rollback_on_timeout").eq_ignore_ascii_case("OFF") {
        sheet.note(
            "innodb_rollback_on_timeout = OFF: a lock wait that times out (1205) undoes its statement alone, and a program that keeps \
             that error to itself votes yes without it",
            "set it to ON in the server's configuration (a restart): then such a branch can only be rolled back",
        );
    }
    if let Some(wait_s) = facts.number("wait_timeout").filter(|wait_s| *wait_s < WAIT_S) {
        sheet.note(
            format!("wait_timeout = {wait_s} s: a connection that rests longer is closed, and its unvoted work undone"),
            "nothing, if clients are quicker",
        );
    }
    for name in ["idle_transaction_timeout", "idle_write_transaction_timeout", "max_statement_time"] {
        let set = facts.text(name);
        if set.parse::<f64>().is_ok_and(|seconds| seconds > 0.0) {
            sheet.note(
                format!("{name} = {set} s: what takes longer before its vote is rolled back"),
                "nothing, if clients are quicker",
            );
        }
    }
}

#[cfg(test)]
#[path = "doctor_test.rs"]
mod tests;
