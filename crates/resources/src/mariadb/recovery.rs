//! What only recovery says: its claim, the list, what became of a branch, the end of a fenced client's sessions. And the
//! mark by which such a session is found.
//!
//! Walk: [`Session::mark`] when a connection works for a client for the first time · `claim` · `listed` · `inquire` ·
//! `evict`: ask who has the client's marks, end those sessions, wait until they have gone · `freed`: has who voted gone, or
//! if nobody knows who, everybody with a mark of the client's? · `let_leave`: the pause behind that, before an outcome.
//! Trap: a replica lists what it has replayed, which need not be what its primary holds. So no list of a server that is
//! read-only counts, and neither does its 1397; a replica that may be written to looks like a primary.
//! Deliberately absent: names of locks (`owner.rs`), which server it is (`witness.rs`).

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use assent_ids::{NodeId, Xid};
use assent_kind::Kind;
use assent_world::{Clock as _, RealClock};
use assent_xa::{Native, Past, Reply};
use mysql::prelude::Queryable as _;
use mysql::{Conn, Row};

use super::codes::{Step, native};
use super::failure::{Failure, plain};
use super::known;
use super::owner::{self, FIND_BATCH, MARKS_MAX, Mark, Owner, TAKE_BATCH};
use super::session::Session;
use super::witness::{Seen, Voter};
use super::xids::{ours, read_row};
use crate::kept::said;

/// How long an ended session may take to let go of its branch.
const EVICT_WAIT: Duration = Duration::from_secs(3);
/// What is said between two looks for it.
const PAUSE: &str = "DO SLEEP(0.01)";
/// What lies between the end of a session for everybody who asks and InnoDB's letting go of its branch: it closes its socket
/// there, and on a busy machine waits for a processor. At the server, so that it counts only while the server runs.
const LEAVE: &str = "SELECT SLEEP(0.1)";
/// How many connections are remembered as gone.
const GONE_MAX: usize = 65_536;

/// Of a connection that is told or asked about: no such one; not one of this account's.
const NO_SUCH_THREAD: u16 = 1094;
const KILL_DENIED: u16 = 1095;
/// As the server says it of a statement.
const INTERRUPTED: u16 = 1317;
/// Words that the server does not know.
const PARSE_ERROR: u16 = 1064;
/// What a connection is at, in MariaDB's words and in MySQL's.
const PLAN: [&str; 2] = ["SHOW EXPLAIN FOR", "EXPLAIN FOR CONNECTION"];

const CLOCK: &str = "SELECT CONNECTION_ID(), UNIX_TIMESTAMP()";
const IDENTITY: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
                        ('server_uuid', 'port', 'server_id', 'datadir')";
const PLACE: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN \
                     ('Uptime', 'Innodb_lsn_flushed', 'Innodb_redo_log_flushed_to_disk_lsn')";

/// Why there is no list.
pub(super) enum Unlisted {
    ReadOnly,
    Failed(Failure),
}

impl Unlisted {
    fn reply(self) -> Reply {
        match self {
            Self::ReadOnly => Reply::Refused(Kind::Unavailable, replica()),
            Self::Failed(failure) => plain(Step::Open, &failure),
        }
    }
}

/// Which server this is, as its session sees it now.
pub(super) fn look(connection: &mut Conn) -> Result<Seen, mysql::Error> {
    let identity: Vec<(String, String)> = connection.query(IDENTITY)?;
    Seen::sharp(|| look_once(connection, identity.clone()))
}

fn look_once(connection: &mut Conn, mut said: Vec<(String, String)>) -> Result<Seen, mysql::Error> {
    // Each statement has a time of its own: the server's age belongs to one between the two.
    let (id, before): (u64, u64) = connection.query_first(CLOCK)?.unwrap_or_default();
    said.extend(connection.query::<(String, String), _>(PLACE)?);
    let (_, behind): (u64, u64) = connection.query_first(CLOCK)?.unwrap_or_default();
    let said = said.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    Ok(Seen::of(id, [before, behind], &said))
}

