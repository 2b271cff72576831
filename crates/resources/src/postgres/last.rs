//! A last resource: a branch that is not prepared, and commits together with a row that says that the transaction is committed.
//!
//! Walk: [`Session::open_last`] finds the table, or makes it · [`Session::is_last`] a branch that ends has surely written · its
//! commit, one message: the row, COMMIT · recovery: [`Session::settle`] has its own row stand where no client's does, and reads
//! which · [`Session::rows`], [`Session::clear`] lets go of what nobody needs.
//! The table's primary key is node and transaction, so one row stands for each, whoever was first; a client's that is not committed
//! yet has recovery wait, a quarter of a second at most.
//! **When recovery's row may go**: once nobody can write the client's. Its number is its transaction's, given when the others' branches
//! were prepared by then; the client's transaction had its own before, as its row is refused where it has none (NOT NULL) and
//! nothing but the row was said since the others were asked. So when all that were open with a number as low as recovery's are over
//! (`txid_snapshot_xmin`), the client's is over too. No lock and no session is relied on.
//! Trap: under synchronous_commit = off neither row would be durable when it is answered: that is switched on for the transaction; recovery's
//! own waits for the disk, and for the standby behind it.
//! Trap: a connection to another database of the same name would find no row, and put its own there. So the table has a number of its
//! own (the row with the empty key), which the branches' XIDs carry; which database of which cluster it is, is in it.
//! Trap: an old primary that still answers has the table, too, and knows nothing of what was decided since the fail-over. So XIDs carry the
//! timeline of the client's server as well, and one that is behind it, or is seen to have gone another way, puts no row and reads none.
//! Trap: a connection may go on at another server, behind a proxy, or its table be made anew. So the client's row proves what the others' XIDs
//! say: where it does not, its number is NULL, and nothing of the transaction stands.
//! Trap: a schema of a role's name is the first in its search path ("$user"), and its new tables would go there. So the schema has a
//! name that no role has.
//! Deliberately absent: what follows from a row (`coordinator`).

use assent_ids::{Branch, Mark, NodeId, ResourceId, TxId, Xid};
use assent_kind::Kind;
use assent_world::{Dice as _, RealDice};
use assent_xa::{Heuristic, Native, ROWS_MAX, Reply, Verb};

use super::answer::{COMMITTED, Row};
use super::client::Way;
use super::codes::Step;
use super::failure::Failure;
use super::line::Begin;
use super::prepared::{NO_STATEMENT, Prepared};
use super::reading::Asking;
use super::recovery::unreadable;
use super::session::Session;
use super::truth::descends;
use super::witness::{Evidence, Witness};
use crate::kept::said;
use crate::stand::Stand;

/// What makes the table. Said by the adapter where it may, else by a person.
pub(crate) const TABLE: &str = "CREATE SCHEMA IF NOT EXISTS assent_rows; \
     CREATE TABLE IF NOT EXISTS assent_rows.decisions (tx pg_catalog.bytea PRIMARY KEY, outcome pg_catalog.\"char\" NOT NULL, \
     number pg_catalog.int8 NOT NULL, votes pg_catalog.bytea NOT NULL); \
     CREATE INDEX IF NOT EXISTS decisions_of_recovery ON assent_rows.decisions (tx) WHERE outcome = 'r'; \
     COMMENT ON TABLE assent_rows.decisions IS 'Decisions of distributed transactions. A row that is deleted, changed or copied by hand \
     can undo half of one: Assent deletes them itself.'";
/// What tells this table from any other: what was rolled when it was made, which database of the server this is, and which cluster, so
/// that one that was made as a copy is another one.
const NUMBER: &str = "(home.number OPERATOR(pg_catalog.#) (SELECT oid::pg_catalog.int8 FROM pg_catalog.pg_database \
     WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()) \
     OPERATOR(pg_catalog.#) (SELECT system_identifier FROM pg_catalog.pg_control_system()))";
