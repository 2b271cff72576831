//! A report of made-up cells, laid for people: everything is there, nothing comes from outside, nothing breaks out.

use std::collections::BTreeMap;
use std::time::Duration;

use assent_bench::chart::{natural, plot};
use assent_bench::host::Host;
use assent_bench::record::Recorder;
use assent_bench::report::{Cell, ChartKind, ChartSpec, Floor, Report, csv, html, named, shown};

const RPOS: [&str; 3] = ["0/0", "0/5", "10/50"];
const EVIL: &str = "a server said <script>alert('x')</script> & \"more\"\nhttp://outside.example";

fn spec(kind: ChartKind, title: &str, rpo: &str) -> ChartSpec {
    let only = BTreeMap::from([("rpo".to_owned(), vec![rpo.to_owned()])]);
    let curve = kind == ChartKind::Curve;
    let text = str::to_owned;
    ChartSpec {
        title: format!("{title}, RPO {rpo}"),
        kind,
        x: text(if curve { "tps" } else { "clients" }),
        along: text(if curve { "clients" } else { "" }),
        y: vec![text("total_p95_us")],
        series: vec![text("engine"), text("workload")],
        only,
        x_title: text(if curve { "transactions/s" } else { "clients" }),
        y_title: text("95 % of total latency, us"),
        x_log: false,
        y_log: curve,
    }
}

/// Two engines, three workloads, three RPOs, ten numbers of clients; one cell failed.
fn report() -> Report {
    let host = Host::look(&std::env::temp_dir(), "2026-11-20T12:00:00Z".to_owned());
    let mut report = Report::new("tx", "Made-up <figures>", "assent bench tx --matrix published".to_owned(), host);
    let figures = BTreeMap::from([("p50".to_owned(), 96.0), ("p95".to_owned(), 132.5), ("best".to_owned(), 0.25)]);
    report.put_floor(Floor { name: "durable write & more".to_owned(), unit: "us".to_owned(), figures });
    report.notes.push("Figures of this page are made up.".to_owned());
    for (slow, workload) in (1_u32..).zip(["medium", "high", "extreme"]) {
        for (number, rpo) in (1_u32..).zip(RPOS) {
            for (weight, engine) in [(2_u32, "journal"), (3, "table")] {
                for clients in (10..=100).step_by(10) {
                    report.put(cell((workload, rpo, engine), clients, slow * weight * 40 / number));
                }
            }
        }
    }
    for rpo in RPOS {
        report.charts.push(spec(ChartKind::Lines, "Total latency over clients", rpo));
        report.charts.push(spec(ChartKind::Curve, "Throughput against latency", rpo));
    }
    let mut quartiles = spec(ChartKind::Lines, "Quartiles of the total latency, extreme, journal", "0/0");
    quartiles.y = ["p25", "p50", "p75", "p95"].map(|name| format!("total_{name}_us")).to_vec();
    quartiles.only.insert("workload".to_owned(), vec!["extreme".to_owned()]);
    quartiles.only.insert("engine".to_owned(), vec!["journal".to_owned()]);
    report.charts.push(quartiles);
    report
}

fn cell((workload, rpo, engine): (&str, &str, &str), clients: u32, each: u32) -> Cell {
    let labels =
        [("workload", workload), ("rpo", rpo), ("engine", engine)].map(|(name, value)| (name, value.to_owned()));
    let more = [("clients", clients.to_string()), ("mode", "open_close".to_owned())];
    let mut cell = Cell::new(labels.into_iter().chain(more));
    if (workload, rpo, engine, clients) == ("extreme", "0/5", "table", 40) {
        cell.error = Some(EVIL.to_owned());
        return cell;
    }
    let mut recorder = Recorder::default();
    for sample in 0..43 {
        let took = u64::from(300 + each * (clients + sample * sample / 30));
        recorder.record("commit", Duration::from_micros(took * 2 / 3));
        recorder.record("total", Duration::from_micros(took));
    }
    recorder.fill(&mut cell).unwrap();
    cell.figures.insert("tps".to_owned(), f64::from(clients) * 9e5 / f64::from(300 + each * clients));
    cell.figures.insert("server_cpu_us_per_tx".to_owned(), 41.25);
    cell
}

