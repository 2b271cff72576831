//! What a PostgreSQL says of itself, and what that means for its branches.
//!
//! Walk: [`gather`] asks over a connection of its own, also a server that the adapter would refuse · [`judge`] makes
//! findings of the facts.
//! Source: PostgreSQL's manual, "Resource Consumption", "Write Ahead Log", "Replication"; tried on PostgreSQL 15.
//! Trap: a role without pg_read_all_stats sees that standbys are connected, and nothing of them.

mod proxy;

use std::sync::Arc;
use std::time::Duration;

use assent_ids::{FORMAT_ID, Xid};
use assent_kind::Kind;
use assent_world::Clock;
use tokio_postgres::config::TargetSessionAttrs;

pub use self::proxy::Proxy;
use super::answer::Row;
use super::last::PLAIN;
use super::line::Line;
use super::{Address, unconnected};
use crate::doctor::{NoFacts, Sheet, ahead_ms, within};
use crate::kept::Limits;
use crate::postgres::failure::Failure;

/// A healthy client finishes its branches in much less.
const OURS_AGE_S: u64 = 60;
/// Somebody else's may be meant to wait, but not for ever.
const THEIRS_AGE_S: u64 = 3_600;

/// How it stands about the decisions that last resources keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Whether this role may settle and clear them.
    pub may: bool,
    /// Whether a row stands where it was put: the table is as it was made.
    pub is_plain: bool,
}

/// What a PostgreSQL says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresFacts {
    /// Host and port.
    pub place: String,
    /// As the server writes it.
    pub version: String,
    /// The role that branches would belong to.
    pub role: String,
    /// Whether it may finish other roles' branches.
    pub is_superuser: bool,
    /// The database that branches would belong to.
    pub database: String,
    /// `pg_is_in_recovery()`.
    pub is_standby: bool,
    /// Whether new transactions may write.
    pub is_writable: bool,
    /// The system identifier, if this role may know it.
    pub system: Option<String>,
    /// When this run of it started.
    pub started: String,
    /// `max_prepared_transactions`.
    pub prepared_max: u64,
    /// `max_connections`.
    pub connections_max: u64,
    /// What is prepared in all its databases.
    pub prepared: Vec<Prepared>,
    /// Those of `fsync` and `full_page_writes` that are off.
    pub off: Vec<String>,
    /// `synchronous_commit`, as this role has it in this database.
    pub synchronous_commit: String,
    /// `synchronous_standby_names`.
    pub synchronous_standby_names: String,
    /// Who follows it.
    pub replicas: Replicas,
    /// Whether this role may read where an older timeline ended.
    pub reads_history: bool,
    /// What last resources keep here; none where there is no such table.
    pub rows: Option<Kept>,
    /// The timeouts that are set, by name, in milliseconds.
    pub timeouts_ms: Vec<(String, u64)>,
    /// Its clock against ours.
    pub clock_ahead_ms: i64,
    /// What stands between.
    pub proxy: Proxy,
}

/// A prepared transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Whether its gid is one of Assent's.
    pub is_ours: bool,
    /// Who may finish it.
    pub owner: String,
    /// Where it may be finished.
    pub database: String,
    /// Since when.
    pub age_s: u64,
}

/// Standbys that are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replicas {
    /// All of them.
    pub connected: u64,
    /// Those that are waited for.
    pub synchronous: u64,
    /// Those of which this role may not know it.
    pub hidden: u64,
}

const SETTINGS: &str = "SELECT pg_catalog.current_setting('server_version'), \
     pg_catalog.current_setting('max_prepared_transactions'), pg_catalog.current_setting('max_connections'), \
     pg_catalog.current_setting('synchronous_commit'), pg_catalog.current_setting('synchronous_standby_names'), \
     pg_catalog.pg_is_in_recovery(), pg_catalog.pg_postmaster_start_time(), current_user, \
     pg_catalog.current_setting('is_superuser'), pg_catalog.current_database()";
const OFF: &str = "SELECT name FROM pg_catalog.pg_settings \
     WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name";
const TIMEOUTS: &str = "SELECT name, setting FROM pg_catalog.pg_settings \
     WHERE name IN ('idle_in_transaction_session_timeout', 'idle_session_timeout', 'statement_timeout', \
     'transaction_timeout') AND setting NOT IN ('0', '-1') ORDER BY name";
const PREPARED: &str = "SELECT gid, owner, database, \
     pg_catalog.floor(extract(epoch FROM pg_catalog.clock_timestamp() - prepared)) FROM pg_catalog.pg_prepared_xacts";
// Who decodes changes, or copies the server once, takes nobody's place.
const REPLICAS: &str = "SELECT count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')), \
     count(*) FILTER (WHERE sync_state IS NULL) FROM pg_catalog.pg_stat_replication r \
     WHERE state IS DISTINCT FROM 'backup' AND NOT EXISTS (SELECT FROM pg_catalog.pg_replication_slots s \
     WHERE s.active_pid = r.pid AND s.slot_type = 'logical')";