/// Whether the server is a replica, as far as it shows, or one that ends no branch.
pub(super) fn is_read_only(connection: &mut Conn) -> Result<bool, mysql::Error> {
    let found: Option<(String, String, u64)> = connection
        .query_first("SELECT @@GLOBAL.read_only, @@GLOBAL.innodb_read_only, @@GLOBAL.innodb_force_recovery")?;
    // A number, or in newer versions a word.
    let is_off = |value: &str| matches!(value, "0" | "OFF");
    // An InnoDB that leaves out a part of its own recovery may list none of what was prepared (seen with level 5).
    Ok(!found.is_some_and(|(server, engine, level)| is_off(&server) && is_off(&engine) && level == 0))
}

/// Why nothing that this server says about branches counts.
pub(super) fn replica() -> Native {
    let message = "it has read_only = 1, innodb_read_only = 1 or an innodb_force_recovery, as a replica or a rescued server has, which \
                   need not show what was prepared; name the primary";
    native(1290, message)
}

/// What a look for the sessions of a client to be ended has found.
#[derive(Default)]
struct Found {
    /// Connections that were told to go.
    ended: Vec<u64>,
    /// Whether one had given up its mark before that: it goes, or works for another client by now.
    has_left: bool,
    /// Why one of them stays.
    denied: Option<Native>,
}

/// Sessions that were found to have gone, counted over all connections of one connector: who looks for one may be another
/// connection than who tells its branch.
#[derive(Clone, Debug, Default)]
pub(super) struct Leavers {
    found: Arc<AtomicU64>,
    /// Clients without a session since the last list: every branch of theirs that is on it has been let go, or is about to be.
    absent: Arc<Mutex<HashSet<Owner>>>,
    /// Up to which of them this connection has waited.
    waited: u64,
}

impl Leavers {
    /// The same ones, for a connection that has not waited yet.
    pub(super) fn shared(&self) -> Self {
        Self { found: Arc::clone(&self.found), absent: Arc::clone(&self.absent), waited: 0 }
    }

    fn is_absent(&self, owner: Owner) -> bool {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner).contains(&owner)
    }

    /// Its sessions have gone, whenever that was.
    fn note_absent(&self, owner: Owner) {
        // Counted first: whoever finds it absent waits.
        self.note();
        self.absent.lock().unwrap_or_else(PoisonError::into_inner).insert(owner);
    }

    /// What is listed from now on may have been prepared since.
    fn list_anew(&self) {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn note(&self) {
        self.found.fetch_add(1, Ordering::SeqCst);
    }

    fn found(&self) -> u64 {
        self.found.load(Ordering::SeqCst)
    }

    /// Whether an outcome has to wait.
    pub(super) fn are_due(&self) -> bool {
        self.found() > self.waited
    }
}

impl Session {
    fn ask<T>(&mut self, work: impl FnOnce(&mut Conn) -> Result<T, mysql::Error>) -> Result<T, Failure> {
        self.lend(work).unwrap_or_else(|gone| Err(Failure::Lost(gone)))
    }

    /// Whether it is marked as one of the branch's client, as far as that need be.
    pub(super) fn is_marked(&self, xid: &Xid) -> bool {
        Owner::of(xid).is_none_or(|owner| self.mark.is_some_and(|mark| mark.owner == owner) && !self.grip.lent)
    }

    /// Marks the session as one of the branch's client, once for each client. Costs a message when the client changes,
    /// and after the caller has had the connection between branches: whoever resets it takes its locks away.
    pub(super) fn mark(&mut self, xid: &Xid) -> Result<(), Reply> {
        let Some(owner) = Owner::of(xid).filter(|_| !self.is_marked(xid)) else { return Ok(()) };
        let mut first = 0;
        while first < MARKS_MAX {
            // A reset has also switched off what the server tells of a branch; the first answer is the mark's.
            let sql = format!("{}; {}", owner.take(first, self.mark), known::TRACK);
            let taken: Option<Row> =
                self.ask(|connection| connection.query_first(sql)).map_err(|failure| plain(Step::Open, &failure))?;
            if let Some(Ok(Some(number))) = taken.and_then(|row| row.get_opt::<Option<u32>, _>(0)) {
                self.mark = Some(Mark { owner, number });
                self.grip.lent = false;
                return Ok(());
            }
            first += TAKE_BATCH;
        }
        let message =
            format!("this client has {MARKS_MAX} connections to this server, the most that can be told apart");
        Err(Reply::Refused(Kind::Full, said(message)))
    }