/// Which table it is by now: one that was made anew is another one.
const TABLE_NOW: &str = "pg_catalog.to_regclass('assent_rows.decisions')::pg_catalog.oid::pg_catalog.int8";
const OF_HOME: &str = "FROM assent_rows.decisions AS home WHERE home.tx OPERATOR(pg_catalog.=) ''::pg_catalog.bytea";
/// Whether there is such a table, also for a role that may not see into its schema; and what this role may do with it.
const THERE: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_class AS it JOIN pg_catalog.pg_namespace AS space \
     ON space.oid OPERATOR(pg_catalog.=) it.relnamespace WHERE space.nspname OPERATOR(pg_catalog.=) 'assent_rows' \
     AND it.relname OPERATOR(pg_catalog.=) 'decisions')";
const MAY: &str = "SELECT pg_catalog.has_table_privilege('assent_rows.decisions', 'INSERT') \
     AND pg_catalog.has_table_privilege('assent_rows.decisions', 'SELECT')";
/// Whether a row stands where it was put, is the only one of its key, has a number, and is there after a crash: a plain table, and nobody
/// between.
pub(super) const PLAIN: &str = "SELECT it.relkind OPERATOR(pg_catalog.=) 'r' AND it.relpersistence OPERATOR(pg_catalog.=) 'p' \
     AND NOT it.relrowsecurity \
     AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid OPERATOR(pg_catalog.=) it.oid) \
     AND NOT EXISTS (SELECT FROM pg_catalog.pg_rewrite WHERE ev_class OPERATOR(pg_catalog.=) it.oid) \
     AND EXISTS (SELECT FROM pg_catalog.pg_index AS key JOIN pg_catalog.pg_attribute AS part \
     ON part.attrelid OPERATOR(pg_catalog.=) it.oid AND part.attnum OPERATOR(pg_catalog.=) key.indkey[0] \
     WHERE key.indrelid OPERATOR(pg_catalog.=) it.oid AND key.indisprimary AND key.indimmediate AND key.indisvalid \
     AND key.indnatts OPERATOR(pg_catalog.=) 1 AND part.attname OPERATOR(pg_catalog.=) 'tx') \
     AND EXISTS (SELECT FROM pg_catalog.pg_attribute AS part WHERE part.attrelid OPERATOR(pg_catalog.=) it.oid \
     AND part.attname OPERATOR(pg_catalog.=) 'number' AND part.attnotnull) \
     FROM pg_catalog.pg_class AS it JOIN pg_catalog.pg_namespace AS space ON space.oid OPERATOR(pg_catalog.=) it.relnamespace \
     WHERE space.nspname OPERATOR(pg_catalog.=) 'assent_rows' AND it.relname OPERATOR(pg_catalog.=) 'decisions'";
/// So that what is answered is durable. Its value is never used.
const DURABLE: &str = "CASE WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) 'off' \
     THEN pg_catalog.set_config('synchronous_commit', 'on', true) IS NOT NULL ELSE true END";
/// Writes to the log, so that its transaction waits for what other commits wait for: something may be seen that no standby has, when the
/// server was restarted beneath its client, or that one's session ended while it waited. True.
pub(super) const LOGGED: &str = "pg_catalog.pg_logical_emit_message(true, 'assent', ''::pg_catalog.text) IS NOT NULL";
/// What recovery writes itself waits for its disk alone: what it must not tell before a standby has it is waited for behind that
/// ([`Session::wait_for_standby`]), as the wait of a transaction within its own commit would have no end, and keep the claim.
const HERE_ALONE: &str = "pg_catalog.set_config('synchronous_commit', 'local', true)";
/// A client's row that is not committed yet may stay so for ever.
const PATIENCE: &str = "pg_catalog.set_config('lock_timeout', '250ms', true)";
/// Nothing is sorted that an index has in its order.
const BY_KEY: &str =
    "SELECT pg_catalog.set_config('enable_sort', 'off', true), pg_catalog.set_config('enable_bitmapscan', 'off', true)";
