//! `assent bench restart`: a server over a long log, timed from its start to its first commit; then its memory.

use std::path::Path;
use std::time::{Duration, Instant};

use assent_bench::restart::{self, DATA, Memory, NAMES, Outcomes};
use assent_kind::Kind;
use assent_world::{Clock as _, RealClock};

use super::options::BenchRestart;
use super::server::{Server, Store};
use super::{Folder, bar, print_json, table};
use crate::failure::Failure;

/// Threads that fill the folder; many, as they share the syncs.
const FILLERS: u32 = 100;
/// Threads of the load.
const CLIENTS: u32 = 50;
/// After so many transactions a server has everything that it keeps for good.
const BASE: u32 = 10_000;
/// How long it may take to give memory back.
const REST: Duration = Duration::from_secs(10);

/// Runs the command.
pub(super) fn run(arguments: &BenchRestart, json: bool) -> Result<(), Failure> {
    let given = Folder::new(arguments.folder.as_deref())?;
    let folder = given.own("restart")?;
    let (finished, in_doubt) = (arguments.finished, arguments.in_doubt);
    let progress = bar(u64::from(finished) + u64::from(in_doubt), "transactions decided");
    restart::fill(folder.path(), finished, in_doubt, FILLERS, |more| progress.inc(more))?;
    progress.finish_and_clear();
    let journal_bytes = bytes(&folder.path().join(DATA).join("coordinator"));
    let start = now();
    let server = Server::start(folder.path(), &NAMES.map(|name| Store { name, kind: "assent", url: "127.0.0.1:1" }))?;
    let ready_ms = millis(start);
    restart::commit_one(server.address())?;
    let first_commit_ms = millis(start);
    let memory = if arguments.transactions == 0 { Vec::new() } else { memory(arguments, &server)? };
    let outcome =
        Outcomes { scenario: "restart", finished, in_doubt, journal_bytes, ready_ms, first_commit_ms, memory };
    if json {
        return print_json(&outcome);
    }
    print(&outcome)?;
    Ok(())
}

fn memory(arguments: &BenchRestart, server: &Server) -> Result<Vec<Memory>, Failure> {
    let look = |after: String| Ok::<_, Failure>(Memory { after, resident_kb: resident_kb(server)? });
    let mut memory = vec![look("the first commit".to_owned())?];
    let progress = bar(u64::from(arguments.transactions), "transactions");
    let count = |more| progress.inc(more);
    restart::commit_many(server.address(), BASE, CLIENTS, count)?;
    memory.push(look(format!("{BASE} transactions: the base"))?);
    restart::commit_many(server.address(), arguments.transactions.saturating_sub(BASE), CLIENTS, count)?;
    progress.finish_and_clear();
    memory.push(look(format!("{} transactions", arguments.transactions))?);
    RealClock.sleep(REST);
    memory.push(look(format!("{} s of rest", REST.as_secs()))?);
    Ok(memory)
}

fn resident_kb(server: &Server) -> Result<u64, Failure> {
    let unknown = || Failure::new(Kind::Internal, "the server's memory is not known");
    let path = format!("/proc/{}/status", server.process().ok_or_else(unknown)?);
    let status = std::fs::read_to_string(&path).map_err(|error| Failure::io("read", &path, &error))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|kb| kb.parse().ok()).ok_or_else(unknown)
}

/// Of the files in a folder; for people.
fn bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
fn now() -> Instant {
    Instant::now()
}

fn millis(since: Instant) -> f64 {
    now().duration_since(since).as_secs_f64() * 1_000.0
}

fn print(outcome: &Outcomes) -> Result<(), Failure> {
    say!(
        "after {} finished and {} transactions in doubt ({} MB of log): ready after {:.0} ms, the first commit after {:.0} ms",
        outcome.finished,
        outcome.in_doubt,
        outcome.journal_bytes >> 20,
        outcome.ready_ms,
        outcome.first_commit_ms
    )?;
    if outcome.memory.is_empty() {
        return Ok(());
    }
    let mut rows = table(&["after", "resident MB"]);
    for look in &outcome.memory {
        rows.add_row([
            look.after.clone(),
            format!("{}.{}", look.resident_kb / 1024, look.resident_kb % 1024 * 10 / 1024),
        ]);
    }
    say!("{rows}")
}
