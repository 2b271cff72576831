//! A report as one page: no script, no outside reference, readable on a phone and on paper.
//!
//! Walk: [`lay`] writes head, facts, floors, charts with a table each, failed cells, all cells. Every text of a report goes
//! through [`escaped`].

use super::csv::{STATISTICS, calls, label_names, of_call, other_names};
use super::table::Table;
use super::{Cell, ChartSpec, Report, named, shown};
use crate::BenchError;
use crate::chart::{Plot, draw, plot};

const STYLE: &str = include_str!("page.css");
/// Above so many rows a table of all cells is folded.
const OPEN_ROWS_MAX: usize = 60;
/// Above so many charts the page has a list of them.
const UNLISTED_MAX: usize = 4;

/// The text of the page.
///
/// # Errors
/// What the drawing of a chart says.
pub fn lay(report: &Report) -> Result<String, BenchError> {
    let title = escaped(&report.title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
    );
    head(&mut page, report);
    facts(&mut page, report);
    charts(&mut page, report)?;
    failures(&mut page, report);
    cells(&mut page, report);
    page.push_str("</main>\n</body>\n</html>\n");
    Ok(page)
}

fn head(page: &mut String, report: &Report) {
    if !report.complete {
        page.push_str(
            "<p class=\"banner\" role=\"note\"><strong>Partial.</strong> The race was stopped before all cells were run; \
             what was measured until then is here.</p>\n",
        );
    }
    let failed = report.cells.iter().filter(|cell| cell.error.is_some()).count();
    if failed > 0 {
        page.push_str(&format!("<p class=\"banner\" role=\"note\"><a href=\"#failed\"><strong>{failed} of {} cells failed</strong></a>, with their reasons below.</p>\n", report.cells.len()));
    }
    let (scenario, cells) = (escaped(&report.scenario), count(report.cells.len()));
    page.push_str(&format!("<p>Scenario <b>{scenario}</b>, {cells} cells:</p>\n"));
    page.push_str(&format!("<pre class=\"scroll\" tabindex=\"0\"><code>{}</code></pre>\n", escaped(&report.command)));
    if !report.notes.is_empty() {
        let notes: Vec<String> = report.notes.iter().map(|note| format!("<li>{}</li>", escaped(note))).collect();
        page.push_str(&format!("<ul class=\"notes\">\n{}\n</ul>\n", notes.join("\n")));
    }
}

