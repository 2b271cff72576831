//! A resource manager in memory: prepared branches, what became of each, and trouble on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use assent_ids::{Branch, Mark, NodeId, ResourceId, TxId, Xid};
use assent_kind::Kind;
use assent_xa::{Connector, Heuristic, Native, Past, ROWS_MAX, Reply, Resource, Verb, Vote};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It cannot be reached.
    Dead,
    /// It takes a connection and says nothing, for as long as the trouble lasts.
    Hangs,
    /// Somebody answers in its place who has none of its branches: a standby, for as long as a fail-over takes.
    Standby,
    /// It does what it is told in phase two, and the answer is lost.
    LosesAnswers,
    /// It loses phase two's verbs.
    LosesVerbs,
    /// It refuses phase two.
    Refuses,
    /// It has finished every branch by itself, like this.
    Heuristic(Heuristic),
}

/// The number of every bank's table of rows.
pub(crate) const TABLE: u64 = 77;

/// Decisions that are rows, and the clients' transactions that write them, as a database has them.
#[derive(Default)]
pub(crate) struct Rows {
    /// Votes of the clients'; none: recovery's. And the number of the transaction that wrote it.
    pub(crate) standing: BTreeMap<TxId, (Option<Vec<u8>>, u64)>,
    /// Clients' transactions that are open, and their numbers.
    open: BTreeMap<TxId, u64>,
    number: u64,
    /// Clients' last messages on their way.
    pub(crate) sent: Vec<(TxId, Vec<u8>)>,
    /// Written, and not committed yet.
    written: BTreeMap<TxId, Vec<u8>>,
    /// What they were answered.
    answers: BTreeMap<TxId, bool>,
    /// Ever.
    pub(crate) committed: BTreeSet<TxId>,
    /// For whom recovery was asked to wait.
    pub(crate) waited: BTreeSet<TxId>,
    /// Rules left out.
    pub(crate) drops_early: bool,
    pub(crate) overwrites: bool,
    pub(crate) does_not_wait: bool,
    /// Nobody may delete rows.
    pub(crate) is_denied: bool,
}

impl Rows {
    pub(crate) fn begin(&mut self, tx: TxId) {
        self.number += 1;
        self.open.insert(tx, self.number);
    }

    /// Rolled back, or its session is gone.
    pub(crate) fn end(&mut self, tx: TxId) {
        self.open.remove(&tx);
        self.written.remove(&tx);
    }

    pub(crate) fn all_end(&mut self) {
        self.open.clear();
        self.written.clear();
        self.sent.clear();
    }

    /// A client's message, in two steps: the row, the commit.
    pub(crate) fn arrives(&mut self, at: usize) {
        let (tx, votes) = self.sent[at].clone();
        let Some(number) = self.open.get(&tx).copied() else {
            self.sent.remove(at);
            return;
        };
        let is_taken = self.standing.contains_key(&tx);
        if self.written.remove(&tx).is_some() || is_taken {
            self.sent.remove(at);
            self.open.remove(&tx);
            self.answers.insert(tx, !is_taken);
            if !is_taken {
                self.standing.insert(tx, (Some(votes), number));
                self.committed.insert(tx);
            }
        } else {
            self.written.insert(tx, votes);
        }
    }

    /// A client's row is written, and not committed.
    pub(crate) fn holds(&mut self, tx: TxId) {
        self.written.insert(tx, Vec::new());
    }

    pub(crate) fn answer(&self, tx: TxId) -> Option<bool> {
        self.answers.get(&tx).copied()
    }

    fn say(&mut self, verb: &Verb) -> Reply {
        match verb {
            Verb::Settle { tx, mark, .. } => self.settle(*tx, mark.table),
            Verb::Clear { .. } | Verb::Rows { .. } if self.is_denied => {
                Reply::Refused(Kind::Denied, native("nobody may delete"))
            }
            Verb::Rows { after, .. } => self.list(*after),
            Verb::Clear { txs, .. } => {
                txs.iter().for_each(|tx| drop(self.standing.remove(tx)));
                Reply::Done
            }
            _ => Reply::without_rows(),
        }
    }

