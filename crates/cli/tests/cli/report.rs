//! Reports of races, kept and looked at again: laid anew, held against each other, refused in one sentence.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use assent_bench::host::Host;
use assent_bench::report::pool::pool;
use assent_bench::report::sink::{Outputs, Sink};
use assent_bench::report::{Cell, Report};
use assent_world::{Clock as _, RealClock};
use rustix::process::Signal;

use super::assent::{command, fails, json, run, write};

/// A kept report of these cells (clients, tps).
fn kept(folder: &Path, name: &str, scenario: &str, cells: &[(u32, f64)]) -> PathBuf {
    let mut report = Report::new(scenario, "made up", "assent bench".to_owned(), Host::default());
    for (clients, tps) in cells {
        let mut cell = Cell::new([("clients", clients.to_string()), ("engine", "journal".to_owned())]);
        cell.figures.insert("tps".to_owned(), *tps);
        report.put(cell);
    }
    let outputs = Outputs { json: Some(folder.join(name)), ..Outputs::default() };
    Sink::new(report, outputs).unwrap().finish(true).unwrap();
    folder.join(name)
}

#[test]
fn a_kept_report_is_laid_anew_as_a_page_and_as_csv() {
    let folder = tempfile::tempdir().unwrap();
    let file = kept(folder.path(), "a.json", "tx", &[(10, 5.0), (20, 9.0)]);
    let (page, csv) = (folder.path().join("a.html"), folder.path().join("a.csv"));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let output = run(&["bench", "report", &text(&file), "--html", &text(&page), "--csv", &text(&csv)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read_to_string(&page).unwrap().ends_with("</html>\n"));
    assert_eq!(std::fs::read_to_string(&csv).unwrap().lines().count(), 3);
    let nowhere = folder.path().join("absent/a.html");
    fails(&["bench", "report", &text(&file), "--html", &text(&nowhere)], 8, "writing the report");
    fails(&["bench", "report", &text(&page), "--html", &text(&csv)], 2, "not a report of ours");
    fails(&["bench", "report", &text(&nowhere), "--html", &text(&page)], 3, "no report at");
    fails(&["bench", "report", &text(&file)], 2, "--html <FILE>");
}

#[test]
fn several_runs_of_one_race_are_laid_as_one_and_what_differs_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let run_of = |file: &str, date: &str, keys: u32, rates: &[f64]| {
        let mut report = Report::new("kv", "made up", "assent bench kv".to_owned(), Host::default());
        report.host.date = date.to_owned();
        let rounds = rates.iter().map(|rate| {
            let mut cell = Cell::new([("store", "assent".to_owned())]);
            cell.settings.insert("different keys".to_owned(), keys.to_string());
            cell.figures.insert("ops_per_s".to_owned(), *rate);
            cell
        });
        report.put(pool(&rounds.collect::<Vec<_>>()));
        let outputs = Outputs { json: Some(folder.path().join(file)), ..Outputs::default() };
        Sink::new(report, outputs).unwrap().finish(true).unwrap();
    };
    run_of("a.json", "Monday", 9, &[1.0, 2.0]);
    run_of("b.json", "Tuesday", 9, &[30.0]);
    run_of("c.json", "Friday", 8, &[30.0]);
    let both = name("both.html");
    let output = run(&["bench", "report", &name("a.json"), &name("b.json"), "--report", &both]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = Report::read(&folder.path().join("both.json")).unwrap();
    let figures = &report.cells[0].figures;
    assert_eq!((figures["ops_per_s"], figures["rounds"], report.complete), (2.0, 3.0, true));
    assert!(std::fs::read_to_string(&both).unwrap().contains("begun Monday, Tuesday"));
    // None of what was read is written over, nor does a round count twice.
    let before = std::fs::read_to_string(name("a.json")).unwrap();
    let (beside, said) = (name("./a"), "a.json over with all of them: name another");
    fails(&["bench", "report", &name("a.json"), &name("b.json"), "--report", &beside], 2, said);
    assert_eq!(std::fs::read_to_string(name("a.json")).unwrap(), before);
    let twice = ["bench", "report", &name("both.json"), &name("a.json"), "--html", &both];
    fails(&twice, 2, "store=assent: two of the reports have the same round of it");
    let refused = "store=assent was run with different settings: different keys is 9 and 8";
    fails(&["bench", "report", &name("a.json"), &name("c.json"), "--html", &both], 2, refused);
    fails(&["bench", "kv", "--go-on"], 2, "--report <NAME>");
}

/// The cells of a report that a race writes under our eyes.
fn cells(file: &Path) -> usize {
    Report::read(file).map_or(0, |report| report.cells.iter().filter(|cell| cell.error.is_none()).count())
}

#[test]
fn a_race_that_is_stopped_leaves_a_whole_partial_report() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("race");
        // A cell that is done at once, and one that sleeps ten seconds.
        let mut race = command(&["bench", "tx", "--workload", "none,medium", "-l", "1", "-C", "100", "--report"]);
        let mut race = race.arg(&name).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let file = folder.path().join("race.json");
        while cells(&file) == 0 {
            assert!(race.try_wait().unwrap().is_none(), "it ended by itself");
            RealClock.sleep(Duration::from_millis(20));
        }
        rustix::process::kill_process(rustix::process::Pid::from_child(&race), signal).unwrap();
        assert_eq!(race.wait().unwrap().code(), Some(code));
        let report = Report::read(&file).unwrap();
        assert!(!report.complete && !report.floors.is_empty() && cells(&file) == 1, "{report:?}");
        assert!(
            std::fs::read_to_string(folder.path().join("race.html")).unwrap().contains("<strong>Partial.</strong>")
        );
        assert!(std::fs::read_to_string(folder.path().join("race.csv")).unwrap().lines().count() > 1);
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 3, "nothing half written");
    }
}

#[test]
fn two_reports_are_compared_for_people_and_for_programs() {
    let folder = tempfile::tempdir().unwrap();
    let one = kept(folder.path(), "a.json", "tx", &[(10, 1_000.0), (20, 9.0), (40, 2.0)]);
    let two = kept(folder.path(), "b.json", "tx", &[(10, 1_500.0), (30, 9.0), (40, 2.0)]);
    let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
    let output = run(&["bench", "compare", one, two]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}");
    for text in [
        "every cell compared: engine=journal",
        " clients=10 ",
        "1,000",
        "1,500",
        "1.50",
        "only in A: clients=20",
        "only in B: clients=30",
    ] {
        assert!(told.contains(text), "{text}: {told}");
    }
    let told = json(&run(&["bench", "compare", one, two, "--figures", "tps", "--json"]));
    assert_eq!(told["rows"].as_array().unwrap().len(), 2);
    assert_eq!(told["rows"][0]["ratio"].as_f64(), Some(1.5));
    fails(&["bench", "compare", one, two, "--figures", "tps,nothing"], 2, "no cell of either report has a figure");
    let other = kept(folder.path(), "c.json", "kv", &[(10, 1.0)]);
    fails(&["bench", "compare", one, other.to_str().unwrap()], 2, "one report is of tx, the other of kv");
    let newer = folder.path().join("d.json");
    write(&newer, "{\"format\":2,\"cells\":7}");
    fails(&["bench", "compare", newer.to_str().unwrap(), two], 2, "a report of format 2; this program reads format 1");
}
