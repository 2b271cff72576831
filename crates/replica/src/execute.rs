//! What a desk does with its machine: commands executed as they are confirmed, reads answered, and the machine replaced.
//!
//! Walk: [`Desk::execute_some`] after the turn's writes to other members · [`Desk::ask_read`], then [`Desk::answer_reads`] when the set
//! has said that nobody else leads and everything before is executed · [`Desk::cut`] and [`Desk::install`], at once and durably.
//! Deliberately absent: taking anything back. What is executed was confirmed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use assent_membership::Sequence;

use crate::desk::{Desk, Reader, Stopped};
use crate::entry::Entry;
use crate::error::{ReplicaError, damaged};
use crate::event::{Fault, Input, ReadAt};
use crate::front::Front;
use crate::machine::Machine;
use crate::member::CallError;
use crate::message::{Base, Piece};
use crate::shelf::Shelf;

/// Commands that are executed in one turn before the desk listens again.
const EXECUTED_MAX: u64 = 8_192;

/// Memory of an answer that is kept for the next one.
const ANSWER_BYTES_KEPT: usize = 1 << 20;

/// A read that waits.
pub(crate) struct Asked<M> {
    beat: u64,
    /// What must be executed before.
    must: Sequence,
    whose: Whose<M>,
}

/// Who asked.
pub(crate) enum Whose<M> {
    Front(Vec<u64>),
    Caller(Reader<M>),
}

/// Reads the snapshot that is kept into a machine before its first command.
pub(crate) fn load<M: Machine>(shelf: &Shelf, machine: &mut M, folder: &std::path::Path) -> Result<Base, ReplicaError> {
    match shelf.kept() {
        Some(kept) => {
            let wrong = |why: String| damaged(&folder.join("snapshot"), why);
            kept.load(|next| machine.load(next)).map_err(wrong)?;
            Ok(kept.base.clone())
        }
        None => Ok(Base::default()),
    }
}

impl<M: Machine, F: Front<M>> Desk<M, F> {
    /// Executes what is confirmed, for a turn.
    pub(crate) fn execute_some(&mut self) -> Result<(), Stopped> {
        self.execute(EXECUTED_MAX)?;
        self.snapshots.executed.store(self.snapshots.done.commands, Ordering::Relaxed);
        Ok(())
    }

    /// Executes what is confirmed, and no entry more when so many commands are done; answers whoever waits for it.
    pub(crate) fn execute(&mut self, most: u64) -> Result<(), Stopped> {
        let (to, until) = (self.commit_to, self.snapshots.done.commands.saturating_add(most));
        while self.applied.end.sequence < to && self.snapshots.done.commands < until {
            let after = self.applied.end.sequence;
            // Out of the value for a moment: nothing that executing does looks at it.
            let recent = std::mem::take(&mut self.replica.recent);
            let applied = recent.behind(after).map(|entries| self.apply_all(entries, to, until));
            self.replica.recent = recent;
            if let Some(applied) = applied {
                applied?;
                continue;
            }
            // A batch of the log is read as a whole: all that is due at once, and not some of it again and again.
            if let Some(reading) = self.log.reading(after) {
                reading.each(to, |entry| self.apply(entry).map(|()| self.snapshots.done.commands < until))?;
            }
            if self.applied.end.sequence == after {
                return Err(ReplicaError::Missing { at: Sequence(after.0.saturating_add(1)) }.into());
            }
        }
        Ok(())
    }

