//! What the plays found, as a table for people and as one JSON object for programs.

use std::collections::BTreeMap;
use std::time::Duration;

use assent_bench::stats::Samples;
use serde::Serialize;

use super::judge::Judged;
use crate::bench::table;
use crate::failure::Failure;

/// One fault, played once.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Played {
    pub(super) fault: String,
    pub(super) kind: &'static str,
    pub(super) took_ms: u64,
    /// Operations that were answered, of them changes, and changes whose answer is not known.
    pub(super) answered: u64,
    pub(super) acknowledged: u64,
    pub(super) in_doubt: u64,
    pub(super) lost: u64,
    pub(super) doubled: u64,
    /// Commands of which a server said that it did nothing.
    pub(super) refused: u64,
    /// Commands that clients sent a second time, over connections that they made again.
    pub(super) again: u64,
    pub(super) reconnected: u64,
    pub(super) fail_overs: u64,
    /// The longest time without any answer.
    pub(super) silence_us: u64,
    /// From the death of a primary to the first answer of the next one.
    pub(super) first_answer_us: Option<u64>,
    pub(super) faults: Vec<String>,
    /// Why something is in doubt; only the first few.
    pub(super) doubts: Vec<String>,
    /// What the processes said last; only with faults.
    pub(super) said: Vec<String>,
}

impl Played {
    /// A promise, or what is said where it was not kept.
    pub(super) fn expect(&mut self, is_so: bool, else_said: &str) {
        if !is_so {
            self.faults.push(else_said.to_owned());
        }
    }

    pub(super) fn judged(&mut self, judged: Judged) {
        let Judged { faults, answered, acknowledged, in_doubt, lost, doubled } = judged;
        self.faults.extend(faults);
        (self.answered, self.acknowledged, self.in_doubt) = (answered, acknowledged, in_doubt);
        (self.lost, self.doubled) = (lost, doubled);
    }
}

/// All of them.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) seed: u64,
    pub(super) ack: String,
    pub(super) arbiter: String,
    pub(super) elapsed_ms: u64,
    /// What could not be played on this machine, and why.
    pub(super) not_played: Vec<String>,
    /// How often all members were stopped, opened again, and compared.
    pub(super) compared: u64,
    pub(super) plays: Vec<Played>,
    /// What went wrong beside the plays.
    pub(super) faults: Vec<String>,
    /// From the death of a primary to the first answer of the next one; no time: nobody was killed.
    pub(super) first_answer_ms: Option<FirstAnswer>,
    /// The longest silence of each planned hand-over, as its clients saw it; none: none was played.
    pub(super) hand_over_ms: Option<FirstAnswer>,
}

/// Milliseconds until the first answer.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FirstAnswer {
    pub(super) plays: usize,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
    /// The end of each step of the histogram in milliseconds, and how many fell into it.
    pub(super) histogram: Vec<(u64, usize)>,
}

impl FirstAnswer {
    pub(super) fn of(micros: &[u64]) -> Option<Self> {
        let mut samples = Samples::default();
        micros.iter().for_each(|us| samples.push(Duration::from_micros(*us)));
        let latency = samples.latency();
        let steps = [5, 10, 25, 50, 75, 100, 150, 200, 250, 300, 400, 500, 1_000, 2_000, 5_000, 60_000];
        let below = |ms: u64| micros.iter().filter(|us| **us < ms * 1_000).count();
        let mut before = 0;
        let histogram = steps.map(|ms| {
            let here = below(ms) - before;
            before += here;
            (ms, here)
        });
        let of = |us: f64| us / 1_000.0;
        (!micros.is_empty()).then(|| Self {
            plays: micros.len(),
            p50: of(latency.p50),
            p99: of(latency.p99),
            max: of(latency.max),
            histogram: histogram.into_iter().filter(|(_, count)| *count > 0).collect(),
        })
    }
}

fn ms(us: u64) -> String {
    format!("{}.{} ms", us / 1_000, us % 1_000 / 100)
}