/// SQLSTATEs: nobody waits for ever; the statement was cut short.
const CUT_SHORT: [&str; 2] = ["55P03", "57014"];
/// SQLSTATE of a missing right.
const DENIED: &str = "42501";
/// SQLSTATE of a row without a number.
const NO_NUMBER: &str = "23502";
/// Others after which this connection keeps no decisions any more: a right that the transaction has put down, a table or schema that has
/// gone, a transaction that may only read by now.
const KEEPS_NONE: [&str; 4] = [DENIED, "42P01", "3F000", "25006"];
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Where a branch may decide, and by what words.
#[derive(Debug)]
pub(super) struct Last {
    /// The number that the others' XIDs carry.
    table: u64,
    /// The row, for a transaction and its votes. It has no number, and is refused with all of the transaction, where this is not the
    /// table, the server process and the timeline that the others' XIDs stand for, by which recovery looks for it.
    sql: String,
    row: Prepared,
    /// Its row is on its way by what is prepared.
    is_asked: bool,
}

/// Nothing that was prepared is there any more.
pub(super) fn let_go<const N: usize>(asks: &mut Option<[Prepared; N]>, last: &mut Option<Last>) {
    let rows = last.iter_mut().map(|last| &mut last.row);
    asks.iter_mut().flatten().chain(rows).for_each(|asked| asked.answered(false));
}

/// The votes that a last resource keeps.
pub(super) fn votes(verb: &Verb) -> &[u8] {
    if let Verb::CommitLast { votes, .. } = verb { votes } else { &[] }
}

/// What a row is found by: the first 24 bytes of every XID of the transaction.
fn key(node: NodeId, tx: TxId) -> Vec<u8> {
    Branch { node, tx, resource: ResourceId(0), number: 0, flags: 0, mark: None }.xid().gtrid().to_vec()
}

/// Bytes as a literal, whatever `standard_conforming_strings` is.
fn literal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2 + 40);
    text.push_str("pg_catalog.decode('");
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(HEX.get(usize::from(digit)).copied().map_or('0', char::from));
        }
    }
    text.push_str("', 'hex')");
    text
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// The keys of a node: from here on, and before there.
fn keys(node: NodeId) -> String {
    let from = literal(&Branch::prefix(node));
    let upto = match node.0.checked_add(1) {
        Some(next) => format!(" AND tx OPERATOR(pg_catalog.<) {}", literal(&Branch::prefix(NodeId(next)))),
        None => String::new(),
    };
    format!("tx OPERATOR(pg_catalog.>=) {from}{upto}")
}

/// How the server's timeline compares with this one: asked beside what is done, as a proxy may lead to another one in between.
fn timeline_is(operator: &str, timeline: u32) -> String {
    format!(
        "pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8) COLLATE pg_catalog.\"C\" \
         OPERATOR(pg_catalog.{operator}) '{timeline:08X}'"
    )
}

/// Whose row it is.
fn transaction(key: &[u8]) -> Option<TxId> {
    let zeros = [0; 12];
    Xid::new(assent_ids::FORMAT_ID, key, &zeros).ok()?.branch().map(|branch| branch.tx)
}

