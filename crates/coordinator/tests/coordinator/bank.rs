//! A resource manager in memory: prepared branches, what became of each, and trouble on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use assent_ids::{Branch, NodeId, ResourceId, TxId, Xid};
use assent_kind::Kind;
use assent_xa::{Connector, Heuristic, Native, Past, Reply, Resource, Verb, Vote};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It cannot be reached.
    Dead,
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
    pub(crate) verbs: BTreeMap<&'static str, u64>,
}

/// Clones are the same bank.
#[derive(Clone)]
pub(crate) struct Bank {
    name: String,
    vault: Arc<Mutex<Vault>>,
}

pub(crate) struct Teller {
    bank: Bank,
    pending: Option<Reply>,
}

impl Bank {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), vault: Arc::default() }
    }

    pub(crate) fn vault(&self) -> MutexGuard<'_, Vault> {
        self.vault.lock().unwrap()
    }

    pub(crate) fn teller(&self) -> Teller {
        Teller { bank: self.clone(), pending: None }
    }

    pub(crate) fn xid(&self, node: NodeId, tx: TxId, number: u16) -> Xid {
        Branch { node, tx, resource: ResourceId::of(&self.name), number, flags: 0 }.xid()
    }

    /// A branch that a client has prepared.
    pub(crate) fn prepare(&self, node: NodeId, tx: TxId, number: u16) -> Xid {
        let xid = self.xid(node, tx, number);
        self.vault().prepared.insert(xid);
        xid
    }

    pub(crate) fn trouble(&self, trouble: Option<Trouble>) {
        self.vault().trouble = trouble;
    }

    fn answer(&self, verb: Verb) -> Reply {
        let mut vault = self.vault();
        let (name, _) = named(&verb);
        *vault.verbs.entry(name).or_default() += 1;
        let native = |message: &str| Native { code: "T0001".to_owned(), message: message.to_owned() };
        let phase_two = matches!(verb, Verb::Commit(_) | Verb::Rollback(_));
        match vault.trouble {
            Some(Trouble::Dead) => return Reply::Lost(native("dead")),
            Some(Trouble::LosesVerbs) if phase_two => return Reply::Lost(native("lost")),
            Some(Trouble::Refuses) if phase_two => return Reply::Refused(Kind::Busy, native("busy")),
            Some(Trouble::Heuristic(heuristic)) if phase_two => return Reply::Heuristic(heuristic, native("by hand")),
            _ => {}
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
            Verb::Claim(_) | Verb::Evict(_) => Reply::Done,
            Verb::Inquire { .. } => Reply::Past(Past::Forgotten),
            Verb::Recover(node) => {
                if vault.trouble == Some(Trouble::Standby) {
                    return Reply::Listed(Vec::new());
                }
                let ours = |xid: &&Xid| xid.gtrid().starts_with(&Branch::prefix(node));
                Reply::Listed(vault.prepared.iter().filter(ours).copied().collect())
            }
        };
        if vault.trouble == Some(Trouble::LosesAnswers) && phase_two {
            return Reply::Lost(native("lost"));
        }
        reply
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
    }
}

impl Resource for Teller {
    fn name(&self) -> &str {
        &self.bank.name
    }

    fn send(&mut self, verb: Verb) {
        assert!(self.pending.is_none(), "one receive follows each send");
        self.pending = Some(self.bank.answer(verb));
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
        let mut vault = self.vault();
        vault.connects += 1;
        if vault.trouble == Some(Trouble::Dead) {
            return Err((Kind::Unavailable, Native { code: String::new(), message: "dead".to_owned() }));
        }
        drop(vault);
        Ok(Box::new(self.teller()))
    }
}
