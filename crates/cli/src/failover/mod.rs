//! `assent failover`: a pair of real processes, harmed in every way under clients, and judged by what these were told.
//!
//! Walk: [`run`] opens the [`house`] (members, arbiter, a [`net`] between all of them) and plays [`fault`]s · `play` is one: clients at
//! work (`load`), a blow, its end · `judge` holds histories against each other and against what is there at the end · in between all
//! members are stopped and must be the same when they are opened again · `report` is the table.
//! Deliberately absent: any look into a running member but through its own status.

mod calm;
mod disk;
mod fault;
mod house;
mod judge;
pub(crate) mod load;
pub(crate) mod net;
mod play;
mod report;
mod show;
mod state;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use assent_kind::Kind;
use clap::Args;

use self::fault::{Fault, Means, order};
use self::house::{House, member};
use self::load::{Orders, create};
use self::play::Pace;
use self::report::{FirstAnswer, Played, Report};
use crate::bench::{bar, print_json};
use crate::demo::{now, write};
use crate::failure::Failure;

/// What is played, and how.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// So many plays, of all kinds of faults.
    #[arg(long, default_value_t = 20)]
    pub(crate) plays: usize,
    /// Only faults whose name contains this.
    #[arg(long, default_value = "")]
    pub(crate) only: String,
    /// The same seed plays the same faults in the same order; when a blow falls still depends on the machine.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Clients, each with a session.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(crate) clients: u64,
    /// Commands that each has under way.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub(crate) window: u32,
    /// Microseconds between two answers of a client.
    #[arg(long, default_value_t = 2_000)]
    pub(crate) pace_us: u64,
    /// Assets that all of them change.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(crate) assets: u64,
    /// What stands behind an answer.
    #[arg(long, default_value = "received", value_parser = ["received", "written", "durable"])]
    pub(crate) ack: String,
    /// Who keeps the configuration.
    #[arg(long, default_value = "witness", value_parser = ["witness", "etcd"])]
    pub(crate) arbiter: String,
    /// One server without a standby and an arbiter.
    #[arg(long)]
    pub(crate) solo: bool,
    /// Milliseconds that a blow lasts at least.
    #[arg(long, default_value_t = 300)]
    pub(crate) hold_ms: u64,
    /// Stops all members after so many plays, and at the end, and compares them when they are opened again.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) compare_every: u64,
    /// MiB of a small file system for each member, so that it can be full; 0: none. Only root may mount one.
    #[arg(long, default_value_t = 256)]
    pub(crate) disk_mib: u32,
    /// libfaketime, so that wall clocks can step.
    #[arg(long, value_name = "FILE")]
    pub(crate) clocks: Option<PathBuf>,
    /// Further arguments of each member, as --serve=--silent-ms --serve=200.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(crate) serve: Vec<String>,
    /// Before the plays: so many seconds without a fault, with every core at work, in which nobody may take over.
    #[arg(long, default_value_t = 0)]
    pub(crate) calm: u64,
    /// Shows one fail-over on screen, for so many seconds, instead of plays.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(3..=3_600))]
    pub(crate) show: Option<u64>,
    /// Also writes everything as JSON into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

