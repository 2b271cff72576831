//! What a connection is asked before it is used, and what only recovery asks: a list, its claim, what became of a branch.
//!
//! Trap: a standby lists no prepared transactions, whatever its primary holds; they appear when it is promoted. So
//! every question begins with whether this is one: a list that lacks a branch counts as a proof that it is finished.
//! Trap: a branch may be committed here that no synchronous standby has, where its client's session ended while it waited. Who
//! believed it would forget what the standby, promoted, has prepared again. So that is waited for (`wait_for_standby`).
//! Deliberately absent: what an answer means (`truth.rs`, `claim.rs`, `codes.rs`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use assent_ids::{Branch, FORMAT_ID, NodeId, ResourceId, Xid};
use assent_kind::Kind;
use assent_world::{Dice as _, RealDice};
use assent_xa::{Native, Past, Reply, Stay};

use super::answer::Row;
use super::client::PostgresClient;
use super::codes::Step;
use super::failure::Failure;
use super::last::LOGGED;
use super::session::{Session, gid};
use super::truth::{Here, Relation, came_along, compare, history_file, past};
use super::witness::{Place, Witness, timeline};
use super::{claim, refused};
use crate::kept::said;

const PREPARES: &str =
    "SHOW max_prepared_transactions; SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.pg_backend_pid()";
/// Fails on a standby, and for a role that may not read it.
const HERE: &str = "SELECT system_identifier, pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), \
     pg_catalog.current_database(), pg_catalog.pg_current_wal_insert_lsn() FROM pg_catalog.pg_control_system()";
/// What everybody may know of a server: when it was started.
const RUN: &str = "SELECT (extract(epoch FROM pg_catalog.pg_postmaster_start_time()) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8, \
     pg_catalog.current_database()";
/// One message, so that no pool puts another server between its parts. A server never goes back to being a standby without
/// a restart, and has its prepared transactions before it says that it is none any more.
const SIDE: &str = "SELECT pg_catalog.pg_is_in_recovery(); SELECT pg_catalog.pg_backend_pid()";

/// A server that cannot prepare, or is a standby, must be told now, not at the first vote.
pub(super) fn checked(
    mut client: PostgresClient,
    resource: ResourceId,
    was_open: Arc<AtomicBool>,
) -> Result<Session, (Kind, Native)> {
    // Where its place cannot be read, a vote's witness holds for this run of it; where nothing can, it is used without.
    let mut answered = client.ask(&format!("{PREPARES}; {HERE}"));
    let mut read: fn(&Row) -> Place = read_place;
    for less in [format!("{PREPARES}; {RUN}"), PREPARES.to_owned()] {
        if answered.as_ref().is_err_and(|failure| !failure.lost) {
            (answered, read) = (client.ask(&less), read_run);
        }
    }
    let answered = answered.map_err(refused)?;
    let mut rows = answered.iter();
    let prepares = rows.next().and_then(|row| row.word(0));
    let side = rows.next();
    let process = side.and_then(|row| row.word(1)).and_then(|word| word.parse().ok());
    match (prepares, side.and_then(|row| row.word(0))) {
        (Some(_), Some("t")) => Err((Kind::Unavailable, standby())),
        (Some("0"), Some("f")) => Err((
            Kind::Invalid,
            said(
                "max_prepared_transactions = 0, so it can prepare nothing; set it to at least max_connections in \
                 postgresql.conf and restart the server"
                    .to_owned(),
            ),
        )),
        (Some(_), Some("f")) => {
            let place = rows.next().map_or_else(Place::default, read);
            Ok(Session::new(client, resource, place, process, was_open))
        }
        _ => Err((Kind::Internal, said(format!("{PREPARES:?} was not answered")))),
    }
}

fn read_place(row: &Row) -> Place {
    Place {
        system: row.word(0).and_then(|word| word.parse().ok()),
        timeline: row.word(1).and_then(timeline),
        run: None,
        database: row.word(2).unwrap_or_default().to_owned(),
    }
}

/// Of [`RUN`].
fn read_run(row: &Row) -> Place {
    let run = row.word(0).and_then(|word| word.parse().ok());
    Place { run, database: row.word(1).unwrap_or_default().to_owned(), ..Place::default() }
}

