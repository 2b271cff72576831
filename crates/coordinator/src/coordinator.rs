//! Decisions, made durable once and remembered as long as somebody could contradict them.
//!
//! Walk: [`Coordinator::open`] replays the log · a client's `handshake` · [`Coordinator::decide_begin`] looks, appends at
//! most one record and never waits, [`Coordinator::decide_end`] waits for it · [`Coordinator::finished`] lets it be
//! forgotten; the log is told with the next decision's record · `tick` (upkeep) fences, seals, checkpoints and trims.
//!
//! What a client decides itself is told as the log's policy allows: durable, or with RPO > 0 in the kernel (`lost` says
//! what follows from that). Whatever anybody else decides, and every fence, heuristic outcome and operator's word, is
//! durable before anything follows from it, in every policy.
//!
//! One lock for all state. Under it: a look-up, a copy into the log's buffer, an insert. Records are encoded before it,
//! waiting is done after it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assent_ids::{Epoch, Incarnation, Lsn, NodeId, ResourceId, TxId};
use assent_journal::{JournalError, Log, Ticket};
use assent_kind::Kind;
use assent_world::{Clock, Moment};
use assent_xa::{BRANCHES_MAX, BranchRecord, DecideError, Decision, Outcome};

use crate::attended::Attended;
use crate::chain::Chain;
use crate::clients::Clients;
use crate::error::{in_doubt, not_laid};
use crate::record::Opened;
use crate::replay::{Replay, record_bytes};
use crate::table::{Entry, Table};
use crate::{By, CoordinatorError, Gauges, Identity, Known, LostDecision, Pending, Session, Standing, lay, record};

/// The most bytes that a decision keeps for the adapter of one branch.
pub const WITNESS_BYTES_MAX: usize = 4096;
/// The most bytes of unfinished decisions: memory, and a checkpoint, stay below about twice that.
pub const TABLE_BYTES_MAX: usize = 64 << 20;
/// Decisions, and bytes of them, that only recovery and people make.
const RESERVE: u32 = 1_024;
const RESERVE_BYTES: usize = TABLE_BYTES_MAX / 16;
/// Forgotten transactions are told to the log with the next decision; so many of them do not wait for one.
const FORGOTTEN_BYTES_MAX: usize = 1024 * record::TX_BYTES;
const _: () = assert!(BRANCHES_MAX <= u16::MAX as usize, "branches are counted in two bytes");

/// What can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// A client that was away for longer never decides commit again.
    pub client_lost_ms: u64,
    /// A branch prepared for longer, without a decision, is rolled back.
    pub prepared_ms_max: u64,
    /// A checkpoint is written after so many bytes of log.
    pub checkpoint_bytes: u64,
    /// So many decided transactions may be unfinished at a time; beyond, a decision is `Busy`.
    pub transactions_max: u32,
    /// What becomes of a prepared branch whose decision may be lost. Matters only where the log's policy has RPO > 0, or had,
    /// and where `is_restored`.
    pub lost_decision: LostDecision,
    /// The log is an older copy put back: every decision since it was made may be lost.
    pub is_restored: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            client_lost_ms: 1_000,
            prepared_ms_max: 60_000,
            checkpoint_bytes: 8 << 20,
            transactions_max: 65_536,
            lost_decision: LostDecision::Hold,
            is_restored: false,
        }
    }
}

impl Config {
    /// Durable writes of its journal under way at the same time, for whoever opens that: what comes meanwhile is one batch. Who decides
    /// waits, and a second write would take half of each batch: ten threads over two databases needed 0.85 syncs a transaction with
    /// two, and 0.62 with one; fifty 0.30, and 0.20.
    pub const WRITES_IN_FLIGHT: u32 = 1;
}

