//! Transactions that callers of this listener have open.
//!
//! Walk: [`Desk::begin`] names one · [`Desk::within`] works on its branches in the engines of this process, each started by
//! the first work on it · [`Desk::commit`], [`Desk::roll_back`] end it; that it committed is kept with what it wrote
//! (`records`), how it ended otherwise in memory, for whoever lost the answer · [`Desk::sweep`] undoes those whose time is
//! over. A transaction belongs to who began it.
//! Deliberately absent: transactions of other clients; the coordinator lists those.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use assent_client::{Client, CommitError, Retries, Transaction};
use assent_coordinator::{Coordinator, Known};
use assent_docs::{DocsResource, Meta, OnceName};
use assent_door::Role;
use assent_ids::{TxId, Xid};
use assent_kind::Kind;
use assent_world::{Clock, Moment};
use axum::http::StatusCode;

use super::branches::{Stores, Work};
use super::records::Records;
use super::share::Share;
use crate::docs::{Place, homed};
use crate::identity::Caller;
use crate::once::{Once, another};
use crate::problem::Problem;

/// Transactions that may be open at a time.
const OPEN_MAX: usize = 1_024;
/// Of one caller, where callers are known.
const OPEN_OF_ONE_MAX: usize = 64;
/// Outcomes, and beginnings with a key, that are remembered.
const ENDED_MAX: usize = 4_096;
/// Requests with a key within one transaction.
const REQUESTS_MAX: usize = 65_536;

/// What to do where somebody works in a transaction, and waits there for a seat, maybe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Do nothing.
    None,
    /// Wait for him.
    Waits,
}

impl Patience {
    /// Its lock; none while somebody works in it.
    fn lock(self, open: &Mutex<Open>) -> Option<MutexGuard<'_, Open>> {
        match (self, open.try_lock()) {
            (_, Ok(open)) => Some(open),
            (_, Err(TryLockError::Poisoned(open))) => Some(open.into_inner()),
            (Self::None, Err(TryLockError::WouldBlock)) => None,
            (Self::Waits, Err(TryLockError::WouldBlock)) => Some(lock(open)),
        }
    }
}

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

/// A transaction that was looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen {
    Open(View),
    /// Somebody works in it, and was not waited for.
    AtWork,
    NotOpen,
}

/// An open transaction, and whose it is: that is told without waiting for what is being done in it.
#[derive(Clone)]
struct Held {
    owner: Arc<str>,
    open: Arc<Mutex<Open>>,
}

struct Open {
    /// None once it has ended.
    transaction: Option<Transaction<'static>>,
    /// Its branch of the store.
    keys: Option<Xid>,
    /// Its branch of the documents.
    documents: Option<Arc<Mutex<DocsResource>>>,
    /// What that keeps in memory.
    share: Share,
    owner: Arc<str>,
    until: Moment,
    /// Of which so many to documents.
    writes: u64,
    documents_written: u64,
    /// Documents that it made.
    made: BTreeSet<Place>,
    /// What its commits of documents say.
    message: String,
    /// Why it can only be rolled back.
    doomed: Option<String>,
    /// Requests with a key that were done in it.
    requests: BTreeMap<OnceName, Once>,
}

pub(crate) struct Desk {
    coordinator: Option<Arc<Coordinator>>,
    stores: Stores,
    records: Arc<Records>,
    clock: Arc<dyn Clock>,
    client: Mutex<Option<Client>>,
    open: Mutex<BTreeMap<TxId, Held>>,
    ended: Mutex<VecDeque<(TxId, Arc<str>, Ended)>>,
    begun: Mutex<VecDeque<(Once, TxId)>>,
    /// Bytes that open transactions keep of documents.
    shared: Arc<AtomicU64>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("open", &lock(&self.open).len()).finish_non_exhaustive()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn push<T>(list: &Mutex<VecDeque<T>>, one: T) {
    let mut list = lock(list);
    if list.len() >= ENDED_MAX {
        list.pop_front();
    }
    list.push_back(one);
}

impl Desk {
    pub(crate) fn new(
        coordinator: Option<Arc<Coordinator>>,
        stores: Stores,
        records: Arc<Records>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (client, open, ended, begun) = (Mutex::default(), Mutex::default(), Mutex::default(), Mutex::default());
        Self { coordinator, stores, records, clock, client, open, ended, begun, shared: Arc::default() }
    }

