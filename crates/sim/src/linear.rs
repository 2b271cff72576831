//! Whether a history of calls and answers is linearizable: whether there is one order, never against time, that explains every answer.
//!
//! Walk: [`linearizable`] lays the calls and answers of one object on one line of time · takes a call out whose answer the state before
//! it explains, and begins again at the front · where an answer comes whose call cannot be taken, goes back by one and tries the next.
//! What was tried (these calls taken, that state) is not tried again, and a call that changes nothing is taken as soon as it may be. A call without an answer may be taken at any time behind its
//! begin, or never; of several that are the same the earliest goes first.
//! After Wing and Gong, with Lowe's memory of what was tried. Deliberately absent: several objects in one history. Objects that are
//! independent are judged one by one: one history for each.

use std::collections::HashSet;
use std::hash::Hash;

/// What an object does.
pub trait Model {
    /// All that its answers depend on.
    type State: Clone + Eq + Hash;
    /// A call and its answer, or a call whose answer is not known.
    type Op: PartialEq;

    /// The state behind it; none if this is not answered in that state.
    fn step(&self, state: &Self::State, op: &Self::Op) -> Option<Self::State>;
}

/// One call of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed<O> {
    /// What was called and answered.
    pub op: O,
    /// When it was called, on a clock that all callers share.
    pub invoked: u64,
    /// When its answer was there; none: in doubt.
    pub returned: Option<u64>,
}

/// What became of the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<S> {
    /// There is such an order.
    Linearizable,
    /// There is none.
    Contradiction {
        /// The call, by its place in the history, whose answer ended the longest order that was found.
        at: usize,
        /// Calls in that order.
        placed: usize,
        /// The state behind it, which does not explain the answer.
        state: S,
    },
    /// More states than wanted were visited: nothing is known.
    Undecided {
        /// So many.
        visited: usize,
    },
}

/// Judges a history of one object, in any order of its calls; visits at most `states_max` states.
pub fn linearizable<M: Model>(
    model: &M,
    start: M::State,
    history: &[Timed<M::Op>],
    states_max: usize,
) -> Verdict<M::State> {
    let mut search = Search::new(history);
    let (mut state, mut seen) = (start, HashSet::new());
    let mut best: (usize, usize, M::State) = (0, 0, state.clone());
    let mut taken: Vec<Taken<M::State>> = Vec::new();
    let step = |state: &M::State, place: usize| history.get(place).and_then(|timed| model.step(state, &timed.op));
    let mut at = search.settle(&mut taken, |place| step(&state, place).is_some_and(|next| next == state));
    while search.open > 0 {
        let (place, is_call) = search.entry(at);
        if is_call {
            let next = Some(place).filter(|_| search.may_go(place)).and_then(|place| step(&state, place));
            if let Some(next) = next.filter(|next| *next != state) {
                search.done.set(place, true);
                if seen.insert((search.done.key(), next.clone())) {
                    if seen.len() > states_max {
                        return Verdict::Undecided { visited: seen.len() };
                    }
                    search.take(place);
                    taken.push(Taken { place, before: Some(std::mem::replace(&mut state, next)) });
                    at = search.settle(&mut taken, |place| step(&state, place).is_some_and(|next| next == state));
                    continue;
                }
                search.done.set(place, false);
            }
            at = search.line.next(at);
            continue;
        }
        if taken.len() >= best.0 {
            best = (taken.len(), place, state.clone());
        }
        let Some((last, before)) = search.back(&mut taken) else {
            let (placed, at, state) = best;
            return Verdict::Contradiction { at, placed, state };
        };
        state = before;
        at = search.line.next(search.call_at(last));
    }
    Verdict::Linearizable
}

/// A call that was taken.
struct Taken<S> {
    place: usize,
    /// The state before it; none if it changed nothing: then nothing else is tried in its stead.
    before: Option<S>,
}

/// The line of time, and what was taken from it.
struct Search {
    /// At each place of the line: which call, and whether this is its begin.
    entries: Vec<(usize, bool)>,
    /// Of each call: where it begins, where its answer is.
    places: Vec<(usize, Option<usize>)>,
    /// Of each call in doubt: the one before it that is the same.
    twins: Vec<Option<usize>>,
    line: Line,
    done: Done,
    /// Answered calls that were not taken yet.
    open: usize,
}

impl Search {
    fn new<O: PartialEq>(history: &[Timed<O>]) -> Self {
        let mut times: Vec<(u64, bool, usize)> = Vec::new();
        for (place, timed) in history.iter().enumerate() {
            times.push((timed.invoked, false, place));
            times.extend(timed.returned.map(|at| (at.max(timed.invoked), true, place)));
        }
        // At one moment begins come first: what may have been at the same time is taken as such.
        times.sort_unstable();
        let entries: Vec<(usize, bool)> = times.iter().map(|(_, is_return, place)| (*place, !is_return)).collect();
        let mut places = vec![(0, None); history.len()];
        for (at, (place, is_call)) in entries.iter().enumerate() {
            if let Some(found) = places.get_mut(*place) {
                if *is_call { found.0 = at } else { found.1 = Some(at) }
            }
        }
        Self {
            twins: twins(history, &entries),
            line: Line::new(entries.len()),
            done: Done(vec![0; history.len().div_ceil(64)]),
            open: history.iter().filter(|timed| timed.returned.is_some()).count(),
            entries,
            places,
        }
    }