/// A prepared branch, and who looks at it.
struct Seen {
    database: String,
    owner: String,
    our_database: String,
    our_role: String,
    /// Whether this connection may finish it.
    is_here: bool,
    is_ours: bool,
}

impl Seen {
    fn read(row: &Row) -> Self {
        let word = |at| row.word(at).unwrap_or_default().to_owned();
        let [database, owner, our_database, our_role] = std::array::from_fn(word);
        Self {
            is_here: database == our_database,
            is_ours: row.word(4) == Some("t"),
            database,
            owner,
            our_database,
            our_role,
        }
    }

    /// Why it cannot be finished from here.
    fn obstacle(&self) -> Option<(Kind, String)> {
        let Self { database, owner, our_database, our_role, .. } = self;
        if !self.is_here {
            let message = format!(
                "the branch is of database {database:?}, and this connection is to {our_database:?}: it is finished \
                 only from its own; name that in the url"
            );
            return Some((Kind::Invalid, message));
        }
        (!self.is_ours).then(|| {
            let message = format!(
                "the branch is of role {owner:?}, and this connection is of {our_role:?}: only {owner:?} itself or a \
                 superuser may finish it, being a member is not enough; connect as {owner:?}"
            );
            (Kind::Denied, message)
        })
    }
}

impl Session {
    /// The rows behind [`SIDE`], of a primary that nobody pools.
    pub(super) fn ask_primary(&mut self, question: &str) -> Result<Vec<Row>, Reply> {
        let answer = self.ask(|_| format!("{SIDE}; {question}")).map_err(|failure| failure.judged(Step::Other))?;
        let mut rows = answer.into_iter();
        match rows.next().as_ref().and_then(|row| row.word(0)) {
            Some("f") => {}
            Some("t") => return Err(Reply::Refused(Kind::Unavailable, standby())),
            _ => return Err(Reply::Refused(Kind::Internal, said("pg_is_in_recovery() had no answer".to_owned()))),
        }
        let process = rows.next();
        match (&self.claimed, process.as_ref().and_then(|row| row.word(0))) {
            (Some(claimed), Some(answers)) if claimed != answers => Err(claim::pooled(claimed, answers)),
            _ => Ok(rows.collect()),
        }
    }

    pub(super) fn list(&mut self, node: NodeId) -> Reply {
        // Everybody sees the branches of all databases, but a branch can only be finished from its own.
        let question = "SELECT gid, (pg_catalog.floor(extract(epoch FROM prepared) OPERATOR(pg_catalog.*) 1000))::pg_catalog.int8, \
                        transaction, owner, database FROM pg_catalog.pg_prepared_xacts \
                        WHERE database OPERATOR(pg_catalog.=) pg_catalog.current_database()";
        let rows = match self.ask_primary(question) {
            Ok(rows) => rows,
            Err(reply) => return reply,
        };
        let ours = rows.iter().filter_map(|row| Some((ours(node, row.word(0)?)?, row)));
        let (xids, stays): (Vec<_>, _) = ours.map(|(xid, row)| (xid, (xid, stay(row)))).unzip();
        self.stays = stays;
        Reply::Listed(xids)
    }

    pub(super) fn claim(&mut self, node: NodeId) -> Reply {
        let mark = *self.mark.get_or_insert_with(|| RealDice.roll());
        let answer = match self.ask(|it| claim::question(node, it.resource, mark)) {
            Ok(answer) => answer,
            Err(failure) => return failure.judged(Step::Other),
        };
        match claim::read(&answer) {
            Ok(process) => {
                self.claimed = Some(process);
                Reply::Done
            }
            Err(reply) => reply,
        }
    }

    pub(super) fn inquire(&mut self, xid: &Xid, witness: &[u8]) -> Reply {
        self.seek(xid, witness).unwrap_or_else(|reply| reply)
    }

