//! A person's word: a decision by force, a heuristic outcome forgotten. Each is a record in the log, durable on return.
//!
//! Walk: [`Coordinator::force`] decides what nobody has decided · [`Coordinator::forget`] lets a heuristic outcome go ·
//! both lay the word first and its effect behind it, under one lock.
//! Deliberately absent: rights. Who may ask is the front door's to know.

use assent_ids::{Mark, TxId};
use assent_kind::Kind;
use assent_world::Moment;
use assent_xa::{BranchRecord, DecideError, Outcome};

use crate::attended::{rivalled, strange};
use crate::coordinator::{State, pending};
use crate::error::{in_doubt, not_laid};
use crate::record::Word;
use crate::recovery::records;
use crate::siblings::Sibling;
use crate::{By, Coordinator, Standing, lay, record};

/// The most bytes of an operator's name.
pub const WHO_BYTES_MAX: usize = 128;
/// The most bytes of an operator's reason.
pub const REASON_BYTES_MAX: usize = 1024;

/// Who speaks, and why. Both are kept in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// A name, 1 to 128 bytes.
    pub who: String,
    /// A reason, up to 1,024 bytes; may be empty.
    pub reason: String,
}

/// What an operator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Decided commit.
    Commit,
    /// Decided rollback.
    Rollback,
    /// Forgot heuristic outcomes.
    Forget,
}

impl Action {
    pub(crate) const fn byte(self) -> u8 {
        match self {
            Action::Commit => 1,
            Action::Rollback => 2,
            Action::Forget => 3,
        }
    }

    pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Action::Commit),
            2 => Some(Action::Rollback),
            3 => Some(Action::Forget),
            _ => None,
        }
    }
}

impl Coordinator {
    /// Decides a transaction whose branches recovery sees prepared and nobody has decided; durable on return. If
    /// somebody was first, his outcome is returned and nothing is changed. Recovery then tells the branches.
    ///
    /// # Errors
    /// `Invalid` for a name or reason beyond its limit; `NotFound` if nothing is known of it; `Conflict` while its client
    /// is connected, which decides itself, where a row of a last resource may decide, while another process of this node is at work, which may decide otherwise, and for a
    /// rollback where a committed branch is known; `Unavailable` before every resource has been asked whether one is; `Busy` or as the log says if nothing was decided; `InDoubt`.
    pub fn force(&self, tx: TxId, outcome: Outcome, operator: &Operator) -> Result<Outcome, DecideError> {
        check(operator)?;
        let at_ms = self.clock.wall_ms();
        let pending = {
            let mut state = self.state();
            if let Some(entry) = state.table.get(tx) {
                pending(entry)
            } else {
                alone(&state, self.clock.now())?;
                let standing = state.clients.standing(tx.incarnation);
                let seen =
                    state.attended.seen(tx).filter(|_| state.table.is_watched(tx)).map(|(_, seen)| records(seen));
                let branches = match (standing, seen) {
                    (Standing::Never, _) | (_, None) => return Err(unknown(tx)),
                    (Standing::Connected, _) => return Err(driven(tx)),
                    (_, Some(seen)) => seen,
                };
                if outcome == Outcome::RolledBack && state.may_be_lost(tx) {
                    sought(&mut state, tx, &branches, self.clock.now())?;
                }
                marked(&mut state, tx, outcome, &branches, self.clock.now())?;
                self.room(&state, true)?;
                let action = if outcome == Outcome::Committed { Action::Commit } else { Action::Rollback };
                // The word first: an effect without it could not be explained.
                let word = lay::operator(&word(at_ms, tx, action, operator));
                state.append(&*self.log, record::OPERATOR, &[&word]).map_err(|error| not_laid(&error))?;
                self.lay(&mut state, self.ruling(tx, outcome, By::Operator, &branches))?
            }
        };
        self.decide_strictly(pending)
    }

    /// A person has seen to the branches of this transaction that ended on their own: once its client knows its outcome, or is fenced, it is forgotten,
    /// and their resources forget them. Durable on return.
    ///
    /// # Errors
    /// `Invalid` as for [`Coordinator::force`]; `NotFound` if no branch of it waits for a person; as the log says, then
    /// nothing was changed; `InDoubt`.
    pub fn forget(&self, tx: TxId, operator: &Operator) -> Result<(), DecideError> {
        check(operator)?;
        let at_ms = self.clock.wall_ms();
        let ticket = {
            let mut state = self.state();
            if !state.table.get(tx).is_some_and(crate::table::Entry::is_heuristic) {
                let message = format!("no branch of {tx} ended otherwise than decided, or it was forgotten before");
                return Err(DecideError { kind: Kind::NotFound, message });
            }
            let word = lay::operator(&word(at_ms, tx, Action::Forget, operator));
            let ticket = state.append(&*self.log, record::OPERATOR, &[&word]).map_err(|error| not_laid(&error))?;
            // Under the same lock: a checkpoint laid behind the word must not bring back what it let go.
            _ = state.unlaid.remove(&tx);
            state.table.clear_heuristics(tx);
            ticket
        };
        self.log.wait_durable(ticket).map_err(|error| in_doubt(&error))
    }
}

