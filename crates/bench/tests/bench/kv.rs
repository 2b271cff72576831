//! The race of stores in small: every workload over the floor and over our store, counted; and stores that lie are caught.

use assent_bench::BenchError;
use assent_bench::host::Host;
use assent_bench::kv::keys;
use assent_bench::kv::race::{Plan, Progress, Runner, check, run};
use assent_bench::kv::scenario::{Case, Given, SCENARIOS, Scenario};
use assent_bench::kv::store::{Each, Member, Named, Setup, Store, Write};
use assent_bench::kv::{charts, contract, floor, members, ours};
use assent_bench::report::pool::merge;
use assent_bench::report::sink::{Outputs, Sink};
use assent_bench::report::{Cell, ChartKind, Report, html};

fn sink() -> Sink {
    Sink::new(Report::new("kv", "a test", String::new(), Host::default()), Outputs::default()).unwrap()
}

/// A few operations of few clients over few small values.
fn small(scenarios: &[Scenario]) -> Given {
    Given {
        scenarios: scenarios.to_vec(),
        clients: vec![3],
        keys: 60,
        value_bytes: 300,
        operations: Some(40),
        segment_bytes: 1 << 20,
        ..Given::default()
    }
}

fn raced_with(members: &[Member], cases: &[Case], rounds: u32, progress: impl FnMut(&Progress<'_>)) -> Report {
    let (folder, sink) = (tempfile::tempdir().unwrap(), sink());
    let stores: Vec<Named> = members.iter().map(Named::from).collect();
    sink.draw(charts::of(cases));
    let plan = Plan {
        folder: &folder.path().join("cell"),
        cases,
        stores: &stores,
        rounds,
        memory_bytes: Some(1 << 30),
        loads: None,
        runner: Runner::Here(members),
    };
    run(&plan, &sink, progress).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the space is given back");
    sink.report()
}

fn raced(members: &[Member], cases: &[Case]) -> Vec<Cell> {
    raced_with(members, cases, 1, |_| {}).cells
}

fn figure(cell: &Cell, name: &str) -> f64 {
    *cell.figures.get(name).unwrap_or_else(|| panic!("{name} of {cell:?}"))
}

#[test]
fn every_workload_runs_over_every_store_that_can_and_says_not_built_over_the_others() {
    let all: Vec<Scenario> = SCENARIOS.iter().map(|(_, scenario)| *scenario).collect();
    let cases = Given { disk_iops: 20_000.0, ..small(&all) }.cases();
    let cells = raced(&members(), &cases);
    assert_eq!(cells.len(), cases.len() * 2);
    for cell in &cells {
        let (store, scenario) = (cell.labels["store"].as_str(), cell.labels["scenario"].as_str());
        let lacks: &[&str] = match store {
            "assent" => &[],
            _ => &["kv-index", "kv-compact"],
        };
        if lacks.contains(&scenario) {
            let error = cell.error.clone().unwrap_or_default();
            assert!(error.starts_with("not built: ") && cell.figures.is_empty(), "{store} {scenario}: {error}");
            continue;
        }
        assert_eq!(cell.error, None, "{store} {scenario}");
        assert!(figure(cell, "space_mb") >= 0.0 && figure(cell, "audited_keys") >= 60.0);
        if scenario == "memory-open" {
            assert_eq!(figure(cell, "open_samples"), 5.0);
            continue;
        }
        let clients: f64 = cell.labels["clients"].parse().unwrap();
        let counted = if scenario == "memory-batch" { 16.0 } else { 1.0 };
        assert_eq!(figure(cell, "operations"), clients * 40.0 * counted, "{store} {scenario}");
        assert_eq!(cell.series["ops_per_s"].len(), 1, "{store} {scenario}: shorter than a second");
    }
}

#[test]
fn an_update_is_a_get_and_a_put_and_a_read_of_copies_is_two_heads_and_a_get() {
    let cells = raced(&[floor::member()], &small(&[Scenario::KvNosync, Scenario::KvHead, Scenario::KvHeadput]).cases());
    let samples = |cell: &Cell, call: &str| cell.figures.get(&format!("{call}_samples")).copied().unwrap_or(0.0);
    let [nosync, head, _, headput] = cells.as_slice() else { panic!("{}", cells.len()) };
    let updates = samples(nosync, "update");
    assert!((5.0..50.0).contains(&updates), "a sixth of 120: {updates}");
    assert_eq!((samples(nosync, "get"), samples(nosync, "put")), (120.0, updates));
    for (cell, gets, heads) in [(head, 3.0, 0.0), (headput, 1.0, 2.0)] {
        let (reads, updates) = (samples(cell, "read"), samples(cell, "update"));
        assert_eq!(reads + updates, 120.0);
        assert_eq!(samples(cell, "head"), reads * 2.0 + updates * heads);
        assert_eq!(samples(cell, "get"), reads + updates * gets);
        assert_eq!(samples(cell, "put"), updates * 3.0);
    }
}

#[test]
fn an_empty_store_finds_nothing_at_first_and_a_loaded_one_everything() {
    let empty = raced(&members(), &small(&[Scenario::KvNosync]).cases());
    let loaded = raced(&members(), &Given { preload: true, ..small(&[Scenario::KvNosync]) }.cases());
    for (empty, loaded) in empty.iter().zip(&loaded) {
        assert!(figure(empty, "not_found_percent") > 0.0);
        assert_eq!(figure(loaded, "not_found_percent"), 0.0);
        assert!(figure(loaded, "live_mb") > figure(empty, "live_mb") && figure(loaded, "preload_per_s") > 0.0);
        assert!(figure(loaded, "user_written_mb") > 0.0);
    }
}

#[test]
fn eight_stores_have_keys_of_their_own_and_folds_see_all_of_one() {
    let given = Given { preload: true, operations: Some(400), ..small(&[Scenario::KvParallel, Scenario::KvScan]) };
    for cell in raced(&members(), &given.cases()) {
        assert_eq!(cell.error, None, "{:?}", cell.labels);
        if cell.labels["scenario"] == "kv-scan" {
            assert!(figure(&cell, "folds") >= 0.0 && figure(&cell, "fold_rows_per_s") > 0.0);
        }
    }
}

#[test]
fn an_open_loop_counts_what_never_began() {
    // Far more than any store can take in a moment, and then the time is over.
    let given = Given { operations: None, duration_ms: 30, rate: Some(1e7), ..small(&[Scenario::KvNosync]) };
    for cell in raced(&members(), &given.cases()) {
        let (done, never) = (figure(&cell, "operations"), figure(&cell, "never_begun"));
        assert_eq!(done + never, 300_000.0, "every operation of 30 ms is done or owned up to: {done} {never}");
    }
}

#[test]
fn rounds_are_pooled_in_one_cell_and_the_stores_take_turns() {
    let mut order = Vec::new();
    let report = raced_with(&members(), &small(&[Scenario::KvNosync]).cases(), 2, |progress| {
        if progress.ended.is_none() {
            order.push(progress.labels["store"].clone());
        }
    });
    assert_eq!(order, ["assent", "floor", "floor", "assent"]);
    assert_eq!(report.cells.len(), 2);
    for cell in &report.cells {
        assert_eq!(figure(cell, "get_samples"), 240.0, "of both rounds");
        assert!(figure(cell, "ops_per_s_least_round") <= figure(cell, "ops_per_s_best_round"));
    }
}

/// Figures that neither time nor the machine change. Not the PUTs: a key that another client writes just then is drawn again.
fn counted(report: &Report) -> Vec<(String, Vec<f64>)> {
    let counted = |cell: &Cell| {
        let names = ["operations", "get_samples", "rounds", "get_windows_10s", "audited_keys"];
        names.map(|name| cell.figures.get(name).copied().unwrap_or(0.0)).to_vec()
    };
    report.cells.iter().map(|cell| (cell.labels.get("store").cloned().unwrap_or_default(), counted(cell))).collect()
}

#[test]
fn a_race_that_was_stopped_is_gone_on_with_and_says_what_one_that_was_not_would_have_said() {
    let (folder, sink, all) = (tempfile::tempdir().unwrap(), sink(), members());
    let stores: Vec<Named> = all.iter().map(Named::from).collect();
    let cases = small(&[Scenario::KvNosync]).cases();
    let raced = |sink: &Sink, cases: &[Case], stop_behind: usize| {
        let mut told = Vec::new();
        let folder = folder.path().join("cell");
        let runner = Runner::Here(&all);
        let plan = Plan { folder: &folder, cases, stores: &stores, rounds: 3, memory_bytes: None, loads: None, runner };
        let ran = run(&plan, sink, |progress| {
            if progress.ended.is_some() {
                told.push((progress.done, progress.of));
                if progress.done == stop_behind {
                    sink.interrupt();
                }
            }
        });
        (told, ran.map_err(|error| error.message))
    };
    assert_eq!(raced(&sink, &cases, 3), (vec![(1, 6), (2, 6), (3, 6)], Ok(())));
    // Another process reads what is on the disk.
    let kept = Report::from_json(&serde_json::to_string(&sink.report()).unwrap()).unwrap();
    let again = Sink::new(kept, Outputs::default()).unwrap();
    let others = Given { value_bytes: 301, ..small(&[Scenario::KvNosync]) }.cases();
    let (_, refused) = raced(&again, &others, 9);
    assert!(refused.unwrap_err().ends_with("run with different settings: value bytes is 300 and 301"));
    assert_eq!(raced(&again, &cases, 9), (vec![(4, 6), (5, 6), (6, 6)], Ok(())));
    assert_eq!(raced(&again, &cases, 9), (vec![], Ok(())), "nothing is left");
    // Else what was run in another way would pass for what was asked for.
    let (told, refused) = raced(&again, &others, 9);
    assert!(told.is_empty() && refused.unwrap_err().ends_with("value bytes is 300 and 301"), "nor is anything left");
    let whole = raced_with(&all, &cases, 3, |_| {});
    assert_eq!(counted(&again.report()), counted(&whole));
    assert_eq!(again.report().cells[0].rounds.len(), 3);
}

#[test]
fn a_cell_that_failed_is_not_run_again_and_fails_the_whole() {
    let cases = small(&[Scenario::KvCompact]).cases();
    let mut runs = 0;
    let report = raced_with(&[floor::member()], &cases, 3, |progress| runs += u32::from(progress.ended.is_none()));
    assert_eq!((runs, report.cells.len()), (1, 1));
    assert!(report.cells[0].error.as_deref().unwrap().starts_with("not built"));
    // Nor with other settings: what failed with these need not fail with those.
    let others = Given { value_bytes: 301, ..small(&[Scenario::KvCompact]) }.cases();
    let (stores, runner) = ([Named::from(&floor::member())], Runner::Here(&[]));
    let folder = std::path::Path::new("nowhere");
    let plan = |cases| {
        check(
            &Plan {
                folder,
                cases,
                stores: &stores,
                rounds: 3,
                memory_bytes: None,
                loads: None,
                runner: runner.clone(),
            },
            &report,
        )
    };
    assert!(plan(&cases).is_ok());
    assert!(plan(&others).unwrap_err().message.ends_with("value bytes is 300 and 301"));
}

#[test]
fn what_is_loaded_once_is_what_each_cell_begins_with() {
    let (folder, all) = (tempfile::tempdir().unwrap(), members());
    let stores: Vec<Named> = all.iter().map(Named::from).collect();
    let given = Given { preload: true, clients: vec![2, 3], ..small(&[Scenario::KvNosync, Scenario::KvHead]) };
    let (cell, loads) = (folder.path().join("cell"), folder.path().join("loads"));
    let mut names = Vec::new();
    for round in 0..2 {
        let sink = sink();
        let (cases, runner) = (given.cases(), Runner::Here(&all));
        let (rounds, loads) = (2, Some(&*loads));
        let plan = Plan { folder: &cell, cases: &cases, stores: &stores, rounds, memory_bytes: None, loads, runner };
        run(&plan, &sink, |_| {}).unwrap();
        let report = sink.report();
        assert_eq!(report.cells.len(), cases.len() * 2);
        for cell in &report.cells {
            assert_eq!(
                (cell.error.as_deref(), cell.settings["loaded"].as_str()),
                (None, "a copy"),
                "{:?}",
                cell.labels
            );
            // The value of every key is found and audited, though another process wrote it.
            assert_eq!((figure(cell, "not_found_percent"), figure(cell, "audited_keys") >= 60.0), (0.0, true));
            assert!(figure(cell, "preload_per_s") > 0.0);
        }
        let mut now: Vec<_> =
            std::fs::read_dir(folder.path().join("loads")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        now.sort();
        assert!(round == 0 || now == names, "the second race loads nothing");
        names = now;
    }
    assert_eq!(names.len(), 5, "two stores, once with three of each, and the lock: {names:?}");
    // A disk that fails the race is no store's failure, which would never be tried again.
    for name in names.iter().filter(|name| *name != "lock") {
        let kept = loads.join(name);
        std::fs::remove_dir_all(kept.join("store-0")).unwrap();
        std::os::unix::fs::symlink("nowhere", kept.join("store-0")).unwrap();
    }
    let (sink, cases, runner) = (sink(), given.cases(), Runner::Here(&all));
    let plan = Plan {
        folder: &cell,
        cases: &cases,
        stores: &stores,
        rounds: 2,
        memory_bytes: None,
        loads: Some(&loads),
        runner,
    };
    assert!(run(&plan, &sink, |_| {}).is_err() && sink.report().cells.is_empty());
}

#[test]
fn several_runs_are_put_together_and_what_is_not_of_one_kind_is_refused() {
    let raced = |given: &Given, date: &str| {
        let mut report = raced_with(&members(), &given.cases(), 1, |_| {});
        (report.host.date, report.complete) = (date.to_owned(), true);
        report
    };
    let given = small(&[Scenario::KvNosync]);
    let (one, two) = (raced(&given, "Monday"), raced(&Given { seed: 2, ..given.clone() }, "Tuesday"));
    let all = merge(&[one.clone(), two.clone()]).unwrap();
    let twice = raced_with(&members(), &given.cases(), 2, |_| {});
    assert!(
        all.complete && all.notes[0].contains("2 reports of this machine, begun Monday, Tuesday"),
        "{:?}",
        all.notes
    );
    let samples = |report: &Report| figure(&report.cells[0], "get_samples");
    assert_eq!((samples(&all), all.cells.len(), all.charts.len()), (samples(&twice), 2, one.charts.len()));
    // Cells that only one has stand beside the others.
    let sync = raced(&small(&[Scenario::KvSync]), "Wednesday");
    assert_eq!(merge(&[one.clone(), sync]).unwrap().cells.len(), 4);
    let refused = |other: &Report| merge(&[one.clone(), other.clone()]).unwrap_err().message;
    assert!(
        refused(&raced(&Given { operations: Some(41), ..given }, "Friday"))
            .ends_with("lasts is 40 a client and 41 a client")
    );
    assert_eq!(refused(&one), "the report of Monday is given twice");
    let mut other = two.clone();
    other.host.cpu = "another".to_owned();
    assert!(refused(&other).contains("different machines") && refused(&other).contains("processor:  | another"));
    let mut other = two.clone();
    other.cells.iter_mut().for_each(|cell| cell.settings.clear());
    assert!(refused(&other).ends_with("does not say with which settings"));
    let other = Report { scenario: "tx".to_owned(), ..two };
    assert!(refused(&other).starts_with("one report is of kv, another of tx"));
}

#[test]
fn whoever_stops_a_run_keeps_the_cells_that_have_ended() {
    let (folder, sink) = (tempfile::tempdir().unwrap(), sink());
    let (all, cases) = (members(), small(&[Scenario::KvNosync, Scenario::KvSync]).cases());
    let stores: Vec<Named> = all.iter().map(Named::from).collect();
    let plan = Plan {
        folder: &folder.path().join("cell"),
        cases: &cases,
        stores: &stores,
        rounds: 1,
        memory_bytes: None,
        loads: None,
        runner: Runner::Here(&all),
    };
    run(&plan, &sink, |progress| {
        if progress.done == 1 && progress.ended.is_some() {
            sink.interrupt();
        }
    })
    .unwrap();
    assert_eq!(sink.report().cells.len(), 1);
}

#[test]
fn every_figure_and_series_that_a_chart_draws_is_in_the_cells_and_the_page_shows_them() {
    let scenarios =
        [Scenario::KvSync, Scenario::KvScan, Scenario::MemoryGet, Scenario::MemoryPut, Scenario::MemoryOpen];
    let mut report = raced_with(&members(), &small(&scenarios).cases(), 1, |_| {});
    for chart in &report.charts {
        for cell in report
            .cells
            .iter()
            .filter(|cell| chart.only.iter().all(|(name, values)| values.contains(&cell.labels[name])))
        {
            let has = |y: &String| match chart.kind {
                ChartKind::Series => cell.series.contains_key(y),
                _ => cell.figures.contains_key(y),
            };
            // Bytes to disk are the kernel's to tell.
            let missing = chart.y.iter().find(|y| !has(y) && *y != "write_amplification");
            assert_eq!(missing, None, "{} {:?}", chart.title, cell.labels);
            let is_warmed = cell.figures.contains_key("first_looks_per_s");
            assert_eq!(is_warmed, cell.labels["scenario"] == "memory-get", "{:?}", cell.labels);
        }
    }
    report.complete = true;
    let page = html::lay(&report).unwrap();
    assert!(page.contains("Operations per second over time: kv-sync") && page.contains(">floor<"));
    let again = Report::from_json(&serde_json::to_string(&report).unwrap()).unwrap();
    let points = |report: &Report| {
        report.cells.iter().map(|cell| cell.series.values().map(Vec::len).sum()).collect::<Vec<usize>>()
    };
    assert_eq!((again.cells.len(), points(&again)), (report.cells.len(), points(&report)));
}

#[test]
fn members_keep_the_promises_of_the_trait() {
    for member in members() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(contract::check(&member, folder.path()).err().map(|error| error.message), None, "{}", member.name);
    }
}

/// A floor that lies in one way.
struct Liar {
    store: Box<dyn Store>,
    lie: Lie,
    writes: std::sync::atomic::AtomicU64,
}

#[derive(Clone, Copy, PartialEq)]
enum Lie {
    /// Says that it wrote, now and then, and did not.
    Loses,
    /// Flips a bit of what it reads.
    Damages,
    /// Answers with another key's value.
    Confuses,
    /// Forgets a key when it is closed.
    Forgets,
    /// Leaves index entries where they are that it was told to delete.
    KeepsEntries,
    /// That, and does not write those that stand in their places: as many entries as there should be, of other terms.
    KeepsOldEntries,
}

impl Lie {
    /// Whether it does not do what it was told of an index.
    fn skips(self, write: &Write<'_>, all: &[Write<'_>]) -> bool {
        let is_entry = |key: &[u8]| key.len() == keys::ENTRY_BYTES;
        let deletes = all.iter().any(|write| matches!(write, Write::Delete(key) if is_entry(key)));
        match write {
            Write::Delete(key) => matches!(self, Self::KeepsEntries | Self::KeepsOldEntries) && is_entry(key),
            Write::Put(key, _) => self == Self::KeepsOldEntries && is_entry(key) && deletes,
        }
    }
}