/// A distributed transaction's state server, over any log. Shared by `Arc`.
#[derive(Debug)]
pub struct Coordinator {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Config,
    identity: Identity,
    epoch: Epoch,
    state: Mutex<State>,
    /// Held by whoever does the upkeep.
    pub(crate) upkeep: Mutex<()>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) clients: Clients,
    pub(crate) table: Table,
    pub(crate) attended: Attended,
    pub(crate) bytes_since_checkpoint: u64,
    /// A checkpoint stands here; what is before it may go.
    pub(crate) trim_to: Option<Lsn>,
    pub(crate) gauges: Gauges,
    /// Over everything laid, in the log's order.
    pub(crate) chain: Chain,
    /// When the last seal was laid.
    pub(crate) sealed: Moment,
    /// This opening; before it, the last one that looked for lost decisions.
    pub(crate) opened: Opened,
    /// How often recovery was given something that it need not wait for.
    pub(crate) calls: u64,
    /// Where decisions end that may be told before they are durable.
    pub(crate) unsynced: VecDeque<Lsn>,
    /// Heuristic outcomes that the log has refused.
    pub(crate) unlaid: BTreeSet<TxId>,
    /// Nobody waits for it, but the next tick makes it durable.
    pub(crate) owed: Option<Ticket>,
}

impl State {
    /// The one place where a record is laid: the chain and the log have the same order.
    pub(crate) fn append(&mut self, log: &dyn Log, kind: u16, parts: &[&[u8]]) -> Result<Ticket, JournalError> {
        let ticket = log.append(kind, parts)?;
        if log.keeps_history() {
            self.chain.take(kind, parts);
            self.bytes_since_checkpoint += record_bytes(parts);
        }
        Ok(ticket)
    }

    /// Tells the log what is forgotten, in a record of its own. Lazily: nobody waits for it.
    pub(crate) fn tell_forgotten(&mut self, log: &dyn Log, at_ms: u64) -> Result<(), JournalError> {
        if self.table.forgotten().is_empty() {
            return Ok(());
        }
        let list = self.table.forgotten().to_vec();
        self.append(log, record::FINISHED, &[&at_ms.to_le_bytes(), &list])?;
        self.table.told();
        Ok(())
    }
}

impl Coordinator {
    /// Replays the log. Its epoch is the coordinator's: clients of earlier ones may resume for `client_lost_ms`
    /// from here, or from [`Coordinator::listening`] where there is a door.
    ///
    /// Where the log may have lost what an earlier opening acknowledged (RPO > 0, or an older copy put back), that is durably
    /// noted before this returns.
    ///
    /// # Errors
    /// As the log says; [`CoordinatorError::Record`] for one that cannot be read, [`CoordinatorError::Node`] if the log
    /// is another node's, [`CoordinatorError::Config`].
    pub fn open(
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        identity: Identity,
        config: Config,
    ) -> Result<Self, CoordinatorError> {
        if config.transactions_max == 0 {
            return Err(CoordinatorError::Config { name: "transactions_max", value: 0, rule: "it is at least 1" });
        }
        let (epoch, now) = (log.epoch(), clock.now());
        let mut replay = Replay::new(identity.node, now);
        for entry in log.read(log.start())? {
            let entry = entry?;
            replay.apply(entry.lsn, entry.kind, &entry.payload)?;
        }
        let lost_after = Duration::from_millis(config.client_lost_ms);
        let mut state = State {
            clients: Clients::new(identity.node, epoch, replay.before, now, lost_after),
            table: replay.table,
            attended: Attended::default(),
            bytes_since_checkpoint: replay.bytes,
            trim_to: None,
            gauges: Gauges { replayed: replay.count, ..Gauges::default() },
            chain: replay.chain,
            sealed: now,
            opened: replay.opened,
            calls: 0,
            unsynced: VecDeque::new(),
            unlaid: BTreeSet::new(),
            owed: None,
        };
        state.look_for_lost(&*log, config.is_restored, clock.wall_ms())?;
        let closes = config.is_restored && log.state() != assent_journal::State::Closed;
        if closes {
            state.clients.close();
        }
        let it = Self { log, clock, config, identity, epoch, state: Mutex::new(state), upkeep: Mutex::new(()) };
        if closes {
            it.fence()?;
        }
        Ok(it)
    }