    fn settle(&mut self, tx: TxId, table: u64) -> Reply {
        if table != TABLE {
            return Reply::Refused(Kind::Invalid, native("another table"));
        }
        if self.written.contains_key(&tx) && !self.does_not_wait {
            self.waited.insert(tx);
            return Reply::Refused(Kind::Busy, native("a client is about to commit"));
        }
        self.number += 1;
        if self.does_not_wait && self.written.contains_key(&tx) {
            return Reply::Row(None);
        }
        if self.overwrites {
            self.standing.insert(tx, (None, self.number));
        }
        let (votes, _) = self.standing.entry(tx).or_insert((None, self.number));
        Reply::Row(votes.clone())
    }

    fn list(&mut self, after: Option<TxId>) -> Reply {
        let oldest = self.open.values().copied().min().unwrap_or(u64::MAX);
        let drops_early = self.drops_early;
        self.standing.retain(|_, (votes, number)| votes.is_some() || (*number >= oldest && !drops_early));
        let commits = self.standing.iter().filter(|(tx, _)| Some(**tx) > after);
        Reply::Rows(commits.filter_map(|(tx, (votes, _))| Some((*tx, votes.clone()?))).take(ROWS_MAX).collect())
    }
}

/// Something that happens while an answer is on its way.
pub(crate) type Meanwhile = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct Vault {
    pub(crate) prepared: BTreeSet<Xid>,
    pub(crate) committed: BTreeSet<Xid>,
    pub(crate) rolled_back: BTreeSet<Xid>,
    pub(crate) forgotten: BTreeSet<Xid>,
    pub(crate) trouble: Option<Trouble>,
    pub(crate) read_only: bool,
    pub(crate) votes_no: bool,
    /// Happens after the next list was made and before it is read.
    pub(crate) meanwhile: Option<Meanwhile>,
    pub(crate) connects: u64,
    /// Connections that are open, and the most that ever were.
    pub(crate) open: usize,
    pub(crate) open_most: usize,
    /// It remembers nothing of finished branches.
    pub(crate) is_forgetful: bool,
    /// It is another server than the one that voted.
    pub(crate) is_elsewhere: bool,
    /// What it was asked with, in [`Verb::Inquire`].
    pub(crate) witnesses: Vec<Vec<u8>>,
    /// Branches that a living session keeps from everybody else.
    pub(crate) kept: BTreeSet<Xid>,
    /// Sessions are another account's: nobody may end them.
    pub(crate) is_denied: bool,
    /// Branches whose voter's session is on its way out: an outcome is answered with success, and nothing is done.
    pub(crate) going: BTreeSet<Xid>,
    /// Branches whose client has other sessions, which have not gone.
    pub(crate) beside: BTreeSet<Xid>,
    /// An answer to an outcome that is lost, once, though its verb was done.
    pub(crate) loses: Option<Xid>,
    /// Connections that have died without anybody's doing.
    pub(crate) broken: BTreeSet<u64>,
    /// Which connection has claimed the node's branches.
    pub(crate) claims: BTreeMap<NodeId, u64>,
    pub(crate) verbs: BTreeMap<&'static str, u64>,
    pub(crate) rows: Rows,
}

/// Clones are the same bank.
#[derive(Clone)]
pub(crate) struct Bank {
    name: String,
    vault: Arc<Mutex<Vault>>,
}

pub(crate) struct Teller {
    bank: Bank,
    /// The connection's number.
    number: u64,
    pending: Option<Reply>,
}

impl Drop for Teller {
    fn drop(&mut self) {
        let Ok(mut vault) = self.bank.vault.lock() else { return };
        vault.open -= 1;
        vault.claims.retain(|_, number| *number != self.number);
    }
}

