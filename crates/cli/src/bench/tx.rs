//! `assent bench tx`: which cells to run, a server for those that need one, and the table.

use assent_bench::tx::{self, Cell, Figures, Options, Outcome, Place, Sleep};

use super::server::{Server, Store, address};
use super::{Folder, bar, print_json, table};
use crate::args::{BenchTx, Branches, Coordinator};
use crate::failure::Failure;

/// Runs the command.
pub(super) fn run(arguments: &BenchTx, json: bool) -> Result<(), Failure> {
    let folder = Folder::new(arguments.folder.as_deref())?;
    let options = options(arguments);
    let served = arguments.server.is_some() || arguments.coordinator != Some(Coordinator::Embedded);
    let server = match (&arguments.server, served) {
        (Some(text), _) => Some(Server::Given(address("--server", text)?)),
        (None, true) => {
            // Dummies answer in the client's process; recovery never finds anything of theirs at these addresses.
            let store = |name| Store { name, kind: "assent", url: "127.0.0.1:1" };
            Some(Server::start(folder.path(), &["bench-1", "bench-2"].map(store))?)
        }
        (None, false) => None,
    };
    let cells = cells(arguments, server.as_ref());
    let slices = u64::from(options.rounds) * u64::try_from(cells.len()).unwrap_or(1);
    let progress = bar(slices, "slices");
    let outcome = tx::run(folder.path(), &options, &cells, |done, _| progress.set_position(done))?;
    progress.finish_and_clear();
    drop(server);
    if json {
        print_json(&outcome)
    } else if arguments.csv {
        print_csv(&outcome);
        Ok(())
    } else if arguments.once {
        print_calls(&outcome);
        Ok(())
    } else {
        print(&outcome);
        Ok(())
    }
}

fn options(arguments: &BenchTx) -> Options {
    let sleep = |median_us, delta_us| Sleep { median_us, delta_us };
    Options {
        commit: !arguments.rollback,
        open_close: arguments.open_close,
        cycles: if arguments.once { 1 } else { arguments.cycles },
        t1: sleep(arguments.medium_delay, arguments.delta_delay),
        t2: sleep(arguments.medium_processing, arguments.delta_processing),
        sleeps: arguments.sleeps,
        branches: match arguments.branches {
            Branches::Dummy => tx::Branches::Dummy,
            Branches::Kv => tx::Branches::Kv,
        },
        rounds: if arguments.once { 1 } else { arguments.cycles.min(5) },
    }
}

fn cells(arguments: &BenchTx, server: Option<&Server>) -> Vec<Cell> {
    let mut cells = Vec::new();
    let given = |default: &[u32]| arguments.clients.map_or_else(|| default.to_vec(), |clients| vec![clients]);
    if arguments.server.is_none() && arguments.coordinator != Some(Coordinator::Served) {
        let clients = if arguments.once { vec![1] } else { given(&[1, 100]) };
        cells.extend(clients.into_iter().map(|clients| Cell { place: Place::Embedded, clients }));
    }
    if let Some(server) = server {
        let clients = if arguments.once { vec![1] } else { given(&[1, 10, 50]) };
        let place = || Place::Served(server.address().clone());
        cells.extend(clients.into_iter().map(|clients| Cell { place: place(), clients }));
    }
    cells
}

fn print(outcome: &Outcome) {
    let mut rows = table(&[
        "coordinator",
        "clients",
        "transactions",
        "tps",
        "total p50 us",
        "x floor",
        "p95 us",
        "p99 us",
        "max us",
        "syncs/tx",
        "round trips/tx",
    ]);
    let optional = |figure: Option<f64>| figure.map_or_else(String::new, |figure| format!("{figure:.3}"));
    for cell in &outcome.cells {
        let total = &cell.latency_us.total;
        rows.add_row([
            cell.coordinator.to_owned(),
            cell.clients.to_string(),
            cell.transactions.to_string(),
            format!("{:.0}", cell.tps),
            format!("{:.0}", total.p50),
            format!("{:.2}", cell.p50_ratio_to_floor),
            format!("{:.0}", total.p95),
            format!("{:.0}", total.p99),
            format!("{:.0}", total.max),
            optional(cell.syncs_per_tx),
            optional(cell.round_trips_per_tx),
        ]);
    }
    println!(
        "two branches each, {}, {}; floor {:.0} us ({:?})\n{rows}",
        outcome.ending, outcome.mode, outcome.floor_us.p50, outcome.floor_us.way
    );
}

/// The trace of one transaction: what each call took.
fn print_calls(outcome: &Outcome) {
    let mut rows = table(&["coordinator", "open us", "begin us", "commit us", "close us", "total us"]);
    for cell in &outcome.cells {
        let calls = &cell.latency_us;
        let took =
            [calls.open, calls.begin, calls.commit, calls.close, calls.total].map(|call| format!("{:.1}", call.max));
        rows.add_row([cell.coordinator.to_owned()].into_iter().chain(took));
    }
    println!("one transaction of two branches, {}\n{rows}", outcome.ending);
}

fn print_csv(outcome: &Outcome) {
    println!("coordinator,clients,call,samples,min,p25,p50,p75,p85,p90,p95,p98,p99,max,mean,sd,tps");
    for Figures { coordinator, clients, latency_us: calls, tps, .. } in &outcome.cells {
        for (call, latency) in [
            ("open", calls.open),
            ("begin", calls.begin),
            ("commit", calls.commit),
            ("close", calls.close),
            ("total", calls.total),
        ] {
            println!(
                "{coordinator},{clients},{call},{},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1},{tps:.0}",
                latency.samples,
                latency.min,
                latency.p25,
                latency.p50,
                latency.p75,
                latency.p85,
                latency.p90,
                latency.p95,
                latency.p98,
                latency.p99,
                latency.max,
                latency.mean,
                latency.sd
            );
        }
    }
}