impl Session {
    /// Finds the table or makes it; from then on branches on this connection decide.
    pub(super) fn open_last(&mut self) -> Result<(), (Kind, Native)> {
        if self.asking == Asking::Needless {
            return Err((
                Kind::Invalid,
                said("this connection only reads, and a last resource writes its row".to_owned()),
            ));
        }
        if matches!(self.client.0, Way::Given(_)) {
            let message =
                "a connection of the caller's own does not tell whether a transaction is open; connect by a URL";
            return Err((Kind::Invalid, said(message.to_owned())));
        }
        let process = if let Way::Line(line) = &self.client.0 { line.process() } else { None };
        let Some(process) = process.filter(|_| self.asks.is_some()) else {
            let message = "another process answers than the one that greeted: a pool, which may lead to another server in between, where \
                           nobody would look for the decision; a last resource needs a connection of its own";
            return Err((Kind::Invalid, said(message.to_owned())));
        };
        let (Some(_), Some(timeline)) = (&self.place.system, self.place.timeline) else { return Err(denied_place()) };
        let failed = |failure: Failure| match failure.native {
            native if native.code == DENIED => denied(native.message),
            native => (super::codes::judge_connect(&native.code), native),
        };
        let is = |rows: Vec<Row>| rows.first().and_then(|row| row.word(0)) == Some("t");
        // Somebody else may make it at the same time.
        if !is(self.ask(|_| THERE).map_err(failed)?)
            && let Err(failure) = self.ask(|_| TABLE)
            && !is(self.ask(|_| THERE).map_err(failed)?)
        {
            return Err(unmade(failure.native));
        }
        if !is(self.ask(|_| MAY).map_err(failed)?) {
            return Err(denied("this role may not write to assent_rows.decisions".to_owned()));
        }
        if !is(self.ask(|_| PLAIN).map_err(failed)?) {
            let message = "assent_rows.decisions is not as it was made: it must be a plain logged table with the primary key (tx), without \
                           triggers, rules and row security, so that a row that was put there stands there";
            return Err((Kind::Invalid, said(message.to_owned())));
        }
        let number = RealDice.roll().cast_signed();
        let home = format!(
            "INSERT INTO assent_rows.decisions (tx, outcome, number, votes) SELECT ''::pg_catalog.bytea, 'h', {number}, \
             ''::pg_catalog.bytea WHERE {DURABLE} ON CONFLICT DO NOTHING"
        );
        let question = format!("SELECT {NUMBER}, {TABLE_NOW} {OF_HOME}");
        let mut found = self.ask(|_| &question).map_err(failed)?;
        if found.is_empty() {
            self.ask(|_| home).map_err(failed)?;
            found = self.ask(|_| &question).map_err(failed)?;
        }
        let word = |at| found.first().and_then(|row| row.word(at)).and_then(|word| word.parse::<i64>().ok());
        let (Some(table), Some(made)) = (word(0), word(1)) else {
            return Err((Kind::Internal, said("assent_rows.decisions has no number of its own".to_owned())));
        };
        // No table is read: under SERIALIZABLE all who overlap would conflict there, and a plan that is kept may read all of it.
        let home = format!("{TABLE_NOW} OPERATOR(pg_catalog.=) {made}");
        let here =
            format!("pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {process} AND {}", timeline_is("=", timeline));
        self.last = Some(Last {
            table: table.cast_unsigned(),
            sql: format!(
                "INSERT INTO assent_rows.decisions (tx, outcome, number, votes) SELECT $1, 'c', CASE WHEN {home} AND {here} \
                 THEN pg_catalog.txid_current_if_assigned() END, $2 WHERE {DURABLE} RETURNING number, pg_catalog.pg_current_wal_insert_lsn()"
            ),
            row: Prepared::named("assent_row", RealDice.roll()),
            is_asked: false,
        });
        Ok(())
    }

    /// Where a branch on this connection may decide.
    pub(super) fn decides(&self) -> Option<Mark> {
        let table = self.last.as_ref()?.table;
        Some(Mark { resource: self.resource, table, timeline: self.place.timeline? })
    }

    /// Whether the branch that ends may decide: by the tags of its answers it has written rows, in a transaction that is open. One of
    /// which that is not sure is asked to vote as ever.
    pub(super) fn is_last(&mut self) -> bool {
        if self.last.is_none() || *self.begun() != Begin::Said {
            return false;
        }
        match &mut self.client.0 {
            Way::Line(line) => line.is_open() && line.pace().has_written(),
            Way::Given(_) => false,
        }
    }

    /// The row, and the end of the transaction behind it, on their way in one message; or what is still to be said.
    pub(super) fn send_last(&mut self, xid: &Xid, votes: &[u8]) -> Option<String> {
        let (Way::Line(line), Some(last)) = (&mut self.client.0, &mut self.last) else {
            return Some(ROLLBACK.to_owned());
        };
        let is_open = line.is_open();
        last.is_asked = is_open && self.asks.is_some();
        if !last.is_asked {
            let row = last.sql.replace("$1", &literal(xid.gtrid())).replace("$2", &literal(votes));
            // As with any other end: a transaction that has failed, or that is not there, must not have the row alone committed.
            let savepoint = if is_open { "" } else { "SAVEPOINT assent_vote; " };
            return Some([savepoint, &row, "; ", COMMIT].concat());
        }
        if line.has_let_go() {
            let_go(&mut self.asks, &mut self.last);
        }
        if let Some(Last { row, sql, .. }) = &self.last {
            line.send_asked(row, (sql, &[xid.gtrid(), votes]), Some((COMMIT, COMMITTED)));
        }
        None
    }