    /// Begins one, if there is room for one more: of all, and of this caller where callers are known.
    pub(crate) fn begin(
        &self,
        caller: &Caller,
        time: Duration,
        message: String,
        is_known: bool,
    ) -> Result<View, Problem> {
        // It has no branch yet: where there is no room, nothing has to be undone.
        let transaction = self.client()?.begin()?;
        let tx = transaction.tx();
        let until = self.clock.now().after(time);
        let open = Open {
            transaction: Some(transaction),
            keys: None,
            documents: None,
            share: Share::of(&self.shared),
            owner: Arc::clone(&caller.name),
            until,
            writes: 0,
            documents_written: 0,
            made: BTreeSet::new(),
            message,
            doomed: None,
            requests: BTreeMap::new(),
        };
        let owner = Arc::clone(&caller.name);
        let held = Held { owner, open: Arc::new(Mutex::new(open)) };
        let mut all = lock(&self.open);
        if all.len() >= OPEN_MAX {
            return Err(Problem::of(Kind::Busy, format!("{OPEN_MAX} transactions are open; end some, or wait")));
        }
        if is_known && all.values().filter(|held| held.owner == caller.name).count() >= OPEN_OF_ONE_MAX {
            let detail = format!("{OPEN_OF_ONE_MAX} transactions of this caller are open; end some, or wait");
            return Err(Problem::of(Kind::Busy, detail));
        }
        all.insert(tx, held);
        Ok(View { tx, left: time, writes: 0 })
    }

    /// The transaction that this request began.
    pub(crate) fn begun(&self, once: &Once) -> Result<Option<TxId>, Problem> {
        let begun = lock(&self.begun);
        match begun.iter().rev().find(|(known, _)| known.name == once.name) {
            Some((known, _)) if known.fingerprint != once.fingerprint => Err(another()),
            found => Ok(found.map(|(_, tx)| *tx)),
        }
    }

