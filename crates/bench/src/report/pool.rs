//! Rounds of one cell as one cell, whether they are of one run or of several; and reports of several runs as one.
//!
//! ```text
//!   figures              the median over the rounds
//!   CALL_samples         the sum
//!   CALL_max_us          the longest of all
//!   CALL_max_10s_mean_us the mean over all windows of all rounds, which stand in the series CALL_max_10s_us
//!   histograms           added up
//! ```
//! A cell keeps the figures of each of its rounds, so that it does not matter in how many runs they were made.
//!
//! Walk: [`pool`] puts cells of the same labels together · [`merge`] reports.
//! Deliberately absent: rounds of different settings, or of different machines. They are refused, by name.

use std::collections::BTreeSet;

use assent_kind::Kind;

use super::{Cell, Figures, Labels, Report, named};
use crate::BenchError;
use crate::record::merged;
use crate::stats::median;

/// Behind the name of a call: the series of the longest that ended in each window, and the figure that is its mean.
const WINDOWS: &str = "_max_10s_us";
const MEAN: &str = "_max_10s_mean_us";

impl Cell {
    /// The figures of each round that went well.
    pub(crate) fn rounds(&self) -> Vec<&Figures> {
        if self.rounds.is_empty() && self.error.is_none() { vec![&self.figures] } else { self.rounds.iter().collect() }
    }
}

/// All rounds of a cell as one. One that failed fails all: a median over those that went well would hide it. Their figures stay in
/// [`Cell::rounds`].
#[must_use]
pub fn pool(cells: &[Cell]) -> Cell {
    let Some(first) = cells.first() else { return Cell::default() };
    let mut pooled = Cell { labels: first.labels.clone(), settings: first.settings.clone(), ..Cell::default() };
    let rounds: Vec<&Figures> = cells.iter().flat_map(Cell::rounds).collect();
    let mut before = 0;
    for cell in cells {
        if let Some(error) = &cell.error {
            // One that has rounds says already which failed.
            let is_said = cells.len() == 1 || !cell.rounds.is_empty();
            pooled.error = Some(if is_said { error.clone() } else { format!("round {}: {error}", before + 1) });
            pooled.rounds = rounds.into_iter().cloned().collect();
            return pooled;
        }
        before += cell.rounds().len();
    }
    pooled.figures = medians(&rounds);
    if rounds.len() > 1 {
        pooled.rounds = rounds.into_iter().cloned().collect();
    }
    for cell in cells {
        for (call, text) in &cell.histograms {
            let sum = match pooled.histograms.get(call) {
                Some(known) => merged(known, text).unwrap_or_else(|_| known.clone()),
                None => text.clone(),
            };
            pooled.histograms.insert(call.clone(), sum);
        }
        for (name, points) in &cell.series {
            let known = pooled.series.entry(name.clone()).or_default();
            if !name.ends_with(WINDOWS) {
                // Of what changes while a round runs, the last one's.
                known.clone_from(points);
                continue;
            }
            let behind = known.last().map_or(0.0, |(at, _)| *at);
            known.extend(points.iter().map(|(at, value)| (behind + at, *value)));
        }
    }
    for (name, points) in &pooled.series {
        let Some(call) = name.strip_suffix(WINDOWS).filter(|_| !points.is_empty()) else { continue };
        let count = number(points.len());
        let sum: f64 = points.iter().map(|(_, value)| value).sum();
        pooled.figures.insert(format!("{call}{MEAN}"), sum / count);
        pooled.figures.insert(format!("{call}_windows_10s"), count);
    }
    pooled
}

