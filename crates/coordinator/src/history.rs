//! What a log still tells of transactions that are long over, for people: the log is the history.
//!
//! Walk: [`read`] goes through the log once and tells each transaction when it is finished, then those that are not, as
//! the [`Filter`] wants. It keeps in memory only what is unfinished at one place of the log, and the names of clients.
//! Deliberately absent: an index, a second copy. How far back it reaches is the log's archive's to say.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use assent_ids::{Incarnation, ResourceId, TxId};
use assent_journal::Log;
use assent_xa::{Ballot, Heuristic, Native, Outcome, Voice};

use crate::note::Note;
use crate::record::{Decided, Record, Votes, Word, read_branches};
use crate::{Action, BRANCHES_MAX, By, CoordinatorError, Fate};

pub use crate::verify::{Verified, verify};

/// How long before a checkpoint votes may stand whose decision comes behind it.
const BALLOT_AGE_MAX_MS: u64 = 60_000;

/// Which transactions are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Decided at this time or later, in milliseconds since 1970. One without a time is told.
    pub since_ms: Option<u64>,
    /// Decided before this time.
    pub until_ms: Option<u64>,
    /// In this state.
    pub state: Option<State>,
    /// With a branch in this resource.
    pub resource: Option<ResourceId>,
    /// This one.
    pub tx: Option<TxId>,
    /// Behind this one, in the order in which they are told: the last of the page before.
    pub after: Option<TxId>,
    /// So many at most; 0: all.
    pub limit: usize,
}

/// A way to be over, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Decided to commit.
    Committed,
    /// Decided to roll back.
    RolledBack,
    /// A branch ended otherwise than decided, forgotten by a person or not.
    Heuristic,
    /// Decided, and not finished.
    InDoubt,
    /// A person has decided it, or has forgotten its heuristic outcome.
    Forced,
}

/// What a branch voted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vote {
    /// It would do whatever is decided.
    Yes,
    /// It had nothing to commit.
    ReadOnly,
    /// It could not commit; the branch's native words say why.
    No,
}

/// One transaction as the log tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// Which.
    pub tx: TxId,
    /// What was decided.
    pub outcome: Outcome,
    /// By whom.
    pub by: By,
    /// What its client called itself; empty if the log no longer says.
    pub client: String,
    /// When it was decided, in milliseconds since 1970 by the coordinator's clock; `None` if an earlier program decided.
    pub decided_ms: Option<u64>,
    /// Its branches.
    pub branches: Vec<PastBranch>,
    /// What people did about it.
    pub words: Vec<PastWord>,
    /// When it was known to be finished, if it is: at the latest then. `Some(0)`: an earlier program did not note it.
    pub finished_ms: Option<u64>,
}

/// One branch as the log tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastBranch {
    /// The registered resource.
    pub resource: ResourceId,
    /// Which branch of the transaction.
    pub number: u16,
    /// What the decision keeps for its adapter, to tell the truth about it: [`assent_xa::Resource::witness`]. May be empty.
    pub witness: Vec<u8>,
    /// What it voted, as far as the log says.
    pub vote: Option<Vote>,
    /// How it was left, if recovery or its client noted that; else its own client finished it, or it is open.
    pub fate: Option<Fate>,
    /// A heuristic outcome, kept here when a person has forgotten it, too.
    pub heuristic: Option<Heuristic>,
    /// Who left it so.
    pub by: Option<By>,
    /// How often it had to be told again.
    pub retries: u32,
    /// The resource's own words.
    pub native: Native,
    /// When that was noted, in milliseconds since 1970.
    pub noted_ms: Option<u64>,
}

/// What a person did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastWord {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// What.
    pub action: Action,
    /// Who.
    pub who: String,
    /// Why.
    pub reason: String,
}

impl Past {
    /// Whether it is in that state.
    #[must_use]
    pub fn is(&self, state: State) -> bool {
        match state {
            State::Committed => self.outcome == Outcome::Committed,
            State::RolledBack => self.outcome == Outcome::RolledBack,
            State::Heuristic => self.branches.iter().any(|branch| branch.heuristic.is_some()),
            State::InDoubt => self.finished_ms.is_none(),
            State::Forced => self.by == By::Operator || !self.words.is_empty(),
        }
    }

