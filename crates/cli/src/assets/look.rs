//! How servers are: one in full, or the nodes of a group side by side; once, or again and again.
//!
//! Walk: [`status`] · [`top`] · [`trace`] the steps of one command. Exactly the named servers are asked, each for itself: who is not reached is
//! shown as that.

use std::collections::BTreeMap;
use std::time::Duration;

use assent_assets::Status;
use assent_kind::Kind;
use assent_world::{Clock as _, RealClock};
use serde_json::json;

use super::{PATIENCE, show, words};
use crate::bench::print_json;
use crate::failure::Failure;

/// One of several that does not answer keeps nobody waiting for long.
const ONE_OF_MANY: Duration = Duration::from_secs(1);

/// What a server says of itself, or why it says nothing.
pub(super) struct Looked {
    pub(super) server: String,
    pub(super) status: Result<Status, Failure>,
    /// Commands that it has executed since the look before, in a second.
    pub(super) rate: Option<u128>,
}

fn look(servers: &[String]) -> Vec<Looked> {
    let patience = if servers.len() > 1 { ONE_OF_MANY } else { PATIENCE };
    let ask = |server: &String| Ok(words::node(server, patience)?.status()?);
    servers.iter().map(|server| Looked { server: server.clone(), status: ask(server), rate: None }).collect()
}

/// If nobody answers, that is the answer.
fn refuse_silence(looked: &[Looked]) -> Result<(), Failure> {
    match looked.first().map(|one| &one.status) {
        Some(Err(failure)) if looked.iter().all(|one| one.status.is_err()) => Err(failure.clone()),
        _ => Ok(()),
    }
}

/// Once.
pub(super) fn status(servers: &[String], as_json: bool) -> Result<(), Failure> {
    let looked = look(servers);
    refuse_silence(&looked)?;
    print(&looked, as_json)
}

fn print(looked: &[Looked], as_json: bool) -> Result<(), Failure> {
    match looked {
        [Looked { status: Ok(status), .. }] => show::status(status, as_json),
        looked => show::nodes(looked, as_json),
    }
}

/// Again and again; `times` 0 until it is interrupted.
pub(super) fn top(servers: &[String], every: Duration, times: u64, as_json: bool) -> Result<(), Failure> {
    let mut before = BTreeMap::<String, u64>::new();
    for number in 1.. {
        let mut looked = look(servers);
        if number == 1 {
            refuse_silence(&looked)?;
        }
        for one in &mut looked {
            let commands = one.status.as_ref().ok().map(Status::commands);
            let since = commands.zip(before.get(&one.server)).map(|(now, then)| u128::from(now.saturating_sub(*then)));
            one.rate = since.map(|since| since * 1_000 / every.as_millis().max(1));
            commands.into_iter().for_each(|commands| _ = before.insert(one.server.clone(), commands));
        }
        if !as_json {
            // Above what was printed last.
            let rate = looked.iter().filter_map(|one| one.rate).max().unwrap_or(0);
            show::say(&format!("\u{1b}[2J\u{1b}[H{}: {rate} commands/s\n", servers.join(", ")))?;
        }
        print(&looked, as_json)?;
        if number == times {
            break;
        }
        RealClock.sleep(every);
    }
    Ok(())
}

/// The steps of the command that was sampled last. Who leads samples.
pub(super) fn trace(servers: &[String], as_json: bool) -> Result<(), Failure> {
    let looked = look(servers);
    refuse_silence(&looked)?;
    let sampled = looked.iter().filter_map(|one| Some((&one.server, one.status.as_ref().ok()?)));
    let Some((server, status)) = sampled.into_iter().find(|(_, status)| !status.trace.is_empty()) else {
        let message = "no command was sampled yet: `assent assets serve --trace-every 1` samples each";
        return Err(Failure::new(Kind::NotFound, message));
    };
    if as_json {
        return print_json(&json!({"server": server, "trace": status.trace.lines().collect::<Vec<_>>()}));
    }
    show::say(&status.trace)
}
