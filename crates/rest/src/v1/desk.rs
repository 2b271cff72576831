//! Transactions that callers of this listener have open.
//!
//! Walk: [`Desk::begin`] names one · [`Desk::within`] works on its branch in the store of this process, which is started by
//! the first work · [`Desk::commit`], [`Desk::roll_back`] end it, and what became of it is kept for whoever lost the answer ·
//! [`Desk::sweep`] undoes those whose time is over. A transaction belongs to who began it.
//! Deliberately absent: transactions of other clients; the coordinator lists those.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assent_client::{Client, CommitError, Retries, Transaction};
use assent_coordinator::Coordinator;
use assent_door::Role;
use assent_ids::{TxId, Xid};
use assent_kind::Kind;
use assent_kv::{Kv, KvResource};
use assent_world::{Clock, Moment};

use crate::identity::Caller;
use crate::problem::Problem;

/// Transactions that may be open at a time.
const OPEN_MAX: usize = 1_024;
/// Of one caller, where callers are known.
const OPEN_OF_ONE_MAX: usize = 64;
/// Outcomes that are remembered.
const ENDED_MAX: usize = 4_096;

/// How a transaction of this listener ended.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// Resources that recovery still has to tell.
    Committed(Vec<String>),
    RolledBack(String),
    /// In doubt, heuristic, or not to be used: the kind says what to do.
    Otherwise(Kind, String),
}

/// An open transaction as its caller sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) tx: TxId,
    pub(crate) left: Duration,
    pub(crate) writes: u64,
}

struct Open {
    /// None once it has ended.
    transaction: Option<Transaction<'static>>,
    /// Its branch in the store of this process.
    store: Option<Xid>,
    owner: Arc<str>,
    until: Moment,
    writes: u64,
}

/// A branch that work is done on.
pub(crate) struct Branch<'a> {
    pub(crate) kv: &'a Kv,
    pub(crate) xid: Xid,
    writes: &'a mut u64,
}

impl Branch<'_> {
    pub(crate) const fn wrote(&mut self) {
        *self.writes += 1;
    }
}