    fn hear_last(&mut self, xid: &Xid, votes: &[u8]) -> Result<Vec<Row>, Failure> {
        if !matches!(&self.client.0, Way::Line(line) if line.is_awaited())
            && let Some(in_full) = self.send_last(xid, votes)
        {
            return self.client.ask(&in_full);
        }
        let answer = self.ask(|_| "");
        if let Some(last) = self.last.as_mut().filter(|last| last.is_asked) {
            last.row.answered(answer.is_ok());
            if answer.as_ref().is_err_and(|failure| failure.is(NO_STATEMENT)) {
                // Somebody has let go of it in the dark, and may do so each time.
                self.asks = None;
            }
        }
        answer
    }

    pub(super) fn commit_last(&mut self, xid: Xid, votes: &[u8]) -> Reply {
        if self.last.is_none() {
            return match self.roll_back_open(xid) {
                Reply::Done => Reply::RolledBack(said("this connection keeps no decisions".to_owned())),
                other => other,
            };
        }
        match self.hear_last(&xid, votes) {
            Ok(answer) => {
                let row = answer.first();
                let number = row.and_then(|row| row.word(0)?.parse().ok());
                let place = row.and_then(|row| row.word(1)?.parse().ok());
                self.stand = Stand::Idle;
                let (Some(number), Some(place)) = (number, place) else {
                    self.last = None;
                    let message = "COMMIT was answered, and the row of assent_rows.decisions was not: somebody has changed that table";
                    // Its work stands, and no row tells anybody else.
                    return Reply::Heuristic(Heuristic::Committed, said(message.to_owned()));
                };
                let role = self.role.clone().unwrap_or_default();
                self.witness = Witness::write(&self.place, &Evidence { number, place, role });
                Reply::Done
            }
            Err(failure) => {
                let failure = self.refused_row(failure);
                self.failed_vote(Step::OnePhase, xid, failure)
            }
        }
    }

    /// Whose row was refused is asked to vote from now on, as any other.
    fn refused_row(&mut self, failure: Failure) -> Failure {
        let Native { code, message } = &failure.native;
        let why = match code.as_str() {
            _ if failure.lost => return failure,
            // What it wrote may be elsewhere (a foreign table, a trigger's work): its tags do not tell.
            NO_NUMBER => {
                "this connection leads to another server, timeline or table than when it was opened, or nothing was written there"
            }
            code if KEEPS_NONE.contains(&code) => {
                "the transaction may not put a row into assent_rows.decisions: a role or a mode of its own, or somebody has changed that table"
            }
            _ => return failure,
        };
        self.last = None;
        let message = format!("{why}; the next branch on this connection votes ({message})");
        Failure { native: Native { code: code.clone(), message }, ..failure }
    }

    /// What stands for a transaction; recovery's own row where nothing did.
    pub(super) fn settle(&mut self, node: NodeId, tx: TxId, mark: Mark) -> Reply {
        self.settled(node, tx, mark).unwrap_or_else(|reply| reply)
    }

