//! What is to be done next: a judgement over sizes and counts, with nothing read and nothing changed.
//!
//! ```text
//!   flush    a memtable waits; unless level 0 is far too full and it is the only one
//!   drop     a run whose every entry was erased goes without being written again
//!   merge    level 0 has enough runs or a level is over its bytes, the fullest first · a run is half tombstones · too many ranges wait for one
//!   gather   a merge within level 0, where that is little beside what it meets below, if the owner likes
//!   move     a merge into nothing, of a run without tombstones: only the manifest changes
//! ```
//! Nothing of this is done with a run that cannot be read: what is next then comes instead, and for level 0 what is newer than it is gathered.
//!
//! Walk: [`next`] asks in this order, [`next_merge`] where flushes have a lane of their own · [`Work`] says what it is about, by run.
//! Deliberately absent: views. They pin what they look at, so no merge asks who looks.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::Config;
use crate::manifest::LEVELS_MAX;
use crate::ranges::{Erased, Fragment};
use crate::run::{RunFacts, RunId};

/// Erased ranges beyond which runs are rewritten so that ranges can go: below, they go with the merges that come anyway.
pub(crate) const RANGES_MAX: usize = 1024;
/// Level 0 may have so many times the runs that begin a merge before it goes before a flush.
const LEVEL0_URGENT: usize = 3;
/// Level 0 is little beside what it meets below while it is less than such a part of it.
const LITTLE: u64 = 3;
/// Runs of level 0 that are gathered are so many times the longest of them.
const GROWTH: u64 = 3;
/// With so many memtables that wait nothing goes before a flush.
const FROZEN_URGENT: usize = 2;

/// What the judgement is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<'a> {
    /// Memtables that wait for their flush and may have it.
    pub(crate) frozen: usize,
    /// Level 0 newest first, the others in the order of their keys.
    pub(crate) levels: &'a [Vec<RunFacts>],
    /// What was erased, as far as it is durable.
    pub(crate) erased: &'a Erased,
    /// Level 0 may gather its runs before they go down.
    pub(crate) gathers: bool,
    /// Level 0 goes down however few its runs are.
    pub(crate) hurries: bool,
    /// Runs that cannot be read.
    pub(crate) shunned: &'a BTreeSet<RunId>,
}

/// A piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// The oldest memtable becomes a run.
    Flush,
    /// A run goes: all of it was erased.
    Drop(RunId),
    /// A run goes one level down as it is.
    Move(RunId),
    /// These become runs of a level. Of one level, or of two neighbours. At level 0 they are neighbours too, and become one.
    Merge { inputs: Vec<RunId>, to: usize },
}

impl Work {
    /// Runs that it reads or moves.
    pub(crate) fn inputs(&self) -> &[RunId] {
        match self {
            Self::Flush => &[],
            Self::Drop(run) | Self::Move(run) => std::slice::from_ref(run),
            Self::Merge { inputs, .. } => inputs,
        }
    }
}

/// The most urgent piece of work.
pub(crate) fn next(shape: Shape<'_>, config: &Config) -> Option<Work> {
    let level0_runs = usize::try_from(config.level0_runs).unwrap_or(usize::MAX);
    let at_level0 = shape.level(0).len();
    let merges_first = at_level0 >= level0_runs.saturating_mul(LEVEL0_URGENT) && shape.frozen < FROZEN_URGENT;
    if shape.frozen > 0 && !merges_first {
        return Some(Work::Flush);
    }
    next_merge(shape, config)
}

/// The most urgent piece of work that is no flush.
pub(crate) fn next_merge(shape: Shape<'_>, config: &Config) -> Option<Work> {
    let level0_runs = usize::try_from(config.level0_runs).unwrap_or(usize::MAX);
    let at_level0 = shape.level(0).len();
    let erased = |run: &&RunFacts| {
        shape.erased.over_all(&run.first, &run.last) > run.seq_max && !shape.shunned.contains(&run.id)
    };
    if let Some(run) = shape.levels.iter().flatten().find(erased) {
        return Some(Work::Drop(run.id));
    }
    let gathered = if shape.hurries { Gathered::Down } else { shape.gathered(level0_runs) };
    let too_full = |level: usize| match level {
        0 => match &gathered {
            Gathered::Down if shape.hurries && at_level0 > 0 => WHOLE,
            Gathered::Down => share(number(at_level0), number(level0_runs)),
            Gathered::These(_) => WHOLE,
            Gathered::Wait => 0,
        },
        // What is gathered meets level 1 that much less often.
        1 if shape.gathers => share(shape.bytes(1), config.level_bytes(1).saturating_mul(2).saturating_add(1)),
        _ => share(shape.bytes(level), config.level_bytes(level).saturating_add(1)),
    };
    // The fullest first, of two the upper one. Not always level 0: where it is due again whenever its merge ends, the level below
    // would grow, and each merge with it.
    let mut full: Vec<usize> =
        (0..shape.levels.len().min(LEVELS_MAX - 1)).filter(|level| too_full(*level) >= WHOLE).collect();
    full.sort_by_key(|level| Reverse(too_full(*level)));
    let down = |level| if level == 0 { shape.level0_down(&gathered, level0_runs) } else { shape.cheapest_down(level) };
    full.into_iter().find_map(down).or_else(|| shape.densest_down()).or_else(|| shape.forgetting())
}