impl Report {
    pub(super) fn is_good(&self) -> bool {
        self.faults.is_empty() && self.plays.iter().all(|play| play.faults.is_empty())
    }

    /// For people.
    pub(super) fn print(&self) -> Result<(), Failure> {
        let head = [
            "fault",
            "plays",
            "answered",
            "acknowledged",
            "in doubt",
            "sent again",
            "fail-overs",
            "longest silence",
            "lost",
            "doubled",
        ];
        let mut rows = table(&head);
        let mut by_fault: BTreeMap<&str, Vec<&Played>> = BTreeMap::new();
        for play in &self.plays {
            by_fault.entry(&play.fault).or_default().push(play);
        }
        for (fault, plays) in &by_fault {
            let sum = |of: fn(&Played) -> u64| plays.iter().map(|play| of(play)).sum::<u64>().to_string();
            let silence = plays.iter().map(|play| play.silence_us).max().unwrap_or_default();
            let is_bad = plays.iter().any(|play| !play.faults.is_empty());
            rows.add_row([
                format!("{fault}{}", if is_bad { " FAULT" } else { "" }),
                plays.len().to_string(),
                sum(|play| play.answered),
                sum(|play| play.acknowledged),
                sum(|play| play.in_doubt),
                sum(|play| play.again),
                sum(|play| play.fail_overs),
                ms(silence),
                sum(|play| play.lost),
                sum(|play| play.doubled),
            ]);
        }
        say!("{rows}")?;
        for (from, found) in [
            ("from the death of a primary to the first answer", &self.first_answer_ms),
            ("the longest silence of a planned hand-over", &self.hand_over_ms),
        ] {
            found.iter().try_for_each(|found| found.print(from))?;
        }
        let sum = |of: fn(&Played) -> u64| self.plays.iter().map(of).sum::<u64>();
        say!(
            "seed {}, ack {}, {}: {} plays in {} s; {} changes acknowledged, {} lost, {} doubled; {} times all members were stopped, and the same when opened again",
            self.seed,
            self.ack,
            self.arbiter,
            self.plays.len(),
            self.elapsed_ms / 1_000,
            sum(|play| play.acknowledged),
            sum(|play| play.lost),
            sum(|play| play.doubled),
            self.compared,
        )?;
        self.not_played.iter().try_for_each(|what| say!("not played: {what}"))?;
        for play in self.plays.iter().filter(|play| !play.faults.is_empty()) {
            say!("FAULT in {}:", play.fault)?;
            play.faults.iter().chain(&play.said).try_for_each(|line| say!("  {line}"))?;
        }
        self.faults.iter().try_for_each(|fault| say!("FAULT: {fault}"))?;
        if self.is_good() {
            say!("Every history is linearizable; every acknowledgement holds; nothing was done twice.")?;
        }
        Ok(())
    }
}

impl FirstAnswer {
    fn print(&self, from: &str) -> Result<(), Failure> {
        let Self { plays, p50, p99, max, histogram } = self;
        say!("{from}: {plays} plays, p50 {p50:.1} ms, p99 {p99:.1} ms, longest {max:.1} ms")?;
        for (end, count) in histogram {
            say!("  below {end:>6} ms  {count:>4}  {}", "#".repeat((*count).min(80)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_each_once_and_one_fault_spoils_the_report() {
        let found = FirstAnswer::of(&[10_000, 180_000, 190_000, 24_999, 25_000]).unwrap();
        assert!((found.p50 - 25.0).abs() < 1e-9, "the middle one of five: {}", found.p50);
        assert_eq!((found.plays, found.histogram), (5, vec![(25, 2), (50, 1), (200, 2)]));
        assert!(FirstAnswer::of(&[]).is_none());
        let mut play = Played::default();
        play.expect(true, "not said");
        let good = Report { plays: vec![play.clone()], ..Report::default() };
        assert!(good.is_good());
        play.expect(false, "said");
        assert!(!Report { plays: vec![play], ..Report::default() }.is_good());
        assert!(!Report { faults: vec!["said".to_owned()], ..Report::default() }.is_good());
    }
}
