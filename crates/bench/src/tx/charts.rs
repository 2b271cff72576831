//! What is drawn of the cells: the field's charts, a pure function of the cases.
//!
//! Walk: for each workload, RPO and mode the latencies over the clients · characteristic curves, one for each RPO and one for
//! each workload · where the server's threads vary, the tuning charts.

use std::collections::{BTreeMap, BTreeSet};

use super::Rules;
use super::axes::{Case, Mode, Place};
use crate::report::{ChartKind, ChartSpec};

const CLIENTS: &str = "client threads";
const TPS: &str = "transactions per second";

type Only = BTreeMap<String, Vec<String>>;

/// The charts of these cases, in the order of the report.
#[must_use]
pub fn of(cases: &[Case], rules: &Rules) -> Vec<ChartSpec> {
    let mut charts = Vec::new();
    for (mode, base) in bases(cases) {
        let cases: Vec<&Case> = cases.iter().filter(|case| case.mode == mode && is_base(case, base)).collect();
        for pair in seen(&cases, |case| (case.workload.name.clone(), case.rpo)) {
            charts.extend(latencies(mode, base, &pair.0, &pair.1.to_string(), rules));
        }
        charts.extend(curves(mode, base, &cases));
    }
    charts.extend(tuning(cases, rules));
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

const fn is_base(case: &Case, threads: u32) -> bool {
    case.threads == threads
}

fn seen<T: Ord>(cases: &[&Case], of: impl Fn(&Case) -> T) -> BTreeSet<T> {
    cases.iter().map(|case| of(case)).collect()
}

fn only(pairs: &[(&str, String)]) -> Only {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), vec![value.clone()])).collect()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A chart over the number of clients, a line for each place and engine.
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

fn latencies(mode: Mode, threads: u32, workload: &str, rpo: &str, rules: &Rules) -> Vec<ChartSpec> {
    let only = only(&[
        ("mode", mode.to_string()),
        ("threads", threads.to_string()),
        ("workload", workload.to_owned()),
        ("rpo", rpo.to_owned()),
    ]);
    let of = format!("{workload}, RPO {rpo} ms, {mode}");
    let engine = &["coordinator", "engine"];
    let us = "microseconds";
    let chart =
        |title: &str, y: Vec<String>, y_title| over_clients(format!("{title}: {of}"), y, engine, only.clone(), y_title);
    let calls = calls(rules).iter().map(|call| format!("{call}_p95_us")).collect();
    vec![
        chart("95th percentile of each call", calls, us),
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
fn curves(mode: Mode, threads: u32, cases: &[&Case]) -> Vec<ChartSpec> {
    let base = [("mode", mode.to_string()), ("threads", threads.to_string())];
    let curve = |title: String, series: &[&str], only: Only| ChartSpec {
        title,
        kind: ChartKind::Curve,
        x: "tps".to_owned(),
        along: "clients".to_owned(),
        y: names(&["total_p95_us"]),
        series: names(series),
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
        charts.push(curve(title, &["workload", "coordinator", "engine"], only));
    }
    for workload in seen(cases, |case| case.workload.name.clone()) {
        let mut only = only(&base);
        only.insert("workload".to_owned(), vec![workload.clone()]);
        let title = format!("Characteristic curves of the workload {workload}, {mode}");
        charts.push(curve(title, &["rpo", "coordinator", "engine"], only));
    }
    charts
}

/// Mean of each call and overall elapsed time, a line for each number of threads and RPO.
fn tuning(cases: &[Case], rules: &Rules) -> Vec<ChartSpec> {
    let served: Vec<&Case> = cases.iter().filter(|case| case.place == Place::Served).collect();
    let mut charts = Vec::new();
    for (mode, engine) in seen(&served, |case| (case.mode, case.engine)) {
        let own: Vec<&Case> = served.iter().copied().filter(|it| (it.mode, it.engine) == (mode, engine)).collect();
        for workload in seen(&own, |case| case.workload.name.clone()) {
            let cells: Vec<&Case> = own.iter().copied().filter(|case| case.workload.name == workload).collect();
            let rpos: Vec<String> = seen(&cells, |case| (case.rpo, case.threads))
                .into_iter()
                .fold(BTreeMap::<_, u32>::new(), |mut count, (rpo, _)| {
                    *count.entry(rpo).or_default() += 1;
                    count
                })
                .into_iter()
                .filter(|(_, threads)| *threads > 1)
                .map(|(rpo, _)| rpo.to_string())
                .collect();
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
                let series = &["threads", "rpo"];
                over_clients(format!("{title}: {of}"), names(&[y]), series, only.clone(), y_title)
            };
            for call in calls(rules) {
                charts.push(chart(&format!("Mean of {call}"), &format!("{call}_mean_us"), "microseconds"));
            }
            charts.push(chart("Overall elapsed time", "elapsed_ms", "milliseconds"));
        }
    }
    charts
}