fn word(at_ms: u64, tx: TxId, action: Action, operator: &Operator) -> Word {
    Word { at_ms, tx, action, who: operator.who.clone(), reason: operator.reason.clone() }
}

fn check(operator: &Operator) -> Result<(), DecideError> {
    let invalid = |message| Err(DecideError { kind: Kind::Invalid, message });
    let (who, reason) = (operator.who.len(), operator.reason.len());
    if who == 0 || who > WHO_BYTES_MAX {
        return invalid(format!("an operator's name of {who} bytes; it has 1 to {WHO_BYTES_MAX}"));
    }
    if reason > REASON_BYTES_MAX {
        return invalid(format!("an operator's reason of {reason} bytes; it has at most {REASON_BYTES_MAX}"));
    }
    Ok(())
}

/// Nobody decides beside another process of this node: the other one may have taken the opposite to be decided.
fn alone(state: &State, now: Moment) -> Result<(), DecideError> {
    let conflict = |message| Err(DecideError { kind: Kind::Conflict, message });
    if let Some((name, _)) = state.attended.rivals().next() {
        return conflict(rivalled(name));
    }
    if let Some(stopped) = state.attended.stopped() {
        return conflict(strange(stopped));
    }
    match state.attended.refusal(now) {
        Some(message) => Err(DecideError { kind: Kind::Unavailable, message }),
        None => Ok(()),
    }
}

/// Nobody's word is a last resource's row: a person's rollback, too, waits for recovery's own row, and nobody makes a client's.
fn marked(
    state: &mut State,
    tx: TxId,
    outcome: Outcome,
    branches: &[BranchRecord],
    now: Moment,
) -> Result<(), DecideError> {
    let Some(mark) = branches.iter().find_map(|branch| branch.mark) else { return Ok(()) };
    let conflict = |message| Err(DecideError { kind: Kind::Conflict, message });
    let Some(name) = state.attended.name(mark.resource) else {
        return conflict(format!(
            "the decision of {tx} may be a row of resource id {}, which is not registered here: register it, and recovery finishes \
             by what stands there",
            mark.resource
        ));
    };
    // A power cut may have taken what the log said (RPO > 0); else a commit was written in the row, or never.
    if outcome == Outcome::Committed && !state.may_be_lost(tx) {
        return conflict(format!(
            "the decision of {tx} may be a row of resource {name}, and only its client could have put it there: recovery finishes by \
             what stands there"
        ));
    }
    if outcome == Outcome::Committed && !has_voted(state, tx, mark, branches, now) {
        return conflict(format!(
            "the branch of {tx} at resource {name}, which may have decided by a row, is not seen prepared there, and nobody knows of a \
             committed one: its work may be undone, and a commit of the others would be half of one; if you know better, commit them by hand \
             (docs/operations.md, \"Held\")"
        ));
    }
    if state.is_settled(tx, mark) {
        return Ok(());
    }
    let message =
        format!("the decision of {tx} may be a row of resource {name}: it is asked for now, look again in a moment");
    Err(DecideError { kind: Kind::Unavailable, message })
}

/// Of what may have been decided a sibling may be committed, and only recovery can ask stores of ours: nobody's word goes against that, nor before
/// each that is there was asked.
fn sought(state: &mut State, tx: TxId, branches: &[BranchRecord], now: Moment) -> Result<(), DecideError> {
    let mark = branches.iter().find_map(|branch| branch.mark);
    let (kind, message) = match state.attended.sibling(tx, mark, now) {
        Sibling::Committed(record) => {
            let name = state.attended.name(record.resource).unwrap_or_default();
            (Kind::Conflict, format!("a branch of {tx} is committed at resource {name}: recovery commits the others"))
        }
        Sibling::Nowhere => return Ok(()),
        Sibling::Unknown => match state.attended.unasked(tx) {
            Some(name) => {
                let asks = "is asked for now, look again in a moment";
                (Kind::Unavailable, format!("whether a branch of {tx} is committed at resource {name} {asks}"))
            }
            None => return Ok(()),
        },
    };
    // It may be at rest.
    state.calls += 1;
    Err(DecideError { kind, message })
}

/// Whether the first branch, which did not decide by a row, is prepared as the others are, or a branch is committed.
fn has_voted(state: &mut State, tx: TxId, mark: Mark, branches: &[BranchRecord], now: Moment) -> bool {
    branches.iter().any(|branch| (branch.resource, branch.number) == (mark.resource, 0))
        || matches!(state.attended.sibling(tx, Some(mark), now), Sibling::Committed(_))
}

fn unknown(tx: TxId) -> DecideError {
    let message = format!("nothing is known of {tx} here: no decision, and recovery sees no branch of it prepared");
    DecideError { kind: Kind::NotFound, message }
}

fn driven(tx: TxId) -> DecideError {
    let message = format!("the client of {tx} is connected and decides itself; stop the client first");
    DecideError { kind: Kind::Conflict, message }
}