    /// A branch, known before or not.
    fn branch(&mut self, resource: ResourceId, number: u16) -> Option<&mut PastBranch> {
        let same = |one: &PastBranch| one.resource == resource && one.number == number;
        if !self.branches.iter().any(same) {
            self.branches.push(PastBranch::new(resource, number, Vec::new(), None));
        }
        self.branches.iter_mut().find(|one| same(one))
    }

    fn voted(&mut self, at_ms: u64, votes: Votes) {
        for voted in votes.votes {
            // No transaction has more, however often a client tells.
            if self.branches.len() > BRANCHES_MAX {
                break;
            }
            let Some(branch) = self.branch(voted.resource, voted.number) else { continue };
            let Voice { ballot, retries, native } = voted.voice;
            branch.vote = Some(match ballot {
                Ballot::Yes => Vote::Yes,
                Ballot::ReadOnly => Vote::ReadOnly,
                Ballot::No => Vote::No,
            });
            // What recovery has noted of it says more.
            if branch.fate.is_none() && (retries > 0 || native != Native::default()) {
                (branch.retries, branch.native, branch.noted_ms) = (retries, native, Some(at_ms));
            }
        }
        self.branches.sort_by_key(|one| one.number);
    }

    fn note(&mut self, at_ms: u64, note: &Note) {
        let Some(branch) = self.branch(note.resource, note.number) else { return };
        if let Fate::Heuristic(heuristic, _) = &note.fate {
            branch.heuristic = Some(*heuristic);
        }
        // What a person has forgotten keeps the words that he read.
        if branch.heuristic.is_none() || matches!(note.fate, Fate::Heuristic(..)) {
            (branch.native, branch.by) = (note.words().clone(), Some(note.by));
            (branch.retries, branch.noted_ms) = (note.retries, Some(at_ms));
        }
        branch.fate = Some(note.fate.clone());
    }
}

impl PastBranch {
    const fn new(resource: ResourceId, number: u16, witness: Vec<u8>, vote: Option<Vote>) -> Self {
        let native = Native { code: String::new(), message: String::new() };
        let (fate, heuristic, by, noted_ms) = (None, None, None, None);
        Self { resource, number, witness, vote, fate, heuristic, by, retries: 0, native, noted_ms }
    }
}

impl Filter {
    fn takes(&self, past: &Past) -> bool {
        let at = past.decided_ms;
        self.tx.is_none_or(|tx| tx == past.tx)
            && self.since_ms.is_none_or(|since| at.is_none_or(|at| at >= since))
            && self.until_ms.is_none_or(|until| at.is_none_or(|at| at < until))
            && self.state.is_none_or(|state| past.is(state))
            && self.resource.is_none_or(|id| past.branches.iter().any(|branch| branch.resource == id))
    }
}

/// Tells every transaction whose decision the log still holds and that the filter takes: the finished ones in the order
/// in which they became so, then the others in their own order. The visitor may stop. Whether there are more.
///
/// Of a client's own rollback the log knows nothing, unless a branch could not commit or did not follow. While a server
/// works, it is what the log held when this was called; nothing waits for it.
///
/// # Errors
/// As the log says; [`CoordinatorError::Record`] for a record that cannot be read; [`CoordinatorError::Page`] if the log no
/// longer holds the one behind which it was to begin; [`CoordinatorError::NoHistory`] for a state table.
pub fn read(
    log: &dyn Log,
    filter: &Filter,
    visit: &mut dyn FnMut(&Past) -> ControlFlow<()>,
) -> Result<bool, CoordinatorError> {
    read_while(log, filter, visit, &mut || true).map(Option::unwrap_or_default)
}

