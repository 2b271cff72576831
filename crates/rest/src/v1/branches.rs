//! A transaction's branches in the engines of this process: of the store, and of the documents.
//!
//! Walk: [`Stores`] which engines are resources, and as what · [`Work::keys`] and [`Work::documents`] start a branch with the first
//! work on it · [`Work::write_key`] writes a key and its condition · [`Shared`] lets the work and the commit reach the same connection.
//! Deliberately absent: what is written.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use assent_client::Transaction;
use assent_docs::{Database, DocsResource, Meta};
use assent_ids::Xid;
use assent_kv::{Condition, Kv, KvResource, Op};
use assent_xa::{Reply, Resource, Verb};

use super::desk::lock;
use super::share::Share;
use crate::docs::Place;
use crate::identity::Caller;
use crate::problem::Problem;

/// Engines of this process, each with the name under which it is a resource.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    pub(crate) kv: Option<(String, Arc<Kv>)>,
    pub(crate) documents: Option<(String, Arc<Database>)>,
}

/// A connection that the transaction drives and the work uses.
struct Shared {
    name: String,
    inner: Arc<Mutex<DocsResource>>,
}

impl Resource for Shared {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&mut self, verb: Verb) {
        lock(&self.inner).send(verb);
    }

    fn receive(&mut self) -> Reply {
        lock(&self.inner).receive()
    }

    fn witness(&mut self) -> Vec<u8> {
        lock(&self.inner).witness()
    }
}

/// The branches that work is done on.
pub(crate) struct Work<'a> {
    pub(super) stores: &'a Stores,
    pub(crate) caller: &'a Caller,
    pub(super) transaction: &'a mut Transaction<'static>,
    pub(super) keys: &'a mut Option<Xid>,
    pub(super) documents: &'a mut Option<Arc<Mutex<DocsResource>>>,
    pub(super) share: &'a mut Share,
    pub(super) meta: Meta,
    pub(super) writes: &'a mut u64,
    pub(super) documents_written: &'a mut u64,
    /// Documents that it made.
    pub(super) made: &'a mut BTreeSet<Place>,
}

impl<'a> Work<'a> {
    /// The store, and the branch's name there.
    pub(crate) fn keys(&mut self) -> Result<(&'a Kv, Xid), Problem> {
        let Some((name, kv)) = &self.stores.kv else { return Err(no_resource("keys", "kv", "kv")) };
        let xid = match self.keys {
            Some(xid) => *xid,
            None => *self.keys.insert(self.transaction.keep(KvResource::new(name, Arc::clone(kv)))?),
        };
        Ok((kv, xid))
    }

    /// The documents, and the branch's connection to them.
    pub(crate) fn documents(&mut self) -> Result<(&'a Database, MutexGuard<'_, DocsResource>), Problem> {
        let Some((name, database)) = &self.stores.documents else {
            return Err(no_resource("documents", "documents", "docs"));
        };
        self.share.room()?;
        let inner = match self.documents {
            Some(inner) => inner,
            None => {
                let resource = DocsResource::new(name, Arc::clone(database), self.meta.clone());
                let inner = Arc::new(Mutex::new(resource));
                self.transaction.keep(Shared { name: name.clone(), inner: Arc::clone(&inner) })?;
                self.documents.insert(inner)
            }
        };
        Ok((database, lock(inner)))
    }

    /// Looks what the work on documents keeps in memory.
    pub(crate) fn weigh(&mut self) {
        let held = self.documents.as_ref().map_or(0, |inner| lock(inner).held_bytes());
        self.share.weigh(held);
    }

    /// Writes a key, under a condition maybe. A write that is refused leaves no condition behind.
    pub(crate) fn write_key(&mut self, condition: Option<Condition<'_>>, op: &Op<'_>) -> Result<(), Problem> {
        let (kv, xid) = self.keys()?;
        kv.branch_write(&xid, op)?;
        // Before its condition: a write without it must not be committed, and what is counted and fails then ends the transaction.
        *self.writes += 1;
        if let Some(condition) = condition {
            kv.branch_expect(&xid, condition)?;
        }
        Ok(())
    }

    /// A document was.
    pub(crate) const fn wrote_document(&mut self) {
        *self.writes += 1;
        *self.documents_written += 1;
    }
}

fn no_resource(what: &str, section: &str, url: &str) -> Problem {
    Problem::not_found(format!(
        "the {what} of this server are no resource of its transactions: write [{section}] and [[resource]] with kind = \
         \"own\" and url = \"{url}\""
    ))
}