    /// Either way an answer; the error's is early.
    fn seek(&mut self, xid: &Xid, witness: &[u8]) -> Result<Reply, Reply> {
        if let Some(row) = self.ask_primary(&prepared(xid))?.first() {
            return Ok(match Seen::read(row).obstacle() {
                Some((kind, message)) => Reply::Refused(kind, said(message)),
                None => Reply::Past(Past::Open),
            });
        }
        if witness.is_empty() {
            let message =
                "it is not prepared any more, and nothing was kept of its vote: whether this server is the one \
                           that voted, and what became of the branch, nobody can know; look at its rows"
                    .to_owned();
            return Ok(Reply::Past(Past::Elsewhere(said(message))));
        }
        let Some(witness) = Witness::read(witness) else {
            let message = "what was kept of the vote is in a form that this version cannot read".to_owned();
            return Ok(Reply::Past(Past::Elsewhere(said(message))));
        };
        let failed = |failure: Failure| failure.judged(Step::Other);
        let number = witness.evidence.number;
        if let Place { system: None, run: Some(then), .. } = witness.place {
            if self.run().map_err(failed)? == Some(then) {
                return self.status(number).map_err(failed);
            }
            return Ok(Reply::Past(Past::Elsewhere(said(STARTED_AGAIN.to_owned()))));
        }
        let here = self.here().map_err(failed)?.ok_or_else(unreadable)?;
        match compare(&witness, &here) {
            Relation::Same => {}
            Relation::Elsewhere(native) => return Ok(Reply::Past(Past::Elsewhere(native))),
            Relation::Promoted(timeline) => {
                let history = self.history(timeline).map_err(failed)?;
                if let Err(native) = came_along(&witness, timeline, history.as_deref()) {
                    return Ok(Reply::Past(Past::Elsewhere(native)));
                }
            }
        }
        self.status(number).map_err(failed)
    }