    /// Either way an answer; the error's is early.
    fn settled(&mut self, node: NodeId, tx: TxId, Mark { table, timeline, .. }: Mark) -> Result<Reply, Reply> {
        if !self.has_table()? {
            let nothing = || Reply::Refused(Kind::Internal, said("its table came just now".to_owned()));
            return Err(self.other_table(table).unwrap_or_else(nothing));
        }
        self.came_with(timeline)?;
        let (key, is_up) = (literal(&key(node, tx)), timeline_is(">=", timeline));
        let own = format!(
            "SELECT {PATIENCE}, {HERE_ALONE}; INSERT INTO assent_rows.decisions (tx, outcome, number, votes) SELECT {key}, 'r', \
             pg_catalog.txid_current(), ''::pg_catalog.bytea {OF_HOME} \
             AND {NUMBER} OPERATOR(pg_catalog.=) ({signed})::pg_catalog.int8 AND {is_up} ON CONFLICT DO NOTHING",
            signed = table.cast_signed()
        );
        match self.ask_primary(&own) {
            Ok(_) => {}
            Err(Reply::Refused(_, native) | Reply::RolledBack(native)) if CUT_SHORT.contains(&native.code.as_str()) => {
                return Err(Reply::Refused(Kind::Busy, native));
            }
            Err(reply) => return Err(self.other_table(table).unwrap_or(reply)),
        }
        // A statement and a transaction of its own: it sees what the first one waited for.
        let standing = format!(
            "SELECT outcome, pg_catalog.encode(votes, 'hex') FROM assent_rows.decisions WHERE tx OPERATOR(pg_catalog.=) {key} \
             AND {is_up}"
        );
        let rows = self.ask_primary(&standing)?;
        // Who committed the row may not have waited for it: its session ended, or the server was started again beneath it.
        self.wait_for_all()?;
        let word = |at| rows.first().and_then(|row| row.word(at));
        match (word(0), word(1).and_then(unhex)) {
            (Some("c"), Some(votes)) => Ok(Reply::Row(Some(votes))),
            (Some("r"), _) => Ok(Reply::Row(None)),
            _ => {
                let nothing = || said(format!("no row stands for {tx}, and none could be put there"));
                Err(self.other_table(table).unwrap_or_else(|| Reply::Refused(Kind::Internal, nothing())))
            }
        }
    }

    /// Until all that can be read here is durable, and where its standby has it.
    fn wait_for_all(&mut self) -> Result<(), Reply> {
        self.wait_for_standby(&format!("PERFORM {DURABLE}; ")).map_err(|failure| failure.judged(Step::Other))
    }

    /// Refuses where the server is behind the client's timeline, or is of another branch of that history: an old primary.
    fn came_with(&mut self, timeline: u32) -> Result<(), Reply> {
        let failed = |failure: Failure| failure.judged(Step::Other);
        let now = self.here().map_err(failed)?.ok_or_else(unreadable)?.timeline;
        let history = if now > timeline { self.history(now).map_err(failed)? } else { None };
        descends(timeline, now, history.as_deref()).map_err(|native| Reply::Refused(Kind::Unavailable, native))
    }

    /// Whether there is a table.
    fn has_table(&mut self) -> Result<bool, Reply> {
        Ok(self.ask_primary(THERE)?.first().and_then(|row| row.word(0)) == Some("t"))
    }

    /// Why no row could be put there: this is another database than the client's.
    fn other_table(&mut self, wanted: u64) -> Option<Reply> {
        let question = format!("SELECT {NUMBER} {OF_HOME}");
        let found = match self.has_table() {
            Ok(true) => self.ask_primary(&question).ok()?.first()?.word(0)?.parse::<i64>().ok(),
            Ok(false) => None,
            Err(_) => return None,
        };
        if found.map(i64::cast_unsigned) == Some(wanted) {
            return None;
        }
        let has = if found.is_some() { "another table" } else { "no table" };
        let message = format!(
            "this database has {has} assent_rows.decisions than the client's: the decision stands where the client works; have the \
             resource's url lead to that database. If it does, the table was made anew or emptied meanwhile, and a person must decide"
        );
        Some(Reply::Refused(Kind::Invalid, said(message)))
    }

    /// The rows that say commit. Recovery's own go here, when their time has come; one that a fail-over brings back goes again.
    pub(super) fn rows(&mut self, node: NodeId, after: Option<TxId>) -> Reply {
        self.kept_rows(node, after).unwrap_or_else(|reply| reply)
    }