impl Bank {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), vault: Arc::default() }
    }

    pub(crate) fn vault(&self) -> MutexGuard<'_, Vault> {
        self.vault.lock().unwrap()
    }

    pub(crate) fn teller(&self) -> Teller {
        let mut vault = self.vault();
        vault.connects += 1;
        vault.open += 1;
        vault.open_most = vault.open_most.max(vault.open);
        let number = vault.connects;
        drop(vault);
        Teller { bank: self.clone(), number, pending: None }
    }

    pub(crate) fn xid(&self, node: NodeId, tx: TxId, number: u16) -> Xid {
        Branch { node, tx, resource: ResourceId::of(&self.name), number, flags: 0, mark: None }.xid()
    }

    /// A branch that a client has prepared.
    pub(crate) fn prepare(&self, node: NodeId, tx: TxId, number: u16) -> Xid {
        let xid = self.xid(node, tx, number);
        self.vault().prepared.insert(xid);
        xid
    }

    /// The name of a branch whose decision may be a row.
    pub(crate) fn marked(&self, node: NodeId, tx: TxId, number: u16, mark: Mark) -> Xid {
        Branch { mark: Some(mark), ..self.xid(node, tx, number).branch().unwrap() }.xid()
    }

    pub(crate) fn prepare_marked(&self, node: NodeId, tx: TxId, number: u16, mark: Mark) {
        let xid = self.marked(node, tx, number, mark);
        self.vault().prepared.insert(xid);
    }

    pub(crate) fn trouble(&self, trouble: Option<Trouble>) {
        self.vault().trouble = trouble;
    }

    fn answer(&self, verb: Verb, connection: u64) -> Reply {
        let mut vault = self.vault();
        let (name, xid) = named(&verb);
        *vault.verbs.entry(name).or_default() += 1;
        let phase_two = matches!(verb, Verb::Commit(_) | Verb::Rollback(_));
        if vault.broken.contains(&connection) {
            return Reply::Lost(native("broken"));
        }
        if let Some(reply) = vault.spoiled(&verb) {
            return reply;
        }
        let known = |there: bool| if there { Reply::Done } else { Reply::Unknown(native("no such branch")) };
        let reply = match verb {
            Verb::Start(_) | Verb::End { .. } => Reply::Done,
            Verb::Prepare(_) if vault.votes_no => Reply::RolledBack(native("no")),
            Verb::Prepare(_) if vault.read_only => Reply::Vote(Vote::ReadOnly),
            Verb::Prepare(xid) => {
                vault.prepared.insert(xid);
                Reply::Vote(Vote::Yes)
            }
            Verb::CommitOnePhase(xid) => {
                vault.committed.insert(xid);
                Reply::Done
            }
            Verb::Commit(xid) => {
                let there = vault.prepared.remove(&xid);
                if there {
                    vault.committed.insert(xid);
                }
                known(there)
            }
            Verb::Rollback(xid) => {
                let there = vault.prepared.remove(&xid);
                if there {
                    vault.rolled_back.insert(xid);
                }
                known(there)
            }
            Verb::Forget(xid) => {
                vault.forgotten.insert(xid);
                known(vault.prepared.remove(&xid))
            }
            Verb::Claim(node) => match *vault.claims.entry(node).or_insert(connection) {
                holder if holder == connection => Reply::Done,
                holder => Reply::Refused(Kind::Conflict, native(&format!("connection {holder} has it"))),
            },
            Verb::Evict(xid) => vault.evict(&xid),
            Verb::Freed { xid, .. } => vault.freed(&xid),
            Verb::CommitLast { .. } | Verb::Settle { .. } | Verb::Rows { .. } | Verb::Clear { .. } => {
                vault.rows.say(&verb)
            }
            Verb::Inquire { xid, witness } => {
                vault.witnesses.push(witness);
                Reply::Past(vault.past(&xid))
            }
            Verb::Recover(node) => {
                if vault.trouble == Some(Trouble::Standby) {
                    return Reply::Listed(Vec::new());
                }
                let ours = |xid: &&Xid| xid.gtrid().starts_with(&Branch::prefix(node));
                Reply::Listed(vault.prepared.iter().filter(ours).copied().collect())
            }
        };
        let is_lost = phase_two && vault.loses.take_if(|lost| Some(*lost) == xid).is_some();
        if is_lost || (phase_two && vault.trouble == Some(Trouble::LosesAnswers)) {
            return Reply::Lost(native("lost"));
        }
        reply
    }
}

fn native(message: &str) -> Native {
    Native { code: "T0001".to_owned(), message: message.to_owned() }
}

