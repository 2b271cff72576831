//! What is said of a run over time: its rate, and the tail metric of the field.
//!
//! A second is the grain: how many operations ended in it, and the longest GET and PUT that ended in it. Windows of 10 and 20
//! seconds are sums and maxima of seconds, exactly; nothing else is kept, so that an hour costs no more memory than a
//! minute. The last window counts where it is whole, or the only one.

use std::time::Duration;

use crate::report::Figures;

/// Seconds of a window whose maximum counts.
const TAIL_S: usize = 10;
/// Seconds of a window whose rate is held against its neighbour's.
const RATE_S: usize = 20;
/// Points of a rate over time, at most.
const POINTS_MAX: usize = 60;

/// A latency whose maxima are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Of a GET.
    Get,
    /// Of a PUT.
    Put,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Second {
    operations: u64,
    get_max: Option<u64>,
    put_max: Option<u64>,
}

/// What happened in each second of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seconds(Vec<Second>);

impl Seconds {
    /// Operations ended, that long after the start.
    pub fn ended(&mut self, operations: u64, at: Duration) {
        if let Some(second) = self.second(at) {
            second.operations += operations;
        }
    }

    /// A GET or a PUT ended, that long after the start, and took that long.
    pub fn latency(&mut self, tail: Tail, at: Duration, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(second) = self.second(at) {
            let max = match tail {
                Tail::Get => &mut second.get_max,
                Tail::Put => &mut second.put_max,
            };
            *max = Some(max.map_or(nanos, |max| max.max(nanos)));
        }
    }

    /// All of another client's.
    pub fn merge(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), Second::default());
        }
        for (own, more) in self.0.iter_mut().zip(&other.0) {
            own.operations += more.operations;
            own.get_max = own.get_max.max(more.get_max);
            own.put_max = own.put_max.max(more.put_max);
        }
    }

    /// All operations.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.0.iter().map(|second| second.operations).sum()
    }

    /// The mean over 10-second windows of the longest that ended in each, in microseconds; windows without any are left out,
    /// and so is the figure where there are none.
    #[must_use]
    pub fn mean_of_maxima_us(&self, tail: Tail, elapsed: Duration) -> Option<f64> {
        let maxima = self.maxima_us(tail, elapsed);
        let sum: f64 = maxima.iter().map(|(_, longest)| longest).sum();
        (!maxima.is_empty()).then(|| sum / super::number(super::length(maxima.len())))
    }

    /// The longest that ended in each 10-second window, in microseconds, each at the end of its window; windows without any are left out.
    #[must_use]
    pub fn maxima_us(&self, tail: Tail, elapsed: Duration) -> Vec<(f64, f64)> {
        let of = |second: &Second| match tail {
            Tail::Get => second.get_max,
            Tail::Put => second.put_max,
        };
        let windows = self.windows(TAIL_S, elapsed).enumerate();
        let longest = |(number, window): (usize, &[Second])| {
            let nanos = window.iter().filter_map(of).max()?;
            let end = super::number(super::length((number + 1) * TAIL_S));
            Some((end, super::number(nanos) / 1_000.0))
        };
        windows.filter_map(longest).collect()
    }

    /// The largest ratio of the rates of two adjoining 20-second windows, at least 1; none of fewer than two. A window without
    /// an operation counts as one of a single operation.
    #[must_use]
    pub fn largest_ratio(&self, elapsed: Duration) -> Option<f64> {
        let counts: Vec<u64> = self.windows(RATE_S, elapsed).map(|window| sum(window).max(1)).collect();
        let ratios = counts.windows(2).filter_map(|pair| match pair {
            [one, two] => Some(super::number(*one.max(two)) / super::number(*one.min(two))),
            _ => None,
        });
        ratios.reduce(f64::max)
    }

    /// Operations per second of the last sixth, in whole seconds; of the whole run where it is shorter than six seconds.
    #[must_use]
    pub fn last_sixth(&self, elapsed: Duration) -> f64 {
        let whole = whole(elapsed);
        let sixth = whole / 6;
        if sixth == 0 {
            return super::number(self.operations()) / elapsed.as_secs_f64().max(1e-9);
        }
        let last: u64 = self.0.iter().take(whole).skip(whole - sixth).map(|second| second.operations).sum();
        super::number(last) / super::number(super::length(sixth))
    }

    /// Operations per second over the seconds since the start, in at most 60 points, each at the end of its window.
    #[must_use]
    pub fn rate(&self, elapsed: Duration) -> Vec<(f64, f64)> {
        let whole = whole(elapsed);
        if whole == 0 {
            return vec![(elapsed.as_secs_f64(), self.last_sixth(elapsed))];
        }
        let step = whole.div_ceil(POINTS_MAX);
        let point = |(number, window): (usize, &[Second])| {
            let (end, seconds) = (super::length((number + 1) * step), super::number(super::length(step)));
            (super::number(end), super::number(sum(window)) / seconds)
        };
        self.windows(step, elapsed).enumerate().map(point).collect()
    }

    /// All of it as a report names it.
    #[must_use]
    pub fn figures(&self, elapsed: Duration) -> Figures {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let all = [
            ("operations", Some(super::number(self.operations()))),
            ("elapsed_s", Some(seconds)),
            ("ops_per_s", Some(super::number(self.operations()) / seconds)),
            ("ops_per_s_last_sixth", Some(self.last_sixth(elapsed))),
            ("ops_ratio_20s_max", self.largest_ratio(elapsed)),
            ("get_max_10s_mean_us", self.mean_of_maxima_us(Tail::Get, elapsed)),
            ("put_max_10s_mean_us", self.mean_of_maxima_us(Tail::Put, elapsed)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// The whole windows of a run, and seconds in which nothing ended among them; one that is not whole where it is the only.
    fn windows(&self, seconds: usize, elapsed: Duration) -> impl Iterator<Item = &[Second]> {
        let count = (whole(elapsed) / seconds).max(1);
        let window = move |number: usize| {
            let end = ((number + 1) * seconds).min(self.0.len());
            self.0.get((number * seconds).min(end)..end).unwrap_or_default()
        };
        (0..count).map(window)
    }

    fn second(&mut self, at: Duration) -> Option<&mut Second> {
        let number = whole(at);
        if self.0.len() <= number {
            self.0.resize(number + 1, Second::default());
        }
        self.0.get_mut(number)
    }
}

fn sum(window: &[Second]) -> u64 {
    window.iter().map(|second| second.operations).sum()
}

fn whole(time: Duration) -> usize {
    usize::try_from(time.as_secs()).unwrap_or(usize::MAX)
}
