//! What is drawn of the cells: the field's charts, a pure function of the cases.
//!
//! Walk: for each workload, RPO and mode the latencies over the clients · characteristic curves, one for each RPO and one for
//! each workload · where the server's threads vary, the tuning charts.

use std::collections::{BTreeMap, BTreeSet};

use super::Rules;
use super::axes::{Case, Mode, Place, Rpo};
use crate::report::{ChartKind, ChartSpec};

const CLIENTS: &str = "client threads";
const TPS: &str = "transactions per second";

type Only = BTreeMap<String, Vec<String>>;

/// The charts of these cases, in the order of the report.
#[must_use]
pub fn of(cases: &[Case], rules: &Rules) -> Vec<ChartSpec> {
    let mut charts = Vec::new();
    let all: Vec<&Case> = cases.iter().collect();
    // A line is named by what differs.
    let lines: &[&str] = if seen(&all, |case| case.place).len() > 1 { &["coordinator", "engine"] } else { &["engine"] };
    for (mode, base) in bases(cases) {
        let cases: Vec<&Case> = cases.iter().filter(|case| case.mode == mode && case.threads == base).collect();
        for (workload, rpo) in seen(&cases, |case| (case.workload.name.clone(), case.rpo)) {
            charts.extend(latencies((mode, base), &workload, &rpo.to_string(), lines, rules));
        }
        charts.extend(curves((mode, base), &cases, lines));
    }
    charts.extend(tuning(&all, rules));
    charts
}

/// Each mode, and the number of server threads that its main charts are of: the fewest.
fn bases(cases: &[Case]) -> Vec<(Mode, u32)> {
    let mut bases: BTreeMap<Mode, u32> = BTreeMap::new();
    for case in cases {
        let fewest = bases.entry(case.mode).or_insert(case.threads);
        *fewest = (*fewest).min(case.threads);
    }
    bases.into_iter().collect()
}

/// Each value once, in the order in which they are run.
fn seen<T: Ord + Clone>(cases: &[&Case], of: impl Fn(&Case) -> T) -> Vec<T> {
    let mut known = BTreeSet::new();
    cases.iter().map(|case| of(case)).filter(|value| known.insert(value.clone())).collect()
}

fn only(pairs: &[(&str, String)]) -> Only {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), vec![value.clone()])).collect()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A chart over the number of clients.
fn over_clients(title: String, y: Vec<String>, series: &[&str], only: Only, y_title: &str) -> ChartSpec {
    ChartSpec {
        title,
        kind: ChartKind::Lines,
        x: "clients".to_owned(),
        along: "clients".to_owned(),
        y,
        series: names(series),
        only,
        x_title: CLIENTS.to_owned(),
        y_title: y_title.to_owned(),
        x_log: false,
        y_log: false,
    }
}

/// The four calls as the report names them.
fn calls(rules: &Rules) -> [&'static str; 4] {
    ["open", "begin", if rules.commit { "commit" } else { "rollback" }, "close"]
}

fn latencies((mode, threads): (Mode, u32), workload: &str, rpo: &str, lines: &[&str], rules: &Rules) -> Vec<ChartSpec> {
    let only = only(&[
        ("mode", mode.to_string()),
        ("threads", threads.to_string()),
        ("workload", workload.to_owned()),
        ("rpo", rpo.to_owned()),
    ]);
    let of = format!("{workload}, RPO {rpo} ms, {mode}");
    let us = "microseconds";
    let chart =
        |title: &str, y: Vec<String>, y_title| over_clients(format!("{title}: {of}"), y, lines, only.clone(), y_title);
    let calls = calls(rules).iter().map(|call| format!("{call}_p95_us")).collect();
    vec![
        // Of the calls one goes to a coordinator and waits for its disk, and the others do not.
        ChartSpec { y_log: true, ..chart("95th percentile of each call", calls, us) },
        chart("Total latency, 95 %", names(&["total_p95_us"]), us),
        chart("Transactions per second", names(&["tps"]), TPS),
        chart(
            "Total latency, 25, 50, 75 and 95 %",
            names(&["total_p25_us", "total_p50_us", "total_p75_us", "total_p95_us"]),
            us,
        ),
        chart("Total latency, mean and standard deviation", names(&["total_mean_us", "total_sd_us"]), us),
    ]
}

/// Tps against the 95th percentile of the total latency: how much can be had, and what it costs.
fn curves((mode, threads): (Mode, u32), cases: &[&Case], lines: &[&str]) -> Vec<ChartSpec> {
    let base = [("mode", mode.to_string()), ("threads", threads.to_string())];
    let curve = |title: String, line: &str, only: Only| ChartSpec {
        title,
        kind: ChartKind::Curve,
        x: "tps".to_owned(),
        along: "clients".to_owned(),
        y: names(&["total_p95_us"]),
        series: names(&[&[line], lines].concat()),
        only,
        x_title: TPS.to_owned(),
        y_title: "total latency, 95 %, microseconds".to_owned(),
        x_log: false,
        y_log: false,
    };
    let mut charts = Vec::new();
    for rpo in seen(cases, |case| case.rpo) {
        let mut only = only(&base);
        only.insert("rpo".to_owned(), vec![rpo.to_string()]);
        let title = format!("Characteristic curves at RPO {rpo} ms, {mode}");
        charts.push(curve(title, "workload", only));
    }
    for workload in seen(cases, |case| case.workload.name.clone()) {
        let mut only = only(&base);
        only.insert("workload".to_owned(), vec![workload.clone()]);
        let title = format!("Characteristic curves of the workload {workload}, {mode}");
        charts.push(curve(title, "rpo", only));
    }
    charts
}

