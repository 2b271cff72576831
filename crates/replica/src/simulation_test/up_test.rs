//! A member that runs, as the simulation sees it: what is on its desk, and what that does with its machine.
//!
//! Walk: [`Up::submit`] and [`Up::read`] are a caller's · what is confirmed is executed ([`Up::commit`]) · [`Up::cut`] and [`Up::install`].

use std::collections::{BTreeMap, VecDeque};

use assent_membership::{History, Sequence};
use assent_sim::SimClock;

use super::play_test::Play;
use super::seat_test::{COMPARE_EVERY, Said};
use super::shape_test::Shape;
use crate::front::{Facts, Wanted};
use crate::{
    Base, Coming, Entry, Fault, Front as _, Lent, Machine, Mark, Own, OwnLog, Port, ReadAt, Ready, Replica, Shelf,
};

/// A member that runs.
pub struct Up<P: Play> {
    pub replica: Replica,
    pub log: OwnLog,
    pub(super) own: Own,
    pub shelf: Shelf,
    pub(super) lent: Lent,
    /// A snapshot that is being written: of which turn, where, and the state as it was.
    pub(super) writing: Option<(u64, Base, <P::Machine as Machine>::View)>,
    /// A snapshot that is being read: where it is said to stand.
    pub loading: Option<Base>,
    /// One that was read, while it is asked whether it is to be the state.
    pub(super) loaded: Option<P::Machine>,
    pub machine: P::Machine,
    pub front: P::Front,
    /// Connections of the front that have something to be read.
    pub ready: Vec<Ready>,
    pub(super) wanted: Wanted,
    /// Reads of the front that wait: for a beat, for what is executed then, and their tags.
    pub(super) asked: VecDeque<(u64, Sequence, Vec<u64>)>,
    /// Reads up to this beat may be answered.
    pub(super) beat: u64,
    pub(super) clock: SimClock,
    pub applied: Mark,
    pub(super) applied_history: History,
    /// Appended and not applied.
    pub(super) fresh: VecDeque<Entry>,
    pub(super) coming: Option<Coming>,
    /// Commands whose callers wait, and whether those are votes.
    pub(super) waiting: BTreeMap<Sequence, (Vec<u8>, bool)>,
    /// Votes that were executed, and wait until they are on every disk, with their answers.
    pub(super) held: VecDeque<(Mark, Vec<u8>, Vec<u8>)>,
    /// Reads of callers that wait for a beat, with what they must see.
    pub(super) reads: Vec<(u64, Sequence)>,
    /// Those that are answered, with what they saw.
    pub(super) answered: Vec<(Sequence, Sequence)>,
    pub wants_sync: bool,
    pub installs: u64,
    pub fetches: u64,
}

/// The state of the snapshot that is kept, and where it stands.
pub(super) fn kept<M: Machine>(shelf: &Shelf, machine: &mut M) -> Result<Base, String> {
    shelf.kept().map_or(Ok(()), |kept| kept.load(|next| machine.load(next)))?;
    Ok(shelf.base())
}

