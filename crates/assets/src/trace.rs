//! Where the time of a command goes: the moment of each step of sampled ones, and a histogram of each step.
//!
//! Walk: [`Trace::stamp`] at each step; of a command that is not sampled it costs a comparison · [`Steps::take`] books a finished one ·
//! [`Steps::table`] for people, [`Steps::times`] for them and for machines.
//! Deliberately absent: a clock of its own. The stamps are the caller's, through `world`.

use std::collections::VecDeque;
use std::fmt::Write as _;

use assent_membership::Sequence;
use assent_world::{Clock, Moment};
use hdrhistogram::Histogram;

/// A step of a command, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Its bytes are there.
    Arrived,
    /// It has its place among all commands.
    Ordered,
    /// The business is done, in memory.
    Executed,
    /// It stands in the log's buffer.
    Queued,
    /// It is on its way to the standby.
    Sent,
    /// It is kept as the acknowledgement asks.
    Confirmed,
    /// Its answer is on its way.
    Replied,
}

const STEPS: usize = 7;
/// Finished traces that are kept to be looked at.
const TRACES_MAX: usize = 32;
/// Longer steps count as so long.
const STEP_US_MAX: u64 = 60_000_000;
/// Bounds of [`StepTimes::spread`]: 1, 2, 4 ... microseconds, up to 16 seconds.
const BOUNDS: usize = 25;

impl Step {
    /// All, in their order.
    pub const ALL: [Step; STEPS] =
        [Step::Arrived, Step::Ordered, Step::Executed, Step::Queued, Step::Sent, Step::Confirmed, Step::Replied];

    /// Its name in tables and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Step::Arrived => "arrived",
            Step::Ordered => "ordered",
            Step::Executed => "executed",
            Step::Queued => "queued",
            Step::Sent => "sent",
            Step::Confirmed => "confirmed",
            Step::Replied => "replied",
        }
    }
}

/// The stamps of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    is_on: bool,
    /// Its place, once it has one.
    pub sequence: Sequence,
    stamps: [Option<Moment>; STEPS],
}

impl Trace {
    /// Of a command that is not sampled.
    pub const OFF: Trace = Trace { is_on: false, sequence: Sequence(0), stamps: [None; STEPS] };

    /// Of a sampled one.
    #[must_use]
    pub const fn on() -> Self {
        Trace { is_on: true, ..Self::OFF }
    }

    /// Whether it is sampled.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.is_on
    }

    /// The step is done now.
    pub fn stamp(&mut self, step: Step, clock: &dyn Clock) {
        if self.is_on {
            self.stamp_at(step, clock.now());
        }
    }

    /// The step is done now, if it was not before.
    pub(crate) fn stamp_once(&mut self, step: Step, clock: &dyn Clock) {
        let place = Step::ALL.iter().zip(&self.stamps).find(|(one, _)| **one == step);
        if place.is_some_and(|(_, at)| at.is_none()) {
            self.stamp(step, clock);
        }
    }

    /// The step was done then.
    pub fn stamp_at(&mut self, step: Step, at: Moment) {
        if let Some((_, place)) = Step::ALL.iter().zip(&mut self.stamps).find(|(one, _)| **one == step) {
            *place = Some(at);
        }
    }

    /// Each stamped step: microseconds since the first one, and since the one before.
    pub fn rows(&self) -> impl Iterator<Item = (Step, u64, u64)> + '_ {
        let first = self.stamps.iter().flatten().next().copied().unwrap_or_default();
        let mut before = first;
        let stamped = Step::ALL.into_iter().zip(self.stamps).filter_map(|(step, at)| Some((step, at?)));
        stamped.map(move |(step, at)| {
            let row = (step, at.0.saturating_sub(first.0), at.0.saturating_sub(before.0));
            before = at;
            row
        })
    }
}

/// What a step took, of all sampled commands so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTimes {
    /// Its name; the last one is all of a command.
    pub name: String,
    /// How many commands, and their median, 99th and 99.73rd percentile and maximum in microseconds.
    pub numbers: [u64; 5],
    /// All of them together, in microseconds.
    pub sum_us: u64,
    /// How many took at most as long as each of [`StepTimes::bounds_us`] and longer than the one before; the last count is the rest.
    pub spread: Vec<u64>,
}

impl StepTimes {
    /// Up to where each count of the spread goes, in microseconds; one more count is what took longer.
    pub fn bounds_us() -> impl Iterator<Item = u32> {
        (0..BOUNDS).map(|power| 1 << power)
    }
}

/// All sampled commands so far.
#[derive(Debug)]
pub struct Steps {
    histograms: Vec<Histogram<u64>>,
    last: VecDeque<Trace>,
}

