//! What is drawn of the document race.

use std::collections::BTreeMap;

use super::scenario::{Given, Scenario};
use crate::report::{ChartKind, ChartSpec};

/// The charts of what is asked for, in the order of the report.
#[must_use]
pub fn of(given: &Given) -> Vec<ChartSpec> {
    given.scenarios.iter().flat_map(|scenario| one(*scenario)).collect()
}

fn one(scenario: Scenario) -> Vec<ChartSpec> {
    let bars = |title: &str, row: &str, y: &[&str], y_title: &str, y_log: bool| ChartSpec {
        title: format!("{title}: {}", scenario.name()),
        kind: ChartKind::Bars,
        x: "on".to_owned(),
        along: String::new(),
        y: y.iter().map(|name| (*name).to_owned()).collect(),
        series: Vec::new(),
        only: only(scenario, row),
        x_title: String::new(),
        y_title: y_title.to_owned(),
        x_log: false,
        y_log,
    };
    let micros = ["warm_p50_us", "cold_p50_us"];
    let commits = bars("Commits per second", "commit", &["per_s"], "commits per second", false);
    let bytes = bars("Bytes of a commit", "commit", &["bytes_each"], "bytes", false);
    let diff = bars("Difference of two revisions", "diff", &micros, "microseconds", true);
    match scenario {
        Scenario::History => {
            let over_time = ChartSpec {
                kind: ChartKind::Series,
                x: String::new(),
                title: "Commits per second over the depth of the history".to_owned(),
                y: vec!["commits_per_s".to_owned()],
                series: vec!["on".to_owned()],
                x_title: "revisions".to_owned(),
                ..commits.clone()
            };
            let open = ["database_p50_us", "document_cold_p50_us", "document_warm_p50_us"];
            vec![
                over_time,
                commits,
                bytes,
                bars("Time to open", "open", &open, "microseconds", true),
                bars("A revision opened and three steps read", "open and read", &micros, "microseconds", true),
                bars("The history as a list", "history", &micros, "microseconds", true),
                diff,
                bars("A revision as JSON", "serialise", &micros, "microseconds", true),
                bars("Reads per second", "read", &["per_s"], "reads per second", false),
            ]
        }
        Scenario::Large => {
            vec![commits, bytes, bars("Loaded", "load", &["mb_per_s"], "megabytes per second", false), diff]
        }
        Scenario::Rest => rest(&commits),
        Scenario::Mixed => {
            let row = "read and commit";
            vec![
                bars("Answers per second", row, &["per_s", "commits_per_s"], "per second", true),
                bars("99 of 100 come within", row, &["read_p99_us", "commit_p99_us"], "microseconds", true),
            ]
        }
    }
}

/// Each subject a line over its clients.
fn rest(like: &ChartSpec) -> Vec<ChartSpec> {
    let lines = |title: &str, figure: &str, y_title: &str| ChartSpec {
        kind: ChartKind::Lines,
        title: format!("{title}: rest"),
        x: "clients".to_owned(),
        along: "clients".to_owned(),
        y: vec![figure.to_owned()],
        series: vec!["row".to_owned()],
        only: BTreeMap::from([("scenario".to_owned(), vec![Scenario::Rest.name().to_owned()])]),
        x_title: "clients".to_owned(),
        y_title: y_title.to_owned(),
        ..like.clone()
    };
    vec![
        lines("Answers per second", "per_s", "answers per second"),
        lines("Processor time of the server for an answer", "server_cpu_us", "microseconds"),
        lines("99 of 100 answers come within", "read_p99_us", "microseconds"),
    ]
}

fn only(scenario: Scenario, row: &str) -> BTreeMap<String, Vec<String>> {
    let labels = [("scenario", scenario.name()), ("row", row)];
    labels.into_iter().map(|(name, value)| (name.to_owned(), vec![value.to_owned()])).collect()
}