    /// Whose branches these are.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.identity.node
    }

    /// This opening.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// A new client. The label is for people.
    ///
    /// # Errors
    /// `Busy` if as many clients are connected as it takes; `Unavailable` while another process of this node resolves at
    /// a resource, before the agent has asked, or where it has found a branch that nobody here can have begun (`attended` says why).
    pub fn handshake(&self, label: &str) -> Result<Session, CoordinatorError> {
        let (now, at_ms) = (self.clock.now(), self.clock.wall_ms());
        let mut state = self.state();
        state.attended.take(now).map_err(|why| CoordinatorError::Unclaimed { why })?;
        let incarnation = state.clients.handshake(label)?;
        let name = lay::client(at_ms, incarnation, state.clients.label(incarnation));
        // For history only: a log that takes nothing now knows this client by its number alone.
        _ = state.append(&*self.log, record::CLIENT, &[&name]);
        drop(state);
        Ok(Session { incarnation, secret: self.identity.secret(incarnation) })
    }

    /// A client that comes back, over a new connection, within `client_lost_ms` of losing its last one or of our
    /// start (see [`Coordinator::listening`]).
    ///
    /// # Errors
    /// `Denied` for a wrong secret, `RolledBack` if it is fenced.
    pub fn resume(&self, incarnation: Incarnation, secret: u128) -> Result<Session, CoordinatorError> {
        // Compared in one piece: how many bits fit is not told by the time it takes.
        if (self.identity.secret(incarnation) ^ secret) != 0 {
            return Err(CoordinatorError::Secret { incarnation });
        }
        self.state().clients.resume(incarnation)?;
        Ok(Session { incarnation, secret })
    }

    /// A connection of this client ended. When it was the last one, the clock of `client_lost_ms` starts.
    pub fn lost(&self, incarnation: Incarnation) {
        let now = self.clock.now();
        self.state().clients.lost(incarnation, now);
    }

    /// Decides, if nobody has yet: appends at most one record, never waits. The caller has checked that the transaction
    /// is its client's own.
    ///
    /// # Errors
    /// [`DecideError`]: `InDoubt` for a repeated question about a transaction that may have been decided and forgotten;
    /// all other kinds mean that nothing was decided.
    pub fn decide_begin(&self, decision: &Decision) -> Result<Pending, DecideError> {
        check(&decision.branches)?;
        let Decision { tx, outcome, first, .. } = *decision;
        let ruling = self.ruling(tx, outcome, By::Client, &decision.branches);
        let mut state = self.state();
        if let Some(entry) = state.table.get(tx) {
            return Ok(pending(entry));
        }
        match state.clients.standing(tx.incarnation) {
            Standing::Connected | Standing::Lost => {}
            // Its client has never asked, and never commits from now on. A person may have.
            Standing::Fencing | Standing::Fenced if first => {
                let outcome = state.table.bygone(tx).unwrap_or(Outcome::RolledBack);
                return Ok(Pending { outcome, ticket: None, is_strict: true });
            }
            standing => {
                // It may have been decided and forgotten. Whoever is fenced is told as a favour, while we remember.
                let is_fenced = matches!(standing, Standing::Fencing | Standing::Fenced);
                return match state.table.bygone(tx).filter(|_| is_fenced) {
                    Some(outcome) => Ok(Pending { outcome, ticket: None, is_strict: true }),
                    None => Err(stranger(tx, standing, first)),
                };
            }
        }
        match outcome {
            Outcome::Committed => match state.attended.take(ruling.now) {
                // Another process may be at work on this node's branches: it could roll back what we commit.
                Err(message) => Err(DecideError { kind: Kind::Unavailable, message }),
                Ok(()) => self.is_searchable(&decision.branches).and_then(|()| self.lay(&mut state, ruling)),
            },
            // Presumed abort: the client that gave up needs no record. The entry outlives a delayed copy of its commit.
            Outcome::RolledBack => {
                self.room(&state, false)?;
                state.gauges.decided_rolled_back += 1;
                let entry = ruling.entry(None);
                let answer = pending(&entry);
                state.table.insert(tx, entry);
                Ok(answer)
            }
        }
    }

    /// Waits until what was decided may be told: a client's own decision as the log's policy allows, any other when it is
    /// durable. The first of many that wait syncs for all.
    ///
    /// # Errors
    /// `InDoubt` if the log failed: the decision may be durable or not.
    pub fn decide_end(&self, pending: Pending) -> Result<Outcome, DecideError> {
        match pending.ticket {
            Some(ticket) if !pending.is_strict && ticket.end > self.log.durable() => {
                self.log.wait(ticket).map_err(|error| in_doubt(&error))?;
                Ok(pending.outcome)
            }
            _ => self.decide_strictly(pending),
        }
    }

    /// Waits until it is durable, in every policy: for whoever acts on it in the client's place.
    pub(crate) fn decide_strictly(&self, pending: Pending) -> Result<Outcome, DecideError> {
        match pending.ticket {
            Some(ticket) if ticket.end > self.log.durable() => {
                self.log.wait_durable(ticket).map_err(|error| in_doubt(&error))?;
            }
            Some(_) | None => {}
        }
        Ok(pending.outcome)
    }

    /// Decides and waits.
    ///
    /// # Errors
    /// As [`Coordinator::decide_begin`] and [`Coordinator::decide_end`].
    pub fn decide(&self, decision: &Decision) -> Result<Outcome, DecideError> {
        let pending = self.decide_begin(decision)?;
        self.decide_end(pending)
    }

    /// Decides rollback for somebody else than the client, unless it is decided already; durable when it returns, so
    /// before the first branch is rolled back because of it.
    ///
    /// # Errors
    /// `Invalid` if no such client was ever known; `Busy` or as the log says if nothing was decided; `InDoubt`.
    pub fn decide_abort(&self, tx: TxId, by: By, branches: &[BranchRecord]) -> Result<Outcome, DecideError> {
        let pending = self.decide_abort_begin(tx, by, branches)?;
        self.decide_strictly(pending)
    }

    /// Lays that, and does not wait: many aborts share a sync.
    pub(crate) fn decide_abort_begin(
        &self,
        tx: TxId,
        by: By,
        branches: &[BranchRecord],
    ) -> Result<Pending, DecideError> {
        check(branches)?;
        let ruling = self.ruling(tx, Outcome::RolledBack, by, branches);
        let mut state = self.state();
        match (state.table.get(tx), state.clients.standing(tx.incarnation)) {
            (Some(entry), _) => Ok(pending(entry)),
            (None, Standing::Never) => Err(stranger(tx, Standing::Never, true)),
            (None, _) => self.lay(&mut state, ruling),
        }
    }

    /// All branches are finished and the client knows the outcome: it may be forgotten.
    pub fn finished(&self, tx: TxId) {
        let mut state = self.state();
        let to_go = state.table.finish_all(tx);
        // The next look may be far.
        state.calls += u64::from(to_go);
        if state.table.forgotten().len() >= FORGOTTEN_BYTES_MAX {
            // A log that takes nothing now is told at the next chance: the list stays.
            _ = state.tell_forgotten(&*self.log, self.clock.wall_ms());
        }
    }

    /// The client knows the outcome and leaves unfinished branches to recovery.
    pub fn acknowledged(&self, tx: TxId) {
        self.state().table.acknowledge(tx);
    }

    /// What became of it. Waits for a decision that is not durable yet. Of forgotten ones whose client never said that it
    /// knows, the latest 4,096 of this opening are still told.
    #[must_use]
    pub fn ask(&self, tx: TxId) -> Known {
        let pending = {
            let state = self.state();
            match state.table.get(tx) {
                Some(entry) => pending(entry),
                None => match state.table.bygone(tx) {
                    Some(outcome) => return outcome.into(),
                    None if state.table.is_watched(tx) => return Known::Undecided,
                    None => return Known::Unknown,
                },
            }
        };
        self.decide_strictly(pending).map_or(Known::InDoubt, Known::from)
    }

    /// A decision encoded, before the lock.
    pub(crate) fn ruling(&self, tx: TxId, outcome: Outcome, by: By, branches: &[BranchRecord]) -> Ruling {
        let (now, at_ms) = (self.clock.now(), self.clock.wall_ms());
        let (body, row) = (lay::branches(branches), row_of(branches));
        Ruling { tx, outcome, by, is_reserved: by != By::Client, body, row, now, at_ms }
    }

    /// The one place where a decision is laid. A full table refuses before anything is.
    pub(crate) fn lay(&self, state: &mut State, ruling: Ruling) -> Result<Pending, DecideError> {
        self.room(state, ruling.is_reserved)?;
        let Ruling { tx, outcome, by, at_ms, .. } = ruling;
        let head = lay::decided_head(tx, outcome, by, at_ms);
        let forgotten = state.table.take_forgotten();
        let laid = state.append(&*self.log, record::DECIDED, &[&head, &ruling.body, &forgotten]);
        state.table.give_forgotten(forgotten, laid.is_ok());
        let ticket = laid.map_err(|error| not_laid(&error))?;
        match outcome {
            Outcome::Committed => state.gauges.decided_committed += 1,
            Outcome::RolledBack => state.gauges.decided_rolled_back += 1,
        }
        if self.log.is_lazy() {
            _ = state.unsynced(self.log.durable());
            state.unsynced.push_back(ticket.end);
        }
        let entry = ruling.entry(Some(ticket));
        let answer = pending(&entry);
        state.table.insert(tx, entry);
        Ok(answer)
    }

    /// Recovery and people have some beyond what clients may take: what those have filled it with they may have to finish.
    pub(crate) fn room(&self, state: &State, is_reserved: bool) -> Result<(), DecideError> {
        let busy = |message| Err(DecideError { kind: Kind::Busy, message });
        let (entries, bytes) = if is_reserved { (RESERVE, RESERVE_BYTES) } else { (0, 0) };
        let max = self.config.transactions_max.saturating_add(entries);
        if state.table.bytes() >= TABLE_BYTES_MAX + bytes {
            let max = TABLE_BYTES_MAX;
            return busy(format!("unfinished decisions take {max} bytes, more are not taken: send it again later"));
        }
        if state.table.len() >= usize::try_from(max).unwrap_or(usize::MAX) {
            return busy(format!("{max} decided transactions are unfinished, more are not taken: send it again later"));
        }
        Ok(())
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics under the lock; if something did, the state is still one that a look-up can use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A decision on its way into the log and the table.
#[derive(Debug)]
pub(crate) struct Ruling {
    tx: TxId,
    outcome: Outcome,
    by: By,
    /// It may take what is kept for recovery and people.
    is_reserved: bool,
    body: Box<[u8]>,
    row: Option<ResourceId>,
    now: Moment,
    at_ms: u64,
}

impl Ruling {
    /// A client's decision, which recovery lays.
    pub(crate) const fn of_recovery(mut self) -> Self {
        self.is_reserved = true;
        self
    }

    fn entry(self, ticket: Option<Ticket>) -> Entry {
        Entry {
            outcome: self.outcome,
            by: self.by,
            ticket,
            is_logged: ticket.is_some(),
            branches: self.body,
            since: self.now,
            at_ms: self.at_ms,
            is_acknowledged: false,
            is_finished: false,
            is_cleared: false,
            row: self.row,
            progress: BTreeMap::new(),
        }
    }
}

/// Where the decision over these may be a row.
pub(crate) fn row_of(branches: &[BranchRecord]) -> Option<ResourceId> {
    branches.iter().find_map(|branch| branch.mark).map(|mark| mark.resource)
}

pub(crate) fn pending(entry: &Entry) -> Pending {
    Pending { outcome: entry.outcome, ticket: entry.ticket, is_strict: entry.by != By::Client }
}

/// The door: what cannot be laid is refused before anything is.
pub(crate) fn check(branches: &[BranchRecord]) -> Result<(), DecideError> {
    let invalid = |message| Err(DecideError { kind: Kind::Invalid, message });
    if branches.len() > BRANCHES_MAX {
        return invalid(format!("a decision over {} branches; at most {BRANCHES_MAX} are taken", branches.len()));
    }
    match branches.iter().map(|branch| branch.witness.len()).max() {
        Some(bytes) if bytes > WITNESS_BYTES_MAX => {
            invalid(format!("a branch with a witness of {bytes} bytes; at most {WITNESS_BYTES_MAX} are taken"))
        }
        _ => Ok(()),
    }
}

/// Why a transaction of which nothing is known is not decided now.
fn stranger(tx: TxId, standing: Standing, first: bool) -> DecideError {
    if !first {
        let message = format!("{tx} is not known here: it may have been decided, finished and forgotten");
        return DecideError { kind: Kind::InDoubt, message };
    }
    match standing {
        Standing::Resumable => {
            let message = format!("client {} has not resumed yet: resume, then decide {tx}", tx.incarnation);
            DecideError { kind: Kind::Unavailable, message }
        }
        _ => {
            let message =
                format!("client {} was never known here: {tx} belongs to another coordinator", tx.incarnation);
            DecideError { kind: Kind::Invalid, message }
        }
    }
}

#[cfg(test)]
#[path = "kept_test.rs"]
mod tests;
