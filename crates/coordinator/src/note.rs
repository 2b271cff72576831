//! How branches were left: for history a record that nobody waits for, for a heuristic outcome one that stays.
//!
//! Walk: [`Coordinator::note`] the agent's findings · [`Coordinator::heuristic`] a client's · [`Coordinator::voted`] what
//! branches voted · `State::note` lays the record under the one lock, of many heuristic outcomes a table's row but once; what
//! an upset log refused of a heuristic is laid by a later tick.
//! Deliberately absent: any part in forgetting; `table` has that rule.

use assent_frame::Writer;
use assent_ids::{ResourceId, TxId};
use assent_journal::{JournalError, Log, Ticket};
use assent_xa::{BranchRecord, Deviation, Native, Outcome, Voice, Voted};

use crate::coordinator::{State, TABLE_BYTES_MAX};
use crate::{BRANCHES_MAX, By, Coordinator, Fate, Standing, lay, record};

const CODE_BYTES_MAX: usize = 64;
const MESSAGE_BYTES_MAX: usize = 512;

/// Which branch of a transaction: its resource, and its number there.
pub(crate) type Place = (ResourceId, u16);

/// The end of one branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) resource: ResourceId,
    pub(crate) number: u16,
    pub(crate) fate: Fate,
    /// Who brought it there, or found it so.
    pub(crate) by: By,
    /// How often it had to be told again.
    pub(crate) retries: u32,
    /// The resource's own words, where the fate does not carry them.
    pub(crate) native: Native,
}

impl Note {
    pub(crate) const fn place(&self) -> Place {
        (self.resource, self.number)
    }

    /// The resource's own words.
    pub(crate) const fn words(&self) -> &Native {
        match &self.fate {
            Fate::Heuristic(_, native) => native,
            _ => &self.native,
        }
    }

    /// What it keeps in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.words().code.len() + self.words().message.len()
    }

    /// No resource's words may fill the table.
    fn cut(mut self) -> Self {
        let native = match &mut self.fate {
            Fate::Heuristic(_, native) => native,
            _ => &mut self.native,
        };
        *native = cut(std::mem::take(native));
        self
    }
}

fn cut(mut words: Native) -> Native {
    words.code.truncate(words.code.floor_char_boundary(CODE_BYTES_MAX));
    words.message.truncate(words.message.floor_char_boundary(MESSAGE_BYTES_MAX));
    words
}

impl Coordinator {
    /// How a branch of a decided transaction was left. Whether that is news. A heuristic outcome is durable when this
    /// returns; if the log refuses it, it stays in memory and a later tick lays it.
    pub(crate) fn note(&self, tx: TxId, note: Note) -> bool {
        let at_ms = self.clock.wall_ms();
        let (is_news, ticket) = {
            let mut state = self.state();
            let is_news = state.note(&*self.log, at_ms, tx, note);
            (is_news, state.owed)
        };
        if let Some(ticket) = ticket.filter(|ticket| ticket.end > self.log.durable()) {
            // A log that fails here has closed itself: the next opening's agent is told the same by the resource.
            _ = self.log.wait_durable(ticket);
        }
        is_news
    }

    /// A client's branches ended otherwise than it told them (`told`). Stays listed until a person forgets it; durable
    /// with the next decision, or the next tick. Never waits. The caller has checked that the transaction is its
    /// client's own. Of a transaction that is neither decided nor its client's to decide, nothing is kept, nor of more
    /// than [`BRANCHES_MAX`] branches, which no transaction has.
    pub fn heuristic(&self, tx: TxId, told: Outcome, branches: &[Deviation]) {
        if branches.len() > BRANCHES_MAX {
            return;
        }
        let at_ms = self.clock.wall_ms();
        let mut state = self.state();
        if state.table.get(tx).is_none() {
            // One phase, or presumed abort: nobody decided, and a person must find it.
            let standing = state.clients.standing(tx.incarnation);
            let records = branches.iter().map(|it| BranchRecord {
                resource: it.resource,
                number: it.number,
                flags: it.flags,
                // What it is called is known by its list, as long as it is listed.
                mark: None,
                witness: Vec::new(),
            });
            let records: Vec<BranchRecord> = records.collect();
            if branches.is_empty()
                || !matches!(standing, Standing::Connected | Standing::Lost)
                || crate::coordinator::check(&records).is_err()
                || self.lay(&mut state, self.ruling(tx, told, By::Client, &records)).is_err()
            {
                return;
            }
        }
        let mut news = Vec::new();
        for it in branches {
            // The transaction has its place; only bytes come.
            if state.table.bytes() >= TABLE_BYTES_MAX {
                break;
            }
            let (resource, number) = (it.resource, it.number);
            // Nor in many messages.
            if state.table.get(tx).is_some_and(|entry| entry.is_full(resource, number)) {
                continue;
            }
            let fate = Fate::Heuristic(it.heuristic, it.native.clone());
            let note = Note { resource, number, fate, by: By::Client, retries: 0, native: Native::default() }.cut();
            news.extend(state.table.note(tx, &note).then_some(note));
        }
        state.lay_heuristics(&*self.log, at_ms, tx, &news);
    }