impl Store for Liar {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
        let other = keys::object(0);
        let found = self.store.get(if self.lie == Lie::Confuses { &other } else { key }, value)?;
        if self.lie == Lie::Damages && found {
            *value.last_mut().unwrap() ^= 1;
        }
        Ok(found)
    }

    fn head(&self, key: &[u8], head: &mut Vec<u8>) -> Result<bool, BenchError> {
        self.store.head(key, head)
    }

    fn write(&self, writes: &[Write<'_>], sync: bool) -> Result<(), BenchError> {
        let number = self.writes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let done: Vec<Write<'_>> = writes.iter().copied().filter(|write| !self.lie.skips(write, writes)).collect();
        if self.lie == Lie::Loses && number % 7 == 6 { Ok(()) } else { self.store.write(&done, sync) }
    }

    fn fold(&self, from: &[u8], to: &[u8], each: &mut Each<'_>) -> Result<(), BenchError> {
        self.store.fold(from, to, each)
    }

    fn flush(&self) -> Result<(), BenchError> {
        self.store.flush()
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        if self.lie == Lie::Forgets {
            self.store.write(&[Write::Delete(&keys::object(5))], true)?;
        }
        self.store.close()
    }
}

fn lying(setup: &Setup, lie: Lie) -> Result<Box<dyn Store>, BenchError> {
    Ok(Box::new(Liar { store: (floor::member().open)(setup)?, lie, writes: 0.into() }))
}