const SYSTEM: &str = "SELECT system_identifier FROM pg_catalog.pg_control_system()";
const HISTORY: &str = "SELECT pg_catalog.has_function_privilege('pg_catalog.pg_read_file(text)', 'execute')";
/// Of recovery's side.
const ROWS: &str = "SELECT pg_catalog.has_schema_privilege(space.oid, 'USAGE') AND pg_catalog.has_table_privilege(kept.oid, 'SELECT') \
     AND pg_catalog.has_table_privilege(kept.oid, 'INSERT') AND pg_catalog.has_table_privilege(kept.oid, 'DELETE') \
     FROM pg_catalog.pg_class AS kept JOIN pg_catalog.pg_namespace AS space ON space.oid = kept.relnamespace \
     WHERE space.nspname = 'assent_rows' AND kept.relname = 'decisions'";
const CLOCK: &str = "SELECT pg_catalog.floor(extract(epoch FROM pg_catalog.clock_timestamp()) * 1000)";

/// Asks.
pub(crate) fn gather(name: &str, url: &str, limits: Limits, clock: Arc<dyn Clock>) -> Result<PostgresFacts, NoFacts> {
    let address = Arc::new(Address::parse(name, url)?);
    let (place, again) = (address.place.clone(), Arc::clone(&address));
    let connect = move || connect(&address, limits);
    within(&place, limits, connect, move |(mut client, is_writable)| {
        let proxy = proxy::look(&mut client, &again, limits);
        ask(client, limits, again.place.clone(), is_writable, proxy, &*clock)
    })
}

/// The server that the adapter would take; if there is none, the first that lets us in, to say what it is.
fn connect(address: &Address, limits: Limits) -> Result<(Line, bool), NoFacts> {
    let mut config = address.config.clone();
    config.application_name("assent doctor");
    config.tcp_user_timeout(Duration::from_millis(limits.answer_ms_max));
    let mut open = |wanted| {
        config.target_session_attrs(wanted);
        let at_most = Duration::from_millis(limits.connect_ms_max);
        Line::connect(&config, at_most, Box::new(|_| {})).map_err(unconnected)
    };
    let refused = match open(TargetSessionAttrs::ReadWrite) {
        Ok(line) => return Ok((line, true)),
        Err((_, native)) if native.code == "25006" => match open(TargetSessionAttrs::Any) {
            Ok(line) => return Ok((line, false)),
            Err(refused) => refused,
        },
        Err(refused) => refused,
    };
    Err(NoFacts::new(refused.0, format!("{}: {}", address.place, refused.1.message)))
}

fn ask(
    mut client: Line,
    limits: Limits,
    place: String,
    is_writable: bool,
    proxy: Proxy,
    clock: &dyn Clock,
) -> Result<PostgresFacts, NoFacts> {
    let mut rows = |sql: &str| {
        client.limit(Some(Duration::from_millis(limits.answer_ms_max)));
        rows(&mut client, &place, sql)
    };
    let settings = rows(SETTINGS)?;
    let mut settings = settings.into_iter().flatten();
    let mut next = || settings.next().unwrap_or_default();
    let [version, prepared_max, connections_max, synchronous_commit, synchronous_standby_names] =
        std::array::from_fn(|_| next());
    let [is_standby, started, role, is_superuser, database] = std::array::from_fn(|_| next());
    let prepared = rows(PREPARED)?.iter().map(|row| read_prepared(row)).collect();
    let off = rows(OFF)?.into_iter().flatten().collect();
    let timeouts = rows(TIMEOUTS)?;
    let timeouts_ms = timeouts.iter().map(|row| (text(row, 0).to_owned(), number(text(row, 1)))).collect();
    let replicas = rows(REPLICAS)?.first().map_or_else(Replicas::default, |row| Replicas {
        connected: number(text(row, 0)),
        synchronous: number(text(row, 1)),
        hidden: number(text(row, 2)),
    });
    // A role may be forbidden to know it; then copies are not told apart from strangers.
    let system = rows(SYSTEM).ok().and_then(|rows| rows.into_iter().flatten().next());
    let reads_history = rows(HISTORY)?.first().is_some_and(|row| text(row, 0) == "t");
    let may = rows(ROWS)?.first().map(|row| text(row, 0) == "t");
    let is_plain = rows(PLAIN)?.first().is_some_and(|row| text(row, 0) == "t");
    let kept = may.map(|may| Kept { may, is_plain });
    let before_ms = clock.wall_ms();
    let there_ms = rows(CLOCK)?.first().and_then(|row| text(row, 0).parse().ok()).unwrap_or_default();
    let clock_ahead_ms = ahead_ms(there_ms, before_ms, clock.wall_ms());
    Ok(PostgresFacts {
        place,
        version,
        role,
        is_superuser: is_superuser == "on",
        database,
        is_standby: is_standby == "t",
        is_writable,
        system,
        started,
        prepared_max: number(&prepared_max),
        connections_max: number(&connections_max),
        prepared,
        off,
        synchronous_commit,
        synchronous_standby_names,
        replicas,
        reads_history,
        rows: kept,
        timeouts_ms,
        clock_ahead_ms,
        proxy,
    })
}

