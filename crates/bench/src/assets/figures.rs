//! A row's figures, of all its slices.

use std::collections::BTreeMap;

use super::Case;
use super::load::Slice;
use super::meter::Meter;
use super::place::FLOOR;
use crate::BenchError;
use crate::record::Recorder;
use crate::report::Cell;
use crate::stats::{Samples, median, per_second};

/// The call of a report that a command is.
pub const CALL: &str = "command";
/// One, two and three sigma, and their names.
const SIGMAS: [(&str, f64); 3] = [("p68_27", 0.6827), ("p95_45", 0.9545), ("p99_73", 0.9973)];

/// What was seen of one subject, in all its slices.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// In the order in which they were run.
    pub slices: Vec<Slice>,
    /// What each process took in all of them; `client` is this one's.
    pub took: BTreeMap<&'static str, Meter>,
    /// What the assets say in the end: commands executed.
    pub executed: u64,
    /// Changes that subscribers were told, and that they were told to have missed.
    pub news: (u64, u64),
}

impl Seen {
    /// Commands that were answered.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.slices.iter().map(|slice| slice.done).sum()
    }

    /// Commands a second, in each slice.
    fn rates(&self) -> Vec<f64> {
        self.slices.iter().map(|slice| per_second(slice.samples.len(), slice.took)).collect()
    }

    /// Adds what a process took in one slice.
    pub fn took(&mut self, process: &'static str, more: Meter) {
        let meter = self.took.entry(process).or_default();
        (meter.cpu_s, meter.sleeps) = (meter.cpu_s + more.cpu_s, meter.sleeps + more.sleeps);
    }
}

/// The cell of a row. The ratio to the floor is the median of those between slices of one round.
///
/// # Errors
/// Where a histogram cannot be laid.
pub fn cell(case: &Case, ack: &str, seen: &Seen, floor: Option<&Seen>) -> Result<Cell, BenchError> {
    let mut cell = Cell { labels: case.labels(ack), ..Cell::default() };
    let (mut recorder, mut samples) = (Recorder::default(), Samples::default());
    seen.slices.iter().for_each(|slice| samples.extend(&slice.samples));
    recorder.extend(CALL, &samples);
    recorder.fill(&mut cell)?;
    let mut put = |name: String, value: f64| _ = cell.figures.insert(name, value);
    let mut sorted = samples.nanos().to_vec();
    sorted.sort_unstable();
    for (name, share) in SIGMAS {
        let at = sorted.get(rank(sorted.len(), share)).copied().unwrap_or(0);
        put(format!("{CALL}_{name}_us"), micros(at));
    }
    let rates = seen.rates();
    put("per_s".to_owned(), median(&rates));
    if let Some(floor) = floor {
        let ratios: Vec<f64> = rates.iter().zip(floor.rates()).map(|(ours, its)| ours / its.max(1e-9)).collect();
        put("ratio_to_floor".to_owned(), median(&ratios));
    }
    let commands = number(sorted.len()).max(1.0);
    for (process, meter) in &seen.took {
        put(format!("cpu_{process}_us"), meter.cpu_s * 1e6 / commands);
        put(format!("sleeps_{process}"), meter.sleeps / commands);
    }
    let servers = seen.took.iter().filter(|(process, _)| **process != "client");
    put("cpu_servers_us".to_owned(), servers.map(|(_, meter)| meter.cpu_s).sum::<f64>() * 1e6 / commands);
    put("cpu_all_us".to_owned(), seen.took.values().map(|meter| meter.cpu_s).sum::<f64>() * 1e6 / commands);
    if ack != FLOOR {
        let (answered, executed) = (seen.answered(), seen.executed);
        put("answered".to_owned(), float(answered));
        put("lost".to_owned(), float(answered.saturating_sub(executed)));
        put("doubled".to_owned(), float(executed.saturating_sub(answered)));
        if seen.news != (0, 0) {
            put("news".to_owned(), float(seen.news.0));
            put("news_missed".to_owned(), float(seen.news.1));
        }
    }
    Ok(cell)
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
const fn number(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
const fn float(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "durations below 52 days")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1_000.0
}

/// The place of the smallest sample that at least that share does not exceed.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
fn rank(length: usize, share: f64) -> usize {
    ((number(length) * share).ceil() as usize).saturating_sub(1).min(length.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Role, Shape, Spread};
    use super::*;

    #[test]
    fn a_share_is_the_nearest_rank() {
        assert_eq!([0.0, 0.5, 0.6827, 1.0].map(|share| rank(100, share)), [0, 49, 68, 99]);
        assert_eq!((rank(1, 0.5), rank(0, 1.0)), (0, 0));
    }

    #[test]
    fn what_was_lost_and_what_was_done_twice_are_figures_and_costs_are_for_each_command() {
        let shape = Shape { connections: 1, outstanding: 1 };
        let case = Case { role: Role::Pair, shape, spread: Spread::Even, assets: 9, rtt_us: 0, subscribers: 0 };
        let slice = |commands: u64, seconds: u64| {
            let mut slice = Slice { took: Duration::from_secs(seconds), done: commands, ..Slice::default() };
            (1..=commands).for_each(|us| slice.samples.push(Duration::from_micros(us)));
            slice
        };
        let mut seen = Seen { slices: vec![slice(100, 1), slice(100, 2)], executed: 199, ..Seen::default() };
        seen.took("primary", Meter { cpu_s: 0.001, sleeps: 300.0 });
        seen.took("primary", Meter { cpu_s: 0.001, sleeps: 100.0 });
        seen.took("client", Meter { cpu_s: 0.004, sleeps: 0.0 });
        let floor = Seen { slices: vec![slice(200, 1), slice(400, 2)], ..Seen::default() };
        let cell = cell(&case, "received", &seen, Some(&floor)).unwrap();
        let figure = |name: &str| cell.figures[name];
        assert_eq!((figure("answered"), figure("lost"), figure("doubled")), (200.0, 1.0, 0.0));
        assert_eq!((figure("cpu_primary_us"), figure("sleeps_primary")), (10.0, 2.0));
        assert_eq!((figure("cpu_servers_us"), figure("cpu_all_us")), (10.0, 30.0));
        assert_eq!((figure("per_s"), figure("ratio_to_floor")), (50.0, 0.25));
        assert_eq!((figure("command_p68_27_us"), figure("command_max_us")), (69.0, 100.0));
        seen.executed = 202;
        assert_eq!(super::cell(&case, "received", &seen, None).unwrap().figures["doubled"], 2.0);
    }
}