impl Default for Steps {
    fn default() -> Self {
        let histogram = || Histogram::new_with_bounds(1, STEP_US_MAX, 2).ok();
        Self { histograms: (0..=STEPS).filter_map(|_| histogram()).collect(), last: VecDeque::new() }
    }
}

impl Steps {
    /// Books a finished trace: each step by the time since the one before, and behind them all of it.
    pub fn take(&mut self, trace: Trace) {
        if !trace.is_on {
            return;
        }
        let mut total = 0;
        for (step, since_first, since_before) in trace.rows() {
            total = since_first;
            let position = Step::ALL.iter().position(|one| *one == step);
            self.book(position, since_before);
        }
        self.book(Some(STEPS), total);
        if self.last.len() == TRACES_MAX {
            self.last.pop_front();
        }
        self.last.push_back(trace);
    }

    fn book(&mut self, position: Option<usize>, us: u64) {
        if let Some(histogram) = position.and_then(|position| self.histograms.get_mut(position)) {
            histogram.saturating_record(us.clamp(1, STEP_US_MAX));
        }
    }

    /// The last finished traces, the newest behind.
    pub fn last(&self) -> impl Iterator<Item = &Trace> {
        self.last.iter()
    }

    /// A histogram for each step, in microseconds since the step before, with its name; the last one is all of a command.
    pub fn histograms(&self) -> impl Iterator<Item = (&'static str, &Histogram<u64>)> {
        Step::ALL.iter().map(|step| step.name()).chain(["total"]).zip(&self.histograms)
    }

    /// What each step took.
    #[must_use]
    pub fn times(&self) -> Vec<StepTimes> {
        self.histograms().map(|(name, histogram)| times(name, histogram)).collect()
    }

    /// The newest trace as a table, if there is one.
    #[must_use]
    pub fn table(&self) -> Option<String> {
        let trace = self.last.back()?;
        let mut table = format!("command {}\n{:<10} {:>10} {:>10}\n", trace.sequence, "step", "at us", "took us");
        for (step, at, took) in trace.rows() {
            // A text takes everything.
            _ = writeln!(table, "{:<10} {at:>10} {took:>10}", step.name());
        }
        Some(table)
    }
}

fn times(name: &str, histogram: &Histogram<u64>) -> StepTimes {
    let at = |quantile| histogram.value_at_quantile(quantile);
    let numbers = [histogram.len(), at(0.5), at(0.99), at(0.9973), histogram.max()];
    let (mut spread, mut sum_us) = (vec![0; BOUNDS + 1], 0_u64);
    for seen in histogram.iter_recorded() {
        let (value, count) = (histogram.lowest_equivalent(seen.value_iterated_to()), seen.count_at_value());
        sum_us = sum_us.saturating_add(value.saturating_mul(count));
        let place = StepTimes::bounds_us().take_while(|bound| u64::from(*bound) < value).count();
        spread.iter_mut().skip(place).take(1).for_each(|all| *all += count);
    }
    StepTimes { name: name.to_owned(), numbers, sum_us, spread }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_booked_by_what_each_took_and_a_step_may_be_left_out() {
        let mut steps = Steps::default();
        let mut trace = Trace { sequence: Sequence(9), ..Trace::on() };
        for (step, at) in [(Step::Arrived, 100), (Step::Ordered, 103), (Step::Queued, 110), (Step::Confirmed, 310)] {
            trace.stamp_at(step, Moment(at));
        }
        steps.take(Trace::OFF);
        steps.take(trace);
        let rows: Vec<_> = trace.rows().collect();
        let expected =
            [(Step::Arrived, 0, 0), (Step::Ordered, 3, 3), (Step::Queued, 10, 7), (Step::Confirmed, 210, 200)];
        assert_eq!(rows, expected);
        let of = |steps: &Steps, name| steps.times().into_iter().find(|one| one.name == name).unwrap();
        let (queued, sent, total) = (of(&steps, "queued"), of(&steps, "sent"), of(&steps, "total"));
        assert_eq!((queued.numbers, queued.sum_us), ([1, 7, 7, 7, 7], 7));
        assert_eq!((sent.numbers, sent.sum_us), ([0; 5], 0));
        assert_eq!((total.numbers[0], total.numbers[1] / 10), (1, 21));
        // 7 is more than 4 and at most 8; what took nothing counts as 1.
        let filled = |name| of(&steps, name).spread.iter().position(|count| *count == 1);
        assert_eq!((filled("queued"), filled("arrived"), filled("sent")), (Some(3), Some(0), None));
        steps.book(Some(0), u64::MAX);
        assert_eq!(of(&steps, "arrived").spread.last(), Some(&1), "beyond the last bound");
        let table = steps.table().unwrap();
        assert_eq!(table.lines().nth(4), Some("queued             10          7"), "{table}");
        (0..100).for_each(|_| steps.take(trace));
        assert_eq!(steps.last().count(), TRACES_MAX);
    }
}
