//! The frame of all races: what a report takes in, keeps and refuses.

use std::time::Duration;

use assent_bench::host::Host;
use assent_bench::pace::OpenLoop;
use assent_bench::record::Recorder;
use assent_bench::report::sink::{Outputs, Sink};
use assent_bench::report::{Cell, FORMAT, Report};

fn cell(clients: u32, tps: f64) -> Cell {
    let mut cell = Cell::new([("engine", "journal".to_owned()), ("clients", clients.to_string())]);
    cell.figures.insert("tps".to_owned(), tps);
    cell
}

fn report() -> Report {
    Report::new("tx", "two dummies", "assent bench tx".to_owned(), Host::default())
}

#[test]
fn a_cell_takes_the_place_of_one_with_its_labels_and_keeps_no_figure_that_is_no_number() {
    let mut report = report();
    report.put(cell(10, 1.0));
    report.put(cell(20, f64::NAN));
    report.put(cell(10, 3.0));
    assert_eq!(report.cells.len(), 2);
    assert_eq!(report.cells[0].figures["tps"].to_bits(), 3.0_f64.to_bits());
    assert!(report.cells[1].figures.is_empty());
    assert_eq!(report.notes, ["clients=20 engine=journal: tps was no number and is left out"]);
}

#[test]
fn the_json_on_disk_is_a_valid_partial_report_after_every_cell() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = Outputs::named(&folder.path().join("race"));
    let path = outputs.json.clone().unwrap();
    let sink = Sink::new(report(), outputs).unwrap();
    for clients in [10, 20] {
        sink.put(cell(clients, 5.0)).unwrap();
        let read = Report::read(&path).unwrap();
        assert_eq!((read.cells.len(), read.complete), (clients as usize / 10, false));
    }
    sink.finish(true).unwrap();
    let read = Report::read(&path).unwrap();
    assert!(read.complete);
    assert_eq!(read, sink.report());
    let mut names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["race.csv", "race.html", "race.json"]);
}

#[test]
fn a_report_that_cannot_be_written_is_one_sentence_before_the_race() {
    let folder = tempfile::tempdir().unwrap();
    let refused = Sink::new(report(), Outputs::named(&folder.path().join("absent/race"))).unwrap_err();
    assert!(refused.message.starts_with("writing the report "), "{refused}");
    assert_eq!(refused.message.lines().count(), 1);
}

#[test]
fn another_format_and_another_file_are_refused_in_one_sentence() {
    let other = serde_json::json!({"format": FORMAT + 1, "whatever": []}).to_string();
    let refused = Report::from_json(&other).unwrap_err();
    assert_eq!(refused.message, "a report of format 2; this program reads format 1");
    assert!(Report::from_json("{}").unwrap_err().message.starts_with("not a report of ours: missing field"));
}

#[test]
fn a_recorder_fills_a_cell_with_named_figures_and_a_histogram() {
    let (mut one, mut two) = (Recorder::default(), Recorder::default());
    (1..=60).for_each(|us| one.record("commit", Duration::from_micros(us)));
    (61..=100).for_each(|us| two.record("commit", Duration::from_micros(us)));
    one.merge(&two);
    let mut cell = cell(1, 1.0);
    one.fill(&mut cell).unwrap();
    let figure = |name: &str| cell.figures[name];
    let found = [figure("commit_samples"), figure("commit_p50_us"), figure("commit_p999_us"), figure("commit_max_us")];
    assert_eq!(found.map(f64::to_bits), [100.0_f64, 50.0, 100.0, 100.0].map(f64::to_bits));
    assert!(cell.histograms["commit"].len() > 20);
}

#[test]
fn an_open_loop_keeps_its_schedule_over_all_clients_and_never_drifts() {
    let mut loops: Vec<OpenLoop> = (0..3).map(|client| OpenLoop::new(1_000.0, client, 3)).collect();
    let mut begun: Vec<Duration> =
        (0..1_000).flat_map(|_| loops.iter_mut().map(OpenLoop::next_at).collect::<Vec<_>>()).collect();
    begun.sort();
    let expected: Vec<Duration> = (0..3_000).map(Duration::from_millis).collect();
    assert_eq!(begun, expected);
}

#[test]
fn what_waited_behind_a_slow_answer_is_in_the_figures_of_an_open_loop() {
    // One client, a call each 10 ms; each takes 1 ms, but one takes half a second.
    let (mut schedule, mut recorder, mut free) = (OpenLoop::new(100.0, 0, 1), Recorder::default(), Duration::ZERO);
    for call in 0..200 {
        let due = schedule.next_at();
        let begun = due.max(free);
        free = begun + Duration::from_millis(if call == 50 { 500 } else { 1 });
        recorder.record("call", free - due);
    }
    let found = recorder.latency("call");
    // 500 ms, then 491, 482 .. 5 until it has caught up: 56 calls of 200, where a closed loop would have seen one.
    assert_eq!(
        [found.max, found.p75, found.p50].map(f64::to_bits),
        [500_000.0_f64, 50_000.0, 1_000.0].map(f64::to_bits)
    );
}

