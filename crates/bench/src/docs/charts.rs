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
    }
}

fn only(scenario: Scenario, row: &str) -> BTreeMap<String, Vec<String>> {
    let labels = [("scenario", scenario.name()), ("row", row)];
    labels.into_iter().map(|(name, value)| (name.to_owned(), vec![value.to_owned()])).collect()
}