/// Elements as (path of names, text that stands in them directly); panics where tags are not balanced.
fn elements(page: &str) -> Vec<(Vec<String>, String)> {
    let (mut open, mut found): (Vec<(String, String)>, Vec<_>) = (Vec::new(), Vec::new());
    let body = page.strip_prefix("<!doctype html>").unwrap();
    for part in body.split('<').skip(1) {
        let (tag, text) = part.split_once('>').unwrap_or_else(|| panic!("a bare < before {part:?}"));
        if let Some(name) = tag.strip_prefix('/') {
            let (opened, text) = open.pop().unwrap();
            assert_eq!(opened, name, "closed in the wrong order");
            found.push((open.iter().map(|(name, _)| name.clone()).chain([opened]).collect(), text));
        } else if !tag.ends_with('/') && !tag.starts_with("meta") {
            open.push((tag.split(' ').next().unwrap().to_owned(), String::new()));
        }
        if let Some((_, inner)) = open.last_mut() {
            inner.push_str(text);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    found
}

/// Every row of every table, as texts.
fn rows(page: &str) -> Vec<Vec<String>> {
    let mut rows = vec![Vec::new()];
    for (path, text) in elements(page) {
        match path.last().map(String::as_str) {
            Some("th" | "td") => rows.last_mut().unwrap().push(text),
            Some("tr") => rows.push(Vec::new()),
            _ => {}
        }
    }
    rows
}

#[test]
fn a_page_is_whole_balanced_and_without_outside_references() {
    let report = report();
    let page = html::lay(&report).unwrap();
    // For whoever wants to look at it.
    #[expect(clippy::disallowed_methods, reason = "a page to look at, beside the build")]
    std::fs::write(format!("{}/report.html", env!("CARGO_TARGET_TMPDIR")), &page).unwrap();
    let told = page.replace("http://outside.example", "");
    for outside in ["http:", "https:", "//", "src=", "@import", "url(", "<script", "<link", "xmlns"] {
        assert!(!told.contains(outside), "{outside}");
    }
    assert!(!page.contains("NaN") && !page.contains(">inf"));
    assert!(page.contains("<title>Made-up &lt;figures&gt;</title>") && page.contains("viewport"));
    assert!(page.contains("<strong>Partial.</strong>"));
    let found = elements(&page);
    let charts = found.iter().filter(|(path, _)| path.last().is_some_and(|name| name == "desc")).count();
    assert_eq!(charts, report.charts.len());
    let ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let unique: std::collections::BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(ids.len(), unique.len(), "{ids:?}");
    for reference in page.split(" href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(unique.contains(reference), "{reference}");
    }
    let whole = html::lay(&Report { complete: true, ..report }).unwrap();
    assert!(!whole.contains("Partial."));
}

#[test]
fn every_cell_is_in_a_table_and_a_failed_one_has_its_reason() {
    let report = report();
    let page = html::lay(&report).unwrap();
    let rows = rows(&page);
    for cell in &report.cells {
        let has = |row: &&Vec<String>, value: &String| row.contains(value);
        let telling = || cell.labels.iter().filter(|(name, _)| *name != "mode").map(|(_, value)| value);
        let of_cell: Vec<_> = rows.iter().filter(|row| telling().all(|value| has(row, value))).collect();
        if cell.error.is_some() {
            assert!(!rows.iter().any(|row| row.iter().any(|text| text == "open_close")), "no column for it");
            assert_eq!(of_cell.len(), 1, "failed: one row without calls");
            continue;
        }
        for name in ["tps", "server_cpu_us_per_tx", "total_p999_us", "commit_sd_us"] {
            let figure = shown(cell.figures[name]);
            assert!(of_cell.iter().any(|row| row.contains(&figure)), "{}: {name} {figure}", named(&cell.labels));
        }
    }
    let reason = EVIL
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;");
    assert!(
        page.contains(&format!(
            "<b>clients=40 engine=table mode=open_close rpo=0/5 workload=extreme</b>: {reason}</li>"
        ))
    );
    assert!(page.contains("1 of 180 cells failed") && page.contains("<p>Every cell has mode=open_close.</p>"));
    assert_eq!(
        rows.iter().flatten().filter(|text| *text == "failed").count(),
        3,
        "a line's table, and both of a curve's"
    );
}

#[test]
fn every_point_of_a_chart_is_in_the_table_below_it() {
    let report = report();
    let page = html::lay(&report).unwrap();
    let figures: Vec<&str> = page.split("<figure id=").skip(1).collect();
    assert_eq!(figures.len(), report.charts.len());
    for (spec, text) in report.charts.iter().zip(figures) {
        let table = text.split("<table>").nth(1).unwrap().split("</table>").next().unwrap();
        let plot = plot(spec, &report.cells);
        assert!(!plot.lines.is_empty() && plot.unplaced == 0);
        for line in &plot.lines {
            assert!(table.contains(&format!("\">{}</th>", line.name)), "{}", line.name);
            assert_eq!(line.points.len(), 10);
            for (x, y) in line.points.iter().filter_map(|point| point.at) {
                let x = if spec.kind == ChartKind::Curve { format!("<td>{}</td>", shown(x)) } else { String::new() };
                assert!(table.contains(&format!("{x}<td>{}</td>", shown(y))), "{} {x} {y}", spec.title);
            }
        }
    }
}

#[test]
fn cells_that_would_share_a_point_get_lines_of_their_own() {
    let report = report();
    let mut spec = spec(ChartKind::Lines, "", "0/0");
    spec.series = vec!["engine".to_owned()];
    let names = |spec: &ChartSpec| -> Vec<String> {
        plot(spec, &report.cells).lines.into_iter().map(|line| line.name).collect()
    };
    let all = ["journal", "table"]
        .map(|engine| ["extreme", "high", "medium"].map(|workload| format!("{engine}, {workload}")));
    assert_eq!(names(&spec), all.concat());
    spec.only.insert("workload".to_owned(), vec!["high".to_owned()]);
    assert_eq!(names(&spec), ["journal", "table"]);
    spec.series.push("mode".to_owned());
    assert_eq!(names(&spec), ["journal", "table"], "what all lines share is not in their names");
    spec.only.insert("engine".to_owned(), vec!["table".to_owned()]);
    assert_eq!(names(&spec), ["table, open-close"], "but one line tells all");
    spec.only.remove("engine");
    spec.only.remove("rpo");
    assert_eq!(names(&spec)[..3], ["journal, rpo 0/0", "journal, rpo 0/5", "journal, rpo 10/50"]);
    // Several figures are told apart by what differs in their names.
    let quartiles = report.charts.last().unwrap();
    let expected = ["p25", "p50", "p75", "p95"].map(|name| format!("journal, extreme, {name}"));
    assert_eq!(names(quartiles), expected);
    let mut calls = quartiles.clone();
    calls.series.clear();
    calls.y = ["commit_p95_us", "total_p95_us"].map(str::to_owned).to_vec();
    assert_eq!(names(&calls), ["commit", "total"]);
    calls.y = ["total_mean_us", "total_p95_us"].map(str::to_owned).to_vec();
    assert_eq!(names(&calls), ["mean", "p95"]);
    calls.y.pop();
    assert_eq!(names(&calls), ["total mean us"]);
}

#[test]
fn a_chart_without_its_figures_says_so_and_a_label_that_is_no_number_is_counted() {
    let mut report = report();
    report.charts.truncate(1);
    report.charts[0].y = vec!["nothing".to_owned()];
    assert!(html::lay(&report).unwrap().contains("No cell has these figures."));
    report.charts[0].x = "engine".to_owned();
    assert!(html::lay(&report).unwrap().contains("60 cells have no number for engine and are not drawn."));
    report.cells.clear();
    report.charts[0].title.clear();
    elements(&html::lay(&report).unwrap());
}

#[test]
fn csv_has_a_row_a_cell_and_call_and_keeps_an_error_in_one_field() {
    let report = report();
    let text = csv::lay(&report).unwrap();
    let head = text.lines().next().unwrap();
    assert!(head.starts_with("clients,engine,mode,rpo,workload,call,samples,min_us,p25_us,"), "{head}");
    assert!(head.ends_with(",p999_us,max_us,mean_us,sd_us,server_cpu_us_per_tx,tps,error"), "{head}");
    let columns = head.split(',').count();
    // The failed cell's error holds a line break, quotes and no comma.
    let rows = text.lines().filter(|line| line.split(',').count() == columns).count();
    assert_eq!(rows, 1 + 179 * 2 + 1);
    assert!(text.contains("<script>alert('x')</script> & \"\"more\"\"\n"));
    let first = text.lines().nth(1).unwrap();
    assert!(first.starts_with("10,journal,open_close,0/0,medium,commit,43,"), "{first}");
}

#[test]
fn labels_are_ordered_as_people_order() {
    let mut labels = ["10/50", "0/5", "20", "0/0", "3", "medium", "1/10", ""];
    labels.sort_by(|a, b| natural(a, b));
    assert_eq!(labels, ["", "0/0", "0/5", "1/10", "3", "10/50", "20", "medium"]);
}

#[test]
fn figures_are_shown_with_enough_digits_and_thousands_apart() {
    let cases = [(0.0, "0"), (1_234_567.0, "1,234,567"), (-1_234.4, "-1,234"), (999.6, "1,000"), (100.04, "100")];
    let more = [(12.34, "12.3"), (1.239, "1.24"), (5.0, "5"), (0.25, "0.25"), (0.00012, "1.2e-4"), (20.0, "20")];
    for (value, text) in cases.into_iter().chain(more) {
        assert_eq!(shown(value), text);
    }
}