impl Vault {
    /// What trouble answers in its place.
    fn spoiled(&self, verb: &Verb) -> Option<Reply> {
        let phase_two = matches!(verb, Verb::Commit(_) | Verb::Rollback(_));
        let is_kept = matches!(verb, Verb::Commit(xid) | Verb::Rollback(xid) if self.kept.contains(xid));
        Some(match self.trouble {
            Some(Trouble::Dead) => Reply::Lost(native("dead")),
            Some(Trouble::Standby) if matches!(verb, Verb::Inquire { .. }) => {
                Reply::Refused(Kind::Unavailable, native("in recovery"))
            }
            Some(Trouble::LosesVerbs) if phase_two => Reply::Lost(native("lost")),
            Some(Trouble::Refuses) if phase_two => Reply::Refused(Kind::Busy, native("busy")),
            Some(Trouble::Heuristic(heuristic)) if phase_two => Reply::Heuristic(heuristic, native("by hand")),
            _ if is_kept => Reply::Refused(Kind::Busy, native("attached")),
            _ if matches!(verb, Verb::Commit(xid) | Verb::Rollback(xid) if self.going.contains(xid)) => Reply::Done,
            _ => return None,
        })
    }

    fn evict(&mut self, xid: &Xid) -> Reply {
        if self.is_denied {
            return Reply::Refused(Kind::Denied, native("another account's"));
        }
        self.kept.remove(xid);
        if self.going.contains(xid) {
            return Reply::Refused(Kind::Busy, native("its connection has not gone"));
        }
        Reply::Done
    }

    fn freed(&self, xid: &Xid) -> Reply {
        if [&self.kept, &self.going, &self.beside].iter().any(|there| there.contains(xid)) {
            return Reply::Refused(Kind::Busy, native("its connection is there"));
        }
        Reply::Done
    }

    fn past(&self, xid: &Xid) -> Past {
        match (self.prepared.contains(xid), self.committed.contains(xid), self.rolled_back.contains(xid)) {
            (true, ..) => Past::Open,
            _ if self.is_elsewhere => Past::Elsewhere(Native { code: String::new(), message: "timeline 2".to_owned() }),
            _ if self.is_forgetful => Past::Forgotten,
            (_, true, _) => Past::Committed,
            (_, _, true) => Past::RolledBack,
            _ => Past::Forgotten,
        }
    }
}

fn named(verb: &Verb) -> (&'static str, Option<Xid>) {
    match verb {
        Verb::Start(xid) => ("start", Some(*xid)),
        Verb::End { xid, .. } => ("end", Some(*xid)),
        Verb::Prepare(xid) => ("prepare", Some(*xid)),
        Verb::Commit(xid) => ("commit", Some(*xid)),
        Verb::CommitOnePhase(xid) => ("one phase", Some(*xid)),
        Verb::Rollback(xid) => ("rollback", Some(*xid)),
        Verb::Recover(_) => ("recover", None),
        Verb::Forget(xid) => ("forget", Some(*xid)),
        Verb::Claim(_) => ("claim", None),
        Verb::Inquire { xid, .. } => ("inquire", Some(*xid)),
        Verb::Evict(xid) => ("evict", Some(*xid)),
        Verb::Freed { xid, .. } => ("freed", Some(*xid)),
        Verb::CommitLast { xid, .. } => ("commit last", Some(*xid)),
        Verb::Settle { .. } => ("settle", None),
        Verb::Rows { .. } => ("rows", None),
        Verb::Clear { .. } => ("clear", None),
    }
}

impl Resource for Teller {
    fn name(&self) -> &str {
        &self.bank.name
    }

    fn send(&mut self, verb: Verb) {
        assert!(self.pending.is_none(), "one receive follows each send");
        self.pending = Some(self.bank.answer(verb, self.number));
    }

    fn has_ended(&mut self) -> bool {
        self.bank.vault().broken.contains(&self.number)
    }

    fn receive(&mut self) -> Reply {
        let reply = self.pending.take().expect("a send comes before a receive");
        if matches!(reply, Reply::Listed(_)) {
            let meanwhile = self.bank.vault().meanwhile.take();
            if let Some(meanwhile) = meanwhile {
                meanwhile();
            }
        }
        reply
    }
}

impl Connector for Bank {
    fn name(&self) -> &str {
        &self.name
    }

    fn connect(&self) -> Result<Box<dyn Resource>, (Kind, Native)> {
        while self.vault().trouble == Some(Trouble::Hangs) {
            std::thread::yield_now();
        }
        let mut vault = self.vault();
        if vault.trouble == Some(Trouble::Dead) {
            vault.connects += 1;
            return Err((Kind::Unavailable, Native { code: String::new(), message: "dead".to_owned() }));
        }
        drop(vault);
        Ok(Box::new(self.teller()))
    }
}