fn facts(page: &mut String, report: &Report) {
    page.push_str("<section>\n<h2>Machine</h2>\n<dl>\n");
    for (name, fact) in report.host.facts() {
        let fact = if fact.is_empty() { "not known".to_owned() } else { escaped(&fact) };
        page.push_str(&format!("<div><dt>{name}</dt><dd>{fact}</dd></div>\n"));
    }
    page.push_str("</dl>\n</section>\n");
    if report.floors.is_empty() {
        return;
    }
    page.push_str("<section>\n<h2>Floors of the same run</h2>\n<p>What the same work costs without Assent.</p>\n");
    let known = |name: &&str| report.floors.iter().any(|floor| floor.figures.contains_key(*name));
    let mut names: Vec<String> = STATISTICS.into_iter().filter(known).map(str::to_owned).collect();
    for name in report.floors.iter().flat_map(|floor| floor.figures.keys()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let mut table = Table::new("Floors", &["floor".to_owned(), "unit".to_owned()], 1);
    table.figures(&names);
    for floor in &report.floors {
        let figures = names.iter().map(|name| floor.figures.get(name).copied());
        table.row(&[floor.name.clone(), floor.unit.clone()], figures.map(figure));
    }
    page.push_str(&table.end());
    page.push_str("</section>\n");
}

fn charts(page: &mut String, report: &Report) -> Result<(), BenchError> {
    if report.charts.is_empty() {
        return Ok(());
    }
    page.push_str("<section>\n<h2>Charts</h2>\n");
    if report.charts.len() > UNLISTED_MAX {
        page.push_str("<details class=\"list\"><summary>All charts</summary>\n<ol>\n");
        for (number, spec) in report.charts.iter().enumerate() {
            page.push_str(&format!("<li><a href=\"#chart-{number}\">{}</a></li>\n", escaped(&spec.title)));
        }
        page.push_str("</ol>\n</details>\n");
    }
    page.push_str("<div class=\"charts\">\n");
    for (number, spec) in report.charts.iter().enumerate() {
        chart(page, spec, &plot(spec, &report.cells), &format!("chart-{number}"))?;
    }
    page.push_str("</div>\n</section>\n");
    Ok(())
}

fn chart(page: &mut String, spec: &ChartSpec, plot: &Plot, id: &str) -> Result<(), BenchError> {
    page.push_str(&format!("<figure id=\"{id}\">\n<figcaption><h3>{}</h3></figcaption>\n", escaped(&spec.title)));
    let svg = draw::svg(spec, plot, id)?;
    if svg.is_empty() {
        page.push_str("<p>No cell has these figures.</p>\n");
    } else {
        page.push_str(&svg);
        page.push_str("<ul class=\"legend\">\n");
        for (number, line) in plot.lines.iter().enumerate() {
            page.push_str(&format!("<li>{}{}</li>\n", draw::swatch(number)?, escaped(&line.name)));
        }
        page.push_str("</ul>\n");
    }
    if plot.unplaced > 0 {
        page.push_str(&format!(
            "<p>{} cells have no number for {} and are not drawn.</p>\n",
            plot.unplaced,
            escaped(spec.order())
        ));
    }
    if !plot.lines.is_empty() {
        page.push_str(&chart_table(spec, plot));
    }
    page.push_str("</figure>\n");
    Ok(())
}

/// A row for each value of the ordering label, a column for each line; of a curve both figures.
fn chart_table(spec: &ChartSpec, plot: &Plot) -> String {
    let order = if spec.order().is_empty() { &spec.x_title } else { spec.order() };
    let mut table = Table::new(&spec.title, &[order.replace('_', " ")], 1);
    let curve = spec.kind == super::ChartKind::Curve;
    let names: Vec<String> = plot.lines.iter().map(|line| line.name.clone()).collect();
    if curve {
        table.pairs(&names, (&spec.x_title, &spec.y_title));
    } else {
        table.figures(&names);
    }
    for label in plot.labels() {
        let mut row = Vec::new();
        for line in &plot.lines {
            let point = line.points.iter().find(|point| point.label == label);
            let at = point.and_then(|point| point.at);
            // Said apart: never run so, or run and without these figures.
            let none = if point.is_some() { "failed".to_owned() } else { String::new() };
            let text = |value: Option<f64>| value.map_or_else(|| none.clone(), shown);
            if curve {
                row.push(text(at.map(|(x, _)| x)));
            }
            row.push(text(at.map(|(_, y)| y)));
        }
        table.row(&[label], row.into_iter());
    }
    // A series has as many rows as it has moments.
    let open = if spec.kind == super::ChartKind::Series { "" } else { " open" };
    format!("<details{open}><summary>Figures</summary>\n{}</details>\n", table.end())
}

fn failures(page: &mut String, report: &Report) {
    let failed: Vec<(&Cell, &String)> =
        report.cells.iter().filter_map(|cell| cell.error.as_ref().map(|error| (cell, error))).collect();
    if failed.is_empty() {
        return;
    }
    page.push_str("<section id=\"failed\">\n<h2>Failed cells</h2>\n<ul>\n");
    for (cell, error) in failed {
        page.push_str(&format!("<li><b>{}</b>: {}</li>\n", escaped(&named(&cell.labels)), escaped(error)));
    }
    page.push_str("</ul>\n</section>\n");
}

fn cells(page: &mut String, report: &Report) {
    if report.cells.is_empty() {
        return;
    }
    let (same, labels): (Vec<String>, Vec<String>) =
        label_names(report).into_iter().partition(|name| is_same_everywhere(report, name));
    let others = other_names(report);
    let heads: Vec<String> = labels.iter().map(|name| name.replace('_', " ")).collect();
    let values = |cell: &Cell| -> Vec<String> {
        labels.iter().map(|name| cell.labels.get(name).cloned().unwrap_or_default()).collect()
    };
    let mut table = Table::new("All cells", &heads, labels.len());
    table.figures(&others);
    for cell in &report.cells {
        let figures = others.iter().map(|name| figure(cell.figures.get(name).copied()));
        table.row(&values(cell), figures);
    }
    page.push_str("<section>\n<h2>All cells</h2>\n");
    if let Some(first) = report.cells.first().filter(|_| !same.is_empty()) {
        let labels = same.iter().filter_map(|name| Some((name.clone(), first.labels.get(name)?.clone()))).collect();
        page.push_str(&format!("<p>Every cell has {}.</p>\n", escaped(&named(&labels))));
    }
    page.push_str(&folded("Figures of each cell", report.cells.len(), &table.end()));
    let of_calls: usize = report.cells.iter().map(|cell| calls(cell).len()).sum();
    if of_calls > 0 {
        let with_call: Vec<String> = heads.iter().cloned().chain(["call".to_owned()]).collect();
        let mut table = Table::new("Calls", &with_call, labels.len() + 1);
        table.figures(&STATISTICS.map(str::to_owned));
        for cell in &report.cells {
            for call in calls(cell) {
                let figures = STATISTICS.map(|name| figure(cell.figures.get(&of_call(&call, name)).copied()));
                let row: Vec<String> = values(cell).into_iter().chain([call]).collect();
                table.row(&row, figures.into_iter());
            }
        }
        page.push_str(&folded("Latency of each call, microseconds", of_calls, &table.end()));
    }
    page.push_str("</section>\n");
}

/// A label that tells no two cells apart needs no column.
fn is_same_everywhere(report: &Report, name: &str) -> bool {
    let mut values = report.cells.iter().map(|cell| cell.labels.get(name));
    let first = values.next();
    report.cells.len() > 1 && values.all(|value| Some(value) == first)
}

/// A table, folded where it is long.
fn folded(title: &str, rows: usize, table: &str) -> String {
    let open = if rows <= OPEN_ROWS_MAX { " open" } else { "" };
    format!("<details{open}><summary>{title} ({} rows)</summary>\n{table}</details>\n", count(rows))
}

fn count(cells: usize) -> String {
    shown(f64::from(u32::try_from(cells).unwrap_or(u32::MAX)))
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(String::new, shown)
}

/// A text as it may stand in a page, in an element or in an attribute.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            one => safe.push(one),
        }
    }
    safe
}