/// Plays; exit 0 only if every promise was kept in every play.
pub(crate) fn run(arguments: &Arguments, json: bool) -> Result<ExitCode, Failure> {
    let folder = tempfile::Builder::new()
        .prefix("assent-failover-")
        .tempdir()
        .map_err(|error| Failure::io("make", "a temporary folder", &error))?;
    let report = match arguments.show {
        Some(seconds) => show::show(arguments, folder.path(), seconds, json),
        None => all(arguments, folder.path(), json),
    };
    if !report.as_ref().is_ok_and(Report::is_good) && arguments.disk_mib == 0 {
        aside!("seed {}; the members' folders are in {}", arguments.seed, folder.keep().display());
    }
    let report = report?;
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

fn all(arguments: &Arguments, folder: &Path, json: bool) -> Result<Report, Failure> {
    let began = now();
    let mut house = House::open(arguments, folder)?;
    let orders = orders(arguments, &house);
    create(&house.servers, arguments.assets)?;
    let mut report = Report { seed: arguments.seed, ack: arguments.ack.clone(), ..Report::default() };
    report.arbiter = if arguments.solo { "one server".to_owned() } else { arguments.arbiter.clone() };
    let faults = faults(arguments, &house, &mut report.not_played)?;
    let progress =
        if json { indicatif::ProgressBar::hidden() } else { bar(u64::try_from(faults.len()).unwrap_or(0), "plays") };
    let pace = Pace { hold: Duration::from_millis(arguments.hold_ms), solo: arguments.solo };
    if arguments.calm > 0 {
        progress.set_message("calm at full CPU");
        report.plays.push(calm::calm(&mut house, &orders, Duration::from_secs(arguments.calm))?);
    }
    for (number, fault) in (1..).zip(faults) {
        progress.set_message(fault.to_string());
        let orders = Orders { seed: arguments.seed.wrapping_mul(1_000).wrapping_add(number), ..orders.clone() };
        match play::play(&mut house, fault, &orders, pace) {
            Ok(played) => report.plays.push(played),
            Err(failure) => {
                // What follows would be played with something else than a pair.
                let faults = vec![failure.message];
                let broken = Played {
                    fault: fault.to_string(),
                    kind: fault.kind(),
                    faults,
                    said: house.said(),
                    ..Played::default()
                };
                report.plays.push(broken);
                break;
            }
        }
        progress.inc(1);
        if !arguments.solo && number % arguments.compare_every == 0 {
            compare(&mut house, &mut report)?;
        }
    }
    progress.finish_and_clear();
    if report.plays.last().is_some_and(|play| play.faults.is_empty()) {
        house.await_whole()?;
        compare(&mut house, &mut report)?;
    }
    let kills: Vec<u64> = report.plays.iter().filter_map(|play| play.first_answer_us).collect();
    report.first_answer_ms = FirstAnswer::of(&kills);
    let hand_overs = report.plays.iter().filter(|play| play.kind == Fault::HandOver.kind()).map(|play| play.silence_us);
    report.hand_over_ms = FirstAnswer::of(&hand_overs.collect::<Vec<_>>());
    report.elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(report)
}

fn orders(arguments: &Arguments, house: &House) -> Orders {
    Orders {
        servers: house.servers.clone(),
        clients: arguments.clients,
        window: arguments.window,
        pace: Duration::from_micros(arguments.pace_us),
        assets: arguments.assets,
        seed: arguments.seed,
    }
}

fn faults(arguments: &Arguments, house: &House, not_played: &mut Vec<String>) -> Result<Vec<Fault>, Failure> {
    let means = Means {
        solo: arguments.solo,
        disks: house.members.iter().all(|number| house.disk(*number).is_some()),
        clocks: arguments.clocks.is_some(),
        kernel: arguments.ack != "received",
    };
    if !means.kernel {
        not_played.push(
            "both members killed: `received` promises what one of two memories keeps; --ack written has them killed"
                .to_owned(),
        );
    }
    if !means.disks {
        not_played.push(
            "full disks: a small file system is wanted (--disk-mib) and must be allowed (run as root)".to_owned(),
        );
    }
    if !means.clocks {
        not_played.push("clocks that step: install libfaketime, and name it with --clocks".to_owned());
    }
    let all: Vec<Fault> =
        Fault::all(means).into_iter().filter(|fault| fault.to_string().contains(&arguments.only)).collect();
    if all.is_empty() {
        return Err(Failure::invalid(format!("no fault's name contains {:?}", arguments.only)));
    }
    Ok(order(&all, arguments.plays, arguments.seed))
}

/// Stops the members, starts them again, and holds what they have then against each other: all of it comes from their own disks. What a
/// server alone has left is verified in between.
fn compare(house: &mut House, report: &mut Report) -> Result<(), Failure> {
    house.stop()?;
    if let [one] = house.members.as_slice() {
        let (good, text) = house.own(&["assets", "verify", &house.data(*one).display().to_string()])?;
        if !good {
            report.faults.push(format!("log and state after {} plays: {text}", report.plays.len()));
        }
    }
    let names: Vec<String> = house.members.iter().map(|number| member(*number)).collect();
    names.iter().try_for_each(|name| house.start(name))?;
    match house.await_whole() {
        Ok(_) => report.compared += 1,
        Err(failure) => {
            report.faults.push(format!("after {} plays all were stopped: {}", report.plays.len(), failure.message))
        }
    }
    Ok(())
}