    fn apply_all<'e>(
        &mut self,
        entries: impl Iterator<Item = &'e Entry>,
        to: Sequence,
        until: u64,
    ) -> Result<(), Stopped> {
        for entry in entries.take_while(|entry| entry.sequence <= to) {
            self.apply(entry)?;
            if self.snapshots.done.commands >= until {
                break;
            }
        }
        Ok(())
    }

    fn apply(&mut self, entry: &Entry) -> Result<(), Stopped> {
        let (at, kind) = (entry.sequence, entry.kind);
        let applied = self.machine.apply(at, kind, &entry.payload, &mut self.answer);
        applied.map_err(|why| Stopped::Machine { at, kind, why })?;
        self.applied.end = entry.mark();
        self.applied.history.grew(entry.epoch, at);
        let commands = M::commands(kind, &entry.payload);
        self.snapshots.done.add(commands, entry.bytes());
        self.replica.counts.applied += commands;
        self.front.applied(at, kind, &self.answer, &self.machine);
        if !self.waiting.is_empty()
            && let Some(waiting) = self.waiting.remove(&at)
        {
            // Who waited may have gone.
            _ = waiting.try_send(Ok(self.answer.clone()));
        }
        // One entry's answers may be long; what follows seldom is.
        self.answer.clear();
        self.answer.shrink_to(ANSWER_BYTES_KEPT);
        if at.0.is_multiple_of(self.replica.settings.compare_every) {
            self.later.push_back(Input::State { at, hash: self.machine.hash() });
        }
        Ok(())
    }

    /// Asks when this may be answered.
    pub(crate) fn ask_read(&mut self, whose: Whose<M>) {
        let now = self.now_ms();
        let beat = match self.replica.read(now) {
            Ok(ReadAt::Now) => 0,
            Ok(ReadAt::Beat(beat)) => beat,
            Err(refused) => {
                self.replica.counts.refused += 1;
                if let Whose::Caller(reader) = whose {
                    reader(Err(CallError::Refused(refused)));
                }
                // A front that asked in this turn hears, or has heard, that it leads no longer.
                return;
            }
        };
        let must = match &whose {
            // What it ordered before, it sees.
            Whose::Front(_) => self.replica.end().sequence,
            Whose::Caller(_) => self.replica.confirmed(),
        };
        self.asked_reads.push_back(Asked { beat, must, whose });
    }

    /// Reads that asked up to this beat show what is confirmed by now.
    pub(crate) fn confirmed(&mut self, beat: u64) {
        self.beat = self.beat.max(beat);
        let confirmed = self.replica.confirmed();
        for asked in self.asked_reads.iter_mut().filter(|asked| asked.beat <= beat) {
            asked.must = asked.must.max(confirmed);
        }
    }

    /// Answers the reads that may be.
    pub(crate) fn answer_reads(&mut self) {
        let (beat, applied) = (self.beat, self.applied.end.sequence);
        while let Some(asked) = self.asked_reads.pop_front_if(|asked| asked.beat <= beat && asked.must <= applied) {
            match asked.whose {
                Whose::Front(tags) => {
                    for tag in tags {
                        self.replica.counts.reads += 1;
                        self.front.readable(tag, &self.machine);
                    }
                }
                Whose::Caller(reader) => {
                    self.replica.counts.reads += 1;
                    reader(Ok(&self.machine));
                }
            }
        }
    }

    /// It leads no longer: what waits is in doubt, and a read is to be asked again.
    pub(crate) fn doubt(&mut self) {
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            _ = waiting.try_send(Err(CallError::InDoubt));
        }
        for asked in std::mem::take(&mut self.asked_reads) {
            if let Whose::Caller(reader) = asked.whose {
                reader(Err(CallError::Yielded));
            }
        }
        self.wanted.reads.clear();
        self.beat = 0;
        self.front.yields();
    }

    /// Takes a diverged tail away. A snapshot under way may hold it: that is nobody's any more.
    pub(crate) fn cut(&mut self, to: Sequence) -> Result<(), Stopped> {
        let base = self.snapshots.shelf.revoke();
        if base.end.sequence > to {
            // It was named before the value heard of it.
            return Err(Fault::CutBehindSnapshot { to, base: base.end.sequence }.into());
        }
        self.snapshots.wants_trim = None;
        let openings = Arc::clone(&self.snapshots.openings);
        let end = openings.anew(|| self.log.cut(to))?;
        // A cut is another opening.
        self.keeper.add(self.log.journal());
        self.later.retain(|input| !matches!(input, Input::State { at, .. } if *at > to));
        self.commit_to = self.commit_to.min(to);
        if self.applied.end.sequence > to {
            let mut machine = self.machine.empty();
            self.applied = load(&self.snapshots.shelf, &mut machine, self.log.journal().folder())?;
            self.snapshots.kept = self.applied.end.sequence;
            self.replace(machine);
        }
        self.step(Input::WasCut(end))
    }

    pub(crate) fn keep_piece(&mut self, piece: &Piece) -> Result<(), ReplicaError> {
        if piece.offset == 0 {
            // What is being read of an earlier one is not asked for any more.
            self.snapshots.number = self.snapshots.number.wrapping_add(1);
            self.snapshots.wants_load = None;
            self.snapshots.coming = Some(self.snapshots.shelf.begin()?);
        }
        self.snapshots.coming.as_mut().map_or(Ok(()), |coming| coming.keep(piece))
    }

    /// The machine is the snapshot's that was loaded; the log leads on from there.
    pub(crate) fn install(&mut self, base: &Base) -> Result<(), Stopped> {
        let (Some(coming), Some(machine)) = (self.snapshots.coming.take(), self.snapshots.loaded.take()) else {
            return Err(ReplicaError::Missing { at: base.end.sequence }.into());
        };
        let kept = self.snapshots.shelf.install(&coming, base)?;
        self.log.begin(base.end);
        self.applied = kept.base.clone();
        (self.snapshots.kept, self.commit_to) = (base.end.sequence, base.end.sequence);
        self.replace(machine);
        self.step(Input::Installed)
    }

    fn replace(&mut self, machine: M) {
        self.machine = machine;
        self.snapshots.kept_done = self.snapshots.done;
        self.front.replaced(&self.machine);
    }

    /// The log's thread is told nothing more, and what the journal has taken is durable. Nobody was told of more.
    pub(crate) fn close(&self) {
        // A journal that has failed was told before.
        _ = Arc::clone(self.log.journal()).close();
    }
}
