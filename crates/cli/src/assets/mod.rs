//! `assent assets`: numbers in memory, from the command line.
//!
//! Walk: [`run`] the verbs · `serve` a server alone, `group` a node of a group · `words` what a person says to a group · `look` how it is, once or again and again · `offline` verifies and compares what stopped servers left · `show` what is printed.
//! A verb is one command without a session: a lost answer is in doubt, and says so.

mod group;
mod look;
pub(crate) mod numbers;
mod offline;
pub(crate) mod options;
pub(crate) mod section;
pub(crate) mod serve;
mod show;
mod standing;
mod words;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use assent_assets::{Answer, AssetId, Client, Feed, Op, Options, Word};
use assent_kind::Kind;
use assent_world::RealClock;
use assent_world::net::Address;

use self::options::Assets;
use crate::failure::Failure;
use crate::say;

/// Below a server's folder.
const LOG: &str = "log";
const SNAPSHOTS: &str = "snapshots";
const PATIENCE: Duration = Duration::from_secs(5);
/// A watch looks so often whether the connection is alive.
const LOOK: Duration = Duration::from_secs(1);

/// Runs the command.
pub(crate) fn run(command: Assets, json: bool) -> Result<ExitCode, Failure> {
    match command {
        Assets::Serve(arguments) => return serve::run(&arguments),
        Assets::Status { server, trace: true } => look::trace(&server.server, json),
        Assets::Status { server, trace: false } => look::status(&server.server, json),
        Assets::Top { server, every_ms, times } => {
            look::top(&server.server, Duration::from_millis(every_ms), times, json)
        }
        Assets::Create { assets, server } => {
            let create = |(id, value): &(u64, i64)| Op::Create { id: AssetId(*id), value: *value };
            execute(&server.server, &assets.iter().map(create).collect::<Vec<_>>(), json)
        }
        Assets::Get { ids, server } => {
            let get = |id: &u64| Op::Get { id: AssetId(*id) };
            execute(&server.server, &ids.iter().map(get).collect::<Vec<_>>(), json)
        }
        Assets::Set { assets, server } => {
            let set = |(id, value): &(u64, i64)| Op::Set { id: AssetId(*id), value: *value };
            execute(&server.server, &assets.iter().map(set).collect::<Vec<_>>(), json)
        }
        Assets::Add { assets, min, max, server } => {
            let (min, max) = (min.unwrap_or(i64::MIN), max.unwrap_or(i64::MAX));
            let add = |(id, by): &(u64, i64)| Op::AddWithin { id: AssetId(*id), by: *by, min, max };
            execute(&server.server, &assets.iter().map(add).collect::<Vec<_>>(), json)
        }
        Assets::CompareAndSet { id, expected, value, server } => {
            execute(&server.server, &[Op::CompareAndSet { id: AssetId(id), expected, value }], json)
        }
        Assets::Remove { ids, server } => {
            let remove = |id: &u64| Op::Remove { id: AssetId(*id) };
            execute(&server.server, &ids.iter().map(remove).collect::<Vec<_>>(), json)
        }
        Assets::Watch { ids, keep, lines, server } => watch(&server.server, &ids, keep, lines, json),
        Assets::Snapshot(server) => show::status(&client(&server.server)?.snapshot()?, json),
        Assets::HandOver { node, wait_ms, server } => {
            words::hand_over(&server.server, node, Duration::from_millis(wait_ms), json)
        }
        Assets::HoldOut(server) => words::say(&server.server, Word::HoldOut, json),
        Assets::Settle(server) => words::say(&server.server, Word::Settle, json),
        Assets::Release(server) => words::say(&server.server, Word::Release, json),
        Assets::Force(server) => words::say(&server.server, Word::Force, json),
        Assets::Verify { data } => offline::verify(&data, json),
        Assets::Compare { one, other } => return offline::compare(&one, &other, json),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn address(server: &str) -> Result<Address, Failure> {
    server.parse().map_err(|error| Failure::invalid(format!("--server {server}: {error}")))
}

fn client(servers: &[String]) -> Result<Client, Failure> {
    let servers = servers.iter().map(|server| address(server)).collect::<Result<_, _>>()?;
    let options = Options { patience: PATIENCE, session: false, ..Options::to_all(servers) };
    Ok(Client::connect(options, Arc::new(RealClock))?)
}

fn execute(server: &[String], ops: &[Op], json: bool) -> Result<(), Failure> {
    let answer = client(server)?.execute(ops)?;
    match &answer {
        Answer::Done(results) => {
            let said = show::assets(ops, &results.assets, json);
            let is_read = ops.iter().all(|op| matches!(op, Op::Get { .. }));
            // Who takes it for failed adds it again.
            if is_read { said } else { say::done("it was done", said) }
        }
        Answer::Refused { op, refusal } => {
            let which = if ops.len() > 1 { format!(" (operation {} of {})", op + 1, ops.len()) } else { String::new() };
            Err(Failure::new(refusal.kind(), format!("{refusal}{which}; nothing was changed")))
        }
        other => Err(Failure::new(Kind::Internal, format!("the server answered {other:?} to a batch"))),
    }
}

/// The first of the servers that takes a subscription: each node of a group tells what is confirmed, as soon as it knows.
fn feed(servers: &[String], wanted: &[AssetId], keep: u32) -> Result<Feed, Failure> {
    let mut failed = Failure::invalid("--server names none".to_owned());
    for server in servers {
        match Feed::open(&address(server)?, wanted, keep, PATIENCE) {
            Ok(feed) => return Ok(feed),
            Err(error) => failed = error.into(),
        }
    }
    Err(failed)
}

fn watch(servers: &[String], ids: &[u64], keep: u32, lines: u64, json: bool) -> Result<(), Failure> {
    let wanted: Vec<AssetId> = ids.iter().copied().map(AssetId).collect();
    let mut feed = feed(servers, &wanted, keep)?;
    let mut printed = 0;
    loop {
        for news in feed.next(LOOK)?.unwrap_or_default() {
            show::news(&news, json)?;
            printed += 1;
            if printed == lines {
                return Ok(());
            }
        }
    }
}