    pub(super) fn claim(&mut self, node: NodeId) -> Reply {
        let sql = owner::claim(node, self.resource);
        let answer: Result<Option<(Option<u8>, Option<u64>)>, _> = self.ask(|connection| connection.query_first(sql));
        match answer {
            Ok(Some((Some(1), _))) => Reply::Done,
            Ok(Some((Some(0), other))) => {
                let other = other.map_or_else(|| "another connection".to_owned(), |id| format!("connection {id}"));
                let message = format!("{other} of this server resolves the branches of node {node} already");
                Reply::Refused(Kind::Conflict, said(message))
            }
            Ok(_) => Reply::Refused(Kind::Internal, said("GET_LOCK had no answer".to_owned())),
            Err(failure) => plain(Step::Open, &failure),
        }
    }

    pub(super) fn recover(&mut self, node: NodeId) -> Reply {
        self.leavers.list_anew();
        self.listed().map_or_else(Unlisted::reply, |xids| Reply::Listed(ours(node, xids)))
    }

    /// The server keeps no memory of finished branches: it is listed, or forgotten, or nobody can know.
    /// Who has no witness does not know that this server voted at all.
    pub(super) fn inquire(&mut self, xid: &Xid, witness: &[u8]) -> Reply {
        match self.listed() {
            Ok(xids) if xids.contains(xid) => return Reply::Past(Past::Open),
            Ok(_) if witness.is_empty() => {
                let message = "nothing was kept of its vote: nobody can know whether this server gave it";
                return Reply::Past(Past::Elsewhere(said(message.to_owned())));
            }
            Ok(_) => {}
            Err(unlisted) => return unlisted.reply(),
        }
        // Now, and not when this connection was opened: its place in the log has to be later than that of the vote.
        match self.ask(look) {
            Ok(now) => Reply::Past(match now.elsewhere(witness) {
                Some(reason) => Past::Elsewhere(said(reason)),
                None => Past::Forgotten,
            }),
            Err(failure) => plain(Step::Open, &failure),
        }
    }

    /// Ends the sessions of the branch's client. Which of them has the branch is not known; the client is fenced, so none
    /// of them has anything more to do.
    pub(super) fn evict(&mut self, xid: &Xid) -> Reply {
        match self.listed() {
            Ok(xids) if xids.contains(xid) => {}
            Ok(_) => return Reply::Done,
            Err(unlisted) => return unlisted.reply(),
        }
        let unmarked = |reason: &str| {
            let message = format!(
                "no session of this server has the mark of the client of branch {xid}{reason}; if the branch stays \
                 attached, end the session that prepared it by KILL CONNECTION"
            );
            Reply::Refused(Kind::Busy, said(message))
        };
        let Some(owner) = Owner::of(xid) else { return unmarked(", which is not Assent's") };
        let mut found = Found::default();
        for first in (0..MARKS_MAX).step_by(usize::try_from(FIND_BATCH).unwrap_or(usize::MAX)) {
            if let Err(reply) = self.end_sessions(owner, first, &mut found) {
                return reply;
            }
        }
        let Found { ended, has_left, denied } = found;
        if ended.is_empty() && !has_left && denied.is_none() {
            return unmarked("");
        }
        // Before any other answer: those that were ended may have it.
        match self.wait_for(ended) {
            Reply::Done => {}
            reply => return reply,
        }
        if let Some(native) = denied {
            // What is told beside it waits behind whoever gave up its mark just before it could be found.
            self.leavers.note();
            return Reply::Refused(Kind::Denied, native);
        }
        // Whoever takes a mark from now on, as a pool does that opens its sessions again, has none of the listed branches.
        self.leavers.note_absent(owner);
        Reply::Done
    }