    pub(crate) fn has_begun(&self, once: Once, tx: TxId) {
        push(&self.begun, (once, tx));
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

    /// Works within a transaction, on its branches. A request with a key that was done in it is not done again. What fails when part of
    /// it is done leaves a transaction that can only be rolled back: no half of a list is ever committed.
    pub(crate) fn within<T>(
        &self,
        tx: TxId,
        caller: &Caller,
        once: Option<&Once>,
        work: impl FnOnce(&mut Work<'_>) -> Result<T, Problem>,
    ) -> Result<(Option<T>, View), Problem> {
        let open = self.find(tx, caller)?;
        let mut open = lock(&open);
        let left = open.until.since(self.clock.now());
        let before = open.writes;
        let Open {
            transaction,
            keys,
            documents,
            share,
            writes,
            documents_written,
            made,
            message,
            doomed,
            requests,
            ..
        } = &mut *open;
        let transaction = transaction.as_mut().filter(|_| !left.is_zero()).ok_or_else(|| self.over(tx))?;
        if let Some(why) = doomed {
            return Err(Problem::of(Kind::RolledBack, format!("transaction {tx} can only be rolled back: {why}")));
        }
        if let Some(once) = once {
            match requests.get(&once.name) {
                Some(known) if known != once => return Err(another()),
                Some(_) => return Ok((None, View { tx, left, writes: before })),
                None if requests.len() >= REQUESTS_MAX => {
                    let detail = format!("a transaction has at most {REQUESTS_MAX} requests with a key");
                    return Err(Problem::invalid(detail));
                }
                None => {}
            }
        }
        let meta = Meta { author: caller.name.to_string(), message: message.clone(), ..Meta::default() };
        let mut branches = Work {
            stores: &self.stores,
            caller,
            transaction,
            keys,
            documents,
            share,
            meta,
            writes,
            documents_written,
            made,
        };
        let done = work(&mut branches);
        match &done {
            Ok(_) => _ = once.map(|once| requests.insert(once.name, *once)),
            Err(problem) if *writes > before => {
                *doomed = Some(format!("a list of writes was left half done: {}", problem.detail));
            }
            Err(_) => {}
        }
        Ok((Some(done?), View { tx, left, writes: *writes }))
    }

    /// Commits it, or says how it ended before. None: somebody works in it.
    pub(crate) fn commit(
        &self,
        tx: TxId,
        caller: &Caller,
        once: Option<&Once>,
        patience: Patience,
    ) -> Result<Option<Ended>, Problem> {
        self.end(tx, caller, patience, |open, transaction| {
            let why = open.doomed.clone().or_else(|| self.note(tx, open, once).err().map(|problem| problem.detail));
            if let Some(why) = why {
                return match transaction.rollback() {
                    Ok(_) => Ended::RolledBack(format!("transaction {tx} is rolled back: {why}")),
                    Err(error) => failed(error),
                };
            }
            let committed = transaction.commit();
            // What is not finished has its writers' seats still.
            let is_over = committed.as_ref().is_ok_and(|committed| committed.unfinished.is_empty());
            if let Some((_, database)) = self.stores.documents.as_ref().filter(|_| is_over) {
                open.made.iter().for_each(|place| homed(database, place));
            }
            match committed {
                Ok(committed) => Ended::Committed(committed.unfinished.into_iter().map(|(name, _)| name).collect()),
                Err(error) => failed(error),
            }
        })
    }

    /// Writes into the transaction itself that it has committed, and what asked for it.
    fn note(&self, tx: TxId, open: &Open, once: Option<&Once>) -> Result<(), Problem> {
        let outcome = Once::transaction(tx, &open.owner);
        let notes = [Some(&outcome), once].into_iter().flatten();
        let notes = notes.map(|once| (once, once.kept(StatusCode::OK, tx.to_string())));
        if let Some(documents) = open.documents.as_ref().filter(|_| open.documents_written > 0) {
            let fields = notes.map(|(once, kept)| self.records.carried(once, &kept).field()).collect();
            let (author, message) = (open.owner.to_string(), open.message.clone());
            lock(documents).say(Meta { author, message, fields });
            return Ok(());
        }
        let Some((xid, (_, kv))) = open.keys.as_ref().zip(self.stores.kv.as_ref()) else { return Ok(()) };
        for (once, kept) in notes {
            let Some(row) = self.records.row(once, &kept)? else { continue };
            kv.branch_write(xid, &row.op())?;
        }
        Ok(())
    }

    /// Undoes it, or says how it ended before. None: somebody works in it.
    pub(crate) fn roll_back(&self, tx: TxId, caller: &Caller, patience: Patience) -> Result<Option<Ended>, Problem> {
        self.end(tx, caller, patience, |_, transaction| match transaction.rollback() {
            Ok(_) => Ended::RolledBack(format!("transaction {tx} is rolled back: as the caller asked")),
            Err(error) => failed(error),
        })
    }

    /// Ends it, or says how it ended before.
    fn end(
        &self,
        tx: TxId,
        caller: &Caller,
        patience: Patience,
        how: impl FnOnce(&Open, Transaction<'static>) -> Ended,
    ) -> Result<Option<Ended>, Problem> {
        let found = match self.find(tx, caller) {
            Ok(open) => open,
            Err(problem) => return self.ended(tx, caller)?.ok_or(problem).map(Some),
        };
        let Some(mut open) = patience.lock(&found) else { return Ok(None) };
        let is_over = open.until <= self.clock.now();
        let Some(transaction) = open.transaction.take() else {
            drop(open);
            return self.ended(tx, caller)?.ok_or_else(|| self.over(tx)).map(Some);
        };
        // Nobody commits behind the time at which it was said to be undone.
        let ended = if is_over { undone(tx, transaction) } else { how(&open, transaction) };
        push(&self.ended, (tx, Arc::clone(&open.owner), ended.clone()));
        lock(&self.open).remove(&tx);
        Ok(Some(ended))
    }

    /// How one of the caller's ended, if that is known: from memory, or from what was written with it.
    pub(crate) fn ended(&self, tx: TxId, caller: &Caller) -> Result<Option<Ended>, Problem> {
        let list = lock(&self.ended);
        let known = list.iter().rev().find(|(known, ..)| *known == tx).map(|(_, owner, ended)| {
            // What was in doubt may be known by now.
            let is_open = matches!(ended, Ended::Otherwise(Kind::InDoubt, _));
            (is_of(owner, caller).then(|| ended.clone()), is_open)
        });
        drop(list);
        let told = match known {
            Some((told @ Some(_), true)) => told,
            Some((told, _)) => return Ok(told),
            None => None,
        };
        // The coordinator first: what it has finished meanwhile is found below.
        let is_decided = self.coordinator.as_ref().map(|coordinator| coordinator.ask(tx));
        let once = Once::transaction(tx, &caller.name);
        if let Some((kept, _)) = self.records.find(&once)? {
            let is_own = kept.fingerprint == once.fingerprint || caller.grants.allows(Role::Admin, None);
            return Ok(is_own.then(|| Ended::Committed(Vec::new())));
        }
        match is_decided {
            Some(Known::Committed | Known::Undecided | Known::InDoubt) if told.is_none() => {
                let detail = format!("what became of transaction {tx} is being found out, or finished; ask again");
                Err(Problem::of(Kind::Unavailable, detail))
            }
            // What the coordinator knows to be rolled back is in doubt no more.
            Some(Known::RolledBack) if told.is_some() => {
                Ok(Some(Ended::RolledBack(format!("transaction {tx} is rolled back: recovery has found that out"))))
            }
            _ => Ok(told),
        }
    }

    /// One of the caller's, if it is open.
    pub(crate) fn view(&self, tx: TxId, caller: &Caller, patience: Patience) -> Seen {
        let Ok(open) = self.find(tx, caller) else { return Seen::NotOpen };
        let Some(open) = patience.lock(&open) else { return Seen::AtWork };
        if open.transaction.is_none() {
            return Seen::NotOpen;
        }
        Seen::Open(View { tx, left: open.until.since(self.clock.now()), writes: open.writes })
    }

    /// All of the caller's that are open, but those that are being worked on just now: nobody waits for them to be listed.
    pub(crate) fn views(&self, caller: &Caller) -> Vec<View> {
        let own = |(_, held): &(&TxId, &Held)| is_of(&held.owner, caller);
        let all: Vec<_> = lock(&self.open).iter().filter(own).map(|(tx, held)| (*tx, held.clone())).collect();
        let now = self.clock.now();
        let view = |(tx, held): (TxId, Held)| {
            let open = held.open.try_lock().ok().filter(|open| open.transaction.is_some())?;
            Some(View { tx, left: open.until.since(now), writes: open.writes })
        };
        all.into_iter().filter_map(view).collect()
    }

    /// Undoes those whose time is over.
    pub(crate) fn sweep(&self) {
        let all: Vec<_> = lock(&self.open).iter().map(|(tx, held)| (*tx, held.clone())).collect();
        let now = self.clock.now();
        for (tx, held) in all {
            // Whoever works on it now looks at the time himself.
            let Ok(mut open) = held.open.try_lock() else { continue };
            if open.until > now {
                continue;
            }
            if let Some(transaction) = open.transaction.take() {
                let ended = undone(tx, transaction);
                push(&self.ended, (tx, Arc::clone(&open.owner), ended));
            }
            lock(&self.open).remove(&tx);
        }
    }

    fn find(&self, tx: TxId, caller: &Caller) -> Result<Arc<Mutex<Open>>, Problem> {
        // Another's is not told from one that is not there.
        let found = lock(&self.open).get(&tx).filter(|held| is_of(&held.owner, caller)).cloned();
        found.map(|held| held.open).ok_or_else(|| self.over(tx))
    }

    fn over(&self, tx: TxId) -> Problem {
        let seconds = self.records.keep().as_secs();
        Problem::not_found(format!(
            "no transaction {tx} of this caller is open, and none of that name has committed within {seconds} s: it is rolled \
             back, or longer ago, or never began here"
        ))
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
