//! What is drawn of the cells: for each workload the rate over time, the tails, percentiles, and what it costs; a bar a store.

use std::collections::BTreeMap;

use super::scenario::{Case, Scenario};
use crate::report::{ChartKind, ChartSpec};

/// The charts of these cases, in the order of the report.
#[must_use]
pub fn of(cases: &[Case]) -> Vec<ChartSpec> {
    cases.iter().flat_map(one).collect()
}

fn one(case: &Case) -> Vec<ChartSpec> {
    let about = about(case);
    let only: BTreeMap<String, Vec<String>> =
        case.labels().into_iter().map(|(name, value)| (name, vec![value])).collect();
    let chart = |kind: ChartKind, title: &str, y: &[&str], y_title: &str| ChartSpec {
        title: format!("{title}: {about}"),
        kind,
        x: if kind == ChartKind::Bars { "store".to_owned() } else { String::new() },
        along: String::new(),
        y: y.iter().map(|name| (*name).to_owned()).collect(),
        series: if kind == ChartKind::Bars { Vec::new() } else { vec!["store".to_owned()] },
        only: only.clone(),
        x_title: if kind == ChartKind::Bars { "store" } else { "seconds since the start" }.to_owned(),
        y_title: y_title.to_owned(),
        x_log: false,
        y_log: false,
    };
    let bars = |title: &str, y: &[&str], y_title: &str| chart(ChartKind::Bars, title, y, y_title);
    if case.scenario == Scenario::MemoryOpen {
        return vec![bars("Time to open", &["open_p50_us", "open_max_us"], "microseconds")];
    }
    let rate = chart(ChartKind::Series, "Operations per second over time", &["ops_per_s"], "operations per second");
    let mean = bars("Operations per second", &["ops_per_s", "ops_per_s_last_sixth"], "operations per second");
    let call = match case.scenario {
        Scenario::MemoryHead => "head",
        Scenario::MemoryPut => "put",
        Scenario::MemoryBatch => "batch",
        _ => "get",
    };
    let percentiles = |call: &str| {
        let names = ["p50", "p99", "p999"].map(|share| format!("{call}_{share}_us"));
        bars(&format!("{} latency", call.to_uppercase()), &names.each_ref().map(String::as_str), "microseconds")
    };
    if case.scenario.is_in_memory() {
        return vec![mean, percentiles(call)];
    }
    let windows = |call: &str| {
        let y = format!("{call}_max_10s_us");
        let title = format!("Longest {} of each 10 seconds, one round behind the other", call.to_uppercase());
        ChartSpec { y_log: true, ..chart(ChartKind::Series, &title, &[&y], "microseconds") }
    };
    let tails = bars(
        "Mean over 10-second windows of the longest GET, the longest PUT, the longest read of a block that no store has, and the processors' own longest pause",
        &["get_max_10s_mean_us", "put_max_10s_mean_us", "disk_pause_max_10s_mean_us", "pause_max_10s_mean_us"],
        "microseconds",
    );
    let space = bars(
        "Bytes to disk and space, by what users wrote and keep",
        &["write_amplification", "space_amplification"],
        "ratio",
    );
    let cost = bars("Processor time", &["cpu_us_per_op"], "microseconds an operation");
    if case.scenario == Scenario::KvPut {
        return vec![rate, mean, windows("put"), percentiles("put"), space, cost];
    }
    vec![rate, mean, tails, windows("get"), windows("put"), percentiles("get"), percentiles("put"), space, cost]
}

fn about(case: &Case) -> String {
    let Case { scenario, clients, spread, sync, .. } = case;
    let sync = if *sync { "sync on every write" } else { "no sync" };
    let plural = if *clients == 1 { "" } else { "s" };
    format!("{}, {clients} client{plural}, {} keys, {sync}", scenario.name(), spread.name())
}