const WHOLE: u64 = 1 << 16;

/// What part of the whole a number is of another.
fn share(number: u64, of: u64) -> u64 {
    u64::try_from(u128::from(number) * u128::from(WHOLE) / u128::from(of.max(1))).unwrap_or(u64::MAX)
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Whether a run may hold entries that a fragment erased, and that were not left out of it.
pub(crate) fn is_ignorant(run: &RunFacts, fragment: &Fragment) -> bool {
    run.knows < fragment.seq && run.seq_min < fragment.seq && fragment.overlaps(&run.first, &run.last)
}

/// Whether a fragment has to be kept, because a run may hold entries that it erased.
pub(crate) fn is_needed(levels: &[Vec<RunFacts>], fragment: &Fragment) -> bool {
    let (level0, deep) = levels.split_first().map_or((&[][..], &[][..]), |(level0, deep)| (level0.as_slice(), deep));
    let from = |runs: &&[RunFacts]| runs.partition_point(|run| *run.last < *fragment.from);
    let met = |runs: &[RunFacts]| {
        let met = runs.iter().skip(from(&runs)).take_while(|run| fragment.overlaps(&run.first, &run.last));
        met.into_iter().any(|run| is_ignorant(run, fragment))
    };
    level0.iter().any(|run| is_ignorant(run, fragment)) || deep.iter().any(|runs| met(runs))
}

/// What is too much at levels of so many runs and bytes: what merges would have to read.
pub(crate) fn debt_bytes(levels: impl IntoIterator<Item = (usize, u64)>, config: &Config) -> u64 {
    let level0_runs = usize::try_from(config.level0_runs).unwrap_or(usize::MAX);
    let debt = levels.into_iter().enumerate().map(|(level, (runs, bytes))| match level {
        0 if runs < level0_runs => 0,
        0 => bytes,
        _ => bytes.saturating_sub(config.level_bytes(level)),
    });
    debt.sum()
}

/// What becomes of level 0.
enum Gathered {
    /// All of it goes down, once it has enough runs.
    Down,
    /// These become one run.
    These(Vec<RunId>),
    Wait,
}

/// A run and its level.
type At<'a> = (usize, &'a RunFacts);