#[test]
fn a_store_that_loses_damages_confuses_or_forgets_is_a_failed_cell() {
    let liar = |open| Member { name: "liar", about: String::new(), lacks: Vec::new(), open };
    let liars = [
        (liar(|setup| lying(setup, Lie::Loses)), "was acknowledged"),
        (liar(|setup| lying(setup, Lie::Damages)), "body's checksum"),
        (liar(|setup| lying(setup, Lie::Confuses)), "it is the value of key 0"),
        (liar(|setup| lying(setup, Lie::Forgets)), "opened again, key 5: version"),
    ];
    for (member, expected) in liars {
        let cells =
            raced(std::slice::from_ref(&member), &Given { preload: true, ..small(&[Scenario::KvNosync]) }.cases());
        let error = cells[0].error.clone().unwrap_or_default();
        assert!(error.contains(expected), "{expected}: {error}");
        let folder = tempfile::tempdir().unwrap();
        assert!(contract::check(&member, folder.path()).is_err(), "{expected}");
    }
    let honest = raced(&[floor::member()], &Given { preload: true, ..small(&[Scenario::KvNosync]) }.cases());
    assert_eq!(honest[0].error, None);
}

#[test]
fn a_store_that_keeps_index_entries_or_has_wrong_ones_is_a_failed_cell_however_few_keys_are_audited() {
    fn open(setup: &Setup, lie: Lie) -> Result<Box<dyn Store>, BenchError> {
        Ok(Box::new(Liar { store: (ours::member().open)(setup)?, lie, writes: 0.into() }))
    }
    let liar = |open| Member { name: "liar", about: String::new(), lacks: Vec::new(), open };
    let liars = [liar(|setup| open(setup, Lie::KeepsEntries)), liar(|setup| open(setup, Lie::KeepsOldEntries))];
    for audit_keys in [7, 100_000] {
        let given = Given { operations: Some(300), audit_keys, ..small(&[Scenario::KvIndex]) };
        for (number, member) in liars.iter().enumerate() {
            let cells = raced(std::slice::from_ref(member), &given.cases());
            let error = cells[0].error.clone().unwrap_or_default();
            assert!(error.contains("index entry"), "liar {number}, {audit_keys} keys: {error:?}");
        }
        let honest = raced(&[ours::member()], &given.cases());
        assert_eq!(honest[0].error, None);
        assert!(figure(&honest[0], "index_rows") > 0.0);
    }
}

#[test]
fn index_entries_are_audited_and_an_unknown_store_is_a_failed_cell() {
    let given = Given { operations: Some(300), ..small(&[Scenario::KvIndex]) };
    let cells = raced(&[ours::member()], &given.cases());
    assert_eq!(cells[0].error, None);
    assert!(figure(&cells[0], "query_samples") > 0.0 && figure(&cells[0], "index_rows") > 0.0);
    let (folder, sink) = (tempfile::tempdir().unwrap(), sink());
    let stores = [Named { name: "nobody".to_owned(), about: String::new() }];
    let cases = small(&[Scenario::KvSync]).cases();
    let plan = Plan {
        folder: &folder.path().join("cell"),
        cases: &cases,
        stores: &stores,
        rounds: 1,
        memory_bytes: None,
        loads: None,
        runner: Runner::Here(&[]),
    };
    run(&plan, &sink, |_| {}).unwrap();
    assert!(sink.report().cells[0].error.as_deref().unwrap().contains("nobody"));
}