fn rows(client: &mut Line, place: &str, sql: &str) -> Result<Vec<Vec<String>>, NoFacts> {
    let rows = client.ask(sql).map_err(|Failure { native, lost }| {
        let kind = if lost { Kind::Unavailable } else { super::codes::judge_work(&native.code) };
        NoFacts::new(kind, format!("{place}: {} {}", native.code, native.message))
    })?;
    Ok(rows.into_iter().map(|Row(columns)| columns.into_iter().map(Option::unwrap_or_default).collect()).collect())
}

fn text(row: &[String], at: usize) -> &str {
    row.get(at).map_or("", String::as_str)
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}

fn read_prepared(row: &[String]) -> Prepared {
    let is_ours = Xid::from_gid(text(row, 0)).is_ok_and(|xid| xid.format() == FORMAT_ID);
    let (owner, database) = (text(row, 1).to_owned(), text(row, 2).to_owned());
    Prepared { is_ours, owner, database, age_s: number(text(row, 3)) }
}

/// What the facts say.
pub(crate) fn judge(facts: &PostgresFacts, sheet: &mut Sheet<'_>) {
    let PostgresFacts { place, version, role, database, .. } = facts;
    sheet.ok(format!("PostgreSQL {version} at {place}, database {database:?}, role {role:?}"));
    judge_side(facts, sheet);
    proxy::judge(&facts.proxy, sheet);
    if !facts.off.is_empty() {
        sheet.error(
            format!("{} off, so a power cut can take back what it has voted", facts.off.join(" and ")),
            "switch it on in postgresql.conf and reload",
        );
    }
    judge_prepared(facts, sheet);
    judge_replicas(facts, sheet);
    facts.rows.iter().for_each(|kept| judge_rows(facts, *kept, sheet));
    judge_timeouts(facts, sheet);
    sheet.clock(facts.clock_ahead_ms);
}

fn judge_side(facts: &PostgresFacts, sheet: &mut Sheet<'_>) {
    if facts.is_standby {
        sheet.error("it is a standby, which does not show its primary's prepared transactions", "name the primary");
    } else if !facts.is_writable {
        sheet.error(
            "default_transaction_read_only is on, so nothing can be written",
            "switch it off for this role and database, or name the primary",
        );
    }
    if facts.system.is_none() {
        sheet.warning(
            format!(
                "role {:?} may not read the system identifier, so what became of a branch can be asked only until the \
                 server is started again",
                facts.role
            ),
            "GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC",
        );
    }
    if facts.is_superuser {
        sheet.note(
            format!("role {:?} is a superuser", facts.role),
            "give Assent a role of its own: the one that clients use there, as only it may finish their branches",
        );
    }
}

fn judge_prepared(facts: &PostgresFacts, sheet: &mut Sheet<'_>) {
    let (held, max) = (u64::try_from(facts.prepared.len()).unwrap_or(u64::MAX), facts.prepared_max);
    let ours = || facts.prepared.iter().filter(|one| one.is_ours);
    let counted = format!("{held} of {max} prepared transactions, {} of them of Assent", ours().count());
    if max == 0 {
        sheet.error(
            "max_prepared_transactions = 0, so it can prepare nothing",
            "set it to at least max_connections in postgresql.conf and restart the server",
        );
    } else if held.saturating_mul(5) >= max.saturating_mul(4) {
        sheet.warning(counted, "raise max_prepared_transactions, or see who leaves them: the next vote may be a no");
    } else {
        sheet.ok(counted);
        if max < facts.connections_max {
            sheet.note(
                format!("max_prepared_transactions = {max} is less than max_connections = {}", facts.connections_max),
                "with as many the slots cannot run out before the connections do",
            );
        }
    }
    let oldest = |is_ours| facts.prepared.iter().filter(|one| one.is_ours == is_ours).map(|one| one.age_s).max();
    if let Some(age_s) = oldest(true).filter(|age_s| *age_s > OURS_AGE_S) {
        sheet.warning(
            format!("a branch of Assent is prepared for {age_s} s; it keeps its locks and holds vacuum back"),
            "ask its coordinator: assent tx list",
        );
    }
    if let Some(age_s) = oldest(false).filter(|age_s| *age_s > THEIRS_AGE_S) {
        sheet.warning(
            format!("somebody else's transaction is prepared for {age_s} s and holds vacuum back"),
            "SELECT * FROM pg_prepared_xacts says whose; have its owner finish it",
        );
    }
    let (here, elsewhere): (Vec<_>, Vec<_>) = ours().partition(|one| one.database == facts.database);
    let foreign = here.iter().find(|one| one.owner != facts.role).filter(|_| !facts.is_superuser);
    if let Some(Prepared { owner, .. }) = foreign {
        sheet.warning(
            format!("a branch of Assent here belongs to role {owner:?}, and role {:?} cannot finish it", facts.role),
            "let clients and this url use the same role; a member of it is refused too",
        );
    }
    if let Some(Prepared { database, .. }) = elsewhere.first() {
        sheet.note(
            format!("{} branches of Assent are in other databases of this server, e.g. {database:?}", elsewhere.len()),
            "each of them must be a resource of its coordinator: a branch is finished only from its own database",
        );
    }
}

