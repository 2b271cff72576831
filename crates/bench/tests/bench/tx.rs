//! The race of transactions, in small and embedded: it counts what it did, and a cell that fails is a cell.

use std::path::Path;

use assent_bench::BenchError;
use assent_bench::host::Host;
use assent_bench::report::sink::{Outputs, Sink};
use assent_bench::report::{Cell, Report};
use assent_bench::tx::axes::{Branches, Case, Engine, Mode, Place, Workload};
use assent_bench::tx::matrix::{Given, cases};
use assent_bench::tx::{self, Rules, Server};
use assent_kind::Kind;

fn sink() -> Sink {
    Sink::new(Report::new("tx", "a test", String::new(), Host::default()), Outputs::default()).unwrap()
}

/// Cells without sleeps.
fn quick(places: &[Place], modes: &[Mode], clients: &[u32], cycles: u32) -> Vec<Case> {
    let given = Given {
        workloads: Workload::named("none").into_iter().collect(),
        cycles: Some(cycles),
        modes: modes.to_vec(),
        places: places.to_vec(),
        clients: clients.to_vec(),
        ..Given::default()
    };
    cases(None, &given)
}

fn nobody(_: &Case, _: &Path) -> Result<Server, BenchError> {
    Err(BenchError { kind: Kind::Unavailable, message: "nobody serves here".to_owned() })
}

fn raced(rules: &Rules, cases: &[Case]) -> Vec<Cell> {
    let (folder, sink) = (tempfile::tempdir().unwrap(), sink());
    tx::run(&folder.path().join("cell"), rules, cases, &mut nobody, &sink, &mut || Ok(()), |_| {}).unwrap();
    sink.report().cells
}

fn figure(cell: &Cell, name: &str) -> f64 {
    *cell.figures.get(name).unwrap_or_else(|| panic!("{name} of {cell:?}"))
}

fn counts(cell: &Cell, calls: &[&str]) -> Vec<f64> {
    calls.iter().map(|call| figure(cell, &format!("{call}_samples"))).collect()
}

#[test]
fn open_close_opens_in_every_cycle_and_batch_once_a_client() {
    let cells = raced(&Rules::default(), &quick(&[Place::Embedded], &[Mode::OpenClose, Mode::Batch], &[3], 5));
    let calls = ["open", "begin", "commit", "close", "total"];
    let [open_close, batch] = cells.as_slice() else { panic!("{cells:?}") };
    assert_eq!(counts(open_close, &calls), [15.0; 5]);
    assert_eq!(counts(batch, &calls), [3.0, 15.0, 15.0, 3.0, 15.0]);
    for cell in &cells {
        assert_eq!(figure(cell, "transactions"), 15.0);
        assert_eq!(figure(cell, "decisions"), 15.0, "each was decided, once");
        assert!(figure(cell, "disk_syncs_per_tx") <= 2.0 && figure(cell, "tps") > 0.0, "{cell:?}");
        assert!(cell.histograms.contains_key("commit"), "{cell:?}");
        for share in ["min", "p25", "p50", "p75", "p85", "p90", "p95", "p98", "max", "mean", "sd"] {
            assert!(cell.figures.contains_key(&format!("total_{share}_us")), "{share}");
        }
    }
}

#[test]
fn both_engines_keep_every_decision_in_every_policy() {
    let given = Given {
        engines: vec![Engine::Table, Engine::Journal],
        rpos: vec!["0/0".parse().unwrap(), "0/5".parse().unwrap()],
        workloads: Workload::named("none").into_iter().collect(),
        cycles: Some(20),
        places: vec![Place::Embedded],
        clients: vec![4],
        ..Given::default()
    };
    let cells = raced(&Rules::default(), &cases(None, &given));
    assert_eq!(cells.len(), 4);
    for cell in &cells {
        assert_eq!((cell.error.clone(), figure(cell, "decisions")), (None, 80.0), "{:?}", cell.labels);
        let syncs = figure(cell, "disk_syncs_per_tx");
        assert!(if cell.labels["rpo"] == "0/0" { syncs > 0.0 } else { syncs < 1.0 }, "{syncs} {:?}", cell.labels);
    }
}