    /// What a client's branches voted, where not all said yes: history only, in a record that nobody waits for. The caller
    /// has checked that the transaction is its client's own. Nothing is kept of one that its client may not decide, nor of
    /// more than [`BRANCHES_MAX`] branches.
    pub fn voted(&self, tx: TxId, outcome: Outcome, votes: &[Voted]) {
        if votes.len() > BRANCHES_MAX || !self.log.keeps_history() {
            return;
        }
        let cut = |one: &Voted| {
            let native = cut(one.voice.native.clone());
            Voted { voice: Voice { native, ..one.voice }, ..*one }
        };
        let votes: Vec<Voted> = votes.iter().map(cut).collect();
        let record = lay::votes(self.clock.wall_ms(), tx, outcome, &votes);
        let mut state = self.state();
        if matches!(state.clients.standing(tx.incarnation), Standing::Connected | Standing::Lost) {
            // A log that takes nothing now loses a line of history.
            _ = state.append(&*self.log, record::VOTES, &[&record]);
        }
    }

    /// What an upset log refused, once more; and waits until all that is owed is durable.
    pub(crate) fn notes_due(&self) -> Result<(), JournalError> {
        let at_ms = self.clock.wall_ms();
        let owed = {
            let mut state = self.state();
            for tx in std::mem::take(&mut state.unlaid) {
                let is_heuristic = |note: &&Note| matches!(note.fate, Fate::Heuristic(..));
                let notes = state.table.get(tx).into_iter().flat_map(|entry| entry.progress.values());
                let notes: Vec<Note> = notes.filter(is_heuristic).cloned().collect();
                state.lay_heuristics(&*self.log, at_ms, tx, &notes);
            }
            state.owed
        };
        if let Some(ticket) = owed {
            self.log.wait_durable(ticket)?;
            let mut state = self.state();
            if state.owed == Some(ticket) {
                state.owed = None;
            }
        }
        Ok(())
    }
}

impl State {
    fn note(&mut self, log: &dyn Log, at_ms: u64, tx: TxId, note: Note) -> bool {
        let note = note.cut();
        let is_heuristic = matches!(note.fate, Fate::Heuristic(..));
        if !self.table.note(tx, &note) {
            return false;
        }
        if is_heuristic {
            self.lay_heuristics(log, at_ms, tx, &[note]);
        } else {
            // History only: a log that takes nothing now loses a line of it.
            _ = self.append(log, record::BRANCH, &[&lay::branch(at_ms, tx, &note)]);
        }
        true
    }

    /// Lays heuristic outcomes that are in the table, behind their decision: these alone, however many there are. What
    /// stands behind a refused one waits with it.
    fn lay_heuristics(&mut self, log: &dyn Log, at_ms: u64, tx: TxId, notes: &[Note]) {
        if notes.is_empty() || self.unlaid.contains(&tx) {
            return;
        }
        let laid = if log.keeps_history() { self.lay_outcomes(log, at_ms, tx, notes) } else { self.lay_row(log, tx) };
        match laid {
            Ok(ticket) => self.owed = ticket.or(self.owed),
            Err(_) => _ = self.unlaid.insert(tx),
        }
    }

    /// A client's own rollback needs no record; a branch that did not follow does.
    fn lay_decision(&mut self, log: &dyn Log, tx: TxId) -> Result<Option<Ticket>, JournalError> {
        let Some(entry) = self.table.get(tx).filter(|entry| !entry.is_logged) else { return Ok(None) };
        let head = lay::decided_head(tx, entry.outcome, entry.by, entry.at_ms);
        let branches = entry.branches.clone();
        let ticket = self.append(log, record::DECIDED, &[&head, &branches])?;
        self.table.logged(tx, ticket);
        Ok(Some(ticket))
    }

    fn lay_outcomes(
        &mut self,
        log: &dyn Log,
        at_ms: u64,
        tx: TxId,
        notes: &[Note],
    ) -> Result<Option<Ticket>, JournalError> {
        let mut last = self.lay_decision(log, tx)?;
        for note in notes {
            last = Some(self.append(log, record::BRANCH, &[&lay::branch(at_ms, tx, note)])?);
        }
        Ok(last)
    }

    /// Into a table: the transaction's row as a checkpoint would keep it, decision and outcomes in one.
    fn lay_row(&mut self, log: &dyn Log, tx: TxId) -> Result<Option<Ticket>, JournalError> {
        let Some(entry) = self.table.get(tx) else { return Ok(None) };
        let (mut row, is_logged) = (Writer::new(), entry.is_logged);
        lay::entry(&mut row, tx, entry);
        let ticket = self.append(log, record::ENTRY, &[row.as_slice()])?;
        if !is_logged {
            self.table.logged(tx, ticket);
        }
        Ok(Some(ticket))
    }
}