/// The median of each figure over the rounds; samples are added up, and of the longest the longest counts.
fn medians(rounds: &[&Figures]) -> Figures {
    let names: BTreeSet<&String> = rounds.iter().flat_map(|round| round.keys()).collect();
    let mut figures = Figures::new();
    for name in names {
        let values: Vec<f64> = rounds.iter().filter_map(|round| round.get(name).copied()).collect();
        let value = match name {
            name if name.ends_with("_samples") => values.iter().sum(),
            name if name.ends_with("_max_us") => values.iter().copied().fold(0.0, f64::max),
            _ => median(&values),
        };
        figures.insert(name.clone(), value);
    }
    let rates = || rounds.iter().filter_map(|round| round.get("ops_per_s").copied());
    if let Some((least, best)) = rates().reduce(f64::min).zip(rates().reduce(f64::max)).filter(|_| rounds.len() > 1) {
        figures.insert("ops_per_s_least_round".to_owned(), least);
        figures.insert("ops_per_s_best_round".to_owned(), best);
        figures.insert("rounds".to_owned(), number(rounds.len()));
    }
    figures
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
fn number(count: usize) -> f64 {
    count as f64
}

/// Several runs of one race as one report: each cell with the rounds of all of them.
///
/// # Errors
/// [`Kind::Invalid`] for reports of two scenarios or two machines, for the same report or the same round twice, and for a cell that was run
/// in several of them with different settings, or that does not say with which.
pub fn merge(reports: &[Report]) -> Result<Report, BenchError> {
    let refuse = |said: String| Err(BenchError::new(Kind::Invalid, said));
    let Some((first, others)) = reports.split_first() else { return refuse("no report".to_owned()) };
    if others.is_empty() {
        return Ok(first.clone());
    }
    for (at, report) in reports.iter().enumerate() {
        if report.scenario != first.scenario {
            return refuse(format!("one report is of {}, another of {}", first.scenario, report.scenario));
        }
        let differences = first.host.differences(&report.host);
        if !differences.is_empty() {
            return refuse(format!("reports of different machines are not put together: {}", differences.join("; ")));
        }
        if reports.iter().take(at).any(|before| before == report) {
            return refuse(format!("the report of {} is given twice", report.host.date));
        }
    }
    let mut all = Report { cells: Vec::new(), complete: reports.iter().all(|report| report.complete), ..first.clone() };
    all.notes.insert(0, told(reports));
    for report in reports {
        for floor in &report.floors {
            if !all.floors.iter().any(|known| known.name == floor.name) {
                all.floors.push(floor.clone());
            }
        }
        for chart in &report.charts {
            if !all.charts.contains(chart) {
                all.charts.push(chart.clone());
            }
        }
        for note in &report.notes {
            if !all.notes.contains(note) {
                all.notes.push(note.clone());
            }
        }
    }
    for cell in reports.iter().flat_map(|report| &report.cells) {
        if all.cells.iter().any(|known| known.labels == cell.labels) {
            continue;
        }
        let same = reports.iter().flat_map(|report| &report.cells).filter(|other| other.labels == cell.labels);
        let same: Vec<Cell> = same.cloned().collect();
        if let Some(error) = same.iter().skip(1).find_map(|other| differ(cell, other)) {
            return refuse(error);
        }
        let twice = |(at, cell): (usize, &Cell)| same.iter().take(at).any(|before| have_one_round(before, cell));
        if same.iter().enumerate().any(twice) {
            return refuse(format!("{}: two of the reports have the same round of it", named(&cell.labels)));
        }
        all.cells.push(pool(&same));
    }
    Ok(all)
}

/// Whether a round of one is one of the other. Figures of time tell: no two runs have all of them alike. Nearly the same is the same, since
/// a number that is written and read again may end in another digit.
fn have_one_round(one: &Cell, other: &Cell) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * a.abs().max(b.abs());
    let is_same = |a: &Figures, b: &Figures| {
        !a.is_empty() && a.len() == b.len() && a.iter().zip(b).all(|((x, a), (y, b))| x == y && near(*a, *b))
    };
    one.rounds().into_iter().any(|round| other.rounds().into_iter().any(|known| is_same(round, known)))
}

/// Why rounds of two cells are not of one kind.
pub(crate) fn differ(one: &Cell, other: &Cell) -> Option<String> {
    let name = named(&one.labels);
    if one.settings.is_empty() || other.settings.is_empty() {
        return Some(format!("{name} was run several times and does not say with which settings"));
    }
    let names: BTreeSet<&String> = one.settings.keys().chain(other.settings.keys()).collect();
    let said = |settings: &Labels, name: &String| settings.get(name).cloned().unwrap_or_else(|| "nothing".to_owned());
    let difference = names.into_iter().find(|name| one.settings.get(*name) != other.settings.get(*name))?;
    let (a, b) = (said(&one.settings, difference), said(&other.settings, difference));
    Some(format!("{name} was run with different settings: {difference} is {a} and {b}"))
}

