//! `assent matrix`: every process killed at every stop point, against real private servers, judged by what stores hold.
//!
//! Walk: [`run`] opens the [`house`] and plays [`cell`]s until its time is up · `play` is one cell: arm, freeze, strike,
//! settle · every transaction writes its name into every store (`ledger`), `client` is one process of them · `oracle`
//! compares what clients were told with what stores hold · `report` is the table.
//! Deliberately absent: any server that it was not given to kill, and any look through Assent's own recovery.

mod cell;
mod client;
mod house;
mod ledger;
mod oracle;
mod play;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use assent_kind::Kind;
use clap::Args;

use self::cell::{Cell, order};
use self::house::House;
use self::play::Play;
use self::report::{Played, Report};
use crate::bench::{bar, print_json};
use crate::demo::{now, write};
use crate::failure::Failure;

/// What the matrix is given.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// A private PostgreSQL; it will be killed.
    #[arg(long, value_name = "URL", hide_env_values = true)]
    pub(crate) postgres: String,
    /// A private MariaDB; it will be killed.
    #[arg(long, value_name = "URL", hide_env_values = true)]
    pub(crate) mariadb: String,
    /// The program that kills and revives them: `HOOK kill DIR postgres`, `HOOK revive DIR postgres`.
    #[arg(long, value_name = "HOOK")]
    pub(crate) kill_hook: PathBuf,
    /// The folder that the hook is given.
    #[arg(long, value_name = "DIR")]
    pub(crate) kill_dir: PathBuf,
    /// Seconds; cells are played in an order that sees everything early, again and again until the time is up.
    #[arg(long, default_value_t = 600)]
    pub(crate) budget: u64,
    /// At most so many cells.
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    pub(crate) cells: usize,
    /// How often the coordinator is started again under load, before the cells.
    #[arg(long, default_value_t = 100)]
    pub(crate) restarts: u32,
    /// Only cells whose name (stop/mode/victim) contains this.
    #[arg(long, default_value = "")]
    pub(crate) only: String,
    /// The decision is a row of the PostgreSQL, and not in the coordinator's log.
    #[arg(long)]
    pub(crate) last_resource: bool,
    /// The same seed plays the same cells in the same order; when a kill falls still depends on the machine.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Also writes everything as JSON into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

/// What one of its clients is given.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClientArguments {
    /// The plan, as JSON in a file.
    #[arg(long)]
    pub(crate) plan: PathBuf,
    /// What its transactions' names begin with.
    #[arg(long)]
    pub(crate) name: String,
    /// Transactions of each thread.
    #[arg(long)]
    pub(crate) many: u64,
    /// Threads, each with connections of its own.
    #[arg(long)]
    pub(crate) threads: u32,
}

/// Runs one client process.
pub(crate) fn client(arguments: &ClientArguments) -> Result<ExitCode, Failure> {
    client::run(arguments)
}

/// Plays the matrix; exit 0 only if every promise was kept in every cell.
pub(crate) fn run(arguments: &Arguments, json: bool) -> Result<ExitCode, Failure> {
    let folder = tempfile::Builder::new()
        .prefix("assent-matrix-")
        .tempdir()
        .map_err(|error| Failure::io("make", "a temporary folder", &error))?;
    let mut house = House::open(arguments, folder.path())?;
    let report = play(&mut house, arguments, json);
    if !report.as_ref().is_ok_and(Report::is_good) {
        let (seed, table, folder) = (arguments.seed, house.table(), folder.keep());
        aside!("seed {seed}, table {table}; journals and configurations are in {}", folder.display());
    }
    let report = report?;
    if report.is_good() {
        // Else a branch may be left that holds a table; and who looks for the reason finds all as it was: scripts/matrix keeps the servers' data.
        house.close()?;
    }
    if let Some(file) = &arguments.report {
        let text = serde_json::to_string(&report).map_err(|error| Failure::new(Kind::Internal, error.to_string()))?;
        write(file, &text)?;
    }
    if json {
        print_json(&report)?;
    } else {
        report.print()?;
    }
    Ok(if report.is_good() { ExitCode::SUCCESS } else { Kind::Corrupt.exit_code().into() })
}

fn play(house: &mut House, arguments: &Arguments, json: bool) -> Result<Report, Failure> {
    let all = Cell::all(arguments.last_resource);
    let cells: Vec<Cell> = all.into_iter().filter(|cell| cell.to_string().contains(&arguments.only)).collect();
    if cells.is_empty() {
        return Err(Failure::invalid(format!("no cell's name contains {:?}", arguments.only)));
    }
    let (began, budget) = (now(), Duration::from_secs(arguments.budget));
    let (count, mut plays, mut number): (usize, Vec<Played>, u32) = (cells.len(), Vec::new(), 0);
    let length = u64::try_from(count.min(arguments.cells)).unwrap_or(u64::MAX);
    let progress = if json { indicatif::ProgressBar::hidden() } else { bar(length, "cells") };
    if arguments.restarts > 0 {
        progress.set_message("restarts");
        plays.push(Play::new(house, number, arguments.seed).restarts(arguments.restarts)?);
    }
    let mut played = 0;
    'rounds: for round in 0.. {
        for cell in order(cells.clone(), arguments.seed.wrapping_add(round)) {
            if played >= arguments.cells || began.elapsed() >= budget {
                break 'rounds;
            }
            progress.set_message(cell.to_string());
            number += 1;
            plays.push(Play::new(house, number, arguments.seed).cell(cell)?);
            played += 1;
            progress.inc(1);
            progress.set_length(length.max(u64::from(number)));
        }
        if arguments.cells != usize::MAX {
            break;
        }
    }
    progress.finish_and_clear();
    Ok(Report {
        seed: arguments.seed,
        elapsed_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        cells: count,
        unplayed: count.saturating_sub(played),
        plays,
    })
}
