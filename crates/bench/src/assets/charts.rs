//! What is drawn of the race: for each role the rate, the latencies and the processor time, a bar a shape.

use std::collections::{BTreeMap, BTreeSet};

use super::{Case, Role};
use crate::report::{ChartKind, ChartSpec};

/// The charts of these cases, in the order of the report.
#[must_use]
pub fn of(cases: &[Case]) -> Vec<ChartSpec> {
    let places: BTreeSet<(Role, &str, u64, u32)> =
        cases.iter().map(|case| (case.role, case.spread.name(), case.rtt_us, case.subscribers)).collect();
    places.into_iter().rev().flat_map(one).collect()
}

fn one((role, spread, rtt_us, subscribers): (Role, &str, u64, u32)) -> Vec<ChartSpec> {
    let labels = [("role", role.name().to_owned()), ("spread", spread.to_owned()), ("rtt_us", rtt_us.to_string())];
    let labels = labels.into_iter().chain([("subscribers", subscribers.to_string())]);
    let only: BTreeMap<String, Vec<String>> = labels.map(|(name, value)| (name.to_owned(), vec![value])).collect();
    let mut about = format!("{}, {spread}", role.name());
    if rtt_us > 0 {
        about += &format!(", {rtt_us} us links");
    }
    if subscribers > 0 {
        about += &format!(", {subscribers} subscribed");
    }
    let bars = |title: &str, y: &[&str], y_title: &str, y_log: bool| ChartSpec {
        title: format!("{title}: {about}"),
        kind: ChartKind::Bars,
        x: "shape".to_owned(),
        along: String::new(),
        y: y.iter().map(|name| (*name).to_owned()).collect(),
        series: vec!["ack".to_owned()],
        only: only.clone(),
        x_title: "connections x commands under way".to_owned(),
        y_title: y_title.to_owned(),
        x_log: false,
        y_log,
    };
    vec![
        bars("Commands per second", &["per_s"], "commands per second", true),
        bars("Median latency", &["command_p50_us"], "microseconds", true),
        bars("Latency at three sigma", &["command_p99_73_us"], "microseconds", true),
        bars("Processor time of the servers", &["cpu_servers_us"], "microseconds a command", true),
    ]
}
