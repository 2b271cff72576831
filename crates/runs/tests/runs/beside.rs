//! An owner that does something else in the middle of a step: what two threads do at the same time, in one and the same order
//! each time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use assent_runs::{Entry, Fate, Owner, Tally};

use super::Accounts;

type Then<'a> = Box<dyn FnOnce() + Send + 'a>;

pub struct Beside<'a> {
    accounts: &'a Accounts,
    left: AtomicU64,
    then: Mutex<Option<Then<'a>>>,
}

impl<'a> Beside<'a> {
    /// It is done when a step has told of so many entries.
    pub fn new(accounts: &'a Accounts, entries: u64, then: impl FnOnce() + Send + 'a) -> Self {
        Self { accounts, left: AtomicU64::new(entries), then: Mutex::new(Some(Box::new(then))) }
    }

    /// Whether the step was long enough.
    pub fn is_done(&self) -> bool {
        self.then.lock().unwrap().is_none()
    }

    fn told(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            let then = self.then.lock().unwrap().take();
            then.expect("once")();
        }
    }
}

impl Owner for Beside<'_> {
    fn tally(&self) -> Box<dyn Tally + '_> {
        Box::new(Watched { told: Box::new(|| self.told()), under: self.accounts.tally() })
    }

    fn durable(&self) -> u64 {
        self.accounts.durable()
    }

    fn gathers(&self) -> bool {
        self.accounts.gathers()
    }
}

struct Watched<'a> {
    told: Box<dyn Fn() + 'a>,
    under: Box<dyn Tally + 'a>,
}

impl Tally for Watched<'_> {
    fn enters(&mut self, entry: &Entry<'_>) {
        self.under.enters(entry);
    }

    fn leaves(&mut self, entry: &Entry<'_>) {
        self.under.leaves(entry);
        (self.told)();
    }

    fn judge(&mut self, entry: &Entry<'_>) -> Fate {
        (self.told)();
        self.under.judge(entry)
    }

    fn note(&mut self, applied: u64) -> Vec<u8> {
        self.under.note(applied)
    }

    fn committed(self: Box<Self>) {
        self.under.committed();
    }
}