    fn entry(&self, at: usize) -> (usize, bool) {
        self.entries.get(at).copied().unwrap_or_default()
    }

    fn call_at(&self, place: usize) -> usize {
        self.places.get(place).map_or(0, |found| found.0)
    }

    /// Of calls in doubt that are the same, the earliest goes first: the others would lead to the same.
    fn may_go(&self, place: usize) -> bool {
        self.twins.get(place).copied().flatten().is_none_or(|twin| self.done.has(twin))
    }

    /// Takes every answered call that the state explains and that leaves it as it is: whatever order there is, each of them may as well
    /// be here. The front of what is left.
    fn settle<S>(&mut self, taken: &mut Vec<Taken<S>>, changes_nothing: impl Fn(usize) -> bool) -> usize {
        let mut at = self.line.first();
        loop {
            let (place, is_call) = self.entry(at);
            if !is_call {
                return self.line.first();
            }
            if self.is_answered(place) && changes_nothing(place) {
                self.done.set(place, true);
                self.take(place);
                taken.push(Taken { place, before: None });
                at = self.line.first();
            } else {
                at = self.line.next(at);
            }
        }
    }

    /// Gives back up to the last call that changed something: which, and the state before it.
    fn back<S>(&mut self, taken: &mut Vec<Taken<S>>) -> Option<(usize, S)> {
        loop {
            let Taken { place, before } = taken.pop()?;
            self.give_back(place);
            if let Some(before) = before {
                return Some((place, before));
            }
        }
    }

    fn is_answered(&self, place: usize) -> bool {
        self.places.get(place).is_some_and(|found| found.1.is_some())
    }

    fn take(&mut self, place: usize) {
        let Some((call, answer)) = self.places.get(place).copied() else { return };
        self.line.lift(call);
        if let Some(answer) = answer {
            self.line.lift(answer);
            self.open -= 1;
        }
    }

    fn give_back(&mut self, place: usize) {
        let Some((call, answer)) = self.places.get(place).copied() else { return };
        self.done.set(place, false);
        if let Some(answer) = answer {
            self.line.lay_back(answer);
            self.open += 1;
        }
        self.line.lay_back(call);
    }
}

fn twins<O: PartialEq>(history: &[Timed<O>], entries: &[(usize, bool)]) -> Vec<Option<usize>> {
    let mut twins = vec![None; history.len()];
    let mut before: Vec<(usize, &O)> = Vec::new();
    for (place, _) in entries.iter().filter(|(_, is_call)| *is_call) {
        let Some(timed) = history.get(*place).filter(|timed| timed.returned.is_none()) else { continue };
        let twin = before.iter().rev().find(|(_, op)| **op == timed.op).map(|(twin, _)| *twin);
        if let Some(found) = twins.get_mut(*place) {
            *found = twin;
        }
        before.push((*place, &timed.op));
    }
    twins
}

/// Places of the line that are left, each with its neighbours: what was lifted knows where it stood.
struct Line {
    next: Vec<usize>,
    before: Vec<usize>,
}

impl Line {
    /// One place more than there are entries: the head, whose number is their count.
    fn new(count: usize) -> Self {
        let next = (0..count).map(|at| at + 1).chain([0]).collect();
        let before = [count].into_iter().chain(0..count).collect();
        Self { next, before }
    }

    fn first(&self) -> usize {
        self.next.last().copied().unwrap_or(0)
    }

    fn next(&self, at: usize) -> usize {
        self.next.get(at).copied().unwrap_or(0)
    }

    fn join(&mut self, one: usize, other: usize) {
        if let (Some(next), Some(before)) = (self.next.get_mut(one), self.before.get_mut(other)) {
            (*next, *before) = (other, one);
        }
    }

    fn lift(&mut self, at: usize) {
        let before = self.before.get(at).copied().unwrap_or(0);
        self.join(before, self.next(at));
    }

    fn lay_back(&mut self, at: usize) {
        let (before, next) = (self.before.get(at).copied().unwrap_or(0), self.next(at));
        self.join(before, at);
        self.join(at, next);
    }
}

/// Which calls were taken: a bit each.
struct Done(Vec<u64>);

impl Done {
    fn has(&self, place: usize) -> bool {
        self.0.get(place / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    fn set(&mut self, place: usize, is: bool) {
        if let Some(word) = self.0.get_mut(place / 64) {
            let bit = 1 << (place % 64);
            *word = if is { *word | bit } else { *word & !bit };
        }
    }

    /// The same for the same calls, and short: most of a history is taken or not even begun.
    fn key(&self) -> (usize, Box<[u64]>) {
        let full = self.0.iter().take_while(|word| **word == u64::MAX).count();
        let rest = self.0.get(full..).unwrap_or_default();
        let used = rest.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        (full, rest.get(..used).unwrap_or_default().into())
    }
}