#[test]
fn a_full_disk_is_one_sentence_and_the_report_on_it_stays_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("race.json");
    let sink = Sink::new(report(), Outputs { json: Some(path.clone()), ..Outputs::default() }).unwrap();
    sink.put(cell(10, 1.0)).unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.path().join("race.json.partial")).unwrap();
    let refused = sink.put(cell(20, 1.0)).unwrap_err();
    assert_eq!(refused.kind, assent_kind::Kind::Full);
    assert!(refused.message.ends_with("No space left on device (os error 28): make room"), "{refused}");
    assert_eq!(Report::read(&path).unwrap().cells.len(), 1);
    // With room again nothing was lost.
    sink.finish(false).unwrap();
    assert_eq!(Report::read(&path).unwrap().cells.len(), 2);
}

mod compared {
    use assent_bench::report::compare::{Row, compare};
    use assent_bench::report::{Floor, Labels};
    use assent_kind::Kind;

    use super::{Host, Report, cell, report};

    fn two() -> (Report, Report) {
        let (mut a, mut b) = (report(), report());
        for clients in [10, 20, 30] {
            a.put(cell(clients, f64::from(clients) * 4.0));
        }
        for clients in [20, 30, 40] {
            b.put(cell(clients, f64::from(clients)));
        }
        a.put(cell(30, 0.0));
        let mut failed = cell(20, 7.0);
        failed.figures.clear();
        failed.error = Some("the server died".to_owned());
        b.put(failed);
        (a, b)
    }

    fn labels(clients: u32) -> Labels {
        cell(clients, 0.0).labels
    }

    #[test]
    fn cells_are_matched_by_labels_and_what_has_no_partner_is_named() {
        let (a, b) = two();
        let found = compare(&a, &b, &[]).unwrap();
        let row = |clients, a, b, ratio| Row { labels: labels(clients), figure: "tps".to_owned(), a, b, ratio };
        // A ratio to nothing is none.
        assert_eq!(found.rows, [row(20, Some(80.0), None, None), row(30, Some(0.0), Some(30.0), None)]);
        assert_eq!((found.only_in_a, found.only_in_b), (vec![labels(10)], vec![labels(40)]));
        assert_eq!(found.failed.len(), 1);
        assert_eq!((found.failed[0].a.as_deref(), found.failed[0].b.as_deref()), (None, Some("the server died")));
        let same = compare(&a, &a, &["tps".to_owned()]).unwrap();
        assert_eq!(same.rows[0], row(10, Some(40.0), Some(40.0), Some(1.0)));
        let half = compare(
            &b,
            &{
                let mut c = b.clone();
                c.put(cell(40, 20.0));
                c
            },
            &[],
        )
        .unwrap();
        assert_eq!(half.rows.last().unwrap(), &row(40, Some(40.0), Some(20.0), Some(0.5)));
    }

    #[test]
    fn other_scenarios_and_unknown_figures_are_refused_and_other_machines_are_warned_of() {
        let (mut a, mut b) = two();
        let refused = compare(&a, &b, &["nonsense".to_owned()]).unwrap_err();
        assert_eq!(
            (refused.kind, refused.message.as_str()),
            (Kind::Invalid, "no cell of either report has a figure \"nonsense\"")
        );
        a.complete = true;
        b.host = Host { cpu: "another".to_owned(), ..Host::default() };
        let figures = std::collections::BTreeMap::from([("p50".to_owned(), 100.0)]);
        for (report, factor) in [(&mut a, 1.0), (&mut b, 1.5)] {
            let figures = figures.iter().map(|(name, value)| (name.clone(), value * factor)).collect();
            report.put_floor(Floor { name: "echo".to_owned(), unit: "us".to_owned(), figures });
        }
        let found = compare(&a, &b, &[]).unwrap();
        assert_eq!(
            found.warnings,
            [
                "the machines differ, so that ratios say little: processor:  | another",
                "the second report is partial: its race was stopped"
            ]
        );
        assert_eq!(found.floors[0].ratio, Some(1.5));
        b.scenario = "kv".to_owned();
        let refused = compare(&a, &b, &[]).unwrap_err();
        assert_eq!(refused.message, "one report is of tx, the other of kv; compare two of one scenario");
    }
}