fn judge_replicas(facts: &PostgresFacts, sheet: &mut Sheet<'_>) {
    let Replicas { connected, synchronous, hidden } = facts.replicas;
    let lost = "a fail-over can lose a branch that had voted";
    if facts.synchronous_standby_names.is_empty() {
        if connected > 0 {
            sheet.warning(
                format!("{connected} standbys follow, and none is waited for: {lost}"),
                "set synchronous_standby_names",
            );
        }
    } else if matches!(facts.synchronous_commit.as_str(), "off" | "local") {
        sheet.warning(
            format!("synchronous_commit = {}, so standbys are not waited for: {lost}", facts.synchronous_commit),
            "set it to on for this role and database",
        );
    } else if synchronous == 0 && hidden == 0 {
        sheet.warning(
            "synchronous_standby_names is set and no such standby is connected: every vote and commit waits for one",
            "start the standby",
        );
    } else if synchronous == 0 {
        sheet.note(
            format!("{connected} standbys follow; role {:?} may not see whether one is synchronous", facts.role),
            "GRANT pg_read_all_stats lets it see",
        );
    }
    if (connected > 0 || !facts.synchronous_standby_names.is_empty()) && !facts.reads_history {
        sheet.note(
            format!(
                "role {:?} may not read timeline histories: what became of a branch that is missing after a fail-over then takes a person",
                facts.role
            ),
            format!("GRANT EXECUTE ON FUNCTION pg_read_file(text) TO {:?} (on the primary; it may then read any file of \
                 the data folder)", facts.role),
        );
    }
    if facts.synchronous_commit == "off" {
        sheet.note(
            "synchronous_commit = off: a commit in one phase is answered before it is on disk",
            "votes and second phases are always flushed; set it to on if one-phase commits must be too",
        );
    }
}

fn judge_rows(facts: &PostgresFacts, kept: Kept, sheet: &mut Sheet<'_>) {
    let role = &facts.role;
    if !kept.may {
        sheet.error(
            format!("role {role:?} may not settle what last resources keep in assent_rows.decisions: what they leave in doubt stays so"),
            format!("as the table's owner: GRANT USAGE ON SCHEMA assent_rows TO {role:?}; GRANT SELECT, INSERT, DELETE ON assent_rows.decisions TO {role:?}"),
        );
    }
    if !kept.is_plain {
        sheet.error(
            "assent_rows.decisions is not as it was made: a row that is put there may not stand there",
            "take away its triggers, rules and row security; it must be logged, have the primary key (tx), and number NOT NULL",
        );
    }
    if facts.system.is_none() {
        sheet.error(
            format!(
                "role {role:?} may not know which server this is: nothing in assent_rows.decisions is believed without"
            ),
            "GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system() TO PUBLIC",
        );
    }
    if !facts.reads_history {
        sheet.note(
            format!(
                "role {role:?} may not read timeline histories: a copy of this server that was promoted elsewhere would be believed for what \
                 assent_rows.decisions says"
            ),
            format!("have the url lead to the server itself, or GRANT EXECUTE ON FUNCTION pg_read_file(text) TO {role:?}"),
        );
    }
}

fn judge_timeouts(facts: &PostgresFacts, sheet: &mut Sheet<'_>) {
    for (name, ms) in &facts.timeouts_ms {
        let means = match name.as_str() {
            "idle_in_transaction_session_timeout" => "a transaction that pauses longer before its vote is rolled back",
            "idle_session_timeout" => "a connection that rests longer is closed",
            _ => "what takes longer is rolled back; deferred checks run in the vote",
        };
        sheet.note(format!("{name} = {ms} ms: {means}"), "nothing, if clients are quicker");
    }
}

#[cfg(test)]
#[path = "doctor_test.rs"]
mod tests;