/// When and by which programs. A report that was put together itself keeps its own such sentence: that is why reports are counted, not runs.
fn told(reports: &[Report]) -> String {
    let list = |of: fn(&Report) -> &str| {
        let mut all: Vec<&str> = Vec::new();
        reports.iter().map(of).filter(|said| !said.is_empty()).for_each(|said| {
            if !all.contains(&said) {
                all.push(said);
            }
        });
        all.join(", ")
    };
    format!(
        "Put together of {} reports of this machine, begun {}, by assent {}: medians over the rounds of all runs, means over all windows.",
        reports.len(),
        list(|report| &report.host.date),
        list(|report| &report.host.version),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;

    fn round(figures: &[(&str, f64)], maxima_us: &[f64]) -> Cell {
        let figures = figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let points = (1..=maxima_us.len()).map(|window| number(window) * 10.0).zip(maxima_us.iter().copied()).collect();
        Cell { figures, series: [("get_max_10s_us".to_owned(), points)].into(), ..Cell::default() }
    }

    #[test]
    fn rounds_are_medians_and_means_over_all_windows_in_however_many_runs_they_were_made() {
        let rounds = [
            round(&[("ops_per_s", 10.0), ("get_max_us", 5.0), ("get_samples", 7.0)], &[4.0, 5.0]),
            round(&[("ops_per_s", 30.0), ("get_max_us", 9.0), ("get_samples", 7.0)], &[9.0]),
            round(&[("ops_per_s", 11.0), ("get_max_us", 6.0), ("get_samples", 7.0)], &[6.0]),
        ];
        let cell = pool(&rounds);
        let figures: Vec<(&str, f64)> = cell.figures.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let expected = [
            ("get_max_10s_mean_us", 6.0),
            ("get_max_us", 9.0),
            ("get_samples", 21.0),
            ("get_windows_10s", 4.0),
            ("ops_per_s", 11.0),
            ("ops_per_s_best_round", 30.0),
            ("ops_per_s_least_round", 10.0),
            ("rounds", 3.0),
        ];
        assert_eq!(figures, expected);
        assert_eq!(cell.series["get_max_10s_us"], [(10.0, 4.0), (20.0, 5.0), (30.0, 9.0), (40.0, 6.0)]);
        let [one, two, three] = rounds;
        // A median of medians would be 20.
        assert_eq!(pool(&[pool(&[one.clone(), two.clone()]), three.clone()]), cell);
        assert_eq!(pool(&[one.clone(), pool(&[two.clone(), three])]), cell);
        let failed = Cell { error: Some("key 3: gone".to_owned()), ..Cell::default() };
        let all = pool(&[one.clone(), failed.clone()]);
        assert_eq!((all.error.as_deref(), all.figures.len()), (Some("round 2: key 3: gone"), 0));
        // What was measured is not thrown away, and the same is said however often they are put together.
        assert_eq!(all.rounds, std::slice::from_ref(&one.figures));
        let more = pool(&[all.clone(), two.clone()]);
        assert_eq!((&more.error, &more.rounds), (&all.error, &vec![one.figures, two.figures]));
        assert_eq!(pool(std::slice::from_ref(&failed)), failed);
    }

    #[test]
    fn a_round_counts_once_also_where_a_report_of_several_runs_has_it_already() {
        let report_of = |date: &str, rates: &[f64]| {
            let mut report = Report::new("kv", "", String::new(), Host::default());
            report.host.date = date.to_owned();
            let rounds: Vec<Cell> = rates.iter().map(|rate| round(&[("ops_per_s", *rate)], &[*rate])).collect();
            let settings = [("keys".to_owned(), "9".to_owned())].into();
            report.put(Cell { settings, ..pool(&rounds) });
            report
        };
        let (monday, tuesday) = (report_of("Monday", &[0.1, 2.0]), report_of("Tuesday", &[3.0]));
        let both = merge(&[monday.clone(), tuesday.clone()]).unwrap();
        assert_eq!(both.cells[0].rounds.len(), 3);
        let more = merge(&[both.clone(), report_of("Friday", &[5.0])]).unwrap();
        let told: Vec<_> = more.notes.iter().filter_map(|note| note.split(", by").next()).collect();
        let of = |dates: &str| format!("Put together of 2 reports of this machine, begun {dates}");
        assert_eq!(told, [of("Monday, Friday"), of("Monday, Tuesday")]);
        let refused = |reports: &[&Report]| {
            let reports: Vec<Report> = reports.iter().map(|report| (*report).clone()).collect();
            merge(&reports).unwrap_err().message
        };
        let said = ": two of the reports have the same round of it";
        assert_eq!([refused(&[&both, &monday]), refused(&[&tuesday, &both])], [said, said]);
        // Monday's, gone on with; and as they are read from a disk.
        let on = report_of("Monday", &[0.1 + 1e-17, 2.0, 4.0]);
        assert_eq!([refused(&[&monday, &on]), refused(&[&on, &tuesday, &both])], [said, said]);
        assert_eq!(merge(&[on, tuesday]).unwrap().cells[0].rounds.len(), 4);
    }
}