/// The same for as long as somebody waits for it: asked before each entry of the log, of which there may be many that the filter
/// takes nothing of; if it is not to go on, none.
///
/// # Errors
/// As [`read`].
pub fn read_while(
    log: &dyn Log,
    filter: &Filter,
    visit: &mut dyn FnMut(&Past) -> ControlFlow<()>,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<bool>, CoordinatorError> {
    kept(log)?;
    let mut reading = Reading {
        told: Telling::new(filter, visit),
        open: BTreeMap::new(),
        labels: Labels::default(),
        ballots: BTreeMap::new(),
    };
    for entry in log.read(log.oldest())? {
        if !go_on() {
            return Ok(None);
        }
        let entry = entry?;
        let record = Record::read(entry.kind, &entry.payload)
            .map_err(|malformed| CoordinatorError::record(entry.lsn, entry.kind, malformed))?;
        if let Some(record) = record
            && reading.enter(record).is_break()
        {
            return Ok(Some(true));
        }
    }
    let Reading { mut told, open, .. } = reading;
    for past in open.values() {
        if told.tell(past).is_break() {
            return Ok(Some(true));
        }
    }
    match told.after {
        Some(tx) => Err(CoordinatorError::Page { tx }),
        None => Ok(Some(false)),
    }
}

/// A state table tells what is unfinished; to pass that off as history would be half an answer.
pub(crate) fn kept(log: &dyn Log) -> Result<(), CoordinatorError> {
    if log.keeps_history() { Ok(()) } else { Err(CoordinatorError::NoHistory) }
}

/// The names of clients: those since the last checkpoint, and those of the one before.
#[derive(Default)]
struct Labels {
    now: BTreeMap<Incarnation, String>,
    before: BTreeMap<Incarnation, String>,
}

impl Labels {
    fn of(&self, client: Incarnation) -> String {
        self.now.get(&client).or_else(|| self.before.get(&client)).cloned().unwrap_or_default()
    }
}

struct Reading<'a> {
    told: Telling<'a>,
    open: BTreeMap<TxId, Past>,
    labels: Labels,
    /// Votes whose decision has not come yet.
    ballots: BTreeMap<TxId, Votes>,
}