impl<'a> Shape<'a> {
    fn level(self, level: usize) -> &'a [RunFacts] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    fn bytes(self, level: usize) -> u64 {
        self.level(level).iter().map(|run| run.bytes).sum()
    }

    fn overlapping(self, level: usize, first: &[u8], last: &[u8]) -> &'a [RunFacts] {
        let runs = self.level(level);
        let start = runs.partition_point(|run| run.last.as_slice() < first);
        let runs = runs.get(start..).unwrap_or_default();
        let count = runs.partition_point(|run| run.first.as_slice() <= last);
        runs.get(..count).unwrap_or_default()
    }

    /// Whether all that it needs can be read.
    fn can(self, work: &Work) -> bool {
        self.shunned.is_empty() || !work.inputs().iter().any(|run| self.shunned.contains(run))
    }

    /// What becomes of a level 0 that is too full.
    fn level0_down(self, gathered: &Gathered, level0_runs: usize) -> Option<Work> {
        let wanted = match gathered {
            Gathered::These(inputs) => Work::Merge { inputs: inputs.clone(), to: 0 },
            Gathered::Down | Gathered::Wait => self.merge_level0(),
        };
        if self.can(&wanted) {
            return Some(wanted);
        }
        // What is newer than the first that cannot be read stays few, at least.
        let inputs = self.newest(level0_runs, |run| !self.shunned.contains(&run.id))?;
        Some(Work::Merge { inputs, to: 0 })
    }

    /// All of level 0, for its runs overlap each other, and what it meets at level 1.
    fn merge_level0(self) -> Work {
        let inputs = self.level(0).iter().chain(self.met_by_level0()).map(|run| run.id).collect();
        Work::Merge { inputs, to: 1 }
    }

    fn met_by_level0(self) -> &'a [RunFacts] {
        let runs = self.level(0);
        let first = runs.iter().map(|run| run.first.as_slice()).min().unwrap_or_default();
        let last = runs.iter().map(|run| run.last.as_slice()).max().unwrap_or_default();
        self.overlapping(1, first, last)
    }

    /// Runs that are little beside what they meet at level 1 wait until they are more: each time they go down all of that is written again.
    /// Meanwhile the newest of them, as many as possible, become one that is much longer than each of them was.
    fn gathered(self, level0_runs: usize) -> Gathered {
        let runs = self.level(0);
        let below: u64 = self.met_by_level0().iter().map(|run| run.bytes).sum();
        let many = level0_runs.saturating_mul(LEVEL0_URGENT);
        let waits = runs.len() < many && self.bytes(0).saturating_mul(LITTLE) < below;
        if !self.gathers || !waits || self.is_erased(self.met_by_level0()) {
            return Gathered::Down;
        }
        self.newest(level0_runs, |_| true).map_or(Gathered::Wait, Gathered::These)
    }

    /// As many of the newest runs of level 0 as are worth it, up to the first that may not be taken.
    fn newest(self, level0_runs: usize, may: impl Fn(&RunFacts) -> bool) -> Option<Vec<RunId>> {
        let runs = || self.level(0).iter().take_while(|run| may(run));
        let (mut sum, mut longest, mut count) = (0_u64, 0, 0);
        for (at, run) in (1..).zip(runs()) {
            sum = sum.saturating_add(run.bytes);
            longest = run.bytes.max(longest);
            if at >= level0_runs && sum >= GROWTH.saturating_mul(longest) {
                count = at;
            }
        }
        (count >= 2).then(|| runs().take(count).map(|run| run.id).collect())
    }

    /// Whether any of them may hold entries that were erased: nobody knows of them before it is written again.
    fn is_erased(self, runs: &[RunFacts]) -> bool {
        let fragments = self.erased.fragments();
        runs.iter().any(|run| fragments.iter().any(|fragment| is_ignorant(run, fragment)))
    }

    fn met_bytes(self, (level, run): At<'_>) -> u64 {
        self.overlapping(level + 1, &run.first, &run.last).iter().map(|run| run.bytes).sum()
    }

    /// The run of a level that meets the least below, for each byte of its own, goes down.
    fn cheapest_down(self, level: usize) -> Option<Work> {
        let price = |run: &&RunFacts| self.met_bytes((level, run)).saturating_mul(1024) / run.bytes.max(1);
        let can = |run: &&RunFacts| self.shunned.is_empty() || self.can(&self.down((level, run)));
        self.level(level).iter().filter(can).min_by_key(price).map(|run| self.down((level, run)))
    }

    /// A run below level 0 that is half tombstones or more goes down.
    fn densest_down(self) -> Option<Work> {
        let at = |level| self.level(level).iter().map(move |run| (level, run));
        let all = (1..self.levels.len()).flat_map(at);
        let dense = all.filter(|(_, run)| run.tombstones > 0 && run.tombstones >= run.entries.div_ceil(2));
        let can = |at: &At<'_>| self.shunned.is_empty() || self.can(&self.down(*at));
        let densest = dense.filter(can).max_by_key(|(_, run)| run.tombstones.saturating_mul(1024) / run.entries.max(1));
        densest.map(|at| self.down(at))
    }

    /// What lets the most ranges go, where there are too many.
    fn forgetting(self) -> Option<Work> {
        if self.erased.fragments().len() <= RANGES_MAX {
            return None;
        }
        self.most_ignorant()
    }

    /// A run with what it meets one level down.
    fn down(self, (level, run): At<'_>) -> Work {
        let met = self.overlapping(level + 1, &run.first, &run.last);
        let is_last = level + 1 >= self.levels.len();
        match met {
            // Nothing below: it is written again where it is, and its tombstones are not.
            [] if run.tombstones > 0 && is_last => Work::Merge { inputs: vec![run.id], to: level },
            [] => Work::Move(run.id),
            _ => Work::Merge { inputs: std::iter::once(run).chain(met).map(|run| run.id).collect(), to: level + 1 },
        }
    }

    /// The run that keeps the most ranges from going.
    fn most_ignorant(self) -> Option<Work> {
        let ignorance =
            |run: &RunFacts| self.erased.fragments().iter().filter(|fragment| is_ignorant(run, fragment)).count();
        let at = |level| self.level(level).iter().map(move |run| (level, run));
        let all = (0..self.levels.len()).flat_map(at).map(|(level, run)| (ignorance(run), level, run));
        let work = |level: usize, run: &RunFacts| match level {
            0 => self.merge_level0(),
            _ => Work::Merge { inputs: vec![run.id], to: level },
        };
        let can = |(count, level, run): &(usize, usize, &RunFacts)| *count > 0 && self.can(&work(*level, run));
        let (_, level, run) = all.filter(can).max_by_key(|(count, ..)| *count)?;
        Some(work(level, run))
    }
}

#[cfg(test)]
#[path = "policy_test.rs"]
mod tests;