/// Mean of each call and overall elapsed time, a line for each number of threads and RPO.
fn tuning(cases: &[&Case], rules: &Rules) -> Vec<ChartSpec> {
    let mut charts = Vec::new();
    for (mode, engine) in seen(cases, |case| (case.mode, case.engine)) {
        let own = cases.iter().copied().filter(|it| (it.mode, it.engine, it.place) == (mode, engine, Place::Served));
        let own: Vec<&Case> = own.collect();
        for workload in seen(&own, |case| case.workload.name.clone()) {
            let cells: Vec<&Case> = own.iter().copied().filter(|case| case.workload.name == workload).collect();
            // An RPO with one number of threads has nothing to compare.
            let threads =
                |rpo: Rpo| seen(&cells, |case| (case.rpo == rpo).then_some(case.threads)).into_iter().flatten();
            let rpos = seen(&cells, |case| case.rpo).into_iter().filter(|rpo| threads(*rpo).count() > 1);
            let rpos: Vec<String> = rpos.map(|rpo| rpo.to_string()).collect();
            if rpos.is_empty() {
                continue;
            }
            let mut only = only(&[
                ("coordinator", Place::Served.to_string()),
                ("engine", engine.to_string()),
                ("mode", mode.to_string()),
                ("workload", workload.clone()),
            ]);
            only.insert("rpo".to_owned(), rpos);
            let of = format!("{mode}, {engine}, {workload}");
            let chart = |title: &str, y: &str, y_title: &str| {
                over_clients(format!("{title}: {of}"), names(&[y]), &["threads", "rpo"], only.clone(), y_title)
            };
            for call in calls(rules) {
                charts.push(chart(&format!("Mean of {call}"), &format!("{call}_mean_us"), "microseconds"));
            }
            charts.push(chart("Overall elapsed time", "elapsed_ms", "milliseconds"));
        }
    }
    charts
}

#[cfg(test)]
mod tests {
    use super::super::axes::Engine;
    use super::super::matrix::{Given, Matrix, cases};
    use super::*;

    fn charts(matrix: Matrix, given: &Given) -> Vec<ChartSpec> {
        of(&cases(Some(matrix), given), &Rules::default())
    }

    fn counted(charts: &[ChartSpec], title: &str) -> usize {
        charts.iter().filter(|chart| chart.title.starts_with(title)).count()
    }

    #[test]
    fn the_published_matrix_has_the_fields_charts() {
        let all = charts(Matrix::Published, &Given::default());
        for latency in [
            "95th percentile of each call",
            "Total latency, 95 %",
            "Transactions per second",
            "Total latency, 25",
            "Total latency, mean",
        ] {
            assert_eq!(counted(&all, latency), 3 * 3, "{latency}: a workload and RPO each");
        }
        assert_eq!(counted(&all, "Characteristic curves at RPO"), 3);
        assert_eq!(counted(&all, "Characteristic curves of the workload"), 3);
        assert_eq!(counted(&all, "Mean of"), 0, "one number of threads: nothing to tune");
        assert_eq!(all.len(), 5 * 9 + 6);
    }

    #[test]
    fn the_tuning_matrix_has_a_chart_of_each_call_and_of_the_time_in_each_mode_and_engine() {
        let all = charts(Matrix::Tuning, &Given::default());
        assert_eq!((counted(&all, "Mean of"), counted(&all, "Overall elapsed time")), (4 * 4, 4));
        let tuned = all.iter().find(|chart| chart.title == "Mean of commit: batch, table, extreme").unwrap();
        assert_eq!((tuned.series.clone(), tuned.only["rpo"].len()), (names(&["threads", "rpo"]), 5));
    }

    #[test]
    fn the_short_matrix_shows_every_kind_of_chart() {
        let kinds = |matrix| -> BTreeSet<String> {
            let all = charts(matrix, &Given::default());
            all.iter().filter_map(|chart| chart.title.split([':', ',']).next().map(str::to_owned)).collect()
        };
        let short: BTreeSet<String> = kinds(Matrix::Short);
        let missing = |matrix| kinds(matrix).into_iter().find(|kind| !short.contains(kind) && !kind.contains("RPO"));
        assert_eq!((missing(Matrix::Published), missing(Matrix::Tuning)), (None, None));
    }

    #[test]
    fn a_chart_is_of_cells_that_are_run_and_a_line_is_named_by_what_differs() {
        for matrix in [Matrix::Short, Matrix::Tuning, Matrix::Published] {
            let given = Given { engines: vec![Engine::Journal], ..Given::default() };
            let labels: Vec<_> = cases(Some(matrix), &given).iter().map(Case::labels).collect();
            for chart in charts(matrix, &given) {
                let fits =
                    |own: &&crate::report::Labels| chart.only.iter().all(|(name, values)| values.contains(&own[name]));
                let cells: Vec<_> = labels.iter().filter(fits).collect();
                assert!(!cells.is_empty(), "{chart:?}");
                let places = cells
                    .iter()
                    .map(|own| chart.series.iter().chain([&chart.along]).map(|name| &own[name]).collect::<Vec<_>>());
                assert_eq!(
                    places.collect::<BTreeSet<_>>().len(),
                    cells.len(),
                    "a cell is one point of one line: {chart:?}"
                );
                assert!(!chart.series.contains(&"coordinator".to_owned()));
            }
        }
        let both = Given { places: vec![Place::Embedded, Place::Served], ..Given::default() };
        assert!(charts(Matrix::Published, &both).iter().all(|chart| chart.series.contains(&"coordinator".to_owned())));
    }
}