impl Reading<'_> {
    fn enter(&mut self, record: Record) -> ControlFlow<()> {
        match record {
            Record::Decided(decided, forgotten) => {
                self.finish(decided.at_ms, forgotten)?;
                self.decided(decided);
            }
            Record::Finished(at_ms, list) => self.finish(at_ms, list)?,
            Record::Checkpoint(checkpoint) => {
                let at_ms = checkpoint.seal.map_or(0, |seal| seal.at_ms);
                let known: BTreeSet<TxId> = checkpoint.entries.iter().map(|entry| entry.tx).collect();
                // What a checkpoint no longer knows was finished before it.
                let gone = self.open.keys().copied().filter(|tx| !known.contains(tx)).collect();
                self.finish(at_ms, gone)?;
                // Whoever has voted asks for the decision at once.
                self.ballots.retain(|_, votes| votes.at_ms.saturating_add(BALLOT_AGE_MAX_MS) > at_ms);
                self.labels.before = std::mem::take(&mut self.labels.now);
                self.labels.now.extend(checkpoint.labels);
                let news = checkpoint.entries.into_iter().filter(|entry| !self.open.contains_key(&entry.tx));
                let news: Vec<Decided> = news.collect();
                news.into_iter().for_each(|decided| self.decided(decided));
            }
            Record::Branch(at_ms, tx, note) => {
                if let Some(past) = self.open.get_mut(&tx) {
                    past.note(at_ms, &note);
                }
            }
            Record::Entry(decided) => self.decided(decided),
            Record::Client(_, client, label) => _ = self.labels.now.insert(client, label),
            Record::Operator(word) => self.word(word),
            Record::Votes(votes) => self.voted(votes)?,
            Record::Fenced(_) | Record::Clients(_) | Record::Seal(_) | Record::Opened(..) => {}
        }
        ControlFlow::Continue(())
    }

    fn decided(&mut self, decided: Decided) {
        let Decided { tx, outcome, by, at_ms, branches, notes, .. } = decided;
        let branches = read_branches(&branches).unwrap_or_default();
        // Whoever decides otherwise than the client has seen them prepared; a client names those who said yes, but where its
        // only branch, told to commit in one phase, ended otherwise.
        let said_yes = by != By::Client || (outcome == Outcome::Committed && branches.len() > 1);
        let branch = |it: assent_xa::BranchRecord| {
            let vote = (said_yes || !it.witness.is_empty()).then_some(Vote::Yes);
            PastBranch::new(it.resource, it.number, it.witness, vote)
        };
        let mut past = Past {
            tx,
            outcome,
            by,
            client: self.labels.of(tx.incarnation),
            decided_ms: Some(at_ms).filter(|at_ms| *at_ms > 0),
            branches: branches.into_iter().map(branch).collect(),
            words: self.told.words_of(tx),
            finished_ms: None,
        };
        if let Some(votes) = self.ballots.remove(&tx) {
            past.voted(votes.at_ms, votes);
        }
        notes.iter().for_each(|note| past.note(at_ms, note));
        _ = self.open.insert(tx, past);
    }

    fn voted(&mut self, votes: Votes) -> ControlFlow<()> {
        let Votes { at_ms, tx, outcome, .. } = votes;
        if let Some(past) = self.open.get_mut(&tx) {
            past.voted(at_ms, votes);
            return ControlFlow::Continue(());
        }
        if outcome == Outcome::Committed {
            // The decision comes next, or never.
            _ = self.ballots.insert(tx, votes);
            return ControlFlow::Continue(());
        }
        _ = self.ballots.remove(&tx);
        // Somebody said no, so nobody decided: it was over when its client said so.
        let mut past = Past {
            tx,
            outcome,
            by: By::Client,
            client: self.labels.of(tx.incarnation),
            decided_ms: Some(at_ms),
            branches: Vec::new(),
            words: Vec::new(),
            finished_ms: Some(at_ms),
        };
        past.voted(at_ms, votes);
        self.told.tell(&past)
    }

    fn word(&mut self, word: Word) {
        let Word { at_ms, tx, action, who, reason } = word;
        let said = PastWord { at_ms, action, who, reason };
        match self.open.get_mut(&tx) {
            Some(past) => {
                for branch in past.branches.iter_mut().filter(|branch| matches!(branch.fate, Some(Fate::Heuristic(..))))
                {
                    branch.fate = Some(Fate::Cleared);
                }
                past.words.push(said);
            }
            // Its effect, the decision, comes next.
            None => self.told.word = Some((tx, said)),
        }
    }

    fn finish(&mut self, at_ms: u64, list: Vec<TxId>) -> ControlFlow<()> {
        for tx in list {
            if let Some(mut past) = self.open.remove(&tx) {
                past.finished_ms = Some(at_ms);
                self.told.tell(&past)?;
            }
        }
        ControlFlow::Continue(())
    }
}

struct Telling<'a> {
    filter: &'a Filter,
    visit: &'a mut dyn FnMut(&Past) -> ControlFlow<()>,
    after: Option<TxId>,
    left: usize,
    word: Option<(TxId, PastWord)>,
}

impl<'a> Telling<'a> {
    fn new(filter: &'a Filter, visit: &'a mut dyn FnMut(&Past) -> ControlFlow<()>) -> Self {
        let left = if filter.limit == 0 { usize::MAX } else { filter.limit };
        Self { filter, visit, after: filter.after, left, word: None }
    }

    fn words_of(&mut self, tx: TxId) -> Vec<PastWord> {
        self.word.take().filter(|(of, _)| *of == tx).map(|(_, word)| word).into_iter().collect()
    }

    fn tell(&mut self, past: &Past) -> ControlFlow<()> {
        if let Some(after) = self.after {
            if after == past.tx {
                self.after = None;
            }
            return ControlFlow::Continue(());
        }
        if !self.filter.takes(past) {
            return ControlFlow::Continue(());
        }
        if self.left == 0 {
            return ControlFlow::Break(());
        }
        self.left -= 1;
        (self.visit)(past)
    }
}
