//! The race's tables, one for each workload: a row a store.

use std::collections::BTreeMap;

use assent_bench::report::{Cell, Labels, Report, named, shown};

use super::super::table;
use crate::failure::Failure;

/// Figures and their heads.
const FIGURES: [(&str, &str); 18] = [
    ("ops_per_s", "ops/s"),
    ("ops_per_s_last_sixth", "last sixth"),
    ("ops_ratio_20s_max", "20-s ratio"),
    ("get_p50_us", "GET p50 us"),
    ("get_p99_us", "p99"),
    ("get_max_10s_mean_us", "max/10 s"),
    ("put_p50_us", "PUT p50 us"),
    ("put_p99_us", "p99"),
    ("put_max_10s_mean_us", "max/10 s"),
    ("pause_max_10s_mean_us", "machine max/10 s"),
    ("batch_p50_us", "batch p50 us"),
    ("head_p50_us", "HEAD p50 us"),
    ("open_p50_us", "open p50 us"),
    ("not_found_percent", "not found %"),
    ("write_amplification", "written x"),
    ("space_amplification", "space x"),
    ("cpu_us_per_op", "CPU us/op"),
    ("rss_peak_mb", "RSS MiB"),
];

/// A table for each workload, then what is to be known.
pub(super) fn table_of(report: &Report) -> Result<(), Failure> {
    for (workload, cells) in workloads(&report.cells) {
        let known = |name: &str| cells.iter().any(|cell| cell.figures.contains_key(name));
        let figures: Vec<_> = FIGURES.into_iter().filter(|(name, _)| known(name)).collect();
        let heads: Vec<&str> = std::iter::once("store").chain(figures.iter().map(|(_, head)| *head)).collect();
        let mut rows = table(&heads);
        for cell in cells.iter().filter(|cell| cell.error.is_none()) {
            let store = cell.labels.get("store").cloned().unwrap_or_default();
            let figure = |name: &str| cell.figures.get(name).map_or_else(String::new, |value| shown(*value));
            rows.add_row(std::iter::once(store).chain(figures.iter().map(|(name, _)| figure(name))));
        }
        say!("{}\n{rows}", named(&workload))?;
        for cell in cells.iter().filter(|cell| cell.error.is_some()) {
            let store = cell.labels.get("store").map(String::as_str).unwrap_or_default();
            say!("failed: {store}: {}", cell.error.as_deref().unwrap_or_default())?;
        }
    }
    for note in &report.notes {
        say!("{note}")?;
    }
    Ok(())
}

/// The cells of each workload, in the order in which they were run.
fn workloads(cells: &[Cell]) -> Vec<(Labels, Vec<&Cell>)> {
    let (mut order, mut groups): (Vec<Labels>, BTreeMap<Labels, Vec<&Cell>>) = (Vec::new(), BTreeMap::new());
    for cell in cells {
        let mut labels = cell.labels.clone();
        labels.remove("store");
        if !groups.contains_key(&labels) {
            order.push(labels.clone());
        }
        groups.entry(labels).or_default().push(cell);
    }
    order.into_iter().filter_map(|labels| groups.remove_entry(&labels)).collect()
}