pub(crate) struct Desk {
    coordinator: Option<Arc<Coordinator>>,
    kv: Option<Arc<Kv>>,
    own_store: Option<String>,
    clock: Arc<dyn Clock>,
    client: Mutex<Option<Client>>,
    open: Mutex<BTreeMap<TxId, Arc<Mutex<Open>>>>,
    ended: Mutex<VecDeque<(TxId, Arc<str>, Ended)>>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("open", &lock(&self.open).len()).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desk {
    pub(crate) fn new(
        coordinator: Option<Arc<Coordinator>>,
        kv: Option<Arc<Kv>>,
        own_store: Option<String>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (client, open, ended) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { coordinator, kv, own_store, clock, client, open, ended }
    }

    pub(crate) fn begin(&self, caller: &Caller, time: Duration) -> Result<View, Problem> {
        if lock(&self.open).len() >= OPEN_MAX {
            return Err(Problem::of(Kind::Busy, format!("{OPEN_MAX} transactions are open; end some, or wait")));
        }
        let transaction = self.client()?.begin()?;
        let tx = transaction.tx();
        let until = self.clock.now().after(time);
        let open =
            Open { transaction: Some(transaction), store: None, owner: Arc::clone(&caller.name), until, writes: 0 };
        lock(&self.open).insert(tx, Arc::new(Mutex::new(open)));
        Ok(View { tx, left: time, writes: 0 })
    }

    /// This process as a client of its own coordinator, which takes clients once recovery has looked around.
    fn client(&self) -> Result<Client, Problem> {
        let coordinator = self.coordinator.as_ref();
        let coordinator =
            coordinator.ok_or_else(|| Problem::not_found("this server has no coordinator: write [coordinator]"))?;
        let mut client = lock(&self.client);
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let fresh = Client::embedded(coordinator, Retries::default())?;
        *client = Some(fresh.clone());
        Ok(fresh)
    }

    /// Works within a transaction, on its branch of the store.
    pub(crate) fn within<T>(
        &self,
        tx: TxId,
        caller: &Caller,
        work: impl FnOnce(&mut Branch<'_>) -> Result<T, Problem>,
    ) -> Result<(T, View), Problem> {
        let (Some(kv), Some(name)) = (&self.kv, &self.own_store) else {
            return Err(Problem::not_found(
                "the keys of this server are no resource of its transactions: write [kv] and [[resource]] with kind = \
                 \"own\" and url = \"kv\"",
            ));
        };
        let open = self.find(tx, caller)?;
        let mut open = lock(&open);
        let Open { transaction: Some(transaction), store, until, writes, .. } = &mut *open else {
            return Err(over(tx));
        };
        let left = until.since(self.clock.now());
        if left.is_zero() {
            return Err(over(tx));
        }
        let xid = match store {
            Some(xid) => *xid,
            None => *store.insert(transaction.keep(KvResource::new(name, Arc::clone(kv)))?),
        };
        let done = work(&mut Branch { kv, xid, writes })?;
        Ok((done, View { tx, left, writes: *writes }))
    }

    pub(crate) fn commit(&self, tx: TxId, caller: &Caller) -> Result<Ended, Problem> {
        self.end(tx, caller, |transaction| match transaction.commit() {
            Ok(committed) => Ended::Committed(committed.unfinished.into_iter().map(|(name, _)| name).collect()),
            Err(error) => failed(error),
        })
    }

    pub(crate) fn roll_back(&self, tx: TxId, caller: &Caller) -> Result<Ended, Problem> {
        self.end(tx, caller, |transaction| match transaction.rollback() {
            Ok(_) => Ended::RolledBack(format!("transaction {tx} is rolled back: as the caller asked")),
            Err(error) => failed(error),
        })
    }

    /// Ends it, or says how it ended before.
    fn end(
        &self,
        tx: TxId,
        caller: &Caller,
        how: impl FnOnce(Transaction<'static>) -> Ended,
    ) -> Result<Ended, Problem> {
        let found = match self.find(tx, caller) {
            Ok(open) => open,
            Err(problem) => return self.ended(tx, caller).ok_or(problem),
        };
        let mut open = lock(&found);
        let is_over = open.until <= self.clock.now();
        let Some(transaction) = open.transaction.take() else {
            drop(open);
            return self.ended(tx, caller).ok_or_else(|| over(tx));
        };
        // Nobody commits behind the time at which it was said to be undone.
        let ended = if is_over { undone(tx, transaction) } else { how(transaction) };
        self.keep(tx, Arc::clone(&open.owner), ended.clone());
        lock(&self.open).remove(&tx);
        Ok(ended)
    }

    fn keep(&self, tx: TxId, owner: Arc<str>, ended: Ended) {
        let mut list = lock(&self.ended);
        if list.len() >= ENDED_MAX {
            list.pop_front();
        }
        list.push_back((tx, owner, ended));
    }

    /// How one of the caller's ended, if that is remembered.
    pub(crate) fn ended(&self, tx: TxId, caller: &Caller) -> Option<Ended> {
        let list = lock(&self.ended);
        let (_, owner, ended) = list.iter().rev().find(|(known, ..)| *known == tx)?;
        is_of(owner, caller).then(|| ended.clone())
    }

    /// One of the caller's that is open.
    pub(crate) fn view(&self, tx: TxId, caller: &Caller) -> Option<View> {
        let open = self.find(tx, caller).ok()?;
        let open = lock(&open);
        open.transaction.as_ref()?;
        Some(View { tx, left: open.until.since(self.clock.now()), writes: open.writes })
    }

    /// All of the caller's that are open; those that are being worked on just now are left out of their own way.
    pub(crate) fn views(&self, caller: &Caller) -> Vec<View> {
        let all: Vec<_> = lock(&self.open).iter().map(|(tx, open)| (*tx, Arc::clone(open))).collect();
        let now = self.clock.now();
        let view = |(tx, open): (TxId, Arc<Mutex<Open>>)| {
            let open = lock(&open);
            let is_seen = open.transaction.is_some() && is_of(&open.owner, caller);
            is_seen.then(|| View { tx, left: open.until.since(now), writes: open.writes })
        };
        all.into_iter().filter_map(view).collect()
    }

    /// Undoes those whose time is over.
    pub(crate) fn sweep(&self) {
        let all: Vec<_> = lock(&self.open).iter().map(|(tx, open)| (*tx, Arc::clone(open))).collect();
        let now = self.clock.now();
        for (tx, open) in all {
            // Whoever works on it now looks at the time himself.
            let Ok(mut open) = open.try_lock() else { continue };
            if open.until > now {
                continue;
            }
            if let Some(transaction) = open.transaction.take() {
                let ended = undone(tx, transaction);
                self.keep(tx, Arc::clone(&open.owner), ended);
            }
            lock(&self.open).remove(&tx);
        }
    }

    /// Refuses one more to who has many. Those that are being worked on just now are not waited for, and not counted.
    pub(crate) fn room_for(&self, caller: &Caller) -> Result<(), Problem> {
        let is_own = |open: &&Arc<Mutex<Open>>| open.try_lock().is_ok_and(|open| open.owner == caller.name);
        if lock(&self.open).values().filter(is_own).count() >= OPEN_OF_ONE_MAX {
            let detail = format!("{OPEN_OF_ONE_MAX} transactions of this caller are open; end some, or wait");
            return Err(Problem::of(Kind::Busy, detail));
        }
        Ok(())
    }

    fn find(&self, tx: TxId, caller: &Caller) -> Result<Arc<Mutex<Open>>, Problem> {
        let open = lock(&self.open).get(&tx).map(Arc::clone).ok_or_else(|| over(tx))?;
        let is_own = is_of(&lock(&open).owner, caller);
        // Another's is not told from one that is not there.
        if is_own { Ok(open) } else { Err(over(tx)) }
    }
}

fn is_of(owner: &str, caller: &Caller) -> bool {
    *caller.name == *owner || caller.grants.allows(Role::Admin, None)
}

fn undone(tx: TxId, transaction: Transaction<'static>) -> Ended {
    match transaction.rollback() {
        Ok(_) => Ended::RolledBack(format!("transaction {tx} is rolled back: its time was over")),
        Err(error) => failed(error),
    }
}

fn failed(error: CommitError) -> Ended {
    match error.kind {
        Kind::RolledBack => Ended::RolledBack(error.message),
        kind => Ended::Otherwise(kind, error.message),
    }
}

fn over(tx: TxId) -> Problem {
    Problem::not_found(format!("no transaction {tx} of this caller is open: it has ended, or never began here"))
}