    /// When the server was started. Nothing where this role may not know it.
    fn run(&mut self) -> Result<Option<u64>, Failure> {
        match self.ask(|_| RUN) {
            Ok(answer) => Ok(answer.first().and_then(|row| read_run(row).run)),
            Err(failure) if failure.is("42501") => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Asked anew: a proxy may have led to another server since. Nothing where this role may not read it.
    pub(super) fn here(&mut self) -> Result<Option<Here>, Failure> {
        match self.ask(|_| HERE) {
            Ok(answer) => Ok(answer.first().and_then(|row| {
                let Place { system, timeline, .. } = read_place(row);
                Some(Here { system: system?, timeline: timeline?, reached: row.word(3)?.parse().ok()? })
            })),
            Err(failure) if failure.is("42501") => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Nothing where this role may not read it.
    pub(super) fn history(&mut self, timeline: u32) -> Result<Option<String>, Failure> {
        match self.ask(|_| format!("SELECT pg_catalog.pg_read_file('{}')", history_file(timeline))) {
            Ok(answer) => Ok(answer.first().and_then(|row| row.word(0)).map(str::to_owned)),
            Err(failure) if failure.is("42501") => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn status(&mut self, number: u64) -> Result<Reply, Failure> {
        // By the old name of the function, which every server since 10 has.
        match self.ask(|_| format!("SELECT pg_catalog.txid_status({number})")) {
            Ok(answer) => {
                let past = past(answer.first().and_then(|row| row.word(0)));
                if past == Some(Past::Committed) {
                    self.wait_for_standby("")?;
                }
                let new = || Reply::Refused(Kind::Internal, said(format!("txid_status({number}) said a new word")));
                Ok(past.map_or_else(new, Reply::Past))
            }
            // "is in the future": a server that holds what the branch wrote has given its number.
            Err(failure) if failure.is("22023") => Ok(Reply::Past(Past::Elsewhere(failure.native))),
            Err(failure) => Err(failure),
        }
    }

    /// Comes back once the standby that commits of this role wait for, if they do, has all that is committed here; `first` is done before, in
    /// the transaction that waits. A wait that is cut short is lost.
    ///
    /// In a DO, as only the wait of a COMMIT within a statement is ended by its time limit. Behind a statement it would last until a
    /// standby comes, and the session with it: that keeps recovery's claim from the next connection, which would be taken for another process.
    pub(super) fn wait_for_standby(&mut self, first: &str) -> Result<(), Failure> {
        // What was read before was read where the claim is: a proxy may have led elsewhere since.
        let claimed = self.claimed.as_ref().and_then(|process| process.parse::<u32>().ok());
        let here = claimed.map(|process| {
            format!(
                "IF pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.<>) {process} THEN \
                 RAISE EXCEPTION 'another server process answers than the one with the claim'; END IF; "
            )
        });
        let here = here.unwrap_or_default();
        // The warning that tells of such an end can be switched off.
        let words = format!(
            "DO LANGUAGE plpgsql $assent$BEGIN {here}PERFORM pg_catalog.set_config('client_min_messages', 'warning', true); \
             {first}PERFORM {LOGGED}; COMMIT; END$assent$"
        );
        self.ask(|_| words).map(drop)
    }

    /// The server's words, and whose the branch is.
    pub(super) fn explained(&mut self, xid: &Xid, native: Native) -> Native {
        let seen = self.ask(|_| prepared(xid)).ok().and_then(|answer| answer.first().map(Seen::read));
        match seen.and_then(|seen| seen.obstacle()) {
            Some((_, message)) => Native { message: format!("{}: {message}", native.message), ..native },
            None => native,
        }
    }
}

/// Why a witness of one run is worth nothing in another one.
const STARTED_AGAIN: &str = "the role that voted could not read which server that was, and this one was started since, or is \
     another one; for votes to come, as a superuser: GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system() TO PUBLIC";

/// Why nothing that this server says about branches counts.
fn standby() -> Native {
    let message = "it is a standby, which does not show its primary's prepared transactions; name the primary";
    Native { code: "25006".to_owned(), message: message.to_owned() }
}

pub(super) fn unreadable() -> Reply {
    let message = "this role may not read the server's system identifier, without which nobody knows whether it is the \
                   one that voted; as a superuser: GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system() TO PUBLIC";
    Reply::Refused(Kind::Denied, Native { code: "42501".to_owned(), message: message.to_owned() })
}

/// Gids are unique in the whole cluster, so it is looked for in all databases.
fn prepared(xid: &Xid) -> String {
    format!(
        "SELECT database, owner, pg_catalog.current_database(), current_user, \
         owner OPERATOR(pg_catalog.=) current_user OR pg_catalog.current_setting('is_superuser') \
         OPERATOR(pg_catalog.=) 'on' FROM pg_catalog.pg_prepared_xacts WHERE gid OPERATOR(pg_catalog.=) {}",
        gid(xid)
    )
}

/// Of the prepared gids those that this node gave; all others belong to somebody else.
fn ours(node: NodeId, gid: &str) -> Option<Xid> {
    let xid = Xid::from_gid(gid).ok()?;
    (xid.format() == FORMAT_ID && xid.gtrid().starts_with(&Branch::prefix(node))).then_some(xid)
}

/// What stands beside the name.
fn stay(row: &Row) -> Stay {
    let word = |at| row.word(at).unwrap_or_default();
    let since_ms = word(1).parse().unwrap_or_default();
    Stay { since_ms, words: format!("transaction {} of role {:?} in database {:?}", word(2), word(3), word(4)) }
}

#[cfg(test)]
mod tests {
    use assent_ids::{Epoch, Incarnation, TxId};

    use super::*;

    #[test]
    fn foreign_gids_are_ignored() {
        let tx = TxId { incarnation: Incarnation { epoch: Epoch(1), number: 2 }, counter: 3 };
        let of = |node| {
            Branch { node: NodeId(node), tx, resource: ResourceId::of("a"), number: 0, flags: 0, mark: None }.xid()
        };
        let (mine, other) = (of(7), of(8));
        let same_bytes = Xid::new(1, mine.gtrid(), mine.bqual()).unwrap();
        let gids = [mine, other, same_bytes].map(|xid| xid.to_gid());
        let foreign = ["nightly-batch", "", "1_2", "131077_@@_@@"];
        let all = gids.iter().map(String::as_str).chain(foreign);
        assert_eq!(all.filter_map(|gid| ours(NodeId(7), gid)).collect::<Vec<_>>(), [mine]);
    }
}