impl<P: Play> Up<P> {
    pub(super) fn with_port(&mut self, now_ms: u64, call: impl FnOnce(&mut P::Front, &mut Port<'_, P::Machine>)) {
        let facts = Facts { now_ms, applied: self.applied.sequence, ..Facts::default() };
        let mut port = Port {
            replica: &mut self.replica,
            machine: &self.machine,
            wires: None,
            clock: &self.clock,
            wanted: &mut self.wanted,
            facts,
            halted: None,
        };
        call(&mut self.front, &mut port);
        let Wanted { outputs, out, snapshot, .. } = &self.wanted;
        assert!(outputs.is_empty() && out.is_none() && !snapshot, "nobody follows {:?}", self.wanted);
    }

    /// Asks when what the front wants to read may be read. Whether it wants to.
    pub(super) fn take_reads(&mut self, shape: &Shape, now_ms: u64) -> bool {
        let tags = std::mem::take(&mut self.wanted.reads);
        if tags.is_empty() {
            return false;
        }
        if shape.never_asks {
            self.asked.push_back((0, Sequence(0), tags));
            return true;
        }
        match self.replica.read(now_ms) {
            // What it ordered before, it sees.
            Ok(ReadAt::Now) => self.asked.push_back((0, self.replica.end().sequence, tags)),
            Ok(ReadAt::Beat(beat)) => self.asked.push_back((beat, self.replica.end().sequence, tags)),
            Err(_) => {}
        }
        true
    }

    pub(super) fn confirmed(&mut self, beat: u64) {
        self.beat = self.beat.max(beat);
        let confirmed = self.replica.confirmed();
        for (_, must, _) in self.asked.iter_mut().filter(|(asked, ..)| *asked <= beat) {
            *must = (*must).max(confirmed);
        }
    }

    pub(super) fn answer_reads(&mut self, said: &mut Vec<Said>) {
        let (beat, applied) = (self.beat, self.applied.sequence);
        said.extend(self.answered.drain(..).map(|(seen, must)| Said::Answered { seen, must }));
        while let Some((.., tags)) = self.asked.pop_front_if(|(asked, must, _)| *asked <= beat && *must <= applied) {
            tags.into_iter().for_each(|tag| self.front.readable(tag, &self.machine));
        }
    }

    /// It leads no longer.
    pub(super) fn doubt(&mut self) {
        self.waiting.clear();
        self.held.clear();
        self.reads.clear();
        self.asked.clear();
        self.wanted.reads.clear();
        self.beat = 0;
        self.front.yields();
    }

    /// The state of the snapshot; the log leads on from there.
    pub(super) fn load(&mut self) -> Result<(), String> {
        self.machine = self.machine.empty();
        let base = kept(&self.shelf, &mut self.machine)?;
        self.applied = base.end;
        self.applied_history = base.history;
        self.fresh.clear();
        self.front.replaced(&self.machine);
        Ok(())
    }

    pub(super) fn cut(&mut self, to: Sequence, never_revokes: bool) -> Result<Mark, Said> {
        let base = if never_revokes { self.shelf.base() } else { self.shelf.revoke() };
        if base.end.sequence > to {
            return Err(Said::Halted(Fault::CutBehindSnapshot { to, base: base.end.sequence }));
        }
        let end = self.log.cut(to).unwrap();
        self.fresh.retain(|entry| entry.sequence <= to);
        if self.applied.sequence > to {
            self.load().map_err(Said::Broken)?;
        }
        Ok(end)
    }

    pub(super) fn install(&mut self, base: &Base) {
        self.installs += 1;
        self.shelf.install(&self.coming.take().unwrap(), base).unwrap();
        self.log.begin(base.end);
        self.machine = self.loaded.take().unwrap();
        self.applied = base.end;
        self.applied_history = base.history.clone();
        self.fresh.clear();
        self.front.replaced(&self.machine);
    }

    /// Applies what is confirmed; the hashes of states that are to be compared come back.
    pub(super) fn commit(&mut self, to: Sequence, said: &mut Vec<Said>) -> Vec<(Sequence, u64)> {
        let mut states = Vec::new();
        while self.applied.sequence < to {
            self.fresh.retain(|entry| entry.sequence > self.applied.sequence);
            let next = self.fresh.front().is_some_and(|entry| entry.sequence.0 == self.applied.sequence.0 + 1);
            let entries = if next {
                vec![self.fresh.pop_front().unwrap()]
            } else {
                self.log.fetch(self.applied.sequence, 1).unwrap().entries
            };
            if entries.is_empty() {
                said.push(Said::Broken(format!("what follows {} is not in the log", self.applied.sequence)));
                return states;
            }
            for entry in entries.into_iter().filter(|entry| entry.sequence <= to) {
                if let Err(broken) = self.apply(entry, said) {
                    said.push(Said::Broken(broken));
                    return states;
                }
                let at = self.applied.sequence;
                if at.0.is_multiple_of(COMPARE_EVERY) {
                    states.push((at, self.machine.hash()));
                }
            }
        }
        states
    }

    pub(super) fn apply(&mut self, entry: Entry, said: &mut Vec<Said>) -> Result<(), String> {
        let (at, mut answer) = (entry.sequence, Vec::new());
        self.machine.apply(at, entry.kind, &entry.payload, &mut answer)?;
        self.applied = entry.mark();
        self.applied_history.grew(entry.epoch, at);
        self.front.applied(at, entry.kind, &answer, &self.machine);
        let awaited = self.waiting.remove(&at).filter(|(command, _)| *command == *entry.payload);
        let is_awaited = awaited.as_ref().is_some_and(|(_, is_vote)| !is_vote);
        if let Some((command, true)) = awaited {
            self.held.push_back((entry.mark(), command, answer.clone()));
        }
        said.push(Said::Applied { entry, answer, is_awaited });
        Ok(())
    }

    pub(super) fn tell_votes(&mut self, said: &mut Vec<Said>) {
        let kept = self.replica.kept();
        while let Some((entry, command, answer)) = self.held.pop_front_if(|(entry, ..)| entry.sequence <= kept) {
            said.push(Said::Voted { entry, command, answer });
        }
    }

    /// A caller's command, and whether its answer waits until it is on the disk of everybody in the set.
    pub fn submit(&mut self, command: Vec<u8>, is_vote: bool) -> bool {
        let Ok(sequence) = self.replica.submit(1, &command) else { return false };
        self.waiting.insert(sequence, (command, is_vote));
        if is_vote {
            self.replica.keep(sequence);
        }
        true
    }

    /// A caller's read, which must see this.
    pub fn read(&mut self, now_ms: u64, must: Sequence) {
        match self.replica.read(now_ms) {
            Ok(ReadAt::Now) => self.answered.push((self.applied.sequence, must)),
            Ok(ReadAt::Beat(beat)) => self.reads.push((beat, must)),
            Err(_) => {}
        }
    }
}