#[test]
fn a_rollback_decides_nothing() {
    let rules = Rules { commit: false, ..Rules::default() };
    let cells = raced(&rules, &quick(&[Place::Embedded], &[Mode::Batch], &[2], 4));
    assert_eq!(counts(&cells[0], &["begin", "rollback"]), [8.0, 8.0]);
    assert_eq!(figure(&cells[0], "decisions"), 0.0);
    assert!(!cells[0].figures.contains_key("commit_samples"));
}

#[test]
fn several_coordinators_each_decide_their_share_over_the_same_stores() {
    let rules = Rules { servers: 2, branches: Branches::Kv, ..Rules::default() };
    let cells = raced(&rules, &quick(&[Place::Embedded], &[Mode::OpenClose, Mode::Batch], &[4], 10));
    for cell in &cells {
        assert_eq!(cell.error, None);
        assert_eq!(figure(cell, "decisions"), 40.0);
        let shares = [1, 2].map(|number| figure(cell, &format!("decisions_server_{number}")));
        assert_eq!(shares, [20.0, 20.0], "a client takes each in turn");
    }
}

#[test]
fn a_server_that_does_not_start_or_has_died_is_a_failed_cell_and_the_run_goes_on() {
    let cases = quick(&[Place::Served, Place::Embedded], &[Mode::Batch], &[1, 2], 3);
    let (folder, sink) = (tempfile::tempdir().unwrap(), sink());
    let mut told = Vec::new();
    // Port 1 of this machine: nobody listens.
    let mut dead = |case: &Case, _: &Path| match case.clients {
        1 => nobody(case, Path::new("")),
        _ => Ok(Server { address: "127.0.0.1:1".parse().unwrap(), admin: None, process: None, guard: Box::new(()) }),
    };
    tx::run(&folder.path().join("cell"), &Rules::default(), &cases, &mut dead, &sink, &mut || Ok(()), |progress| {
        if let Some(cell) = progress.ended {
            told.push((progress.done, progress.of, cell.error.is_some()));
        }
    })
    .unwrap();
    assert_eq!(told, [(1, 4, true), (2, 4, true), (3, 4, false), (4, 4, false)]);
    let cells = sink.report().cells;
    let errors: Vec<_> = cells.iter().map(|cell| cell.error.clone().unwrap_or_default()).collect();
    assert!(errors[0].contains("nobody serves here") && errors[1].contains("127.0.0.1:1"), "{errors:?}");
    assert!(cells[0].figures.is_empty() && figure(&cells[2], "transactions") == 3.0);
}

#[test]
fn whoever_stops_a_run_keeps_the_cells_that_have_ended() {
    let cases = quick(&[Place::Embedded], &[Mode::Batch], &[1, 2, 3], 2);
    let (folder, sink) = (tempfile::tempdir().unwrap(), sink());
    tx::run(&folder.path().join("cell"), &Rules::default(), &cases, &mut nobody, &sink, &mut || Ok(()), |progress| {
        if progress.done == 1 {
            sink.interrupt();
        }
    })
    .unwrap();
    let cells = sink.report().cells;
    assert_eq!(cells.len(), 1);
    assert_eq!(cells[0].error, None);
}

#[test]
fn an_open_loop_counts_from_the_time_a_transaction_was_meant_to_begin() {
    // Far more than anything can take: each waits behind those before it.
    let rules = Rules { rate: Some(1e9), ..Rules::default() };
    let cells = raced(&rules, &quick(&[Place::Embedded], &[Mode::OpenClose], &[1], 50));
    let calls: f64 =
        ["open", "begin", "commit", "close"].iter().map(|it| figure(&cells[0], &format!("{it}_mean_us"))).sum();
    assert_eq!(figure(&cells[0], "total_samples"), 50.0);
    assert!(figure(&cells[0], "total_mean_us") > 5.0 * calls, "{:?}", cells[0]);
}

#[test]
fn rounds_are_pooled_in_one_cell() {
    let rules = Rules { rounds: 3, ..Rules::default() };
    let cells = raced(&rules, &quick(&[Place::Embedded], &[Mode::Batch], &[2], 4));
    assert_eq!(cells.len(), 1);
    assert_eq!((figure(&cells[0], "transactions"), figure(&cells[0], "decisions")), (24.0, 24.0));
}

