//! `assent bench real`: a server for the served coordinator, and the table.

use std::time::Duration;

use assent_bench::databases::NAMES;
use assent_bench::proxy::Delay;
use assent_bench::real::{self, Options, Outcome, Way, Workload};

use super::options::{BenchReal, Databases};
use super::server::{Server, Store, address};
use super::{Folder, bar, print_json, table};
use crate::args::Coordinator;
use crate::failure::Failure;

/// Runs the command.
pub(super) fn run(arguments: &BenchReal, json: bool) -> Result<(), Failure> {
    let given = Folder::new(arguments.folder.as_deref())?;
    let folder = given.own("real")?;
    let served = arguments.server.is_some() || arguments.coordinator != Some(Coordinator::Embedded);
    let server = match (&arguments.server, served) {
        (Some(text), _) => Some(Server::Given(address("--server", text)?)),
        (None, true) => Some(Server::start(folder.path(), &stores(&arguments.databases))?),
        (None, false) => None,
    };
    let options = options(arguments, server.as_ref());
    let progress = bar(0, "slices");
    let outcome = real::run(folder.path(), &options, |done, of| {
        progress.set_length(of);
        progress.set_position(done);
    })?;
    progress.finish_and_clear();
    drop(server);
    if json {
        return print_json(&outcome);
    }
    print(&outcome)?;
    Ok(())
}

/// The databases as a server registers them.
pub(super) fn stores(databases: &Databases) -> [Store<'_>; 2] {
    let [postgres, mariadb] = NAMES;
    [
        Store { name: postgres, kind: "postgres", url: &databases.postgres },
        Store { name: mariadb, kind: "mariadb", url: &databases.mariadb },
    ]
}

fn options(arguments: &BenchReal, server: Option<&Server>) -> Options {
    let reads = [Workload::PostgresReads, Workload::MariadbReads];
    Options {
        databases: arguments.databases.named(),
        threads: arguments.clients.clone(),
        rounds: arguments.rounds,
        slice: Duration::from_millis(arguments.slice_ms),
        workloads: if arguments.read_mostly { reads.to_vec() } else { vec![Workload::BothWrite] },
        delay: Delay { rtt_us: arguments.rtt_us, jitter_us: 0 },
        embedded: arguments.server.is_none() && arguments.coordinator != Some(Coordinator::Served),
        served: server.map(|server| server.address().clone()),
    }
}

fn print(outcome: &Outcome) -> Result<(), Failure> {
    let mut rows = table(&[
        "work",
        "threads",
        "way",
        "tps",
        "x plain",
        "x by hand",
        "p50 us",
        "p95 us",
        "p99 us",
        "CPU us/tx",
        "PostgreSQL syncs/tx",
        "InnoDB syncs/tx",
        "journal syncs/tx",
        "messages/tx",
    ]);
    let optional = |figure: Option<f64>| figure.map_or_else(String::new, |figure| format!("{figure:.3}"));
    for row in &outcome.figures {
        rows.add_row([
            match row.workload {
                Workload::BothWrite => "both write",
                Workload::PostgresReads => "PostgreSQL reads",
                Workload::MariadbReads => "MariaDB reads",
            }
            .to_owned(),
            row.threads.to_string(),
            match row.way {
                Way::Plain => "two plain commits",
                Way::ByHand => "by hand",
                Way::Embedded => "embedded",
                Way::EmbeddedLast => "embedded, last resource",
                Way::EmbeddedReader => "embedded, told it reads",
                Way::Served => "served",
                Way::ServedLast => "served, last resource",
                Way::ServedReader => "served, told it reads",
            }
            .to_owned(),
            format!("{:.0}", row.tps),
            format!("{:.2}", row.ratio_to_plain),
            format!("{:.2}", row.ratio_to_by_hand),
            format!("{:.0}", row.latency_us.p50),
            format!("{:.0}", row.latency_us.p95),
            format!("{:.0}", row.latency_us.p99),
            format!("{:.0}", row.cpu_us_per_tx),
            optional(row.postgres_syncs_per_tx),
            optional(row.mariadb_syncs_per_tx),
            optional(row.journal_syncs_per_tx),
            row.messages_per_tx.map_or_else(String::new, |messages| format!("{messages:.1}")),
        ]);
    }
    let network = match outcome.rtt_us {
        0 => String::new(),
        rtt_us => format!("; {rtt_us} us to the databases and back"),
    };
    say!(
        "one row in PostgreSQL, one in MariaDB{network}; {} rounds of {} ms slices in turn; {} updates found, none missing\n{rows}",
        outcome.rounds,
        outcome.slice_ms,
        outcome.updates_found
    )
}