    /// Ends those with one of a batch of marks, beside those that it may not end.
    fn end_sessions(&mut self, owner: Owner, first: u32, found: &mut Found) -> Result<(), Reply> {
        let holders = self.holders(owner, first).map_err(|failure| plain(Step::Open, &failure))?;
        for (number, id) in holders {
            // The list is as old as the ends of those before it.
            if self.holder(owner, number).map_err(|failure| plain(Step::Open, &failure))? != Some(id) {
                found.has_left = true;
                continue;
            }
            match self.ask(|connection| connection.query_drop(format!("KILL CONNECTION {id}"))) {
                Ok(()) | Err(Failure::Server(NO_SUCH_THREAD, _)) => found.ended.push(id),
                Err(Failure::Server(code @ (KILL_DENIED | 1227), message)) => {
                    let message = format!(
                        "connection {id} keeps the branch and belongs to another account; give both the same account, or \
                         recovery's CONNECTION ADMIN, or end it by KILL CONNECTION {id} ({message})"
                    );
                    found.denied.get_or_insert_with(|| native(code, &message));
                }
                Err(failure) => return Err(plain(Step::Open, &failure)),
            }
        }
        Ok(())
    }

    /// Who has it.
    fn holder(&mut self, owner: Owner, number: u32) -> Result<Option<u64>, Failure> {
        let sql = format!("SELECT IS_USED_LOCK('{}')", owner.lock(number));
        self.ask(|connection| connection.query_first::<Option<u64>, _>(sql)).map(Option::flatten)
    }

    /// Who else has one of a batch of the client's marks: number and connection.
    fn holders(&mut self, owner: Owner, first: u32) -> Result<Vec<(u32, u64)>, Failure> {
        let own = self.seen.connection;
        let row: Option<Row> = self.ask(|connection| connection.query_first(owner.find(first)))?;
        let ids = row.map(Row::unwrap).unwrap_or_default().into_iter().map(mysql::from_value_opt::<Option<u64>>);
        Ok((first..)
            .zip(ids)
            .filter_map(|(number, id)| Some((number, id.ok()??)))
            .filter(|(_, id)| *id != own)
            .collect())
    }

    /// Whether the connection that voted has gone.
    /// Trap: a session that ends hands its branch to whoever asks before InnoDB has let go of it. An outcome that comes in
    /// between is answered with success and does nothing; the branch is listed nowhere, keeps its locks, and is prepared again
    /// after a restart (10.11.19: 0.7 % of such commits). The list of connections shows when it is almost over: a session gives
    /// up its mark and leaves the list, then closes its socket, then InnoDB lets go. Nothing that every account may ask shows
    /// the rest: [`Self::let_leave`].
    pub(super) fn freed(&mut self, xid: &Xid, witness: &[u8]) -> Reply {
        let voter = match self.seen.voter(witness) {
            Voter::Unknown => return self.absent(xid),
            Voter::Gone => return Reply::Done,
            Voter::Connection(id) if id == self.seen.connection || self.gone.contains(&id) => return Reply::Done,
            Voter::Connection(id) => id,
        };
        match self.is_there(voter) {
            Ok(true) => {
                let message = format!("connection {voter}, which prepared branch {xid}, has not gone yet; come again");
                Reply::Refused(Kind::Busy, said(message))
            }
            Ok(false) => {
                self.has_gone(voter);
                Reply::Done
            }
            Err(failure) => plain(Step::Open, &failure),
        }
    }

    /// Whether nobody has a mark of the branch's client: as it is not known who voted, anybody who has may have.
    fn absent(&mut self, xid: &Xid) -> Reply {
        let Some(owner) = Owner::of(xid).filter(|owner| !self.leavers.is_absent(*owner)) else { return Reply::Done };
        for first in (0..MARKS_MAX).step_by(usize::try_from(FIND_BATCH).unwrap_or(usize::MAX)) {
            match self.holders(owner, first).map(|holders| holders.first().copied()) {
                Ok(None) => {}
                Ok(Some((_, id))) => {
                    let message = format!(
                        "connection {id} works for the client of branch {xid} and may still have it; come again"
                    );
                    return Reply::Refused(Kind::Busy, said(message));
                }
                Err(failure) => return plain(Step::Open, &failure),
            }
        }
        self.leavers.note_absent(owner);
        Reply::Done
    }

    fn has_gone(&mut self, id: u64) {
        if self.gone.len() >= GONE_MAX {
            self.gone.clear();
        }
        if self.gone.insert(id) {
            self.leavers.note();
        }
    }