#[test]
fn a_round_that_failed_is_told_in_the_cell_of_a_later_one_that_went_well() {
    let rules = Rules { rounds: 2, ..Rules::default() };
    let cases = quick(&[Place::Embedded], &[Mode::Batch], &[2], 4);
    let raced = |fails: u32| {
        let (folder, sink) = (tempfile::tempdir().unwrap(), sink());
        let (place, mut told, mut round) = (folder.path().join("place"), Vec::new(), 0);
        let cell = place.join("cell");
        // A way that leads nowhere fails that round alone.
        let mut spoil = || {
            round += 1;
            // A link goes like a folder, and what it leads to stays.
            _ = std::fs::remove_dir_all(&place);
            if round == fails {
                std::os::unix::fs::symlink("nowhere/at/all", &place).unwrap();
            }
            Ok(())
        };
        tx::run(&cell, &rules, &cases, &mut nobody, &sink, &mut spoil, |progress| {
            told.extend(progress.ended.map(|cell| cell.error.clone().unwrap_or_default()));
        })
        .unwrap();
        let mut cells = sink.report().cells;
        assert_eq!(cells.len(), 1);
        (told, cells.remove(0))
    };
    let (told, cell) = raced(1);
    assert!(told[0].starts_with("round 1: cleaning "), "{told:?}");
    assert_eq!((&told[1], cell.error.as_ref()), (&told[0], Some(&told[0])), "the second round does not hide the first");
    assert!(cell.figures.is_empty(), "what went well would hide it: {:?}", cell.figures);
    let (told, cell) = raced(2);
    assert!(told[0].is_empty() && told[1].starts_with("round 2: cleaning "), "{told:?}");
    assert!(cell.error.as_ref() == Some(&told[1]) && cell.figures.is_empty(), "{cell:?}");
    let (_, cell) = raced(9);
    assert_eq!((cell.error.as_ref(), figure(&cell, "transactions")), (None, 16.0));
}

#[test]
fn what_an_embedded_coordinator_has_not_synced_is_looked_at_where_that_may_be() {
    let given = Given {
        engines: vec![Engine::Table, Engine::Journal],
        rpos: vec!["0/60000".parse().unwrap(), "0/0".parse().unwrap()],
        workloads: Workload::named("none").into_iter().collect(),
        cycles: Some(20),
        places: vec![Place::Embedded],
        clients: vec![2],
        ..Given::default()
    };
    for cell in raced(&Rules::default(), &cases(None, &given)) {
        assert_eq!((cell.error.clone(), figure(&cell, "decisions")), (None, 40.0), "{:?}", cell.labels);
        if cell.labels["rpo"] == "0/0" {
            // Nobody looks where nothing may be: not a zero that was seen.
            let told: Vec<_> = cell.figures.keys().filter(|name| name.starts_with("unsynced")).collect();
            assert!(told.is_empty(), "{told:?} {:?}", cell.labels);
        } else {
            let (most, mean) = (figure(&cell, "unsynced"), figure(&cell, "unsynced_mean"));
            assert!((1.0..=40.0).contains(&most) && mean > 0.0, "{most} {mean} {:?}", cell.labels);
        }
    }
}

#[test]
fn one_transaction_is_traced_step_by_step() {
    let folder = tempfile::tempdir().unwrap();
    let cases = quick(&[Place::Embedded], &[Mode::OpenClose], &[9], 9);
    let steps = tx::once(&folder.path().join("cell"), &Rules::default(), &cases[0], &mut nobody).unwrap();
    let what: Vec<&str> = steps.iter().map(|step| step.what.as_str()).collect();
    let verbs: Vec<&str> = what.iter().copied().filter(|what| what.starts_with("bench-2 <- ")).collect();
    assert_eq!(verbs, ["bench-2 <- xa_start", "bench-2 <- xa_end", "bench-2 <- xa_prepare", "bench-2 <- xa_commit"]);
    let calls: Vec<&str> = steps.iter().filter(|step| step.took_us.is_some()).map(|step| step.what.as_str()).collect();
    assert_eq!(calls, ["open", "begin", "commit", "close"]);
}

#[test]
fn every_figure_that_a_chart_draws_is_in_the_cells() {
    let cases = quick(&[Place::Embedded], &[Mode::OpenClose, Mode::Batch], &[1, 2], 3);
    for rules in [Rules::default(), Rules { commit: false, ..Rules::default() }] {
        let charts = tx::charts::of(&cases, &rules);
        for cell in raced(&rules, &cases) {
            for chart in &charts {
                let missing = chart.y.iter().find(|figure| !cell.figures.contains_key(*figure));
                assert_eq!(missing, None, "{}", chart.title);
            }
        }
    }
}
