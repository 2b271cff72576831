//! `assent bench recover`: leaves branches in doubt, starts a server over them, and kills clients in the middle.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use assent_bench::recover::{Doubt, Killed, Outcomes};
use assent_kind::Kind;
use assent_world::net::Address;

use super::options::{BenchRecover, BenchVictim};
use super::real::stores;
use super::server::{Server, address};
use super::{Folder, bar, print_json, table};
use crate::failure::Failure;

/// Where clients are killed: undecided, undecided with every vote, decided, half committed.
const STOPS: [&str; 4] =
    ["client-between-prepares", "client-before-decision", "client-after-decision", "client-between-commits"];
/// Sessions that prepare.
const THREADS: u32 = 8;
/// Thousands of branches make a long list, which costs the servers something each time it is asked for.
const LOOK_MANY: Duration = Duration::from_millis(200);
const LOOK_ONE: Duration = Duration::from_millis(5);

/// Runs the command.
pub(super) fn run(arguments: &BenchRecover, json: bool) -> Result<(), Failure> {
    let given = Folder::new(arguments.folder.as_deref())?;
    let folder = given.own("recover")?;
    let (databases, limit) = (arguments.databases.named(), Duration::from_secs(arguments.limit_s));
    let progress = bar(u64::from(arguments.branches), "branches prepared");
    let transactions = arguments.branches.div_ceil(2);
    let mut doubt = Doubt::leave(folder.path(), &databases, transactions, THREADS, |more| progress.inc(more))?;
    progress.finish_and_clear();
    let branches = doubt.prepared()?;
    let start = now();
    let server = Server::start(folder.path(), &stores(&arguments.databases))?;
    doubt.watch(LOOK_MANY, limit)?;
    let clean_after_ms = millis(start);
    doubt.audit()?;
    let mut killed = Vec::new();
    for stop in STOPS.iter().filter(|_| arguments.kills > 0) {
        let mut times = Vec::new();
        for _ in 0..arguments.kills {
            times.push(kill_one(arguments, &doubt, server.address(), stop, limit)?);
        }
        killed.push(Killed { stop: (*stop).to_owned(), clean_after_ms: times });
    }
    let outcome = Outcomes { scenario: "recover", branches, clean_after_ms, killed };
    if json {
        return print_json(&outcome);
    }
    print(&outcome)?;
    Ok(())
}

/// The hidden client.
pub(super) fn victim(arguments: &BenchVictim) -> Result<(), Failure> {
    let server = address("--server", &arguments.server)?;
    Ok(Doubt::transaction(&arguments.databases.named(), server, &arguments.table)?)
}

/// A client freezes at the stop point and is killed: how long until nothing of it is left, milliseconds.
fn kill_one(
    arguments: &BenchRecover,
    doubt: &Doubt,
    server: &Address,
    stop: &str,
    limit: Duration,
) -> Result<u64, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::io("find", "this program", &error))?;
    let mut child = Command::new(program)
        .args(["bench", "victim", "--server", &server.to_string(), "--table", doubt.table()])
        .env("ASSENT_BENCH_POSTGRES", &arguments.databases.postgres)
        .env("ASSENT_BENCH_MARIADB", &arguments.databases.mariadb)
        .env("ASSENT_STOP", stop)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::io("start", "a client", &error))?;
    let frozen = await_frozen(&mut child, stop);
    let start = now();
    // SIGKILL; its connections end with it.
    _ = child.kill();
    _ = child.wait();
    frozen?;
    doubt.watch(LOOK_ONE, limit)?;
    Ok(millis(start))
}

/// It says so on stderr, and freezes.
fn await_frozen(child: &mut Child, stop: &str) -> Result<(), Failure> {
    let mut line = String::new();
    if let Some(err) = child.stderr.take() {
        BufReader::new(err).read_line(&mut line).map_err(|error| Failure::io("read from", "a client", &error))?;
    }
    if line.starts_with(&format!("stopped {stop} ")) {
        return Ok(());
    }
    Err(Failure::new(Kind::Internal, format!("the client did not reach {stop}; it said: {}", line.trim())))
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
fn now() -> Instant {
    Instant::now()
}

fn millis(since: Instant) -> u64 {
    u64::try_from(now().duration_since(since).as_millis()).unwrap_or(u64::MAX)
}

fn print(outcome: &Outcomes) -> Result<(), Failure> {
    say!(
        "{} branches in doubt, every second transaction decided: both databases clean {:.1} s after the server's start, \
         every row as decided",
        outcome.branches,
        Duration::from_millis(outcome.clean_after_ms).as_secs_f64()
    )?;
    if outcome.killed.is_empty() {
        return Ok(());
    }
    let mut rows = table(&["a client killed at", "both databases clean after ms", "at most"]);
    for killed in &outcome.killed {
        let times: Vec<String> = killed.clean_after_ms.iter().map(u64::to_string).collect();
        let most = killed.clean_after_ms.iter().max().map_or_else(String::new, u64::to_string);
        rows.add_row([killed.stop.clone(), times.join(", "), most]);
    }
    say!("{rows}")
}