    /// Before a branch is told: one pause behind all the sessions that were found gone since the last one.
    pub(super) fn let_leave(&mut self) -> Result<(), Failure> {
        let found = self.leavers.found();
        if !self.leavers.are_due() {
            return Ok(());
        }
        // One that was cut short says 1 and no error.
        match self.ask(|connection| connection.query_first::<u8, _>(LEAVE))? {
            Some(0) => {
                self.leavers.waited = found;
                Ok(())
            }
            _ => Err(Failure::Server(INTERRUPTED, "the pause before the outcome was cut short".to_owned())),
        }
    }

    /// Whether there is such a connection. The process list leaves out those of other accounts, unless one has PROCESS, and
    /// those whose socket is closed already. So whoever is not in it is asked for its plan: that needs no right to be
    /// refused, and only of a connection that is not there the server says so.
    /// Trap: never `information_schema.PROCESSLIST`, which makes an Aria table of the list for each question: a 10.11 died of
    /// that (signal 11 in `ha_maria::drop_table`) when it was asked without a pause while sessions ended.
    fn is_there(&mut self, id: u64) -> Result<bool, Failure> {
        let listed: Vec<Row> = self.ask(|connection| connection.query("SHOW PROCESSLIST"))?;
        if listed.iter().any(|row| matches!(row.get_opt::<u64, _>(0), Some(Ok(found)) if found == id)) {
            return Ok(true);
        }
        for words in PLAN {
            match self.ask(|connection| connection.query_drop(format!("{words} {id}"))) {
                Err(Failure::Server(NO_SUCH_THREAD, _)) => return Ok(false),
                Err(Failure::Server(PARSE_ERROR, _)) => {}
                Err(Failure::Lost(native)) => return Err(Failure::Lost(native)),
                // Not this account's, or at nothing that has a plan.
                Ok(()) | Err(Failure::Server(..)) => return Ok(true),
            }
        }
        // Nobody knows. A branch that waits is better than a commit that is not done.
        Ok(true)
    }

    /// Until there are no such connections any more; then the branch of one is as good as free. Its mark says nothing: the
    /// client's next session may have it by then.
    fn wait_for(&mut self, mut ended: Vec<u64>) -> Reply {
        // Looks are slow on a busy machine, and the answer has its own limit.
        let end = RealClock.now().after(EVICT_WAIT);
        loop {
            while let Some(id) = ended.last().copied() {
                match self.is_there(id) {
                    Ok(true) => break,
                    Ok(false) => self.has_gone(id),
                    Err(failure) => return plain(Step::Open, &failure),
                }
                ended.pop();
            }
            let Some(id) = ended.last() else { return Reply::Done };
            if RealClock.now() >= end {
                let wait_s = EVICT_WAIT.as_secs();
                let message = format!("connection {id} was ended and has not gone within {wait_s} s; come again");
                return Reply::Refused(Kind::Busy, said(message));
            }
            if let Err(failure) = self.ask(|connection| connection.query_drop(PAUSE)) {
                return plain(Step::Open, &failure);
            }
        }
    }

    /// 1397 means both: finished, or attached to a session that lives (or is being finished by one). Nothing where it is
    /// gone.
    pub(super) fn attached(&mut self, xid: &Xid, gone: &Native) -> Option<Reply> {
        match self.listed() {
            Ok(xids) if xids.contains(xid) => {
                let message = format!("branch {xid} is attached to a living session; come again ({})", gone.message);
                Some(Reply::Refused(Kind::Busy, Native { message, code: gone.code.clone() }))
            }
            Ok(_) => None,
            Err(Unlisted::ReadOnly) => Some(Reply::Refused(Kind::Unavailable, replica())),
            Err(Unlisted::Failed(Failure::Lost(native))) => Some(Reply::Lost(native)),
            // Not to be told apart now.
            Err(Unlisted::Failed(failure)) => Some(Reply::Refused(Kind::Busy, failure.native())),
        }
    }

    /// Everything that is prepared here.
    fn listed(&mut self) -> Result<Vec<Xid>, Unlisted> {
        let answer = self.ask(|connection| {
            if is_read_only(connection)? { Ok(None) } else { connection.query::<Row, _>("XA RECOVER").map(Some) }
        });
        let rows = answer.map_err(Unlisted::Failed)?.ok_or(Unlisted::ReadOnly)?;
        Ok(rows.into_iter().filter_map(read_row).collect())
    }
}
