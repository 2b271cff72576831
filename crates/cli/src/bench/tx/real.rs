//! The race over real branches, as cells: for each setting of the server a run of [`assent_bench::real`], floors included.

use std::path::Path;
use std::time::Duration;

use assent_bench::proxy::Delay;
use assent_bench::real::{self, Figures, Options, Way, Workload};
use assent_bench::report::{Cell, ChartKind, ChartSpec};
use assent_bench::tx::axes::{Case, Engine, Place, Rpo};
use assent_kind::Kind;

use super::super::keep::Kept;
use super::super::options::Databases;
use super::super::real::stores;
use super::super::server::{Server, address};
use super::{BenchTx, settings};
use crate::bench::bar;
use crate::failure::Failure;

const ROUNDS: u32 = 7;
const SLICE: Duration = Duration::from_secs(1);

/// One setting of the coordinator, and the client counts it is raced with.
struct Group<'c> {
    case: &'c Case,
    served: bool,
    embedded: bool,
    clients: Vec<u32>,
}

/// Runs every group; one that fails is cells with its error.
pub(super) fn race(arguments: &BenchTx, cases: &[Case], folder: &Path, kept: &Kept) -> Result<(), Failure> {
    let databases = arguments.databases()?;
    kept.sink().draw(charts());
    kept.sink()
        .note("Real branches are raced in slices of a second, without think time; the two floors are in the ways.");
    for group in groups(cases) {
        if kept.sink().interrupted() {
            return Ok(());
        }
        let cells = match run(arguments, &databases, &group, folder) {
            Ok(figures) => figures.iter().map(|row| cell(row, group.case)).collect(),
            Err(failure) => failed(&group, &failure),
        };
        _ = std::fs::remove_dir_all(folder);
        cells.into_iter().try_for_each(|cell| kept.sink().put(cell))?;
    }
    Ok(())
}

/// The embedded coordinator has the one setting that [`real`] gives it.
fn groups(cases: &[Case]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for case in cases {
        let same = |group: &&mut Group<'_>| {
            (group.case.engine, group.case.rpo, group.case.threads) == (case.engine, case.rpo, case.threads)
        };
        let served = case.place == Place::Served;
        let embedded = !served && case.engine == Engine::Journal && case.rpo == Rpo::default();
        match groups.iter_mut().find(same) {
            Some(group) => {
                group.served |= served;
                group.embedded |= embedded;
                if !group.clients.contains(&case.clients) {
                    group.clients.push(case.clients);
                }
            }
            None if served || embedded => groups.push(Group { case, served, embedded, clients: vec![case.clients] }),
            None => {}
        }
    }
    groups
}

fn run(
    arguments: &BenchTx,
    databases: &assent_bench::databases::Databases,
    group: &Group<'_>,
    folder: &Path,
) -> Result<Vec<Figures>, Failure> {
    std::fs::create_dir_all(folder).map_err(|error| Failure::io("make", folder.display(), &error))?;
    let named = Databases { postgres: databases.postgres.clone(), mariadb: databases.mariadb.clone() };
    let server = match (&arguments.server, group.served) {
        (Some(text), true) => Some(Server::Given(address("--server", text)?)),
        (None, true) => Some(Server::start_as(folder, &stores(&named), &settings(group.case))?),
        (_, false) => None,
    };
    let options = Options {
        databases: databases.clone(),
        threads: group.clients.clone(),
        rounds: arguments.rounds.unwrap_or(ROUNDS),
        slice: SLICE,
        workloads: vec![Workload::BothWrite],
        delay: Delay::default(),
        embedded: group.embedded,
        served: server.as_ref().map(|server| server.address().clone()),
    };
    let progress = bar(0, "slices");
    let outcome = real::run(folder, &options, |done, of| {
        progress.set_length(of);
        progress.set_position(done);
    });
    progress.finish_and_clear();
    Ok(outcome?.figures)
}

const fn name(way: Way) -> &'static str {
    match way {
        Way::Plain => "two plain commits",
        Way::ByHand => "XA by hand",
        Way::Embedded => "embedded",
        Way::EmbeddedLast => "embedded, last resource",
        Way::EmbeddedReader => "embedded, told it reads",
        Way::Served => "served",
        Way::ServedLast => "served, last resource",
        Way::ServedReader => "served, told it reads",
    }
}

fn labels(case: &Case, way: &str, clients: u32) -> Cell {
    let Case { engine, rpo, threads, .. } = case;
    Cell::new([
        ("way", way.to_owned()),
        ("branches", "real".to_owned()),
        ("engine", engine.to_string()),
        ("rpo", rpo.to_string()),
        ("threads", threads.to_string()),
        ("clients", clients.to_string()),
    ])
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
fn cell(row: &Figures, case: &Case) -> Cell {
    let mut cell = labels(case, name(row.way), row.threads);
    let mut put = |name: String, value: f64| _ = cell.figures.insert(name, value);
    put("tps".into(), row.tps);
    put("transactions".into(), row.transactions as f64);
    put("tps_ratio_to_plain".into(), row.ratio_to_plain);
    put("tps_ratio_to_by_hand".into(), row.ratio_to_by_hand);
    put("cpu_client_us_per_tx".into(), row.cpu_us_per_tx);
    for (name, value) in row.latency_us.named() {
        put(if name == "samples" { "total_samples".to_owned() } else { format!("total_{name}_us") }, value);
    }
    let syncs = [
        ("postgres_syncs_per_tx", row.postgres_syncs_per_tx),
        ("mariadb_syncs_per_tx", row.mariadb_syncs_per_tx),
        ("disk_syncs_per_tx", row.journal_syncs_per_tx),
    ];
    for (name, value) in syncs {
        if let Some(value) = value {
            put(name.to_owned(), value);
        }
    }
    cell
}

/// The cells that would have come.
fn failed(group: &Group<'_>, failure: &Failure) -> Vec<Cell> {
    let ways = [(group.served, Way::Served), (group.embedded, Way::Embedded)];
    let ways: Vec<Way> = ways.into_iter().filter_map(|(raced, way)| raced.then_some(way)).collect();
    let error = format!("{} ({})", failure.message, Kind::name(failure.kind));
    let cell =
        |way: &Way, clients: &u32| Cell { error: Some(error.clone()), ..labels(group.case, name(*way), *clients) };
    ways.iter().flat_map(|way| group.clients.iter().map(move |clients| cell(way, clients))).collect()
}

/// Tps and latency over the clients, and one against the other; a line a way and setting.
fn charts() -> Vec<ChartSpec> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let lines = |title: &str, y: &[&str], y_title: &str| ChartSpec {
        title: title.to_owned(),
        kind: ChartKind::Lines,
        x: "clients".to_owned(),
        along: "clients".to_owned(),
        y: names(y),
        series: names(&["way"]),
        only: std::collections::BTreeMap::new(),
        x_title: "client threads".to_owned(),
        y_title: y_title.to_owned(),
        x_log: false,
        y_log: false,
    };
    let tps =
        lines("Transactions per second, one row in PostgreSQL and one in MariaDB", &["tps"], "transactions per second");
    let latency = lines("Begin to commit, work included, 95 %", &["total_p95_us"], "microseconds");
    let curve = ChartSpec {
        title: "Characteristic curves over real branches".to_owned(),
        kind: ChartKind::Curve,
        x: "tps".to_owned(),
        x_title: "transactions per second".to_owned(),
        y_title: "begin to commit, 95 %, microseconds".to_owned(),
        ..latency.clone()
    };
    vec![tps, latency, curve]
}