    fn kept_rows(&mut self, node: NodeId, after: Option<TxId>) -> Result<Reply, Reply> {
        if !self.has_table()? {
            return Ok(Reply::Rows(Vec::new()));
        }
        let keys = keys(node);
        let behind = after.map(|tx| format!(" AND tx OPERATOR(pg_catalog.>) {}", literal(&key(node, tx))));
        let behind = behind.unwrap_or_default();
        if after.is_none() {
            self.ask_primary(&format!(
                "SELECT {HERE_ALONE}; DELETE FROM assent_rows.decisions WHERE {keys} AND outcome OPERATOR(pg_catalog.=) 'r' AND number \
                 OPERATOR(pg_catalog.<) pg_catalog.txid_snapshot_xmin(pg_catalog.txid_current_snapshot())"
            ))?;
        }
        // By the key's order, whatever is known of so young a table: a page of millions sorted would be none in time.
        let question = format!(
            "{BY_KEY}; SELECT pg_catalog.encode(tx, 'hex'), pg_catalog.encode(votes, 'hex') FROM assent_rows.decisions WHERE {keys} \
             AND outcome OPERATOR(pg_catalog.=) 'c'{behind} ORDER BY tx LIMIT {ROWS_MAX}"
        );
        let rows = self.ask_primary(&question)?;
        // The first is the settings'. Who follows a row must find it behind a fail-over, too.
        if rows.len() > 1 {
            self.wait_for_all()?;
        }
        let read = |row: &Row| Some((transaction(&unhex(row.word(0)?)?)?, unhex(row.word(1)?)?));
        Ok(Reply::Rows(rows.iter().skip(1).filter_map(read).collect()))
    }

    /// These are finished.
    pub(super) fn clear(&mut self, node: NodeId, txs: &[TxId]) -> Reply {
        if txs.is_empty() {
            return Reply::Done;
        }
        let list: Vec<String> = txs.iter().map(|tx| literal(&key(node, *tx))).collect();
        let words = format!(
            "SELECT {HERE_ALONE}; DELETE FROM assent_rows.decisions WHERE outcome OPERATOR(pg_catalog.=) 'c' AND tx OPERATOR(pg_catalog.=) ANY (ARRAY[{}])",
            list.join(", ")
        );
        self.ask_primary(&words).map_or_else(|reply| reply, |_| Reply::Done)
    }
}

/// Nobody could tell this server from an old primary, or from a copy.
fn denied_place() -> (Kind, Native) {
    let message = "a last resource must know which server it is, and on which timeline, which this role may not read; as a superuser: \
                   GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system() TO PUBLIC";
    (Kind::Denied, Native { code: DENIED.to_owned(), message: message.to_owned() })
}

/// The table is there, and not for this role.
fn denied(message: String) -> (Kind, Native) {
    let message = format!(
        "{message}: a last resource keeps its decisions in assent_rows.decisions; as its owner: GRANT USAGE ON SCHEMA assent_rows TO the role; \
         GRANT SELECT, INSERT, DELETE ON assent_rows.decisions TO the role"
    );
    (Kind::Denied, Native { code: DENIED.to_owned(), message })
}

/// The table is missing, and this role may not make it.
fn unmade(Native { code, message }: Native) -> (Kind, Native) {
    let message =
        format!("{message}: a last resource keeps its decisions in a table; as the database's owner: {TABLE}");
    (super::codes::judge_connect(&code), Native { code, message })
}

#[cfg(test)]
mod tests {
    use assent_ids::{Epoch, Incarnation};

    use super::*;

    const TX: TxId = TxId { incarnation: Incarnation { epoch: Epoch(9), number: 2 }, counter: 77 };

    #[test]
    fn a_row_is_found_by_what_all_branches_of_its_transaction_begin_with() {
        let node = NodeId(0x0102_0304_0506_0708);
        let key = key(node, TX);
        assert_eq!(transaction(&key), Some(TX));
        assert_eq!(literal(&key), "pg_catalog.decode('01020304050607080000000900000002000000000000004d', 'hex')");
        assert_eq!(unhex("01fF"), Some(vec![1, 255]));
        assert_eq!((unhex("0"), unhex("0g"), transaction(&key[..23]), transaction(&[])), (None, None, None, None));
    }

    #[test]
    fn a_nodes_keys_end_where_the_next_nodes_begin() {
        assert!(keys(NodeId(1)).contains(
            "('0000000000000001', 'hex') AND tx OPERATOR(pg_catalog.<) pg_catalog.decode('0000000000000002'"
        ));
        assert!(!keys(NodeId(u64::MAX)).contains(" AND "), "the last one's end nowhere");
    }
}
